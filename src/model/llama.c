#include "model/model_impl.h"

/* Llama 2 and 3, Mistral, SmolLM2 and everything else that calls itself "llama"; Qwen2 (biases on
 * q, k and v) and Qwen3 (a norm on every head of q and k). Shapes: model_impl.h. */

/* x += Wo * attention(rope(norm(Wq xn)), rope(norm(Wk xn)), Wv xn), xn = norm(x) */
static bool attn(struct model *m, u32 il, const struct model_step *s, struct kv_pool *kv, float *x,
                 struct err *e) {
    const struct model_params *p = &m->p;
    const struct layer *l = &m->w.layers[il];
    struct act *a = &m->act;
    const u32 n_heads = m->slice.n_heads;
    u32 n_kv_heads = m->slice.n_kv_heads, n = s->batch->n_tok;

    ops_norm(m->ops, a->xn, x, &l->attn_norm, n, p->dim, p->rms_eps);
    model_qkv(m, l, n);
    if (tensor_there(&l->q_norm)) {
        ops_norm(m->ops, a->q, a->q, &l->q_norm, (u64)n * n_heads, p->head_dim_k, p->rms_eps);
        ops_norm(m->ops, a->k, a->k, &l->k_norm, (u64)n * n_kv_heads, p->head_dim_k, p->rms_eps);
    }
    ops_rope(m->ops, a->q, &m->rope, n_heads);
    ops_rope(m->ops, a->k, &m->rope, n_kv_heads);
    ops_kv_store(m->ops, kv, il, a->k, a->v);
    n = model_attend(m, il, s, kv, x);
    if (n == 0) return true;
    if (!ops_matmul_sum(m->ops, m->tp, a->y, &l->wo, a->att, n, e)) return false;
    if (tensor_there(&l->bo)) ops_bias(m->ops, a->y, &l->bo, n);
    ops_add(m->ops, x, a->y, (u64)n * p->dim);
    return true;
}

/* x += Wdown * (silu(Wgate xn) * (Wup xn)), xn = norm(x) */
static bool ffn(struct model *m, u32 il, float *x, u32 n, struct err *e) {
    const struct model_params *p = &m->p;
    const struct layer *l = &m->w.layers[il];
    struct act *a = &m->act;

    if (n == 0) return true;
    ops_norm(m->ops, a->xn, x, &l->ffn_norm, n, p->dim, p->rms_eps);
    model_gate_up(m, l, n);
    ops_gate(m->ops, a->gate, a->gate, a->up, (u64)n * l->down.cols, GATE_SILU);
    if (!ops_matmul_sum(m->ops, m->tp, a->y, &l->down, a->gate, n, e)) return false;
    ops_add(m->ops, x, a->y, (u64)n * p->dim);
    ops_cut(m->ops, x, n, p->dim);
    return true;
}

bool llama_forward(struct model *m, const struct model_step *s, struct kv_pool *kv, float *x,
                   float *logits, struct err *e) {
    if (m->spec.has_embed && !model_embed(m, s, x, e)) return false;
    for (u32 il = 0; il < m->w.n_layers; il++)
        if (!attn(m, il, s, kv, x, e) || !ffn(m, il, x, model_rows(m, il, s), e))
            return err_wrap(e, "layer %u", m->spec.layer_first + il);
    return !m->spec.has_head || model_logits(m, s, x, logits, e);
}
