/* discovery.h - nodes on the same network find each other: DNS-SD over multicast DNS, service
 * _exo._tcp.local, IPv4 and IPv6, every interface.
 *
 * On Linux avahi-core runs inside this process, beside a daemon if there is one; on macOS the
 * system's responder is asked (dns_sd.h). It has a thread of its own, which puts what it finds into
 * a queue that the owner polls. What is found is a hint: anybody on the network can announce
 * anything, records outlive machines that died, and silence proves nothing.
 *
 * One thread owns a struct discovery. Nothing blocks but discovery_stop, which says goodbye. */
#pragma once

#include "base/err.h"
#include "base/netif.h"
#include "net/discovery_txt.h"

#define DISCOVERY_TYPE "_exo._tcp"

struct discovery;

struct discovery_cfg {
    struct discovery_info info;    /* of this node; bus_port 0: only listens, announces nothing */
    const char *name;              /* shown by browsers; NULL or "": the node id alone */
    const char *const *interfaces; /* announce and look on these alone; none: on all */
    u32 n_interfaces;
};

/* An announcement, this node's own among them. One node shows up once for each interface and
 * address family, again when something in it changes. */
struct discovery_found {
    struct discovery_info info;
    char host[NETIF_HOST_CAP]; /* numeric; link-local IPv6 with scope: "fe80::1%eth0" */
    char interface[NETIF_NAME_CAP];
    bool is_gone; /* it said goodbye, or its records expired */
};

/* NULL and *e: ERR_UNSUPPORTED when this build or system has no multicast DNS, ERR_IO when another
 * responder does not share its port. A node works without it. */
struct discovery *discovery_start(const struct discovery_cfg *cfg, struct err *e);
void discovery_stop(struct discovery *d);
/* Readable while something was found. */
int discovery_fd(const struct discovery *d);
bool discovery_next(struct discovery *d, struct discovery_found *out);
/* The API listens at another port than announced. */
void discovery_set_api(struct discovery *d, u16 port);
