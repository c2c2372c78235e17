#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "formats/tokenizer_impl.h"

/* Byte-level BPE (Radford et al. 2019): each byte of a word is a character of the vocabulary, and
 * neighbours merge by the rank of their pair in the list of merges. Strings are numbered once, at
 * load, so that merging works on pairs of numbers.
 *
 * The characters: bytes that print as Latin-1 stand for themselves, the others for U+0100 and up in
 * their order. */
static bool prints(u32 byte) {
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
}

static u32 char_of_byte(u32 byte) {
    if (prints(byte)) return byte;
    u32 cp = 256;
    for (u32 b = 0; b < byte; b++) cp += !prints(b);
    return cp;
}

int tokenizer_bpe_byte(u32 cp) {
    if (cp < 256) return prints(cp) ? (int)cp : -1;
    /* The 68 others in order: 00-20, 7F-A0, AD. */
    u32 k = cp - 256;
    return k <= 0x20 ? (int)k : k <= 0x20 + 0x22 ? (int)(k - 0x21 + 0x7F) : k == 0x43 ? 0xAD : -1;
}

static u32 hash_pair(u64 pair) {
    pair *= 0x9E3779B97F4A7C15u;
    return (u32)(pair >> 32) ^ (u32)(pair >> 52);
}

/* The slot of pair, or the free one where it belongs. */
static struct tokenizer_merge *merge_slot(const struct tokenizer_bpe *b, u64 pair) {
    u32 i = hash_pair(pair) & (b->n_slots - 1);
    while (b->merge[i].pair != pair && b->merge[i].pair != UINT64_MAX)
        i = (i + 1) & (b->n_slots - 1);
    return &b->merge[i];
}

/* "left right"; the halves may hold spaces only where SentencePiece-like vocabularies have them at
 * the beginning of the left one. */
static bool add_merge(struct tokenizer *t, struct view line, u32 rank, struct str *joined,
                      struct err *e) {
    const char *space = line.n > 1 ? memchr(line.p + 1, ' ', line.n - 1) : NULL;
    size_t n_left = space ? (size_t)(space - line.p) : 0;
    if (!space || n_left + 1 == line.n)
        return err_set(e, ERR_FORMAT,
                       "tokenizer.ggml.merges[%u]: \"%.*s\" is not two parts with a "
                       "space between",
                       rank, (int)MIN(line.n, 40), line.p ? line.p : "");
    struct view left = {line.p, n_left}, right = {space + 1, line.n - n_left - 1};
    u64 pair = (u64)strtab_intern(&t->text, left) << 32 | strtab_intern(&t->text, right);
    struct tokenizer_merge *m = merge_slot(&t->bpe, pair);
    if (m->pair == pair) return true; /* the first one counts */
    str_clear(joined);
    str_addv(joined, left);
    str_addv(joined, right);
    *m = (struct tokenizer_merge){pair, rank, strtab_intern(&t->text, str_view(joined))};
    return true;
}

static bool read_merges(struct tokenizer *t, const struct gguf *g, struct err *e) {
    const char *key = "tokenizer.ggml.merges";
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv) return err_set(e, ERR_FORMAT, "%s is missing: byte-level BPE needs it", key);
    if (kv->type != GGUF_ARR || kv->elem != GGUF_STR)
        return err_set(e, ERR_FORMAT, "%s is no array of strings", key);
    if (kv->n > TOKENIZER_MERGES_MAX || kv->size_bytes > TOKENIZER_VOCAB_BYTES_MAX / 2)
        return err_set(e, ERR_LIMIT, "%s has %llu entries, more than the limit of %d", key,
                       (unsigned long long)kv->n, TOKENIZER_MERGES_MAX);
    struct tokenizer_bpe *b = &t->bpe;
    for (b->n_slots = 64; b->n_slots < kv->n * 2; b->n_slots *= 2) {
    }
    b->merge = xcalloc(b->n_slots, sizeof *b->merge);
    for (u32 i = 0; i < b->n_slots; i++) b->merge[i].pair = UINT64_MAX;

    struct str joined = {0};
    struct view line;
    size_t at = 0;
    bool ok = true;
    for (u32 rank = 0; ok && gguf_arr_next_str(kv, &at, &line); rank++)
        ok = add_merge(t, line, rank, &joined, e);
    str_deinit(&joined);
    return ok;
}

bool tokenizer_bpe_init(struct tokenizer *t, const struct gguf *g, struct view pre, struct err *e) {
    if (!tokenizer_pre_init(&t->bpe.pre, pre, e) || !read_merges(t, g, e)) return false;
    for (u32 byte = 0; byte < 256; byte++) {
        char c[4];
        struct view v = {c, (size_t)utf8_encode(char_of_byte(byte), c)};
        t->bpe.byte_symbol[byte] = strtab_intern(&t->text, v);
    }
    return true;
}

void tokenizer_bpe_deinit(struct tokenizer_bpe *b) {
    tokenizer_pre_deinit(&b->pre);
    free(b->merge);
    *b = (struct tokenizer_bpe){0};
}

static bool ranked_pair(const struct tokenizer *t, const char *text,
                        const struct tokenizer_symbol *l, const struct tokenizer_symbol *r,
                        u32 *priority, u32 *result) {
    (void)text;
    if (l->id == TOKENIZER_NONE || r->id == TOKENIZER_NONE) return false;
    u64 pair = (u64)l->id << 32 | r->id;
    const struct tokenizer_merge *m = merge_slot(&t->bpe, pair);
    if (m->pair != pair) return false;
    *priority = m->rank;
    *result = m->result;
    return true;
}

/* A symbol that is no token falls apart into bytes: those of its own text where words are UTF-8, of
 * its characters' encoding in byte-level BPE (llama.cpp does so; real vocabularies have all 256
 * characters, and it does not happen). Bytes that the vocabulary lacks vanish. */
static void add_symbol(const struct tokenizer *t, const struct tokenizer_symbol *sym,
                       const char *word, struct token_list *out) {
    if (sym->id < t->n_vocab) {
        token_list_add(out, (i32)sym->id);
        return;
    }
    struct view bytes = {word + sym->off, sym->len};
    if (sym->id != TOKENIZER_NONE) bytes = strtab_get(&t->text, sym->id);
    for (size_t i = 0; i < bytes.n; i++) {
        i32 id = t->byte_id[(u8)bytes.p[i]];
        if (id >= 0) token_list_add(out, id);
    }
}

/* The token that is the whole word, or -1. */
static i64 whole_word(const struct tokenizer *t, struct tokenizer_scratch *s, struct view word) {
    u32 flags = t->bpe.pre.row->flags;
    bool newlines = flags & TOKENIZER_PRE_GEMMA4 && word.p[0] == '\n'; /* then all of word is */
    if (!newlines && !(flags & TOKENIZER_PRE_IGNORE_MERGES)) return -1;
    if (word.n > t->text_len_max) return -1;
    if (!(flags & TOKENIZER_PRE_RAW)) {
        str_clear(&s->word);
        for (size_t i = 0; i < word.n; i++)
            str_addv(&s->word, strtab_get(&t->text, t->bpe.byte_symbol[(u8)word.p[i]]));
        word = str_view(&s->word);
    }
    i64 id = strtab_find(&t->text, word);
    return id < t->n_vocab ? id : -1;
}

static void encode_word(const struct tokenizer *t, struct tokenizer_scratch *s, struct view word,
                        struct token_list *out) {
    i64 whole = whole_word(t, s, word);
    if (whole >= 0) {
        token_list_add(out, (i32)whole);
        return;
    }
    struct tokenizer_list *l = &s->list;
    tokenizer_list_clear(l);
    if (t->bpe.pre.row->flags & TOKENIZER_PRE_RAW) {
        for (size_t i = 0; i < word.n;) {
            u32 len = tokenizer_char_len((u8)word.p[i], word.n - i);
            i64 id = strtab_find(&t->text, (struct view){word.p + i, len});
            tokenizer_list_add(l, (u32)i, len, id < 0 ? TOKENIZER_NONE : (u32)id);
            i += len;
        }
    } else {
        for (size_t i = 0; i < word.n; i++)
            tokenizer_list_add(l, (u32)i, 1, t->bpe.byte_symbol[(u8)word.p[i]]);
    }
    tokenizer_list_merge(l, t, word.p, ranked_pair);
    for (i32 i = l->n ? 0 : -1; i >= 0; i = l->symbol[i].next)
        add_symbol(t, &l->symbol[i], word.p, out);
}

bool tokenizer_bpe_encode(const struct tokenizer *t, struct tokenizer_scratch *s, struct view text,
                          struct token_list *out, struct err *e) {
    if (t->escape_spaces) {
        str_clear(&s->word);
        tokenizer_add_escaped(&s->word, text);
        text = str_view(&s->word);
    }
    str_clear(&s->text);
    utf8_add_lossy(&s->text, text.p, text.n); /* PCRE2 wants valid UTF-8 */
    text = str_view(&s->text);
    const u32 *ends;
    size_t n;
    if (!tokenizer_pre_split(&t->bpe.pre, s->pre, text, &ends, &n, e)) return false;
    for (size_t i = 0, start = 0; i < n; start = ends[i++])
        encode_word(t, s, (struct view){text.p + start, ends[i] - start}, out);
    return true;
}
