#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "comm/group_internal.h"

/* ---- receiving ---- */

/* Is the first connection's part done while other shares are still under way? What follows there
 * has to wait. */
static bool others_lag(const struct group_rank *r) {
    return r->filling && r->lane[0].in_at == r->lane[0].in_end;
}

static bool lane_wants(const struct group_rank *r, u32 i) {
    if (r->lane[i].fd < 0 || r->ended || r->ready_bytes >= GROUP_READY_MAX_BYTES) return false;
    return i == 0 ? !others_lag(r) : r->filling && r->lane[i].in_at < r->lane[i].in_end;
}

/* recv, in up to two places. > 0: bytes; 0: none now; -1: the connection is over. */
static ssize_t take(struct group_rank *r, int fd, struct iovec *v, size_t n_iov) {
    struct msghdr m = {.msg_iov = v, .msg_iovlen = n_iov};
    ssize_t k;
    do
        k = n_iov == 1 ? recv(fd, v->iov_base, v->iov_len, MSG_DONTWAIT)
                       : recvmsg(fd, &m, MSG_DONTWAIT);
    while (k < 0 && errno == EINTR);
    if (k > 0) return k;
    if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return 0;
    group_ended(r, k == 0 ? "the connection was closed" : strerror(errno));
    return -1;
}

/* A body's rest goes where it belongs, and what follows it to the stage. */
static ssize_t take_body(struct group_rank *r, bool *full) {
    struct group_lane *l = &r->lane[0];
    size_t rest = l->in_end - l->in_at;
    bool alone =
        l->in_end < r->filling->n; /* a share: what follows must not come before the rest */
    struct iovec v[2] = {{r->filling->body + l->in_at, rest}, {r->stage, GROUP_STAGE_BYTES}};
    ssize_t k = take(r, l->fd, v, alone ? 1 : 2);
    if (k <= 0) return k;
    size_t mine = MIN((size_t)k, rest);
    *full = (size_t)k == rest + (alone ? 0 : GROUP_STAGE_BYTES);
    l->in_at += mine;
    group_frame_finish(r);
    if (!group_feed(r, r->stage, (size_t)k - mine)) group_ended(r, "it sends malformed frames");
    return k;
}

/* What comes between frames is most often one whole frame: it goes where its body belongs. */
static ssize_t take_frame(struct group_rank *r, bool *full) {
    enum { MAX_BYTES = FRAME_HEAD_BYTES + GROUP_STAGE_BYTES };
    struct iovec v = {group_buf_guess(r)->body - FRAME_HEAD_BYTES, MAX_BYTES};
    ssize_t k = take(r, r->lane[0].fd, &v, 1);
    if (k <= 0) return k;
    *full = k == MAX_BYTES;
    if (!group_frame_guessed(r, (size_t)k)) group_ended(r, "it sends malformed frames");
    return k;
}

static ssize_t take_rest_of_head(struct group_rank *r, bool *full) {
    struct iovec v = {r->stage, GROUP_STAGE_BYTES};
    ssize_t k = take(r, r->lane[0].fd, &v, 1);
    *full = k == GROUP_STAGE_BYTES;
    if (k > 0 && !group_feed(r, r->stage, (size_t)k)) group_ended(r, "it sends malformed frames");
    return k;
}

static bool pump_first(struct group_rank *r) {
    bool any = false, full = true;
    while (full && lane_wants(r, 0)) {
        full = false;
        ssize_t k = r->filling  ? take_body(r, &full)
                    : r->head_n ? take_rest_of_head(r, &full)
                                : take_frame(r, &full);
        if (k == 0) return any;
        any = true;
        if (k < 0) return true;
    }
    return any;
}

/* A share that another connection carries. */
static bool pump_share(struct group_rank *r, struct group_lane *l) {
    struct iovec v = {r->filling->body + l->in_at, l->in_end - l->in_at};
    ssize_t k = take(r, l->fd, &v, 1);
    if (k > 0) l->in_at += (size_t)k;
    return k != 0;
}

/* Opens one record, straight into the body that it is of where that can be. */
static bool open_record(struct group_rank *r, u32 i, const u8 *record, u32 n) {
    struct group_lane *l = &r->lane[i];
    size_t n_text = n - SEAL_TAG_BYTES;
    if (r->filling && n_text <= l->in_end - l->in_at) {
        if (!seal_open(&l->seal_in, r->filling->body + l->in_at, record, n)) return false;
        l->in_at += n_text;
        group_frame_finish(r);
        return true;
    }
    return i == 0 && seal_open(&l->seal_in, r->stage, record, n) && group_feed(r, r->stage, n_text);
}

bool group_unseal(struct group_rank *r, u32 i) {
    struct group_lane *l = &r->lane[i];
    size_t at = 0;
    while (l->sealed_n - at >= 4 && (i == 0 ? !others_lag(r) : lane_wants(r, i))) {
        u32 n;
        memcpy(&n, l->sealed_in + at, 4);
        if (n < SEAL_TAG_BYTES || n > GROUP_RECORD_BYTES - 4) return false;
        if (l->sealed_n - at - 4 < n) break;
        if (!open_record(r, i, l->sealed_in + at + 4, n)) return false;
        at += 4 + n;
    }
    l->sealed_n -= at;
    memmove(l->sealed_in, l->sealed_in + at, l->sealed_n);
    return true;
}

static bool pump_sealed(struct group_rank *r, u32 i) {
    static const char BROKEN[] = "what came was not sealed by it, or changed on the way";
    struct group_lane *l = &r->lane[i];
    bool any = false;
    while (lane_wants(r, i)) {
        size_t before = l->sealed_n; /* records that had to wait */
        if (before && !group_unseal(r, i)) group_ended(r, BROKEN);
        any |= l->sealed_n < before;
        if (!lane_wants(r, i)) break;
        size_t room = GROUP_RECORD_BYTES - l->sealed_n;
        struct iovec v = {l->sealed_in + l->sealed_n, room};
        ssize_t k = take(r, l->fd, &v, 1);
        if (k == 0) return any;
        any = true;
        if (k < 0) break;
        l->sealed_n += (size_t)k;
        if (!group_unseal(r, i)) group_ended(r, BROKEN);
        if ((size_t)k < room) break;
    }
    return any;
}

/* What the other connections carry of the frame under way. True when that was the last of it. */
static bool pump_shares(struct group_rank *r, bool *any) {
    bool sealed = r->lane[0].seal_in.ctx != NULL;
    for (u32 i = 1; i < r->n_lanes && r->filling; i++) {
        if (!lane_wants(r, i)) continue;
        *any |= sealed ? pump_sealed(r, i) : pump_share(r, &r->lane[i]);
        if (!r->filling || group_frame_finish(r)) return true;
    }
    return false;
}

bool group_tcp_pump(struct group_rank *r) {
    bool any = false;
    do any |= r->lane[0].seal_in.ctx ? pump_sealed(r, 0) : pump_first(r);
    while (pump_shares(r, &any)); /* what waited behind that frame is next */
    return any;
}

/* ---- sending ---- */

int group_window(const struct iovec *v, int n_iov, size_t at, size_t end,
                 struct iovec out[GROUP_PARTS_MAX]) {
    int n = 0;
    for (int i = 0; i < n_iov && at < end; i++) {
        if (at >= v[i].iov_len) {
            at -= v[i].iov_len, end -= v[i].iov_len;
            continue;
        }
        size_t part = MIN(v[i].iov_len, end) - at;
        out[n++] = (struct iovec){(u8 *)v[i].iov_base + at, part};
        end -= MIN(v[i].iov_len, end);
        at = 0;
    }
    return n;
}

void group_seal_next(struct group_rank *r, struct group_lane *l, const struct iovec *v, int n_iov) {
    struct iovec w[GROUP_PARTS_MAX];
    size_t n = MIN(l->out_end - l->out_at, (size_t)GROUP_SEAL_BYTES), at = 0;
    int n_places = group_window(v, n_iov, l->out_at, l->out_at + n, w);
    const u8 *text = w[0].iov_base;
    if (n_places > 1) {
        for (int i = 0; i < n_places; at += w[i++].iov_len)
            memcpy(r->seal_text + at, w[i].iov_base, w[i].iov_len);
        text = r->seal_text;
    }
    u32 len = (u32)n + SEAL_TAG_BYTES;
    memcpy(l->sealed_out, &len, 4);
    seal_close(&l->seal_out, l->sealed_out + 4, text, n);
    l->out_at += n;
    l->record_at = 0;
    l->record_n = 4 + len;
}

/* > 0: something went; 0: there is no room; -1: the connection is over. */
static ssize_t push(struct group_rank *r, struct group_lane *l, const struct iovec *v, int n_iov) {
    struct iovec w[GROUP_PARTS_MAX];
    struct msghdr m = {.msg_iov = w};
    if (l->seal_out.ctx) {
        if (l->record_at == l->record_n) group_seal_next(r, l, v, n_iov);
        w[0] = (struct iovec){l->sealed_out + l->record_at, l->record_n - l->record_at};
        m.msg_iovlen = 1;
    } else {
        m.msg_iovlen = (size_t)group_window(v, n_iov, l->out_at, l->out_end, w);
    }
    ssize_t k;
    do k = sendmsg(l->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (k < 0 && errno == EINTR);
    if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return 0;
    if (k < 0) {
        group_ended(r, strerror(errno));
        return -1;
    }
    *(l->seal_out.ctx ? &l->record_at : &l->out_at) += (size_t)k;
    return k;
}

bool group_has_more(const struct group_lane *l) {
    return l->out_at < l->out_end || l->record_at < l->record_n;
}

bool group_tcp_push(struct group_rank *r, const struct iovec *v, int n_iov) {
    for (bool moved = true; moved;) {
        bool more = moved = false;
        for (u32 i = 0; i < r->n_lanes; i++) {
            struct group_lane *l = &r->lane[i];
            if (!group_has_more(l)) continue;
            ssize_t k = push(r, l, v, n_iov);
            if (k < 0) return true;
            moved |= k > 0;
            more |= group_has_more(l);
        }
        if (!more) return true;
    }
    return false;
}

short group_tcp_events(const struct group_rank *r, u32 i, bool sends) {
    return (short)((lane_wants(r, i) ? POLLIN : 0) |
                   (sends && group_has_more(&r->lane[i]) ? POLLOUT : 0));
}
