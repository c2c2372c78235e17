#include "base/arena.h"
#include "formats/tokenizer_impl.h"

void tokenizer_list_clear(struct tokenizer_list *l) {
    l->n = l->n_heap = 0;
}

void tokenizer_list_add(struct tokenizer_list *l, u32 off, u32 len, u32 id) {
    if (l->n == l->cap) {
        l->cap = l->cap ? l->cap * 2 : 256;
        l->symbol = xrealloc(l->symbol, l->cap * sizeof *l->symbol);
    }
    i32 i = (i32)l->n++;
    l->symbol[i] =
        (struct tokenizer_symbol){.off = off, .len = len, .id = id, .prev = i - 1, .next = -1};
    if (i > 0) l->symbol[i - 1].next = i;
}

/* A binary heap. Of bigrams with equal keys at most one is not stale, so their order never shows.
 */
static void heap_push(struct tokenizer_list *l, struct tokenizer_bigram b) {
    if (l->n_heap == l->cap_heap) {
        l->cap_heap = l->cap_heap ? l->cap_heap * 2 : 256;
        l->heap = xrealloc(l->heap, l->cap_heap * sizeof *l->heap);
    }
    size_t i = l->n_heap++;
    while (i > 0 && l->heap[(i - 1) / 2].key > b.key) {
        l->heap[i] = l->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    l->heap[i] = b;
}

static struct tokenizer_bigram heap_pop(struct tokenizer_list *l) {
    struct tokenizer_bigram top = l->heap[0], last = l->heap[--l->n_heap];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= l->n_heap) break;
        if (child + 1 < l->n_heap && l->heap[child + 1].key < l->heap[child].key) child++;
        if (l->heap[child].key >= last.key) break;
        l->heap[i] = l->heap[child];
        i = child;
    }
    l->heap[i] = last;
    return top;
}

static void try_pair(struct tokenizer_list *l, const struct tokenizer *t, const char *text,
                     i32 left, i32 right, tokenizer_pair_fn *pair) {
    if (left < 0 || right < 0) return;
    const struct tokenizer_symbol *a = &l->symbol[left], *b = &l->symbol[right];
    u32 priority, result;
    if (!pair(t, text, a, b, &priority, &result)) return;
    heap_push(l, (struct tokenizer_bigram){.key = (u64)priority << 32 | (u32)left,
                                           .right = (u32)right,
                                           .len = a->len + b->len,
                                           .result = result});
}

void tokenizer_list_merge(struct tokenizer_list *l, const struct tokenizer *t, const char *text,
                          tokenizer_pair_fn *pair) {
    l->n_heap = 0;
    for (i32 i = 1; i < (i32)l->n; i++) try_pair(l, t, text, i - 1, i, pair);
    while (l->n_heap > 0) {
        struct tokenizer_bigram b = heap_pop(l);
        i32 left = (i32)(b.key & UINT32_MAX);
        struct tokenizer_symbol *a = &l->symbol[left], *r = &l->symbol[b.right];
        /* Symbols only grow, so a stale bigram shows in the lengths. */
        if (a->len == 0 || r->len == 0 || a->len + r->len != b.len) continue;
        a->len = b.len;
        a->id = b.result;
        a->next = r->next;
        r->len = 0;
        if (r->next >= 0) l->symbol[r->next].prev = left;
        try_pair(l, t, text, a->prev, left, pair);
        try_pair(l, t, text, left, a->next, pair);
    }
}
