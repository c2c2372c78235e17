/* tokenizer_impl.h - what the tokenizer_*.c files share; nobody else includes it.
 *
 * One struct tokenizer for all models: the vocabulary, the special tokens and the rules at the ends
 * of a text are common, and `kind` says which algorithm turns a stretch of plain text into ids.
 * Every algorithm appends to a token_list and takes its working memory from the scratch. */
#pragma once

#include "formats/strtab.h"
#include "formats/tokenizer.h"
#include "formats/tokenizer_pre.h"

enum {
    TOKENIZER_TOKENS_MAX = 4 << 20,
    TOKENIZER_MERGES_MAX = 8 << 20,
    TOKENIZER_VOCAB_BYTES_MAX = 1 << 30,
    TOKENIZER_TEXT_BYTES_MAX = 64 << 20, /* of one text, also after normalization */
};

/* "▁", U+2581: how SentencePiece writes a space. */
#define TOKENIZER_SPACE "\xE2\x96\x81"

enum tokenizer_kind { TOKENIZER_BPE, TOKENIZER_SPM, TOKENIZER_UGM };

/* A set of tokens sorted by text, walked byte by byte: a trie without nodes. */
struct tokenizer_trie {
    u32 *id; /* [n] token ids in the order of their texts; all texts differ */
    u32 n;
    u32 first[257]; /* texts that begin with byte b are id[first[b] .. first[b + 1]) */
};
/* The entries that share the first `depth` bytes: id[lo .. hi). */
struct tokenizer_walk {
    u32 lo, hi, depth;
};

struct tokenizer_merge {
    u64 pair; /* left << 32 | right, numbers in the string table; both halves TOKENIZER_NONE: free
               */
    u32 rank, result;
};
#define TOKENIZER_NONE UINT32_MAX

struct tokenizer_bpe {
    struct tokenizer_pre pre;
    struct tokenizer_merge *merge; /* [n_slots] open addressing */
    u32 n_slots;                   /* a power of two */
    u32 byte_symbol[256];          /* string number of a byte's character in byte-level BPE */
};

struct tokenizer_ugm {
    struct tokenizer_trie tokens, user;
    u32 *xcda; /* precompiled_charsmap: double array, then NUL-terminated replacements */
    size_t n_xcda;
    char *replacement;
    size_t n_replacement;
    double unknown_score;
    bool remove_extra_spaces;
};

struct tokenizer {
    enum tokenizer_kind kind;
    u32 n_vocab;
    struct strtab text; /* [0, n_vocab) the vocabulary; behind it halves of merges that it lacks */
    u32 text_len_max;   /* of the vocabulary */
    float *score;       /* [n_vocab] */
    u16 *flags;         /* [n_vocab] enum token_flags */
    i32 byte_id[256];   /* token of a byte that no other token covers, -1: none */
    i32 bos, eos, unk;
    bool add_bos, add_eos;
    bool add_space_prefix; /* a space before the first text and before text after a special token */
    bool escape_spaces;    /* the vocabulary writes TOKENIZER_SPACE for a space */
    struct tokenizer_trie special; /* tokens that are cut out of the text first */
    u32 *special_by_len;           /* [special.n] indices into special.id, longest text first */
    struct tokenizer_bpe bpe;
    struct tokenizer_ugm ugm;
    char warning[256];
};

/* A stretch of the text that is still plain (token == -1), or the special token found there. */
struct tokenizer_fragment {
    u32 off, len;
    i32 token;
};
struct tokenizer_fragments {
    struct tokenizer_fragment *p;
    size_t n, cap;
};

/* A symbol of a text being merged: a stretch of it, in a doubly linked list by index. */
struct tokenizer_symbol {
    u32 off, len; /* len 0: merged into its left neighbour */
    u32 id;       /* number in the string table, or TOKENIZER_NONE */
    i32 prev, next;
};
/* A possible merge. Least key first: priority << 32 | index of the left symbol. */
struct tokenizer_bigram {
    u64 key;
    u32 right, len, result;
};
struct tokenizer_list {
    struct tokenizer_symbol *symbol;
    size_t n, cap;
    struct tokenizer_bigram *heap;
    size_t n_heap, cap_heap;
};

struct tokenizer_best {
    double score;
    u32 from;
    i32 token;
};

struct tokenizer_scratch {
    struct tokenizer_fragments frag, frag_next;
    u8 *present; /* [special.n] */
    struct str text, word;
    struct tokenizer_pre_scratch *pre; /* BPE only */
    struct tokenizer_list list;
    struct tokenizer_best *best;
    size_t cap_best;
};

/* Takes the ids (heap memory), drops those with an empty text or one that another id has too. */
void tokenizer_trie_init(struct tokenizer_trie *trie, const struct strtab *text, u32 *id, u32 n);
void tokenizer_trie_deinit(struct tokenizer_trie *trie);
struct tokenizer_walk tokenizer_trie_root(const struct tokenizer_trie *trie);
/* One byte further; false when no text goes on like that. */
bool tokenizer_trie_step(const struct tokenizer_trie *trie, const struct strtab *text,
                         struct tokenizer_walk *w, u8 byte);
/* Whether a text ends at this depth: then id[w->lo] is its token. */
bool tokenizer_trie_hit(const struct tokenizer_trie *trie, const struct strtab *text,
                        const struct tokenizer_walk *w);

/* Texts of tokens that end a generation. */
extern const char *const tokenizer_end_texts[];
extern const size_t tokenizer_end_texts_n;

/* Fill-in-the-middle tokens: the file's key wins, else the first text that the vocabulary has. */
struct tokenizer_fim {
    const char *key, *old_key; /* behind "tokenizer.ggml." */
    bool ends;                 /* a generation that puts it out has ended */
    const char *text[9];       /* up to a NULL */
};
extern const struct tokenizer_fim tokenizer_fim_tab[];
extern const size_t tokenizer_fim_tab_n;

/* Reads the special ids from g, finds the tokens that end a generation, and builds what
 * tokenizer_special_split needs. flags hold the types from the file. */
bool tokenizer_special_init(struct tokenizer *t, const struct gguf *g, struct err *e);
/* Cuts text at special tokens: s->frag. */
void tokenizer_special_split(const struct tokenizer *t, struct tokenizer_scratch *s,
                             struct view text, bool parse_special);

/* What may become of two neighbours: false when they don't merge, else a priority (least first) and
 * the string number of the result. */
typedef bool tokenizer_pair_fn(const struct tokenizer *t, const char *text,
                               const struct tokenizer_symbol *l, const struct tokenizer_symbol *r,
                               u32 *priority, u32 *result);

void tokenizer_list_clear(struct tokenizer_list *l);
void tokenizer_list_add(struct tokenizer_list *l, u32 off, u32 len, u32 id);
/* O(n log n). Ties go to the left. Symbol 0 stays the first one. */
void tokenizer_list_merge(struct tokenizer_list *l, const struct tokenizer *t, const char *text,
                          tokenizer_pair_fn *pair);

bool tokenizer_bpe_init(struct tokenizer *t, const struct gguf *g, struct view pre, struct err *e);
void tokenizer_bpe_deinit(struct tokenizer_bpe *b);
bool tokenizer_bpe_encode(const struct tokenizer *t, struct tokenizer_scratch *s, struct view text,
                          struct token_list *out, struct err *e);
/* The byte that a character of byte-level BPE stands for, or -1. */
int tokenizer_bpe_byte(u32 cp);

void tokenizer_spm_encode(const struct tokenizer *t, struct tokenizer_scratch *s, struct view text,
                          bool space_before, struct token_list *out);

bool tokenizer_ugm_init(struct tokenizer *t, const struct gguf *g, struct err *e);
void tokenizer_ugm_deinit(struct tokenizer_ugm *u);
bool tokenizer_ugm_encode(const struct tokenizer *t, struct tokenizer_scratch *s, struct view text,
                          struct token_list *out, struct err *e);

/* Appends text with every ' ' written as TOKENIZER_SPACE. */
void tokenizer_add_escaped(struct str *out, struct view text);
/* Length of a character by its first byte alone, at most `left`: llama.cpp's rule for any bytes. */
u32 tokenizer_char_len(u8 first, size_t left);
/* The token of a byte that nothing else covers: byte_id, or the unknown token, or none. */
void tokenizer_add_byte(const struct tokenizer *t, u8 byte, struct token_list *out);
