#include <sys/time.h>

#include "base/test.h"
#include "formats/test_vocab.h"

/* Keys that a test sets before the tokens, and then one bad thing. */
static struct test_vocab byte_level(const char *pre) {
    struct test_vocab v = {0};
    gguf_writer_str(&v.w, "tokenizer.ggml.model", "gpt2");
    if (pre) gguf_writer_str(&v.w, "tokenizer.ggml.pre", pre);
    test_vocab_bytes(&v);
    test_vocab_token(&v, VIEW("<|im_end|>"), TT_CONTROL, 0);
    test_vocab_token(&v, VIEW("<bos>"), TT_CONTROL, 0);
    test_vocab_token(&v, VIEW("ab"), TT_NORMAL, 0);
    test_vocab_token(&v, VIEW("abc"), TT_NORMAL, 0);
    test_vocab_merge(&v, VIEW("a b"));
    test_vocab_merge(&v, VIEW("ab c"));
    return v;
}
enum { IM_END = 256, BOS, AB, ABC };

static struct test_vocab sentencepiece(void) {
    struct test_vocab v = {0};
    gguf_writer_str(&v.w, "tokenizer.ggml.model", "llama");
    test_vocab_token(&v, VIEW("<unk>"), TT_UNKNOWN, 0);
    test_vocab_token(&v, VIEW("<s>"), TT_CONTROL, 0);
    test_vocab_token(&v, VIEW("</s>"), TT_CONTROL, 0);
    test_vocab_byte_tokens(&v);
    test_vocab_token(&v, VIEW(TOKENIZER_SPACE), TT_NORMAL, -3);
    test_vocab_token(&v, VIEW("a"), TT_NORMAL, -3);
    test_vocab_token(&v, VIEW(TOKENIZER_SPACE "a"), TT_NORMAL, -1);
    test_vocab_token(&v, VIEW("aa"), TT_NORMAL, -2);
    return v;
}
enum { SP_BYTES = 3, SP = 259, SP_A, SP_SPACE_A, SP_AA };

static struct test_vocab unigram(void) {
    struct test_vocab v = {0};
    gguf_writer_str(&v.w, "tokenizer.ggml.model", "t5");
    test_vocab_token(&v, VIEW("<pad>"), TT_CONTROL, 0);
    test_vocab_token(&v, VIEW("</s>"), TT_CONTROL, 0);
    test_vocab_token(&v, VIEW("<unk>"), TT_UNKNOWN, 0);
    test_vocab_token(&v, VIEW("a"), TT_NORMAL, -2);
    test_vocab_token(&v, VIEW("aa"), TT_NORMAL, -3);
    test_vocab_token(&v, VIEW("aaa"), TT_NORMAL, -6);
    return v;
}

static struct tokenizer *load(struct test_vocab *v, struct err *e) {
    struct str file = {0};
    test_vocab_finish(v, &file);
    return test_vocab_load(&file, e);
}

static struct tokenizer *must_load(struct test_vocab v) {
    struct err e = {0};
    struct tokenizer *t = load(&v, &e);
    if (!t) fail_msg("%s", e.msg);
    return t;
}

static void refused(struct test_vocab v, enum err_code code, const char *part) {
    struct err e = {0};
    assert_null(load(&v, &e));
    assert_int_equal(e.code, code);
    if (!strstr(e.msg, part)) fail_msg("\"%s\" does not say \"%s\"", e.msg, part);
}

/* want: ids up to a -1. */
static void encodes(const struct tokenizer *t, struct view text, bool add_special,
                    bool parse_special, const i32 *want) {
    struct tokenizer_scratch *s = tokenizer_scratch_new(t);
    struct token_list ids = {0};
    struct err e = {0};
    assert_true(tokenizer_encode(t, s, text, add_special, parse_special, &ids, &e));
    for (size_t i = 0; i < ids.n; i++) assert_int_equal(ids.id[i], want[i]);
    assert_int_equal(want[ids.n], -1);
    token_list_deinit(&ids);
    tokenizer_scratch_free(s);
}
#define ENCODES(t, text, add, parse, ...) \
    encodes(t, VIEW(text), add, parse, (i32[]){__VA_ARGS__, -1})

static void other_models_are_refused_by_name(void **state) {
    (void)state;
    static const char *const NAMES[] = {"bert",      "rwkv", "plamo2", "no_vocab",
                                        "hybriddna", "",     "GPT2"};
    for (size_t i = 0; i < ARRAY_LEN(NAMES); i++) {
        struct test_vocab v = {0};
        gguf_writer_str(&v.w, "tokenizer.ggml.model", NAMES[i]);
        test_vocab_bytes(&v);
        char quoted[32];
        snprintf(quoted, sizeof quoted, "\"%s\"", NAMES[i]);
        refused(v, ERR_UNSUPPORTED, quoted);
    }
    struct test_vocab v = {0};
    test_vocab_bytes(&v);
    refused(v, ERR_FORMAT, "tokenizer.ggml.model is missing");
}

static void pre_tokenizers_are_known_or_named(void **state) {
    (void)state;
    static const char *const KNOWN[] = {
        "default",       "llama-bpe",    "llama3",
        "llama-v3",      "llama4",       "falcon3",
        "pixtral",       "lfm2",         "smollm",
        "qwen2",         "qwen35",       "deepseek-r1-qwen",
        "megrez",        "deepseek-llm", "deepseek-coder",
        "deepseek-v3",   "gpt-2",        "gpt-4o",
        "tekken",        "falcon",       "mpt",
        "olmo",          "starcoder",    "refact",
        "command-r",     "stablelm2",    "dbrx",
        "smaug-bpe",     "glm4",         "chatglm-bpe",
        "jais",          "jais-2",       "codeshell",
        "bloom",         "gpt3-finnish", "poro-chat",
        "viking",        "exaone",       "exaone4",
        "exaone-moe",    "minerva-7b",   "chameleon",
        "trillion",      "superbpe",     "bailingmoe",
        "bailingmoe2",   "seed-coder",   "hunyuan",
        "hunyuan-dense", "kimi-k2",      "grok-2",
        "afmoe",         "minimax-m2",   "granite-docling",
        "solar-open",    "youtu",        "tiny_aya",
        "minicpm5",      "laguna",       "gemma4",
        "sarvam-moe",    "phi-2",        "modern-bert",
        "roberta-bpe",
    };
    for (size_t i = 0; i < ARRAY_LEN(KNOWN); i++) {
        struct tokenizer *t = must_load(byte_level(KNOWN[i]));
        assert_string_equal(tokenizer_warning(t), "");
        tokenizer_free(t);
    }
    refused(byte_level("qwen"), ERR_UNSUPPORTED, "\"qwen\"");
    refused(byte_level("qwen2 megrez"), ERR_UNSUPPORTED, "pre-tokenizer");
    struct tokenizer *t = must_load(byte_level(NULL));
    assert_non_null(strstr(tokenizer_warning(t), "tokenizer.ggml.pre"));
    tokenizer_free(t);
}

/* A file with two tokens and one array of zeros under `key`, which is not the tokens'. */
static void array_refused(const char *key, enum gguf_type elem, u64 n) {
    static const u8 ZERO[64];
    struct gguf_writer w = {0};
    struct str file = {0}, tokens = {0};
    struct err e = {0};
    gguf_writer_str(&w, "tokenizer.ggml.model", "llama");
    gguf_writer_add_str(&tokens, VIEW("a"));
    gguf_writer_add_str(&tokens, VIEW("b"));
    if (strcmp(key, "tokenizer.ggml.tokens") != 0)
        gguf_writer_array(&w, "tokenizer.ggml.tokens", GGUF_STR, 2, tokens.p, tokens.n);
    size_t size = elem == GGUF_U8 || elem == GGUF_I8 ? 1 : 4;
    gguf_writer_array(&w, key, elem, n, ZERO, n * size);
    gguf_writer_finish(&w, &file);
    gguf_writer_deinit(&w);
    str_deinit(&tokens);
    assert_null(test_vocab_load(&file, &e));
    assert_int_equal(e.code, ERR_FORMAT);
    if (!strstr(e.msg, key)) fail_msg("\"%s\" does not name %s", e.msg, key);
}

/* One file each: the key that is wrong is in the error. */
static void broken_vocabularies_are_refused(void **state) {
    (void)state;
    array_refused("tokenizer.ggml.scores", GGUF_U8, 2);
    array_refused("tokenizer.ggml.scores", GGUF_F32, 1);
    array_refused("tokenizer.ggml.token_type", GGUF_I8, 2);
    array_refused("tokenizer.ggml.token_type", GGUF_I32, 1);
    array_refused("tokenizer.ggml.tokens", GGUF_U32, 2);

    struct test_vocab v = {0};
    gguf_writer_str(&v.w, "tokenizer.ggml.model", "llama");
    refused(v, ERR_FORMAT, "tokenizer.ggml.tokens is empty");
    v = byte_level("gpt-2");
    v.n_merges = 0;
    str_clear(&v.merges);
    refused(v, ERR_FORMAT, "tokenizer.ggml.merges is missing");
    static const char *const MERGES[] = {"ab", "a ", " ", "", " ab"};
    for (size_t i = 0; i < ARRAY_LEN(MERGES); i++) {
        v = byte_level("gpt-2");
        test_vocab_merge(&v, view_of(MERGES[i]));
        refused(v, ERR_FORMAT, "tokenizer.ggml.merges[2]");
    }
    static const char *const IDS[] = {"bos_token_id",     "eos_token_id",     "eot_token_id",
                                      "unknown_token_id", "fim_pad_token_id", "prefix_token_id"};
    for (size_t i = 0; i < ARRAY_LEN(IDS); i++) {
        char key[64];
        snprintf(key, sizeof key, "tokenizer.ggml.%s", IDS[i]);
        v = byte_level("gpt-2");
        gguf_writer_u32(&v.w, key, 260);
        refused(v, ERR_FORMAT, key);
        v = byte_level("gpt-2");
        gguf_writer_u32(&v.w, key, UINT32_MAX); /* how some files say "none" */
        tokenizer_free(must_load(v));
    }
    v = byte_level("gpt-2");
    gguf_writer_str(&v.w, "tokenizer.ggml.add_bos_token", "yes");
    refused(v, ERR_FORMAT, "add_bos_token");
}

static void broken_charsmaps_are_refused(void **state) {
    (void)state;
    /* Size 4 of one node that claims children far away, then replacements. */
    static const u8 SHORT[] = {8, 0, 0, 0, 1, 2, 3, 4}, OPEN[] = {0, 0, 0, 0, 'a'},
                    FAR[] = {4, 0, 0, 0, 0, 0xFF, 0xFF, 0x7F, 0};
    struct test_vocab v = unigram();
    gguf_writer_array(&v.w, "tokenizer.ggml.precompiled_charsmap", GGUF_U8, 3, SHORT, 3);
    refused(v, ERR_FORMAT, "precompiled_charsmap");
    v = unigram();
    gguf_writer_array(&v.w, "tokenizer.ggml.precompiled_charsmap", GGUF_U8, 8, SHORT, 8);
    refused(v, ERR_FORMAT, "precompiled_charsmap");
    v = unigram();
    gguf_writer_array(&v.w, "tokenizer.ggml.precompiled_charsmap", GGUF_I8, 5, OPEN, 5);
    refused(v, ERR_FORMAT, "NUL");
    v = unigram();
    gguf_writer_array(&v.w, "tokenizer.ggml.precompiled_charsmap", GGUF_I8, 9, FAR, 9);
    struct tokenizer *t = must_load(v);
    struct tokenizer_scratch *s = tokenizer_scratch_new(t);
    struct token_list ids = {0};
    struct err e = {0};
    assert_false(tokenizer_encode(t, s, VIEW("a"), false, false, &ids, &e));
    assert_non_null(strstr(e.msg, "precompiled_charsmap"));
    token_list_deinit(&ids);
    tokenizer_scratch_free(s);
    tokenizer_free(t);
}

static void bos_is_added_once(void **state) {
    (void)state;
    struct test_vocab v = byte_level("gpt-2");
    gguf_writer_u32(&v.w, "tokenizer.ggml.bos_token_id", BOS);
    gguf_writer_u32(&v.w, "tokenizer.ggml.eos_token_id", IM_END);
    gguf_writer_bool(&v.w, "tokenizer.ggml.add_bos_token", true);
    gguf_writer_bool(&v.w, "tokenizer.ggml.add_eos_token", true);
    struct tokenizer *t = must_load(v);
    assert_true(tokenizer_adds_bos(t) && tokenizer_adds_eos(t));
    ENCODES(t, "", true, true, BOS, IM_END);
    ENCODES(t, "abc", true, true, BOS, ABC, IM_END);
    ENCODES(t, "abc", false, true, ABC);
    ENCODES(t, "<bos>ab", true, true, BOS, AB, IM_END);
    ENCODES(t, "<bos><bos>ab", true, true, BOS, BOS, AB, IM_END);
    ENCODES(t, "ab<bos>", true, true, BOS, AB, BOS, IM_END);
    ENCODES(t, "<bos>", true, false, BOS, '<', 'b', 'o', 's', '>', IM_END);
    tokenizer_free(t);

    t = must_load(byte_level("llama-bpe")); /* adds BOS, but the file names none */
    assert_false(tokenizer_adds_bos(t));
    assert_int_equal(tokenizer_bos(t), -1);
    ENCODES(t, "ab", true, true, AB);
    tokenizer_free(t);
}

static void of_equal_merges_the_first_counts(void **state) {
    (void)state;
    struct test_vocab v = byte_level("gpt-2"); /* has "a b", "ab c" */
    test_vocab_token(&v, VIEW("bd"), TT_NORMAL, 0);
    test_vocab_merge(&v, VIEW("b d"));
    test_vocab_merge(&v, VIEW("a b"));
    struct tokenizer *t = must_load(v);
    ENCODES(t, "abd", false, true, AB, 'd');
    tokenizer_free(t);
}

static void a_space_goes_before_text_and_after_special_tokens(void **state) {
    (void)state;
    struct tokenizer *t = must_load(sentencepiece());
    ENCODES(t, "", true, true, 1);
    ENCODES(t, "a", true, true, 1, SP_SPACE_A);
    ENCODES(t, " a", true, true, 1, SP, SP_SPACE_A);
    ENCODES(t, "<s>a", true, true, 1, SP_SPACE_A);
    ENCODES(t, "a</s>a</s> a", false, true, SP_SPACE_A, 2, SP_SPACE_A, 2, SP, SP_SPACE_A);
    ENCODES(t, "aaa", false, true, SP_SPACE_A, SP_AA);
    ENCODES(t, "\xE4\xB8\xAD", false, true, SP, SP_BYTES + 0xE4, SP_BYTES + 0xB8, SP_BYTES + 0xAD);
    ENCODES(t, "\xFF\x00", false, true, SP, SP_BYTES + 0xFF, SP_BYTES);
    tokenizer_free(t);
}

static void unigram_takes_the_best_sum(void **state) {
    (void)state;
    struct tokenizer *t = must_load(unigram());
    ENCODES(t, "aaa", false, true, 3, 4);       /* -5 beats -6; of equals the first found stays */
    ENCODES(t, "xyaz", true, true, 2, 3, 2, 1); /* neighbouring unknowns are one */
    tokenizer_free(t);
}

static void tokens_that_end_are_found(void **state) {
    (void)state;
    struct test_vocab v = byte_level("gpt-2");
    test_vocab_token(&v, VIEW("<|eot_id|>"), TT_NORMAL, 0);     /* 260, by its text */
    test_vocab_token(&v, VIEW("<|end|>"), TT_CONTROL, 0);       /* 261, unless it is harmony */
    test_vocab_token(&v, VIEW("<my_end>"), TT_CONTROL, 0);      /* 262, by its key */
    test_vocab_token(&v, VIEW("<|fim_prefix|>"), TT_NORMAL, 0); /* 263, does not end */
    gguf_writer_u32(&v.w, "tokenizer.ggml.eot_token_id", 262);
    struct tokenizer *t = must_load(v);
    for (u32 id = 0; id < tokenizer_n_vocab(t); id++) {
        bool want = id == IM_END || id == 260 || id == 261 || id == 262;
        assert_int_equal(!!(tokenizer_flags(t, id) & TOKEN_EOG), want);
    }
    assert_true(tokenizer_flags(t, 260) & TOKEN_CONTROL);
    assert_true(tokenizer_flags(t, 263) & TOKEN_CONTROL);
    assert_int_equal(tokenizer_find(t, VIEW("<my_end>")), 262);
    assert_int_equal(tokenizer_find(t, VIEW("<other>")), -1);
    assert_true(view_is(tokenizer_piece(t, 262), "<my_end>"));
    tokenizer_free(t);

    v = byte_level("gpt-4o");
    test_vocab_token(&v, VIEW("<|return|>"), TT_CONTROL, 0);
    test_vocab_token(&v, VIEW("<|call|>"), TT_CONTROL, 0);
    test_vocab_token(&v, VIEW("<|end|>"), TT_CONTROL, 0);
    test_vocab_token(&v, VIEW("<|channel|>"), TT_CONTROL, 0);
    t = must_load(v);
    assert_true(tokenizer_flags(t, 260) & TOKEN_EOG && tokenizer_flags(t, 261) & TOKEN_EOG);
    assert_int_equal(tokenizer_flags(t, 262), TOKEN_USER);
    assert_int_equal(tokenizer_flags(t, 263), TOKEN_USER);
    tokenizer_free(t);
}

static void empty_and_repeated_tokens_do_no_harm(void **state) {
    (void)state;
    struct test_vocab v = byte_level("gpt-2");
    test_vocab_token(&v, VIEW(""), TT_CONTROL, 0);
    test_vocab_token(&v, VIEW("<x>"), TT_CONTROL, 0);
    test_vocab_token(&v, VIEW("<x>"), TT_CONTROL, 0);
    struct tokenizer *t = must_load(v);
    ENCODES(t, "ab<x>", false, true, AB, 262);
    tokenizer_free(t);
}

static void too_long_a_text_is_refused(void **state) {
    (void)state;
    struct tokenizer *t = must_load(byte_level("gpt-2"));
    struct tokenizer_scratch *s = tokenizer_scratch_new(t);
    struct token_list ids = {0};
    struct err e = {0};
    struct view text = {"", TOKENIZER_TEXT_BYTES_MAX + 1}; /* never read */
    assert_false(tokenizer_encode(t, s, text, false, false, &ids, &e));
    assert_int_equal(e.code, ERR_LIMIT);
    tokenizer_scratch_free(s);
    tokenizer_free(t);
}

static void the_fewest_tokens_of_a_text(void **state) {
    (void)state;
    struct test_vocab v = byte_level("gpt-2");
    test_vocab_token(&v, VIEW("<a_token_of_32_bytes___________>"), TT_NORMAL, 0);
    struct tokenizer *t = must_load(v);
    assert_int_equal(tokenizer_tokens_min(t, 31), 0);
    assert_int_equal(tokenizer_tokens_min(t, 3200), 100);
    tokenizer_free(t);
    t = must_load(unigram()); /* neighbouring unknowns are one token */
    assert_int_equal(tokenizer_tokens_min(t, 3200), 0);
    tokenizer_free(t);
}

/* Kills the process after so many seconds of its own work; 0 calls it off. */
static void set_cpu_alarm(int seconds) {
    struct itimerval t = {.it_value = {.tv_sec = seconds}};
    assert_int_equal(setitimer(ITIMER_PROF, &t, NULL), 0);
}

/* Encodes n bytes of `unit` over and over. At an eighth of a megabyte linear work takes some
 * milliseconds, and quadratic work at least eight seconds. */
static void encode_run(const struct tokenizer *t, struct tokenizer_scratch *s, struct view unit,
                       size_t n) {
    struct str text = {0};
    struct token_list ids = {0};
    struct err e = {0};
    while (text.n < n) str_addv(&text, unit);
    str_addz(&text, "\xE4\xB8\xAD"); /* so that the run does not reach the end */
    set_cpu_alarm(4);
    if (!tokenizer_encode(t, s, str_view(&text), true, true, &ids, &e)) fail_msg("%s", e.msg);
    set_cpu_alarm(0);
    str_deinit(&text);
    token_list_deinit(&ids);
}

static void long_runs_take_linear_time(void **state) {
    (void)state;
    static const char *const UNITS[] = {
        "a",   "A",        " ",  "\n",           "7",          "'",    "\xE4\xB8\xAD", "\xCC\x81",
        " \n", "\xC3\x89", "a ", "\xE3\x80\x80", "<|im_end|>", "<|im", "Aa",           "1a"};
    for (size_t row = 0; row < tokenizer_pre_tab_n; row++) {
        char name[32];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(tokenizer_pre_tab[row].names, " "),
                 tokenizer_pre_tab[row].names);
        struct tokenizer *t = must_load(byte_level(name));
        struct tokenizer_scratch *s = tokenizer_scratch_new(t);
        for (size_t i = 0; i < ARRAY_LEN(UNITS); i++) encode_run(t, s, view_of(UNITS[i]), 1 << 17);
        tokenizer_scratch_free(s);
        tokenizer_free(t);
    }
    struct test_vocab others[] = {sentencepiece(), unigram()};
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        struct tokenizer *t = must_load(others[i]);
        struct tokenizer_scratch *s = tokenizer_scratch_new(t);
        for (size_t k = 0; k < ARRAY_LEN(UNITS); k++) encode_run(t, s, view_of(UNITS[k]), 1 << 19);
        tokenizer_scratch_free(s);
        tokenizer_free(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_models_are_refused_by_name),
        cmocka_unit_test(pre_tokenizers_are_known_or_named),
        cmocka_unit_test(broken_vocabularies_are_refused),
        cmocka_unit_test(broken_charsmaps_are_refused),
        cmocka_unit_test(bos_is_added_once),
        cmocka_unit_test(of_equal_merges_the_first_counts),
        cmocka_unit_test(a_space_goes_before_text_and_after_special_tokens),
        cmocka_unit_test(unigram_takes_the_best_sum),
        cmocka_unit_test(tokens_that_end_are_found),
        cmocka_unit_test(empty_and_repeated_tokens_do_no_harm),
        cmocka_unit_test(too_long_a_text_is_refused),
        cmocka_unit_test(the_fewest_tokens_of_a_text),
        cmocka_unit_test(long_runs_take_linear_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
