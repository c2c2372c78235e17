/* stages.h - how the ranks of a group are dealt: stages of a pipeline, each a team with slices.
 *
 * Rank 0 hears from every rank what it was given, and checks that it makes one whole model: no
 * layer, head, feed-forward element or row of the vocabulary twice or not at all. Then it tells
 * everybody where stages begin. Pure. */
#pragma once

#include "base/err.h"
#include "comm/group.h"
#include "model/model.h"

/* What one rank was given. */
struct stage_part {
    u32 tp_first, tp_ranks; /* the ranks of its stage */
    u32 layer_first, layer_end;
    struct shard_slice slice;
};

struct stages {
    u32 n;
    u32 first[GROUP_RANKS_MAX + 1]; /* first rank of each stage; [n] is the number of ranks */
};

/* part[n_ranks]. ERR_ARG names the first rank that does not fit, and why. */
bool stages_of(const struct model_params *p, const struct stage_part *part, u32 n_ranks,
               struct stages *s, struct err *e);
/* The stage of a rank. */
u32 stages_find(const struct stages *s, u32 rank);
static inline u32 stages_size(const struct stages *s, u32 stage) {
    return s->first[stage + 1] - s->first[stage];
}
/* The rank of the stage before from which `rank` gets its activations. Every rank of a stage holds
 * the same ones; so each sends to its share of the next stage. */
u32 stages_source(const struct stages *s, u32 rank);
