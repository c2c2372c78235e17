/* The price of a layer, against a pencil. */
#include <stdlib.h>
#include <unistd.h>

#include "base/test.h"
#include "formats/toymodel.h"
#include "runner/runner.h"
#include "runner/runner_impl.h"

static struct model_file *toy(const struct toymodel_spec *spec) {
    char path[] = "/tmp/skein-shape-XXXXXX";
    struct toymodel m;
    struct str bytes = {0};
    struct err e = {0};
    int fd = mkstemp(path);
    if (fd < 0 || !toymodel_init(&m, spec, &e)) fail_msg("%s", e.msg);
    toymodel_build(&m, &bytes);
    assert_int_equal(write(fd, bytes.p, bytes.n), (ssize_t)bytes.n);
    close(fd);
    struct model_file *f = model_file_open(path, &e);
    if (!f) fail_msg("%s", e.msg);
    unlink(path);
    str_deinit(&bytes);
    toymodel_deinit(&m);
    return f;
}

static void llama_has_one_kind_of_layer(void **state) {
    (void)state;
    struct model_file *f = toy(&(struct toymodel_spec){
        .type = DTYPE_Q4_0, .n_layers = 3, .dim = 64, .n_heads = 4, .n_kv_heads = 2, .n_ff = 128});
    struct arena a = {0};
    struct msg_described d;
    struct err e = {0};
    assert_true(runner_describe(f, &(struct msg_describe){.path = "toy"}, &a, &d, &e));
    assert_int_equal(d.shape.kinds.n, 1);
    assert_int_equal(d.shape.layer_kind.n, 3);
    const struct msg_layer_cost *c = d.shape.kinds.v;
    /* q and o are 64x64, k and v 32x64; three feed-forward matrices of 128x64; 18 bytes hold 32. */
    assert_int_equal(c->attn_ops, 2 * (2 * 64 * 64 + 2 * 32 * 64));
    assert_int_equal(c->ffn_ops, 2 * 3 * 128 * 64);
    assert_int_equal(c->attn_bytes, (2 * 64 * 64 + 2 * 32 * 64) / 32 * 18);
    assert_int_equal(c->ffn_bytes, 3 * 128 * 64 / 32 * 18);
    assert_int_equal(c->fixed_bytes, 2 * 64 * 4); /* two norms */
    assert_int_equal(c->attn_bytes + c->ffn_bytes + c->fixed_bytes, d.layer_bytes.v[0]);
    assert_int_equal(c->attend_ops, 4 * 2 * (16 + 16));
    assert_int_equal(c->n_sums, 2);
    assert_int_equal(d.shape.ff_step, 32);
    assert_int_equal(d.shape.n_ff, 128);
    assert_int_equal(d.shape.head_ops, 2 * 64 * 384);
    assert_false(d.shape.is_float);
    const struct msg_type_ops *t = d.shape.types.v;
    assert_int_equal(d.shape.types.n, 1);
    assert_int_equal(t->type, DTYPE_Q4_0);
    assert_int_equal(t->ops, 3 * (c->attn_ops + c->ffn_ops));
    assert_int_equal(t->rows, 3 * (2 * 64 + 2 * 32 + 2 * 128 + 64));
    assert_int_equal(c->act_bytes % 4, 0);
    /* Two norms, two adds, the rounding; in or out of seven matrices. */
    assert_int_equal(c->act_whole_bytes, 4 * 64 * (2 * 2 + 2 * 3 + 2 + 7));
    assert_true(c->act_bytes > 4 * (2 * 64 + 3 * 128)); /* norms, and the gate's three */
    arena_deinit(&a);
    model_file_close(f);
}

static void sliding_layers_are_a_kind_of_their_own(void **state) {
    (void)state;
    struct model_file *f = toy(&(struct toymodel_spec){
        .family = "gemma3", .n_layers = 6, .sliding_window = 64, .sliding_pattern = 3});
    struct arena a = {0};
    struct msg_described d;
    struct err e = {0};
    assert_true(runner_describe(f, &(struct msg_describe){.path = "toy"}, &a, &d, &e));
    assert_int_equal(d.shape.kinds.n, 2);
    const struct msg_layer_cost *c = d.shape.kinds.v;
    const u64 kinds[] = {0, 0, 1, 0, 0, 1};
    assert_memory_equal(d.shape.layer_kind.v, kinds, sizeof kinds);
    assert_int_equal(c[0].window, 64);
    assert_int_equal(c[1].window, 0);
    assert_int_equal(c[0].attend_ops, c[1].attend_ops);
    assert_true(d.shape.is_float);
    arena_deinit(&a);
    model_file_close(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_has_one_kind_of_layer),
        cmocka_unit_test(sliding_layers_are_a_kind_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
