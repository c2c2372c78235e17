/* place_group.c - what a stage of given nodes costs, for every range of layers, in a glance. */
#include <math.h>

#include "cluster/place_impl.h"

void place_group_init(struct place_work *w, struct place_group *g, const u32 *nodes, u32 n,
                      const struct place_load *load) {
    *g = (struct place_group){.n = n, .nodes = nodes, .load = *load};
    if (n > 1) {
        g->sets = arena_array(w->mem, ((size_t)w->n_layers + 1) * 4, sizeof(struct place_set *));
        return;
    }
    g->before = arena_array(w->mem, w->n_layers + 1, sizeof(double));
    place_layers_before(w, nodes, 1, &PLACE_WHOLE, load, g->before);
    g->head_s = place_head_s(w, nodes, 1, &PLACE_WHOLE, load, NULL);
}

static bool same_slices(const struct msg_slice *a, const struct msg_slice *b, u32 n) {
    for (u32 i = 0; i < n; i++)
        if (a[i].head_first != b[i].head_first || a[i].head_end != b[i].head_end ||
            a[i].ff_first != b[i].ff_first || a[i].ff_end != b[i].ff_end ||
            a[i].vocab_first != b[i].vocab_first || a[i].vocab_end != b[i].vocab_end)
            return false;
    return true;
}

static void price_set(struct place_work *w, const struct place_group *g, struct place_set *s) {
    struct place_part *parts = arena_array(w->mem, g->n, sizeof *parts);
    for (u32 i = 0; i < g->n; i++)
        parts[i] = place_part_of(w, &(struct place_rank){.tp_ranks = g->n, .slice = s->slices[i]});
    s->before = arena_array(w->mem, w->n_layers + 1, sizeof(double));
    place_layers_before(w, g->nodes, g->n, parts, &g->load, s->before);
    s->embed_s = place_embed_s(w, g->nodes, g->n, &g->load);
    s->head_s = place_head_s(w, g->nodes, g->n, parts, &g->load, NULL);
}

/* Slices by speed alone: good as long as they fit. */
static struct place_set *free_set(struct place_work *w, struct place_group *g) {
    if (g->tried) return g->free_set;
    struct place_ask q = *w->q;
    struct place_work any = *w;
    struct place_set *s = arena_alloc(w->mem, sizeof *s);
    q.force = true;
    any.q = &q;
    s->slices = arena_array(w->mem, g->n, sizeof *s->slices);
    s->ok = place_slices(&any, g->nodes, g->n, w->n_layers, true, true, &g->load, s->slices);
    if (s->ok) price_set(w, g, s);
    g->tried = true;
    g->free_set = s->ok ? s : NULL;
    return g->free_set;
}

/* Do k layers, the heaviest that follow one another, fit with these slices? */
static bool fits(const struct place_work *w, const struct place_group *g, const struct place_set *s,
                 u32 k, u32 ends) {
    u32 at = k;
    for (u32 i = k; i <= w->n_layers; i++)
        if (w->bytes[i] - w->bytes[i - k] > w->bytes[at] - w->bytes[at - k]) at = i;
    for (u32 i = 0; i < g->n && !w->q->force; i++) {
        struct place_rank r = {
            .layer_first = at - k, .layer_end = at, .tp_ranks = g->n, .slice = s->slices[i]};
        u64 need = place_weights_bytes(w, &r, ends & 1, ends & 2) + place_kv_bytes(w, &r) +
                   w->q->scratch_bytes;
        if (need > w->q->nodes[g->nodes[i]].budget_bytes) return false;
    }
    return true;
}

/* The slices for a number of layers; those that come out alike are kept once. */
static const struct place_set *set_of(struct place_work *w, struct place_group *g, u32 first,
                                      u32 end) {
    static const struct place_set NONE = {0};
    u32 k = end - first, ends = (u32)(first == 0) | (u32)(end == w->n_layers) << 1;
    struct place_set **at = &g->sets[k * 4 + ends], *s;
    if (*at) return *at;
    if (!(s = free_set(w, g))) return &NONE; /* too few heads or blocks */
    *at = s;
    if (fits(w, g, s, k, ends)) return s;
    *at = s = arena_alloc(w->mem, sizeof *s);
    s->slices = arena_array(w->mem, g->n, sizeof *s->slices);
    s->ok = place_slices(w, g->nodes, g->n, k, ends & 1, ends & 2, &g->load, s->slices) &&
            fits(w, g, s, k, ends);
    if (!s->ok) return s;
    for (u32 i = 4; i < (w->n_layers + 1) * 4; i++) {
        struct place_set *o = g->sets[i];
        if (!o || o == s || !o->ok || !same_slices(o->slices, s->slices, g->n)) continue;
        *at = o;
        return o;
    }
    price_set(w, g, s);
    return s;
}

double place_group_s(struct place_work *w, struct place_group *g, u32 first, u32 end) {
    bool has_head = end == w->n_layers;
    if (g->n > 1) {
        const struct place_set *s = set_of(w, g, first, end);
        if (!s->ok) return INFINITY;
        return s->before[end] - s->before[first] + (has_head ? s->head_s : 0) +
               (first == 0 ? s->embed_s : 0);
    }
    const struct place_ask *q = w->q;
    u64 need = w->bytes[end] - w->bytes[first] + (end - first) * w->kv_layer_bytes +
               q->scratch_bytes + place_vocab_bytes(w, first == 0, has_head);
    if (need > q->nodes[g->nodes[0]].budget_bytes && !q->force) return INFINITY;
    return g->before[end] - g->before[first] + (has_head ? g->head_s : 0);
}

const struct msg_slice *place_group_slices(struct place_work *w, struct place_group *g, u32 first,
                                           u32 end) {
    return g->n > 1 ? set_of(w, g, first, end)->slices : NULL;
}
