#include "base/test.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "base/sock.h"
#include "comm/group.h"
#include "comm/group_internal.h"
#include "comm/group_cases.h"

static void frames_in_order(void **state) {
    (void)state;
    for (u32 n = 1; n <= RANKS; n++) {
        over_tcp = n % 2;
        run_ranks(n, exchange);
        over_tcp = !over_tcp;
        run_ranks(n, exchange);
    }
    over_tcp = false;
}

static void sending_to_each_other(void **state) {
    (void)state;
    run_ranks(2, flood);
    over_tcp = true;
    run_ranks(2, flood);
    over_tcp = false;
}

static void busy_rank_is_alive(void **state) {
    (void)state;
    run_ranks(2, busy);
}

static void killed_rank(void **state) {
    (void)state;
    lost_rank(SIGKILL, 900);
    over_tcp = true;
    lost_rank(SIGKILL, 900);
    over_tcp = false;
}

/* Rank 1 leaves by its user's wish, the others because it did: whoever of them is heard of first.
 */
static void *leaving_main(void *ctx) {
    struct member *m = ctx;
    struct group_msg msg;
    struct err e = {0};
    struct group *g = join(m->rank, m->n, key, 5000, &e);
    CHECK(g && barrier(g, &e));
    if (m->rank == 1) {
        clock_sleep_ms(30);
    } else {
        for (u32 i = 0; i < 2; i++) { /* and so it stays */
            CHECK(!group_recv(g, GROUP_ANY, 5000, &msg, &e));
            CHECK(e.code == ERR_CANCELLED && strstr(e.msg, "was stopped"));
        }
    }
    group_leave(g);
    return NULL;
}

static void a_rank_that_is_stopped_is_not_lost(void **state) {
    (void)state;
    for (u32 turn = 0; turn < 20; turn++) {
        struct member m[3];
        over_tcp = turn % 2;
        listen_all(3);
        for (u32 r = 0; r < 3; r++) {
            m[r] = (struct member){.rank = r, .n = 3};
            assert_int_equal(pthread_create(&m[r].t, NULL, leaving_main, &m[r]), 0);
        }
        for (u32 r = 0; r < 3; r++) pthread_join(m[r].t, NULL);
        close_all(3);
    }
    over_tcp = false;
}

static void frozen_rank(void **state) {
    (void)state;
    lost_rank(SIGSTOP, 1100);
}

static void nobody_there(void **state) {
    (void)state;
    struct err e = {0};
    listen_all(2);
    close(L.fd[0]);
    u64 t0 = clock_ms();
    assert_null(join(1, 2, key, 400, &e));
    assert_true(clock_ms() - t0 < 5000); /* not the half minute of the default */
    assert_int_equal(e.code, ERR_NET);
    assert_non_null(strstr(e.msg, "rank 0 (127.0.0.1:"));
    close(L.fd[1]);
}

static void *join_with_other_key(void *ctx) {
    u8 other[GROUP_KEY_BYTES] = "another key";
    struct err *e = ctx;
    assert_null(join(1, 2, other, 3000, e));
    return NULL;
}

static void wrong_key(void **state) {
    (void)state;
    struct err e0 = {0}, e1 = {0};
    pthread_t t;
    listen_all(2);
    assert_int_equal(pthread_create(&t, NULL, join_with_other_key, &e1), 0);
    assert_null(join(0, 2, key, 1000, &e0));
    pthread_join(t, NULL);
    assert_int_equal(e1.code, ERR_AUTH);
    assert_non_null(strstr(e1.msg, "rank 0 (127.0.0.1:"));
    assert_int_equal(e0.code, ERR_NET);
    assert_non_null(strstr(e0.msg, "another key"));
    close_all(2);
}

static int dial(u16 port) {
    struct sockaddr_storage a;
    socklen_t n;
    assert_true(sock_resolve("127.0.0.1", port, &a, &n, NULL));
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, n), 0);
    return fd;
}

/* Strangers that say nothing, or nonsense, or claim to be a rank, keep nobody out. */
static void with_strangers(u32 n_talking) {
    int fd[240];
    u8 hello[GROUP_HELLO_BYTES], buf[256];
    struct group_hello h = {.n_lanes = 1, .from = 1, .to = 0, .n_ranks = 2};
    group_auth_hello(&h, hello);
    listen_all(2);
    for (u32 i = 0; i < ARRAY_LEN(fd); i++) {
        fd[i] = dial(L.port[0]);
        if (i >= n_talking) continue; /* silent, and more than are let in at once */
        if (i % 3 == 1)
            assert_true(send(fd[i],
                             "GET / HTTP/1.1\r\nHost: example\r\n\r\nxxxxxxxxxxxxxxxxxxxxxxxx", 58,
                             0) > 0);
        if (i % 3 == 2) assert_true(send(fd[i], hello, sizeof hello, 0) > 0);
        if (i % 3 == 2) assert_true(send(fd[i], hello, GROUP_PROOF_BYTES, 0) > 0);
    }
    struct member m = {.rank = 1, .n = 2, .run = exchange};
    assert_int_equal(pthread_create(&m.t, NULL, member_main, &m), 0);
    struct err e = {0};
    struct group *g = join(0, 2, key, 5000, &e);
    if (!g) fail_msg("%s", e.msg);
    exchange(g);
    pthread_join(m.t, NULL);
    group_free(m.g);
    group_free(g);
    /* None of those that claimed to be rank 1 was welcomed. */
    for (u32 i = 0; i < ARRAY_LEN(fd); i++) {
        ssize_t n = 0, k;
        while (i < n_talking && i % 3 == 2 &&
               (k = recv(fd[i], buf + n, sizeof buf - (size_t)n, 0)) > 0)
            n += k;
        assert_true(n == 0 || n == GROUP_REPLY_BYTES);
        close(fd[i]);
    }
    close_all(2);
}

static void strangers(void **state) {
    (void)state;
    with_strangers(40);
    with_strangers(0);
}

/* Something that answers, but not as a rank; and one of a later version. */
static void *false_rank(void *ctx) {
    int fd = -1;
    u8 buf[GROUP_HELLO_BYTES], reply[GROUP_REPLY_BYTES], nonce[32] = {0};
    while (fd < 0) {
        fd = accept(L.fd[0], NULL, NULL);
        if (fd < 0) clock_sleep_ms(5);
    }
    while (recv(fd, buf, sizeof buf, MSG_WAITALL) != sizeof buf) clock_sleep_ms(1);
    if (ctx) {
        group_auth_reply(key, GROUP_OTHER_VERSION, buf, nonce, reply);
        reply[4] = 9;
    } else {
        memset(reply, 'x', sizeof reply);
    }
    CHECK(send(fd, reply, sizeof reply, 0) == sizeof reply);
    clock_sleep_ms(200);
    close(fd);
    return NULL;
}

static void another_version(void **state) {
    (void)state;
    for (int versioned = 0; versioned < 2; versioned++) {
        struct err e = {0};
        pthread_t t;
        listen_all(2);
        assert_int_equal(pthread_create(&t, NULL, false_rank, versioned ? &t : NULL), 0);
        assert_null(join(1, 2, key, 3000, &e));
        assert_int_equal(e.code, versioned ? ERR_UNSUPPORTED : ERR_FORMAT);
        if (versioned) assert_non_null(strstr(e.msg, "version 9"));
        pthread_join(t, NULL);
        close_all(2);
    }
    struct group_peer twice[2] = {{1, "h", 1, 0}, {1, "h", 1, 0}};
    struct group_cfg cfg = {.n_ranks = 3, .peers = twice, .key = key};
    struct err e = {0};
    assert_null(group_connect(&cfg, &e));
    assert_int_equal(e.code, ERR_ARG);
}

static void proofs(void **state) {
    (void)state;
    u8 hello[GROUP_HELLO_BYTES], reply[GROUP_REPLY_BYTES], proof[GROUP_PROOF_BYTES], nonce[32],
        got[32], other[32] = "other";
    struct group_hello h = {.channel = GROUP_PULSE, .n_lanes = 1, .from = 2, .to = 1, .n_ranks = 3},
                       back;
    struct err e;
    u32 version;
    random_bytes(h.nonce, 32);
    random_bytes(nonce, 32);
    group_auth_hello(&h, hello);
    assert_true(group_auth_parse_hello(&back, &version, hello));
    assert_int_equal(version, GROUP_VERSION);
    assert_memory_equal(&h, &back, sizeof h);
    group_auth_reply(key, GROUP_OK, hello, nonce, reply);
    assert_true(group_auth_check_reply(key, hello, reply, got, &e));
    assert_memory_equal(got, nonce, 32);
    assert_false(group_auth_check_reply(other, hello, reply, got, &e));
    group_auth_proof(key, hello, nonce, proof);
    assert_true(group_auth_check_proof(key, hello, nonce, proof));
    assert_false(group_auth_check_proof(other, hello, nonce, proof));
    /* Every bit of what is proved counts, and neither side's proof is the other's. */
    for (size_t i = 0; i < GROUP_HELLO_BYTES; i++) {
        hello[i] ^= 1;
        assert_false(group_auth_check_proof(key, hello, nonce, proof));
        assert_false(group_auth_check_reply(key, hello, reply, got, &e));
        hello[i] ^= 1;
    }
    assert_memory_not_equal(proof, reply + GROUP_REPLY_BYTES - 32, 32);
}

static void polling(void **state) {
    (void)state;
    run_ranks(2, polls);
}

static u64 processor_us(void) {
    struct rusage u;
    assert_int_equal(getrusage(RUSAGE_SELF, &u), 0);
    return (u64)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000 +
           (u64)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* A connection that is over while nothing is wanted of it does not keep its rank busy. */
static void waiting_for_room_sleeps(void **state) {
    (void)state;
    struct group_rank ranks[2] = {
        {.pulse_fd = -1},
        {.rank = 1, .pulse_fd = -1, .n_lanes = 1, .ready_bytes = GROUP_READY_MAX_BYTES}};
    struct group g = {.n_ranks = 2, .ranks = ranks, .lost = {-1, -1}};
    int fd[2];
    bool has_msg;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    close(fd[1]);
    ranks[1].lane[0].fd = fd[0];
    u64 before_us = processor_us();
    assert_true(group_poll(&g, NULL, 0, 300, &has_msg, NULL) && !has_msg);
    assert_true(processor_us() - before_us < 50000);
    close(fd[0]);
}

static void says_its_link(struct group *g, enum group_carrier carrier, u32 n_streams) {
    for (u32 r = 0; r < group_size(g); r++) {
        if (r == group_rank(g)) continue;
        struct group_link l = group_link(g, r);
        CHECK(l.carrier == carrier && l.n_streams == n_streams && !*l.provider);
        CHECK(l.is_encrypted == (encrypted && carrier == GROUP_CARRIER_TCP));
    }
}

static void local_exchange(struct group *g) {
    says_its_link(g, GROUP_CARRIER_SHM, 1);
    exchange(g);
}

static void sealed_exchange(struct group *g) {
    says_its_link(g, GROUP_CARRIER_TCP, 1);
    exchange(g);
    for (u32 r = 0; r < group_size(g); r++)
        CHECK(r == group_rank(g) ||
              (g->ranks[r].lane[0].seal_out.n > 44 && g->ranks[r].lane[0].seal_in.n > 44));
}

static void frames_travel_encrypted(void **state) {
    (void)state;
    encrypted = over_tcp = true;
    run_ranks(3, sealed_exchange);
    run_ranks(2, flood);
    over_tcp = false;
    run_ranks(3, local_exchange); /* within a machine, shared memory stays */
    encrypted = false;
}

/* Frames around the sizes from which several connections carry one, small ones in between. */
static void striped(struct group *g) {
    enum { BYTES = 3 << 20 };
    static _Thread_local u8 body[BYTES];
    struct err e;
    u32 other = 1 - group_rank(g), n_seen = 0;
    says_its_link(g, GROUP_CARRIER_TCP, streams);
    for (u32 i = 0; i < BYTES; i++) body[i] = byte_of(group_rank(g), 0, i / 61);
    for (u32 i = 0; i < 60; i++) {
        size_t n = i % 3 == 2 ? i : 2 * streams * GROUP_STAGE_BYTES * (1 + i % 3) + i - 20;
        struct iovec iov[2] = {{body, i}, {body + i, n - i}};
        struct group_msg m;
        CHECK(group_send(g, other, i, iov, 2, &e));
        for (; i % 4 == 3 && n_seen <= i; n_seen++) { /* four at once */
            CHECK(group_recv(g, (int)other, 5000, &m, &e) && m.type == n_seen);
            for (size_t at = 0; at < m.n; at++) CHECK(m.body[at] == byte_of(other, 0, at / 61));
        }
    }
    CHECK(barrier(g, &e));
}

static void frames_over_several_connections(void **state) {
    (void)state;
    over_tcp = true;
    for (streams = 2; streams <= 5; streams += 3)
        for (int i = 0; i < 2; i++) {
            encrypted = i;
            run_ranks(2, striped);
            run_ranks(3, exchange);
            run_ranks(2, flood);
        }
    streams = 3;
    lost_rank(SIGKILL, 900);
    streams = 0;
    over_tcp = encrypted = false;
}

static void *join_encrypted(void *ctx) {
    struct err *e = ctx;
    struct group_peer other = {0, "127.0.0.1", L.port[0], 0};
    struct group_cfg cfg = {.rank = 1,
                            .n_ranks = 2,
                            .listen_fd = L.fd[1],
                            .peers = &other,
                            .key = key,
                            .timeout_ms = 3000,
                            .encrypt = true};
    CHECK(!group_connect(&cfg, e));
    return NULL;
}

static void both_encrypt_or_none(void **state) {
    (void)state;
    struct err e0 = {0}, e1 = {0};
    pthread_t t;
    listen_all(2);
    assert_int_equal(pthread_create(&t, NULL, join_encrypted, &e1), 0);
    assert_null(join(0, 2, key, 1000, &e0));
    pthread_join(t, NULL);
    assert_int_equal(e1.code, ERR_ARG);
    assert_non_null(strstr(e1.msg, "--encrypt-data"));
    close_all(2);
}

static bool called_off(void *ctx) {
    (void)ctx;
    return true;
}

/* A runner that is told to end does not wait for ranks that never come. */
static void connecting_can_be_called_off(void **state) {
    (void)state;
    struct err e = {0};
    listen_all(2);
    struct group_peer other = {1, "127.0.0.1", L.port[1], 0};
    struct group_cfg cfg = {.n_ranks = 2,
                            .listen_fd = L.fd[0],
                            .peers = &other,
                            .key = key,
                            .timeout_ms = 600000,
                            .give_up = called_off};
    assert_null(group_connect(&cfg, &e));
    assert_int_equal(e.code, ERR_CANCELLED);
    close_all(2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_rank),
        cmocka_unit_test(a_rank_that_is_stopped_is_not_lost),
        cmocka_unit_test(frozen_rank),
        cmocka_unit_test(proofs),
        cmocka_unit_test(frames_in_order),
        cmocka_unit_test(sending_to_each_other),
        cmocka_unit_test(busy_rank_is_alive),
        cmocka_unit_test(polling),
        cmocka_unit_test(waiting_for_room_sleeps),
        cmocka_unit_test(frames_travel_encrypted),
        cmocka_unit_test(frames_over_several_connections),
        cmocka_unit_test(both_encrypt_or_none),
        cmocka_unit_test(nobody_there),
        cmocka_unit_test(connecting_can_be_called_off),
        cmocka_unit_test(wrong_key),
        cmocka_unit_test(strangers),
        cmocka_unit_test(another_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
