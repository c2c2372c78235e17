#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include "base/test.h"

#include <string.h>

static void utf8_rejects_what_rfc3629_forbids(void **state) {
    (void)state;
    static const char *const BAD[] = {"\xC0\x80",         "\xE0\x80\x80", "\xED\xA0\x80",
                                      "\xF4\x90\x80\x80", "\x80",         "\xF8\x88\x80\x80\x80",
                                      "\xE2\x82"};
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++) assert_false(utf8_valid(BAD[i], strlen(BAD[i])));
    assert_true(utf8_valid("a\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\x80", 10));
}

static void utf8_round_trips_every_scalar(void **state) {
    (void)state;
    for (u32 cp = 0; cp <= 0x10FFFF; cp++) {
        if (cp >= 0xD800 && cp <= 0xDFFF) continue;
        char b[4];
        int n = utf8_encode(cp, b);
        u32 back;
        assert_int_equal(utf8_decode(b, (size_t)n, &back), n);
        assert_int_equal(back, cp);
    }
}

static void utf8_finds_incomplete_tails(void **state) {
    (void)state;
    assert_int_equal(utf8_incomplete_tail("ab\xF0\x9F\x98", 5), 3);
    assert_int_equal(utf8_incomplete_tail("ab\xE4\xB8", 4), 2);
    assert_int_equal(utf8_incomplete_tail("ab\xC3", 3), 1);
    assert_int_equal(utf8_incomplete_tail("ab\xF0\x9F\x98\x80", 6), 0);
    assert_int_equal(utf8_incomplete_tail("abc", 3), 0);
    assert_int_equal(utf8_incomplete_tail("\x80\x80\x80\x80", 4), 0);
}

static void err_wrap_keeps_the_cause(void **state) {
    (void)state;
    struct err e = {0};
    assert_false(err_set(&e, ERR_FORMAT, "bad magic %d", 7));
    err_wrap(&e, "reading %s", "x.gguf");
    assert_string_equal(e.msg, "reading x.gguf: bad magic 7");
    assert_int_equal(e.code, ERR_FORMAT);
    for (int i = 0; i < 200; i++) err_wrap(&e, "and again and again");
    assert_true(strlen(e.msg) < sizeof e.msg);
}

static void reader_never_passes_the_end(void **state) {
    (void)state;
    u8 b[5] = {1, 2, 3, 4, 5};
    struct rd r = rd_of(b, sizeof b);
    assert_int_equal(rd_u32(&r), 0x04030201);
    assert_int_equal(rd_u16(&r), 0);
    assert_true(r.bad);
    assert_int_equal(rd_u8(&r), 0);
    r = rd_of(b, sizeof b);
    assert_null(rd_bytes(&r, UINT64_MAX));
    struct str s = {0};
    static const u64 V[] = {0, 127, 128, 16384, UINT64_MAX};
    for (size_t i = 0; i < ARRAY_LEN(V); i++) wr_varint(&s, V[i]);
    r = rd_of(s.p, s.n);
    for (size_t i = 0; i < ARRAY_LEN(V); i++) assert_true(rd_varint(&r) == V[i]);
    assert_false(r.bad);
    assert_int_equal(rd_left(&r), 0);
    str_deinit(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(utf8_rejects_what_rfc3629_forbids),
        cmocka_unit_test(utf8_round_trips_every_scalar),
        cmocka_unit_test(utf8_finds_incomplete_tails),
        cmocka_unit_test(err_wrap_keeps_the_cause),
        cmocka_unit_test(reader_never_passes_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
