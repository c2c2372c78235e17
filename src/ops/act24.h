/* act24.h - the hidden state as it travels between pipeline stages: the upper 24 bits of each f32.
 *
 * Every model rounds its hidden state so after each layer, whether the layers are cut there or not,
 * and an answer does not depend on how they are dealt. 15 bits of mantissa keep that rounding far
 * below what the kernels round anyway; f16 would be a third shorter, but its 10 bits were the
 * largest error of the whole forward pass, and its range too small for some models (Gemma 3).
 * Layout: n rows of dim u16, the upper bits, then n rows of dim u8. Pure. */
#pragma once

#include "base/base.h"

static inline u64 act24_bytes(u32 n, u32 dim) {
    return (u64)n * dim * 3;
}
/* dst: act24_bytes, aligned to 2. */
void act24_pack(void *dst, const float *x, u32 n, u32 dim);
/* src: aligned to 2. */
void act24_unpack(float *x, const void *src, u32 n, u32 dim);
/* In place: to nearest, ties to even; the same bits as packing and unpacking. */
void act24_round(float *x, u32 n, u32 dim);
