/* act.h - how one token's activations are stored for integer products.
 *
 * Blocks of 32 elements, each with one scale: x[i] is about d * Q[i], a 16-bit integer kept as two
 * signed bytes, Q = 256 * hi + lo. Byte products are what CPUs multiply fastest, and the weights
 * are unpacked once for both, so decoding, which waits for memory, pays little for the second byte;
 * many tokens at once pay half their speed. With 8 bits alone the logits of SmolLM2-135M are off by
 * 3 % on average and 9 % at worst.
 *
 * The sums serve the two corrections of weight formats: a format that stores code = w + offset
 * needs offset * sum(Q) taken off, one with a minimum per block needs minimum * d * sum(Q)
 * added. */
#pragma once

#include "base/base.h"

enum { ACT_BLOCK = 32, ACT_MAX = 127 * 256 + 127 };

struct act_block {
    i8 hi[ACT_BLOCK];
    i8 lo[ACT_BLOCK]; /* -127..127 like hi: kernels rely on it */
    float d; /* scale: max |x| / ACT_MAX; 0 for a block of zeros, NaN if x holds NaN or infinity */
    float s32;    /* d * sum of Q */
    float s16[2]; /* the same over each half */
    i32 n32;      /* -(sum of Q) */
    i32 n16[2];
    i32 unused;
};
_Static_assert(sizeof(struct act_block) == 96, "three half cache lines");
