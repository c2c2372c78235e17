/* routes.h - how this node finds the others and is found: discovery, its own addresses, and the
 * dialling of theirs. On the node's thread. */
#pragma once

#include "base/netif.h"
#include "node/node_impl.h"

struct routes;

/* Reads the interfaces and starts discovery, which may fail without harm. Before the cluster is
 * made, after the bus is. */
struct routes *routes_new(struct node *n);
void routes_free(struct routes *r);
int routes_fd(const struct routes *r); /* -1: no discovery */
/* What discovery found since the last call. */
void routes_read(struct node *n);
/* Dials candidates, drops stale ones, notices that the machine's addresses have changed. */
void routes_step(struct node *n, u64 now_ms);
/* The API's port is known. */
void routes_set_api(struct node *n, u16 port);
/* The list for this node's hello; lives until the next step. */
const struct wire_list *routes_addresses(const struct routes *r);
/* An address that could not be reached. True when it was only a candidate: no line in the log. */
bool routes_failed(struct node *n, const struct bus_event *ev);

/* Did the user name it (--peer)? Such an address is dialled for ever. */
bool routes_given(const struct node *n, const char *address);

/* For the bus: how good the way to a host is. ctx: the node. */
u32 routes_rank(void *ctx, const char *host);

/* For the state: what was found and refuses our key. False when there are no more. */
struct routes_refused {
    const char *node, *address, *reason;
};
bool routes_refused(const struct routes *r, u32 i, struct routes_refused *out);
/* "" when discovery runs, else why it does not. */
const char *routes_discovery_error(const struct routes *r);
const struct netif *routes_netifs(const struct routes *r, u32 *n);
