/* dtype.h - the element and block formats of tensors, as facts: ids, names, sizes.
 *
 * Values are the type ids of GGUF files, so a file's id converts without a table. A quantized
 * format stores `block_elems` consecutive elements of a row in `block_bytes` bytes. Shared by
 * formats/ (decoding), kernels/ (computing) and model/ (loading). Constant data, any thread. */
#pragma once

#include "base/base.h"

enum dtype {
    DTYPE_F32 = 0,
    DTYPE_F16 = 1,
    DTYPE_Q4_0 = 2,
    DTYPE_Q4_1 = 3,
    DTYPE_Q5_0 = 6,
    DTYPE_Q5_1 = 7,
    DTYPE_Q8_0 = 8,
    DTYPE_Q2_K = 10,
    DTYPE_Q3_K = 11,
    DTYPE_Q4_K = 12,
    DTYPE_Q5_K = 13,
    DTYPE_Q6_K = 14,
    DTYPE_IQ4_NL = 20,
    DTYPE_IQ4_XS = 23,
    DTYPE_I8 = 24,
    DTYPE_I16 = 25,
    DTYPE_I32 = 26,
    DTYPE_I64 = 27,
    DTYPE_F64 = 28,
    DTYPE_BF16 = 30,
    DTYPE_MXFP4 = 39,
    DTYPE_N = 48,
};

struct dtype_info {
    const char *name; /* "Q4_K"; NULL where the id is unassigned */
    u32 block_elems;  /* 0: skein can't decode it (the name is still there for the error) */
    u32 block_bytes;
};

/* Never NULL; an id outside the table gives a row with name NULL. */
const struct dtype_info *dtype_info(u32 id);
/* "Q4_K" or "type 77". Static storage or buf. */
const char *dtype_name(u32 id, char buf[24]);
/* Bytes of one row of n elements. False when n is no multiple of the block, or on overflow. */
bool dtype_row_bytes(u32 id, u64 n, u64 *bytes);

static inline float f16_to_f32(u16 h) {
#if (defined(__F16C__) && !defined(__clang__)) || defined(__aarch64__)
    _Float16 f;
    __builtin_memcpy(&f, &h, 2);
    return (float)f;
#else
    u32 sign = (u32)(h & 0x8000) << 16, exp = h >> 10 & 0x1F, man = h & 0x3FF, bits;
    if (exp == 31)
        bits = sign | 0x7F800000u | man << 13;
    else if (exp)
        bits = sign | (exp + 112) << 23 | man << 13;
    else { /* zero and subnormals: man * 2^-24, exact in f32 */
        float f = (float)man * 0x1p-24f;
        __builtin_memcpy(&bits, &f, 4);
        bits |= sign;
    }
    float out;
    __builtin_memcpy(&out, &bits, 4);
    return out;
#endif
}
/* Round to nearest even; overflow becomes infinity. */
u16 f32_to_f16(float f);

static inline float bf16_to_f32(u16 h) {
    u32 bits = (u32)h << 16;
    float out;
    __builtin_memcpy(&out, &bits, 4);
    return out;
}
u16 f32_to_bf16(float f);
