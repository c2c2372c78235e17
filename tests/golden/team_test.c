/* Real models dealt to ranks, against one process. A model that is nowhere is skipped. */
#include "find_model.h"
#include "model/team_testbed.h"

/* SmolLM2 has 9 query heads on 3 KV heads, Gemma 3 has 4 on 1 and blocks of 256: nothing divides.
 */
static const struct layout LAYOUTS[] = {
    {1, {{2, {1, 1}}}},
    {1, {{3, {3, 1, 2}}}},
    {1, {{4, {1, 1, 1, 1}}}},
    {2, {{2, {1, 1}}, {2, {2, 1}}}},
    {4, {{1, {1}}, {1, {1}}, {1, {1}}, {1, {1}}}},
};

static void run(const char *model) {
    enum { N_TOK = 12 };
    char path[1024];
    if (!find_model(model, path, sizeof path)) skip();
    for (size_t i = 0; i < ARRAY_LEN(LAYOUTS); i++) {
        double copies, d = team_distance(path, &LAYOUTS[i], TEAM_F32, N_TOK, &copies);
        printf("%s: %u stages, %u ranks: logits off by %.2g, %.2f copies of the file read\n", model,
               LAYOUTS[i].n_stages, layout_ranks(&LAYOUTS[i]), d, copies);
        assert_true(d <= 1e-3);
        assert_true(copies < 2);
    }
    static const double MOST[TEAM_WIRES] = {[TEAM_F16] = 1e-2, [TEAM_F32] = 1e-3, [TEAM_Q8] = 2e-1};
    for (u32 w = 0; w < TEAM_WIRES; w++) {
        double copies, d = team_distance(path, &LAYOUTS[2], (enum team_wire)w, N_TOK, &copies);
        printf("%s: 4 ranks, sums as %s: logits off by %.2g\n", model,
               team_wire_name((enum team_wire)w), d);
        assert_true(d <= MOST[w]);
    }
}

static void smollm2(void **state) {
    (void)state;
    run("SmolLM2-135M-Instruct.Q4_1.gguf");
}

static void gemma3(void **state) {
    (void)state;
    run("gemma-3-270m-q4_k_m.gguf");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(smollm2), cmocka_unit_test(gemma3)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
