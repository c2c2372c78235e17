/* The side that measures: one session with one peer. */
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/netif.h"
#include "base/str.h"
#include "net/link_internal.h"

enum {
    CONNECT_MS = 3000,
    PINGS_MAX = 200,
    PINGS_MS = 700, /* on a slow link there are fewer */
    PINGS_WARM = 5,
    BURST_FIRST_BYTES = 256 << 10,
    BURST_MS = 2500,
    DATAGRAM_TRIES = 3,
    V4_HEADERS = 28,
    V6_HEADERS = 48,
    JUMBO = 9000,
};

struct session {
    struct link_meter *m;
    int fd;
    u64 deadline_ms;
    struct link_greeting greeting;
    struct sockaddr_storage remote;
    socklen_t remote_n;
    bool v6;
};

static bool connect_to(struct session *s, const struct link_peer *p, struct err *e) {
    char address[SOCK_ADDRESS_CAP];
    int on = 1, failed = 0;
    socklen_t n = sizeof failed;
    if (!sock_resolve(p->host, p->port, &s->remote, &s->remote_n, e)) return false;
    s->v6 = s->remote.ss_family == AF_INET6;
    s->fd = socket(s->remote.ss_family, SOCK_STREAM, 0);
    if (s->fd < 0 || !sock_prepare(s->fd)) return err_errno(e, ERR_IO, "a socket");
    setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    sock_join(p->host, p->port, address);
    if (connect(s->fd, (struct sockaddr *)&s->remote, s->remote_n) == 0) return true;
    if (errno != EINPROGRESS) return err_errno(e, ERR_NET, "connecting to %s", address);
    if (link_wait_fd(s->m, s->fd, POLLOUT, clock_ms() + CONNECT_MS) != LINK_READY)
        return err_set(e, ERR_NET,
                       "%s does not answer: a firewall may be in the way of the link meter's port",
                       address);
    if (getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &failed, &n) == 0 && !failed) return true;
    errno = failed;
    return err_errno(e, ERR_NET, "connecting to %s", address);
}

static bool shake_hands(struct session *s, const struct link_target *t, struct err *e) {
    u8 hello[LINK_GREETING_BYTES], proof[LINK_PROOF_BYTES];
    u64 until = clock_ms() + CONNECT_MS;
    if (!link_recv_all(s->m, s->fd, hello, sizeof hello, until, e)) {
        if (e->code == ERR_NET && clock_ms() < until) e->code = ERR_BUSY; /* it hung up: later */
        return false;
    }
    if (!link_greeting_get(hello, &s->greeting))
        return err_set(e, ERR_NET, "no link meter answers at port %u", t->p.port);
    if (s->greeting.state != LINK_FREE) return err_set(e, ERR_BUSY, "it measures another link");
    if (s->greeting.computing && t->was_measured) return err_set(e, ERR_LIMIT, "it has work");
    link_proof_put(t->p.token, s->greeting.nonce, proof);
    return link_send_all(s->m, s->fd, proof, sizeof proof, until, e);
}

static bool answer(struct session *s, enum link_op op, u64 *value, struct err *e) {
    u8 bytes[LINK_ORDER_BYTES];
    if (!link_recv_all(s->m, s->fd, bytes, sizeof bytes, s->deadline_ms, e)) return false;
    u64 v = 0;
    for (u32 i = 0; i < 8; i++) v |= (u64)bytes[8 + i] << 8 * i;
    *value = v;
    return bytes[0] == (u8)op || err_set(e, ERR_NET, "its answer makes no sense");
}

static bool order(struct session *s, enum link_op op, u64 value, struct err *e) {
    u8 bytes[LINK_ORDER_BYTES];
    link_order_put((struct link_order){op, value}, bytes);
    return link_send_all(s->m, s->fd, bytes, sizeof bytes, s->deadline_ms, e);
}

static bool ping(struct session *s, struct link_result *r, struct err *e) {
    u32 us[PINGS_MAX], n = 0;
    u64 begin = clock_ms(), until = begin + PINGS_MS, value;
    for (u32 i = 0; n < PINGS_MAX && (n < 3 || clock_ms() < until); i++) {
        u64 t = clock_ns();
        if (!order(s, LINK_PING, i, e) || !answer(s, LINK_PING, &value, e)) return false;
        t = (clock_ns() - t + 500) / 1000;
        if (i >= PINGS_WARM || clock_ms() - begin > PINGS_MS / 2)
            us[n++] = (u32)MIN(MAX(t, 1), (u64)UINT32_MAX);
    }
    r->rtt_p50_us = link_quantile(us, n, 0.5);
    r->rtt_p99_us = link_quantile(us, n, 0.99);
    return true;
}

/* Bursts that grow until one lasts; the last figure counts, timed where the bytes arrive. */
static bool burst(struct session *s, struct link_result *r, struct err *e) {
    u64 until = clock_ms() + BURST_MS, ns;
    for (u64 bytes = BURST_FIRST_BYTES; bytes && clock_ms() < until;) {
        if (link_is_stopping(s->m)) return err_set(e, ERR_CANCELLED, "the node is stopping");
        if (!order(s, LINK_SINK, bytes, e)) return false;
        for (u64 left = bytes; left;) {
            size_t n = MIN(left, (u64)LINK_CHUNK_BYTES);
            if (!link_send_all(s->m, s->fd, s->m->chunk, n, s->deadline_ms, e)) return false;
            left -= n;
        }
        if (!answer(s, LINK_SINK, &ns, e)) return false;
        ns = MAX(ns, 1);
        r->bandwidth_bytes_s = (u64)((double)bytes * 1e9 / (double)ns);
        bytes = link_next_burst(bytes, ns, r->rtt_p50_us);
    }
    return true;
}

/* Does an IP packet of this size get there in one piece? */
static bool passes(struct session *s, int udp, u32 size, bool *yes, struct err *e) {
    u8 packet[LINK_DATAGRAM_MAX];
    u64 n = MIN(size - (s->v6 ? V6_HEADERS : V4_HEADERS), (u32)LINK_DATAGRAM_MAX), got = 0;
    memset(packet, 0, sizeof packet);
    memcpy(packet, s->greeting.nonce, LINK_NONCE_BYTES);
    *yes = false;
    for (u32 i = 0; i < DATAGRAM_TRIES && !*yes; i++) {
        /* Sent first: what the system refuses to send need not be waited for there. */
        if (sendto(udp, packet, n, 0, (struct sockaddr *)&s->remote, s->remote_n) < 0) return true;
        if (!order(s, LINK_DATAGRAM, n, e) || !answer(s, LINK_DATAGRAM, &got, e)) return false;
        *yes = got == n;
    }
    return true;
}

static bool find_mtu(struct session *s, struct link_result *r, struct err *e) {
    u32 sizes[LINK_MTUS_MAX], claimed = link_os_mtu(s->fd, s->v6);
    u32 n = link_mtus(claimed ? claimed : r->mtu, sizes);
    int udp = socket(s->remote.ss_family, SOCK_DGRAM, 0), room = 256 << 10;
    if (claimed) r->mtu = claimed;
    if (udp < 0 || !sock_prepare(udp) || !link_os_dont_fragment(udp, s->v6)) {
        if (udp >= 0) close(udp);
        return true; /* what the system claims stays */
    }
    setsockopt(udp, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    if (s->v6)
        ((struct sockaddr_in6 *)&s->remote)->sin6_port = htons(s->greeting.udp_port);
    else
        ((struct sockaddr_in *)&s->remote)->sin_port = htons(s->greeting.udp_port);
    bool ok = true, yes = false;
    u32 tried = r->mtu;
    for (u32 i = 0; ok && !yes && i < n; i++) {
        ok = passes(s, udp, sizes[i], &yes, e);
        if (ok && yes) r->mtu = sizes[i];
    }
    r->jumbo_passes = yes && r->mtu >= JUMBO;
    if (ok && yes && r->mtu < MIN(tried, sizes[0]))
        snprintf(
            r->problem, sizeof r->problem,
            "packets of more than %u bytes do not arrive, though %s claims %u: large transfers "
            "hang; set the MTU of both ends to %u",
            r->mtu, r->interface, tried, r->mtu);
    close(udp);
    return ok;
}

static void name_interface(struct session *s, struct link_result *r) {
    struct sockaddr_storage local;
    socklen_t n = sizeof local;
    char host[SOCK_HOST_CAP], remote[SOCK_HOST_CAP];
    if (getsockname(s->fd, (struct sockaddr *)&local, &n) != 0) return;
    sock_text((struct sockaddr *)&local, host, NULL);
    sock_text((struct sockaddr *)&s->remote, remote, NULL);
    struct netif *v = xcalloc(NETIF_MAX, sizeof *v);
    u32 k = netif_list(v, NETIF_MAX);
    /* To an address of this machine the way leads over loopback, whoever holds it. */
    const struct netif *i = strcmp(host, remote) == 0 ? netif_toward(v, k, remote) : NULL;
    if (!i) i = netif_of_host(v, k, host);
    if (i) {
        str_copy(r->interface, sizeof r->interface, i->name);
        r->kind = i->kind;
        r->speed_mbit = i->speed_mbit;
        r->mtu = i->mtu;
    }
    free(v);
}

bool link_measure(struct link_meter *m, const struct link_target *t, struct link_result *r,
                  struct err *e) {
    struct session s = {.m = m, .fd = -1};
    bool ok = connect_to(&s, &t->p, e) && shake_hands(&s, t, e);
    if (ok) {
        s.deadline_ms = clock_ms() + LINK_SESSION_MS;
        name_interface(&s, r);
        /* A burst would hang where large packets get lost. */
        ok = ping(&s, r, e) && find_mtu(&s, r, e) && (*r->problem || burst(&s, r, e));
        order(&s, LINK_BYE, 0, NULL);
        r->at_unix_s = clock_wall_ms() / 1000;
    }
    if (s.fd >= 0) close(s.fd);
    return ok;
}
