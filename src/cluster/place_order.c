/* place_order.c - in which order, and in which groups. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/place_impl.h"

enum { ROUNDS = 30 };

static void permute(u32 *order, u32 at, u32 n, place_order_fn *fn, void *ctx) {
    if (at == n) {
        fn(ctx, order, n);
        return;
    }
    for (u32 i = at; i < n; i++) { /* takes the i-th next and keeps the others in sequence */
        u32 pick = order[i];
        memmove(order + at + 1, order + at, (i - at) * sizeof *order);
        order[at] = pick;
        permute(order, at + 1, n, fn, ctx);
        memmove(order + at, order + at + 1, (i - at) * sizeof *order);
        order[i] = pick;
    }
}

static double round_trip(const double *cost, const u32 *o, u32 n) {
    double sum = 0;
    for (u32 i = 0; i < n; i++) sum += cost[(size_t)o[i] * n + o[(i + 1) % n]];
    return sum;
}

static void nearest_next(const double *cost, u32 start, u32 *o, u32 n) {
    for (u32 i = 0; i < n; i++) o[i] = i;
    o[0] = start;
    o[start] = 0;
    for (u32 i = 1; i + 1 < n; i++) {
        u32 best = i;
        for (u32 j = i + 1; j < n; j++) {
            double d = cost[(size_t)o[i - 1] * n + o[j]] - cost[(size_t)o[i - 1] * n + o[best]];
            if (d < 0 || (d == 0 && o[j] < o[best])) best = j;
        }
        u32 t = o[i];
        o[i] = o[best];
        o[best] = t;
    }
}

static void reverse(u32 *o, u32 a, u32 b) {
    for (; a < b; a++, b--) {
        u32 t = o[a];
        o[a] = o[b];
        o[b] = t;
    }
}

/* Croes 1958: a piece is walked backwards when that makes the round shorter. The start stays. */
static void two_opt(const double *cost, u32 *o, u32 n) {
    double now = round_trip(cost, o, n);
    bool better = true;
    for (u32 k = 0; better && k < ROUNDS; k++) {
        better = false;
        for (u32 a = 1; a + 1 < n; a++)
            for (u32 b = a + 1; b < n; b++) {
                reverse(o, a, b);
                double t = round_trip(cost, o, n);
                if (t < now * (1 - 1e-9)) {
                    now = t;
                    better = true;
                } else {
                    reverse(o, a, b);
                }
            }
    }
}

static u32 fastest(const double *speed, u32 n) {
    u32 best = 0;
    for (u32 i = 1; i < n; i++)
        if (speed[i] > speed[best]) best = i;
    return best;
}

/* The node with the cheapest links altogether. */
static u32 central(const double *cost, u32 n) {
    u32 best = 0;
    double least = INFINITY;
    for (u32 i = 0; i < n; i++) {
        double sum = 0;
        for (u32 j = 0; j < n; j++) sum += cost[(size_t)i * n + j];
        if (sum >= least) continue;
        least = sum;
        best = i;
    }
    return best;
}

void place_orders(const double *cost, const double *speed, u32 n, u32 exact_max, u32 n_starts,
                  struct arena *mem, place_order_fn *fn, void *ctx) {
    u32 *o = arena_array(mem, n, sizeof *o);
    for (u32 i = 0; i < n; i++) o[i] = i;
    if (n <= exact_max) {
        permute(o, 0, n, fn, ctx);
        return;
    }
    const u32 likely[] = {0, fastest(speed, n), central(cost, n)};
    bool *tried = arena_array(mem, n, sizeof *tried);
    for (u32 s = 0; s < n_starts && s < n; s++) {
        u32 start = s < ARRAY_LEN(likely) ? likely[s] : s;
        if (tried[start]) continue;
        tried[start] = true;
        nearest_next(cost, start, o, n);
        two_opt(cost, o, n);
        fn(ctx, o, n);
    }
    for (u32 i = 0; i < n; i++) { /* the fast ones first, whatever lies between them */
        u32 at = i;
        for (; at > 0 && speed[o[at - 1]] < speed[i]; at--) o[at] = o[at - 1];
        o[at] = i;
    }
    fn(ctx, o, n);
}

struct pair {
    double cost;
    u32 a, b;
};

static int by_cost(const void *x, const void *y) {
    const struct pair *p = x, *q = y;
    if (p->cost != q->cost) return p->cost < q->cost ? -1 : 1;
    if (p->a != q->a) return p->a < q->a ? -1 : 1;
    return (p->b > q->b) - (p->b < q->b);
}

static u32 renumber(const u32 *root, u32 n, u32 *label) {
    u32 k = 0;
    for (u32 i = 0; i < n; i++) {
        u32 j = 0;
        while (j < i && root[j] != root[i]) j++;
        label[i] = j < i ? label[j] : k++;
    }
    return k;
}

void place_partitions(const double *cost, u32 n, u32 max, struct arena *mem, place_partition_fn *fn,
                      void *ctx) {
    if (n < 2) return;
    size_t n_pairs = (size_t)n * (n - 1) / 2, k = 0;
    struct pair *p = arena_array(mem, n_pairs, sizeof *p);
    u32 *root = arena_array(mem, n, sizeof *root), *label = arena_array(mem, n, sizeof *label);
    for (u32 a = 0; a < n; a++) {
        root[a] = a;
        for (u32 b = a + 1; b < n; b++)
            p[k++] = (struct pair){fmax(cost[(size_t)a * n + b], cost[(size_t)b * n + a]), a, b};
    }
    qsort(p, n_pairs, sizeof *p, by_cost);
    /* Of many levels the first ones and the last are looked at, and some between. */
    u32 every = MAX((n - 1 + max - 1) / max, 1u), joined = 0;
    for (size_t i = 0; i < n_pairs; i++) {
        u32 from = root[p[i].b], to = root[p[i].a];
        if (from == to) continue;
        for (u32 j = 0; j < n; j++)
            if (root[j] == from) root[j] = to;
        joined++;
        if (joined % every && joined != n - 1) continue;
        u32 n_groups = renumber(root, n, label);
        fn(ctx, label, n_groups);
    }
}
