#include "base/seal.h"

#include <string.h>

#include "base/test.h"

static const u8 KEY[SEAL_KEY_BYTES] = "thirty-two bytes, all of them ..";

static void opens_in_order(void **state) {
    (void)state;
    struct seal a, b;
    u8 sealed[3][100 + SEAL_TAG_BYTES], out[100], text[100];
    seal_init(&a, KEY, true);
    seal_init(&b, KEY, false);
    memset(text, 7, sizeof text);
    for (u32 i = 0; i < 3; i++) seal_close(&a, sealed[i], text, i * 50);
    assert_memory_not_equal(sealed[1], sealed[2], 50); /* the same text, never the same bytes */
    for (u32 i = 0; i < 3; i++) {
        memset(out, 0, sizeof out);
        assert_true(seal_open(&b, out, sealed[i], i * 50 + SEAL_TAG_BYTES));
        assert_memory_equal(out, text, i * 50);
    }
    seal_deinit(&a);
    seal_deinit(&b);
}

static bool opens(const u8 *key, u32 skip, const u8 *sealed, size_t n) {
    struct seal b;
    u8 out[100];
    seal_init(&b, key, false);
    b.n = skip;
    bool ok = seal_open(&b, out, sealed, n);
    seal_deinit(&b);
    return ok;
}

static void nothing_else_opens(void **state) {
    (void)state;
    struct seal a;
    u8 sealed[20 + SEAL_TAG_BYTES], other[SEAL_KEY_BYTES] = "another key";
    seal_init(&a, KEY, true);
    seal_close(&a, sealed, "twenty bytes of text", 20);
    assert_true(opens(KEY, 0, sealed, sizeof sealed));
    assert_false(opens(other, 0, sealed, sizeof sealed));
    assert_false(opens(KEY, 1, sealed, sizeof sealed)); /* out of its place */
    assert_false(opens(KEY, 0, sealed, sizeof sealed - 1));
    assert_false(opens(KEY, 0, sealed, 3));
    for (size_t i = 0; i < sizeof sealed; i++) {
        sealed[i] ^= 1;
        assert_false(opens(KEY, 0, sealed, sizeof sealed));
        sealed[i] ^= 1;
    }
    seal_deinit(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens_in_order),
        cmocka_unit_test(nothing_else_opens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
