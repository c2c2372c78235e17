#include "node/child.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/test.h"
#include "wire/msg.h"

/* A stand-in for the runner: a shell script that speaks frames by printf. */
static void write_script(char path[64], const char *body) {
    snprintf(path, 64, "/tmp/skein-child-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, body, strlen(body)), (ssize_t)strlen(body));
    assert_int_equal(fchmod(fd, 0700), 0);
    close(fd);
}

/* type 33 (MSG_LISTENING), body: field 1 = 7 */
#define LISTENING_7 "printf '\\004\\000\\000\\000\\041\\000\\010\\007' >&3\n"

static struct child *spawn(const char *body) {
    char path[64];
    struct err e = {0};
    write_script(path, body);
    struct child *c = child_spawn(path, "runner of test", &e);
    assert_non_null(c);
    clock_sleep_ms(100); /* the kernel opens the script for the shell */
    unlink(path);
    return c;
}

static void frames_arrive_then_the_exit_status(void **state) {
    (void)state;
    struct child *c = spawn("#!/bin/sh\n" LISTENING_7 LISTENING_7 "exit 3\n");
    struct frame f;
    struct err e = {0};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(child_wait(c, 20000, -1, &f, &e), 1);
        assert_int_equal(f.type, MSG_LISTENING);
        assert_int_equal(f.n, 2);
    }
    assert_int_equal(child_wait(c, 20000, -1, &f, &e), -1);
    assert_string_equal(e.msg, "runner of test ended with status 3");
    assert_int_equal(child_fd(c), -1);
    child_close(c, 0);
}

static void what_is_sent_comes_back(void **state) {
    (void)state;
    struct child *c = spawn("#!/bin/sh\nexec cat <&3 >&3\n");
    struct str big = {0};
    struct frame f;
    struct err e = {0};
    for (int i = 0; i < 1 << 20; i++) str_addc(&big, (char)i);
    child_send_bytes(c, 9, big.p, big.n);
    child_send(c, MSG_SHUTDOWN, NULL);
    assert_int_equal(child_wait(c, 20000, -1, &f, &e), 1);
    assert_int_equal(f.type, 9);
    assert_int_equal(f.n, big.n);
    assert_memory_equal(f.body, big.p, big.n);
    assert_int_equal(child_wait(c, 20000, -1, &f, &e), 1);
    assert_int_equal(f.type, MSG_SHUTDOWN);
    assert_int_equal(f.n, 0);
    str_deinit(&big);
    child_close(c, 2000);
}

static void death_becomes_a_sentence(void **state) {
    (void)state;
    struct frame f;
    struct err e = {0};
    struct child *c = spawn("#!/bin/sh\nkill -9 $$\n");
    assert_int_equal(child_wait(c, 20000, -1, &f, &e), -1);
    assert_string_equal(e.msg, "runner of test was killed by signal 9 (out of memory?)");
    child_close(c, 0);

    c = child_spawn("/nonexistent/skein", "runner of test", &e);
    assert_non_null(c);
    assert_int_equal(child_wait(c, 20000, -1, &f, &e), -1);
    assert_string_equal(e.msg, "runner of test could not be started");
    child_close(c, 0);
}

static void nonsense_on_the_channel_ends_it(void **state) {
    (void)state;
    struct frame f;
    struct err e = {0};
    struct child *c = spawn("#!/bin/sh\nprintf '\\377\\377\\377\\377\\1\\1' >&3\nsleep 20\n");
    assert_int_equal(child_wait(c, 20000, -1, &f, &e), -1);
    assert_non_null(strstr(e.msg, "runner of test: "));
    child_close(c, 0);
}

static void close_is_bounded_for_a_stubborn_child(void **state) {
    (void)state;
    struct child *c = spawn("#!/bin/sh\nexec sleep 30\n");
    int pid = child_pid(c);
    u64 t0 = clock_ms();
    child_close(c, 50);
    assert_true(clock_ms() - t0 < 20000);
    assert_int_equal(kill(pid, 0), -1);

    c = spawn("#!/bin/sh\nexec sleep 30\n");
    child_hangup(c, 0);
    for (int i = 0; i < 4000 && !child_gone(c); i++) clock_sleep_ms(5);
    assert_true(child_gone(c));
    child_close(c, 0);
}

static void who_stands_still_is_seen_and_ended(void **state) {
    (void)state;
    struct frame f;
    struct err e = {0};
    struct child *c = spawn("#!/bin/sh\nexec sleep 30\n");
    assert_int_equal(child_stopped_ms(c), 0);
    kill(child_pid(c), SIGSTOP);
    for (int i = 0; i < 4000 && !child_stopped_ms(c); i++) clock_sleep_ms(5);
    clock_sleep_ms(30);
    assert_true(child_stopped_ms(c) >= 30);
    kill(child_pid(c), SIGCONT); /* a short stop is nobody's business */
    for (int i = 0; i < 4000 && child_stopped_ms(c); i++) clock_sleep_ms(5);
    assert_int_equal(child_stopped_ms(c), 0);

    kill(child_pid(c), SIGSTOP);
    for (int i = 0; i < 4000 && !child_stopped_ms(c); i++) clock_sleep_ms(5);
    child_kill_stopped(c);
    assert_int_equal(child_wait(c, 20000, -1, &f, &e), -1);
    assert_string_equal(e.msg, "runner of test stood still (stopped by a signal) and was ended");
    child_close(c, 0);
}

static void waiting_ends_in_time_and_by_the_wake_fd(void **state) {
    (void)state;
    struct frame f;
    struct err e = {0};
    struct child *c = spawn("#!/bin/sh\nexec sleep 30\n");
    u64 t0 = clock_ms();
    assert_int_equal(child_wait(c, 50, -1, &f, &e), 0);
    assert_true(clock_ms() - t0 >= 50);
    int p[2];
    assert_int_equal(pipe(p), 0);
    assert_int_equal(write(p[1], "x", 1), 1);
    t0 = clock_ms();
    assert_int_equal(child_wait(c, 25000, p[0], &f, &e), 0);
    assert_true(clock_ms() - t0 < 20000);
    close(p[0]);
    close(p[1]);
    child_close(c, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_arrive_then_the_exit_status),
        cmocka_unit_test(what_is_sent_comes_back),
        cmocka_unit_test(death_becomes_a_sentence),
        cmocka_unit_test(nonsense_on_the_channel_ends_it),
        cmocka_unit_test(close_is_bounded_for_a_stubborn_child),
        cmocka_unit_test(who_stands_still_is_seen_and_ended),
        cmocka_unit_test(waiting_ends_in_time_and_by_the_wake_fd),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
