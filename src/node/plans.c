/* plans.c - what placement would do, in exo's shapes: previews of instances, and one instance.
 *
 * Over many nodes that takes seconds, in which the node must hear its peers. So one thread computes
 * what people ask for. It gets jobs through one queue and returns them through another; a job owns
 * all it points to. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/id.h"
#include "base/json.h"
#include "node/plan_json.h"
#include "node/state_json.h"

/* The instance that p would become, with a new id. */
static void put_instance(const struct plan *s, const struct msg_wanted *w,
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
    state_exo_instance(NULL, o, &i);
    str_addc(o, '}');
}

static void begin_preview(const struct msg_wanted *w, const char *sharding, const char *meta,
                          struct str *o) {
    state_json_open(o, NULL, '{');
    json_put_str(o, "model_id", w->model);
    json_put_str(o, "sharding", sharding);
    json_put_str(o, "instance_meta", meta);
}

static void put_preview(const struct plan *s, const struct msg_wanted *w,
                        const struct place_plan *p, struct arena *a, struct str *o) {
    begin_preview(w, p->sharding == SHARDING_PIPELINE ? "Pipeline" : "Tensor", "MlxRing", o);
    json_key(o, "instance");
    put_instance(s, w, p, a, o);
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

/* Where the layers were fixed by hand there is one way. */
static void put_by_hand(struct plan *s, const struct msg_wanted *w, struct str *o) {
    struct arena a = {0};
    struct place_plan p;
    struct err e = {0};
    str_addz(o, "{\"previews\":[");
    if (plan_best(s, w, &a, &p, &e))
        put_preview(s, w, &p, &a, o);
    else
        put_refusal(w, w->wish.sharding == SHARDING_TENSOR ? "Tensor" : "Pipeline", "MlxRing",
                    e.msg, o);
    str_addz(o, "]}");
    arena_deinit(&a);
}

/* With no node at all there is nothing to show, as in exo; where some are left out there is. */
static bool has_answer(const struct plan *s, const struct msg_wanted *w) {
    return s->q.n_nodes || s->n_drained || w->wish.nodes.n || w->wish.exclude.n;
}

void plans_previews(struct plan *s, const struct msg_wanted *w, struct str *o) {
    static const char *const NAME[] = {"Pipeline", "Tensor"};
    static const u32 KIND[] = {SHARDING_PIPELINE, SHARDING_TENSOR};
    struct arena a = {0};
    struct place_plan best, *all;
    struct err e = {0};
    plan_best(s, w, &a, &best, &e); /* settles the context */
    u32 n_all = s->q.n_nodes ? place_all(&s->q, &a, &all) : 0;
    str_addz(o, "{\"previews\":[");
    for (int k = 0; k < 2 && has_answer(s, w); k++) {
        u32 found = 0;
        for (u32 i = 0; i < n_all; i++) {
            if ((all[i].sharding == SHARDING_PIPELINE) != (k == 0)) continue;
            put_preview(s, w, &all[i], &a, o);
            found++;
        }
        struct plan q = *s;
        q.q.sharding = KIND[k];
        if (!found && plan_best(&q, w, &a, &best, &e)) {
            put_preview(&q, w, &best, &a, o); /* it fits with less context than the best one */
        } else if (!found) {
            plan_blame_drained(s->n_drained, &e);
            put_refusal(w, NAME[k], "MlxRing", e.msg, o);
        }
        put_refusal(w, NAME[k], "MlxJaccl",
                    "MlxJaccl is exo's name for RDMA between Macs: ranks talk over TCP, shared "
                    "memory or libfabric here, ask for MlxRing",
                    o);
    }
    str_addz(o, "]}");
    arena_deinit(&a);
}

static bool put_placement(struct plan *s, const struct msg_wanted *w, struct str *o,
                          struct err *e) {
    struct arena a = {0};
    struct place_plan best;
    bool ok = plan_best(s, w, &a, &best, e);
    if (ok) put_instance(s, w, &best, &a, o);
    plan_blame_drained(s->n_drained, ok ? NULL : e);
    arena_deinit(&a);
    return ok || err_wrap(e, "model %s can't be placed", w->model);
}

enum { QUEUE_CAP = 1024 };

struct plan_job {
    u64 want; /* 0 ends the thread */
    enum node_plan what;
    struct arena mem;
    struct msg_wanted w;
    struct plan s;
    struct place_node *extra; /* [n_extra] */
    struct place_link *link;
    u32 n_extra;
    struct str text; /* the answer; of no use unless ok */
    struct err e;
    bool ok;
};

struct planner {
    pthread_t thread;
    struct queue *jobs, *done;
    struct lock lock; /* guards stop: set by the node's thread, read by the planning one */
    bool stop;
};

static bool is_stopping(struct planner *p) {
    lock_take(&p->lock);
    bool stop = p->stop;
    lock_give(&p->lock);
    return stop;
}

static void job_free(struct plan_job *j) {
    str_deinit(&j->text);
    arena_deinit(&j->mem);
    free(j);
}

static void compute(struct plan_job *j) {
    j->ok = true;
    if (j->what == NODE_PLAN_PREVIEWS && j->w.wish.ranks.n)
        put_by_hand(&j->s, &j->w, &j->text);
    else if (j->what == NODE_PLAN_PREVIEWS)
        plans_previews(&j->s, &j->w, &j->text);
    if (j->what == NODE_PLAN_TABLE)
        plan_json(&j->s, &j->w, j->extra, j->link, j->n_extra, &j->text);
    if (j->what == NODE_PLAN_PLACEMENT) j->ok = put_placement(&j->s, &j->w, &j->text, &j->e);
}

static void *plan_thread(void *arg) {
    struct planner *p = arg;
    for (bool last = false; !last;) {
        struct plan_job *j;
        while (!(j = queue_pop(p->jobs)))
            poll(&(struct pollfd){queue_fd(p->jobs), POLLIN, 0}, 1, -1);
        last = !j->want;
        bool wanted = !last && !is_stopping(p);
        if (wanted) compute(j);
        while (wanted && !queue_push(p->done, j)) {
            clock_sleep_ms(10);
            wanted = !is_stopping(p);
        }
        if (!wanted) job_free(j);
    }
    return NULL;
}

struct planner *plans_start(struct err *e) {
    struct planner *p = xcalloc(1, sizeof *p);
    lock_init(&p->lock);
    p->jobs = queue_new(QUEUE_CAP, e);
    p->done = p->jobs ? queue_new(QUEUE_CAP, e) : NULL;
    int no = p->done ? pthread_create(&p->thread, NULL, plan_thread, p) : 0;
    if (p->done && no == 0) return p;
    if (no) err_set(e, ERR_IO, "can't start the planning thread: %s", strerror(no));
    queue_free(p->jobs);
    queue_free(p->done);
    lock_deinit(&p->lock);
    free(p);
    return NULL;
}

void plans_stop(struct planner *p) {
    if (!p) return;
    struct plan_job *j, *last = xcalloc(1, sizeof *last);
    lock_take(&p->lock);
    p->stop = true;
    lock_give(&p->lock);
    while (!queue_push(p->jobs, last)) clock_sleep_ms(1); /* it throws away what waits */
    pthread_join(p->thread, NULL);
    while ((j = queue_pop(p->done))) job_free(j);
    queue_free(p->jobs);
    queue_free(p->done);
    lock_deinit(&p->lock);
    free(p);
}

int plans_fd(const struct planner *p) {
    return queue_fd(p->done);
}

static void copy_extra(struct plan_job *j, const struct want *why) {
    j->n_extra = why->p.n_extra;
    j->extra = arena_array(&j->mem, j->n_extra, sizeof *j->extra);
    j->link = arena_array(&j->mem, j->n_extra, sizeof *j->link);
    for (u32 i = 0; i < j->n_extra; i++) {
        const struct node_extra *x = &why->p.extra[i];
        j->extra[i] = (struct place_node){.name = arena_strdup(&j->mem, x->name),
                                          .budget_bytes = x->memory_bytes,
                                          .read_bytes_s = x->read_bytes_s,
                                          .ops_s = x->ops_s};
        j->link[i] = (struct place_link){x->delay_s, x->link_bytes_s};
    }
}

bool plans_ask(struct node *n, const struct msg_wanted *w, const struct want *why, struct err *e) {
    struct plan_job *j = xcalloc(1, sizeof *j);
    struct str bytes = {0};
    j->want = why->id;
    j->what = why->plan;
    wire_encode(&MSG_WANTED_TABLE, w, &bytes);
    bool ok = wire_decode(&MSG_WANTED_TABLE, str_z(&bytes), bytes.n, &j->mem, &j->w, e) &&
              plan_ask(n->cluster, &j->w, NULL, clock_ms(), &j->mem, &j->s, e);
    str_deinit(&bytes);
    if (ok) {
        plan_keep(&j->s, &j->mem);
        copy_extra(j, why);
        ok = queue_push(n->planner->jobs, j) ||
             err_set(e, ERR_BUSY, "%d plans wait already: ask again later", (int)QUEUE_CAP);
    }
    if (!ok) job_free(j);
    return ok;
}

void plans_read(struct node *n) {
    struct plan_job *j;
    while ((j = queue_pop(n->planner->done))) {
        want_planned(n, j->want, str_z(&j->text), j->ok ? NULL : &j->e);
        job_free(j);
    }
}
