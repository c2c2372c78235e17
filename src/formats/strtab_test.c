#include "formats/strtab.h"

#include <stdio.h>

#include "base/test.h"

static void finds_what_was_added(void **state) {
    (void)state;
    struct strtab t = {0};
    assert_int_equal(strtab_find(&t, VIEW("x")), -1);
    char text[16];
    for (int i = 0; i < 5000; i++) {
        snprintf(text, sizeof text, "word %d", i);
        assert_int_equal(strtab_add(&t, view_of(text)), i);
    }
    for (int i = 0; i < 5000; i++) {
        snprintf(text, sizeof text, "word %d", i);
        assert_int_equal(strtab_find(&t, view_of(text)), i);
        assert_true(view_is(strtab_get(&t, (u32)i), text));
    }
    assert_int_equal(strtab_find(&t, VIEW("word")), -1);
    assert_int_equal(strtab_find(&t, VIEW("word 50000")), -1);
    strtab_deinit(&t);
}

static void the_newest_of_equals_is_found(void **state) {
    (void)state;
    struct strtab t = {0};
    strtab_add(&t, VIEW("a"));
    strtab_add(&t, VIEW("b"));
    strtab_add(&t, VIEW("a"));
    assert_int_equal(strtab_find(&t, VIEW("a")), 2);
    for (int i = 0; i < 100; i++) strtab_intern(&t, (struct view){(char[]){(char)i, 'x'}, 2});
    assert_int_equal(strtab_find(&t, VIEW("a")), 2); /* also after the table has grown */
    strtab_deinit(&t);
}

static void interning_does_not_repeat(void **state) {
    (void)state;
    struct strtab t = {0};
    assert_int_equal(strtab_intern(&t, VIEW("a\0b")), 0);
    assert_int_equal(strtab_intern(&t, VIEW("a\0c")), 1);
    assert_int_equal(strtab_intern(&t, VIEW("a\0b")), 0);
    assert_int_equal(t.n, 2);
    strtab_deinit(&t);
}

static void an_empty_string_has_a_number_only(void **state) {
    (void)state;
    struct strtab t = {0};
    assert_int_equal(strtab_add(&t, (struct view){0}), 0);
    assert_int_equal(strtab_add(&t, VIEW("x")), 1);
    assert_int_equal(strtab_find(&t, VIEW("")), -1);
    assert_int_equal(strtab_get(&t, 0).n, 0);
    strtab_deinit(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_what_was_added),
        cmocka_unit_test(the_newest_of_equals_is_found),
        cmocka_unit_test(interning_does_not_repeat),
        cmocka_unit_test(an_empty_string_has_a_number_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
