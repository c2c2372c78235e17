/* What the cluster is and what it should run: /state, /health, /node_id, /place_instance,
 * /instance/{id}. */
#include <stdlib.h>
#include <string.h>

#include "api/api_impl.h"
#include "base/id.h"
#include "base/json.h"

void api_health(struct api *api, const struct http_req *r, const char *rest,
                struct http_answer *a) {
    (void)r, (void)rest;
    struct fault f = {0};
    if (!node_health(api->node, &f.e)) {
        fault_answer(&f, a);
        return;
    }
    struct str s = {0};
    str_addz(&s, "{\"status\":\"ok\"}");
    api_answer_json(a, 200, &s);
    str_deinit(&s);
}

void api_node_id(struct api *api, const struct http_req *r, const char *rest,
                 struct http_answer *a) {
    (void)r, (void)rest;
    struct str s = {0};
    json_add_str(&s, view_of(node_id(api->node)));
    api_answer_json(a, 200, &s);
    str_deinit(&s);
}

/* The member or element that a slash-separated path names; borrowed, NULL when there is none. */
static const json_t *walk(const json_t *j, const char *path) {
    while (j && *path) {
        size_t n = strcspn(path, "/");
        char key[256];
        if (n >= sizeof key) return NULL;
        memcpy(key, path, n);
        key[n] = 0;
        char *end;
        unsigned long i = strtoul(key, &end, 10);
        if (n && json_is_array(j))
            j = *end ? NULL : json_array_get(j, i);
        else if (n)
            j = json_object_get(j, key);
        path += n + (path[n] == '/');
    }
    return j;
}

json_t *api_state_json(struct api *api) {
    const struct snapshot_text *t = node_state(api->node);
    json_t *j = json_parse((struct view){t->p, t->n}, NULL);
    node_state_done(api->node, t);
    return j;
}

void api_state(struct api *api, const struct http_req *r, const char *rest, struct http_answer *a) {
    (void)r;
    struct str s = {0};
    if (!*rest) {
        const struct snapshot_text *t = node_state(api->node);
        str_add(&s, t->p, t->n);
        node_state_done(api->node, t);
        api_answer_json(a, 200, &s);
        str_deinit(&s);
        return;
    }
    json_t *state = api_state_json(api);
    const json_t *v = walk(state, rest);
    if (v) {
        json_dump(v, &s);
        api_answer_json(a, 200, &s);
    } else {
        struct fault f;
        fault_set(&f, ERR_NOT_FOUND, NULL, "unable to find path '%.200s' in state json", rest);
        fault_answer(&f, a);
    }
    json_decref(state);
    str_deinit(&s);
}

static void answer_command(struct http_answer *a, const char *instance_id) {
    char uuid[ID_UUID_CAP];
    id_uuid(uuid);
    struct str s = {0};
    str_addc(&s, '{');
    json_put_str(&s, "message", "Command received.");
    json_put_str(&s, "command_id", uuid);
    json_put_str(&s, "instance_id", instance_id);
    str_addc(&s, '}');
    api_answer_json(a, 200, &s);
    str_deinit(&s);
}

/* On the node's thread. */
static void on_placed(void *ctx, const char *instance_id, const struct err *e) {
    struct http_answer *a = ctx;
    if (instance_id) {
        answer_command(a, instance_id);
        return;
    }
    struct fault f = fault_of(e);
    fault_answer(&f, a);
}

static bool place_field(struct node_place *p, const char *key, json_t *v, struct fault *f) {
    const char *s = json_string_value(v);
    if (strcmp(key, "model_id") == 0 || strcmp(key, "model") == 0) {
        p->model = s;
        return (s && *s) || fault_set(f, ERR_ARG, key, "%s must be the name of a model", key);
    }
    if (strcmp(key, "sharding") == 0)
        return (s && strcmp(s, "Pipeline") == 0) ||
               fault_unsupported(f, key,
                                 "sharding must be \"Pipeline\": tensor sharding is not there yet");
    if (strcmp(key, "instance_meta") == 0) /* exo's names of transports; both run over TCP here */
        return (s && strcmp(s, "MlxRing") == 0) ||
               fault_unsupported(f, key, "instance_meta must be \"MlxRing\": ranks talk over TCP");
    if (strcmp(key, "kv_type") == 0) {
        p->kv_type = !s ? 0 : strcmp(s, "f16") == 0 ? 1 : strcmp(s, "q8") == 0 ? 2 : 0;
        return p->kv_type || fault_set(f, ERR_ARG, key, "kv_type must be \"f16\" or \"q8\"");
    }
    bool is_nodes = strcmp(key, "min_nodes") == 0, is_ctx = strcmp(key, "n_ctx") == 0;
    if (!is_nodes && !is_ctx)
        return fault_unsupported(f, key, "%.60s is not a parameter of a placement", key);
    i64 n = json_is_integer(v) ? (i64)json_integer_value(v) : -1;
    if (n < 1 || n > (is_nodes ? 1024 : INT32_MAX))
        return fault_set(f, ERR_ARG, key, "%s must be a whole number of at least 1", key);
    *(is_nodes ? &p->min_nodes : &p->n_ctx) = (u32)n;
    return true;
}

void api_place_instance(struct api *api, const struct http_req *r, const char *rest,
                        struct http_answer *a) {
    (void)rest;
    struct fault f = {0};
    struct node_place p = {0};
    json_t *root = json_parse((struct view){r->body, r->n_body}, &f.e), *v;
    bool ok = root != NULL;
    if (ok && !json_is_object(root))
        ok = fault_set(&f, ERR_ARG, NULL, "the body must be a JSON object");
    const char *key;
    if (ok) json_object_foreach(root, key, v) {
            if (ok && !json_is_null(v)) ok = place_field(&p, key, v, &f);
        }
    if (ok && !p.model) ok = fault_set(&f, ERR_ARG, "model_id", "the placement names no model");
    if (ok) ok = api_model_name_ok(p.model, &f);
    if (ok)
        node_place(api->node, &p, on_placed, a);
    else
        fault_answer(&f, a);
    json_decref(root);
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
        answer_command(a, rest);
    }
    json_decref(state);
}

void api_instance_reload(struct api *api, const struct http_req *r, const char *rest,
                         struct http_answer *a) {
    (void)r;
    json_t *state = api_state_json(api);
    if (find_instance(state, rest, a)) {
        node_reload_instance(api->node, rest);
        answer_command(a, rest);
    }
    json_decref(state);
}
