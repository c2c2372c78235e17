#include "base/test.h"

#include <math.h>

#include "model/model_impl.h"

/* Frequencies by hand from the papers' formulas; whole models are compared with transformers in
 * tests/golden. */

enum { DIMS = 8 };

static struct model_params params(enum rope_scaling rule) {
    static const struct arch llama = {.name = "llama", .rope_layout = ROPE_NORM};
    return (struct model_params){.arch = &llama,
                                 .head_dim_k = DIMS,
                                 .rope_dims = DIMS,
                                 .rope_scaling = rule,
                                 .rope_factor = 4,
                                 .rope_mscale = 1.25f,
                                 .rope_low_freq = 1,
                                 .rope_high_freq = 4,
                                 .yarn_ext_factor = 1,
                                 .yarn_beta_fast = 32,
                                 .yarn_beta_slow = 1,
                                 .rope_ctx_orig = 1000};
}

/* theta 10000 and 8 dims: frequencies 1, 0.1, 0.01, 0.001. */
static void expect(const struct model_params *p, bool scaled, const float *factors,
                   const double want[DIMS / 2]) {
    struct rope r;
    double freq[DIMS / 2];
    rope_init(&r, freq, p, 10000, scaled, factors);
    assert_ptr_equal(r.inv_freq, freq);
    assert_int_equal(r.n_rot, DIMS);
    for (int i = 0; i < DIMS / 2; i++) assert_float_equal(freq[i], want[i], 1e-9);
}

static void plain_and_linear(void **state) {
    (void)state;
    struct model_params none = params(ROPE_NONE), linear = params(ROPE_LINEAR);
    expect(&none, true, NULL, (double[]){1, 0.1, 0.01, 0.001});
    expect(&linear, true, NULL, (double[]){0.25, 0.025, 0.0025, 0.00025});
    expect(&linear, false, NULL, (double[]){1, 0.1, 0.01, 0.001});
}

static void file_factors(void **state) {
    (void)state;
    const float factors[] = {1, 2, 4, 8};
    struct model_params none = params(ROPE_NONE), llama3 = params(ROPE_LLAMA3);
    expect(&none, true, factors, (double[]){1, 0.05, 0.0025, 0.000125});
    /* The file's factors are the rule's result: it is not applied twice. */
    expect(&llama3, true, factors, (double[]){1, 0.05, 0.0025, 0.000125});
    expect(&none, false, factors, (double[]){1, 0.1, 0.01, 0.001});
}

/* 1000 tokens are 159, 15.9, 1.59 and 0.159 turns: kept, kept, blended, stretched. */
static void llama3(void **state) {
    (void)state;
    struct model_params p = params(ROPE_LLAMA3);
    double turns = 1000 * 0.01 / (2 * M_PI), keep = (turns - 1) / 3;
    expect(&p, true, NULL, (double[]){1, 0.1, (1 - keep) * 0.01 / 4 + keep * 0.01, 0.001 / 4});
}

/* Pairs that turn 32 times and once: 0.70 and 2.20, so the ramp runs from 0 to 3. */
static void yarn(void **state) {
    (void)state;
    struct model_params p = params(ROPE_YARN);
    double want[DIMS / 2];
    for (int i = 0; i < DIMS / 2; i++) want[i] = pow(10, -i) * ((1 - i / 3.0) + i / 3.0 / 4);
    expect(&p, true, NULL, want);
    p.yarn_ext_factor = 0; /* plain interpolation */
    expect(&p, true, NULL, (double[]){0.25, 0.025, 0.0025, 0.00025});
}

static void mscale_only_where_scaled(void **state) {
    (void)state;
    struct model_params p = params(ROPE_YARN);
    struct rope r;
    double freq[DIMS / 2];
    rope_init(&r, freq, &p, 10000, true, NULL);
    assert_true(r.mscale == 1.25);
    rope_init(&r, freq, &p, 10000, false, NULL);
    assert_true(r.mscale == 1);
}

static void sliding_layers(void **state) {
    (void)state;
    struct model_params p = {.sliding_window = 512, .sliding_pattern = 6};
    for (u32 il = 0; il < 12; il++) assert_int_equal(layer_slides(&p, il), il != 5 && il != 11);
    p.sliding_pattern = 0;
    assert_true(layer_slides(&p, 5));
    p.sliding_window = 0;
    assert_false(layer_slides(&p, 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(plain_and_linear),
                                       cmocka_unit_test(file_factors),
                                       cmocka_unit_test(llama3),
                                       cmocka_unit_test(yarn),
                                       cmocka_unit_test(mscale_only_where_scaled),
                                       cmocka_unit_test(sliding_layers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
