/* ops_trace.h - the cost table with a witness: each operation of a forward pass is told with its
 * shapes and what it costs. For `skein explain` and for pricing layers. */
#pragma once

#include "ops/ops_cost.h"

struct ops_trace_row {
    const char *op;       /* "matmul" */
    const char *weight;   /* the tensor's name, "" where there is none; borrowed from the model */
    enum dtype type;      /* of the weight */
    u64 rows, cols;       /* of the weight, or of what is worked on: n of `cols` elements */
    u64 n;                /* how often: tokens, or tokens times heads */
    struct ops_cost cost; /* of this one operation */
};
typedef void ops_trace_fn(void *ctx, const struct ops_trace_row *r);

/* As ops_cost_new. fn is called on the caller's thread, after each operation. */
struct ops *ops_trace_new(const struct kernels *k, u32 n_ranks, ops_trace_fn *fn, void *ctx);
