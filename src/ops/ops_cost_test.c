#include "ops/ops_cost.h"

#include <string.h>

#include "base/test.h"

/* One layer's worth of calls on tensors without data: the sums are those of a pencil. */
static void adds_up(void **state) {
    (void)state;
    struct kernels k;
    struct err e = {0};
    kernels_select(&k, "ref", &e);
    struct ops *o = ops_cost_new(&k, 3);
    struct tensor w = {.type = DTYPE_Q4_0, .rows = 128, .cols = 64, .name = "w"};
    struct tensor f = {.type = DTYPE_F16, .rows = 64, .cols = 64, .name = "f"}, n = {.cols = 64};
    struct kv_pool kv = {.n_layers = 1, .n_kv_heads = 2, .dk = 16, .dv = 16};
    struct kv_span spans[] = {{.first = 0, .n = 4, .pos0 = 10}, {.first = 4, .n = 1, .pos0 = 99}};
    struct batch b = {5, spans, 2};
    struct rope r = {.head_dim = 16, .n_rot = 16};
    struct attn a = {.n_heads = 4, .scale = 1, .window = 12};
    const struct tensor *ws[] = {&w, &f};
    float *ys[] = {NULL, NULL};
    assert_true(ops_load_matrix(o, &w, NULL, &e) && ops_load_matrix(o, &f, NULL, &e));
    assert_true(ops_begin(o, &b, &e));

    ops_matmuls(o, ys, ws, 2, NULL, 5);
    struct ops_cost c = ops_cost_read(o);
    assert_int_equal(c.weight_bytes, 128 * 2 * 18 + 64 * 64 * 2);
    assert_int_equal(c.int_ops, 2 * 128 * 64 * 5);
    assert_int_equal(c.float_ops, 2 * 64 * 64 * 5);
    assert_int_equal(c.act_bytes, 4 * 5 * (64 + 128 + 64));

    ops_cost_reset(o);
    ops_kv_store(o, &kv, 0, NULL, NULL);
    ops_attend(o, NULL, NULL, &kv, 0, &a);
    c = ops_cost_read(o);
    /* Span 0 sees 11, 12, 12, 12 positions and reads all 14 once (12 + 4 - 1 = 15 are in reach);
     * span 1 sees 12 of 100. */
    assert_int_equal(c.kv_bytes, (5 + 14 + 12) * 2 * 32 * 2);
    assert_int_equal(c.float_ops, (11 + 36 + 12) * 4 * 2 * 32);

    ops_cost_reset(o);
    assert_true(ops_sum(o, NULL, NULL, 1000, &e));
    c = ops_cost_read(o);
    assert_true(c.messages == 1 && c.message_bytes == 4000);
    ops_embed(o, NULL, &w, NULL, 2);
    ops_norm(o, NULL, NULL, &n, 5, 64, 1e-6f);
    ops_bias(o, NULL, &n, 5);
    ops_rope(o, NULL, &r, 4);
    ops_gate(o, NULL, NULL, NULL, 5, GATE_SILU);
    ops_add(o, NULL, NULL, 5);
    ops_scale(o, NULL, 2, 5);
    ops_softcap(o, NULL, 2, 5);
    ops_gather(o, NULL, NULL, NULL, 1, 64);
    assert_int_equal(ops_cost_read(o).calls, 10);
    assert_int_equal(ops_cost_read(o).weight_bytes, 2 * 36);
    ops_free(o);

    o = ops_cost_new(&k, 1); /* alone there is nothing to send */
    assert_true(ops_sum(o, NULL, NULL, 1000, &e));
    assert_int_equal(ops_cost_read(o).messages, 0);
    struct tensor bad = {.type = DTYPE_I32, .rows = 1, .cols = 32, .name = "blk.0.odd"};
    assert_false(ops_load_matrix(o, &bad, NULL, &e));
    assert_true(e.code == ERR_UNSUPPORTED && strstr(e.msg, "blk.0.odd") && strstr(e.msg, "I32"));
    ops_free(o);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(adds_up)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
