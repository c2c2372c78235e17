#include "base/dtype.h"
#include "base/test.h"

#include <math.h>
#include <string.h>

static u32 bits_of(float f) {
    u32 b;
    memcpy(&b, &f, sizeof b);
    return b;
}

static void every_f16_comes_back(void **state) {
    (void)state;
    for (u32 h = 0; h <= 0xFFFF; h++) {
        float f = f16_to_f32((u16)h);
        bool nan = (h & 0x7C00) == 0x7C00 && (h & 0x3FF);
        assert_int_equal(isnan(f) != 0, nan);
        if (nan)
            assert_true(isnan(f16_to_f32(f32_to_f16(f))));
        else
            assert_int_equal(f32_to_f16(f), h);
    }
    assert_true(f16_to_f32(0x0001) == 0x1p-24f);
    assert_true(f16_to_f32(0x03FF) == 1023 * 0x1p-24f);
    assert_true(f16_to_f32(0x3C00) == 1.0f && f16_to_f32(0xC000) == -2.0f);
    assert_true(f16_to_f32(0x7BFF) == 65504.0f && f16_to_f32(0xFC00) == -INFINITY);
}

/* Between two neighbours the nearer wins, in the middle the even one; checked around every finite
 * positive value. */
static void f16_rounds_to_nearest_even(void **state) {
    (void)state;
    for (u32 h = 0; h < 0x7BFF; h++) {
        float lo = f16_to_f32((u16)h), hi = f16_to_f32((u16)(h + 1)), mid = (lo + hi) / 2;
        u32 even = h & 1 ? h + 1 : h;
        assert_int_equal(f32_to_f16(mid), even);
        assert_int_equal(f32_to_f16(nextafterf(mid, 0)), h);
        assert_int_equal(f32_to_f16(nextafterf(mid, INFINITY)), h + 1);
        assert_int_equal(f32_to_f16(-mid), even | 0x8000);
    }
    assert_int_equal(f32_to_f16(65519.99f), 0x7BFF);
    assert_int_equal(f32_to_f16(65520.0f), 0x7C00);
    assert_int_equal(f32_to_f16(1e30f), 0x7C00);
    assert_int_equal(f32_to_f16(-INFINITY), 0xFC00);
}

static void bf16_rounds_to_nearest_even(void **state) {
    (void)state;
    assert_int_equal(f32_to_bf16(1.0f), 0x3F80);
    assert_int_equal(f32_to_bf16(1.00390625f), 0x3F80); /* halfway, down to even */
    assert_int_equal(f32_to_bf16(1.01171875f), 0x3F82); /* halfway, up to even */
    assert_int_equal(f32_to_bf16(nextafterf(1.00390625f, 2)), 0x3F81);
    assert_int_equal(f32_to_bf16(INFINITY), 0x7F80);
    assert_true(isnan(bf16_to_f32(f32_to_bf16(NAN))));
    for (u32 h = 0; h <= 0x7F80; h++) assert_int_equal(f32_to_bf16(bf16_to_f32((u16)h)), h);
    assert_int_equal(bits_of(bf16_to_f32(0x8000)), 0x80000000u);
}

static void row_sizes_are_checked(void **state) {
    (void)state;
    u64 n;
    assert_true(dtype_row_bytes(DTYPE_Q4_K, 512, &n) && n == 288);
    assert_true(dtype_row_bytes(DTYPE_F64, 3, &n) && n == 24);
    assert_false(dtype_row_bytes(DTYPE_Q4_K, 511, &n));
    assert_false(dtype_row_bytes(DTYPE_Q8_0, 33, &n));
    assert_false(dtype_row_bytes(DTYPE_F32, 1ull << 62, &n));
    assert_false(dtype_row_bytes(16, 256, &n)); /* IQ2_XXS: known, can't be decoded */
    assert_false(dtype_row_bytes(5, 256, &n));  /* retired id */
    assert_false(dtype_row_bytes(UINT32_MAX, 256, &n));
}

static void every_id_has_a_text(void **state) {
    (void)state;
    char buf[24];
    assert_string_equal(dtype_name(DTYPE_IQ4_XS, buf), "IQ4_XS");
    assert_string_equal(dtype_name(40, buf), "NVFP4");
    assert_string_equal(dtype_name(5, buf), "type 5");
    assert_string_equal(dtype_name(UINT32_MAX, buf), "type 4294967295");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_f16_comes_back),        cmocka_unit_test(f16_rounds_to_nearest_even),
        cmocka_unit_test(bf16_rounds_to_nearest_even), cmocka_unit_test(row_sizes_are_checked),
        cmocka_unit_test(every_id_has_a_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
