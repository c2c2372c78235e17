/* place_dp.c - layers over stages: dynamic programming over (number of stages, group, layer). */
#include <math.h>
#include <string.h>

#include "cluster/place_impl.h"

/* best[k][j][l]: layers 0..l lie on k + 1 stages of which group j is the last. A group that is not
 * used costs nothing. */
struct table {
    u32 n, w; /* groups; layers + 1 */
    double *best;
    struct step {
        u16 group, layer; /* of the stage before */
    } * from;
    double *reach; /* [n][w] scratch: the best before group j, by number of stages and layer */
    struct step *via;
};

static size_t cell(const struct table *t, u32 k, u32 j, u32 l) {
    return ((size_t)k * t->n + j) * t->w + l;
}

static double join(enum place_aim aim, double a, double b) {
    return aim == AIM_SUM ? a + b : fmax(a, b);
}

/* For each number of stages k before group j: the best of their last groups, by layer. */
static void look_back(struct table *t, const double *pass, enum place_aim aim, u32 j) {
    for (u32 k = 0; k < j; k++) {
        double *reach = t->reach + (size_t)k * t->w;
        struct step *via = t->via + (size_t)k * t->w;
        for (u32 l = 0; l < t->w; l++) reach[l] = INFINITY;
        for (u32 i = k; i < j; i++) {
            const double *b = t->best + cell(t, k, i, 0);
            double p = pass[(size_t)i * t->n + j];
            for (u32 l = k + 1; l < t->w; l++) {
                double v = join(aim, b[l], p);
                if (v >= reach[l]) continue;
                reach[l] = v;
                via[l] = (struct step){(u16)i, (u16)l};
            }
        }
    }
}

static void extend(struct place_work *w, struct table *t, struct place_group *g, enum place_aim aim,
                   double most_s, u32 j) {
    for (u32 end = 2; end < t->w; end++)
        for (u32 first = end - 1; first > 0; first--) {
            double s = place_group_s(w, g, first, end);
            if (s > most_s || isinf(s)) break; /* more layers only make it worse */
            for (u32 k = 0; k < j; k++) {
                double v = join(aim, t->reach[(size_t)k * t->w + first], s);
                size_t at = cell(t, k + 1, j, end);
                if (v >= t->best[at]) continue;
                t->best[at] = v;
                t->from[at] = t->via[(size_t)k * t->w + first];
            }
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
    size_t cells = (size_t)n * n * width;
    struct table t = {.n = n, .w = width};
    t.best = arena_array(&tmp, cells, sizeof *t.best);
    t.from = arena_array(&tmp, cells, sizeof *t.from);
    t.reach = arena_array(&tmp, (size_t)n * width, sizeof *t.reach);
    t.via = arena_array(&tmp, (size_t)n * width, sizeof *t.via);
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
