/* place_check.c - layouts that somebody made by hand. */
#include <string.h>

#include "base/str.h"
#include "cluster/place_impl.h"

static bool is_whole(const struct msg_slice *c) {
    return !c->head_end && !c->ff_end && !c->vocab_end;
}

static bool check_layers(const struct place_ask *q, const struct place_rank *r, u32 n,
                         struct err *e) {
    u32 at = 0;
    for (u32 i = 0; i < n; i++) {
        const char *name = q->nodes[r[i].node].name;
        for (u32 k = 0; k < i; k++)
            if (r[k].node == r[i].node)
                return err_set(e, ERR_ARG, "node %s is named twice in the layout", name);
        if (r[i].layer_first >= r[i].layer_end || r[i].layer_end > q->model->n_layers)
            return err_set(e, ERR_ARG, "layers %u-%u of %s: the model has layers 0-%u",
                           r[i].layer_first, MAX(r[i].layer_end, 1u) - 1, name,
                           q->model->n_layers - 1);
        bool peer =
            i && r[i].layer_first == r[i - 1].layer_first && r[i].layer_end == r[i - 1].layer_end;
        if (!peer && at == 0 && r[i].layer_first)
            return err_set(e, ERR_ARG,
                           "layers %u-%u of %s come first in the layout: the model "
                           "begins with layer 0",
                           r[i].layer_first, r[i].layer_end - 1, name);
        if (!peer && r[i].layer_first != at)
            return err_set(e, ERR_ARG,
                           "layers %u-%u of %s don't follow on layer %u: each layer must be on one "
                           "node, in order, or on several that share exactly the same range",
                           r[i].layer_first, r[i].layer_end - 1, name, at - 1);
        at = r[i].layer_end;
    }
    return at == q->model->n_layers ||
           err_set(e, ERR_ARG, "layers %u-%u are on no node", at, q->model->n_layers - 1);
}

/* Slices by hand follow one another and cover everything; some may be empty. */
static bool check_slices(const struct place_work *w, const struct place_rank *r, u32 n,
                         struct err *e) {
    const struct msg_shape *s = &w->q->model->shape;
    u32 head = 0, ff = 0, vocab = 0;
    for (u32 i = 0; i < n; i++) {
        const struct msg_slice *c = &r[i].slice;
        if (c->head_first != head || c->head_end < head || c->ff_first != ff || c->ff_end < ff ||
            c->vocab_first != vocab || c->vocab_end < vocab)
            return err_set(e, ERR_ARG, "the slice of %s does not follow on the one before",
                           w->q->nodes[r[i].node].name);
        head = c->head_end;
        ff = c->ff_end;
        vocab = c->vocab_end;
    }
    if (head == s->n_heads && ff == s->n_ff && vocab == w->q->model->n_vocab) return true;
    return err_set(e, ERR_ARG,
                   "the slices cover %u of %u heads, %u of %u of the feed-forward part "
                   "and %u of %u rows of the vocabulary",
                   head, s->n_heads, ff, s->n_ff, vocab, w->q->model->n_vocab);
}

/* One stage of n ranks. */
static bool fill_stage(struct place_work *w, struct place_rank *r, u32 first, u32 n,
                       struct err *e) {
    bool by_hand = false;
    for (u32 i = 0; i < n; i++) {
        r[i].tp_first = first;
        r[i].tp_ranks = n;
        by_hand |= !is_whole(&r[i].slice);
    }
    if (n == 1) {
        r->slice = (struct msg_slice){0};
        return true;
    }
    if (!w->can_slice)
        return err_set(e, ERR_UNSUPPORTED,
                       "tensor sharding: the layers of this model can't be sliced by heads");
    if (by_hand) return check_slices(w, r, n, e);
    u32 *nodes = arena_array(w->mem, n, sizeof *nodes);
    struct msg_slice *c = arena_array(w->mem, n, sizeof *c);
    struct place_load load = place_decode_load(w->q, 1, w->q->n_ctx / 2.0);
    for (u32 i = 0; i < n; i++) nodes[i] = r[i].node;
    bool is_first = r->layer_first == 0, is_last = r->layer_end == w->n_layers;
    u32 k = r->layer_end - r->layer_first;
    if (!place_slices(w, nodes, n, k, is_first, is_last, &load, c)) {
        struct place_ask q = *w->q; /* too little memory is said below, with figures */
        struct place_work any = *w;
        q.force = true;
        any.q = &q;
        if (!place_slices(&any, nodes, n, k, is_first, is_last, &load, c))
            return err_set(e, ERR_ARG, "%u ranks can't share %u heads and %u blocks of a layer", n,
                           w->q->model->shape.n_heads,
                           w->q->model->shape.n_ff / MAX(w->q->model->shape.ff_step, 1u));
    }
    for (u32 i = 0; i < n; i++) r[i].slice = c[i];
    return true;
}

bool place_check(const struct place_ask *q, struct place_rank *ranks, u32 n, struct arena *a,
                 struct err *e) {
    struct place_work w;
    place_work_init(&w, q, a);
    if (!check_layers(q, ranks, n, e)) return false;
    for (u32 i = 0, k; i < n; i += k) {
        for (k = 1; i + k < n && ranks[i + k].layer_first == ranks[i].layer_first; k++) {
        }
        if (!fill_stage(&w, ranks + i, i, k, e)) return false;
    }
    for (u32 i = 0; i < n; i++) {
        const struct place_node *k = &q->nodes[ranks[i].node];
        char x[32], y[32];
        place_fill_bytes(&w, &ranks[i]);
        if (q->force || ranks[i].need_bytes <= k->budget_bytes) continue;
        return err_set(e, ERR_MEMORY,
                       "layers %u-%u on %s need %s, %s are free there: give it fewer layers, a "
                       "smaller context, or override with --force",
                       ranks[i].layer_first, ranks[i].layer_end - 1, k->name,
                       size_text(ranks[i].need_bytes, x), size_text(k->budget_bytes, y));
    }
    return true;
}
