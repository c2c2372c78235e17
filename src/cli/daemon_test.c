#include "cli/daemon.h"
#include "base/test.h"

static void a_url_has_one_port(void **state) {
    (void)state;
    static const char *const CASES[][2] = {{"studio", "http://studio:7/x"},
                                           {"10.0.0.2", "http://10.0.0.2:7/x"},
                                           {"studio:80", "http://studio:80/x"},
                                           {"::1", "http://[::1]:7/x"},
                                           {"[::1]", "http://[::1]:7/x"},
                                           {"[fe80::1%eth0]:80", "http://[fe80::1%eth0]:80/x"}};
    for (u32 i = 0; i < ARRAY_LEN(CASES); i++) {
        char url[512];
        struct daemon d = {.host = CASES[i][0], .port = 7};
        assert_string_equal(daemon_url(&d, "/x", url), CASES[i][1]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_url_has_one_port)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
