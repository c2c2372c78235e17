#include "comm/group.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/group_internal.h"
#include "comm/group_shm.h"

enum {
    /* Within a step the others compute the same layer and are seldom far behind: it pays to spin
     * for longer, up to SOCK_SPIN_MAX_US. But not where processors are scarce: each spin in vain
     * halves the next one. */
    SPIN_STEP_MIN_US = 10,
    PARTING_MS = 500, /* after a connection closed, at most, until its pulse has told why */
    LOOK_US = 50, /* sockets that only carry bells, and the pulse's pipe, cost a call to look at */
    GLANCES = 32, /* at a counter in shared memory: about what one look at the clock takes */
};

u32 group_rank(const struct group *g) {
    return g->rank;
}
u32 group_size(const struct group *g) {
    return g->n_ranks;
}

struct group_link group_link(const struct group *g, u32 rank) {
    const struct group_rank *r = &g->ranks[rank];
    ASSERT(rank < g->n_ranks && rank != g->rank);
    if (r->shm) return (struct group_link){GROUP_CARRIER_SHM, 1, false, ""};
    bool sealed = r->lane[0].seal_out.ctx != NULL;
    if (r->on_fabric)
        return (struct group_link){GROUP_CARRIER_FABRIC, 1, sealed, ofi_provider(g->ofi)};
    return (struct group_link){GROUP_CARRIER_TCP, r->n_lanes, sealed, ""};
}

static void lane_free(struct group_lane *l) {
    seal_deinit(&l->seal_out);
    seal_deinit(&l->seal_in);
    free(l->sealed_out);
    free(l->sealed_in);
    if (l->fd >= 0) close(l->fd);
}

void group_free(struct group *g) {
    if (!g) return;
    group_pulse_stop(g);
    ofi_close(g->ofi);
    for (u32 i = 0; i < g->n_ranks; i++) {
        struct group_rank *r = &g->ranks[i];
        group_unshare(r);
        for (u32 k = 0; k < GROUP_STREAMS_MAX; k++) lane_free(&r->lane[k]);
        free(r->seal_text);
        if (r->pulse_fd >= 0) close(r->pulse_fd);
        group_bufs_free(r->ready);
        group_bufs_free(r->filling);
        group_bufs_free(r->lent);
        group_bufs_free(r->spare);
        group_bufs_free(r->late);
        free(r->stage);
    }
    free(g->ranks);
    free(g);
}

void group_leave(struct group *g) {
    if (g) g->leaves = true;
    group_free(g);
}

/* Is it time to look where looking costs a call? */
static bool looks_at(struct group *g, u64 now_us) {
    if (now_us - g->looked_us < LOOK_US) return false;
    g->looked_us = now_us;
    return true;
}

static bool looks(struct group *g) {
    return looks_at(g, clock_us());
}

static bool pump(struct group_rank *r, bool look) {
    if (!r->n_lanes) return false; /* ourselves */
    bool any = r->late && group_go_on(r);
    if (!r->shm && !r->on_fabric) return group_tcp_pump(r) || any;
    any |= r->shm && group_shm_pump(r);
    return (look && group_bells(r)) || any;
}

static bool pump_all(struct group *g, bool look) {
    bool any = g->ofi && group_fabric_pump(g);
    for (u32 i = 0; i < g->n_ranks; i++) any |= pump(&g->ranks[i], look);
    return any;
}

void group_pump(struct group *g) {
    pump_all(g, looks(g));
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

/* The pulse sees it first: when one rank dies, others follow. */
static void take_loss(struct group *g) {
    struct group_loss loss;
    char why[120] = "the connection was closed";
    if (read(g->lost[0], &loss, sizeof loss) != sizeof loss) return;
    const struct group_rank *r = &g->ranks[loss.rank];
    u32 ms = loss.silent_ms;
    if (ms) snprintf(why, sizeof why, "nothing heard of it for %.1f s", ms / 1000.0);
    fail(g, r, why);
    if (loss.has_left)
        err_set(&g->err, ERR_CANCELLED, "rank %u (%s) was stopped", r->rank, r->address);
}

bool group_alive(struct group *g, bool now, struct err *e) {
    bool over = false;
    if (!now && !g->failed && !looks(g)) return true;
    for (u32 i = 0; i < g->n_ranks; i++) over = over || g->ranks[i].ended;
    if (over && g->has_pulse && !g->failed)
        poll(&(struct pollfd){.fd = g->lost[0], .events = POLLIN}, 1, PARTING_MS);
    if (g->has_pulse && !g->failed) take_loss(g);
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
        if (r == out || r->late) may &= ring_writer_sleeps(&r->to, sleeps);
    }
    return may;
}

/* Sleeps until a rank sends, `out` (may be NULL) or one for which frames wait takes bytes, a
 * caller's descriptor is ready, or a rank is lost. */
static void wait_io(struct group *g, struct group_rank *out, struct pollfd *extra, int n_extra,
                    int timeout_ms) {
    struct pollfd p[GROUP_RANKS_MAX * GROUP_STREAMS_MAX + 2 + 16];
    nfds_t n = 0;
    ASSERT(n_extra <= 16);
    p[n++] = (struct pollfd){.fd = g->lost[0], .events = POLLIN};
    for (u32 i = 0; i < g->n_ranks; i++) {
        const struct group_rank *r = &g->ranks[i];
        for (u32 k = 0; k < r->n_lanes && !r->ended; k++) {
            bool bells = r->shm || r->on_fabric; /* all that comes on a connection */
            short events = bells ? POLLIN : group_tcp_events(r, k, r == out || r->late);
            /* with no events poll would still return at once for one that is over */
            if (events && (k == 0 || !bells))
                p[n++] = (struct pollfd){.fd = r->lane[k].fd, .events = events};
        }
    }
    nfds_t first_extra = n;
    for (int i = 0; i < n_extra; i++) p[n + (nfds_t)i] = extra[i];
    if (!tell_sleep(g, out, true)) timeout_ms = 0;
    n += (nfds_t)n_extra;
    if (g->ofi) {
        int fd;
        timeout_ms = group_fabric_sleep(g, &fd, timeout_ms);
        p[n++] = (struct pollfd){.fd = fd, .events = POLLIN};
    }
    poll(p, n, timeout_ms);
    tell_sleep(g, out, false);
    g->looked_us = 0;
    for (int i = 0; i < n_extra; i++) extra[i].revents = p[first_extra + (nfds_t)i].revents;
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
    if (r->lent) group_buf_give(r, r->lent);
    r->lent = b;
    b->next = NULL;
    *out = (struct group_msg){.from = r->rank, .type = b->type, .body = b->body, .n = b->n};
}

/* Waits a little for bytes of any rank: spins until *spin_end_us (0: not begun), then sleeps.
 * Returns whether it slept. */
static bool wait_a_turn(struct group *g, u64 now_us, u64 *spin_end_us, u32 spin_us,
                        int timeout_ms) {
    if (!*spin_end_us) *spin_end_us = now_us + spin_us;
    if (now_us < *spin_end_us) return false;
    wait_io(g, NULL, NULL, 0, timeout_ms);
    return true;
}

bool group_recv(struct group *g, int from, int timeout_ms, struct group_msg *out, struct err *e) {
    ASSERT(from == GROUP_ANY || ((u32)from < g->n_ranks && (u32)from != g->rank));
    u64 end_ms = end_of(timeout_ms), spin_end_us = 0;
    struct group_rank *r;
    while (!(r = find_ready(g, from))) {
        u64 now_us = clock_us();
        bool look = looks_at(g, now_us);
        if (pump_all(g, look)) continue;
        if ((look || g->failed) && !group_alive(g, true, e)) return false;
        if (g->n_ranks == 1 || left_ms(end_ms) == 0) {
            return err_set(e, ERR_BUSY, "no frame from %s within %d ms",
                           from < 0 ? "any rank" : g->ranks[from].address, timeout_ms);
        }
        wait_a_turn(g, now_us, &spin_end_us, GROUP_SPIN_US, left_ms(end_ms));
    }
    take_ready(r, &r->ready, out);
    return true;
}

/* Something came while this rank waited; it has slept, or it has not. */
static void learn_spin(struct group *g, bool slept) {
    u32 spin_us = slept ? g->spin_us / 2 : g->spin_us * 2;
    g->spin_us = MAX((u32)SPIN_STEP_MIN_US, MIN(spin_us, (u32)SOCK_SPIN_MAX_US));
}

static const u8 *glance(const struct group_rank *r, u32 type, size_t n) {
    for (u32 i = 0; r->shm && i < GLANCES; i++)
        if (ring_ready(&r->from)) return group_shm_peek(r, type, n);
    return NULL;
}

/* The next frame of this type from r, taken out of what is ready; or, with `there`, its body of n
 * bytes where it lies. */
static bool next_of_type(struct group *g, struct group_rank *r, u32 type, size_t n,
                         struct group_msg *m, const u8 **there, struct err *e) {
    u64 spin_end_us = 0;
    for (bool slept = false;;) {
        struct group_buf **at = &r->ready;
        while (*at && (*at)->type != type) at = &(*at)->next;
        if (there && !*at) *there = glance(r, type, n);
        if (*at || (there && *there)) {
            if (spin_end_us) learn_spin(g, slept);
            if (*at) take_ready(r, at, m);
            return true;
        }
        u64 now_us = clock_us();
        bool look = looks_at(g, now_us);
        if (look || r->on_fabric ? pump_all(g, look) : pump(r, false)) continue;
        if ((look || g->failed) && !group_alive(g, true, e)) return false;
        slept |= wait_a_turn(g, now_us, &spin_end_us, g->spin_us, -1);
    }
}

bool group_has_type(const struct group *g, u32 rank, u32 type) {
    const struct group_buf *b = g->ranks[rank].ready;
    while (b && b->type != type) b = b->next;
    return b != NULL;
}

static bool has_size(const struct group_msg *m, u32 type, size_t n, struct err *e) {
    return m->n == n || err_set(e, ERR_INTERNAL,
                                "rank %u is out of step: a frame %#x of %zu bytes instead of %zu",
                                m->from, type, m->n, n);
}

bool group_recv_type(struct group *g, u32 rank, u32 type, size_t n, struct group_msg *m,
                     struct err *e) {
    return next_of_type(g, &g->ranks[rank], type, n, m, NULL, e) &&
           (n == GROUP_ANY_SIZE || has_size(m, type, n, e));
}

bool group_recv_part(struct group *g, u32 rank, u32 type, size_t n, const void **body,
                     struct err *e) {
    struct group_rank *r = &g->ranks[rank];
    struct group_msg m;
    const u8 *there = NULL;
    if (!next_of_type(g, r, type, n, &m, &there, e)) return false;
    if (!there && !has_size(&m, type, n, e)) return false;
    r->part_there = there != NULL;
    r->part_n = n;
    *body = there ? there : m.body;
    return true;
}

void group_part_done(struct group *g, u32 rank) {
    struct group_rank *r = &g->ranks[rank];
    if (r->part_there) group_shm_done(r, r->part_n);
    r->part_there = false;
}

bool group_poll(struct group *g, struct pollfd *extra, int n_extra, int timeout_ms, bool *has_msg,
                struct err *e) {
    u64 end_ms = end_of(timeout_ms), spin_end_us = clock_us() + GROUP_SPIN_US;
    for (int i = 0; i < n_extra; i++) extra[i].revents = 0;
    for (;;) {
        bool look = looks(g);
        pump_all(g, look);
        u32 next = g->next_any;
        *has_msg = find_ready(g, GROUP_ANY) != NULL;
        g->next_any = next;
        if ((look || g->failed) && !*has_msg && !group_alive(g, true, e)) return false;
        bool now = *has_msg || left_ms(end_ms) == 0;
        if (!now && g->n_ranks > 1 && clock_us() < spin_end_us) continue;
        wait_io(g, NULL, extra, n_extra, now ? 0 : left_ms(end_ms));
        bool any = false;
        for (int i = 0; i < n_extra; i++) any |= extra[i].revents != 0;
        if (now || any) return true;
    }
}

bool group_wait_for_room(struct group *g, struct group_rank *r, struct err *e) {
    if (!pump_all(g, true)) wait_io(g, r, NULL, 0, -1);
    return group_alive(g, true, e);
}
