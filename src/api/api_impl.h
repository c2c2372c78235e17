/* api_impl.h - what the API's files share. */
#pragma once

#include "api/api.h"
#include "api/fault.h"
#include "base/json.h"
#include "net/http_server.h"

struct api {
    struct node *node;
    struct http_server *http;
    char *api_key; /* NULL: none */
};

/* A route's handler owns `a`: it answers now or later. `rest` is the path behind the route's
 * prefix. */
typedef void api_handler(struct api *api, const struct http_req *r, const char *rest,
                         struct http_answer *a);

api_handler api_chat, api_models, api_model, api_health, api_state, api_node_id, api_place_instance,
    api_instance_get, api_instance_delete, api_instance_reload, api_instance_post,
    api_instance_previews, api_instance_placement, api_instance_plan, api_instance_await, api_drain,
    api_undrain, api_forget, api_page, api_events, api_cluster_peers;

struct api_route {
    const char *method;
    const char *path; /* ending in '/': a prefix, the rest goes to the handler */
    api_handler *fn;
    bool changes; /* the cluster's state: needs the key from other machines */
};
extern const struct api_route API_ROUTES[];
extern const u32 API_N_ROUTES;

void api_events_stream(struct events *e, const struct http_req *r, struct http_answer *a);
/* Who may change the cluster: this machine, and others with the key; no page of another origin.
 * False and *f. */
bool api_may_change(const char *key, const struct http_req *r, struct fault *f);
/* A request by others may use what the cluster has, but must not make it fetch a model without the
 * key. False and *f. */
bool api_may_ask(struct api *api, const struct http_req *r, const char *model, struct fault *f);
/* Over HTTP a model is named by id or alias, never by a path: strangers don't choose files. False
 * and *f. */
bool api_model_name_ok(struct api *api, const char *name, struct fault *f);
/* Parsed /state, owned by the caller. */
json_t *api_state_json(struct api *api);
/* The whole answer; closes it. */
void api_answer_json(struct http_answer *a, int status, const struct str *json);
