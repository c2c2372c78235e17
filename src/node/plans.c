/* plans.c - what placement would do, in exo's shapes: previews of instances, and one instance. */
#include <stdio.h>
#include <string.h>

#include "base/id.h"
#include "base/json.h"
#include "node/plan_json.h"
#include "node/state_json.h"

/* The instance that p would become, with a new id. */
static void put_instance(struct node *n, const struct plan *s, const struct msg_wanted *w,
                         const struct place_plan *p, struct arena *a, struct str *o) {
    char id[NODE_INSTANCE_ID_CAP];
    struct msg_wanted named = *w;
    struct msg_placement at = {.n_ctx = s->q.n_ctx, .reason = ""};
    id_uuid(id);
    named.id = id;
    at.instance = id;
    at.ranks = (struct wire_list){plan_ranks(s, p, a), p->n_ranks};
    struct cluster_instance i = {
        .wanted = &named, .placement = &at, .ranks = at.ranks.v, .n_ranks = p->n_ranks, .text = ""};
    str_addc(o, '{');
    state_exo_instance(n, o, &i);
    str_addc(o, '}');
}

static void begin_preview(const struct msg_wanted *w, const char *sharding, const char *meta,
                          struct str *o) {
    state_json_open(o, NULL, '{');
    json_put_str(o, "model_id", w->model);
    json_put_str(o, "sharding", sharding);
    json_put_str(o, "instance_meta", meta);
}

static void put_preview(struct node *n, const struct plan *s, const struct msg_wanted *w,
                        const struct place_plan *p, struct arena *a, struct str *o) {
    begin_preview(w, p->sharding == SHARDING_PIPELINE ? "Pipeline" : "Tensor", "MlxRing", o);
    json_key(o, "instance");
    put_instance(n, s, w, p, a, o);
    state_json_open(o, "memory_delta_by_node", '{');
    for (u32 i = 0; i < p->n_ranks; i++)
        json_put_u64(o, s->ids[p->ranks[i].node], p->ranks[i].need_bytes);
    str_addc(o, '}');
    json_put_null(o, "error");
    json_put_str(o, "layout", plan_sharding_name(p->sharding));
    json_put_num(o, "decode_tokens_s", 1 / p->t.token_s);
    json_put_num(o, "first_token_s", p->t.first_s);
    str_addc(o, '}');
}

static void put_refusal(const struct msg_wanted *w, const char *sharding, const char *meta,
                        const char *why, struct str *o) {
    begin_preview(w, sharding, meta, o);
    json_put_null(o, "instance");
    json_put_null(o, "memory_delta_by_node");
    json_put_str(o, "error", why);
    str_addc(o, '}');
}

static void put_previews(struct node *n, struct plan *s, const struct msg_wanted *w,
                         struct str *o) {
    static const char *const NAME[] = {"Pipeline", "Tensor"};
    static const u32 KIND[] = {SHARDING_PIPELINE, SHARDING_TENSOR};
    struct arena a = {0};
    struct place_plan best, *all;
    struct err e = {0};
    plan_best(s, w, &a, &best, &e); /* settles the context */
    u32 n_all = s->q.n_nodes ? place_all(&s->q, &a, &all) : 0;
    str_addz(o, "{\"previews\":[");
    for (int k = 0; k < 2 && s->q.n_nodes; k++) {
        u32 found = 0;
        for (u32 i = 0; i < n_all; i++) {
            if ((all[i].sharding == SHARDING_PIPELINE) != (k == 0)) continue;
            put_preview(n, s, w, &all[i], &a, o);
            found++;
        }
        struct place_ask q = s->q;
        q.sharding = KIND[k];
        if (!found && !place_best(&q, &a, &best, &e)) put_refusal(w, NAME[k], "MlxRing", e.msg, o);
        put_refusal(w, NAME[k], "MlxJaccl",
                    "MlxJaccl is exo's name for RDMA between Macs: ranks talk over TCP, shared "
                    "memory or libfabric here, ask for MlxRing",
                    o);
    }
    str_addz(o, "]}");
    arena_deinit(&a);
}

static bool put_placement(struct node *n, struct plan *s, const struct msg_wanted *w, struct str *o,
                          struct err *e) {
    struct arena a = {0};
    struct place_plan best;
    bool ok = plan_best(s, w, &a, &best, e);
    if (ok) put_instance(n, s, w, &best, &a, o);
    arena_deinit(&a);
    return ok || err_wrap(e, "model %s can't be placed", w->model);
}

static void put_table(struct plan *s, const struct msg_wanted *w, const struct want *why,
                      struct arena *a, struct str *o) {
    struct place_node *extra = arena_array(a, why->p.n_extra, sizeof *extra);
    struct place_link *link = arena_array(a, why->p.n_extra, sizeof *link);
    for (u32 i = 0; i < why->p.n_extra; i++) {
        const struct node_extra *x = &why->p.extra[i];
        extra[i] = (struct place_node){.name = x->name,
                                       .budget_bytes = x->memory_bytes,
                                       .read_bytes_s = x->read_bytes_s,
                                       .ops_s = x->ops_s};
        link[i] = (struct place_link){x->delay_s, x->link_bytes_s};
    }
    plan_json(s, w, extra, link, why->p.n_extra, o);
}

bool plans_answer(struct node *n, const struct msg_wanted *w, const struct want *why, struct str *o,
                  struct err *e) {
    struct arena a = {0};
    struct plan s;
    bool ok = plan_ask(n->cluster, w, NULL, clock_ms(), &a, &s, e);
    if (ok && why->plan == NODE_PLAN_PREVIEWS) put_previews(n, &s, w, o);
    if (ok && why->plan == NODE_PLAN_TABLE) put_table(&s, w, why, &a, o);
    if (ok && why->plan == NODE_PLAN_PLACEMENT) ok = put_placement(n, &s, w, o, e);
    arena_deinit(&a);
    return ok;
}
