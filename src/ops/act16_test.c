#include "ops/act16.h"

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

/* Rounding in place is the same as travelling, also beyond f16's range; twice is the same as once.
 */
static void rounding_is_travelling(void **state) {
    (void)state;
    struct kernels k;
    assert_true(kernels_select(&k, NULL, NULL));
    static const float LARGEST[] = {3, 32768, 32769, 65504, 1e6f, 3e38f, 1e-7f};
    float *a = calloc(N * DIM, 4), *b = calloc(N * DIM, 4), *c = calloc(N * DIM, 4),
          *want = calloc(N * DIM, 4);
    u8 *wire = calloc(1, act16_bytes(N, DIM));
    for (size_t i = 0; i < ARRAY_LEN(LARGEST); i++) {
        fill(want, LARGEST[i]);
        memcpy(a, want, N * DIM * 4);
        memcpy(b, want, N * DIM * 4);
        act16_round(&k, a, N, DIM);
        act16_pack(&k, wire, b, N, DIM);
        act16_unpack(&k, c, wire, N, DIM);
        assert_memory_equal(a, c, N * DIM * 4);
        act16_round(&k, a, N, DIM);
        assert_memory_equal(a, c, N * DIM * 4);
        for (u32 t = 0; t < N; t++)
            for (u32 d = 0; d < DIM; d++) {
                float x = want[t * DIM + d], max = t == 2 ? LARGEST[i] : 3;
                assert_true(fabsf(c[t * DIM + d] - x) <=
                            fabsf(x) * 0x1p-11f + fmaxf(max * 0x1p-39f, 0x1p-25f));
            }
    }
    free(a);
    free(b);
    free(c);
    free(want);
    free(wire);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(rounding_is_travelling)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
