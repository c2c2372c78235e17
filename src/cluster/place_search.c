/* place_search.c - proposes layouts and keeps the best of each kind. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/place_impl.h"

enum {
    SMALL = 12,     /* nodes: up to here time does not matter */
    LEVELS_MAX = 8, /* beyond: partitions by closeness that are looked at */
    EXACT_MAX = 5,  /* nodes: all orders; where two things are weighed, one fewer */
    CLASSES = SHARDING_HYBRID + 1
};

struct search {
    struct place_work *w;
    struct place_load load;
    struct place_plan *best; /* [CLASSES][n_nodes + 1]; no ranks: none */
    double *cost;            /* [n_nodes][n_nodes] of passing hidden states */
    double *speed;           /* [n_nodes] */
    u32 n;
    /* the groups of the present partition */
    struct place_group *groups;
    u32 n_groups;
    double *pass, *group_speed;
};

static u32 class_of(const struct place_rank *r, u32 n) {
    bool sliced = false;
    for (u32 i = 0; i < n; i++) sliced |= r[i].tp_ranks > 1;
    return !sliced ? SHARDING_PIPELINE : r[0].tp_ranks == n ? SHARDING_TENSOR : SHARDING_HYBRID;
}

static struct place_plan *slot(const struct search *s, u32 sharding, u32 n_nodes) {
    return &s->best[(size_t)sharding * (s->n + 1) + n_nodes];
}

/* Copies what is better than what there was. */
static void offer(struct search *s, const struct place_rank *ranks, u32 n) {
    const struct place_ask *q = s->w->q;
    struct place_plan p = {.n_ranks = n, .sharding = class_of(ranks, n)};
    struct place_plan *old = slot(s, p.sharding, n);
    p.t = place_price(s->w, ranks, n, q->n_ctx / 2.0);
    if (old->ranks && place_score(q, &p.t) >= place_score(q, &old->t) * (1 - 1e-9)) return;
    p.ranks = old->ranks ? old->ranks : arena_array(s->w->mem, n, sizeof *p.ranks);
    memcpy(p.ranks, ranks, n * sizeof *ranks);
    for (u32 i = 0; i < n; i++) place_fill_bytes(s->w, &p.ranks[i]);
    *old = p;
}

static void offer_stages(struct search *s, struct place_group *const *order,
                         const struct place_stage *st, u32 n_stages) {
    struct arena tmp = {0};
    struct place_rank *r = arena_array(&tmp, s->n, sizeof *r);
    u32 n = 0;
    for (u32 i = 0; i < n_stages; i++) {
        struct place_group *g = order[st[i].group];
        const struct msg_slice *c = place_group_slices(s->w, g, st[i].layer_first, st[i].layer_end);
        for (u32 k = 0, first = n; k < g->n; k++)
            r[n++] = (struct place_rank){.node = g->nodes[k],
                                         .layer_first = st[i].layer_first,
                                         .layer_end = st[i].layer_end,
                                         .tp_first = first,
                                         .tp_ranks = g->n,
                                         .slice = c ? c[k] : (struct msg_slice){0}};
    }
    offer(s, r, n);
    arena_deinit(&tmp);
}

/* One order of the groups. */
struct laid {
    struct place_group **order;
    double *pass, *back, *value;
    struct place_stage *stages;
};

static void lay(struct search *s, const struct laid *l, u32 n, enum place_aim aim, double most_s) {
    place_dp(s->w, l->order, l->pass, l->back, n, aim, most_s, l->stages, l->value);
    bool exact = aim == AIM_SUM && s->w->q->goal == GOAL_LATENCY && s->w->q->balance <= 0;
    for (u32 k = 0; k < n; k++) {
        if (isinf(l->value[k])) continue;
        const struct place_plan *old = slot(s, SHARDING_PIPELINE, k + 1);
        bool known = exact && s->n_groups == s->n && old->ranks && l->value[k] >= old->t.token_s;
        if (!known) offer_stages(s, l->order, l->stages + (size_t)k * n, k + 1);
    }
}

/* Throughput and time to the first token want both: a short way and no long stage. So the shortest
 * ways are searched among those whose longest stage is not much longer than it must be. */
static void sweep(struct search *s, const struct laid *l, u32 n) {
    static const double SLACK[] = {1.0001, 1.05, 1.15, 1.3, 1.6, 2};
    double *longest = arena_array(s->w->mem, n, sizeof *longest);
    lay(s, l, n, AIM_MAX, INFINITY);
    memcpy(longest, l->value, n * sizeof *longest);
    bool fully = n < EXACT_MAX && s->n_groups == s->n;
    u32 top = UINT32_MAX; /* of many nodes only the most promising number of stages */
    for (u32 k = 0; k < n; k++)
        if (isfinite(longest[k]) &&
            (top == UINT32_MAX || longest[k] * (k + 1) < longest[top] * (top + 1)))
            top = k;
    for (u32 k = 0; k < n; k++) {
        if (isinf(longest[k]) || (!fully && k != top)) continue;
        for (size_t i = 0; i < ARRAY_LEN(SLACK); i += fully ? 1 : 3)
            lay(s, l, n, AIM_SUM, longest[k] * SLACK[i]);
    }
}

/* The same for latency, where the longest stage counts little: for each number of stages the most
 * even way, and a short one among the fairly even. */
static void even_out(struct search *s, const struct laid *l, u32 n) {
    double *longest = arena_array(s->w->mem, n, sizeof *longest);
    lay(s, l, n, AIM_MAX, INFINITY);
    memcpy(longest, l->value, n * sizeof *longest);
    for (u32 k = 1; k < n && n <= SMALL; k++)
        if (isfinite(longest[k])) lay(s, l, n, AIM_SUM, longest[k] * 1.15);
}

static void try_order(void *ctx, const u32 *order, u32 n) {
    struct search *s = ctx;
    struct arena tmp = {0};
    struct laid l = {.order = arena_array(&tmp, n, sizeof *l.order)};
    l.pass = arena_array(&tmp, (size_t)n * n, sizeof *l.pass);
    l.back = arena_array(&tmp, n, sizeof *l.back);
    l.value = arena_array(&tmp, n, sizeof *l.value);
    l.stages = arena_array(&tmp, (size_t)n * n, sizeof *l.stages);
    for (u32 i = 0; i < n; i++) {
        l.order[i] = &s->groups[order[i]];
        l.back[i] =
            place_return_s(s->w, s->groups[order[i]].nodes[0], s->groups[order[0]].nodes[0]);
        for (u32 j = 0; j < n; j++)
            l.pass[(size_t)i * n + j] = s->pass[(size_t)order[i] * n + order[j]];
    }
    lay(s, &l, n, AIM_SUM, INFINITY);
    if (s->w->q->goal != GOAL_LATENCY)
        sweep(s, &l, n);
    else if (s->w->q->balance > 0 && n > 1)
        even_out(s, &l, n);
    arena_deinit(&tmp);
}

/* Nodes by their label into groups, laid in all orders that are worth it. */
static void try_partition(void *ctx, const u32 *label, u32 n_groups) {
    struct search *s = ctx;
    struct arena *mem = s->w->mem;
    /* As many sequences a step as n_groups stages leave each, or more. */
    if (s->w->q->goal == GOAL_THROUGHPUT && s->load.n_seq * n_groups < s->w->q->n_batch) return;
    s->groups = arena_array(mem, n_groups, sizeof *s->groups);
    s->n_groups = n_groups;
    s->pass = arena_array(mem, (size_t)n_groups * n_groups, sizeof *s->pass);
    s->group_speed = arena_array(mem, n_groups, sizeof *s->group_speed);
    for (u32 g = 0; g < n_groups; g++) {
        u32 *nodes = arena_array(mem, s->n, sizeof *nodes), n = 0;
        for (u32 i = 0; i < s->n; i++) {
            if (label[i] != g) continue;
            nodes[n++] = i;
            s->group_speed[g] += s->speed[i];
        }
        place_group_init(s->w, &s->groups[g], nodes, n, &s->load);
    }
    for (u32 i = 0; i < n_groups; i++)
        for (u32 j = 0; j < n_groups; j++) {
            const struct place_group *a = &s->groups[i], *b = &s->groups[j];
            s->pass[(size_t)i * n_groups + j] =
                i == j ? 0 : place_pass_s(s->w, a->nodes, a->n, b->nodes, b->n, &s->load);
        }
    bool alone = n_groups == s->n, quick = s->w->q->goal == GOAL_LATENCY;
    u32 exact = !alone ? 3 : quick ? EXACT_MAX : EXACT_MAX - 1;
    u32 n_starts = !alone ? 1 : !quick ? 2 : s->n <= SMALL ? s->n : 3;
    place_orders(s->pass, s->group_speed, n_groups, exact, n_starts, mem, try_order, s);
}

/* All layers on one tensor group. */
static void try_tensor(struct search *s, const u32 *nodes, u32 n) {
    struct place_group g, *order[] = {&g};
    struct place_stage all = {0, 0, s->w->n_layers};
    u32 *own = arena_array(s->w->mem, n, sizeof *own);
    memcpy(own, nodes, n * sizeof *own);
    place_group_init(s->w, &g, own, n, &s->load);
    if (isfinite(place_group_s(s->w, &g, 0, s->w->n_layers))) offer_stages(s, order, &all, 1);
}

/* The fastest 2, 3, ... of the nodes in the mask (by label), in the order of the nodes. */
static void try_fastest(struct search *s, const u32 *label, u32 of) {
    struct arena tmp = {0};
    u32 *by_speed = arena_array(&tmp, s->n, sizeof *by_speed), n = 0;
    u32 *pick = arena_array(&tmp, s->n, sizeof *pick);
    for (u32 i = 0; i < s->n; i++) {
        if (label[i] != of) continue;
        u32 at = n++;
        for (; at > 0 && s->speed[by_speed[at - 1]] < s->speed[i]; at--)
            by_speed[at] = by_speed[at - 1];
        by_speed[at] = i;
    }
    for (u32 k = 2; k <= n; k++) {
        u32 m = 0;
        for (u32 i = 0; i < s->n; i++)
            for (u32 j = 0; j < k; j++)
                if (by_speed[j] == i) pick[m++] = i;
        try_tensor(s, pick, m);
    }
    arena_deinit(&tmp);
}

struct tensor_try {
    struct search *s;
    bool tensor, hybrid;
};

static void try_level(void *ctx, const u32 *label, u32 n_groups) {
    const struct tensor_try *t = ctx;
    u32 *size = arena_array(t->s->w->mem, n_groups, sizeof *size);
    for (u32 i = 0; i < t->s->n; i++) size[label[i]]++;
    for (u32 g = 0; t->tensor && g < n_groups; g++)
        if (size[g] > 1) try_fastest(t->s, label, g);
    if (t->hybrid && n_groups > 1) try_partition(t->s, label, n_groups);
}

/* Groups of equal size: where all links are alike, closeness says nothing. */
static void try_even(struct search *s) {
    struct arena tmp = {0};
    u32 *label = arena_array(&tmp, s->n, sizeof *label), last = 0;
    for (u32 size = 2; size <= s->n / 2; size += s->n <= SMALL ? 1 : (size + 1) / 2) {
        u32 n_groups = (s->n + size - 1) / size;
        if (n_groups == last) continue;
        last = n_groups;
        for (u32 i = 0; i < s->n; i++) label[i] = i * n_groups / s->n;
        try_partition(s, label, n_groups);
        for (u32 i = 0; i < s->n; i++) label[i] = i % n_groups;
        if (s->n <= SMALL) try_partition(s, label, n_groups);
    }
    arena_deinit(&tmp);
}

static void search_once(struct search *s, u32 sharding) {
    const struct place_work *w = s->w;
    struct arena *mem = w->mem;
    u32 *label = arena_array(mem, s->n, sizeof *label);
    for (u32 i = 0; i < s->n; i++) {
        label[i] = i;
        s->speed[i] = 1 / place_layer_s(w, &i, 1, &PLACE_WHOLE, &s->load, w->n_layers / 2, NULL);
        for (u32 j = 0; j < s->n; j++)
            s->cost[(size_t)i * s->n + j] = i == j ? 0 : place_pass_s(w, &i, 1, &j, 1, &s->load);
    }
    if (sharding == SHARDING_AUTO || sharding == SHARDING_PIPELINE) try_partition(s, label, s->n);
    struct tensor_try t = {.s = s,
                           .tensor = sharding == SHARDING_AUTO || sharding == SHARDING_TENSOR,
                           .hybrid = sharding == SHARDING_AUTO || sharding == SHARDING_HYBRID};
    if (!w->can_slice || s->n < 2) return;
    if (t.tensor || t.hybrid)
        place_partitions(s->cost, s->n, s->n <= SMALL ? s->n : LEVELS_MAX, mem, try_level, &t);
    if (t.hybrid && s->n > 2) try_even(s);
}

void place_find(struct place_work *w, u32 sharding, struct place_plan *best) {
    const struct place_ask *q = w->q;
    struct search s = {.w = w, .n = q->n_nodes, .best = best};
    s.cost = arena_array(w->mem, (size_t)s.n * s.n, sizeof *s.cost);
    s.speed = arena_array(w->mem, s.n, sizeof *s.speed);
    if (q->goal == GOAL_TTFT) {
        s.load = place_prefill_load(q, 2); /* of one stage the proportions are the same */
        search_once(&s, sharding);
        return;
    }
    /* How many sequences share a step depends on the number of stages that is to be found. */
    u32 batch = q->goal == GOAL_THROUGHPUT ? MAX(q->n_batch, 1u) : 1, last = 0;
    for (u32 m = 1; m <= batch; m++) {
        u32 b = (batch + m - 1) / m;
        if (b == last || (s.n > SMALL && m > 1 && b > 1)) continue;
        last = b;
        /* Where there are more stages than requests each has one at a time: another b. */
        w->stages_max = s.n > SMALL && b > 1 ? batch : s.n;
        s.load = place_decode_load(q, b, q->n_ctx / 2.0);
        search_once(&s, sharding);
    }
}
