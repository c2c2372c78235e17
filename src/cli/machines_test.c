#include "cli/machines.h"

#include <string.h>

#include "base/test.h"

static struct node_extra M;
static char NAME[MACHINE_NAME_CAP];
static struct err E;

static void refused(const char *text) {
    if (machine_parse(text, &M, NAME, &E)) fail_msg("%s was taken", text);
    assert_int_equal(E.code, ERR_ARG);
    assert_non_null(strstr(E.msg, "m3-ultra"));
}

static void kinds_and_figures(void **state) {
    (void)state;
    assert_true(machine_parse("m3-ultra", &M, NAME, &E));
    assert_string_equal(M.name, "m3-ultra");
    assert_true(M.read_bytes_s == 819e9 && M.memory_bytes > (u64)400 << 30);
    assert_true(machine_parse("desk=rpi5", &M, NAME, &E));
    assert_string_equal(M.name, "desk");
    assert_true(M.read_bytes_s == 17e9);
    assert_true(machine_parse("box=256:400:10:50", &M, NAME, &E));
    assert_true(M.memory_bytes == (u64)(256 * 0.9 * 1073741824.0));
    assert_true(M.delay_s == 50e-6 && M.link_bytes_s > 1.1e9 && M.link_bytes_s < 1.25e9);
    refused("toaster");
    refused("box=256");
    refused("box=256:0");
    refused("box=256:400:10:50:1");
    refused("box=a:b");
    refused("=16:100");
    refused("a,b=16:100");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(kinds_and_figures)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
