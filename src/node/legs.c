/* legs.c - requests that run in a shard of this machine, on behalf of this node's users or of
 * others. */
#include <stdlib.h>
#include <string.h>

#include "node/node_parts.h"

static struct leg *find(struct node *n, const char *origin, u64 request) {
    for (u32 i = 0; i < n->n_legs; i++) {
        struct leg *l = n->legs[i];
        if (l->request == request && strcmp(l->origin, origin) == 0) return l;
    }
    return NULL;
}

static void drop(struct node *n, struct leg *l) {
    for (u32 i = 0; i < n->n_legs; i++)
        if (n->legs[i] == l) n->legs[i] = n->legs[--n->n_legs];
    free(l);
}

static bool answer(struct node *n, const char *origin, struct msg_relay *r) {
    if (strcmp(origin, n->id) == 0) {
        ask_answer(n, r);
        return true;
    }
    return node_send_relay(n, origin, r, NULL);
}

static bool answer_error(struct node *n, const char *origin, u64 request, u32 attempt, u32 seq,
                         const struct err *e) {
    struct str body = {0}, text = {0};
    utf8_add_lossy(&text, e->msg, strlen(e->msg));
    struct msg_request_error m = {.id = request, .code = (u32)e->code, .text = str_z(&text)};
    wire_encode(msg_table(MSG_REQUEST_ERROR), &m, &body);
    struct msg_relay r = {.request = request,
                          .attempt = attempt,
                          .seq = seq,
                          .type = MSG_REQUEST_ERROR,
                          .body = {(const u8 *)str_z(&body), body.n}};
    bool ok = answer(n, origin, &r);
    str_deinit(&body);
    str_deinit(&text);
    return ok;
}

static void cancel(struct node *n, struct leg *l) {
    if (l->shard && l->shard->child)
        child_send(l->shard->child, MSG_CANCEL, &(struct msg_cancel){l->id});
    drop(n, l);
}

static void generate(struct node *n, const char *origin, const struct msg_relay *r) {
    struct arena mem = {0};
    struct msg_generate m;
    struct err e = {0};
    struct shard *s = node_shard_find(n, r->instance, r->place);
    struct leg *old = find(n, origin, r->request);
    if (old) cancel(n, old); /* an earlier attempt that its origin has given up */
    if (!s || !s->child || s->fact.status != RUNNER_READY || s->rank != 0)
        err_set(&e, ERR_BUSY, "instance %s is not ready on node %s", r->instance, n->name);
    else if (wire_decode(msg_table(MSG_GENERATE), r->body.p, r->body.n, &mem, &m, &e)) {
        struct leg *l = xcalloc(1, sizeof *l);
        l->id = m.id = ++n->next_leg;
        l->shard = s;
        l->request = r->request;
        l->attempt = r->attempt;
        str_copy(l->origin, sizeof l->origin, origin);
        NODE_GROW(n->legs, n->n_legs, n->legs_cap);
        n->legs[n->n_legs++] = l;
        child_send(s->child, MSG_GENERATE, &m);
    }
    if (e.code) answer_error(n, origin, r->request, r->attempt, 0, &e);
    arena_deinit(&mem);
}

void leg_take(struct node *n, const char *origin, const struct msg_relay *r) {
    if (r->type == MSG_GENERATE) {
        generate(n, origin, r);
        return;
    }
    struct leg *l = find(n, origin, r->request);
    if (l && l->attempt == r->attempt) cancel(n, l);
}

/* Every message about a request has its id under tag 1. */
struct only_id {
    u64 id;
};
static const struct wire_field ID_FIELD[] = {{1, WIRE_U64, offsetof(struct only_id, id), NULL}};
static const struct wire_table ID_TABLE = {"answer", sizeof(struct only_id), 1, ID_FIELD};

void leg_frame(struct node *n, struct shard *s, const struct frame *f) {
    struct arena mem = {0};
    struct only_id id;
    bool ok = wire_decode(&ID_TABLE, f->body, f->n, &mem, &id, NULL);
    arena_deinit(&mem);
    struct leg *l = NULL;
    for (u32 i = 0; ok && i < n->n_legs && !l; i++)
        if (n->legs[i]->id == id.id && n->legs[i]->shard == s) l = n->legs[i];
    if (!l || l->broken) return; /* cancelled */
    bool last = f->type == MSG_DONE || f->type == MSG_REQUEST_ERROR;
    struct msg_relay r = {.instance = s->instance,
                          .place = s->place,
                          .request = l->request,
                          .attempt = l->attempt,
                          .seq = l->seq++,
                          .type = f->type,
                          .body = {f->body, f->n}};
    char origin[NODE_ID_CAP];
    memcpy(origin, l->origin, sizeof origin);
    u64 leg_id = l->id;
    if (answer(n, origin, &r)) {
        if (!last) return;
        for (u32 i = 0; i < n->n_legs; i++) /* the answer may have cancelled it already */
            if (n->legs[i]->id == leg_id) drop(n, n->legs[i--]);
        return;
    }
    l->broken = true;
    if (s->child) child_send(s->child, MSG_CANCEL, &(struct msg_cancel){l->id});
}

void leg_shard_gone(struct node *n, struct shard *s, const struct err *why) {
    struct err e = *why;
    if (e.code != ERR_BUSY) e.code = ERR_NET; /* with either it is tried again, elsewhere */
    for (u32 i = 0; i < n->n_legs; i++) {
        struct leg l = *n->legs[i];
        if (l.shard != s) continue;
        drop(n, n->legs[i]);
        answer_error(n, l.origin, l.request, l.attempt, l.seq, &e);
        i = (u32)-1; /* an answer may have changed the list */
    }
}

void leg_peer_down(struct node *n, const char *node) {
    for (u32 i = n->n_legs; i-- > 0;)
        if (strcmp(n->legs[i]->origin, node) == 0) cancel(n, n->legs[i]);
}

void leg_step(struct node *n) {
    struct err e = {0};
    err_set(&e, ERR_NET, "answers did not fit through the link");
    for (u32 i = n->n_legs; i-- > 0;) {
        struct leg *l = n->legs[i];
        if (l->broken && answer_error(n, l->origin, l->request, l->attempt, l->seq, &e)) drop(n, l);
    }
}
