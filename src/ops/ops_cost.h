/* ops_cost.h - the ops table that computes nothing and adds up what a step would cost.
 *
 * The planner and `skein explain` run the same model code on it, with tensors that carry only type,
 * rows and cols. Activations and KV memory may be NULL. The sums say what a perfect machine would
 * have to move and compute; how fast a real one does that is measured elsewhere. */
#pragma once

#include "kernels/kernels.h"
#include "ops/ops.h"

struct ops_cost {
    u64 weight_bytes; /* packed weights read, once for a whole batch */
    u64 kv_bytes;     /* keys and values read and written */
    u64 act_bytes;    /* activations read and written */
    u64 int_ops;      /* multiply and add count as two; codes times 16-bit activations */
    u64 float_ops;
    u64 bf16_ops;      /* of those: what a set that multiplies bf16 does so, a product once */
    u64 messages;      /* sums and gathers with more than one rank */
    u64 message_bytes; /* payload of one rank, f32 */
    u64 calls;
};

/* k gives packed sizes and tells integer products from float ones. NULL on no memory (aborts). */
struct ops *ops_cost_new(const struct kernels *k, u32 n_ranks);
/* What was added up since creation or the last reset. */
struct ops_cost ops_cost_read(const struct ops *o);
void ops_cost_reset(struct ops *o);
