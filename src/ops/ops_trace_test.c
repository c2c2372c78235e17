#include "ops/ops_trace.h"

#include <string.h>

#include "base/test.h"

static void ignore(void *ctx, const struct ops_trace_row *r) {
    (void)ctx, (void)r;
}

/* An operation that is added to the table is added here too. */
static void knows_every_operation(void **state) {
    (void)state;
    struct kernels k;
    struct err e = {0};
    assert_true(kernels_select(&k, "ref", &e));
    struct ops *cost = ops_cost_new(&k, 1), *trace = ops_trace_new(&k, 1, ignore, NULL);
    enum { N = sizeof(struct ops_table) / sizeof(void (*)(void)) };
    void (*a[N])(void), (*b[N])(void);
    memcpy(a, cost->t, sizeof a);
    memcpy(b, trace->t, sizeof b);
    for (u32 i = 0; i < N; i++)
        if (a[i] && !b[i]) fail_msg("the operation in slot %u of the table is not traced", i);
    ops_free(cost);
    ops_free(trace);
}

struct seen {
    u32 n;
    struct ops_trace_row r[8];
};
static void keep(void *ctx, const struct ops_trace_row *r) {
    struct seen *s = ctx;
    if (s->n < ARRAY_LEN(s->r)) s->r[s->n] = *r;
    s->n++;
}

static void tells_shapes_and_costs(void **state) {
    (void)state;
    struct kernels k;
    struct err e = {0};
    struct seen s = {0};
    assert_true(kernels_select(&k, "ref", &e));
    struct ops *o = ops_trace_new(&k, 2, keep, &s);
    struct tensor q = {.type = DTYPE_Q4_0, .rows = 128, .cols = 64, .name = "q"};
    struct tensor v = {.type = DTYPE_Q4_0, .rows = 32, .cols = 64, .name = "v"};
    const struct tensor *w[] = {&q, &v};
    float *y[] = {NULL, NULL};
    struct kv_span span = {.n = 3};
    struct batch b = {3, &span, 1};
    assert_true(ops_begin(o, &b, &e));
    ops_matmuls(o, y, w, 2, NULL, 3);
    assert_true(ops_sum(o, NULL, NULL, 3 * 64, &e));
    assert_int_equal(s.n, 3);
    assert_string_equal(s.r[1].weight, "v");
    assert_int_equal(s.r[1].rows, 32);
    assert_int_equal(s.r[1].cost.int_ops, 2 * 32 * 64 * 3);
    assert_int_equal(s.r[0].cost.weight_bytes, 128 * 2 * 18);
    assert_string_equal(s.r[2].op, "group sum");
    assert_int_equal(s.r[2].cost.messages, 1);
    assert_int_equal(s.r[2].cols, 64);
    ops_free(o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(knows_every_operation),
        cmocka_unit_test(tells_shapes_and_costs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
