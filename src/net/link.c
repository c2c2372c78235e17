#include "net/link.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/random.h"
#include "base/str.h"
#include "net/link_internal.h"

enum {
    REFRESH_MS = 600000,
    FIRST_MS = 300,    /* a newcomer's first measurement, and so much more a peer at random */
    AGAIN_MS = 400,    /* after "come again", and up to three times as much at random */
    BUSY_MS = 20000,   /* a refresh that met work */
    FAILED_MS = 10000, /* doubled each time */
    FAILED_MOST_MS = 600000,
    STOP_MS = 1000,
    STACK_BYTES = 512 << 10,
};

bool link_is_stopping(struct link_meter *m) {
    lock_take(&m->lock);
    bool stop = m->stop;
    lock_give(&m->lock);
    return stop;
}

static bool is_busy(struct link_meter *m) {
    lock_take(&m->lock);
    bool busy = m->busy;
    lock_give(&m->lock);
    return busy;
}

bool link_is_computing(struct link_meter *m) {
    lock_take(&m->lock);
    bool computing = m->computing;
    lock_give(&m->lock);
    return computing;
}

static int accept_one(struct link_meter *m) {
    int fd = accept(m->listen_fd, NULL, NULL), on = 1;
    if (fd < 0) return -1;
    if (!sock_prepare(fd)) {
        close(fd);
        return -1;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

enum link_wait link_wait_fd(struct link_meter *m, int fd, short events, u64 deadline_ms) {
    for (;;) {
        u64 now = clock_ms();
        struct pollfd p[3] = {
            {fd, events, 0}, {m->listen_fd, POLLIN, 0}, {queue_fd(m->wake), POLLIN, 0}};
        int left = now < deadline_ms ? (int)(deadline_ms - now) : 0;
        int k = poll(p, 3, left);
        if (k < 0 && errno != EINTR) return LINK_LATE;
        if (k > 0 && p[2].revents) {
            while (queue_pop(m->wake)) {
            }
            if (link_is_stopping(m)) return LINK_STOPPED;
        }
        if (k > 0 && p[0].revents) return LINK_READY;
        if (k > 0 && p[1].revents) {
            int other = accept_one(m);
            if (other >= 0) link_turn_away(m, other);
        }
        if (clock_ms() >= deadline_ms) return LINK_LATE;
    }
}

static bool waited(struct link_meter *m, int fd, short events, u64 deadline_ms, struct err *e) {
    switch (link_wait_fd(m, fd, events, deadline_ms)) {
    case LINK_READY: return true;
    case LINK_STOPPED: return err_set(e, ERR_CANCELLED, "the node is stopping");
    default: return err_set(e, ERR_NET, "it did not answer in time");
    }
}

bool link_send_all(struct link_meter *m, int fd, const void *p, size_t n, u64 deadline_ms,
                   struct err *e) {
    for (size_t off = 0; off < n;) {
        ssize_t k = send(fd, (const u8 *)p + off, n - off, MSG_NOSIGNAL);
        if (k > 0)
            off += (size_t)k;
        else if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            if (!waited(m, fd, POLLOUT, deadline_ms, e)) return false;
        } else if (k < 0 && errno != EINTR)
            return err_errno(e, ERR_NET, "the connection broke");
    }
    return true;
}

/* Ranks that wait for each other look again and again before they sleep, so round trips are
 * measured like that: without the time to fall asleep and wake up. */
static ssize_t recv_spinning(int fd, void *p, size_t n) {
    u64 end_ns = clock_ns() + SOCK_SPIN_MAX_US * 1000ULL;
    for (;;) {
        ssize_t k = recv(fd, p, n, 0);
        bool again = k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
        if (!again || clock_ns() >= end_ns) return k;
    }
}

bool link_recv_all(struct link_meter *m, int fd, void *p, size_t n, u64 deadline_ms,
                   struct err *e) {
    for (size_t off = 0; off < n;) {
        ssize_t k = recv_spinning(fd, (u8 *)p + off, n - off);
        if (k > 0)
            off += (size_t)k;
        else if (k == 0)
            return err_set(e, ERR_NET, "it closed the connection");
        else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (!waited(m, fd, POLLIN, deadline_ms, e)) return false;
        } else if (errno != EINTR)
            return err_errno(e, ERR_NET, "the connection broke");
    }
    return true;
}

static u64 jitter(struct link_meter *m, u64 most_ms) {
    return (u64)(random_unit(m->cfg.seed, m->n_draws++) * (double)most_ms);
}

static bool same_peer(const struct link_peer *a, const struct link_peer *b) {
    return strcmp(a->id, b->id) == 0 && strcmp(a->host, b->host) == 0 && a->port == b->port &&
           memcmp(a->token, b->token, sizeof a->token) == 0;
}

/* Takes the owner's list over; targets that stay keep their times. */
static void take_wanted(struct link_meter *m) {
    u64 now = clock_ms();
    lock_take(&m->lock);
    if (m->wanted_changed) {
        struct link_target *v = xcalloc(m->n_wanted + 1, sizeof *v);
        for (u32 i = 0; i < m->n_wanted; i++) {
            v[i].p = m->wanted[i];
            v[i].due_ms = now + FIRST_MS + jitter(m, (u64)FIRST_MS * m->n_wanted);
            for (u32 k = 0; k < m->n_targets; k++) {
                const struct link_target *old = &m->targets[k];
                if (same_peer(&old->p, &v[i].p)) v[i] = *old;
                /* Another way to it: soon, but it is no newcomer, and work comes first. */
                if (strcmp(old->p.id, v[i].p.id) == 0) v[i].was_measured |= old->was_measured;
            }
        }
        free(m->targets);
        m->targets = v;
        m->n_targets = m->n_wanted;
        m->wanted_changed = false;
    }
    lock_give(&m->lock);
}

static void tell(struct link_meter *m, const struct link_result *r) {
    struct link_result *copy = xcalloc(1, sizeof *copy);
    *copy = *r;
    if (!queue_push(m->results, copy)) free(copy); /* nobody reads: the refresh brings another */
}

static void measure(struct link_meter *m, struct link_target *t) {
    struct link_result r = {0};
    struct err e = {0};
    u64 pause;
    memcpy(r.id, t->p.id, sizeof r.id);
    memcpy(r.host, t->p.host, sizeof r.host);
    if (is_busy(m) || (t->was_measured && link_is_computing(m))) {
        t->due_ms = clock_ms() + BUSY_MS + jitter(m, BUSY_MS);
        return;
    }
    bool ok = link_measure(m, t, &r, &e);
    if (ok) {
        pause = m->cfg.refresh_ms + jitter(m, m->cfg.refresh_ms / 4);
        t->was_measured = true;
        t->n_failed = 0;
    } else if (e.code == ERR_BUSY) {
        pause = AGAIN_MS + jitter(m, 3 * AGAIN_MS);
    } else if (e.code == ERR_LIMIT) { /* it has work */
        pause = BUSY_MS + jitter(m, BUSY_MS);
    } else {
        pause = MIN((u64)FAILED_MS << MIN(t->n_failed, 10u), (u64)FAILED_MOST_MS);
        t->n_failed++;
        str_copy(r.problem, sizeof r.problem, e.msg);
    }
    t->due_ms = clock_ms() + pause;
    if (ok || *r.problem) tell(m, &r);
}

static void *link_thread(void *arg) {
    struct link_meter *m = arg;
    while (!link_is_stopping(m)) {
        struct link_target *first = NULL;
        take_wanted(m);
        for (u32 i = 0; i < m->n_targets; i++)
            if (!first || m->targets[i].due_ms < first->due_ms) first = &m->targets[i];
        u64 now = clock_ms();
        if (first && first->due_ms <= now) {
            measure(m, first);
            continue;
        }
        struct pollfd p[2] = {{m->listen_fd, POLLIN, 0}, {queue_fd(m->wake), POLLIN, 0}};
        poll(p, 2, first ? (int)MIN(first->due_ms - now, (u64)3600000) : -1);
        while (queue_pop(m->wake)) {
        }
        int fd = p[0].revents ? accept_one(m) : -1;
        if (fd >= 0 && is_busy(m))
            link_turn_away(m, fd);
        else if (fd >= 0)
            link_serve(m, fd);
    }
    return NULL;
}

/* The datagrams' port is the connections' where that is free. */
static bool open_udp(struct link_meter *m, struct err *e) {
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    if (getsockname(m->listen_fd, (struct sockaddr *)&a, &n) != 0)
        return err_errno(e, ERR_IO, "getsockname");
    m->udp_fd = socket(a.ss_family, SOCK_DGRAM, 0);
    if (m->udp_fd < 0 || !sock_prepare(m->udp_fd)) return err_errno(e, ERR_IO, "a UDP socket");
    int off = 0, room = 256 << 10;
    if (a.ss_family == AF_INET6) setsockopt(m->udp_fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    setsockopt(m->udp_fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    if (bind(m->udp_fd, (struct sockaddr *)&a, n) != 0) {
        if (a.ss_family == AF_INET6)
            ((struct sockaddr_in6 *)&a)->sin6_port = 0;
        else
            ((struct sockaddr_in *)&a)->sin_port = 0;
        if (bind(m->udp_fd, (struct sockaddr *)&a, n) != 0)
            return err_errno(e, ERR_IO, "binding a UDP port");
    }
    n = sizeof a;
    if (getsockname(m->udp_fd, (struct sockaddr *)&a, &n) != 0)
        return err_errno(e, ERR_IO, "getsockname");
    sock_text((struct sockaddr *)&a, NULL, &m->udp_port);
    return true;
}

static void meter_free(struct link_meter *m) {
    void *left;
    while (m->results && (left = queue_pop(m->results))) free(left);
    if (m->listen_fd >= 0) close(m->listen_fd);
    if (m->udp_fd >= 0) close(m->udp_fd);
    queue_free(m->wake);
    queue_free(m->results);
    lock_deinit(&m->lock);
    free(m->wanted);
    free(m->targets);
    free(m->chunk);
    free(m);
}

struct link_meter *link_start(const struct link_cfg *cfg, struct err *e) {
    struct link_meter *m = xcalloc(1, sizeof *m);
    pthread_attr_t attr;
    m->cfg = *cfg;
    m->cfg.listen_host = NULL; /* the caller's; used here only */
    if (!m->cfg.refresh_ms) m->cfg.refresh_ms = REFRESH_MS;
    m->udp_fd = -1;
    lock_init(&m->lock);
    m->port = cfg->port;
    m->listen_fd = sock_listen(cfg->listen_host, &m->port, e);
    if (m->listen_fd < 0 && cfg->port) {
        m->port = 0;
        m->listen_fd = sock_listen(cfg->listen_host, &m->port, e);
    }
    m->wake = m->listen_fd >= 0 ? queue_new(4, e) : NULL;
    m->results = m->wake ? queue_new(2 * LINK_PEERS_MAX, e) : NULL;
    m->chunk = xcalloc(1, LINK_CHUNK_BYTES);
    for (u32 i = 0; i < LINK_CHUNK_BYTES / 8; i++) { /* a VPN must not compress it */
        u64 v = random_at(m->cfg.seed, i);
        memcpy(m->chunk + 8 * i, &v, 8);
    }
    if (!m->results || !open_udp(m, e)) {
        meter_free(m);
        return NULL;
    }
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    int no = pthread_create(&m->thread, &attr, link_thread, m);
    pthread_attr_destroy(&attr);
    if (no == 0) return m;
    err_set(e, ERR_IO, "can't start the link meter's thread: %s", strerror(no));
    meter_free(m);
    return NULL;
}

void link_stop(struct link_meter *m) {
    if (!m) return;
    lock_take(&m->lock);
    m->stop = true;
    lock_give(&m->lock);
    queue_push(m->wake, m);
    pthread_join(m->thread, NULL);
    meter_free(m);
}

u16 link_port(const struct link_meter *m) {
    return m->port;
}

void link_set_peers(struct link_meter *m, const struct link_peer *v, u32 n) {
    n = MIN(n, (u32)LINK_PEERS_MAX);
    lock_take(&m->lock);
    bool changed = n != m->n_wanted;
    for (u32 i = 0; i < n && !changed; i++) changed = !same_peer(&v[i], &m->wanted[i]);
    if (changed) {
        free(m->wanted);
        m->wanted = xcalloc(n + 1, sizeof *v);
        if (n) memcpy(m->wanted, v, n * sizeof *v);
        m->n_wanted = n;
        m->wanted_changed = true;
    }
    lock_give(&m->lock);
    if (changed) queue_push(m->wake, m);
}

void link_set_computing(struct link_meter *m, bool computing) {
    lock_take(&m->lock);
    m->computing = computing;
    lock_give(&m->lock);
}

void link_set_busy(struct link_meter *m, bool busy) {
    lock_take(&m->lock);
    m->busy = busy;
    lock_give(&m->lock);
}

bool link_take(struct link_meter *m, struct link_result *out) {
    struct link_result *r = queue_pop(m->results);
    if (!r) return false;
    *out = *r;
    free(r);
    return true;
}
