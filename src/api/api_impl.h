/* api_impl.h - what the API's files share. */
#pragma once

#include "api/api.h"
#include "api/fault.h"
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
    api_instance_get, api_instance_delete, api_instance_reload, api_page, api_events;

/* Over HTTP a model is named by id or alias, never by a path: strangers don't choose files. False
 * and *f. */
bool api_model_name_ok(const char *name, struct fault *f);
/* The whole answer; closes it. */
void api_answer_json(struct http_answer *a, int status, const struct str *json);
