/* route.h - which addresses a node is known by, and which of another's are worth dialling. Pure.
 *
 * A route is an address of a peer's bus. Candidates come from discovery and from the peer's own
 * hello; the bus tries them and keeps the best. */
#pragma once

#include "base/netif.h"
#include "base/sock.h"

enum { ROUTE_HOSTS_MAX = 16 };

/* Hosts that this machine tells others to reach it by, best kind of interface first; without
 * loopback and bridges of containers, unless there is nothing else; link-local IPv6 without scope.
 * `only` (n_only names, may be 0) restricts it to these interfaces. Returns how many. */
u32 route_own_hosts(const struct netif *v, u32 n, const char *const *only, u32 n_only,
                    char out[ROUTE_HOSTS_MAX][NETIF_HOST_CAP]);

/* Addresses to try for `host`, which a peer told of itself: as it is, or once for each of our
 * interfaces when it is link-local. None when it is one of our own, or only reachable over an
 * interface that is not in `only`. Returns how many, at most max. */
u32 route_expand(const struct netif *v, u32 n, const char *const *only, u32 n_only,
                 const char *host, u16 port, char out[][SOCK_ADDRESS_CAP], u32 max);

/* How good the way to a numeric host is: the kind of the interface; one of containers counts
 * least. Larger is better. */
u32 route_rank(const struct netif *v, u32 n, const char *host);
bool route_allowed(const char *const *only, u32 n_only, const char *interface);
