#include "cli/chat_input.h"

#include "base/test.h"

static void lines_become_messages(void **state) {
    (void)state;
    struct chat_input in = {0};
    assert_true(chat_input_add(&in, "hello"));
    assert_string_equal(str_z(&in.text), "hello");
    assert_false(chat_input_add(&in, "one \\"));
    assert_false(chat_input_add(&in, "two\\"));
    assert_true(chat_input_add(&in, "three"));
    assert_string_equal(str_z(&in.text), "one \ntwo\nthree");
    assert_false(chat_input_add(&in, "\"\"\""));
    assert_false(chat_input_add(&in, "a\\"));
    assert_false(chat_input_add(&in, ""));
    assert_true(chat_input_add(&in, "b\"\"\""));
    assert_string_equal(str_z(&in.text), "a\\\n\nb");
    assert_true(chat_input_add(&in, "\"\"\"in one line\"\"\""));
    assert_string_equal(str_z(&in.text), "in one line");
    assert_true(chat_input_add(&in, "\"\"\"code\"\"\" and a word"));
    assert_string_equal(str_z(&in.text), "code and a word");
    assert_false(chat_input_add(&in, "\"\"\"cut off"));
    chat_input_end(&in);
    assert_string_equal(str_z(&in.text), "cut off\n");
    assert_true(chat_input_add(&in, "next"));
    assert_string_equal(str_z(&in.text), "next");
    assert_false(chat_input_add(&in, "\"\"\"begun"));
    chat_input_reset(&in);
    assert_true(chat_input_add(&in, ""));
    assert_string_equal(str_z(&in.text), "");
    chat_input_deinit(&in);
}

static void commands_are_told_from_text(void **state) {
    (void)state;
    struct view name;
    const char *rest;
    assert_true(chat_input_command("/set  temp 0.2", &name, &rest));
    assert_true(view_is(name, "set"));
    assert_string_equal(rest, "temp 0.2");
    assert_true(chat_input_command("/?", &name, &rest));
    assert_string_equal(rest, "");
    assert_true(chat_input_command("/system be\nbrief", &name, &rest));
    assert_string_equal(rest, "be\nbrief");
    assert_false(chat_input_command("/etc/hosts is what?", &name, &rest));
    assert_false(chat_input_command("what is /set", &name, &rest));
    assert_false(chat_input_command("", &name, &rest));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_become_messages),
        cmocka_unit_test(commands_are_told_from_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
