#include "cli/bench_cluster.h"
#include "base/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "formats/toymodel.h"

static struct opt_list words(const char *a, const char *b, const char *c) {
    struct opt_list l = {.v = {a, b, c}};
    while (l.n < 3 && l.v[l.n]) l.n++;
    return l;
}

static void lists_are_whole_numbers_within_bounds(void **state) {
    (void)state;
    struct err e = {0};
    struct bench_list l;
    struct opt_list good = words("128", "0", "512"), none = {0};
    assert_true(bench_list_read("pp", &good, 0, 1000, 7, &l, &e));
    assert_true(l.n == 3 && l.v[0] == 128 && l.v[1] == 0 && l.v[2] == 512);
    assert_true(bench_list_read("pp", &none, 0, 1000, 7, &l, &e));
    assert_true(l.n == 1 && l.v[0] == 7);
    static const char *const BAD[] = {
        "", "x", "-1", "+1", " 1", "12a", "1001", "0", "99999999999999999999999"};
    for (u32 i = 0; i < ARRAY_LEN(BAD); i++) {
        struct opt_list bad = words("128", BAD[i], NULL);
        assert_false(bench_list_read("batch", &bad, 1, 1000, 7, &l, &e));
        assert_int_equal(e.code, ERR_ARG);
        assert_non_null(strstr(e.msg, "--batch"));
    }
}

static struct bench_lists lists(void) {
    return (struct bench_lists){.threads = {{1, 2}, 2},
                                .batch = {{1, 8}, 2},
                                .depth = {{0}, 1},
                                .pp = {{128, 512}, 2},
                                .tg = {{32, 64}, 2}};
}

static void equally_long_lists_make_pairs(void **state) {
    (void)state;
    struct err e = {0};
    struct bench_lists l = lists();
    struct bench_case *c;
    u32 n;
    assert_true(bench_cases(&l, &c, &n, &e));
    assert_int_equal(n, 8);
    assert_memory_equal(&c[0], (&(struct bench_case){1, 1, 0, 128, 32}), sizeof *c);
    assert_memory_equal(&c[1], (&(struct bench_case){1, 1, 0, 512, 64}), sizeof *c);
    assert_memory_equal(&c[2], (&(struct bench_case){1, 8, 0, 128, 32}), sizeof *c);
    assert_memory_equal(&c[7], (&(struct bench_case){2, 8, 0, 512, 64}), sizeof *c);
    free(c);
    l.all_combinations = true;
    assert_true(bench_cases(&l, &c, &n, &e));
    assert_int_equal(n, 16);
    assert_memory_equal(&c[1], (&(struct bench_case){1, 1, 0, 128, 64}), sizeof *c);
    free(c);
    l = lists();
    l.tg.n = 1;
    assert_true(bench_cases(&l, &c, &n, &e));
    assert_int_equal(n, 8);
    assert_memory_equal(&c[1], (&(struct bench_case){1, 1, 0, 512, 32}), sizeof *c);
    free(c);
}

static void cases_have_limits(void **state) {
    (void)state;
    struct err e = {0};
    struct bench_case *c;
    u32 n;
    struct bench_lists l = lists();
    l.pp.v[1] = l.tg.v[1] = 0;
    assert_false(bench_cases(&l, &c, &n, &e));
    assert_int_equal(e.code, ERR_ARG);
    l.all_combinations = true;
    l.pp.n = l.tg.n = OPT_LIST_MAX;
    assert_false(bench_cases(&l, &c, &n, &e));
    assert_int_equal(e.code, ERR_LIMIT);
}

static void statistics_are_order_statistics(void **state) {
    (void)state;
    const double odd[] = {5, 1, 9}, even[] = {4, 10, 1, 2};
    struct bench_stats s = bench_stats(odd, 3);
    assert_true(s.min == 1 && s.median == 5 && s.max == 9);
    assert_true(odd[0] == 5); /* the samples stay in the order in which they came */
    s = bench_stats(even, 4);
    assert_true(s.min == 1 && s.median == 3 && s.max == 10);
    s = bench_stats(even, 1);
    assert_true(s.min == 4 && s.median == 4 && s.max == 4);
    s = bench_stats(NULL, 0);
    assert_true(s.min == 0 && s.median == 0 && s.max == 0);
}

static void the_slower_of_memory_and_arithmetic_is_the_roof(void **state) {
    (void)state;
    const struct peak p = {
        .read_bytes_s = 100, .int8_ops_s = 1000, .f32_ops_s = 10, .bf16_ops_s = 40};
    struct ops_cost reads = {.weight_bytes = 150, .kv_bytes = 50, .act_bytes = 1 << 20};
    struct ops_cost computes = {.weight_bytes = 100, .int_ops = 2000, .float_ops = 20};
    struct ops_cost bf16 = {.weight_bytes = 100, .float_ops = 90, .bf16_ops = 80};
    struct ops_cost nothing = {0};
    assert_true(bench_roof_tps(&reads, &p, 4) == 2);    /* 2 s */
    assert_true(bench_roof_tps(&computes, &p, 4) == 1); /* 2 s and 2 s */
    assert_true(bench_roof_tps(&bf16, &p, 6) == 2);     /* 2 s and 1 s */
    assert_true(bench_roof_tps(&nothing, &p, 4) == 0);
}

static void toy(const char *path) {
    struct toymodel m;
    struct str file = {0};
    struct err e = {0};
    assert_true(
        toymodel_init(&m, &(struct toymodel_spec){.family = "llama", .type = DTYPE_Q4_0}, &e));
    toymodel_build(&m, &file);
    if (!file_write(path, file.p, file.n, 0600, &e)) fail_msg("%s", e.msg);
    str_deinit(&file);
    toymodel_deinit(&m);
}

static void a_run_fills_every_row(void **state) {
    const char *path = *state;
    struct err e = {0};
    struct bench_machine m;
    struct bench_row *r = calloc(3, sizeof *r);
    struct bench_run run = {.path = path, .cpu_mask = "ref", .repeat = 2};
    struct str json = {0}, table = {0};
    assert_non_null(r);
    r[0].c = (struct bench_case){.threads = 2, .batch = 1, .pp = 20, .tg = 3};
    r[1].c = (struct bench_case){.threads = 2, .batch = 3, .depth = 33, .pp = 0, .tg = 4};
    r[2].c = (struct bench_case){.threads = 2, .batch = 2, .pp = 8, .tg = 0};
    toy(path);
    if (!bench_measure(&run, &m, r, 3, &e)) fail_msg("%s", e.msg);
    assert_true(m.peak.read_bytes_s > 0 && m.peak.int8_ops_s > 0 && m.peak.f32_ops_s > 0);
    for (u32 i = 0; i < 3; i++) assert_int_equal(r[i].n, 2);
    /* Weights are read once a step and once a prompt, keys and values of each sequence. */
    assert_true(r[0].generation.weight_bytes > 2 * r[0].prompt.weight_bytes);
    assert_true(r[0].prompt_tps[1] > 0 && r[0].generation_tps[1] > 0);
    assert_true(r[1].generation.kv_bytes > 4 * r[0].generation.kv_bytes);
    assert_true(r[2].generation.weight_bytes == 0);
    bench_table(&m, r, 3, &table);
    assert_non_null(strstr(str_z(&table), "      2     3     33     0     4"));
    str_addc(&json, '[');
    bench_json(&m, r, 3, &json);
    str_addc(&json, ']');
    json_t *j = json_parse(str_view(&json), &e);
    if (!j) fail_msg("%s in %s", e.msg, json.p);
    assert_int_equal(json_array_size(j), 3);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(j, 1), "depth")), 33);
    assert_true(json_is_null(json_object_get(json_array_get(j, 1), "prompt_tps")));
    assert_int_equal(json_array_size(json_object_get(json_array_get(j, 1), "generation_tps_all")),
                     2);
    json_decref(j);
    run.repeat = 1;
    r[0].c.depth = 1 << 20;
    assert_false(bench_measure(&run, &m, r, 1, &e));
    assert_int_equal(e.code, ERR_ARG);
    str_deinit(&json);
    str_deinit(&table);
    free(r);
}

static bool reads(const char *text, struct bench_reply *r, struct err *e) {
    *e = (struct err){0};
    return bench_reply_read(view_of(text), r, e);
}

static void figures_of_a_stream(void **state) {
    (void)state;
    struct bench_reply r;
    struct err e;
    assert_true(reads("data: {\"choices\":[]}\n\n: generation_stats {\"prompt_tps\":81.5,"
                      "\"generation_tps\":7,\"prompt_tokens\":128,\"generation_tokens\":32}\n\n"
                      "data: [DONE]\n\n",
                      &r, &e));
    assert_true(r.prompt_tps == 81.5 && r.generation_tps == 7 && r.prompt_tokens == 128 &&
                r.generation_tokens == 32);
    assert_false(
        reads("data: {}\n\ndata: {\"error\":{\"message\":\"rank 1 is gone\"}}\n\n", &r, &e));
    assert_non_null(strstr(e.msg, "rank 1 is gone"));
    static const char *const BAD[] = {"", "data: [DONE]", "\n: generation_stats ",
                                      "\n: generation_stats {\"prompt", "data: {\"error\""};
    for (u32 i = 0; i < ARRAY_LEN(BAD); i++)
        assert_true(!reads(BAD[i], &r, &e) && e.code != ERR_NONE);
}

static void prompts_have_as_many_words(void **state) {
    (void)state;
    struct str s = {0};
    bench_prompt(&s, 4, 1);
    assert_string_equal(str_z(&s), "b a a a");
    str_deinit(&s);
}

#define SHARD(id, tag, first, end) \
    "\"" id "\":{\"" tag "\":{\"startLayer\":" first ",\"endLayer\":" end ",\"nLayers\":4}}"
#define PREVIEW(sharding, meta, id, nodes, shards) \
    "{\"sharding\":\"" sharding "\",\"instance_meta\":\"" meta "\",\"error\":null," \
    "\"memory_delta_by_node\":{" nodes "},\"instance\":{\"MlxRingInstance\":{\"instanceId\":\"" \
    id "\",\"shardAssignments\":{\"runnerToShard\":{" shards "}}}}}"

static void a_preview_has_exactly_so_many_nodes(void **state) {
    (void)state;
    static const char TEXT[] =
        "{\"previews\":[" PREVIEW("Pipeline", "MlxRing", "p1", "\"a\":1",
                                  SHARD("0", "PipelineShardMetadata", "0", "4")) ","
        PREVIEW("Tensor", "MlxJaccl", "j2", "\"a\":1,\"b\":1",
                SHARD("0", "TensorShardMetadata", "0", "4")) ","
        PREVIEW("Tensor", "MlxRing", "h3", "\"a\":1,\"b\":1,\"c\":1",
                SHARD("0", "TensorShardMetadata", "0", "2") ","
                SHARD("1", "TensorShardMetadata", "0", "2") ","
                SHARD("2", "PipelineShardMetadata", "2", "4")) ","
        PREVIEW("Tensor", "MlxRing", "t3", "\"a\":1,\"b\":1,\"c\":1",
                SHARD("0", "TensorShardMetadata", "0", "4") ","
                SHARD("1", "TensorShardMetadata", "0", "4") ","
                SHARD("2", "TensorShardMetadata", "0", "4")) ","
        "{\"sharding\":\"Tensor\",\"instance_meta\":\"MlxRing\",\"error\":\"no room\","
        "\"memory_delta_by_node\":null,\"instance\":null}]}";
    struct err e = {0};
    json_t *j = json_parse(view_of(TEXT), &e);
    assert_non_null(j);
    static const struct {
        const char *sharding, *id;
        u32 n;
    } CASES[] = {{"pipeline", "p1", 1}, {"tensor", "t3", 3}, {"tensor", NULL, 2},
                 {"pipeline", NULL, 2}};
    for (u32 i = 0; i < ARRAY_LEN(CASES); i++) {
        const json_t *in = bench_preview(j, CASES[i].sharding, CASES[i].n, &e);
        const json_t *ring = json_object_get(in, "MlxRingInstance");
        assert_string_equal(daemon_text(ring, "instanceId"), CASES[i].id ? CASES[i].id : "");
    }
    assert_null(bench_preview(j, "tensor", 2, &e));
    assert_non_null(strstr(e.msg, "tensor on 2 nodes: no room"));
    json_decref(j);
}

static char path[64];
static int make_file(void **state) {
    snprintf(path, sizeof path, "/tmp/skein-bench-test-XXXXXX");
    int fd = mkstemp(path);
    *state = path;
    return fd < 0 || close(fd) != 0 ? -1 : 0;
}
static int remove_file(void **state) {
    (void)state;
    return unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_are_whole_numbers_within_bounds),
        cmocka_unit_test(equally_long_lists_make_pairs),
        cmocka_unit_test(cases_have_limits),
        cmocka_unit_test(statistics_are_order_statistics),
        cmocka_unit_test(figures_of_a_stream),
        cmocka_unit_test(prompts_have_as_many_words),
        cmocka_unit_test(a_preview_has_exactly_so_many_nodes),
        cmocka_unit_test(the_slower_of_memory_and_arithmetic_is_the_roof),
        cmocka_unit_test_setup_teardown(a_run_fills_every_row, make_file, remove_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
