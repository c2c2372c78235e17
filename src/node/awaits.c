/* awaits.c - who waits for an instance to be ready: ready means that every rank of it is. */
#include <string.h>

#include "node/node_parts.h"

void await_add(struct node *n, const struct waiting *w) {
    NODE_GROW(n->waits, n->n_waits, n->waits_cap);
    n->waits[n->n_waits++] = *w;
}

static void end(struct node *n, u32 at, enum node_await how, const char *text, const char *id) {
    struct waiting w = n->waits[at];
    n->waits[at] = n->waits[--n->n_waits];
    if (how == NODE_AWAIT_READY) state_json_publish(n); /* who looks it up now finds it ready */
    w.done(w.ctx, how, text, id);
}

/* True when the wait is over. A failed instance is the answer only when no other may get ready. */
static bool look(struct node *n, u32 at) {
    struct waiting *w = &n->waits[at];
    struct cluster_instance i, failed = {.wanted = NULL};
    char key[1024];
    bool hope = false, there = false;
    if (!node_model_key(n, w->model, key, NULL)) str_copy(key, sizeof key, w->model);
    for (u32 k = 0; k < cluster_n_instances(n->cluster); k++) {
        cluster_instance(n->cluster, k, &i);
        if (strcmp(i.wanted->id, w->model) != 0 && strcmp(i.wanted->model, key) != 0 &&
            strcmp(i.wanted->model, w->model) != 0)
            continue;
        there = true;
        if (i.status == INSTANCE_READY) {
            end(n, at, NODE_AWAIT_READY, "", i.wanted->id);
            return true;
        }
        if (i.status == INSTANCE_FAILED)
            failed = i;
        else
            hope = true;
    }
    if (failed.wanted && !hope) {
        end(n, at, NODE_AWAIT_FAILED, failed.text, failed.wanted->id);
        return true;
    }
    if (!there && (w->seen || cluster_was_deleted(n->cluster, w->model))) {
        end(n, at, NODE_AWAIT_FAILED, "the instance was deleted", "");
        return true;
    }
    w->seen |= there;
    return false;
}

void await_step(struct node *n, u64 now_ms) {
    for (u32 i = n->n_waits; i-- > 0;) {
        struct waiting *w = &n->waits[i];
        if (look(n, i)) continue;
        if (now_ms >= w->deadline_ms)
            end(n, i, NODE_AWAIT_TIMEOUT, "no instance was ready in time", "");
        else if (w->is_gone && w->is_gone(w->ctx))
            end(n, i, NODE_AWAIT_STOPPED, "the asker went away", "");
    }
}

void await_end_all(struct node *n) {
    while (n->n_waits) end(n, n->n_waits - 1, NODE_AWAIT_STOPPED, "the node is stopping", "");
}
