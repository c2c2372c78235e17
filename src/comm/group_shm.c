#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "comm/group_shm.h"

/* All ranks tell all others which machine they are on. Of two on the same one, the lower makes the
 * memory and offers its name; the higher attaches and says whether that worked (containers may
 * share a kernel, but no memory). From its answer on, the higher sends frames there, from its
 * arrival on the lower does. */
enum {
    TYPE_HOST = GROUP_TYPE_RESERVED + 0x20,
    TYPE_OFFER,
    TYPE_ANSWER,
    RING_BYTES = 256 << 10, /* both stay in a second-level cache, which halves the cost of a sum */
};

static size_t shm_bytes(void) {
    return 2 * ring_bytes(RING_BYTES);
}

static void use(struct group *g, struct group_rank *r, void *shm) {
    u8 *up = (u8 *)shm + ring_bytes(RING_BYTES); /* from the lower to the higher; then back */
    bool lower = g->rank < r->rank;
    r->to = ring_at(lower ? (u8 *)shm : up, RING_BYTES);
    r->from = ring_at(lower ? up : (u8 *)shm, RING_BYTES);
    r->shm = shm;
}

void group_unshare(struct group_rank *r) {
    shm_unmap(r->shm, shm_bytes());
    r->shm = NULL;
}

static bool send_bytes(struct group *g, u32 to, u32 type, const void *p, size_t n, struct err *e) {
    struct iovec iov = {(void *)(uintptr_t)p, n};
    return group_send_frame(g, to, type, &iov, 1, e);
}

static bool offer(struct group *g, u32 to, struct err *e) {
    char name[SHM_NAME_CAP] = "";
    struct err why = {0};
    struct group_rank *r = &g->ranks[to];
    void *shm = shm_make(shm_bytes(), name, &why);
    struct group_msg m;
    if (!shm) {
        name[0] = 0;
        log_info("group", "rank %u stays with TCP reason=\"%s\"", to, why.msg);
    }
    bool ok = send_bytes(g, to, TYPE_OFFER, name, sizeof name, e) &&
              group_recv_type(g, to, TYPE_ANSWER, 1, &m, e);
    if (ok && shm && m.body[0]) {
        use(g, r, shm);
        return true;
    }
    if (shm) shm_forget(name);
    shm_unmap(shm, shm_bytes());
    return ok;
}

static bool take_offer(struct group *g, u32 from, struct err *e) {
    char name[SHM_NAME_CAP];
    struct group_msg m;
    struct err why = {0};
    if (!group_recv_type(g, from, TYPE_OFFER, sizeof name, &m, e)) return false;
    memcpy(name, m.body, sizeof name);
    name[sizeof name - 1] = 0;
    void *shm = *name ? shm_attach(name, shm_bytes(), &why) : NULL;
    u8 answer = shm != NULL;
    if (*name && !shm) log_info("group", "rank %u stays with TCP reason=\"%s\"", from, why.msg);
    if (!send_bytes(g, from, TYPE_ANSWER, &answer, 1, e)) {
        shm_unmap(shm, shm_bytes());
        return false;
    }
    if (shm) use(g, &g->ranks[from], shm);
    return true;
}

/* Offers go in the order of ranks: nobody waits for one who waits for him. */
bool group_share(struct group *g, struct err *e) {
    char host[SHM_HOST_CAP] = "";
    bool here[GROUP_RANKS_MAX] = {0};
    if (!shm_host_id(host)) host[0] = 0;
    for (u32 r = 0; r < g->n_ranks; r++)
        if (r != g->rank && !g->ranks[r].on_fabric &&
            !send_bytes(g, r, TYPE_HOST, host, sizeof host, e))
            return false;
    for (u32 r = 0; r < g->n_ranks; r++) {
        struct group_msg m;
        if (r == g->rank || g->ranks[r].on_fabric) continue;
        if (!group_recv_type(g, r, TYPE_HOST, sizeof host, &m, e)) return false;
        here[r] = *host && memcmp(m.body, host, sizeof host) == 0;
    }
    for (u32 r = 0; r < g->n_ranks; r++) {
        if (!here[r]) continue;
        if (r < g->rank ? !take_offer(g, r, e) : !offer(g, r, e)) return false;
    }
    return true;
}

static void ring_bell(struct group_rank *r) {
    /* a full buffer wakes it, too */
    send(r->lane[0].fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Bodies go where they belong at once. */
bool group_shm_pump(struct group_rank *r) {
    struct group_lane *l = &r->lane[0];
    bool any = false, wake = false;
    for (size_t n;
         !r->ended && r->ready_bytes < GROUP_READY_MAX_BYTES && (n = ring_ready(&r->from));
         any = true) {
        if (n == SIZE_MAX) {
            group_ended(r, "its shared memory makes no sense");
            break;
        }
        if (r->filling) {
            n = MIN(n, l->in_end - l->in_at);
            wake |= ring_read(&r->from, r->filling->body + l->in_at, n);
            l->in_at += n;
        } else {
            u8 head[GROUP_LINE];
            if (n < sizeof head) break; /* there is room for lines, never for a part of one */
            wake |= ring_read(&r->from, head, sizeof head);
            if (!group_frame_begin(r, head)) {
                group_ended(r, "it sends malformed frames");
                break;
            }
            l->in_end = (size_t)align_up(l->in_end, GROUP_LINE); /* buffers have whole lines */
        }
        group_frame_finish(r);
    }
    if (wake) ring_bell(r);
    return any;
}

const u8 *group_shm_peek(const struct group_rank *r, u32 type, size_t n) {
    size_t ready = ring_ready(&r->from);
    if (ready == SIZE_MAX) return NULL; /* the pump will tell */
    if (r->filling || ready < GROUP_LINE + align_up(n, GROUP_LINE)) return NULL;
    const u8 *p = ring_peek(&r->from, GROUP_LINE + n);
    u32 n_frame;
    u16 is;
    if (!p) return NULL;
    memcpy(&n_frame, p, 4);
    memcpy(&is, p + 4, 2);
    return is == type && n_frame == n + 2 ? p + GROUP_LINE : NULL;
}

void group_shm_done(struct group_rank *r, size_t n) {
    if (ring_skip(&r->from, GROUP_LINE + (size_t)align_up(n, GROUP_LINE))) ring_bell(r);
}

bool group_bells(struct group_rank *r) {
    char bells[256];
    while (!r->ended) {
        ssize_t k = recv(r->lane[0].fd, bells, sizeof bells, MSG_DONTWAIT);
        if (k > 0 || (k < 0 && errno == EINTR)) continue;
        if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
        const char *why = k == 0 ? "the connection was closed" : strerror(errno);
        if (r->shm) group_shm_pump(r); /* what it left behind still counts */
        group_ended(r, why);
        return true;
    }
    return false;
}

bool group_shm_push(struct group_rank *r, const struct iovec *v, int n_iov) {
    struct group_lane *l = &r->lane[0];
    struct iovec w[GROUP_PARTS_MAX];
    int n = group_window(v, n_iov, l->out_at, l->out_end, w);
    bool full = false;
    for (int i = 0; i < n && !full; i++) {
        size_t k = ring_write(&r->to, w[i].iov_base, w[i].iov_len);
        l->out_at += k;
        full = k < w[i].iov_len;
    }
    if (ring_publish(&r->to)) ring_bell(r);
    return !full;
}
