#include "formats/toymodel.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/random.h"
#include "formats/blocks.h"
#include "formats/toymodel_impl.h"

static const struct toymodel_family FAMILIES[] = {
    {"llama", "llama", TOYMODEL_VOCAB_BPE, "smollm", 1e4f, 1e-5f, 2, 1, .tied = false},
    {"mistral", "llama", TOYMODEL_VOCAB_SPM_LLAMA, "default", 1e6f, 1e-5f, 2, 1, .tied = false},
    {"qwen2", "qwen2", TOYMODEL_VOCAB_BPE, "qwen2", 1e6f, 1e-6f, 2, 1, .qkv_bias = true},
    {"qwen3", "qwen3", TOYMODEL_VOCAB_BPE, "qwen2", 1e6f, 1e-6f, 2, 1, .qk_norm = true,
     .key_length = true},
    {"gemma2", "gemma2", TOYMODEL_VOCAB_SPM_GEMMA, "default", 1e4f, 1e-6f, 0.25f, 8,
     .post_norm = true, .tied = true, .key_length = true},
    {"gemma3", "gemma3", TOYMODEL_VOCAB_SPM_GEMMA, "default", 1e6f, 1e-6f, 0.25f, 8,
     .qk_norm = true, .post_norm = true, .tied = true, .key_length = true},
};

/* Per format: general.file_type (llama.cpp's llama_ftype) and, for formats without an encoder, how
 * a block of random bytes becomes a block of sane values: where its f16 scale and minimum stand
 * (-1: none), the standard deviation of the decoded values at scale 1, and the minimum that
 * centres them. */
static const struct format {
    u32 file_type;
    i32 scale_at, min_at;
    float std, min_per_scale;
} FORMATS[DTYPE_N] = {
    [DTYPE_F32] = {0, -1, -1, 0, 0},          [DTYPE_F16] = {1, -1, -1, 0, 0},
    [DTYPE_BF16] = {32, -1, -1, 0, 0},        [DTYPE_Q4_0] = {2, -1, -1, 0, 0},
    [DTYPE_Q4_1] = {3, -1, -1, 0, 0},         [DTYPE_Q5_0] = {8, -1, -1, 0, 0},
    [DTYPE_Q5_1] = {9, -1, -1, 0, 0},         [DTYPE_Q8_0] = {7, -1, -1, 0, 0},
    [DTYPE_Q2_K] = {10, 80, 82, 13.9f, 1.5f}, [DTYPE_Q3_K] = {12, 108, -1, 43.3f, 0},
    [DTYPE_Q4_K] = {15, 0, 2, 258.3f, 7.5f},  [DTYPE_Q5_K] = {17, 0, 2, 526.9f, 15.5f},
    [DTYPE_Q6_K] = {18, 208, -1, 1365.7f, 0}, [DTYPE_IQ4_NL] = {25, 0, -1, 67.4f, 0},
    [DTYPE_IQ4_XS] = {30, 0, -1, 1246.0f, 0}, [DTYPE_MXFP4] = {38, -1, -1, 2.93f, 0},
};

static bool default_and_check(struct toymodel *m, struct err *e) {
    struct toymodel_spec *s = &m->spec;
    for (size_t i = 0; i < ARRAY_LEN(FAMILIES); i++)
        if (strcmp(FAMILIES[i].name, s->family ? s->family : "llama") == 0)
            m->family = &FAMILIES[i];
    if (!m->family)
        return err_set(e, ERR_ARG,
                       "unknown family %s: there are llama, mistral, qwen2, qwen3, gemma2, gemma3",
                       s->family);
    if (!blocks_can_decode(s->type))
        return err_set(e, ERR_ARG, "skein reads no matrices of type %s",
                       dtype_info(s->type)->name ? dtype_info(s->type)->name : "unknown");
    if (s->mixed && s->type != DTYPE_Q4_K && s->type != DTYPE_Q5_K)
        return err_set(e, ERR_ARG, "there are mixes of Q4_K and of Q5_K, none of %s",
                       dtype_info(s->type)->name);
    u32 block = dtype_info(s->type)->block_elems;
    if (!s->n_layers) s->n_layers = 2;
    if (!s->dim) s->dim = MAX(block, 64u);
    if (!s->n_heads) s->n_heads = 4;
    if (!s->n_kv_heads) s->n_kv_heads = MAX(s->n_heads / 2, 1u);
    if (!s->head_dim) s->head_dim = s->dim / s->n_heads;
    if (!s->n_ff) s->n_ff = 2 * s->dim;
    if (!s->n_vocab) s->n_vocab = 384;
    if (!s->n_ctx) s->n_ctx = 512;
    if (s->rope_factor == 0) s->rope_factor = 4;
    if (s->rope_theta == 0) s->rope_theta = m->family->rope_theta;
    s->tied |= m->family->tied;

    u32 least = toymodel_vocab_least(m->family->vocab), q_dim;
    if (s->n_layers > 1024 || s->dim > 1 << 20 || s->n_ff > 1 << 20 || s->n_vocab > 1 << 22)
        return err_set(e, ERR_ARG, "limits: 1024 layers, dim and ffn 2^20, vocab 2^22");
    if (s->n_heads > 4096 || s->head_dim > 4096 || s->head_dim < 2 || s->head_dim % 2)
        return err_set(e, ERR_ARG, "heads %u (at most 4096) of %u elements (even, 2 to 4096)",
                       s->n_heads, s->head_dim);
    if (s->n_kv_heads > s->n_heads || s->n_heads % s->n_kv_heads)
        return err_set(e, ERR_ARG, "heads %u is no multiple of kv-heads %u", s->n_heads,
                       s->n_kv_heads);
    q_dim = s->n_heads * s->head_dim;
    if (m->family->qkv_bias && q_dim != s->dim)
        return err_set(e, ERR_ARG, "qwen2 needs heads * head-dim (%u) to be dim (%u)", q_dim,
                       s->dim);
    if (s->n_vocab < least)
        return err_set(e, ERR_ARG, "vocab %u: this family needs at least %u", s->n_vocab, least);
    if (s->dim % block || q_dim % block || s->n_ff % block)
        return err_set(e, ERR_ARG,
                       "dim %u, heads * head-dim %u and ffn %u must be multiples of %u, the "
                       "block of %s",
                       s->dim, q_dim, s->n_ff, block, dtype_info(s->type)->name);
    if (!m->family->post_norm && (s->sliding_window || s->sliding_pattern || s->logit_softcap != 0))
        return err_set(e, ERR_ARG, "sliding windows and the soft-cap need family gemma2 or gemma3");
    if (s->rope == TOYMODEL_ROPE_LLAMA3 && strcmp(m->family->arch, "llama") != 0)
        return err_set(e, ERR_ARG, "llama3 RoPE scaling needs family llama or mistral");
    return true;
}

/* Adds a tensor; n_rows 0 makes a vector. */
static struct toymodel_tensor *add(struct toymodel *m, enum toymodel_fill fill, u64 n_cols,
                                   u64 n_rows, const char *name_fmt, ...) PRINTF_LIKE(5, 6);
static struct toymodel_tensor *add(struct toymodel *m, enum toymodel_fill fill, u64 n_cols,
                                   u64 n_rows, const char *name_fmt, ...) {
    struct toymodel_tensor *t = &m->tensor[m->n_tensors];
    va_list ap;
    va_start(ap, name_fmt);
    vsnprintf(t->name, sizeof t->name, name_fmt, ap);
    va_end(ap);
    t->fill = fill;
    t->type = fill == TOYMODEL_MATRIX ? m->spec.type : DTYPE_F32;
    t->n_dims = n_rows ? 2 : 1;
    t->dims[0] = n_cols;
    t->dims[1] = n_rows ? n_rows : 1;
    t->scale = fill == TOYMODEL_MATRIX ? 1 / sqrtf((float)n_cols) : 1;
    t->key = random_at(m->spec.seed, m->n_tensors++);
    ASSERT(dtype_row_bytes(t->type, n_cols, &t->row_bytes));
    return t;
}

/* A mix has this matrix in Q6_K. */
static void refine(const struct toymodel *m, struct toymodel_tensor *t) {
    if (!m->spec.mixed) return;
    t->type = DTYPE_Q6_K;
    ASSERT(dtype_row_bytes(t->type, t->dims[0], &t->row_bytes));
}

/* The layers whose attn_v and ffn_down are refined: the first and the last eighth and every third
 * one between, as in llama.cpp's quantizer (its use_more_bits). */
static bool is_refined(u32 il, u32 n_layers) {
    u32 eighth = n_layers / 8;
    return il < eighth || il >= 7 * n_layers / 8 || (il - eighth) % 3 == 2;
}

static void add_layer(struct toymodel *m, u32 il) {
    const struct toymodel_spec *s = &m->spec;
    const struct toymodel_family *f = m->family;
    u32 q = s->n_heads * s->head_dim, kv = s->n_kv_heads * s->head_dim;
    struct toymodel_tensor *t;
    add(m, TOYMODEL_NORM, s->dim, 0, "blk.%u.attn_norm.weight", il);
    add(m, TOYMODEL_MATRIX, s->dim, q, "blk.%u.attn_q.weight", il);
    add(m, TOYMODEL_MATRIX, s->dim, kv, "blk.%u.attn_k.weight", il);
    t = add(m, TOYMODEL_MATRIX, s->dim, kv, "blk.%u.attn_v.weight", il);
    if (is_refined(il, s->n_layers)) refine(m, t);
    if (f->qkv_bias) {
        add(m, TOYMODEL_BIAS, q, 0, "blk.%u.attn_q.bias", il);
        add(m, TOYMODEL_BIAS, kv, 0, "blk.%u.attn_k.bias", il);
        add(m, TOYMODEL_BIAS, kv, 0, "blk.%u.attn_v.bias", il);
    }
    if (f->qk_norm) {
        add(m, TOYMODEL_NORM, s->head_dim, 0, "blk.%u.attn_q_norm.weight", il);
        add(m, TOYMODEL_NORM, s->head_dim, 0, "blk.%u.attn_k_norm.weight", il);
    }
    add(m, TOYMODEL_MATRIX, q, s->dim, "blk.%u.attn_output.weight", il);
    if (f->post_norm) add(m, TOYMODEL_NORM, s->dim, 0, "blk.%u.post_attention_norm.weight", il);
    add(m, TOYMODEL_NORM, s->dim, 0, "blk.%u.ffn_norm.weight", il);
    add(m, TOYMODEL_MATRIX, s->dim, s->n_ff, "blk.%u.ffn_gate.weight", il);
    add(m, TOYMODEL_MATRIX, s->dim, s->n_ff, "blk.%u.ffn_up.weight", il);
    t = add(m, TOYMODEL_MATRIX, s->n_ff, s->dim, "blk.%u.ffn_down.weight", il);
    if (is_refined(il, s->n_layers)) refine(m, t);
    if (f->post_norm) add(m, TOYMODEL_NORM, s->dim, 0, "blk.%u.post_ffw_norm.weight", il);
}

bool toymodel_init(struct toymodel *m, const struct toymodel_spec *spec, struct err *e) {
    *m = (struct toymodel){.spec = *spec};
    if (!default_and_check(m, e)) {
        *m = (struct toymodel){0};
        return false;
    }
    const struct toymodel_spec *s = &m->spec;
    m->tensor = xcalloc(4 + 16 * (size_t)s->n_layers, sizeof *m->tensor); /* 16 a layer at most */
    struct toymodel_tensor *t = add(m, TOYMODEL_MATRIX, s->dim, s->n_vocab, "token_embd.weight");
    t->scale *= m->family->embed_norm;
    if (s->tied) refine(m, t);
    if (s->rope == TOYMODEL_ROPE_LLAMA3)
        add(m, TOYMODEL_ROPE_FREQS, s->head_dim / 2, 0, "rope_freqs.weight");
    for (u32 il = 0; il < s->n_layers; il++) add_layer(m, il);
    add(m, TOYMODEL_NORM, s->dim, 0, "output_norm.weight")->scale = m->family->out_norm;
    if (s->tied) return true;
    t = add(m, TOYMODEL_MATRIX, s->dim, s->n_vocab, "output.weight");
    t->scale *= 2;
    refine(m, t);
    return true;
}

void toymodel_deinit(struct toymodel *m) {
    free(m->tensor);
    *m = (struct toymodel){0};
}

/* Element i of the tensor's random stream, uniform in [-1, 1). */
static float uniform(const struct toymodel_tensor *t, u64 i) {
    u32 bits = (u32)(random_at(t->key, i / 2) >> i % 2 * 32);
    return (float)(i32)bits * 0x1p-31f;
}

/* By how much llama3 scaling divides frequency i: high frequencies stay, low ones are divided by
 * the factor, between the wavelengths ctx / 4 and ctx the change is gradual (Llama 3.1 reference
 * code, apply_scaling, with ctx the original context length). */
static float llama3_divisor(const struct toymodel_spec *s, u64 i) {
    double ctx = (double)s->n_ctx / s->rope_factor;
    double freq = pow(s->rope_theta, -2.0 * (double)i / s->head_dim);
    double wavelength = 2 * 3.14159265358979323846 / freq;
    if (wavelength < ctx / 4) return 1;
    if (wavelength > ctx) return s->rope_factor;
    double smooth = (ctx / wavelength - 1) / (4 - 1);
    return (float)(1 / ((1 - smooth) / s->rope_factor + smooth));
}

static float element(const struct toymodel *m, const struct toymodel_tensor *t, u64 i) {
    switch (t->fill) {
    case TOYMODEL_MATRIX: return uniform(t, i) * t->scale * 1.7320508f; /* sqrt(3): unit variance */
    case TOYMODEL_NORM: return (1 + uniform(t, i) * 0.5f) * t->scale;
    case TOYMODEL_BIAS: return uniform(t, i) * 0.5f;
    case TOYMODEL_ROPE_FREQS: return llama3_divisor(&m->spec, i);
    }
    return 0;
}

/* A block of a format without an encoder: random bytes with a sane scale. */
static void random_block(const struct toymodel_tensor *t, u64 i_block, u8 *out) {
    const struct format *f = &FORMATS[t->type];
    u32 size = dtype_info(t->type)->block_bytes, n_words = (size + 7) / 8;
    for (u32 w = 0; w < n_words; w++) {
        u64 bits = random_at(t->key, i_block * (n_words + 1) + w);
        memcpy(out + 8 * w, &bits, MIN(size - 8 * w, 8u));
    }
    /* every block has a scale of its own, within a quarter of what gives the wanted deviation */
    double vary = 0.75 + 0.5 * random_unit(t->key, i_block * (n_words + 1) + n_words);
    float scale = t->scale / f->std * (float)vary;
    if (t->type == DTYPE_MXFP4) { /* E8M0 holds powers of two: the value is 2^(out[0] - 127) */
        out[0] = (u8)(127 + (i32)lrintf(log2f(scale)));
        return;
    }
    u16 h = f32_to_f16(scale), min = f32_to_f16(scale * f->min_per_scale);
    memcpy(out + f->scale_at, &h, sizeof h);
    if (f->min_at >= 0) memcpy(out + f->min_at, &min, sizeof min);
}

void toymodel_rows(const struct toymodel *m, u32 i, u64 row_first, u64 n_rows, void *out) {
    ASSERT(i < m->n_tensors);
    const struct toymodel_tensor *t = &m->tensor[i];
    ASSERT(row_first <= t->dims[1] && n_rows <= t->dims[1] - row_first);
    const struct dtype_info *info = dtype_info(t->type);
    u64 begin = row_first * t->dims[0], end = (row_first + n_rows) * t->dims[0];
    u8 *p = out;
    for (u64 at = begin; at < end; at += info->block_elems, p += info->block_bytes) {
        float x[32];
        if (!blocks_can_encode(t->type)) {
            random_block(t, at / info->block_elems, p);
            continue;
        }
        for (u32 k = 0; k < info->block_elems; k++) x[k] = element(m, t, at + k);
        blocks_encode(t->type, p, x, info->block_elems);
    }
}

/* Makes "ARCH.name", good until the next call. */
struct keys {
    const char *arch;
    char buf[96];
};

static const char *key(struct keys *k, const char *name) {
    snprintf(k->buf, sizeof k->buf, "%s.%s", k->arch, name);
    return k->buf;
}

static void rope_metadata(const struct toymodel *m, struct keys *k, struct gguf_writer *w) {
    const struct toymodel_spec *s = &m->spec;
    gguf_writer_f32(w, key(k, "rope.freq_base"), s->rope_theta);
    if (strcmp(m->family->arch, "llama") == 0)
        gguf_writer_u32(w, key(k, "rope.dimension_count"), s->head_dim);
    if (s->rope == TOYMODEL_ROPE_LINEAR || s->rope == TOYMODEL_ROPE_YARN) {
        gguf_writer_str(w, key(k, "rope.scaling.type"),
                        s->rope == TOYMODEL_ROPE_YARN ? "yarn" : "linear");
        gguf_writer_f32(w, key(k, "rope.scaling.factor"), s->rope_factor);
    }
    if (s->rope == TOYMODEL_ROPE_YARN)
        gguf_writer_u32(w, key(k, "rope.scaling.original_context_length"),
                        (u32)((float)s->n_ctx / s->rope_factor));
}

void toymodel_metadata(const struct toymodel *m, struct gguf_writer *w) {
    const struct toymodel_spec *s = &m->spec;
    const struct toymodel_family *f = m->family;
    struct keys k = {.arch = f->arch};
    char name[64];
    snprintf(name, sizeof name, "Toy %s", f->name);
    gguf_writer_str(w, "general.architecture", f->arch);
    gguf_writer_str(w, "general.type", "model");
    gguf_writer_str(w, "general.name", name);
    gguf_writer_u32(w, key(&k, "block_count"), s->n_layers);
    gguf_writer_u32(w, key(&k, "context_length"), s->n_ctx);
    gguf_writer_u32(w, key(&k, "embedding_length"), s->dim);
    gguf_writer_u32(w, key(&k, "feed_forward_length"), s->n_ff);
    gguf_writer_u32(w, key(&k, "attention.head_count"), s->n_heads);
    gguf_writer_u32(w, key(&k, "attention.head_count_kv"), s->n_kv_heads);
    gguf_writer_f32(w, key(&k, "attention.layer_norm_rms_epsilon"), f->rms_eps);
    if (f->key_length || s->head_dim * s->n_heads != s->dim) {
        gguf_writer_u32(w, key(&k, "attention.key_length"), s->head_dim);
        gguf_writer_u32(w, key(&k, "attention.value_length"), s->head_dim);
    }
    if (s->sliding_window)
        gguf_writer_u32(w, key(&k, "attention.sliding_window"), s->sliding_window);
    if (s->sliding_pattern)
        gguf_writer_u32(w, key(&k, "attention.sliding_window_pattern"), s->sliding_pattern);
    if (s->logit_softcap != 0)
        gguf_writer_f32(w, key(&k, "final_logit_softcapping"), s->logit_softcap);
    if (s->logit_softcap != 0 && strcmp(f->arch, "gemma2") == 0)
        gguf_writer_f32(w, key(&k, "attn_logit_softcapping"), s->logit_softcap);
    if (strcmp(f->arch, "llama") == 0) gguf_writer_u32(w, key(&k, "vocab_size"), s->n_vocab);
    rope_metadata(m, &k, w);
    gguf_writer_u32(w, "general.file_type", FORMATS[s->type].file_type);
    toymodel_vocab_write(m, w);
    gguf_writer_u32(w, "general.quantization_version", 2);
}

void toymodel_build(const struct toymodel *m, struct str *out) {
    struct gguf_writer w = {0};
    struct str rows = {0};
    toymodel_metadata(m, &w);
    for (u32 i = 0; i < m->n_tensors; i++) {
        const struct toymodel_tensor *t = &m->tensor[i];
        str_clear(&rows);
        str_reserve(&rows, t->row_bytes * t->dims[1]);
        toymodel_rows(m, i, 0, t->dims[1], rows.p);
        gguf_writer_tensor(&w, t->name, t->type, t->n_dims, t->dims, rows.p);
    }
    gguf_writer_finish(&w, out);
    str_deinit(&rows);
    gguf_writer_deinit(&w);
}
