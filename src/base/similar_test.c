#include "base/similar.h"

#include "base/test.h"

static const char *nearest(const char *asked) {
    static const char *const WORDS[] = {"run", "pull", "models", "nodes", "smollm2-135m"};
    struct similar s = similar_to(asked);
    for (u32 i = 0; i < ARRAY_LEN(WORDS); i++) similar_offer(&s, WORDS[i]);
    return s.best;
}

static void a_few_letters_away_is_near(void **state) {
    (void)state;
    assert_string_equal(nearest("rnu"), "run");
    assert_string_equal(nearest("MODEL"), "models");
    assert_string_equal(nearest("smollm"), "smollm2-135m");
    assert_string_equal(nearest("smolm2-153m"), "smollm2-135m");
    assert_string_equal(nearest("puul"), "pull");
}

static void other_words_are_not(void **state) {
    (void)state;
    assert_null(nearest("zebra"));
    assert_null(nearest(""));
    char longer[200] = {0};
    for (u32 i = 0; i < sizeof longer - 1; i++) longer[i] = 'n';
    assert_null(nearest(longer));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_few_letters_away_is_near),
                                       cmocka_unit_test(other_words_are_not)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
