/* place_share.c - how thick each rank's slice of a group's layers is. */
#include <math.h>
#include <string.h>

#include "cluster/place_impl.h"

enum { TRIES = 8, VOCAB_STEP = 32 };

bool place_share_out(u64 n_units, const double *speed, const u64 *cap, u32 n, u64 *out) {
    u64 left = n_units, room = 0;
    if (n_units < n) return false;
    for (u32 i = 0; i < n; i++) {
        if (!cap[i]) return false;
        out[i] = 1;
        left--;
        room += MIN(cap[i] - 1, n_units);
    }
    if (room < left) return false;
    /* Water-filling in large steps: everybody's part by speed, rounded down, never takes more than
     * the exact answer gives; then the rest unit by unit to whoever is done with one more first. */
    while (left > n) {
        double sum = 0;
        u64 given = 0, before = left;
        for (u32 i = 0; i < n; i++) sum += out[i] < cap[i] ? speed[i] : 0;
        for (u32 i = 0; i < n; i++) {
            if (out[i] >= cap[i]) continue;
            u64 more = (u64)((double)before * speed[i] / sum);
            more = MIN(MIN(more, cap[i] - out[i]), left);
            out[i] += more;
            left -= more;
            given += more;
        }
        if (!given) break;
    }
    for (; left; left--) {
        u32 best = UINT32_MAX;
        for (u32 i = 0; i < n; i++) {
            if (out[i] >= cap[i]) continue;
            if (best == UINT32_MAX ||
                (double)(out[i] + 1) * speed[best] < (double)(out[best] + 1) * speed[i])
                best = i;
        }
        out[best]++;
    }
    for (;;) { /* the first unit of the slow ones may have left too much for the others' rounding */
        u32 worst = 0, best = UINT32_MAX;
        for (u32 i = 1; i < n; i++)
            if ((double)out[i] * speed[worst] > (double)out[worst] * speed[i]) worst = i;
        for (u32 i = 0; i < n; i++)
            if (out[i] < cap[i] && (best == UINT32_MAX || (double)(out[i] + 1) * speed[best] <
                                                              (double)(out[best] + 1) * speed[i]))
                best = i;
        if (out[worst] == 1 || best == UINT32_MAX || best == worst ||
            (double)(out[best] + 1) * speed[worst] >= (double)out[worst] * speed[best])
            return true;
        out[worst]--;
        out[best]++;
    }
}

/* What a group has to divide, in bytes, and what each of its nodes can take. */
struct division {
    const struct place_work *w;
    u32 n;
    double attn, ff, kv, vocab; /* of all layers; embedding and head */
    double *room;               /* [n] */
    double *speed;              /* [n] */
    double *trust;              /* [n] part of room that is handed out */
    u64 *cap, *got;             /* [n] scratch */
    struct msg_slice *out;
};

static void measure(struct division *d, const u32 *nodes, u32 n_layers, bool is_first, bool is_last,
                    const struct place_load *load) {
    const struct place_work *w = d->w;
    const struct place_ask *q = w->q;
    double a = 0, f = 0, x = 0;
    u64 heavy = 0;
    for (u32 i = 0; i < w->n_layers; i++) {
        a += (double)w->cost[i].attn_bytes;
        f += (double)w->cost[i].ffn_bytes;
        x += (double)w->cost[i].fixed_bytes;
    }
    for (u32 i = n_layers; i <= w->n_layers; i++)
        heavy = MAX(heavy, w->bytes[i] - w->bytes[i - n_layers]);
    double all = fmax(a + f + x, 1);
    d->attn = (double)heavy * a / all;
    d->ff = (double)heavy * f / all;
    d->kv = (double)(n_layers * w->kv_layer_bytes);
    d->vocab = (double)place_vocab_bytes(w, is_first, is_last);
    double fixed = (double)heavy * x / all + (double)q->scratch_bytes + 4; /* rounding */
    for (u32 i = 0; i < d->n; i++) {
        const struct place_node *k = &q->nodes[nodes[i]];
        u32 crowd = 0;
        for (u32 j = 0; j < d->n; j++) crowd += q->nodes[nodes[j]].machine == k->machine;
        d->room[i] = q->force ? 1e18 : (double)k->budget_bytes - fixed;
        d->speed[i] =
            1 / (crowd * place_layer_s(w, &nodes[i], 1, &PLACE_WHOLE, load, w->n_layers / 2, NULL));
        d->trust[i] = 1;
    }
}

/* Not more than so many of n_units, when a rank takes them in proportion to its memory. */
static void set_caps(struct division *d, u64 n_units) {
    double all = fmax(d->attn + d->ff + d->kv + d->vocab, 1);
    for (u32 i = 0; i < d->n; i++) {
        double part = fmin(d->room[i] * d->trust[i] / all, 1);
        d->cap[i] = part <= 0 ? 0 : MAX((u64)floor(part * (double)n_units + 1e-9), 1u);
    }
}

static u32 kv_heads(const struct division *d, const struct msg_slice *c) {
    const struct msg_shape *s = &d->w->q->model->shape;
    u32 per = s->n_heads / s->n_kv_heads;
    return (c->head_end + per - 1) / per - c->head_first / per;
}

/* Query heads in units; the longest time of a rank, in heads: those of the KV cache count too. */
static double divide_in(struct division *d, u32 per_unit, struct msg_slice *out) {
    u64 n_units = d->w->q->model->shape.n_heads / per_unit, at = 0;
    double worst = 0;
    set_caps(d, n_units);
    if (!place_share_out(n_units, d->speed, d->cap, d->n, d->got)) return INFINITY;
    for (u32 i = 0; i < d->n; i++) {
        out[i].head_first = (u32)at * per_unit;
        at += d->got[i];
        out[i].head_end = (u32)at * per_unit;
        u32 heads = out[i].head_end - out[i].head_first;
        worst = fmax(worst, (heads + kv_heads(d, &out[i])) / d->speed[i]);
    }
    return worst;
}

/* In whole KV groups, or by single query heads: then a KV head may lie on two ranks or more, which
 * costs a little, and the parts come closer to the speeds. */
static bool divide_heads(struct division *d) {
    const struct msg_shape *s = &d->w->q->model->shape;
    struct msg_slice *groups = arena_array(d->w->mem, d->n, sizeof *groups);
    double by_head = divide_in(d, 1, d->out),
           by_group = divide_in(d, s->n_heads / s->n_kv_heads, groups);
    if (by_group <= by_head && isfinite(by_group)) memcpy(d->out, groups, d->n * sizeof *groups);
    return isfinite(by_group) || isfinite(by_head);
}

/* Bytes of attention and KV cache that rank i has by now. */
static double taken(const struct division *d, u32 i) {
    const struct msg_shape *s = &d->w->q->model->shape;
    const struct msg_slice *c = &d->out[i];
    double kv = kv_heads(d, c);
    return d->attn * (c->head_end - c->head_first + kv) / (s->n_heads + s->n_kv_heads) +
           d->kv * kv / s->n_kv_heads;
}

/* n elements in steps of `step` (the last may be shorter) worth `bytes`, by what memory is left. */
static bool divide_rest(struct division *d, u32 n, u32 step, double bytes, const double *left,
                        double part, bool is_ff) {
    u64 n_units = (n + step - 1) / step, at = 0;
    for (u32 i = 0; i < d->n; i++) {
        double units = bytes > 0 ? left[i] * part / (bytes / (double)n_units) : 1e15;
        d->cap[i] = units < 1 ? 0 : (u64)fmin(units, (double)n_units);
    }
    if (!place_share_out(n_units, d->speed, d->cap, d->n, d->got)) return false;
    for (u32 i = 0; i < d->n; i++) {
        u32 first = (u32)MIN(at * step, n), end = (u32)MIN((at + d->got[i]) * step, n);
        at += d->got[i];
        if (is_ff) {
            d->out[i].ff_first = first;
            d->out[i].ff_end = end;
        } else {
            d->out[i].vocab_first = first;
            d->out[i].vocab_end = end;
        }
    }
    return true;
}

static bool divide(struct division *d, double *left) {
    const struct msg_model *m = d->w->q->model;
    double rest = d->ff + d->vocab;
    if (!divide_heads(d)) return false;
    bool fits = true;
    for (u32 i = 0; i < d->n; i++) {
        left[i] = d->room[i] - taken(d, i);
        if (left[i] > rest / 1000) continue;
        fits = false;
        d->trust[i] *= 0.8;
    }
    if (!fits) return false;
    if (!divide_rest(d, m->shape.n_ff, MAX(m->shape.ff_step, 1u), d->ff, left,
                     rest > 0 ? d->ff / rest : 1, true))
        return false;
    for (u32 i = 0; i < d->n; i++)
        left[i] -= d->ff * (d->out[i].ff_end - d->out[i].ff_first) / m->shape.n_ff;
    if (m->n_vocab < d->n * VOCAB_STEP) return false;
    return divide_rest(d, m->n_vocab, VOCAB_STEP, d->vocab, left, 1, false);
}

bool place_slices(const struct place_work *w, const u32 *nodes, u32 n, u32 n_layers, bool is_first,
                  bool is_last, const struct place_load *load, struct msg_slice *out) {
    struct arena tmp = {0};
    struct division d = {.w = w, .n = n, .out = out};
    if (!w->can_slice) return false;
    double *left = arena_array(&tmp, n, sizeof *left);
    d.room = arena_array(&tmp, n, sizeof *d.room);
    d.speed = arena_array(&tmp, n, sizeof *d.speed);
    d.trust = arena_array(&tmp, n, sizeof *d.trust);
    d.cap = arena_array(&tmp, n, sizeof *d.cap);
    d.got = arena_array(&tmp, n, sizeof *d.got);
    measure(&d, nodes, n_layers, is_first, is_last, load);
    bool ok = false;
    for (u32 i = 0; i < TRIES && !(ok = divide(&d, left)); i++) {
    }
    arena_deinit(&tmp);
    return ok;
}
