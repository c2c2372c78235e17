#include "cluster/place.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/str.h"

u64 place_need_bytes(const struct place_model *m) {
    u64 sum = m->embed_bytes + m->head_bytes + m->scratch_bytes;
    for (u32 i = 0; i < m->n_layers; i++) sum += m->layer_bytes[i] + m->kv_bytes_per_layer;
    return sum;
}

/* The search over one list of nodes. best[r][l]: the time of the slowest of stages 0..r when they
 * hold layers 0..l; from[r][l]: where stage r begins. */
struct search {
    const struct place_model *m;
    const struct place_node *nodes;
    const u32 *use; /* [n] indices into nodes */
    u32 n;
    u64 *prefix; /* [n_layers + 1] weight bytes of the layers before */
    double *best;
    u32 *from;
};

static void stage_bytes(const struct search *s, u32 r, u32 first, u32 end, u64 *weights,
                        u64 *need) {
    u64 layers = s->prefix[end] - s->prefix[first];
    *weights = layers + (r == 0 ? s->m->embed_bytes : 0) + (r == s->n - 1 ? s->m->head_bytes : 0);
    *need = *weights + (end - first) * s->m->kv_bytes_per_layer + s->m->scratch_bytes;
}

static double stage_time(const struct search *s, u32 r, u32 first, u32 end) {
    const struct place_node *node = &s->nodes[s->use[r]];
    u64 weights, need;
    stage_bytes(s, r, first, end, &weights, &need);
    if (need > node->budget_bytes) return INFINITY;
    if (r == 0) weights -= s->m->embed_bytes;
    return (double)weights / node->speed;
}

/* False when no cut fits. Every stage gets at least one layer. */
static bool search_run(struct search *s) {
    u32 w = s->m->n_layers + 1;
    for (u32 r = 0; r < s->n; r++) {
        for (u32 end = 0; end < w; end++) {
            double *best = &s->best[r * w + end];
            *best = INFINITY;
            for (u32 first = r == 0 ? 0 : r; first < end; first++) {
                double before = r == 0 ? (first == 0 ? 0 : INFINITY) : s->best[(r - 1) * w + first];
                double t = fmax(before, stage_time(s, r, first, end));
                if (t >= *best) continue;
                *best = t;
                s->from[r * w + end] = first;
            }
        }
    }
    return isfinite(s->best[s->n * w - 1]);
}

static void search_read(const struct search *s, struct place_rank *ranks) {
    u32 w = s->m->n_layers + 1, end = s->m->n_layers;
    for (u32 r = s->n; r-- > 0;) {
        struct place_rank *k = &ranks[r];
        *k = (struct place_rank){
            .node = s->use[r], .layer_first = s->from[r * w + end], .layer_end = end};
        stage_bytes(s, r, k->layer_first, end, &k->weights_bytes, &k->need_bytes);
        end = k->layer_first;
    }
}

/* Takes the node with the smallest budget out of the list; of equals the last. */
static void drop_smallest(const struct place_node *nodes, u32 *use, u32 *n) {
    u32 at = 0;
    for (u32 i = 1; i < *n; i++)
        if (nodes[use[i]].budget_bytes <= nodes[use[at]].budget_bytes) at = i;
    memmove(use + at, use + at + 1, (*n - at - 1) * sizeof *use);
    --*n;
}

static bool refuse(const struct place_model *m, const struct place_node *nodes, u32 n,
                   u32 min_nodes, struct err *e) {
    if (n == 0) return err_set(e, ERR_BUSY, "no worker node is there");
    if (n < min_nodes)
        return err_set(e, ERR_BUSY, "needs %u nodes, %u %s there: start more with `skein up`",
                       min_nodes, n, n == 1 ? "is" : "are");
    if (min_nodes > m->n_layers)
        return err_set(e, ERR_ARG, "%u nodes were asked for, but the model has only %u layers",
                       min_nodes, m->n_layers);
    u64 free_bytes = 0;
    struct str each = {0};
    char a[32], b[32];
    for (u32 i = 0; i < n; i++) {
        free_bytes += nodes[i].budget_bytes;
        if (i < 8)
            str_addf(&each, "%s%s %s", i ? ", " : "", nodes[i].name,
                     size_text(nodes[i].budget_bytes, a));
    }
    err_set(e, ERR_MEMORY,
            "needs %s, the cluster has %s free on %u node%s (%s): use a smaller quantization or "
            "context, or add a node",
            size_text(place_need_bytes(m), a), size_text(free_bytes, b), n, n == 1 ? "" : "s",
            str_z(&each));
    str_deinit(&each);
    return false;
}

bool place_pipeline(const struct place_model *m, const struct place_node *nodes, u32 n_nodes,
                    u32 min_nodes, struct place_rank *ranks, u32 *n_ranks, struct err *e) {
    ASSERT(m->n_layers > 0);
    if (n_nodes < MAX(min_nodes, 1) || min_nodes > m->n_layers)
        return refuse(m, nodes, n_nodes, min_nodes, e);
    size_t cells = (size_t)n_nodes * (m->n_layers + 1);
    u32 *use = xcalloc(n_nodes, sizeof *use);
    struct search s = {.m = m, .nodes = nodes, .use = use, .n = n_nodes};
    s.prefix = xcalloc(m->n_layers + 1, sizeof *s.prefix);
    s.best = xcalloc(cells, sizeof *s.best);
    s.from = xcalloc(cells, sizeof *s.from);
    for (u32 i = 0; i < n_nodes; i++) use[i] = i;
    for (u32 i = 0; i < m->n_layers; i++) s.prefix[i + 1] = s.prefix[i] + m->layer_bytes[i];

    bool found = false;
    while (s.n > m->n_layers) drop_smallest(nodes, use, &s.n);
    while (!(found = search_run(&s)) && s.n > MAX(min_nodes, 1)) drop_smallest(nodes, use, &s.n);
    if (found) {
        search_read(&s, ranks);
        *n_ranks = s.n;
    }
    free(use);
    free(s.prefix);
    free(s.best);
    free(s.from);
    return found || refuse(m, nodes, n_nodes, min_nodes, e);
}
