#include "base/dtype.h"

#include <stdio.h>
#include <string.h>

/* Sizes from the GGUF block structures: scales in f16 unless said otherwise. Formats with
 * block_elems 0 are known by name only. */
static const struct dtype_info TABLE[DTYPE_N] = {
    [DTYPE_F32] = {"F32", 1, 4},
    [DTYPE_F16] = {"F16", 1, 2},
    [DTYPE_BF16] = {"BF16", 1, 2},
    [DTYPE_Q4_0] = {"Q4_0", 32, 18},
    [DTYPE_Q4_1] = {"Q4_1", 32, 20},
    [DTYPE_Q5_0] = {"Q5_0", 32, 22},
    [DTYPE_Q5_1] = {"Q5_1", 32, 24},
    [DTYPE_Q8_0] = {"Q8_0", 32, 34},
    [DTYPE_Q2_K] = {"Q2_K", 256, 84},
    [DTYPE_Q3_K] = {"Q3_K", 256, 110},
    [DTYPE_Q4_K] = {"Q4_K", 256, 144},
    [DTYPE_Q5_K] = {"Q5_K", 256, 176},
    [DTYPE_Q6_K] = {"Q6_K", 256, 210},
    [DTYPE_IQ4_NL] = {"IQ4_NL", 32, 18},
    [DTYPE_IQ4_XS] = {"IQ4_XS", 256, 136},
    [DTYPE_MXFP4] = {"MXFP4", 32, 17}, /* one E8M0 scale byte */
    [9] = {"Q8_1", 0, 0},
    [15] = {"Q8_K", 0, 0},
    [16] = {"IQ2_XXS", 0, 0},
    [17] = {"IQ2_XS", 0, 0},
    [18] = {"IQ3_XXS", 0, 0},
    [19] = {"IQ1_S", 0, 0},
    [21] = {"IQ3_S", 0, 0},
    [22] = {"IQ2_S", 0, 0},
    [DTYPE_I8] = {"I8", 1, 1},
    [DTYPE_I16] = {"I16", 1, 2},
    [DTYPE_I32] = {"I32", 1, 4},
    [DTYPE_I64] = {"I64", 1, 8},
    [DTYPE_F64] = {"F64", 1, 8},
    [29] = {"IQ1_M", 0, 0},
    [34] = {"TQ1_0", 0, 0},
    [35] = {"TQ2_0", 0, 0},
    [40] = {"NVFP4", 0, 0},
    [41] = {"Q1_0", 0, 0},
};

const struct dtype_info *dtype_info(u32 id) {
    static const struct dtype_info NONE;
    return id < DTYPE_N ? &TABLE[id] : &NONE;
}

const char *dtype_name(u32 id, char buf[24]) {
    const char *s = dtype_info(id)->name;
    if (s) return s;
    snprintf(buf, 24, "type %u", id);
    return buf;
}

bool dtype_row_bytes(u32 id, u64 n, u64 *bytes) {
    const struct dtype_info *t = dtype_info(id);
    return t->block_elems && n % t->block_elems == 0 &&
           size_mul(n / t->block_elems, t->block_bytes, bytes);
}

u16 f32_to_f16(float f) {
    u32 x;
    memcpy(&x, &f, 4);
    u32 sign = x >> 16 & 0x8000, a = x & 0x7FFFFFFF;
    if (a > 0x7F800000) return (u16)(sign | 0x7E00 | (a >> 13 & 0x3FF)); /* NaN stays one */
    if (a >= 0x477FF000) return (u16)(sign | 0x7C00);                    /* rounds to infinity */
    if (a < 0x38800000) { /* below 2^-14: adding 0.5 makes the FPU round to units of 2^-24 */
        float g;
        memcpy(&g, &a, 4);
        g += 0.5f;
        memcpy(&a, &g, 4);
        return (u16)(sign | (a - 0x3F000000));
    }
    a += 0xFFF + (a >> 13 & 1);
    return (u16)(sign | (a - 0x38000000) >> 13);
}

u16 f32_to_bf16(float f) {
    u32 x;
    memcpy(&x, &f, 4);
    if ((x & 0x7FFFFFFF) > 0x7F800000) return (u16)(x >> 16 | 0x40);
    return (u16)((x + 0x7FFF + (x >> 16 & 1)) >> 16);
}
