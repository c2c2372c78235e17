#include "ops/act16.h"

#include <math.h>
#include <string.h>

/* The power of two by which a row is multiplied on the way in: 1 unless its largest element passes
 * 32,768. */
static float row_scale(const float *x, u32 dim) {
    float max = 0;
    for (u32 i = 0; i < dim; i++) max = fabsf(x[i]) > max ? fabsf(x[i]) : max;
    if (max <= 32768 || !isfinite(max)) return 1;
    int exp;
    frexpf(max, &exp); /* max < 2^exp */
    return ldexpf(1, 15 - exp);
}

static void row_pack(const struct kernels *k, u16 *dst, float *x, u32 dim, float scale) {
    if (scale != 1) k->scale(x, scale, dim);
    k->to_f16(dst, x, dim);
}

static void row_unpack(const struct kernels *k, float *x, const u16 *src, u32 dim, float scale) {
    k->from_f16(x, src, dim);
    if (scale != 1) k->scale(x, 1 / scale, dim);
}

u64 act16_bytes(u32 n, u32 dim) {
    return (u64)n * (sizeof(float) + (u64)dim * sizeof(u16));
}

void act16_pack(const struct kernels *k, void *dst, float *x, u32 n, u32 dim) {
    u16 *rows = (u16 *)((float *)dst + n);
    for (u32 i = 0; i < n; i++) {
        float scale = row_scale(x + (size_t)i * dim, dim);
        ((float *)dst)[i] = scale;
        row_pack(k, rows + (size_t)i * dim, x + (size_t)i * dim, dim, scale);
    }
}

void act16_unpack(const struct kernels *k, float *x, const void *src, u32 n, u32 dim) {
    for (u32 i = 0; i < n; i++) {
        float scale;
        memcpy(&scale, (const u8 *)src + i * sizeof scale, sizeof scale);
        row_unpack(k, x + (size_t)i * dim,
                   (const u16 *)((const u8 *)src + n * sizeof scale) + (size_t)i * dim, dim, scale);
    }
}

void act16_round(const struct kernels *k, float *x, u32 n, u32 dim) {
    u16 part[512];
    for (u32 i = 0; i < n; i++, x += dim) {
        float scale = row_scale(x, dim);
        for (u32 at = 0; at < dim; at += ARRAY_LEN(part)) {
            u32 len = MIN(dim - at, (u32)ARRAY_LEN(part));
            row_pack(k, part, x + at, len, scale);
            row_unpack(k, x + at, part, len, scale);
        }
    }
}
