#include "base/buf.h"

#include <string.h>

const void *rd_bytes(struct rd *r, u64 n) {
    if (r->bad || n > r->n - r->off) {
        r->bad = true;
        return NULL;
    }
    const u8 *p = r->p ? r->p + r->off : (const u8 *)"";
    r->off += n;
    return p;
}

static void rd_into(struct rd *r, void *out, size_t n) {
    const void *p = rd_bytes(r, n);
    if (p)
        memcpy(out, p, n);
    else
        memset(out, 0, n);
}

u8 rd_u8(struct rd *r) {
    u8 v;
    rd_into(r, &v, sizeof v);
    return v;
}
u16 rd_u16(struct rd *r) {
    u16 v;
    rd_into(r, &v, sizeof v);
    return v;
}
u32 rd_u32(struct rd *r) {
    u32 v;
    rd_into(r, &v, sizeof v);
    return v;
}
u64 rd_u64(struct rd *r) {
    u64 v;
    rd_into(r, &v, sizeof v);
    return v;
}
float rd_f32(struct rd *r) {
    float v;
    rd_into(r, &v, sizeof v);
    return v;
}
double rd_f64(struct rd *r) {
    double v;
    rd_into(r, &v, sizeof v);
    return v;
}

u64 rd_varint(struct rd *r) {
    u64 v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        u8 b = rd_u8(r);
        if (shift == 63 && b > 1) break; /* would not fit in 64 bits */
        v |= (u64)(b & 0x7F) << shift;
        if (!(b & 0x80)) return r->bad ? 0 : v;
    }
    r->bad = true;
    return 0;
}

void wr_u8(struct str *s, u8 v) {
    str_add(s, &v, sizeof v);
}
void wr_u16(struct str *s, u16 v) {
    str_add(s, &v, sizeof v);
}
void wr_u32(struct str *s, u32 v) {
    str_add(s, &v, sizeof v);
}
void wr_u64(struct str *s, u64 v) {
    str_add(s, &v, sizeof v);
}
void wr_f32(struct str *s, float v) {
    str_add(s, &v, sizeof v);
}

void wr_varint(struct str *s, u64 v) {
    while (v >= 0x80) {
        wr_u8(s, (u8)(v | 0x80));
        v >>= 7;
    }
    wr_u8(s, (u8)v);
}
