#include "ops/ops_cost.h"

#include <stdlib.h>

#include "base/arena.h"

struct cost_ops {
    struct ops base;
    const struct kernels *k;
    u32 n_ranks;
    const struct batch *batch;
    struct ops_cost sum;
};

static struct cost_ops *of(struct ops *o) {
    return (struct cost_ops *)o;
}

/* Element-wise work: n elements of `moved` floats read or written and `ops` operations each. */
static void vec(struct ops *o, u64 n, u64 moved, u64 ops) {
    struct ops_cost *s = &of(o)->sum;
    s->calls++;
    s->act_bytes += n * moved * sizeof(float);
    s->float_ops += n * ops;
}

static bool cost_matrix_bytes(struct ops *o, enum dtype type, u64 rows, u64 cols, u64 *bytes) {
    const struct matmul_kernel *k = type < DTYPE_N ? of(o)->k->matmul[type] : NULL;
    if (!k || !k->packed_bytes(k, rows, cols, bytes) || *bytes > UINT64_MAX - KERNEL_ALIGN)
        return false;
    *bytes = align_up(*bytes, KERNEL_ALIGN);
    return true;
}

static u64 weight_bytes(struct ops *o, const struct tensor *w) {
    u64 bytes;
    return cost_matrix_bytes(o, w->type, w->rows, w->cols, &bytes) ? bytes : 0;
}

static bool cost_begin(struct ops *o, const struct batch *b, struct err *e) {
    (void)e;
    of(o)->batch = b;
    return true;
}

static void cost_part(struct ops *o, const struct batch *b, u32 first) {
    (void)first;
    of(o)->batch = b;
}

static void cost_embed(struct ops *o, float *y, const struct tensor *w, const u32 *ids, u32 n) {
    (void)y;
    (void)ids;
    vec(o, n * w->cols, 1, 2);
    of(o)->sum.weight_bytes += w->rows ? weight_bytes(o, w) / w->rows * n : 0;
}

static void cost_norm(struct ops *o, float *y, const float *x, const struct tensor *w, u64 n,
                      u64 dim, float eps) {
    (void)y;
    (void)x;
    (void)w;
    (void)eps;
    vec(o, n * dim, 2, 4);
}

static void cost_matmuls(struct ops *o, float *const *y, const struct tensor *const *w, u32 n_mat,
                         const float *x, u32 n) {
    (void)y;
    (void)x;
    struct cost_ops *c = of(o);
    vec(o, (u64)n * w[0]->cols, 1, 0);
    for (u32 m = 0; m < n_mat; m++) {
        u64 ops = 2 * w[m]->rows * w[m]->cols * n;
        const struct matmul_kernel *k = c->k->matmul[w[m]->type];
        if (k && k->act == ACT_Q16)
            c->sum.int_ops += ops;
        else
            c->sum.float_ops += ops;
        if (k && k->act == ACT_BF16X2) c->sum.bf16_ops += ops;
        c->sum.weight_bytes += weight_bytes(o, w[m]);
        c->sum.act_bytes += (u64)n * w[m]->rows * sizeof(float);
    }
}

static void cost_bias(struct ops *o, float *y, const struct tensor *b, u32 n) {
    (void)y;
    vec(o, n * b->cols, 2, 1);
}

static void cost_rope(struct ops *o, float *x, const struct rope *r, u32 n_heads) {
    (void)x;
    vec(o, (u64)of(o)->batch->n_tok * n_heads * r->n_rot, 2, 3);
}

static void cost_kv_store(struct ops *o, struct kv_pool *kv, u32 layer, const float *k,
                          const float *v) {
    (void)layer;
    (void)k;
    (void)v;
    u64 n = (u64)of(o)->batch->n_tok * kv->n_kv_heads * (kv->dk + kv->dv);
    vec(o, n, 1, 0);
    of(o)->sum.kv_bytes += of(o)->batch->n_tok * kv_block_stride(kv) / KV_BLOCK_TOKENS;
}

/* Positions that the tokens of a span see, added up, and those that must be read at least once. */
static void seen(const struct kv_span *s, u32 window, u64 *all, u64 *once) {
    for (u32 t = 0; t < s->n; t++) {
        u64 n = (u64)s->pos0 + t + 1;
        *all += window && n > window ? window : n;
    }
    u64 len = (u64)s->pos0 + s->n, reach = (u64)window + s->n - 1;
    *once += window && len > reach ? reach : len;
}

static void cost_attend(struct ops *o, float *y, const float *q, const struct kv_pool *kv,
                        u32 layer, const struct attn *a) {
    (void)y;
    (void)q;
    (void)layer;
    const struct batch *b = of(o)->batch;
    u64 all = 0, once = 0;
    for (u32 s = 0; s < b->n_spans; s++) seen(&b->spans[s], a->window, &all, &once);
    vec(o, (u64)b->n_tok * a->n_heads * (kv->dk + kv->dv), 1, 0);
    of(o)->sum.kv_bytes += once * kv_block_stride(kv) / KV_BLOCK_TOKENS;
    of(o)->sum.float_ops += all * a->n_heads * 2 * (kv->dk + kv->dv);
}

static void cost_gate(struct ops *o, float *y, const float *g, const float *up, u64 n,
                      enum gate_act act) {
    (void)y;
    (void)g;
    (void)up;
    (void)act;
    vec(o, n, 3, 20);
}
static void cost_add(struct ops *o, float *y, const float *x, u64 n) {
    (void)y;
    (void)x;
    vec(o, n, 3, 1);
}
static void cost_scale(struct ops *o, float *x, float s, u64 n) {
    (void)x;
    (void)s;
    vec(o, n, 2, 1);
}
static void cost_cut(struct ops *o, float *x, u32 n, u32 dim) {
    (void)x;
    vec(o, (u64)n * dim, 2, 2);
}
static void cost_softcap(struct ops *o, float *x, float cap, u64 n) {
    (void)x;
    (void)cap;
    vec(o, n, 2, 20);
}
static void cost_gather(struct ops *o, float *y, const float *x, const u32 *idx, u32 n, u64 dim) {
    (void)y;
    (void)x;
    (void)idx;
    vec(o, n * dim, 2, 0);
}

/* Small sums go to every peer at once (one hop); that is what is counted here. */
static bool cost_sum(struct ops *o, struct team *tp, float *x, u64 n, struct err *e) {
    (void)tp;
    (void)x;
    (void)e;
    struct cost_ops *c = of(o);
    if (c->n_ranks < 2) return true;
    vec(o, n, c->n_ranks, c->n_ranks - 1);
    c->sum.messages++;
    c->sum.message_bytes += n * sizeof(float);
    return true;
}

/* All of it is counted here. */
static bool cost_sum_send(struct ops *o, struct team *tp, float *x, u64 n, struct err *e) {
    return cost_sum(o, tp, x, n, e);
}
static bool cost_sum_take(struct ops *o, struct team *tp, float *x, u64 n, struct err *e) {
    (void)o;
    (void)tp;
    (void)x;
    (void)n;
    (void)e;
    return true;
}

/* Counted for one that sends. */
static bool cost_gather_rows(struct ops *o, struct team *tp, float *x, u32 n, u64 cols, u64 room,
                             struct err *e) {
    (void)tp;
    (void)x;
    (void)e;
    struct cost_ops *c = of(o);
    if (c->n_ranks < 2 || cols == room) return true;
    vec(o, n * cols, 1, 0);
    c->sum.messages++;
    c->sum.message_bytes += n * cols * sizeof(float);
    return true;
}

/* Nothing is packed: the tensor becomes usable with its shape alone. */
static bool cost_load_matrix(struct ops *o, struct tensor *t, void *mem, struct err *e) {
    u64 bytes;
    char name[24];
    (void)mem;
    if (!cost_matrix_bytes(o, t->type, t->rows, t->cols, &bytes))
        return err_set(e, ERR_UNSUPPORTED, "tensor %s: no kernel computes %llu x %llu of %s",
                       t->name, (unsigned long long)t->rows, (unsigned long long)t->cols,
                       dtype_name(t->type, name));
    t->k = of(o)->k->matmul[t->type];
    return true;
}

static void cost_free(struct ops *o) {
    free(o);
}

static const struct ops_table COST_TABLE = {
    .name = "cost",
    .begin = cost_begin,
    .part = cost_part,
    .embed = cost_embed,
    .norm = cost_norm,
    .matmuls = cost_matmuls,
    .bias = cost_bias,
    .rope = cost_rope,
    .kv_store = cost_kv_store,
    .attend = cost_attend,
    .gate = cost_gate,
    .add = cost_add,
    .scale = cost_scale,
    .cut = cost_cut,
    .softcap = cost_softcap,
    .gather = cost_gather,
    .sum = cost_sum,
    .sum_send = cost_sum_send,
    .sum_take = cost_sum_take,
    .gather_rows = cost_gather_rows,
    .matrix_bytes = cost_matrix_bytes,
    .load_matrix = cost_load_matrix,
    .free = cost_free,
};

struct ops *ops_cost_new(const struct kernels *k, u32 n_ranks) {
    struct cost_ops *c = xcalloc(1, sizeof *c);
    c->base.t = &COST_TABLE;
    c->k = k;
    c->n_ranks = n_ranks;
    return &c->base;
}

struct ops_cost ops_cost_read(const struct ops *o) {
    return ((const struct cost_ops *)o)->sum;
}
void ops_cost_reset(struct ops *o) {
    of(o)->sum = (struct ops_cost){.calls = 0};
}
