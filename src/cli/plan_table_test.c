#include "cli/plan_table.h"

#include <string.h>

#include "base/test.h"

static const char PLAN[] =
    "{\"model\":\"m\",\"title\":\"Model\",\"quantization\":\"Q4_0\",\"n_layers\":30,\"n_ctx\":2048,"
    "\"need_bytes\":1048576,\"goal\":\"latency\",\"nodes\":[{\"name\":\"a\",\"free_bytes\":2097152,"
    "\"read_bytes_s\":2e10,\"ops_s\":3e11}],\"chosen\":{\"sharding\":\"Tensor\",\"n_nodes\":2,"
    "\"ranks\":[{\"name\":\"a\",\"layer_first\":0,\"layer_end\":30,\"slice\":{\"head_first\":0,"
    "\"head_end\":5},\"need_bytes\":524288,\"free_bytes\":2097152}],\"contexts\":[{\"context\":128,"
    "\"decode_tokens_s\":123.4}]},\"candidates\":[{\"sharding\":\"Pipeline\",\"n_nodes\":1,"
    "\"ranks\":"
    "[{\"name\":\"a\",\"layer_first\":0,\"layer_end\":30,\"need_bytes\":1048576,\"free_bytes\":"
    "2097152}],\"contexts\":[],\"batch\":1,\"batch_tokens_s\":7,\"limit\":\"memory bandwidth of "
    "a\"},"
    "{\"sharding\":\"Tensor\",\"n_nodes\":2,\"ranks\":[{\"name\":\"a\",\"layer_first\":0,"
    "\"layer_end\":30,\"slice\":{\"head_first\":0,\"head_end\":5},\"need_bytes\":524288,"
    "\"free_bytes\":2097152}],\"contexts\":[{\"context\":128,\"decode_tokens_s\":123.4,"
    "\"prefill_tokens_s\":56.78,\"first_token_s\":0.5,\"memory\":0.7,\"compute\":0.1,\"network\":0."
    "2}"
    "],\"batch\":8,\"batch_tokens_s\":99.96,\"limit\":\"links between the "
    "nodes\"}],\"impossible\":[{"
    "\"sharding\":\"Hybrid\",\"reason\":\"needs 3\"}],\"replicas\":[],\"with\":[{\"name\":\"box\","
    "\"reason\":\"too small\"}]}";

static void says(const struct str *s, const char *what) {
    if (!strstr(str_z(s), what)) fail_msg("no \"%s\" in:\n%s", what, str_z(s));
}

static void everything_is_shown(void **state) {
    (void)state;
    struct str s = {0};
    json_t *j = json_parse(view_of(PLAN), NULL);
    assert_non_null(j);
    plan_table(j, &s);
    says(&s, "Model Q4_0: 30 layers, 1.0 MiB with a context of 2048 tokens on one node");
    says(&s, "2.0 MiB free,   20.0 GB/s,   300.0 Gop/s");
    says(&s,
         "  Pipeline over 1 node\n    a                    layers 0-29: 1.0 MiB of 2.0 MiB free");
    says(&s, "* Tensor over 2 nodes");
    says(&s, "layers 0-29, heads 0-4: 512 KiB");
    says(&s, "128       123       56.8        0.50 s      70%     10%     20%");
    says(&s, "8 at once: 100 tokens/s together. The limit: links between the nodes.");
    says(&s, "Hybrid: not possible: needs 3");
    says(&s, "With box as well: too small");
    json_object_del(j, "candidates"); /* by hand, it need not be one of them */
    str_clear(&s);
    plan_table(j, &s);
    says(&s, "* Tensor over 2 nodes");
    json_decref(j);
    str_deinit(&s);
    j = json_parse(VIEW("{}"), NULL); /* of another version: nothing breaks */
    plan_table(j, &s);
    json_decref(j);
    str_deinit(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(everything_is_shown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
