#include "base/random.h"
#include "base/test.h"
#include "wire/frame.h"
#include "wire/msg.h"

#include <math.h>
#include <string.h>

static void generate_round_trips(void **state) {
    (void)state;
    struct msg_text stops[] = {{"END"}, {"\xE4\xB8\xAD"}};
    struct msg_bias bias[] = {{-1, 0.5f}, {70000, -100}};
    i32 ids[] = {0, 1, -1, INT32_MIN, INT32_MAX, 49151};
    struct msg_generate m = {
        .id = 1ull << 63,
        .vars_json = "{\"messages\":[]}",
        .resume_ids = {ids, ARRAY_LEN(ids)},
        .stop = {stops, 2},
        .sampling = {.temperature = 0.7f, .min_p = -0.0f, .seed = 42, .logit_bias = {bias, 2}}};
    struct str s = {0};
    wire_encode(msg_table(MSG_GENERATE), &m, &s);
    struct arena a = {0};
    struct msg_generate d;
    struct err e = {0};
    assert_true(wire_decode(msg_table(MSG_GENERATE), s.p, s.n, &a, &d, &e));
    assert_true(d.id == m.id);
    assert_string_equal(d.vars_json, m.vars_json);
    assert_string_equal(d.prompt, "");
    assert_int_equal(d.resume_ids.n, ARRAY_LEN(ids));
    assert_memory_equal(d.resume_ids.v, ids, sizeof ids);
    assert_int_equal(d.stop.n, 2);
    assert_string_equal(((struct msg_text *)d.stop.v)[1].s, stops[1].s);
    assert_int_equal(((struct msg_bias *)d.sampling.logit_bias.v)[1].token, 70000);
    assert_true(d.sampling.temperature == 0.7f && signbit(d.sampling.min_p) &&
                d.sampling.seed == 42);
    struct str again = {0};
    wire_encode(msg_table(MSG_GENERATE), &d, &again);
    assert_int_equal(again.n, s.n);
    assert_memory_equal(again.p, s.p, s.n);
    str_deinit(&again);
    str_deinit(&s);
    arena_deinit(&a);
}

static void nested_lists_round_trip(void **state) {
    (void)state;
    struct msg_logprob top[] = {{1, -0.5f, {(const u8 *)"\xFF", 1}},
                                {2, -1.5f, {(const u8 *)"b", 1}}};
    struct msg_logprobs lp[] = {{.chosen = {7, -0.25f, {NULL, 0}}, .top = {top, 2}},
                                {.chosen = {8, 0, {NULL, 0}}}};
    struct msg_token m = {.id = 3, .text = "x", .logprobs = {lp, 2}};
    struct str s = {0};
    wire_encode(msg_table(MSG_TOKEN), &m, &s);
    struct arena a = {0};
    struct msg_token d;
    assert_true(wire_decode(msg_table(MSG_TOKEN), s.p, s.n, &a, &d, NULL));
    const struct msg_logprobs *l = d.logprobs.v;
    assert_int_equal(d.logprobs.n, 2);
    assert_int_equal(l[0].top.n, 2);
    assert_int_equal(((struct msg_logprob *)l[0].top.v)[0].bytes.p[0], 0xFF);
    assert_int_equal(l[1].chosen.token, 8);
    str_deinit(&s);
    arena_deinit(&a);
}

static void unknown_fields_are_skipped(void **state) {
    (void)state;
    struct msg_cancel m = {.id = 9};
    struct str s = {0};
    str_add(&s, "\xFA\x07\x03zzz", 6); /* field 127, length-delimited */
    wire_encode(msg_table(MSG_CANCEL), &m, &s);
    struct arena a = {0};
    struct msg_cancel d;
    assert_true(wire_decode(msg_table(MSG_CANCEL), s.p, s.n, &a, &d, NULL));
    assert_int_equal(d.id, 9);
    str_deinit(&s);
    arena_deinit(&a);
}

static void broken_bytes_are_errors(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
    } BAD[] = {
        {"\x0A\x05"
         "ab",
         4},                     /* a string longer than the message */
        {"\x0A\x02\xFF\xFE", 4}, /* not UTF-8 */
        {"\x0A\x02"
         "a\0",
         4},             /* a NUL inside */
        {"\x08\x01", 2}, /* path as a number */
        {"\x00\x01", 2}, /* field 0 */
        {"\x0B", 1},     /* wire type 3 */
        {"\xFF", 1},     /* a cut key */
    };
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++) {
        struct arena a = {0};
        struct msg_describe d;
        struct err e = {0};
        assert_false(wire_decode(msg_table(MSG_DESCRIBE), BAD[i].bytes, BAD[i].n, &a, &d, &e));
        assert_int_equal(e.code, ERR_FORMAT);
        assert_non_null(strstr(e.msg, "message describe"));
        arena_deinit(&a);
    }
}

static void random_bytes_never_crash(void **state) {
    (void)state;
    u64 seed = 7;
    for (u64 i = 0; i < 20000; i++) {
        u8 b[64];
        size_t n = random_at(seed, i * 100) % sizeof b;
        for (size_t k = 0; k < n; k++) b[k] = (u8)random_at(seed, i * 100 + 1 + k);
        struct arena a = {0};
        u32 type = (u32)(random_at(seed, i * 100 + 99) % MSG_TYPE_N);
        const struct wire_table *t = msg_table(type);
        if (!t) continue;
        _Alignas(16) u8 msg[1024];
        assert_true(t->size_bytes <= sizeof msg);
        wire_decode(t, b, n, &a, msg, NULL);
        arena_deinit(&a);
    }
}

static void frames_survive_any_cut(void **state) {
    (void)state;
    struct str s = {0};
    struct msg_cancel m = {.id = 5};
    frame_add(&s, MSG_CANCEL, &m);
    frame_add(&s, MSG_SHUTDOWN, NULL);
    frame_add_bytes(&s, MSG_TOKEN, "abc", 3);
    for (size_t step = 1; step <= s.n; step++) {
        struct frame_in in = {0};
        u32 seen[4] = {0}, n = 0;
        for (size_t i = 0; i < s.n; i += step) {
            frame_in_add(&in, s.p + i, MIN(step, s.n - i));
            struct frame f;
            while (frame_in_next(&in, &f, NULL) == 1) seen[n++ & 3] = f.type;
        }
        assert_int_equal(n, 3);
        assert_int_equal(seen[0], MSG_CANCEL);
        assert_int_equal(seen[1], MSG_SHUTDOWN);
        assert_int_equal(seen[2], MSG_TOKEN);
        frame_in_deinit(&in);
    }
    struct frame_in in = {0};
    struct frame f;
    struct err e = {0};
    frame_in_add(&in, "\xFF\xFF\xFF\xFF\0\0", 6);
    assert_int_equal(frame_in_next(&in, &f, &e), -1);
    frame_in_deinit(&in);
    str_deinit(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(generate_round_trips),       cmocka_unit_test(nested_lists_round_trip),
        cmocka_unit_test(unknown_fields_are_skipped), cmocka_unit_test(broken_bytes_are_errors),
        cmocka_unit_test(random_bytes_never_crash),   cmocka_unit_test(frames_survive_any_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
