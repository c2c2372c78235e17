#include "kernels/codes.h"

#include <string.h>

const i8 CODES_LUT_IQ4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                              1,    13,   25,  38,  53,  69,  89,  113};
/* FP4 E2M1, doubled. */
const i8 CODES_LUT_MXFP4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static u16 load16(const u8 *p) {
    u16 v;
    memcpy(&v, p, 2);
    return v;
}

/* Sixteen bytes: element k in the low, 16 + k in the high nibble of byte k. */
static void nibbles(u8 *c, const u8 *qs) {
    for (int k = 0; k < 16; k++) {
        c[k] = qs[k] & 15;
        c[16 + k] = qs[k] >> 4;
    }
}

static void add_bit5(u8 *c, const u8 *qh) {
    u32 bits;
    memcpy(&bits, qh, 4);
    for (int k = 0; k < 32; k++) c[k] |= (u8)((bits >> k & 1) << 4);
}

/* The 6-bit scales and minimums of Q4_K and Q5_K: eight of each in 12 bytes. */
static void scale_min_k4(const u8 *q, u32 s, struct codes *out) {
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

/* scales[16] d-less head: 16 bytes (scale low, minimum high nibble), 64 bytes of 2-bit codes, d, m.
 */
static void read_q2_k(const u8 *b, u32 s, struct codes *out) {
    for (int k = 0; k < 32; k++) out->c[k] = b[16 + 32 * (s / 4) + (u32)k] >> 2 * (s % 4) & 3;
    for (u32 h = 0; h < 2; h++) {
        out->sc[h] = b[2 * s + h] & 15;
        out->mc[h] = (i8) - (b[2 * s + h] >> 4);
    }
    out->d = load16(b + 80);
    out->m = load16(b + 82);
}

/* hmask[32] (third bit), 64 bytes of 2-bit codes, sixteen 6-bit scales in 12 bytes, d. */
static void read_q3_k(const u8 *b, u32 s, struct codes *out) {
    const u8 *qs = b + 32 + 32 * (s / 4), *sc = b + 96;
    for (int k = 0; k < 32; k++)
        out->c[k] = (u8)((qs[k] >> 2 * (s % 4) & 3) | (b[k] >> s & 1) << 2);
    for (u32 h = 0; h < 2; h++) {
        u32 i = 2 * s + h;
        int lo = i < 8 ? sc[i] & 15 : sc[i - 8] >> 4, hi = sc[8 + i % 4] >> 2 * (i / 4) & 3;
        out->sc[h] = (i8)((lo | hi << 4) - 32);
    }
    out->d = load16(b + 108);
}

/* d, m, 12 bytes of scales, (Q5_K: qh[32], bit s of byte k belongs to block s), 128 of nibbles. */
static void read_q45_k(const u8 *b, u32 s, struct codes *out, bool five) {
    const u8 *qs = b + (five ? 48 : 16) + 32 * (s / 2);
    for (int k = 0; k < 32; k++) out->c[k] = qs[k] >> 4 * (s % 2) & 15;
    if (five)
        for (int k = 0; k < 32; k++) out->c[k] |= (u8)((b[16 + k] >> s & 1) << 4);
    out->d = load16(b);
    out->m = load16(b + 2);
    scale_min_k4(b + 4, s, out);
}

/* 128 bytes of low nibbles, 64 of high pairs, 16 signed scales, d. */
static void read_q6_k(const u8 *b, u32 s, struct codes *out) {
    u32 n = s / 4, k = s % 4;
    const u8 *lo = b + 64 * n + 32 * (k & 1), *hi = b + 128 + 32 * n;
    for (int i = 0; i < 32; i++)
        out->c[i] = (u8)((lo[i] >> (k < 2 ? 0 : 4) & 15) | (hi[i] >> 2 * k & 3) << 4);
    for (u32 h = 0; h < 2; h++) out->sc[h] = (i8)b[192 + 2 * s + h];
    out->d = load16(b + 208);
}

/* d, 16 bits of scale tops, 4 bytes of scale nibbles, 128 of codes. */
static void read_iq4_xs(const u8 *b, u32 s, struct codes *out) {
    int lo = b[4 + s / 2] >> 4 * (s % 2) & 15, hi = load16(b + 2) >> 2 * s & 3;
    nibbles(out->c, b + 8 + 16 * s);
    out->d = load16(b);
    out->sc[0] = out->sc[1] = (i8)((lo | hi << 4) - 32);
}

void codes_read(u32 type, const u8 *row, u64 i, struct codes *out) {
    const struct dtype_info *t = dtype_info(type);
    u32 n_sub = t->block_elems / 32, s = (u32)(i % n_sub);
    const u8 *b = row + i / n_sub * t->block_bytes;
    out->m = 0;
    out->sc[0] = out->sc[1] = out->mc[0] = out->mc[1] = 1;
    switch (type) {
    case DTYPE_Q4_0:
    case DTYPE_IQ4_NL:
        out->d = load16(b);
        nibbles(out->c, b + 2);
        break;
    case DTYPE_Q4_1:
        out->d = load16(b);
        out->m = load16(b + 2);
        nibbles(out->c, b + 4);
        break;
    case DTYPE_Q5_0:
        out->d = load16(b);
        nibbles(out->c, b + 6);
        add_bit5(out->c, b + 2);
        break;
    case DTYPE_Q5_1:
        out->d = load16(b);
        out->m = load16(b + 2);
        nibbles(out->c, b + 8);
        add_bit5(out->c, b + 4);
        break;
    case DTYPE_Q8_0:
        out->d = load16(b);
        for (int k = 0; k < 32; k++) out->c[k] = b[2 + k] ^ 0x80;
        break;
    case DTYPE_MXFP4:
        out->d = b[0];
        nibbles(out->c, b + 1);
        break;
    case DTYPE_Q2_K: read_q2_k(b, s, out); break;
    case DTYPE_Q3_K: read_q3_k(b, s, out); break;
    case DTYPE_Q4_K: read_q45_k(b, s, out, false); break;
    case DTYPE_Q5_K: read_q45_k(b, s, out, true); break;
    case DTYPE_Q6_K: read_q6_k(b, s, out); break;
    case DTYPE_IQ4_XS: read_iq4_xs(b, s, out); break;
    default: ASSERT(!"a quantized type");
    }
}
