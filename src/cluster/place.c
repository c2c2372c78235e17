#include "cluster/place.h"

#include <math.h>
#include <string.h>

#include "base/str.h"
#include "cluster/place_impl.h"

u64 place_need_bytes(const struct place_ask *q) {
    const struct msg_model *m = q->model;
    u64 sum = m->embed_bytes + m->head_bytes - m->tied_bytes + q->scratch_bytes +
              m->n_layers * m->kv_bytes_per_token_layer * q->kv_tokens;
    for (u32 i = 0; i < m->n_layers; i++) sum += m->layer_bytes.v[i];
    return sum;
}

static const char *plural(u32 n) {
    return n == 1 ? "" : "s";
}

/* Fewer nodes than this can't be sharded so. */
static u32 least_nodes(u32 sharding) {
    return sharding == SHARDING_TENSOR ? 2 : sharding == SHARDING_HYBRID ? 3 : 1;
}

/* Why a sharding is out of the question, whatever memory there is. */
static bool check_sharding(const struct place_work *w, struct err *e) {
    const struct place_ask *q = w->q;
    const struct msg_shape *s = &q->model->shape;
    bool sliced = q->sharding == SHARDING_TENSOR || q->sharding == SHARDING_HYBRID;
    if (sliced && !w->can_slice)
        return err_set(e, ERR_UNSUPPORTED,
                       "tensor sharding: the layers of this model can't be sliced by heads");
    if (q->sharding == SHARDING_TENSOR && q->min_nodes > s->n_heads)
        return err_set(e, ERR_ARG,
                       "%u nodes were asked for, but the model has only %u attention heads to "
                       "share",
                       q->min_nodes, s->n_heads);
    if (q->sharding == SHARDING_PIPELINE && q->min_nodes > q->model->n_layers)
        return err_set(e, ERR_ARG, "%u nodes were asked for, but the model has only %u layers",
                       q->min_nodes, q->model->n_layers);
    u32 least = least_nodes(q->sharding);
    if (q->n_nodes < least)
        return err_set(e, ERR_BUSY, "%s sharding needs %u nodes, %u %s there",
                       least == 2 ? "tensor" : "hybrid", least, q->n_nodes,
                       q->n_nodes == 1 ? "is" : "are");
    return true;
}

/* The smallest piece that can be given to a node at all. */
static u64 least_bytes(const struct place_work *w) {
    u64 least = UINT64_MAX;
    for (u32 i = 0; i < w->n_layers; i++) least = MIN(least, w->bytes[i + 1] - w->bytes[i]);
    return least + w->kv_layer_bytes + w->q->scratch_bytes;
}

static bool refuse_memory(const struct place_work *w, struct err *e) {
    const struct place_ask *q = w->q;
    u64 need = place_need_bytes(q), free_bytes = 0;
    struct str each = {0};
    char a[32], b[32], c[32];
    for (u32 i = 0; i < q->n_nodes; i++) {
        free_bytes += q->nodes[i].budget_bytes;
        if (i < 8)
            str_addf(&each, "%s%s %s", i ? ", " : "", q->nodes[i].name,
                     size_text(q->nodes[i].budget_bytes, a));
    }
    if (q->n_nodes > 8) str_addz(&each, ", ...");
    bool pieces = need <= free_bytes && q->n_nodes > 1;
    err_set(e, ERR_MEMORY,
            "needs %s, the cluster has %s free on %u node%s (%s)%s%s%s: use a smaller quantization "
            "or context, or add a node",
            size_text(need, a), size_text(free_bytes, b), q->n_nodes, plural(q->n_nodes),
            str_z(&each), pieces ? ", in pieces that no split fits: one layer alone needs " : "",
            pieces ? size_text(least_bytes(w), c) : "",
            q->min_nodes > 1 && pieces ? ", on each of the nodes asked for" : "");
    str_deinit(&each);
    return false;
}

/* Of the sharding that was asked for, over enough nodes. A hybrid of one group is none. */
static bool is_asked(const struct place_ask *q, const struct place_plan *p) {
    return p->ranks && p->n_ranks >= q->min_nodes &&
           (q->sharding == SHARDING_AUTO || p->sharding == q->sharding);
}

static bool refuse(const struct place_work *w, struct err *e) {
    const struct place_ask *q = w->q;
    if (q->n_nodes == 0) return err_set(e, ERR_BUSY, "no worker node is there");
    if (q->n_nodes < q->min_nodes)
        return err_set(e, ERR_BUSY, "needs %u nodes, %u %s there: start more with `skein up`",
                       q->min_nodes, q->n_nodes, q->n_nodes == 1 ? "is" : "are");
    if (!check_sharding(w, e)) return false;
    if (q->min_nodes > q->model->n_layers && !w->can_slice)
        return err_set(e, ERR_ARG, "%u nodes were asked for, but the model has only %u layers",
                       q->min_nodes, q->model->n_layers);
    struct place_ask plenty = *q; /* would it work if memory were no matter? */
    struct place_work any = *w;
    plenty.force = true;
    any.q = &plenty;
    struct place_plan *best = arena_array(w->mem, 4 * ((size_t)q->n_nodes + 1), sizeof *best);
    bool possible = false;
    place_find(&any, q->sharding, best);
    for (size_t i = 0; i < 4 * ((size_t)q->n_nodes + 1); i++) possible |= is_asked(q, &best[i]);
    if (q->force || !possible)
        return err_set(e, ERR_ARG,
                       "%u nodes were asked for, but the model's %u layers, %u KV heads and %u "
                       "blocks of its feed-forward part can't be divided among so many",
                       MAX(q->min_nodes, least_nodes(q->sharding)), q->model->n_layers,
                       q->model->shape.n_kv_heads,
                       q->model->shape.n_ff / MAX(q->model->shape.ff_step, 1u));
    return refuse_memory(w, e);
}

static bool is_possible(const struct place_work *w) {
    return w->q->n_nodes && w->q->n_nodes >= w->q->min_nodes && check_sharding(w, NULL);
}

bool place_best(const struct place_ask *q, struct arena *a, struct place_plan *best,
                struct err *e) {
    ASSERT(q->model->n_layers > 0);
    struct place_work w;
    place_work_init(&w, q, a);
    size_t n = 4 * ((size_t)q->n_nodes + 1);
    struct place_plan *all = arena_array(a, n, sizeof *all), *top = NULL;
    if (is_possible(&w)) place_find(&w, q->sharding, all);
    for (size_t i = 0; i < n; i++) { /* of equal ones the simpler kind with fewer nodes */
        if (!is_asked(q, &all[i])) continue;
        if (!top || place_score(q, &all[i].t) < place_score(q, &top->t) * (1 - 1e-6)) top = &all[i];
    }
    if (!top) return refuse(&w, e);
    *best = *top;
    return true;
}

u32 place_all(const struct place_ask *q, struct arena *a, struct place_plan **plans) {
    struct place_work w;
    place_work_init(&w, q, a);
    size_t n = 4 * ((size_t)q->n_nodes + 1);
    struct place_plan *all = arena_array(a, n, sizeof *all);
    u32 k = 0;
    if (is_possible(&w)) place_find(&w, q->sharding, all);
    for (size_t i = 0; i < n; i++)
        if (is_asked(q, &all[i])) all[k++] = all[i];
    *plans = all;
    return k;
}
