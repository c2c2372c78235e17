#include "base/crowd.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/test.h"

static char path[] = "/tmp/skein-crowd-test-XXXXXX";

static void counts_who_computes(void **state) {
    (void)state;
    struct crowd *a = crowd_join(path), *b = crowd_join(path), *c = crowd_join(path);
    assert_true(a && b && c);
    assert_int_equal(crowd_enter(a, 1000), 1);
    assert_int_equal(crowd_enter(b, 1001), 2);
    assert_int_equal(crowd_enter(c, 1002), 3);
    crowd_leave(b);
    assert_int_equal(crowd_enter(a, 1003), 2);
    crowd_free(c); /* in the middle of a step */
    assert_int_equal(crowd_enter(a, 1004), 1);
    crowd_free(a);
    crowd_free(b);
    assert_int_equal(crowd_enter(NULL, 5), 1);
    crowd_leave(NULL);
    crowd_free(NULL);
}

/* A process that dies while it computes counts until its word expires; then others get its place.
 */
static void the_dead_are_forgotten(void **state) {
    (void)state;
    struct crowd *a = crowd_join(path);
    pid_t pid = fork();
    if (pid == 0) {
        crowd_enter(crowd_join(path), 1000);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    assert_int_equal(crowd_enter(a, 1001), 2);
    assert_int_equal(crowd_enter(a, 60000), 1);
    struct crowd *many[80];
    u32 n = 0;
    while (n < 80 && (many[n] = crowd_join(path))) n++;
    assert_int_equal(n, 63); /* all places but a's: the dead one's too */
    while (n) crowd_free(many[--n]);
    crowd_free(a);
}

static void no_table_no_crowd(void **state) {
    (void)state;
    assert_null(crowd_join("/nonexistent/table"));
    assert_null(crowd_join("/dev/null")); /* not a file */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_who_computes),
        cmocka_unit_test(the_dead_are_forgotten),
        cmocka_unit_test(no_table_no_crowd),
    };
    int fd = mkstemp(path);
    if (fd < 0) return 1;
    close(fd);
    int code = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return code;
}
