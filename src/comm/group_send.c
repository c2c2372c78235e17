#include <string.h>

#include "comm/group_internal.h"
#include "comm/group_shm.h"

static void begin(struct group_rank *r, size_t n_bytes) {
    size_t n_body = n_bytes - FRAME_HEAD_BYTES;
    u32 n_lanes = group_stripes(r, n_body);
    for (u32 i = 0; i < r->n_lanes; i++) {
        struct group_lane *l = &r->lane[i];
        l->out_at = l->out_end = 0;
        if (i >= n_lanes) continue;
        l->out_at = i ? FRAME_HEAD_BYTES + group_share_at(n_body, n_lanes, i) : 0;
        l->out_end = FRAME_HEAD_BYTES + group_share_at(n_body, n_lanes, i + 1);
    }
}

/* Sends what there is room for of the frame under way. True when no more of it will go: that was
 * all, or the connection is over. */
static bool push(struct group_rank *r, const struct iovec *v, int n_iov) {
    return r->shm ? group_shm_push(r, v, n_iov) : group_tcp_push(r, v, n_iov);
}

bool group_go_on(struct group_rank *r) {
    bool any = false;
    while (r->late && !r->ended) {
        struct group_buf *b = r->late;
        struct iovec v = {b->body, b->n};
        if (!push(r, &v, 1)) break;
        any = true;
        r->late = b->next;
        if (r->late) begin(r, r->late->n);
        group_buf_give(r, b);
    }
    return any;
}

static bool go_on_to_the_end(struct group *g, struct group_rank *r, struct err *e) {
    for (group_go_on(r); r->late; group_go_on(r))
        if (!group_wait_for_room(g, r, e)) return false;
    return true;
}

bool group_flush(struct group *g, struct err *e) {
    for (u32 i = 0; i < g->n_ranks; i++)
        if (!go_on_to_the_end(g, &g->ranks[i], e)) return false;
    return true;
}

/* A frame with its head, in parts. */
struct out {
    struct iovec v[GROUP_PARTS_MAX];
    int n_iov;
    size_t n_bytes;
    u8 head[GROUP_LINE];
};

static bool frame_of(struct out *f, const struct group_rank *r, u32 type, const struct iovec *iov,
                     int n_iov, struct err *e) {
    static const u8 FILL[GROUP_LINE];
    size_t n = 2;
    ASSERT(n_iov >= 0 && n_iov <= GROUP_IOV_MAX);
    for (int i = 0; i < n_iov; i++) n += iov[i].iov_len;
    if (n > FRAME_MAX_BYTES)
        return err_set(e, ERR_LIMIT, "a frame of %zu bytes is larger than %d", n, FRAME_MAX_BYTES);
    memset(f->head, 0, sizeof f->head);
    memcpy(f->head, &(u32){(u32)n}, 4);
    memcpy(f->head + 4, &(u16){(u16)type}, 2);
    f->v[0] = (struct iovec){f->head, FRAME_HEAD_BYTES};
    if (n_iov) memcpy(f->v + 1, iov, (size_t)n_iov * sizeof *iov);
    f->n_iov = n_iov + 1;
    f->n_bytes = n + 4;
    if (!r->shm) return true;
    size_t n_body = n - 2, fill = (size_t)align_up(n_body, GROUP_LINE) - n_body;
    f->v[0].iov_len = GROUP_LINE;
    f->v[f->n_iov++] = (struct iovec){(u8 *)(uintptr_t)FILL, fill};
    f->n_bytes = GROUP_LINE + n_body + fill;
    return true;
}

bool group_send_frame(struct group *g, u32 to, u32 type, const struct iovec *iov, int n_iov,
                      struct err *e) {
    struct group_rank *r = &g->ranks[to];
    struct out f;
    ASSERT(to < g->n_ranks && to != g->rank);
    if (!frame_of(&f, r, type, iov, n_iov, e)) return false;
    if (r->on_fabric) return group_fabric_send(g, r, f.v, f.n_iov, f.n_bytes, e);
    if (!group_alive(g, false, e) || !go_on_to_the_end(g, r, e)) return false;
    begin(r, f.n_bytes);
    while (!push(r, f.v, f.n_iov))
        if (!group_wait_for_room(g, r, e)) return false;
    return !r->ended || group_alive(g, true, e);
}

bool group_send(struct group *g, u32 to, u32 type, const struct iovec *iov, int n_iov,
                struct err *e) {
    ASSERT(type < GROUP_TYPE_RESERVED);
    return group_send_frame(g, to, type, iov, n_iov, e);
}

static void keep(struct group_rank *r, const struct out *f) {
    struct group_buf *b = group_buf_take(r, f->n_bytes), **last = &r->late;
    b->n = 0;
    for (int i = 0; i < f->n_iov; b->n += f->v[i++].iov_len)
        memcpy(b->body + b->n, f->v[i].iov_base, f->v[i].iov_len);
    while (*last) last = &(*last)->next;
    *last = b;
}

bool group_send_late(struct group *g, u32 to, u32 type, const struct iovec *iov, int n_iov,
                     struct err *e) {
    struct group_rank *r = &g->ranks[to];
    struct out f;
    ASSERT(to < g->n_ranks && to != g->rank);
    if (r->on_fabric) return group_send_frame(g, to, type, iov, n_iov, e);
    if (!frame_of(&f, r, type, iov, n_iov, e)) return false;
    if (g->failed) return group_alive(g, true, e); /* else whoever takes the others' parts asks */
    group_go_on(r);
    if (!r->late) {
        begin(r, f.n_bytes);
        if (push(r, f.v, f.n_iov)) return !r->ended || group_alive(g, true, e);
    }
    keep(r, &f);
    return true;
}
