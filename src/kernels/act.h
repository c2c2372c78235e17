/* act.h - how one token's activations are stored for integer products.
 *
 * Blocks of 32 elements, each with one scale: x[i] is about d * q[i], |q| <= 127. The sums serve
 * the two corrections of weight formats: a format that stores code = q + offset needs offset *
 * sum(q) taken off, one with a minimum per block needs minimum * d * sum(q) added. A block is one
 * cache line, so a kernel reaches everything about it from one pointer. */
#pragma once

#include "base/base.h"

enum { ACT_BLOCK = 32 };

struct act_block {
    i8 q[ACT_BLOCK];
    float d;   /* scale: max |x| / 127; 0 for a block of zeros, NaN when x holds NaN or infinity */
    float s32; /* d * sum of q */
    float s16[2]; /* the same over each half */
    i32 n32;      /* -(sum of q) */
    i32 n16[2];
    i32 unused;
};
_Static_assert(sizeof(struct act_block) == 64, "one cache line");
