/* group_testbed.h - what tests of groups share: ranks on loopback, each in a thread or process.
 *
 * Only included by tests. */
#pragma once

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/test.h"
#include "comm/team.h"

enum { RANKS = 4 };

/* The ranks of a group on loopback: listening sockets first, then each connects in its own thread
 * or process. */
static struct {
    int fd[RANKS];
    u16 port[RANKS];
} L;
static bool over_tcp; /* not in shared memory */
static bool encrypted;
static const char *fabric;
static u32 streams; /* connections a pair */
static u8 key[GROUP_KEY_BYTES] = "the key of this instance";

static inline void listen_all(u32 n) {
    for (u32 r = 0; r < n; r++) {
        L.port[r] = 0;
        L.fd[r] = group_listen("127.0.0.1", &L.port[r], NULL);
        assert_true(L.fd[r] >= 0);
    }
}

static inline void close_all(u32 n) {
    for (u32 r = 0; r < n; r++) close(L.fd[r]);
}

static inline struct group *join(u32 rank, u32 n, const u8 *with_key, u32 timeout_ms,
                                 struct err *e) {
    struct group_peer peers[RANKS];
    u32 k = 0;
    for (u32 r = 0; r < n; r++) {
        if (r != rank) peers[k++] = (struct group_peer){r, "127.0.0.1", L.port[r], streams};
    }
    struct group_cfg cfg = {.rank = rank,
                            .n_ranks = n,
                            .listen_fd = L.fd[rank],
                            .peers = peers,
                            .key = with_key,
                            .timeout_ms = timeout_ms,
                            .no_shm = over_tcp,
                            .encrypt = encrypted,
                            .fabric = fabric};
    return group_connect(&cfg, e);
}

struct member {
    pthread_t t;
    u32 rank, n;
    struct group *g; /* left behind when run returns: who leaves is lost to the others */
    void (*run)(struct group *g);
};

static inline void *member_main(void *ctx) {
    struct member *m = ctx;
    struct err e = {0};
    struct group *g = join(m->rank, m->n, key, 5000, &e);
    if (!g) {
        fprintf(stderr, "rank %u: %s\n", m->rank, e.msg);
        abort();
    }
    m->run(g);
    m->g = g;
    return NULL;
}

static inline void run_ranks(u32 n, void (*run)(struct group *g)) {
    struct member m[RANKS];
    listen_all(n);
    for (u32 r = 0; r < n; r++) {
        m[r] = (struct member){.rank = r, .n = n, .run = run};
        assert_int_equal(pthread_create(&m[r].t, NULL, member_main, &m[r]), 0);
    }
    for (u32 r = 0; r < n; r++) pthread_join(m[r].t, NULL);
    for (u32 r = 0; r < n; r++) group_free(m[r].g);
    close_all(n);
}

/* cmocka's asserts belong to the main thread. */
#define CHECK(c)                                                    \
    do {                                                            \
        if (!(c)) {                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #c); \
            abort();                                                \
        }                                                           \
    } while (0)

/* Returns once all ranks have come. */
static inline bool barrier(struct group *g, struct err *e) {
    struct team *t = team_new(g, 0, group_size(g), TEAM_F32, NULL, false);
    bool ok = team_barrier(t, e);
    team_free(t);
    return ok;
}
