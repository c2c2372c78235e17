#include "comm/team.h"

#include <math.h>
#include <string.h>

#include "base/random.h"
#include "comm/group_internal.h"
#include "comm/group_shm.h"
#include "comm/group_testbed.h"
#include "comm/team_wire.h"

static struct kernels kernels;

static float term(u32 rank, size_t i) {
    return (float)(random_unit(rank + 1, i) - 0.5) * (float)(1 << (i % 20));
}

/* Lengths of one hop, of shared additions, and of several pieces. */
static const size_t LENGTHS[] = {0, 1, 576, 4097, 16384, 700001};

static void exact_sums(struct group *g) {
    u32 n_ranks = group_size(g);
    struct team *t = team_new(g, 0, n_ranks, TEAM_F16, &kernels, true);
    for (size_t l = 0; l < ARRAY_LEN(LENGTHS); l++) {
        size_t n = LENGTHS[l];
        struct err e;
        float *x = calloc(n + 1, sizeof *x);
        for (size_t i = 0; i < n; i++) x[i] = term(group_rank(g), i);
        CHECK(team_sum_exact(t, x, n, &e));
        for (size_t i = 0; i < n; i++) {
            float want = term(0, i);
            for (u32 r = 1; r < n_ranks; r++) want += term(r, i);
            CHECK(memcmp(&want, &x[i], sizeof want) == 0); /* the same bits on every rank */
        }
        free(x);
    }
    CHECK(team_barrier(t, NULL));
    team_free(t);
}

static void sums_agree_bit_by_bit(void **state) {
    (void)state;
    for (u32 n = 1; n <= RANKS; n++) run_ranks(n, exact_sums);
}

/* The team compares hashes itself (`check`); here, how far the sum is from the exact one. */
static void rounded_sums(struct group *g) {
    static const double MOST[TEAM_WIRES] = {[TEAM_F16] = 1e-3, [TEAM_F32] = 1e-6, [TEAM_Q8] = 2e-2};
    u32 n_ranks = group_size(g);
    for (u32 w = 0; w < TEAM_WIRES; w++) {
        struct team *t = team_new(g, 0, n_ranks, (enum team_wire)w, &kernels, true);
        for (size_t l = 0; l < ARRAY_LEN(LENGTHS); l++) {
            size_t n = LENGTHS[l];
            struct err e;
            double diff = 0, norm = 0;
            float *x = calloc(n + 1, sizeof *x);
            for (size_t i = 0; i < n; i++) x[i] = term(group_rank(g), i);
            CHECK(team_sum(t, x, n, &e));
            for (size_t i = 0; i < n; i++) {
                double want = 0;
                for (u32 r = 0; r < n_ranks; r++) {
                    want += term(r, i);
                    norm += term(r, i) * term(r, i); /* of the parts: they may cancel out */
                }
                diff += (x[i] - want) * (x[i] - want);
            }
            CHECK(n == 0 || sqrt(diff / norm) <= MOST[w]);
            free(x);
        }
        team_free(t);
    }
    CHECK(barrier(g, NULL));
}

static void sums_in_every_wire_type(void **state) {
    (void)state;
    for (u32 n = 1; n <= RANKS; n++) {
        over_tcp = n % 2;
        run_ranks(n, rounded_sums);
    }
    over_tcp = false;
}

/* Several pieces under way; what comes out is what single sums give. */
static void pieces(struct group *g) {
    enum { N = 20000, PIECES = 5 };
    struct team *t = team_new(g, 0, group_size(g), TEAM_F32, &kernels, true);
    float *x = calloc(PIECES, N * sizeof *x), *y = calloc(PIECES, N * sizeof *y);
    struct err e;
    for (size_t i = 0; i < PIECES * N; i++) x[i] = y[i] = term(group_rank(g), i);
    CHECK(team_sum_send(t, x, N, &e) && team_sum_send(t, x + N, N, &e));
    for (u32 p = 0; p < PIECES; p++) {
        CHECK(p + 2 >= PIECES || team_sum_send(t, x + (size_t)(p + 2) * N, N, &e));
        CHECK(team_sum_take(t, x + (size_t)p * N, N, &e));
    }
    CHECK(team_sum(t, y, PIECES * N, &e) && memcmp(x, y, PIECES * N * sizeof *x) == 0);
    free(x);
    free(y);
    CHECK(team_barrier(t, &e));
    team_free(t);
}

static void sums_in_pieces(void **state) {
    (void)state;
    for (u32 n = 1; n <= RANKS; n++) run_ranks(n, pieces);
}

/* Whoever sends its part goes on, though there is no room for it and nobody reads; the rest goes
 * and comes while it computes, in its own calls of team_progress. */
static bool sent, summed;
static bool in_time(const bool *flag, struct team *t) {
    u64 end_ms = clock_ms() + 20000;
    while (!__atomic_load_n(flag, __ATOMIC_ACQUIRE) && clock_ms() < end_ms) {
        if (t) team_progress(t);
        usleep(100);
    }
    return __atomic_load_n(flag, __ATOMIC_ACQUIRE);
}
static void late(struct group *g) {
    enum { N = 5 << 20 };
    struct team *t = team_new(g, 0, 2, TEAM_F32, &kernels, false);
    float *x = calloc(N, sizeof *x);
    struct err e;
    u32 me = team_rank(t);
    for (size_t i = 0; i < N; i++) x[i] = term(me, i);
    CHECK(me == 0 || in_time(&sent, NULL));
    CHECK(team_sum_send(t, x, N, &e));
    if (me == 0) __atomic_store_n(&sent, true, __ATOMIC_RELEASE);
    CHECK(me == 1 || in_time(&summed, t));
    CHECK(team_sum_take(t, x, N, &e));
    if (me == 1) __atomic_store_n(&summed, true, __ATOMIC_RELEASE);
    for (size_t i = 0; i < N; i++) CHECK(x[i] == term(0, i) + term(1, i));
    free(x);
    CHECK(team_barrier(t, &e));
    team_free(t);
}

static void sums_wait_for_room_alone(void **state) {
    (void)state;
    static const struct {
        bool tcp, sealed;
        u32 streams;
    } WAYS[] = {{0}, {true, false, 1}, {true, false, 4}, {true, true, 1}, {true, true, 3}};
    for (size_t i = 0; i < ARRAY_LEN(WAYS); i++) {
        sent = summed = false;
        over_tcp = WAYS[i].tcp;
        encrypted = WAYS[i].sealed;
        streams = WAYS[i].streams;
        run_ranks(2, late);
    }
    over_tcp = encrypted = false;
    streams = 0;
}

/* Segments are added up and spread while nobody takes them: with as many calls of team_progress. */
static u32 n_spread;
static void spread_alone(struct group *g) {
    enum { N = 600000, SUMS = 2, SUMMED = GROUP_TYPE_RESERVED + 2 };
    struct team *t = team_new(g, 0, group_size(g), TEAM_F32, &kernels, true);
    float *x = calloc(SUMS, N * sizeof *x), *y = calloc(SUMS, N * sizeof *y);
    struct err e;
    u64 end_ms = clock_ms() + 20000;
    for (size_t i = 0; i < (size_t)SUMS * N; i++) x[i] = y[i] = term(group_rank(g), i);
    for (u32 s = 0; s < SUMS; s++) CHECK(team_sum_send(t, x + (size_t)s * N, N, &e));
    for (u32 from = 0, told = 0; clock_ms() < end_ms;) {
        team_progress(t);
        while (from < group_size(g) && (from == group_rank(g) || group_has_type(g, from, SUMMED)))
            from++;
        if (from == group_size(g) && !told++) __atomic_add_fetch(&n_spread, 1, __ATOMIC_ACQ_REL);
        if (__atomic_load_n(&n_spread, __ATOMIC_ACQUIRE) == group_size(g)) break;
        usleep(100);
    }
    CHECK(__atomic_load_n(&n_spread, __ATOMIC_ACQUIRE) == group_size(g));
    for (u32 s = 0; s < SUMS; s++) CHECK(team_sum_take(t, x + (size_t)s * N, N, &e));
    CHECK(team_sum(t, y, (size_t)SUMS * N, &e));
    CHECK(memcmp(x, y, (size_t)SUMS * N * sizeof *x) == 0);
    free(x);
    free(y);
    CHECK(team_barrier(t, &e));
    team_free(t);
}

static void sums_are_spread_before_they_are_taken(void **state) {
    (void)state;
    for (u32 n = 3; n <= RANKS; n++) {
        n_spread = 0;
        over_tcp = n % 2;
        run_ranks(n, spread_alone);
    }
    over_tcp = false;
}

/* Of rank 1's frames, most are read in the ring, at whole lines of it; those that go round its end
 * are not, nor is one that comes before its turn. */
static void read_where_they_lie(struct group *g) {
    enum { TYPE = GROUP_TYPE_RESERVED + 0x50, OTHER = 7, N = 200, LEN = 9001, PERIOD = 16 };
    static u8 sent_bytes[LEN];
    struct group_rank *r = &g->ranks[1 - group_rank(g)];
    struct iovec v = {sent_bytes, LEN};
    struct err e;
    struct group_msg m;
    u32 n_there = 0;
    for (u32 i = 0; i < N && group_rank(g) == 1; i++) {
        memset(sent_bytes, (int)i, LEN);
        if (i % PERIOD == 0) CHECK(group_send(g, 0, OTHER, &v, 1, &e));
        CHECK(group_send_late(g, 0, TYPE, &v, 1, &e) && group_flush(g, &e));
        CHECK(group_recv_type(g, 0, TYPE, 0, &m, &e)); /* it has been read */
    }
    for (u32 i = 0; i < N && group_rank(g) == 0; i++) {
        const void *body;
        while (!over_tcp && ring_ready(&r->from) <= LEN) usleep(10);
        CHECK(group_recv_part(g, 1, TYPE, LEN, &body, &e));
        const u8 *p = body, *ring = r->shm;
        CHECK(p[0] == (u8)i && p[LEN - 1] == (u8)i && ((uintptr_t)p & 63) == 0);
        CHECK(r->part_there == (p >= ring && p < ring + (1 << 20)));
        n_there += r->part_there;
        group_part_done(g, 1);
        CHECK(group_send_late(g, 1, TYPE, NULL, 0, &e));
    }
    for (u32 i = 0; i < N && group_rank(g) == 0; i += PERIOD) {
        CHECK(group_recv(g, 1, 5000, &m, &e) && m.type == OTHER && m.n == LEN);
        CHECK(m.body[0] == (u8)i && m.body[LEN - 1] == (u8)i);
    }
    CHECK(group_rank(g) == 1 || over_tcp || n_there > N * 3 / 4);
    CHECK(barrier(g, &e));
}

static void parts_are_read_where_they_lie(void **state) {
    (void)state;
    for (u32 i = 0; i < 2; i++) {
        over_tcp = i;
        run_ranks(2, read_where_they_lie);
    }
    over_tcp = false;
}

/* Two teams in one group, as a pipeline of teams has them. */
static void others(struct group *g) {
    enum { ROWS = 3, ROOM = 7 };
    u32 rank = group_rank(g), first = rank < 2 ? 0 : 2;
    struct team *t = team_new(g, first, 2, TEAM_F32, &kernels, true);
    struct err e;
    u32 me = team_rank(t), all[2], mine = 10 + rank;
    CHECK(team_size(t) == 2 && me == rank - first);
    CHECK(team_all_gather(t, &mine, sizeof mine, all, &e));
    CHECK(all[0] == 10 + first && all[1] == 11 + first);
    CHECK(team_broadcast(t, 1, &mine, sizeof mine, &e) && mine == 11 + first);
    u64 cols = first ? (me ? 5 : 2) : (me ? 7 : 0); /* uneven, and one with nothing */
    float x[ROWS * ROOM];
    for (u32 i = 0; i < ROWS * ROOM; i++) x[i] = -1;
    for (u32 i = 0; i < ROWS * cols; i++) x[i] = (float)(me * 100 + i);
    CHECK(team_gather_rows(t, x, ROWS, cols, ROOM, &e));
    for (u32 i = 0; i < ROWS && me == 0; i++)
        for (u32 c = 0; c < ROOM; c++)
            CHECK(x[i * ROOM + c] ==
                  (float)(c < cols ? i * cols + c : 100 + i * (ROOM - cols) + c - cols));
    /* Columns that don't add up are seen, not believed. */
    bool ok = team_gather_rows(t, x, 1, 3, ROOM, &e);
    CHECK(ok == (me > 0) && (me > 0 || strstr(e.msg, "6 of 7 columns")));
    CHECK(team_barrier(t, &e));
    team_free(t);
}

static void gather_and_broadcast(void **state) {
    (void)state;
    run_ranks(4, others);
    float x[2] = {1, 2}, y[2];
    assert_true(team_gather_rows(NULL, x, 1, 2, 2, NULL) && team_sum(NULL, x, 2, NULL));
    assert_true(team_all_gather(NULL, x, sizeof x, y, NULL) && y[1] == 2);
    assert_true(team_barrier(NULL, NULL) && team_broadcast(NULL, 0, x, 4, NULL));
}

/* What encode leaves in x is what decode gives, hidden states beyond f16 and odd values included.
 */
static void wire_round_trip(void **state) {
    (void)state;
    enum { N = 2 * TEAM_SEGMENT + 5 };
    static float x[N], y[N];
    for (u32 w = 0; w < TEAM_WIRES; w++)
        for (u32 big = 0; big < 3; big++) {
            for (u32 i = 0; i < N; i++) x[i] = y[i] = term(big, i);
            if (big == 1) x[7] = y[7] = 3e6f;
            if (big == 2) x[TEAM_SEGMENT] = INFINITY, x[5] = NAN, x[6] = 1e-41f;
            u8 *wire = aligned_alloc(64, align_up(team_wire_bytes((enum team_wire)w, N), 64));
            team_wire_encode(&kernels, (enum team_wire)w, wire, x, N);
            if (big == 1) assert_true(fabsf(x[7] - 3e6f) < 3e4f);
            team_wire_decode(&kernels, (enum team_wire)w, y, wire, N, false);
            assert_memory_equal(x, y, sizeof x);
            free(wire);
        }
    enum team_wire parsed;
    assert_true(team_wire_parse("q8", &parsed) && parsed == TEAM_Q8);
    assert_false(team_wire_parse("f8", &parsed));
}

int main(void) {
    struct err e;
    if (!kernels_select(&kernels, NULL, &e)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wire_round_trip),         cmocka_unit_test(sums_agree_bit_by_bit),
        cmocka_unit_test(sums_in_every_wire_type), cmocka_unit_test(sums_in_pieces),
        cmocka_unit_test(gather_and_broadcast),    cmocka_unit_test(sums_wait_for_room_alone),
        cmocka_unit_test(parts_are_read_where_they_lie),
        cmocka_unit_test(sums_are_spread_before_they_are_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
