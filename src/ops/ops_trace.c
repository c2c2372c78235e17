#include "ops/ops_trace.h"

#include <stdlib.h>

#include "base/arena.h"

struct trace_ops {
    struct ops base;
    struct ops *in;
    ops_trace_fn *fn;
    void *ctx;
    struct ops_cost before;
    u32 n_tok;
};

static struct ops *in(struct ops *o) {
    return ((struct trace_ops *)o)->in;
}

/* The same in two steps, around each operation. */
static void before(struct ops *o) {
    ops_cost_reset(in(o));
}
static void tell(struct ops *o, const char *op, const struct tensor *w, u64 rows, u64 cols, u64 n) {
    const struct trace_ops *t = (const struct trace_ops *)o;
    struct ops_trace_row r = {.op = op,
                              .weight = w && w->name ? w->name : "",
                              .type = w ? w->type : DTYPE_F32,
                              .rows = rows,
                              .cols = cols,
                              .n = n,
                              .cost = ops_cost_read(t->in)};
    t->fn(t->ctx, &r);
}

static bool trace_begin(struct ops *o, const struct batch *b, struct err *e) {
    ((struct trace_ops *)o)->n_tok = b->n_tok;
    return ops_begin(in(o), b, e);
}
static void trace_part(struct ops *o, const struct batch *b, u32 first) {
    ((struct trace_ops *)o)->n_tok = b->n_tok;
    ops_part(in(o), b, first);
}
static void trace_embed(struct ops *o, float *y, const struct tensor *w, const u32 *ids, u32 n) {
    before(o);
    ops_embed(in(o), y, w, ids, n);
    tell(o, "embed", w, w->rows, w->cols, n);
}
static void trace_norm(struct ops *o, float *y, const float *x, const struct tensor *w, u64 n,
                       u64 dim, float eps) {
    before(o);
    ops_norm(in(o), y, x, w, n, dim, eps);
    tell(o, "norm", w, 1, dim, n);
}
/* One row each, though they are called together. */
static void trace_matmuls(struct ops *o, float *const *y, const struct tensor *const *w, u32 n_mat,
                          const float *x, u32 n) {
    for (u32 i = 0; i < n_mat; i++) {
        before(o);
        ops_matmuls(in(o), &y[i], &w[i], 1, x, n);
        tell(o, "matmul", w[i], w[i]->rows, w[i]->cols, n);
    }
}
static void trace_bias(struct ops *o, float *y, const struct tensor *b, u32 n) {
    before(o);
    ops_bias(in(o), y, b, n);
    tell(o, "bias", b, 1, b->cols, n);
}
static void trace_rope(struct ops *o, float *x, const struct rope *r, u32 n_heads) {
    before(o);
    ops_rope(in(o), x, r, n_heads);
    tell(o, "rope", NULL, n_heads, r->head_dim, ((struct trace_ops *)o)->n_tok);
}
static void trace_kv_store(struct ops *o, struct kv_pool *kv, u32 layer, const float *k,
                           const float *v) {
    before(o);
    ops_kv_store(in(o), kv, layer, k, v);
    tell(o, "kv store", NULL, kv->n_kv_heads, kv->dk + kv->dv, ((struct trace_ops *)o)->n_tok);
}
static void trace_attend(struct ops *o, float *y, const float *q, const struct kv_pool *kv,
                         u32 layer, const struct attn *a) {
    before(o);
    ops_attend(in(o), y, q, kv, layer, a);
    tell(o, "attend", NULL, a->n_heads, kv->dv, ((struct trace_ops *)o)->n_tok);
}
static void trace_gate(struct ops *o, float *y, const float *g, const float *up, u64 n,
                       enum gate_act act) {
    u32 n_tok = MAX(((struct trace_ops *)o)->n_tok, 1u);
    before(o);
    ops_gate(in(o), y, g, up, n, act);
    tell(o, "gate", NULL, 1, n / n_tok, n_tok);
}
static void trace_add(struct ops *o, float *y, const float *x, u64 n) {
    u32 n_tok = MAX(((struct trace_ops *)o)->n_tok, 1u);
    before(o);
    ops_add(in(o), y, x, n);
    tell(o, "add", NULL, 1, n / n_tok, n_tok);
}
static void trace_scale(struct ops *o, float *x, float s, u64 n) {
    u32 n_tok = MAX(((struct trace_ops *)o)->n_tok, 1u);
    before(o);
    ops_scale(in(o), x, s, n);
    tell(o, "scale", NULL, 1, n / n_tok, n_tok);
}
static void trace_softcap(struct ops *o, float *x, float cap, u64 n) {
    before(o);
    ops_softcap(in(o), x, cap, n);
    tell(o, "softcap", NULL, 1, n, 1);
}
static void trace_gather(struct ops *o, float *y, const float *x, const u32 *idx, u32 n, u64 dim) {
    before(o);
    ops_gather(in(o), y, x, idx, n, dim);
    tell(o, "gather", NULL, 1, dim, n);
}
static void trace_cut(struct ops *o, float *x, u32 n, u32 dim) {
    before(o);
    ops_cut(in(o), x, n, dim);
    tell(o, "cut", NULL, 1, dim, n);
}
static bool trace_sum(struct ops *o, struct team *tp, float *x, u64 n, struct err *e) {
    u32 n_tok = MAX(((struct trace_ops *)o)->n_tok, 1u);
    before(o);
    bool ok = ops_sum(in(o), tp, x, n, e);
    tell(o, "group sum", NULL, 1, n / n_tok, n_tok);
    return ok;
}
/* Told where it begins. */
static bool trace_sum_send(struct ops *o, struct team *tp, float *x, u64 n, struct err *e) {
    return trace_sum(o, tp, x, n, e);
}
static bool trace_sum_take(struct ops *o, struct team *tp, float *x, u64 n, struct err *e) {
    return ops_sum_take(in(o), tp, x, n, e);
}
static bool trace_gather_rows(struct ops *o, struct team *tp, float *x, u32 n, u64 cols, u64 room,
                              struct err *e) {
    before(o);
    bool ok = ops_gather_rows(in(o), tp, x, n, cols, room, e);
    tell(o, "gather rows", NULL, 1, cols, n);
    return ok;
}
static bool trace_matrix_bytes(struct ops *o, enum dtype type, u64 rows, u64 cols, u64 *bytes) {
    return ops_matrix_bytes(in(o), type, rows, cols, bytes);
}
static bool trace_load_matrix(struct ops *o, struct tensor *t, void *mem, struct err *e) {
    return ops_load_matrix(in(o), t, mem, e);
}
static void trace_free(struct ops *o) {
    ops_free(in(o));
    free(o);
}

static const struct ops_table TRACE_TABLE = {
    .name = "trace",
    .begin = trace_begin,
    .part = trace_part,
    .embed = trace_embed,
    .norm = trace_norm,
    .matmuls = trace_matmuls,
    .bias = trace_bias,
    .rope = trace_rope,
    .kv_store = trace_kv_store,
    .attend = trace_attend,
    .gate = trace_gate,
    .add = trace_add,
    .scale = trace_scale,
    .softcap = trace_softcap,
    .gather = trace_gather,
    .cut = trace_cut,
    .sum = trace_sum,
    .sum_send = trace_sum_send,
    .sum_take = trace_sum_take,
    .gather_rows = trace_gather_rows,
    .matrix_bytes = trace_matrix_bytes,
    .load_matrix = trace_load_matrix,
    .free = trace_free,
};

struct ops *ops_trace_new(const struct kernels *k, u32 n_ranks, ops_trace_fn *fn, void *ctx) {
    struct trace_ops *t = xcalloc(1, sizeof *t);
    t->base.t = &TRACE_TABLE;
    t->in = ops_cost_new(k, n_ranks);
    t->fn = fn;
    t->ctx = ctx;
    return &t->base;
}
