/* place.h - which part of a model goes to which node. Pure arithmetic over numbers that others
 * measured; everything here is a function of its arguments.
 *
 * A layout is a list of ranks. Ranks with the same layers are a stage; the ranks of a stage hold
 * slices of its layers (tensor), stages follow one another (pipeline), and both together are a
 * hybrid. place_predict prices any layout; place_search proposes layouts and keeps the best:
 *  - layer ranges by dynamic programming over (node, layer), exact for a given order of the nodes;
 *  - orders: all of them up to 6 nodes, beyond that nearest neighbour and 2-opt on the links' cost;
 *  - slices by water-filling: shares in proportion to speed, cut off where memory ends, in whole
 *    KV groups and blocks;
 *  - groups from the links: the nodes that are closest to each other form tensor groups.
 * It takes polynomial time: 60 nodes and 80 layers in well under a second. */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "wire/msg.h"
#include "wire/msg_cluster.h"

enum {
    PLACE_CHUNK_TOK = 512,
    PLACE_PIECE_TOK = 64
}; /* of one step of prefill: in one stage, in several */

/* How fast matrices of the model are multiplied. For one token: bytes of them a second; for
 * MSG_RATE_FEW and for MSG_RATE_MANY tokens: operations a second. few_ops_s 0: not measured, then
 * the slower of bytes and operations counts. What a row takes beside its columns, a token, is in
 * these, for rows as long as the model's; of one and of MSG_RATE_MANY tokens. */
struct place_rate {
    double read_bytes_s, few_ops_s, ops_s;
    double row_one_s, row_many_s;
};
struct place_node {
    const char *name; /* for messages */
    u64 budget_bytes;
    double read_bytes_s, ops_s; /* above 0: memory bandwidth, and matrix operations a second */
    u32 machine;                /* nodes of one machine share both */
    /* 0: not measured. */
    struct place_rate layers, head;
    double attend_ops_s, attend_one_ops_s, call_s; /* attention of a prompt, of single tokens */
};
/* One way. */
struct place_link {
    double delay_s, bytes_s;
};

struct place_ask {
    const struct msg_model *model;  /* without a shape only pipelines are possible */
    const struct place_node *nodes; /* of equal ones the first are preferred */
    u32 n_nodes;
    const struct place_link *links; /* [n_nodes][n_nodes], from the row's node to the column's */
    u32 sharding, goal;             /* enum wish_sharding, wish_goal */
    u32 min_nodes;                  /* 0 or 1: as few as is best */
    u32 n_ctx, n_batch, n_prompt;   /* n_batch: requests at once; n_prompt: of the first token */
    u64 kv_tokens;                  /* positions that there must be room for */
    u64 scratch_bytes;              /* on every rank */
    bool force;                     /* budgets are no limit */
    /* For latency: what n stages as long as the longest would take counts this much beside the time
     * per token. 0: not at all. */
    double balance;
};

struct place_rank {
    u32 node; /* index into the nodes */
    u32 layer_first, layer_end;
    u32 tp_first, tp_ranks;                  /* its stage: ranks [tp_first, tp_first + tp_ranks) */
    struct msg_slice slice;                  /* all zero where tp_ranks is 1 */
    u64 weights_bytes, kv_bytes, need_bytes; /* need: both and scratch */
};

/* What a layout is expected to do. The three parts add up to token_s. */
struct place_times {
    double token_s; /* between two tokens of one request, alone */
    double first_s; /* until the first token of a prompt of n_prompt */
    double rate;    /* tokens a second of n_batch requests together */
    double memory_s, compute_s, network_s;
    double even_s; /* per token, if all stages took as long as the longest */
    u32 slowest;   /* rank of the stage that limits `rate` */
};

struct place_plan {
    struct place_rank *ranks;
    u32 n_ranks;
    u32 sharding; /* what it is: SHARDING_PIPELINE for one node too */
    struct place_times t;
};

/* The best layout by q->goal, of the sharding that was asked for, over at least q->min_nodes nodes.
 * ranks live in a. ERR_MEMORY with needed and available bytes, ERR_BUSY when nodes are missing,
 * ERR_ARG when the model can't be cut like that. */
bool place_best(const struct place_ask *q, struct arena *a, struct place_plan *best, struct err *e);

/* The best one of each sharding and number of nodes, at least min_nodes: pipelines by number of
 * nodes, then tensor, then hybrid. Empty when none is possible. */
u32 place_all(const struct place_ask *q, struct arena *a, struct place_plan **plans);

/* Fills in what the layout by hand leaves open (slices, bytes) and checks it. Layers must follow
 * one another without gaps; ranks of a stage have the same layers and are neighbours; a node comes
 * once.
 */
bool place_check(const struct place_ask *q, struct place_rank *ranks, u32 n, struct arena *a,
                 struct err *e);

/* q's goal, batch and prompt with another position: the context that is filled. ranks as
 * place_best and place_check give them. */
struct place_times place_predict(const struct place_ask *q, const struct place_rank *ranks, u32 n,
                                 u32 pos);

/* What all of it needs on one node. */
u64 place_need_bytes(const struct place_ask *q);
