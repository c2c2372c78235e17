#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/random.h"
#include "comm/group_internal.h"
#include "comm/group_shm.h"

enum {
    TIMEOUT_MS = 30000,
    SILENCE_MS = 800,
    REDIAL_MS = 100,
    STRANGER_MS = 2000, /* an accepted connection that has not proved itself by then is dropped */
    STRANGERS_MAX = 64,
    OF_RANK_MAX = GROUP_STREAMS_MAX + 1,
    CONNS_MAX = OF_RANK_MAX * GROUP_RANKS_MAX + STRANGERS_MAX,
};

enum step {
    DIAL_WAIT, /* dial at at_ms */
    DIAL_CONNECTING,
    DIAL_REPLY,   /* HELLO sent, REPLY expected */
    DIAL_WELCOME, /* PROOF sent, last byte expected */
    ACCEPT_HELLO,
    ACCEPT_PROOF,
    DONE,
};

struct conn {
    enum step step;
    int fd; /* -1: none */
    struct group_hello hello;
    u8 hello_bytes[GROUP_HELLO_BYTES], nonce[32];
    u8 in[GROUP_REPLY_BYTES]; /* the longest message */
    size_t n_in;
    u64 at_ms; /* DIAL_WAIT: when; ACCEPT_*: until when */
};

struct meeting {
    struct group *g;
    const struct group_cfg *cfg;
    const char *host[GROUP_RANKS_MAX];
    u16 port[GROUP_RANKS_MAX];
    struct conn conn[CONNS_MAX];
    u32 n_conns, conns_max;
    bool other_key; /* somebody came with another one */
    bool fatal;
    struct err err;
};

int group_listen(const char *host, u16 *port, struct err *e) {
    return sock_listen(host, port, e);
}

static void tune(int fd) {
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static void drop(struct conn *c) {
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
    c->n_in = 0;
}

static void redial(struct conn *c, u64 now_ms) {
    drop(c);
    c->step = DIAL_WAIT;
    c->at_ms = now_ms + REDIAL_MS;
}

/* A whole small message: a fresh connection's buffer takes it at once, or something is wrong. */
static bool put(struct conn *c, const void *p, size_t n) {
    return send(c->fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)n;
}

/* 1: c->in holds n bytes; 0: not yet; -1: the connection is over. */
static int fetch(struct conn *c, size_t n) {
    while (c->n_in < n) {
        ssize_t k = recv(c->fd, c->in + c->n_in, n - c->n_in, MSG_DONTWAIT);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return 0;
        if (k <= 0) return -1;
        c->n_in += (size_t)k;
    }
    c->n_in = 0;
    return 1;
}

/* c->nonce is the acceptor's on both sides. */
static void set_seals(const struct meeting *m, const struct conn *c, struct group_rank *r,
                      struct group_lane *l) {
    u8 up[SEAL_KEY_BYTES], down[SEAL_KEY_BYTES];
    bool dialled = c->hello.from == m->g->rank;
    group_auth_seal_key(m->cfg->key, true, c->hello_bytes, c->nonce, up);
    group_auth_seal_key(m->cfg->key, false, c->hello_bytes, c->nonce, down);
    seal_deinit(&l->seal_out);
    seal_deinit(&l->seal_in);
    seal_init(&l->seal_out, dialled ? up : down, true);
    seal_init(&l->seal_in, dialled ? down : up, false);
    if (!l->sealed_out) l->sealed_out = xcalloc(1, GROUP_RECORD_BYTES);
    if (!l->sealed_in) l->sealed_in = xcalloc(1, GROUP_RECORD_BYTES);
    if (!r->seal_text) r->seal_text = xcalloc(1, GROUP_SEAL_BYTES);
}

static void done(struct meeting *m, struct conn *c, u32 rank) {
    struct group_rank *r = &m->g->ranks[rank];
    bool pulse = c->hello.channel == GROUP_PULSE;
    struct group_lane *l = &r->lane[c->hello.lane];
    int *fd = pulse ? &r->pulse_fd : &l->fd;
    if (*fd >= 0) close(*fd); /* a dialler that came again: its first connection broke on the way */
    if (!pulse) r->n_lanes = c->hello.n_lanes;
    if (c->hello.channel == GROUP_SEALED) set_seals(m, c, r, l);
    *fd = c->fd;
    c->fd = -1;
    c->step = DONE;
}

static void dial(struct meeting *m, struct conn *c, u64 now_ms) {
    struct sockaddr_storage a;
    socklen_t n;
    u32 to = c->hello.to;
    if (!sock_resolve(m->host[to], m->port[to], &a, &n, &m->err)) {
        redial(c, now_ms + 1000);
        return;
    }
    c->fd = socket(a.ss_family, SOCK_STREAM, 0);
    if (c->fd < 0 || !sock_prepare(c->fd)) {
        redial(c, now_ms);
        return;
    }
    tune(c->fd);
    c->step = DIAL_CONNECTING;
    if (connect(c->fd, (struct sockaddr *)&a, n) != 0 && errno != EINPROGRESS) redial(c, now_ms);
}

static void say_hello(struct conn *c, u64 now_ms) {
    int error = 0;
    socklen_t n = sizeof error;
    getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &n);
    random_bytes(c->hello.nonce, 32);
    group_auth_hello(&c->hello, c->hello_bytes);
    if (error || !put(c, c->hello_bytes, GROUP_HELLO_BYTES))
        redial(c, now_ms);
    else
        c->step = DIAL_REPLY;
}

static void on_reply(struct meeting *m, struct conn *c, u64 now_ms) {
    int got = fetch(c, GROUP_REPLY_BYTES);
    u8 proof[GROUP_PROOF_BYTES];
    if (got == 0) return;
    if (got < 0) {
        redial(c, now_ms);
        return;
    }
    if (!group_auth_check_reply(m->cfg->key, c->hello_bytes, c->in, c->nonce, &m->err)) {
        m->fatal = true;
        err_wrap(&m->err, "rank %u (%s)", c->hello.to, m->g->ranks[c->hello.to].address);
        return;
    }
    group_auth_proof(m->cfg->key, c->hello_bytes, c->nonce, proof);
    if (!put(c, proof, sizeof proof))
        redial(c, now_ms);
    else
        c->step = DIAL_WELCOME;
}

static void on_welcome(struct meeting *m, struct conn *c, u64 now_ms) {
    int got = fetch(c, 1);
    if (got < 0)
        redial(c, now_ms);
    else if (got)
        done(m, c, c->hello.to);
}

static void on_hello(struct meeting *m, struct conn *c) {
    u32 version;
    int got = fetch(c, GROUP_HELLO_BYTES);
    if (got == 0) return;
    if (got < 0 || !group_auth_parse_hello(&c->hello, &version, c->in)) {
        drop(c);
        return;
    }
    memcpy(c->hello_bytes, c->in, GROUP_HELLO_BYTES);
    const struct group *g = m->g;
    enum group_status status = GROUP_OK;
    if (version != GROUP_VERSION)
        status = GROUP_OTHER_VERSION;
    else if (c->hello.to != g->rank || c->hello.n_ranks != g->n_ranks || c->hello.from <= g->rank ||
             c->hello.from >= g->n_ranks) {
        status = GROUP_OTHER_RANK;
    } else if (c->hello.channel == (m->cfg->encrypt ? GROUP_DATA : GROUP_SEALED)) {
        status = GROUP_OTHER_SEAL;
    }
    u8 reply[GROUP_REPLY_BYTES];
    random_bytes(c->nonce, 32);
    group_auth_reply(m->cfg->key, status, c->hello_bytes, c->nonce, reply);
    if (!put(c, reply, sizeof reply) || status != GROUP_OK)
        drop(c);
    else
        c->step = ACCEPT_PROOF;
}

static void on_proof(struct meeting *m, struct conn *c) {
    int got = fetch(c, GROUP_PROOF_BYTES);
    if (got == 0) return;
    /* A dialler with another key sees that in our reply, and hangs up. */
    if (got < 0 || !group_auth_check_proof(m->cfg->key, c->hello_bytes, c->nonce, c->in)) {
        m->other_key = true;
        drop(c);
    } else if (!put(c, "\1", 1)) {
        drop(c);
    } else {
        done(m, c, c->hello.from);
    }
}

static void accept_all(struct meeting *m, u64 now_ms) {
    for (;;) {
        int fd = accept(m->cfg->listen_fd, NULL, NULL);
        if (fd < 0) return;
        struct conn *c = NULL;
        for (u32 i = 0; i < m->n_conns && !c; i++) {
            if (m->conn[i].fd < 0 && m->conn[i].step >= ACCEPT_HELLO) c = &m->conn[i];
        }
        if (!c && m->n_conns < m->conns_max) c = &m->conn[m->n_conns++];
        if (!c || !sock_prepare(fd)) {
            close(fd);
            continue;
        }
        tune(fd);
        *c = (struct conn){.step = ACCEPT_HELLO, .fd = fd, .at_ms = now_ms + STRANGER_MS};
    }
}

static bool is_there(const struct group_rank *r) {
    for (u32 i = 0; i < r->n_lanes; i++)
        if (r->lane[i].fd < 0) return false;
    return r->n_lanes && r->pulse_fd >= 0;
}

static bool is_complete(const struct group *g) {
    for (u32 r = 0; r < g->n_ranks; r++)
        if (r != g->rank && !is_there(&g->ranks[r])) return false;
    return true;
}

static void serve(struct meeting *m, struct conn *c, short revents, u64 now_ms) {
    if (c->step == DIAL_WAIT) {
        if (now_ms >= c->at_ms) dial(m, c, now_ms);
        return;
    }
    if (c->fd < 0) return;
    if (!revents) {
        if ((c->step == ACCEPT_HELLO || c->step == ACCEPT_PROOF) && now_ms >= c->at_ms) drop(c);
        return;
    }
    switch (c->step) {
    case DIAL_CONNECTING: say_hello(c, now_ms); break;
    case DIAL_REPLY: on_reply(m, c, now_ms); break;
    case DIAL_WELCOME: on_welcome(m, c, now_ms); break;
    case ACCEPT_HELLO: on_hello(m, c); break;
    case ACCEPT_PROOF: on_proof(m, c); break;
    default: break;
    }
}

static bool missing(const struct meeting *m, struct err *e) {
    const struct group *g = m->g;
    for (u32 r = 0; r < g->n_ranks; r++) {
        if (r == g->rank || is_there(&g->ranks[r])) continue;
        return err_set(e, ERR_NET, "rank %u (%s) did not connect%s", r, g->ranks[r].address,
                       m->other_key ? "; somebody with another key did" : "");
    }
    return true;
}

bool group_gives_up(const struct group_cfg *c, struct err *e) {
    if (!c->give_up || !c->give_up(c->ctx)) return false;
    err_set(e, ERR_CANCELLED, "connecting to the other ranks was called off");
    return true;
}

static bool meet(struct meeting *m, u64 end_ms, struct err *e) {
    struct pollfd p[CONNS_MAX + 1];
    while (!is_complete(m->g)) {
        u64 now_ms = clock_ms();
        if (now_ms >= end_ms) return missing(m, e);
        if (group_gives_up(m->cfg, e)) return false;
        for (u32 i = 0; i < m->n_conns; i++) {
            short events = m->conn[i].step == DIAL_CONNECTING ? POLLOUT : POLLIN;
            p[i] = (struct pollfd){.fd = m->conn[i].fd, .events = events};
        }
        u32 n = m->n_conns;
        p[n] = (struct pollfd){.fd = m->cfg->listen_fd, .events = POLLIN};
        poll(p, n + 1, (int)MIN(end_ms - now_ms, (u64)REDIAL_MS / 2));
        now_ms = clock_ms();
        for (u32 i = 0; i < n; i++) serve(m, &m->conn[i], p[i].revents, now_ms);
        if (m->fatal) {
            if (e) *e = m->err;
            return false;
        }
        accept_all(m, now_ms);
    }
    return true;
}

/* Nobody starts before everybody has everybody: the pulse of a rank that still waits for a third
 * one would be missed. The byte is the first of the pulse. */
static bool line_up(struct group *g, const struct group_cfg *c, u64 end_ms, struct err *e) {
    for (u32 r = 0; r < g->n_ranks; r++) {
        if (r != g->rank) send(g->ranks[r].pulse_fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    for (u32 r = 0; r < g->n_ranks; r++) {
        if (r == g->rank) continue;
        struct pollfd p = {.fd = g->ranks[r].pulse_fd, .events = POLLIN};
        char byte;
        int ready = 0;
        while (!ready && clock_ms() < end_ms) {
            if (group_gives_up(c, e)) return false;
            ready = poll(&p, 1, REDIAL_MS);
        }
        if (ready < 1) {
            return err_set(e, ERR_NET, "rank %u (%s) waits for another rank", r,
                           g->ranks[r].address);
        }
        if (recv(p.fd, &byte, 1, MSG_DONTWAIT) != 1) {
            return err_set(e, ERR_NET, "rank %u (%s) gave up connecting", r, g->ranks[r].address);
        }
    }
    return true;
}

static bool check_cfg(const struct group_cfg *c, struct err *e) {
    bool seen[GROUP_RANKS_MAX] = {0};
    if (c->n_ranks == 0 || c->n_ranks > GROUP_RANKS_MAX || c->rank >= c->n_ranks) {
        return err_set(e, ERR_ARG, "rank %u of %u: at most %d ranks", c->rank, c->n_ranks,
                       GROUP_RANKS_MAX);
    }
    seen[c->rank] = true;
    for (u32 i = 0; i + 1 < c->n_ranks; i++) {
        u32 r = c->peers[i].rank;
        if (r >= c->n_ranks || seen[r]) {
            return err_set(e, ERR_ARG, "rank %u is named twice, or is not of this group", r);
        }
        seen[r] = true;
    }
    return true;
}

static void add_dial(struct meeting *m, u32 to, enum group_channel channel, u32 lane, u32 n_lanes) {
    m->conn[m->n_conns++] = (struct conn){.step = DIAL_WAIT,
                                          .fd = -1,
                                          .hello = {.channel = channel,
                                                    .lane = lane,
                                                    .n_lanes = n_lanes,
                                                    .from = m->g->rank,
                                                    .to = to,
                                                    .n_ranks = m->g->n_ranks}};
}

static void add_peer(struct meeting *m, const struct group_peer *p) {
    struct group_rank *r = &m->g->ranks[p->rank];
    u32 n_lanes = MIN(MAX(p->n_streams, 1u), (u32)GROUP_STREAMS_MAX);
    sock_join(p->host, p->port, r->address);
    r->stage = xcalloc(1, GROUP_STAGE_BYTES);
    m->host[p->rank] = p->host;
    m->port[p->rank] = p->port;
    m->conns_max += OF_RANK_MAX;
    if (p->rank > m->g->rank) return; /* it dials */
    for (u32 i = 0; i < n_lanes; i++)
        add_dial(m, p->rank, m->cfg->encrypt ? GROUP_SEALED : GROUP_DATA, i, n_lanes);
    add_dial(m, p->rank, GROUP_PULSE, 0, 1);
}

struct group *group_connect(const struct group_cfg *cfg, struct err *e) {
    if (!check_cfg(cfg, e)) return NULL;
    struct group *g = xcalloc(1, sizeof *g);
    struct meeting *m = xcalloc(1, sizeof *m);
    *m = (struct meeting){.g = g, .cfg = cfg, .conns_max = STRANGERS_MAX};
    g->rank = cfg->rank;
    g->n_ranks = cfg->n_ranks;
    g->spin_us = 100;
    g->silence_ms = cfg->silence_ms ? cfg->silence_ms : SILENCE_MS;
    g->ranks = xcalloc(g->n_ranks, sizeof *g->ranks);
    g->stop[0] = g->stop[1] = g->lost[0] = g->lost[1] = -1;
    for (u32 r = 0; r < g->n_ranks; r++) {
        g->ranks[r].rank = r;
        g->ranks[r].pulse_fd = -1;
        for (u32 i = 0; i < GROUP_STREAMS_MAX; i++) g->ranks[r].lane[i].fd = -1;
    }
    for (u32 i = 0; i + 1 < g->n_ranks; i++) add_peer(m, &cfg->peers[i]);
    u64 end_ms = clock_ms() + (cfg->timeout_ms ? cfg->timeout_ms : TIMEOUT_MS);
    bool ok = g->n_ranks == 1 ||
              (meet(m, end_ms, e) && line_up(g, cfg, end_ms, e) && group_pulse_start(g, e) &&
               group_fabric_meet(g, cfg, e) && (cfg->no_shm || group_share(g, e)));
    for (u32 i = 0; i < m->n_conns; i++) drop(&m->conn[i]);
    free(m);
    if (ok) return g;
    group_free(g);
    return NULL;
}
