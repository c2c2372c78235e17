#include "formats/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "formats/tokenizer_impl.h"

static const struct gguf_kv *array_of(const struct gguf *g, const char *key, u32 n_vocab,
                                      struct err *e) {
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv) return NULL;
    if (kv->type != GGUF_ARR) {
        err_set(e, ERR_FORMAT, "%s is no array", key);
        return NULL;
    }
    if (kv->n >= n_vocab) return kv;
    err_set(e, ERR_FORMAT, "%s has %llu entries for %u tokens", key, (unsigned long long)kv->n,
            n_vocab);
    return NULL;
}

static bool read_tokens(struct tokenizer *t, const struct gguf *g, struct err *e) {
    const char *key = "tokenizer.ggml.tokens";
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv) return err_set(e, ERR_FORMAT, "%s is missing", key);
    if (kv->type != GGUF_ARR || kv->elem != GGUF_STR)
        return err_set(e, ERR_FORMAT, "%s is no array of strings", key);
    if (kv->n == 0) return err_set(e, ERR_FORMAT, "%s is empty", key);
    if (kv->n > TOKENIZER_TOKENS_MAX || kv->size_bytes > TOKENIZER_VOCAB_BYTES_MAX)
        return err_set(e, ERR_LIMIT, "%s has %llu entries in %llu bytes; the limits are %d and %d",
                       key, (unsigned long long)kv->n, (unsigned long long)kv->size_bytes,
                       TOKENIZER_TOKENS_MAX, TOKENIZER_VOCAB_BYTES_MAX);
    t->n_vocab = (u32)kv->n;
    struct view piece;
    for (size_t at = 0; gguf_arr_next_str(kv, &at, &piece);) {
        strtab_add(&t->text, piece);
        t->text_len_max = MAX(t->text_len_max, (u32)piece.n);
    }
    return true;
}

static bool read_scores(struct tokenizer *t, const struct gguf *g, struct err *e) {
    const char *key = "tokenizer.ggml.scores";
    t->score = xcalloc(t->n_vocab, sizeof *t->score);
    if (!gguf_find(g, key)) return true;
    const struct gguf_kv *kv = array_of(g, key, t->n_vocab, e);
    if (!kv) return false;
    if (kv->elem != GGUF_F32 && kv->elem != GGUF_I32)
        return err_set(e, ERR_FORMAT, "%s is an array of %s, not of f32", key,
                       gguf_type_name(kv->elem));
    for (u32 i = 0; i < t->n_vocab; i++) t->score[i] = (float)gguf_arr_f64(kv, i);
    return true;
}

static bool read_types(struct tokenizer *t, const struct gguf *g, struct err *e) {
    static const u16 FLAGS[] = {TOKEN_UNDEFINED, TOKEN_NORMAL, TOKEN_UNKNOWN, TOKEN_CONTROL,
                                TOKEN_USER,      TOKEN_UNUSED, TOKEN_BYTE};
    const char *key = "tokenizer.ggml.token_type";
    t->flags = xcalloc(t->n_vocab, sizeof *t->flags);
    if (!gguf_find(g, key)) return true;
    const struct gguf_kv *kv = array_of(g, key, t->n_vocab, e);
    if (!kv) return false;
    if (kv->elem != GGUF_I32 && kv->elem != GGUF_U32)
        return err_set(e, ERR_FORMAT, "%s is an array of %s, not of i32", key,
                       gguf_type_name(kv->elem));
    for (u32 i = 0; i < t->n_vocab; i++) {
        i64 type = gguf_arr_i64(kv, i);
        t->flags[i] = type >= 0 && type < (i64)ARRAY_LEN(FLAGS) ? FLAGS[type] : TOKEN_UNDEFINED;
    }
    return true;
}

/* A byte that no token covers: "<0x0A>" in SentencePiece, and the one-byte entry. */
static void find_bytes(struct tokenizer *t) {
    for (int b = 0; b < 256; b++) {
        char text[8], byte = (char)b;
        snprintf(text, sizeof text, "<0x%02X>", b);
        bool byte_level = t->kind == TOKENIZER_BPE && !(t->bpe.pre.row->flags & TOKENIZER_PRE_RAW);
        i64 id = byte_level ? -1 : strtab_find(&t->text, view_of(text));
        if (id < 0 && (byte_level || t->kind == TOKENIZER_SPM))
            id = strtab_find(&t->text, (struct view){&byte, 1});
        t->byte_id[b] = id < t->n_vocab ? (i32)id : -1;
    }
}

static bool init_bpe(struct tokenizer *t, const struct gguf *g, struct view model, struct err *e) {
    struct view pre = {0};
    if (!gguf_get_str(g, "tokenizer.ggml.pre", &pre, e)) return false;
    if (view_is(model, "gemma4")) pre = VIEW("gemma4");
    if (pre.n == 0) {
        pre = VIEW("default");
        snprintf(t->warning, sizeof t->warning,
                 "the file has no tokenizer.ggml.pre, so text is cut "
                 "by a generic rule; answers may be worse than a newly converted file's");
    }
    if (!tokenizer_bpe_init(t, g, pre, e)) return false;
    u32 flags = t->bpe.pre.row->flags;
    t->add_bos = flags & TOKENIZER_PRE_ADD_BOS;
    t->escape_spaces = flags & TOKENIZER_PRE_ESCAPE_SPACES;
    return true;
}

static bool init(struct tokenizer *t, const struct gguf *g, struct err *e) {
    struct view model = {0};
    if (!gguf_find(g, "tokenizer.ggml.model"))
        return err_set(e, ERR_FORMAT, "tokenizer.ggml.model is missing: the file has no tokenizer");
    if (!gguf_get_str(g, "tokenizer.ggml.model", &model, e)) return false;
    if (view_is(model, "gpt2") || view_is(model, "gemma4"))
        t->kind = TOKENIZER_BPE;
    else if (view_is(model, "llama"))
        t->kind = TOKENIZER_SPM;
    else if (view_is(model, "t5"))
        t->kind = TOKENIZER_UGM;
    else
        return err_set(e, ERR_UNSUPPORTED,
                       "tokenizer.ggml.model \"%.*s\" is a kind of tokenizer that "
                       "skein can't run (it can: gpt2, llama, t5, gemma4)",
                       (int)MIN(model.n, 60), model.p);

    t->bos = t->eos = t->unk = -1;
    t->add_bos = t->add_space_prefix = t->kind == TOKENIZER_SPM;
    t->add_eos = t->kind == TOKENIZER_UGM;
    t->escape_spaces = t->kind != TOKENIZER_BPE;
    if (!read_tokens(t, g, e) || !read_scores(t, g, e) || !read_types(t, g, e)) return false;
    if (t->kind == TOKENIZER_BPE && !init_bpe(t, g, model, e)) return false;
    if (t->kind == TOKENIZER_UGM && !tokenizer_ugm_init(t, g, e)) return false;
    if (!gguf_get_bool(g, "tokenizer.ggml.add_space_prefix", &t->add_space_prefix, e) ||
        !gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &t->add_bos, e) ||
        !gguf_get_bool(g, "tokenizer.ggml.add_eos_token", &t->add_eos, e))
        return false;
    if (t->kind == TOKENIZER_BPE) {
        if (t->bpe.pre.row->flags & TOKENIZER_PRE_GEMMA4) t->add_bos = true;
        t->add_space_prefix = false;
    }
    find_bytes(t);
    return tokenizer_special_init(t, g, e);
}

struct tokenizer *tokenizer_new(const struct gguf *g, struct err *e) {
    struct tokenizer *t = xcalloc(1, sizeof *t);
    if (init(t, g, e)) return t;
    tokenizer_free(t);
    return NULL;
}

void tokenizer_free(struct tokenizer *t) {
    if (!t) return;
    tokenizer_bpe_deinit(&t->bpe);
    tokenizer_ugm_deinit(&t->ugm);
    tokenizer_trie_deinit(&t->special);
    free(t->special_by_len);
    strtab_deinit(&t->text);
    free(t->score);
    free(t->flags);
    free(t);
}

struct tokenizer_scratch *tokenizer_scratch_new(const struct tokenizer *t) {
    struct tokenizer_scratch *s = xcalloc(1, sizeof *s);
    s->present = xcalloc(t->special.n + 1, 1);
    if (t->kind == TOKENIZER_BPE) s->pre = tokenizer_pre_scratch_new();
    return s;
}

void tokenizer_scratch_free(struct tokenizer_scratch *s) {
    if (!s) return;
    free(s->frag.p);
    free(s->frag_next.p);
    free(s->present);
    str_deinit(&s->text);
    str_deinit(&s->word);
    tokenizer_pre_scratch_free(s->pre);
    free(s->list.symbol);
    free(s->list.heap);
    free(s->best);
    free(s);
}

const char *tokenizer_warning(const struct tokenizer *t) {
    return t->warning;
}
u32 tokenizer_n_vocab(const struct tokenizer *t) {
    return t->n_vocab;
}
i32 tokenizer_bos(const struct tokenizer *t) {
    return t->bos;
}
i32 tokenizer_eos(const struct tokenizer *t) {
    return t->eos;
}
bool tokenizer_adds_bos(const struct tokenizer *t) {
    return t->add_bos && t->bos >= 0;
}
bool tokenizer_adds_eos(const struct tokenizer *t) {
    return t->add_eos && t->eos >= 0;
}

u32 tokenizer_flags(const struct tokenizer *t, u32 id) {
    ASSERT(id < t->n_vocab);
    return t->flags[id];
}

struct view tokenizer_piece(const struct tokenizer *t, u32 id) {
    ASSERT(id < t->n_vocab);
    return strtab_get(&t->text, id);
}

i32 tokenizer_find(const struct tokenizer *t, struct view piece) {
    i64 id = strtab_find(&t->text, piece);
    return id < t->n_vocab ? (i32)id : -1;
}

void token_list_add(struct token_list *l, i32 id) {
    if (l->n == l->cap) {
        l->cap = l->cap ? l->cap * 2 : 64;
        l->id = xrealloc(l->id, l->cap * sizeof *l->id);
    }
    l->id[l->n++] = id;
}

void token_list_deinit(struct token_list *l) {
    free(l->id);
    *l = (struct token_list){0};
}

void tokenizer_add_escaped(struct str *out, struct view text) {
    while (text.n > 0) {
        const char *space = memchr(text.p, ' ', text.n);
        size_t n = space ? (size_t)(space - text.p) : text.n;
        str_add(out, text.p, n);
        if (!space) return;
        str_addz(out, TOKENIZER_SPACE);
        text = (struct view){space + 1, text.n - n - 1};
    }
}

u32 tokenizer_char_len(u8 first, size_t left) {
    u32 n = first < 0xC0 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    return (u32)MIN(n, left);
}

void tokenizer_add_byte(const struct tokenizer *t, u8 byte, struct token_list *out) {
    i32 id = t->byte_id[byte] >= 0 ? t->byte_id[byte] : t->unk;
    if (id >= 0) token_list_add(out, id);
}

static bool encode_plain(const struct tokenizer *t, struct tokenizer_scratch *s, struct view text,
                         bool after_special, struct token_list *out, struct err *e) {
    switch (t->kind) {
    case TOKENIZER_BPE: return tokenizer_bpe_encode(t, s, text, out, e);
    case TOKENIZER_UGM: return tokenizer_ugm_encode(t, s, text, out, e);
    case TOKENIZER_SPM: break;
    }
    tokenizer_spm_encode(t, s, text, after_special && t->add_space_prefix, out);
    return true;
}

bool tokenizer_encode(const struct tokenizer *t, struct tokenizer_scratch *s, struct view text,
                      bool add_special, bool parse_special, struct token_list *out, struct err *e) {
    if (text.n > TOKENIZER_TEXT_BYTES_MAX)
        return err_set(e, ERR_LIMIT,
                       "a text of %zu bytes is more than the tokenizer's limit of %d MiB", text.n,
                       TOKENIZER_TEXT_BYTES_MAX >> 20);
    tokenizer_special_split(t, s, text, parse_special);
    const struct tokenizer_fragment *f = s->frag.p;
    bool has_bos = s->frag.n > 0 && f[0].token >= 0 && f[0].token == t->bos;
    if (add_special && tokenizer_adds_bos(t) && !has_bos) token_list_add(out, t->bos);
    for (size_t i = 0; i < s->frag.n; i++) {
        bool after_special = i == 0 || f[i - 1].token >= 0;
        if (f[i].token >= 0)
            token_list_add(out, f[i].token);
        else if (!encode_plain(t, s, (struct view){text.p + f[i].off, f[i].len}, after_special, out,
                               e))
            return false;
    }
    if (add_special && tokenizer_adds_eos(t)) token_list_add(out, t->eos);
    return true;
}

u64 tokenizer_tokens_min(const struct tokenizer *t, u64 n_bytes) {
    u32 swallow = TOKEN_LSTRIP | TOKEN_RSTRIP; /* any amount of white space */
    if (t->kind == TOKENIZER_UGM) return 0;    /* normalization may shorten the text */
    for (u32 i = 0; i < t->special.n; i++)
        if (t->flags[t->special.id[i]] & swallow) return 0;
    return t->text_len_max ? n_bytes / t->text_len_max : 0;
}
