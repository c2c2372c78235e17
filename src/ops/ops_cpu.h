/* ops_cpu.h - the ops table that computes, with a kernel table and a thread pool.
 *
 * All scratch memory is taken here, sized by the largest step the caller will ever ask for. */
#pragma once

#include "kernels/pool.h"
#include "ops/ops.h"

struct ops_cpu_dims {
    u32 max_tok;  /* tokens of one batch */
    u64 max_cols; /* longest input row of any matrix */
    u32 max_rot;  /* largest n_rot of any rope */
    u32 n_ropes;  /* different struct rope in use: 1, Gemma 3 has 2 */
    u32 max_dv;   /* largest head dimension of values */
    u32 act_bits; /* of activations in products with quantized weights: 8, or 16 (also if 0) */
};

/* True for a width that there is; ERR_ARG with what there is. */
bool ops_cpu_act_bits(u32 bits, struct err *e);

/* k and pool are borrowed for the life of the table. NULL and ERR_MEMORY on failure. */
struct ops *ops_cpu_new(const struct kernels *k, struct pool *pool, const struct ops_cpu_dims *d,
                        struct err *e);
/* Bytes that ops_cpu_new will take: for the planner. */
u64 ops_cpu_bytes(const struct kernels *k, const struct ops_cpu_dims *d);
