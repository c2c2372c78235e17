#include "node/routes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/version.h"
#include "net/discovery.h"
#include "node/node_parts.h"
#include "node/route.h"

enum {
    STEP_MS = 500,
    NETIF_EVERY_MS = 5000,
    ROUTES_MAX = 8192,
    DIALS_PER_STEP = 64,
    STALE_MS = 60000,     /* a candidate that nobody tells of any more */
    UNREACHED_MS = 10000, /* found for so long and not reached: said once */
};

/* A candidate address of a node. */
struct route {
    char node[NODE_ID_CAP], address[SOCK_ADDRESS_CAP];
    bool found; /* by discovery, which has not taken it back */
    bool dialled;
    u64 first_ms, told_ms;  /* told_ms: last time that somebody named it */
    enum bus_reason failed; /* 0: not so */
    char why[200];
};

struct routes {
    struct discovery *discovery;
    char error[400];
    struct netif netifs[NETIF_MAX];
    u32 n_netifs;
    u64 netif_ms, step_ms;
    struct arena mem; /* of the list below */
    struct wire_list addresses;
    struct route *v;
    u32 n, cap;
    bool said_full;
};

static bool same_list(const struct wire_list *a, char (*hosts)[NETIF_HOST_CAP], u32 n) {
    const struct msg_string *s = a->v;
    if (a->n != n) return false;
    for (u32 i = 0; i < n; i++)
        if (strcmp(s[i].s, hosts[i]) != 0) return false;
    return true;
}

/* True when this machine's addresses have changed. */
static bool look_at_interfaces(struct node *n, struct routes *r) {
    char hosts[ROUTE_HOSTS_MAX][NETIF_HOST_CAP];
    r->n_netifs = netif_list(r->netifs, NETIF_MAX);
    u32 k = route_own_hosts(r->netifs, r->n_netifs, n->cfg.interfaces, n->cfg.n_interfaces, hosts);
    if (same_list(&r->addresses, hosts, k)) return false;
    arena_reset(&r->mem);
    struct msg_string *s = arena_array(&r->mem, k + 1, sizeof *s);
    for (u32 i = 0; i < k; i++) s[i].s = arena_strdup(&r->mem, hosts[i]);
    r->addresses = (struct wire_list){s, k};
    return true;
}

static void start_discovery(struct node *n, struct routes *r) {
    struct err e = {0};
    struct discovery_cfg cfg = {
        .name = n->name,
        .interfaces = n->cfg.interfaces,
        .n_interfaces = n->cfg.n_interfaces,
        .info = {.bus_port = bus_port(n->bus), .api_port = n->cfg.api_port, .boot = n->boot}};
    str_copy(cfg.info.node_id, sizeof cfg.info.node_id, n->id);
    str_copy(cfg.info.name_space, sizeof cfg.info.name_space, n->cfg.cluster);
    str_copy(cfg.info.version, sizeof cfg.info.version, version_text());
    r->discovery = discovery_start(&cfg, &e);
    if (r->discovery) {
        log_info("discovery", "started service=%s namespace=%s", DISCOVERY_TYPE, n->cfg.cluster);
        return;
    }
    str_copy(r->error, sizeof r->error, e.msg);
    log_warn("discovery", "off: %s", e.msg);
}

struct routes *routes_new(struct node *n) {
    struct routes *r = xcalloc(1, sizeof *r);
    look_at_interfaces(n, r);
    for (u32 i = 0; i < n->cfg.n_interfaces; i++)
        if (!netif_named(r->netifs, r->n_netifs, n->cfg.interfaces[i]))
            log_warn("node", "interface absent name=%s: it has no address now; used when it has",
                     n->cfg.interfaces[i]);
    r->netif_ms = clock_ms() + NETIF_EVERY_MS;
    if (n->cfg.discover)
        start_discovery(n, r);
    else
        str_copy(r->error, sizeof r->error, "switched off by --no-discovery");
    return r;
}

void routes_free(struct routes *r) {
    if (!r) return;
    discovery_stop(r->discovery);
    arena_deinit(&r->mem);
    free(r->v);
    free(r);
}

int routes_fd(const struct routes *r) {
    return r->discovery ? discovery_fd(r->discovery) : -1;
}

void routes_set_api(struct node *n, u16 port) {
    if (n->routes->discovery) discovery_set_api(n->routes->discovery, port);
}

const struct wire_list *routes_addresses(const struct routes *r) {
    return &r->addresses;
}

const char *routes_discovery_error(const struct routes *r) {
    return r->error;
}

const struct netif *routes_netifs(const struct routes *r, u32 *n) {
    *n = r->n_netifs;
    return r->netifs;
}

u32 routes_rank(void *ctx, const char *host) {
    enum { WANTED = 100 };
    const struct node *n = ctx;
    const struct routes *r = n->routes;
    if (!r) return 0;
    const struct netif *i = netif_toward(r->netifs, r->n_netifs, host);
    bool wanted =
        n->cfg.n_interfaces && i && route_allowed(n->cfg.interfaces, n->cfg.n_interfaces, i->name);
    return route_rank(r->netifs, r->n_netifs, host) + (wanted ? WANTED : 0);
}

static struct route *find(struct routes *r, const char *node, const char *address) {
    for (u32 i = 0; i < r->n; i++)
        if (strcmp(r->v[i].address, address) == 0 && strcmp(r->v[i].node, node) == 0)
            return &r->v[i];
    return NULL;
}

static struct route *note(struct routes *r, const char *node, const char *address, u64 now) {
    struct route *t = find(r, node, address);
    if (!t) {
        if (r->n >= ROUTES_MAX) {
            if (!r->said_full) log_warn("node", "too many addresses of nodes max=%d", ROUTES_MAX);
            r->said_full = true;
            return NULL;
        }
        NODE_GROW(r->v, r->n, r->cap);
        t = &r->v[r->n++];
        *t = (struct route){.first_ms = now};
        str_copy(t->node, sizeof t->node, node);
        str_copy(t->address, sizeof t->address, address);
    }
    t->told_ms = now;
    return t;
}

/* A node announced itself on an interface. Somebody's word on an open network: what it leads to
 * must know the cluster's key and prove its id. */
static void take(struct node *n, const struct discovery_found *f, u64 now) {
    struct routes *r = n->routes;
    char address[SOCK_ADDRESS_CAP];
    if (strcmp(f->info.name_space, n->cfg.cluster) != 0) return;
    if (!route_allowed(n->cfg.interfaces, n->cfg.n_interfaces, f->interface)) return;
    sock_join(f->host, f->info.bus_port, address);
    if (strcmp(f->info.node_id, n->id) == 0) { /* us, or a copy of us, which the bus finds out */
        if (f->info.boot != n->boot && !f->is_gone) bus_connect(n->bus, address, NULL);
        return;
    }
    struct route *t = find(r, f->info.node_id, address);
    if (f->is_gone) {
        if (t) t->found = false;
        return;
    }
    if (!t || !t->found)
        log_info("discovery", "found node=%s address=%s interface=%s version=%s", f->info.node_id,
                 address, f->interface, f->info.version);
    if (!t) t = note(r, f->info.node_id, address, now);
    if (t) t->found = true, t->told_ms = now;
}

void routes_read(struct node *n) {
    struct discovery_found f;
    bool any = false;
    while (n->routes->discovery && discovery_next(n->routes->discovery, &f)) {
        take(n, &f, clock_ms());
        any = true;
    }
    if (any) n->routes->step_ms = 0; /* dialled at once */
}

static void note_hello(struct node *n, const struct cluster_member *m, u64 now) {
    struct routes *r = n->routes;
    const struct msg_string *s = m->hello->addresses.v;
    for (u64 i = 0; i < MIN(m->hello->addresses.n, (u64)ROUTE_HOSTS_MAX); i++) {
        char to[8][SOCK_ADDRESS_CAP];
        u32 k = route_expand(r->netifs, r->n_netifs, n->cfg.interfaces, n->cfg.n_interfaces, s[i].s,
                             (u16)m->hello->bus_port, to, ARRAY_LEN(to));
        for (u32 t = 0; t < k; t++) note(r, m->id, to[t], now);
    }
}

static const struct cluster_member *member_of(const struct node *n, const char *id, u64 now,
                                              struct cluster_member *out) {
    for (u32 i = 1; i < cluster_n_members(n->cluster); i++) {
        cluster_member(n->cluster, i, now, out);
        if (strcmp(out->id, id) == 0) return out;
    }
    return NULL;
}

/* A node that discovery sees and nobody can reach: which addresses failed, and why. */
static void tell_unreached(const struct routes *r, const struct route *first) {
    struct str text = {0};
    for (const struct route *t = r->v; t < r->v + r->n; t++)
        if (strcmp(t->node, first->node) == 0 && t->failed)
            str_addf(&text, "%s%s: %s", text.n ? "; " : "", t->address, t->why);
    log_warn("discovery", "not reached node=%s: %s", first->node, str_z(&text));
    str_deinit(&text);
}

bool routes_given(const struct node *n, const char *address) {
    for (u32 i = 0; i < n->cfg.n_peers; i++) {
        char host[SOCK_HOST_CAP], text[SOCK_ADDRESS_CAP];
        u16 port;
        if (sock_split(n->cfg.peers[i], NODE_BUS_PORT, host, &port, NULL) &&
            strcmp(sock_join(host, port, text), address) == 0)
            return true;
    }
    return false;
}

static void drop(struct node *n, u32 i) {
    struct route *t = &n->routes->v[i];
    if (t->dialled && !bus_uses(n->bus, t->address) && !routes_given(n, t->address))
        bus_hangup(n->bus, t->address);
    *t = n->routes->v[--n->routes->n];
}

void routes_step(struct node *n, u64 now) {
    struct routes *r = n->routes;
    struct cluster_member m;
    if (now < r->step_ms) return;
    r->step_ms = now + STEP_MS;
    if (now >= r->netif_ms) {
        r->netif_ms = now + NETIF_EVERY_MS;
        if (look_at_interfaces(n, r)) {
            log_info("node", "addresses changed n=%llu", (unsigned long long)r->addresses.n);
            member_feed(n, &(struct cluster_input){.kind = CLUSTER_HELLO,
                                                   .number = n->cfg.api_port,
                                                   .addresses = &r->addresses});
        }
    }
    for (u32 i = 1; i < cluster_n_members(n->cluster); i++) {
        cluster_member(n->cluster, i, now, &m);
        if (m.state != MEMBER_REFUSED && m.hello->bus_port) note_hello(n, &m, now);
    }
    u32 dials = 0;
    for (u32 i = 0; i < r->n; i++) {
        struct route *t = &r->v[i];
        const struct cluster_member *who = member_of(n, t->node, now, &m);
        if (!t->found && now - t->told_ms > STALE_MS) {
            drop(n, i--);
            continue;
        }
        if (who && who->state == MEMBER_REFUSED) continue;
        if (!t->dialled && dials++ < DIALS_PER_STEP)
            t->dialled = bus_connect(n->bus, t->address, NULL);
        bool live = who && who->state == MEMBER_LIVE;
        if (live || !t->found || !t->failed || t->failed == BUS_WRONG_SECRET) continue;
        if (now - t->first_ms < UNREACHED_MS) continue;
        tell_unreached(r, t);
        for (u32 k = 0; k < r->n; k++)
            if (strcmp(r->v[k].node, t->node) == 0) r->v[k].first_ms = UINT64_MAX / 2;
    }
}

bool routes_failed(struct node *n, const struct bus_event *ev) {
    struct routes *r = n->routes;
    bool mine = false;
    for (struct route *t = r->v; t < r->v + r->n; t++) {
        if (strcmp(t->address, ev->address) != 0) continue;
        t->failed = ev->reason;
        str_copy(t->why, sizeof t->why, ev->text);
        mine = true;
    }
    if (routes_given(n, ev->address)) return false; /* always told */
    return mine && (ev->reason == BUS_NOBODY || ev->reason == BUS_SELF);
}

bool routes_refused(const struct routes *r, u32 i, struct routes_refused *out) {
    for (const struct route *t = r->v; t < r->v + r->n; t++) {
        if (t->failed != BUS_WRONG_SECRET || i--) continue;
        *out = (struct routes_refused){t->node, t->address, t->why};
        return true;
    }
    return false;
}
