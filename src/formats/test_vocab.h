/* test_vocab.h - builds the tokenizer part of a GGUF file, for tests and fuzz targets only.
 *
 * Add keys with v->w, tokens and merges in order, then finish; zeroed is ready. */
#pragma once

#include <stdio.h>
#include <string.h>

#include "formats/gguf_writer.h"
#include "formats/strtab.h"
#include "formats/tokenizer.h"
#include "formats/tokenizer_impl.h"

struct test_vocab {
    struct gguf_writer w;
    struct strtab token; /* texts by id */
    struct str tokens, scores, types, merges;
    u64 n_merges;
};

enum test_token_type {
    TT_UNDEFINED,
    TT_NORMAL,
    TT_UNKNOWN,
    TT_CONTROL,
    TT_USER,
    TT_UNUSED,
    TT_BYTE
};

static inline void test_vocab_token(struct test_vocab *v, struct view text, i32 type, float score) {
    strtab_add(&v->token, text);
    gguf_writer_add_str(&v->tokens, text);
    str_add(&v->types, &type, 4);
    str_add(&v->scores, &score, 4);
}

static inline void test_vocab_merge(struct test_vocab *v, struct view line) {
    gguf_writer_add_str(&v->merges, line);
    v->n_merges++;
}

/* The 256 characters of byte-level BPE, in the order of their bytes. */
static inline void test_vocab_bytes(struct test_vocab *v) {
    for (int byte = 0; byte < 256; byte++) {
        u32 cp = 0;
        while (cp < 512 && tokenizer_bpe_byte(cp) != byte) cp++;
        char c[4];
        test_vocab_token(v, (struct view){c, (size_t)utf8_encode(cp, c)}, TT_NORMAL, 0);
    }
}

/* A merge of every two of the first 256 tokens, and the tokens that it needs. */
static inline void test_vocab_pairs(struct test_vocab *v) {
    for (u32 i = 0; i < 65536; i++) {
        struct view a = strtab_get(&v->token, i >> 8), b = strtab_get(&v->token, i & 255);
        char text[16];
        int n = snprintf(text, sizeof text, "%.*s %.*s", VIEW_FMT(a), VIEW_FMT(b));
        test_vocab_merge(v, (struct view){text, (size_t)n});
        n = snprintf(text, sizeof text, "%.*s%.*s", VIEW_FMT(a), VIEW_FMT(b));
        struct view joined = {text, (size_t)n};
        if (strtab_find(&v->token, joined) < 0) test_vocab_token(v, joined, TT_NORMAL, 0);
    }
}

/* "<0x00>" to "<0xFF>". */
static inline void test_vocab_byte_tokens(struct test_vocab *v) {
    for (int byte = 0; byte < 256; byte++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", byte);
        test_vocab_token(v, view_of(text), TT_BYTE, 0);
    }
}

/* Appends the file and empties v. */
static inline void test_vocab_finish(struct test_vocab *v, struct str *out) {
    u64 n = v->token.n;
    gguf_writer_array(&v->w, "tokenizer.ggml.tokens", GGUF_STR, n, v->tokens.p, v->tokens.n);
    gguf_writer_array(&v->w, "tokenizer.ggml.scores", GGUF_F32, n, v->scores.p, v->scores.n);
    gguf_writer_array(&v->w, "tokenizer.ggml.token_type", GGUF_I32, n, v->types.p, v->types.n);
    if (v->n_merges)
        gguf_writer_array(&v->w, "tokenizer.ggml.merges", GGUF_STR, v->n_merges, v->merges.p,
                          v->merges.n);
    gguf_writer_finish(&v->w, out);
    gguf_writer_deinit(&v->w);
    strtab_deinit(&v->token);
    str_deinit(&v->tokens);
    str_deinit(&v->scores);
    str_deinit(&v->types);
    str_deinit(&v->merges);
    *v = (struct test_vocab){0};
}

/* The tokenizer of a file that ends its life here: NULL and *e when it is refused. */
static inline struct tokenizer *test_vocab_load(struct str *file, struct err *e) {
    struct gguf *g = gguf_parse(file->p, file->n, e);
    struct tokenizer *t = g ? tokenizer_new(g, e) : NULL;
    gguf_free(g);
    str_deinit(file);
    return t;
}
