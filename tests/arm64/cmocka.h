/* cmocka.h - as much of cmocka as the kernels' tests use, for arm64, where the build machine has no
 * cmocka. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEST_KEEPS_MALLOC /* linked statically, where malloc can't be replaced */

struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
};
#define cmocka_unit_test(f) \
    { #f, f }
#define print_message printf

/* A failure ends the program: the test that was running is the one that failed. */
#define fail_msg(...)                                                                          \
    (printf("%s:%d: ", __FILE__, __LINE__), printf(__VA_ARGS__), printf("\n"), fflush(stdout), \
     exit(1))
#define assert_true(c)                \
    do {                              \
        if (!(c)) fail_msg("%s", #c); \
    } while (0)
#define assert_false(c)                  assert_true(!(c))
#define assert_null(p)                   assert_true((p) == NULL)
#define assert_non_null(p)               assert_true((p) != NULL)
#define assert_ptr_equal(a, b)           assert_true((const void *)(a) == (const void *)(b))
#define assert_int_equal(a, b)           assert_true((long long)(a) == (long long)(b))
#define assert_int_not_equal(a, b)       assert_true((long long)(a) != (long long)(b))
#define assert_string_equal(a, b)        assert_true(strcmp(a, b) == 0)
#define assert_memory_equal(a, b, n)     assert_true(memcmp(a, b, n) == 0)
#define assert_memory_not_equal(a, b, n) assert_true(memcmp(a, b, n) != 0)

static inline int cmocka_run(const struct CMUnitTest *t, size_t n) {
    const char *cpu = getenv("SKEIN_TEST_CPU");
    for (size_t i = 0; i < n; i++) {
        printf("[ RUN      ] %s\n", t[i].name);
        fflush(stdout);
        t[i].run(NULL);
        printf("[       OK ] %s %s\n", t[i].name, cpu ? cpu : "");
    }
    return 0;
}
#define cmocka_run_group_tests(t, setup, teardown) cmocka_run(t, sizeof(t) / sizeof(t[0]))
