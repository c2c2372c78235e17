#include "formats/toymodel.h"
#include "base/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/blocks.h"

static const char *const FAMILIES[] = {"llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3"};

static void make(struct toymodel *m, const struct toymodel_spec *spec) {
    struct err e = {0};
    if (!toymodel_init(m, spec, &e)) fail_msg("%s", e.msg);
}

static void expect_refusal(const struct toymodel_spec *spec, const char *says) {
    struct toymodel m;
    struct err e = {0};
    assert_false(toymodel_init(&m, spec, &e));
    assert_int_equal(e.code, ERR_ARG);
    if (!strstr(e.msg, says)) fail_msg("expected \"%s\", got \"%s\"", says, e.msg);
    assert_null(m.tensor);
}

/* Mean and root mean square of a matrix's decoded values. */
static void moments(const struct toymodel *m, u32 i, double *mean, double *rms) {
    const struct toymodel_tensor *t = &m->tensor[i];
    u8 *bytes = malloc(t->row_bytes);
    float *row = malloc(t->dims[0] * sizeof *row);
    assert_true(bytes && row);
    double sum = 0, squares = 0, n = (double)(t->dims[0] * t->dims[1]);
    for (u64 r = 0; r < t->dims[1]; r++) {
        toymodel_rows(m, i, r, 1, bytes);
        blocks_decode(t->type, row, bytes, t->dims[0]);
        for (u64 c = 0; c < t->dims[0]; c++) {
            sum += row[c];
            squares += (double)row[c] * row[c];
        }
    }
    free(bytes);
    free(row);
    *mean = sum / n;
    *rms = sqrt(squares / n);
}

static void every_family_and_format_parses_with_sane_weights(void **state) {
    (void)state;
    for (size_t f = 0; f < ARRAY_LEN(FAMILIES); f++) {
        for (u32 type = 0; type < DTYPE_N; type++) {
            if (!blocks_can_decode(type)) continue;
            struct toymodel m;
            struct str file = {0};
            struct err e = {0};
            make(&m,
                 &(struct toymodel_spec){
                     .family = FAMILIES[f], .type = (enum dtype)type, .n_layers = 1, .seed = 3});
            toymodel_build(&m, &file);
            struct gguf *g = gguf_parse(file.p, file.n, &e);
            if (!g) fail_msg("%s %u: %s", FAMILIES[f], type, e.msg);
            assert_int_equal(g->n_tensors, m.n_tensors);
            assert_int_equal(gguf_find(g, "tokenizer.ggml.tokens")->n, m.spec.n_vocab);
            for (u32 i = 0; i < m.n_tensors; i++) {
                const struct toymodel_tensor *t = &m.tensor[i];
                if (t->fill != TOYMODEL_MATRIX) continue;
                double mean, rms;
                moments(&m, i, &mean, &rms); /* the levels of IQ4 lie off centre by 0.09 */
                if (!(rms > 0.7 * t->scale && rms < 1.4 * t->scale && fabs(mean) < 0.15 * t->scale))
                    fail_msg("%s %s %s: mean %g, rms %g, wanted 0, %g", FAMILIES[f], t->name,
                             dtype_info(type)->name, mean, rms, (double)t->scale);
            }
            gguf_free(g);
            str_deinit(&file);
            toymodel_deinit(&m);
        }
    }
}

static enum dtype type_of(const struct toymodel *m, const char *name_fmt, u32 il) {
    char name[64];
    snprintf(name, sizeof name, name_fmt, il);
    for (u32 i = 0; i < m->n_tensors; i++)
        if (strcmp(m->tensor[i].name, name) == 0) return m->tensor[i].type;
    fail_msg("no %s", name);
    return DTYPE_N;
}

/* Of 16 layers, an eighth is two. */
static void a_mix_has_more_bits_where_llama_cpp_has_them(void **state) {
    (void)state;
    static const bool FINE[16] = {[0] = 1, [1] = 1, [4] = 1, [7] = 1, [10] = 1, [13] = 1, [14] = 1,
                                  [15] = 1};
    static const enum dtype TYPES[] = {DTYPE_Q4_K, DTYPE_Q5_K};
    for (u32 k = 0; k < 4; k++) {
        struct toymodel m;
        enum dtype type = TYPES[k / 2], fine = DTYPE_Q6_K;
        bool tied = k % 2;
        make(&m,
             &(struct toymodel_spec){.type = type, .mixed = true, .n_layers = 16, .tied = tied});
        for (u32 il = 0; il < 16; il++) {
            assert_int_equal(type_of(&m, "blk.%u.attn_v.weight", il), FINE[il] ? fine : type);
            assert_int_equal(type_of(&m, "blk.%u.ffn_down.weight", il), FINE[il] ? fine : type);
            assert_int_equal(type_of(&m, "blk.%u.attn_k.weight", il), type);
            assert_int_equal(type_of(&m, "blk.%u.ffn_up.weight", il), type);
            assert_int_equal(type_of(&m, "blk.%u.attn_norm.weight", il), DTYPE_F32);
        }
        assert_int_equal(type_of(&m, "token_embd.weight", 0), tied ? fine : type);
        if (!tied) assert_int_equal(type_of(&m, "output.weight", 0), fine);
        toymodel_deinit(&m);
    }
}

/* Files are written in pieces, and shards load pieces: they must not depend on the cutting. */
static void rows_do_not_depend_on_how_they_are_asked_for(void **state) {
    (void)state;
    static const enum dtype TYPES[] = {DTYPE_F32, DTYPE_Q4_1, DTYPE_Q6_K, DTYPE_MXFP4};
    for (size_t k = 0; k < ARRAY_LEN(TYPES); k++) {
        struct toymodel m;
        make(&m, &(struct toymodel_spec){.type = TYPES[k], .seed = 5});
        const struct toymodel_tensor *t = &m.tensor[0];
        u8 *whole = malloc(t->row_bytes * t->dims[1]), *row = malloc(t->row_bytes);
        assert_true(whole && row);
        toymodel_rows(&m, 0, 0, t->dims[1], whole);
        for (u64 r = t->dims[1]; r-- > 0;) {
            toymodel_rows(&m, 0, r, 1, row);
            assert_memory_equal(row, whole + r * t->row_bytes, t->row_bytes);
        }
        free(whole);
        free(row);
        toymodel_deinit(&m);
    }
}

static void the_seed_decides(void **state) {
    (void)state;
    struct str file[3] = {{0}, {0}, {0}};
    static const u64 SEEDS[3] = {1, 1, 2};
    for (u32 i = 0; i < 3; i++) {
        struct toymodel m;
        make(&m, &(struct toymodel_spec){.seed = SEEDS[i]});
        toymodel_build(&m, &file[i]);
        toymodel_deinit(&m);
    }
    assert_true(view_eq(str_view(&file[0]), str_view(&file[1])));
    assert_int_equal(file[0].n, file[2].n);
    assert_false(view_eq(str_view(&file[0]), str_view(&file[2])));
    for (u32 i = 0; i < 3; i++) str_deinit(&file[i]);
}

static int view_order(const void *a, const void *b) {
    const struct view *x = a, *y = b;
    int c = memcmp(x->p, y->p, MIN(x->n, y->n));
    return c ? c : (x->n > y->n) - (x->n < y->n);
}

static void vocabularies_hold_no_token_twice(void **state) {
    (void)state;
    enum { N_VOCAB = 600 };
    for (size_t f = 0; f < ARRAY_LEN(FAMILIES); f++) {
        struct toymodel m;
        struct str file = {0};
        struct err e = {0};
        make(&m, &(struct toymodel_spec){.family = FAMILIES[f], .n_vocab = N_VOCAB});
        toymodel_build(&m, &file);
        struct gguf *g = gguf_parse(file.p, file.n, &e);
        assert_non_null(g);
        struct view token[N_VOCAB];
        size_t at = 0;
        for (u32 i = 0; i < N_VOCAB; i++)
            assert_true(gguf_arr_next_str(gguf_find(g, "tokenizer.ggml.tokens"), &at, &token[i]));
        qsort(token, N_VOCAB, sizeof *token, view_order);
        for (u32 i = 1; i < N_VOCAB; i++)
            if (view_eq(token[i - 1], token[i]))
                fail_msg("%s: %.*s twice", FAMILIES[f], VIEW_FMT(token[i]));
        gguf_free(g);
        str_deinit(&file);
        toymodel_deinit(&m);
    }
}

static void llama3_scaling_divides_low_frequencies_only(void **state) {
    (void)state;
    struct toymodel m;
    float freqs[32];
    make(&m, &(struct toymodel_spec){
                 .rope = TOYMODEL_ROPE_LLAMA3, .head_dim = 64, .rope_factor = 8, .n_ctx = 4096});
    assert_string_equal(m.tensor[1].name, "rope_freqs.weight");
    assert_int_equal(m.tensor[1].dims[0], 32);
    toymodel_rows(&m, 1, 0, 1, freqs);
    assert_true(freqs[0] == 1 && freqs[31] == 8);
    for (u32 i = 1; i < 32; i++) assert_true(freqs[i] >= freqs[i - 1]);
    bool between = false;
    for (u32 i = 0; i < 32; i++) between |= freqs[i] > 1.01f && freqs[i] < 7.99f;
    assert_true(between);
    toymodel_deinit(&m);
}

static void what_does_not_fit_together_is_refused(void **state) {
    (void)state;
    expect_refusal(&(struct toymodel_spec){.family = "gpt5"}, "unknown family gpt5");
    expect_refusal(&(struct toymodel_spec){.type = DTYPE_I32}, "no matrices of type I32");
    expect_refusal(&(struct toymodel_spec){.type = DTYPE_Q8_0, .mixed = true}, "none of Q8_0");
    expect_refusal(&(struct toymodel_spec){.type = DTYPE_Q4_K, .dim = 128}, "multiples of 256");
    expect_refusal(&(struct toymodel_spec){.n_heads = 3, .n_kv_heads = 2, .head_dim = 16},
                   "no multiple of kv-heads 2");
    expect_refusal(&(struct toymodel_spec){.family = "qwen2", .head_dim = 32}, "qwen2 needs");
    expect_refusal(&(struct toymodel_spec){.n_vocab = 100}, "at least 259");
    expect_refusal(&(struct toymodel_spec){.sliding_window = 8}, "need family gemma2 or gemma3");
    expect_refusal(&(struct toymodel_spec){.family = "qwen3", .rope = TOYMODEL_ROPE_LLAMA3},
                   "needs family llama");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_and_format_parses_with_sane_weights),
        cmocka_unit_test(a_mix_has_more_bits_where_llama_cpp_has_them),
        cmocka_unit_test(rows_do_not_depend_on_how_they_are_asked_for),
        cmocka_unit_test(the_seed_decides),
        cmocka_unit_test(vocabularies_hold_no_token_twice),
        cmocka_unit_test(llama3_scaling_divides_low_frequencies_only),
        cmocka_unit_test(what_does_not_fit_together_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
