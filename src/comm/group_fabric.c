#include <string.h>
#include <sys/socket.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/random.h"
#include "comm/group_internal.h"

/* Every rank offers every other one its provider and address. A pair that has the same provider
 * greets over it, both say whether that worked, and from then on its frames travel there. At most
 * FABRIC_WINDOW messages are on their way in one direction until the receiver says that there is
 * room again, with the next message of its own or, when half of them have come, with an empty one:
 * so there is a posted buffer for each message that comes. */
enum {
    TYPE_OFFER = GROUP_TYPE_RESERVED + 0x30,
    TYPE_GREETED,
    EMPTY_MAX = 3, /* empty ones are few: one for FABRIC_WINDOW / 2 of ours, and the greeting */
    SENDS = 32,
    GREET_MS = 10000,
    SETTLE_US = 20, /* for the provider to have passed on what was sent: it may have no thread */
    NAP_MS = 1,     /* where there is nothing to wait for, or the provider has work left */
};

static enum fabric_wish wish_of(const char *name) {
    if (!name || !*name || strcmp(name, "off") == 0) return FABRIC_OFF;
    return strcmp(name, "auto") == 0 ? FABRIC_AUTO : FABRIC_NAMED;
}

bool group_fabric_check(const char *name, struct err *e) {
    return wish_of(name) != FABRIC_NAMED || ofi_check(name, e);
}

/* ---- messages ---- */

static bool may_say_more(const struct group_rank *r) {
    return r->fab.arrived > r->fab.told && r->ready_bytes < GROUP_READY_MAX_BYTES;
}

/* 1: on its way; 0: not now, msg is still the caller's; -1: the rank is lost. n bytes lie behind
 * the head's place. */
static int post(struct group *g, struct group_rank *r, u8 *msg, size_t n) {
    struct fabric_pair *f = &r->fab;
    struct fabric_head h = {.from = g->rank, .n = (u32)n, .seq = f->sent, .arrived = f->told};
    char why[OFI_WHY_CAP];
    if (may_say_more(r)) h.arrived = f->arrived;
    memcpy(h.token, f->token_out, sizeof h.token);
    fabric_put_head(&h, msg);
    int k = ofi_send(g->ofi, r->rank, msg, FABRIC_HEAD_BYTES + n, why);
    if (k < 0) group_ended(r, why);
    if (k <= 0) return k;
    f->told = h.arrived;
    f->sent += n > 0;
    return 1;
}

/* 0: not now, there will be another occasion. */
static int post_empty(struct group *g, struct group_rank *r) {
    u8 *msg = ofi_send_buf(g->ofi);
    int k = msg ? post(g, r, msg, 0) : 0;
    if (msg && k == 0) ofi_drop_buf(g->ofi, msg);
    return k;
}

static void stream_in(struct group_rank *r, const u8 *p, size_t n) {
    struct group_lane *l = &r->lane[0];
    if (!l->seal_in.ctx) {
        if (!group_feed(r, p, n)) group_ended(r, "it sends malformed frames");
        return;
    }
    for (size_t part; n && !r->ended; p += part, n -= part) {
        part = MIN(n, GROUP_RECORD_BYTES - l->sealed_n);
        memcpy(l->sealed_in + l->sealed_n, p, part);
        l->sealed_n += part;
        if (!part || !group_unseal(r, 0))
            group_ended(r, "what came was not sealed by it, or changed on the way");
    }
}

/* What is next in the row; frames on the connection go first, for the other side may have begun
 * here while we still read there. */
static void drain(struct group *g, struct group_rank *r) {
    struct fabric_pair *f = &r->fab;
    u8 *msg;
    while (r->on_fabric && (msg = f->held[f->arrived % FABRIC_WINDOW]) != NULL) {
        struct fabric_head h;
        f->held[f->arrived++ % FABRIC_WINDOW] = NULL;
        if (!r->ended && fabric_parse_head(&h, msg, f->held_n[(f->arrived - 1) % FABRIC_WINDOW]))
            stream_in(r, msg + FABRIC_HEAD_BYTES, h.n);
        if (g->ofi) ofi_repost(g->ofi, msg);
    }
}

bool group_fabric_take(struct group *g, u8 *msg, size_t n) {
    struct fabric_head h;
    if (!fabric_parse_head(&h, msg, n) || h.from >= g->n_ranks || h.from == g->rank) return false;
    struct group_rank *r = &g->ranks[h.from];
    struct fabric_pair *f = &r->fab;
    u32 at = h.seq % FABRIC_WINDOW;
    if (!hash_equal(h.token, f->token_in, sizeof h.token)) return false; /* a stranger */
    f->greeted = true;
    if (h.arrived > f->sent) group_ended(r, "it has seen messages that were never sent");
    f->passed = MAX(f->passed, h.arrived); /* completions may overtake each other */
    if (!h.n || r->ended) return false;
    if (h.seq < f->arrived || h.seq - f->arrived >= FABRIC_WINDOW || f->held[at]) {
        group_ended(r, "it sends a message twice, or more than there is room for");
        return false;
    }
    f->held[at] = msg;
    f->held_n[at] = n;
    drain(g, r);
    return true;
}

static bool has_frame(const struct group *g) {
    u32 i = 0;
    while (i < g->n_ranks && !g->ranks[i].ready) i++;
    return i < g->n_ranks;
}

/* A look in vain costs as much as a message: none where there is a frame to go on with. */
bool group_fabric_pump(struct group *g) {
    struct ofi_event ev;
    bool any = false;
    while (!(any && has_frame(g)) && ofi_poll(g->ofi, &ev)) {
        any = true;
        if (ev.kind == OFI_RECEIVED) {
            if (!group_fabric_take(g, ev.buf, ev.n)) ofi_repost(g->ofi, ev.buf);
        } else if (ev.kind == OFI_FAILED && ev.peer < g->n_ranks && g->ranks[ev.peer].on_fabric) {
            group_ended(&g->ranks[ev.peer], ev.why);
        }
    }
    for (u32 i = 0; i < g->n_ranks; i++) {
        struct group_rank *r = &g->ranks[i];
        if (r->on_fabric && !r->ended && r->fab.arrived - r->fab.told >= FABRIC_WINDOW / 2 &&
            may_say_more(r))
            post_empty(g, r);
    }
    return any;
}

/* A buffer, once the other side has room for a message. */
static u8 *wait_for_buf(struct group *g, struct group_rank *r, struct err *e) {
    u64 spin_end_us = 0;
    for (;;) {
        u8 *msg = r->fab.sent - r->fab.passed < FABRIC_WINDOW ? ofi_send_buf(g->ofi) : NULL;
        if (msg) return msg;
        if (group_fabric_pump(g)) continue;
        u64 now_us = clock_us();
        if (!spin_end_us) spin_end_us = now_us + GROUP_SPIN_US;
        if (now_us > spin_end_us && !group_wait_for_room(g, r, e)) return NULL;
    }
}

/* The next bytes of the frame, sealed where that is asked for. */
static size_t fill(struct group_rank *r, u8 *text, const struct iovec *v, int n_iov) {
    struct group_lane *l = &r->lane[0];
    struct iovec w[GROUP_PARTS_MAX];
    size_t n = 0;
    if (!l->seal_out.ctx) {
        size_t most = MIN(l->out_end - l->out_at, (size_t)FABRIC_TEXT_BYTES);
        int n_places = group_window(v, n_iov, l->out_at, l->out_at + most, w);
        for (int i = 0; i < n_places; n += w[i++].iov_len)
            memcpy(text + n, w[i].iov_base, w[i].iov_len);
        l->out_at += n;
        return n;
    }
    while (n < FABRIC_TEXT_BYTES && group_has_more(l)) {
        if (l->record_at == l->record_n) group_seal_next(r, l, v, n_iov);
        size_t part = MIN(l->record_n - l->record_at, FABRIC_TEXT_BYTES - n);
        memcpy(text + n, l->sealed_out + l->record_at, part);
        l->record_at += part;
        n += part;
    }
    return n;
}

static void settle(struct group *g) {
    if (!ofi_n_sending(g->ofi)) return;
    u64 end_us = clock_us() + SETTLE_US;
    do group_fabric_pump(g);
    while (ofi_n_sending(g->ofi) && clock_us() < end_us);
}

bool group_fabric_send(struct group *g, struct group_rank *r, const struct iovec *v, int n_iov,
                       size_t n_bytes, struct err *e) {
    struct group_lane *l = &r->lane[0];
    if (!group_alive(g, false, e)) return false;
    l->out_at = 0;
    l->out_end = n_bytes;
    while (group_has_more(l)) {
        u8 *msg = wait_for_buf(g, r, e);
        if (!msg) return false;
        size_t n = fill(r, msg + FABRIC_HEAD_BYTES, v, n_iov);
        int k;
        while ((k = post(g, r, msg, n)) == 0)
            if (!group_fabric_pump(g) && !group_alive(g, false, e)) {
                ofi_drop_buf(g->ofi, msg);
                return false;
            }
        if (k < 0) return group_alive(g, true, e);
    }
    settle(g);
    return true;
}

int group_fabric_sleep(struct group *g, int *fd, int timeout_ms) {
    if (!ofi_may_sleep(g->ofi, fd)) return 0;
    bool nap = *fd < 0 || ofi_n_sending(g->ofi);
    return nap && (timeout_ms < 0 || timeout_ms > NAP_MS) ? NAP_MS : timeout_ms;
}

/* ---- coming to an agreement ---- */

/* Where a provider that works over IP should listen: at the address under which the others already
 * reach this rank. */
static void near_host(const struct group *g, char host[SOCK_HOST_CAP]) {
    host[0] = 0;
    for (u32 i = 0; i < g->n_ranks; i++) {
        struct sockaddr_storage a;
        socklen_t n = sizeof a;
        if (i == g->rank || getsockname(g->ranks[i].lane[0].fd, (struct sockaddr *)&a, &n) != 0)
            continue;
        if (*host && sock_is_loopback((struct sockaddr *)&a)) continue;
        sock_text((struct sockaddr *)&a, host, NULL);
        if (!sock_is_loopback((struct sockaddr *)&a)) return;
    }
}

static bool open_mine(struct group *g, const char *name, struct fabric_offer *mine, struct err *e) {
    char host[SOCK_HOST_CAP];
    struct err why = {0};
    *mine = (struct fabric_offer){.wish = wish_of(name)};
    if (!shm_host_id(mine->host)) mine->host[0] = 0;
    if (mine->wish == FABRIC_OFF) return true;
    near_host(g, host);
    u32 n_recv = (g->n_ranks - 1) * (FABRIC_WINDOW + EMPTY_MAX);
    g->ofi = ofi_open(name, *host ? host : NULL, g->n_ranks, n_recv, SENDS, &why);
    if (!g->ofi && mine->wish == FABRIC_NAMED) {
        if (e) *e = why;
        return err_wrap(e, "--fabric %s", name);
    }
    if (!g->ofi) {
        log_info("group", "no fabric reason=\"%s\"", why.msg);
        return true;
    }
    size_t n;
    const void *address = ofi_address(g->ofi, &n);
    str_copy(mine->provider, sizeof mine->provider, ofi_provider(g->ofi));
    memcpy(mine->address, address, n);
    mine->address_n = (u32)n;
    return true;
}

/* Each gets a token of its own: what one rank may send, another can't. */
static bool send_offers(struct group *g, struct fabric_offer *mine, struct err *e) {
    u8 bytes[FABRIC_OFFER_BYTES];
    struct iovec iov = {bytes, sizeof bytes};
    for (u32 r = 0; r < g->n_ranks; r++) {
        if (r == g->rank) continue;
        random_bytes(mine->token, sizeof mine->token);
        memcpy(g->ranks[r].fab.token_in, mine->token, sizeof mine->token);
        fabric_put_offer(mine, bytes);
        if (!group_send_frame(g, r, TYPE_OFFER, &iov, 1, e)) return false;
    }
    return true;
}

/* Both sides come to the same answer. *use: the pair tries. False when it was to, and can't. */
static bool agree(const struct group_rank *r, const struct fabric_offer *mine,
                  const struct fabric_offer *other, bool *use, struct err *e) {
    bool same = *mine->provider && strcmp(mine->provider, other->provider) == 0;
    bool one_host = *mine->host && strcmp(mine->host, other->host) == 0;
    bool named = mine->wish == FABRIC_NAMED || other->wish == FABRIC_NAMED;
    *use = same && (named || !one_host); /* within a machine our own shared memory is faster */
    if (!named || (same && (one_host || !fabric_is_local(mine->provider)))) return true;
    if (same)
        return err_set(e, ERR_ARG,
                       "rank %u (%s) is on another machine, which --fabric %s can't reach", r->rank,
                       r->address, mine->provider);
    return err_set(e, ERR_ARG,
                   "rank %u (%s) has %s%s where this one has %s%s: give the same --fabric to all "
                   "nodes",
                   r->rank, r->address, *other->provider ? "libfabric's " : "no fabric",
                   other->provider, *mine->provider ? "libfabric's " : "no fabric", mine->provider);
}

static bool take_offers(struct group *g, const struct fabric_offer *mine, bool use[GROUP_RANKS_MAX],
                        struct err *e) {
    for (u32 i = 0; i < g->n_ranks; i++) {
        struct group_rank *r = &g->ranks[i];
        struct fabric_offer other;
        struct group_msg m;
        if (i == g->rank) continue;
        if (!group_recv_type(g, i, TYPE_OFFER, GROUP_ANY_SIZE, &m, e)) return false;
        if (!fabric_parse_offer(&other, m.body, m.n, e))
            return err_wrap(e, "rank %u (%s)", i, r->address);
        if (!agree(r, mine, &other, &use[i], e)) return false;
        memcpy(r->fab.token_out, other.token, sizeof r->fab.token_out);
        if (use[i] && !ofi_add_peer(g->ofi, i, other.address, other.address_n, e))
            return err_wrap(e, "rank %u (%s)", i, r->address);
    }
    return true;
}

/* An empty message each way: a provider connects with the first one, which takes both sides. */
static bool greet(struct group *g, const struct group_cfg *c, const bool use[GROUP_RANKS_MAX],
                  struct err *e) {
    u64 end_ms = clock_ms() + GREET_MS;
    for (bool all = false; !all && clock_ms() < end_ms;) {
        all = true;
        if (group_gives_up(c, e) || !group_alive(g, false, e)) return false;
        group_fabric_pump(g);
        for (u32 i = 0; i < g->n_ranks; i++) {
            struct group_rank *r = &g->ranks[i];
            if (!use[i] || r->ended) continue;
            if (!r->fab.said) r->fab.said = post_empty(g, r) > 0;
            all &= r->fab.said && r->fab.greeted;
        }
        if (!all) clock_sleep_ms(1);
    }
    return true;
}

/* Whether it worked is said over the connection, so that both know of both. A greeting that comes
 * after that does not count: both go by what was said. */
static bool settle_on_it(struct group *g, const bool use[GROUP_RANKS_MAX], bool named,
                         struct err *e) {
    u8 ok[GROUP_RANKS_MAX];
    for (u32 i = 0; i < g->n_ranks; i++) {
        ok[i] = g->ranks[i].fab.said && g->ranks[i].fab.greeted;
        struct iovec iov = {&ok[i], 1};
        if (use[i] && !group_send_frame(g, i, TYPE_GREETED, &iov, 1, e)) return false;
    }
    for (u32 i = 0; i < g->n_ranks; i++) {
        struct group_rank *r = &g->ranks[i];
        struct group_msg m;
        if (!use[i]) continue;
        if (!group_recv_type(g, i, TYPE_GREETED, 1, &m, e)) return false;
        r->on_fabric = m.body[0] && ok[i];
        drain(g, r);
        if (!r->on_fabric && named)
            return err_set(e, ERR_NET, "rank %u (%s) can't be reached through libfabric (%s)", i,
                           r->address, ofi_provider(g->ofi));
        log_info("group", "rank %u %s provider=%s", i,
                 r->on_fabric ? "through libfabric" : "stays with TCP", ofi_provider(g->ofi));
    }
    return true;
}

bool group_fabric_meet(struct group *g, const struct group_cfg *c, struct err *e) {
    struct fabric_offer mine;
    bool use[GROUP_RANKS_MAX] = {0};
    if (g->n_ranks == 1) return true;
    if (!open_mine(g, c->fabric, &mine, e) || !send_offers(g, &mine, e) ||
        !take_offers(g, &mine, use, e))
        return false;
    return !g->ofi || (greet(g, c, use, e) && settle_on_it(g, use, mine.wish == FABRIC_NAMED, e));
}
