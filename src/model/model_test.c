#include "model/model.h"
#include "base/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "formats/blocks.h"
#include "formats/toymodel.h"
#include "model/testbed.h"
#include "ops/act24.h"
#include "ops/ops_cost.h"

/* Whole models, tiny ones with random weights. What they compute is compared with transformers and
 * llama.cpp in tests/golden; here it is compared with itself, bit by bit, whichever way the same
 * tokens come. */

enum { N_TOK = 40, MAX_TOK = 64, MAX_VOCAB = 512 };

static const struct toymodel_spec SPECS[] = {
    {.family = "llama", .n_layers = 4},
    {.family = "llama", .n_layers = 2, .type = DTYPE_Q4_0, .rope = TOYMODEL_ROPE_LLAMA3},
    {.family = "mistral", .n_layers = 2, .type = DTYPE_Q8_0},
    {.family = "qwen2", .n_layers = 3, .type = DTYPE_Q4_1, .rope = TOYMODEL_ROPE_YARN},
    {.family = "qwen3", .n_layers = 2, .type = DTYPE_Q6_K, .tied = true},
    {.family = "llama", .n_layers = 3, .type = DTYPE_Q4_K, .mixed = true},
    {.family = "gemma3", .n_layers = 7, .type = DTYPE_BF16, .sliding_window = 12},
};

struct path {
    char z[64];
};

static struct path temp_file(const void *bytes, size_t n) {
    struct path p = {"/tmp/skein-model-XXXXXX"};
    struct err e = {0};
    int fd = mkstemp(p.z);
    assert_true(fd >= 0);
    close(fd);
    if (!file_write(p.z, bytes, n, 0600, &e)) fail_msg("%s", e.msg);
    return p;
}

static struct path toy_file(const struct toymodel_spec *spec) {
    struct toymodel toy;
    struct str bytes = {0};
    struct err e = {0};
    if (!toymodel_init(&toy, spec, &e)) fail_msg("%s", e.msg);
    toymodel_build(&toy, &bytes);
    struct path p = temp_file(bytes.p, bytes.n);
    str_deinit(&bytes);
    toymodel_deinit(&toy);
    return p;
}

static void open_or_fail(struct testbed *b, const char *path, struct testbed_opts o) {
    struct err e = {0};
    if (!o.max_tok) o.max_tok = MAX_TOK;
    o.n_ctx = 2 * MAX_TOK;
    if (!testbed_open(b, path, &o, &e)) fail_msg("%s: %s", path, e.msg);
    assert_in_range(b->p.n_vocab, 2, MAX_VOCAB);
}

/* All tokens want logits. */
static void step(struct testbed *b, const struct testbed_part *part, u32 n_parts, const u32 *ids,
                 float *x, float *logits) {
    struct err e = {0};
    if (!testbed_step(b, part, n_parts, ids, NULL, 0, x, logits, &e)) fail_msg("%s", e.msg);
}

static void fill_ids(u32 *ids, u32 n, u32 n_vocab, u32 salt) {
    for (u32 i = 0; i < n; i++) ids[i] = (i * 2654435761u + salt * 40503u) / 7 % n_vocab;
}

static void expect_same(const float *a, const float *b, u32 n_rows, u32 n_vocab, const char *what) {
    for (u32 i = 0; i < n_rows * n_vocab; i++)
        if (memcmp(&a[i], &b[i], sizeof a[i]))
            fail_msg("%s: row %u, logit %u: %.9g and %.9g", what, i / n_vocab, i % n_vocab,
                     (double)a[i], (double)b[i]);
}

static float whole_logits[N_TOK * MAX_VOCAB], other_logits[N_TOK * MAX_VOCAB];

/* One step over all tokens of one sequence: what every other way is compared with. */
static void whole(struct testbed *b, u32 *ids, u32 seq, float *logits) {
    fill_ids(ids, N_TOK, b->p.n_vocab, seq);
    step(b, &(struct testbed_part){.seq = seq, .n = N_TOK}, 1, ids, NULL, logits);
    for (u32 i = 0; i < N_TOK * b->p.n_vocab; i++) assert_true(isfinite(logits[i]));
}

static void chunks_equal_one_step(void **state) {
    (void)state;
    static const u32 chunks[] = {1, 1, 7, 16, 1, 14};
    for (size_t i = 0; i < ARRAY_LEN(SPECS); i++) {
        struct path file = toy_file(&SPECS[i]);
        struct testbed b;
        u32 ids[N_TOK], at = 0;
        open_or_fail(&b, file.z, (struct testbed_opts){0});
        whole(&b, ids, 0, whole_logits);
        for (size_t c = 0; c < ARRAY_LEN(chunks); at += chunks[c++])
            step(&b, &(struct testbed_part){.seq = 1, .pos0 = at, .n = chunks[c]}, 1, ids + at,
                 NULL, other_logits + (size_t)at * b.p.n_vocab);
        assert_int_equal(at, N_TOK);
        expect_same(whole_logits, other_logits, N_TOK, b.p.n_vocab, SPECS[i].family);
        testbed_close(&b);
        unlink(file.z);
    }
}

static void sequences_do_not_see_each_other(void **state) {
    (void)state;
    static float alone[3][N_TOK * MAX_VOCAB];
    for (size_t i = 0; i < ARRAY_LEN(SPECS); i++) {
        struct path file = toy_file(&SPECS[i]);
        struct testbed b;
        u32 ids[3][N_TOK], mixed[MAX_TOK], n_vocab, lens[3] = {5, 1, 11};
        open_or_fail(&b, file.z, (struct testbed_opts){0});
        n_vocab = b.p.n_vocab;
        for (u32 s = 0; s < 3; s++) whole(&b, ids[s], s, alone[s]);
        /* Then the last tokens of all three, in one step and in another order. */
        struct testbed_part parts[3];
        u32 n = 0;
        for (u32 k = 0; k < 3; k++) {
            u32 s = 2 - k;
            parts[k] = (struct testbed_part){.seq = s, .pos0 = N_TOK - lens[s], .n = lens[s]};
            memcpy(mixed + n, ids[s] + N_TOK - lens[s], lens[s] * sizeof *mixed);
            n += lens[s];
        }
        step(&b, parts, 3, mixed, NULL, other_logits);
        const float *got = other_logits;
        for (u32 k = 0; k < 3; got += (size_t)parts[k].n * n_vocab, k++)
            expect_same(alone[parts[k].seq] + (size_t)parts[k].pos0 * n_vocab, got, parts[k].n,
                        n_vocab, SPECS[i].family);
        testbed_close(&b);
        unlink(file.z);
    }
}

enum { MANY = 32 };

/* The next token of sequences seq..seq+n-1, each at the end of its own prompt, in one step. */
static void next_tokens(struct testbed *b, u32 seq, u32 n, float *logits) {
    struct testbed_part parts[MANY];
    u32 ids[MANY];
    for (u32 i = 0; i < n; i++) {
        parts[i] = (struct testbed_part){.seq = seq + i, .pos0 = 1 + (seq + i) * 7 % 50, .n = 1};
        ids[i] = (seq + i) * 31 % b->p.n_vocab;
    }
    step(b, parts, n, ids, NULL, logits);
}

/* A token's logits are the same bits alone and among 2, 7 or 32, with any number of threads. */
static void check_batches(const char *path, enum kv_type kv_type, const char *family) {
    static const u32 BATCH[] = {1, 2, 7, 32};
    static float alone[MANY * MAX_VOCAB], batch[MANY * MAX_VOCAB];
    for (u32 threads = 1; threads <= 3; threads++) {
        struct testbed b;
        u32 ids[N_TOK + 20];
        open_or_fail(
            &b, path,
            (struct testbed_opts){.n_threads = threads, .n_seqs = MANY, .kv_type = kv_type});
        for (u32 s = 0; s < MANY; s++) {
            struct testbed_part part = {.seq = s, .n = 1 + s * 7 % 50};
            fill_ids(ids, part.n, b.p.n_vocab, s);
            step(&b, &part, 1, ids, NULL, batch);
        }
        for (u32 i = 0; i < ARRAY_LEN(BATCH); i++) {
            float *to = threads == 1 && i == 0 ? alone : batch;
            for (u32 s = 0; s < MANY; s += BATCH[i])
                next_tokens(&b, s, MIN(BATCH[i], MANY - s), to + (size_t)s * b.p.n_vocab);
            expect_same(alone, to, MANY, b.p.n_vocab, family);
        }
        testbed_close(&b);
    }
}

static void batches_of_2_7_32(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(SPECS); i++) {
        struct path file = toy_file(&SPECS[i]);
        check_batches(file.z, i % 2 ? KV_Q8 : KV_F16, SPECS[i].family);
        unlink(file.z);
    }
}

/* Tokens that want no logits change nothing for those that do. */
static void only_wanted_logits(void **state) {
    (void)state;
    static const u32 OUT[] = {3, 4, 20, N_TOK - 1};
    for (size_t i = 0; i < ARRAY_LEN(SPECS); i++) {
        struct path file = toy_file(&SPECS[i]);
        struct testbed b;
        struct err e = {0};
        u32 ids[N_TOK], n_vocab;
        const struct testbed_part part = {.seq = 1, .n = N_TOK};
        open_or_fail(&b, file.z, (struct testbed_opts){0});
        n_vocab = b.p.n_vocab;
        whole(&b, ids, 0, whole_logits);
        for (u32 n = 0; n <= ARRAY_LEN(OUT);
             n++) { /* 0: none, as in all but a prompt's last step */
            if (!testbed_step(&b, &part, 1, ids, OUT, n, NULL, other_logits, &e))
                fail_msg("%s", e.msg);
            for (u32 k = 0; k < n; k++)
                expect_same(whole_logits + (size_t)OUT[k] * n_vocab,
                            other_logits + (size_t)k * n_vocab, 1, n_vocab, SPECS[i].family);
        }
        u32 next = 7 % n_vocab; /* keys and values of the last layer are there for the next step */
        step(&b, &(struct testbed_part){.seq = 0, .pos0 = N_TOK, .n = 1}, 1, &next, NULL,
             whole_logits);
        step(&b, &(struct testbed_part){.seq = 1, .pos0 = N_TOK, .n = 1}, 1, &next, NULL,
             other_logits);
        expect_same(whole_logits, other_logits, 1, n_vocab, SPECS[i].family);
        testbed_close(&b);
        unlink(file.z);
    }
}

static void shards_equal_the_whole(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(SPECS); i++) {
        struct path file = toy_file(&SPECS[i]);
        struct testbed b, first, second;
        u32 ids[N_TOK];
        open_or_fail(&b, file.z, (struct testbed_opts){0});
        whole(&b, ids, 0, whole_logits);
        open_or_fail(&first, file.z, (struct testbed_opts){.layer_end = 1});
        open_or_fail(&second, file.z, (struct testbed_opts){.layer_first = 1});
        float *x = xcalloc((size_t)N_TOK * b.p.dim, sizeof *x);
        struct testbed_part part = {.n = N_TOK};
        step(&first, &part, 1, ids, x, NULL);
        /* As it travels between machines. */
        void *sent = xcalloc(1, act24_bytes(N_TOK, b.p.dim));
        act24_pack(sent, x, N_TOK, b.p.dim);
        memset(x, 0, (size_t)N_TOK * b.p.dim * sizeof *x);
        act24_unpack(x, sent, N_TOK, b.p.dim);
        free(sent);
        step(&second, &part, 1, NULL, x, other_logits);
        expect_same(whole_logits, other_logits, N_TOK, b.p.n_vocab, SPECS[i].family);
        if (!b.p.tied_embedding) /* else both shards hold the embedding */
            assert_true(model_weights_bytes(first.m) + model_weights_bytes(second.m) ==
                        model_weights_bytes(b.m));
        free(x);
        testbed_close(&first);
        testbed_close(&second);
        testbed_close(&b);
        unlink(file.z);
    }
}

static double distance(const float *a, const float *b, u32 n) {
    double diff = 0, norm = 0;
    for (u32 i = 0; i < n; i++) {
        diff += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        norm += (double)b[i] * b[i];
    }
    return sqrt(diff / norm);
}

/* Threads and instruction sets don't change a bit either. */
static void machines_agree(void **state) {
    (void)state;
    u32 n_known, n_usable;
    const char *const *sets = kernels_sets(&n_known, &n_usable);
    for (size_t i = 0; i < ARRAY_LEN(SPECS); i++) {
        struct path file = toy_file(&SPECS[i]);
        u32 ids[N_TOK];
        for (u32 s = 0; s < n_usable; s++) {
            struct testbed b;
            open_or_fail(&b, file.z,
                         (struct testbed_opts){.cpu_mask = sets[s], .n_threads = 1 + s % 3});
            whole(&b, ids, 0, s ? other_logits : whole_logits);
            bool own_order = SPECS[i].type == DTYPE_BF16 && strcmp(sets[s], "amx") == 0;
            if (own_order) /* kernels.h */
                assert_true(distance(other_logits, whole_logits, N_TOK * b.p.n_vocab) < 1e-3);
            else if (s)
                expect_same(whole_logits, other_logits, N_TOK, b.p.n_vocab, sets[s]);
            testbed_close(&b);
        }
        unlink(file.z);
    }
}

/* Each block format against the same weights decoded to F32. Activations of 16 bits, and hidden
 * states that then round to the other side, make it 4e-4; a wrong scale makes it about 1. */
static void every_format(void **state) {
    (void)state;
    u32 n_tried = 0;
    for (u32 type = 0; type < DTYPE_N; type++) {
        if (!blocks_can_decode(type)) continue;
        const struct toymodel_spec spec = {.family = "qwen2", .type = type};
        struct path file = toy_file(&spec);
        struct testbed b, exact;
        u32 ids[N_TOK];
        open_or_fail(&b, file.z, (struct testbed_opts){0});
        open_or_fail(&exact, file.z, (struct testbed_opts){.exact = true});
        whole(&b, ids, 0, whole_logits);
        whole(&exact, ids, 0, other_logits);
        double d = distance(whole_logits, other_logits, N_TOK * b.p.n_vocab);
        if (!(d < 2e-3)) fail_msg("%s: logits are %.4f off", dtype_info(type)->name, d);
        testbed_close(&exact);
        testbed_close(&b);
        unlink(file.z);
        n_tried++;
    }
    assert_int_equal(n_tried, 16);
}

static struct ops_cost cost_of(const struct testbed *b, u32 n_tok, u32 pos0, u32 n_out) {
    struct err e = {0};
    struct ops *o = ops_cost_new(&b->k, 1);
    struct model *m = model_outline(b->f, &b->p, &b->spec, o, &e);
    struct kv_pool kv = b->kv;
    struct kv_span span = {.n = n_tok, .pos0 = pos0};
    struct batch batch = {.n_tok = n_tok, .spans = &span, .n_spans = 1};
    struct model_step s = {.batch = &batch, .n_out = n_out};
    if (!m) fail_msg("%s", e.msg);
    kv.mem = NULL;
    if (!model_forward(m, &s, &kv, NULL, NULL, &e)) fail_msg("%s", e.msg);
    struct ops_cost c = ops_cost_read(o);
    model_free(m);
    ops_free(o);
    return c;
}

static void cost_of_a_step(void **state) {
    (void)state;
    const struct toymodel_spec spec = {.family = "llama", .n_layers = 3, .type = DTYPE_Q4_0};
    struct path file = toy_file(&spec);
    struct testbed b;
    open_or_fail(&b, file.z, (struct testbed_opts){0});
    struct ops_cost one = cost_of(&b, 1, 0, 1), deep = cost_of(&b, 1, 100, 1);
    struct ops_cost many = cost_of(&b, 32, 0, 32), headless = cost_of(&b, 1, 0, 0);
    struct ops_cost prompt = cost_of(&b, 32, 0, 1);
    u64 kv_token = (u64)b.p.n_layers * b.p.n_kv_heads * (b.p.head_dim_k + b.p.head_dim_v) * 2;
    u64 head_ops = 2ull * b.p.dim * b.p.n_vocab;
    /* Of the last layer, what only the tokens need that want logits. */
    u64 last_ops = 2ull * b.p.dim * (b.p.n_heads * b.p.head_dim_v + 3ull * b.p.n_ff);

    /* A token reads every matrix once and one row of the embedding. */
    assert_true(one.weight_bytes < model_weights_bytes(b.m));
    assert_true(one.weight_bytes > model_weights_bytes(b.m) / 2);
    assert_true(one.int_ops > head_ops && one.int_ops - headless.int_ops == head_ops + last_ops);
    assert_true(headless.weight_bytes < one.weight_bytes);
    /* 32 tokens read the matrices once too. */
    assert_true(many.weight_bytes < one.weight_bytes * 3 / 2);
    assert_true(many.int_ops == 32 * one.int_ops);
    assert_true(many.int_ops - prompt.int_ops == 31 * (head_ops + last_ops));
    /* Each position behind a token is read, its own also written. */
    assert_int_equal(one.kv_bytes, 2 * kv_token);
    assert_int_equal(deep.kv_bytes, 102 * kv_token);
    assert_int_equal(one.messages, 0);
    testbed_close(&b);
    unlink(file.z);
}

static void planner_bytes(void **state) {
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        const struct toymodel_spec spec = {.n_layers = 3, .type = DTYPE_Q8_0, .tied = tied};
        struct path file = toy_file(&spec);
        struct testbed b;
        u64 embed, layers[3], head;
        open_or_fail(&b, file.z, (struct testbed_opts){0});
        model_weight_bytes(b.f, &b.p, &embed, layers, &head);
        /* Q8_0: 34 bytes for 32 weights. */
        assert_int_equal(embed, (u64)b.p.n_vocab * b.p.dim / 32 * 34);
        assert_int_equal(head, embed + b.p.dim * 4);
        assert_int_equal(layers[0], layers[2]);
        u64 ff = 3ull * b.p.dim * b.p.n_ff,
            att = (u64)b.p.dim * b.p.head_dim_k * (2 * b.p.n_heads + 2 * b.p.n_kv_heads);
        assert_int_equal(layers[0], (ff + att) / 32 * 34 + 2 * b.p.dim * 4);
        testbed_close(&b);
        unlink(file.z);
    }
}

enum damage { DROP, RENAME, NARROW, SHORTEN };

/* A llama whose tensor `name` is damaged. */
static struct path damaged_file(const char *name, enum damage how, const char *new_name) {
    struct toymodel toy;
    struct gguf_writer w = {0};
    struct str bytes = {0};
    const struct toymodel_spec spec = {.rope = TOYMODEL_ROPE_LLAMA3};
    bool met = false;
    assert_true(toymodel_init(&toy, &spec, NULL));
    toymodel_metadata(&toy, &w);
    for (u32 i = 0; i < toy.n_tensors; i++) {
        const struct toymodel_tensor *t = &toy.tensor[i];
        bool hit = !strcmp(t->name, name);
        u64 dims[2] = {t->dims[0], t->dims[1]};
        met |= hit;
        if (hit && how == DROP) continue;
        if (hit && how == NARROW) dims[0] /= 2;
        if (hit && how == SHORTEN) dims[1] /= 2;
        void *data = xcalloc(t->dims[1], t->row_bytes);
        toymodel_rows(&toy, i, 0, t->dims[1], data);
        gguf_writer_tensor(&w, hit && how == RENAME ? new_name : t->name, t->type, t->n_dims, dims,
                           data);
        free(data);
    }
    assert_true(met);
    gguf_writer_finish(&w, &bytes);
    struct path p = temp_file(bytes.p, bytes.n);
    str_deinit(&bytes);
    gguf_writer_deinit(&w);
    toymodel_deinit(&toy);
    return p;
}

static void refuse(const char *name, enum damage how, const char *new_name, enum err_code code,
                   const char *says) {
    struct path file = damaged_file(name, how, new_name);
    struct testbed b;
    struct err e = {0};
    struct testbed_opts o = {.max_tok = 8, .n_ctx = 32};
    if (testbed_open(&b, file.z, &o, &e)) fail_msg("loaded, but expected \"%s\"", says);
    if (e.code != code || !strstr(e.msg, says))
        fail_msg("expected %s \"%s\", got %s \"%s\"", err_name(code), says, err_name(e.code),
                 e.msg);
    testbed_close(&b);
    unlink(file.z);
}

static void broken_tensors(void **state) {
    (void)state;
    refuse("token_embd.weight", DROP, NULL, ERR_FORMAT, "token_embd.weight is missing");
    refuse("output_norm.weight", DROP, NULL, ERR_FORMAT, "output_norm.weight is missing");
    refuse("blk.1.attn_q.weight", DROP, NULL, ERR_FORMAT, "blk.1.attn_q.weight is missing");
    refuse("blk.1.ffn_down.weight", NARROW, NULL, ERR_FORMAT,
           "blk.1.ffn_down.weight is 64 x 64, the metadata makes it 128 x 64");
    refuse("blk.0.attn_k.weight", SHORTEN, NULL, ERR_FORMAT, "blk.0.attn_k.weight is 64 x 16");
    refuse("blk.0.ffn_norm.weight", NARROW, NULL, ERR_FORMAT, "blk.0.ffn_norm.weight is 32 x 1");
    refuse("rope_freqs.weight", NARROW, NULL, ERR_FORMAT, "rope_freqs.weight has 4 entries");
    /* What would be ignored, so that the answer would be another model's. */
    refuse("blk.1.attn_q.weight", RENAME, "blk.1.attn_qkv.weight", ERR_UNSUPPORTED,
           "blk.1.attn_qkv.weight has no place");
    refuse("blk.1.attn_q.weight", RENAME, "blk.2.attn_q.weight", ERR_UNSUPPORTED,
           "blk.2.attn_q.weight has no place");
    refuse("rope_freqs.weight", RENAME, "rope_factors_long.weight", ERR_UNSUPPORTED,
           "rope_factors_long.weight has no place");
}

static void shard_limits(void **state) {
    (void)state;
    struct path file = toy_file(&(struct toymodel_spec){0});
    struct testbed b;
    struct err e = {0};
    open_or_fail(&b, file.z, (struct testbed_opts){0});
    struct shard_spec spec = {.layer_first = 1, .layer_end = 3, .tp_ranks = 1};
    assert_null(model_load(b.f, &b.p, &spec, b.ops, 8, NULL, NULL, &e));
    assert_int_equal(e.code, ERR_ARG);
    assert_non_null(strstr(e.msg, "layers 1 to 3 of a model with 2 layers"));
    spec = (struct shard_spec){.layer_end = 2, .tp_ranks = 2};
    assert_null(model_load(b.f, &b.p, &spec, b.ops, 8, NULL, NULL, &e));
    assert_int_equal(e.code, ERR_ARG);
    testbed_close(&b);
    unlink(file.z);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(chunks_equal_one_step),
                                       cmocka_unit_test(sequences_do_not_see_each_other),
                                       cmocka_unit_test(batches_of_2_7_32),
                                       cmocka_unit_test(only_wanted_logits),
                                       cmocka_unit_test(shards_equal_the_whole),
                                       cmocka_unit_test(machines_agree),
                                       cmocka_unit_test(every_format),
                                       cmocka_unit_test(cost_of_a_step),
                                       cmocka_unit_test(planner_bytes),
                                       cmocka_unit_test(broken_tensors),
                                       cmocka_unit_test(shard_limits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
