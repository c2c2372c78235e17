/* runner_shape.c - what placement must know of a model: each kind of layer run once on the cost
 * table. */
#include <stdio.h>
#include <string.h>

#include "ops/ops_trace.h"
#include "runner/runner_impl.h"

enum { KINDS_MAX = 64, POS = 1024 };

struct pricing {
    struct msg_layer_cost c;
    bool is_float;
    u32 dim;
    struct msg_type_ops types[DTYPE_N]; /* of the matrices, by format */
};

static bool is_ffn(const char *weight) {
    return strstr(weight, ".ffn_") != NULL;
}

/* What a rank with a slice of the layer reads and writes of activations all the same: rows of dim
 * elements that are normed and added, what goes into a matrix whose rows are shared out, and what
 * comes out of one whose columns are. */
static u64 whole_bytes(const struct pricing *p, const struct ops_trace_row *r) {
    if (strcmp(r->op, "matmul") == 0) {
        bool by_cols = strstr(r->weight, ".attn_output.") || strstr(r->weight, ".ffn_down.");
        return (by_cols ? r->rows : r->cols) * sizeof(float);
    }
    return r->rows == 1 && r->cols == p->dim && strcmp(r->op, "gate") != 0 ? r->cost.act_bytes : 0;
}

/* One token at position POS - 1. */
static void price(void *ctx, const struct ops_trace_row *r) {
    struct pricing *p = ctx;
    struct msg_layer_cost *c = &p->c;
    u64 ops = r->cost.int_ops + r->cost.float_ops;
    c->n_calls++;
    bool is_sum = strcmp(r->op, "group sum") == 0;
    if (!is_sum) {
        c->act_bytes += r->cost.act_bytes;
        c->act_whole_bytes += whole_bytes(p, r);
    }
    if (is_sum) {
        c->n_sums++;
    } else if (strcmp(r->op, "attend") == 0) {
        u64 seen = c->window ? MIN((u32)POS, c->window) : POS;
        c->attend_ops += ops / seen;
    } else if (r->rows > 1 && *r->weight) {
        *(is_ffn(r->weight) ? &c->ffn_bytes : &c->attn_bytes) += r->cost.weight_bytes;
        *(is_ffn(r->weight) ? &c->ffn_ops : &c->attn_ops) += ops;
        p->is_float |= r->cost.int_ops == 0;
        p->types[r->type].ops += ops;
        p->types[r->type].rows += r->rows;
    } else if (*r->weight) {
        c->fixed_bytes += r->cols * sizeof(float);
    }
}

static bool price_layer(const struct model_file *f, const struct model_params *p, u32 il,
                        struct pricing *out, struct err *e) {
    struct kernels k;
    const struct shard_spec spec = {.layer_first = il, .layer_end = il + 1};
    struct kv_pool kv = {
        .n_layers = 1, .n_kv_heads = p->n_kv_heads, .dk = p->head_dim_k, .dv = p->head_dim_v};
    struct kv_span span = {.n = 1, .pos0 = POS - 1};
    struct batch batch = {.n_tok = 1, .spans = &span, .n_spans = 1};
    struct model_step step = {.batch = &batch};
    if (!kernels_select(&k, "", e)) return false;
    *out = (struct pricing){.c.window = model_layer_window(p, il), .dim = p->dim};
    struct ops *o = ops_trace_new(&k, 2, price, out);
    struct model *m = model_outline(f, p, &spec, o, e);
    bool ok = m && model_forward(m, &step, &kv, NULL, NULL, e);
    model_free(m);
    ops_free(o);
    return ok;
}

/* The unit in which the columns of the down projections can be parted. */
static u32 ff_step(const struct model_file *f, const struct model_params *p) {
    char name[64];
    u32 step = 1;
    for (u32 il = 0; il < p->n_layers; il++) {
        struct model_tensor t;
        snprintf(name, sizeof name, "blk.%u.ffn_down.weight", il);
        if (model_file_tensor(f, name, &t)) step = MAX(step, dtype_info(t.info->type)->block_elems);
    }
    return step;
}

static struct wire_list list_types(const struct msg_type_ops *sum, struct arena *a) {
    struct msg_type_ops *v = arena_array(a, DTYPE_N, sizeof *v);
    u32 n = 0;
    for (u32 t = 0; t < DTYPE_N; t++)
        if (sum[t].ops) v[n++] = (struct msg_type_ops){t, sum[t].ops, sum[t].rows};
    return (struct wire_list){v, n};
}

/* Layers whose weights and window are the same are of one kind; only the first is priced. */
bool runner_shape(const struct model_file *f, const struct model_params *p, const u64 *layer_bytes,
                  struct arena *a, struct msg_shape *s, struct err *e) {
    struct msg_layer_cost *kinds = arena_array(a, KINDS_MAX, sizeof *kinds);
    u64 *kind = arena_array(a, p->n_layers, sizeof *kind);
    u32 first[KINDS_MAX], n = 0;
    struct msg_type_ops(*types)[DTYPE_N] = arena_array(a, KINDS_MAX, sizeof *types);
    struct msg_type_ops *sum = arena_array(a, DTYPE_N, sizeof *sum);
    struct model_tensor head;
    *s = (struct msg_shape){.n_heads = p->n_heads,
                            .n_kv_heads = p->n_kv_heads,
                            .head_dim_k = p->head_dim_k,
                            .head_dim_v = p->head_dim_v,
                            .n_ff = p->n_ff,
                            .ff_step = ff_step(f, p),
                            .head_ops = 2 * (u64)p->dim * p->n_vocab};
    for (u32 il = 0; il < p->n_layers; il++) {
        u32 k = 0;
        while (k < n && (layer_bytes[first[k]] != layer_bytes[il] ||
                         kinds[k].window != model_layer_window(p, il)))
            k++;
        if (k == n && n < KINDS_MAX) {
            struct pricing price_of;
            if (!price_layer(f, p, il, &price_of, e)) return false;
            kinds[n] = price_of.c;
            s->is_float |= price_of.is_float;
            memcpy(types[n], price_of.types, sizeof price_of.types);
            first[n++] = il;
        }
        kind[il] = MIN(k, (u32)KINDS_MAX - 1);
        for (u32 t = 0; t < DTYPE_N; t++) {
            sum[t].ops += types[kind[il]][t].ops;
            sum[t].rows += types[kind[il]][t].rows;
        }
    }
    s->types = list_types(sum, a);
    if (model_file_tensor(f, "output.weight", &head) ||
        model_file_tensor(f, "token_embd.weight", &head))
        s->head_type = (u32)head.info->type;
    s->kinds = (struct wire_list){kinds, n};
    s->layer_kind = (struct wire_u64s){kind, p->n_layers};
    return true;
}
