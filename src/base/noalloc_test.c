#include "base/noalloc.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/test.h"

static void *volatile sink;

static void allocate(int how) {
    if (how == 0) sink = malloc(10);
    if (how == 1) sink = calloc(10, 10);
    if (how == 2) sink = realloc(NULL, 10);
    if (how == 3) sink = aligned_alloc(64, 64);
}

/* The signal that ended a child which allocates inside, or behind, a stretch; 0: it lived. */
static int ends_with(int how, bool inside) {
    pid_t pid = fork();
    if (pid == 0) {
        noalloc_begin();
        noalloc_begin();
        noalloc_end();
        u32 promise = noalloc_pause();
        allocate(how);
        noalloc_resume(promise);
        if (inside) allocate(how);
        noalloc_end();
        allocate(how);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status) ? -1 : 0;
}

static void allocating_aborts(void **state) {
    (void)state;
    if (!TEST_MALLOC_CHECKED) skip();
    for (int how = 0; how < 4; how++) {
        assert_int_equal(ends_with(how, false), 0);
        assert_int_equal(ends_with(how, true), SIGABRT);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(allocating_aborts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
