/* buf.h - bounded reading and writing of little-endian bytes.
 *
 * struct rd walks borrowed bytes and never passes their end: a read beyond it sets `bad`, returns
 * zeros, and stays bad, so a parser checks once per record instead of once per field. Writing goes
 * to a struct str. */
#pragma once

#include "base/base.h"
#include "base/str.h"

struct rd {
    const u8 *p;
    size_t n, off;
    bool bad;
};

static inline struct rd rd_of(const void *p, size_t n) {
    return (struct rd){.p = p, .n = n};
}
static inline size_t rd_left(const struct rd *r) {
    return r->bad ? 0 : r->n - r->off;
}
/* n borrowed bytes, or NULL and bad. n == 0 gives a valid pointer. */
const void *rd_bytes(struct rd *r, u64 n);
u8 rd_u8(struct rd *r);
u16 rd_u16(struct rd *r);
u32 rd_u32(struct rd *r);
u64 rd_u64(struct rd *r);
float rd_f32(struct rd *r);
double rd_f64(struct rd *r);
/* LEB128, at most 10 bytes. */
u64 rd_varint(struct rd *r);

void wr_u8(struct str *s, u8 v);
void wr_u16(struct str *s, u16 v);
void wr_u32(struct str *s, u32 v);
void wr_u64(struct str *s, u64 v);
void wr_f32(struct str *s, float v);
void wr_varint(struct str *s, u64 v);
