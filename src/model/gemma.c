#include "model/model_impl.h"

/* Gemma 2 and 3, text. Against Llama: embeddings times sqrt(dim), norms also behind attention and
 * feed-forward, GELU, sliding windows in most layers; Gemma 2 caps scores and logits, Gemma 3 has
 * norms on the heads of q and k and another RoPE base in sliding layers. */

/* y = Wo * attention(rope(norm(Wq xn)), rope(norm(Wk xn)), Wv xn), xn = norm(x) */
static void attn(struct model *m, u32 il, struct piece *t) {
    const struct model_params *p = &m->p;
    const struct layer *l = &m->w.layers[il];
    struct act *a = &m->act;
    u32 n_heads = m->slice.n_heads, n_kv_heads = m->slice.n_kv_heads, n = t->n;
    const struct rope *rope = model_window(m, il) ? &m->rope_local : &m->rope;

    ops_norm(m->ops, a->xn, t->x, &l->attn_norm, n, p->dim, p->rms_eps);
    model_qkv(m, l, n);
    if (tensor_there(&l->q_norm)) {
        ops_norm(m->ops, a->q, a->q, &l->q_norm, (u64)n * n_heads, p->head_dim_k, p->rms_eps);
        ops_norm(m->ops, a->k, a->k, &l->k_norm, (u64)n * n_kv_heads, p->head_dim_k, p->rms_eps);
    }
    ops_rope(m->ops, a->q, rope, n_heads);
    ops_rope(m->ops, a->k, rope, n_kv_heads);
    ops_kv_store(m->ops, t->kv, il, a->k, a->v);
    model_attend(m, il, t);
    if (t->n) ops_matmul(m->ops, t->y, &l->wo, t->att, t->n);
}

/* x += norm(y) */
static void attn_add(struct model *m, u32 il, struct piece *t) {
    const struct layer *l = &m->w.layers[il];
    if (tensor_there(&l->bo)) ops_bias(m->ops, t->y, &l->bo, t->n);
    ops_norm(m->ops, t->y, t->y, &l->attn_post_norm, t->n, m->p.dim, m->p.rms_eps);
    ops_add(m->ops, t->x, t->y, (u64)t->n * m->p.dim);
}

/* y = Wdown * (gelu(Wgate xn) * (Wup xn)), xn = norm(x) */
static void ffn(struct model *m, u32 il, struct piece *t) {
    const struct layer *l = &m->w.layers[il];
    struct act *a = &m->act;

    ops_norm(m->ops, a->xn, t->x, &l->ffn_norm, t->n, m->p.dim, m->p.rms_eps);
    model_gate_up(m, l, t->n);
    ops_gate(m->ops, a->gate, a->gate, a->up, (u64)t->n * l->down.cols, GATE_GELU);
    ops_matmul(m->ops, t->y, &l->down, a->gate, t->n);
}

/* x += norm(y) */
static void ffn_add(struct model *m, u32 il, struct piece *t) {
    const struct layer *l = &m->w.layers[il];
    ops_norm(m->ops, t->y, t->y, &l->ffn_post_norm, t->n, m->p.dim, m->p.rms_eps);
    ops_add(m->ops, t->x, t->y, (u64)t->n * m->p.dim);
    ops_cut(m->ops, t->x, t->n, m->p.dim);
}

bool gemma_forward(struct model *m, const struct model_step *s, struct kv_pool *kv, float *x,
                   float *logits, struct err *e) {
    static const struct half HALVES[] = {{attn, attn_add}, {ffn, ffn_add}};
    if (m->spec.has_embed) {
        if (!model_embed(m, s, x, e)) return false;
        ops_scale(m->ops, x, m->p.embed_scale, (u64)s->batch->n_tok * m->p.dim);
    }
    return model_layers(m, s, kv, x, HALVES, e) &&
           (!m->spec.has_head || model_logits(m, s, x, logits, e));
}
