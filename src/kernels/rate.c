#include "kernels/rate.h"

#include "base/clock.h"
#include "kernels/mem.h"
#include "kernels/peak.h"

enum { ROWS = 1024, COLS = 1024, TOK = 64, BUDGET_NS = 80000000, TRIES_MIN = 3, TRIES_MAX = 40 };

struct job {
    const struct matmul_kernel *k;
    void *packed, *act;
    const void *src;
    float *y; /* [TOK][ROWS] */
};

static void pack_part(void *ctx, u32 i, u32 n_threads) {
    const struct job *j = ctx;
    struct pool_part p = pool_part(ROWS, j->k->row_align, i, n_threads);
    if (p.lo < p.hi) j->k->pack(j->k, j->packed, j->src, ROWS, COLS, p.lo, p.hi);
}

static void mul_part(void *ctx, u32 i, u32 n_threads) {
    const struct job *j = ctx;
    struct pool_part p = pool_part(ROWS, j->k->row_align, i, n_threads);
    struct mul_args a = {.y = j->y,
                         .ldy = ROWS,
                         .packed = j->packed,
                         .rows = ROWS,
                         .cols = COLS,
                         .row0 = p.lo,
                         .row1 = p.hi,
                         .act = j->act,
                         .n_tok = TOK};
    if (p.lo < p.hi) j->k->mul(j->k, &a);
}

/* The best of several products, like peak.c: what others took away does not make it slower. */
static double product_rate(struct pool *pool, struct job *j) {
    u64 best = UINT64_MAX, spent = 0;
    for (u32 i = 0; i < TRIES_MAX && (i < TRIES_MIN || spent < BUDGET_NS); i++) {
        u64 t = clock_ns();
        pool_run(pool, mul_part, j);
        t = MAX(clock_ns() - t, 1);
        best = MIN(best, t);
        spent += t;
    }
    return 2.0 * ROWS * COLS * TOK * 1e9 / (double)best;
}

/* Zeros: the time of a product does not depend on the numbers in it. */
static bool product(struct pool *pool, const struct kernels *k, enum dtype type, double *ops_s,
                    struct err *e) {
    struct job j = {.k = k->matmul[type]};
    u64 src_row = 0, packed = 0, act = kernels_act_bytes(j.k->act, COLS) * TOK;
    ASSERT(dtype_row_bytes(type, COLS, &src_row));
    ASSERT(j.k->packed_bytes(j.k, ROWS, COLS, &packed));
    u64 src = align_up(src_row * ROWS, KERNEL_ALIGN), out = (u64)TOK * ROWS * sizeof(float);
    packed = align_up(packed, KERNEL_ALIGN);
    act = align_up(act, KERNEL_ALIGN);
    u8 *mem = mem_map(src + packed + act + out, "measuring matrix products", e);
    if (!mem) return false;
    j.src = mem;
    j.packed = mem + src;
    j.act = mem + src + packed;
    j.y = (float *)(void *)(mem + src + packed + act);
    pool_run(pool, pack_part, &j);
    *ops_s = product_rate(pool, &j);
    mem_unmap(mem, src + packed + act + out);
    return true;
}

bool rate_measure(struct pool *pool, const struct kernels *k, u64 mem_bytes, struct rate *out,
                  struct err *e) {
    return peak_bandwidth(pool, k->set, mem_bytes, &out->read_bytes_s, e) &&
           product(pool, k, DTYPE_Q4_0, &out->int8_ops_s, e) &&
           product(pool, k, DTYPE_F32, &out->float_ops_s, e);
}
