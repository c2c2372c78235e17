#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "formats/tokenizer_impl.h"

/* Unigram language model (Kudo 2018), as T5 uses it: of all ways to write the normalized text as
 * tokens, the one with the highest sum of scores, found by Viterbi over byte offsets. */

enum { UNKNOWN_PENALTY = 10 }; /* below the lowest score, as in SentencePiece */

/* precompiled_charsmap: u32 size of the double array in bytes, the array, the replacements. */
static bool read_charsmap(struct tokenizer_ugm *u, const struct gguf *g, struct err *e) {
    const char *key = "tokenizer.ggml.precompiled_charsmap";
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv) return true;
    if (kv->type != GGUF_ARR || (kv->elem != GGUF_I8 && kv->elem != GGUF_U8))
        return err_set(e, ERR_FORMAT, "%s is no array of bytes", key);
    u32 n_bytes = 0;
    if (kv->n >= 4) memcpy(&n_bytes, kv->data, 4);
    if (kv->n < 4 || n_bytes >= kv->n - 4)
        return err_set(e, ERR_FORMAT, "%s has %llu bytes, too few for its table of %u", key,
                       (unsigned long long)kv->n, n_bytes);
    u->n_xcda = n_bytes / 4;
    u->xcda = xcalloc(u->n_xcda + 1, 4);
    memcpy(u->xcda, kv->data + 4, u->n_xcda * 4);
    u->n_replacement = (size_t)kv->n - 4 - n_bytes;
    u->replacement = xcalloc(u->n_replacement, 1);
    memcpy(u->replacement, kv->data + 4 + n_bytes, u->n_replacement);
    if (u->replacement[u->n_replacement - 1] != 0)
        return err_set(e, ERR_FORMAT, "%s does not end with a NUL", key);
    return true;
}

bool tokenizer_ugm_init(struct tokenizer *t, const struct gguf *g, struct err *e) {
    struct tokenizer_ugm *u = &t->ugm;
    if (!read_charsmap(u, g, e)) return false;
    if (!gguf_get_bool(g, "tokenizer.ggml.remove_extra_whitespaces", &u->remove_extra_spaces, e))
        return false;
    u32 n = 0, n_user = 0, *id = xcalloc(t->n_vocab, sizeof *id),
        *user = xcalloc(t->n_vocab, sizeof *id);
    float least = FLT_MAX;
    for (u32 i = 0; i < t->n_vocab; i++) {
        if (t->flags[i] == TOKEN_NORMAL && t->score[i] < least) least = t->score[i];
        if (t->flags[i] == TOKEN_NORMAL || t->flags[i] & (TOKEN_USER | TOKEN_UNUSED)) id[n++] = i;
        if (t->flags[i] & TOKEN_USER) user[n_user++] = i;
    }
    u->unknown_score = least - (float)UNKNOWN_PENALTY;
    tokenizer_trie_init(&u->tokens, &t->text, id, n);
    tokenizer_trie_init(&u->user, &t->text, user, n_user);
    return true;
}

void tokenizer_ugm_deinit(struct tokenizer_ugm *u) {
    tokenizer_trie_deinit(&u->tokens);
    tokenizer_trie_deinit(&u->user);
    free(u->xcda);
    free(u->replacement);
    *u = (struct tokenizer_ugm){0};
}

/* A node of the XOR-compressed double array (Kanda 2018): bits 0-7 the byte that leads here, bit 8
 * "a key ends here", bits 10-30 the offset to the children (times 256 if bit 9 is set). A node that
 * holds a value has bit 31 set and the value in the others. */
static u32 xcda_base(u32 node) {
    return node >> 10 << ((node & 1u << 9) >> 6);
}

/* The longest key of the charsmap at p[0..n): its length and its replacement. 0: none. False: the
 * table points outside itself. */
static bool charsmap_find(const struct tokenizer_ugm *u, const char *p, size_t n, size_t *len,
                          struct view *replacement, struct err *e) {
    *len = 0;
    if (u->n_xcda == 0) return true;
    u32 value = 0, at = xcda_base(u->xcda[0]);
    for (size_t i = 0; i < n && p[i] != 0; i++) {
        at ^= (u8)p[i];
        if (at >= u->n_xcda) goto outside;
        u32 node = u->xcda[at];
        if ((node & (1u << 31 | 0xFF)) != (u8)p[i]) break;
        at ^= xcda_base(node);
        if (at >= u->n_xcda) goto outside;
        if (node >> 8 & 1) {
            *len = i + 1;
            value = u->xcda[at] & ~(1u << 31);
        }
    }
    if (*len == 0) return true;
    if (value >= u->n_replacement) goto outside;
    *replacement = view_of(u->replacement + value); /* the last byte is a NUL: checked at load */
    return true;
outside:
    return err_set(e, ERR_FORMAT, "tokenizer.ggml.precompiled_charsmap points outside itself");
}

/* What stands at p[0..n) after normalization, and how many bytes of it that covers. */
static bool normalize_next(const struct tokenizer *t, const char *p, size_t n, size_t *len,
                           struct view *to, struct err *e) {
    const struct tokenizer_ugm *u = &t->ugm;
    /* User-defined tokens are left alone, and so is whatever begins like one. */
    struct tokenizer_walk w = tokenizer_trie_root(&u->user);
    size_t user = 0;
    while (user < n && tokenizer_trie_step(&u->user, &t->text, &w, (u8)p[user])) user++;
    if (user > 0) {
        *len = user;
        *to = (struct view){p, user};
        return true;
    }
    if (!charsmap_find(u, p, n, len, to, e)) return false;
    if (*len > 0) return true;
    u32 cp;
    *len = (size_t)utf8_decode(p, n, &cp);
    *to = *len ? (struct view){p, *len} : VIEW("\xEF\xBF\xBD");
    *len = MAX(*len, 1);
    return true;
}

static bool normalize(const struct tokenizer *t, struct view text, struct str *out, struct err *e) {
    struct view space = t->escape_spaces ? VIEW(TOKENIZER_SPACE) : VIEW(" ");
    bool merge = t->ugm.remove_extra_spaces, prepended = false, in_word = false;
    for (size_t i = 0, len = 0; i < text.n; i += len) {
        struct view to = {0};
        if (!normalize_next(t, text.p + i, text.n - i, &len, &to, e)) return false;
        if (out->n + to.n * space.n > TOKENIZER_TEXT_BYTES_MAX)
            return err_set(e, ERR_LIMIT, "the text is more than %d MiB after normalization",
                           TOKENIZER_TEXT_BYTES_MAX >> 20);
        for (size_t k = 0; k < to.n; k++) {
            if (to.p[k] == ' ') {
                in_word = false;
                if (!merge) str_addv(out, space);
                continue;
            }
            if (!in_word && (merge || (t->add_space_prefix && !prepended))) {
                str_addv(out, space);
                prepended = true;
            }
            in_word = true;
            str_addc(out, to.p[k]);
        }
    }
    return true;
}

static void better(struct tokenizer_best *b, double score, size_t from, i32 token) {
    if (score > b->score) *b = (struct tokenizer_best){score, (u32)from, token};
}

/* Extends the best way to offset `at` by every token that begins there. */
static void extend(const struct tokenizer *t, struct view text, size_t at, size_t char_len,
                   struct tokenizer_best *best) {
    const struct tokenizer_trie *trie = &t->ugm.tokens;
    struct tokenizer_walk w = tokenizer_trie_root(trie);
    bool char_found = false;
    for (size_t i = at; i < text.n && tokenizer_trie_step(trie, &t->text, &w, (u8)text.p[i]); i++) {
        if (!tokenizer_trie_hit(trie, &t->text, &w)) continue;
        u32 id = trie->id[w.lo];
        char_found |= w.depth == char_len;
        double score = t->flags[id] & TOKEN_USER ? 0 : (double)t->score[id];
        better(&best[i + 1], best[at].score + score, at, (i32)id);
    }
    if (!char_found)
        better(&best[at + char_len], best[at].score + t->ugm.unknown_score, at, t->unk);
}

bool tokenizer_ugm_encode(const struct tokenizer *t, struct tokenizer_scratch *s, struct view text,
                          struct token_list *out, struct err *e) {
    str_clear(&s->text);
    if (!normalize(t, text, &s->text, e)) return false;
    text = str_view(&s->text);
    if (text.n == 0) return true;
    if (text.n + 1 > s->cap_best) {
        s->cap_best = text.n + 1;
        s->best = xrealloc(s->best, s->cap_best * sizeof *s->best);
    }
    for (size_t i = 0; i <= text.n; i++) s->best[i] = (struct tokenizer_best){-DBL_MAX, 0, t->unk};
    s->best[0].score = 0;
    for (size_t i = 0, len; i < text.n; i += len) {
        len = tokenizer_char_len((u8)text.p[i], text.n - i);
        extend(t, text, i, len, s->best);
    }
    /* Back from the end; neighbouring unknowns become one. */
    size_t start = out->n;
    bool after_unknown = false;
    for (size_t i = text.n; i > 0; i = s->best[i].from) {
        i32 id = s->best[i].token;
        if (id >= 0 && !(id == t->unk && after_unknown)) token_list_add(out, id);
        after_unknown = id == t->unk;
    }
    for (size_t a = start, b = out->n; a + 1 < b; a++) {
        i32 id = out->id[a];
        out->id[a] = out->id[--b];
        out->id[b] = id;
    }
    return true;
}
