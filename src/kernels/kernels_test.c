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
    assert_int_equal(kernels_chunk_rows(q4, 7, 512, 2, 8), 32);
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
    assert_int_equal(kernels_chunk_rows(&k, 2048, 8192, 3, 1), 128); /* acts are read again */
}

/* Several matrices share their activations: words only if all of them want words. */
static void words_are_for_those_that_want_them(void **state) {
    (void)state;
    const u64 q8 = 1ull << DTYPE_Q8_0, q6 = 1ull << DTYPE_Q6_K, q4 = 1ull << DTYPE_Q4_K;
    const struct kernels k = {.words_from = 4, .words_many = q6 | q8, .words_alone = q8};
    assert_int_equal(kernels_act_kind(&k, q6, 3), ACT_Q16);
    assert_int_equal(kernels_act_kind(&k, q6, 4), ACT_Q16W);
    assert_int_equal(kernels_act_kind(&k, q6 | q8, 262), ACT_Q16W);
    assert_int_equal(kernels_act_kind(&k, q4 | q6, 262), ACT_Q16);
    assert_int_equal(kernels_act_kind(&k, q4, 262), ACT_Q16);
    assert_int_equal(kernels_act_kind(&k, q8, 1), ACT_Q16W);
    assert_int_equal(kernels_act_kind(&k, q6 | q8, 1), ACT_Q16);
    assert_int_equal(kernels_act_kind(&k, 0, 262), ACT_Q16);
    struct kernels best;
    assert_true(kernels_select(&best, NULL, NULL));
    if (strcmp(best.set, "amx") != 0) return;
    assert_int_equal(kernels_act_kind(&best, q4, 262), ACT_Q16);
    assert_int_equal(kernels_act_kind(&best, q6, 262), ACT_Q16W);
}

static u8 rows_seen[300];
static u64 n_calls;

static void see_rows(const struct matmul_kernel *k, const struct mul_args *a) {
    n_calls++;
    for (u64 i = 0; i < (a->apart ? k->alone_rows / k->row_align : 1); i++)
        for (u64 r = a->row0; r < a->row1; r++) rows_seen[r + i * a->apart]++;
}

/* Every row is in one piece, whatever does not fill a piece too. */
static void a_token_goes_in_pieces(void **state) {
    (void)state;
    static const u64 ROWS[] = {1, 63, 64, 65, 200, 256, 300};
    for (u32 groups = 0; groups <= 4; groups += 2)
        for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
            const struct matmul_kernel k = {
                .row_align = 16, .alone_rows = 16 * groups, .mul = see_rows};
            const struct mul_args a = {.rows = ROWS[i]};
            u64 n = kernels_alone_pieces(&k, ROWS[i]);
            memset(rows_seen, 0, sizeof rows_seen);
            kernels_alone_mul(&k, &a, n / 2, n);
            for (u64 p = 0; p < n / 2; p++) kernels_alone_mul(&k, &a, p, p + 1);
            for (u64 r = 0; r < ARRAY_LEN(rows_seen); r++)
                assert_int_equal(rows_seen[r], r < ROWS[i]);
        }
    n_calls = 0; /* a run is one call, and what is left over another */
    kernels_alone_mul(&(struct matmul_kernel){.row_align = 16, .alone_rows = 64, .mul = see_rows},
                      &(struct mul_args){.rows = 300}, 1, 5);
    assert_int_equal(n_calls, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(select_by_mask),
        cmocka_unit_test(packed_size_overflow),
        cmocka_unit_test(rows_are_dealt_in_shares),
        cmocka_unit_test(shares_are_whole_panels),
        cmocka_unit_test(a_token_goes_in_pieces),
        cmocka_unit_test(words_are_for_those_that_want_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
