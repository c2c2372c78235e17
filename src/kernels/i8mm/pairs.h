/* pairs.h - vectors of bytes multiplied two by two (SMMLA), for MATMUL_PAIRS of matmul.inc. Empty
 * without the flags. */
#pragma once

#include "kernels/neon/dot.h"

#if defined(__ARM_FEATURE_MATMUL_INT8)
/* Eight bytes of each, side by side. */
VINLINE vi vi_pair(const i8 *a, const i8 *b) {
    return vreinterpretq_s32_s8(vcombine_s8(vld1_s8(a), vld1_s8(b)));
}
/* Lanes 0 and 1 of both, in turns. */
VINLINE vi vi_weave(vi a, vi b) {
    return vzip1q_s32(a, b);
}
VINLINE vi vi_weave_high(vi a, vi b) {
    return vzip2q_s32(a, b);
}
VINLINE vf vf_turns(float a, float b) {
    float32x2_t x = vset_lane_f32(b, vdup_n_f32(a), 1);
    return vcombine_f32(x, x);
}
/* acc + products of two rows of w with two vectors of x, eight bytes each: row 0 times each, then
 * row 1. */
VINLINE vi vi_dot_pair(vi acc, vi w, vi x) {
    return vmmlaq_s32(acc, vreinterpretq_s8_s32(w), vreinterpretq_s8_s32(x));
}
/* Lanes 0 and 2, or 1 and 3, of a and then of b. */
VINLINE vi vi_even(vi a, vi b) {
    return vuzp1q_s32(a, b);
}
VINLINE vi vi_odd(vi a, vi b) {
    return vuzp2q_s32(a, b);
}
/* As vi_dot16, for two vectors of 16 bytes: x[k] holds columns 8 * k and up of each. r01 takes row
 * 0 times each vector, then row 1, r23 the other two. */
VINLINE void vi_dot16_pairs(vi *r01, vi *r23, const vi w[4], const vi x[2], const int bits) {
    (void)bits;
    for (int k = 0; k < 2; k++) {
        vi a = w[2 * k], b = w[2 * k + 1];
        int8x16_t y = vreinterpretq_s8_s32(x[k]);
        *r01 = vusmmlaq_s32(*r01, vreinterpretq_u8_s32(vzip1q_s32(a, b)), y);
        *r23 = vusmmlaq_s32(*r23, vreinterpretq_u8_s32(vzip2q_s32(a, b)), y);
    }
}
#endif
