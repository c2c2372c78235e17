/* Which set is chosen; what the sets compute is tested in tests/kernels/. */
#include "kernels/kernels.h"

#include <string.h>

#include "base/test.h"

static void select_by_mask(void **state) {
    (void)state;
    struct kernels k;
    struct err e = {0};
    u32 known, usable;
    const char *const *names = kernels_sets(&known, &usable);
    for (u32 i = 0; i < known; i++) {
        assert_true(kernels_select(&k, names[i], &e));
        assert_string_equal(k.set, names[MIN(i, usable - 1)]);
        assert_string_equal(k.matmul[DTYPE_Q4_0]->set, names[MIN(i, usable - 1)]);
        assert_non_null(k.matmul[DTYPE_MXFP4]);
        assert_null(k.matmul[DTYPE_I32]);
    }
    assert_true(kernels_select(&k, "", &e) && kernels_select(&k, NULL, &e));
    assert_false(kernels_select(&k, "avx9", &e));
    assert_int_equal(e.code, ERR_ARG);
    assert_non_null(strstr(e.msg, "avx9"));
    for (u32 i = 0; i < known; i++) assert_non_null(strstr(e.msg, names[i]));
}

static void packed_size_overflow(void **state) {
    (void)state;
    u64 bytes;
    u32 known, usable;
    const char *const *names = kernels_sets(&known, &usable);
    for (u32 i = 0; i < usable; i++) {
        struct kernels all;
        assert_true(kernels_select(&all, names[i], NULL));
        const struct matmul_kernel *k = all.matmul[DTYPE_Q4_0];
        assert_true(k->packed_bytes(k, 17, 64, &bytes));
        assert_false(k->packed_bytes(k, 17, 65, &bytes));
        assert_false(k->packed_bytes(k, UINT64_MAX, 64, &bytes));
        assert_false(k->packed_bytes(k, 17, UINT64_MAX / 32 * 32, &bytes));
        assert_false(k->packed_bytes(k, 8, UINT64_MAX / 64 * 32, &bytes));
    }
}

/* What ops/ deals and rate.c measures. */
static void rows_are_dealt_in_shares(void **state) {
    (void)state;
    struct kernels all;
    assert_true(kernels_select(&all, "ref", NULL));
    const struct matmul_kernel *q4 = all.matmul[DTYPE_Q4_0], *f32 = all.matmul[DTYPE_F32];
    assert_int_equal(kernels_chunk_rows(q4, 4096, 512, 2, 2), 512); /* four for each thread */
    assert_int_equal(kernels_chunk_rows(q4, 4096, 512, 1, 2), 32); /* of one token: runs of these */
    assert_int_equal(kernels_chunk_rows(q4, 7, 512, 1, 8), 32);
    assert_int_equal(kernels_chunk_rows(f32, 1 << 20, 1024, 9, 1), 64); /* 256 KiB */
    assert_int_equal(kernels_chunk_rows(f32, 1 << 20, 1 << 20, 9, 1), 32);
}

/* A panel that is filled in part takes as long as a full one. */
static void shares_are_whole_panels(void **state) {
    (void)state;
    const struct matmul_kernel k = {
        .type = DTYPE_Q4_0, .row_align = 16, .panels_from = 4, .panel_rows = 64, .pass_rows = 128};
    assert_int_equal(kernels_chunk_rows(&k, 8192, 2048, 3, 1), 224);
    assert_int_equal(kernels_chunk_rows(&k, 8192, 2048, 4, 1), 128); /* 256 KiB are 227 rows */
    assert_int_equal(kernels_chunk_rows(&k, 2048, 8192, 512, 1), 128);
    assert_int_equal(kernels_chunk_rows(&k, 8192, 512, 512, 1), 896);
    assert_int_equal(kernels_chunk_rows(&k, 512, 2048, 512, 2), 64);
    assert_int_equal(kernels_chunk_rows(&k, 96, 2048, 512, 8), 64);
    const struct matmul_kernel four = {.type = DTYPE_Q4_0, .row_align = 16, .alone_rows = 64};
    assert_int_equal(kernels_chunk_rows(&four, 1024, 2048, 1, 2), 64);
    assert_int_equal(kernels_chunk_rows(&four, 576, 576, 1, 2), 32); /* nine pieces for two */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(select_by_mask),
        cmocka_unit_test(packed_size_overflow),
        cmocka_unit_test(rows_are_dealt_in_shares),
        cmocka_unit_test(shares_are_whole_panels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
