/* asks.c - requests of this node's users, from acceptance to the last word.
 *
 * A request waits until an instance of its model is ready (asking for one when nobody has), goes to
 * the node that owns rank 0, and collects the tokens that come back. When that instance fails,
 * moves or falls silent, the request waits again and is sent with the tokens it has: the answer
 * goes on where it stopped. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "node/node_parts.h"

enum {
    POINTS_MAX = 50,  /* of attempts in a row without a token: then the request is given up */
    POINTS_MOVED = 1, /* its instance was stopped or moved: not its fault */
    POINTS_DIED = 10, /* a runner died under it: five times, it may be the cause */
    UNPLACED_MAX_MS = 30000, /* an instance that can't be placed is waited for this long */
    JUST_CAME_MS = 1000, /* what the master knows of an idle instance may be a heartbeat old */
    BAD_PLACE_MS = 2000,     /* the cluster has not noticed yet that a placement is broken */
};

static void ask_free(struct node *n, struct ask *a) {
    for (u32 i = 0; i < n->n_asks; i++)
        if (n->asks[i] == a) n->asks[i] = n->asks[--n->n_asks];
    lock_take(&n->lock);
    n->n_open--;
    lock_give(&n->lock);
    arena_deinit(&a->mem);
    free(a->ids);
    free(a);
    n->changed = true;
}

static void end_error(struct node *n, struct ask *a, const struct err *e) {
    struct err copy = *e; /* e may live in a */
    struct node_sink sink = a->sink;
    void *ctx = a->ctx;
    ask_free(n, a);
    sink.error(ctx, &copy);
}

bool node_model_key(struct node *n, const char *name, char out[1024], struct err *e) {
    struct store_model m, by_id;
    if (!store_resolve(n->cfg.store, name, &m, e)) return false;
    bool has_id =
        *m.id && store_resolve(n->cfg.store, m.id, &by_id, NULL) && strcmp(by_id.path, m.path) == 0;
    str_copy(out, 1024, has_id ? m.id : name);
    return true;
}

/* The cluster has an instance of that name: then this machine need not know the model. NULL: none;
 * else the name as the instance has it. */
static const char *served_as(struct node *n, const char *model) {
    struct cluster_instance i;
    for (u32 k = 0; k < cluster_n_instances(n->cluster); k++) {
        cluster_instance(n->cluster, k, &i);
        if (strcasecmp(i.wanted->model, model) == 0) return i.wanted->model;
    }
    return NULL;
}

void ask_new(struct node *n, u64 id, const char *model, const void *body, size_t body_n,
             const struct node_sink *sink, void *ctx) {
    struct ask *a = xcalloc(1, sizeof *a);
    struct err e = {0};
    a->id = id;
    a->sink = *sink;
    a->ctx = ctx;
    a->since_ms = clock_ms();
    NODE_GROW(n->asks, n->n_asks, n->asks_cap);
    n->asks[n->n_asks++] = a;
    bool ok = wire_decode(msg_table(MSG_GENERATE), body, body_n, &a->mem, &a->m, &e);
    const char *served = ok ? served_as(n, model) : NULL;
    if (served) str_copy(a->model, sizeof a->model, served);
    if (served || (ok && node_model_key(n, model, a->model, &e))) return;
    if (ok && want_may_ask(n, model, &e))
        str_copy(a->model, sizeof a->model, model); /* the file may lie on another node */
    else
        end_error(n, a, &e);
}

static struct ask *find(struct node *n, u64 id) {
    for (u32 i = 0; i < n->n_asks; i++)
        if (n->asks[i]->id == id) return n->asks[i];
    return NULL;
}

static void cancel_leg(struct node *n, const struct ask *a) {
    struct msg_relay r = {.instance = a->instance,
                          .place = a->place,
                          .request = a->id,
                          .attempt = a->attempt,
                          .type = MSG_CANCEL};
    if (a->state != ASK_SENT) return;
    if (strcmp(a->node, n->id) == 0)
        leg_take(n, n->id, &r);
    else
        node_send_relay(n, a->node, &r, NULL); /* a broken link cancels at the other end */
}

void ask_cancel(struct node *n, u64 id) {
    struct ask *a = find(n, id);
    struct err e = {0};
    if (!a) return;
    cancel_leg(n, a);
    err_set(&e, ERR_CANCELLED, "the request was cancelled");
    end_error(n, a, &e);
}

/* Back to waiting, with what it has; too many times is the end. */
static void requeue(struct ask *a, u32 points, const struct err *why) {
    log_info("node", "request waits again id=%llu tokens=%llu: %s", (unsigned long long)a->id,
             (unsigned long long)a->n_ids, why->msg);
    a->last = *why;
    a->bad_place = a->place;
    a->since_ms = clock_ms();
    a->bad_until_ms = a->since_ms + BAD_PLACE_MS;
    a->state = ASK_WAITING;
    a->n_fails++;
    a->points += points;
    if (a->points < POINTS_MAX) return;
    err_wrap(&a->last, "given up after %u attempts", a->n_fails);
    a->doomed = true;
}

static void bind_to(struct ask *a, const struct cluster_instance *i) {
    if (strcmp(a->instance, i->wanted->id) == 0) return;
    str_copy(a->instance, sizeof a->instance, i->wanted->id);
    a->there_ms = clock_ms();
}

static void forward(struct node *n, struct ask *a, const struct cluster_instance *i) {
    struct err e = {0};
    struct str body = {0};
    bind_to(a, i);
    str_copy(a->node, sizeof a->node, i->ranks[0].node);
    a->place = i->placement->place;
    a->state = ASK_SENT;
    a->attempt++;
    a->seq = 0;
    a->m.id = a->id;
    a->m.origin = n->id;
    a->m.resume_ids = (struct wire_i32s){a->ids, a->n_ids};
    wire_encode(msg_table(MSG_GENERATE), &a->m, &body);
    struct msg_relay r = {.instance = a->instance,
                          .place = a->place,
                          .request = a->id,
                          .attempt = a->attempt,
                          .type = MSG_GENERATE,
                          .body = {(const u8 *)str_z(&body), body.n}};
    log_debug("node", "request sent id=%llu instance=%s node=%s attempt=%u",
              (unsigned long long)a->id, a->instance, a->node, a->attempt);
    if (strcmp(a->node, n->id) == 0)
        leg_take(n, n->id, &r);
    else if (!node_send_relay(n, a->node, &r, &e))
        requeue(a, POINTS_MOVED, &e);
    str_deinit(&body);
}

static u32 outstanding(const struct node *n, u64 place) {
    u32 k = 0;
    for (u32 i = 0; i < n->n_asks; i++)
        k += n->asks[i]->state == ASK_SENT && n->asks[i]->place == place;
    return k;
}

static void tell_waiting(struct ask *a, const char *text) {
    if (!a->sink.waiting || strcmp(a->told, text) == 0) return;
    str_copy(a->told, sizeof a->told, text);
    a->sink.waiting(a->ctx, text);
}

bool ask_waits_too_long(u64 now_ms, u64 since_ms) {
    return now_ms > since_ms + UNPLACED_MAX_MS;
}

/* Says what the instance is busy with; dooms the request when that leads nowhere. */
static void wait_for(struct node *n, struct ask *a, const struct cluster_instance *i, u64 now_ms) {
    char text[200];
    u64 done = 0, total = 0;
    bind_to(a, i);
    for (u32 r = 0; r < i->n_ranks; r++) {
        const struct msg_runner *f = cluster_runner(n->cluster, i, r);
        done += f ? f->done : 0;
        total += f ? f->total : 0;
    }
    if (i->status == INSTANCE_FETCHING)
        snprintf(text, sizeof text, "downloading %llu%%",
                 (unsigned long long)(total ? done * 100 / total : 0));
    else if (i->status == INSTANCE_WARMING)
        snprintf(text, sizeof text, "warming up");
    else if (i->status == INSTANCE_LOADING)
        snprintf(text, sizeof text, "loading %llu/%llu layers", (unsigned long long)done,
                 (unsigned long long)total);
    else
        snprintf(text, sizeof text, "%.190s", i->text);
    tell_waiting(a, text);
    bool stuck = i->status == INSTANCE_WAITING && ask_waits_too_long(now_ms, a->since_ms);
    if (i->status != INSTANCE_FAILED && !stuck) {
        if (i->status != INSTANCE_WAITING) a->since_ms = now_ms;
        return;
    }
    a->doomed = true;
    err_set(&a->last, ERR_BUSY, "model %s can't be served: %s", a->model, i->text);
}

/* How the beginnings of what it asks hash; ids are compared as bytes too. */
static struct router_key key_of(const struct ask *a) {
    const struct msg_generate *m = &a->m;
    const char *text = *m->vars_json ? m->vars_json : m->prompt;
    if (*text) return router_key(a->model, text, strlen(text));
    return router_key(a->model, (const char *)m->prompt_ids.v, m->prompt_ids.n * sizeof(i32));
}

/* Requests under way there, of this node's users and as its runner said last. */
static u32 load_of(struct node *n, const struct cluster_instance *i) {
    const struct msg_runner *f = cluster_runner(n->cluster, i, 0);
    return MAX(outstanding(n, i->placement->place), f ? f->n_active : 0);
}

/* One of the ready instances of a->model; `hope` is the most hopeful of all (wanted NULL: there is
 * none). False when none is ready. */
static bool choose_instance(struct node *n, struct ask *a, u64 now_ms,
                            struct cluster_instance *best, struct cluster_instance *hope) {
    struct cluster_instance ready[CLUSTER_INSTANCES_MAX], i;
    struct router_replica v[CLUSTER_INSTANCES_MAX];
    u32 n_ready = 0;
    *hope = (struct cluster_instance){0};
    for (u32 k = 0; k < cluster_n_instances(n->cluster); k++) {
        cluster_instance(n->cluster, k, &i);
        if (strcmp(i.wanted->model, a->model) != 0) continue;
        bool bad = i.placement->place == a->bad_place && now_ms < a->bad_until_ms;
        if (i.status == INSTANCE_READY && !bad && n_ready < CLUSTER_INSTANCES_MAX) {
            v[n_ready] = (struct router_replica){i.placement->place, load_of(n, &i)};
            ready[n_ready++] = i;
        }
        if (!hope->wanted || (hope->status == INSTANCE_FAILED && i.status != INSTANCE_FAILED))
            *hope = i;
    }
    if (!n_ready) return false;
    struct router_key key = key_of(a);
    *best = ready[router_pick(&n->router, &key, v, n_ready)];
    router_sent(&n->router, &key, best->placement->place);
    return true;
}

/* Its instance was deleted under it, and there is no other: a request that made another one would
 * undo what somebody has just said. An idle one is also deleted when others need its memory; a
 * request that came at that moment is as any that finds none, and one that is being placed anew
 * already has nothing to do with the old one. */
static bool is_called_off(const struct node *n, const struct ask *a, u64 now_ms) {
    return *a->instance && cluster_was_deleted(n->cluster, a->instance) &&
           !want_is_running(n, a->model) && (a->n_ids > 0 || now_ms >= a->there_ms + JUST_CAME_MS);
}

/* One that requests made is tried again for a request that comes later; those that have waited for
 * it get its error. */
static bool is_tried_again(const struct ask *a, const struct cluster_instance *i) {
    return i->status == INSTANCE_FAILED && i->wanted->is_automatic && a->n_fails == 0 &&
           strcmp(a->instance, i->wanted->id) != 0;
}

static void look_for_instance(struct node *n, struct ask *a, u64 now_ms) {
    struct cluster_instance best, hope;
    if (choose_instance(n, a, now_ms, &best, &hope))
        forward(n, a, &best);
    else if (hope.wanted && !is_tried_again(a, &hope))
        wait_for(n, a, &hope, now_ms);
    else if (is_called_off(n, a, now_ms)) {
        a->doomed = true;
        err_set(&a->last, ERR_CANCELLED, "instance %s of model %s was deleted", a->instance,
                a->model);
    } else {
        *a->instance = 0;
        if (want_is_running(n, a->model)) return;
        tell_waiting(a, "placing");
        want_start(n, &(struct node_place){.model = a->model}, true, NULL, NULL);
    }
}

static void look_after(struct node *n, struct ask *a, u64 now_ms) {
    struct cluster_instance i;
    if (!a->doomed && a->state == ASK_SENT) {
        struct err e = {0};
        bool there = cluster_find_instance(n->cluster, a->instance, &i);
        if (there && i.placement->place == a->place) return;
        cancel_leg(n, a);
        err_set(&e, ERR_NET, "the instance %s", there ? "moved" : "was deleted");
        if (a->state == ASK_SENT) requeue(a, POINTS_MOVED, &e);
    }
    if (!a->doomed && a->state == ASK_WAITING) look_for_instance(n, a, now_ms);
}

void ask_step(struct node *n, u64 now_ms) {
    for (u32 k = n->n_asks; k-- > 0;) {
        if (k >= n->n_asks) continue; /* a sink's last call took some away */
        u64 id = n->asks[k]->id;
        look_after(n, n->asks[k], now_ms);
        struct ask *a = find(n, id); /* it may have got its answer in there */
        if (a && a->doomed) end_error(n, a, &a->last);
    }
}

static void take_token(struct ask *a, struct msg_token *m) {
    a->n_fails = a->points = 0;
    for (u64 i = 0; i < m->ids.n; i++) {
        NODE_GROW(a->ids, a->n_ids, a->ids_cap);
        a->ids[a->n_ids++] = m->ids.v[i];
    }
    m->id = a->id;
    a->sink.token(a->ctx, m);
}

static void take_started(struct ask *a, struct msg_started *m) {
    if (a->started) return;
    a->started = true;
    m->id = a->id;
    a->sink.started(a->ctx, m);
}

static void take_done(struct node *n, struct ask *a, struct msg_done *m) {
    struct node_sink sink = a->sink;
    void *ctx = a->ctx;
    m->id = a->id;
    ask_free(n, a);
    sink.done(ctx, m);
}

static void take_error(struct node *n, struct ask *a, const struct msg_request_error *m) {
    struct err e = {0};
    err_set(&e, MIN(m->code, (u32)ERR_N - 1), "%s", m->text);
    if (e.code == ERR_NET || e.code == ERR_BUSY)
        requeue(a, e.code == ERR_NET ? POINTS_DIED : POINTS_MOVED, &e);
    else
        end_error(n, a, &e);
}

void ask_answer(struct node *n, const struct msg_relay *r) {
    struct ask *a = find(n, r->request);
    if (!a || a->state != ASK_SENT || a->attempt != r->attempt)
        return; /* of an attempt that is over */
    struct arena mem = {0};
    struct err e = {0};
    union {
        struct msg_started started;
        struct msg_token token;
        struct msg_done done;
        struct msg_request_error error;
    } m;
    const struct wire_table *t = msg_table(r->type);
    bool known = r->type == MSG_STARTED || r->type == MSG_TOKEN || r->type == MSG_DONE ||
                 r->type == MSG_REQUEST_ERROR;
    if (r->seq != a->seq)
        err_set(&e, ERR_NET, "answers were lost on the way from node %s", a->node);
    else if (!known)
        err_set(&e, ERR_FORMAT, "node %s answered with %s", a->node, msg_name(r->type));
    else
        wire_decode(t, r->body.p, r->body.n, &mem, &m, &e);
    a->seq++;
    if (e.code) {
        cancel_leg(n, a);
        requeue(a, POINTS_MOVED, &e);
    } else if (r->type == MSG_STARTED)
        take_started(a, &m.started);
    else if (r->type == MSG_TOKEN)
        take_token(a, &m.token);
    else if (r->type == MSG_DONE)
        take_done(n, a, &m.done);
    else
        take_error(n, a, &m.error);
    arena_deinit(&mem);
}

void ask_no_instance(struct node *n, const char *model, const struct err *e) {
    for (u32 i = 0; i < n->n_asks; i++) {
        struct ask *a = n->asks[i];
        if (a->state != ASK_WAITING || strcmp(a->model, model) != 0) continue;
        a->doomed = true;
        a->last = *e;
    }
}

void ask_peer_down(struct node *n, const char *node) {
    struct err e = {0};
    err_set(&e, ERR_NET, "the link to node %s broke", node);
    for (u32 i = 0; i < n->n_asks; i++)
        if (n->asks[i]->state == ASK_SENT && strcmp(n->asks[i]->node, node) == 0)
            requeue(n->asks[i], POINTS_MOVED, &e);
}

void ask_end_all(struct node *n, const struct err *e) {
    while (n->n_asks) {
        struct ask *a = n->asks[n->n_asks - 1];
        cancel_leg(n, a);
        end_error(n, a, e);
    }
}
