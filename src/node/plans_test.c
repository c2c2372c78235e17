#include <string.h>

#include "base/json.h"
#include "base/test.h"
#include "node/plan_json.h"

enum { LAYERS = 4, KV_BYTES = 16, WEIGHTS = 1600 };

/* A large node and one with room for its slice, `ctx` tokens long. */
static json_t *previews_of(u32 ctx, u32 asked) {
    static u64 bytes[LAYERS] = {WEIGHTS / 4, WEIGHTS / 4, WEIGHTS / 4, WEIGHTS / 4}, kinds[LAYERS];
    static struct msg_layer_cost kind = {
        .attn_bytes = 200, .ffn_bytes = 200, .attn_ops = 400, .ffn_ops = 400, .n_sums = 2};
    static const char *ids[] = {"big", "small"};
    struct place_node nodes[2] = {
        {.name = "big", .budget_bytes = 1 << 24, .read_bytes_s = 1e6, .ops_s = 1e9, .machine = 0},
        {.name = "small", .read_bytes_s = 1e6, .ops_s = 1e9, .machine = 1}};
    struct place_link links[4] = {{0, 1e18}, {0, 1e18}, {0, 1e18}, {0, 1e18}};
    struct msg_wanted w = {.id = "", .model = "m", .first_node = "big", .n_ctx = asked};
    w.desc = (struct msg_model){.arch = "a",
                                .title = "M",
                                .quant = "Q",
                                .n_layers = LAYERS,
                                .n_vocab = 320,
                                .dim = 64,
                                .kv_bytes_per_token_layer = KV_BYTES,
                                .layer_bytes = {bytes, LAYERS},
                                .shape = {.n_heads = 4,
                                          .n_kv_heads = 2,
                                          .head_dim_k = 16,
                                          .head_dim_v = 16,
                                          .n_ff = 64,
                                          .ff_step = 32,
                                          .kinds = {&kind, 1},
                                          .layer_kind = {kinds, LAYERS}}};
    nodes[1].budget_bytes = WEIGHTS / 2 + (u64)ctx * LAYERS * KV_BYTES / 2;
    struct plan s = {.ids = ids,
                     .q = {.model = &w.desc,
                           .nodes = nodes,
                           .n_nodes = 2,
                           .links = links,
                           .n_batch = 1,
                           .n_prompt = 1}};
    struct str text = {0};
    struct err e = {0};
    assert_true(plan_set_ctx(&s, &w, asked ? asked : 8192, &e));
    plans_previews(&s, &w, &text);
    json_t *j = json_parse(str_view(&text), &e);
    if (!j) fail_msg("%s: %s", e.msg, str_z(&text));
    str_deinit(&text);
    return j;
}

/* What the previews of a sharding take of the small node (0: they are errors); -1: there are none.
 */
static i64 shown(json_t *j, const char *sharding) {
    size_t i;
    json_t *p;
    i64 bytes = -1;
    json_array_foreach(json_object_get(j, "previews"), i, p) {
        bool ring = strcmp(json_string_value(json_object_get(p, "instance_meta")), "MlxRing") == 0;
        bool is = strcmp(json_string_value(json_object_get(p, "sharding")), sharding) == 0;
        json_t *of = json_object_get(p, "memory_delta_by_node");
        if (ring && is) bytes = MAX(bytes, json_integer_value(json_object_get(of, "small")));
    }
    return bytes;
}

/* Every sharding is shown with what it can, or with the reason why it can't. The large node alone
 * settles the context; the slice may fit with less. */
static void no_sharding_is_left_out(void **state) {
    (void)state;
    static const struct {
        u32 room, asked;
        i64 tensor_ctx;
    } ROWS[] = {{8192, 0, 8192}, {4096, 0, 4096}, {100, 0, 0}, {4096, 8192, 0}};
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        json_t *j = previews_of(ROWS[i].room, ROWS[i].asked);
        i64 ctx = ROWS[i].tensor_ctx, got = shown(j, "Tensor");
        i64 want = ctx ? WEIGHTS / 2 + ctx * LAYERS * KV_BYTES / 2 : 0;
        if (got != want || shown(j, "Pipeline") < 0) fail_msg("row %zu: %lld", i, (long long)got);
        json_decref(j);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_sharding_is_left_out)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
