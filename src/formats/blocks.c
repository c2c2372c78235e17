#include "formats/blocks.h"

#include <string.h>

/* Every function below decodes one block. Layouts are from the block structures of the ggml
 * library (ggml-common.h); MXFP4 is from the OCP Microscaling Formats specification 1.0. The order
 * of the float operations is part of the definition: it makes the result exact to the bit. */

enum { BLOCK = 32, SUPER = 256 }; /* elements in a small and in a K-quant block */

static u16 load_u16(const u8 *p) {
    return (u16)(p[0] | p[1] << 8);
}
static float load_f16(const u8 *p) {
    return f16_to_f32(load_u16(p));
}

static void f32_row(float *y, const u8 *x, u64 n) {
    memcpy(y, x, n * sizeof *y);
}

static void f16_row(float *y, const u8 *x, u64 n) {
    for (u64 i = 0; i < n; i++) y[i] = load_f16(x + 2 * i);
}

static void bf16_row(float *y, const u8 *x, u64 n) {
    for (u64 i = 0; i < n; i++) y[i] = bf16_to_f32(load_u16(x + 2 * i));
}

/* In the formats of 32 elements, byte i of the nibbles holds element i (low) and i + 16 (high). */
static u32 nibble(const u8 *q, u32 i) {
    return i < 16 ? q[i] & 15 : q[i - 16] >> 4;
}

/* f16 d | 16 B nibbles: y = d * (q - 8) */
static void q4_0(float *y, const u8 *x) {
    float d = load_f16(x);
    for (u32 i = 0; i < BLOCK; i++) y[i] = d * (float)((i32)nibble(x + 2, i) - 8);
}

/* f16 d | f16 m | 16 B nibbles: y = d * q + m */
static void q4_1(float *y, const u8 *x) {
    float d = load_f16(x), m = load_f16(x + 2);
    for (u32 i = 0; i < BLOCK; i++) y[i] = d * (float)nibble(x + 4, i) + m;
}

/* Bit i of the u32 at x is the fifth bit of element i. */
static u32 fifth_bit(const u8 *x, u32 i) {
    return (x[i / 8] >> i % 8 & 1u) << 4;
}

/* f16 d | u32 high bits | 16 B nibbles: y = d * (q - 16) */
static void q5_0(float *y, const u8 *x) {
    float d = load_f16(x);
    for (u32 i = 0; i < BLOCK; i++)
        y[i] = d * (float)((i32)(nibble(x + 6, i) | fifth_bit(x + 2, i)) - 16);
}

/* f16 d | f16 m | u32 high bits | 16 B nibbles: y = d * q + m */
static void q5_1(float *y, const u8 *x) {
    float d = load_f16(x), m = load_f16(x + 2);
    for (u32 i = 0; i < BLOCK; i++) y[i] = d * (float)(nibble(x + 8, i) | fifth_bit(x + 4, i)) + m;
}

/* f16 d | 32 i8: y = d * q */
static void q8_0(float *y, const u8 *x) {
    float d = load_f16(x);
    for (u32 i = 0; i < BLOCK; i++) y[i] = d * (float)(i8)x[2 + i];
}

/* K-quants pack 256 elements as two halves of 128; within a half, 32 bytes of 2-bit fields hold
 * elements 0..31 in their lowest field, 32..63 in the next, and so on. */
static u32 crumb(const u8 *q, u32 i) {
    return q[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
}

/* 16 B scales (low nibble) and minima (high) of 16 elements each | 64 B crumbs | f16 d | f16 dmin:
 * y = d * scale * q - dmin * min */
static void q2_k(float *y, const u8 *x) {
    float d = load_f16(x + 80), dmin = load_f16(x + 82);
    for (u32 i = 0; i < SUPER; i++) {
        u8 s = x[i / 16];
        y[i] = d * (float)(s & 15) * (float)crumb(x + 16, i) - dmin * (float)(s >> 4);
    }
}

/* The 16 six-bit scales of Q3_K in 12 bytes: bytes 0..7 hold the low nibbles of scales 0..7 (low)
 * and 8..15 (high), bytes 8..11 the upper two bits of scales j, j+4, j+8, j+12. */
static i32 q3_k_scale(const u8 *s, u32 j) {
    u32 low = j < 8 ? s[j] & 15 : s[j - 8] >> 4;
    return (i32)(low | (s[8 + j % 4] >> j / 4 * 2 & 3u) << 4) - 32;
}

/* 32 B third bits | 64 B crumbs | 12 B scales | f16 d: y = d * scale * (q - 4), where bit k of high
 * byte i belongs to element 32 * k + i and is stored so that 1 means "do not subtract 4". */
static void q3_k(float *y, const u8 *x) {
    float d = load_f16(x + 108);
    for (u32 i = 0; i < SUPER; i++) {
        u32 high = x[i % 32] >> i / 32 & 1;
        i32 q = (i32)crumb(x + 32, i) - (high ? 0 : 4);
        y[i] = d * (float)q3_k_scale(x + 96, i / 16) * (float)q;
    }
}

/* The 8 six-bit scales and minima of Q4_K and Q5_K in 12 bytes: scales 0..3 and minima 0..3 in the
 * low six bits of bytes 0..3 and 4..7; scales and minima 4..7 as nibbles in bytes 8..11 with their
 * upper two bits on top of bytes 0..3 and 4..7. */
static void scale_min_k(const u8 *s, u32 j, u32 *scale, u32 *min) {
    if (j < 4) {
        *scale = s[j] & 63;
        *min = s[4 + j] & 63;
    } else {
        *scale = (s[4 + j] & 15u) | (s[j - 4] >> 6 & 3u) << 4;
        *min = s[4 + j] >> 4 | (s[j] >> 6 & 3u) << 4;
    }
}

/* Nibbles of Q4_K and Q5_K: 32 bytes hold 64 elements, the first 32 of them low. */
static u32 nibble_k(const u8 *q, u32 i) {
    u8 b = q[i / 64 * 32 + i % 32];
    return i % 64 < 32 ? b & 15 : b >> 4;
}

/* f16 d | f16 dmin | 12 B scales and minima of 32 elements each | 128 B nibbles:
 * y = d * scale * q - dmin * min */
static void q4_k(float *y, const u8 *x) {
    float d = load_f16(x), dmin = load_f16(x + 2);
    for (u32 i = 0; i < SUPER; i++) {
        u32 scale, min;
        scale_min_k(x + 4, i / 32, &scale, &min);
        y[i] = d * (float)scale * (float)nibble_k(x + 16, i) - dmin * (float)min;
    }
}

/* As Q4_K, with 32 B before the nibbles whose byte i holds in bit k the fifth bit of 32 * k + i. */
static void q5_k(float *y, const u8 *x) {
    float d = load_f16(x), dmin = load_f16(x + 2);
    for (u32 i = 0; i < SUPER; i++) {
        u32 scale, min, high = x[16 + i % 32] >> i / 32 & 1;
        scale_min_k(x + 4, i / 32, &scale, &min);
        u32 q = nibble_k(x + 48, i) | high << 4;
        y[i] = d * (float)scale * (float)q - dmin * (float)min;
    }
}

/* 128 B low nibbles | 64 B upper crumbs | 16 i8 scales of 16 elements each | f16 d:
 * y = d * scale * (q - 32). In each half of 128, 64 bytes hold elements 0..63 low, 64..127 high. */
static void q6_k(float *y, const u8 *x) {
    float d = load_f16(x + 208);
    for (u32 i = 0; i < SUPER; i++) {
        u8 b = x[i / 128 * 64 + i % 64];
        u32 low = i % 128 < 64 ? b & 15 : b >> 4;
        i32 q = (i32)(low | crumb(x + 128, i) << 4) - 32;
        y[i] = d * (float)(i8)x[192 + i / 16] * (float)q;
    }
}

/* The 16 levels of IQ4_NL and IQ4_XS. */
static const i8 IQ4_LEVELS[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};

/* f16 d | 16 B nibbles: y = d * level[q] */
static void iq4_nl(float *y, const u8 *x) {
    float d = load_f16(x);
    for (u32 i = 0; i < BLOCK; i++) y[i] = d * (float)IQ4_LEVELS[nibble(x + 2, i)];
}

/* f16 d | u16 upper two bits of 8 scales | 4 B their low nibbles | 8 * 16 B nibbles:
 * y = d * (scale - 32) * level[q] */
static void iq4_xs(float *y, const u8 *x) {
    float d = load_f16(x);
    u32 high = load_u16(x + 2);
    for (u32 j = 0; j < SUPER / BLOCK; j++) {
        u32 low = x[4 + j / 2] >> j % 2 * 4 & 15;
        float dl = d * (float)((i32)(low | (high >> 2 * j & 3) << 4) - 32);
        for (u32 i = 0; i < BLOCK; i++)
            y[j * BLOCK + i] = dl * (float)IQ4_LEVELS[nibble(x + 8 + 16 * j, i)];
    }
}

/* E2M1 values times two, so that they are integers. */
static const i8 E2M1_DOUBLED[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* Half of the E8M0 scale, 2^(e - 128); e of 0 and 1 give subnormal floats. */
static float e8m0_half(u8 e) {
    u32 bits = e < 2 ? 0x00200000u << e : (u32)(e - 1) << 23;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* u8 E8M0 scale | 16 B nibbles: y = scale * e2m1[q] */
static void mxfp4(float *y, const u8 *x) {
    float d = e8m0_half(x[0]);
    for (u32 i = 0; i < BLOCK; i++) y[i] = d * (float)E2M1_DOUBLED[nibble(x + 1, i)];
}

typedef void block_fn(float *y, const u8 *x);

static block_fn *const BLOCK_FN[DTYPE_N] = {
    [DTYPE_Q4_0] = q4_0,     [DTYPE_Q4_1] = q4_1, [DTYPE_Q5_0] = q5_0,   [DTYPE_Q5_1] = q5_1,
    [DTYPE_Q8_0] = q8_0,     [DTYPE_Q2_K] = q2_k, [DTYPE_Q3_K] = q3_k,   [DTYPE_Q4_K] = q4_k,
    [DTYPE_Q5_K] = q5_k,     [DTYPE_Q6_K] = q6_k, [DTYPE_MXFP4] = mxfp4, [DTYPE_IQ4_NL] = iq4_nl,
    [DTYPE_IQ4_XS] = iq4_xs,
};

bool blocks_can_decode(u32 type) {
    return type == DTYPE_F32 || type == DTYPE_F16 || type == DTYPE_BF16 ||
           (type < DTYPE_N && BLOCK_FN[type]);
}

void blocks_decode(u32 type, float *dst, const void *src, u64 n) {
    ASSERT(blocks_can_decode(type));
    switch (type) {
    case DTYPE_F32: f32_row(dst, src, n); return;
    case DTYPE_F16: f16_row(dst, src, n); return;
    case DTYPE_BF16: bf16_row(dst, src, n); return;
    default: break;
    }
    const struct dtype_info *info = dtype_info(type);
    ASSERT(n % info->block_elems == 0);
    const u8 *x = src;
    for (u64 i = 0; i < n; i += info->block_elems, x += info->block_bytes)
        BLOCK_FN[type](dst + i, x);
}
