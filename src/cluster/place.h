/* place.h - which layers go to which node. Pure arithmetic over numbers that others measured.
 *
 * A pipeline: contiguous layer ranges in the order of the nodes given. Among all ways to cut it
 * finds one whose slowest stage is fastest (a stage's time is taken as its weight bytes over the
 * node's speed), under each node's memory budget, by dynamic programming over (node, layer). */
#pragma once

#include "base/err.h"

struct place_model {
    u32 n_layers;
    const u64 *layer_bytes; /* [n_layers] */
    u64 embed_bytes;        /* on the first rank; costs memory, hardly time */
    u64 head_bytes;         /* on the last rank */
    u64 kv_bytes_per_layer; /* for the whole context of one sequence */
    u64 scratch_bytes;      /* on every rank */
};
struct place_node {
    const char *name; /* for messages */
    u64 budget_bytes;
    double speed; /* any unit, above 0 */
};
struct place_rank {
    u32 node; /* index into the nodes */
    u32 layer_first, layer_end;
    u64 weights_bytes, need_bytes; /* need: with KV and scratch */
};

/* ranks has room for n_nodes. min_nodes 0: over all nodes, leaving out, smallest budget first,
 * those that are in the way; k: not fewer than k. ERR_MEMORY with needed and available bytes,
 * ERR_BUSY when nodes are missing. */
bool place_pipeline(const struct place_model *m, const struct place_node *nodes, u32 n_nodes,
                    u32 min_nodes, struct place_rank *ranks, u32 *n_ranks, struct err *e);
/* What all of it needs on one node. */
u64 place_need_bytes(const struct place_model *m);
