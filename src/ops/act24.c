#include "ops/act24.h"

#include <string.h>

static u32 bits_of(float f) {
    u32 b;
    memcpy(&b, &f, sizeof b);
    return b;
}

/* Infinities and NaN stay what they are: they have nothing to round to. */
static u32 round_bits(u32 b) {
    u32 odd = b >> 8 & 1, up = (b & 0x7F800000) == 0x7F800000 ? 0 : 0x7F + odd;
    return (b + up) & ~0xFFu;
}

void act24_pack(void *dst, const float *x, u32 n, u32 dim) {
    size_t count = (size_t)n * dim;
    u16 *hi = dst;
    u8 *lo = (u8 *)(hi + count);
    for (size_t i = 0; i < count; i++) {
        u32 b = round_bits(bits_of(x[i]));
        hi[i] = (u16)(b >> 16);
        lo[i] = (u8)(b >> 8);
    }
}

void act24_unpack(float *x, const void *src, u32 n, u32 dim) {
    size_t count = (size_t)n * dim;
    const u16 *hi = src;
    const u8 *lo = (const u8 *)(hi + count);
    for (size_t i = 0; i < count; i++) {
        u32 b = (u32)hi[i] << 16 | (u32)lo[i] << 8;
        memcpy(&x[i], &b, sizeof b);
    }
}

/* As many as compilers make vectors of when they know how many there are. */
enum { STEP = 16 };
static inline void round_some(float *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        u32 b = round_bits(bits_of(x[i]));
        memcpy(&x[i], &b, sizeof b);
    }
}

void act24_round(float *x, u32 n, u32 dim) {
    size_t count = (size_t)n * dim, i = 0;
    for (; i + STEP <= count; i += STEP) round_some(x + i, STEP);
    round_some(x + i, count - i);
}
