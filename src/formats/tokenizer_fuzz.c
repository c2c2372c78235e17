/* The tokenizer against hostile bytes. The first byte picks the target:
 *   0  a whole GGUF file, loaded and used on a fixed text;
 *   1  metadata put together from the bytes, key by key, loaded and used on a fixed text;
 *   2+ any text on small vocabularies of every kind, encoded both ways and decoded again. */
#include <stdlib.h>

#include "base/arena.h"
#include "formats/test_vocab.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char TEXT[] =
    "Hello, w\xC3\xB6rld! abc  123 \xF0\x9F\x98\x80 <|im_end|>\n\xFF\xE4\xB8";

/* Encodes and decodes; the result must be valid UTF-8 and the ids inside the vocabulary. */
static void use(const struct tokenizer *t, struct view text, bool add_special, bool parse_special) {
    struct tokenizer_scratch *s = tokenizer_scratch_new(t);
    struct token_list ids = {0};
    struct str back = {0};
    struct detok d = {0};
    struct err e = {0};
    bool ok = tokenizer_encode(t, s, text, add_special, parse_special, &ids, &e);
    ASSERT(ok || e.msg[0]);
    for (size_t i = 0; i < ids.n; i++) {
        ASSERT(ids.id[i] >= 0 && (u32)ids.id[i] < tokenizer_n_vocab(t));
        detok_add(t, &d, (u32)ids.id[i], parse_special, &back);
    }
    detok_end(&d, &back);
    ASSERT(utf8_valid(str_z(&back), back.n));
    str_deinit(&back);
    token_list_deinit(&ids);
    tokenizer_scratch_free(s);
}

static void load_and_use(struct str *file) {
    struct err e = {0};
    struct tokenizer *t = test_vocab_load(file, &e);
    if (!t) {
        ASSERT(e.code != ERR_NONE && e.code != ERR_INTERNAL && e.msg[0]);
        return;
    }
    for (u32 id = 0; id < tokenizer_n_vocab(t) && id < 1000; id++) tokenizer_piece(t, id);
    use(t, view_of(TEXT), true, true);
    use(t, view_of(TEXT), true, false);
    tokenizer_free(t);
}

static struct view take(struct view *in, size_t n) {
    struct view v = {in->p, MIN(n, in->n)};
    *in = (struct view){in->p + v.n, in->n - v.n};
    return v;
}
static u8 take_byte(struct view *in) {
    struct view v = take(in, 1);
    return v.n ? (u8)v.p[0] : 0;
}

static void add_array(struct gguf_writer *w, const char *key, struct view *in) {
    static const enum gguf_type ELEM[] = {GGUF_STR, GGUF_F32, GGUF_I32, GGUF_U8, GGUF_U64};
    static const size_t SIZE[] = {0, 4, 4, 1, 8};
    u32 kind = take_byte(in) % ARRAY_LEN(ELEM), n = take_byte(in);
    struct str bytes = {0};
    for (u32 i = 0; i < n; i++) {
        if (ELEM[kind] == GGUF_STR)
            gguf_writer_add_str(&bytes, take(in, take_byte(in) % 12));
        else
            for (size_t k = 0; k < SIZE[kind]; k++) str_addc(&bytes, (char)take_byte(in));
    }
    gguf_writer_array(w, key, ELEM[kind], n, bytes.p, bytes.n);
    str_deinit(&bytes);
}

static void fuzz_metadata(struct view in) {
    static const char *const KEYS[] = {
        "tokens",
        "scores",
        "token_type",
        "merges",
        "precompiled_charsmap",
        "bos_token_id",
        "eos_token_id",
        "eot_token_id",
        "unknown_token_id",
        "add_bos_token",
        "add_eos_token",
        "add_space_prefix",
        "remove_extra_whitespaces",
        "fim_pad_token_id",
    };
    static const char *const MODELS[] = {"gpt2", "llama", "t5", "gemma4", "bert"};
    struct gguf_writer w = {0};
    struct str file = {0};
    gguf_writer_str(&w, "tokenizer.ggml.model", MODELS[take_byte(&in) % ARRAY_LEN(MODELS)]);
    const struct tokenizer_pre_row *row = &tokenizer_pre_tab[take_byte(&in) % tokenizer_pre_tab_n];
    char key[64];
    snprintf(key, sizeof key, "%.*s", (int)strcspn(row->names, " "), row->names);
    gguf_writer_str(&w, "tokenizer.ggml.pre", key);
    u32 used = 0; /* a key comes once: the parser refuses files where it does not */
    while (in.n > 0) {
        u32 k = take_byte(&in) % ARRAY_LEN(KEYS);
        if (used & 1u << k) continue;
        used |= 1u << k;
        snprintf(key, sizeof key, "tokenizer.ggml.%s", KEYS[k]);
        if (k < 5)
            add_array(&w, key, &in);
        else if (take_byte(&in) & 1)
            gguf_writer_bool(&w, key, take_byte(&in) & 1);
        else
            gguf_writer_u32(&w, key, take_byte(&in));
    }
    gguf_writer_finish(&w, &file);
    gguf_writer_deinit(&w);
    load_and_use(&file);
}

static void add_common(struct test_vocab *v) {
    static const char *const PIECES[] = {"a",  "b",    "ab", "abc", TOKENIZER_SPACE,
                                         "aa", "aaaa", "中", "▁a"};
    for (size_t i = 0; i < ARRAY_LEN(PIECES); i++)
        if (strtab_find(&v->token, view_of(PIECES[i])) < 0)
            test_vocab_token(v, view_of(PIECES[i]), TT_NORMAL, -(float)(i % 4) - 1);
    test_vocab_token(v, VIEW("<|im_end|>"), TT_CONTROL, 0);
    test_vocab_token(v, VIEW("<x>"), TT_USER, 0);
    test_vocab_token(v, VIEW("<xx>"), TT_USER, 0);
    test_vocab_token(v, VIEW("x>a"), TT_USER, 0);
}

/* Vocabulary 0.. of the pre-tokenizers, then SentencePiece and unigram. */
static struct tokenizer *build(size_t i) {
    struct test_vocab v = {0};
    struct str file = {0};
    struct err e = {0};
    if (i < tokenizer_pre_tab_n) {
        const char *names = tokenizer_pre_tab[i].names;
        char pre[32];
        snprintf(pre, sizeof pre, "%.*s", (int)strcspn(names, " "), names);
        gguf_writer_str(&v.w, "tokenizer.ggml.model", "gpt2");
        gguf_writer_str(&v.w, "tokenizer.ggml.pre", pre);
        test_vocab_bytes(&v);
        test_vocab_merge(&v, VIEW("a b"));
        test_vocab_merge(&v, VIEW("ab c"));
        test_vocab_merge(&v, VIEW("a a"));
        test_vocab_merge(&v, VIEW("aa aa"));
    } else {
        gguf_writer_str(&v.w, "tokenizer.ggml.model", i == tokenizer_pre_tab_n ? "llama" : "t5");
        test_vocab_token(&v, VIEW("<unk>"), TT_UNKNOWN, 0);
        test_vocab_byte_tokens(&v);
        gguf_writer_u32(&v.w, "tokenizer.ggml.unknown_token_id", 0);
    }
    add_common(&v);
    test_vocab_finish(&v, &file);
    struct tokenizer *t = test_vocab_load(&file, &e);
    ASSERT(t);
    return t;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct tokenizer *vocab[64]; /* built on first use, for the life of the process */
    struct view in = {(const char *)data, size};
    u8 target = take_byte(&in);
    if (target == 0) {
        struct str file = {0};
        str_addv(&file, in);
        load_and_use(&file);
    } else if (target == 1) {
        fuzz_metadata(in);
    } else {
        size_t i = target % (tokenizer_pre_tab_n + 2);
        ASSERT(i < ARRAY_LEN(vocab));
        if (!vocab[i]) vocab[i] = build(i);
        u8 how = take_byte(&in);
        use(vocab[i], in, how & 1, how & 2);
    }
    return 0;
}
