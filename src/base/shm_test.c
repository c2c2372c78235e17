#include "base/shm.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/test.h"

enum { CAP = 256, TOTAL = 1 << 16, PIECE = 40, PIECES = 20000 };

static u8 byte_at(u64 i) {
    return (u8)(i * 7 + (i >> 8));
}

/* The child writes pieces of all lengths, the parent reads others; neither waits but by asking. */
static void ring_carries_bytes_between_processes(void **state) {
    (void)state;
    char name[SHM_NAME_CAP];
    struct err e = {0};
    void *mine = shm_make(ring_bytes(CAP), name, &e);
    if (!mine) fail_msg("%s", e.msg);
    pid_t pid = fork();
    if (pid == 0) {
        void *p = shm_attach(name, ring_bytes(CAP), NULL);
        if (!p) _exit(1);
        struct ring w = ring_at(p, CAP);
        u8 buf[97];
        for (u64 sent = 0; sent < TOTAL && getppid() != 1;) {
            size_t n = MIN(1 + sent % sizeof buf, TOTAL - sent);
            for (size_t i = 0; i < n; i++) buf[i] = byte_at(sent + i);
            n = ring_write(&w, buf, n);
            ring_publish(&w);
            sent += n;
            if (!n) sched_yield();
        }
        _exit(0);
    }
    struct ring r = ring_at(mine, CAP);
    u8 buf[61];
    for (u64 got = 0; got < TOTAL;) {
        size_t n = ring_ready(&r);
        assert_true(n <= CAP);
        if (!n) sched_yield();
        n = MIN(n, 1 + got % sizeof buf);
        ring_read(&r, buf, n);
        for (size_t i = 0; i < n; i++) assert_int_equal(buf[i], byte_at(got + i));
        got += n;
    }
    int st;
    waitpid(pid, &st, 0);
    assert_int_equal(st, 0);
    assert_null(shm_attach(name, ring_bytes(CAP), &e)); /* attaching removed the name */
    shm_unmap(mine, ring_bytes(CAP));
}

static void sleepers_are_woken_once(void **state) {
    (void)state;
    void *mem = aligned_alloc(64, align_up(ring_bytes(CAP), 64));
    u8 buf[CAP] = {0};
    memset(mem, 0, ring_bytes(CAP));
    struct ring w = ring_at(mem, CAP), r = ring_at(mem, CAP);
    assert_true(ring_reader_sleeps(&r, true)); /* nothing there: it may */
    assert_int_equal(ring_write(&w, buf, 3), 3);
    assert_int_equal(ring_ready(&r), 0); /* not published */
    assert_true(ring_publish(&w));
    assert_int_equal(ring_ready(&r), 3);
    assert_int_equal(ring_write(&w, buf, CAP), CAP - 3);
    assert_false(ring_publish(&w)); /* it was woken already */
    assert_false(ring_reader_sleeps(&r, true));
    ring_reader_sleeps(&r, false);
    assert_true(ring_writer_sleeps(&w, true)); /* full: it may */
    assert_true(ring_read(&r, buf, 10));
    assert_false(ring_read(&r, buf, 10));
    assert_false(ring_writer_sleeps(&w, true));
    /* A counter that makes no sense. */
    *(u64 *)mem = 1u << 30;
    assert_true(ring_ready(&r) == SIZE_MAX);
    free(mem);
}

static void bytes_are_read_where_they_lie(void **state) {
    (void)state;
    void *mem = calloc(1, ring_bytes(CAP));
    struct ring w = ring_at(mem, CAP), r = ring_at(mem, CAP);
    u8 buf[CAP];
    for (u32 i = 0; i < CAP; i++) buf[i] = byte_at(i);
    ring_write(&w, buf, CAP);
    ring_publish(&w);
    assert_memory_equal(ring_peek(&r, CAP), buf, CAP);
    assert_int_equal(ring_ready(&r), CAP); /* looking takes nothing */
    ring_writer_sleeps(&w, true);
    assert_true(ring_skip(&r, 200));
    assert_int_equal(ring_write(&w, buf, CAP), 200);
    ring_publish(&w);
    assert_memory_equal(ring_peek(&r, CAP - 200), buf + 200, CAP - 200);
    assert_null(ring_peek(&r, CAP - 199)); /* round the end */
    assert_false(ring_skip(&r, CAP - 200));
    assert_memory_equal(ring_peek(&r, 200), buf, 200);
    free(mem);
}

static void *drains(void *ctx) {
    struct ring r = ring_at(ctx, CAP);
    u8 buf[CAP];
    for (u64 seen = 0; seen < PIECES * (u64)PIECE;) {
        size_t ready = ring_ready(&r), n = MIN(ready, (size_t)3);
        if (!n) sched_yield();
        ring_read(&r, buf, n);
        seen += n;
    }
    return NULL;
}

/* Room that comes up while one writes is no reason to write more than was given. */
static void no_more_is_written_than_given(void **state) {
    (void)state;
    void *mem = calloc(1, ring_bytes(CAP));
    struct ring w = ring_at(mem, CAP);
    u8 piece[PIECE + CAP] = {0};
    pthread_t reader;
    assert_int_equal(pthread_create(&reader, NULL, drains, mem), 0);
    size_t most = 0;
    for (u32 i = 0; i < PIECES; i++)
        for (size_t left = PIECE; left;) {
            size_t n = ring_write(&w, piece, left);
            most = MAX(most, n);
            if (n > left) break;
            left -= n;
            ring_publish(&w);
            if (!n) sched_yield();
        }
    pthread_join(reader, NULL);
    assert_true(most <= PIECE);
    free(mem);
}

static void what_is_not_there(void **state) {
    (void)state;
    struct err e = {0};
    char name[SHM_NAME_CAP], host[SHM_HOST_CAP], again[SHM_HOST_CAP];
    assert_null(shm_attach("/skein-none", 4096, &e));
    assert_int_equal(e.code, ERR_NOT_FOUND);
    void *p = shm_make(4096, name, &e);
    assert_non_null(p);
    assert_null(shm_attach(name, 1 << 20, &e)); /* another size */
    shm_unmap(p, 4096);
    p = shm_make(4096, name, &e);
    shm_forget(name);
    assert_null(shm_attach(name, 4096, &e));
    shm_unmap(p, 4096);
    if (shm_host_id(host)) assert_true(shm_host_id(again) && strcmp(host, again) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ring_carries_bytes_between_processes),
        cmocka_unit_test(sleepers_are_woken_once),
        cmocka_unit_test(bytes_are_read_where_they_lie),
        cmocka_unit_test(no_more_is_written_than_given),
        cmocka_unit_test(what_is_not_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
