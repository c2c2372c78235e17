/* team_layout.h - how tests deal a model to ranks: a list of stages, each with shares in parts of a
 * whole.
 *
 * Only included by tests. */
#pragma once

#include "model/model.h"

enum { TEAM_RANKS = 6, TEAM_STAGES = 4 };

struct layout {
    u32 n_stages;
    struct {
        u32 n, part[TEAM_RANKS];
    } stage[TEAM_STAGES];
};

static inline u32 layout_ranks(const struct layout *l) {
    u32 n = 0, i = 0;
    while (i < l->n_stages) n += l->stage[i++].n;
    return n;
}

static inline void cut(const u32 *part, u32 n_parts, u32 i, u32 n, u32 *first, u32 *end) {
    u64 all = 0, before = 0;
    for (u32 k = 0; k < n_parts; all += part[k++]) before += k < i ? part[k] : 0;
    *first = (u32)(n * before / all);
    *end = (u32)(n * (before + part[i]) / all);
}

/* Of rank i of a stage. */
static inline struct shard_slice layout_slice(const struct layout *l, u32 stage, u32 i,
                                              const struct model_params *p) {
    const u32 *part = l->stage[stage].part;
    u32 n = l->stage[stage].n;
    struct shard_slice c = {0};
    if (n == 1) return c;
    cut(part, n, i, p->n_heads, &c.head_first, &c.head_end);
    cut(part, n, i, p->n_ff, &c.ff_first, &c.ff_end);
    cut(part, n, i, p->n_vocab, &c.vocab_first, &c.vocab_end);
    return c;
}
