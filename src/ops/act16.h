/* act16.h - the hidden state as it travels between pipeline stages: f16, with a power of two a
 * token.
 *
 * Some models (Gemma 3) have hidden states beyond f16's 65,504. A token whose largest element would
 * not fit is divided by a power of two, which costs no precision. Layout: n f32 scales, then n rows
 * of dim u16. act16_round gives the same bits as packing and unpacking: every model rounds its
 * hidden state so after each layer, and an answer does not depend on where, or whether, the layers
 * are cut. Pure. */
#pragma once

#include "kernels/kernels.h"

u64 act16_bytes(u32 n, u32 dim);
/* dst: act16_bytes, aligned to 4. x may be scaled in place: it is not the caller's any more. */
void act16_pack(const struct kernels *k, void *dst, float *x, u32 n, u32 dim);
/* src: aligned to 2. */
void act16_unpack(const struct kernels *k, float *x, const void *src, u32 n, u32 dim);
/* In place. */
void act16_round(const struct kernels *k, float *x, u32 n, u32 dim);
