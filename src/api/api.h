/* api.h - the HTTP interface of a node: OpenAI chat, models, cluster state, and the web page.
 *
 * Handlers run on the HTTP server's thread, results of the node arrive on the node's thread; what
 * both touch is guarded by a lock in the request's own struct. Every error has the OpenAI body
 * {"error":{"message","type","param","code"}}. */
#pragma once

#include "base/err.h"
#include "node/node.h"

struct api;

struct api_cfg {
    const char *host;    /* http_server_cfg's: NULL = loopback */
    u16 port;            /* 0: any free one */
    const char *api_key; /* needed from other machines for what changes the cluster's state; NULL:
                            none set, and other machines can't change it at all */
};

/* Borrows the node, which must outlive the api. NULL and *e (port taken, bad host). */
struct api *api_start(struct node *n, const struct api_cfg *cfg, struct err *e);
/* After node_run has returned: closes what is open. */
void api_stop(struct api *a);
u16 api_port(const struct api *a);
/* "http://127.0.0.1:52415"; lives as long as the api. */
const char *api_url(const struct api *a);
