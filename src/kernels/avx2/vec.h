/* vec.h - one 256-bit register as 8 floats, 8 integers or 32 bytes: what the shared kernel bodies
 * (matmul.inc, vector.inc, attend.inc) are written in. Same functions as avx512/vec.h. Empty
 * without the flags. */
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>

#include "base/base.h"

typedef __m256 vf;
typedef __m256i vi;

enum { LANES = 8 };

#define VINLINE static inline __attribute__((always_inline))

VINLINE vf vf_load(const float *p) {
    return _mm256_loadu_ps(p);
}
VINLINE void vf_store(float *p, vf a) {
    _mm256_storeu_ps(p, a);
}
VINLINE vf vf_set(float x) {
    return _mm256_set1_ps(x);
}
VINLINE vf vf_add(vf a, vf b) {
    return _mm256_add_ps(a, b);
}
VINLINE vf vf_sub(vf a, vf b) {
    return _mm256_sub_ps(a, b);
}
VINLINE vf vf_mul(vf a, vf b) {
    return _mm256_mul_ps(a, b);
}
VINLINE vf vf_div(vf a, vf b) {
    return _mm256_div_ps(a, b);
}
VINLINE vf vf_fma(vf a, vf b, vf c) {
    return _mm256_fmadd_ps(a, b, c);
}
VINLINE vf vf_fms(vf a, vf b, vf c) {
    return _mm256_fmsub_ps(a, b, c);
}
VINLINE vf vf_min(vf a, vf b) {
    return _mm256_min_ps(a, b);
}
VINLINE vf vf_max(vf a, vf b) {
    return _mm256_max_ps(a, b);
}
VINLINE vf vf_round(vf a) {
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
VINLINE vf vf_keep_ge(vf a, vf x, vf limit) {
    return _mm256_and_ps(a, _mm256_cmp_ps(x, limit, _CMP_GE_OQ));
}
VINLINE vf vf_of_int(vi a) {
    return _mm256_cvtepi32_ps(a);
}
VINLINE vi vf_to_int(vf a) {
    return _mm256_cvtps_epi32(a);
}
VINLINE vf vf_pow2(vi n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
VINLINE vf vf_f16(const void *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(p));
}
VINLINE void vf_to_f16(void *p, vf a) {
    _mm_storeu_si128(p, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
VINLINE vf vf_bf16(const void *p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(p)), 16));
}
VINLINE vf vf_i8(const void *p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p)));
}
VINLINE vf vf_e8(const void *p) {
    vi e = _mm256_cvtepu8_epi32(_mm_loadl_epi64(p));
    vi norm = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    vi sub = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    return _mm256_castsi256_ps(
        _mm256_blendv_epi8(norm, sub, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e)));
}
VINLINE float vf_fold16(const vf a[2]) {
    vf s = _mm256_add_ps(a[0], a[1]);
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
VINLINE float vf_max16(const vf a[2]) {
    vf s = _mm256_max_ps(a[0], a[1]);
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

VINLINE vi vi_load(const void *p) {
    return _mm256_loadu_si256(p);
}
VINLINE vi vi_set(i32 x) {
    return _mm256_set1_epi32(x);
}
VINLINE vi vi_set8(int x) {
    return _mm256_set1_epi8((char)x);
}
VINLINE vi vi_and(vi a, vi b) {
    return _mm256_and_si256(a, b);
}
VINLINE vi vi_or(vi a, vi b) {
    return _mm256_or_si256(a, b);
}
VINLINE vi vi_add(vi a, vi b) {
    return _mm256_add_epi32(a, b);
}
VINLINE vi vi_add8(vi a, vi b) {
    return _mm256_add_epi8(a, b);
}
VINLINE vi vi_add16(vi a, vi b) {
    return _mm256_add_epi16(a, b);
}
VINLINE void vi_store(void *p, vi a) {
    _mm256_storeu_si256(p, a);
}
VINLINE vi vi_sub(vi a, vi b) {
    return _mm256_sub_epi32(a, b);
}
VINLINE vi vi_smax(vi a, vi b) {
    return _mm256_max_epi32(a, b);
}
/* Bits move within 16 or 32; callers mask what crosses bytes. */
typedef u16 vu16 __attribute__((vector_size(32)));
typedef u32 vu32 __attribute__((vector_size(32)));
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
    return _mm256_srai_epi16(a, n);
}
VINLINE vi vi_sar32(vi a, int n) {
    return _mm256_srai_epi32(a, n);
}
VINLINE vi vi_table(const i8 t[16]) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)t));
}
VINLINE vi vi_flip(vi a) {
    return _mm256_xor_si256(a, vi_set8(0x80));
}
VINLINE vi vi_look(vi table, vi idx) {
    return _mm256_shuffle_epi8(table, idx);
}
VINLINE vi vi_abs_bits(vf a) {
    return vi_and(_mm256_castps_si256(a), vi_set(0x7FFFFFFF));
}
VINLINE vi vi_max(vi a, vi b) {
    return _mm256_max_epu32(a, b);
}
VINLINE u32 vi_max_lanes(vi a) {
    __m128i b = _mm_max_epu32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    b = _mm_max_epu32(b, _mm_shuffle_epi32(b, 0x4E));
    return (u32)_mm_cvtsi128_si32(_mm_max_epu32(b, _mm_shuffle_epi32(b, 0xB1)));
}
VINLINE i32 vi_sum_lanes(vi a) {
    __m128i b = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    b = _mm_add_epi32(b, _mm_shuffle_epi32(b, 0x4E));
    return _mm_cvtsi128_si32(_mm_add_epi32(b, _mm_shuffle_epi32(b, 0xB1)));
}
VINLINE void vi_store_words(i16 *p, vi a) {
    a = _mm256_permute4x64_epi64(_mm256_packs_epi32(_mm256_shuffle_epi32(a, 0xD8), a), 0x08);
    _mm_storeu_si128((void *)p, _mm256_castsi256_si128(a));
}
VINLINE void vi_store_i8(i8 *p, vi a) {
    __m128i w = _mm_packs_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    _mm_storel_epi64((void *)p, _mm_packs_epi16(w, w));
}

#endif
