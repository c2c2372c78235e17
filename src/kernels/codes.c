#include "kernels/codes.h"

#include <string.h>

#include "kernels/codes_head.h"

const i8 CODES_LUT_IQ4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                              1,    13,   25,  38,  53,  69,  89,  113};
/* FP4 E2M1, doubled. */
const i8 CODES_LUT_MXFP4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

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

static void pairs(u8 *c, const u8 *b, u32 s) {
    for (int k = 0; k < 32; k++) c[k] = b[32 * (s / 4) + (u32)k] >> 2 * (s % 4) & 3;
}

/* After a head of 16 (48 with a fifth bit) bytes 128 of nibbles, of which a block of 32 has one
 * each. */
static void read_q45_k(const u8 *b, u32 s, struct codes *out, bool five) {
    const u8 *qs = b + (five ? 48 : 16) + 32 * (s / 2);
    for (int k = 0; k < 32; k++) out->c[k] = qs[k] >> 4 * (s % 2) & 15;
    if (five)
        for (int k = 0; k < 32; k++) out->c[k] |= (u8)((b[16 + k] >> s & 1) << 4);
}

/* 128 bytes of low nibbles, 64 of high pairs, 16 signed scales, d. */
static void read_q6_k(const u8 *b, u32 s, struct codes *out) {
    u32 n = s / 4, k = s % 4;
    const u8 *lo = b + 64 * n + 32 * (k & 1), *hi = b + 128 + 32 * n;
    for (int i = 0; i < 32; i++)
        out->c[i] = (u8)((lo[i] >> (k < 2 ? 0 : 4) & 15) | (hi[i] >> 2 * k & 3) << 4);
}

void codes_read(u32 type, const u8 *row, u64 i, struct codes *out) {
    const struct dtype_info *t = dtype_info(type);
    u32 n_sub = t->block_elems / 32, s = (u32)(i % n_sub);
    const u8 *b = row + i / n_sub * t->block_bytes;
    codes_read_head(type, b, s, out);
    switch (type) {
    case DTYPE_Q4_0:
    case DTYPE_IQ4_NL: nibbles(out->c, b + 2); break;
    case DTYPE_Q4_1: nibbles(out->c, b + 4); break;
    case DTYPE_Q5_0:
        nibbles(out->c, b + 6);
        add_bit5(out->c, b + 2);
        break;
    case DTYPE_Q5_1:
        nibbles(out->c, b + 8);
        add_bit5(out->c, b + 4);
        break;
    case DTYPE_Q8_0:
        for (int k = 0; k < 32; k++) out->c[k] = b[2 + k] ^ 0x80;
        break;
    case DTYPE_MXFP4: nibbles(out->c, b + 1); break;
    case DTYPE_Q2_K: pairs(out->c, b + 16, s); break;
    case DTYPE_Q3_K:
        pairs(out->c, b + 32, s);
        for (int k = 0; k < 32; k++) out->c[k] |= (u8)((b[k] >> s & 1) << 2);
        break;
    case DTYPE_Q4_K: read_q45_k(b, s, out, false); break;
    case DTYPE_Q5_K: read_q45_k(b, s, out, true); break;
    case DTYPE_Q6_K: read_q6_k(b, s, out); break;
    case DTYPE_IQ4_XS: nibbles(out->c, b + 8 + 16 * s); break;
    default: ASSERT(!"a quantized type");
    }
}
