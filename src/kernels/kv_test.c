#include "kernels/kv.h"

#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/test.h"
#include "kernels/mem.h"

static void sizes(void **state) {
    (void)state;
    u64 bytes;
    assert_true(kv_block_bytes(KV_F16, 30, 3, 64, 64, &bytes));
    assert_int_equal(bytes, 30ull * 3 * 32 * 128 * 2);
    assert_false(kv_block_bytes(KV_Q8, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, &bytes));
}

static u32 fill(u8 *p, u64 n, u32 from) {
    for (u64 i = 0; i < n; i++) p[i] = (u8)(from++ * 2654435761u >> 24);
    return from;
}

/* Every byte of every block has a place of its own, and they fill the memory. */
static void check_layout(enum kv_type type, u32 dk, u32 dv) {
    enum { LAYERS = 3, BLOCKS = 4, HEADS = 2 };
    struct kv_pool p;
    struct err e = {0};
    assert_true(kv_pool_init(&p, type, LAYERS, BLOCKS, HEADS, dk, dv, &e));
    const u64 v = kv_values_at(type, dk), ks = kv_key_scales_at(dk, dv),
              vs = kv_value_scales_at(dk, dv), end = kv_head_bytes(type, dk, dv);
    if (type == KV_Q8)
        assert_true(v == 32 * dk && ks == v + 32 * dv && vs == ks + (dk + 31) / 32 * 64 &&
                    end == vs + (dv + 31) / 32 * 64);
    else
        assert_true(v == 64 * dk && end == v + 64 * dv);
    u32 n = 0;
    for (u32 l = 0; l < LAYERS; l++)
        for (u32 b = 0; b < BLOCKS; b++)
            for (u32 h = 0; h < HEADS; h++) {
                u8 *at = kv_head(&p, l, h) + b * kv_block_stride(&p);
                assert_true(at >= p.mem && at + end <= p.mem + p.mem_bytes);
                n = fill(at, end, n);
            }
    assert_int_equal(n, p.mem_bytes);
    for (u32 i = 0; i < n; i++) assert_int_equal(p.mem[i], (u8)(i * 2654435761u >> 24));

    kv_block_copy(&p, 3, 1);
    for (u32 l = 0; l < LAYERS; l++) {
        u64 s = kv_block_stride(&p);
        u8 *k = kv_head(&p, l, 0);
        assert_memory_equal(k + 3 * s, k + 1 * s, s);
        assert_memory_not_equal(k + 2 * s, k + 1 * s, s);
    }
    kv_pool_deinit(&p);
    assert_null(p.mem);
}

static void pool_layout(void **state) {
    (void)state;
    for (u32 type = 0; type < KV_TYPES; type++) {
        check_layout((enum kv_type)type, 32, 16);
        check_layout((enum kv_type)type, 80, 64);
    }
}

static void types_have_names(void **state) {
    (void)state;
    enum kv_type t = KV_F16;
    struct err e = {0};
    assert_true(kv_type_read("q8", &t, &e) && t == KV_Q8);
    assert_true(kv_type_read(kv_type_name(KV_F16), &t, &e) && t == KV_F16);
    assert_false(kv_type_read("q4", &t, &e));
    assert_true(e.code == ERR_ARG && strstr(e.msg, "q4") && strstr(e.msg, "q8"));
}

/* Half a step at most, whatever the magnitude; zeros, infinities and the smallest are no trouble.
 */
static void q8_rounds(void **state) {
    (void)state;
    static const float TOP[] = {1, 1e-3f, 1e-7f, 0, 3e4f, 8e6f, 1e30f};
    for (u32 k = 0; k < ARRAY_LEN(TOP); k++) {
        float x[32];
        i8 q[32 * 3];
        u16 scale;
        for (u32 i = 0; i < 32; i++) x[i] = TOP[k] * (float)((int)(i * 7 % 32) - 16) / 16;
        kv_q8_store(q, 3, &scale, x, 32);
        double d = (double)f16_to_f32(scale), top = fmin((double)TOP[k], 65504.0 * 127);
        assert_true(isfinite(d));
        for (u32 i = 0; i < 32; i++) {
            double want = fmax(-top, fmin(top, (double)x[i]));
            /* half a step, and what the scale lost in f16 (or half its smallest) times 127 */
            assert_true(fabs(q[3 * i] * d - want) <= d / 2 + top / 2048 + 127 * 3e-8);
        }
    }
}

static void refusals(void **state) {
    (void)state;
    struct kv_pool p;
    struct err e = {0};
    assert_false(kv_pool_init(&p, KV_F16, 1, 1, 1, 60, 64, &e));
    assert_int_equal(e.code, ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "60"));
    assert_false(kv_pool_init(&p, KV_F16, 1000000, UINT32_MAX, 1000, 256, 256, &e));
    assert_int_equal(e.code, ERR_LIMIT);
    assert_false(kv_pool_init(&p, KV_F16, 1000, 1u << 31, 100, 256, 256, &e)); /* some exabytes */
    assert_int_equal(e.code, ERR_MEMORY);
    assert_non_null(strstr(e.msg, "the KV cache"));
    kv_pool_deinit(&p);
}

static void memory(void **state) {
    (void)state;
    static const u64 SIZES[] = {0, 1, 4097, (2 << 20) - 1, 2 << 20, (6 << 20) + 5};
    for (u32 i = 0; i < ARRAY_LEN(SIZES); i++) {
        u8 *p = mem_map(SIZES[i], "a test", NULL);
        assert_non_null(p);
        if (SIZES[i] >= 2 << 20) assert_int_equal((uintptr_t)p % (2 << 20), 0);
        u64 last = SIZES[i] ? SIZES[i] - 1 : 0;
        assert_true(p[0] == 0 && p[last] == 0);
        p[last] = p[0] = 1;
        mem_unmap(p, SIZES[i]);
    }
    struct err e = {0};
    assert_null(mem_map(UINT64_MAX, "everything", &e));
    assert_int_equal(e.code, ERR_MEMORY);
    assert_non_null(strstr(e.msg, "everything"));
    mem_unmap(NULL, 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes),
        cmocka_unit_test(pool_layout),
        cmocka_unit_test(types_have_names),
        cmocka_unit_test(q8_rounds),
        cmocka_unit_test(refusals),
        cmocka_unit_test(memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
