/* group_cases.h - what ranks do in tests, whatever the link between them.
 *
 * Only included by tests. */
#pragma once

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "comm/group_testbed.h"

static inline size_t size_of(u32 i) {
    static const size_t sizes[] = {0, 1, 5, 6, 7, 4096, 65529, 65530, 65536, 100000, 3000001};
    return sizes[i % ARRAY_LEN(sizes)];
}

static inline u8 byte_of(u32 from, u32 i, size_t at) {
    return (u8)(from * 31 + i * 7 + at * 13 + 1);
}

static inline void exchange(struct group *g) {
    enum { N = 44 };
    struct err e;
    u32 n_seen[RANKS] = {0}, n_left = N * (group_size(g) - 1);
    static _Thread_local u8 body[3000001];
    for (u32 i = 0; i < N; i++) {
        size_t n = size_of(i);
        for (size_t k = 0; k < n; k++) body[k] = byte_of(group_rank(g), i, k);
        /* in two parts: the receiver sees one */
        struct iovec iov[2] = {{body, n / 3}, {body + n / 3, n - n / 3}};
        for (u32 to = 0; to < group_size(g); to++) {
            if (to != group_rank(g) && !group_send(g, to, i, iov, 2, &e)) {
                fprintf(stderr, "sending to %u: %s\n", to, e.msg);
                abort();
            }
        }
    }
    while (n_left--) {
        struct group_msg m;
        CHECK(group_recv(g, GROUP_ANY, 5000, &m, &e));
        u32 i = n_seen[m.from]++;
        CHECK(m.type == i && m.n == size_of(i) && (uintptr_t)m.body % 64 == 0);
        for (size_t k = 0; k < m.n; k += 1 + m.n / 1000) {
            CHECK(m.body[k] == byte_of(m.from, i, k));
        }
    }
    struct group_msg m;
    CHECK(barrier(g, &e));
    CHECK(!group_recv(g, GROUP_ANY, 10, &m, &e) && e.code == ERR_BUSY);
    clock_sleep_ms(
        100); /* the next barrier's frames would be seen by those that are still asking */
    CHECK(barrier(g, &e));
}

/* Both fill the kernel's buffers before either reads. */
static inline void flood(struct group *g) {
    enum { BYTES = 24 << 20 };
    struct err e;
    struct group_msg m;
    u8 *p = malloc(BYTES);
    memset(p, (int)group_rank(g) + 1, BYTES);
    struct iovec iov = {p, BYTES};
    u32 other = 1 - group_rank(g);
    for (int i = 0; i < 3; i++) CHECK(group_send(g, other, 1, &iov, 1, &e));
    for (int i = 0; i < 3; i++) {
        CHECK(group_recv(g, (int)other, 5000, &m, &e));
        CHECK(m.n == BYTES && m.body[BYTES - 1] == other + 1);
    }
    free(p);
    CHECK(barrier(g, &e));
}

/* A rank that computes for long is not lost. */
static inline void busy(struct group *g) {
    struct err e;
    struct group_msg m;
    if (group_rank(g) == 0) {
        clock_sleep_ms(2000);
        CHECK(group_send(g, 1, 7, NULL, 0, &e));
    } else {
        CHECK(group_recv(g, 0, 5000, &m, &e));
        CHECK(m.type == 7);
    }
    CHECK(barrier(g, &e));
}

static inline pid_t start_process(u32 rank, u32 n) {
    pid_t pid = fork();
    if (pid) return pid;
    struct group *g = join(rank, n, key, 5000, NULL);
    struct group_msg m;
    if (g) group_recv(g, GROUP_ANY, -1, &m, NULL);
    clock_sleep_ms(3000); /* it has noticed, too, but must not be taken for the first to go */
    _exit(0);
}

/* What libfabric's shm provider leaves of a process that is killed: 16 MB each. */
static inline void forget_regions(pid_t pid) {
    char name[48];
    for (u32 i = 0; i < 8; i++) {
        snprintf(name, sizeof name, "/%d:%u:%u", (int)pid, (unsigned)getuid(), i);
        shm_unlink(name);
    }
}

/* Milliseconds until a rank's loss is known. */
static inline u64 lose_rank(int sig) {
    struct err e = {0};
    struct group_msg m;
    int status;
    listen_all(3);
    pid_t p1 = start_process(1, 3), p2 = start_process(2, 3);
    struct group *g = join(0, 3, key, 5000, &e);
    if (!g) fail_msg("%s", e.msg);
    clock_sleep_ms(100);
    u64 t0 = clock_ms();
    kill(p2, sig);
    assert_false(group_recv(g, 1, 5000, &m, &e)); /* waiting for another one */
    u64 took_ms = clock_ms() - t0;
    assert_int_equal(e.code, ERR_NET);
    assert_non_null(strstr(e.msg, "rank 2 (127.0.0.1:"));
    struct iovec iov = {"x", 1};
    assert_false(group_send(g, 1, 1, &iov, 1, &e)); /* and so it stays */
    assert_non_null(strstr(e.msg, "rank 2"));
    kill(p1, SIGKILL);
    kill(p2, SIGKILL);
    waitpid(p1, &status, 0);
    waitpid(p2, &status, 0);
    forget_regions(p1);
    forget_regions(p2);
    group_free(g);
    close_all(3);
    return took_ms;
}

/* Within max_ms, unless the machine is too busy to say: three tries, the last with more time. */
static inline void lost_rank(int sig, u64 max_ms) {
    u64 took_ms[3];
    for (u32 i = 0; i < ARRAY_LEN(took_ms); i++) {
        took_ms[i] = lose_rank(sig);
        if (took_ms[i] < (i + 1 < ARRAY_LEN(took_ms) ? max_ms : 3000)) return;
    }
    fail_msg("%s: signal %d noticed after %llu, %llu and %llu ms", fabric ? fabric : "no fabric",
             sig, (unsigned long long)took_ms[0], (unsigned long long)took_ms[1],
             (unsigned long long)took_ms[2]);
}

static inline void *poke(void *ctx) {
    clock_sleep_ms(100);
    CHECK(write(*(int *)ctx, "x", 1) == 1);
    return NULL;
}

static inline void polls(struct group *g) {
    struct err e;
    bool has_msg;
    int p[2];
    struct group_msg m;
    if (group_rank(g) == 1) {
        CHECK(group_recv(g, 0, -1, &m, &e)); /* the other one is done with what must not see ours */
        CHECK(m.type == 4);
        clock_sleep_ms(20); /* and by now it sleeps */
        CHECK(group_send(g, 0, 3, NULL, 0, &e));
        CHECK(barrier(g, &e));
        return;
    }
    CHECK(pipe(p) == 0);
    struct pollfd extra = {.fd = p[0], .events = POLLIN};
    u64 t0 = clock_ms();
    CHECK(group_poll(g, &extra, 1, 50, &has_msg, &e));
    CHECK(!has_msg && !extra.revents && clock_ms() - t0 >= 49);
    pthread_t t;
    CHECK(pthread_create(&t, NULL, poke, &p[1]) == 0);
    CHECK(group_poll(g, &extra, 1, 5000, &has_msg, &e));
    CHECK(!has_msg && extra.revents == POLLIN);
    CHECK(read(p[0], &t0, 1) == 1);
    pthread_join(t, NULL);
    CHECK(group_send(g, 1, 4, NULL, 0, &e));
    CHECK(group_poll(g, &extra, 1, -1, &has_msg, &e));
    CHECK(has_msg && !extra.revents);
    CHECK(group_recv(g, GROUP_ANY, 0, &m, &e));
    CHECK(m.type == 3 && m.from == 1);
    CHECK(group_poll(g, &extra, 1, 0, &has_msg, &e) && !has_msg);
    close(p[0]);
    close(p[1]);
    CHECK(barrier(g, &e));
}
