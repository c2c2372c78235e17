/* place_request.h - what clients ask of a placement: the body of POST /place_instance, an instance
 * for POST /instance, and the query of GET /instance/previews and its neighbours. Pure. */
#pragma once

#include "api/fault.h"
#include "base/arena.h"
#include "base/json.h"
#include "net/http_req.h"
#include "node/node_place.h"

struct place_request {
    struct arena mem;
    struct node_place p; /* lives in mem */
    u32 replicas;        /* so many instances of it; 0: one */
};

enum {
    PLACE_REQUEST_REPLICAS_MAX = 64,
    PLACE_REQUEST_LIST_MAX = 256,
    PLACE_REQUEST_RANKS_MAX = 64,
    PLACE_REQUEST_EXTRA_MAX = 8
};

/* {"model_id", "sharding", "instance_meta", "min_nodes", "n_ctx", "kv_type", "activations", "goal",
 * "batch", "nodes", "exclude", "layers", "force", "replicas"}; everything but the model is
 * optional. False and *f; r needs its deinit in any case. */
bool place_request_parse(struct place_request *r, struct view body, struct fault *f);
/* One of these fields. Numbers are whole ones. */
bool place_request_field(struct place_request *r, const char *key, const json_t *v,
                         struct fault *f);
/* An instance as previews and the state show it, wrapped in {"instance": ...} or not, tagged
 * ({"MlxRingInstance": ...}) or bare, camelCase or snake_case. It becomes a layout by hand; tensor
 * shards without a slice are shared out by speed. nCtx, batch, force, kvType and activations may be
 * in it or beside it. */
bool place_request_instance(struct place_request *r, struct view body, struct fault *f);
/* The same fields as query parameters; node_ids, nodes and exclude may come several times, and
 * add=NAME,MEMORY_BYTES,READ_BYTES_S,OPS_S,DELAY_US,LINK_BYTES_S too. */
bool place_request_query(struct place_request *r, const struct http_req *q, struct fault *f);
void place_request_deinit(struct place_request *r);

/* "a=0-11,b=12-29" into ranks; nodes with the same range share its layers. For the CLI too. */
bool place_request_layers(struct arena *a, const char *text, struct wire_list *ranks,
                          struct err *e);
