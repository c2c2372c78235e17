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
                   TOKEN_NORMAL = 0,
                   TOKEN_UNKNOWN = 1,
                   TOKEN_CONTROL = 2,
                   TOKEN_USER = 4,
                   TOKEN_UNUSED = 8,
                   TOKEN_BYTE = 16,
                   TOKEN_EOG =
                       32, /* ends a generation: eos, eot, and the known end-of-turn texts */
                   TOKEN_LSTRIP =
                       64, /* swallows white space before it, or after it, when text is encoded */
                   TOKEN_RSTRIP = 128,
                   TOKEN_UNDEFINED = 256, /* a type that no version of the format knows */
};

/* tokenizer.ggml.model may be gpt2 (byte-level BPE), llama (SentencePiece BPE; Gemma too), gemma4
 * or t5 (unigram). NULL and *e on failure: ERR_UNSUPPORTED names another model or an unknown
 * pre-tokenizer, ERR_FORMAT and ERR_LIMIT the key that is wrong. */
struct tokenizer *tokenizer_new(const struct gguf *g, struct err *e);
void tokenizer_free(struct tokenizer *t);
struct tokenizer_scratch *tokenizer_scratch_new(const struct tokenizer *t);
void tokenizer_scratch_free(struct tokenizer_scratch *s);

/* What the user should know about this file's tokenizer, "" if nothing. */
const char *tokenizer_warning(const struct tokenizer *t);
u32 tokenizer_n_vocab(const struct tokenizer *t);
/* -1 where the model has none. */
i32 tokenizer_bos(const struct tokenizer *t);
i32 tokenizer_eos(const struct tokenizer *t);
bool tokenizer_adds_bos(const struct tokenizer *t);
bool tokenizer_adds_eos(const struct tokenizer *t);
/* The token whose vocabulary entry is exactly this text, -1: none. */
i32 tokenizer_find(const struct tokenizer *t, struct view piece);
u32 tokenizer_flags(const struct tokenizer *t, u32 id);
/* The vocabulary entry as it stands in the file, e.g. for bos_token in templates. */
struct view tokenizer_piece(const struct tokenizer *t, u32 id);

struct token_list {
    i32 *id;
    size_t n, cap;
};
void token_list_add(struct token_list *l, i32 id);
void token_list_deinit(struct token_list *l);

/* Appends the ids of text: any bytes, at most 64 MiB (ERR_LIMIT). Ill-formed UTF-8 is encoded byte
 * by byte in SentencePiece, and elsewhere as U+FFFD. add_special adds BOS/EOS as the model's rules
 * say - never a second BOS when the text, parsed with parse_special, begins with it (llama.cpp adds
 * it and warns). parse_special: the texts of control tokens in `text` become these tokens;
 * user-defined tokens always do. On failure out may hold some of the ids. */
bool tokenizer_encode(const struct tokenizer *t, struct tokenizer_scratch *s, struct view text,
                      bool add_special, bool parse_special, struct token_list *out, struct err *e);

/* So many tokens a text of n_bytes has at the least, 0 where that can't be told: to refuse one that
 * is far too long without the work. */
u64 tokenizer_tokens_min(const struct tokenizer *t, u64 n_bytes);

/* Incremental detokenizer of one sequence. Zeroed is ready. It holds back an incomplete UTF-8 tail
 * until the next token or the end, where what is left becomes U+FFFD. */
struct detok {
    char tail[4];
    u32 n_tail;
    bool started; /* the space that SentencePiece puts before a text has been dropped, if there was
                   * one; set it beforehand to keep it, e.g. when the text continues another */
};
/* Appends the valid UTF-8 that id completes. Control and unknown tokens give nothing unless
 * `special`. An id beyond the vocabulary gives nothing. */
void detok_add(const struct tokenizer *t, struct detok *d, u32 id, bool special, struct str *out);
void detok_end(struct detok *d, struct str *out);
/* The bytes of one token, which need not be whole characters; a leading space stays. */
void detok_piece(const struct tokenizer *t, u32 id, bool special, struct str *out);
