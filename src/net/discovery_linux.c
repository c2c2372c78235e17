#include "net/discovery.h"

#if __has_include(<avahi-core/core.h>) && !defined(NO_AVAHI)

#include <avahi-common/error.h>
#include <avahi-common/malloc.h>
#include <avahi-common/thread-watch.h>
#include <avahi-common/timeval.h>
#include <avahi-core/core.h>
#include <avahi-core/log.h>
#include <avahi-core/lookup.h>
#include <avahi-core/publish.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/queue.h"

enum { LOOK_MS = 3000, QUEUE_CAP = 1024, RESOLVERS_MAX = 4096 };

/* A service that was seen on one interface. The resolver stays, because a node that died and
 * started again shows only as a change of its records. */
struct resolver {
    struct resolver *next;
    struct discovery *d;
    AvahiSServiceResolver *r;
    AvahiIfIndex interface;
    AvahiProtocol protocol;
    char *name;
    bool told;
    struct discovery_found last;
};

struct discovery {
    AvahiThreadedPoll *poll; /* its lock guards all that follows: counterpart is its thread */
    AvahiServer *server;
    AvahiSEntryGroup *group;
    AvahiSServiceBrowser *browser;
    AvahiTimeout *look;
    struct discovery_info info;
    char name[64], host[64];
    u32 n_collisions;
    u64 addresses; /* hash of those that are announced */
    struct resolver *resolvers;
    u32 n_resolvers;
    char (*only)[NETIF_NAME_CAP];
    u32 n_only;
    struct queue *found;
};

static void on_log(AvahiLogLevel level, const char *text) {
    /* That another responder is there, which it does not mind, is an error to the library. */
    (void)level;
    log_debug("discovery", "avahi: %s", text);
}

static bool allowed(const struct discovery *d, const char *interface) {
    for (u32 i = 0; i < d->n_only; i++)
        if (strcmp(d->only[i], interface) == 0) return true;
    return d->n_only == 0;
}

/* Names that stay the same over restarts, unless somebody else has them: a copied disk. */
static void make_names(struct discovery *d, const char *shown) {
    char suffix[24] = "";
    if (d->n_collisions)
        snprintf(suffix, sizeof suffix, "-%04x%u", (unsigned)(d->info.boot & 0xffff),
                 d->n_collisions);
    snprintf(d->host, sizeof d->host, "exo-%.16s%s.local", d->info.node_id, suffix);
    if (!shown) return;
    char cut[40];
    str_copy(cut, sizeof cut, shown);
    cut[strlen(cut) - utf8_incomplete_tail(cut, strlen(cut))] = 0;
    snprintf(d->name, sizeof d->name, "%s%s%.8s%s", cut, *cut ? " " : "", d->info.node_id, suffix);
}

static AvahiStringList *txt_of(const struct discovery *d) {
    struct str raw = {0};
    AvahiStringList *l = NULL;
    discovery_txt_write(&d->info, &raw);
    if (avahi_string_list_parse(raw.p, raw.n, &l) < 0) l = NULL;
    str_deinit(&raw);
    return l;
}

/* Without reverse records, which every responder of this machine would claim as its own. */
static void add_addresses(struct discovery *d, const struct netif *v, u32 n) {
    for (u32 i = 0; i < n; i++) {
        if (v[i].is_inner || !v[i].is_up || !allowed(d, v[i].name)) continue;
        for (u32 k = 0; k < v[i].n_addrs; k++) {
            AvahiAddress a;
            char plain[NETIF_HOST_CAP];
            str_copy(plain, sizeof plain, v[i].addrs[k].host);
            plain[strcspn(plain, "%")] = 0;
            if (!avahi_address_parse(plain, AVAHI_PROTO_UNSPEC, &a)) continue;
            int rc =
                avahi_server_add_address(d->server, d->group, (AvahiIfIndex)v[i].index,
                                         AVAHI_PROTO_UNSPEC, AVAHI_PUBLISH_NO_REVERSE, d->host, &a);
            if (rc < 0)
                log_debug("discovery", "address not announced host=%s: %s", plain,
                          avahi_strerror(rc));
        }
    }
}

static u64 hash_addresses(const struct discovery *d, const struct netif *v, u32 n) {
    u64 h = 1;
    for (u32 i = 0; i < n; i++) {
        if (v[i].is_inner || !v[i].is_up || !allowed(d, v[i].name)) continue;
        for (u32 k = 0; k < v[i].n_addrs; k++)
            h = h * 31 + hash_bytes(v[i].addrs[k].host, strlen(v[i].addrs[k].host));
    }
    return h;
}

static void on_group(AvahiServer *s, AvahiSEntryGroup *g, AvahiEntryGroupState state, void *ctx);

/* Registers the service anew when the addresses have changed, or when told to. */
static void announce(struct discovery *d, bool anew) {
    if (!d->info.bus_port) return; /* it only listens */
    struct netif *v = xcalloc(NETIF_MAX, sizeof *v);
    u32 n = netif_list(v, NETIF_MAX);
    u64 h = hash_addresses(d, v, n);
    if (!anew && h == d->addresses) goto out;
    if (avahi_server_get_state(d->server) != AVAHI_SERVER_RUNNING) goto out; /* called again */
    if (!d->group) d->group = avahi_s_entry_group_new(d->server, on_group, d);
    if (!d->group) goto out;
    d->addresses = h;
    avahi_s_entry_group_reset(d->group);
    add_addresses(d, v, n);
    AvahiStringList *txt = txt_of(d);
    int rc = avahi_server_add_service_strlst(d->server, d->group, AVAHI_IF_UNSPEC,
                                             AVAHI_PROTO_UNSPEC, 0, d->name, DISCOVERY_TYPE, NULL,
                                             d->host, d->info.bus_port, txt);
    avahi_string_list_free(txt);
    if (rc >= 0) rc = avahi_s_entry_group_commit(d->group);
    if (rc < 0) log_warn("discovery", "not announced: %s", avahi_strerror(rc));
out:
    free(v);
}

static void look_in(struct discovery *d, u32 ms) {
    struct timeval at;
    avahi_elapse_time(&at, ms, 0);
    avahi_threaded_poll_get(d->poll)->timeout_update(d->look, &at);
}

static void on_look(AvahiTimeout *t, void *ctx) {
    struct discovery *d = ctx;
    (void)t;
    announce(d, false);
    look_in(d, LOOK_MS);
}

static void on_group(AvahiServer *s, AvahiSEntryGroup *g, AvahiEntryGroupState state, void *ctx) {
    struct discovery *d = ctx;
    (void)s, (void)g;
    if (state != AVAHI_ENTRY_GROUP_COLLISION) return;
    d->n_collisions++;
    log_info("discovery", "name taken name=\"%s\" host=%s: taking another", d->name, d->host);
    char *shown = xstrdup(d->name);
    shown[strcspn(shown, " ")] = 0;
    make_names(d, d->n_collisions < 100 ? shown : "");
    free(shown);
    d->addresses = 0; /* not from inside the callback: at once, by the timer */
    look_in(d, d->n_collisions < 5 ? 1 : 2000);
}

static void tell(struct resolver *x, bool is_gone) {
    struct discovery_found *f = xcalloc(1, sizeof *f);
    *f = x->last;
    f->is_gone = is_gone;
    if (!queue_push(x->d->found, f)) free(f); /* nobody reads: it is a hint */
    x->told = !is_gone;
}

static void on_resolved(AvahiSServiceResolver *r, AvahiIfIndex interface, AvahiProtocol protocol,
                        AvahiResolverEvent event, const char *name, const char *type,
                        const char *domain, const char *host_name, const AvahiAddress *a, u16 port,
                        AvahiStringList *txt, AvahiLookupResultFlags flags, void *ctx) {
    struct resolver *x = ctx;
    struct discovery_found f = {0};
    char raw[DISCOVERY_TXT_MAX + 1], text[AVAHI_ADDRESS_STR_MAX], dev[IF_NAMESIZE] = "";
    struct err e;
    (void)r, (void)protocol, (void)type, (void)domain, (void)host_name, (void)port, (void)flags;
    if (event != AVAHI_RESOLVER_FOUND || !a) return;
    size_t n = avahi_string_list_serialize(txt, raw, sizeof raw);
    if (!discovery_txt_parse(raw, n, &f.info, &e)) {
        log_debug("discovery", "skipped name=\"%.64s\": %s", name, e.msg);
        return;
    }
    avahi_address_snprint(text, sizeof text, a);
    if_indextoname((unsigned)interface, dev);
    bool scoped = a->proto == AVAHI_PROTO_INET6 && strncmp(text, "fe80:", 5) == 0;
    snprintf(f.host, sizeof f.host, scoped ? "%s%%%s" : "%s", text, dev);
    str_copy(f.interface, sizeof f.interface, dev);
    if (x->told && memcmp(&f, &x->last, sizeof f) == 0) return;
    x->last = f;
    tell(x, false);
}

static void resolver_free(struct resolver *x) {
    if (x->r) avahi_s_service_resolver_free(x->r);
    free(x->name);
    free(x);
}

static void on_new(struct discovery *d, AvahiIfIndex interface, AvahiProtocol protocol,
                   const char *name, const char *type, const char *domain) {
    if (d->n_resolvers >= RESOLVERS_MAX) return;
    struct resolver *x = xcalloc(1, sizeof *x);
    x->d = d;
    x->interface = interface;
    x->protocol = protocol;
    x->name = xstrdup(name);
    x->next = d->resolvers;
    d->resolvers = x;
    d->n_resolvers++;
    x->r = avahi_s_service_resolver_new(d->server, interface, protocol, name, type, domain,
                                        protocol, 0, on_resolved, x);
}

static void on_browse(AvahiSServiceBrowser *b, AvahiIfIndex interface, AvahiProtocol protocol,
                      AvahiBrowserEvent event, const char *name, const char *type,
                      const char *domain, AvahiLookupResultFlags flags, void *ctx) {
    struct discovery *d = ctx;
    (void)b, (void)flags;
    if (event == AVAHI_BROWSER_NEW) on_new(d, interface, protocol, name, type, domain);
    if (event != AVAHI_BROWSER_REMOVE) return;
    for (struct resolver **at = &d->resolvers; *at; at = &(*at)->next) {
        struct resolver *x = *at;
        if (x->interface != interface || x->protocol != protocol || strcmp(x->name, name) != 0)
            continue;
        *at = x->next;
        d->n_resolvers--;
        if (x->told) tell(x, true);
        resolver_free(x);
        return;
    }
}

static void on_server(AvahiServer *s, AvahiServerState state, void *ctx) {
    struct discovery *d = ctx;
    (void)s;
    /* The first call comes from inside avahi_server_new: the timer takes it from there. */
    if (state == AVAHI_SERVER_RUNNING && d->look) look_in(d, 1);
    if (state == AVAHI_SERVER_COLLISION) avahi_server_set_host_name(s, d->host);
}

static AvahiServer *server_new(struct discovery *d, struct err *e) {
    AvahiServerConfig c;
    int rc = 0;
    avahi_server_config_init(&c);
    c.host_name = avahi_strndup(d->host, strcspn(d->host, "."));
    c.publish_addresses = c.publish_hinfo = c.publish_workstation = c.publish_domain = 0;
    c.use_ipv4 = c.use_ipv6 = 1;
    c.enable_wide_area = c.disallow_other_stacks = 0;
    for (u32 i = 0; i < d->n_only; i++)
        c.allow_interfaces = avahi_string_list_add(c.allow_interfaces, d->only[i]);
    AvahiServer *s = avahi_server_new(avahi_threaded_poll_get(d->poll), &c, on_server, d, &rc);
    avahi_server_config_free(&c);
    if (!s)
        err_set(e, ERR_IO,
                "multicast DNS can't start (%s): another responder on this machine may keep port "
                "5353 for itself (avahi-daemon with disallow-other-stacks=yes); nodes are found by "
                "--peer",
                avahi_strerror(rc));
    return s;
}

struct discovery *discovery_start(const struct discovery_cfg *cfg, struct err *e) {
    struct discovery *d = xcalloc(1, sizeof *d);
    avahi_set_log_function(on_log);
    d->info = cfg->info;
    d->only = xcalloc(cfg->n_interfaces + 1, sizeof *d->only);
    for (u32 i = 0; i < cfg->n_interfaces; i++)
        str_copy(d->only[d->n_only++], NETIF_NAME_CAP, cfg->interfaces[i]);
    make_names(d, cfg->name ? cfg->name : "");
    d->found = queue_new(QUEUE_CAP, e);
    d->poll = d->found ? avahi_threaded_poll_new() : NULL;
    d->server = d->poll ? server_new(d, e) : NULL;
    if (!d->server) goto fail;
    const AvahiPoll *api = avahi_threaded_poll_get(d->poll);
    struct timeval now;
    avahi_elapse_time(&now, 0, 0);
    d->look = api->timeout_new(api, &now, on_look, d);
    d->browser = avahi_s_service_browser_new(d->server, AVAHI_IF_UNSPEC, AVAHI_PROTO_UNSPEC,
                                             DISCOVERY_TYPE, NULL, 0, on_browse, d);
    if (d->look && d->browser && avahi_threaded_poll_start(d->poll) == 0) return d;
    err_set(e, ERR_IO, "multicast DNS can't start: %s",
            avahi_strerror(avahi_server_errno(d->server)));
fail:
    discovery_stop(d);
    return NULL;
}

void discovery_stop(struct discovery *d) {
    if (!d) return;
    if (d->poll) avahi_threaded_poll_stop(d->poll);
    while (d->resolvers) {
        struct resolver *x = d->resolvers;
        d->resolvers = x->next;
        resolver_free(x);
    }
    if (d->browser) avahi_s_service_browser_free(d->browser);
    if (d->look) avahi_threaded_poll_get(d->poll)->timeout_free(d->look);
    if (d->group) avahi_s_entry_group_free(d->group);
    if (d->server) avahi_server_free(d->server);
    if (d->poll) avahi_threaded_poll_free(d->poll);
    void *f;
    while (d->found && (f = queue_pop(d->found))) free(f);
    if (d->found) queue_free(d->found);
    free(d->only);
    free(d);
}

int discovery_fd(const struct discovery *d) {
    return queue_fd(d->found);
}

bool discovery_next(struct discovery *d, struct discovery_found *out) {
    struct discovery_found *f = queue_pop(d->found);
    if (!f) return false;
    *out = *f;
    free(f);
    return true;
}

void discovery_set_api(struct discovery *d, u16 port) {
    avahi_threaded_poll_lock(d->poll);
    bool news = d->info.api_port != port;
    d->info.api_port = port;
    if (news && d->group && !avahi_s_entry_group_is_empty(d->group)) {
        AvahiStringList *txt = txt_of(d);
        int rc = avahi_server_update_service_txt_strlst(d->server, d->group, AVAHI_IF_UNSPEC,
                                                        AVAHI_PROTO_UNSPEC, 0, d->name,
                                                        DISCOVERY_TYPE, NULL, txt);
        avahi_string_list_free(txt);
        if (rc < 0) announce(d, true);
    }
    avahi_threaded_poll_unlock(d->poll);
}

#else

struct discovery *discovery_start(const struct discovery_cfg *cfg, struct err *e) {
    (void)cfg;
    err_set(e, ERR_UNSUPPORTED,
            "this build has no multicast DNS (libavahi-core was not there): nodes are found by "
            "--peer");
    return NULL;
}
void discovery_stop(struct discovery *d) {
    (void)d;
}
int discovery_fd(const struct discovery *d) {
    (void)d;
    return -1;
}
bool discovery_next(struct discovery *d, struct discovery_found *out) {
    (void)d, (void)out;
    return false;
}
void discovery_set_api(struct discovery *d, u16 port) {
    (void)d, (void)port;
}

#endif
