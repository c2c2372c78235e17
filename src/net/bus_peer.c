#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "net/bus_gone.h"
#include "net/bus_internal.h"

enum {
    QUEUE_MESSAGES_MAX = 4096,
    QUEUE_BYTES_MAX = 64 << 20,
    RIVAL_MS = 1000, /* a process that answers no ping for so long is gone */
};

const char BUS_CLOSED[] = "the connection was closed";

struct bus_out {
    struct bus_out *next;
    u32 type, id;
    u32 n, off;
    u8 bytes[];
};

bool bus_send_link(struct bus *b, struct bus_link *l, const struct bus_frame *f) {
    str_clear(&b->scratch);
    bus_frame_write(f, &b->scratch);
    b->dirty = true;
    return zmq_send(l->sock, b->scratch.p, b->scratch.n, ZMQ_DONTWAIT) >= 0;
}

bool bus_send_in(struct bus *b, const void *rid, size_t n, const struct bus_frame *f) {
    str_clear(&b->scratch);
    bus_frame_write(f, &b->scratch);
    b->dirty = true;
    /* ROUTER_MANDATORY: EHOSTUNREACH when the peer is gone, EAGAIN when its queue is full. */
    if (zmq_send(b->router, rid, n, ZMQ_DONTWAIT | ZMQ_SNDMORE) < 0) return false;
    return zmq_send(b->router, b->scratch.p, b->scratch.n, ZMQ_DONTWAIT) >= 0;
}

struct bus_in *bus_in_find(struct bus *b, const void *rid, size_t n) {
    for (struct bus_in *in = b->ins; in; in = in->next) {
        if (in->n_rid == n && memcmp(in->rid, rid, n) == 0) return in;
    }
    return NULL;
}

struct bus_in *bus_in_add(struct bus *b, const void *rid, size_t n) {
    ASSERT(n <= BUS_RID_MAX);
    struct bus_in *in = xcalloc(1, sizeof *in);
    memcpy(in->rid, rid, n);
    in->n_rid = n;
    in->next = b->ins;
    b->ins = in;
    b->n_ins++;
    return in;
}

void bus_in_free(struct bus *b, struct bus_in *in) {
    for (struct bus_in **p = &b->ins; *p; p = &(*p)->next) {
        if (*p != in) continue;
        *p = in->next;
        b->n_ins--;
        free(in);
        return;
    }
}

struct bus_peer *bus_peer_find(const struct bus *b, const char *id) {
    for (struct bus_peer *p = b->peers; p; p = p->next) {
        if (strcmp(p->id, id) == 0) return p;
    }
    return NULL;
}

static void drop_queue(struct bus_peer *p) {
    for (int lane = 0; lane < 2; lane++) {
        for (struct bus_out *o = p->head[lane], *next; o; o = next) {
            next = o->next;
            free(o);
        }
        p->head[lane] = p->tail[lane] = NULL;
    }
    p->queued_bytes = 0;
    p->n_queued = 0;
}

static void peer_free(struct bus *b, struct bus_peer *p) {
    for (struct bus_peer **q = &b->peers; *q; q = &(*q)->next) {
        if (*q != p) continue;
        *q = p->next;
        break;
    }
    drop_queue(p);
    bus_assembly_reset(&p->assembly);
    free(p);
}

static void peer_down(struct bus *b, struct bus_peer *p, const char *why, u64 now_ms) {
    for (struct bus_link *l = b->links; l; l = l->next)
        if (l->peer == p) bus_link_lost(l, now_ms);
    for (struct bus_in *in = b->ins, *next; in; in = next) {
        next = in->next;
        if (in->peer == p) bus_in_free(b, in);
    }
    if (p->up) bus_note_add(b, BUS_PEER_DOWN, p->id, "", 0, why);
    if (p->up && why == BUS_CLOSED) bus_gone_ask(b, p->id, p->address, now_ms);
    bus_link_unpark(b, p->id);
    peer_free(b, p);
}

static void ping(struct bus *b, struct bus_peer *p) {
    struct bus_frame f = {.kind = BUS_FRAME_PING, .time_us = clock_us()};
    p->rival_us = f.time_us;
    if (p->link) bus_send_link(b, p->link, &f);
    if (p->in) bus_send_in(b, p->in->rid, p->in->n_rid, &f);
}

/* A process of the same node that is not the one we know. If that one still answers, there are two.
 */
static enum bus_meeting rival(struct bus *b, struct bus_peer *p, const struct bus_greeting *g,
                              u64 now_ms) {
    if (p->rival_boot != g->boot) {
        p->rival_boot = g->boot;
        p->rival_ms = now_ms;
        ping(b, p);
        return BUS_MEET_LATER;
    }
    if (p->pong_us >= p->rival_us) {
        log_warn("bus", "two processes with one key node=%s", p->id);
        p->rival_boot = 0; /* asked anew at its next greeting */
        if (bus_greet_is_junior(g, &p->who)) return BUS_MEET_JUNIOR;
        struct bus_frame f = {.kind = BUS_FRAME_TWIN, .boot = g->boot};
        if (p->link) bus_send_link(b, p->link, &f);
        if (p->in) bus_send_in(b, p->in->rid, p->in->n_rid, &f);
        peer_down(b, p, "its key belongs to another machine", now_ms);
        return BUS_MET;
    }
    if (now_ms - p->rival_ms < RIVAL_MS) return BUS_MEET_LATER;
    peer_down(b, p, "it was restarted", now_ms);
    return BUS_MET;
}

enum bus_meeting bus_peer_meet(struct bus *b, const struct bus_greeting *g, u64 now_ms,
                               struct bus_peer **out) {
    char id[IDENTITY_ID_CAP];
    identity_id(g->public, id);
    struct bus_peer *p = bus_peer_find(b, id);
    if (p && p->who.boot != g->boot) {
        enum bus_meeting m = rival(b, p, g, now_ms);
        if (m != BUS_MET) return m;
        p = NULL;
    }
    if (!p) {
        p = xcalloc(1, sizeof *p);
        str_copy(p->id, sizeof p->id, id);
        p->who = *g;
        p->next = b->peers;
        b->peers = p;
    }
    *out = p;
    return BUS_MET;
}

/* Told again when the path in use leads elsewhere: the peer's machine may have another address
 * now, and others connect to it by what was told. */
void bus_peer_tell(struct bus *b, struct bus_peer *p) {
    const char *address = p->use_in ? p->in->address : p->link->address;
    if (p->up && strcmp(p->address, address) == 0) return;
    p->up = true;
    str_copy(p->address, sizeof p->address, address);
    bus_note_add(b, BUS_PEER_UP, p->id, address, 0, "");
}

void bus_peer_add_path(struct bus *b, struct bus_peer *p, struct bus_link *l, struct bus_in *in) {
    if (l && !p->link) p->link = l;
    if (in && !p->in) p->in = in;
    if (!p->up) p->use_in = in != NULL;
    bus_peer_tell(b, p);
}

void bus_peer_restart_message(struct bus *b, struct bus_peer *p) {
    if (!p->head[1]) return;
    p->head[1]->off = 0;
    p->head[1]->id = b->next_message++;
}

/* Goes on over what is left. */
static void repath(struct bus *b, struct bus_peer *p, const char *why) {
    bool lost = p->use_in ? !p->in : !p->link;
    for (struct bus_in *in = b->ins; in && !p->in; in = in->next) {
        if (in->peer == p) p->in = in;
    }
    for (struct bus_link *l = b->links; l && !p->link; l = l->next) {
        if (l->peer == p && l->state == LINK_UP) p->link = l;
    }
    if (!p->link && !p->in) {
        peer_down(b, p, why, clock_ms());
        return;
    }
    if (!lost) return;
    if (p->use_in ? !p->in : !p->link) p->use_in = !p->use_in;
    bus_peer_restart_message(b, p);
    if (p->up) bus_peer_tell(b, p);
}

void bus_peer_lose_link(struct bus *b, struct bus_peer *p, struct bus_link *l, const char *why) {
    bus_path_lost(b, p, (struct bus_way){.link = l});
    if (p->link == l) p->link = NULL;
    repath(b, p, why);
}

void bus_peer_lose_in(struct bus *b, struct bus_in *in, const char *why) {
    struct bus_peer *p = in->peer;
    if (p) bus_path_lost(b, p, (struct bus_way){.in = in});
    if (p && p->in == in) p->in = NULL;
    bus_in_free(b, in);
    if (p) repath(b, p, why);
}

void bus_peer_lose_path(struct bus *b, struct bus_in *in, const char *why) {
    struct bus_peer *p = in->peer;
    bus_path_lost(b, p, (struct bus_way){.in = in});
    in->peer = NULL;
    if (p->in == in) p->in = NULL;
    repath(b, p, why);
}

void bus_peer_free_all(struct bus *b) {
    while (b->peers) peer_free(b, b->peers);
    while (b->ins) bus_in_free(b, b->ins);
}

bool bus_peer_queue(struct bus *b, struct bus_peer *p, u32 type, const void *bytes, size_t n,
                    struct err *e) {
    if (p->n_queued >= QUEUE_MESSAGES_MAX || p->queued_bytes + n > QUEUE_BYTES_MAX) {
        return err_set(e, ERR_BUSY, "node %s does not keep up: %u messages wait for it", p->id,
                       p->n_queued);
    }
    int lane = n > BUS_FRAGMENT_MAX;
    struct bus_out *o = xcalloc(1, sizeof *o + n);
    o->type = type;
    o->id = b->next_message++;
    o->n = (u32)n;
    if (n) memcpy(o->bytes, bytes, n);
    if (p->tail[lane])
        p->tail[lane]->next = o;
    else
        p->head[lane] = o;
    p->tail[lane] = o;
    p->queued_bytes += n;
    p->n_queued++;
    return true;
}

static bool send_fragment(struct bus *b, struct bus_peer *p, struct bus_out *o) {
    struct bus_frame f = {.kind = BUS_FRAME_DATA,
                          .type = o->type,
                          .id = o->id,
                          .total = o->n,
                          .offset = o->off,
                          .bytes = o->bytes + o->off,
                          .n = MIN(o->n - o->off, (u32)BUS_FRAGMENT_MAX)};
    bool ok =
        p->use_in ? bus_send_in(b, p->in->rid, p->in->n_rid, &f) : bus_send_link(b, p->link, &f);
    if (ok) o->off += (u32)f.n;
    return ok;
}

bool bus_peer_flush(struct bus *b, struct bus_peer *p) {
    bool any = false;
    if (p->turn.active) return false; /* until the old way has run dry */
    for (int lane = 0; lane < 2; lane++) {
        struct bus_out *o;
        while ((o = p->head[lane])) {
            if (!send_fragment(b, p, o)) {
                if (errno != EHOSTUNREACH || !p->use_in) return any;
                bus_peer_lose_in(b, p->in, BUS_CLOSED);
                return true;
            }
            any = true;
            if (o->off < o->n) continue;
            p->head[lane] = o->next;
            if (!o->next) p->tail[lane] = NULL;
            p->queued_bytes -= o->n;
            p->n_queued--;
            free(o);
        }
    }
    return any;
}
