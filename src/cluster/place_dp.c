/* place_dp.c - layers over stages: dynamic programming over (number of stages, group, layer). */
#include <math.h>
#include <string.h>

#include "cluster/place_impl.h"

/* best[j][l][k]: layers 0..l lie on k + 1 stages of which group j is the last. A group that is not
 * used costs nothing. Rows are by number of stages, because that is what the innermost loops go
 * over: a row is padded to whole vectors. */
enum { LANES = 2 };
typedef double lanes __attribute__((vector_size(LANES * sizeof(double))));
typedef i64 choice __attribute__((vector_size(LANES * sizeof(double))));

struct table {
    u32 n, w, row; /* groups; layers + 1; stages, padded */
    double *best;
    struct step {
        u16 group, layer; /* of the stage before */
    } * from;
    double *reach; /* [w][row] scratch: the best before group j */
    i64 *via;      /* [w][row] the last of its groups */
    i64 *cut;      /* [row] scratch: where j's layers begin */
};

static size_t cell(const struct table *t, u32 k, u32 j, u32 l) {
    return ((size_t)j * t->w + l) * t->row + k;
}

static double join(enum place_aim aim, double a, double b) {
    return aim == AIM_SUM ? a + b : a > b ? a : b;
}

static inline lanes either(choice which, lanes a, lanes b) {
    return (lanes)((which & (choice)a) | (~which & (choice)b));
}

/* For k below n, and what lies in the same vector: where a[k] and b together are less than
 * best[k], they become it, and which[k] becomes what. */
static void keep_least(enum place_aim aim, const double *a, double b, i64 what, u32 n, double *best,
                       i64 *which) {
    for (u32 k = 0; k < n; k += LANES) {
        lanes v, old;
        choice kept;
        memcpy(&v, a + k, sizeof v);
        memcpy(&old, best + k, sizeof old);
        memcpy(&kept, which + k, sizeof kept);
        v = aim == AIM_SUM ? v + b : either(v > b, v, (lanes){0} + b);
        choice less = v < old;
        old = either(less, v, old);
        kept = (less & what) | (~less & kept);
        memcpy(best + k, &old, sizeof old);
        memcpy(which + k, &kept, sizeof kept);
    }
}

/* The best ways that end before group j, by layer and number of stages. */
static void look_back(struct table *t, const double *pass, enum place_aim aim, u32 j) {
    for (size_t i = 0; i < (size_t)t->w * t->row; i++) t->reach[i] = INFINITY;
    for (u32 i = 0; i < j; i++)
        for (u32 l = 1; l < t->w; l++)
            keep_least(aim, t->best + cell(t, 0, i, l), pass[(size_t)i * t->n + j], i,
                       MIN(i + 1, l), t->reach + (size_t)l * t->row, t->via + (size_t)l * t->row);
}

static void extend(struct place_work *w, struct table *t, struct place_group *g, enum place_aim aim,
                   double most_s, u32 j) {
    for (u32 end = 2; end < t->w; end++) {
        double *best = t->best + cell(t, 1, j, end);
        for (u32 first = end - 1; first > 0; first--) {
            double s = place_group_s(w, g, first, end);
            if (s > most_s || isinf(s)) break; /* more layers only make it worse */
            keep_least(aim, t->reach + (size_t)first * t->row, s, first, MIN(j, first), best,
                       t->cut);
        }
        for (u32 k = 0; k < MIN(j, end); k++)
            if (best[k] < INFINITY)
                t->from[cell(t, k + 1, j, end)] =
                    (struct step){(u16)t->via[(size_t)t->cut[k] * t->row + k], (u16)t->cut[k]};
    }
}

static void read_back(const struct table *t, u32 k, u32 j, struct place_stage *out) {
    u32 end = t->w - 1;
    for (;; k--) {
        struct step s = k ? t->from[cell(t, k, j, end)] : (struct step){0, 0};
        out[k] = (struct place_stage){.group = j, .layer_first = s.layer, .layer_end = end};
        if (k == 0) return;
        j = s.group;
        end = s.layer;
    }
}

void place_dp(struct place_work *w, struct place_group *const *order, const double *pass,
              const double *back, u32 n, enum place_aim aim, double most_s,
              struct place_stage *stages, double *value) {
    struct arena tmp = {0};
    u32 width = w->n_layers + 1;
    struct table t = {.n = n, .w = width, .row = (u32)align_up(n + 1, LANES) + LANES};
    size_t cells = (size_t)n * width * t.row;
    t.best = arena_array(&tmp, cells, sizeof *t.best);
    t.from = arena_array(&tmp, cells, sizeof *t.from);
    t.reach = arena_array(&tmp, (size_t)width * t.row, sizeof *t.reach);
    t.via = arena_array(&tmp, (size_t)width * t.row, sizeof *t.via);
    t.cut = arena_array(&tmp, t.row, sizeof *t.cut);
    for (size_t i = 0; i < cells; i++) t.best[i] = INFINITY;
    for (u32 end = 1; end < width; end++) {
        double s = place_group_s(w, order[0], 0, end);
        if (s <= most_s) t.best[cell(&t, 0, 0, end)] = s;
    }
    for (u32 j = 1; j < n; j++) {
        look_back(&t, pass, aim, j);
        extend(w, &t, order[j], aim, most_s, j);
    }
    for (u32 k = 0; k < n; k++) {
        u32 last = UINT32_MAX;
        double best = INFINITY;
        for (u32 j = k; j < n; j++) {
            double v = join(aim, t.best[cell(&t, k, j, width - 1)], j ? back[j] : 0);
            if (v >= best) continue;
            best = v;
            last = j;
        }
        value[k] = best;
        if (last != UINT32_MAX) read_back(&t, k, last, stages + (size_t)k * n);
    }
    arena_deinit(&tmp);
}
