/* place_dp.c - layers over stages: dynamic programming over (number of stages, group, layer). */
#include <math.h>
#include <string.h>

#include "cluster/place_impl.h"

/* best[j][l][k]: layers 0..l lie on k + 1 stages of which group j is the last. A group that is not
 * used costs nothing. Rows are by number of stages, because that is what the innermost loops go
 * over, in whole blocks. How a value came about is not kept but found again for the ways that are
 * asked for. */
enum { BLOCK = 8 };

struct table {
    struct place_work *w;
    struct place_group *const *order;
    const double *pass;
    enum place_aim aim;
    double most_s;
    u32 n, width, row; /* groups; layers + 1; stages, in blocks */
    double *best;
    double *reach; /* [width][row] scratch: the best before group j */
};

static size_t cell(const struct table *t, u32 k, u32 j, u32 l) {
    return ((size_t)j * t->width + l) * t->row + k;
}

static double join(enum place_aim aim, double a, double b) {
    return aim == AIM_SUM ? a + b : a > b ? a : b;
}

/* best[k] becomes a[k] and b together where that is less, for k below n and the rest of the block.
 * A block's length is known, so that compilers make vectors of it. */
static void keep_least(enum place_aim aim, const double *restrict a, double b, u32 n,
                       double *restrict best) {
    for (u32 k = 0; k < n; k += BLOCK, a += BLOCK, best += BLOCK) {
        if (aim == AIM_SUM)
            for (int i = 0; i < BLOCK; i++) best[i] = a[i] + b < best[i] ? a[i] + b : best[i];
        else
            for (int i = 0; i < BLOCK; i++) {
                double v = a[i] > b ? a[i] : b;
                best[i] = v < best[i] ? v : best[i];
            }
    }
}

/* The best ways that end before group j, by layer and number of stages. */
static void look_back(struct table *t, u32 j) {
    for (size_t i = 0; i < (size_t)t->width * t->row; i++) t->reach[i] = INFINITY;
    for (u32 i = 0; i < j; i++)
        for (u32 l = 1; l < t->width; l++)
            keep_least(t->aim, t->best + cell(t, 0, i, l), t->pass[(size_t)i * t->n + j],
                       MIN(MIN(i + 1, l), t->w->stages_max - 1), t->reach + (size_t)l * t->row);
}

static void extend(struct table *t, u32 j) {
    for (u32 end = 2; end < t->width; end++)
        for (u32 first = end - 1; first > 0; first--) {
            double s = place_group_s(t->w, t->order[j], first, end);
            if (s > t->most_s || isinf(s)) break; /* more layers only make it worse */
            u32 most = MIN(MIN(j, first), t->w->stages_max - 1);
            keep_least(t->aim, t->reach + (size_t)first * t->row, s, most,
                       t->best + cell(t, 1, j, end));
        }
}

/* The group before j whose layers end at `end`, as the last of k stages, and how good that is. */
static u32 group_before(const struct table *t, u32 k, u32 j, u32 end, double *value) {
    u32 best = 0;
    *value = INFINITY;
    for (u32 i = 0; i < j; i++) {
        double v = join(t->aim, t->best[cell(t, k - 1, i, end)], t->pass[(size_t)i * t->n + j]);
        if (v >= *value) continue;
        *value = v;
        best = i;
    }
    return best;
}

/* The k + 1 stages of the best way for all layers of which group j is the last. */
static void read_back(const struct table *t, u32 k, u32 j, struct place_stage *out) {
    u32 end = t->width - 1;
    for (; k > 0; k--) {
        double want = t->best[cell(t, k, j, end)], before;
        for (u32 first = end - 1;; first--) {
            ASSERT(first > 0);
            u32 i = group_before(t, k, j, first, &before);
            if (join(t->aim, before, place_group_s(t->w, t->order[j], first, end)) != want)
                continue;
            out[k] = (struct place_stage){.group = j, .layer_first = first, .layer_end = end};
            j = i;
            end = first;
            break;
        }
    }
    out[0] = (struct place_stage){.group = j, .layer_first = 0, .layer_end = end};
}

void place_dp(struct place_work *w, struct place_group *const *order, const double *pass,
              const double *back, u32 n, enum place_aim aim, double most_s,
              struct place_stage *stages, double *value) {
    struct arena tmp = {0};
    struct table t = {w, order, pass, aim, most_s, .n = n, .width = w->n_layers + 1};
    t.row = (u32)align_up(n, BLOCK) + BLOCK; /* a block may begin at 1 */
    size_t cells = (size_t)n * t.width * t.row;
    t.best = arena_array(&tmp, cells, sizeof *t.best);
    t.reach = arena_array(&tmp, (size_t)t.width * t.row, sizeof *t.reach);
    for (size_t i = 0; i < cells; i++) t.best[i] = INFINITY;
    for (u32 end = 1; end < t.width; end++) {
        double s = place_group_s(w, order[0], 0, end);
        if (s <= most_s) t.best[cell(&t, 0, 0, end)] = s;
    }
    for (u32 j = 1; j < n; j++) {
        look_back(&t, j);
        extend(&t, j);
    }
    for (u32 k = 0; k < n; k++) {
        u32 last = UINT32_MAX;
        double best = INFINITY;
        for (u32 j = k; j < n; j++) {
            double v = join(aim, t.best[cell(&t, k, j, t.width - 1)], j ? back[j] : 0);
            if (v >= best) continue;
            best = v;
            last = j;
        }
        value[k] = best;
        if (last != UINT32_MAX) read_back(&t, k, last, stages + (size_t)k * n);
    }
    arena_deinit(&tmp);
}
