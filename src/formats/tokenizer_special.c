#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "formats/tokenizer_impl.h"

/* -1: no such token in the vocabulary. */
static i32 token_of(const struct tokenizer *t, const char *text) {
    i64 id = strtab_find(&t->text, view_of(text));
    return id < t->n_vocab ? (i32)id : -1;
}

/* tokenizer.ggml.<name>. All ones is how some files write "none". */
static bool read_id(const struct tokenizer *t, const struct gguf *g, const char *name, i32 *id,
                    struct err *e) {
    char key[64] = "tokenizer.ggml.";
    str_copy(key + 15, sizeof key - 15, name);
    u32 v = UINT32_MAX;
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv) return true;
    if (kv->type == GGUF_I32 && gguf_arr_i64(kv, 0) == -1) return true;
    if (!gguf_get_u32(g, key, &v, e)) return false;
    if (v == UINT32_MAX) return true;
    if (v >= t->n_vocab)
        return err_set(e, ERR_FORMAT, "%s is %u, but the vocabulary ends at %u", key, v,
                       t->n_vocab - 1);
    *id = (i32)v;
    return true;
}

static bool read_ids(struct tokenizer *t, const struct gguf *g, struct err *e) {
    i32 eot = -1, eom = -1;
    if (t->kind == TOKENIZER_SPM) { /* what SentencePiece itself uses */
        t->unk = 0;
        t->bos = t->n_vocab > 1 ? 1 : -1;
        t->eos = t->n_vocab > 2 ? 2 : -1;
    } else if (t->kind == TOKENIZER_UGM) {
        t->eos = t->n_vocab > 1 ? 1 : -1;
        t->unk = t->n_vocab > 2 ? 2 : -1;
    }
    if (!read_id(t, g, "bos_token_id", &t->bos, e) || !read_id(t, g, "eos_token_id", &t->eos, e) ||
        !read_id(t, g, "unknown_token_id", &t->unk, e) || !read_id(t, g, "eot_token_id", &eot, e) ||
        !read_id(t, g, "eom_token_id", &eom, e))
        return false;
    if (t->eos >= 0) t->flags[t->eos] |= TOKEN_EOG;
    if (eot >= 0) t->flags[eot] |= TOKEN_EOG;
    if (eom >= 0) t->flags[eom] |= TOKEN_EOG;
    return true;
}

static bool find_fim(struct tokenizer *t, const struct gguf *g, struct err *e) {
    for (size_t i = 0; i < tokenizer_fim_tab_n; i++) {
        const struct tokenizer_fim *fim = &tokenizer_fim_tab[i];
        i32 id = -1;
        if (!read_id(t, g, fim->key, &id, e)) return false;
        if (fim->old_key && !read_id(t, g, fim->old_key, &id, e)) return false;
        bool named = id >= 0;
        for (const char *const *text = fim->text; id < 0 && *text; text++) id = token_of(t, *text);
        if (id < 0) continue;
        if (!named) t->flags[id] |= TOKEN_CONTROL;
        if (fim->ends) t->flags[id] |= TOKEN_EOG;
    }
    return true;
}

static bool ends(const struct tokenizer *t, const char *text) {
    i32 id = token_of(t, text);
    return id >= 0 && t->flags[id] & TOKEN_EOG;
}

static void set_type(struct tokenizer *t, const char *text, u32 type) {
    i32 id = token_of(t, text);
    if (id >= 0) t->flags[id] = (u16)type;
}

static void find_ends(struct tokenizer *t) {
    for (size_t i = 0; i < tokenizer_end_texts_n; i++) {
        i32 id = token_of(t, tokenizer_end_texts[i]);
        if (id >= 0) t->flags[id] |= TOKEN_EOG | TOKEN_CONTROL;
    }
    /* The harmony format of gpt-oss is read by the server, so its marks must reach it. There, and
     * in Solar Open, <|end|> ends a message, not the answer. */
    static const char *const HARMONY[] = {"<|channel|>", "<|message|>", "<|start|>",
                                          "<|constrain|>"};
    for (size_t i = 0; i < ARRAY_LEN(HARMONY); i++) set_type(t, HARMONY[i], TOKEN_USER);
    bool call = ends(t, "<|call|>") || ends(t, "<|calls|>");
    if (ends(t, "<|end|>") && call && (ends(t, "<|return|>") || ends(t, "<|flush|>")))
        set_type(t, "<|end|>", TOKEN_USER);
    /* Gemma 4 has </s> as a piece of HTML. */
    if (ends(t, "<|tool_response>") && ends(t, "</s>")) set_type(t, "</s>", TOKEN_NORMAL);
}

static bool name_has(const struct gguf *g, const char *key, const char *part) {
    struct view v = {0};
    gguf_get_str(g, key, &v, NULL);
    size_t n = strlen(part);
    for (size_t i = 0; i + n <= v.n; i++) {
        size_t k = 0;
        while (k < n && tolower((u8)v.p[i + k]) == part[k]) k++;
        if (k == n) return true;
    }
    return false;
}

/* White space that a special token swallows is no key of the file, but a fact about some models. */
static void set_strip(struct tokenizer *t, const struct gguf *g) {
    const char *mask = NULL;
    if (name_has(g, "tokenizer.ggml.pre", "jina-v2-"))
        mask = "<mask>";
    else if (name_has(g, "general.name", "modern-bert"))
        mask = "[MASK]";
    if (mask && token_of(t, mask) >= 0) t->flags[token_of(t, mask)] |= TOKEN_LSTRIP;
    if (mask || !(name_has(g, "general.name", "phi-3") || name_has(g, "general.name", "phi3")))
        return;
    for (u32 i = 0; i < t->special.n; i++) t->flags[t->special.id[i]] |= TOKEN_RSTRIP;
    static const char *const KEEP[] = {"<unk>", "<s>", "<|endoftext|>"};
    for (size_t i = 0; i < ARRAY_LEN(KEEP); i++)
        if (token_of(t, KEEP[i]) >= 0) t->flags[token_of(t, KEEP[i])] &= (u16)~TOKEN_RSTRIP;
    if (token_of(t, "</s>") >= 0) t->flags[token_of(t, "</s>")] |= TOKEN_RSTRIP;
}

struct length {
    u32 len, id, index;
};

static int longest_first(const void *x, const void *y) {
    const struct length *a = x, *b = y;
    if (a->len != b->len) return a->len > b->len ? -1 : 1;
    return a->id < b->id ? -1 : 1;
}

static void build_special(struct tokenizer *t) {
    u32 n = 0, *id = xcalloc(t->n_vocab, sizeof *id);
    for (u32 i = 0; i < t->n_vocab; i++)
        if (t->flags[i] & (TOKEN_CONTROL | TOKEN_USER | TOKEN_UNKNOWN)) id[n++] = i;
    tokenizer_trie_init(&t->special, &t->text, id, n);
    n = t->special.n;
    struct length *order = xcalloc(n ? n : 1, sizeof *order);
    for (u32 i = 0; i < n; i++)
        order[i] =
            (struct length){(u32)strtab_get(&t->text, t->special.id[i]).n, t->special.id[i], i};
    qsort(order, n, sizeof *order, longest_first);
    t->special_by_len = xcalloc(n ? n : 1, sizeof *t->special_by_len);
    for (u32 i = 0; i < n; i++) t->special_by_len[i] = order[i].index;
    free(order);
}

bool tokenizer_special_init(struct tokenizer *t, const struct gguf *g, struct err *e) {
    if (!read_ids(t, g, e) || !find_fim(t, g, e)) return false;
    find_ends(t);
    build_special(t);
    set_strip(t, g);
    return true;
}

static void add(struct tokenizer_fragments *f, size_t off, size_t len, i32 token) {
    if (f->n == f->cap) {
        f->cap = f->cap ? f->cap * 2 : 64;
        f->p = xrealloc(f->p, f->cap * sizeof *f->p);
    }
    f->p[f->n++] = (struct tokenizer_fragment){(u32)off, (u32)len, token};
}

/* Marks the special tokens whose texts occur anywhere, so that only those are searched for. */
static void mark_present(const struct tokenizer *t, struct view text, u8 *present) {
    memset(present, 0, t->special.n);
    for (size_t i = 0; i < text.n; i++) {
        struct tokenizer_walk w = tokenizer_trie_root(&t->special);
        for (size_t k = i;
             k < text.n && tokenizer_trie_step(&t->special, &t->text, &w, (u8)text.p[k]); k++)
            if (tokenizer_trie_hit(&t->special, &t->text, &w)) present[w.lo] = 1;
    }
}

static bool is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Splits the plain stretch [off, end) at every occurrence of token id. */
static void split_at(const struct tokenizer *t, struct view text, size_t off, size_t end, u32 id,
                     struct tokenizer_fragments *out) {
    struct view mark = strtab_get(&t->text, id);
    while (off < end) {
        const char *hit = memmem(text.p + off, end - off, mark.p, mark.n);
        size_t at = hit ? (size_t)(hit - text.p) : end, stop = at;
        if (hit && t->flags[id] & TOKEN_LSTRIP)
            while (stop > off && is_space(text.p[stop - 1])) stop--;
        if (stop > off) add(out, off, stop - off, -1);
        if (!hit) return;
        add(out, 0, 0, (i32)id);
        off = at + mark.n;
        if (t->flags[id] & TOKEN_RSTRIP)
            while (off < end && is_space(text.p[off])) off++;
    }
}

/* Longest token first, each over all that is still plain: so does llama.cpp, and where two texts
 * overlap, that decides. */
void tokenizer_special_split(const struct tokenizer *t, struct tokenizer_scratch *s,
                             struct view text, bool parse_special) {
    s->frag.n = 0;
    if (text.n == 0) return;
    add(&s->frag, 0, text.n, -1);
    mark_present(t, text, s->present);
    for (u32 i = 0; i < t->special.n; i++) {
        u32 index = t->special_by_len[i], id = t->special.id[index];
        if (!s->present[index]) continue;
        if (!parse_special && t->flags[id] & (TOKEN_CONTROL | TOKEN_UNKNOWN)) continue;
        s->frag_next.n = 0;
        for (size_t k = 0; k < s->frag.n; k++) {
            struct tokenizer_fragment f = s->frag.p[k];
            if (f.token >= 0)
                add(&s->frag_next, 0, 0, f.token);
            else
                split_at(t, text, f.off, (size_t)f.off + f.len, id, &s->frag_next);
        }
        struct tokenizer_fragments done = s->frag_next;
        s->frag_next = s->frag;
        s->frag = done;
    }
}
