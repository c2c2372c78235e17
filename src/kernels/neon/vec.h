/* vec.h - one 128-bit register as 4 floats, 4 integers or 16 bytes: what the shared kernel bodies
 * (matmul.inc, vector.inc, attend.inc) are written in. Same functions as avx512/vec.h.
 *
 * Also compiled by dotprod/ and i8mm/. Empty elsewhere. */
#pragma once

#if defined(__aarch64__)

#include <arm_neon.h>

#include "base/base.h"

typedef float32x4_t vf;
typedef int32x4_t vi;

enum { LANES = 4 };

#define VINLINE static inline __attribute__((always_inline))

VINLINE vf vf_load(const float *p) {
    return vld1q_f32(p);
}
VINLINE void vf_store(float *p, vf a) {
    vst1q_f32(p, a);
}
VINLINE vf vf_set(float x) {
    return vdupq_n_f32(x);
}
VINLINE vf vf_add(vf a, vf b) {
    return vaddq_f32(a, b);
}
VINLINE vf vf_sub(vf a, vf b) {
    return vsubq_f32(a, b);
}
VINLINE vf vf_mul(vf a, vf b) {
    return vmulq_f32(a, b);
}
VINLINE vf vf_div(vf a, vf b) {
    return vdivq_f32(a, b);
}
VINLINE vf vf_fma(vf a, vf b, vf c) {
    return vfmaq_f32(c, a, b);
}
VINLINE vf vf_fms(vf a, vf b, vf c) {
    return vfmaq_f32(vnegq_f32(c), a, b);
}
VINLINE vf vf_min(vf a, vf b) {
    return vbslq_f32(vcltq_f32(a, b), a, b);
}
VINLINE vf vf_max(vf a, vf b) {
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}
VINLINE vf vf_round(vf a) {
    return vrndnq_f32(a);
}
VINLINE vf vf_keep_ge(vf a, vf x, vf limit) {
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(a), vcgeq_f32(x, limit)));
}
VINLINE vf vf_of_int(vi a) {
    return vcvtq_f32_s32(a);
}
VINLINE vi vf_to_int(vf a) {
    return vcvtnq_s32_f32(a);
}
VINLINE vf vf_pow2(vi n) {
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23));
}
VINLINE vf vf_f16(const void *p) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}
VINLINE void vf_to_f16(void *p, vf a) {
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(a)));
}
VINLINE vf vf_bf16(const void *p) {
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}
/* Four bytes in the low half of a register. */
VINLINE uint8x8_t load4(const void *p) {
    u32 x;
    __builtin_memcpy(&x, p, 4);
    return vreinterpret_u8_u32(vdup_n_u32(x));
}
VINLINE vf vf_i8(const void *p) {
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u8(load4(p))))));
}
VINLINE vf vf_e8(const void *p) {
    uint32x4_t e = vmovl_u16(vget_low_u16(vmovl_u8(load4(p)))), two = vdupq_n_u32(2);
    uint32x4_t norm = vshlq_n_u32(vsubq_u32(e, vdupq_n_u32(1)), 23);
    uint32x4_t sub = vshlq_u32(vdupq_n_u32(0x00200000), vreinterpretq_s32_u32(vminq_u32(e, two)));
    return vreinterpretq_f32_u32(vbslq_u32(vcltq_u32(e, two), sub, norm));
}
VINLINE float vf_fold16(const vf a[4]) {
    vf s = vaddq_f32(vaddq_f32(a[0], a[2]), vaddq_f32(a[1], a[3]));
    float32x2_t h = vadd_f32(vget_low_f32(s), vget_high_f32(s));
    return vget_lane_f32(h, 0) + vget_lane_f32(h, 1);
}
VINLINE float vf_max16(const vf a[4]) {
    vf s = vf_max(vf_max(a[0], a[2]), vf_max(a[1], a[3]));
    return vmaxvq_f32(s);
}

VINLINE vi vi_load(const void *p) {
    return vreinterpretq_s32_u8(vld1q_u8(p));
}
VINLINE void vi_store(void *p, vi a) {
    vst1q_s32(p, a);
}
VINLINE vi vi_set(i32 x) {
    return vdupq_n_s32(x);
}
VINLINE vi vi_set8(int x) {
    return vreinterpretq_s32_s8(vdupq_n_s8((i8)x));
}
VINLINE vi vi_and(vi a, vi b) {
    return vandq_s32(a, b);
}
VINLINE vi vi_or(vi a, vi b) {
    return vorrq_s32(a, b);
}
VINLINE vi vi_add(vi a, vi b) {
    return vaddq_s32(a, b);
}
VINLINE vi vi_sub(vi a, vi b) {
    return vsubq_s32(a, b);
}
VINLINE vi vi_smax(vi a, vi b) {
    return vmaxq_s32(a, b);
}
/* By a constant, as operators: intrinsics want a literal. */
VINLINE vi vi_shl16(vi a, int n) {
    return vreinterpretq_s32_u16(vreinterpretq_u16_s32(a) << (u16)n);
}
VINLINE vi vi_shr16(vi a, int n) {
    return vreinterpretq_s32_u16(vreinterpretq_u16_s32(a) >> (u16)n);
}
#define VI_SHR8 1
VINLINE vi vi_shr8(vi a, int n) {
    return vreinterpretq_s32_u8(vreinterpretq_u8_s32(a) >> (u8)n);
}
VINLINE vi vi_shl32(vi a, int n) {
    return vreinterpretq_s32_u32(vreinterpretq_u32_s32(a) << (u32)n);
}
VINLINE vi vi_sar32(vi a, int n) {
    return a >> n;
}
VINLINE vi vi_table(const i8 t[16]) {
    return vreinterpretq_s32_s8(vld1q_s8(t));
}
VINLINE vi vi_flip(vi a) {
    return veorq_s32(a, vi_set8(0x80));
}
VINLINE vi vi_look(vi table, vi idx) {
    return vreinterpretq_s32_u8(vqtbl1q_u8(vreinterpretq_u8_s32(table), vreinterpretq_u8_s32(idx)));
}
VINLINE vi vi_abs_bits(vf a) {
    return vi_and(vreinterpretq_s32_f32(a), vi_set(0x7FFFFFFF));
}
VINLINE vi vi_max(vi a, vi b) {
    return vmaxq_s32(a, b);
} /* no sign bits here */
VINLINE u32 vi_max_lanes(vi a) {
    return (u32)vmaxvq_s32(a);
}
VINLINE i32 vi_sum_lanes(vi a) {
    return vaddvq_s32(a);
}
/* See avx512/vec.h. */
VINLINE void vi_store_words(i16 *p, vi a) {
    int16x4_t w = vmovn_s32(a), swapped = vrev64_s16(w); /* 0123, 3210 */
    w = vset_lane_s16(vget_lane_s16(swapped, 1), w, 1);
    vst1_s16(p, vset_lane_s16(vget_lane_s16(swapped, 2), w, 2));
}
VINLINE void vi_store_i8(i8 *p, vi a) {
    int16x4_t h = vmovn_s32(a);
    u32 x = vget_lane_u32(vreinterpret_u32_s8(vmovn_s16(vcombine_s16(h, h))), 0);
    __builtin_memcpy(p, &x, 4);
}

#endif
