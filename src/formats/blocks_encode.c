#include "formats/blocks.h"

#include <math.h>
#include <string.h>

/* Layouts are described in blocks.c. Scales are rounded to f16 after the levels were chosen, as in
 * the ggml library. */

enum { BLOCK = 32 };

static void store_u16(u8 *p, u16 v) {
    memcpy(p, &v, sizeof v);
}

/* The element of largest magnitude, with its sign. */
static float extreme(const float *x) {
    float m = 0;
    for (u32 i = 0; i < BLOCK; i++)
        if (fabsf(x[i]) > fabsf(m)) m = x[i];
    return m;
}

/* Nearest level of (x - origin) / d, within 0..top. */
static u32 level(float x, float origin, float inv_d, u32 top) {
    float q = (x - origin) * inv_d + 0.5f;
    return q <= 0 ? 0 : MIN((u32)q, top);
}

/* Levels to nibbles and, for 5-bit formats (high not NULL), the u32 of fifth bits. */
static void pack(const u32 q[BLOCK], u8 *nibbles, u8 *high) {
    for (u32 i = 0; i < BLOCK / 2; i++)
        nibbles[i] = (u8)((q[i] & 15) | (q[i + BLOCK / 2] & 15) << 4);
    if (!high) return;
    memset(high, 0, 4);
    for (u32 i = 0; i < BLOCK; i++) high[i / 8] |= (u8)(q[i] >> 4 << i % 8);
}

/* y = d * (q - top/2 - 1/2): the extreme element gets level 0, so d has the opposite sign. */
static void symmetric(u8 *y, const float *x, u32 top, u8 *nibbles, u8 *high) {
    u32 q[BLOCK];
    float half = (float)((top + 1) / 2), d = extreme(x) / -half;
    for (u32 i = 0; i < BLOCK; i++) q[i] = level(x[i], -half * d, d != 0 ? 1 / d : 0, top);
    store_u16(y, f32_to_f16(d));
    pack(q, nibbles, high);
}

/* y = d * q + m */
static void affine(u8 *y, const float *x, u32 top, u8 *nibbles, u8 *high) {
    u32 q[BLOCK];
    float lo = x[0], hi = x[0];
    for (u32 i = 1; i < BLOCK; i++) {
        lo = fminf(lo, x[i]);
        hi = fmaxf(hi, x[i]);
    }
    float d = (hi - lo) / (float)top;
    for (u32 i = 0; i < BLOCK; i++) q[i] = level(x[i], lo, d > 0 ? 1 / d : 0, top);
    store_u16(y, f32_to_f16(d));
    store_u16(y + 2, f32_to_f16(lo));
    pack(q, nibbles, high);
}

static void q8_0(u8 *y, const float *x) {
    float d = fabsf(extreme(x)) / 127, inv_d = d > 0 ? 1 / d : 0;
    store_u16(y, f32_to_f16(d));
    for (u32 i = 0; i < BLOCK; i++) y[2 + i] = (u8)(i8)roundf(x[i] * inv_d);
}

static void encode_block(u32 type, u8 *y, const float *x) {
    switch (type) {
    case DTYPE_F32: memcpy(y, x, sizeof *x); break;
    case DTYPE_F16: store_u16(y, f32_to_f16(*x)); break;
    case DTYPE_BF16: store_u16(y, f32_to_bf16(*x)); break;
    case DTYPE_Q4_0: symmetric(y, x, 15, y + 2, NULL); break;
    case DTYPE_Q5_0: symmetric(y, x, 31, y + 6, y + 2); break;
    case DTYPE_Q4_1: affine(y, x, 15, y + 4, NULL); break;
    case DTYPE_Q5_1: affine(y, x, 31, y + 8, y + 4); break;
    default: q8_0(y, x); break;
    }
}

bool blocks_can_encode(u32 type) {
    switch (type) {
    case DTYPE_F32:
    case DTYPE_F16:
    case DTYPE_BF16:
    case DTYPE_Q4_0:
    case DTYPE_Q4_1:
    case DTYPE_Q5_0:
    case DTYPE_Q5_1:
    case DTYPE_Q8_0: return true;
    default: return false;
    }
}

void blocks_encode(u32 type, void *dst, const float *src, u64 n) {
    const struct dtype_info *info = dtype_info(type);
    ASSERT(blocks_can_encode(type) && n % info->block_elems == 0);
    u8 *y = dst;
    for (u64 i = 0; i < n; i += info->block_elems, y += info->block_bytes)
        encode_block(type, y, src + i);
}
