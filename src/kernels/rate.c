#include "kernels/rate.h"

#include <string.h>

#include "base/clock.h"
#include "kernels/kv.h"
#include "kernels/mem.h"
#include "kernels/peak.h"

enum {
    ROWS = 8192,               /* of the matrix that products are dealt as */
    /* Products of one token go round in windows, so that none is in a cache from the one before: a
     * server's third level has 300 MiB and more. */
    WINDOW_BYTES = 128 << 20, /* more than one of them reads */
    WINDOWS = 4,
    TRY_ONE_NS = 6000000,      /* of one product with one token */
    TRY_NS = 3000000,          /* the same with several */
    /* Slow machines, and ref/: a product that takes so long is not repeated, one that would take
     * longer counts as those of few tokens, and a format that took so long has one round. */
    SLOW_NS = 20000000,
    TOO_SLOW_NS = 300000000,
    SLOW_FORMAT_NS = 100000000,
    ROUNDS = 5,
    RATES = 6, /* of a format */
    CALLS = 100,
    ATTEND_DIM = 64,
    ATTEND_POS = 256, /* what a row sees at most: a part of a context */
    ATTEND_HEADS = 32,
    ATTEND_ONE_ROWS = 4,         /* query heads that share keys and values, in most models */
    ATTEND_ONE_BYTES = 16 << 20, /* of keys and values */
    ATTEND_STEP = ATTEND_POS / ATTEND_HEADS,
    /* What memory is filled with: in every format codes and scales that are plain numbers. */
    FILL = 0x3C
};

struct job {
    struct pool *pool;
    const struct matmul_kernel *k;
    u8 *mem; /* weights, then activations, then results */
    u64 weights_bytes, act_bytes, y_bytes; /* weights: of a window */
    u32 n_windows, window;
    struct mul_args a;
    u64 chunk;
};

struct attend_job {
    const struct kernels *k;
    const float *q; /* [ATTEND_DIM] */
    const u8 *kv;   /* [n_heads][blocks] */
    u32 n_heads;    /* more than ATTEND_HEADS: a token's, each with its whole context */
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
    if (n_tok == 1) j->window = (j->window + 1) % j->n_windows;
    j->a.packed = j->mem + j->window * j->weights_bytes;
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
    const u64 types = 1ull << type;
    const enum act_kind act = j->k->act;
    enum act_kind one = kernels_act_of(k, act, types, 1, 16);
    enum act_kind few = kernels_act_of(k, act, types, RATE_FEW_TOK, 16);
    enum act_kind many = kernels_act_of(k, act, types, RATE_MANY_TOK, 16);
    enum act_kind many8 = kernels_act_of(k, act, types, RATE_MANY_TOK, 8);
    out[0] = ops_s(j, 1, RATE_COLS, one);
    out[1] = ops_s(j, 1, RATE_NARROW_COLS, one);
    out[2] = ops_s(j, RATE_FEW_TOK, RATE_COLS, few);
    bool slow = too_slow(j, out[2]);
    out[3] = slow ? out[2] : ops_s(j, RATE_MANY_TOK, RATE_COLS, many);
    out[4] = slow ? out[2] : many8 != many ? ops_s(j, RATE_MANY_TOK, RATE_COLS, many8) : out[3];
    out[5] = slow ? out[2] : ops_s(j, RATE_MANY_TOK, RATE_NARROW_COLS, many);
}

/* Ascending. */
static void sort(double *v, u32 n) {
    for (u32 i = 1; i < n; i++) {
        double x = v[i];
        u32 at = i;
        for (; at > 0 && v[at - 1] > x; at--) v[at] = v[at - 1];
        v[at] = x;
    }
}

static double median(double *v, u32 n) {
    sort(v, n);
    return n ? v[n / 2] : 1;
}

double rate_of_rounds(const double *v, u32 n, u32 stride, double *spread) {
    double s[ROUNDS];
    ASSERT(n > 0 && n <= ROUNDS);
    for (u32 i = 0; i < n; i++) s[i] = v[i * stride];
    sort(s, n);
    if (spread) *spread = s[n - 1] / s[0];
    return s[n / 2];
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

/* A thread's heads one after the other, each with its own keys and values, of which each sees more
 * than the one before: a prompt's attention. */
static void attend_part(void *ctx, u32 i, u32 n_threads) {
    const struct attend_job *j = ctx;
    bool one = j->n_heads > ATTEND_HEADS;
    u32 blocks[ATTEND_POS / KV_BLOCK_TOKENS];
    struct attend_row rows[ATTEND_ROWS];
    struct attend_sum sums[ATTEND_ROWS];
    float out[ATTEND_ROWS * ATTEND_DIM];
    struct attend_args a = {.rows = rows,
                            .sums = sums,
                            .n_rows = one ? ATTEND_ONE_ROWS : ATTEND_ROWS,
                            .type = KV_F16,
                            .dk = ATTEND_DIM,
                            .dv = ATTEND_DIM,
                            .block_stride = kv_head_bytes(KV_F16, ATTEND_DIM, ATTEND_DIM),
                            .blocks = blocks,
                            .scale = 1};
    struct pool_part p = pool_part(j->n_heads, 1, i, n_threads);
    for (u32 b = 0; b < ARRAY_LEN(blocks); b++) blocks[b] = b;
    for (u64 h = p.lo; h < p.hi; h++) {
        u32 hi = one ? ATTEND_POS : (u32)(h + 1) * ATTEND_STEP;
        for (u32 r = 0; r < a.n_rows; r++)
            rows[r] = (struct attend_row){.q = j->q, .out = out + r * ATTEND_DIM, .hi = hi};
        a.kv = j->kv + h * ARRAY_LEN(blocks) * a.block_stride;
        j->k->attend(&a);
    }
}

static double attend_ops_s(const struct job *of, const struct kernels *k) {
    struct attend_job j = {.k = k,
                           .q = (const float *)(const void *)of->a.act,
                           .kv = of->mem,
                           .n_heads = ATTEND_HEADS};
    u64 t = clock_ns();
    pool_run(of->pool, attend_part, &j);
    double seen = ATTEND_STEP * ATTEND_HEADS * (ATTEND_HEADS + 1) / 2.0;
    return 4 * seen * ATTEND_ROWS * ATTEND_DIM * 1e9 / (double)MAX(clock_ns() - t, 1);
}

/* Over more memory than a core's caches hold. */
static double attend_one_ops_s(const struct job *of, const struct kernels *k) {
    struct attend_job j = {.k = k,
                           .q = (const float *)(const void *)of->a.act,
                           .kv = of->mem,
                           .n_heads = (u32)(MIN(of->weights_bytes, (u64)ATTEND_ONE_BYTES) /
                                            (4 * ATTEND_POS * ATTEND_DIM))};
    u64 t = clock_ns();
    pool_run(of->pool, attend_part, &j);
    return 4.0 * j.n_heads * ATTEND_POS * ATTEND_ONE_ROWS * ATTEND_DIM * 1e9 /
           (double)MAX(clock_ns() - t, 1);
}

/* Round by round: who disturbs one round of a format is gone at the next. */
static void try_types(struct job *j, const struct kernels *k, struct rate *out) {
    double v[RATE_TYPES_MAX][ROUNDS][RATES], attend[ROUNDS], alone[ROUNDS], calls[ROUNDS];
    double spread[RATE_TYPES_MAX * RATES];
    u64 took_ns[RATE_TYPES_MAX] = {0};
    for (u32 i = 0; i < ROUNDS; i++) {
        calls[i] = 1 / call_s(j->pool);
        attend[i] = attend_ops_s(j, k);
        alone[i] = attend_one_ops_s(j, k);
        for (u32 t = 0; t < out->n_types; t++) {
            if (took_ns[t] >= SLOW_FORMAT_NS) {
                memcpy(v[t][i], v[t][0], sizeof v[t][i]);
                continue;
            }
            u64 start = clock_ns();
            try_type(j, k, out->types[t].type, v[t][i]);
            took_ns[t] = clock_ns() - start;
        }
    }
    for (u32 t = 0; t < out->n_types; t++) {
        double x[RATES];
        for (u32 f = 0; f < RATES; f++)
            x[f] = rate_of_rounds(&v[t][0][f], ROUNDS, RATES, &spread[t * RATES + f]);
        out->types[t] = (struct rate_type){out->types[t].type, x[0], x[1], x[2], x[3], x[4], x[5]};
    }
    out->call_s = 1 / rate_of_rounds(calls, ROUNDS, 1, NULL);
    out->attend_ops_s = rate_of_rounds(attend, ROUNDS, 1, NULL);
    out->attend_one_ops_s = rate_of_rounds(alone, ROUNDS, 1, NULL);
    out->spread = median(spread, out->n_types * RATES);
}

static void fill_part(void *ctx, u32 i, u32 n_threads) {
    const struct job *j = ctx;
    struct pool_part p = pool_part(j->n_windows * j->weights_bytes, 4096, i, n_threads);
    memset(j->mem + p.lo, FILL, p.hi - p.lo);
}

/* Activations are zeros: the time of a product does not depend on the numbers in it. */
static bool products(struct pool *pool, const struct kernels *k, u64 mem_bytes, struct rate *out,
                     struct err *e) {
    struct job j = {.pool = pool, .act_bytes = RATE_MANY_TOK * kernels_act_most(RATE_COLS)};
    _Static_assert(4ull * ATTEND_HEADS * ATTEND_POS * ATTEND_DIM <= 8 << 19,
                   "keys and values fit into the least memory");
    u64 weights = MIN((u64)WINDOW_BYTES * WINDOWS, mem_bytes / 2);
    j.n_windows = weights >= WINDOW_BYTES ? WINDOWS : 1;
    j.weights_bytes = weights / j.n_windows / 4096 * 4096;
    j.y_bytes = (u64)RATE_MANY_TOK * ROWS * sizeof(float);
    weights = j.n_windows * j.weights_bytes;
    u64 all = weights + j.act_bytes + j.y_bytes;
    j.mem = mem_map(all, "measuring matrix products", e);
    if (!j.mem) return false;
    pool_run(pool, fill_part, &j);
    j.a = (struct mul_args){.packed = j.mem,
                            .act = j.mem + weights,
                            .y = (float *)(void *)(j.mem + weights + j.act_bytes)};
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
    *out = (struct rate){0};
    u64 read = MIN(mem_bytes, (u64)PEAK_READ_BYTES);
    return peak_bandwidth(pool, k->set, read, &out->read_bytes_s, e) &&
           products(pool, k, mem_bytes, out, e);
}
