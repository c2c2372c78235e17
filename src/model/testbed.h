/* testbed.h - what tests of whole models share: one shard with its table, pool and KV memory.
 *
 * Only included by tests, so that it links nothing into the program. The KV blocks of a sequence
 * are dealt out of order on purpose. */
#pragma once

#include <stdlib.h>

#include "base/arena.h"
#include "formats/blocks.h"
#include "model/model.h"
#include "ops/ops_cpu.h"

enum { TESTBED_SEQS = 4 };

struct testbed {
    struct model_file *f;
    struct model_params p;
    struct shard_spec spec;
    struct kernels k;
    struct pool *pool;
    struct ops *ops;
    struct model *m;
    struct kv_pool kv;
    u32 n_seqs, n_blocks; /* n_blocks: of one sequence */
    u32 *blocks;          /* [n_seqs][n_blocks] */
};

/* Tokens of one sequence in a step. */
struct testbed_part {
    u32 seq, pos0, n;
};

/* layer_end 0: all layers. cpu_mask NULL: SKEIN_CPU_MASK, with which whole tests run as on an older
 * machine. */
struct testbed_opts {
    const char *cpu_mask;
    u32 n_threads; /* 0: 2 */
    u32 n_seqs;    /* 0: TESTBED_SEQS */
    u32 max_tok, n_ctx;
    u32 layer_first, layer_end;
    enum kv_type kv_type;
    u32 act_bits;             /* 0: 16 */
    struct shard_slice slice; /* of rank tp_rank of tp_ranks; the test sets the team */
    u32 tp_rank, tp_ranks;
    bool exact; /* decode the weights to F32 and multiply without rounding activations */
};

/* The CPU table with matrices decoded to F32 before they are packed. */
static struct ops_table testbed_exact;
static const struct ops_table *testbed_cpu;

static inline bool testbed_f32_bytes(struct ops *o, enum dtype type, u64 rows, u64 cols,
                                     u64 *bytes) {
    (void)type;
    return testbed_cpu->matrix_bytes(o, DTYPE_F32, rows, cols, bytes);
}

static inline bool testbed_f32_load(struct ops *o, struct tensor *t, void *mem, struct err *e) {
    float *f32 = xcalloc(t->rows * t->cols, sizeof *f32);
    blocks_decode(t->type, f32, t->data, t->rows * t->cols);
    t->type = DTYPE_F32;
    t->data = f32;
    bool ok = testbed_cpu->load_matrix(o, t, mem, e);
    t->data = NULL;
    free(f32);
    return ok;
}

static inline void testbed_make_exact(struct ops *o) {
    testbed_cpu = o->t;
    testbed_exact = *o->t;
    testbed_exact.matrix_bytes = testbed_f32_bytes;
    testbed_exact.load_matrix = testbed_f32_load;
    o->t = &testbed_exact;
}

static inline void testbed_close(struct testbed *b) {
    model_free(b->m);
    ops_free(b->ops);
    pool_free(b->pool);
    if (b->kv.mem) kv_pool_deinit(&b->kv);
    model_file_close(b->f);
    free(b->blocks);
    *b = (struct testbed){0};
}

static inline bool testbed_open(struct testbed *b, const char *path, const struct testbed_opts *o,
                                struct err *e) {
    struct ops_cpu_dims dims;
    *b = (struct testbed){.n_blocks = (o->n_ctx + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS,
                          .n_seqs = o->n_seqs ? o->n_seqs : TESTBED_SEQS};
    if (!(b->f = model_file_open(path, e)) || !model_params_read(b->f, &b->p, e)) return false;
    u32 end = o->layer_end ? o->layer_end : b->p.n_layers;
    b->spec = (struct shard_spec){.layer_first = o->layer_first,
                                  .layer_end = end,
                                  .has_embed = o->layer_first == 0,
                                  .has_head = end == b->p.n_layers,
                                  .slice = o->slice,
                                  .tp_rank = o->tp_rank,
                                  .tp_ranks = MAX(o->tp_ranks, 1u)};
    model_ops_dims(&b->p, o->max_tok, &dims);
    dims.act_bits = o->act_bits;
    b->blocks = xcalloc((size_t)b->n_seqs * b->n_blocks, sizeof *b->blocks);
    for (u32 i = 0; i < b->n_seqs * b->n_blocks; i++)
        b->blocks[i] = i % b->n_blocks * b->n_seqs + (b->n_seqs - 1 - i / b->n_blocks);
    if (!kernels_select(&b->k, o->cpu_mask ? o->cpu_mask : getenv("SKEIN_CPU_MASK"), e) ||
        !(b->pool = pool_new(o->n_threads ? o->n_threads : 2, false, e)) ||
        !(b->ops = ops_cpu_new(&b->k, b->pool, &dims, e)))
        return false;
    if (o->exact) testbed_make_exact(b->ops);
    return (b->m = model_load(b->f, &b->p, &b->spec, b->ops, o->max_tok, NULL, NULL, e)) &&
           kv_pool_init(&b->kv, o->kv_type, end - o->layer_first, b->n_seqs * b->n_blocks,
                        shard_kv_heads(&b->p, &b->spec), b->p.head_dim_k, b->p.head_dim_v, e);
}

/* One step over the parts' tokens, in order. out == NULL: every token wants logits. */
static inline bool testbed_step(struct testbed *b, const struct testbed_part *part, u32 n_parts,
                                const u32 *ids, const u32 *out, u32 n_out, float *x, float *logits,
                                struct err *e) {
    struct kv_span *spans = xcalloc(n_parts, sizeof *spans);
    struct batch batch = {.spans = spans, .n_spans = n_parts};
    for (u32 i = 0; i < n_parts; i++) {
        spans[i] = (struct kv_span){.first = batch.n_tok,
                                    .n = part[i].n,
                                    .pos0 = part[i].pos0,
                                    .slot = part[i].seq,
                                    .blocks = b->blocks + (size_t)part[i].seq * b->n_blocks,
                                    .n_blocks = b->n_blocks};
        batch.n_tok += part[i].n;
    }
    u32 *all = xcalloc(batch.n_tok, sizeof *all);
    for (u32 i = 0; i < batch.n_tok; i++) all[i] = i;
    struct model_step s = {
        .batch = &batch, .ids = ids, .out = out ? out : all, .n_out = out ? n_out : batch.n_tok};
    bool ok = model_forward(b->m, &s, &b->kv, x, logits, e);
    free(all);
    free(spans);
    return ok;
}
