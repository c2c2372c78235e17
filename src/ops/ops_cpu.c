#include "ops/ops_cpu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "comm/team.h"
#include "kernels/mem.h"
#include "ops/act24.h"
#include "ops/ops_cpu_impl.h"

/* Below these sizes waking the others costs more than they help. */
enum { SMALL_ELEMENTS = 1 << 15, SMALL_PRODUCTS = 1 << 16 };

struct ops_cpu *ops_cpu_of(struct ops *o) {
    return (struct ops_cpu *)o;
}

void ops_cpu_run(struct ops_cpu *o, void (*fn)(void *ctx, u32 i, u32 n), void *ctx, bool small) {
    (small ? pool_run_here : pool_run)(o->pool, fn, ctx);
}

struct vec_job {
    void (*body)(const struct vec_job *j, u64 lo, u64 hi);
    struct ops_cpu *o;
    u64 n, align, dim;
    float *y;
    const float *a, *b;
    float s;
    const void *arg;
    u32 m;
};

static void vec_part(void *ctx, u32 i, u32 n_threads) {
    const struct vec_job *j = ctx;
    struct pool_part p = pool_part(j->n, j->align, i, n_threads);
    if (p.lo < p.hi) j->body(j, p.lo, p.hi);
}

static void vec_run(struct vec_job *j, u64 elements) {
    ops_cpu_run(j->o, vec_part, j, elements < SMALL_ELEMENTS);
}

static void embed_body(const struct vec_job *j, u64 lo, u64 hi) {
    const struct tensor *w = j->arg;
    const u32 *ids = (const void *)j->a;
    for (u64 i = lo; i < hi; i++) {
        float *y = j->y + i * w->cols;
        if (ids[i] - w->row_first < w->rows)
            w->k->get_row(w->k, y, w->packed, w->rows, w->cols, ids[i] - w->row_first);
        else
            memset(y, 0, w->cols * sizeof *y);
    }
}
static void cpu_embed(struct ops *ops, float *y, const struct tensor *w, const u32 *ids, u32 n) {
    struct vec_job j = {embed_body, ops_cpu_of(ops),        .n = n,  .align = 1,
                        .y = y,     .a = (const void *)ids, .arg = w};
    vec_run(&j, n * w->cols * 4);
}

static void norm_body(const struct vec_job *j, u64 lo, u64 hi) {
    for (u64 i = lo; i < hi; i++)
        j->o->k->rms_norm(j->y + i * j->dim, j->a + i * j->dim, j->b, j->dim, j->s);
}
static void cpu_norm(struct ops *ops, float *y, const float *x, const struct tensor *w, u64 n,
                     u64 dim, float eps) {
    ASSERT(!w || (w->vec && w->cols == dim));
    struct vec_job j = {norm_body, ops_cpu_of(ops),        .n = n,  .align = 1, .dim = dim, .y = y,
                        .a = x,    .b = w ? w->vec : NULL, .s = eps};
    vec_run(&j, n * dim);
}

static void bias_body(const struct vec_job *j, u64 lo, u64 hi) {
    for (u64 i = lo; i < hi; i++) j->o->k->add(j->y + i * j->dim, j->b, j->dim);
}
static void cpu_bias(struct ops *ops, float *y, const struct tensor *b, u32 n) {
    ASSERT(b->vec);
    struct vec_job j = {bias_body,      ops_cpu_of(ops), .n = n,     .align = 1,
                        .dim = b->cols, .y = y,          .b = b->vec};
    vec_run(&j, n * b->cols);
}

static void gate_body(const struct vec_job *j, u64 lo, u64 hi) {
    const struct kernels *k = j->o->k;
    (j->m == GATE_SILU ? k->silu_mul : k->gelu_mul)(j->y + lo, j->a + lo, j->b + lo, hi - lo);
}
static void cpu_gate(struct ops *ops, float *y, const float *g, const float *up, u64 n,
                     enum gate_act act) {
    struct vec_job j = {gate_body, ops_cpu_of(ops), .n = n,  .align = 16,
                        .y = y,    .a = g,          .b = up, .m = act};
    vec_run(&j, 4 * n);
}

static void add_body(const struct vec_job *j, u64 lo, u64 hi) {
    j->o->k->add(j->y + lo, j->a + lo, hi - lo);
}
static void cpu_add(struct ops *ops, float *y, const float *x, u64 n) {
    struct vec_job j = {add_body, ops_cpu_of(ops), .n = n, .align = 16, .y = y, .a = x};
    vec_run(&j, n);
}

static void scale_body(const struct vec_job *j, u64 lo, u64 hi) {
    j->o->k->scale(j->y + lo, j->s, hi - lo);
}
static void cpu_scale(struct ops *ops, float *x, float s, u64 n) {
    struct vec_job j = {scale_body, ops_cpu_of(ops), .n = n, .align = 16, .y = x, .s = s};
    vec_run(&j, n);
}

static void softcap_body(const struct vec_job *j, u64 lo, u64 hi) {
    j->o->k->softcap(j->y + lo, j->s, hi - lo);
}
static void cpu_softcap(struct ops *ops, float *x, float cap, u64 n) {
    struct vec_job j = {softcap_body, ops_cpu_of(ops), .n = n, .align = 16, .y = x, .s = cap};
    vec_run(&j, 4 * n);
}

static void cpu_gather(struct ops *ops, float *y, const float *x, const u32 *idx, u32 n, u64 dim) {
    (void)ops;
    for (u32 i = 0; i < n; i++)
        if (y + i * dim != x + idx[i] * dim) memcpy(y + i * dim, x + idx[i] * dim, dim * sizeof *y);
}

static void cut_body(const struct vec_job *j, u64 lo, u64 hi) {
    act24_round(j->y + lo * j->dim, (u32)(hi - lo), (u32)j->dim);
}
static void cpu_cut(struct ops *ops, float *x, u32 n, u32 dim) {
    struct vec_job j = {cut_body, ops_cpu_of(ops), .n = n, .align = 1, .dim = dim, .y = x};
    vec_run(&j, (u64)n * dim);
}

static bool cpu_sum(struct ops *ops, struct team *tp, float *x, u64 n, struct err *e) {
    (void)ops;
    return team_sum_exact(tp, x, n, e);
}
static bool cpu_sum_send(struct ops *ops, struct team *tp, float *x, u64 n, struct err *e) {
    struct ops_cpu *o = ops_cpu_of(ops);
    o->moving = tp;
    o->n_moving++;
    return team_sum_send(tp, x, n, e);
}
static bool cpu_sum_take(struct ops *ops, struct team *tp, float *x, u64 n, struct err *e) {
    struct ops_cpu *o = ops_cpu_of(ops);
    ASSERT(o->n_moving);
    if (--o->n_moving == 0) o->moving = NULL;
    return team_sum_take(tp, x, n, e);
}
static bool cpu_gather_rows(struct ops *ops, struct team *tp, float *x, u32 n, u64 cols, u64 room,
                            struct err *e) {
    (void)ops;
    return team_gather_rows(tp, x, n, cols, room, e);
}

static void quantize_body(const struct vec_job *j, u64 lo, u64 hi) {
    u64 stride = kernels_act_bytes(j->m, j->dim);
    for (u64 i = lo; i < hi; i++)
        j->o->k->act_q(j->o->act + i * stride, j->a + i * j->dim, j->dim, j->m);
}

struct mat_job {
    struct ops_cpu *o;
    float *const *y;
    const struct tensor *const *w;
    const float *x;
    u32 n_mat, n_tok;
    enum act_kind kind; /* of what is not floats */
    u64 chunk_rows[OPS_MATMULS], first_chunk[OPS_MATMULS + 1];
};

/* Chunks first..end-1 of matrix m. */
static void mat_rows(const struct mat_job *j, u32 m, u64 first, u64 end) {
    const struct tensor *w = j->w[m];
    u64 rows = j->chunk_rows[m];
    first -= j->first_chunk[m];
    end -= j->first_chunk[m];
    struct mul_args a = {.y = j->y[m],
                         .ldy = w->rows,
                         .packed = w->packed,
                         .rows = w->rows,
                         .cols = w->cols,
                         .row0 = first * rows,
                         .row1 = MIN(end * rows, w->rows),
                         .act = w->k->act == ACT_F32 ? j->x : (const void *)j->o->act,
                         .n_tok = j->n_tok,
                         .kind = w->k->act == ACT_F32 ? ACT_F32 : j->kind};
    if (j->n_tok == 1)
        kernels_alone_mul(w->k, &a, first, end);
    else
        w->k->mul(w->k, &a);
}

static void mat_part(void *ctx, u32 i, u32 n_threads) {
    const struct mat_job *j = ctx;
    struct pool *pool = j->o->pool;
    u64 first, n = 1;
    while (j->n_tok == 1 ? pool_next_run(pool, i, n_threads, &first, &n)
                         : pool_next(pool, i, n_threads, &first)) {
        if (i == 0 && j->o->moving) team_progress(j->o->moving); /* on the team's own thread */
        for (u32 m = 0; m < j->n_mat; m++) {
            u64 lo = MAX(first, j->first_chunk[m]), hi = MIN(first + n, j->first_chunk[m + 1]);
            if (lo < hi) mat_rows(j, m, lo, hi);
        }
    }
}

static u64 chunk_rows(const struct tensor *w, u32 n_threads, u32 n_tok) {
    return kernels_chunk_rows(w->k, w->rows, w->cols, n_tok, n_threads);
}

/* What activations become for these matrices, all of which want them converted to the same; or
 * ACT_F32. */
static enum act_kind convert_to(const struct ops_cpu *o, const struct tensor *const *w, u32 n_mat,
                                u32 n) {
    enum act_kind act = ACT_F32;
    u64 types = 0; /* those that count for `act` */
    for (u32 m = 0; m < n_mat; m++) {
        if (!w[m]->rows || w[m]->k->act == ACT_F32) continue;
        act = w[m]->k->act;
        types |= 1ull << w[m]->type;
    }
    return kernels_act_of(o->k, act, types, n, o->dims.act_bits);
}

static void matmuls(struct ops_cpu *o, float *const *y, const struct tensor *const *w, u32 n_mat,
                    const float *x, u32 n) {
    struct mat_job job = {.o = o, .y = y, .w = w, .x = x, .n_mat = n_mat, .n_tok = n};
    u64 cols = w[0]->cols, products = 0;
    ASSERT(n_mat <= OPS_MATMULS && n <= o->dims.max_tok && cols <= o->dims.max_cols);
    for (u32 m = 0; m < n_mat; m++) {
        ASSERT(w[m]->cols == cols);
        job.first_chunk[m + 1] = job.first_chunk[m];
        if (!cols) memset(y[m], 0, n * w[m]->rows * sizeof *y[m]);
        if (!cols || !w[m]->rows) continue;
        ASSERT(w[m]->k && w[m]->packed);
        u64 rows = chunk_rows(w[m], pool_threads(o->pool), n);
        job.chunk_rows[m] = rows;
        job.first_chunk[m + 1] +=
            n == 1 ? kernels_alone_pieces(w[m]->k, w[m]->rows) : (w[m]->rows + rows - 1) / rows;
        products += w[m]->rows * cols * n;
    }
    if (!products) return;
    job.kind = convert_to(o, w, n_mat, n);
    if (job.kind != ACT_F32) {
        struct vec_job q = {quantize_body, o,      .n = n,       .align = 1,
                            .dim = cols,   .a = x, .m = job.kind};
        vec_run(&q, n * cols);
    }
    bool small = products < SMALL_PRODUCTS;
    pool_deal(o->pool, job.first_chunk[n_mat], small ? 1 : pool_threads(o->pool));
    ops_cpu_run(o, mat_part, &job, small);
}

/* Converted activations have one place, so those for bf16 come after those for integers. */
static void cpu_matmuls(struct ops *ops, float *const *y, const struct tensor *const *w, u32 n_mat,
                        const float *x, u32 n) {
    float *ys[2][OPS_MATMULS];
    const struct tensor *ws[2][OPS_MATMULS];
    u32 n_of[2] = {0, 0};
    ASSERT(n_mat && n_mat <= OPS_MATMULS);
    for (u32 m = 0; m < n_mat; m++) {
        u32 i = w[m]->k && w[m]->k->act == ACT_BF16X2;
        ys[i][n_of[i]] = y[m];
        ws[i][n_of[i]++] = w[m];
    }
    for (u32 i = 0; i < 2; i++)
        if (n_of[i]) matmuls(ops_cpu_of(ops), ys[i], ws[i], n_of[i], x, n);
}

static bool cpu_matrix_bytes(struct ops *ops, enum dtype type, u64 rows, u64 cols, u64 *bytes) {
    const struct matmul_kernel *k = type < DTYPE_N ? ops_cpu_of(ops)->k->matmul[type] : NULL;
    if (!k || !k->packed_bytes(k, rows, cols, bytes) || *bytes > UINT64_MAX - KERNEL_ALIGN)
        return false;
    *bytes = align_up(*bytes, KERNEL_ALIGN);
    return true;
}

struct pack_job {
    struct pool *pool;
    const struct tensor *t;
    const void *src; /* the tensor's first column in `data` */
    u64 stride;      /* bytes of a row there */
    void *mem;
    u64 rows; /* of a piece */
};

static void pack_part(void *ctx, u32 i, u32 n_threads) {
    const struct pack_job *j = ctx;
    const struct tensor *t = j->t;
    u64 piece;
    while (pool_next(j->pool, i, n_threads, &piece))
        t->k->pack(t->k, j->mem, j->src, j->stride, t->rows, t->cols, piece * j->rows,
                   MIN((piece + 1) * j->rows, t->rows));
}

static bool cpu_load_matrix(struct ops *ops, struct tensor *t, void *mem, struct err *e) {
    struct ops_cpu *o = ops_cpu_of(ops);
    u64 bytes;
    char name[24];
    if (!cpu_matrix_bytes(ops, t->type, t->rows, t->cols, &bytes))
        return err_set(e, ERR_UNSUPPORTED, "tensor %s: no kernel computes %llu x %llu of %s",
                       t->name, (unsigned long long)t->rows, (unsigned long long)t->cols,
                       dtype_name(t->type, name));
    ASSERT((uintptr_t)mem % KERNEL_ALIGN == 0);
    t->k = o->k->matmul[t->type];
    bool small = bytes < SMALL_ELEMENTS;
    u32 n_threads = small ? 1 : pool_threads(o->pool);
    u64 first, stride;
    ASSERT(t->col_first % dtype_info(t->type)->block_elems == 0 &&
           dtype_row_bytes(t->type, t->col_first, &first) &&
           dtype_row_bytes(t->type, MAX(t->file_cols, t->cols), &stride));
    struct pack_job j = {o->pool, t,   (const u8 *)t->data + first,
                         stride,  mem, chunk_rows(t, n_threads, 2)};
    pool_deal(o->pool, (t->rows + j.rows - 1) / j.rows, n_threads);
    ops_cpu_run(o, pack_part, &j, small);
    t->packed = mem;
    return true;
}

static bool cpu_begin(struct ops *ops, const struct batch *b, struct err *e) {
    struct ops_cpu *o = ops_cpu_of(ops);
    if (b->n_tok > o->dims.max_tok)
        return err_set(e, ERR_LIMIT, "a batch of %u tokens: this runner was made for %u", b->n_tok,
                       o->dims.max_tok);
    u32 next = 0;
    for (u32 s = 0; s < b->n_spans; s++) {
        const struct kv_span *sp = &b->spans[s];
        ASSERT(sp->first == next && sp->n && sp->n <= b->n_tok - next);
        for (u32 i = 0; i < sp->n; i++) o->pos[next++] = sp->pos0 + i;
    }
    ASSERT(next == b->n_tok);
    o->batch = b;
    o->n_tok = b->n_tok;
    o->first = 0;
    o->moving = NULL; /* of a step that failed */
    o->n_moving = 0;
    for (u32 i = 0; i < o->dims.n_ropes; i++) o->ropes[i].of = NULL;
    return true;
}

static void cpu_part(struct ops *ops, const struct batch *b, u32 first) {
    struct ops_cpu *o = ops_cpu_of(ops);
    ASSERT(first <= o->n_tok && b->n_tok <= o->n_tok - first);
    o->batch = b;
    o->first = first;
}

static void angles_body(const struct vec_job *j, u64 lo, u64 hi) {
    const struct rope *r = j->arg;
    u32 half = r->n_rot / 2;
    for (u64 t = lo; t < hi; t++) {
        float *cs = j->y + t * r->n_rot;
        for (u32 i = 0; i < half; i++) {
            double angle = j->o->pos[t] * r->inv_freq[i];
            cs[i] = (float)(cos(angle) * r->mscale);
            cs[half + i] = (float)(sin(angle) * r->mscale);
        }
    }
}

/* Cosines and sines of the positions at work, [batch->n_tok][n_rot]: made once a step for each
 * rope, for all its tokens. */
static const float *angles(struct ops_cpu *o, const struct rope *r) {
    u32 i = 0;
    while (i < o->dims.n_ropes && o->ropes[i].of && o->ropes[i].of != r) i++;
    ASSERT(i < o->dims.n_ropes && r->n_rot <= o->dims.max_rot && r->n_rot % 2 == 0);
    if (o->ropes[i].of != r) {
        o->ropes[i].of = r;
        struct vec_job j = {angles_body,         o,       .n = o->n_tok, .align = 1,
                            .y = o->ropes[i].cs, .arg = r};
        vec_run(&j, o->n_tok * (u64)r->n_rot * 16);
    }
    return o->ropes[i].cs + (u64)o->first * r->n_rot;
}

static void rope_body(const struct vec_job *j, u64 lo, u64 hi) {
    const struct rope *r = j->arg;
    for (u64 t = lo; t < hi; t++)
        for (u32 h = 0; h < j->m; h++)
            j->o->k->rope(j->y + (t * j->m + h) * r->head_dim, j->a + t * r->n_rot, r->n_rot,
                          r->layout);
}
static void cpu_rope(struct ops *ops, float *x, const struct rope *r, u32 n_heads) {
    struct ops_cpu *o = ops_cpu_of(ops);
    struct vec_job j = {rope_body,         o,        .n = o->batch->n_tok, .align = 1, .y = x,
                        .a = angles(o, r), .arg = r, .m = n_heads};
    vec_run(&j, o->batch->n_tok * (u64)n_heads * r->n_rot);
}

/* One piece of memory: activations, cosines and sines of each rope, parts of attention, positions.
 */
static u64 act_bytes(const struct ops_cpu_dims *d) {
    return d->max_tok * kernels_act_most(d->max_cols);
}
static u64 rope_bytes(const struct ops_cpu_dims *d) {
    return align_up((u64)d->max_tok * d->max_rot * sizeof(float), 64);
}

static u64 parts_bytes(const struct ops_cpu_dims *d) {
    return (u64)OPS_CPU_PART_ROWS * d->max_dv * sizeof(float);
}

u64 ops_cpu_bytes(const struct kernels *k, const struct ops_cpu_dims *d) {
    (void)k;
    return act_bytes(d) + rope_bytes(d) * d->n_ropes + parts_bytes(d) +
           OPS_CPU_PART_ROWS * sizeof(struct attend_sum) + d->max_tok * sizeof(u32);
}

static void cpu_free(struct ops *ops) {
    struct ops_cpu *o = ops_cpu_of(ops);
    mem_unmap(o->mem, o->mem_bytes);
    free(o);
}

static const struct ops_table CPU_TABLE = {
    .name = "cpu",
    .begin = cpu_begin,
    .part = cpu_part,
    .embed = cpu_embed,
    .norm = cpu_norm,
    .matmuls = cpu_matmuls,
    .bias = cpu_bias,
    .rope = cpu_rope,
    .kv_store = ops_cpu_kv_store,
    .attend = ops_cpu_attend,
    .gate = cpu_gate,
    .add = cpu_add,
    .scale = cpu_scale,
    .softcap = cpu_softcap,
    .gather = cpu_gather,
    .cut = cpu_cut,
    .sum = cpu_sum,
    .sum_send = cpu_sum_send,
    .sum_take = cpu_sum_take,
    .gather_rows = cpu_gather_rows,
    .matrix_bytes = cpu_matrix_bytes,
    .load_matrix = cpu_load_matrix,
    .free = cpu_free,
};

bool ops_cpu_act_bits(u32 bits, struct err *e) {
    return bits == 8 || bits == 16 ||
           err_set(e, ERR_ARG, "activations of %u bits: there are 16 (exact) and 8 (fast)", bits);
}

struct ops *ops_cpu_new(const struct kernels *k, struct pool *pool, const struct ops_cpu_dims *d,
                        struct err *e) {
    ASSERT(d->n_ropes <= OPS_CPU_ROPES && d->max_tok);
    struct ops_cpu *o = xcalloc(1, sizeof *o);
    o->base.t = &CPU_TABLE;
    o->k = k;
    o->pool = pool;
    o->dims = *d;
    o->mem_bytes = ops_cpu_bytes(k, d);
    o->mem = mem_map(o->mem_bytes, "activations", e);
    if (!o->mem) {
        free(o);
        return NULL;
    }
    o->act = o->mem;
    u8 *at = o->act + act_bytes(d);
    for (u32 i = 0; i < d->n_ropes; i++, at += rope_bytes(d)) o->ropes[i].cs = (float *)(void *)at;
    o->parts = (float *)(void *)at;
    o->sums = (struct attend_sum *)(void *)(at + parts_bytes(d));
    o->pos = (u32 *)(void *)(o->sums + OPS_CPU_PART_ROWS);
    return &o->base;
}
