#include "wire/frame.h"

#include <string.h>

#include "base/buf.h"
#include "wire/msg.h"

void frame_in_deinit(struct frame_in *f) {
    str_deinit(&f->bytes);
    f->off = 0;
}

void frame_in_add(struct frame_in *f, const void *p, size_t n) {
    if (f->off) { /* keep what is not consumed at the front, so the buffer stays as small as a frame
                   */
        size_t left = f->bytes.n - f->off;
        memmove(f->bytes.p, f->bytes.p + f->off, left);
        f->bytes.n = left;
        f->off = 0;
    }
    str_add(&f->bytes, p, n);
}

int frame_in_next(struct frame_in *f, struct frame *out, struct err *e) {
    struct rd r = rd_of(f->bytes.p ? f->bytes.p + f->off : "", f->bytes.n - f->off);
    if (rd_left(&r) < FRAME_HEAD_BYTES) return 0;
    u32 n = rd_u32(&r);
    if (n < 2 || n > FRAME_MAX_BYTES) {
        err_set(e, ERR_FORMAT, "a frame of %u bytes: the stream is broken", n);
        return -1;
    }
    if (rd_left(&r) < n) return 0;
    out->type = rd_u16(&r);
    out->n = n - 2;
    out->body = rd_bytes(&r, out->n);
    f->off += 4 + (size_t)n;
    return 1;
}

void frame_add_bytes(struct str *out, u32 type, const void *body, size_t n) {
    ASSERT(n <= FRAME_MAX_BYTES - 2 && type <= UINT16_MAX);
    wr_u32(out, (u32)n + 2);
    wr_u16(out, (u16)type);
    str_add(out, body, n);
}

void frame_add(struct str *out, u32 type, const void *msg) {
    const struct wire_table *t = msg_table(type);
    struct str body = {0};
    if (t) wire_encode(t, msg, &body);
    frame_add_bytes(out, type, body.p, body.n);
    str_deinit(&body);
}
