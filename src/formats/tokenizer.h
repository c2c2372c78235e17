/* tokenizer.h - text to token ids and back, from GGUF metadata.
 *
 * Built once per model from the tokenizer.ggml.* keys; copies what it keeps, so the file's bytes
 * may go away. Immutable after creation; encode and decode take a scratch object per thread.
 * Ids equal llama.cpp's for the same file. */
#pragma once

#include "base/base.h"
#include "base/err.h"
#include "base/str.h"
#include "formats/gguf.h"

struct tokenizer;
struct tokenizer_scratch; /* PCRE2 match data, work lists: one per thread */

enum token_flags { /* bits of tokenizer_flags */
    TOKEN_NORMAL = 0, TOKEN_UNKNOWN = 1, TOKEN_CONTROL = 2, TOKEN_USER = 4, TOKEN_UNUSED = 8, TOKEN_BYTE = 16,
    TOKEN_EOG = 32, /* ends a generation: eos, eot, and the known end-of-turn texts */
};

/* NULL and *e (ERR_FORMAT, ERR_UNSUPPORTED with the model or pre-tokenizer named) on failure. */
struct tokenizer *tokenizer_new(const struct gguf *g, struct err *e);
void tokenizer_free(struct tokenizer *t);
struct tokenizer_scratch *tokenizer_scratch_new(const struct tokenizer *t);
void tokenizer_scratch_free(struct tokenizer_scratch *s);

u32 tokenizer_n_vocab(const struct tokenizer *t);
/* -1 where the model has none. */
i32 tokenizer_bos(const struct tokenizer *t);
i32 tokenizer_eos(const struct tokenizer *t);
bool tokenizer_adds_bos(const struct tokenizer *t);
u32 tokenizer_flags(const struct tokenizer *t, u32 id);
/* The vocabulary entry as it stands in the file, e.g. for bos_token in templates. */
struct view tokenizer_piece(const struct tokenizer *t, u32 id);

struct token_list {
    i32 *id;
    size_t n, cap;
};
void token_list_add(struct token_list *l, i32 id);
void token_list_deinit(struct token_list *l);

/* Appends the ids of text (any bytes; ill-formed UTF-8 is encoded by bytes or replaced as the
 * reference does). add_special adds BOS/EOS as the model's rules say - never a second BOS when the
 * text, parsed with parse_special, begins with it. parse_special: the texts of control tokens in
 * `text` become these tokens; user-defined tokens always do. */
bool tokenizer_encode(const struct tokenizer *t, struct tokenizer_scratch *s, struct view text, bool add_special,
                      bool parse_special, struct token_list *out, struct err *e);

/* Incremental detokenizer of one sequence. Zeroed is ready. It holds back an incomplete UTF-8 tail
 * until the next token or the end, where what is left becomes U+FFFD. */
struct detok {
    char tail[4];
    u32 n_tail;
    bool started; /* a leading space that the tokenizer added at the start has been dropped */
};
/* Appends the valid UTF-8 that id completes. Control tokens give nothing unless `special`. */
void detok_add(const struct tokenizer *t, struct detok *d, u32 id, bool special, struct str *out);
void detok_end(struct detok *d, struct str *out);
