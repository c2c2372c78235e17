#include "kernels/kv.h"

#include <string.h>

#include "base/test.h"
#include "kernels/mem.h"

static void sizes(void **state) {
    (void)state;
    u64 bytes;
    assert_true(kv_block_bytes(30, 3, 64, 64, &bytes));
    assert_int_equal(bytes, 30ull * 3 * 32 * 128 * 2);
    assert_false(kv_block_bytes(UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, &bytes));
}

static void pool_layout(void **state) {
    (void)state;
    enum { LAYERS = 3, BLOCKS = 4, HEADS = 2, DK = 32, DV = 16 };
    struct kv_pool p;
    struct err e = {0};
    assert_true(kv_pool_init(&p, LAYERS, BLOCKS, HEADS, DK, DV, &e));
    /* Every element of every block has a place of its own, inside the memory. */
    u16 n = 0;
    for (u32 l = 0; l < LAYERS; l++)
        for (u32 b = 0; b < BLOCKS; b++)
            for (u32 h = 0; h < HEADS; h++) {
                u16 *k = kv_keys(&p, l, h) + b * kv_block_stride(&p);
                u16 *v = kv_values(&p, l, h) + b * kv_block_stride(&p);
                for (u32 i = 0; i < DK * 32; i++) k[i] = ++n;
                for (u32 i = 0; i < DV * 32; i++) v[i] = ++n;
                assert_true((u8 *)(v + DV * 32) <= (u8 *)p.mem + p.mem_bytes);
            }
    for (u32 i = 0; i < n; i++) assert_int_equal(p.mem[i], i + 1);
    assert_int_equal(n * sizeof(u16), p.mem_bytes);

    kv_block_copy(&p, 3, 1);
    for (u32 l = 0; l < LAYERS; l++) {
        u64 s = kv_block_stride(&p);
        u16 *k = kv_keys(&p, l, 0);
        assert_memory_equal(k + 3 * s, k + 1 * s, s * 2);
        assert_memory_not_equal(k + 2 * s, k + 1 * s, s * 2);
    }
    kv_pool_deinit(&p);
    assert_null(p.mem);
}

static void refusals(void **state) {
    (void)state;
    struct kv_pool p;
    struct err e = {0};
    assert_false(kv_pool_init(&p, 1, 1, 1, 60, 64, &e));
    assert_int_equal(e.code, ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "60"));
    assert_false(kv_pool_init(&p, 1000000, UINT32_MAX, 1000, 256, 256, &e));
    assert_int_equal(e.code, ERR_LIMIT);
    assert_false(kv_pool_init(&p, 1000, 1u << 31, 100, 256, 256, &e)); /* some exabytes */
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
        cmocka_unit_test(refusals),
        cmocka_unit_test(memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
