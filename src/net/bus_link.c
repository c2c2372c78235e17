#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "net/bus_internal.h"

enum {
    NOBODY_MS = 3000,     /* not connected for so long: tell */
    PROBE_AFTER_MS = 700, /* a handshake takes 6 ms: connected for so long without one is odd */
    PROBE_MS = 2000,
    PROBE_LISTEN_MS = 300,
    HELLO_AGAIN_MS = 500,
    NO_WELCOME_MS = 5000,
    TWIN_REDIAL_MS = 2000,
    PARK_LINGER_MS = 200,
    BACKOFF_MAX_MS = 30000, /* after a refusal, which time alone does not cure */
};

struct bus_link *bus_link_find(struct bus *b, const char *address) {
    for (struct bus_link *l = b->links; l; l = l->next) {
        if (strcmp(l->address, address) == 0) return l;
    }
    return NULL;
}

static void probe_end(struct bus_link *l) {
    if (l->probe_fd >= 0) close(l->probe_fd);
    l->probe_fd = -1;
}

void bus_link_close(struct bus *b, struct bus_link *l) {
    probe_end(l);
    /* First no more events, then nobody who takes them: ZeroMQ's thread would wait for a reader. */
    if (l->sock) zmq_socket_monitor(l->sock, NULL, 0);
    if (l->monitor) bus_socket_close(b, l->monitor);
    if (l->sock) bus_socket_close(b, l->sock);
    l->sock = l->monitor = NULL;
    l->handshaken = l->refused = false;
    l->connected_ms = l->greeting_ms = 0;
}

void bus_link_park(struct bus *b, struct bus_link *l, const char *peer) {
    bus_send_link(b, l, &(struct bus_frame){.kind = BUS_FRAME_BYE});
    zmq_setsockopt(l->sock, ZMQ_LINGER, &(int){PARK_LINGER_MS}, sizeof(int));
    bus_link_close(b, l);
    l->peer = NULL;
    l->state = LINK_PARKED;
    str_copy(l->parked_for, sizeof l->parked_for, peer);
}

void bus_link_unpark(struct bus *b, const char *peer) {
    for (struct bus_link *l = b->links; l; l = l->next) {
        if (l->state != LINK_PARKED || strcmp(l->parked_for, peer) != 0) continue;
        l->state = LINK_WAITING;
        l->redial_ms = 0;
    }
}

void bus_link_lost(struct bus_link *l, u64 now_ms) {
    l->peer = NULL;
    l->state = LINK_DIALLING;
    l->since_ms = l->hello_ms = now_ms;
    l->greeting_ms = 0;
}

static void wait_and_redial(struct bus *b, struct bus_link *l, u64 now_ms) {
    bus_link_close(b, l);
    l->state = LINK_WAITING;
    l->backoff_ms = MIN(MAX(l->backoff_ms * 2, 1000u), (u32)BACKOFF_MAX_MS);
    l->redial_ms = now_ms + l->backoff_ms;
}

void bus_link_dial(struct bus *b, struct bus_link *l, u64 now_ms) {
    char endpoint[SOCK_ADDRESS_CAP + 8];
    snprintf(endpoint, sizeof endpoint, "tcp://%s", l->address);
    l->state = LINK_DIALLING;
    l->since_ms = now_ms;
    l->sock = bus_socket(b, ZMQ_DEALER, NULL);
    l->monitor = l->sock ? bus_monitor(b, l->sock, NULL) : NULL;
    if (!l->monitor || zmq_connect(l->sock, endpoint) != 0) wait_and_redial(b, l, now_ms);
}

static void report(struct bus *b, struct bus_link *l, enum bus_reason reason) {
    static const char *const texts[] = {
        [BUS_WRONG_SECRET] = "refuses our key: it has another join key or cluster name",
        [BUS_HTTP_PORT] = "speaks HTTP: that is not a node's bus port (maybe its API port)",
        [BUS_NOT_SKEIN] = "something listens there that does not answer as a node",
        [BUS_NOBODY] = "nobody answers there (not running, wrong address, or a firewall)",
        [BUS_SELF] = "that is this node itself",
        [BUS_OTHER_VERSION] = "is a node that does not answer our greeting: another version of "
                              "skein? Install the same one on both",
    };
    if (l->reported == reason) return;
    l->reported = reason;
    bus_note_add(b, BUS_DIAL_FAILED, "", l->address, reason, texts[reason]);
}

/* A plain TCP connection. A bus sends its greeting unasked (ZMTP 3.1: it begins with 0xFF), an HTTP
 * server answers a request. Resolving a name may block for a moment, but ZeroMQ has just resolved
 * it. */
static void probe_begin(struct bus_link *l, u64 now_ms) {
    char host[SOCK_HOST_CAP];
    u16 port;
    struct sockaddr_storage a;
    socklen_t n;
    if (l->probe_fd >= 0) return;
    if (!sock_split(l->address, 0, host, &port, NULL) || !sock_resolve(host, port, &a, &n, NULL)) {
        return;
    }
    int fd = socket(a.ss_family, SOCK_STREAM, 0);
    if (fd < 0) return;
    bool ok =
        sock_prepare(fd) && (connect(fd, (struct sockaddr *)&a, n) == 0 || errno == EINPROGRESS);
    if (!ok) {
        close(fd);
        return;
    }
    l->probe_fd = fd;
    l->probe_sent = false;
    l->probe_end_ms = now_ms + PROBE_MS;
}

/* 0: not known yet. The request waits a little: a bus that is sent nonsense resets the connection,
 * and its greeting is lost. */
static enum bus_reason probe_look(struct bus_link *l, u64 now_ms) {
    static const char request[] = "GET /node_id HTTP/1.0\r\nHost: x\r\n\r\n";
    bool ask = !l->probe_sent && l->probe_end_ms - now_ms <= PROBE_MS - PROBE_LISTEN_MS;
    struct pollfd p = {.fd = l->probe_fd, .events = ask ? POLLIN | POLLOUT : POLLIN};
    if (now_ms >= l->probe_end_ms) return BUS_NOT_SKEIN;
    if (poll(&p, 1, 0) < 1) return 0;
    if (!(p.revents & POLLIN)) {
        if (p.revents & (POLLERR | POLLHUP)) return BUS_NOBODY;
        if (send(l->probe_fd, request, sizeof request - 1, MSG_NOSIGNAL) < 0) return BUS_NOBODY;
        l->probe_sent = true;
        return 0;
    }
    u8 first[8];
    ssize_t n = recv(l->probe_fd, first, sizeof first, 0);
    if (n > 0 && first[0] == 0xFF) return BUS_WRONG_SECRET;
    if (n >= 5 && memcmp(first, "HTTP/", 5) == 0) return BUS_HTTP_PORT;
    return BUS_NOT_SKEIN;
}

static void probe_serve(struct bus *b, struct bus_link *l, u64 now_ms) {
    bool odd = l->connected_ms && now_ms - l->connected_ms >= PROBE_AFTER_MS;
    if (l->probe_fd < 0 && (l->refused || odd)) {
        probe_begin(l, now_ms);
        if (odd) l->connected_ms = now_ms;
    }
    if (l->probe_fd < 0) return;
    enum bus_reason reason = probe_look(l, now_ms);
    if (!reason) return;
    probe_end(l);
    /* A bus that is merely slow to shake hands has not refused anything. */
    if (reason == BUS_WRONG_SECRET && !l->refused) return;
    report(b, l, reason);
    if (l->refused || reason == BUS_HTTP_PORT) wait_and_redial(b, l, now_ms);
}

static void connection_lost(struct bus *b, struct bus_link *l, u64 now_ms) {
    l->handshaken = false;
    l->connected_ms = l->greeting_ms = 0;
    if (l->state != LINK_UP) return;
    struct bus_peer *p = l->peer;
    bus_link_lost(l, now_ms);
    bus_peer_lose_link(b, p, l, BUS_CLOSED);
}

/* Whom a name led to. The descriptor is ZeroMQ's; asking for its other end does no harm. */
static void note_host(struct bus_link *l, int fd) {
    struct sockaddr_storage a = {0};
    socklen_t n = sizeof a;
    l->host[0] = 0;
    if (getpeername(fd, (struct sockaddr *)&a, &n) == 0 &&
        (a.ss_family == AF_INET || a.ss_family == AF_INET6))
        sock_text((struct sockaddr *)&a, l->host, NULL);
}

static bool serve_monitor(struct bus *b, struct bus_link *l, u64 now_ms) {
    bool any = false;
    for (u32 event, value; (event = bus_monitor_next(l->monitor, &value)); any = true) {
        switch (event) {
        case ZMQ_EVENT_CONNECTED:
            l->connected_ms = now_ms;
            note_host(l, (int)value);
            break;
        case ZMQ_EVENT_HANDSHAKE_SUCCEEDED:
            probe_end(l);
            l->handshaken = true;
            l->refused = false;
            l->connected_ms = 0;
            l->hello_ms = now_ms;
            break;
        case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL:
        case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL:
        case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH: l->refused = true; break;
        case ZMQ_EVENT_DISCONNECTED:
        case ZMQ_EVENT_CLOSED: connection_lost(b, l, now_ms); break;
        default: break;
        }
    }
    return any;
}

static void greet_and_ping(struct bus *b, struct bus_link *l, u64 now_ms) {
    if (l->state == LINK_DIALLING && l->handshaken && now_ms >= l->hello_ms) {
        if (!l->greeting_ms) {
            l->greeting_ms = MAX(now_ms, 1);
            l->hello = bus_greet_own(b);
        }
        struct bus_frame f = {.kind = BUS_FRAME_HELLO, .greeting = l->hello};
        if (bus_send_link(b, l, &f)) l->hello_ms = now_ms + HELLO_AGAIN_MS;
        if (now_ms - l->greeting_ms >= NO_WELCOME_MS && l->heard_ms < l->greeting_ms)
            report(b, l, BUS_OTHER_VERSION);
    }
    if (l->state == LINK_UP && now_ms >= l->ping_ms) {
        struct bus_frame f = {.kind = BUS_FRAME_PING, .time_us = clock_us()};
        bus_send_link(b, l, &f);
        l->ping_ms = now_ms + bus_path_ping_ms(&l->gauge);
    }
}

static void send_proof(struct bus *b, struct bus_link *l, const struct bus_greeting *g) {
    struct bus_frame proof = {.kind = BUS_FRAME_PROOF};
    bus_greet_sign(b, true, &l->hello, g, proof.signature);
    bus_send_link(b, l, &proof);
}

/* Our own key answers: this process, or another one with a copy of it. That one has to learn of us,
 * and whichever is to become another node will be found at its address as such. */
static void meet_self(struct bus *b, struct bus_link *l, const struct bus_greeting *g, u64 now_ms) {
    if (g->boot == b->own.boot) {
        report(b, l, BUS_SELF);
        bus_link_close(b, l);
        l->state = LINK_SELF;
        return;
    }
    send_proof(b, l, g);
    bus_greet_twin(b, g, l->address);
    l->state = LINK_WAITING; /* with its socket, for the proof to leave */
    l->redial_ms = now_ms + TWIN_REDIAL_MS;
}

void bus_link_welcome(struct bus *b, struct bus_link *l, const struct bus_frame *f, u64 now_ms) {
    l->heard_ms = now_ms;
    const struct bus_greeting *g = &f->greeting;
    if (l->state == LINK_UP && l->peer->who.boot == g->boot) return;
    if (l->state != LINK_DIALLING || !l->greeting_ms) return;
    if (!bus_greet_verify(b, false, &l->hello, g, f->signature)) {
        log_debug("bus", "no proof address=%s", l->address); /* or to an earlier greeting of ours */
        return;
    }
    if (memcmp(g->public, b->own.public, sizeof g->public) == 0) {
        meet_self(b, l, g, now_ms);
        return;
    }
    struct bus_peer *p;
    enum bus_meeting how = bus_peer_meet(b, g, now_ms, &p);
    if (how == BUS_MEET_LATER) return; /* our greeting is repeated, and so is its answer */
    send_proof(b, l, g);
    if (how == BUS_MEET_JUNIOR) {
        bus_send_link(b, l, &(struct bus_frame){.kind = BUS_FRAME_TWIN});
        return;
    }
    l->reported = 0;
    l->backoff_ms = 0;
    l->state = LINK_UP; /* a second one is measured, and chosen or parked: bus_path.c */
    l->peer = p;
    l->ping_ms = l->spare_ms = now_ms;
    l->gauge = (struct bus_gauge){0};
    bus_peer_add_path(b, p, l, NULL);
}

bool bus_link_serve(struct bus *b, struct bus_link *l, u64 now_ms) {
    if (l->state == LINK_WAITING && now_ms >= l->redial_ms) {
        if (l->sock) bus_link_close(b, l);
        bus_link_dial(b, l, now_ms);
    }
    if (!l->sock) return false;
    bool any = serve_monitor(b, l, now_ms);
    if (l->state == LINK_DIALLING) probe_serve(b, l, now_ms);
    if (!l->sock) return true;
    if (l->state == LINK_DIALLING && !l->handshaken && !l->connected_ms && l->probe_fd < 0 &&
        now_ms - l->since_ms >= NOBODY_MS) {
        report(b, l, BUS_NOBODY);
    }
    if (l->state == LINK_UP && now_ms - l->heard_ms > b->timeout_ms) {
        struct bus_peer *p = l->peer;
        bus_link_lost(l, now_ms);
        bus_link_close(b, l); /* what hangs that long is dialled anew */
        l->state = LINK_WAITING;
        l->redial_ms = now_ms;
        bus_peer_lose_link(b, p, l, "it is silent");
        return true;
    }
    greet_and_ping(b, l, now_ms);
    return any;
}
