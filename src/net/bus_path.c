/* bus_path.c - two nodes may be connected in several ways: over several addresses, dialled by
 * either side. One of them carries the messages of both directions. The node with the smaller id
 * chooses it, by rank of the interface and then by round trip, and tells the other side by USE. Who
 * changes its way first waits for a PONG on the old one, so that the order of messages is kept. A
 * way that falls silent is left at once by either side, if there is another. */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "net/bus_internal.h"

enum {
    DRAIN_MS = 1000,  /* at most so long for the old way's last word */
    SILENT_MS = 2200, /* of two pings, none was answered */
    RECENT_MS = 1300, /* a way that was heard so lately is alive */
    UNPARK_EVERY_MS = 2000,
    RETRY_BETTER_MS = 5000, /* a better way that was closed, for it was silent, is tried again */
    SPARE_MS = 5000,        /* a dialled way that nobody chose is closed after that */
    PONGS_ENOUGH = 5,
    PING_FIRST_MS = 200,
    RTT_MATTERS_US = 500,
};

static struct bus_way current(const struct bus_peer *p) {
    return p->use_in ? (struct bus_way){.in = p->in} : (struct bus_way){.link = p->link};
}
static bool same_way(struct bus_way a, struct bus_way b) {
    return a.link == b.link && a.in == b.in;
}
static const struct bus_gauge *gauge(struct bus_way w) {
    return w.in ? &w.in->gauge : &w.link->gauge;
}
static u64 heard_ms(struct bus_way w) {
    return w.in ? w.in->heard_ms : w.link->heard_ms;
}
static const char *address_of(struct bus_way w) {
    return w.in ? w.in->address : w.link->address;
}

static void send_over(struct bus *b, struct bus_way w, const struct bus_frame *f) {
    if (w.in)
        bus_send_in(b, w.in->rid, w.in->n_rid, f);
    else
        bus_send_link(b, w.link, f);
}

static u32 rank(const struct bus *b, struct bus_way w) {
    char host[SOCK_HOST_CAP];
    u16 port;
    if (!b->rank) return 0;
    if (w.link && *w.link->host) return b->rank(b->rank_ctx, w.link->host);
    return sock_split(address_of(w), 1, host, &port, NULL) ? b->rank(b->rank_ctx, host) : 0;
}

u32 bus_path_ping_ms(const struct bus_gauge *g) {
    return g->n_pongs < PONGS_ENOUGH ? PING_FIRST_MS : BUS_PING_MS;
}

static void complete(struct bus *b, struct bus_peer *p) {
    struct bus_way to = p->turn.to;
    p->turn = (struct bus_turn){0};
    if (to.link && p->link != to.link) {
        if (p->link) p->link->spare_ms = clock_ms();
        p->link = to.link;
    }
    if (to.in) p->in = to.in;
    p->use_in = to.in != NULL;
    bus_peer_restart_message(b, p);
    bus_peer_tell(b, p);
    log_info("bus", "path node=%s address=%s dialled=%u rtt_us=%u", p->id, address_of(to), !to.in,
             gauge(to)->rtt_us);
    if (strcmp(b->identity.id, p->id) < 0)
        send_over(b, to, &(struct bus_frame){.kind = BUS_FRAME_USE});
    b->dirty = true;
}

static void turn_to(struct bus *b, struct bus_peer *p, struct bus_way to, bool drain, u64 now_ms) {
    struct bus_frame f = {.kind = BUS_FRAME_PING, .time_us = clock_us()};
    p->turn = (struct bus_turn){.active = true, .to = to, .ping_us = f.time_us, .since_ms = now_ms};
    if (drain)
        send_over(b, current(p), &f);
    else
        complete(b, p);
}

void bus_path_use(struct bus *b, struct bus_peer *p, struct bus_way w, u64 now_ms) {
    if (!same_way(current(p), w) && !(p->turn.active && same_way(p->turn.to, w)))
        turn_to(b, p, w, true, now_ms);
}

void bus_path_pong(struct bus *b, struct bus_peer *p, struct bus_way w, u64 time_us) {
    struct bus_gauge *g = w.in ? &w.in->gauge : &w.link->gauge;
    u64 rtt = clock_us() - time_us;
    p->pong_us = MAX(p->pong_us, time_us);
    if (rtt > 60000000) return; /* not a time of ours */
    u32 us = (u32)MAX(rtt, 1);
    /* The least of the last 8 to 16: what is above it is our own and the other's being busy. */
    if (g->n_pongs++ % 8 == 0) {
        g->before_us = g->least_us;
        g->least_us = us;
    }
    g->least_us = MIN(g->least_us, us);
    g->rtt_us = g->before_us ? MIN(g->before_us, g->least_us) : g->least_us;
    if (p->turn.active && same_way(current(p), w) && time_us >= p->turn.ping_us) complete(b, p);
}

void bus_path_lost(struct bus *b, struct bus_peer *p, struct bus_way w) {
    if (!p->turn.active) return;
    if (same_way(p->turn.to, w))
        p->turn = (struct bus_turn){0};
    else if (same_way(current(p), w))
        complete(b, p);
}

/* Calls fn for every way to p but the present one; stops when it returns true. */
static bool each(struct bus *b, struct bus_peer *p,
                 bool (*fn)(struct bus *b, struct bus_peer *p, struct bus_way w, u64 now_ms),
                 u64 now_ms) {
    struct bus_way now = current(p);
    for (struct bus_link *l = b->links; l; l = l->next) {
        struct bus_way w = {.link = l};
        if (l->state == LINK_UP && l->peer == p && !same_way(w, now) && fn(b, p, w, now_ms))
            return true;
    }
    for (struct bus_in *in = b->ins; in; in = in->next) {
        struct bus_way w = {.in = in};
        if (in->peer == p && !same_way(w, now) && fn(b, p, w, now_ms)) return true;
    }
    return false;
}

static bool escape(struct bus *b, struct bus_peer *p, struct bus_way w, u64 now_ms) {
    if (now_ms - heard_ms(w) > RECENT_MS) return false;
    log_info("bus", "path silent node=%s address=%s", p->id, address_of(current(p)));
    turn_to(b, p, w, false, now_ms);
    return true;
}

static bool is_better(const struct bus *b, struct bus_way a, struct bus_way than) {
    const struct bus_gauge *x = gauge(a), *y = gauge(than);
    u32 i = rank(b, a), j = rank(b, than);
    if (x->n_pongs < PONGS_ENOUGH) return false;
    if (i != j) return i > j;
    if (y->n_pongs < PONGS_ENOUGH) return false;
    /* What differs less changes all the time. */
    return (u64)x->rtt_us * 3 < (u64)y->rtt_us * 2 && y->rtt_us - x->rtt_us > RTT_MATTERS_US;
}

static bool improve(struct bus *b, struct bus_peer *p, struct bus_way w, u64 now_ms) {
    if (now_ms - heard_ms(w) > RECENT_MS || !is_better(b, w, current(p))) return false;
    turn_to(b, p, w, true, now_ms);
    return true;
}

static bool put_away(struct bus *b, struct bus_peer *p, struct bus_way w, u64 now_ms) {
    struct bus_link *l = w.link;
    if (!l || l == p->link || now_ms - l->spare_ms < SPARE_MS || same_way(p->turn.to, w))
        return false;
    bus_link_park(b, l, p->id);
    return false;
}

/* A cable that was pulled and is back. */
static void retry_better(struct bus *b, struct bus_peer *p, u64 now_ms) {
    if (now_ms - p->unparked_ms < RETRY_BETTER_MS) return;
    p->unparked_ms = now_ms;
    for (struct bus_link *l = b->links; l; l = l->next) {
        if (l->state != LINK_PARKED || strcmp(l->parked_for, p->id) != 0 ||
            rank(b, (struct bus_way){.link = l}) <= rank(b, current(p)))
            continue;
        l->state = LINK_WAITING;
        l->redial_ms = 0;
    }
}

void bus_path_tick(struct bus *b, struct bus_peer *p, u64 now_ms) {
    if (!p->up) return;
    for (struct bus_in *in = b->ins; in; in = in->next) {
        if (in->peer != p || now_ms < in->ping_ms) continue;
        in->ping_ms = now_ms + bus_path_ping_ms(&in->gauge);
        struct bus_frame f = {.kind = BUS_FRAME_PING, .time_us = clock_us()};
        bus_send_in(b, in->rid, in->n_rid, &f);
    }
    if (p->turn.active) {
        if (now_ms - p->turn.since_ms >= DRAIN_MS) complete(b, p);
        return;
    }
    if (now_ms - heard_ms(current(p)) > SILENT_MS) {
        if (each(b, p, escape, now_ms)) return;
        if (now_ms - p->unparked_ms >= UNPARK_EVERY_MS) {
            p->unparked_ms = now_ms;
            bus_link_unpark(b, p->id);
        }
    } else if (strcmp(b->identity.id, p->id) < 0) {
        if (each(b, p, improve, now_ms)) return;
    }
    each(b, p, put_away, now_ms);
    retry_better(b, p, now_ms);
}

bool bus_path(const struct bus *b, const char *peer, struct bus_path *out) {
    const struct bus_peer *p = bus_peer_find(b, peer);
    if (!p || !p->up) return false;
    struct bus_way w = current(p);
    *out = (struct bus_path){.rtt_us = gauge(w)->rtt_us, .is_dialled = w.link != NULL};
    str_copy(out->address, sizeof out->address, address_of(w));
    char host[SOCK_HOST_CAP] = "";
    u16 port;
    sock_split(address_of(w), 1, host, &port, NULL);
    str_copy(out->host, sizeof out->host, w.link && *w.link->host ? w.link->host : host);
    return true;
}
