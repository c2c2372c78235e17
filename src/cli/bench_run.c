/* A model, and the steps that are timed. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/random.h"
#include "base/sysinfo.h"
#include "cli/bench.h"
#include "ops/ops_cpu.h"

enum {
    MAX_TOK = 512, /* of one step, as in the runner */
    WARM_UP_TG = 4,
};

/* The model that computes, or its outline over the cost table: both take the same steps. */
struct engine {
    struct ops *ops;
    struct model *model;
    struct kv_pool kv;
};

struct bench {
    const struct bench_run *run;
    struct kernels kernels;
    struct pool *pool;
    struct model_file *file;
    struct model_params params;
    struct shard_spec spec;
    struct engine real, cost;
    /* Of one case. */
    u32 n_seq, blocks_of_seq;
    u32 *blocks;   /* [n_seq][blocks_of_seq] */
    float *logits; /* [n_seq][n_vocab] */
    u64 n_drawn;   /* token ids so far */
    u32 ids[MAX_TOK], out[BENCH_BATCH_MAX];
    struct kv_span spans[BENCH_BATCH_MAX];
};
_Static_assert((int)BENCH_BATCH_MAX <= (int)MAX_TOK, "a decode step of all sequences is one batch");

static void engine_close(struct engine *g) {
    model_free(g->model);
    ops_free(g->ops);
}

/* n tokens at pos for each of n_seq sequences from seq on, with logits behind the last of each. */
static bool step(struct bench *b, struct engine *g, u32 seq, u32 n_seq, u32 pos, u32 n, bool logits,
                 struct err *e) {
    struct batch batch = {.n_tok = n_seq * n, .spans = b->spans, .n_spans = n_seq};
    for (u32 i = 0; i < n_seq; i++) {
        b->spans[i] = (struct kv_span){.first = i * n,
                                       .n = n,
                                       .pos0 = pos,
                                       .slot = seq + i,
                                       .blocks = b->blocks + (size_t)(seq + i) * b->blocks_of_seq,
                                       .n_blocks = b->blocks_of_seq};
        b->out[i] = i * n + n - 1;
    }
    for (u32 i = 0; i < batch.n_tok; i++)
        b->ids[i] = (u32)(random_at(1, b->n_drawn++) % b->params.n_vocab);
    struct model_step s = {
        .batch = &batch, .ids = b->ids, .out = b->out, .n_out = logits ? n_seq : 0};
    return model_forward(g->model, &s, &g->kv, NULL, b->logits, e);
}

/* n tokens from pos on, one sequence after the other, as prompts come. */
static bool prefill(struct bench *b, struct engine *g, u32 pos, u32 n, struct err *e) {
    for (u32 seq = 0; seq < b->n_seq; seq++)
        for (u32 at = 0, k; at < n; at += k) {
            k = MIN(n - at, (u32)MAX_TOK);
            if (!step(b, g, seq, 1, pos + at, k, at + k == n, e)) return false;
        }
    return true;
}

static bool generate(struct bench *b, struct engine *g, u32 pos, u32 n, struct err *e) {
    for (u32 i = 0; i < n; i++)
        if (!step(b, g, 0, b->n_seq, pos + i, 1, true, e)) return false;
    return true;
}

static double rate(u64 n_tok, u64 ns) {
    return (double)n_tok * 1e9 / (double)MAX(ns, 1);
}

static bool time_case(struct bench *b, struct bench_row *r, struct err *e) {
    const struct bench_case *c = &r->c;
    u32 tg_from = c->depth + c->pp;
    /* The KV memory is touched and the context filled; then a round that does not count. */
    if (!prefill(b, &b->real, 0, c->depth, e) || !prefill(b, &b->real, c->depth, c->pp, e) ||
        !generate(b, &b->real, tg_from, MIN(c->tg, (u32)WARM_UP_TG), e))
        return false;
    for (u32 i = 0; i < b->run->repeat; i++) {
        u64 t0 = clock_ns();
        if (!prefill(b, &b->real, c->depth, c->pp, e)) return false;
        u64 t1 = clock_ns();
        if (!generate(b, &b->real, tg_from, c->tg, e)) return false;
        u64 t2 = clock_ns();
        r->prompt_tps[i] = rate((u64)c->batch * c->pp, t1 - t0);
        r->generation_tps[i] = rate((u64)c->batch * c->tg, t2 - t1);
        r->n = i + 1;
    }
    return true;
}

static bool cost_case(struct bench *b, struct bench_row *r, struct err *e) {
    const struct bench_case *c = &r->c;
    b->cost.kv = b->real.kv;
    b->cost.kv.mem = NULL;
    ops_cost_reset(b->cost.ops);
    if (!prefill(b, &b->cost, c->depth, c->pp, e)) return false;
    r->prompt = ops_cost_read(b->cost.ops);
    ops_cost_reset(b->cost.ops);
    if (!generate(b, &b->cost, c->depth + c->pp, c->tg, e)) return false;
    r->generation = ops_cost_read(b->cost.ops);
    return true;
}

static bool check_case(const struct bench *b, const struct bench_case *c, u64 *n_blocks,
                       struct err *e) {
    const struct model_params *p = &b->params;
    u64 n_ctx = (u64)c->depth + c->pp + c->tg, per_block;
    struct sysinfo_mem mem;
    if (p->n_ctx_train && n_ctx > p->n_ctx_train)
        return err_set(e, ERR_ARG,
                       "depth, prompt and generation are %llu tokens: the model was "
                       "trained for %u",
                       (unsigned long long)n_ctx, p->n_ctx_train);
    sysinfo_mem(&mem);
    *n_blocks = c->batch * ((n_ctx + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS);
    if (*n_blocks > UINT32_MAX ||
        !kv_block_bytes(b->run->kv_type, p->n_layers, p->n_kv_heads, p->head_dim_k, p->head_dim_v,
                        &per_block) ||
        *n_blocks * per_block > mem.available_bytes)
        return err_set(e, ERR_MEMORY, "no memory for the KV cache of %u times %llu tokens",
                       c->batch, (unsigned long long)n_ctx);
    return true;
}

/* Memory of a case is its own, so that what it shows as peak is too. */
static bool open_case(struct bench *b, const struct bench_case *c, struct err *e) {
    const struct model_params *p = &b->params;
    u64 n_blocks;
    if (!check_case(b, c, &n_blocks, e)) return false;
    b->n_seq = c->batch;
    b->blocks_of_seq = (u32)(n_blocks / c->batch);
    b->blocks = xcalloc(n_blocks, sizeof *b->blocks);
    b->logits = xcalloc((size_t)b->n_seq * p->n_vocab, sizeof *b->logits);
    for (u32 i = 0; i < n_blocks; i++) b->blocks[i] = i;
    return kv_pool_init(&b->real.kv, b->run->kv_type, p->n_layers, (u32)n_blocks, p->n_kv_heads,
                        p->head_dim_k, p->head_dim_v, e);
}

static void close_case(struct bench *b) {
    if (b->real.kv.mem) kv_pool_deinit(&b->real.kv);
    b->real.kv = (struct kv_pool){0};
    free(b->blocks);
    free(b->logits);
    b->blocks = NULL;
    b->logits = NULL;
}

static bool run_case(struct bench *b, struct bench_row *r, struct err *e) {
    if (b->run->progress) b->run->progress(&r->c);
    sysinfo_peak_rss_reset();
    bool ok = open_case(b, &r->c, e) && time_case(b, r, e);
    r->peak_memory = sysinfo_peak_rss_bytes();
    ok = ok && cost_case(b, r, e);
    close_case(b);
    return ok;
}

static bool check_memory(const struct bench *b, struct err *e) {
    char need[32], have[32];
    struct sysinfo_mem mem;
    sysinfo_mem(&mem);
    if (b->file->size_bytes <= mem.available_bytes) return true;
    return err_set(e, ERR_MEMORY, "%s needs %s, and %s are free here", b->run->path,
                   size_text(b->file->size_bytes, need), size_text(mem.available_bytes, have));
}

/* Before anything is measured, lest what was measured is lost when a later case does not fit. */
static bool check_all(struct bench *b, const struct bench_row *rows, u32 n, struct err *e) {
    u64 n_blocks;
    b->file = model_file_open(b->run->path, e);
    bool ok = b->file && model_params_read(b->file, &b->params, e) && check_memory(b, e);
    for (u32 i = 0; ok && i < n; i++) ok = check_case(b, &rows[i].c, &n_blocks, e);
    model_file_close(b->file);
    b->file = NULL;
    return ok;
}

/* The file is closed once everything is packed, so that its pages are not counted as ours. */
static bool load(struct bench *b, struct bench_machine *m, struct err *e) {
    struct ops_cpu_dims dims;
    sysinfo_peak_rss_reset();
    u64 start = clock_ns();
    b->file = model_file_open(b->run->path, e);
    if (!b->file || !model_params_read(b->file, &b->params, e)) return false;
    b->spec = (struct shard_spec){
        .layer_end = b->params.n_layers, .has_embed = true, .has_head = true, .tp_ranks = 1};
    model_ops_dims(&b->params, MAX_TOK, &dims);
    dims.act_bits = b->run->act_bits;
    if (!(b->real.ops = ops_cpu_new(&b->kernels, b->pool, &dims, e)) ||
        !(b->real.model =
              model_load(b->file, &b->params, &b->spec, b->real.ops, MAX_TOK, NULL, NULL, e)))
        return false;
    m->load_s = (double)(clock_ns() - start) / 1e9;
    m->load_peak_memory = sysinfo_peak_rss_bytes();
    m->weights_bytes = model_weights_bytes(b->real.model);
    m->file_bytes = b->file->size_bytes;
    m->params = b->params;
    model_file_close(b->file);
    b->file = model_file_open(b->run->path, e);
    if (!b->file) return false;
    b->cost.ops = ops_cost_new(&b->kernels, 1);
    b->cost.model = model_outline(b->file, &b->params, &b->spec, b->cost.ops, e);
    return b->cost.model != NULL;
}

bool bench_measure(const struct bench_run *run, struct bench_machine *m, struct bench_row *rows,
                   u32 n, struct err *e) {
    struct bench *b = xcalloc(1, sizeof *b);
    struct peak before, after;
    b->run = run;
    *m = (struct bench_machine){
        .path = run->path, .kv_type = run->kv_type, .act_bits = run->act_bits};
    bool ok = kernels_select(&b->kernels, run->cpu_mask, e) && check_all(b, rows, n, e) &&
              (b->pool = pool_new(rows[0].c.threads, false, e)) != NULL &&
              peak_measure(b->pool, b->kernels.set, &before, e);
    m->isa = b->kernels.set;
    if (ok && !load(b, m, e)) ok = err_wrap(e, "loading %s", run->path);
    for (u32 i = 0; ok && i < n; i++) ok = run_case(b, &rows[i], e);
    engine_close(&b->cost);
    engine_close(&b->real);
    model_file_close(b->file);
    /* Again: the machine may have been slow the first time, which would flatter. */
    ok = ok && peak_measure(b->pool, b->kernels.set, &after, e);
    if (ok) m->peak = peak_best(before, after);
    pool_free(b->pool);
    free(b);
    return ok;
}
