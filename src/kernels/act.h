/* act.h - how one token's activations are stored.
 *
 * ACT_F32   the floats themselves.
 *
 * For bf16 products: bf16, rounded to nearest even, with zeros up to a multiple of 32.
 *
 *   ACT_BF16X2  a second line has what rounding left, so that both together keep 16 bits.
 *
 *   ACT_BF16    one line. Half the work for many tokens.
 *
 * For integer products: blocks of 32 elements, each with one scale: x[i] is about d * Q[i], Q an
 * integer of 16 or of 8 bits (whoever runs the model chooses, docs/accuracy.md). Three ways to keep
 * Q:
 *
 *   ACT_Q16   two signed bytes, Q = 256 * hi + lo. Byte products are what CPUs multiply fastest,
 *             and the weights are unpacked once for both: for few tokens, which wait for memory,
 *             and for sets that multiply bytes alone faster than words (amx, dotprod, i8mm).
 *
 *   ACT_Q16W  the same Q as 16-bit words, for sets that multiply words as fast as pairs of bytes
 *             and unpack weights once for many tokens. Of each four words the middle two are
 *             swapped: so they meet weights whose even and odd bytes became words by a mask and a
 *             shift.
 *
 *   ACT_Q8    one signed byte in hi; lo is not there. Half the work for many tokens.
 *
 * The sums serve the two corrections of weight formats: a format that stores code = w + offset
 * needs offset * sum(Q) taken off, one with a minimum per block needs minimum * d * sum(Q) added.
 */
#pragma once

#include "base/base.h"

enum { KERNEL_ALIGN = 64 }; /* of packed matrices and of activations, in bytes */

enum act_kind { ACT_Q16, ACT_F32, ACT_Q16W, ACT_Q8, ACT_BF16X2, ACT_BF16 };

enum { ACT_BLOCK = 32, ACT_MAX = 127 * 256 + 127, ACT_MAX8 = 127 };

struct act_block {
    union {
        struct {
            i8 hi[ACT_BLOCK];
            i8 lo[ACT_BLOCK]; /* -127..127 like hi: kernels rely on it */
        };
        i16 words[ACT_BLOCK]; /* elements 0, 2, 1, 3, 4, 6, 5, 7, ... */
    };
    float d; /* scale: max |x| / ACT_MAX; 0 for a block of zeros, NaN if x holds NaN or infinity */
    float s32;      /* d * sum of Q */
    float s16[2];   /* the same over each half */
    i32 c8;         /* -8 * sum of Q */
    i32 c128;       /* -128 * sum of Q */
    i32 c128_16[2]; /* the same over each half */
};
_Static_assert(sizeof(struct act_block) == 96, "three half cache lines");

/* Bytes of one token's activations. cols % 32 == 0 if they are integers. A line of what is no float
 * takes an odd number of cache lines: several tokens' blocks of the same columns don't share cache
 * sets. */
static inline u64 kernels_act_bytes(enum act_kind kind, u64 cols) {
    switch (kind) {
    case ACT_F32: return cols * 4;
    case ACT_BF16X2: return 2 * kernels_act_bytes(ACT_BF16, cols);
    case ACT_BF16: return align_up(cols * 2, KERNEL_ALIGN) | KERNEL_ALIGN;
    default: return align_up(cols * 3, KERNEL_ALIGN) | KERNEL_ALIGN;
    }
}
/* Of whatever floats are converted to; any cols. */
static inline u64 kernels_act_most(u64 cols) {
    const u64 q = kernels_act_bytes(ACT_Q16, align_up(cols, ACT_BLOCK));
    const u64 bf16 = kernels_act_bytes(ACT_BF16X2, cols);
    return MAX(q, bf16);
}
