#include "model/model.h"

#include <math.h>
#include <stdio.h>

#include "model/model_impl.h"

/* Limits far above any published model, so that products of two fit u64 with room to spare. The
 * lower limits keep every matrix at two rows or more: one row means a vector (struct tensor). */
enum {
    LAYERS_MAX = 4096,
    DIM_MAX = 1 << 20,
    HEADS_MAX = 1 << 14,
    HEAD_DIM_MAX = 4096,
    HEAD_DIM_ALIGN = 16, /* what the KV cache is laid out in (kernels/kv.h) */
    FF_MAX = 1 << 22,
    VOCAB_MAX = 1 << 24,
    KEY_BYTES = 96,
};

/* Reads keys "<arch>.<suffix>"; after the first failure it does nothing more, so that a caller
 * checks once. */
struct reader {
    const struct gguf *g;
    const char *arch;
    u32 n_layers;
    struct err *e;
    bool failed;
};

struct key {
    char z[KEY_BYTES];
};

static struct key key_of(const struct reader *r, const char *suffix) {
    struct key k;
    snprintf(k.z, sizeof k.z, "%s.%s", r->arch, suffix);
    return k;
}

/* A string of the file as it may stand in a message: short, printable. */
static struct key quotable(struct view v) {
    struct key k = {0};
    for (size_t i = 0; i < MIN(v.n, sizeof k.z - 1); i++)
        k.z[i] = v.p[i] >= ' ' && v.p[i] <= '~' ? v.p[i] : '?';
    return k;
}

static bool has(const struct reader *r, const char *suffix) {
    return gguf_find(r->g, key_of(r, suffix).z) != NULL;
}

/* An integer that may stand there once or once per layer, equal for all. */
static void read_per_layer(struct reader *r, const struct gguf_kv *kv, const char *key, u32 *out) {
    if (kv->elem == GGUF_STR || !gguf_type_bytes(kv->elem) || kv->n < r->n_layers) {
        err_set(r->e, ERR_FORMAT, "%s is no array of %u integers, one for each layer", key,
                r->n_layers);
        r->failed = true;
        return;
    }
    i64 first = gguf_arr_i64(kv, 0);
    for (u32 i = 1; i < r->n_layers && !r->failed; i++)
        if (gguf_arr_i64(kv, i) != first) {
            err_set(r->e, ERR_UNSUPPORTED,
                    "%s differs between layers (%lld in layer 0, %lld in layer %u)", key,
                    (long long)first, (long long)gguf_arr_i64(kv, i), i);
            r->failed = true;
        }
    if (first < 0 || first > UINT32_MAX) first = UINT32_MAX; /* then out of every range */
    *out = (u32)first;
}

static void read_u32(struct reader *r, const char *suffix, u32 *out) {
    struct key k = key_of(r, suffix);
    const struct gguf_kv *kv = gguf_find(r->g, k.z);
    if (r->failed) return;
    if (kv && kv->type == GGUF_ARR)
        read_per_layer(r, kv, k.z, out);
    else
        r->failed = !gguf_get_u32(r->g, k.z, out, r->e);
}

/* The caller checks the range, which also refuses what is no number. */
static void read_f32(struct reader *r, const char *suffix, float *out) {
    if (!r->failed) r->failed = !gguf_get_f32(r->g, key_of(r, suffix).z, out, r->e);
}

/* Refuses a value outside lo..hi; a missing key has left 0. */
static void check(struct reader *r, const char *suffix, u64 v, u64 lo, u64 hi) {
    if (r->failed || (v >= lo && v <= hi)) return;
    struct key k = key_of(r, suffix);
    r->failed = true;
    if (!has(r, suffix))
        err_set(r->e, ERR_FORMAT, "%s is missing", k.z);
    else
        err_set(r->e, ERR_FORMAT, "%s is %llu, expected %llu to %llu", k.z, (unsigned long long)v,
                (unsigned long long)lo, (unsigned long long)hi);
}

static void check_f32(struct reader *r, const char *suffix, float v, float lo, float hi) {
    if (r->failed || (v >= lo && v <= hi)) return;
    r->failed = !err_set(r->e, ERR_FORMAT, "%s is %g, expected %g to %g", key_of(r, suffix).z,
                         (double)v, (double)lo, (double)hi);
}

static void read_sizes(struct reader *r, struct model_params *p) {
    read_u32(r, "block_count", &p->n_layers);
    check(r, "block_count", p->n_layers, 1, LAYERS_MAX);
    r->n_layers = p->n_layers;
    read_u32(r, "embedding_length", &p->dim);
    check(r, "embedding_length", p->dim, 2, DIM_MAX);
    read_u32(r, "attention.head_count", &p->n_heads);
    check(r, "attention.head_count", p->n_heads, 1, HEADS_MAX);
    read_u32(r, "feed_forward_length", &p->n_ff);
    check(r, "feed_forward_length", p->n_ff, 2, FF_MAX);
    read_u32(r, "context_length", &p->n_ctx_train);
    check(r, "context_length", p->n_ctx_train, 1, INT32_MAX);
    read_f32(r, "attention.layer_norm_rms_epsilon", &p->rms_eps);
    if (!r->failed && !has(r, "attention.layer_norm_rms_epsilon"))
        check(r, "attention.layer_norm_rms_epsilon", 0, 1, 1);
    check_f32(r, "attention.layer_norm_rms_epsilon", p->rms_eps, 0, 1);
}

static void read_heads(struct reader *r, struct model_params *p) {
    if (r->failed) return;
    p->n_kv_heads = p->n_heads;
    p->head_dim_k = p->head_dim_v = p->dim / p->n_heads;
    read_u32(r, "attention.head_count_kv", &p->n_kv_heads);
    check(r, "attention.head_count_kv", p->n_kv_heads, 1, p->n_heads);
    if (!r->failed && p->n_heads % p->n_kv_heads)
        r->failed = !err_set(r->e, ERR_FORMAT,
                             "%s.attention.head_count (%u) is no multiple of head_count_kv (%u)",
                             r->arch, p->n_heads, p->n_kv_heads);
    if (!r->failed && !has(r, "attention.key_length") && p->dim % p->n_heads)
        r->failed =
            !err_set(r->e, ERR_FORMAT, "%s.embedding_length (%u) is no multiple of head_count (%u)",
                     r->arch, p->dim, p->n_heads);
    read_u32(r, "attention.key_length", &p->head_dim_k);
    read_u32(r, "attention.value_length", &p->head_dim_v);
    if (!r->failed && (!p->head_dim_k || !p->head_dim_v || p->head_dim_k > HEAD_DIM_MAX ||
                       p->head_dim_v > HEAD_DIM_MAX || p->head_dim_k % HEAD_DIM_ALIGN ||
                       p->head_dim_v % HEAD_DIM_ALIGN))
        r->failed = !err_set(r->e, ERR_UNSUPPORTED,
                             "%s has heads of %u (key) and %u (value) elements; skein computes "
                             "multiples of %d up to %d",
                             r->arch, p->head_dim_k, p->head_dim_v, HEAD_DIM_ALIGN, HEAD_DIM_MAX);
}

/* Multimodal RoPE gives each section of a head its own position. Text has only one position, so the
 * sections change nothing here, but a list that is no list of sections is a broken file. One tool
 * writes 3 entries, another 4. */
static void check_sections(struct reader *r) {
    i32 sections[4];
    static const char *const NAMES[] = {"rope.dimension_sections", "rope.mrope_section"};
    for (size_t i = 0; i < ARRAY_LEN(NAMES) && !r->failed; i++)
        r->failed = !gguf_get_i32s(r->g, key_of(r, NAMES[i]).z, sections, 3, 4, r->e);
}

static void read_scaling(struct reader *r, struct model_params *p) {
    struct view type = {0};
    p->rope_factor = 1;
    read_f32(r, has(r, "rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear",
             &p->rope_factor);
    if (p->rope_factor == 0) p->rope_factor = 1; /* some files write 0 for "none" */
    check_f32(r, "rope.scaling.factor", p->rope_factor, 1e-3f, 1e6f);
    if (r->failed) return;
    r->failed = !gguf_get_str(r->g, key_of(r, "rope.scaling.type").z, &type, r->e);
    if (view_is(type, "none"))
        p->rope_scaling = ROPE_NONE;
    else if (!type.n || view_is(type, "linear"))
        p->rope_scaling = p->rope_factor == 1 ? ROPE_NONE : ROPE_LINEAR;
    else if (view_is(type, "llama3"))
        p->rope_scaling = ROPE_LLAMA3;
    else if (view_is(type, "yarn"))
        p->rope_scaling = ROPE_YARN;
    else if (!r->failed)
        r->failed =
            !err_set(r->e, ERR_UNSUPPORTED,
                     "%s.rope.scaling.type is \"%s\"; known are none, linear, llama3 and yarn",
                     r->arch, quotable(type).z);
    p->rope_ctx_orig = p->n_ctx_train;
    read_u32(r, "rope.scaling.original_context_length", &p->rope_ctx_orig);
    check(r, "rope.scaling.original_context_length", p->rope_ctx_orig, 1, INT32_MAX);
}

static float yarn_mscale(float factor, float mul) {
    return factor <= 1 ? 1 : 0.1f * mul * logf(factor) + 1;
}

/* YaRN (arXiv 2309.00071) and the Llama 3 rule: their knobs, with the values of the papers where a
 * file is silent. The factor on cosine and sine is attention_factor where the file has it
 * (yarn_attn_factor), else 0.1 ln(factor) + 1, divided by the same with mscale_all_dim where that
 * was set (yarn_log_multiplier). */
static void read_scaling_knobs(struct reader *r, struct model_params *p) {
    float log_mul = 0, attn_factor = 1;
    p->rope_mscale = 1;
    p->rope_low_freq = 1;
    p->rope_high_freq = 4;
    p->yarn_ext_factor = 1;
    p->yarn_beta_fast = 32;
    p->yarn_beta_slow = 1;
    read_f32(r, "rope.scaling.low_freq_factor", &p->rope_low_freq);
    read_f32(r, "rope.scaling.high_freq_factor", &p->rope_high_freq);
    read_f32(r, "rope.scaling.attn_factor", &attn_factor);
    read_f32(r, "rope.scaling.yarn_ext_factor", &p->yarn_ext_factor);
    read_f32(r, "rope.scaling.yarn_beta_fast", &p->yarn_beta_fast);
    read_f32(r, "rope.scaling.yarn_beta_slow", &p->yarn_beta_slow);
    read_f32(r, "rope.scaling.yarn_log_multiplier", &log_mul);
    check_f32(r, "rope.scaling.low_freq_factor", p->rope_low_freq, 1e-3f, 1e6f);
    check_f32(r, "rope.scaling.high_freq_factor", p->rope_high_freq, p->rope_low_freq, 1e6f);
    check_f32(r, "rope.scaling.yarn_ext_factor", p->yarn_ext_factor, 0, 1);
    check_f32(r, "rope.scaling.yarn_beta_fast", p->yarn_beta_fast, 1e-3f, 1e6f);
    check_f32(r, "rope.scaling.yarn_beta_slow", p->yarn_beta_slow, 1e-3f, 1e6f);
    check_f32(r, "rope.scaling.yarn_log_multiplier", log_mul, 0, 100);
    if (p->rope_scaling == ROPE_YARN && !r->failed) {
        p->rope_mscale = yarn_mscale(p->rope_factor, 1) / yarn_mscale(p->rope_factor, log_mul);
        read_f32(r, "rope.scaling.yarn_attn_factor", &p->rope_mscale);
    }
    p->rope_mscale *= attn_factor;
    check_f32(r, "rope.scaling.attn_factor", p->rope_mscale, 1e-3f, 1e3f);
}

static void read_rope(struct reader *r, struct model_params *p) {
    if (r->failed) return;
    p->rope_dims = p->head_dim_k;
    p->rope_theta = 10000;
    read_u32(r, "rope.dimension_count", &p->rope_dims);
    check(r, "rope.dimension_count", p->rope_dims, 2, p->head_dim_k);
    if (!r->failed && p->rope_dims % 2)
        r->failed = !err_set(r->e, ERR_FORMAT, "%s.rope.dimension_count is %u, an odd number",
                             r->arch, p->rope_dims);
    read_f32(r, "rope.freq_base", &p->rope_theta);
    check_f32(r, "rope.freq_base", p->rope_theta, 1, 1e12f);
    p->rope_theta_local = p->arch->rope_theta_local ? p->arch->rope_theta_local : p->rope_theta;
    read_f32(r, "rope.freq_base_swa", &p->rope_theta_local);
    check_f32(r, "rope.freq_base_swa", p->rope_theta_local, 1, 1e12f);
    check_sections(r);
    read_scaling(r, p);
    read_scaling_knobs(r, p);
}

/* One boolean per layer, true where it slides, as "every n-th layer is global". */
static void read_pattern(struct reader *r, const struct gguf_kv *kv, u32 *pattern) {
    u32 n = 0;
    bool fits = kv->elem != GGUF_STR && gguf_type_bytes(kv->elem) && kv->n >= r->n_layers;
    while (fits && n < r->n_layers && gguf_arr_i64(kv, n)) n++;
    *pattern = n < r->n_layers ? n + 1 : 0;
    for (u32 i = 0; fits && i < r->n_layers; i++)
        fits = !gguf_arr_i64(kv, i) == (*pattern && !((i + 1) % *pattern));
    if (!fits)
        r->failed = !err_set(r->e, ERR_UNSUPPORTED,
                             "%s.attention.sliding_window_pattern is no \"every n-th layer is "
                             "global\" over %u layers",
                             r->arch, r->n_layers);
}

static void read_attention(struct reader *r, struct model_params *p) {
    if (r->failed) return;
    const struct arch *a = p->arch;
    const char *pattern = "attention.sliding_window_pattern";
    p->sliding_window = a->sliding_window;
    p->sliding_pattern = a->sliding_pattern;
    p->attn_softcap = a->attn_softcap;
    p->logit_softcap = a->logit_softcap;
    read_u32(r, "attention.sliding_window", &p->sliding_window);
    const struct gguf_kv *kv = gguf_find(r->g, key_of(r, pattern).z);
    if (kv && kv->type == GGUF_ARR)
        read_pattern(r, kv, &p->sliding_pattern);
    else
        read_u32(r, pattern, &p->sliding_pattern);
    /* Of 1 every layer would be global. */
    if (p->sliding_pattern == 1) p->sliding_window = 0;
    read_f32(r, "attn_logit_softcapping", &p->attn_softcap);
    read_f32(r, "final_logit_softcapping", &p->logit_softcap);
    check_f32(r, "attn_logit_softcapping", p->attn_softcap, 0, 1e6f);
    check_f32(r, "final_logit_softcapping", p->logit_softcap, 0, 1e6f);
    bool by_dim = a->n_layers_27b && p->n_layers == a->n_layers_27b;
    p->attn_scale = 1 / sqrtf((float)(by_dim ? p->dim / p->n_heads : p->head_dim_k));
    read_f32(r, "attention.scale", &p->attn_scale);
    check_f32(r, "attention.scale", p->attn_scale, 1e-6f, 1e6f);
    p->embed_scale = a->embed_scaled ? sqrtf((float)p->dim) : 0;
}

/* What would compute something else than the file means is refused. */
static void refuse_variants(struct reader *r) {
    u32 n_experts = 0, n_nextn = 0;
    float temperature = 0;
    read_u32(r, "expert_count", &n_experts);
    read_u32(r, "nextn_predict_layers", &n_nextn);
    read_f32(r, "attention.temperature_scale", &temperature);
    if (r->failed) return;
    if (n_experts)
        r->failed = !err_set(r->e, ERR_UNSUPPORTED,
                             "a mixture of experts (%s with %u experts) can't be computed yet",
                             r->arch, n_experts);
    else if (n_nextn || temperature != 0)
        r->failed = !err_set(r->e, ERR_UNSUPPORTED, "%s.%s can't be computed yet", r->arch,
                             n_nextn ? "nextn_predict_layers" : "attention.temperature_scale");
}

static bool read_vocab(const struct model_file *f, struct model_params *p, struct err *e) {
    struct model_tensor t;
    if (!model_file_tensor(f, "token_embd.weight", &t))
        return err_set(e, ERR_FORMAT, "tensor token_embd.weight is missing");
    u64 n = t.info->dims[1];
    if (t.info->n_dims != 2 || n < 2 || n > VOCAB_MAX)
        return err_set(e, ERR_FORMAT, "tensor token_embd.weight has %llu rows, expected 2 to %d",
                       (unsigned long long)n, VOCAB_MAX);
    p->n_vocab = (u32)n;
    p->tied_embedding = !model_file_tensor(f, "output.weight", &t);
    p->n_params = model_file_n_params(f);
    return true;
}

/* The name people know a file's mixture of formats by; general.file_type as llama.cpp numbers it.
 */
static void name_quant(const struct model_file *f, struct model_params *p) {
    static const char *const NAMES[] = {
        [0] = "F32",     [1] = "F16",     [2] = "Q4_0",    [3] = "Q4_1",    [7] = "Q8_0",
        [8] = "Q5_0",    [9] = "Q5_1",    [10] = "Q2_K",   [11] = "Q3_K_S", [12] = "Q3_K_M",
        [13] = "Q3_K_L", [14] = "Q4_K_S", [15] = "Q4_K_M", [16] = "Q5_K_S", [17] = "Q5_K_M",
        [18] = "Q6_K",   [25] = "IQ4_NL", [30] = "IQ4_XS", [32] = "BF16",   [38] = "MXFP4"};
    u32 id = UINT32_MAX;
    struct model_tensor t;
    char buf[24];
    const char *name = "mixed";
    gguf_get_u32(f->meta, "general.file_type", &id, NULL);
    if (id < ARRAY_LEN(NAMES) && NAMES[id])
        name = NAMES[id];
    else if (model_file_tensor(f, "blk.0.ffn_down.weight", &t))
        name = dtype_name(t.info->type, buf);
    str_copy(p->quant, sizeof p->quant, name);
}

static bool find_arch(const struct gguf *g, struct model_params *p, struct err *e) {
    struct view v = {0};
    if (!gguf_get_str(g, "general.architecture", &v, e)) return false;
    if (!v.n) return err_set(e, ERR_FORMAT, "general.architecture is missing");
    struct key name = quotable(v);
    p->arch = model_arch_find(name.z);
    if (!p->arch)
        return err_set(e, ERR_UNSUPPORTED, "architecture \"%s\" is unknown; known are %s", name.z,
                       model_arch_known());
    str_copy(p->arch_name, sizeof p->arch_name, name.z);
    return true;
}

bool model_params_read(const struct model_file *f, struct model_params *p, struct err *e) {
    *p = (struct model_params){0};
    if (!find_arch(f->meta, p, e)) return false;
    struct reader r = {.g = f->meta, .arch = p->arch->name, .e = e};
    struct view name = {0};
    if (!gguf_get_str(f->meta, "general.name", &name, e)) return false;
    size_t n = MIN(name.n, sizeof p->name - 1);
    if (n) n -= utf8_incomplete_tail(name.p, n);
    if (utf8_valid(name.p, n)) snprintf(p->name, sizeof p->name, "%.*s", (int)n, name.p);
    refuse_variants(&r);
    read_sizes(&r, p);
    read_heads(&r, p);
    read_rope(&r, p);
    read_attention(&r, p);
    if (r.failed || !read_vocab(f, p, e)) return false;
    name_quant(f, p);
    return true;
}

u32 model_layer_window(const struct model_params *p, u32 il) {
    return layer_slides(p, il) ? p->sliding_window : 0;
}
