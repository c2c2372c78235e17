#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "formats/tokenizer_impl.h"

struct entry {
    struct view text;
    u32 id;
};

static int by_text(const void *x, const void *y) {
    const struct entry *a = x, *b = y;
    int c = memcmp(a->text.p, b->text.p, MIN(a->text.n, b->text.n));
    if (c != 0) return c;
    if (a->text.n != b->text.n) return a->text.n < b->text.n ? -1 : 1;
    return a->id > b->id ? -1 : 1; /* of equal texts the newest comes first and is kept */
}

void tokenizer_trie_init(struct tokenizer_trie *trie, const struct strtab *text, u32 *id, u32 n) {
    struct entry *e = xcalloc(n ? n : 1, sizeof *e);
    for (u32 i = 0; i < n; i++) e[i] = (struct entry){strtab_get(text, id[i]), id[i]};
    qsort(e, n, sizeof *e, by_text);

    *trie = (struct tokenizer_trie){.id = id};
    u32 per_byte[256] = {0};
    struct view last = {0};
    for (u32 i = 0; i < n; i++) {
        if (e[i].text.n == 0 || view_eq(e[i].text, last)) continue;
        last = e[i].text;
        per_byte[(u8)last.p[0]]++;
        id[trie->n++] = e[i].id;
    }
    for (int b = 0; b < 256; b++) trie->first[b + 1] = trie->first[b] + per_byte[b];
    free(e);
}

void tokenizer_trie_deinit(struct tokenizer_trie *trie) {
    free(trie->id);
    *trie = (struct tokenizer_trie){0};
}

struct tokenizer_walk tokenizer_trie_root(const struct tokenizer_trie *trie) {
    return (struct tokenizer_walk){.lo = 0, .hi = trie->n};
}

/* The first entry of [lo, hi) whose byte at `depth` is at least `byte`. An entry that ends there
 * sorts before all others. */
static u32 lower_bound(const struct tokenizer_trie *trie, const struct strtab *text, u32 lo, u32 hi,
                       u32 depth, u32 byte) {
    while (lo < hi) {
        u32 mid = lo + (hi - lo) / 2;
        struct view s = strtab_get(text, trie->id[mid]);
        if (s.n == depth || (u8)s.p[depth] < byte)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

bool tokenizer_trie_step(const struct tokenizer_trie *trie, const struct strtab *text,
                         struct tokenizer_walk *w, u8 byte) {
    if (w->depth == 0) {
        w->lo = trie->first[byte];
        w->hi = trie->first[byte + 1];
    } else {
        w->lo = lower_bound(trie, text, w->lo, w->hi, w->depth, byte);
        w->hi = lower_bound(trie, text, w->lo, w->hi, w->depth, byte + 1u);
    }
    w->depth++;
    return w->lo < w->hi;
}

bool tokenizer_trie_hit(const struct tokenizer_trie *trie, const struct strtab *text,
                        const struct tokenizer_walk *w) {
    return w->depth > 0 && w->lo < w->hi && strtab_get(text, trie->id[w->lo]).n == w->depth;
}
