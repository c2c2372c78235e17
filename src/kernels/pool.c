#include "kernels/pool.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/noalloc.h"
#include "base/sysinfo.h"
#include "kernels/cores.h"

/* An idle thread looks for SPIN_NS before it sleeps, and reads the clock every RELAXES looks: a
 * look takes nanoseconds on most machines and microseconds in an emulator, so the time is what
 * counts. Who finds that SPIN_GAP_NS went by between two readings was off its processor: others
 * want it, and the pool does not spin for CROWDED_NS. */
enum { RELAXES = 32, SPIN_NS = 50000, SPIN_GAP_NS = 400000, CROWDED_NS = 20000000 };

#if defined(__x86_64__)
static inline void relax(void) {
    __builtin_ia32_pause();
}
#elif defined(__aarch64__)
static inline void relax(void) {
    __asm__ volatile("yield");
}
#else
static inline void relax(void) {}
#endif

struct worker {
    struct pool *pool;
    u32 index;
    pthread_t thread;
};

/* What `run` holds: a number that every run increments, and above it how many threads take part. */
enum { ACTIVE_SHIFT = 22, RUN_MASK = (1 << ACTIVE_SHIFT) - 1 };

/* Pieces of one thread that nobody has taken: the first in the upper half, the end in the lower.
 * The owner takes at the front, others at the end, both by compare-and-swap. */
struct share {
    _Alignas(64) _Atomic(u64) left;
};

struct pool {
    u32 n, active; /* threads, and those that take part in the next run */
    bool pin;
    struct cores cores;
    bool spins; /* false where threads share processors: who spins keeps others from working */
    bool stop;
    void (*fn)(void *ctx, u32 i, u32 n_threads);
    void *ctx;
    bool noalloc; /* the caller's, for the workers */
    /* run: changed by pool_run after fn, ctx and busy are set (release); workers see it change
     * (acquire). A worker that takes no part parks until a run has it again. busy: workers still in
     * fn; each takes one off after fn (release), pool_run waits for 0 (acquire). sleepers and
     * waiting say that someone sleeps on a condition; they are sequentially consistent with run and
     * busy, so that either the sleeper sees the change or the other side sees the sleeper. */
    _Alignas(64)
        atomic_ullong next; /* of pool_take: reset before `run` changes, then only added to */
    _Alignas(64) atomic_uint run;
    _Alignas(64) atomic_uint busy;
    atomic_uint sleepers;
    atomic_bool waiting;
    atomic_ullong crowded_until; /* clock_ns until which nobody spins; a hint, relaxed */
    pthread_mutex_t lock;        /* only around sleeping and waking */
    pthread_cond_t wake, park, done;
    struct share share[POOL_MAX_THREADS]; /* of pool_deal */
    struct worker workers[];
};

/* Waits, spinning, until *p is no longer `old`. False when it is time to sleep. */
static bool spin_until_not(struct pool *pool, atomic_uint *p, u32 old) {
    if (!pool->spins) return atomic_load_explicit(p, memory_order_acquire) != old;
    u64 start = 0, last = 0;
    for (;;) {
        for (u32 i = 0; i < RELAXES; i++) {
            if (atomic_load_explicit(p, memory_order_acquire) != old) return true;
            relax();
        }
        u64 now = clock_ns();
        if (!start) {
            start = last = now;
            if (now < atomic_load_explicit(&pool->crowded_until, memory_order_relaxed))
                return false;
        }
        if (now - last > SPIN_GAP_NS)
            atomic_store_explicit(&pool->crowded_until, now + CROWDED_NS, memory_order_relaxed);
        if (now - start > SPIN_NS) return false;
        last = now;
    }
}

static bool takes_part(const struct worker *w, u32 run) {
    return w->index < run >> ACTIVE_SHIFT;
}

/* Until a run has this worker, which the last one had not. */
static void park(struct worker *w) {
    struct pool *p = w->pool;
    pthread_mutex_lock(&p->lock);
    while (!takes_part(w, atomic_load(&p->run))) pthread_cond_wait(&p->park, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

static void *worker_main(void *arg) {
    struct worker *w = arg;
    struct pool *p = w->pool;
    u32 seen = 0;
    if (p->pin) cores_bind(&p->cores, p->n);
    for (;;) {
        if (!spin_until_not(p, &p->run, seen)) {
            pthread_mutex_lock(&p->lock);
            atomic_fetch_add(&p->sleepers, 1);
            while (atomic_load(&p->run) == seen) pthread_cond_wait(&p->wake, &p->lock);
            atomic_fetch_sub(&p->sleepers, 1);
            pthread_mutex_unlock(&p->lock);
        }
        seen = atomic_load_explicit(&p->run, memory_order_acquire);
        if (!takes_part(w, seen)) {
            park(w);
            seen = atomic_load_explicit(&p->run, memory_order_acquire);
        }
        if (p->stop) return NULL;
        if (p->noalloc) noalloc_begin();
        p->fn(p->ctx, w->index, seen >> ACTIVE_SHIFT);
        if (p->noalloc) noalloc_end();
        if (atomic_fetch_sub(&p->busy, 1) == 1 && atomic_load(&p->waiting)) {
            pthread_mutex_lock(&p->lock);
            pthread_cond_signal(&p->done);
            pthread_mutex_unlock(&p->lock);
        }
    }
}

/* Starts the workers on what fn, ctx and stop say. */
static void start(struct pool *p) {
    u32 last = atomic_load_explicit(&p->run, memory_order_relaxed);
    atomic_store_explicit(&p->busy, p->active - 1, memory_order_relaxed);
    atomic_store(&p->run, ((last + 1) & RUN_MASK) | p->active << ACTIVE_SHIFT);
    bool more = p->active > last >> ACTIVE_SHIFT;
    if (!atomic_load(&p->sleepers) && !more) return;
    pthread_mutex_lock(&p->lock);
    pthread_cond_broadcast(&p->wake);
    if (more) pthread_cond_broadcast(&p->park);
    pthread_mutex_unlock(&p->lock);
}

static void await(struct pool *p) {
    for (;;) {
        u32 left = atomic_load_explicit(&p->busy, memory_order_acquire);
        if (!left) return;
        if (spin_until_not(p, &p->busy, left)) continue;
        pthread_mutex_lock(&p->lock);
        atomic_store(&p->waiting, true);
        while (atomic_load(&p->busy)) pthread_cond_wait(&p->done, &p->lock);
        atomic_store(&p->waiting, false);
        pthread_mutex_unlock(&p->lock);
    }
}

void pool_run_here(struct pool *p, void (*fn)(void *ctx, u32 i, u32 n_threads), void *ctx) {
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    fn(ctx, 0, 1);
}

u64 pool_take(struct pool *p) {
    return atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed);
}

void pool_deal(struct pool *p, u64 n, u32 n_threads) {
    ASSERT(n < 1ull << 32 && n_threads <= POOL_MAX_THREADS);
    for (u32 i = 0; i < n_threads; i++) {
        struct pool_part part = pool_part(n, 1, i, n_threads);
        atomic_store_explicit(&p->share[i].left, part.lo << 32 | part.hi, memory_order_relaxed);
    }
}

/* One piece at the end; at the front the `part`th part of what is left, rounded up. */
static bool take(struct share *s, bool front, u64 part, u64 *piece, u64 *n) {
    u64 left = atomic_load_explicit(&s->left, memory_order_relaxed), lo, hi;
    do {
        lo = left >> 32;
        hi = left & UINT32_MAX;
        if (lo >= hi) return false;
        *n = front ? (hi - lo - 1) / part + 1 : 1;
        *piece = front ? lo : hi - 1;
    } while (!atomic_compare_exchange_weak_explicit(
        &s->left, &left, front ? (lo + *n) << 32 | hi : lo << 32 | (hi - 1), memory_order_relaxed,
        memory_order_relaxed));
    return true;
}

static bool next(struct pool *p, u32 i, u32 n_threads, u64 part, u64 *piece, u64 *n) {
    if (take(&p->share[i], true, part, piece, n)) return true;
    for (u32 k = 1; k < n_threads; k++)
        if (take(&p->share[(i + k) % n_threads], false, 1, piece, n)) return true;
    return false;
}

bool pool_next(struct pool *p, u32 i, u32 n_threads, u64 *piece) {
    u64 one;
    return next(p, i, n_threads, UINT32_MAX, piece, &one);
}

bool pool_next_run(struct pool *p, u32 i, u32 n_threads, u64 *piece, u64 *n) {
    return next(p, i, n_threads, n_threads == 1 ? 1 : 3, piece, n);
}

void pool_run(struct pool *p, void (*fn)(void *ctx, u32 i, u32 n_threads), void *ctx) {
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    if (p->active > 1) {
        p->fn = fn;
        p->ctx = ctx;
        p->noalloc = noalloc_on();
        start(p);
    }
    fn(ctx, 0, p->active);
    if (p->active > 1) await(p);
}

void pool_limit(struct pool *p, u32 n_threads) {
    p->active = MAX(1u, MIN(n_threads, p->n));
}

u32 pool_cpus(void) {
    struct cores c;
    cores_read(&c);
    return MAX(MIN(c.n, sysinfo_cpu_quota()), 1u);
}

struct pool *pool_new(u32 n_threads, bool pin, struct err *e) {
    struct cores cores;
    cores_read(&cores);
    u32 quota = sysinfo_cpu_quota();
    u32 n = n_threads ? n_threads : MIN(cores_physical(&cores), MIN(quota, (u32)POOL_MAX_THREADS));
    if (n > POOL_MAX_THREADS) {
        err_set(e, ERR_ARG, "%u threads: at most %u are supported", n, (u32)POOL_MAX_THREADS);
        return NULL;
    }
    size_t bytes = align_up(sizeof(struct pool) + (n - 1) * sizeof(struct worker), 64);
    struct pool *p = aligned_alloc(64, bytes);
    if (!p) {
        err_set(e, ERR_MEMORY, "no memory for %u compute threads", n);
        return NULL;
    }
    memset(p, 0, bytes);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_cond_init(&p->park, NULL);
    pthread_cond_init(&p->done, NULL);
    p->n = n;
    p->active = 1;
    p->spins = n <= MAX(MIN(cores.n, quota), 1u);
    p->pin = pin;
    p->cores = cores;
    for (u32 i = 1; i < n; i++) {
        struct worker *w = &p->workers[i - 1];
        *w = (struct worker){.pool = p, .index = i};
        int rc = pthread_create(&w->thread, NULL, worker_main, w);
        if (rc) {
            errno = rc;
            err_errno(e, ERR_IO, "can't start compute thread %u of %u", i, n);
            p->n = i;
            pool_free(p);
            return NULL;
        }
    }
    p->active = n;
    if (pin) cores_bind(&p->cores, n);
    return p;
}

void pool_free(struct pool *p) {
    if (!p) return;
    p->stop = true;
    p->active = p->n;
    start(p);
    for (u32 i = 1; i < p->n; i++) pthread_join(p->workers[i - 1].thread, NULL);
    pthread_cond_destroy(&p->done);
    if (p->pin) cores_unbind(&p->cores);
    pthread_cond_destroy(&p->park);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

u32 pool_threads(const struct pool *p) {
    return p->active;
}

struct pool_part pool_part(u64 n, u64 align, u32 i, u32 n_threads) {
    u64 units = n / align + (n % align != 0);
    u64 lo = units * i / n_threads * align, hi = units * (i + 1) / n_threads * align;
    return (struct pool_part){MIN(lo, n), MIN(hi, n)};
}
