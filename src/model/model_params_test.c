#include "model/model.h"
#include "base/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "formats/gguf_writer.h"

/* A file's metadata is a base table with edits: a key is replaced, dropped or added. */

enum kind { U32, F32, STR, I32S, U8S, DROP };

struct entry {
    const char *key;
    enum kind kind;
    double num;
    const char *str;
    i32 arr[8];
    u32 n;
};

static const struct entry BASE[] = {
    {.key = "general.architecture", STR, .str = "llama"},
    {.key = "general.name", STR, .str = "A model"},
    {.key = "general.file_type", U32, 15},
    {.key = "llama.block_count", U32, 2},
    {.key = "llama.embedding_length", U32, 64},
    {.key = "llama.attention.head_count", U32, 4},
    {.key = "llama.attention.head_count_kv", U32, 2},
    {.key = "llama.feed_forward_length", U32, 128},
    {.key = "llama.context_length", U32, 512},
    {.key = "llama.attention.layer_norm_rms_epsilon", F32, 1e-5},
};
#define EDITS_MAX 12

static void put(struct gguf_writer *w, const struct entry *en) {
    u8 bytes[8];
    for (u32 i = 0; i < en->n; i++) bytes[i] = (u8)en->arr[i];
    switch (en->kind) {
    case U32: gguf_writer_u32(w, en->key, (u32)en->num); break;
    case F32: gguf_writer_f32(w, en->key, (float)en->num); break;
    case STR: gguf_writer_str(w, en->key, en->str); break;
    case I32S: gguf_writer_array(w, en->key, GGUF_I32, en->n, en->arr, en->n * 4); break;
    case U8S: gguf_writer_array(w, en->key, GGUF_BOOL, en->n, bytes, en->n); break;
    case DROP: break;
    }
}

/* "llama.x" with another architecture's name before the dot. */
static const char *rename_key(const char *key, const char *arch, char buf[128]) {
    if (strncmp(key, "llama.", 6)) return key;
    snprintf(buf, 128, "%s.%s", arch, key + 6);
    return buf;
}

static bool read_edited(const char *arch, const struct entry *edits, struct model_params *p,
                        struct err *e) {
    struct gguf_writer w = {0};
    struct str file = {0};
    char path[] = "/tmp/skein-params-XXXXXX", buf[128];
    const float embed[64 * 3] = {0};
    for (size_t i = 0; i < ARRAY_LEN(BASE); i++) {
        bool edited = false;
        for (u32 k = 0; k < EDITS_MAX && edits[k].key; k++)
            edited |= !strcmp(edits[k].key, BASE[i].key);
        struct entry en = BASE[i];
        en.key = rename_key(en.key, arch, buf);
        if (!strcmp(en.key, "general.architecture")) en.str = arch;
        if (!edited) put(&w, &en);
    }
    for (u32 k = 0; k < EDITS_MAX && edits[k].key; k++) {
        struct entry en = edits[k];
        en.key = rename_key(en.key, arch, buf);
        put(&w, &en);
    }
    gguf_writer_tensor(&w, "token_embd.weight", DTYPE_F32, 2, (u64[]){64, 3}, embed);
    gguf_writer_finish(&w, &file);
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, file.p, file.n), file.n);
    close(fd);
    struct model_file *f = model_file_open(path, e);
    bool ok = f && model_params_read(f, p, e);
    unlink(path);
    model_file_close(f);
    str_deinit(&file);
    gguf_writer_deinit(&w);
    return ok;
}

#define EDITS(...) ((const struct entry[EDITS_MAX]){__VA_ARGS__})

static void expect(const char *arch, const struct entry *edits, struct model_params *p) {
    struct err e = {0};
    if (!read_edited(arch, edits, p, &e)) fail_msg("%s", e.msg);
}

static void refuse(const char *arch, const struct entry *edits, enum err_code code,
                   const char *says) {
    struct model_params p;
    struct err e = {0};
    if (read_edited(arch, edits, &p, &e)) fail_msg("read, but expected \"%s\"", says);
    if (e.code != code || !strstr(e.msg, says))
        fail_msg("expected %s \"%s\", got %s \"%s\"", err_name(code), says, err_name(e.code),
                 e.msg);
}

static void plain_file(void **state) {
    (void)state;
    struct model_params p;
    expect("llama", EDITS({0}), &p);
    assert_string_equal(p.arch_name, "llama");
    assert_string_equal(p.name, "A model");
    assert_string_equal(p.quant, "Q4_K_M");
    assert_int_equal(p.n_layers, 2);
    assert_int_equal(p.head_dim_k, 16);
    assert_int_equal(p.head_dim_v, 16);
    assert_int_equal(p.rope_dims, 16);
    assert_int_equal(p.n_kv_heads, 2);
    assert_int_equal(p.n_vocab, 3);
    assert_int_equal(p.n_params, 64 * 3);
    assert_true(p.tied_embedding);
    assert_true(p.rope_theta == 10000 && p.attn_scale == 0.25f && p.embed_scale == 0);
    assert_int_equal(p.rope_scaling, ROPE_NONE);
    assert_int_equal(p.sliding_window, 0);
    expect("llama", EDITS({.key = "llama.attention.head_count_kv", DROP}), &p);
    assert_int_equal(p.n_kv_heads, 4);
    expect("llama", EDITS({.key = "general.file_type", DROP}), &p);
    assert_string_equal(p.quant, "mixed");
}

static void sizes_are_checked(void **state) {
    (void)state;
    static const struct {
        const char *key;
        double value;
    } bad[] = {
        {"llama.block_count", 0},
        {"llama.block_count", 1e6},
        {"llama.embedding_length", 0},
        {"llama.embedding_length", 4e9},
        {"llama.attention.head_count", 0},
        {"llama.attention.head_count", 3e6},
        {"llama.feed_forward_length", 0},
        {"llama.feed_forward_length", 4e9},
        {"llama.context_length", 0},
        {"llama.attention.head_count_kv", 0},
        {"llama.attention.head_count_kv", 8},
        {"llama.rope.dimension_count", 0},
        {"llama.rope.dimension_count", 32},
        {"llama.rope.scaling.original_context_length", 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        refuse("llama", EDITS({.key = bad[i].key, U32, bad[i].value}), ERR_FORMAT, bad[i].key);
    refuse("llama", EDITS({.key = "llama.block_count", DROP}), ERR_FORMAT,
           "llama.block_count is missing");
    refuse("llama", EDITS({.key = "llama.attention.layer_norm_rms_epsilon", DROP}), ERR_FORMAT,
           "layer_norm_rms_epsilon is missing");
    refuse("llama", EDITS({.key = "llama.attention.head_count_kv", U32, 3}), ERR_FORMAT,
           "no multiple of head_count_kv (3)");
    refuse("llama", EDITS({.key = "llama.embedding_length", U32, 66}), ERR_FORMAT,
           "no multiple of head_count");
    refuse("llama", EDITS({.key = "llama.attention.key_length", U32, 24}), ERR_UNSUPPORTED,
           "heads of 24 (key)");
    refuse("llama", EDITS({.key = "llama.attention.value_length", U32, 0}), ERR_UNSUPPORTED,
           "heads of 16 (key) and 0 (value)");
    refuse("llama", EDITS({.key = "llama.rope.dimension_count", U32, 7}), ERR_FORMAT, "odd");
    refuse("llama", EDITS({.key = "llama.block_count", STR, .str = "two"}), ERR_FORMAT,
           "llama.block_count");
}

static void floats_are_checked(void **state) {
    (void)state;
    static const char *const keys[] = {"llama.attention.layer_norm_rms_epsilon",
                                       "llama.rope.freq_base",
                                       "llama.rope.scaling.factor",
                                       "llama.rope.scaling.attn_factor",
                                       "llama.rope.scaling.yarn_beta_fast",
                                       "llama.attn_logit_softcapping",
                                       "llama.final_logit_softcapping",
                                       "llama.attention.scale"};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        refuse("llama", EDITS({.key = keys[i], F32, NAN}), ERR_FORMAT, keys[i]);
        refuse("llama", EDITS({.key = keys[i], F32, INFINITY}), ERR_FORMAT, keys[i]);
        refuse("llama", EDITS({.key = keys[i], F32, -1}), ERR_FORMAT, keys[i]);
    }
}

static void per_layer_arrays(void **state) {
    (void)state;
    struct model_params p;
    const char *key = "llama.attention.head_count_kv";
    expect("llama", EDITS({.key = key, I32S, .arr = {2, 2}, .n = 2}), &p);
    assert_int_equal(p.n_kv_heads, 2);
    refuse("llama", EDITS({.key = key, I32S, .arr = {2, 4}, .n = 2}), ERR_UNSUPPORTED,
           "differs between layers (2 in layer 0, 4 in layer 1)");
    refuse("llama", EDITS({.key = key, I32S, .arr = {2}, .n = 1}), ERR_FORMAT,
           "no array of 2 integers");
    refuse("llama", EDITS({.key = key, I32S, .arr = {-2, -2}, .n = 2}), ERR_FORMAT, key);
}

static void rope_sections(void **state) {
    (void)state;
    struct model_params p;
    const char *keys[] = {"qwen2.rope.dimension_sections", "qwen2.rope.mrope_section"};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        expect("qwen2", EDITS({.key = keys[i], I32S, .arr = {4, 2, 2}, .n = 3}), &p);
        expect("qwen2", EDITS({.key = keys[i], I32S, .arr = {4, 2, 2, 0}, .n = 4}), &p);
        refuse("qwen2", EDITS({.key = keys[i], I32S, .arr = {4, 2, 2, 0, 0}, .n = 5}), ERR_FORMAT,
               keys[i]);
    }
}

static void rope_scaling(void **state) {
    (void)state;
    struct model_params p;
    struct entry factor = {.key = "llama.rope.scaling.factor", F32, 4};
    const char *type = "llama.rope.scaling.type";
    expect("llama", EDITS(factor), &p);
    assert_int_equal(p.rope_scaling, ROPE_LINEAR);
    expect("llama", EDITS({.key = "llama.rope.scale_linear", F32, 2}), &p);
    assert_true(p.rope_scaling == ROPE_LINEAR && p.rope_factor == 2);
    expect("llama", EDITS(factor, {.key = type, STR, .str = "none"}), &p);
    assert_int_equal(p.rope_scaling, ROPE_NONE);
    expect("llama", EDITS(factor, {.key = type, STR, .str = "llama3"}), &p);
    assert_true(p.rope_scaling == ROPE_LLAMA3 && p.rope_high_freq == 4 && p.rope_mscale == 1);
    expect("llama", EDITS(factor, {.key = type, STR, .str = "yarn"}), &p);
    assert_int_equal(p.rope_scaling, ROPE_YARN);
    assert_float_equal(p.rope_mscale, 0.1f * logf(4) + 1, 1e-6);
    expect("llama",
           EDITS(factor, {.key = type, STR, .str = "yarn"},
                 {.key = "llama.rope.scaling.yarn_attn_factor", F32, 1.5},
                 {.key = "llama.rope.scaling.attn_factor", F32, 2}),
           &p);
    assert_float_equal(p.rope_mscale, 3, 1e-6);
    expect("llama",
           EDITS(factor, {.key = type, STR, .str = "yarn"},
                 {.key = "llama.rope.scaling.yarn_log_multiplier", F32, 1}),
           &p);
    assert_float_equal(p.rope_mscale, 1, 1e-6);
    refuse("llama", EDITS(factor, {.key = type, STR, .str = "longrope"}), ERR_UNSUPPORTED,
           "\"longrope\"; known are none, linear");
}

static void sliding_windows(void **state) {
    (void)state;
    struct model_params p;
    const char *pattern = "gemma3.attention.sliding_window_pattern";
    struct entry layers = {.key = "llama.block_count", U32, 6};
    struct entry window = {.key = "llama.attention.sliding_window", U32, 512};
    expect("gemma3", EDITS(layers, window), &p);
    assert_true(p.sliding_window == 512 && p.sliding_pattern == 6);
    assert_true(p.rope_theta_local == 10000 && p.embed_scale == 8);
    expect("gemma3",
           EDITS(layers, window, {.key = pattern, U8S, .arr = {1, 1, 0, 1, 1, 0}, .n = 6}), &p);
    assert_int_equal(p.sliding_pattern, 3);
    expect("gemma3",
           EDITS(layers, window, {.key = pattern, U8S, .arr = {1, 1, 1, 1, 1, 1}, .n = 6}), &p);
    assert_int_equal(p.sliding_pattern, 0);
    expect("gemma3", EDITS(layers, window, {.key = pattern, U32, 1}), &p);
    assert_int_equal(p.sliding_window, 0);
    refuse("gemma3",
           EDITS(layers, window, {.key = pattern, U8S, .arr = {1, 1, 0, 1, 0, 1}, .n = 6}),
           ERR_UNSUPPORTED, "sliding_window_pattern");
    refuse("gemma3", EDITS(layers, window, {.key = pattern, U8S, .arr = {1, 0}, .n = 2}),
           ERR_UNSUPPORTED, "sliding_window_pattern");
    expect("gemma2", EDITS({0}), &p);
    assert_true(p.sliding_window == 4096 && p.sliding_pattern == 2);
    assert_true(p.attn_softcap == 50 && p.logit_softcap == 30);
    assert_true(p.rope_theta_local == p.rope_theta);
    /* The 27B models scale by dim / n_heads, whatever the head's size. */
    expect("gemma2",
           EDITS({.key = "llama.block_count", U32, 46},
                 {.key = "llama.attention.key_length", U32, 64},
                 {.key = "llama.attention.value_length", U32, 64}),
           &p);
    assert_float_equal(p.attn_scale, 0.25f, 1e-7);
}

static void what_cannot_be_computed(void **state) {
    (void)state;
    refuse("mamba", EDITS({0}), ERR_UNSUPPORTED,
           "architecture \"mamba\" is unknown; known are llama, qwen2, qwen3");
    refuse("llama", EDITS({.key = "general.architecture", STR, .str = "ma\xff\n"}), ERR_UNSUPPORTED,
           "architecture \"ma??\" is unknown");
    refuse("llama", EDITS({.key = "general.architecture", DROP}), ERR_FORMAT,
           "general.architecture is missing");
    refuse("llama", EDITS({.key = "llama.expert_count", U32, 8}), ERR_UNSUPPORTED,
           "mixture of experts (llama with 8 experts)");
    refuse("llama", EDITS({.key = "llama.attention.temperature_scale", F32, 0.1}), ERR_UNSUPPORTED,
           "temperature_scale");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_file),         cmocka_unit_test(sizes_are_checked),
        cmocka_unit_test(floats_are_checked), cmocka_unit_test(per_layer_arrays),
        cmocka_unit_test(rope_sections),      cmocka_unit_test(rope_scaling),
        cmocka_unit_test(sliding_windows),    cmocka_unit_test(what_cannot_be_computed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
