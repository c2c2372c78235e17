#include "kernels/rate.h"

#include "base/test.h"

static void every_set_gives_figures_that_make_sense(void **state) {
    (void)state;
    u32 n_known, n_usable;
    const char *const *sets = kernels_sets(&n_known, &n_usable);
    struct err e = {0};
    struct pool *pool = pool_new(2, false, &e);
    assert_non_null(pool);
    for (u32 i = 0; i < n_usable; i++) {
        struct kernels k = {0};
        struct rate r = {0};
        assert_true(kernels_select(&k, sets[i], &e));
        assert_true(rate_measure(pool, &k, 8 << 20, &r, &e));
        assert_true(r.read_bytes_s > 1e7 && r.read_bytes_s < 1e14);
        assert_true(r.call_s > 0 && r.call_s < 1);
        assert_true(r.attend_ops_s > 1e6 && r.attend_ops_s < 1e16);
        assert_true(r.attend_one_ops_s > 1e6 && r.attend_one_ops_s < 1e16);
        assert_true(r.spread >= 1 && r.spread < 1e6);
        u32 n_kernels = 0;
        for (u32 t = 0; t < DTYPE_N; t++) {
            const struct rate_type *x = rate_find(&r, (enum dtype)t);
            assert_true((x != NULL) == (k.matmul[t] != NULL));
            if (!x) continue;
            n_kernels++;
            assert_true(x->one_ops_s > 1e6 && x->one_ops_s < 1e16);
            assert_true(x->narrow_ops_s > 1e6 && x->narrow_ops_s < 1e16);
            assert_true(x->few_ops_s > 1e6 && x->few_ops_s < 1e16);
            assert_true(x->many_ops_s > 1e6 && x->many_ops_s < 1e16);
            assert_true(x->many8_ops_s > 1e6 && x->many8_ops_s < 1e16);
            assert_true(x->narrow_many_ops_s > 1e6 && x->narrow_many_ops_s < 1e16);
        }
        assert_int_equal(r.n_types, n_kernels);
    }
    pool_free(pool);
}

/* Two rounds of five may be disturbed. */
static void the_median_of_rounds_counts(void **state) {
    (void)state;
    const double v[] = {9, 0, 5, 0, 10, 0, 20, 0, 2, 0}, slow = 3;
    double spread;
    assert_true(rate_of_rounds(v, 5, 2, &spread) == 9 && spread == 10);
    assert_true(rate_of_rounds(v, 2, 2, NULL) == 9);
    assert_true(rate_of_rounds(&slow, 1, 1, &spread) == 3 && spread == 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_median_of_rounds_counts),
                                       cmocka_unit_test(every_set_gives_figures_that_make_sense)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
