#include "engine/stops.h"

#include <string.h>

#include "base/test.h"

static int feed(struct stops *s, const char *const *text, size_t n, struct str *out) {
    for (size_t i = 0; i < n; i++) {
        int met = stops_add(s, view_of(text[i]), out);
        if (met >= 0) return met;
    }
    return -1;
}

static void stop_over_several_tokens(void **state) {
    (void)state;
    struct stops s = {0};
    assert_true(stops_add_string(&s, VIEW("own fox")));
    struct str out = {0};
    const char *text[] = {"the quick br", "own", " fox jumps"};
    assert_int_equal(feed(&s, text, 3, &out), 0);
    assert_string_equal(out.p, "the quick br");
    stops_deinit(&s);
    str_deinit(&out);
}

static void refuted_prefix_is_let_out_at_once(void **state) {
    (void)state;
    struct stops s = {0};
    assert_true(stops_add_string(&s, VIEW("abcd")));
    struct str out = {0};
    assert_int_equal(stops_add(&s, VIEW("xab"), &out), -1);
    assert_string_equal(out.p, "x");
    assert_int_equal(stops_add(&s, VIEW("ab"), &out), -1);
    assert_string_equal(out.p, "xab");
    assert_int_equal(stops_add(&s, VIEW("z"), &out), -1);
    assert_string_equal(out.p, "xababz");
    stops_deinit(&s);
    str_deinit(&out);
}

static void the_earliest_stop_wins(void **state) {
    (void)state;
    struct stops s = {0};
    assert_true(stops_add_string(&s, VIEW("later")));
    assert_true(stops_add_string(&s, VIEW("so")));
    assert_true(stops_add_string(&s, VIEW("sooner")));
    struct str out = {0};
    assert_int_equal(stops_add(&s, VIEW("a sooner than later"), &out), 2);
    assert_string_equal(out.p, "a ");
    stops_deinit(&s);
    str_deinit(&out);
}

static void the_end_lets_out_what_is_held(void **state) {
    (void)state;
    struct stops s = {0};
    assert_true(stops_add_string(&s, VIEW("END")));
    struct str out = {0};
    stops_add(&s, VIEW("the EN"), &out);
    assert_string_equal(out.p, "the ");
    stops_end(&s, &out);
    assert_string_equal(out.p, "the EN");
    stops_deinit(&s);
    str_deinit(&out);
}

/* Every way to cut a text into two pieces gives the same output. */
static void cuts_do_not_matter(void **state) {
    (void)state;
    static const char TEXT[] = "aabaabaaab xx END yy";
    for (size_t cut = 0; cut < sizeof TEXT; cut++) {
        struct stops s = {0};
        assert_true(stops_add_string(&s, VIEW("aaab")));
        struct str out = {0};
        int met = stops_add(&s, (struct view){TEXT, cut}, &out);
        assert_null(strstr(str_z(&out), "aaab"));
        if (met < 0) met = stops_add(&s, view_of(TEXT + cut), &out);
        assert_int_equal(met, 0);
        assert_string_equal(out.p, "aabaab");
        stops_deinit(&s);
        str_deinit(&out);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stop_over_several_tokens),
        cmocka_unit_test(refuted_prefix_is_let_out_at_once),
        cmocka_unit_test(the_earliest_stop_wins),
        cmocka_unit_test(the_end_lets_out_what_is_held),
        cmocka_unit_test(cuts_do_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
