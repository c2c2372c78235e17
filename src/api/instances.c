/* Instances: what they would be like, making, finding, awaiting and ending them, in exo's shapes.
 */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api/api_impl.h"
#include "api/place_request.h"
#include "base/id.h"

enum { KEEPALIVE_MS = 10000, AWAIT_MAX_S = 300 };

/* The card of the model: also before the instance has shards. */
static const json_t *card_of(const json_t *state, const char *id) {
    return json_object_get(json_object_get(json_object_get(state, "instances"), id), "model_card");
}

/* {"message", "command_id", key: id; with extra what else there is to tell. */
static void answer_command(struct http_answer *a, const char *key, const char *id,
                           const struct str *extra) {
    char uuid[ID_UUID_CAP];
    id_uuid(uuid);
    struct str s = {0};
    str_addc(&s, '{');
    json_put_str(&s, "message", "Command received.");
    json_put_str(&s, "command_id", uuid);
    json_put_str(&s, key, id);
    if (extra) str_addf(&s, ",%s", extra->p);
    str_addc(&s, '}');
    api_answer_json(a, 200, &s);
    str_deinit(&s);
}

/* What is not found may be a model or a node: the sentence tells. */
static struct fault fault_of_placing(const struct err *e) {
    struct fault f = fault_of(e);
    f.code[0] = f.param[0] = 0;
    return f;
}

/* A request that waits for placements, of one instance or, one after the other, of several; and
 * what the node's thread answers to. */
struct placing {
    struct api *api;
    struct http_answer *answer;
    struct place_request q;
    char (*ids)[ID_UUID_CAP]; /* [n] placed so far */
    u32 n;
};

static struct placing *placing_new(struct api *api, struct http_answer *a) {
    struct placing *p = xcalloc(1, sizeof *p);
    p->api = api;
    p->answer = a;
    return p;
}

static void placing_free(struct placing *p) {
    place_request_deinit(&p->q);
    free(p->ids);
    free(p);
}

static void answer_placed(struct placing *p) {
    json_t *state = api_state_json(p->api);
    const json_t *card = card_of(state, p->ids[0]);
    struct str s = {0};
    json_key(&s, "instance_ids");
    str_addc(&s, '[');
    for (u32 i = 0; i < p->n; i++) {
        json_comma(&s);
        json_add_str(&s, view_of(p->ids[i]));
    }
    str_addc(&s, ']');
    if (card) {
        json_key(&s, "model_card");
        json_dump(card, &s);
    }
    str_z(&s);
    answer_command(p->answer, "instance_id", p->ids[0], &s);
    str_deinit(&s);
    json_decref(state);
}

/* All or none: those that found room are taken back. */
static void answer_not_placed(struct placing *p, const struct err *e) {
    struct fault f = fault_of_placing(e);
    for (u32 i = 0; i < p->n; i++) node_delete_instance(p->api->node, p->ids[i]);
    if (p->n) err_wrap(&f.e, "replica %u of %u", p->n + 1, p->q.replicas);
    fault_answer(&f, p->answer);
}

static void on_placed(void *ctx, const char *id, const struct err *e) {
    struct placing *p = ctx;
    if (id) str_copy(p->ids[p->n++], sizeof *p->ids, id);
    if (id && p->n < p->q.replicas) {
        node_place(p->api->node, &p->q.p, on_placed, p);
        return;
    }
    if (id)
        answer_placed(p);
    else
        answer_not_placed(p, e);
    placing_free(p);
}

static void place(struct api *api, const struct http_req *r, struct place_request *q, bool ok,
                  struct fault *f, struct http_answer *a) {
    ok = ok && api_model_name_ok(api, q->p.model, f) && api_may_ask(api, r, q->p.model, f);
    if (!ok) {
        fault_answer(f, a);
        place_request_deinit(q);
        return;
    }
    struct placing *p = placing_new(api, a);
    p->q = *q; /* and its memory */
    p->ids = xcalloc(MAX(q->replicas, 1u), sizeof *p->ids);
    node_place(api->node, &p->q.p, on_placed, p);
}

void api_place_instance(struct api *api, const struct http_req *r, const char *rest,
                        struct http_answer *a) {
    (void)rest;
    struct place_request q;
    struct fault f;
    bool ok = place_request_parse(&q, (struct view){r->body, r->n_body}, &f);
    place(api, r, &q, ok, &f, a);
}

void api_instance_post(struct api *api, const struct http_req *r, const char *rest,
                       struct http_answer *a) {
    (void)rest;
    struct place_request q;
    struct fault f;
    bool ok = place_request_instance(&q, (struct view){r->body, r->n_body}, &f);
    place(api, r, &q, ok, &f, a);
}

static void on_planned(void *ctx, const char *json, const struct err *e) {
    struct http_answer *a = ctx;
    struct str s = {0};
    if (json) {
        str_addz(&s, json);
        api_answer_json(a, 200, &s);
    } else {
        struct fault f = fault_of_placing(e);
        fault_answer(&f, a);
    }
    str_deinit(&s);
}

static void plan(struct api *api, const struct http_req *r, enum node_plan what,
                 struct http_answer *a) {
    struct place_request q;
    struct fault f;
    if (place_request_query(&q, r, &f) && api_model_name_ok(api, q.p.model, &f) &&
        api_may_ask(api, r, q.p.model, &f))
        node_plan(api->node, what, &q.p, on_planned, a);
    else
        fault_answer(&f, a);
    place_request_deinit(&q);
}

void api_instance_previews(struct api *api, const struct http_req *r, const char *rest,
                           struct http_answer *a) {
    (void)rest;
    plan(api, r, NODE_PLAN_PREVIEWS, a);
}
void api_instance_placement(struct api *api, const struct http_req *r, const char *rest,
                            struct http_answer *a) {
    (void)rest;
    plan(api, r, NODE_PLAN_PLACEMENT, a);
}
void api_instance_plan(struct api *api, const struct http_req *r, const char *rest,
                       struct http_answer *a) {
    (void)rest;
    plan(api, r, NODE_PLAN_TABLE, a);
}

/* "shardAssignments" as exo's event streams spell it: "shard_assignments". Ids and tags stay. */
static void snake(const char *s, struct str *out) {
    bool frozen = !islower((unsigned char)s[0]) || strpbrk(s, "-./:");
    for (; *s; s++) {
        if (!frozen && isupper((unsigned char)*s)) {
            str_addc(out, '_');
            str_addc(out, (char)tolower((unsigned char)*s));
        } else {
            str_addc(out, *s);
        }
    }
}

static json_t *snake_case(const json_t *j) {
    const char *k;
    json_t *v, *out;
    size_t i;
    if (json_is_object(j)) {
        out = json_object();
        json_object_foreach((json_t *)(uintptr_t)j, k, v) {
            struct str name = {0};
            snake(k, &name);
            json_object_set_new(out, str_z(&name), snake_case(v));
            str_deinit(&name);
        }
        return out;
    }
    if (!json_is_array(j)) return json_incref((json_t *)(uintptr_t)j);
    out = json_array();
    json_array_foreach((json_t *)(uintptr_t)j, i, v) json_array_append_new(out, snake_case(v));
    return out;
}

static bool is_gone(void *ctx) {
    return http_answer_is_gone(((struct placing *)ctx)->answer);
}

/* One event, and the end of the stream. */
static void on_awaited(void *ctx, enum node_await how, const char *text, const char *id) {
    static const char *const TYPE[] = {"ready", "failed", "timeout", "stopped"};
    struct placing *p = ctx;
    struct str s = {0};
    str_addz(&s, "data: {");
    json_put_str(&s, "type", TYPE[how]);
    if (how == NODE_AWAIT_READY) {
        json_t *state = api_state_json(p->api);
        json_t *inst = json_object_get(json_object_get(state, "instances"), id),
               *one = json_object();
        json_object_set(one, "MlxRingInstance", json_object_get(inst, "MlxRingInstance"));
        json_t *shown = snake_case(one);
        json_put_str(&s, "instance_id", id);
        json_key(&s, "instance");
        json_dump(shown, &s);
        json_decref(shown);
        json_decref(one);
        json_decref(state);
    } else {
        json_put_str(&s, "message", text);
    }
    str_addz(&s, "}\n\n");
    http_answer_add(p->answer, s.p, s.n);
    http_answer_end(p->answer);
    str_deinit(&s);
    placing_free(p);
}

void api_instance_await(struct api *api, const struct http_req *r, const char *rest,
                        struct http_answer *a) {
    (void)rest;
    struct fault f = {0};
    const char *model = http_req_query(r, "model_id"), *id = http_req_query(r, "instance_id");
    const char *limit = http_req_query(r, "timeout_seconds");
    char *end = NULL;
    double seconds = limit ? strtod(limit, &end) : 0;
    bool ok = true;
    if (!(model && *model) && !(id && *id))
        ok =
            fault_set(&f, ERR_ARG, "model_id", "model_id or instance_id must say what to wait for");
    if (ok && limit && (*end || !*limit || !(seconds >= 0 && seconds <= AWAIT_MAX_S)))
        ok =
            fault_set(&f, ERR_ARG, "timeout_seconds",
                      "timeout_seconds must be a number from 0 (no limit) to %d", (int)AWAIT_MAX_S);
    if (!ok) {
        fault_answer(&f, a);
        return;
    }
    http_answer_header(a, "Cache-Control", "no-cache");
    http_answer_header(a, "X-Accel-Buffering", "no");
    http_answer_start(a, 200, "text/event-stream");
    http_answer_keepalive(a, KEEPALIVE_MS, "text/event-stream", ": keep-alive\n\n");
    node_await(api->node, id && *id ? id : model, (u64)ceil(seconds * 1000), is_gone, on_awaited,
               placing_new(api, a));
}

/* The instance's entry in /state; NULL, and the request answered, when there is none. */
static const json_t *find_instance(const json_t *state, const char *id, struct http_answer *a) {
    const json_t *v = json_object_get(json_object_get(state, "instances"), id);
    if (v) return v;
    struct fault f;
    fault_set(&f, ERR_NOT_FOUND, NULL, "Instance not found: %.60s", id);
    fault_answer(&f, a);
    return NULL;
}

void api_instance_get(struct api *api, const struct http_req *r, const char *rest,
                      struct http_answer *a) {
    (void)r;
    json_t *state = api_state_json(api);
    const json_t *v = find_instance(state, rest, a);
    if (v) {
        struct str s = {0};
        json_dump(v, &s);
        api_answer_json(a, 200, &s);
        str_deinit(&s);
    }
    json_decref(state);
}

void api_instance_delete(struct api *api, const struct http_req *r, const char *rest,
                         struct http_answer *a) {
    (void)r;
    json_t *state = api_state_json(api);
    if (find_instance(state, rest, a)) {
        node_delete_instance(api->node, rest);
        answer_command(a, "instance_id", rest, NULL);
    }
    json_decref(state);
}

void api_instance_reload(struct api *api, const struct http_req *r, const char *rest,
                         struct http_answer *a) {
    (void)r;
    json_t *state = api_state_json(api);
    if (find_instance(state, rest, a)) {
        node_reload_instance(api->node, rest);
        answer_command(a, "instance_id", rest, NULL);
    }
    json_decref(state);
}

static void on_node(void *ctx, const char *node, const struct err *e) {
    if (node) {
        answer_command(ctx, "node_id", node, NULL);
        return;
    }
    struct fault f = {.e = *e};
    fault_answer(&f, ctx);
}

void api_drain(struct api *api, const struct http_req *r, const char *rest, struct http_answer *a) {
    (void)r;
    node_drain(api->node, rest, true, on_node, a);
}
void api_undrain(struct api *api, const struct http_req *r, const char *rest,
                 struct http_answer *a) {
    (void)r;
    node_drain(api->node, rest, false, on_node, a);
}
void api_forget(struct api *api, const struct http_req *r, const char *rest,
                struct http_answer *a) {
    (void)r;
    node_forget(api->node, rest, on_node, a);
}
