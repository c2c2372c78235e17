#include "cli/progress.h"

#include <string.h>

#include "base/test.h"

static void a_line_says_how_far_how_fast_how_long(void **state) {
    (void)state;
    char out[256];
    struct store_progress p = {
        .phase = STORE_DOWNLOADING, .done = 25 << 20, .total = 100 << 20, .bytes_per_s = 5 << 20};
    progress_text(&p, 79, out, sizeof out);
    assert_string_equal(
        out, " 25% [=======>                    ] 25.0 MiB of 100 MiB  5.0 MiB/s  15 s left");
    assert_true(strlen(out) <= 79);
    progress_text(&p, 20, out, sizeof out);
    assert_string_equal(out, " 25%  25.0 MiB of 100 MiB  5.0 MiB/s  15 s left");
    p = (struct store_progress){.phase = STORE_CHECKING, .done = 200, .total = 100};
    progress_text(&p, 200, out, sizeof out);
    assert_non_null(strstr(out, "100% ["));
    assert_non_null(strstr(out, "checking sha256"));
    p = (struct store_progress){.phase = STORE_CONNECTING};
    progress_text(&p, 79, out, sizeof out);
    assert_non_null(strstr(out, "  0% ["));
    assert_non_null(strstr(out, "connecting"));
    p.phase = STORE_DOWNLOADING; /* begun, but no byte has come */
    progress_text(&p, 79, out, sizeof out);
    assert_non_null(strstr(out, "connecting"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_line_says_how_far_how_fast_how_long)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
