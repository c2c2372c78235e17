#include "kernels/rate.h"

#include <string.h>

#include "base/clock.h"
#include "kernels/mem.h"
#include "kernels/peak.h"

enum {
    ROWS = 8192,               /* of the matrix that products are dealt as */
    WEIGHTS_BYTES = 128 << 20, /* more than the caches of all but the largest machines */
    TRY_ONE_NS = 10000000,     /* of one product with one token */
    TRY_NS = 5000000,          /* the same with several */
    /* Slow machines, and ref/: a product that takes so long is not repeated, one that would take
     * longer counts as those of few tokens, and a format that took so long has one round. */
    SLOW_NS = 20000000,
    TOO_SLOW_NS = 300000000,
    SLOW_FORMAT_NS = 100000000,
    ROUNDS = 3,
    RATES = 5,
    CALLS = 300,
    /* What memory is filled with: in every format codes and scales that are plain numbers. */
    FILL = 0x3C
};

struct job {
    struct pool *pool;
    const struct matmul_kernel *k;
    u8 *mem; /* weights, then activations, then results */
    u64 weights_bytes, act_bytes, y_bytes;
    struct mul_args a;
    u64 chunk;
};

static void mul_part(void *ctx, u32 i, u32 n_threads) {
    struct job *j = ctx;
    u64 piece, n;
    while (j->a.n_tok == 1 && pool_next_run(j->pool, i, n_threads, &piece, &n))
        kernels_alone_mul(j->k, &j->a, piece, piece + n);
    while (j->a.n_tok > 1 && pool_next(j->pool, i, n_threads, &piece)) {
        struct mul_args a = j->a;
        a.row0 = piece * j->chunk;
        a.row1 = MIN(a.row0 + j->chunk, a.rows);
        j->k->mul(j->k, &a);
    }
}

static u64 product_ns(struct job *j) {
    u64 t = clock_ns();
    u64 pieces = j->a.n_tok == 1 ? kernels_alone_pieces(j->k, j->a.rows)
                                 : (j->a.rows + j->chunk - 1) / j->chunk;
    pool_deal(j->pool, pieces, pool_threads(j->pool));
    pool_run(j->pool, mul_part, j);
    return MAX(clock_ns() - t, 1);
}

/* Rows that the memory has room for. */
static u64 rows_max(const struct job *j) {
    u64 rows = j->y_bytes / sizeof(float) / j->a.n_tok, bytes;
    while (rows > j->chunk &&
           (!j->k->packed_bytes(j->k, rows, j->a.cols, &bytes) || bytes > j->weights_bytes))
        rows = rows / 64 * 63;
    return rows;
}

/* One product of so many rows that it takes long enough, dealt as those of a large matrix. */
static double ops_s(struct job *j, u32 n_tok, u32 cols, enum act_kind kind) {
    u32 n = pool_threads(j->pool);
    j->chunk = kernels_chunk_rows(j->k, ROWS, cols, n_tok, n);
    j->a.cols = cols;
    j->a.n_tok = n_tok;
    j->a.kind = kind;
    u64 step = MIN(j->chunk * n, rows_max(j)), most = rows_max(j) / step;
    j->a.rows = j->a.ldy = step; /* a first one says how many such there can be */
    u64 ns = product_ns(j), fit = (n_tok == 1 ? TRY_ONE_NS : TRY_NS) / ns;
    if (ns < SLOW_NS) {
        j->a.rows = j->a.ldy = step * MIN(MAX(fit, 1), most);
        ns = product_ns(j);
    }
    return 2.0 * (double)j->a.rows * cols * n_tok * 1e9 / (double)ns;
}

/* What RATE_MANY_TOK tokens take at a rate, at least: of one chunk a thread. */
static bool too_slow(const struct job *j, double ops_s) {
    double ops = 2.0 * (double)j->chunk * pool_threads(j->pool) * RATE_COLS * RATE_MANY_TOK;
    return ops * 1e9 / ops_s > TOO_SLOW_NS;
}

/* One round: [RATES] figures of a type, as struct rate_type has them. */
static void try_type(struct job *j, const struct kernels *k, enum dtype type, double *out) {
    j->k = k->matmul[type];
    bool integers = j->k->act == ACT_Q16;
    const u64 types = 1ull << type;
    enum act_kind one = integers ? kernels_act_kind(k, types, 1) : ACT_F32;
    enum act_kind few = integers ? kernels_act_kind(k, types, RATE_FEW_TOK) : ACT_F32;
    enum act_kind many = integers ? kernels_act_kind(k, types, RATE_MANY_TOK) : ACT_F32;
    out[0] = ops_s(j, 1, RATE_COLS, one);
    out[1] = ops_s(j, 1, RATE_NARROW_COLS, one);
    out[2] = ops_s(j, RATE_FEW_TOK, RATE_COLS, few);
    bool slow = too_slow(j, out[2]);
    out[3] = slow ? out[2] : ops_s(j, RATE_MANY_TOK, RATE_COLS, many);
    out[4] = slow ? out[2] : integers ? ops_s(j, RATE_MANY_TOK, RATE_COLS, ACT_Q8) : out[3];
}

/* Of ROUNDS figures, RATES apart. Not the best: what a step reaches again and again is wanted. */
static double median(const double *v) {
    double s[ROUNDS];
    for (u32 i = 0; i < ROUNDS; i++) {
        u32 at = i;
        for (; at > 0 && s[at - 1] > v[i * RATES]; at--) s[at] = s[at - 1];
        s[at] = v[i * RATES];
    }
    return s[ROUNDS / 2];
}

/* Round by round: who disturbs one round of a format is gone at the next. */
static void try_types(struct job *j, const struct kernels *k, struct rate *out) {
    double v[RATE_TYPES_MAX][ROUNDS][RATES];
    u64 took_ns[RATE_TYPES_MAX] = {0};
    for (u32 i = 0; i < ROUNDS; i++)
        for (u32 t = 0; t < out->n_types; t++) {
            if (took_ns[t] >= SLOW_FORMAT_NS) {
                memcpy(v[t][i], v[t][0], sizeof v[t][i]);
                continue;
            }
            u64 start = clock_ns();
            try_type(j, k, out->types[t].type, v[t][i]);
            took_ns[t] = clock_ns() - start;
        }
    for (u32 t = 0; t < out->n_types; t++) {
        struct rate_type *r = &out->types[t];
        r->one_ops_s = median(&v[t][0][0]);
        r->narrow_ops_s = median(&v[t][0][1]);
        r->few_ops_s = median(&v[t][0][2]);
        r->many_ops_s = median(&v[t][0][3]);
        r->many8_ops_s = median(&v[t][0][4]);
    }
}

static void fill_part(void *ctx, u32 i, u32 n_threads) {
    const struct job *j = ctx;
    struct pool_part p = pool_part(j->weights_bytes, 4096, i, n_threads);
    memset(j->mem + p.lo, FILL, p.hi - p.lo);
}

static void nothing(void *ctx, u32 i, u32 n_threads) {
    (void)ctx;
    (void)i;
    (void)n_threads;
}

static double call_s(struct pool *pool) {
    u64 t = clock_ns();
    for (u32 i = 0; i < CALLS; i++) pool_run(pool, nothing, NULL);
    return (double)MAX(clock_ns() - t, 1) / 1e9 / CALLS;
}

/* Activations are zeros: the time of a product does not depend on the numbers in it. */
static bool products(struct pool *pool, const struct kernels *k, u64 mem_bytes, struct rate *out,
                     struct err *e) {
    struct job j = {.pool = pool, .act_bytes = (u64)RATE_MANY_TOK * RATE_COLS * sizeof(float)};
    ASSERT(kernels_act_bytes(ACT_Q16, RATE_COLS) <= RATE_COLS * sizeof(float));
    j.weights_bytes = MIN((u64)WEIGHTS_BYTES, mem_bytes / 2) / 4096 * 4096;
    j.y_bytes = (u64)RATE_MANY_TOK * ROWS * sizeof(float);
    u64 all = j.weights_bytes + j.act_bytes + j.y_bytes;
    j.mem = mem_map(all, "measuring matrix products", e);
    if (!j.mem) return false;
    pool_run(pool, fill_part, &j);
    j.a = (struct mul_args){.packed = j.mem,
                            .act = j.mem + j.weights_bytes,
                            .y = (float *)(void *)(j.mem + j.weights_bytes + j.act_bytes)};
    for (u32 t = 0; t < DTYPE_N && out->n_types < RATE_TYPES_MAX; t++)
        if (k->matmul[t]) out->types[out->n_types++] = (struct rate_type){.type = (enum dtype)t};
    try_types(&j, k, out);
    mem_unmap(j.mem, all);
    return true;
}

const struct rate_type *rate_find(const struct rate *r, enum dtype type) {
    for (u32 i = 0; i < r->n_types; i++)
        if (r->types[i].type == type) return &r->types[i];
    return NULL;
}

bool rate_measure(struct pool *pool, const struct kernels *k, u64 mem_bytes, struct rate *out,
                  struct err *e) {
    out->n_types = 0;
    out->call_s = call_s(pool);
    return peak_bandwidth(pool, k->set, mem_bytes, &out->read_bytes_s, e) &&
           products(pool, k, mem_bytes, out, e);
}
