#include "engine/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "base/test.h"

enum { V = 64 };

static u32 pick(const struct sampling *p, const float *logits, const u32 *h, u32 n_h, u32 n_prompt,
                struct sampled *out) {
    float l[V];
    memcpy(l, logits, sizeof l);
    struct sampler *s = sampler_new(V);
    struct sampled o;
    struct err e = {0};
    assert_true(sampler_pick(s, p, l, h, n_h, n_prompt, &o, &e));
    sampler_free(s);
    if (out) *out = o;
    return o.token;
}

static void ramp(float l[V]) {
    for (int i = 0; i < V; i++) l[i] = (float)i * 0.1f;
}

static void greedy_takes_the_largest_and_the_lower_of_equals(void **state) {
    (void)state;
    float l[V] = {0};
    l[7] = l[9] = 3;
    assert_int_equal(pick(&(struct sampling){0}, l, NULL, 0, 0, NULL), 7);
    l[3] = NAN;
    assert_int_equal(pick(&(struct sampling){0}, l, NULL, 0, 0, NULL), 7);
}

static void no_finite_logit_is_an_error(void **state) {
    (void)state;
    float l[V];
    for (int i = 0; i < V; i++) l[i] = NAN;
    struct sampler *s = sampler_new(V);
    struct sampled o;
    struct err e = {0};
    assert_false(sampler_pick(s, &(struct sampling){0}, l, NULL, 0, 0, &o, &e));
    assert_int_equal(e.code, ERR_INTERNAL);
    sampler_free(s);
}

static void a_seed_gives_the_same_answer_and_position_matters(void **state) {
    (void)state;
    float l[V];
    ramp(l);
    struct sampling p = {.temperature = 1, .seed = 99};
    u32 h[300] = {0};
    u32 differ = 0;
    for (u32 i = 0; i < 200; i++) {
        assert_int_equal(pick(&p, l, h, i, 0, NULL), pick(&p, l, h, i, 0, NULL));
        differ += pick(&p, l, h, i, 0, NULL) != pick(&p, l, h, i + 1, 0, NULL);
    }
    assert_true(differ > 100);
}

/* Drawn frequencies against the softmax: chi-square over 20,000 draws, fixed seed. */
static void draws_follow_the_softmax(void **state) {
    (void)state;
    float l[V];
    ramp(l);
    struct sampling p = {.temperature = 0.8f, .seed = 5};
    static u32 h[20000];
    u32 n[V] = {0}, draws = ARRAY_LEN(h);
    for (u32 i = 0; i < draws; i++) n[pick(&p, l, h, i, 0, NULL)]++;
    double sum = 0, chi = 0;
    for (int i = 0; i < V; i++) sum += exp(l[i] / 0.8);
    for (int i = 0; i < V; i++) {
        double want = draws * exp(l[i] / 0.8) / sum;
        chi += (n[i] - want) * (n[i] - want) / want;
    }
    assert_true(chi < 110); /* 63 degrees of freedom: 99.98 % */
}

static void filters_keep_what_they_say(void **state) {
    (void)state;
    float l[V];
    ramp(l);
    static u32 h[500];
    double total = 0;
    for (int i = 0; i < V; i++) total += exp(l[i]);
    u32 nucleus = 0;
    for (double cum = 0; cum < 0.5 * total; nucleus++) cum += exp(l[V - 1 - nucleus]);
    struct {
        struct sampling p;
        u32 least; /* lowest token that may come */
    } CASE[] = {
        {{.temperature = 5, .top_k = 3}, V - 3},
        {{.temperature = 5, .top_k = 1}, V - 1},
        {{.temperature = 5, .min_p = 0.55f}, V - 6}, /* e^(-0.5) = 0.607, e^(-0.6) = 0.549 */
        {{.temperature = 5, .top_p = 0.5f}, V - nucleus},
        {{.temperature = 5, .top_p = 1e-6f}, V - 1},
        {{.temperature = 5, .top_p = 0.5f, .top_k = 2}, V - 1}, /* of two, the first has 52 % */
    };
    for (size_t c = 0; c < ARRAY_LEN(CASE); c++) {
        u32 low = V;
        for (u32 i = 0; i < ARRAY_LEN(h); i++) low = MIN(low, pick(&CASE[c].p, l, h, i, 0, NULL));
        assert_int_equal(low, CASE[c].least);
    }
}

static void penalties_and_bias(void **state) {
    (void)state;
    float l[V] = {0};
    l[1] = 2, l[2] = 1.9f;
    u32 h[] = {1, 1, 5};
    assert_int_equal(pick(&(struct sampling){.repetition_penalty = 1.1f}, l, h, 3, 0, NULL), 2);
    assert_int_equal(pick(&(struct sampling){.repetition_penalty = 1.1f, .repetition_last_n = 1}, l,
                          h, 3, 0, NULL),
                     1);
    assert_int_equal(pick(&(struct sampling){.presence_penalty = 0.2f}, l, h, 3, 0, NULL), 2);
    assert_int_equal(pick(&(struct sampling){.presence_penalty = 0.2f}, l, h, 3, 3, NULL),
                     1); /* prompt is free */
    assert_int_equal(pick(&(struct sampling){.frequency_penalty = 0.06f}, l, h, 3, 0, NULL),
                     2); /* twice */
    assert_int_equal(pick(&(struct sampling){.frequency_penalty = 0.06f}, l, h, 1, 0, NULL),
                     1); /* once */
    struct sampling_bias b[] = {{1, -100}, {40, 50}, {999, 1}};
    assert_int_equal(pick(&(struct sampling){.n_bias = 1, .bias = b}, l, h, 0, 0, NULL), 2);
    assert_int_equal(pick(&(struct sampling){.n_bias = 3, .bias = b}, l, h, 0, 0, NULL), 40);
}

static void logprobs_are_of_the_model_itself(void **state) {
    (void)state;
    float l[V];
    ramp(l);
    struct sampling_bias b[] = {{3, 100}};
    struct sampled o;
    pick(&(struct sampling){.n_bias = 1, .bias = b, .logprobs = true, .n_top = 2}, l, NULL, 0, 0,
         &o);
    double total = 0;
    for (int i = 0; i < V; i++) total += exp(l[i]);
    assert_int_equal(o.token, 3);
    assert_true(fabs(o.logprob - log(exp(l[3]) / total)) < 1e-4);
    assert_int_equal(o.n_top, 2);
    assert_int_equal(o.top[0].token, V - 1);
    assert_int_equal(o.top[1].token, V - 2);
    assert_true(fabs(o.top[0].logprob - log(exp(l[V - 1]) / total)) < 1e-4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_takes_the_largest_and_the_lower_of_equals),
        cmocka_unit_test(no_finite_logit_is_an_error),
        cmocka_unit_test(a_seed_gives_the_same_answer_and_position_matters),
        cmocka_unit_test(draws_follow_the_softmax),
        cmocka_unit_test(filters_keep_what_they_say),
        cmocka_unit_test(penalties_and_bias),
        cmocka_unit_test(logprobs_are_of_the_model_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
