/* msg_place.h - what placement must know of a model to price any split of it (msg_shape), and what
 * people may ask of a placement (msg_wish). Part of messages, none by themselves. */
#pragma once

#include "wire/wire.h"

/* What a layer of one kind costs a step, as the cost table adds it up. A multiply and an add count
 * as two operations. */
struct msg_layer_cost {
    u64 attn_bytes, ffn_bytes; /* packed matrices, which slices divide */
    u64 fixed_bytes;           /* norms and the like: on every rank */
    u64 attn_ops, ffn_ops;     /* of the matrices, per token */
    u64 attend_ops;            /* of attention, per token and position that it sees */
    u64 act_bytes;             /* activations read and written, per token */
    u64 act_whole_bytes;       /* of these, what each rank of a tensor group reads and writes too */
    u32 window;                /* positions that a token sees at most; 0: all */
    u32 n_sums;                /* sums over a tensor group */
    u32 n_calls;               /* operations in all */
};

/* Of the layers' matrices of one format. */
struct msg_type_ops {
    u32 type;      /* enum dtype */
    u64 ops, rows; /* operations per token, rows of all of them */
};

/* The inner dimensions of a model. `kinds` has few entries: most models have one or two kinds of
 * layers. */
struct msg_shape {
    u32 n_heads, n_kv_heads, head_dim_k, head_dim_v, n_ff;
    u32 ff_step;                 /* elements of the feed-forward vector that can't be parted */
    u32 is_float;                /* bool: the matrices are multiplied in floats */
    u64 head_ops;                /* of the output matrix, per row of logits */
    struct wire_list kinds;      /* struct msg_layer_cost */
    struct wire_u64s layer_kind; /* [n_layers] index into kinds */
    struct wire_list types; /* struct msg_type_ops: what the layers are made of; may be empty */
    u32 head_type;          /* enum dtype of the output matrix; counts where types does */
};

enum wish_sharding { SHARDING_AUTO, SHARDING_PIPELINE, SHARDING_TENSOR, SHARDING_HYBRID };
enum wish_goal { GOAL_LATENCY, GOAL_THROUGHPUT, GOAL_TTFT };

/* All zero: anything that is fast. Nodes are ids. */
struct msg_wish {
    u32 sharding; /* enum wish_sharding */
    u32 goal;     /* enum wish_goal */
    u32 n_batch;  /* requests at once that it shall be good for; 0: 1, or 8 for throughput */
    u32 force;    /* bool: what the nodes have free is no limit */
    struct wire_list nodes;   /* struct msg_string: no others; empty: any */
    struct wire_list exclude; /* struct msg_string */
    struct wire_list ranks;   /* struct msg_rank: exactly so, empty slices and all; empty: choose */
};

extern const struct wire_table MSG_LAYER_COST_TABLE, MSG_TYPE_OPS_TABLE, MSG_SHAPE_TABLE;
