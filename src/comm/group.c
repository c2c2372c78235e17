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
    /* Within a step the others compute the same layer and are seldom far behind. */
    SPIN_STEP_US = 200,
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

/* Takes what the socket has. True when something came. */
static bool pump(struct group_rank *r) {
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

static bool pump_all(struct group *g) {
    bool any = false;
    for (u32 i = 0; i < g->n_ranks; i++) any |= pump(&g->ranks[i]);
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

/* Sleeps until a rank sends, `out` (may be NULL) takes bytes, a caller's descriptor is ready, or a
 * rank is lost. */
static void wait_io(struct group *g, const struct group_rank *out, struct pollfd *extra,
                    int n_extra, int timeout_ms) {
    struct pollfd p[GROUP_RANKS_MAX + 1 + 16];
    nfds_t n = 0;
    ASSERT(n_extra <= 16);
    p[n++] = (struct pollfd){.fd = g->lost[0], .events = POLLIN};
    for (u32 i = 0; i < g->n_ranks; i++) {
        const struct group_rank *r = &g->ranks[i];
        bool full = r->ready_bytes >= GROUP_READY_MAX_BYTES;
        if (r->fd < 0 || r->ended) continue;
        p[n++] = (struct pollfd){.fd = r->fd,
                                 .events = (short)((full ? 0 : POLLIN) | (r == out ? POLLOUT : 0))};
    }
    for (int i = 0; i < n_extra; i++) p[n + (nfds_t)i] = extra[i];
    poll(p, n + (nfds_t)n_extra, timeout_ms);
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

/* Waits a little for bytes of any rank: spins first, from *spin_end_us on (0: not begun) sleeps. */
static void wait_a_turn(struct group *g, u64 *spin_end_us, u32 spin_us, int timeout_ms) {
    u64 now_us = clock_us();
    if (!*spin_end_us) *spin_end_us = now_us + spin_us;
    if (now_us >= *spin_end_us) wait_io(g, NULL, NULL, 0, timeout_ms);
}

bool group_recv(struct group *g, int from, int timeout_ms, struct group_msg *out, struct err *e) {
    ASSERT(from == GROUP_ANY || ((u32)from < g->n_ranks && (u32)from != g->rank));
    u64 end_ms = end_of(timeout_ms), spin_end_us = 0;
    struct group_rank *r;
    while (!(r = find_ready(g, from))) {
        if (pump_all(g)) continue;
        if (!alive(g, e)) return false;
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
            take_ready(r, at, m);
            if (n == GROUP_ANY_SIZE || m->n == n) return true;
            return err_set(e, ERR_INTERNAL,
                           "rank %u is out of step: a frame %#x of %zu bytes instead of %zu", rank,
                           type, m->n, n);
        }
        if (pump_all(g)) continue;
        if (!alive(g, e)) return false;
        wait_a_turn(g, &spin_end_us, SPIN_STEP_US, -1);
    }
}

bool group_poll(struct group *g, struct pollfd *extra, int n_extra, int timeout_ms, bool *has_msg,
                struct err *e) {
    u64 end_ms = end_of(timeout_ms), spin_end_us = clock_us() + SPIN_US;
    for (int i = 0; i < n_extra; i++) extra[i].revents = 0;
    for (;;) {
        pump_all(g);
        u32 next = g->next_any;
        *has_msg = find_ready(g, GROUP_ANY) != NULL;
        g->next_any = next;
        if (!*has_msg && !alive(g, e)) return false;
        bool now = *has_msg || left_ms(end_ms) == 0;
        if (!now && g->n_ranks > 1 && clock_us() < spin_end_us) continue;
        wait_io(g, NULL, extra, n_extra, now ? 0 : left_ms(end_ms));
        bool any = false;
        for (int i = 0; i < n_extra; i++) any |= extra[i].revents != 0;
        if (now || any) return true;
    }
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
    size_t left = n + 4;
    struct msghdr m = {.msg_iov = v, .msg_iovlen = (size_t)n_iov + 1};
    if (!alive(g, e)) return false;
    while (left) {
        ssize_t k = sendmsg(r->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            wait_io(g, r, NULL, 0, -1);
            pump_all(g); /* the other side may be waiting to send, too */
            if (!alive(g, e)) return false;
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

bool group_send(struct group *g, u32 to, u32 type, const struct iovec *iov, int n_iov,
                struct err *e) {
    ASSERT(type < GROUP_TYPE_RESERVED);
    return group_send_frame(g, to, type, iov, n_iov, e);
}
