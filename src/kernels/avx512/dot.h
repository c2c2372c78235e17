/* dot.h - byte products of 512-bit registers, for avx512/ and vnni/: one instruction with VNNI,
 * three without. Empty without the flags. */
#pragma once

#include "kernels/avx512/vec.h"

#if defined(__AVX512BW__)

VINLINE vi vi_set4(const i8 *p) {
    return _mm512_set1_epi32(*(const i32 *)(const void *)p); /* acts are aligned */
}

/* acc + sum over 16 columns of w (codes below 2^bits) times a (bytes, -127..127), exact. */
#if defined(__AVX512VNNI__)
enum { DOT_SIGNED = 0 };
VINLINE vi vi_dot16(vi acc, const vi w[4], const i8 *a, const int bits) {
    (void)bits;
    for (int j = 0; j < 4; j++) acc = _mm512_dpbusd_epi32(acc, w[j], vi_set4(a + 4 * j));
    return acc;
}
/* acc + products of four bytes of w with four of a in each lane; of two words with two. */
VINLINE vi vi_dot_bytes(vi acc, vi w, vi a) {
    return _mm512_dpbusd_epi32(acc, w, a);
}
VINLINE vi vi_dot_words(vi acc, vi w, vi a) {
    return _mm512_dpwssd_epi32(acc, w, a);
}
#else
/* See avx2/dot.h. */
VINLINE vi vi_set16(int x) {
    return _mm512_set1_epi16((short)x);
}
VINLINE vi vi_madd_bytes(vi w, vi a) {
    return _mm512_maddubs_epi16(w, a);
}
VINLINE vi vi_madd_words(vi w, vi a) {
    return _mm512_madd_epi16(w, a);
}
VINLINE vi vi_pin(vi a) {
    __asm__("" : "+v"(a));
    return a;
}
VINLINE vi vi_widen(vi a) {
    return _mm512_madd_epi16(a, _mm512_set1_epi16(1));
}
VINLINE vi vi_words(const i8 *p) {
    vi a = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const void *)p));
    return _mm512_shufflehi_epi16(_mm512_shufflelo_epi16(a, 0xD8), 0xD8);
}

/* 8-bit codes stand for code - 128: VPMADDUBSW saturates at 16 bits, so products of two magnitudes
 * up to 128 and 127 are all it takes. Pairs of smaller codes are added up before widening. */
enum { DOT_SIGNED = 1 };
VINLINE vi vi_dot16(vi acc, const vi w[4], const i8 *a, const int bits) {
    const vi ones = _mm512_set1_epi16(1);
    vi p[4];
    for (int j = 0; j < 4; j++) {
        vi x = vi_set4(a + 4 * j);
        if (bits == 8) {
            vi s = vi_flip(w[j]);
            __mmask64 neg = _mm512_movepi8_mask(s);
            p[j] = _mm512_maddubs_epi16(_mm512_abs_epi8(s),
                                        _mm512_mask_sub_epi8(x, neg, _mm512_setzero_si512(), x));
        } else {
            p[j] = _mm512_maddubs_epi16(w[j], x);
        }
    }
    if (bits == 8) { /* 2 * 128 * 127 = 32512: none to spare */
        for (int j = 0; j < 4; j++) acc = vi_add(acc, _mm512_madd_epi16(p[j], ones));
        return acc;
    }
    vi a0 = _mm512_add_epi16(p[0], p[1]), a1 = _mm512_add_epi16(p[2], p[3]);
    if (bits == 6) /* 4 * 63 * 127 = 32004 */
        return vi_add(vi_add(acc, _mm512_madd_epi16(a0, ones)), _mm512_madd_epi16(a1, ones));
    return vi_add(acc, _mm512_madd_epi16(_mm512_add_epi16(a0, a1), ones)); /* 8 * 31 * 127 */
}
#endif

#endif
