#include "api/api.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/api_impl.h"
#include "base/arena.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/sock.h"
#include "base/sysinfo.h"

const struct api_route API_ROUTES[] = {
    {"POST", "/v1/chat/completions", api_chat, false},
    {"POST", "/chat/completions", api_chat, false},
    {"GET", "/v1/models", api_models, false},
    {"GET", "/models", api_models, false},
    {"GET", "/v1/models/", api_model, false},
    {"GET", "/models/", api_model, false},
    {"GET", "/health", api_health, false},
    {"GET", "/state", api_state, false},
    {"GET", "/state/", api_state, false},
    {"GET", "/node_id", api_node_id, false},
    {"GET", "/events", api_events, false},
    {"POST", "/cluster/peers", api_cluster_peers, true},
    {"POST", "/place_instance", api_place_instance, true},
    {"POST", "/instance", api_instance_post, true},
    {"GET", "/instance/previews", api_instance_previews, false},
    {"GET", "/instance/placement", api_instance_placement, false},
    {"GET", "/instance/plan", api_instance_plan, false},
    {"GET", "/instance/await", api_instance_await, false},
    {"POST", "/instance/reload/", api_instance_reload, true},
    {"POST", "/node/drain/", api_drain, true},
    {"POST", "/node/undrain/", api_undrain, true},
    {"POST", "/node/forget/", api_forget, true},
    {"GET", "/instance/", api_instance_get, false},
    {"DELETE", "/instance/", api_instance_delete, true},
    {"GET", "/", api_page, false},
    {"GET", "/index.html", api_page, false},
};
const u32 API_N_ROUTES = ARRAY_LEN(API_ROUTES);

void api_answer_json(struct http_answer *a, int status, const struct str *json) {
    if (!http_answer_whole(a, status, "application/json", str_z(json),
                           json->n)) { /* a stream has begun: say it there */
        http_answer_add(a, str_z(json), json->n);
        http_answer_end(a);
    }
}

static bool matches(const struct api_route *t, const char *path, const char **rest) {
    size_t n = strlen(t->path);
    bool prefix = n > 1 && t->path[n - 1] == '/';
    *rest = path + n;
    return strncmp(t->path, path, n) == 0 && (path[n] == 0) == !prefix;
}

/* A page from elsewhere may read and ask (exo allows any origin, and web clients rely on it), but
 * browsers must not carry a stranger's page into changing this cluster: those requests are
 * same-origin, or come without an Origin at all. */
static bool same_origin(const struct http_req *r) {
    const char *origin = http_req_header(r, "Origin"), *host = http_req_header(r, "Host");
    if (!origin) return true;
    const char *at = strstr(origin, "://");
    return at && host && strcmp(at + 3, host) == 0;
}

static bool ends_with(const char *s, const char *tail) {
    size_t n = strlen(s), k = strlen(tail);
    return n > k && strcasecmp(s + n - k, tail) == 0;
}

/* A name that whoever asks can't have pointed here: an address, this machine's name, or one that
 * only the local network gives out. A page of evil.test whose name is made to mean 127.0.0.1 once
 * it is loaded has this node's origin; its Host gives it away. */
static bool host_is_own(const char *header) {
    char host[SOCK_HOST_CAP], own[256], first[256];
    u8 address[16];
    u16 port;
    if (!header || !*header) return true; /* no browser */
    if (!sock_split(header, 80, host, &port, &(struct err){0})) return false;
    size_t n = strlen(host);
    if (n > 1 && host[n - 1] == '.') host[n - 1] = 0; /* "localhost." is the same name */
    if (inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1)
        return true;
    sysinfo_hostname(own, sizeof own);
    str_copy(first, MIN(sizeof first, strcspn(own, ".") + 1), own);
    return strcasecmp(host, "localhost") == 0 || ends_with(host, ".localhost") ||
           ends_with(host, ".local") || strcasecmp(host, own) == 0 || strcasecmp(host, first) == 0;
}

static bool key_is_right(const char *key, const struct http_req *r) {
    const char *auth = http_req_header(r, "Authorization");
    return key && auth && strncmp(auth, "Bearer ", 7) == 0 && strlen(auth + 7) == strlen(key) &&
           hash_equal(auth + 7, key, strlen(key));
}

bool api_may_change(const char *key, const struct http_req *r, struct fault *f) {
    if (!same_origin(r))
        return fault_set(f, ERR_AUTH, NULL,
                         "a web page of another origin may not change this cluster");
    if (key_is_right(key, r)) return true;
    const char *host = http_req_header(r, "Host");
    if (r->is_loopback && host_is_own(host)) return true;
    if (r->is_loopback)
        return fault_set(f, ERR_AUTH, NULL,
                         "%.100s is no name of this machine: changes are asked of localhost, an "
                         "address, the machine's name, or with the API key",
                         host);
    if (!key)
        return fault_set(
            f, ERR_AUTH, NULL,
            "changes from other machines need an API key: start the node with --api-key");
    return fault_set(f, ERR_AUTH, NULL,
                     "the API key is missing or wrong: send it as \"Authorization: Bearer KEY\" "
                     "(skein's commands: --api-key)");
}

/* Does the cluster have an instance of a model of this id or name? */
static bool is_served(struct api *api, const char *id, const char *name) {
    json_t *state = api_state_json(api), *i;
    const char *key;
    bool is = false;
    json_object_foreach(json_object_get(state, "instances"), key, i) {
        const char *of = json_string_value(json_object_get(i, "model"));
        is = is || (of && (strcmp(of, id) == 0 || strcmp(of, name) == 0));
    }
    json_decref(state);
    return is;
}

bool api_model_name_ok(struct api *api, const char *name, struct fault *f) {
    if (name[0] == '/' || name[0] == '.' || name[0] == '~') {
        fault_set(f, ERR_NOT_FOUND, "model",
                  "there is no model %.100s: over HTTP models go by their id, and GET /v1/models "
                  "lists them",
                  name);
        str_copy(f->code, sizeof f->code, "model_not_found");
        return false;
    }
    if (!store_is_path(name)) return true;
    /* "org/model" may be a name, "folder/file" is none, whether there is such a file or not. */
    struct store_model *m = xcalloc(1, sizeof *m);
    struct err e = {0};
    bool ok = store_resolve_name(node_store(api->node), name, m, &e) || is_served(api, name, name);
    free(m);
    if (!ok) *f = fault_of(&e);
    return ok;
}

/* Is it in the cluster: an instance of it, or its file here? */
static bool is_here(struct api *api, const char *model) {
    struct store_model *m = xcalloc(1, sizeof *m);
    bool here = !store_resolve(node_store(api->node), model, m, NULL) || *m->path ||
                is_served(api, *m->id ? m->id : model, model);
    free(m);
    return here; /* an unknown name too: the answer is that there is no such model */
}

bool api_may_ask(struct api *api, const struct http_req *r, const char *model, struct fault *f) {
    if (r->is_loopback || is_here(api, model) || api_may_change(api->api_key, r, f)) return true;
    err_wrap(&f->e, "model %.100s is not in the cluster yet, and fetching it changes things",
             model);
    return false;
}

static void add_cors(struct http_answer *a) {
    http_answer_header(a, "Access-Control-Allow-Origin", "*");
    http_answer_header(a, "Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
    http_answer_header(a, "Access-Control-Allow-Headers", "*");
    http_answer_header(a, "Access-Control-Max-Age", "86400");
}

static void handle(const struct http_req *r, struct http_answer *a, void *ctx) {
    struct api *api = ctx;
    struct fault f = {0};
    const char *rest, *method = strcmp(r->method, "HEAD") == 0 ? "GET" : r->method;
    bool path_known = false;
    add_cors(a);
    if (strcmp(method, "OPTIONS") == 0) {
        if (!http_answer_whole(a, 204, NULL, NULL, 0)) http_answer_end(a);
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(API_ROUTES); i++) {
        const struct api_route *t = &API_ROUTES[i];
        if (!matches(t, r->path, &rest)) continue;
        path_known = true;
        if (strcmp(t->method, method) != 0) continue;
        if (t->changes && !api_may_change(api->api_key, r, &f))
            fault_answer(&f, a);
        else
            t->fn(api, r, rest, a);
        return;
    }
    if (path_known) {
        fault_set(&f, ERR_ARG, NULL, "%.16s is not a method of %.200s", r->method, r->path);
        f.status = 405;
        str_copy(f.code, sizeof f.code, "method_not_allowed");
    } else {
        fault_set(&f, ERR_NOT_FOUND, NULL, "there is no %.16s %.200s", r->method, r->path);
    }
    fault_answer(&f, a);
}

struct api *api_start(struct node *n, const struct api_cfg *cfg, struct err *e) {
    struct api *api = xcalloc(1, sizeof *api);
    api->node = n;
    api->api_key = cfg->api_key && *cfg->api_key ? xstrdup(cfg->api_key) : NULL;
    struct http_server_cfg h = {
        .host = cfg->host, .port = cfg->port, .handler = handle, .ctx = api};
    api->http = http_server_start(&h, e);
    if (!api->http) {
        free(api->api_key);
        free(api);
        return NULL;
    }
    node_set_api(n, api_port(api));
    log_info("api", "listening url=%s", api_url(api));
    return api;
}

void api_stop(struct api *api) {
    if (!api) return;
    http_server_stop(api->http);
    free(api->api_key);
    free(api);
}

u16 api_port(const struct api *api) {
    return http_server_port(api->http);
}
const char *api_url(const struct api *api) {
    return http_server_url(api->http);
}
