#include "model/slice.h"

enum { FF_BLOCK_MAX = 256 };

static bool is_zero(const struct shard_slice *s) {
    return !(s->head_first | s->head_end | s->ff_first | s->ff_end | s->vocab_first | s->vocab_end);
}

static bool check(const char *what, u32 first, u32 end, u32 n, struct err *e) {
    return (first <= end && end <= n) ||
           err_set(e, ERR_ARG, "a slice of %s %u to %u: the model has %u", what, first, end, n);
}

bool slice_of(const struct model_params *p, const struct shard_spec *spec, u32 wo_block,
              struct slice *s, struct err *e) {
    struct shard_slice a = spec->slice;
    bool whole = is_zero(&a);
    if (whole && spec->tp_ranks > 1)
        return err_set(e, ERR_ARG, "rank %u of %u that share layers has no slice of them",
                       spec->tp_rank, spec->tp_ranks);
    if (whole)
        a = (struct shard_slice){
            .head_end = p->n_heads, .ff_end = p->n_ff, .vocab_end = p->n_vocab};
    if (!check("query heads", a.head_first, a.head_end, p->n_heads, e) ||
        !check("feed-forward elements", a.ff_first, a.ff_end, p->n_ff, e) ||
        !check("vocabulary rows", a.vocab_first, a.vocab_end, p->n_vocab, e))
        return false;
    u32 group = p->n_heads / p->n_kv_heads, kv_first = MIN(a.head_first / group, p->n_kv_heads - 1);
    u32 kv_end = MAX((a.head_end + group - 1) / group, kv_first + 1);
    u64 cols = (u64)p->n_heads * p->head_dim_v, lo = (u64)a.head_first * p->head_dim_v,
        hi = (u64)a.head_end * p->head_dim_v;
    u64 lo_block = lo / wo_block * wo_block, hi_block = MIN(align_up(hi, wo_block), cols);
    bool empty = lo == hi;
    *s = (struct slice){.whole = whole,
                        .n_heads = a.head_end - a.head_first,
                        .head_first = a.head_first,
                        .n_kv_heads = kv_end - kv_first,
                        .kv_first = kv_first,
                        .group = group,
                        .shift = empty ? 0 : a.head_first - kv_first * group,
                        .att_cols = empty ? 0 : hi_block - lo_block,
                        .att_col_first = empty ? 0 : lo_block,
                        .att_first = empty ? 0 : lo - lo_block,
                        .ff_first = a.ff_first,
                        .ff_end = a.ff_end,
                        .ff_max = MIN((u64)a.ff_end - a.ff_first + FF_BLOCK_MAX, (u64)p->n_ff),
                        .vocab_first = a.vocab_first,
                        .n_vocab = a.vocab_end - a.vocab_first};
    return true;
}

static u64 nearest(u64 at, u32 block, u64 n) {
    return at == n ? n : MIN((at + block / 2) / block * block, n);
}

void slice_ff(const struct model_params *p, const struct slice *s, u32 block, u64 *first,
              u64 *end) {
    ASSERT(block && block <= FF_BLOCK_MAX);
    *first = nearest(s->ff_first, block, p->n_ff);
    *end = nearest(s->ff_end, block, p->n_ff);
}

u32 shard_kv_heads(const struct model_params *p, const struct shard_spec *spec) {
    struct slice s;
    return slice_of(p, spec, 1, &s, NULL) ? s.n_kv_heads : p->n_kv_heads;
}
u32 shard_vocab_rows(const struct model_params *p, const struct shard_spec *spec) {
    struct slice s;
    return slice_of(p, spec, 1, &s, NULL) ? s.n_vocab : p->n_vocab;
}
