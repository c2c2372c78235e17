/* Run it under the thread sanitizer too: make SAN=thread. */
#include "kernels/pool.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/test.h"

struct tally {
    u32 calls[POOL_MAX_THREADS];
    u32 n_threads;
    u64 in, out[POOL_MAX_THREADS]; /* plain: the pool orders them */
};

static void count(void *ctx, u32 i, u32 n) {
    struct tally *t = ctx;
    t->calls[i]++;
    t->out[i] = t->in * (i + 1);
    if (i == 0) t->n_threads = n;
}

static void every_thread_once(void **state) {
    (void)state;
    static const u32 SIZES[] = {1, 2, 3, 8};
    for (u32 s = 0; s < ARRAY_LEN(SIZES); s++) {
        struct err e = {0};
        struct pool *p = pool_new(SIZES[s], false, &e);
        assert_non_null(p);
        assert_int_equal(pool_threads(p), SIZES[s]);
        struct tally t = {.in = 0};
        enum { RUNS = 300 };
        for (u64 r = 1; r <= RUNS; r++) {
            t.in = r;
            pool_run(p, count, &t);
            for (u32 i = 0; i < SIZES[s]; i++) assert_int_equal(t.out[i], r * (i + 1));
        }
        for (u32 i = 0; i < SIZES[s]; i++) assert_int_equal(t.calls[i], RUNS);
        assert_int_equal(t.n_threads, SIZES[s]);
        pool_free(p);
    }
}

static void nap(long us) {
    struct timespec t = {0, us * 1000};
    nanosleep(&t, NULL);
}

/* Workers that fell asleep wake up; a slow worker is slept for. */
static void sleeps_and_wakes(void **state) {
    (void)state;
    struct pool *p = pool_new(3, false, NULL);
    struct tally t = {.in = 0};
    for (u64 r = 1; r <= 20; r++) {
        t.in = r;
        nap(r % 4 ? 3000 : 50);
        pool_run(p, count, &t);
        for (u32 i = 0; i < 3; i++) assert_int_equal(t.out[i], r * (i + 1));
    }
    nap(5000);
    pool_free(p); /* while they sleep */
}

static void slow_worker(void *ctx, u32 i, u32 n) {
    (void)n;
    if (i) nap(5000);
    atomic_fetch_add((atomic_uint *)ctx, 1);
}
static void waits_for_the_slow(void **state) {
    (void)state;
    struct pool *p = pool_new(3, false, NULL);
    atomic_uint n = 0;
    for (int r = 0; r < 10; r++) pool_run(p, slow_worker, &n);
    assert_int_equal(atomic_load(&n), 30);
    pool_free(p);
}

static u64 cpu_us(void) {
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return (u64)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1000000 +
           (u64)(r.ru_utime.tv_usec + r.ru_stime.tv_usec);
}

/* Nobody spins for long: while nothing runs, threads cost no processor time. */
static void idle_threads_sleep(void **state) {
    (void)state;
    struct pool *p = pool_new(2, false, NULL);
    struct tally t = {.in = 1};
    for (u32 r = 0; r < 10; r++) {
        pool_run(p, count, &t);
        nap(1000);
    }
    u64 before = cpu_us();
    nap(200000);
    assert_true(cpu_us() - before < 100000);
    pool_free(p);
}

/* Fewer threads take part for a while, and more again; none that sits out runs anything. */
static void limits_threads(void **state) {
    (void)state;
    static const u32 ACTIVE[] = {3, 1, 2, 4, 1, 9, 2, 3, 0, 4};
    struct pool *p = pool_new(4, false, NULL);
    u64 r = 0;
    for (u32 k = 0; k < 200; k++) {
        u32 active = MAX(1u, MIN(ACTIVE[k % ARRAY_LEN(ACTIVE)], 4u));
        pool_limit(p, ACTIVE[k % ARRAY_LEN(ACTIVE)]);
        assert_int_equal(pool_threads(p), active);
        if (k % 17 == 0) nap(2000);
        for (u32 again = 0; again < 3; again++) {
            struct tally t = {.in = ++r};
            pool_run(p, count, &t);
            assert_int_equal(t.n_threads, active);
            for (u32 i = 0; i < 4; i++) assert_int_equal(t.calls[i], i < active);
        }
    }
    pool_limit(p, 1);
    pool_free(p); /* while three are parked */
}

struct deal {
    struct pool *pool;
    atomic_uint taken[1000];
};

static void take_all(void *ctx, u32 i, u32 n) {
    (void)i;
    (void)n;
    struct deal *d = ctx;
    u64 piece;
    while ((piece = pool_take(d->pool)) < ARRAY_LEN(d->taken))
        atomic_fetch_add(&d->taken[piece], 1);
}

/* Every piece goes to one thread, and each run begins at 0 again. */
static void deals_pieces(void **state) {
    (void)state;
    static struct deal d;
    d.pool = pool_new(4, false, NULL);
    for (u32 r = 1; r <= 20; r++) {
        (r % 3 ? pool_run : pool_run_here)(d.pool, take_all, &d);
        for (u32 i = 0; i < ARRAY_LEN(d.taken); i++) assert_int_equal(atomic_load(&d.taken[i]), r);
    }
    pool_free(d.pool);
}

static void next_all(void *ctx, u32 i, u32 n) {
    struct deal *d = ctx;
    u64 piece;
    if (i == 1) nap(2000); /* others take what it leaves */
    while (pool_next(d->pool, i, n, &piece)) atomic_fetch_add(&d->taken[piece], 1);
}

/* Every piece of every share goes to one thread, however many pieces and threads there are. */
static void shares_pieces(void **state) {
    (void)state;
    static const u32 N[] = {0, 1, 3, 4, 17, 1000};
    static struct deal d;
    d.pool = pool_new(4, false, NULL);
    for (u32 r = 0; r < 3 * ARRAY_LEN(N); r++) {
        u32 n = N[r % ARRAY_LEN(N)], threads = 1 + r % 4;
        memset(d.taken, 0, sizeof d.taken);
        pool_limit(d.pool, threads);
        pool_deal(d.pool, n, threads);
        pool_run(d.pool, next_all, &d);
        for (u32 i = 0; i < ARRAY_LEN(d.taken); i++)
            assert_int_equal(atomic_load(&d.taken[i]), i < n);
    }
    u64 piece; /* one's own in order, then another's last */
    pool_deal(d.pool, 6, 2);
    static const u64 ORDER[] = {3, 4, 5, 2, 1, 0};
    for (u32 i = 0; i < 6; i++) {
        assert_true(pool_next(d.pool, 1, 2, &piece));
        assert_int_equal(piece, ORDER[i]);
    }
    assert_true(!pool_next(d.pool, 1, 2, &piece) && !pool_next(d.pool, 0, 2, &piece));
    u64 n; /* thirds of one's own, then the other's, one by one */
    pool_deal(d.pool, 14, 2);
    static const u64 RUNS[][2] = {{7, 3}, {10, 2}, {12, 1}, {13, 1}, {6, 1}};
    for (u32 i = 0; i < ARRAY_LEN(RUNS); i++) {
        assert_true(pool_next_run(d.pool, 1, 2, &piece, &n));
        assert_int_equal(piece, RUNS[i][0]);
        assert_int_equal(n, RUNS[i][1]);
    }
    pool_deal(d.pool, 14, 1);
    assert_true(pool_next_run(d.pool, 0, 1, &piece, &n) && piece == 0 && n == 14);
    assert_false(pool_next_run(d.pool, 0, 1, &piece, &n));
    pool_free(d.pool);
}

static void limits(void **state) {
    (void)state;
    struct err e = {0};
    assert_null(pool_new(POOL_MAX_THREADS + 1, false, &e));
    assert_int_equal(e.code, ERR_ARG);
    assert_true(pool_cpus() >= 1);
    struct pool *p = pool_new(0, false, &e);
    assert_true(pool_threads(p) >= 1 && pool_threads(p) <= pool_cpus());
    pool_free(p);
    pool_free(NULL);
}

/* Parts are in order, cover everything once, and are cut at multiples of align. */
static void parts(void **state) {
    (void)state;
    for (u64 n = 0; n < 70; n++)
        for (u32 align = 1; align <= 16; align *= 4)
            for (u32 threads = 1; threads < 9; threads++) {
                u64 at = 0, most = 0, least = UINT64_MAX;
                for (u32 i = 0; i < threads; i++) {
                    struct pool_part p = pool_part(n, align, i, threads);
                    assert_true(p.lo == at && p.hi >= p.lo && (p.hi % align == 0 || p.hi == n));
                    at = p.hi;
                    u64 units = (p.hi - p.lo + align - 1) / align;
                    most = MAX(most, units);
                    least = MIN(least, units);
                }
                assert_int_equal(at, n);
                assert_true(most - least <= 1);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_thread_once),
        cmocka_unit_test(sleeps_and_wakes),
        cmocka_unit_test(waits_for_the_slow),
        cmocka_unit_test(idle_threads_sleep),
        cmocka_unit_test(limits_threads),
        cmocka_unit_test(limits),
        cmocka_unit_test(parts),
        cmocka_unit_test(deals_pieces),
        cmocka_unit_test(shares_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
