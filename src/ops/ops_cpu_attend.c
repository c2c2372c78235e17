#include "ops/ops_cpu_impl.h"

#include <string.h>

enum { T = KV_BLOCK_TOKENS, SMALL_WORK = 1 << 15 };

struct store_job {
    struct ops_cpu *o;
    struct kv_pool *kv;
    u32 layer;
    const float *k, *v;
};

/* Keys are transposed within a block, so a token's key is a column of it. */
static void store_f16(const struct store_job *j, u8 *head, u32 t, const float *k, const float *v) {
    const struct kernels *kn = j->o->k;
    u16 half[64], *keys = (u16 *)(void *)head;
    const u32 dk = j->kv->dk, dv = j->kv->dv;
    for (u32 d0 = 0; d0 < dk; d0 += ARRAY_LEN(half)) {
        u32 n = MIN(dk - d0, (u32)ARRAY_LEN(half));
        kn->to_f16(half, k + d0, n);
        for (u32 d = 0; d < n; d++) keys[(d0 + d) * T + t] = half[d];
    }
    kn->to_f16(keys + (u64)T * dk + (u64)t * dv, v, dv);
}

static void store_q8(const struct store_job *j, u8 *head, u32 t, const float *k, const float *v) {
    const u32 dk = j->kv->dk, dv = j->kv->dv;
    u16 *ks = (u16 *)(void *)(head + kv_key_scales_at(dk, dv)) + t;
    u16 *vs = (u16 *)(void *)(head + kv_value_scales_at(dk, dv)) + t;
    i8 *keys = (i8 *)head, *values = keys + kv_values_at(KV_Q8, dk) + (u64)t * dv;
    for (u32 d = 0; d < dk; d += KV_GROUP, ks += T)
        kv_q8_store(keys + d * T + t, T, ks, k + d, MIN(dk - d, (u32)KV_GROUP));
    for (u32 d = 0; d < dv; d += KV_GROUP, vs += T)
        kv_q8_store(values + d, 1, vs, v + d, MIN(dv - d, (u32)KV_GROUP));
}

static void store_span(const struct store_job *j, const struct kv_span *s, u64 lo, u64 hi) {
    const struct kv_pool *kv = j->kv;
    for (u64 i = lo; i < hi; i++) {
        u32 pos = s->pos0 + (u32)(i - s->first), b = pos / T, t = pos % T;
        ASSERT(b < s->n_blocks && s->blocks[b] < kv->n_blocks);
        for (u32 h = 0; h < kv->n_kv_heads; h++) {
            u64 row = i * kv->n_kv_heads + h;
            u8 *head = kv_head(kv, j->layer, h) + s->blocks[b] * kv_block_stride(kv);
            (kv->type == KV_Q8 ? store_q8 : store_f16)(j, head, t, j->k + row * kv->dk,
                                                       j->v + row * kv->dv);
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
 * together at most ATTEND_ROWS rows that read the same keys and values. Where pieces are few and
 * the context is long, each part of the context is a unit of its own: its sums wait in o->parts
 * until all are there, and are merged in order. The bits are those of a piece that walks the
 * parts. */
struct attend_job {
    struct ops_cpu *o;
    const struct kv_pool *kv;
    const struct attn *a;
    u32 layer;
    float *y;
    const float *q;
    u32 group, shift;    /* query heads of a KV head; those of the first one that are not here */
    u64 y_first, y_cols; /* where a token's heads begin in its row of y, and its length */
    u32 heads, cuts;     /* query heads in a piece, pieces of a group */
    u32 toks;            /* tokens in a piece */
    u32 rows_of_unit;    /* 0: pieces are not split */
};

static u64 span_pieces(const struct attend_job *j, const struct kv_span *s) {
    return (u64)((s->n + j->toks - 1) / j->toks) * j->cuts * j->kv->n_kv_heads;
}

static u32 span_parts(const struct kv_span *s) {
    return (s->pos0 + s->n - 1) / ATTEND_PART + 1;
}

struct piece {
    struct attend_row row[ATTEND_ROWS];
    u32 n, kv_head, part0, part1; /* rows, parts that any of them sees */
};

/* False: none of its heads are here. */
static bool piece_of(const struct attend_job *j, const struct kv_span *s, u64 no, struct piece *p) {
    const struct kv_pool *kv = j->kv;
    u32 cut = (u32)(no % j->cuts), tok0 = (u32)(no / j->cuts / kv->n_kv_heads) * j->toks;
    p->kv_head = (u32)(no / j->cuts % kv->n_kv_heads);
    /* Among the heads of all the KV heads here, of which this rank may lack the first and last. */
    u32 from = p->kv_head * j->group + cut * j->heads;
    u32 to = MIN(from + j->heads, (p->kv_head + 1) * j->group);
    from = MAX(from, j->shift) - j->shift;
    to = MIN(MAX(to, j->shift) - j->shift, j->a->n_heads);
    p->n = 0;
    for (u32 t = tok0; t < MIN(tok0 + j->toks, s->n); t++)
        for (u32 h = from; h < to; h++) {
            u64 tok = s->first + t;
            u32 hi = s->pos0 + t + 1;
            p->row[p->n++] =
                (struct attend_row){.q = j->q + (tok * j->a->n_heads + h) * kv->dk,
                                    .out = j->y + tok * j->y_cols + j->y_first + (u64)h * kv->dv,
                                    .lo = j->a->window && hi > j->a->window ? hi - j->a->window : 0,
                                    .hi = hi};
        }
    if (!p->n) return false;
    p->part0 = p->row[0].lo / ATTEND_PART;
    p->part1 = (p->row[p->n - 1].hi - 1) / ATTEND_PART + 1;
    ASSERT((p->row[p->n - 1].hi - 1) / T < s->n_blocks);
    return true;
}

static struct attend_args args_of(const struct attend_job *j, const struct kv_span *s,
                                  const struct piece *p) {
    return (struct attend_args){.rows = p->row,
                                .n_rows = p->n,
                                .type = j->kv->type,
                                .dk = j->kv->dk,
                                .dv = j->kv->dv,
                                .kv = kv_head(j->kv, j->layer, p->kv_head),
                                .block_stride = kv_block_stride(j->kv),
                                .blocks = s->blocks,
                                .scale = j->a->scale,
                                .softcap = j->a->softcap};
}

static bool sees(const struct attend_row *r, u32 part) {
    return r->lo < (part + 1) * ATTEND_PART && r->hi > part * ATTEND_PART;
}

/* Adds what part no. `part` gave, one row after the other from `out` on, to the rows of p. */
static void take_part(const struct attend_job *j, const struct piece *p, u32 part, const float *out,
                      const struct attend_sum *sums, struct attend_sum total[ATTEND_ROWS]) {
    const u32 dv = j->kv->dv;
    for (u32 i = 0; i < p->n; i++, out += dv) {
        if (!sees(&p->row[i], part)) continue;
        if (p->row[i].lo < part * ATTEND_PART) {
            j->o->k->attend_merge(p->row[i].out, &total[i], out, &sums[i], dv);
        } else { /* the first that it sees */
            memcpy(p->row[i].out, out, dv * sizeof *out);
            total[i] = sums[i];
        }
    }
}

static void finish(const struct attend_job *j, const struct piece *p,
                   const struct attend_sum total[ATTEND_ROWS]) {
    for (u32 i = 0; i < p->n; i++) j->o->k->scale(p->row[i].out, 1.0f / total[i].sum, j->kv->dv);
}

static void compute_part(const struct attend_job *j, const struct kv_span *s, struct piece p,
                         u32 part, float *out, struct attend_sum *sums) {
    struct attend_args a = args_of(j, s, &p);
    for (u32 i = 0; out && i < p.n; i++) p.row[i].out = out + (u64)i * j->kv->dv;
    a.rows = p.row;
    a.sums = sums;
    a.part = part;
    j->o->k->attend(&a);
}

static void whole_piece(const struct attend_job *j, const struct kv_span *s, u64 no, u32 thread) {
    struct attend_sum total[ATTEND_ROWS], sums[ATTEND_ROWS];
    float *out = j->o->parts + (u64)thread * ATTEND_ROWS * j->kv->dv;
    struct piece p;
    if (!piece_of(j, s, no, &p)) return;
    if (p.part1 == p.part0 + 1) {
        compute_part(j, s, p, p.part0, NULL, total);
    } else {
        for (u32 part = p.part0; part < p.part1; part++) {
            compute_part(j, s, p, part, out, sums);
            take_part(j, &p, part, out, sums, total);
        }
    }
    finish(j, &p, total);
}

/* Unit: a part of a piece; those of a piece lie side by side. */
static void one_unit(const struct attend_job *j, const struct kv_span *s, u64 no, u64 base) {
    u32 n_parts = span_parts(s), part = (u32)(no % n_parts);
    u64 slot = (base + no) * j->rows_of_unit;
    struct piece p;
    if (piece_of(j, s, no / n_parts, &p) && part >= p.part0 && part < p.part1)
        compute_part(j, s, p, part, j->o->parts + slot * j->kv->dv, j->o->sums + slot);
}

static void merge_piece(const struct attend_job *j, const struct kv_span *s, u64 no, u64 base) {
    struct attend_sum total[ATTEND_ROWS];
    struct piece p;
    if (!piece_of(j, s, no, &p)) return;
    for (u32 part = p.part0; part < p.part1; part++) {
        u64 slot = (base + no * span_parts(s) + part) * j->rows_of_unit;
        take_part(j, &p, part, j->o->parts + slot * j->kv->dv, j->o->sums + slot, total);
    }
    finish(j, &p, total);
}

static void attend_share(void *ctx, u32 thread, u32 n_threads) {
    (void)n_threads;
    const struct attend_job *j = ctx;
    const struct batch *b = j->o->batch;
    u64 begin = 0, n;
    u32 s = 0;
    for (u64 no = pool_take(j->o->pool);; no = pool_take(j->o->pool)) {
        for (; s < b->n_spans; begin += n, s++) {
            n = span_pieces(j, &b->spans[s]) * (j->rows_of_unit ? span_parts(&b->spans[s]) : 1);
            if (no - begin < n) break;
        }
        if (s == b->n_spans) return;
        if (j->rows_of_unit)
            one_unit(j, &b->spans[s], no - begin, begin);
        else
            whole_piece(j, &b->spans[s], no - begin, thread);
    }
}

static void merge_share(void *ctx, u32 thread, u32 n_threads) {
    (void)thread;
    (void)n_threads;
    const struct attend_job *j = ctx;
    const struct batch *b = j->o->batch;
    u64 begin = 0, base = 0;
    u32 s = 0;
    for (u64 no = pool_take(j->o->pool);; no = pool_take(j->o->pool)) {
        for (u64 n; s < b->n_spans; begin += n, s++) {
            n = span_pieces(j, &b->spans[s]);
            if (no - begin < n) break;
            base += n * span_parts(&b->spans[s]);
        }
        if (s == b->n_spans) return;
        merge_piece(j, &b->spans[s], no - begin, base);
    }
}

/* Chooses pieces: whole groups of heads where there is enough for every thread, else parts, else
 * single heads. */
static void choose(struct attend_job *j) {
    const struct batch *b = j->o->batch;
    const u64 threads = pool_threads(j->o->pool);
    u64 pieces = 0, units = 0;
    u32 longest = 0;
    j->heads = MIN(j->group, (u32)ATTEND_ROWS);
    j->cuts = (j->group + j->heads - 1) / j->heads;
    j->toks = ATTEND_ROWS / j->heads;
    for (u32 s = 0; s < b->n_spans; s++) {
        pieces += span_pieces(j, &b->spans[s]);
        units += span_pieces(j, &b->spans[s]) * span_parts(&b->spans[s]);
        longest = MAX(longest, b->spans[s].n);
    }
    if (threads == 1 || pieces >= 4 * threads) return;
    u32 rows = j->heads * MIN(j->toks, longest);
    if (units > pieces && units * rows <= OPS_CPU_PART_ROWS) {
        j->rows_of_unit = rows;
    } else if (pieces < 2 * threads) {
        j->heads = 1;
        j->cuts = j->group;
        j->toks = ATTEND_ROWS;
    }
}

void ops_cpu_attend(struct ops *ops, float *y, const float *q, const struct kv_pool *kv, u32 layer,
                    const struct attn *a) {
    struct ops_cpu *o = ops_cpu_of(ops);
    const struct batch *b = o->batch;
    if (!a->n_heads) return;
    ASSERT(layer < kv->n_layers && kv->dv <= o->dims.max_dv);
    struct attend_job j = {.o = o, .kv = kv, .a = a, .layer = layer, .y = y, .q = q};
    j.group = a->group ? a->group : a->n_heads / kv->n_kv_heads;
    j.shift = a->shift;
    j.y_first = a->y_first;
    j.y_cols = a->y_cols ? a->y_cols : (u64)a->n_heads * kv->dv;
    ASSERT(a->n_heads + j.shift <= j.group * kv->n_kv_heads);
    choose(&j);
    u64 work = 0;
    for (u32 s = 0; s < b->n_spans; s++)
        work += (u64)b->spans[s].n * (b->spans[s].pos0 + b->spans[s].n);
    bool small = work * a->n_heads * (kv->dk + kv->dv) < SMALL_WORK;
    ops_cpu_run(o, attend_share, &j, small);
    if (j.rows_of_unit) ops_cpu_run(o, merge_share, &j, small);
}
