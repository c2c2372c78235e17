#include <stdlib.h>
#include <string.h>

#include "comm/group_internal.h"

/* The first byte says how many connections share large frames, the second in how large pieces the
 * rest arrives. What has been received is looked at to its end, and no more of it is kept than was
 * sent. */
int LLVMFuzzerTestOneInput(const u8 *data, size_t n);
int LLVMFuzzerTestOneInput(const u8 *data, size_t n) {
    if (n < 2) return 0;
    struct group_rank r = {.n_lanes = 1 + data[0] % GROUP_STREAMS_MAX};
    size_t step = 1 + data[1] * 37u, got = 0, sum = 0;
    bool ok = true;
    r.stage = calloc(1, GROUP_STAGE_BYTES);
    for (size_t at = 2; ok && at < n; at += step) {
        size_t part = MIN(step, n - at);
        if (!r.filling && !r.head_n) { /* as the socket's bytes arrive */
            part = MIN(part, (size_t)GROUP_STAGE_BYTES);
            memcpy(group_buf_guess(&r)->body - FRAME_HEAD_BYTES, data + at, part);
            ok = group_frame_guessed(&r, part);
        } else {
            ok = group_feed(&r, data + at, part);
        }
    }
    for (const struct group_buf *b = r.ready; b; b = b->next) {
        got += b->n;
        for (size_t i = 0; i < b->n; i++) sum += b->body[i];
    }
    if (got > n || got != r.ready_bytes || sum == SIZE_MAX) abort();
    group_bufs_free(r.ready);
    group_bufs_free(r.filling);
    group_bufs_free(r.spare);
    free(r.stage);
    return 0;
}
