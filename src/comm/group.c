#include "comm/group.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/noalloc.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/str.h"
#include "comm/group_internal.h"
#include "wire/frame.h"

enum {
    /* Asking the socket again costs a microsecond, falling asleep and waking up about fifty. */
    SPIN_US = 40,
    /* Within a step the others compute the same layer and are seldom far behind: it pays to spin
     * for longer. But not where processors are scarce: each spin in vain halves the next one. */
    SPIN_STEP_MIN_US = 10,
    SPIN_STEP_MAX_US = 600,
    LOOK_US = 50, /* sockets that only carry bells, and the pulse's pipe, cost a call to look at */
};

u32 group_rank(const struct group *g) {
    return g->rank;
}
u32 group_size(const struct group *g) {
    return g->n_ranks;
}

static void bufs_free(struct group_buf *b) {
    while (b) {
        struct group_buf *next = b->next;
        free(b->body);
        free(b);
        b = next;
    }
}

void group_free(struct group *g) {
    if (!g) return;
    group_pulse_stop(g);
    for (u32 i = 0; i < g->n_ranks; i++) {
        struct group_rank *r = &g->ranks[i];
        group_unshare(r);
        seal_deinit(&r->seal_out);
        seal_deinit(&r->seal_in);
        free(r->sealed_out);
        free(r->sealed_in);
        free(r->seal_text);
        if (r->fd >= 0) close(r->fd);
        if (r->pulse_fd >= 0) close(r->pulse_fd);
        bufs_free(r->ready);
        bufs_free(r->filling);
        bufs_free(r->lent);
        bufs_free(r->spare);
        free(r->stage);
    }
    free(g->ranks);
    free(g);
}

/* One with room for n bytes; a spare one where there is one. A link soon has as many and as large
 * ones as it ever needs; until then a step that receives takes memory. */
static struct group_buf *buf_take(struct group_rank *r, u32 type, size_t n) {
    struct group_buf *b = r->spare;
    u32 promise = noalloc_pause();
    if (b)
        r->spare = b->next;
    else
        b = xcalloc(1, sizeof *b);
    if (b->cap < n || !b->body) {
        free(b->body);
        b->cap = (size_t)align_up(n ? n : 1, 4096);
        b->body = aligned_alloc(64, b->cap);
        if (!b->body) abort(); /* as xcalloc does */
    }
    noalloc_resume(promise);
    b->next = NULL;
    b->type = type;
    b->n = n;
    return b;
}

static void buf_give(struct group_rank *r, struct group_buf *b) {
    b->next = r->spare;
    r->spare = b;
}

static void ended(struct group_rank *r, const char *why) {
    if (r->ended) return;
    r->ended = true;
    str_copy(r->why, sizeof r->why, why);
}

static void push_ready(struct group_rank *r) {
    struct group_buf *b = r->filling;
    r->filling = NULL;
    r->ready_bytes += b->n;
    if (r->ready_last)
        r->ready_last->next = b;
    else
        r->ready = b;
    r->ready_last = b;
}

/* Makes frames of what is staged. False when the peer sends nonsense. */
static bool unstage(struct group_rank *r) {
    for (;;) {
        size_t have = r->stage_n - r->stage_off;
        if (r->filling) {
            size_t n = MIN(have, r->filling->n - r->filled);
            memcpy(r->filling->body + r->filled, r->stage + r->stage_off, n);
            r->filled += n;
            r->stage_off += n;
            if (r->filled < r->filling->n) return true;
            push_ready(r);
            continue;
        }
        if (have < FRAME_HEAD_BYTES) {
            memmove(r->stage, r->stage + r->stage_off, have);
            r->stage_off = 0;
            r->stage_n = have;
            return true;
        }
        u32 n;
        u16 type;
        memcpy(&n, r->stage + r->stage_off, 4);
        memcpy(&type, r->stage + r->stage_off + 4, 2);
        if (n < 2 || n > FRAME_MAX_BYTES) return false;
        r->stage_off += FRAME_HEAD_BYTES;
        r->filling = buf_take(r, type, n - 2);
        r->filled = 0;
    }
}

void group_bell(struct group_rank *r) {
    send(r->fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL); /* a full buffer wakes it, too */
}

/* Takes what shared memory has: bodies go where they belong at once. */
static bool pump_ring(struct group_rank *r) {
    bool any = false, wake = false;
    for (size_t n;
         !r->ended && r->ready_bytes < GROUP_READY_MAX_BYTES && (n = ring_ready(&r->from));
         any = true) {
        if (n == SIZE_MAX) {
            ended(r, "its shared memory makes no sense");
        } else if (r->filling) {
            n = MIN(n, r->filling->n - r->filled);
            wake |= ring_read(&r->from, r->filling->body + r->filled, n);
            r->filled += n;
        } else {
            u8 head[FRAME_HEAD_BYTES];
            u32 len;
            u16 type;
            if (n < sizeof head) break; /* published in one piece with what follows */
            wake |= ring_read(&r->from, head, sizeof head);
            memcpy(&len, head, 4);
            memcpy(&type, head + 4, 2);
            if (len < 2 || len > FRAME_MAX_BYTES)
                ended(r, "it sends malformed frames");
            else
                r->filling = buf_take(r, type, len - 2), r->filled = 0;
        }
        if (r->filling && r->filled == r->filling->n) push_ready(r);
    }
    if (wake) group_bell(r);
    return any;
}

/* Bells, and the end of the connection. */
static bool pump_bells(struct group_rank *r) {
    char bells[64];
    if (r->ended) return false;
    for (;;) {
        ssize_t k = recv(r->fd, bells, sizeof bells, MSG_DONTWAIT);
        if (k > 0 || (k < 0 && errno == EINTR)) continue;
        if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
        const char *why = k == 0 ? "the connection was closed" : strerror(errno);
        pump_ring(r); /* what it left behind still counts */
        ended(r, why);
        return true;
    }
}

/* Opens the whole records that are there, into the stage. False when one does not open. */
static bool unseal(struct group_rank *r) {
    size_t at = 0;
    while (r->sealed_n - at >= 4) {
        u32 n;
        memcpy(&n, r->sealed_in + at, 4);
        if (n < SEAL_TAG_BYTES || n > GROUP_RECORD_BYTES - 4) return false;
        if (r->sealed_n - at - 4 < n) break;
        if (r->stage_off == r->stage_n) r->stage_off = r->stage_n = 0;
        if (!seal_open(&r->seal_in, r->stage + r->stage_n, r->sealed_in + at + 4, n)) return false;
        r->stage_n += n - SEAL_TAG_BYTES;
        at += 4 + n;
        if (!unstage(r)) return false;
    }
    r->sealed_n -= at;
    memmove(r->sealed_in, r->sealed_in + at, r->sealed_n);
    return true;
}

static bool pump_sealed(struct group_rank *r) {
    bool any = false;
    while (r->fd >= 0 && !r->ended && r->ready_bytes < GROUP_READY_MAX_BYTES) {
        size_t room = GROUP_RECORD_BYTES - r->sealed_n;
        ssize_t k = recv(r->fd, r->sealed_in + r->sealed_n, room, MSG_DONTWAIT);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return any;
        any = true;
        if (k <= 0) {
            ended(r, k == 0 ? "the connection was closed" : strerror(errno));
        } else {
            r->sealed_n += (size_t)k;
            if (!unseal(r)) ended(r, "what came was not sealed by it, or changed on the way");
        }
    }
    return any;
}

/* Takes what the socket has. True when something came. */
static bool pump_socket(struct group_rank *r) {
    if (r->seal_in.ctx) return pump_sealed(r);
    bool any = false;
    while (r->fd >= 0 && !r->ended && r->ready_bytes < GROUP_READY_MAX_BYTES) {
        /* The rest of a large body goes where it belongs, everything else through the stage. */
        bool direct = r->filling && r->filling->n - r->filled >= GROUP_STAGE_BYTES;
        if (!direct && r->stage_off == r->stage_n) r->stage_off = r->stage_n = 0;
        u8 *to = direct ? r->filling->body + r->filled : r->stage + r->stage_n;
        size_t room = direct ? r->filling->n - r->filled : GROUP_STAGE_BYTES - r->stage_n;
        ssize_t k = recv(r->fd, to, room, MSG_DONTWAIT);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return any;
        if (k <= 0) {
            ended(r, k == 0 ? "the connection was closed" : strerror(errno));
            return true;
        }
        any = true;
        if (direct) {
            r->filled += (size_t)k;
            if (r->filled == r->filling->n) push_ready(r);
        } else {
            r->stage_n += (size_t)k;
            if (!unstage(r)) ended(r, "it sends malformed frames");
        }
        if ((size_t)k < room) return any; /* the socket is empty */
    }
    return any;
}

/* Is it time to look where looking costs a call? */
static bool looks(struct group *g) {
    u64 now_us = clock_us();
    if (now_us - g->looked_us < LOOK_US) return false;
    g->looked_us = now_us;
    return true;
}

static bool pump(struct group_rank *r, bool look) {
    if (!r->shm) return pump_socket(r);
    bool any = pump_ring(r);
    return (look && pump_bells(r)) || any;
}

static bool pump_all(struct group *g, bool look) {
    bool any = false;
    for (u32 i = 0; i < g->n_ranks; i++) any |= pump(&g->ranks[i], look);
    return any;
}

/* The rank whose frame is next: `from` or, for GROUP_ANY, whoever has one, in turn. A rank that has
 * gone ahead to a collective waits there until this one comes, too. NULL: none. */
static struct group_rank *find_ready(struct group *g, int from) {
    if (from >= 0) return g->ranks[from].ready ? &g->ranks[from] : NULL;
    for (u32 i = 0; i < g->n_ranks; i++) {
        struct group_rank *r = &g->ranks[(g->next_any + i) % g->n_ranks];
        if (!r->ready || r->ready->type >= GROUP_TYPE_RESERVED) continue;
        g->next_any = r->rank + 1;
        return r;
    }
    return NULL;
}

static void fail(struct group *g, const struct group_rank *r, const char *why) {
    if (g->failed) return;
    g->failed = true;
    err_set(&g->err, ERR_NET, "rank %u (%s) is lost: %s", r->rank, r->address, why);
}

/* False and *e, now and from now on, when a rank is lost. */
static bool alive(struct group *g, struct err *e) {
    struct group_loss loss;
    /* The pulse saw it first: when one rank dies, others follow. */
    if (g->has_pulse && !g->failed && read(g->lost[0], &loss, sizeof loss) == sizeof loss) {
        char why[120] = "the connection was closed";
        u32 ms = loss.silent_ms;
        if (ms) snprintf(why, sizeof why, "nothing heard of it for %.1f s", ms / 1000.0);
        fail(g, &g->ranks[loss.rank], why);
    }
    for (u32 i = 0; i < g->n_ranks; i++) {
        if (g->ranks[i].ended) fail(g, &g->ranks[i], g->ranks[i].why);
    }
    if (g->failed && e) *e = g->err;
    return !g->failed;
}

/* With `sleeps`, tells ranks in shared memory that this one goes to sleep; false when it need not.
 */
static bool tell_sleep(struct group *g, struct group_rank *out, bool sleeps) {
    bool may = true;
    for (u32 i = 0; i < g->n_ranks; i++) {
        struct group_rank *r = &g->ranks[i];
        if (!r->shm || r->ended) continue;
        if (r->ready_bytes < GROUP_READY_MAX_BYTES) may &= ring_reader_sleeps(&r->from, sleeps);
        if (r == out) may &= ring_writer_sleeps(&r->to, sleeps);
    }
    return may;
}

/* Sleeps until a rank sends, `out` (may be NULL) takes bytes, a caller's descriptor is ready, or a
 * rank is lost. */
static void wait_io(struct group *g, struct group_rank *out, struct pollfd *extra, int n_extra,
                    int timeout_ms) {
    struct pollfd p[GROUP_RANKS_MAX + 1 + 16];
    nfds_t n = 0;
    ASSERT(n_extra <= 16);
    p[n++] = (struct pollfd){.fd = g->lost[0], .events = POLLIN};
    for (u32 i = 0; i < g->n_ranks; i++) {
        const struct group_rank *r = &g->ranks[i];
        bool full = r->ready_bytes >= GROUP_READY_MAX_BYTES && !r->shm;
        bool room = r == out && !r->shm;
        if (r->fd < 0 || r->ended) continue;
        p[n++] = (struct pollfd){.fd = r->fd,
                                 .events = (short)((full ? 0 : POLLIN) | (room ? POLLOUT : 0))};
    }
    for (int i = 0; i < n_extra; i++) p[n + (nfds_t)i] = extra[i];
    if (!tell_sleep(g, out, true)) timeout_ms = 0;
    poll(p, n + (nfds_t)n_extra, timeout_ms);
    tell_sleep(g, out, false);
    g->looked_us = 0;
    for (int i = 0; i < n_extra; i++) extra[i].revents = p[n + (nfds_t)i].revents;
}

static int left_ms(u64 end_ms) {
    u64 now_ms = clock_ms();
    if (end_ms == UINT64_MAX) return -1;
    return now_ms >= end_ms ? 0 : (int)MIN(end_ms - now_ms, (u64)1 << 30);
}

static u64 end_of(int timeout_ms) {
    return timeout_ms < 0 ? UINT64_MAX : clock_ms() + (u64)timeout_ms;
}

/* Takes the frame behind *at out of what is ready, and lends its body. */
static void take_ready(struct group_rank *r, struct group_buf **at, struct group_msg *out) {
    struct group_buf *b = *at;
    *at = b->next;
    if (r->ready_last == b) {
        r->ready_last = r->ready;
        while (r->ready_last && r->ready_last->next) r->ready_last = r->ready_last->next;
    }
    r->ready_bytes -= b->n;
    if (r->lent) buf_give(r, r->lent);
    r->lent = b;
    b->next = NULL;
    *out = (struct group_msg){.from = r->rank, .type = b->type, .body = b->body, .n = b->n};
}

/* Waits a little for bytes of any rank: spins until *spin_end_us (0: not begun), then sleeps. */
static void wait_a_turn(struct group *g, u64 *spin_end_us, u32 spin_us, int timeout_ms) {
    u64 now_us = clock_us();
    if (!*spin_end_us) *spin_end_us = now_us + spin_us;
    if (now_us < *spin_end_us) return;
    wait_io(g, NULL, NULL, 0, timeout_ms);
}

bool group_recv(struct group *g, int from, int timeout_ms, struct group_msg *out, struct err *e) {
    ASSERT(from == GROUP_ANY || ((u32)from < g->n_ranks && (u32)from != g->rank));
    u64 end_ms = end_of(timeout_ms), spin_end_us = 0;
    struct group_rank *r;
    while (!(r = find_ready(g, from))) {
        bool look = looks(g);
        if (pump_all(g, look)) continue;
        if (look && !alive(g, e)) return false;
        if (g->n_ranks == 1 || left_ms(end_ms) == 0) {
            return err_set(e, ERR_BUSY, "no frame from %s within %d ms",
                           from < 0 ? "any rank" : g->ranks[from].address, timeout_ms);
        }
        wait_a_turn(g, &spin_end_us, SPIN_US, left_ms(end_ms));
    }
    take_ready(r, &r->ready, out);
    return true;
}

bool group_recv_type(struct group *g, u32 rank, u32 type, size_t n, struct group_msg *m,
                     struct err *e) {
    struct group_rank *r = &g->ranks[rank];
    u64 spin_end_us = 0;
    for (;;) {
        struct group_buf **at = &r->ready;
        while (*at && (*at)->type != type) at = &(*at)->next;
        if (*at) {
            bool in_vain = spin_end_us && clock_us() > spin_end_us;
            u32 spin_us = in_vain ? g->spin_us / 2 : g->spin_us * 2;
            if (spin_end_us)
                g->spin_us = MAX((u32)SPIN_STEP_MIN_US, MIN(spin_us, (u32)SPIN_STEP_MAX_US));
            take_ready(r, at, m);
            if (n == GROUP_ANY_SIZE || m->n == n) return true;
            return err_set(e, ERR_INTERNAL,
                           "rank %u is out of step: a frame %#x of %zu bytes instead of %zu", rank,
                           type, m->n, n);
        }
        bool look = looks(g);
        if (look ? pump_all(g, true) : pump(r, false)) continue;
        if (look && !alive(g, e)) return false;
        wait_a_turn(g, &spin_end_us, g->spin_us, -1);
    }
}

bool group_poll(struct group *g, struct pollfd *extra, int n_extra, int timeout_ms, bool *has_msg,
                struct err *e) {
    u64 end_ms = end_of(timeout_ms), spin_end_us = clock_us() + SPIN_US;
    for (int i = 0; i < n_extra; i++) extra[i].revents = 0;
    for (;;) {
        bool look = looks(g);
        pump_all(g, look);
        u32 next = g->next_any;
        *has_msg = find_ready(g, GROUP_ANY) != NULL;
        g->next_any = next;
        if (look && !*has_msg && !alive(g, e)) return false;
        bool now = *has_msg || left_ms(end_ms) == 0;
        if (!now && g->n_ranks > 1 && clock_us() < spin_end_us) continue;
        wait_io(g, NULL, extra, n_extra, now ? 0 : left_ms(end_ms));
        bool any = false;
        for (int i = 0; i < n_extra; i++) any |= extra[i].revents != 0;
        if (now || any) return true;
    }
}

/* Makes room at rank r: whoever is there may be waiting to send, too, and is heard. */
static bool wait_for_room(struct group *g, struct group_rank *r, struct err *e) {
    if (!pump_all(g, true)) wait_io(g, r, NULL, 0, -1);
    return alive(g, e);
}

static bool send_ring(struct group *g, struct group_rank *r, const struct iovec *v, int n_iov,
                      struct err *e) {
    if ((g->failed || looks(g)) && !alive(g, e)) return false;
    for (int i = 0; i < n_iov; i++) {
        const u8 *p = v[i].iov_base;
        for (size_t left = v[i].iov_len; left;) {
            size_t n = ring_write(&r->to, p, left);
            p += n;
            left -= n;
            if (!left) break;
            if (ring_publish(&r->to)) group_bell(r);
            if (!n && !wait_for_room(g, r, e)) return false;
        }
    }
    if (ring_publish(&r->to)) group_bell(r);
    return true;
}

static bool send_socket(struct group *g, struct group_rank *r, struct iovec *v, int n_iov,
                        size_t left, struct err *e) {
    struct msghdr m = {.msg_iov = v, .msg_iovlen = (size_t)n_iov};
    if (!alive(g, e)) return false;
    while (left) {
        ssize_t k = sendmsg(r->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            if (!wait_for_room(g, r, e)) return false;
            continue;
        }
        if (k < 0) {
            ended(r, strerror(errno));
            return alive(g, e);
        }
        left -= (size_t)k;
        while (k > 0) { /* step over what was taken */
            size_t part = MIN((size_t)k, m.msg_iov->iov_len);
            m.msg_iov->iov_base = (u8 *)m.msg_iov->iov_base + part;
            m.msg_iov->iov_len -= part;
            k -= (ssize_t)part;
            if (m.msg_iov->iov_len == 0 && k > 0) m.msg_iov++, m.msg_iovlen--;
        }
    }
    return true;
}

/* Gathers text for a record until there is enough, or no more. */
static bool send_sealed(struct group *g, struct group_rank *r, const struct iovec *v, int n_iov,
                        struct err *e) {
    u8 *text = r->seal_text;
    size_t n = 0;
    for (int i = 0; i < n_iov; i++)
        for (size_t at = 0; at < v[i].iov_len || (i + 1 == n_iov && n);) {
            size_t part = MIN(v[i].iov_len - at, (size_t)GROUP_SEAL_BYTES - n);
            memcpy(text + n, (const u8 *)v[i].iov_base + at, part);
            n += part;
            at += part;
            if (n < GROUP_SEAL_BYTES && !(i + 1 == n_iov && at == v[i].iov_len)) break;
            u32 len = (u32)n + SEAL_TAG_BYTES;
            memcpy(r->sealed_out, &len, 4);
            seal_close(&r->seal_out, r->sealed_out + 4, text, n);
            struct iovec record = {r->sealed_out, 4 + len};
            if (!send_socket(g, r, &record, 1, 4 + len, e)) return false;
            n = 0;
        }
    return true;
}

bool group_send_frame(struct group *g, u32 to, u32 type, const struct iovec *iov, int n_iov,
                      struct err *e) {
    struct group_rank *r = &g->ranks[to];
    struct iovec v[GROUP_IOV_MAX + 1];
    u8 head[FRAME_HEAD_BYTES];
    size_t n = 2;
    ASSERT(to < g->n_ranks && to != g->rank && n_iov >= 0 && n_iov <= GROUP_IOV_MAX);
    for (int i = 0; i < n_iov; i++) n += iov[i].iov_len;
    if (n > FRAME_MAX_BYTES) {
        return err_set(e, ERR_LIMIT, "a frame of %zu bytes is larger than %d", n, FRAME_MAX_BYTES);
    }
    memcpy(head, &(u32){(u32)n}, 4);
    memcpy(head + 4, &(u16){(u16)type}, 2);
    v[0] = (struct iovec){head, sizeof head};
    if (n_iov) memcpy(v + 1, iov, (size_t)n_iov * sizeof *iov);
    if (r->shm) return send_ring(g, r, v, n_iov + 1, e);
    if (r->seal_out.ctx) return send_sealed(g, r, v, n_iov + 1, e);
    return send_socket(g, r, v, n_iov + 1, n + 4, e);
}

bool group_send(struct group *g, u32 to, u32 type, const struct iovec *iov, int n_iov,
                struct err *e) {
    ASSERT(type < GROUP_TYPE_RESERVED);
    return group_send_frame(g, to, type, iov, n_iov, e);
}
