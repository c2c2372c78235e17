#include "base/test.h"
#include "node/node_parts.h"

/* An instance that fails within a turn of the loop makes its requests wait from a later time on
 * than that of the turn: they have not waited at all. */
static void waiting_may_begin_after_the_turn(void **state) {
    (void)state;
    assert_false(ask_waits_too_long(100000, 100001));
    assert_false(ask_waits_too_long(100000, 100000));
    assert_false(ask_waits_too_long(129999, 100000));
    assert_true(ask_waits_too_long(130001, 100000));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(waiting_may_begin_after_the_turn)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
