#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/mem.h"
#include "model/model_impl.h"

/* Which tensors a file must have, by name and shape. Everything here walks over this one table. */

enum size { ONE, DIM, Q_ROWS, K_ROWS, V_ROWS, ATT_COLS, FF, HEAD_K, VOCAB };
enum need { ALWAYS, OPTIONAL, QKV_BIAS, QK_NORM, POST_NORMS };

struct rule {
    const char *suffix;   /* "blk.<layer>.<suffix>" */
    size_t at;            /* in struct layer */
    enum size rows, cols; /* ONE row: a vector */
    enum need need;
};

#define AT(field) offsetof(struct layer, field)
static const struct rule RULES[] = {
    {"attn_norm.weight", AT(attn_norm), ONE, DIM, ALWAYS},
    {"attn_q.weight", AT(wq), Q_ROWS, DIM, ALWAYS},
    {"attn_k.weight", AT(wk), K_ROWS, DIM, ALWAYS},
    {"attn_v.weight", AT(wv), V_ROWS, DIM, ALWAYS},
    {"attn_q.bias", AT(bq), ONE, Q_ROWS, QKV_BIAS},
    {"attn_k.bias", AT(bk), ONE, K_ROWS, QKV_BIAS},
    {"attn_v.bias", AT(bv), ONE, V_ROWS, QKV_BIAS},
    {"attn_q_norm.weight", AT(q_norm), ONE, HEAD_K, QK_NORM},
    {"attn_k_norm.weight", AT(k_norm), ONE, HEAD_K, QK_NORM},
    {"attn_output.weight", AT(wo), DIM, ATT_COLS, ALWAYS},
    {"attn_output.bias", AT(bo), ONE, DIM, OPTIONAL},
    {"post_attention_norm.weight", AT(attn_post_norm), ONE, DIM, POST_NORMS},
    {"ffn_norm.weight", AT(ffn_norm), ONE, DIM, ALWAYS},
    {"ffn_gate.weight", AT(gate), FF, DIM, ALWAYS},
    {"ffn_up.weight", AT(up), FF, DIM, ALWAYS},
    {"ffn_down.weight", AT(down), DIM, FF, ALWAYS},
    {"post_ffw_norm.weight", AT(ffn_post_norm), ONE, DIM, POST_NORMS},
};

/* Tensors that old tools wrote and that say nothing the metadata doesn't. */
static const char *const IGNORED[] = {"attn_rot_embd.weight", "attn.rotary_emb.inv_freq"};
static const char *const GLOBALS[] = {"token_embd.weight", "output_norm.weight", "output.weight",
                                      "rope_freqs.weight"};

static u64 size_of(const struct model_params *p, enum size s) {
    switch (s) {
    case ONE: return 1;
    case DIM: return p->dim;
    case Q_ROWS: return (u64)p->n_heads * p->head_dim_k;
    case K_ROWS: return (u64)p->n_kv_heads * p->head_dim_k;
    case V_ROWS: return (u64)p->n_kv_heads * p->head_dim_v;
    case ATT_COLS: return (u64)p->n_heads * p->head_dim_v;
    case FF: return p->n_ff;
    case HEAD_K: return p->head_dim_k;
    case VOCAB: return p->n_vocab;
    }
    return 0;
}

/* Has a layer of this architecture such a tensor? */
static bool applies(const struct arch *a, enum need n) {
    return n == QK_NORM ? a->qk_norm : n == POST_NORMS ? a->post_norms : true;
}

static bool must_be(const struct arch *a, enum need n) {
    return n == QKV_BIAS ? a->qkv_bias : n != OPTIONAL && applies(a, n);
}

static bool one_of(struct view v, const char *const *list, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (view_is(v, list[i])) return true;
    return false;
}

/* True for a name that weights_find would look up, or ignore knowingly. */
static bool is_known(const struct model_params *p, struct view name) {
    unsigned il;
    int n = 0;
    char buf[GGUF_NAME_MAX + 1];
    if (one_of(name, GLOBALS, ARRAY_LEN(GLOBALS)) || model_file_is_extra(name)) return true;
    snprintf(buf, sizeof buf, "%.*s", VIEW_FMT(name));
    if (sscanf(buf, "blk.%9u.%n", &il, &n) != 1 || !n || il >= p->n_layers) return false;
    struct view suffix = view_of(buf + n);
    for (size_t i = 0; i < ARRAY_LEN(RULES); i++)
        if (view_is(suffix, RULES[i].suffix)) return applies(p->arch, RULES[i].need);
    return one_of(suffix, IGNORED, ARRAY_LEN(IGNORED));
}

static bool refuse_unknown(const struct model_file *f, const struct model_params *p,
                           struct err *e) {
    for (u32 part = 0; part < f->n_parts; part++)
        for (u64 i = 0; i < f->part[part].g->n_tensors; i++) {
            struct view name = f->part[part].g->tensor[i].name;
            if (!is_known(p, name))
                return err_set(e, ERR_UNSUPPORTED,
                               "tensor %.*s has no place in a %s model of %u layers as skein "
                               "computes it",
                               VIEW_FMT(name), p->arch_name, p->n_layers);
        }
    return true;
}

/* The shard's part [*first, *end) of a dimension. ff_block: of the layer's down projection. */
static void range_of(const struct model_params *p, const struct slice *s, u32 ff_block, enum size d,
                     u64 *first, u64 *end) {
    *first = 0;
    *end = size_of(p, d);
    if (s->whole) return;
    switch (d) {
    case Q_ROWS: *first = (u64)s->head_first * p->head_dim_k; break;
    case K_ROWS: *first = (u64)s->kv_first * p->head_dim_k; break;
    case V_ROWS: *first = (u64)s->kv_first * p->head_dim_v; break;
    case ATT_COLS: *first = s->att_col_first; break;
    case FF: slice_ff(p, s, ff_block, first, end); return;
    case VOCAB: *first = s->vocab_first; break;
    default: return;
    }
    u64 n = d == Q_ROWS     ? (u64)s->n_heads * p->head_dim_k
            : d == K_ROWS   ? (u64)s->n_kv_heads * p->head_dim_k
            : d == V_ROWS   ? (u64)s->n_kv_heads * p->head_dim_v
            : d == ATT_COLS ? s->att_cols
                            : s->n_vocab;
    *end = *first + n;
}

struct finder {
    struct shard_weights *w;
    const struct model_file *f;
    const struct model_params *p;
    const struct slice *s;
    u32 ff_block; /* of the layer in hand */
};

/* Looks a tensor up, checks its shape and cuts the shard's part out. Absent and not required: cols
 * stays 0. */
static bool find(const struct finder *w, const char *name, enum size rows, enum size cols,
                 bool required, struct tensor *t, struct err *e) {
    struct model_tensor m;
    u64 n_rows = size_of(w->p, rows), n_cols = size_of(w->p, cols), row0, row1, col0, col1, bytes;
    if (!model_file_tensor(w->f, name, &m))
        return !required || err_set(e, ERR_FORMAT, "tensor %s is missing", name);
    const u64 *d = m.info->dims;
    if (d[0] != n_cols || d[1] != n_rows || d[2] != 1 || d[3] != 1)
        return err_set(e, ERR_FORMAT, "tensor %s is %llu x %llu, the metadata makes it %llu x %llu",
                       name, (unsigned long long)d[0], (unsigned long long)d[1],
                       (unsigned long long)n_cols, (unsigned long long)n_rows);
    range_of(w->p, w->s, w->ff_block, rows, &row0, &row1);
    range_of(w->p, w->s, w->ff_block, cols, &col0, &col1);
    *t = (struct tensor){.type = m.info->type,
                         .rows = row1 - row0,
                         .cols = col1 - col0,
                         .row_first = row0,
                         .col_first = col0,
                         .file_cols = n_cols,
                         .data = m.data,
                         .name = arena_strdup(&w->w->names, name)};
    /* A type without a known size is refused when it is placed. */
    if (row0 && dtype_row_bytes(t->type, n_cols, &bytes))
        t->data = (const u8 *)t->data + row0 * bytes;
    return true;
}

static u32 block_of(const struct model_file *f, const char *name) {
    struct model_tensor m;
    return model_file_tensor(f, name, &m) ? MAX(dtype_info(m.info->type)->block_elems, 1u) : 1;
}

u32 weights_wo_block(const struct model_file *f, const struct shard_spec *spec) {
    char name[64];
    u32 block = 1;
    for (u32 il = spec->layer_first; il < spec->layer_end; il++) {
        snprintf(name, sizeof name, "blk.%u.attn_output.weight", il);
        block = MAX(block, block_of(f, name));
    }
    return block;
}

static bool find_layer(struct finder *w, u32 il, struct layer *l, struct err *e) {
    char name[64];
    snprintf(name, sizeof name, "blk.%u.ffn_down.weight", il);
    w->ff_block = block_of(w->f, name);
    for (size_t i = 0; i < ARRAY_LEN(RULES); i++) {
        const struct rule *r = &RULES[i];
        if (!applies(w->p->arch, r->need)) continue;
        snprintf(name, sizeof name, "blk.%u.%s", il, r->suffix);
        if (!find(w, name, r->rows, r->cols, must_be(w->p->arch, r->need),
                  (struct tensor *)((char *)l + r->at), e))
            return false;
    }
    return true;
}

bool weights_find(struct shard_weights *w, const struct model_file *f, const struct model_params *p,
                  const struct shard_spec *spec, const struct slice *s, struct err *e) {
    struct finder at = {.w = w, .f = f, .p = p, .s = s};
    *w = (struct shard_weights){.n_layers = spec->layer_end - spec->layer_first};
    if (!refuse_unknown(f, p, e)) return false;
    w->layers = xcalloc(w->n_layers ? w->n_layers : 1, sizeof *w->layers);
    if ((spec->has_embed || (spec->has_head && p->tied_embedding)) &&
        !find(&at, "token_embd.weight", VOCAB, DIM, true, &w->embed, e))
        return false;
    for (u32 i = 0; i < w->n_layers; i++)
        if (!find_layer(&at, spec->layer_first + i, &w->layers[i], e)) return false;
    if (!spec->has_head) return true;
    return find(&at, "output_norm.weight", ONE, DIM, true, &w->out_norm, e) &&
           (p->tied_embedding || find(&at, "output.weight", VOCAB, DIM, true, &w->output, e));
}

static bool load_matrix(const struct model_file *f, struct ops *ops, struct tensor *t, void *mem,
                        struct err *e) {
    u64 stride;
    if (!ops_load_matrix(ops, t, mem, e)) return false;
    if (t->data && dtype_row_bytes(t->type, t->file_cols, &stride))
        model_file_drop(f, t->data, stride * t->rows);
    return true;
}

static bool load_vector(struct tensor *t, float *mem, struct err *e) {
    if (t->cols == t->file_cols) return ops_load_vector(t, mem, e);
    struct tensor whole = *t;
    whole.cols = t->file_cols;
    float *all = xcalloc(whole.cols, sizeof *all);
    bool ok = ops_load_vector(&whole, all, e);
    memcpy(mem, all + t->col_first, t->cols * sizeof *mem);
    free(all);
    t->vec = mem;
    return ok;
}

/* First pass with mem == NULL: adds up what a tensor takes. Second pass: packs it to mem + *at. */
static bool place(struct shard_weights *w, const struct model_file *f, struct ops *ops,
                  struct tensor *t, bool vector, u64 *at, struct err *e) {
    u64 bytes;
    if (!t->cols || !t->rows) return true;
    if (vector)
        bytes = align_up(t->cols * sizeof(float), KERNEL_ALIGN);
    else if (!ops_matrix_bytes(ops, t->type, t->rows, t->cols, &bytes)) {
        char buf[24];
        return err_set(e, ERR_UNSUPPORTED, "tensor %s: no kernel multiplies %s with %llu columns",
                       t->name, dtype_name(t->type, buf), (unsigned long long)t->cols);
    }
    if (w->mem) {
        void *mem = (char *)w->mem + *at;
        if (vector ? !load_vector(t, mem, e) : !load_matrix(f, ops, t, mem, e)) return false;
    }
    if (!size_add(*at, bytes, at)) return err_set(e, ERR_LIMIT, "the weights' size overflows");
    return true;
}

static bool place_all(struct shard_weights *w, const struct model_file *f, struct ops *ops,
                      void (*progress)(void *ctx, u32 done, u32 total), void *ctx, u64 *at,
                      struct err *e) {
    if (!place(w, f, ops, &w->embed, false, at, e)) return false;
    for (u32 i = 0; i < w->n_layers; i++) {
        for (size_t k = 0; k < ARRAY_LEN(RULES); k++)
            if (!place(w, f, ops, (struct tensor *)((char *)&w->layers[i] + RULES[k].at),
                       RULES[k].rows == ONE, at, e))
                return false;
        if (progress) progress(ctx, i + 1, w->n_layers);
    }
    return place(w, f, ops, &w->out_norm, true, at, e) &&
           place(w, f, ops, &w->output, false, at, e);
}

bool weights_pack(struct shard_weights *w, const struct model_file *f, struct ops *ops,
                  void (*progress)(void *ctx, u32 done, u32 total), void *ctx, struct err *e) {
    u64 at = 0;
    if (!place_all(w, f, ops, NULL, NULL, &w->mem_bytes, e)) return false;
    w->mem = mem_map(w->mem_bytes, "the weights", e);
    return w->mem && place_all(w, f, ops, progress, ctx, &at, e);
}

void weights_deinit(struct shard_weights *w) {
    mem_unmap(w->mem, w->mem_bytes);
    free(w->layers);
    arena_deinit(&w->names);
}

static u64 file_bytes(const struct model_file *f, const char *name) {
    struct model_tensor t;
    return model_file_tensor(f, name, &t) ? t.info->size_bytes : 0;
}

void model_weight_bytes(const struct model_file *f, const struct model_params *p, u64 *embed,
                        u64 *layer_bytes, u64 *head) {
    char name[64];
    *embed = file_bytes(f, "token_embd.weight");
    for (u32 il = 0; il < p->n_layers; il++) {
        layer_bytes[il] = 0;
        for (size_t i = 0; i < ARRAY_LEN(RULES); i++) {
            snprintf(name, sizeof name, "blk.%u.%s", il, RULES[i].suffix);
            layer_bytes[il] += file_bytes(f, name);
        }
    }
    *head = file_bytes(f, "output_norm.weight") +
            (p->tied_embedding ? *embed : file_bytes(f, "output.weight"));
}

static u64 tensor_bytes(const struct tensor *t) {
    u64 row;
    return t->cols && dtype_row_bytes(t->type, t->cols, &row) ? row * t->rows : 0;
}

u64 shard_file_bytes(const struct model_file *f, const struct model_params *p,
                     const struct shard_spec *spec) {
    struct shard_weights w = {.mem = NULL};
    struct slice s;
    u64 total = 0;
    if (slice_of(p, spec, weights_wo_block(f, spec), &s, NULL) &&
        weights_find(&w, f, p, spec, &s, NULL)) {
        total = tensor_bytes(&w.embed) + tensor_bytes(&w.out_norm) + tensor_bytes(&w.output);
        for (u32 i = 0; i < w.n_layers; i++)
            for (size_t k = 0; k < ARRAY_LEN(RULES); k++)
                total += tensor_bytes((struct tensor *)((char *)&w.layers[i] + RULES[k].at));
    }
    weights_deinit(&w);
    return total;
}
