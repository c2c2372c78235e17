/* codes_head.h - scales and minimums of the file's blocks: the half of codes_read that isn't codes.
 *
 * Inline, so that packing, which knows the format while it is compiled, pays no call for a block.
 * For codes.c and pack16.c; everybody else has codes_read. Pure; any thread. */
#pragma once

#include <string.h>

#include "kernels/codes.h"

static inline u16 codes_load16(const u8 *p) {
    u16 v;
    memcpy(&v, p, 2);
    return v;
}

/* The 6-bit scales and minimums of Q4_K and Q5_K: eight of each in 12 bytes. */
static inline void codes_scale_min_k4(const u8 *q, u32 s, struct codes *out) {
    int sc, m;
    if (s < 4) {
        sc = q[s] & 63;
        m = q[s + 4] & 63;
    } else {
        sc = (q[s + 4] & 15) | (q[s - 4] >> 6) << 4;
        m = q[s + 4] >> 4 | (q[s] >> 6) << 4;
    }
    out->sc[0] = out->sc[1] = (i8)sc;
    out->mc[0] = out->mc[1] = (i8)-m;
}

/* Q3_K: sixteen 6-bit scales in 12 bytes, less 32. */
static inline int codes_scale_q3_k(const u8 *sc, u32 i) {
    int lo = i < 8 ? sc[i] & 15 : sc[i - 8] >> 4, hi = sc[8 + i % 4] >> 2 * (i / 4) & 3;
    return (lo | hi << 4) - 32;
}

/* d, m, sc and mc of the s-th 32 elements of the block at b; the codes stay as they are. */
static inline void codes_read_head(u32 type, const u8 *b, u32 s, struct codes *out) {
    out->d = codes_load16(b);
    out->m = 0;
    out->sc[0] = out->sc[1] = out->mc[0] = out->mc[1] = 1;
    switch (type) {
    case DTYPE_Q4_1:
    case DTYPE_Q5_1: out->m = codes_load16(b + 2); break;
    case DTYPE_MXFP4: out->d = b[0]; break;
    case DTYPE_Q2_K: /* 16 bytes (scale low, minimum high nibble), 64 of 2-bit codes, d, m */
        out->d = codes_load16(b + 80);
        out->m = codes_load16(b + 82);
        for (u32 h = 0; h < 2; h++) {
            out->sc[h] = b[2 * s + h] & 15;
            out->mc[h] = (i8) - (b[2 * s + h] >> 4);
        }
        break;
    case DTYPE_Q3_K: /* hmask[32] (third bit), 64 of 2-bit codes, 12 of scales, d */
        out->d = codes_load16(b + 108);
        for (u32 h = 0; h < 2; h++) out->sc[h] = (i8)codes_scale_q3_k(b + 96, 2 * s + h);
        break;
    case DTYPE_Q4_K: /* d, m, 12 of scales and minimums */
    case DTYPE_Q5_K:
        out->m = codes_load16(b + 2);
        codes_scale_min_k4(b + 4, s, out);
        break;
    case DTYPE_Q6_K:
        out->d = codes_load16(b + 208);
        for (u32 h = 0; h < 2; h++) out->sc[h] = (i8)b[192 + 2 * s + h];
        break;
    case DTYPE_IQ4_XS: { /* d, 16 bits of scale tops, 4 bytes of scale nibbles */
        int lo = b[4 + s / 2] >> 4 * (s % 2) & 15, hi = codes_load16(b + 2) >> 2 * s & 3;
        out->sc[0] = out->sc[1] = (i8)((lo | hi << 4) - 32);
        break;
    }
    default: break;
    }
}
