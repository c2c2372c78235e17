#include "node/plan_json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"

enum { REPLICAS_MAX = 16 };

static void open_(struct str *o, const char *key, char bracket) {
    if (key)
        json_key(o, key);
    else
        json_comma(o);
    str_addc(o, bracket);
}

const char *plan_sharding_name(u32 sharding) {
    return sharding == SHARDING_TENSOR   ? "Tensor"
           : sharding == SHARDING_HYBRID ? "Hybrid"
                                         : "Pipeline";
}

const char *plan_limit(const struct plan *s, const struct place_plan *p, char buf[96]) {
    const struct place_times *t = &p->t;
    const char *name = s->q.nodes[p->ranks[t->slowest].node].name;
    if (t->network_s > t->memory_s && t->network_s > t->compute_s)
        snprintf(buf, 96, "links between the nodes");
    else
        snprintf(buf, 96, "%s of %.60s",
                 t->memory_s >= t->compute_s ? "memory bandwidth" : "compute", name);
    return buf;
}

static void put_rank(const struct plan *s, const struct place_rank *r, struct str *o) {
    const struct place_node *k = &s->q.nodes[r->node];
    open_(o, NULL, '{');
    json_put_str(o, "node", s->ids[r->node]);
    json_put_str(o, "name", k->name);
    json_put_u64(o, "layer_first", r->layer_first);
    json_put_u64(o, "layer_end", r->layer_end);
    json_put_u64(o, "tp_first", r->tp_first);
    json_put_u64(o, "tp_ranks", r->tp_ranks);
    if (r->tp_ranks > 1) {
        open_(o, "slice", '{');
        json_put_u64(o, "head_first", r->slice.head_first);
        json_put_u64(o, "head_end", r->slice.head_end);
        json_put_u64(o, "ff_first", r->slice.ff_first);
        json_put_u64(o, "ff_end", r->slice.ff_end);
        json_put_u64(o, "vocab_first", r->slice.vocab_first);
        json_put_u64(o, "vocab_end", r->slice.vocab_end);
        str_addc(o, '}');
    }
    json_put_u64(o, "weights_bytes", r->weights_bytes);
    json_put_u64(o, "kv_bytes", r->kv_bytes);
    json_put_u64(o, "need_bytes", r->need_bytes);
    json_put_u64(o, "free_bytes", k->budget_bytes);
    str_addc(o, '}');
}

/* What it does when `filled` positions are in the context, or a prompt of so many comes. */
static void put_context(const struct plan *s, const struct place_plan *p, u32 filled,
                        struct str *o) {
    struct place_ask q = s->q;
    q.n_prompt = filled;
    struct place_times t = place_predict(&q, p->ranks, p->n_ranks, filled);
    open_(o, NULL, '{');
    json_put_u64(o, "context", filled);
    json_put_num(o, "decode_tokens_s", 1 / t.token_s);
    json_put_num(o, "prefill_tokens_s", filled / t.first_s);
    json_put_num(o, "first_token_s", t.first_s);
    json_put_num(o, "memory", t.memory_s / t.token_s);
    json_put_num(o, "compute", t.compute_s / t.token_s);
    json_put_num(o, "network", t.network_s / t.token_s);
    str_addc(o, '}');
}

static void put_candidate(const struct plan *s, const struct place_plan *p, const char *key,
                          struct str *o) {
    static const u32 FILLED[] = {128, 1024, 4096, 16384, 65536};
    char limit[96];
    open_(o, key, '{');
    json_put_str(o, "sharding", plan_sharding_name(p->sharding));
    json_put_u64(o, "n_nodes", p->n_ranks);
    json_put_u64(o, "n_ctx", s->q.n_ctx);
    open_(o, "ranks", '[');
    for (u32 i = 0; i < p->n_ranks; i++) put_rank(s, &p->ranks[i], o);
    str_addc(o, ']');
    open_(o, "contexts", '[');
    for (size_t i = 0; i < ARRAY_LEN(FILLED); i++)
        if (FILLED[i] < s->q.n_ctx) put_context(s, p, FILLED[i], o);
    put_context(s, p, s->q.n_ctx, o);
    str_addc(o, ']');
    json_put_u64(o, "batch", s->q.n_batch);
    json_put_num(o, "batch_tokens_s", p->t.rate);
    json_put_str(o, "limit", plan_limit(s, p, limit));
    str_addc(o, '}');
}

static void put_nodes(const struct plan *s, struct str *o) {
    u32 n = s->q.n_nodes;
    open_(o, "nodes", '[');
    for (u32 i = 0; i < n; i++) {
        const struct place_node *k = &s->q.nodes[i];
        open_(o, NULL, '{');
        json_put_str(o, "id", s->ids[i]);
        json_put_str(o, "name", k->name);
        json_put_u64(o, "free_bytes", k->budget_bytes);
        json_put_num(o, "read_bytes_s", k->read_bytes_s);
        json_put_num(o, "ops_s", k->ops_s);
        open_(o, "links", '{');
        for (u32 j = 0; j < n; j++) {
            if (i == j) continue;
            open_(o, s->ids[j], '{');
            json_put_num(o, "delay_us", s->q.links[(size_t)i * n + j].delay_s * 1e6);
            json_put_num(o, "bytes_s", s->q.links[(size_t)i * n + j].bytes_s);
            str_addc(o, '}');
        }
        str_addz(o, "}}");
    }
    str_addc(o, ']');
}

/* Shardings that nothing was found for, and why. */
static void put_impossible(const struct plan *s, const struct place_plan *all, u32 n,
                           struct arena *a, struct str *o) {
    open_(o, "impossible", '[');
    for (u32 k = SHARDING_PIPELINE; k <= SHARDING_HYBRID; k++) {
        struct place_ask q = s->q;
        struct place_plan best;
        struct err e = {0};
        bool found = s->q.sharding != SHARDING_AUTO && s->q.sharding != k;
        for (u32 i = 0; i < n; i++) found |= all[i].sharding == k;
        q.sharding = k;
        if (found || place_best(&q, a, &best, &e)) continue;
        open_(o, NULL, '{');
        json_put_str(o, "sharding", plan_sharding_name(k));
        json_put_str(o, "reason", e.msg);
        str_addc(o, '}');
    }
    str_addc(o, ']');
}

/* Copies of the model, each on what the ones before left free: their rates add up. */
static void put_replicas(const struct plan *s, struct arena *a, struct str *o) {
    struct plan rest = *s;
    double sum = 0;
    open_(o, "replicas", '[');
    for (u32 k = 1; k <= REPLICAS_MAX && rest.q.n_nodes; k++) {
        struct place_plan p;
        bool *keep = arena_array(a, rest.q.n_nodes, sizeof *keep);
        if (!place_best(&rest.q, a, &p, NULL)) break;
        sum += p.t.rate;
        open_(o, NULL, '{');
        json_put_u64(o, "replicas", k);
        json_put_num(o, "batch_tokens_s", sum);
        open_(o, "nodes", '[');
        for (u32 i = 0; i < p.n_ranks; i++) {
            json_comma(o);
            json_add_str(o, view_of(rest.q.nodes[p.ranks[i].node].name));
        }
        str_addz(o, "]}");
        for (u32 i = 0; i < rest.q.n_nodes; i++) keep[i] = true;
        for (u32 i = 0; i < p.n_ranks; i++) keep[p.ranks[i].node] = false;
        struct plan less;
        plan_subset(&rest, keep, a, &less);
        rest = less;
    }
    str_addc(o, ']');
}

void plan_json(const struct plan *s, const struct msg_wanted *w, const struct place_node *extra,
               const struct place_link *extra_link, u32 n_extra, struct str *o) {
    struct arena a = {0};
    struct place_plan best, *all;
    struct plan chosen = *s;
    struct err e = {0};
    bool ok = plan_best(&chosen, w, &a, &best, &e);
    plan_blame_drained(s->n_drained, ok ? NULL : &e);
    u32 n = place_all(&chosen.q, &a, &all);
    open_(o, NULL, '{');
    json_put_str(o, "model", w->model);
    json_put_str(o, "title", w->desc.title);
    json_put_str(o, "quantization", w->desc.quant);
    json_put_u64(o, "n_layers", w->desc.n_layers);
    json_put_u64(o, "n_ctx", chosen.q.n_ctx);
    json_put_u64(o, "need_bytes", place_need_bytes(&chosen.q));
    json_put_str(o, "goal",
                 s->q.goal == GOAL_THROUGHPUT ? "throughput"
                 : s->q.goal == GOAL_TTFT     ? "ttft"
                                              : "latency");
    put_nodes(&chosen, o);
    if (ok)
        put_candidate(&chosen, &best, "chosen", o);
    else
        json_put_str(o, "reason", e.msg);
    open_(o, "candidates", '[');
    for (u32 i = 0; i < n; i++) put_candidate(&chosen, &all[i], NULL, o);
    str_addc(o, ']');
    put_impossible(&chosen, all, n, &a, o);
    put_replicas(&chosen, &a, o);
    open_(o, "with", '[');
    for (u32 i = 0; i < n_extra; i++) {
        struct plan more = *s;
        struct err why = {0};
        plan_add(&more, &extra[i], extra[i].name, extra_link[i], &a);
        open_(o, NULL, '{');
        json_put_str(o, "name", extra[i].name);
        if (plan_best(&more, w, &a, &best, &why))
            put_candidate(&more, &best, "chosen", o);
        else
            json_put_str(o, "reason", why.msg);
        str_addc(o, '}');
    }
    str_addz(o, "]}");
    arena_deinit(&a);
}
