#include "base/test.h"
#include "formats/test_vocab.h"

/* ids: 0-255 byte-level characters, then these. */
enum { THE = 256, END, THINK, ODD };

static struct tokenizer *byte_level(void) {
    struct test_vocab v = {0};
    gguf_writer_str(&v.w, "tokenizer.ggml.model", "gpt2");
    gguf_writer_str(&v.w, "tokenizer.ggml.pre", "gpt-2");
    test_vocab_bytes(&v);
    test_vocab_token(&v, VIEW("\xC4\xA0the"), TT_NORMAL, 0); /* "Ġthe" */
    test_vocab_token(&v, VIEW("<|im_end|>"), TT_CONTROL, 0);
    test_vocab_token(&v, VIEW("<think>"), TT_USER, 0);
    test_vocab_token(&v, VIEW("\xE4\xB8\xAD"), TT_NORMAL, 0); /* no byte-level text */
    test_vocab_merge(&v, VIEW("a b"));
    struct str file = {0};
    struct err e = {0};
    test_vocab_finish(&v, &file);
    struct tokenizer *t = test_vocab_load(&file, &e);
    if (!t) fail_msg("%s", e.msg);
    return t;
}

/* ids: 0 <unk>, 1 <s>, 2 </s>, 3-258 bytes, then these. */
enum { HELLO = 259, WORLD, SPACE };

static struct tokenizer *sentencepiece(bool prefix) {
    struct test_vocab v = {0};
    gguf_writer_str(&v.w, "tokenizer.ggml.model", "llama");
    gguf_writer_bool(&v.w, "tokenizer.ggml.add_space_prefix", prefix);
    test_vocab_token(&v, VIEW("<unk>"), TT_UNKNOWN, 0);
    test_vocab_token(&v, VIEW("<s>"), TT_CONTROL, 0);
    test_vocab_token(&v, VIEW("</s>"), TT_CONTROL, 0);
    test_vocab_byte_tokens(&v);
    test_vocab_token(&v, VIEW(TOKENIZER_SPACE "Hello"), TT_NORMAL, -1);
    test_vocab_token(&v, VIEW(TOKENIZER_SPACE "world"), TT_NORMAL, -2);
    test_vocab_token(&v, VIEW(TOKENIZER_SPACE), TT_NORMAL, -3);
    struct str file = {0};
    struct err e = {0};
    test_vocab_finish(&v, &file);
    struct tokenizer *t = test_vocab_load(&file, &e);
    if (!t) fail_msg("%s", e.msg);
    return t;
}

static void check(const struct tokenizer *t, struct detok *d, u32 id, bool special,
                  const char *want) {
    struct str out = {0};
    detok_add(t, d, id, special, &out);
    assert_string_equal(str_z(&out), want);
    str_deinit(&out);
}

static void check_end(struct detok *d, const char *want) {
    struct str out = {0};
    detok_end(d, &out);
    assert_string_equal(str_z(&out), want);
    str_deinit(&out);
}

static void a_split_character_is_held_back(void **state) {
    (void)state;
    struct tokenizer *t = byte_level();
    struct detok d = {0};
    check(t, &d, 0xF0, false, "");
    check(t, &d, 0x9F, false, "");
    check(t, &d, 0x98, false, "");
    check(t, &d, 0x80, false, "\xF0\x9F\x98\x80");
    check(t, &d, THE, false, " the");
    check_end(&d, "");
    tokenizer_free(t);
}

static void broken_bytes_become_replacement_characters(void **state) {
    (void)state;
    struct tokenizer *t = byte_level();
    struct detok d = {0};
    check(t, &d, 0x80, false, "\xEF\xBF\xBD");
    check(t, &d, 0xE4, false, "");
    check(t, &d, 'a', false,
          "\xEF\xBF\xBD"
          "a");
    check(t, &d, 0xFF, false, "\xEF\xBF\xBD");
    check(t, &d, 0xE4, false, "");
    check(t, &d, 0xB8, false, "");
    check_end(&d, "\xEF\xBF\xBD");
    check_end(&d, "");
    tokenizer_free(t);
}

static void control_tokens_show_on_request(void **state) {
    (void)state;
    struct tokenizer *t = byte_level();
    struct detok d = {0};
    check(t, &d, END, false, "");
    check(t, &d, END, true, "<|im_end|>");
    check(t, &d, THINK, false, "<think>");
    check(t, &d, ODD, false, "\xE4\xB8\xAD");
    check(t, &d, 1000000, true, "");
    /* A control token in the middle of a character does not tear it. */
    check(t, &d, 0xC3, false, "");
    check(t, &d, END, false, "");
    check(t, &d, 0xA9, false, "\xC3\xA9");
    tokenizer_free(t);
}

static void sentencepiece_drops_its_own_leading_space(void **state) {
    (void)state;
    struct tokenizer *t = sentencepiece(true);
    struct detok d = {0};
    check(t, &d, 1, false, "");
    check(t, &d, HELLO, false, "Hello");
    check(t, &d, WORLD, false, " world");
    d = (struct detok){0};
    check(t, &d, SPACE, false, ""); /* the text was " Hello" */
    check(t, &d, HELLO, false, " Hello");
    d = (struct detok){.started = true};
    check(t, &d, HELLO, false, " Hello");
    tokenizer_free(t);

    t = sentencepiece(false);
    d = (struct detok){0};
    check(t, &d, HELLO, false, " Hello");
    tokenizer_free(t);
}

static void byte_tokens_make_characters(void **state) {
    (void)state;
    struct tokenizer *t = sentencepiece(true);
    struct detok d = {0};
    check(t, &d, 3 + 0xE4, false, "");
    check(t, &d, 3 + 0xB8, false, "");
    check(t, &d, 3 + 0xAD, false, "\xE4\xB8\xAD");
    check(t, &d, 3 + '\n', false, "\n");
    check(t, &d, 0, false, "");
    check(t, &d, 0, true, "<unk>");
    tokenizer_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_split_character_is_held_back),
        cmocka_unit_test(broken_bytes_become_replacement_characters),
        cmocka_unit_test(control_tokens_show_on_request),
        cmocka_unit_test(sentencepiece_drops_its_own_leading_space),
        cmocka_unit_test(byte_tokens_make_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
