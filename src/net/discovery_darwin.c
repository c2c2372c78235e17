#include <arpa/inet.h>
#include <dns_sd.h>
#include <errno.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/queue.h"
#include "base/sock.h"
#include "net/discovery.h"

enum { QUEUE_CAP = 1024, OPS_MAX = 2048 };

/* One conversation with the system's responder. A browser finds names; each name gets a resolver
 * (port and TXT), which gets an address query. All stay, so that changes are told. */
struct op {
    struct op *next;
    struct discovery *d;
    DNSServiceRef ref;
    struct op *parent; /* of a resolver: NULL; of an address query: its resolver */
    u32 interface;
    char name[256]; /* of resolvers */
    struct discovery_info info;
    bool has_info, doomed;
    struct discovery_found last;
};

struct discovery {
    struct lock lock; /* guards info, stop and renew: counterpart is the thread */
    struct discovery_info info;
    bool stop, renew;
    pthread_t thread;
    bool has_thread;
    int wake[2];
    char name[64];
    u32 only; /* interface index; 0: all */
    struct op *ops;
    u32 n_ops;
    DNSServiceRef service;
    struct queue *found;
};

static struct op *op_new(struct discovery *d, struct op *parent, u32 interface) {
    if (d->n_ops >= OPS_MAX) return NULL;
    struct op *o = xcalloc(1, sizeof *o);
    o->d = d;
    o->parent = parent;
    o->interface = interface;
    o->next = d->ops;
    d->ops = o;
    d->n_ops++;
    return o;
}

static void tell(struct op *o, bool is_gone) {
    struct discovery_found *f = xcalloc(1, sizeof *f);
    *f = o->last;
    f->is_gone = is_gone;
    if (!queue_push(o->d->found, f)) free(f);
}

static void DNSSD_API on_address(DNSServiceRef ref, DNSServiceFlags flags, uint32_t interface,
                                 DNSServiceErrorType rc, const char *host, const struct sockaddr *a,
                                 uint32_t ttl, void *ctx) {
    struct op *o = ctx;
    struct discovery_found f = {0};
    char plain[SOCK_HOST_CAP];
    (void)ref, (void)host, (void)ttl;
    if (rc != kDNSServiceErr_NoError || !a || !o->parent || !o->parent->has_info) return;
    f.info = o->parent->info;
    sock_text(a, plain, NULL);
    if_indextoname(interface, f.interface);
    bool scoped = strncmp(plain, "fe80:", 5) == 0 && !strchr(plain, '%');
    snprintf(f.host, sizeof f.host, scoped ? "%.45s%%%s" : "%.63s", plain, f.interface);
    o->last = f;
    tell(o, !(flags & kDNSServiceFlagsAdd));
}

static void DNSSD_API on_resolved(DNSServiceRef ref, DNSServiceFlags flags, uint32_t interface,
                                  DNSServiceErrorType rc, const char *full, const char *host,
                                  uint16_t port, uint16_t txt_n, const unsigned char *txt,
                                  void *ctx) {
    struct op *o = ctx;
    struct err e;
    (void)ref, (void)flags, (void)full, (void)port;
    if (rc != kDNSServiceErr_NoError) return;
    o->has_info = discovery_txt_parse(txt, txt_n, &o->info, &e);
    if (!o->has_info) {
        log_debug("discovery", "skipped name=\"%.64s\": %s", o->name, e.msg);
        return;
    }
    for (struct op *q = o->d->ops; q; q = q->next) /* asked anew: the addresses may be others */
        if (q->parent == o) q->doomed = true;
    struct op *q = op_new(o->d, o, interface);
    if (q && DNSServiceGetAddrInfo(&q->ref, 0, interface,
                                   kDNSServiceProtocol_IPv4 | kDNSServiceProtocol_IPv6, host,
                                   on_address, q) != kDNSServiceErr_NoError)
        q->doomed = true;
}

static void DNSSD_API on_browse(DNSServiceRef ref, DNSServiceFlags flags, uint32_t interface,
                                DNSServiceErrorType rc, const char *name, const char *type,
                                const char *domain, void *ctx) {
    struct op *b = ctx;
    struct discovery *d = b->d;
    (void)ref;
    if (rc != kDNSServiceErr_NoError) return;
    if (flags & kDNSServiceFlagsAdd) {
        struct op *o = op_new(d, NULL, interface);
        if (!o) return;
        str_copy(o->name, sizeof o->name, name);
        if (DNSServiceResolve(&o->ref, 0, interface, name, type, domain, on_resolved, o) !=
            kDNSServiceErr_NoError)
            o->doomed = true;
        return;
    }
    for (struct op *o = d->ops; o; o = o->next)
        if (!o->parent && o->interface == interface && *o->name && strcmp(o->name, name) == 0)
            o->doomed = true;
}

static void sweep(struct discovery *d) {
    for (struct op *o = d->ops; o; o = o->next)
        if (o->parent && o->parent->doomed) o->doomed = true;
    for (struct op **at = &d->ops; *at;) {
        struct op *o = *at;
        if (!o->doomed) {
            at = &o->next;
            continue;
        }
        *at = o->next;
        d->n_ops--;
        if (o->parent && *o->last.host) tell(o, true);
        if (o->ref) DNSServiceRefDeallocate(o->ref);
        free(o);
    }
}

static void announce(struct discovery *d) {
    struct str txt = {0};
    lock_take(&d->lock);
    discovery_txt_write(&d->info, &txt);
    u16 port = d->info.bus_port;
    lock_give(&d->lock);
    if (!port) { /* it only listens */
        str_deinit(&txt);
        return;
    }
    int rc = d->service ? DNSServiceUpdateRecord(d->service, NULL, 0, (u16)txt.n, txt.p, 0)
                        : DNSServiceRegister(&d->service, 0, d->only, d->name, DISCOVERY_TYPE, NULL,
                                             NULL, htons(port), (u16)txt.n, txt.p, NULL, NULL);
    if (rc != kDNSServiceErr_NoError) log_warn("discovery", "not announced: error %d", rc);
    str_deinit(&txt);
}

static void *run(void *ctx) {
    struct discovery *d = ctx;
    struct pollfd *p = NULL;
    struct op **of = NULL;
    for (;;) {
        u32 n = 0;
        p = xrealloc(p, (d->n_ops + 2) * sizeof *p);
        of = xrealloc(of, (d->n_ops + 2) * sizeof(struct op *));
        p[n++] = (struct pollfd){.fd = d->wake[0], .events = POLLIN};
        for (struct op *o = d->ops; o; o = o->next) {
            if (!o->ref) continue;
            of[n] = o;
            p[n++] = (struct pollfd){.fd = DNSServiceRefSockFD(o->ref), .events = POLLIN};
        }
        if (poll(p, n, -1) < 0 && errno != EINTR) break;
        for (u32 i = 1; i < n; i++)
            if (p[i].revents && !of[i]->doomed &&
                DNSServiceProcessResult(of[i]->ref) != kDNSServiceErr_NoError)
                of[i]->doomed = true;
        sweep(d);
        char bytes[16];
        if (p[0].revents) (void)!read(d->wake[0], bytes, sizeof bytes);
        lock_take(&d->lock);
        bool stop = d->stop, renew = d->renew;
        d->renew = false;
        lock_give(&d->lock);
        if (stop) break;
        if (renew) announce(d);
    }
    free(p);
    free(of);
    return NULL;
}

struct discovery *discovery_start(const struct discovery_cfg *cfg, struct err *e) {
    struct discovery *d = xcalloc(1, sizeof *d);
    lock_init(&d->lock);
    d->info = cfg->info;
    d->wake[0] = d->wake[1] = -1;
    /* The responder takes one interface or all; with several named, the node filters what it dials.
     */
    if (cfg->n_interfaces == 1) d->only = if_nametoindex(cfg->interfaces[0]);
    char cut[40];
    str_copy(cut, sizeof cut, cfg->name ? cfg->name : "");
    cut[strlen(cut) - utf8_incomplete_tail(cut, strlen(cut))] = 0;
    snprintf(d->name, sizeof d->name, "%s%s%.8s", cut, *cut ? " " : "", d->info.node_id);
    d->found = queue_new(QUEUE_CAP, e);
    if (!d->found || pipe(d->wake) != 0 || !sock_prepare(d->wake[0]) || !sock_prepare(d->wake[1]))
        goto fail;
    announce(d);
    struct op *b = op_new(d, NULL, 0);
    int rc = DNSServiceBrowse(&b->ref, 0, d->only, DISCOVERY_TYPE, NULL, on_browse, b);
    if (rc != kDNSServiceErr_NoError) {
        err_set(e, ERR_IO, "multicast DNS can't start: mDNSResponder says error %d", rc);
        goto fail;
    }
    d->has_thread = pthread_create(&d->thread, NULL, run, d) == 0;
    if (d->has_thread) return d;
    err_set(e, ERR_IO, "multicast DNS can't start: no thread");
fail:
    discovery_stop(d);
    return NULL;
}

static void wake(struct discovery *d, bool stop) {
    lock_take(&d->lock);
    d->stop = d->stop || stop;
    d->renew = true;
    lock_give(&d->lock);
    (void)!write(d->wake[1], "x", 1);
}

void discovery_stop(struct discovery *d) {
    if (!d) return;
    if (d->has_thread) {
        wake(d, true);
        pthread_join(d->thread, NULL);
    }
    for (struct op *o = d->ops; o; o = o->next) o->doomed = true;
    sweep(d);
    if (d->service) DNSServiceRefDeallocate(d->service);
    void *f;
    while (d->found && (f = queue_pop(d->found))) free(f);
    if (d->found) queue_free(d->found);
    for (int i = 0; i < 2; i++)
        if (d->wake[i] >= 0) close(d->wake[i]);
    lock_deinit(&d->lock);
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
    lock_take(&d->lock);
    bool news = d->info.api_port != port;
    d->info.api_port = port;
    lock_give(&d->lock);
    if (news) wake(d, false);
}
