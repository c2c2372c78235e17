/* codes.h - every quantized format as the same thing: small codes with a scale and a minimum.
 *
 * Each 32 consecutive elements of a row are read as 32 codes; with w = lut ? lut[code] : code -
 * off, element i is D * w + M, where D = d * sc and M = m * mc. Formats differ in the width of the
 * codes, in whether sc and mc hold for 32 or for 16 elements, and in how many 32s share d and m.
 * That is enough for ref/ to multiply from and for pack16.c to rewrite rows from. Pure; any thread.
 * Layouts are those of GGUF files; see formats/blocks.c for an independent reading of them. */
#pragma once

#include "base/base.h"
#include "base/dtype.h"

struct code_format {
    u8 bits;       /* of a code: 2, 3, 4, 5, 6, 8; 0: the type is not quantized */
    u8 off;        /* subtracted from a code */
    u8 sub;        /* elements that share sc and mc: 32 or 16 */
    u8 n_sub;      /* blocks of 32 that share d and m: 1, or 8 in the K formats */
    bool has_min;  /* M is there */
    bool e8;       /* d is an E8M0 exponent byte instead of an f16 */
    bool has_sc;   /* sc and mc are there (else 1) */
    const i8 *lut; /* of 16 */
};

struct codes {
    u8 c[32];
    u16 d, m;        /* f16 bits (E8M0: the byte) */
    i8 sc[2], mc[2]; /* of each half; equal when sub == 32 */
};

extern const i8 CODES_LUT_IQ4[16], CODES_LUT_MXFP4[16];

/* Inline, so that kernels made for one format see constants. */
static inline struct code_format codes_format(u32 type) {
    switch (type) {
    case DTYPE_Q4_0: return (struct code_format){.bits = 4, .off = 8, .sub = 32, .n_sub = 1};
    case DTYPE_Q4_1: return (struct code_format){.bits = 4, .sub = 32, .n_sub = 1, .has_min = true};
    case DTYPE_Q5_0: return (struct code_format){.bits = 5, .off = 16, .sub = 32, .n_sub = 1};
    case DTYPE_Q5_1: return (struct code_format){.bits = 5, .sub = 32, .n_sub = 1, .has_min = true};
    case DTYPE_Q8_0: return (struct code_format){.bits = 8, .off = 128, .sub = 32, .n_sub = 1};
    case DTYPE_Q2_K:
        return (struct code_format){
            .bits = 2, .sub = 16, .n_sub = 8, .has_min = true, .has_sc = true};
    case DTYPE_Q3_K:
        return (struct code_format){.bits = 3, .off = 4, .sub = 16, .n_sub = 8, .has_sc = true};
    case DTYPE_Q4_K:
        return (struct code_format){
            .bits = 4, .sub = 32, .n_sub = 8, .has_min = true, .has_sc = true};
    case DTYPE_Q5_K:
        return (struct code_format){
            .bits = 5, .sub = 32, .n_sub = 8, .has_min = true, .has_sc = true};
    case DTYPE_Q6_K:
        return (struct code_format){.bits = 6, .off = 32, .sub = 16, .n_sub = 8, .has_sc = true};
    case DTYPE_IQ4_NL:
        return (struct code_format){.bits = 4, .sub = 32, .n_sub = 1, .lut = CODES_LUT_IQ4};
    case DTYPE_IQ4_XS:
        return (struct code_format){
            .bits = 4, .sub = 32, .n_sub = 8, .has_sc = true, .lut = CODES_LUT_IQ4};
    case DTYPE_MXFP4:
        return (struct code_format){
            .bits = 4, .sub = 32, .n_sub = 1, .e8 = true, .lut = CODES_LUT_MXFP4};
    default: return (struct code_format){.bits = 0};
    }
}

/* Reads the i-th 32 elements of a row of the file's blocks. `type` is quantized. */
void codes_read(u32 type, const u8 *row, u64 i, struct codes *out);

/* 2^(e-128): E8M0 halved, because the MXFP4 table holds doubled values. e < 2 is subnormal. */
static inline float codes_e8(u32 e) {
    u32 bits = e < 2 ? 0x00200000u << e : (e - 1) << 23;
    float f;
    __builtin_memcpy(&f, &bits, 4);
    return f;
}
/* D and M of half h: exact in f32 (11 bits of d times at most 8 of sc). */
static inline float codes_scale(const struct code_format *f, const struct codes *c, int h) {
    return (f->e8 ? codes_e8(c->d) : f16_to_f32(c->d)) * (float)c->sc[h];
}
static inline float codes_min(const struct code_format *f, const struct codes *c, int h) {
    return f->has_min ? f16_to_f32(c->m) * (float)c->mc[h] : 0;
}
static inline int codes_value(const struct code_format *f, u8 code) {
    return f->lut ? f->lut[code] : (int)code - f->off;
}
