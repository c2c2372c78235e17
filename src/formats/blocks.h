/* blocks.h - the reference decoder of every block format skein reads, and encoders of the simple
 * ones.
 *
 * Plain C, one block at a time, written from the format's definition: what every fast kernel is
 * checked against. Pure; any thread. */
#pragma once

#include "base/base.h"
#include "base/dtype.h"

/* Decodes n elements (a multiple of the block) of `type` from src (unaligned) to dst.
 * The type must have block_elems > 0 and be no integer type or F64 (ASSERT). */
void blocks_decode(u32 type, float *dst, const void *src, u64 n);
/* True for the types that blocks_decode takes. */
bool blocks_can_decode(u32 type);

/* Encodes n finite elements (a multiple of the block) by rounding to the nearest level between the
 * block's extremes. For F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 (ASSERT). */
void blocks_encode(u32 type, void *dst, const float *src, u64 n);
/* True for the types that blocks_encode takes. */
bool blocks_can_encode(u32 type);
