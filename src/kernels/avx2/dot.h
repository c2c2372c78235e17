/* dot.h - byte and word products of 256-bit registers. Empty without the flags. */
#pragma once

#include "kernels/avx2/vec.h"

#if defined(__AVX2__)

VINLINE vi vi_set4(const i8 *p) {
    i32 x;
    __builtin_memcpy(&x, p, 4);
    return _mm256_set1_epi32(x);
}

VINLINE vi vi_set16(int x) {
    return _mm256_set1_epi16((short)x);
}

/* Products added in pairs: of bytes, w unsigned, to 16 bits (saturating); of words to 32. */
VINLINE vi vi_madd_bytes(vi w, vi a) {
    return _mm256_maddubs_epi16(w, a);
}
VINLINE vi vi_madd_words(vi w, vi a) {
    return _mm256_madd_epi16(w, a);
}
/* a as it is, here: compilers turn a chain of integer additions into a tree, and run out of
 * registers. */
VINLINE vi vi_pin(vi a) {
    __asm__("" : "+x"(a));
    return a;
}
/* Pairs of 16-bit integers added to 32. */
VINLINE vi vi_widen(vi a) {
    return _mm256_madd_epi16(a, _mm256_set1_epi16(1));
}
/* Bytes as words in the order of ACT_Q16W. */
VINLINE vi vi_words(const i8 *p) {
    vi a = _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)p));
    return _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(a, 0xD8), 0xD8);
}

/* See avx512/vec.h. */
enum { DOT_SIGNED = 1 };
VINLINE vi vi_dot16(vi acc, const vi w[4], const i8 *a, const int bits) {
    const vi ones = _mm256_set1_epi16(1);
    vi p[4];
    for (int j = 0; j < 4; j++) {
        vi x = vi_set4(a + 4 * j);
        if (bits == 8) {
            vi s = vi_flip(w[j]);
            p[j] = _mm256_maddubs_epi16(_mm256_abs_epi8(s), _mm256_sign_epi8(x, s));
        } else {
            p[j] = _mm256_maddubs_epi16(w[j], x);
        }
    }
    if (bits == 8) {
        for (int j = 0; j < 4; j++) acc = vi_add(acc, _mm256_madd_epi16(p[j], ones));
        return acc;
    }
    vi a0 = _mm256_add_epi16(p[0], p[1]), a1 = _mm256_add_epi16(p[2], p[3]);
    if (bits == 6)
        return vi_add(vi_add(acc, _mm256_madd_epi16(a0, ones)), _mm256_madd_epi16(a1, ones));
    return vi_add(acc, _mm256_madd_epi16(_mm256_add_epi16(a0, a1), ones));
}

#endif
