/* slice.h - which part of each layer a rank of a team computes, worked out from its shard's spec.
 *
 * Query heads decide. A rank's KV heads are those its query heads use, so that two ranks may both
 * have one; its columns of the output projection are its heads' elements, widened to whole blocks
 * of the weights (the rank feeds zeros there). Feed-forward boundaries move to the nearest block of
 * the layer's down projection, on all ranks alike. Pure. */
#pragma once

#include "model/model.h"

struct slice {
    bool whole;
    u32 n_heads, head_first;     /* query heads */
    u32 n_kv_heads, kv_first;    /* at least one, used or not, so that a KV pool has a size */
    u32 group, shift;            /* see struct attn */
    u64 att_cols, att_col_first; /* columns of the output projection */
    u64 att_first;               /* where the rank's heads begin in them */
    u32 ff_first, ff_end;        /* as asked for; slice_ff moves them */
    u64 ff_max;                  /* the most that slice_ff can give */
    u32 vocab_first, n_vocab;    /* rows of the embedding and of the output matrix */
};

/* wo_block: the longest block among the shard's output projections. ERR_ARG says what is not a part
 * of this model. */
bool slice_of(const struct model_params *p, const struct shard_spec *spec, u32 wo_block,
              struct slice *s, struct err *e);
/* [*first, *end) of the feed-forward's hidden vector in a layer with such blocks. */
void slice_ff(const struct model_params *p, const struct slice *s, u32 block, u64 *first, u64 *end);
