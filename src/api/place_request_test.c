#include "api/place_request.h"

#include <string.h>

#include "base/test.h"

static struct place_request R;
static struct fault F;

static bool parse(const char *body) {
    place_request_deinit(&R);
    return place_request_parse(&R, view_of(body), &F);
}
static bool instance(const char *body) {
    place_request_deinit(&R);
    return place_request_instance(&R, view_of(body), &F);
}
static void refused(bool ok, const char *param, const char *says) {
    assert_false(ok);
    assert_string_equal(F.param, param);
    if (!strstr(F.e.msg, says)) fail_msg("\"%s\" does not say \"%s\"", F.e.msg, says);
}

static void every_field_arrives(void **state) {
    (void)state;
    assert_true(parse("{\"model_id\":\"m\",\"sharding\":\"Tensor\",\"instance_meta\":\"MlxRing\","
                      "\"min_nodes\":3,\"n_ctx\":4096,\"kv_type\":\"q8\",\"activations\":8,"
                      "\"goal\":\"throughput\","
                      "\"batch\":4,\"nodes\":[\"a\",\"b\"],\"exclude\":[\"c\"],\"force\":true,"
                      "\"layers\":\"a=0-11,b=12-29\",\"replicas\":2}"));
    assert_int_equal(R.replicas, 2);
    const struct node_place *p = &R.p;
    assert_string_equal(p->model, "m");
    assert_int_equal(p->wish.sharding, SHARDING_TENSOR);
    assert_int_equal(p->min_nodes, 3);
    assert_int_equal(p->n_ctx, 4096);
    assert_int_equal(p->kv_type, 2);
    assert_int_equal(p->act_bits, 8);
    assert_int_equal(p->wish.goal, GOAL_THROUGHPUT);
    assert_int_equal(p->wish.n_batch, 4);
    assert_int_equal(p->wish.nodes.n, 2);
    assert_string_equal(((struct msg_string *)p->wish.exclude.v)[0].s, "c");
    assert_true(p->wish.force);
    const struct msg_rank *r = p->wish.ranks.v;
    assert_int_equal(p->wish.ranks.n, 2);
    assert_string_equal(r[1].node, "b");
    assert_true(r[0].layer_end == 12 && r[1].layer_first == 12 && r[1].layer_end == 30);
    assert_true(parse("{\"model\":\"m\",\"sharding\":\"pipeline\",\"min_nodes\":null}"));
    assert_int_equal(R.p.wish.sharding, SHARDING_PIPELINE);
    assert_true(parse("{\"model\":\"m\"}") && R.p.wish.sharding == SHARDING_AUTO);
}

static void mistakes_are_named(void **state) {
    (void)state;
    refused(parse("{}"), "model_id", "names no model");
    refused(parse("[]"), "", "JSON object");
    refused(parse("{\"model\":\"m\",\"sharding\":\"Rows\"}"), "sharding", "\"Tensor\"");
    refused(parse("{\"model\":\"m\",\"instance_meta\":\"MlxJaccl\"}"), "instance_meta", "RDMA");
    refused(parse("{\"model\":\"m\",\"min_nodes\":0}"), "min_nodes", "from 1 to 1024");
    refused(parse("{\"model\":\"m\",\"min_nodes\":1.5}"), "min_nodes", "whole number");
    refused(parse("{\"model\":\"m\",\"colour\":1}"), "colour", "not a parameter");
    refused(parse("{\"model\":\"m\",\"nodes\":\"a\"}"), "nodes", "list");
    refused(parse("{\"model\":\"m\",\"nodes\":[]}"), "nodes", "empty");
    assert_true(parse("{\"model\":\"m\",\"exclude\":[]}"));
    refused(parse("{\"model\":\"m\",\"layers\":\"a\"}"), "layers", "NODE=FIRST-LAST");
    refused(parse("{\"model\":\"m\",\"layers\":\"a=9-3\"}"), "layers", "FIRST-LAST");
    refused(parse("{\"model\":\"m\",\"force\":1}"), "force", "true or false");
}

#define SHARDS                                                                                     \
    "\"shardAssignments\":{\"modelId\":\"m\",\"runnerToShard\":{\"r1\":{"                          \
    "\"PipelineShardMetadata\":{"                                                                  \
    "\"deviceRank\":1,\"worldSize\":2,\"startLayer\":12,\"endLayer\":30,\"nLayers\":30}},\"r0\":{" \
    "\"PipelineShardMetadata\":{\"deviceRank\":0,\"worldSize\":2,\"startLayer\":0,\"endLayer\":"   \
    "12,"                                                                                          \
    "\"nLayers\":30}}},\"nodeToRunner\":{\"b\":\"r1\",\"a\":\"r0\"}}"

static void instances_in_every_dress(void **state) {
    (void)state;
    static const char *const BODIES[] = {
        "{\"instance\":{\"MlxRingInstance\":{\"instanceId\":\"0-1\"," SHARDS "}}}",
        "{\"MlxRingInstance\":{\"instanceId\":\"0-1\"," SHARDS "},\"meta\":\"MlxRing\"}",
        "{\"instance\":{\"instanceId\":\"0-1\"," SHARDS ",\"hostsByNode\":{}}}",
        "{\"instanceId\":\"0-1\"," SHARDS "}",
        "{\"instance_id\":\"0-1\",\"shard_assignments\":{\"model_id\":\"m\",\"runner_to_shard\":{"
        "\"x\":{\"device_rank\":0,\"start_layer\":0,\"end_layer\":12},\"y\":{\"device_rank\":1,"
        "\"start_layer\":12,\"end_layer\":30}},\"node_to_runner\":{\"a\":\"x\",\"b\":\"y\"}}}",
    };
    for (size_t i = 0; i < ARRAY_LEN(BODIES); i++) {
        if (!instance(BODIES[i])) fail_msg("%s: %s", BODIES[i], F.e.msg);
        const struct msg_rank *r = R.p.wish.ranks.v;
        assert_string_equal(R.p.model, "m");
        assert_string_equal(R.p.instance_id, "0-1");
        assert_int_equal(R.p.wish.ranks.n, 2);
        assert_string_equal(r[0].node, "a");
        assert_string_equal(r[1].node, "b");
        assert_true(r[0].layer_end == 12 && r[1].layer_first == 12 && r[1].layer_end == 30);
    }
    assert_true(instance("{\"instance\":{\"nCtx\":64,\"kvType\":\"q8\",\"batch\":3,\"force\":true,"
                         "\"activations\":8," SHARDS "},\"n_ctx\":128}"));
    assert_true(R.p.n_ctx == 64 && R.p.kv_type == 2 && R.p.act_bits == 8);
    assert_true(R.p.wish.n_batch == 3 && R.p.wish.force);
    assert_true(instance("{\"instance\":{" SHARDS "},\"n_ctx\":128}") && R.p.n_ctx == 128);
    refused(instance("{\"nCtx\":\"64\"," SHARDS "}"), "n_ctx", "whole number");
    refused(instance("{\"instance\":{\"MlxJacclInstance\":{}}}"), "instance", "MlxRing");
    refused(instance("{\"a\":1}"), "instance", "must be an instance");
    refused(instance("[1]"), "instance", "must be an instance");
    refused(instance("{\"instanceId\":\"../x\"," SHARDS "}"), "instance", "UUID");
    refused(instance("{\"instanceId\":7," SHARDS "}"), "instance", "UUID");
    assert_true(instance("{\"instanceId\":null," SHARDS "}") && !R.p.instance_id);
    refused(instance("{\"shardAssignments\":{\"modelId\":\"m\",\"runnerToShard\":{},"
                     "\"nodeToRunner\":{}}}"),
            "instance", "at least one");
}

static void queries(void **state) {
    (void)state;
    const struct http_pair v[] = {{"model_id", "m"},
                                  {"node_ids", "a"},
                                  {"node_ids", "b"},
                                  {"min_nodes", "2"},
                                  {"add", "studio,512e9,800e9,9e12,100,1e9"}};
    struct http_req q = {.query = v, .n_query = ARRAY_LEN(v)};
    place_request_deinit(&R);
    assert_true(place_request_query(&R, &q, &F));
    assert_int_equal(R.p.wish.nodes.n, 2);
    assert_int_equal(R.p.min_nodes, 2);
    assert_int_equal(R.p.n_extra, 1);
    assert_string_equal(R.p.extra[0].name, "studio");
    assert_true(R.p.extra[0].delay_s == 1e-4 && R.p.extra[0].memory_bytes == 512000000000);
    const struct http_pair bad[] = {{"model_id", "m"}, {"add", "x,1,2"}};
    q = (struct http_req){.query = bad, .n_query = 2};
    place_request_deinit(&R);
    refused(place_request_query(&R, &q, &F), "add", "NAME,MEMORY");
    const struct http_pair no[] = {{"model_id", "m"}, {"force", "no"}};
    q = (struct http_req){.query = no, .n_query = 2};
    place_request_deinit(&R);
    refused(place_request_query(&R, &q, &F), "force", "true or false");
    const struct http_pair copies[] = {{"model_id", "m"}, {"replicas", "2"}};
    q = (struct http_req){.query = copies, .n_query = 2};
    place_request_deinit(&R);
    refused(place_request_query(&R, &q, &F), "replicas", "one instance: leave it out here");
    place_request_deinit(&R);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_arrives),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(instances_in_every_dress),
        cmocka_unit_test(queries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
