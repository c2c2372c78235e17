/* Tiny models whose layers are shared by ranks: what they compute together is what one process
 * computes, but for the order of additions. */
#include "base/file.h"
#include "formats/toymodel.h"
#include "model/model_impl.h"
#include "model/team_testbed.h"
#include "ops/ops_cost.h"

/* Enough for two pieces (model_layers.c). */
enum { N_TOK = 72 };

static const struct toymodel_spec SPECS[] = {
    {.family = "llama", .n_layers = 4, .n_heads = 9, .n_kv_heads = 3, .dim = 144},
    {.family = "llama", .n_layers = 3, .type = DTYPE_Q4_0, .rope = TOYMODEL_ROPE_LLAMA3},
    {.family = "mistral", .n_layers = 2, .type = DTYPE_Q8_0, .n_heads = 8, .head_dim = 16},
    {.family = "qwen2", .n_layers = 3, .type = DTYPE_Q4_1, .rope = TOYMODEL_ROPE_YARN},
    /* Heads of 64 elements under blocks of 256: slices end inside a block. */
    {.family = "qwen3", .n_layers = 2, .type = DTYPE_Q6_K, .tied = true},
    {.family = "llama", .n_layers = 2, .type = DTYPE_Q4_K, .n_heads = 8, .head_dim = 64},
    {.family = "llama", .n_layers = 3, .type = DTYPE_Q5_K, .mixed = true},
    {.family = "gemma2", .n_layers = 4, .type = DTYPE_Q5_0, .sliding_window = 12},
    {.family = "gemma3", .n_layers = 7, .type = DTYPE_BF16, .sliding_window = 12},
};

/* One stage: even, uneven, more ranks than KV heads, with an idle rank. */
static const struct layout TEAMS[] = {
    {1, {{2, {1, 1}}}},    {1, {{3, {5, 1, 3}}}},          {1, {{4, {1, 1, 1, 1}}}},
    {1, {{3, {2, 0, 1}}}}, {1, {{6, {1, 2, 1, 3, 1, 1}}}},
};
/* 2x2; one, three and two; three and one. */
static const struct layout HYBRIDS[] = {
    {2, {{2, {1, 1}}, {2, {3, 1}}}},
    {3, {{1, {1}}, {3, {1, 1, 1}}, {2, {2, 1}}}},
    {2, {{3, {4, 3, 2}}, {1, {1}}}},
};

struct path {
    char z[64];
};

static struct path toy_file(const struct toymodel_spec *spec) {
    struct path p = {"/tmp/skein-team-XXXXXX"};
    struct toymodel toy;
    struct str bytes = {0};
    struct err e = {0};
    int fd = mkstemp(p.z);
    assert_true(fd >= 0);
    close(fd);
    if (!toymodel_init(&toy, spec, &e)) fail_msg("%s", e.msg);
    toymodel_build(&toy, &bytes);
    if (!file_write(p.z, bytes.p, bytes.n, 0600, &e)) fail_msg("%s", e.msg);
    str_deinit(&bytes);
    toymodel_deinit(&toy);
    return p;
}

static void compare(const struct toymodel_spec *spec, const struct layout *l, enum team_wire wire,
                    double most) {
    struct path file = toy_file(spec);
    double copies, d = team_distance(file.z, l, wire, N_TOK, &copies);
    if (!(d <= most))
        fail_msg("%s, %u stages, %u ranks, %s: %g", spec->family, l->n_stages, layout_ranks(l),
                 team_wire_name(wire), d);
    /* Norms, some KV heads and, where it is tied, the embedding are held twice, nothing else is. */
    assert_true(copies >= 1 && copies < 2);
    unlink(file.z);
}

static void teams_equal_one(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(SPECS); i++)
        for (size_t k = i % 2; k < ARRAY_LEN(TEAMS); k += 2) /* half of all pairs */
            compare(&SPECS[i], &TEAMS[k], TEAM_F32, 1e-3);
}

static void hybrids_equal_one(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(SPECS); i++) {
        const struct layout *l = &HYBRIDS[i % ARRAY_LEN(HYBRIDS)];
        if (SPECS[i].n_layers > l->n_stages) compare(&SPECS[i], l, TEAM_F32, 1e-3);
    }
}

static void wire_types(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(SPECS); i += 2) {
        compare(&SPECS[i], &TEAMS[1], TEAM_F16, 4e-3);
        compare(&SPECS[i], &HYBRIDS[0], TEAM_Q8, 6e-2);
    }
}

/* What happens in which order: a letter an event, behind it where it begins in the step. */
static struct ops_table watched;
static char events[1024];
static u32 at;

static void see(const char *what, u64 n) {
    size_t used = strlen(events);
    snprintf(events + used, sizeof events - used, "%s%llu ", what, (unsigned long long)n);
}

static void see_part(struct ops *o, const struct batch *b, u32 first) {
    (void)o, (void)b;
    at = first;
}
static void see_attend(struct ops *o, float *y, const float *q, const struct kv_pool *kv, u32 layer,
                       const struct attn *a) {
    (void)o, (void)y, (void)q, (void)kv, (void)layer, (void)a;
    see("attend", at);
}
static void see_gate(struct ops *o, float *y, const float *g, const float *up, u64 n,
                     enum gate_act act) {
    (void)o, (void)y, (void)g, (void)up, (void)n, (void)act;
    see("gate", at);
}
static bool see_send(struct ops *o, struct team *tp, float *x, u64 n, struct err *e) {
    (void)o, (void)tp, (void)x, (void)e;
    see("send", n);
    return true;
}
static bool see_take(struct ops *o, struct team *tp, float *x, u64 n, struct err *e) {
    (void)o, (void)tp, (void)x, (void)e;
    see("take", n);
    return true;
}

/* A shard of two layers of a team of two, on the cost table. */
static void watch(u32 n_tok, const char *want) {
    const struct toymodel_spec spec = {.family = "llama", .n_layers = 2, .dim = 128};
    struct path file = toy_file(&spec);
    struct err e = {0};
    struct model_params p;
    struct kernels k;
    struct model_file *f = model_file_open(file.z, &e);
    assert_true(f && model_params_read(f, &p, &e) && kernels_select(&k, "ref", &e));
    struct ops *o = ops_cost_new(&k, 2);
    watched = *o->t;
    watched.part = see_part;
    watched.attend = see_attend;
    watched.gate = see_gate;
    watched.sum_send = see_send;
    watched.sum_take = see_take;
    o->t = &watched;
    struct shard_spec shard = {.layer_end = 2, .tp_ranks = 2};
    shard.slice = (struct shard_slice){0, p.n_heads / 2, 0, p.n_ff, 0, 0};
    struct model *m = model_outline(f, &p, &shard, o, &e);
    struct kv_pool kv = {.n_layers = 2, .n_kv_heads = 1, .dk = p.head_dim_k, .dv = p.head_dim_v};
    struct kv_span span = {.n = n_tok};
    struct batch batch = {.n_tok = n_tok, .spans = &span, .n_spans = 1};
    struct model_step step = {.batch = &batch};
    assert_true(m && model_forward(m, &step, &kv, NULL, NULL, &e));
    assert_string_equal(events, want);
    events[0] = 0;
    model_free(m);
    ops_free(o);
    model_file_close(f);
    unlink(file.z);
}

/* Each piece's sum is taken when the other one has been through its half layer, so that there was
 * time for it to arrive. Few tokens go through together. */
static void sums_travel_behind_the_other_piece(void **state) {
    (void)state;
    watch(16, "attend0 send2048 take2048 gate0 send2048 take2048 "
              "attend0 send2048 take2048 gate0 send2048 take2048 ");
    watch(72, "attend0 send6144 attend48 send3072 "
              "take6144 gate0 send6144 take3072 gate48 send3072 "
              "take6144 attend0 send6144 take3072 attend48 send3072 "
              "take6144 gate0 send6144 take3072 gate48 send3072 take6144 take3072 ");
}

static void bad_slices(void **state) {
    (void)state;
    struct path file = toy_file(&SPECS[1]);
    struct testbed b;
    struct err e = {0};
    struct testbed_opts o = {.tp_ranks = 2, .max_tok = N_TOK, .n_ctx = N_TOK};
    assert_false(testbed_open(&b, file.z, &o, &e));
    assert_non_null(strstr(e.msg, "rank 0 of 2 that share layers has no slice"));
    testbed_close(&b);
    o.slice = (struct shard_slice){.head_first = 3, .head_end = 5};
    assert_false(testbed_open(&b, file.z, &o, &e));
    assert_non_null(strstr(e.msg, "query heads 3 to 5: the model has 4"));
    testbed_close(&b);
    unlink(file.z);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(teams_equal_one), cmocka_unit_test(hybrids_equal_one),
        cmocka_unit_test(wire_types),      cmocka_unit_test(sums_travel_behind_the_other_piece),
        cmocka_unit_test(bad_slices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
