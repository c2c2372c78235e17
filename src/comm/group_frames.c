#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/noalloc.h"
#include "base/str.h"
#include "comm/group_internal.h"

void group_bufs_free(struct group_buf *b) {
    while (b) {
        struct group_buf *next = b->next;
        if (b->body) free(b->body - GROUP_BUF_PAD);
        free(b);
        b = next;
    }
}

struct group_buf *group_buf_take(struct group_rank *r, size_t n) {
    struct group_buf *b = r->spare;
    if (b && b->cap >= n) {
        r->spare = b->next;
        b->next = NULL;
        return b;
    }
    u32 promise = noalloc_pause();
    if (b)
        r->spare = b->next;
    else
        b = xcalloc(1, sizeof *b);
    if (b->body) free(b->body - GROUP_BUF_PAD);
    b->next = NULL;
    b->cap =
        (size_t)align_up(GROUP_BUF_PAD + MAX(n, (size_t)GROUP_STAGE_BYTES), 4096) - GROUP_BUF_PAD;
    u8 *mem = aligned_alloc(64, GROUP_BUF_PAD + b->cap);
    if (!mem) abort(); /* as xcalloc does */
    b->body = mem + GROUP_BUF_PAD;
    noalloc_resume(promise);
    return b;
}

void group_buf_give(struct group_rank *r, struct group_buf *b) {
    b->next = r->spare;
    r->spare = b;
}

struct group_buf *group_buf_guess(struct group_rank *r) {
    struct group_buf *b = group_buf_take(r, GROUP_STAGE_BYTES);
    group_buf_give(r, b);
    return b;
}

void group_ended(struct group_rank *r, const char *why) {
    if (r->ended) return;
    r->ended = true;
    str_copy(r->why, sizeof r->why, why);
}

/* A share is larger than the stage, so that the stage never holds more than the first one. */
u32 group_stripes(const struct group_rank *r, size_t n_body) {
    bool one =
        r->shm || r->on_fabric || r->n_lanes < 2 || n_body / r->n_lanes < 2 * GROUP_STAGE_BYTES;
    return one ? 1 : r->n_lanes;
}

size_t group_share_at(size_t n_body, u32 n_lanes, u32 i) {
    return i == n_lanes ? n_body : n_body / n_lanes / 64 * 64 * i;
}

bool group_frame_begin(struct group_rank *r, const u8 head[FRAME_HEAD_BYTES]) {
    u32 n;
    u16 type;
    memcpy(&n, head, 4);
    memcpy(&type, head + 4, 2);
    r->head_n = 0;
    if (n < 2 || n > FRAME_MAX_BYTES) return false;
    n -= 2;
    r->filling = group_buf_take(r, n);
    r->filling->type = type;
    r->filling->n = n;
    u32 n_lanes = group_stripes(r, n);
    for (u32 i = 0; i < MAX(r->n_lanes, 1u); i++) {
        r->lane[i].in_at = i < n_lanes ? group_share_at(n, n_lanes, i) : 0;
        r->lane[i].in_end = i < n_lanes ? group_share_at(n, n_lanes, i + 1) : 0;
    }
    return true;
}

bool group_frame_finish(struct group_rank *r) {
    struct group_buf *b = r->filling;
    for (u32 i = 0; i < MAX(r->n_lanes, 1u); i++)
        if (r->lane[i].in_at < r->lane[i].in_end) return false;
    r->filling = NULL;
    r->ready_bytes += b->n;
    if (r->ready_last)
        r->ready_last->next = b;
    else
        r->ready = b;
    r->ready_last = b;
    return true;
}

bool group_feed(struct group_rank *r, const u8 *p, size_t n) {
    struct group_lane *l = &r->lane[0];
    for (size_t part; n; p += part, n -= part) {
        if (r->filling) {
            part = MIN(n, l->in_end - l->in_at);
            if (!part) return false; /* nothing may follow before the other shares are there */
            memcpy(r->filling->body + l->in_at, p, part);
            l->in_at += part;
        } else {
            part = MIN(n, sizeof r->head - r->head_n);
            memcpy(r->head + r->head_n, p, part);
            r->head_n += (u32)part;
            if (r->head_n < sizeof r->head) continue;
            if (!group_frame_begin(r, r->head)) return false;
        }
        group_frame_finish(r);
    }
    return true;
}

bool group_frame_guessed(struct group_rank *r, size_t n) {
    struct group_lane *l = &r->lane[0];
    const struct group_buf *guess = r->spare;
    u32 n_body;
    memcpy(r->head, guess->body - sizeof r->head, sizeof r->head);
    r->head_n = (u32)MIN(n, sizeof r->head);
    if (n < sizeof r->head) return true;
    n -= sizeof r->head;
    memcpy(&n_body, r->head, 4);
    bool fits = n_body >= 2 && n_body - 2 <= guess->cap;
    size_t mine = fits ? MIN(n, (size_t)n_body - 2) : 0, more = n - mine;
    memcpy(r->stage, guess->body + mine, more);
    if (!group_frame_begin(r, r->head)) return false;
    l->in_at += mine;
    group_frame_finish(r);
    return group_feed(r, r->stage, more);
}
