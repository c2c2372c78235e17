#include "net/bus.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "net/bus_gone.h"
#include "net/bus_internal.h"

enum {
    TICK_MS = 250,
    PROBE_TICK_MS = 50,
    /* Small queues in ZeroMQ and the kernel: a heartbeat waits behind at most about 1 MB. */
    SEND_HWM = 16,
    RECEIVE_HWM = 64,
    SEND_BUFFER_BYTES = 256 << 10,
    HANDSHAKE_MS = 5000,
    RECONNECT_MS = 200,
    RECONNECT_MAX_MS = 2000,
    FAREWELL_MS = 200,
    REFUSED_LOG_MS = 60000,
    LOOK_MS = 1000, /* after an end of a connection, for whose it was */
};

#define ZAP_ENDPOINT "inproc://zeromq.zap.01"

static bool fail(struct err *e, const char *what) {
    return err_set(e, ERR_IO, "bus: %s: %s", what, zmq_strerror(errno));
}

static int fd_of(void *sock) {
    int fd = -1;
    size_t n = sizeof fd;
    zmq_getsockopt(sock, ZMQ_FD, &fd, &n);
    return fd;
}

static void set_int(void *sock, int option, int value) {
    zmq_setsockopt(sock, option, &value, sizeof value);
}

void *bus_socket(struct bus *b, int type, struct err *e) {
    void *s = zmq_socket(b->ctx, type);
    if (!s || !watch_add(b->watch, fd_of(s), WATCH_READ, 0, e)) {
        if (s)
            zmq_close(s);
        else
            fail(e, "can't make a socket");
        return NULL;
    }
    set_int(s, ZMQ_LINGER, 0);
    if (type != ZMQ_ROUTER && type != ZMQ_DEALER) return s;
    set_int(s, ZMQ_IPV6, 1);
    set_int(s, ZMQ_SNDHWM, SEND_HWM);
    set_int(s, ZMQ_RCVHWM, RECEIVE_HWM);
    set_int(s, ZMQ_SNDBUF, SEND_BUFFER_BYTES);
    set_int(s, ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS);
    set_int(s, ZMQ_RECONNECT_IVL, RECONNECT_MS);
    set_int(s, ZMQ_RECONNECT_IVL_MAX, RECONNECT_MAX_MS);
    zmq_setsockopt(s, ZMQ_MAXMSGSIZE, &(int64_t){BUS_FRAGMENT_MAX + 1024}, sizeof(int64_t));
    zmq_setsockopt(s, ZMQ_CURVE_SECRETKEY, b->key.secret, 32);
    if (type == ZMQ_ROUTER) {
        set_int(s, ZMQ_CURVE_SERVER, 1);
        zmq_setsockopt(s, ZMQ_ZAP_DOMAIN, "skein", 5);
        set_int(s, ZMQ_ROUTER_MANDATORY, 1);
        set_int(s, ZMQ_ROUTER_HANDOVER, 1);
    } else {
        zmq_setsockopt(s, ZMQ_CURVE_PUBLICKEY, b->key.public, 32);
        zmq_setsockopt(s, ZMQ_CURVE_SERVERKEY, b->key.public, 32);
        set_int(s, ZMQ_IMMEDIATE, 1);
    }
    return s;
}

void bus_socket_close(struct bus *b, void *sock) {
    watch_del(b->watch, fd_of(sock));
    zmq_close(sock);
}

void *bus_monitor(struct bus *b, void *sock, struct err *e) {
    char endpoint[40];
    snprintf(endpoint, sizeof endpoint, "inproc://monitor-%u", b->next_monitor++);
    void *m = bus_socket(b, ZMQ_PAIR, e);
    if (!m) return NULL;
    if (zmq_socket_monitor(sock, endpoint, ZMQ_EVENT_ALL) != 0 || zmq_connect(m, endpoint) != 0) {
        fail(e, "can't watch a socket");
        bus_socket_close(b, m);
        return NULL;
    }
    return m;
}

u32 bus_monitor_next(void *monitor, u32 *value) {
    u8 head[6] = {0}, rest[512];
    u16 event;
    if (zmq_recv(monitor, head, sizeof head, ZMQ_DONTWAIT) < 0) return 0;
    zmq_recv(monitor, rest, sizeof rest, ZMQ_DONTWAIT); /* the endpoint */
    memcpy(&event, head, 2);
    if (value) memcpy(value, head + 2, 4);
    return event;
}

void bus_note_add(struct bus *b, enum bus_event_kind kind, const char *peer, const char *address,
                  enum bus_reason reason, const char *text) {
    struct bus_note *n = xcalloc(1, sizeof *n);
    str_copy(n->peer, sizeof n->peer, peer);
    str_copy(n->address, sizeof n->address, address);
    str_copy(n->text, sizeof n->text, text);
    n->ev = (struct bus_event){.kind = kind,
                               .peer = n->peer,
                               .address = n->address,
                               .reason = reason,
                               .bytes = (const u8 *)"",
                               .text = n->text};
    if (b->last_note)
        b->last_note->next = n;
    else
        b->first_note = n;
    b->last_note = n;
}

static bool take_note(struct bus *b, struct bus_event *ev) {
    free(b->shown_note);
    b->shown_note = b->first_note;
    if (!b->shown_note) return false;
    b->first_note = b->shown_note->next;
    if (!b->first_note) b->last_note = NULL;
    *ev = b->shown_note->ev;
    return true;
}

static bool serve_zap(struct bus *b) {
    enum { FRAMES = 7, REQUEST_ID = 1, MECHANISM = 5, KEY = 6 };
    struct {
        u8 bytes[256];
        int n;
    } frame[FRAMES] = {0};
    int n = 0, more = 1;
    size_t size = sizeof more;
    while (more) {
        u8 spare[256], *to = n < FRAMES ? frame[n].bytes : spare;
        int got = zmq_recv(b->zap, to, 256, ZMQ_DONTWAIT);
        if (got < 0) return false;
        if (n < FRAMES) frame[n].n = MIN(got, 256);
        n++;
        zmq_getsockopt(b->zap, ZMQ_RCVMORE, &more, &size);
    }
    bool ok = n == FRAMES && frame[MECHANISM].n == 5 &&
              memcmp(frame[MECHANISM].bytes, "CURVE", 5) == 0 && frame[KEY].n == 32 &&
              memcmp(frame[KEY].bytes, b->key.public, 32) == 0;
    if (!ok) b->n_refused++;
    zmq_send(b->zap, "1.0", 3, ZMQ_SNDMORE);
    zmq_send(b->zap, frame[REQUEST_ID].bytes, (size_t)frame[REQUEST_ID].n, ZMQ_SNDMORE);
    zmq_send(b->zap, ok ? "200" : "400", 3, ZMQ_SNDMORE);
    zmq_send(b->zap, ok ? "OK" : "no member", ok ? 2 : 9, ZMQ_SNDMORE);
    zmq_send(b->zap, "", 0, ZMQ_SNDMORE);
    zmq_send(b->zap, "", 0, 0);
    return true;
}

/* One of the connections to us has ended: ROUTER_MANDATORY tells which when it is written to. The
 * event may come before the ROUTER itself knows, so this looks again for a while. */
static void find_closed(struct bus *b, u64 now_ms) {
    b->look_ms = now_ms + PROBE_TICK_MS;
    struct bus_frame ping = {.kind = BUS_FRAME_PING, .time_us = clock_us()};
    for (struct bus_in *in = b->ins; in;) {
        if (bus_send_in(b, in->rid, in->n_rid, &ping) || errno != EHOSTUNREACH) {
            in = in->next;
            continue;
        }
        bus_peer_lose_in(b, in, BUS_CLOSED);
        in = b->ins; /* a peer that went down took others with it */
    }
}

/* Connections of the ROUTER: strangers are counted, ends looked into. */
static bool serve_monitor(struct bus *b, u64 now_ms) {
    bool any = false;
    for (u32 event; (event = bus_monitor_next(b->monitor, NULL)); any = true) {
        if (event == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL ||
            event == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL ||
            event == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) {
            b->n_refused++;
            if (now_ms < b->refused_log_ms) continue;
            b->refused_log_ms = now_ms + REFUSED_LOG_MS;
            log_warn("bus",
                     "refused reason=\"another join key or cluster name, or no node\" total=%llu",
                     (unsigned long long)b->n_refused);
        } else if (event == ZMQ_EVENT_DISCONNECTED) {
            b->look_until_ms = now_ms + LOOK_MS;
            find_closed(b, now_ms);
        }
    }
    return any;
}

/* True when *ev is a message. */
static bool take_data(struct bus *b, struct bus_peer *p, const struct bus_frame *f,
                      struct bus_event *ev) {
    struct view v = {0};
    int r = bus_assembly_add(&p->assembly, f, &v);
    if (r < 0) b->n_bad++;
    if (r < 1) return false;
    *ev = (struct bus_event){.kind = BUS_MESSAGE,
                             .peer = p->id,
                             .address = "",
                             .type = f->type,
                             .bytes = v.n ? (const u8 *)v.p : (const u8 *)"",
                             .n = v.n,
                             .text = ""};
    return true;
}

/* Where the sender of b->msg listens, in its own word and as seen from here. */
static void address_of(struct bus *b, u16 port, char address[SOCK_ADDRESS_CAP]) {
    const char *host = zmq_msg_gets(&b->msg, "Peer-Address");
    if (!host) host = "?";
    if (strncmp(host, "::ffff:", 7) == 0 && strchr(host, '.'))
        host += 7; /* IPv4 on our IPv6 socket */
    sock_join(host, port, address);
}

/* Nobody yet: it has to sign our answer. */
static void take_hello(struct bus *b, const void *rid, size_t n_rid, const struct bus_frame *f,
                       u64 now_ms) {
    struct bus_in *in = bus_in_find(b, rid, n_rid);
    if (!in && b->n_ins >= BUS_INS_MAX) {
        b->n_bad++;
        return;
    }
    if (!in) in = bus_in_add(b, rid, n_rid);
    in->heard_ms = now_ms;
    bool repeated = in->welcome.boot && memcmp(&in->hello, &f->greeting, sizeof in->hello) == 0;
    bool same = in->hello.boot == f->greeting.boot &&
                memcmp(in->hello.public, f->greeting.public, sizeof in->hello.public) == 0;
    if (in->peer && !same) bus_peer_lose_path(b, in, "another node speaks for it");
    if (!repeated) {
        in->hello = f->greeting;
        in->welcome = bus_greet_own(b);
        in->proven = false;
    }
    struct bus_frame welcome = {.kind = BUS_FRAME_WELCOME, .greeting = in->welcome};
    bus_greet_sign(b, false, &in->hello, &in->welcome, welcome.signature);
    bus_send_in(b, rid, n_rid, &welcome);
}

/* A proven one becomes a path to its peer, now or when it is clear whose process it is. */
static void meet_in(struct bus *b, struct bus_in *in, u64 now_ms) {
    struct bus_peer *p;
    enum bus_meeting how = bus_peer_meet(b, &in->hello, now_ms, &p);
    if (how == BUS_MEET_JUNIOR)
        bus_send_in(b, in->rid, in->n_rid, &(struct bus_frame){.kind = BUS_FRAME_TWIN});
    if (how != BUS_MET) return;
    in->peer = p;
    bus_peer_add_path(b, p, NULL, in);
}

static void take_proof(struct bus *b, struct bus_in *in, const struct bus_frame *f, u64 now_ms) {
    char address[SOCK_ADDRESS_CAP];
    if (in->peer || in->proven) return;
    if (!in->welcome.boot || !bus_greet_verify(b, true, &in->hello, &in->welcome, f->signature)) {
        b->n_bad++;
        if (now_ms >= b->version_log_ms) {
            b->version_log_ms = now_ms + REFUSED_LOG_MS;
            address_of(b, in->hello.port, address);
            log_warn("bus", "refused address=%s reason=\"does not prove the node id it claims\"",
                     address);
        }
        bus_in_free(b, in);
        return;
    }
    address_of(b, in->hello.port, address);
    if (memcmp(in->hello.public, b->own.public, sizeof b->own.public) == 0) {
        if (in->hello.boot != b->own.boot) bus_greet_twin(b, &in->hello, address);
        bus_in_free(b, in);
        return;
    }
    in->proven = true;
    str_copy(in->address, sizeof in->address, address);
    meet_in(b, in, now_ms);
}

static void take_other_version(struct bus *b, const struct bus_frame *f, u64 now_ms) {
    char address[SOCK_ADDRESS_CAP];
    b->n_bad++;
    if (now_ms < b->version_log_ms) return;
    b->version_log_ms = now_ms + REFUSED_LOG_MS;
    address_of(b, 0, address);
    log_warn("bus",
             "refused address=%s reason=\"it speaks bus version %u, this node %u: install the same "
             "version of skein on both\"",
             address, f->version, BUS_FRAME_VERSION);
}

/* One frame of the ROUTER: routing id, then ours. 0: nothing there; 1: dealt with; 2: *ev. */
static int serve_router(struct bus *b, struct bus_event *ev, u64 now_ms) {
    u8 rid[BUS_RID_MAX];
    int n_rid = zmq_recv(b->router, rid, sizeof rid, ZMQ_DONTWAIT), n_parts = 0;
    if (n_rid < 0) return 0;
    do {
        if (zmq_msg_recv(&b->msg, b->router, ZMQ_DONTWAIT) < 0) return 1;
        n_parts++;
    } while (zmq_msg_more(&b->msg));
    struct bus_frame f;
    if (n_rid > BUS_RID_MAX || n_parts != 1 ||
        !bus_frame_parse(&f, zmq_msg_data(&b->msg), zmq_msg_size(&b->msg))) {
        b->n_bad++;
        return 1;
    }
    if (f.kind == BUS_FRAME_HELLO || f.kind == BUS_FRAME_OTHER_VERSION) {
        if (f.kind == BUS_FRAME_HELLO)
            take_hello(b, rid, (size_t)n_rid, &f, now_ms);
        else
            take_other_version(b, &f, now_ms);
        return 1;
    }
    struct bus_in *in = bus_in_find(b, rid, (size_t)n_rid);
    if (in && f.kind == BUS_FRAME_PROOF) {
        take_proof(b, in, &f, now_ms);
        return 1;
    }
    if (in && !in->peer && f.kind != BUS_FRAME_BYE) return 1; /* what comes before a proof */
    if (!in) { /* we forgot it, or never met: it shall greet first */
        bus_send_in(b, rid, (size_t)n_rid, &(struct bus_frame){.kind = BUS_FRAME_BYE});
        return 1;
    }
    in->heard_ms = now_ms;
    if (f.kind == BUS_FRAME_DATA) return take_data(b, in->peer, &f, ev) ? 2 : 1;
    if (f.kind == BUS_FRAME_PING) {
        f.kind = BUS_FRAME_PONG;
        bus_send_in(b, rid, (size_t)n_rid, &f);
    } else if (f.kind == BUS_FRAME_PONG) {
        bus_path_pong(b, in->peer, (struct bus_way){.in = in}, f.time_us);
    } else if (f.kind == BUS_FRAME_USE) {
        bus_path_use(b, in->peer, (struct bus_way){.in = in}, now_ms);
    } else if (f.kind == BUS_FRAME_TWIN) {
        bus_greet_note_twin(b, in->peer->id);
    } else if (f.kind == BUS_FRAME_BYE) {
        bus_peer_lose_in(b, in, "it has left");
    }
    return 1;
}

static int serve_link(struct bus *b, struct bus_link *l, struct bus_event *ev, u64 now_ms) {
    if (!l->sock || zmq_msg_recv(&b->msg, l->sock, ZMQ_DONTWAIT) < 0) return 0;
    struct bus_frame f;
    if (zmq_msg_more(&b->msg) ||
        !bus_frame_parse(&f, zmq_msg_data(&b->msg), zmq_msg_size(&b->msg))) {
        b->n_bad++;
        return 1;
    }
    l->heard_ms = now_ms;
    if (f.kind == BUS_FRAME_WELCOME) {
        bus_link_welcome(b, l, &f, now_ms);
    } else if (f.kind == BUS_FRAME_PING) {
        f.kind = BUS_FRAME_PONG;
        bus_send_link(b, l, &f);
    } else if (f.kind == BUS_FRAME_TWIN && l->greeting_ms) {
        bus_greet_note_twin(b, l->address);
    } else if (f.kind == BUS_FRAME_OTHER_VERSION) {
        take_other_version(b, &f, now_ms);
    } else if (f.kind == BUS_FRAME_PONG && l->peer) {
        bus_path_pong(b, l->peer, (struct bus_way){.link = l}, f.time_us);
    } else if (f.kind == BUS_FRAME_USE && l->peer) {
        bus_path_use(b, l->peer, (struct bus_way){.link = l}, now_ms);
    } else if (f.kind == BUS_FRAME_DATA && l->peer) {
        return take_data(b, l->peer, &f, ev) ? 2 : 1;
    } else if (f.kind == BUS_FRAME_BYE && l->peer) {
        struct bus_peer *p = l->peer;
        bus_link_lost(l, now_ms);
        bus_peer_lose_link(b, p, l, "it has left");
    }
    return 1;
}

/* Everything but what arrives from peers. True when something happened. */
static bool serve_rest(struct bus *b, u64 now_ms) {
    bool any = false;
    while (serve_zap(b)) any = true;
    any |= serve_monitor(b, now_ms);
    if (now_ms < b->look_until_ms && now_ms >= b->look_ms) find_closed(b, now_ms);
    any |= bus_gone_serve(b, now_ms);
    for (struct bus_link *l = b->links; l; l = l->next) any |= bus_link_serve(b, l, now_ms);
    if (now_ms < b->next_tick_ms) return any;
    b->next_tick_ms = now_ms + TICK_MS;
    for (struct bus_peer *p = b->peers; p; p = p->next) bus_path_tick(b, p, now_ms);
    for (struct bus_in *in = b->ins; in; in = in->next) {
        if (!in->proven || in->peer) continue;
        meet_in(b, in, now_ms);
        return true; /* the list may have changed: the others at the next tick */
    }
    for (struct bus_in *in = b->ins; in; in = in->next) {
        if (now_ms - in->heard_ms <= b->timeout_ms) continue;
        bus_peer_lose_in(b, in, "it is silent");
        return true; /* the list has changed: the others at the next tick */
    }
    return any;
}

bool bus_recv(struct bus *b, struct bus_event *ev) {
    for (;;) {
        if (take_note(b, ev)) return true;
        u64 now_ms = clock_ms();
        bool any = false;
        for (struct bus_peer *p = b->peers, *next; p; p = next) {
            next = p->next;
            any |= bus_peer_flush(b, p);
        }
        int r = serve_router(b, ev, now_ms);
        for (struct bus_link *l = b->links; l && r < 2; l = l->next) {
            any |= r > 0;
            r = serve_link(b, l, ev, now_ms);
        }
        if (r == 2) return true;
        any |= r > 0;
        /* What a peer sent counts before the news that its connection was closed. */
        if (any && now_ms < b->next_tick_ms) continue;
        if (serve_rest(b, now_ms) || any || b->first_note) continue;
        b->dirty = false;
        return false;
    }
}

static bool listen_at(struct bus *b, const struct bus_cfg *cfg, struct err *e) {
    char host[SOCK_HOST_CAP] = "*", address[SOCK_ADDRESS_CAP], endpoint[SOCK_ADDRESS_CAP + 8];
    const char *given = cfg->listen_host;
    if (given && *given && strcmp(given, "*") != 0) {
        struct sockaddr_storage a;
        socklen_t n;
        if (!sock_resolve(given, cfg->port, &a, &n, e)) return false;
        sock_text((struct sockaddr *)&a, host, NULL);
    }
    u16 port = cfg->port;
    for (;; port++) {
        sock_join(host, port, address);
        snprintf(endpoint, sizeof endpoint, "tcp://%s", address);
        if (!port) endpoint[strlen(endpoint) - 1] = '*';
        if (zmq_bind(b->router, endpoint) == 0) break;
        if (errno != EADDRINUSE)
            return err_set(e, ERR_IO, "bus: can't listen at %s: %s", address, zmq_strerror(errno));
        /* A listener is a program that people know of; a connection that happened to be dialled
         * from this port is nobody's fault. */
        if (port - cfg->port >= cfg->n_more_ports || port == UINT16_MAX ||
            sock_is_listened(host, port)) {
            return err_set(e, ERR_IO,
                           "bus: port %u on %s is in use by another program: stop it (maybe "
                           "another node) or choose another port",
                           port, *host == '*' ? "every address" : host);
        }
    }
    if (port != cfg->port)
        log_warn("bus",
                 "port %u is in use by a connection of another program, so this node listens at "
                 "%u; where it is named with --peer, name that port",
                 cfg->port, port);
    size_t n = sizeof endpoint;
    zmq_getsockopt(b->router, ZMQ_LAST_ENDPOINT, endpoint, &n);
    const char *colon = strrchr(endpoint, ':');
    b->port = colon ? (u16)strtoul(colon + 1, NULL, 10) : cfg->port;
    return true;
}

struct bus *bus_open(const struct bus_cfg *cfg, struct err *e) {
    struct bus *b = xcalloc(1, sizeof *b);
    zmq_msg_init(&b->msg);
    b->identity = *cfg->identity;
    b->own = (struct bus_greeting){.boot = cfg->boot ? cfg->boot : random_u64() | 1,
                                   .started = cfg->started,
                                   .moved = cfg->moved};
    memcpy(b->own.public, cfg->identity->public, sizeof b->own.public);
    b->timeout_ms = cfg->peer_timeout_ms ? cfg->peer_timeout_ms : 5000;
    b->rank = cfg->rank;
    b->rank_ctx = cfg->rank_ctx;
    b->open = !cfg->secret || !*cfg->secret;
    if (!bus_key_derive(&b->key, cfg->secret, cfg->name_space ? cfg->name_space : "", e)) goto fail;
    b->watch = watch_new(e);
    if (!b->watch) goto fail;
    b->ctx = zmq_ctx_new();
    if (!b->ctx) {
        fail(e, "can't start ZeroMQ");
        goto fail;
    }
    /* The gate stands before anybody can come in: without it every key is accepted. */
    b->zap = bus_socket(b, ZMQ_REP, e);
    if (!b->zap) goto fail;
    if (zmq_bind(b->zap, ZAP_ENDPOINT) != 0) {
        fail(e, "can't set up authentication");
        goto fail;
    }
    b->router = bus_socket(b, ZMQ_ROUTER, e);
    b->monitor = b->router ? bus_monitor(b, b->router, e) : NULL;
    if (b->monitor && listen_at(b, cfg, e)) return b;
fail:
    bus_close(b);
    return NULL;
}

static void say_bye(struct bus *b) {
    struct bus_frame bye = {.kind = BUS_FRAME_BYE};
    for (struct bus_peer *p = b->peers, *next; p; p = next) {
        next = p->next;
        bus_peer_flush(b, p);
    }
    for (struct bus_in *in = b->ins; in; in = in->next) {
        bus_send_in(b, in->rid, in->n_rid, &bye);
    }
    if (b->router) set_int(b->router, ZMQ_LINGER, FAREWELL_MS);
    for (struct bus_link *l = b->links; l; l = l->next) {
        if (l->state != LINK_UP) continue;
        bus_send_link(b, l, &bye);
        set_int(l->sock, ZMQ_LINGER, FAREWELL_MS);
    }
}

void bus_close(struct bus *b) {
    if (!b) return;
    say_bye(b);
    bus_peer_free_all(b);
    bus_gone_free_all(b);
    for (struct bus_link *l = b->links, *next; l; l = next) {
        next = l->next;
        bus_link_close(b, l);
        free(l);
    }
    if (b->router) zmq_socket_monitor(b->router, NULL, 0);
    if (b->monitor) bus_socket_close(b, b->monitor);
    if (b->router) bus_socket_close(b, b->router);
    if (b->zap) bus_socket_close(b, b->zap);
    if (b->ctx) zmq_ctx_term(b->ctx);
    watch_free(b->watch);
    struct bus_event ev;
    while (take_note(b, &ev)) {
    }
    zmq_msg_close(&b->msg);
    str_deinit(&b->scratch);
    sodium_memzero(&b->key, sizeof b->key);
    sodium_memzero(&b->identity, sizeof b->identity);
    free(b);
}

u16 bus_port(const struct bus *b) {
    return b->port;
}
bool bus_is_open(const struct bus *b) {
    return b->open;
}
int bus_fd(const struct bus *b) {
    return watch_fd(b->watch);
}
u64 bus_n_bad(const struct bus *b) {
    return b->n_bad;
}

int bus_timeout_ms(const struct bus *b) {
    if (b->dirty || b->first_note) return 0;
    if (b->gone || clock_ms() < b->look_until_ms) return PROBE_TICK_MS;
    for (const struct bus_peer *p = b->peers; p; p = p->next) {
        if (p->n_queued) return PROBE_TICK_MS;
    }
    for (const struct bus_link *l = b->links; l; l = l->next) {
        if (l->probe_fd >= 0) return PROBE_TICK_MS;
    }
    return TICK_MS;
}

bool bus_connect(struct bus *b, const char *address, struct err *e) {
    char host[SOCK_HOST_CAP], text[SOCK_ADDRESS_CAP];
    u16 port;
    if (!sock_split(address, 0, host, &port, e)) return false;
    sock_join(host, port, text);
    if (bus_link_find(b, text)) return true;
    struct bus_link *l = xcalloc(1, sizeof *l);
    str_copy(l->address, sizeof l->address, text);
    l->probe_fd = -1;
    l->next = b->links;
    b->links = l;
    bus_link_dial(b, l, clock_ms());
    b->dirty = true;
    return true;
}

void bus_hangup(struct bus *b, const char *address) {
    char host[SOCK_HOST_CAP], text[SOCK_ADDRESS_CAP];
    u16 port;
    if (!sock_split(address, 0, host, &port, NULL)) return;
    sock_join(host, port, text);
    for (struct bus_link **at = &b->links; *at; at = &(*at)->next) {
        struct bus_link *l = *at;
        if (strcmp(l->address, text) != 0) continue;
        struct bus_peer *p = l->state == LINK_UP ? l->peer : NULL;
        *at = l->next;
        l->peer = NULL;
        if (p) bus_send_link(b, l, &(struct bus_frame){.kind = BUS_FRAME_BYE});
        if (p) set_int(l->sock, ZMQ_LINGER, FAREWELL_MS);
        bus_link_close(b, l);
        if (p) bus_peer_lose_link(b, p, l, "hung up");
        free(l);
        return;
    }
}

bool bus_uses(const struct bus *b, const char *address) {
    const struct bus_link *l = b->links;
    while (l && strcmp(l->address, address) != 0) l = l->next;
    return l && l->state == LINK_UP;
}

bool bus_send(struct bus *b, const char *peer, u32 type, const void *bytes, size_t n,
              struct err *e) {
    struct bus_peer *p = bus_peer_find(b, peer);
    if (!p || !p->up) return err_set(e, ERR_NET, "node %.64s is not connected", peer);
    if (n > BUS_MESSAGE_MAX) {
        return err_set(e, ERR_LIMIT, "a message of %zu bytes is too large for the bus (%d)", n,
                       BUS_MESSAGE_MAX);
    }
    if (!bus_peer_queue(b, p, type, bytes, n, e)) return false;
    bus_peer_flush(b, p);
    b->dirty = true;
    return true;
}

u32 bus_rtt_us(const struct bus *b, const char *peer) {
    struct bus_path p;
    return bus_path(b, peer, &p) ? p.rtt_us : 0;
}
