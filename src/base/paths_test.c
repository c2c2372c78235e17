#include "base/paths.h"

#include <stdlib.h>
#include <string.h>

#include "base/test.h"

static struct err e;

static int clean(void **state) {
    (void)state;
    static const char *const NAMES[] = {"SKEIN_HOME",      "SKEIN_MODELS_DIR", "EXO_MODELS_DIR",
                                        "XDG_CONFIG_HOME", "XDG_DATA_HOME",    "XDG_STATE_HOME"};
    for (u32 i = 0; i < ARRAY_LEN(NAMES); i++) unsetenv(NAMES[i]);
    return setenv("HOME", "/home/ada", 1);
}

static void one_folder_holds_all_when_asked(void **state) {
    (void)state;
    struct paths p;
    setenv("SKEIN_HOME", "/a", 1);
    assert_true(paths_init(&p, NULL, &e));
    assert_string_equal(p.models, "/a/models");
    assert_string_equal(p.state, "/a");
    assert_true(paths_init(&p, "/b", &e));
    assert_string_equal(p.config, "/b");
    assert_string_equal(p.models, "/b/models");
}

static void models_can_lie_elsewhere(void **state) {
    (void)state;
    struct paths p;
    setenv("EXO_MODELS_DIR", "/ssd/m", 1);
    assert_true(paths_init(&p, NULL, &e));
    assert_string_equal(p.models, "/ssd/m");
    setenv("SKEIN_MODELS_DIR", "/ssd/n", 1);
    assert_true(paths_init(&p, NULL, &e));
    assert_string_equal(p.models, "/ssd/n");
    assert_non_null(strstr(p.config, "/home/ada/"));
}

static void variables_of_exo_have_their_own_names(void **state) {
    (void)state;
    static const char *const SET[] = {"EXO_ZENOH_NAMESPACE", "EXO_LIBP2P_NAMESPACE",
                                      "EXO_NAMESPACE", "SKEIN_NAMESPACE"};
    assert_null(paths_env("NAMESPACE"));
    for (u32 i = 0; i < ARRAY_LEN(SET); i++) { /* from the weakest to the strongest */
        setenv(SET[i], SET[i], 1);
        assert_string_equal(paths_env("NAMESPACE"), SET[i]);
    }
    for (u32 i = 0; i < ARRAY_LEN(SET); i++) unsetenv(SET[i]);
}

static void exo_home_is_a_name_in_the_home_folder(void **state) {
    (void)state;
    struct paths p;
    setenv("EXO_HOME", ".exo", 1);
    assert_true(paths_init(&p, NULL, &e));
    assert_string_equal(p.models, "/home/ada/.exo/models");
    setenv("EXO_HOME", "/exo", 1);
    assert_true(paths_init(&p, NULL, &e));
    assert_string_equal(p.state, "/exo");
    setenv("SKEIN_HOME", "/a", 1);
    assert_true(paths_init(&p, NULL, &e));
    assert_string_equal(p.state, "/a");
    unsetenv("EXO_HOME");
}

static void no_home_and_long_names_are_errors(void **state) {
    (void)state;
    struct paths p;
    char longest[1100];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = 0;
    assert_false(paths_init(&p, longest, &e));
    unsetenv("HOME");
    assert_false(paths_init(&p, NULL, &e));
    assert_non_null(strstr(e.msg, "HOME is not set"));
}

#ifndef __APPLE__
static void xdg_is_followed(void **state) {
    (void)state;
    struct paths p;
    setenv("XDG_DATA_HOME", "/data", 1);
    setenv("XDG_STATE_HOME", "relative", 1); /* to be ignored, says XDG */
    assert_true(paths_init(&p, NULL, &e));
    assert_string_equal(p.models, "/data/skein/models");
    assert_string_equal(p.state, "/home/ada/.local/state/skein");
    assert_string_equal(p.config, "/home/ada/.config/skein");
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(one_folder_holds_all_when_asked, clean),
        cmocka_unit_test_setup(models_can_lie_elsewhere, clean),
        cmocka_unit_test_setup(variables_of_exo_have_their_own_names, clean),
        cmocka_unit_test_setup(exo_home_is_a_name_in_the_home_folder, clean),
        cmocka_unit_test_setup(no_home_and_long_names_are_errors, clean),
#ifndef __APPLE__
        cmocka_unit_test_setup(xdg_is_followed, clean),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
