/* tokenizer_pre.h - the pre-tokenizers of byte-level BPE: where a text is cut into words.
 *
 * `tokenizer.ggml.pre` names one. Each is a few regular expressions, run one after the other: every
 * piece that the earlier ones left is cut at the matches of the next (a match and the gap before it
 * are pieces). Compiled patterns are immutable and shared; the scratch is one thread's. */
#pragma once

#include "base/base.h"
#include "base/err.h"
#include "base/str.h"

enum { TOKENIZER_PRE_STEPS_MAX = 6 };

enum tokenizer_pre_flags {
    TOKENIZER_PRE_IGNORE_MERGES = 1, /* a word that is a token is taken whole */
    TOKENIZER_PRE_ADD_BOS = 2,       /* where the file does not say */
    TOKENIZER_PRE_RAW = 4,           /* words are UTF-8, not byte-level characters */
    TOKENIZER_PRE_ESCAPE_SPACES = 8, /* "▁" for a space, as in SentencePiece */
    TOKENIZER_PRE_GEMMA4 = 16,       /* BOS whatever the file says; runs of newlines are tokens */
    /* The first pattern finds runs of digits, which are cut into threes counted from their right
     * end: in front of each three, or behind the remainder and each three. */
    TOKENIZER_PRE_THREES_BEFORE = 32,
    TOKENIZER_PRE_THREES_AFTER = 64,
};

/* A row of tokenizer_pre_tab.c. */
struct tokenizer_pre_row {
    const char *names; /* separated by spaces */
    u32 flags;
    const char *step[TOKENIZER_PRE_STEPS_MAX]; /* PCRE2 patterns */
};
extern const struct tokenizer_pre_row tokenizer_pre_tab[];
extern const size_t tokenizer_pre_tab_n;

/* What the patterns see in place of a character that PCRE2 classes otherwise than the reference. */
struct tokenizer_stand_in {
    u32 first, last, as;
};
extern const struct tokenizer_stand_in tokenizer_stand_in_tab[]; /* ascending */
extern const size_t tokenizer_stand_in_tab_n;

struct tokenizer_pre {
    const struct tokenizer_pre_row *row;
    void *code[TOKENIZER_PRE_STEPS_MAX]; /* pcre2_code */
    u32 n_steps;
};
struct tokenizer_pre_scratch;

/* False: no such name (ERR_UNSUPPORTED), or a pattern that this PCRE2 refuses (ERR_INTERNAL). */
bool tokenizer_pre_init(struct tokenizer_pre *p, struct view name, struct err *e);
void tokenizer_pre_deinit(struct tokenizer_pre *p);
struct tokenizer_pre_scratch *tokenizer_pre_scratch_new(void);
void tokenizer_pre_scratch_free(struct tokenizer_pre_scratch *s);

/* Cuts text, which must be valid UTF-8. *ends (owned by s, until the next call) are the offsets at
 * which the *n pieces end. ERR_LIMIT when the regex engine runs out of its memory limits. */
bool tokenizer_pre_split(const struct tokenizer_pre *p, struct tokenizer_pre_scratch *s,
                         struct view text, const u32 **ends, size_t *n, struct err *e);
