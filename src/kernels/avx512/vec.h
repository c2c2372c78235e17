/* vec.h - one 512-bit register as 16 floats, 16 integers or 64 bytes: what the shared kernel bodies
 * (matmul.inc, vector.inc, attend.inc) are written in. Empty without the flags. */
#pragma once

#if defined(__AVX512BW__)
#include <immintrin.h>

#include "base/base.h"

typedef __m512 vf;
typedef __m512i vi;

enum { LANES = 16 };

#define VINLINE static inline __attribute__((always_inline))

VINLINE vf vf_load(const float *p) {
    return _mm512_loadu_ps(p);
}
VINLINE void vf_store(float *p, vf a) {
    _mm512_storeu_ps(p, a);
}
VINLINE vf vf_set(float x) {
    return _mm512_set1_ps(x);
}
VINLINE vf vf_add(vf a, vf b) {
    return _mm512_add_ps(a, b);
}
VINLINE vf vf_sub(vf a, vf b) {
    return _mm512_sub_ps(a, b);
}
VINLINE vf vf_mul(vf a, vf b) {
    return _mm512_mul_ps(a, b);
}
VINLINE vf vf_div(vf a, vf b) {
    return _mm512_div_ps(a, b);
}
VINLINE vf vf_fma(vf a, vf b, vf c) {
    return _mm512_fmadd_ps(a, b, c);
} /* a * b + c */
VINLINE vf vf_fms(vf a, vf b, vf c) {
    return _mm512_fmsub_ps(a, b, c);
} /* a * b - c */
/* b where either is NaN. */
VINLINE vf vf_min(vf a, vf b) {
    return _mm512_min_ps(a, b);
}
VINLINE vf vf_max(vf a, vf b) {
    return _mm512_max_ps(a, b);
}
VINLINE vf vf_round(vf a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* a where x >= limit, else 0. */
VINLINE vf vf_keep_ge(vf a, vf x, vf limit) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, limit, _CMP_GE_OQ), a);
}
VINLINE vf vf_of_int(vi a) {
    return _mm512_cvtepi32_ps(a);
}
VINLINE vi vf_to_int(vf a) {
    return _mm512_cvtps_epi32(a);
} /* nearest even */
VINLINE vf vf_pow2(vi n) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n, _mm512_set1_epi32(127)), 23));
}
VINLINE vf vf_f16(const void *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}
VINLINE void vf_to_f16(void *p, vf a) {
    _mm256_storeu_si256(p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
VINLINE vf vf_bf16(const void *p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p)), 16));
}
VINLINE vf vf_i8(const void *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p)));
}
/* codes_e8 in lanes. */
VINLINE vf vf_e8(const void *p) {
    vi e = _mm512_cvtepu8_epi32(_mm_loadu_si128(p));
    vi norm = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    vi sub = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
    return _mm512_castsi512_ps(
        _mm512_mask_mov_epi32(norm, _mm512_cmplt_epu32_mask(e, _mm512_set1_epi32(2)), sub));
}
/* Sum and maximum over 16 lanes, folded 8, 4, 2, 1. */
VINLINE float vf_fold8(__m256 a) {
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
VINLINE float vf_fold16(const vf a[1]) {
    return vf_fold8(_mm256_add_ps(_mm512_castps512_ps256(a[0]), _mm512_extractf32x8_ps(a[0], 1)));
}
VINLINE float vf_max16(const vf a[1]) {
    return _mm512_reduce_max_ps(a[0]);
}

VINLINE vi vi_load(const void *p) {
    return _mm512_loadu_si512(p);
}
VINLINE vi vi_set(i32 x) {
    return _mm512_set1_epi32(x);
}
VINLINE vi vi_set8(int x) {
    return _mm512_set1_epi8((char)x);
}
VINLINE vi vi_and(vi a, vi b) {
    return _mm512_and_si512(a, b);
}
VINLINE vi vi_or(vi a, vi b) {
    return _mm512_or_si512(a, b);
}
VINLINE vi vi_add(vi a, vi b) {
    return _mm512_add_epi32(a, b);
}
VINLINE vi vi_add8(vi a, vi b) {
    return _mm512_add_epi8(a, b);
}
VINLINE vi vi_add16(vi a, vi b) {
    return _mm512_add_epi16(a, b);
}
VINLINE void vi_store(void *p, vi a) {
    _mm512_storeu_si512(p, a);
}
VINLINE vi vi_sub(vi a, vi b) {
    return _mm512_sub_epi32(a, b);
}
VINLINE vi vi_smax(vi a, vi b) {
    return _mm512_max_epi32(a, b);
}
/* Bits move within 16 or 32; callers mask what crosses bytes. */
typedef u16 vu16 __attribute__((vector_size(64)));
typedef u32 vu32 __attribute__((vector_size(64)));
VINLINE vi vi_shl16(vi a, int n) {
    return (vi)((vu16)a << n);
}
VINLINE vi vi_shr16(vi a, int n) {
    return (vi)((vu16)a >> n);
}
VINLINE vi vi_shl32(vi a, int n) {
    return (vi)((vu32)a << n);
}
VINLINE vi vi_sar16(vi a, int n) {
    return _mm512_srai_epi16(a, (u32)n);
}
VINLINE vi vi_sar32(vi a, int n) {
    return _mm512_srai_epi32(a, (u32)n);
}
/* The table in each 16 bytes; bytes of idx are 0..15. */
VINLINE vi vi_table(const i8 t[16]) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)t));
}
VINLINE vi vi_flip(vi a) {
    return _mm512_xor_si512(a, vi_set8(0x80));
}
VINLINE vi vi_look(vi table, vi idx) {
    return _mm512_shuffle_epi8(table, idx);
}
/* Magnitude bits of floats; larger one as unsigned; over all lanes. */
VINLINE vi vi_abs_bits(vf a) {
    return vi_and(_mm512_castps_si512(a), vi_set(0x7FFFFFFF));
}
VINLINE vi vi_max(vi a, vi b) {
    return _mm512_max_epu32(a, b);
}
VINLINE u32 vi_max_lanes(vi a) {
    return _mm512_reduce_max_epu32(a);
}
VINLINE i32 vi_sum_lanes(vi a) {
    return _mm512_reduce_add_epi32(a);
}
/* Integers of 16 bits as words; of each four the middle two swapped. */
VINLINE void vi_store_words(i16 *p, vi a) {
    _mm256_storeu_si256((void *)p, _mm512_cvtepi32_epi16(_mm512_shuffle_epi32(a, 0xD8)));
}
VINLINE void vi_store_i8(i8 *p, vi a) {
    _mm_storeu_si128((void *)p, _mm512_cvtepi32_epi8(a));
}

#endif
