#include "model/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/noalloc.h"
#include "kernels/mem.h"
#include "model/model_impl.h"
#include "comm/team.h"
#include "ops/ops_cpu.h"

static bool check_spec(const struct model_params *p, const struct shard_spec *s, struct err *e) {
    if (s->layer_first > s->layer_end || s->layer_end > p->n_layers)
        return err_set(e, ERR_ARG, "layers %u to %u of a model with %u layers", s->layer_first,
                       s->layer_end, p->n_layers);
    return true;
}

/* The frequency factors of llama3 scaling as a file carries them; *factors stays NULL where it
 * doesn't. They scale the model's RoPE; the caller frees them. */
static bool read_rope_factors(const struct model_file *f, const struct model_params *p,
                              float **factors, struct err *e) {
    struct model_tensor mt;
    u64 n = p->rope_dims / 2;
    if (!model_file_tensor(f, "rope_freqs.weight", &mt)) return true;
    if (mt.info->n_dims != 1 || mt.info->dims[0] != n)
        return err_set(e, ERR_FORMAT, "tensor rope_freqs.weight has %llu entries, expected %llu",
                       (unsigned long long)mt.info->dims[0], (unsigned long long)n);
    struct tensor t = {
        .type = mt.info->type, .rows = 1, .cols = n, .data = mt.data, .name = "rope_freqs.weight"};
    *factors = xcalloc(n, sizeof **factors);
    if (!ops_load_vector(&t, *factors, e)) return false;
    for (u64 i = 0; i < n; i++)
        if (!isfinite((*factors)[i]) || (*factors)[i] <= 0)
            return err_set(e, ERR_FORMAT, "tensor rope_freqs.weight: entry %llu is %g",
                           (unsigned long long)i, (double)(*factors)[i]);
    return true;
}

static bool init_ropes(struct model *m, const struct model_file *f, struct err *e) {
    const struct model_params *p = &m->p;
    float *factors = NULL;
    bool ok = read_rope_factors(f, p, &factors, e);
    if (ok) {
        m->inv_freq = xcalloc(p->rope_dims, sizeof *m->inv_freq); /* two ropes of half the dims */
        rope_init(&m->rope, m->inv_freq, p, p->rope_theta, true, factors);
        rope_init(&m->rope_local, m->inv_freq + p->rope_dims / 2, p, p->rope_theta_local, false,
                  NULL);
    }
    free(factors);
    return ok;
}

/* Gives each activation its part of a->mem, or with a->mem == NULL adds up the size. */
static u64 place_act(struct act *a, const struct model_params *p, const struct slice *s,
                     u32 max_tok) {
    const struct {
        float **at;
        u64 cols;
    } parts[] = {
        {&a->x, p->dim},
        {&a->xn, p->dim},
        {&a->y, p->dim},
        {&a->q, (u64)s->n_heads * p->head_dim_k},
        {&a->k, (u64)s->n_kv_heads * p->head_dim_k},
        {&a->v, (u64)s->n_kv_heads * p->head_dim_v},
        {&a->att, s->att_cols},
        {&a->gate, s->ff_max},
        {&a->up, s->ff_max},
    };
    u64 bytes = 0;
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        if (a->mem) *parts[i].at = (float *)((char *)a->mem + bytes);
        bytes += align_up(max_tok * parts[i].cols * sizeof(float), KERNEL_ALIGN);
    }
    return bytes;
}

static bool init_act(struct model *m, struct err *e) {
    struct act *a = &m->act;
    a->mem_bytes = place_act(a, &m->p, &m->slice, m->max_tok);
    a->mem = mem_map(a->mem_bytes, "activations", e);
    if (a->mem) place_act(a, &m->p, &m->slice, m->max_tok);
    return a->mem != NULL;
}

static void take_spans(struct model *m, u32 n) {
    free(m->spans);
    m->max_spans = n;
    m->spans = xcalloc(n + (size_t)MODEL_PIECES - 1, sizeof *m->spans); /* one may be in two */
}

struct model *model_outline(const struct model_file *f, const struct model_params *p,
                            const struct shard_spec *spec, struct ops *ops, struct err *e) {
    struct slice slice;
    if (!check_spec(p, spec, e) || !slice_of(p, spec, weights_wo_block(f, spec), &slice, e))
        return NULL;
    struct model *m = xcalloc(1, sizeof *m);
    m->p = *p;
    m->spec = *spec;
    m->slice = slice;
    m->ops = ops;
    m->max_tok = UINT32_MAX;
    take_spans(m, 1); /* what is priced or explained is one sequence */
    if (weights_find(&m->w, f, p, spec, &slice, e) && init_ropes(m, f, e)) return m;
    model_free(m);
    return NULL;
}

struct model *model_load(const struct model_file *f, const struct model_params *p,
                         const struct shard_spec *spec, struct ops *ops, u32 max_tok,
                         void (*progress)(void *ctx, u32 done, u32 total), void *ctx,
                         struct err *e) {
    ASSERT(max_tok > 0);
    struct model *m = model_outline(f, p, spec, ops, e);
    if (!m) return NULL;
    m->max_tok = max_tok;
    take_spans(m, max_tok);
    if (init_act(m, e) && weights_pack(&m->w, f, ops, progress, ctx, e)) return m;
    model_free(m);
    return NULL;
}

void model_free(struct model *m) {
    if (!m) return;
    weights_deinit(&m->w);
    mem_unmap(m->act.mem, m->act.mem_bytes);
    free(m->inv_freq);
    free(m->spans);
    free(m);
}

void model_set_team(struct model *m, struct team *tp) {
    ASSERT(team_size(tp) == MAX(m->spec.tp_ranks, 1u) && team_rank(tp) == m->spec.tp_rank);
    m->tp = tp;
}

const struct model_params *model_params(const struct model *m) {
    return &m->p;
}
u64 model_weights_bytes(const struct model *m) {
    return m->w.mem_bytes;
}
u64 model_scratch_bytes(const struct model *m) {
    return m->act.mem_bytes;
}

void model_ops_dims(const struct model_params *p, u32 max_tok, struct ops_cpu_dims *d) {
    u64 att = (u64)p->n_heads * p->head_dim_v;
    *d = (struct ops_cpu_dims){.max_tok = max_tok,
                               .max_cols = MAX(MAX(p->dim, p->n_ff), att),
                               .max_rot = p->rope_dims,
                               .n_ropes = 2,
                               .max_dv = p->head_dim_v};
}

u32 model_window(const struct model *m, u32 il) {
    return model_layer_window(&m->p, m->spec.layer_first + il);
}

void model_qkv(struct model *m, const struct layer *l, u32 n) {
    struct act *a = &m->act;
    const struct tensor *w[] = {&l->wq, &l->wk, &l->wv}, *b[] = {&l->bq, &l->bk, &l->bv};
    float *y[] = {a->q, a->k, a->v};
    ops_matmuls(m->ops, y, w, 3, a->xn, n);
    for (int i = 0; i < 3; i++)
        if (tensor_there(b[i])) ops_bias(m->ops, y[i], b[i], n);
}

void model_gate_up(struct model *m, const struct layer *l, u32 n) {
    const struct tensor *w[] = {&l->gate, &l->up};
    float *y[] = {m->act.gate, m->act.up};
    ops_matmuls(m->ops, y, w, 2, m->act.xn, n);
}

struct attn model_attn(const struct model *m, u32 il) {
    const struct slice *s = &m->slice;
    return (struct attn){.n_heads = s->n_heads,
                         .scale = m->p.attn_scale,
                         .softcap = m->p.attn_softcap,
                         .window = model_window(m, il),
                         .group = s->group,
                         .shift = s->shift,
                         .y_cols = s->att_cols,
                         .y_first = s->att_first};
}

/* A token's row lies on one rank; the others add zeros. */
bool model_embed(struct model *m, const struct model_step *s, float *x, struct err *e) {
    u32 n = s->batch->n_tok;
    ops_embed(m->ops, x, &m->w.embed, s->ids, n);
    return ops_sum(m->ops, m->tp, x, (u64)n * m->p.dim, e);
}

void model_attend(struct model *m, u32 il, struct piece *t) {
    const struct attn how = model_attn(m, il);
    const struct model_step *s = t->step;
    struct act *a = &m->act;
    bool last = m->spec.has_head && il + 1 == m->w.n_layers;
    if (last) t->n = t->n_out;
    if (t->n == 0) return;
    ops_attend(m->ops, t->att, a->q, t->kv, il, &how);
    if (!last || s->n_out == s->batch->n_tok) return;
    const u32 *out = s->out ? s->out + t->out_first : NULL; /* nothing is there on the cost table */
    ops_gather(m->ops, t->att, a->att, out, t->n, m->slice.att_cols);
    ops_gather(m->ops, t->out_x, t->step_x, out, t->n, m->p.dim);
    t->x = t->out_x;
}

bool model_logits(struct model *m, const struct model_step *s, float *x, float *logits,
                  struct err *e) {
    const struct model_params *p = &m->p;
    const struct tensor *w = p->tied_embedding ? &m->w.embed : &m->w.output;
    float *xn = m->act.xn;
    if (!s->n_out) return true;
    if (!m->w.n_layers) ops_gather(m->ops, x, x, s->out, s->n_out, p->dim);
    ops_norm(m->ops, xn, x, &m->w.out_norm, s->n_out, p->dim, p->rms_eps);
    ops_matmul(m->ops, logits, w, xn, s->n_out);
    if (p->logit_softcap != 0)
        ops_softcap(m->ops, logits, p->logit_softcap, (u64)s->n_out * w->rows);
    return ops_gather_rows(m->ops, m->tp, logits, s->n_out, w->rows, p->n_vocab, e);
}

bool model_forward(struct model *m, const struct model_step *s, struct kv_pool *kv, float *x,
                   float *logits, struct err *e) {
    ASSERT(s->batch->n_tok <= m->max_tok && s->n_out <= s->batch->n_tok);
    if (!x) x = m->act.x;
    noalloc_begin();
    bool ok = ops_begin(m->ops, s->batch, e) && m->p.arch->forward(m, s, kv, x, logits, e);
    noalloc_end();
    return ok;
}
