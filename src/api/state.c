/* What the cluster is: /state, /health, /node_id. */
#include <stdlib.h>
#include <string.h>

#include "api/api_impl.h"
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
