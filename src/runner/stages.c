#include "runner/stages.h"

/* One kind of share: the slices of a stage's ranks must follow one another from 0 to n. */
static bool follows(u32 rank, const char *what, u32 first, u32 end, u32 *at, struct err *e) {
    if (first != *at || end < first)
        return err_set(e, ERR_ARG, "rank %u has %s %u to %u, the ranks before it end at %u", rank,
                       what, first, end, *at);
    *at = end;
    return true;
}

static bool is_whole(const struct model_params *p, const struct shard_slice *s) {
    bool zero =
        !(s->head_first | s->head_end | s->ff_first | s->ff_end | s->vocab_first | s->vocab_end);
    return zero || (s->head_first == 0 && s->head_end == p->n_heads && s->ff_first == 0 &&
                    s->ff_end == p->n_ff && s->vocab_first == 0 && s->vocab_end == p->n_vocab);
}

static bool check_slices(const struct model_params *p, const struct stage_part *part, u32 first,
                         u32 n, struct err *e) {
    u32 head = 0, ff = 0, vocab = 0;
    if (n == 1)
        return is_whole(p, &part[first].slice) ||
               err_set(e, ERR_ARG, "rank %u has its layers alone, but only a slice of them", first);
    for (u32 r = first; r < first + n; r++) {
        const struct shard_slice *s = &part[r].slice;
        if (!follows(r, "query heads", s->head_first, s->head_end, &head, e) ||
            !follows(r, "feed-forward elements", s->ff_first, s->ff_end, &ff, e) ||
            !follows(r, "vocabulary rows", s->vocab_first, s->vocab_end, &vocab, e))
            return false;
    }
    return (head == p->n_heads && ff == p->n_ff && vocab == p->n_vocab) ||
           err_set(e, ERR_ARG,
                   "ranks %u to %u share %u of %u heads, %u of %u feed-forward elements, %u of %u "
                   "rows of the vocabulary",
                   first, first + n - 1, head, p->n_heads, ff, p->n_ff, vocab, p->n_vocab);
}

static bool check_stage(const struct stage_part *part, u32 first, u32 n_ranks, u32 layer,
                        struct err *e) {
    const struct stage_part *a = &part[first];
    if (a->tp_first != first || a->tp_ranks == 0 || a->tp_ranks > n_ranks - first)
        return err_set(e, ERR_ARG, "rank %u is to share its layers with ranks %u to %u of %u",
                       first, a->tp_first, a->tp_first + a->tp_ranks - 1, n_ranks);
    if (a->layer_first != layer || a->layer_end <= a->layer_first)
        return err_set(e, ERR_ARG, "rank %u has layers %u to %u, the ranks before it end at %u",
                       first, a->layer_first, a->layer_end, layer);
    for (u32 r = first + 1; r < first + a->tp_ranks; r++) {
        const struct stage_part *b = &part[r];
        if (b->tp_first != a->tp_first || b->tp_ranks != a->tp_ranks ||
            b->layer_first != a->layer_first || b->layer_end != a->layer_end)
            return err_set(e, ERR_ARG, "rank %u does not share the layers of rank %u", r, first);
    }
    return true;
}

bool stages_of(const struct model_params *p, const struct stage_part *part, u32 n_ranks,
               struct stages *s, struct err *e) {
    u32 layer = 0;
    *s = (struct stages){.n = 0};
    for (u32 r = 0; r < n_ranks; r += part[r].tp_ranks) {
        if (!check_stage(part, r, n_ranks, layer, e) ||
            !check_slices(p, part, r, part[r].tp_ranks, e))
            return false;
        layer = part[r].layer_end;
        s->first[s->n++] = r;
    }
    s->first[s->n] = n_ranks;
    return layer == p->n_layers ||
           err_set(e, ERR_ARG, "the ranks have %u of %u layers", layer, p->n_layers);
}

u32 stages_find(const struct stages *s, u32 rank) {
    u32 i = 0;
    while (i + 1 < s->n && rank >= s->first[i + 1]) i++;
    return i;
}

u32 stages_source(const struct stages *s, u32 rank) {
    u32 stage = stages_find(s, rank);
    ASSERT(stage > 0);
    return s->first[stage - 1] + (rank - s->first[stage]) % stages_size(s, stage - 1);
}
