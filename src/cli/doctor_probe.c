/* doctor_probe.c - facts that only the network can tell: does multicast pass, who announces
 * itself, which ports answer. */
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/random.h"
#include "cli/doctor.h"
#include "net/discovery.h"
#include "node/node.h"

enum { MDNS_PORT = 5353, MULTICAST_MS = 700, HIGH_PORT = 61973, BIG_BYTES = 4000 };

/* A question for a service type that nobody has: one that can be told apart from all others. */
static size_t question(u8 out[64]) {
    char label[32];
    size_t n = 12, k = (size_t)snprintf(label, sizeof label, "_skein-%08x", (u32)random_u64());
    memset(out, 0, 64);
    out[5] = 1; /* one question */
    out[n++] = (u8)k;
    memcpy(out + n, label, k);
    n += k;
    static const u8 REST[] = "\4_tcp\5local\0\0\x0c\0\1"; /* root, PTR, IN */
    memcpy(out + n, REST, sizeof REST - 1);
    return n + sizeof REST - 1;
}

/* The socket of one interface's group, of IPv4 where it has such an address; -1: none. */
struct ear {
    int fd;
    struct sockaddr_storage to;
    socklen_t n_to;
};

static bool join_v4(struct ear *x, const struct netif *i) {
    struct ip_mreqn m = {.imr_ifindex = (int)i->index};
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(MDNS_PORT)}, to = any;
    inet_pton(AF_INET, "224.0.0.251", &m.imr_multiaddr);
    to.sin_addr = m.imr_multiaddr;
    memcpy(&x->to, &to, sizeof to);
    x->n_to = sizeof to;
    return bind(x->fd, (struct sockaddr *)&any, sizeof any) == 0 &&
           setsockopt(x->fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &m, sizeof m) == 0 &&
           setsockopt(x->fd, IPPROTO_IP, IP_MULTICAST_IF, &m, sizeof m) == 0;
}

static bool join_v6(struct ear *x, const struct netif *i) {
    struct ipv6_mreq m = {.ipv6mr_interface = i->index};
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons(MDNS_PORT)}, to = any;
    int on = 1;
    inet_pton(AF_INET6, "ff02::fb", &m.ipv6mr_multiaddr);
    to.sin6_addr = m.ipv6mr_multiaddr;
    to.sin6_scope_id = i->index;
    memcpy(&x->to, &to, sizeof to);
    x->n_to = sizeof to;
    return setsockopt(x->fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) == 0 &&
           bind(x->fd, (struct sockaddr *)&any, sizeof any) == 0 &&
           setsockopt(x->fd, IPPROTO_IPV6, IPV6_JOIN_GROUP, &m, sizeof m) == 0 &&
           setsockopt(x->fd, IPPROTO_IPV6, IPV6_MULTICAST_IF, &i->index, sizeof i->index) == 0;
}

static bool ear_open(struct ear *x, const struct netif *i) {
    bool v4 = false;
    int on = 1;
    for (u32 k = 0; k < i->n_addrs; k++) v4 |= !i->addrs[k].is_v6;
    x->fd = socket(v4 ? AF_INET : AF_INET6, SOCK_DGRAM, 0);
    bool ok = x->fd >= 0 && sock_prepare(x->fd) &&
              setsockopt(x->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
              setsockopt(x->fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) == 0 &&
              (v4 ? join_v4(x, i) : join_v6(x, i));
    if (!ok && x->fd >= 0) close(x->fd);
    if (!ok) x->fd = -1;
    return ok;
}

void doctor_probe_multicast(struct doctor_facts *f) {
    struct ear ears[NETIF_MAX];
    struct pollfd p[NETIF_MAX];
    u8 asked[NETIF_MAX][64], got[2048];
    size_t n_asked[NETIF_MAX];
    for (u32 i = 0; i < f->n_ifaces; i++) {
        struct doctor_iface *x = &f->ifaces[i];
        ears[i].fd = -1;
        if (!x->net.is_up || x->net.is_inner || !x->net.has_multicast || !x->net.n_addrs) continue;
        if (!ear_open(&ears[i], &x->net)) continue;
        n_asked[i] = question(asked[i]);
        x->is_tried = true;
        /* A firewall that drops it may let the call fail: then nothing is heard either. */
        (void)!sendto(ears[i].fd, asked[i], n_asked[i], 0, (struct sockaddr *)&ears[i].to,
                      ears[i].n_to);
    }
    for (u64 end = clock_ms() + MULTICAST_MS, now; (now = clock_ms()) < end;) {
        bool waits = false;
        for (u32 i = 0; i < f->n_ifaces; i++) {
            bool open = ears[i].fd >= 0 && f->ifaces[i].is_tried && !f->ifaces[i].is_heard;
            p[i] = (struct pollfd){.fd = open ? ears[i].fd : -1, .events = POLLIN};
            waits |= open;
        }
        if (!waits || poll(p, f->n_ifaces, (int)(end - now)) <= 0) break;
        for (u32 i = 0; i < f->n_ifaces; i++) {
            if (p[i].fd < 0 || !(p[i].revents & POLLIN)) continue;
            ssize_t n = recv(p[i].fd, got, sizeof got, 0);
            if (n == (ssize_t)n_asked[i] && memcmp(got, asked[i], (size_t)n) == 0)
                f->ifaces[i].is_heard = true;
        }
    }
    for (u32 i = 0; i < f->n_ifaces; i++)
        if (ears[i].fd >= 0) close(ears[i].fd);
}

static void heard_of(struct doctor_facts *f, const struct discovery_found *found) {
    char address[SOCK_ADDRESS_CAP];
    if (found->is_gone || strcmp(found->info.node_id, f->id) == 0) return;
    struct doctor_peer *p =
        doctor_peer(f, found->info.node_id, sock_join(found->host, found->info.bus_port, address));
    if (!p) return;
    p->is_announced = true;
    if (!*p->name) snprintf(p->name, sizeof p->name, "node %.8s", found->info.node_id);
    str_copy(p->name_space, sizeof p->name_space, found->info.name_space);
    if (!*p->build) str_copy(p->build, sizeof p->build, found->info.version);
}

void doctor_probe_announced(struct doctor_facts *f, u32 listen_ms) {
    /* Without a bus port nothing is announced: it only listens. */
    struct discovery_cfg cfg = {.info = {.boot = random_u64()}};
    struct err e = {0};
    u8 id[16];
    random_bytes(id, sizeof id);
    hex_encode(id, sizeof id, cfg.info.node_id);
    struct discovery *d = discovery_start(&cfg, &e);
    if (!d) {
        if (!*f->discovery_error) str_copy(f->discovery_error, sizeof f->discovery_error, e.msg);
        return;
    }
    struct discovery_found found;
    struct pollfd p = {.fd = discovery_fd(d), .events = POLLIN};
    for (u64 end = clock_ms() + listen_ms, now; (now = clock_ms()) < end;) {
        poll(&p, 1, (int)(end - now));
        while (discovery_next(d, &found)) heard_of(f, &found);
    }
    discovery_stop(d);
}

/* One connection attempt. */
struct attempt {
    enum doctor_reach *out;
    int fd;
    bool wants_greeting, connected, pushing;
    struct doctor_peer *peer; /* of the bus's attempt; NULL otherwise */
};

static enum doctor_reach reach_of(int error) {
    if (error == ECONNREFUSED || error == ECONNRESET) return REACH_REFUSED;
    if (error == ENETUNREACH || error == EHOSTUNREACH || error == EADDRNOTAVAIL ||
        error == EHOSTDOWN)
        return REACH_NO_ROUTE;
    return REACH_SILENT;
}

static void attempt_begin(struct attempt *a, const struct sockaddr_storage *to, socklen_t n,
                          u16 port) {
    struct sockaddr_storage s = *to;
    if (s.ss_family == AF_INET) ((struct sockaddr_in *)(void *)&s)->sin_port = htons(port);
    if (s.ss_family == AF_INET6) ((struct sockaddr_in6 *)(void *)&s)->sin6_port = htons(port);
    a->fd = socket(s.ss_family, SOCK_STREAM, 0);
    *a->out = REACH_SILENT;
    if (a->fd < 0 || !sock_prepare(a->fd)) return;
    if (connect(a->fd, (struct sockaddr *)&s, n) == 0 || errno == EINPROGRESS) return;
    *a->out = reach_of(errno);
    close(a->fd);
    a->fd = -1;
}

static void attempt_end(struct attempt *a, enum doctor_reach reach) {
    if (a->pushing) a->peer->big_lost = doctor_unconfirmed(a->fd) > 0;
    *a->out = reach;
    close(a->fd);
    a->fd = -1;
}

/* Both ends take large segments: does one arrive? The peer's system confirms it, whatever the bus
 * thinks of a heap of zeros. Small segments would arrive and prove nothing. */
static bool push(struct attempt *a) {
    static const u8 zeros[BIG_BYTES];
    int mss = 0;
    socklen_t n = sizeof mss;
    if (!a->peer || getsockopt(a->fd, IPPROTO_TCP, TCP_MAXSEG, &mss, &n) != 0) return false;
    a->peer->mss = (u32)mss;
    if (mss < BIG_BYTES) return false;
    a->pushing = send(a->fd, zeros, sizeof zeros, MSG_NOSIGNAL) == (ssize_t)sizeof zeros;
    return a->pushing;
}

/* A bus greets unasked; its greeting begins with 0xFF (ZMTP 3). */
static void attempt_look(struct attempt *a) {
    int error = 0;
    socklen_t n = sizeof error;
    u8 first;
    if (!a->connected) {
        if (getsockopt(a->fd, SOL_SOCKET, SO_ERROR, &error, &n) != 0 || error) {
            attempt_end(a, reach_of(error));
            return;
        }
        a->connected = true;
        if (!a->wants_greeting) attempt_end(a, REACH_OPEN);
        return;
    }
    ssize_t k = recv(a->fd, &first, 1, 0);
    if (k < 0 && (errno == EAGAIN || errno == EINTR)) return;
    bool bus = a->pushing || (k == 1 && first == 0xFF);
    if (bus && k == 1 && (a->pushing || push(a))) return;
    attempt_end(a, bus ? REACH_BUS : REACH_OPEN);
}

static void prepare(struct doctor_peer *p, struct attempt *bus, struct attempt *high) {
    char host[SOCK_HOST_CAP];
    u16 port;
    struct sockaddr_storage to;
    socklen_t n;
    bus->fd = high->fd = -1;
    if (!*p->address || !sock_split(p->address, NODE_BUS_PORT, host, &port, NULL)) return;
    if (!sock_resolve(host, port, &to, &n, NULL)) {
        p->bus = REACH_NO_HOST;
        return;
    }
    *bus = (struct attempt){.out = &p->bus, .fd = -1, .wants_greeting = true, .peer = p};
    attempt_begin(bus, &to, n, port);
    *high = (struct attempt){.out = &p->high, .fd = -1};
    if (!sock_is_loopback((struct sockaddr *)&to)) attempt_begin(high, &to, n, HIGH_PORT);
}

void doctor_probe_reach(struct doctor_facts *f, u32 patience_ms) {
    struct attempt a[2 * DOCTOR_PEERS_MAX];
    struct pollfd p[2 * DOCTOR_PEERS_MAX];
    u32 n = 2 * f->n_peers;
    for (u32 i = 0; i < f->n_peers; i++) prepare(&f->peers[i], &a[2 * i], &a[2 * i + 1]);
    for (u64 end = clock_ms() + patience_ms, now; (now = clock_ms()) < end;) {
        bool waits = false;
        for (u32 i = 0; i < n; i++) {
            p[i] = (struct pollfd){.fd = a[i].fd, .events = a[i].connected ? POLLIN : POLLOUT};
            waits |= a[i].fd >= 0;
        }
        if (!waits || poll(p, n, (int)(end - now)) <= 0) break;
        for (u32 i = 0; i < n; i++)
            if (a[i].fd >= 0 && p[i].revents) attempt_look(&a[i]);
    }
    for (u32 i = 0; i < n; i++)
        if (a[i].fd >= 0)
            attempt_end(&a[i], a[i].pushing     ? REACH_BUS
                               : a[i].connected ? REACH_OPEN
                                                : REACH_SILENT);
}

/* The bus of this machine, on an address of its network: not all listen there. */
void doctor_probe_own_bus(struct doctor_facts *f, u32 patience_ms) {
    static struct doctor_facts own;
    own.n_peers = 0;
    for (u32 i = 0; i < f->n_ifaces && own.n_peers < DOCTOR_PEERS_MAX; i++) {
        const struct netif *x = &f->ifaces[i].net;
        char address[SOCK_ADDRESS_CAP];
        if (!x->is_up || x->is_inner || x->kind == NETIF_LOOPBACK || !x->n_addrs) continue;
        doctor_peer(&own, "", sock_join(x->addrs[0].host, (u16)f->bus_port, address));
    }
    doctor_probe_reach(&own, patience_ms);
    f->bus_is_local = own.n_peers > 0;
    for (u32 i = 0; i < own.n_peers; i++) f->bus_is_local &= own.peers[i].bus == REACH_REFUSED;
}
