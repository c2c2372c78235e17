/* What `skein cluster init` asks of a running node: to dial addresses that nobody announced. */
#include "api/api_impl.h"
#include "base/json.h"
#include "base/sock.h"
#include "node/node.h"

enum { PEERS_MAX = 1024 };

/* POST /cluster/peers {"addresses": ["host[:port]", ...]}: all of them, or none and the mistake. */
void api_cluster_peers(struct api *api, const struct http_req *r, const char *rest,
                       struct http_answer *a) {
    (void)rest;
    struct fault f = {0};
    json_t *root = json_parse((struct view){r->body, r->n_body}, &f.e), *v;
    const json_t *list = json_object_get(root, "addresses");
    size_t i;
    bool ok = root != NULL;
    if (ok && (!json_is_array(list) || json_array_size(list) > PEERS_MAX))
        ok = fault_set(&f, ERR_ARG, "addresses", "addresses must be a list of at most %d texts",
                       (int)PEERS_MAX);
    if (ok) json_array_foreach((json_t *)(uintptr_t)list, i, v) {
            char host[SOCK_HOST_CAP];
            u16 port;
            const char *text = json_string_value(v);
            if (ok && !text) ok = fault_set(&f, ERR_ARG, "addresses", "address %zu is no text", i);
            if (ok && !sock_split(text, NODE_BUS_PORT, host, &port, &f.e)) ok = false;
        }
    if (!ok) {
        fault_answer(&f, a);
        json_decref(root);
        return;
    }
    json_array_foreach((json_t *)(uintptr_t)list, i, v) {
        node_add_peer(api->node, json_string_value(v));
    }
    json_decref(root);
    struct str s = {0};
    str_addz(&s, "{\"message\":\"Command received.\"}");
    api_answer_json(a, 200, &s);
    str_deinit(&s);
}
