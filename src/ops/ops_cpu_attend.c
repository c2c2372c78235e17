#include "ops/ops_cpu_impl.h"

#include "kernels/kv.h"

enum { T = KV_BLOCK_TOKENS, SMALL_WORK = 1 << 15 };

struct store_job {
    struct ops_cpu *o;
    struct kv_pool *kv;
    u32 layer;
    const float *k, *v;
};

/* Keys are transposed within a block, so a token's key is a column of it. */
static void store_key(const struct kernels *kn, u16 *dst, const float *k, u32 dk) {
    u16 half[64];
    for (u32 d0 = 0; d0 < dk; d0 += ARRAY_LEN(half)) {
        u32 n = MIN(dk - d0, (u32)ARRAY_LEN(half));
        kn->to_f16(half, k + d0, n);
        for (u32 d = 0; d < n; d++) dst[(d0 + d) * T] = half[d];
    }
}

static void store_span(const struct store_job *j, const struct kv_span *s, u64 lo, u64 hi) {
    const struct kv_pool *kv = j->kv;
    for (u64 i = lo; i < hi; i++) {
        u32 pos = s->pos0 + (u32)(i - s->first), b = pos / T, t = pos % T;
        ASSERT(b < s->n_blocks && s->blocks[b] < kv->n_blocks);
        for (u32 h = 0; h < kv->n_kv_heads; h++) {
            u64 at = s->blocks[b] * kv_block_stride(kv), row = i * kv->n_kv_heads + h;
            store_key(j->o->k, kv_keys(kv, j->layer, h) + at + t, j->k + row * kv->dk, kv->dk);
            j->o->k->to_f16(kv_values(kv, j->layer, h) + at + (u64)t * kv->dv, j->v + row * kv->dv,
                            kv->dv);
        }
    }
}

static void store_part(void *ctx, u32 i, u32 n_threads) {
    const struct store_job *j = ctx;
    const struct batch *b = j->o->batch;
    struct pool_part p = pool_part(b->n_tok, 1, i, n_threads);
    for (u32 s = 0; s < b->n_spans; s++) {
        const struct kv_span *sp = &b->spans[s];
        u64 lo = MAX(p.lo, (u64)sp->first), hi = MIN(p.hi, (u64)sp->first + sp->n);
        if (lo < hi) store_span(j, sp, lo, hi);
    }
}

void ops_cpu_kv_store(struct ops *ops, struct kv_pool *kv, u32 layer, const float *k,
                      const float *v) {
    struct ops_cpu *o = ops_cpu_of(ops);
    struct store_job j = {o, kv, layer, k, v};
    ASSERT(layer < kv->n_layers);
    u64 work = (u64)o->batch->n_tok * kv->n_kv_heads * (kv->dk + kv->dv);
    ops_cpu_run(o, store_part, &j, work < SMALL_WORK);
}

/* A piece is one KV head, some of the query heads that share it, and a few neighbouring tokens:
 * together at most ATTEND_ROWS rows that read the same keys and values. */
struct attend_job {
    struct ops_cpu *o;
    const struct kv_pool *kv;
    const struct attn *a;
    u32 layer;
    float *y;
    const float *q;
    u32 group;        /* query heads of a KV head */
    u32 heads, parts; /* query heads in a piece, pieces of a group */
    u32 toks;         /* tokens in a piece */
};

static u32 span_tiles(const struct attend_job *j, const struct kv_span *s) {
    return (s->n + j->toks - 1) / j->toks;
}

static void attend_piece(const struct attend_job *j, const struct kv_span *s, u64 piece) {
    const struct kv_pool *kv = j->kv;
    u32 part = (u32)(piece % j->parts), kv_head = (u32)(piece / j->parts % kv->n_kv_heads);
    u32 tok0 = (u32)(piece / j->parts / kv->n_kv_heads) * j->toks;
    u32 head0 = kv_head * j->group + part * j->heads;
    u32 n_head = MIN(j->heads, j->group - part * j->heads), n_tok = MIN(j->toks, s->n - tok0);
    struct attend_row rows[ATTEND_ROWS];
    u32 n = 0;
    for (u32 t = tok0; t < tok0 + n_tok; t++)
        for (u32 h = head0; h < head0 + n_head; h++) {
            u64 row = (u64)(s->first + t) * j->a->n_heads + h;
            u32 hi = s->pos0 + t + 1;
            u32 lo = j->a->window && hi > j->a->window ? hi - j->a->window : 0;
            rows[n++] = (struct attend_row){j->q + row * kv->dk, j->y + row * kv->dv, lo, hi};
        }
    ASSERT((s->pos0 + tok0 + n_tok - 1) / T < s->n_blocks);
    struct attend_args a = {.rows = rows,
                            .n_rows = n,
                            .dk = kv->dk,
                            .dv = kv->dv,
                            .k = kv_keys(kv, j->layer, kv_head),
                            .v = kv_values(kv, j->layer, kv_head),
                            .block_stride = kv_block_stride(kv),
                            .blocks = s->blocks,
                            .scale = j->a->scale,
                            .softcap = j->a->softcap};
    j->o->k->attend(&a);
}

static void attend_part(void *ctx, u32 i, u32 n_threads) {
    (void)i;
    (void)n_threads;
    const struct attend_job *j = ctx;
    const struct batch *b = j->o->batch;
    u32 s = 0;
    u64 begin = 0, per_tile = (u64)j->parts * j->kv->n_kv_heads;
    for (u64 piece = pool_take(j->o->pool);; piece = pool_take(j->o->pool)) {
        while (s < b->n_spans && piece - begin >= span_tiles(j, &b->spans[s]) * per_tile)
            begin += span_tiles(j, &b->spans[s++]) * per_tile;
        if (s == b->n_spans) return;
        attend_piece(j, &b->spans[s], piece - begin);
    }
}

void ops_cpu_attend(struct ops *ops, float *y, const float *q, const struct kv_pool *kv, u32 layer,
                    const struct attn *a) {
    struct ops_cpu *o = ops_cpu_of(ops);
    const struct batch *b = o->batch;
    ASSERT(layer < kv->n_layers && a->n_heads && a->n_heads % kv->n_kv_heads == 0);
    struct attend_job j = {.o = o, .kv = kv, .a = a, .layer = layer, .y = y, .q = q};
    j.group = a->n_heads / kv->n_kv_heads;
    /* With few tokens, single heads spread better over the threads than whole groups. */
    bool few = (u64)b->n_tok * kv->n_kv_heads < 2 * (u64)pool_threads(o->pool);
    j.heads = few && pool_threads(o->pool) > 1 ? 1 : MIN(j.group, (u32)ATTEND_ROWS);
    j.parts = (j.group + j.heads - 1) / j.heads;
    j.toks = MAX(1u, ATTEND_ROWS / j.heads);
    u64 work = 0;
    for (u32 s = 0; s < b->n_spans; s++)
        work += (u64)b->spans[s].n * (b->spans[s].pos0 + b->spans[s].n);
    ops_cpu_run(o, attend_part, &j, work * a->n_heads * (kv->dk + kv->dv) < SMALL_WORK);
}
