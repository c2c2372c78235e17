#include "cli/column.h"

#include <string.h>

#include "base/test.h"

/* Of the ten that it is given, those that are not filled with spaces. */
static size_t columns(const char *s) {
    char buf[COLUMN_CAP];
    return 10 + strlen(s) - strlen(column_text(s, 10, 10, buf));
}

static void widths_are_those_of_a_terminal(void **state) {
    (void)state;
    assert_int_equal(columns(""), 0);
    assert_int_equal(columns("studio"), 6);
    assert_int_equal(columns("K\xc3\xbc" "che"), 5);
    assert_int_equal(columns("Ku\xcc\x88" "che"), 5); /* u and a mark */
    assert_int_equal(columns("\xe6\x9c\xba\xe5\x99\xa8"), 4); /* two of Chinese */
    assert_int_equal(columns("\xed\x95\x9c" "1"), 3); /* one of Korean */
    assert_int_equal(columns("\xf0\x9f\x90\xa7"), 2); /* a penguin */
    assert_int_equal(columns("\xd0\xbc\xd0\xb8\xd1\x80"), 3); /* Cyrillic */
    assert_int_equal(columns("a\xff" "b"), 3); /* no UTF-8 */
}

static void names_are_padded_and_cut(void **state) {
    (void)state;
    char buf[COLUMN_CAP], longer[2 * COLUMN_CAP];
    assert_string_equal(column_text("ab", 4, 8, buf), "ab  ");
    assert_string_equal(column_text("\xe6\x9c\xba", 4, 8, buf), "\xe6\x9c\xba  ");
    assert_string_equal(column_text("\xe6\x9c\xba\xe5\x99\xa8", 3, 3, buf), "\xe6\x9c\xba ");
    assert_string_equal(column_text("abcdef", 2, 4, buf), "abcd");
    assert_string_equal(column_text("abc", 2, 9, buf), "abc");
    assert_string_equal(column_text("abcu\xcc\x88x", 2, 4, buf), "abcu\xcc\x88");
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = 0;
    assert_int_equal(strlen(column_text(longer, 5, UINT32_MAX, buf)), COLUMN_CAP - 6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(widths_are_those_of_a_terminal),
        cmocka_unit_test(names_are_padded_and_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
