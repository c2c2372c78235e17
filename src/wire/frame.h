/* frame.h - messages on a byte stream: u32 length of what follows, u16 type, body.
 *
 * Used between node and runner and between ranks. struct frame_in collects bytes as they arrive and
 * hands out whole frames; it does no I/O itself. Little-endian. */
#pragma once

#include "base/err.h"
#include "base/str.h"

enum { FRAME_HEAD_BYTES = 6, FRAME_MAX_BYTES = 64 << 20 };

struct frame {
    u32 type;
    const u8 *body; /* borrowed from the frame_in until its next call */
    size_t n;
};

struct frame_in {
    struct str bytes;
    size_t off; /* consumed */
};

void frame_in_deinit(struct frame_in *f);
void frame_in_add(struct frame_in *f, const void *p, size_t n);
/* 1: *out filled; 0: more bytes needed; -1: the stream is broken (*e). */
int frame_in_next(struct frame_in *f, struct frame *out, struct err *e);

/* Appends one frame: the table-encoded message, or a body as it is. */
void frame_add(struct str *out, u32 type, const void *msg);
void frame_add_bytes(struct str *out, u32 type, const void *body, size_t n);
