/* netif.h - the network interfaces of this machine, and which of them a connection should use.
 *
 * netif_list reads the system (getifaddrs and /sys/class/net on Linux, SystemConfiguration on
 * macOS); everything else is pure. Names, kinds and speeds are what the system claims; nothing is
 * measured here. Any thread. */
#pragma once

#include <sys/socket.h>

#include "base/base.h"

enum { NETIF_MAX = 64, NETIF_ADDRS_MAX = 16, NETIF_NAME_CAP = 32, NETIF_HOST_CAP = 64 };

/* Better kinds are larger; the values are those of enum link_kind in wire/msg_cluster.h. */
enum netif_kind {
    NETIF_UNKNOWN,
    NETIF_TUNNEL, /* VPN, overlay */
    NETIF_WIFI,
    NETIF_ETHERNET,
    NETIF_THUNDERBOLT, /* IP over a Thunderbolt or USB4 cable */
    NETIF_RDMA,        /* an interface of an RDMA device, such as a RoCE or InfiniBand card */
    NETIF_LOOPBACK,
};

struct netif_addr {
    char host[NETIF_HOST_CAP]; /* numeric; link-local IPv6 with its scope: "fe80::1%eth0" */
    u32 prefix;                /* length of the network part in bits */
    bool is_v6, is_link_local;
};

struct netif {
    char name[NETIF_NAME_CAP];
    enum netif_kind kind;
    u32 index, mtu;
    u32 speed_mbit; /* 0: not known, as with virtual interfaces and Wi-Fi */
    bool is_up, has_multicast;
    bool is_inner; /* of this machine alone: container and VM bridges */
    struct netif_addr addrs[NETIF_ADDRS_MAX];
    u32 n_addrs;
};

/* The interfaces that have an address, at most max; returns how many. 0 when the system does not
 * tell. */
u32 netif_list(struct netif *out, u32 max);

/* "ethernet", "wifi", "thunderbolt", "tunnel", "rdma", "loopback", "unknown". */
const char *netif_kind_text(enum netif_kind k);
/* The interface that holds this numeric address (a scope is ignored), or NULL. */
const struct netif *netif_of_host(const struct netif *v, u32 n, const char *host);
/* The interface over which a packet to this numeric address leaves: by scope, by own address
 * (loopback), by the longest network prefix that holds it. NULL: through a router, or no address.
 */
const struct netif *netif_toward(const struct netif *v, u32 n, const char *host);
const struct netif *netif_named(const struct netif *v, u32 n, const char *name);

/* For netif_list's implementations and their tests. */
/* What a name alone tells: "wg0" is a tunnel. NETIF_UNKNOWN when it tells nothing. */
enum netif_kind netif_kind_by_name(const char *name);
bool netif_inner_by_name(const char *name);
/* Finds or appends; NULL when the list is full. */
struct netif *netif_slot(struct netif *v, u32 *n, u32 max, const char *name);
/* Appends an address with its netmask (which may be NULL). */
void netif_add_addr(struct netif *i, const struct sockaddr *a, const struct sockaddr *mask);
