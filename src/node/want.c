/* want.c - from a model's name to an instance: the file, what is in it, the master's word.
 *
 * A node that takes no shards has no use for the file: it has a worker look into it (MSG_DESCRIBE
 * behind the bus), and asks the master with what that tells. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/id.h"
#include "base/random.h"
#include "node/node_parts.h"

enum { DESCRIBE_MS = 30000 };

static void answer(struct node *n, const struct want *w, u32 type, const void *body,
                   size_t body_n) {
    struct msg_relay r = {.request = w->origin_id, .type = type, .body = {body, body_n}};
    node_send_relay(n, w->origin, &r, NULL); /* a broken link ends it at the other side */
}

static void answer_failed(struct node *n, const struct want *w, const struct err *e) {
    struct str body = {0}, text = {0};
    utf8_add_lossy(&text, e->msg, strlen(e->msg));
    wire_encode(msg_table(MSG_FAILED), &(struct msg_failed){.code = e->code, .text = str_z(&text)},
                &body);
    answer(n, w, MSG_FAILED, str_z(&body), body.n);
    str_deinit(&body);
    str_deinit(&text);
}

/* The last thing that happens to it. */
static void end(struct node *n, struct want *w, const char *instance, const struct err *e) {
    for (u32 i = 0; i < n->n_wants; i++)
        if (n->wants[i] == w) n->wants[i] = n->wants[--n->n_wants];
    node_bury(n, w->child, 200);
    if (e && *w->model && !w->plan)
        log_warn("node", "instance refused model=%s: %s", w->model, e->msg);
    if (e && *w->origin) answer_failed(n, w, e);
    if (w->placed && !e) state_json_publish(n); /* who looks for it next finds it */
    if (w->placed) w->placed(w->ctx, e ? NULL : instance, e);
    if (w->automatic && e) ask_no_instance(n, w->model, e);
    str_deinit(&w->proposal);
    arena_deinit(&w->mem);
    free(w);
}

static void describe(struct node *n, struct want *w, const struct store_model *m) {
    struct err e = {0};
    char label[160];
    str_copy(w->path, sizeof w->path, m->path);
    snprintf(label, sizeof label, "runner that looks into %.120s", w->model);
    w->child = child_spawn(n->cfg.program, label, &e);
    if (!w->child) {
        end(n, w, NULL, &e);
        return;
    }
    w->stage = WANT_DESCRIPTION;
    w->deadline_ms = clock_ms() + DESCRIBE_MS;
    child_send(w->child, MSG_DESCRIBE,
               &(struct msg_describe){.path = w->path, .kv_type = w->kv_type});
}

static struct want *want_new(struct node *n, const char *model) {
    struct want *w = xcalloc(1, sizeof *w);
    w->id = random_u64() | 1;
    if (!node_model_key(n, model, w->model, NULL)) /* unknown here: whoever looks for it says so */
        str_copy(w->model, sizeof w->model, model);
    NODE_GROW(n->wants, n->n_wants, n->wants_cap);
    n->wants[n->n_wants++] = w;
    return w;
}

static bool was_tried(const struct want *w, const char *node) {
    for (u32 i = 0; i < w->n_tried; i++)
        if (strcmp(w->tried[i], node) == 0) return true;
    return false;
}

static void try_helper(struct want *w, const char *node) {
    char(*all)[NODE_ID_CAP] = arena_array(&w->mem, w->n_tried + 1, sizeof *all);
    if (w->n_tried) memcpy(all, w->tried, w->n_tried * sizeof *all);
    str_copy(all[w->n_tried], sizeof *all, node);
    str_copy(w->helper, sizeof w->helper, node);
    w->tried = all;
    w->n_tried++;
}

/* Any live worker will do that was not asked before. False when there is none. */
static bool ask_helper(struct node *n, struct want *w) {
    struct str body = {0};
    struct cluster_member m;
    bool sent = false;
    wire_encode(msg_table(MSG_DESCRIBE),
                &(struct msg_describe){.path = w->model, .kv_type = w->kv_type}, &body);
    struct msg_relay r = {
        .request = w->id, .type = MSG_DESCRIBE, .body = {(const u8 *)str_z(&body), body.n}};
    for (u32 i = 1; i < cluster_n_members(n->cluster) && !sent; i++) {
        cluster_member(n->cluster, i, clock_ms(), &m);
        if (m.state != MEMBER_LIVE || !m.hello->is_worker || was_tried(w, m.id)) continue;
        try_helper(w, m.id);
        sent = node_send_relay(n, m.id, &r, NULL);
    }
    str_deinit(&body);
    w->stage = WANT_DESCRIPTION;
    w->deadline_ms = UINT64_MAX; /* the helper may have to download it */
    return sent;
}

/* The beginning of the file tells what is in it; only if that does not do (a header of uncommon
 * size), the whole file is fetched. A name that is unknown here may be that of a file which lies on
 * another node. */
static void look_for_file(struct node *n, struct want *w) {
    static const struct store_part HEAD = {0, FETCH_HEAD_BYTES};
    struct store_model m;
    struct err e = {0};
    w->stage = WANT_FILE;
    if (fetch_need(n, w->model, &HEAD, w->needs_whole ? 0 : 1, 0, &m, &e))
        describe(n, w, &m);
    else if (e.code && (*w->origin || !want_may_ask(n, w->model, &e) || !ask_helper(n, w)))
        end(n, w, NULL, &e);
}

bool want_may_ask(const struct node *n, const char *model, const struct err *e) {
    struct cluster_member m;
    bool worker = false;
    for (u32 i = 1; i < cluster_n_members(n->cluster) && !worker; i++) {
        cluster_member(n->cluster, i, clock_ms(), &m);
        worker = m.state == MEMBER_LIVE && m.hello->is_worker;
    }
    return worker && e->code == ERR_NOT_FOUND && !store_is_path(model);
}

static void have_described(struct node *n, struct want *w) {
    struct err e = {0};
    if (ask_helper(n, w)) return;
    err_set(&e, ERR_BUSY, "no worker node is there");
    end(n, w, NULL, &e);
}

/* The helper was lost, or does not have the file and can't get it: another one may. */
static bool ask_another(struct node *n, struct want *w, const struct err *e) {
    return *w->helper && (e->code == ERR_NET || e->code == ERR_NOT_FOUND) && ask_helper(n, w);
}

static struct want *want_place(struct node *n, const struct node_place *p, node_placed_fn placed,
                               void *ctx) {
    struct want *w = want_new(n, p->model);
    wish_copy(&w->mem, &w->p, p);
    w->asks_ctx = w->p.n_ctx != 0;
    if (!w->p.n_ctx) w->p.n_ctx = n->cfg.n_ctx;
    w->act_bits = p->act_bits ? p->act_bits : n->cfg.act_bits;
    w->kv_type = p->kv_type ? p->kv_type - 1 : n->cfg.kv_type;
    w->placed = placed;
    w->ctx = ctx;
    return w;
}

void want_start(struct node *n, const struct node_place *p, bool automatic, node_placed_fn placed,
                void *ctx) {
    struct want *w = want_place(n, p, placed, ctx);
    w->automatic = automatic;
    if (n->cfg.no_worker)
        have_described(n, w);
    else
        look_for_file(n, w);
}

/* A wanted entry of w with what d says. The texts live in d and w. */
static struct msg_wanted wanted_of(struct node *n, const struct want *w,
                                   const struct msg_model *d) {
    return (struct msg_wanted){.model = w->model,
                               .min_nodes = w->p.min_nodes,
                               .n_ctx = w->p.n_ctx,
                               .kv_type = w->kv_type,
                               .act_bits = w->act_bits,
                               .is_automatic = w->automatic,
                               .first_node = n->id,
                               .desc = *d,
                               .wish = w->p.wish};
}

/* The nodes that are named are there, and a context that was asked for is one the model has: the
 * node's default is cut to what there is, a wish is not. */
static bool wish_fits(struct node *n, struct want *w, const struct msg_model *d, struct err *e) {
    if (w->asks_ctx && d->n_ctx_train && w->p.n_ctx > d->n_ctx_train)
        return err_set(e, ERR_ARG, "a context of %u tokens: the model was trained for %u",
                       w->p.n_ctx, d->n_ctx_train);
    return wish_resolve(n, &w->mem, &w->p.wish, e);
}

/* All is known: the planning thread's answer is the end of it. */
static void plan_it(struct node *n, struct want *w, const struct msg_model *d) {
    struct err e = {0};
    bool ok = wish_fits(n, w, d, &e);
    node_bury(n, w->child, 200);
    w->child = NULL;
    w->stage = WANT_PLAN;
    if (ok) {
        struct msg_wanted m = wanted_of(n, w, d);
        m.id = "";
        ok = plans_ask(n, &m, w, &e);
    }
    if (!ok) end(n, w, NULL, &e);
}

void want_planned(struct node *n, u64 id, const char *json, const struct err *e) {
    for (u32 i = 0; i < n->n_wants; i++) {
        struct want *w = n->wants[i];
        if (w->id != id || w->stage != WANT_PLAN) continue;
        end(n, w, json, e);
        return;
    }
}

/* Of an instance that there is, whatever machine has the file. */
static const struct msg_model *described_already(const struct node *n, const struct want *w) {
    struct cluster_instance i;
    for (u32 k = 0; k < cluster_n_instances(n->cluster); k++) {
        cluster_instance(n->cluster, k, &i);
        if (strcmp(i.wanted->model, w->model) == 0 && i.wanted->kv_type == w->kv_type)
            return &i.wanted->desc;
    }
    return NULL;
}

void want_plan(struct node *n, enum node_plan what, const struct node_place *p, node_placed_fn done,
               void *ctx) {
    struct want *w = want_place(n, p, done, ctx);
    w->plan = what;
    const struct msg_model *d = described_already(n, w);
    if (d)
        plan_it(n, w, d);
    else if (n->cfg.no_worker)
        have_described(n, w);
    else
        look_for_file(n, w);
}

void want_drain(struct node *n, const char *node, bool on, node_placed_fn done, void *ctx) {
    struct want *w = xcalloc(1, sizeof *w);
    w->id = random_u64() | 1;
    w->stage = WANT_ANSWER;
    w->placed = done;
    w->ctx = ctx;
    NODE_GROW(n->wants, n->n_wants, n->wants_cap);
    n->wants[n->n_wants++] = w;
    struct err e = {0};
    if (!wish_node(n, &w->mem, &node, &e)) {
        end(n, w, NULL, &e);
        return;
    }
    struct msg_propose p = {
        .id = w->id, .kind = on ? PROPOSE_DRAIN : PROPOSE_UNDRAIN, .node = node, .wanted.id = ""};
    member_feed(n, &(struct cluster_input){.kind = CLUSTER_PROPOSE, .propose = &p});
}

bool want_is_running(const struct node *n, const char *model) {
    for (u32 i = 0; i < n->n_wants; i++)
        if (n->wants[i]->automatic && strcmp(n->wants[i]->model, model) == 0) return true;
    return false;
}

void want_file(struct node *n, const char *model, const struct err *failure) {
    for (u32 i = n->n_wants; i-- > 0;) {
        struct want *w = n->wants[i];
        if (w->stage != WANT_FILE || strcmp(w->model, model) != 0) continue;
        if (failure)
            end(n, w, NULL, failure);
        else
            look_for_file(n, w);
        i = MIN(i, n->n_wants); /* a callback may have ended others */
    }
}

static void propose(struct node *n, struct want *w, const struct msg_described *d) {
    char id[NODE_INSTANCE_ID_CAP];
    u8 key[32];
    struct err e = {0};
    struct msg_model model = msg_model_of(d);
    if (w->plan) {
        plan_it(n, w, &model);
        return;
    }
    if (!wish_fits(n, w, &model, &e)) {
        end(n, w, NULL, &e);
        return;
    }
    id_uuid(id);
    random_bytes(key, sizeof key);
    struct msg_propose p = {.id = w->id, .kind = PROPOSE_WANT, .wanted = wanted_of(n, w, &model)};
    p.wanted.id = w->p.instance_id ? w->p.instance_id : id;
    p.wanted.key = (struct wire_blob){key, sizeof key};
    node_bury(n, w->child, 200);
    w->child = NULL;
    w->stage = WANT_ANSWER;
    if (w->p.instance_id) wire_encode(msg_table(MSG_PROPOSE), &p, &w->proposal);
    member_feed(n, &(struct cluster_input){.kind = CLUSTER_PROPOSE, .propose = &p});
}

/* The id that the asker gave is that of an instance that was deleted, and such an id never comes
 * back: whoever hands in a preview once more gets its layout under another one. */
static void propose_anew(struct node *n, struct want *w) {
    struct arena mem = {0};
    struct msg_propose p;
    char id[NODE_INSTANCE_ID_CAP];
    ASSERT(wire_decode(msg_table(MSG_PROPOSE), w->proposal.p, w->proposal.n, &mem, &p, NULL));
    id_uuid(id);
    p.id = w->id = random_u64() | 1;
    p.wanted.id = id;
    w->p.instance_id = NULL;
    w->stage = WANT_ANSWER;
    member_feed(n, &(struct cluster_input){.kind = CLUSTER_PROPOSE, .propose = &p});
    arena_deinit(&mem);
}

/* A file with holes that could not be read: the whole one may be. */
static bool try_whole(struct node *n, struct want *w, u32 code) {
    size_t k = strlen(w->path);
    bool is_part = k > 5 && strcmp(w->path + k - 5, ".part") == 0;
    if (!w->child || w->needs_whole || !is_part || code == ERR_UNSUPPORTED || w->plan) return false;
    node_bury(n, w->child, 200);
    w->child = NULL;
    w->needs_whole = true;
    look_for_file(n, w);
    return true;
}

/* Ends w or takes it to the next stage. */
static void take_description(struct node *n, struct want *w, u32 type, const void *body,
                             size_t body_n) {
    struct arena mem = {0};
    struct msg_described d;
    struct msg_failed failed;
    struct err e = {0};
    if (type == MSG_DESCRIBED && *w->origin) {
        answer(n, w, type, body, body_n);
        end(n, w, NULL, NULL);
    } else if (type == MSG_DESCRIBED && wire_decode(msg_table(type), body, body_n, &mem, &d, &e)) {
        propose(n, w, &d);
    } else if (type == MSG_FAILED &&
               wire_decode(msg_table(type), body, body_n, &mem, &failed, &e)) {
        err_set(&e, MIN(failed.code, (u32)ERR_N - 1), "%s", failed.text);
        if (!try_whole(n, w, e.code) && !ask_another(n, w, &e)) end(n, w, NULL, &e);
    } else if (e.code) {
        end(n, w, NULL, &e);
    }
    arena_deinit(&mem);
}

void want_relay(struct node *n, const char *from, const struct msg_relay *r) {
    struct arena mem = {0};
    struct msg_describe d;
    if (r->type == MSG_DESCRIBE &&
        wire_decode(msg_table(r->type), r->body.p, r->body.n, &mem, &d, NULL)) {
        struct want *w = want_new(n, d.path);
        str_copy(w->origin, sizeof w->origin, from);
        w->kv_type = d.kv_type;
        w->origin_id = r->request;
        look_for_file(n, w);
    }
    arena_deinit(&mem);
    for (u32 i = 0; i < n->n_wants && r->type != MSG_DESCRIBE; i++) {
        struct want *w = n->wants[i];
        if (w->id != r->request || strcmp(w->helper, from) != 0 || w->stage != WANT_DESCRIPTION)
            continue;
        take_description(n, w, r->type, r->body.p, r->body.n);
        return;
    }
}

void want_peer_down(struct node *n, const char *node) {
    for (u32 i = n->n_wants; i-- > 0;) {
        struct want *w = n->wants[i];
        struct err e = {0};
        err_set(&e, ERR_NET, "node %s, which was to look into the file, was lost", node);
        bool concerned = strcmp(w->helper, node) == 0 && w->stage == WANT_DESCRIPTION;
        bool goes_on = concerned && ask_another(n, w, &e);
        if ((concerned && !goes_on) || strcmp(w->origin, node) == 0) end(n, w, NULL, &e);
        i = MIN(i, n->n_wants);
    }
}

void want_read(struct node *n, struct want *w) {
    struct frame f;
    struct err e = {0};
    int got = child_recv(w->child, &f, &e);
    if (got == 1)
        take_description(n, w, f.type, f.body, f.n);
    else if (got < 0) {
        err_wrap(&e, "%s", w->path);
        end(n, w, NULL, &e);
    }
}

void want_answer(struct node *n, u64 id, const char *instance, const struct err *answer) {
    for (u32 i = 0; i < n->n_wants; i++) {
        struct want *w = n->wants[i];
        if (w->id != id) continue;
        if (answer && answer->code == ERR_NOT_FOUND && w->p.instance_id)
            w->stage = WANT_ANOTHER_ID; /* a step of the cluster must not be entered twice */
        else
            end(n, w, instance, answer);
        return;
    }
}

void want_step(struct node *n, u64 now_ms) {
    for (u32 i = n->n_wants; i-- > 0;) {
        struct want *w = n->wants[i];
        if (w->stage == WANT_ANOTHER_ID) {
            propose_anew(n, w);
            i = n->n_wants; /* an answer may have ended it */
            continue;
        }
        if (w->stage != WANT_DESCRIPTION || now_ms < w->deadline_ms) continue;
        struct err e = {0};
        err_set(&e, ERR_IO, "%s could not be read within %d s", w->path, DESCRIBE_MS / 1000);
        end(n, w, NULL, &e);
        i = MIN(i, n->n_wants);
    }
}

void want_end_all(struct node *n, const struct err *e) {
    while (n->n_wants) end(n, n->wants[n->n_wants - 1], NULL, e);
}
