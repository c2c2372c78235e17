#include "net/bus_gone.h"
#include "net/bus_test.h"

#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LONG_MS = 20000 };

/* A socket with a port of its own. ZeroMQ can listen there as long as this one does not. */
static int reserve(u16 *port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, n), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    *port = ntohs(a.sin_port);
    return fd;
}

/* A node in another process, which dials `to` unless that is 0. Its port comes through a pipe.
 * Made before this process has a bus: ZeroMQ does not survive a fork. */
static pid_t start_node(u16 to, u16 *port) {
    int p[2];
    assert_int_equal(pipe(p), 0);
    pid_t pid = fork();
    if (pid == 0) {
        static struct end x;
        char address[64];
        end_open(&x, "child", "s", "test", 0);
        u16 own = bus_port(x.bus);
        snprintf(address, sizeof address, "127.0.0.1:%u", to);
        if (to) bus_connect(x.bus, address, NULL);
        if (write(p[1], &own, sizeof own) != sizeof own) _exit(1);
        for (;;) run(&x, 1, NULL, 0, 1000);
    }
    assert_true(pid > 0);
    assert_int_equal(read(p[0], port, sizeof *port), sizeof *port);
    close(p[0]);
    close(p[1]);
    return pid;
}

static void killed(bool parent_dials) {
    static struct end x;
    u16 free_port, port;
    char address[64];
    int reserved = reserve(&free_port);
    pid_t pid = start_node(parent_dials ? 0 : free_port, &port);
    end_open(&x, "parent", "s", "test", parent_dials ? 0 : free_port);
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
    if (parent_dials) assert_true(bus_connect(x.bus, address, NULL));
    assert_true(run(&x, 1, &x.n_up, 1, LONG_MS));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    assert_true(run(&x, 1, &x.n_gone, 1, LONG_MS));
    assert_int_equal(x.n_down, 1);
    end_close(&x);
    close(reserved);
}

static void a_killed_process_is_gone_that_was_dialled(void **state) {
    (void)state;
    killed(true);
}
static void a_killed_process_is_gone_that_dialled(void **state) {
    (void)state;
    killed(false);
}

/* Only the way to it was lost. */
static void who_still_listens_is_not_gone(void **state) {
    (void)state;
    static struct end x;
    char address[64];
    u16 port;
    int fd = reserve(&port);
    assert_int_equal(listen(fd, 5), 0);
    end_open(&x, "alpha", "s", "test", 0);
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
    bus_gone_ask(x.bus, "beta", address, clock_ms());
    run(&x, 1, &x.n_gone, 1, 2000);
    assert_int_equal(x.n_gone, 0);
    assert_null(x.bus->gone); /* and nobody asks for ever */
    close(fd);
    bus_gone_ask(x.bus, "beta", address, clock_ms());
    assert_true(run(&x, 1, &x.n_gone, 1, LONG_MS));
    assert_null(x.bus->gone);
    end_close(&x);
}

/* It greets, so it is asked once. */
static void a_bus_that_lives_is_not_gone(void **state) {
    (void)state;
    static struct end x[2];
    end_open(&x[0], "alpha", "s", "test", 0);
    end_open(&x[1], "beta", "s", "test", 0);
    bus_gone_ask(x[0].bus, x[1].id, x[1].address, clock_ms());
    u64 since = clock_ms();
    while (x[0].bus->gone && clock_ms() < since + LONG_MS) run(x, 2, NULL, 0, 20);
    assert_null(x[0].bus->gone);
    assert_int_equal(x[0].n_gone, 0);
    end_close(&x[0]);
    end_close(&x[1]);
}

/* A goodbye says all there is to say. */
static void who_left_is_not_asked_for(void **state) {
    (void)state;
    static struct end x[2];
    meet(x, "s");
    end_close(&x[0]);
    assert_true(run(x + 1, 1, &x[1].n_down, 1, LONG_MS));
    assert_null(x[1].bus->gone);
    end_close(&x[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_process_is_gone_that_was_dialled),
        cmocka_unit_test(a_killed_process_is_gone_that_dialled),
        cmocka_unit_test(who_still_listens_is_not_gone),
        cmocka_unit_test(a_bus_that_lives_is_not_gone),
        cmocka_unit_test(who_left_is_not_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
