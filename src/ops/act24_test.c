#include "ops/act24.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "base/test.h"

enum { N = 5, DIM = 700 };

static void fill(float *x, float largest) {
    for (u32 i = 0; i < N * DIM; i++)
        x[i] = (float)(random_unit(1, i) * 2 - 1) * (i / DIM == 2 ? largest : 3);
    x[2 * DIM + 7] = largest;
}

/* Rounding in place is the same as travelling, whatever the size; twice is the same as once.
 */
static void rounding_is_travelling(void **state) {
    (void)state;
    static const float LARGEST[] = {3, 32768, 32769, 65504, 1e6f, 3e38f, 1e-7f};
    float *a = calloc(N * DIM, 4), *b = calloc(N * DIM, 4), *c = calloc(N * DIM, 4),
          *want = calloc(N * DIM, 4);
    u8 *wire = calloc(1, act24_bytes(N, DIM));
    for (size_t i = 0; i < ARRAY_LEN(LARGEST); i++) {
        fill(want, LARGEST[i]);
        memcpy(a, want, N * DIM * 4);
        memcpy(b, want, N * DIM * 4);
        act24_round(a, N, DIM);
        act24_pack(wire, b, N, DIM);
        act24_unpack(c, wire, N, DIM);
        assert_memory_equal(a, c, N * DIM * 4);
        act24_round(a, N, DIM);
        assert_memory_equal(a, c, N * DIM * 4);
        for (u32 t = 0; t < N; t++)
            for (u32 d = 0; d < DIM; d++) {
                float x = want[t * DIM + d];
                assert_true(fabsf(c[t * DIM + d] - x) <= fabsf(x) * 0x1p-16f);
            }
    }
    free(a);
    free(b);
    free(c);
    free(want);
    free(wire);
}

static void odd_values(void **state) {
    (void)state;
    const float in[] = {0, -0.0f, 1 + 0x1p-16f, 1 + 0x3p-16f, INFINITY, -INFINITY, 0x1p-149f};
    const float out[] = {0, -0.0f, 1, 1 + 0x1p-14f, INFINITY, -INFINITY, 0}; /* ties to even */
    float x[ARRAY_LEN(in)], nan = NAN;
    memcpy(x, in, sizeof x);
    act24_round(x, 1, ARRAY_LEN(in));
    assert_memory_equal(x, out, sizeof x);
    act24_round(&nan, 1, 1);
    assert_true(isnan(nan));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(rounding_is_travelling),
                                       cmocka_unit_test(odd_values)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
