/* pool.h - the threads that share one computation.
 *
 * A pool has n threads: the caller of pool_run is number 0, the others are workers born with the
 * pool. Between two runs workers spin for a short time and then sleep; a run costs no allocation
 * and, while they spin, no system call. One thread at a time may call pool_run (the runner's engine
 * thread). A pool of 1 has no workers. */
#pragma once

#include "base/base.h"
#include "base/err.h"

struct pool;

enum { POOL_MAX_THREADS = 256 };

/* n_threads 0: one for each core that this process may run on. pin: the threads take the fastest
 * of these processors (cores.h); threads that the caller starts before pool_free inherit its place.
 * NULL on ERR_ARG, ERR_IO, ERR_MEMORY.
 */
struct pool *pool_new(u32 n_threads, bool pin, struct err *e);
void pool_free(struct pool *p); /* NULL is fine; no run may be in flight */

/* Threads that take part in a run. */
u32 pool_threads(const struct pool *p);
/* From the next run on only the first n_threads, or all there are, take part; the others sleep.
 * Between runs, by the caller of pool_run. */
void pool_limit(struct pool *p, u32 n_threads);
/* CPUs that this process may run on, or as many as its control group has time for: at least 1. */
u32 pool_cpus(void);

/* Calls fn(ctx, i, n_threads) once for each i < n_threads, in parallel, and returns when all have
 * returned. What was written before is visible in fn, what fn wrote is visible after. */
void pool_run(struct pool *p, void (*fn)(void *ctx, u32 i, u32 n_threads), void *ctx);

/* The same on the calling thread alone, as fn(ctx, 0, 1): for work too small to share. */
void pool_run_here(struct pool *p, void (*fn)(void *ctx, u32 i, u32 n_threads), void *ctx);
/* Within a run: 0, 1, 2 and so on, each to one caller. Work in unequal pieces is dealt this way. */
u64 pool_take(struct pool *p);

/* The same for pieces that lie side by side in memory: each of n_threads has a row of them, which
 * it takes in order, and when it has none left it takes the last of another's. pool_deal comes
 * before the run (n below 2^32), pool_next within it; false when all are taken. */
void pool_deal(struct pool *p, u64 n, u32 n_threads);
bool pool_next(struct pool *p, u32 i, u32 n_threads, u64 *piece);
/* pool_next for pieces that are better done together: *n of them from *piece on, a third of what
 * the thread has left, or one of another's. All of it where one thread shares with nobody. */
bool pool_next_run(struct pool *p, u32 i, u32 n_threads, u64 *piece, u64 *n);

/* The part of 0..n that thread i of n_threads takes; cuts fall on multiples of align. */
struct pool_part {
    u64 lo, hi;
};
struct pool_part pool_part(u64 n, u64 align, u32 i, u32 n_threads);
