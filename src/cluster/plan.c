#include "cluster/plan.h"

#include <math.h>
#include <string.h>

#include "cluster/parts.h"

enum {
    CTX_DEFAULT = 8192, /* where nobody asked, and the model has more */
    CTX_LEAST = 2048,   /* it is halved down to this when memory is short */
    KV_CONTEXTS = 4,    /* whole contexts of KV that a shard gets room for, if there is room */
    PROMPT = 1024,      /* tokens of the prompt whose first token is waited for */
    BATCH = 8,          /* requests at once, for throughput, where nobody said */
};
/* Of what nobody measured yet: a core's share of memory bandwidth and of products, and links. */
static const double CORE_READ = 4e9, OPS_A_READ = 12;
/* What a runner reaches of the figures of a node that does not tell its products format by format:
 * weights stream at 0.8 of the bandwidth; two thirds of a product of bytes, half of one of floats.
 */
static const double READ_REACHED = 0.8, INT_REACHED = 0.66, FLOAT_REACHED = 0.5;
/* How much an even division counts beside the time per token: as soon as two requests come at once,
 * the longest stage decides. */
const double PLAN_BALANCE = 0.1;
static const struct place_link LAN = {150e-6, 1e8}, INSIDE = {15e-6, 2e9};

/* Activations of 512 tokens at about 20 values a dimension, logits of 16 sequences, and what a
 * process takes anyway. An estimate: the runner does the exact sum before it loads. */
static u64 scratch_bytes(const struct msg_model *d) {
    return ((u64)32 << 20) + (u64)d->dim * 512 * 20 * 4 + (u64)d->n_vocab * 16 * 4;
}

static bool listed(const struct wire_list *l, const char *id) {
    const struct msg_string *s = l->v;
    for (u64 i = 0; i < l->n; i++)
        if (same(s[i].s, id)) return true;
    return false;
}

/* A worker that is there, and that w does not rule out. */
static bool is_meant(const struct cluster *c, const struct member *m, const struct msg_wanted *w,
                     u64 now_ms) {
    return m->hello.is_worker && members_live(c, m, now_ms) && !listed(&w->wish.exclude, m->id) &&
           (!w->wish.nodes.n || listed(&w->wish.nodes, m->id));
}

/* Counts what is left out in s. */
static bool may_use(const struct cluster *c, const struct member *m, const struct msg_wanted *w,
                    const struct msg_placement *p, u64 now_ms, struct plan *s) {
    if (!is_meant(c, m, w, now_ms)) return false;
    bool drained = state_is_drained(c, m->id), avoided = p && listed(&p->avoid, m->id);
    s->n_meant++;
    s->n_drained += drained && !w->wish.ranks.n; /* a layout by hand has no use for others */
    return !drained && !avoided;
}

static const char *shown(const struct member *m) {
    return m->hello.name && *m->hello.name ? m->hello.name : m->id;
}

/* A node that somebody named is there, or that is the answer. */
static bool is_there(const struct cluster *c, const char *node, u64 now_ms, struct err *e) {
    const struct member *m = members_find(c, node);
    bool live = m && members_live(c, m, now_ms), drained = state_is_drained(c, node);
    if (live && m->hello.is_worker && !drained) return true;
    return err_set(e, ERR_BUSY, "node %s, which this placement names, is %s", m ? shown(m) : node,
                   !live     ? "not there"
                   : drained ? "drained: `skein drain --undo` gives it work again"
                             : "no worker");
}

static bool all_there(const struct cluster *c, const struct msg_wanted *w, u64 now_ms,
                      struct err *e) {
    const struct msg_string *s = w->wish.nodes.v;
    const struct msg_rank *r = w->wish.ranks.v;
    for (u64 i = 0; i < w->wish.nodes.n; i++)
        if (!is_there(c, s[i].s, now_ms, e)) return false;
    for (u64 i = 0; i < w->wish.ranks.n; i++) {
        const struct member *m = members_find(c, r[i].node);
        if (!is_there(c, r[i].node, now_ms, e)) return false;
        if (listed(&w->wish.exclude, r[i].node) ||
            (w->wish.nodes.n && !listed(&w->wish.nodes, r[i].node)))
            return err_set(e, ERR_ARG, "the layout names node %s, which is excluded", shown(m));
    }
    return true;
}

/* Other instances of the model on that node, which share it with this one. */
static u32 n_replicas(const struct cluster *c, const struct msg_wanted *w, const char *node) {
    u32 n = 0;
    for (u32 i = 0; i < c->n_entries; i++) {
        const struct entry *en = c->entries[i];
        const struct msg_rank *r = en->p.ranks.v;
        if (!en->p.place || same(en->w.id, w->id) || !same(en->w.model, w->model)) continue;
        for (u64 k = 0; k < en->p.ranks.n; k++) n += same(r[k].node, node);
    }
    return n;
}

static double ops_of(const struct member *m, const struct msg_wanted *w) {
    return w->desc.shape.is_float ? (double)m->facts.float_ops_s * FLOAT_REACHED
                                  : (double)m->facts.int8_ops_s * INT_REACHED;
}

/* What a core does on average, of those that were measured. */
static double of_core(const struct member *const *v, u32 n, const struct msg_wanted *w, bool ops,
                      double otherwise) {
    double sum = 0, cores = 0;
    for (u32 i = 0; i < n; i++) {
        double x = ops ? ops_of(v[i], w) : (double)v[i]->facts.read_bytes_s * READ_REACHED;
        if (x <= 0) continue;
        sum += x;
        cores += MAX(v[i]->hello.n_cores, 1);
    }
    return cores > 0 ? sum / cores : otherwise;
}

static const struct msg_rate *rate_of(const struct member *m, u32 type) {
    const struct msg_rate *r = m->facts.rates.v;
    for (u64 i = 0; i < m->facts.rates.n; i++)
        if (r[i].type == type && r[i].one_ops_s && r[i].narrow_ops_s && r[i].few_ops_s &&
            r[i].many_ops_s && r[i].many8_ops_s)
            return &r[i];
    return NULL;
}

/* What a row takes beside its columns, a token, from rates of wide and of narrow matrices. */
static double row_s(u64 wide_ops_s, u64 narrow_ops_s) {
    double apart = 1.0 / MSG_RATE_NARROW_COLS - 1.0 / MSG_RATE_COLS;
    if (!narrow_ops_s) return 0;
    return 2 * fmax(1 / (double)narrow_ops_s - 1 / (double)wide_ops_s, 0) / apart;
}

/* Seconds of a token: narrow matrices take longer for what they hold. */
static double token_s(double wide_ops_s, double row, const struct msg_type_ops *t) {
    double per_op = fmax(1 / wide_ops_s - row / 2 / MSG_RATE_COLS, 0);
    return (double)t->ops * per_op + (double)t->rows * row;
}

/* One rate for matrices of several formats, all of them together `bytes` long: their times add up.
 * All zero where one was not measured. */
static struct place_rate mixed(const struct member *m, const struct msg_type_ops *t, u64 n,
                               u64 bytes, u32 act_bits) {
    double ops = 0, one = 0, few = 0, many = 0, row_one = 0, row_many = 0;
    for (u64 i = 0; i < n; i++) {
        const struct msg_rate *r = rate_of(m, t[i].type);
        double x = (double)t[i].ops;
        if (!r) return (struct place_rate){0};
        ops += x;
        double a = row_s(r->one_ops_s, r->narrow_ops_s);
        double b = row_s(r->many_ops_s, r->narrow_many_ops_s);
        one += token_s((double)r->one_ops_s, a, &t[i]);
        few += token_s((double)r->few_ops_s, b, &t[i]);
        many += token_s((double)(act_bits == 8 ? r->many8_ops_s : r->many_ops_s), b, &t[i]);
        row_one += x * a;
        row_many += x * b;
    }
    if (ops <= 0 || !bytes) return (struct place_rate){0};
    return (struct place_rate){(double)bytes / one, ops / few, ops / many, row_one / ops,
                               row_many / ops};
}

/* What the node measured of the formats that this model is made of. */
static void set_rates(const struct member *m, const struct msg_wanted *w, struct place_node *k) {
    const struct msg_model *d = &w->desc;
    const struct msg_shape *s = &d->shape;
    const struct msg_layer_cost *kinds = s->kinds.v;
    struct msg_type_ops head = {s->head_type, s->head_ops, d->n_vocab};
    u64 bytes = 0;
    if (!s->types.n || s->layer_kind.n != d->n_layers) return;
    for (u64 i = 0; i < s->layer_kind.n; i++) {
        const struct msg_layer_cost *c = &kinds[s->layer_kind.v[i]];
        bytes += c->attn_bytes + c->ffn_bytes;
    }
    struct place_rate layers = mixed(m, s->types.v, s->types.n, bytes, w->act_bits);
    struct place_rate out = mixed(m, &head, 1, d->head_bytes, w->act_bits);
    if (layers.few_ops_s <= 0 || out.few_ops_s <= 0 || !m->facts.float_ops_s) return;
    k->layers = layers;
    k->head = out;
    u64 attend = m->facts.attend_ops_s ? m->facts.attend_ops_s : m->facts.float_ops_s;
    k->attend_ops_s = (double)attend;
    k->attend_one_ops_s = (double)m->facts.attend_one_ops_s;
    k->read_bytes_s = (double)m->facts.read_bytes_s;
    k->ops_s = layers.ops_s;
    k->call_s = m->facts.call_ns / 1e9;
}

static struct place_rate better_rate(struct place_rate a, struct place_rate b) {
    return (struct place_rate){MAX(a.read_bytes_s, b.read_bytes_s), MAX(a.few_ops_s, b.few_ops_s),
                               MAX(a.ops_s, b.ops_s), MIN(a.row_one_s, b.row_one_s),
                               MIN(a.row_many_s, b.row_many_s)};
}

/* Nodes of one machine are as fast as each other, whatever else it did when each was measured. */
static void level(struct place_node *a, const struct place_node *b) {
    if (a->machine != b->machine) return;
    a->read_bytes_s = MAX(a->read_bytes_s, b->read_bytes_s);
    a->ops_s = MAX(a->ops_s, b->ops_s);
    a->layers = better_rate(a->layers, b->layers);
    a->head = better_rate(a->head, b->head);
    a->attend_ops_s = MAX(a->attend_ops_s, b->attend_ops_s);
    a->attend_one_ops_s = MAX(a->attend_one_ops_s, b->attend_one_ops_s);
    if (a->call_s > 0 && b->call_s > 0) a->call_s = MIN(a->call_s, b->call_s);
}

static void share_rate(struct place_rate *r, double n) {
    r->read_bytes_s /= n;
    r->few_ops_s /= n;
    r->ops_s /= n;
    r->row_one_s *= n;
    r->row_many_s *= n;
}

static void set_speeds(const struct cluster *c, const struct member *const *v, u32 n,
                       const struct msg_wanted *w, struct place_node *nodes) {
    double read = of_core(v, n, w, false, CORE_READ),
           ops = of_core(v, n, w, true, read * OPS_A_READ);
    for (u32 i = 0; i < n; i++) {
        double cores = MAX(v[i]->hello.n_cores, 1), own_ops = ops_of(v[i], w);
        double own = (double)v[i]->facts.read_bytes_s * READ_REACHED;
        nodes[i].read_bytes_s = own > 0 ? own : cores * read;
        nodes[i].ops_s = own_ops > 0 ? own_ops : cores * ops;
        set_rates(v[i], w, &nodes[i]);
        for (u32 j = 0; j < i; j++) level(&nodes[i], &nodes[j]);
    }
    for (u32 i = n; i-- > 0;)
        for (u32 j = 0; j < i; j++) level(&nodes[j], &nodes[i]);
    for (u32 i = 0; i < n; i++) {
        double share = 1 + n_replicas(c, w, v[i]->id);
        nodes[i].read_bytes_s /= share;
        nodes[i].ops_s /= share;
        nodes[i].attend_ops_s /= share;
        nodes[i].attend_one_ops_s /= share;
        share_rate(&nodes[i].layers, share);
        share_rate(&nodes[i].head, share);
    }
}

static const struct msg_link *link_to(const struct member *from, const char *to) {
    const struct msg_link *l = from->facts.links.v;
    for (u64 i = 0; i < from->facts.links.n; i++)
        if (same(l[i].peer, to)) return &l[i];
    return NULL;
}

/* As the one who sends measured it, else the other. Half a round trip is one way, and it is the
 * same from either end: the shorter one was disturbed less. */
static struct place_link link_of(const struct member *a, const struct member *b, bool *inside) {
    const struct msg_link *x = link_to(a, b->id), *y = link_to(b, a->id);
    *inside = (x && x->kind == LINK_LOOPBACK) || (y && y->kind == LINK_LOOPBACK);
    struct place_link l = *inside ? INSIDE : LAN;
    u32 rtt = x ? x->rtt_p50_us : 0, back = y ? y->rtt_p50_us : 0;
    if (back && (!rtt || back < rtt)) rtt = back;
    u64 bytes = x && x->bandwidth_bytes_s ? x->bandwidth_bytes_s : y ? y->bandwidth_bytes_s : 0;
    if (rtt) l.delay_s = rtt / 2e6;
    if (bytes) l.bytes_s = (double)bytes;
    return l;
}

/* Nodes that reach each other over the loopback share a machine. */
static void set_links(const struct member *const *v, u32 n, struct place_node *nodes,
                      struct place_link *links) {
    for (u32 i = 0; i < n; i++) {
        nodes[i].machine = i;
        for (u32 j = 0; j < n; j++) {
            bool inside = false;
            links[(size_t)i * n + j] = link_of(v[i], v[j], &inside);
            if (inside && j < i) nodes[i].machine = MIN(nodes[i].machine, nodes[j].machine);
        }
    }
}

bool plan_set_ctx(struct plan *s, const struct msg_wanted *w, u32 n_ctx, struct err *e) {
    const struct msg_model *d = &w->desc;
    u64 all;
    s->q.n_ctx = n_ctx;
    s->q.kv_tokens = (u64)n_ctx * MAX(MIN(w->wish.n_batch, (u32)PLAN_BATCH_MAX), 1u);
    if (size_mul(s->q.kv_tokens, d->kv_bytes_per_token_layer, &all) &&
        size_mul(all, d->n_layers, &all) && all < (u64)1 << 60)
        return true;
    return err_set(e, ERR_LIMIT, "a context of %u tokens, %u times, is more than can be counted",
                   n_ctx, w->wish.n_batch);
}

static u32 most_ctx(const struct msg_model *d) {
    return d->n_ctx_train ? d->n_ctx_train : CTX_DEFAULT;
}

/* Of more nodes than a group can have: the one where it was asked for, the fastest and the largest.
 * Keeps the order. */
static u32 thin_out(const struct cluster *c, const struct member **v, u32 n, const char *first,
                    struct arena *a) {
    if (n <= PLAN_RANKS_MAX) return n;
    double *speed = arena_array(a, n, sizeof *speed), *room = arena_array(a, n, sizeof *room);
    bool *in = arena_array(a, n, sizeof *in);
    u32 k = 0;
    for (u32 i = 0; i < n; i++) {
        speed[i] = (double)v[i]->facts.read_bytes_s + MAX(v[i]->hello.n_cores, 1u);
        room[i] = (double)orders_budget(c, v[i]);
    }
    in[0] = same(v[0]->id, first);
    for (u32 got = in[0]; got < PLAN_RANKS_MAX; got++) {
        const double *by = got < PLAN_RANKS_MAX / 2 ? speed : room;
        u32 best = UINT32_MAX;
        for (u32 i = 0; i < n; i++)
            if (!in[i] && (best == UINT32_MAX || by[i] > by[best])) best = i;
        in[best] = true;
    }
    for (u32 i = 0; i < n; i++)
        if (in[i]) v[k++] = v[i];
    return k;
}

void plan_blame_drained(u32 n, struct err *e) {
    if (e && n && (e->code == ERR_MEMORY || e->code == ERR_BUSY))
        err_wrap(e, "%u worker%s (`skein drain --undo NODE`)", n,
                 n == 1 ? " is drained" : "s are drained");
}

bool plan_ask(const struct cluster *c, const struct msg_wanted *w, const struct msg_placement *p,
              u64 now_ms, struct arena *a, struct plan *out, struct err *e) {
    const struct member **v = arena_array(a, c->n_members + 1, sizeof *v);
    u32 n = 0;
    out->n_meant = out->n_drained = 0;
    if (!all_there(c, w, now_ms, e)) return false;
    /* First the one where it was asked for, then by id: of equal ones the first is taken. */
    for (u32 i = 0; i < c->n_members; i++) {
        const struct member *m = c->members[i];
        if (!may_use(c, m, w, p, now_ms, out)) continue;
        u32 at = n++;
        bool first = same(m->id, w->first_node);
        for (; at > 0 && !same(v[at - 1]->id, w->first_node) &&
               (first || strcmp(m->id, v[at - 1]->id) < 0);
             at--)
            v[at] = v[at - 1];
        v[at] = m;
    }
    n = thin_out(c, v, n, w->first_node, a);
    struct place_node *nodes = arena_array(a, n + 1, sizeof *nodes);
    struct place_link *links = arena_array(a, (size_t)n * n + 1, sizeof *links);
    out->ids = arena_array(a, n + 1, sizeof *out->ids);
    for (u32 i = 0; i < n; i++) {
        out->ids[i] = v[i]->id;
        nodes[i].name = shown(v[i]);
        nodes[i].budget_bytes = orders_budget(c, v[i]);
    }
    set_links(v, n, nodes, links);
    set_speeds(c, v, n, w, nodes);
    u32 batch = w->wish.n_batch ? w->wish.n_batch : w->wish.goal == GOAL_THROUGHPUT ? BATCH : 1;
    out->q = (struct place_ask){.model = &w->desc,
                                .nodes = nodes,
                                .n_nodes = n,
                                .links = links,
                                .sharding = w->wish.sharding,
                                .goal = w->wish.goal,
                                .min_nodes = w->min_nodes,
                                .n_batch = MIN(batch, (u32)PLAN_BATCH_MAX),
                                .scratch_bytes = scratch_bytes(&w->desc),
                                .balance = PLAN_BALANCE,
                                .force = w->wish.force};
    u32 n_ctx =
        w->n_ctx ? MIN(w->n_ctx, most_ctx(&w->desc)) : MIN(most_ctx(&w->desc), (u32)CTX_DEFAULT);
    out->q.n_prompt = MIN(n_ctx, (u32)PROMPT);
    return plan_set_ctx(out, w, n_ctx, e);
}

bool plan_by_hand(const struct plan *s, const struct msg_wanted *w, struct arena *a,
                  struct place_plan *out, struct err *e) {
    const struct msg_rank *r = w->wish.ranks.v;
    u32 n = (u32)w->wish.ranks.n;
    struct place_rank *ranks = arena_array(a, n, sizeof *ranks);
    if (n > PLAN_RANKS_MAX)
        return err_set(e, ERR_LIMIT, "%u ranks: at most %d", n, (int)PLAN_RANKS_MAX);
    for (u32 i = 0; i < n; i++) {
        u32 k = 0;
        while (k < s->q.n_nodes && !same(s->ids[k], r[i].node)) k++;
        if (k == s->q.n_nodes)
            return err_set(e, ERR_BUSY, "node %s, which the layout names, can't be used",
                           r[i].node);
        ranks[i] = (struct place_rank){.node = k,
                                       .layer_first = r[i].layer_first,
                                       .layer_end = r[i].layer_end,
                                       .slice = r[i].slice};
    }
    if (n < w->min_nodes)
        return err_set(e, ERR_ARG, "the layout names %u node%s, at least %u were asked for", n,
                       n == 1 ? "" : "s", w->min_nodes);
    if (!place_check(&s->q, ranks, n, a, e)) return false;
    *out = (struct place_plan){.ranks = ranks, .n_ranks = n, .sharding = SHARDING_PIPELINE};
    for (u32 i = 0; i < n; i++)
        if (ranks[i].tp_ranks > 1)
            out->sharding = ranks[i].tp_ranks == n ? SHARDING_TENSOR : SHARDING_HYBRID;
    if (w->wish.sharding != SHARDING_AUTO && w->wish.sharding != out->sharding)
        return err_set(e, ERR_ARG, "the layout is not the sharding that was asked for");
    out->t = place_predict(&s->q, ranks, n, s->q.n_ctx / 2);
    return true;
}

bool plan_best(struct plan *s, const struct msg_wanted *w, struct arena *a, struct place_plan *best,
               struct err *e) {
    struct err own = {0};
    if (!s->q.n_nodes && !s->n_meant && (w->wish.nodes.n || w->wish.exclude.n))
        return err_set(e, ERR_BUSY,
                       "no worker is left: those that were asked for (nodes) and those that were "
                       "not wanted (exclude) leave none");
    for (;;) {
        bool ok =
            w->wish.ranks.n ? plan_by_hand(s, w, a, best, &own) : place_best(&s->q, a, best, &own);
        u32 less = s->q.n_ctx / 2;
        if (ok) return true;
        if (own.code != ERR_MEMORY || w->n_ctx || less < CTX_LEAST) break;
        if (!plan_set_ctx(s, w, less, &own)) break;
    }
    if (e) *e = own;
    return false;
}

struct msg_rank *plan_ranks(const struct plan *s, const struct place_plan *p, struct arena *a) {
    struct msg_rank *out = arena_array(a, p->n_ranks, sizeof *out);
    for (u32 i = 0; i < p->n_ranks; i++) {
        const struct place_rank *r = &p->ranks[i];
        u64 more = r->need_bytes + (KV_CONTEXTS - 1) * r->kv_bytes;
        out[i] = (struct msg_rank){.node = s->ids[r->node],
                                   .layer_first = r->layer_first,
                                   .layer_end = r->layer_end,
                                   .weights_bytes = r->weights_bytes,
                                   .tp_first = r->tp_first,
                                   .tp_ranks = r->tp_ranks,
                                   .slice = r->slice};
        out[i].memory_bytes = MAX(MIN(more, s->q.nodes[r->node].budget_bytes), r->need_bytes);
    }
    return out;
}

void plan_keep(struct plan *s, struct arena *a) {
    u32 n = s->q.n_nodes;
    struct place_node *nodes = arena_array(a, n + 1, sizeof *nodes);
    struct place_link *links = arena_array(a, (size_t)n * n + 1, sizeof *links);
    const char **ids = arena_array(a, n + 1, sizeof *ids);
    for (u32 i = 0; i < n; i++) {
        nodes[i] = s->q.nodes[i];
        nodes[i].name = arena_strdup(a, nodes[i].name);
        ids[i] = arena_strdup(a, s->ids[i]);
    }
    for (u32 i = 0; i < n * n; i++) links[i] = s->q.links[i];
    s->q.nodes = nodes;
    s->q.links = links;
    s->ids = ids;
}

void plan_subset(const struct plan *s, const bool *keep, struct arena *a, struct plan *out) {
    u32 n = 0, *of = arena_array(a, s->q.n_nodes + 1, sizeof *of);
    for (u32 i = 0; i < s->q.n_nodes; i++)
        if (keep[i]) of[n++] = i;
    struct place_node *nodes = arena_array(a, n + 1, sizeof *nodes);
    struct place_link *links = arena_array(a, (size_t)n * n + 1, sizeof *links);
    *out = *s;
    out->ids = arena_array(a, n + 1, sizeof *out->ids);
    for (u32 i = 0; i < n; i++) {
        nodes[i] = s->q.nodes[of[i]];
        out->ids[i] = s->ids[of[i]];
        for (u32 j = 0; j < n; j++)
            links[(size_t)i * n + j] = s->q.links[(size_t)of[i] * s->q.n_nodes + of[j]];
    }
    out->q.nodes = nodes;
    out->q.links = links;
    out->q.n_nodes = n;
}

void plan_add(struct plan *s, const struct place_node *node, const char *id, struct place_link link,
              struct arena *a) {
    u32 n = s->q.n_nodes, m = n + 1;
    struct place_node *nodes = arena_array(a, m, sizeof *nodes);
    struct place_link *links = arena_array(a, (size_t)m * m, sizeof *links);
    const char **ids = arena_array(a, m, sizeof *ids);
    for (u32 i = 0; i < m; i++) {
        nodes[i] = i < n ? s->q.nodes[i] : *node;
        ids[i] = i < n ? s->ids[i] : id;
        for (u32 j = 0; j < m; j++)
            links[(size_t)i * m + j] = i < n && j < n ? s->q.links[(size_t)i * n + j] : link;
    }
    nodes[n].machine = UINT32_MAX - n;
    s->q.nodes = nodes;
    s->q.links = links;
    s->q.n_nodes = m;
    s->ids = ids;
}
