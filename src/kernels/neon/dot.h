/* dot.h - byte and word products of 128-bit registers, for neon/, dotprod/ and i8mm/: bytes take
 * one instruction with the flags of the latter two, six without. Empty elsewhere. */
#pragma once

#include "kernels/neon/vec.h"

#if defined(__aarch64__)

/* Codes less off, as signed bytes. */
VINLINE vi vi_signed(vi a, const int off) {
    if (off == 128) return vi_flip(a);
    return off ? vreinterpretq_s32_s8(vsubq_s8(vreinterpretq_s8_s32(a), vdupq_n_s8((i8)off))) : a;
}

/* acc + sum over 16 columns of w (codes below 2^bits) times a (bytes, -127..127), exact. Where
 * there is no product of unsigned bytes, 8-bit codes stand for code - 128; smaller ones are the
 * same read as signed. */
#if defined(__ARM_FEATURE_MATMUL_INT8)
enum { DOT_SIGNED = 0 };
VINLINE vi vi_dot16(vi acc, const vi w[4], const i8 *a, const int bits) {
    const int8x16_t x = vld1q_s8(a);
    (void)bits;
    acc = vusdotq_laneq_s32(acc, vreinterpretq_u8_s32(w[0]), x, 0);
    acc = vusdotq_laneq_s32(acc, vreinterpretq_u8_s32(w[1]), x, 1);
    acc = vusdotq_laneq_s32(acc, vreinterpretq_u8_s32(w[2]), x, 2);
    return vusdotq_laneq_s32(acc, vreinterpretq_u8_s32(w[3]), x, 3);
}
#else
enum { DOT_SIGNED = 1 };
#if defined(__ARM_FEATURE_DOTPROD)
VINLINE vi vi_dot16(vi acc, const vi w[4], const i8 *a, const int bits) {
    int8x16_t x = vld1q_s8(a), s[4];
    for (int j = 0; j < 4; j++) s[j] = vreinterpretq_s8_s32(bits == 8 ? vi_flip(w[j]) : w[j]);
    acc = vdotq_laneq_s32(acc, s[0], x, 0);
    acc = vdotq_laneq_s32(acc, s[1], x, 1);
    acc = vdotq_laneq_s32(acc, s[2], x, 2);
    return vdotq_laneq_s32(acc, s[3], x, 3);
}
/* acc + products of the four bytes of each lane of w with those of one lane of x. */
VINLINE vi vi_dot_lane(vi acc, vi w, vi x, const int lane) {
    const int8x16_t a = vreinterpretq_s8_s32(w), b = vreinterpretq_s8_s32(x);
    return lane == 0   ? vdotq_laneq_s32(acc, a, b, 0)
           : lane == 1 ? vdotq_laneq_s32(acc, a, b, 1)
           : lane == 2 ? vdotq_laneq_s32(acc, a, b, 2)
                       : vdotq_laneq_s32(acc, a, b, 3);
}
#else
VINLINE vi vi_dot16(vi acc, const vi w[4], const i8 *a, const int bits) {
    for (int j = 0; j < 4; j++) {
        int8x16_t s = vreinterpretq_s8_s32(bits == 8 ? vi_flip(w[j]) : w[j]);
        int8x8_t x = vreinterpret_s8_u8(load4(a + 4 * j));
        int32x4_t lo = vpaddlq_s16(vmull_s8(vget_low_s8(s), x)); /* |product| <= 128 * 127 */
        int32x4_t hi = vpaddlq_s16(vmull_s8(vget_high_s8(s), x));
        acc = vaddq_s32(acc, vpaddq_s32(lo, hi));
    }
    return acc;
}
/* acc + products of two words of each row (vi_store_columns) with those of one lane of x. */
VINLINE vi vi_dot_lane(vi acc, vi w, vi x, const int lane) {
    const int16x8_t a = vreinterpretq_s16_s32(w), b = vreinterpretq_s16_s32(x);
    const int16x4_t lo = vget_low_s16(a);
    return lane == 0 ? vmlal_high_laneq_s16(vmlal_laneq_s16(acc, lo, b, 0), a, b, 1)
           : lane == 1 ? vmlal_high_laneq_s16(vmlal_laneq_s16(acc, lo, b, 2), a, b, 3)
           : lane == 2 ? vmlal_high_laneq_s16(vmlal_laneq_s16(acc, lo, b, 4), a, b, 5)
                       : vmlal_high_laneq_s16(vmlal_laneq_s16(acc, lo, b, 6), a, b, 7);
}
#endif
#endif
/* Bytes of four rows, four columns each, as words: columns 0 and 2, then 1 and 3, as ACT_Q16W has
 * them, four rows each. */
VINLINE void vi_store_columns(void *p02, void *p13, vi a) {
    static const u8 AT[16] = {0, 4, 8, 12, 2, 6, 10, 14, 1, 5, 9, 13, 3, 7, 11, 15};
    const int8x16_t t = vqtbl1q_s8(vreinterpretq_s8_s32(a), vld1q_u8(AT));
    vst1q_s16(p02, vmovl_s8(vget_low_s8(t)));
    vst1q_s16(p13, vmovl_high_s8(t));
}

#endif
