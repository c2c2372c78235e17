/* Several ways between two nodes, and several processes with one key. */
#include "net/bus_test.h"

#include <netinet/in.h>
#include <pthread.h>
#include <unistd.h>

/* A second address of a peer is kept in reserve for a while: it neither replaces the first nor is
 * missed, and steps in without a word when the first is given up. */
static void spare_address(void **state) {
    (void)state;
    static struct end x[2];
    char other[64];
    meet(x, "s");
    snprintf(other, sizeof other, "localhost:%u", bus_port(x[1].bus));
    assert_true(bus_connect(x[0].bus, other, NULL));
    run(x, 2, NULL, 0, 500);
    bus_hangup(x[0].bus, other);
    run(x, 2, NULL, 0, 300);
    assert_true(bus_connect(x[0].bus, other, NULL));
    run(x, 2, NULL, 0, 700);
    assert_true(bus_uses(x[0].bus, other));
    bus_hangup(x[0].bus, x[1].address);
    run(x, 2, NULL, 0, 300);
    for (int i = 0; i < 2; i++) {
        x[!i].n_messages = 0;
        assert_true(bus_send(x[i].bus, x[!i].id, 1, "x", 1, NULL));
        assert_true(run(x, 2, &x[!i].n_messages, 1, 5000));
    }
    assert_int_equal(x[0].n_down + x[1].n_down, 0);
    /* One that was parked is dialled again. */
    assert_true(bus_connect(x[0].bus, x[1].address, NULL));
    run(x, 2, NULL, 0, 6500);
    bool first = bus_uses(x[0].bus, x[1].address);
    assert_true(first != bus_uses(x[0].bus, other));
    bus_hangup(x[0].bus, first ? x[1].address : other);
    int n_up = x[0].n_up;
    assert_true(run(x, 2, &x[0].n_up, n_up + 1, 5000));
    assert_string_equal(x[0].peer_address, first ? other : x[1].address);
    end_close(&x[0]);
    end_close(&x[1]);
}

/* A cable for tests: forwards one TCP connection to a port, until it is cut: then both ends stand
 * and nothing comes through. Its own thread; cut is a plain flag that is set once. */
struct cable {
    pthread_t thread;
    int listener, to_port;
    u16 port;
    volatile bool cut, stop;
};

static void *cable_run(void *ctx) {
    struct cable *c = ctx;
    int fd[2] = {-1, -1};
    while (!c->stop) {
        struct pollfd p[2] = {{.fd = fd[0] < 0 ? c->listener : fd[0], .events = POLLIN},
                              {.fd = fd[1], .events = POLLIN}};
        poll(p, 2, 20);
        if (fd[0] < 0 && (fd[0] = accept(c->listener, NULL, NULL)) >= 0) {
            struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((u16)c->to_port)};
            a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
            fd[1] = socket(AF_INET, SOCK_STREAM, 0);
            if (connect(fd[1], (struct sockaddr *)&a, sizeof a) != 0) break;
            continue;
        }
        for (int i = 0; i < 2 && !c->cut; i++) {
            char buf[65536];
            if (fd[1] < 0 || !(p[i].revents & (POLLIN | POLLHUP))) continue;
            ssize_t n = recv(fd[i], buf, sizeof buf, 0);
            for (ssize_t at = 0, k; at < n; at += k)
                if ((k = send(fd[!i], buf + at, (size_t)(n - at), MSG_NOSIGNAL)) <= 0) break;
        }
    }
    for (int i = 0; i < 2; i++)
        if (fd[i] >= 0) close(fd[i]);
    close(c->listener);
    return NULL;
}

static void cable_start(struct cable *c, const char *host, u16 to_port) {
    *c = (struct cable){.to_port = to_port};
    c->listener = sock_listen(host, &c->port, NULL);
    assert_true(c->listener >= 0);
    assert_int_equal(pthread_create(&c->thread, NULL, cable_run, c), 0);
}

static void cable_stop(struct cable *c) {
    c->stop = true;
    pthread_join(c->thread, NULL);
}

/* 127.0.0.2 is the fast network. */
static u32 fast_network(void *ctx, const char *host) {
    (void)ctx;
    return strcmp(host, "127.0.0.2") == 0 ? 2 : 1;
}

static void open_ranked(struct end *x, const char *name) {
    struct err e = {0};
    struct identity who = identity_named(name);
    struct bus_cfg cfg = {.listen_host = "0.0.0.0",
                          .name_space = "test",
                          .identity = &who,
                          .rank = fast_network,
                          .peer_timeout_ms = 6000};
    *x = (struct end){0};
    str_copy(x->id, sizeof x->id, who.id);
    x->bus = bus_open(&cfg, &e);
    if (!x->bus) fail_msg("%s", e.msg);
    snprintf(x->address, sizeof x->address, "127.0.0.1:%u", bus_port(x->bus));
}

static bool goes_by(struct end *x, const struct end *peer, const char *host) {
    struct bus_path p;
    return bus_path(x->bus, peer->id, &p) && strcmp(p.host, host) == 0;
}

/* Messages flow all the time while a better way is found and taken: none is lost, and their order
 * is kept. Then that way falls silent: the other one takes over before the peer counts as lost. */
static void the_best_way_is_taken(void **state) {
    (void)state;
    static struct end x[2];
    struct cable slow;
    char fast[64];
    u32 sent[2] = {0, 0};
    open_ranked(&x[0], "alpha");
    open_ranked(&x[1], "beta");
    cable_start(&slow, "127.0.0.1", bus_port(x[1].bus));
    snprintf(fast, sizeof fast, "127.0.0.1:%u", slow.port);
    assert_true(bus_connect(x[0].bus, fast, NULL));
    assert_true(run(x, 2, &x[0].n_up, 1, 5000) && run(x, 2, &x[1].n_up, 1, 5000));
    snprintf(fast, sizeof fast, "127.0.0.2:%u", bus_port(x[1].bus));
    assert_true(bus_connect(x[0].bus, fast, NULL));
    for (u64 end = clock_ms() + 10000; !goes_by(&x[0], &x[1], "127.0.0.2");) {
        assert_true(clock_ms() < end);
        for (int i = 0; i < 2; i++)
            if (sent[i] < ARRAY_LEN(x[0].types) - 100 &&
                bus_send(x[i].bus, x[!i].id, sent[i], &sent[i], 4, NULL))
                sent[i]++;
        run(x, 2, NULL, 0, 2);
    }
    for (int k = 0; k < 50; k++)
        for (int i = 0; i < 2; i++) bus_send(x[i].bus, x[!i].id, sent[i]++, "", 0, NULL);
    for (int i = 0; i < 2; i++) {
        assert_true(run(x, 2, &x[!i].n_messages, (int)sent[i], 5000));
        for (u32 k = 0; k < sent[i]; k++) assert_int_equal(x[!i].types[k], k);
    }
    assert_int_equal(x[0].n_down + x[1].n_down, 0);
    cable_stop(&slow);
    end_close(&x[0]);
    end_close(&x[1]);
}

static void a_silent_way_is_left(void **state) {
    (void)state;
    static struct end x[2];
    for (int dialler = 0; dialler < 2; dialler++) {
        struct cable c;
        char address[64];
        open_ranked(&x[0], "alpha");
        open_ranked(&x[1], "beta");
        cable_start(&c, "127.0.0.2", bus_port(x[!dialler].bus));
        snprintf(address, sizeof address, "127.0.0.2:%u", c.port);
        assert_true(bus_connect(x[dialler].bus, address, NULL));
        assert_true(run(x, 2, &x[0].n_up, 1, 5000) && run(x, 2, &x[1].n_up, 1, 5000));
        assert_true(bus_connect(x[dialler].bus, x[!dialler].address, NULL));
        /* Usually measured and parked, since it is no better; or, the second time, not yet. What
         * follows holds for both. */
        run(x, 2, NULL, 0, dialler ? 1500 : 6500);
        c.cut = true;
        run(x, 2, NULL, 0, 4000);
        for (int i = 0; i < 2; i++) {
            x[!i].n_messages = 0;
            assert_true(bus_send(x[i].bus, x[!i].id, 1, "x", 1, NULL));
            assert_true(run(x, 2, &x[!i].n_messages, 1, 5000));
        }
        assert_int_equal(x[0].n_down + x[1].n_down, 0);
        cable_stop(&c);
        end_close(&x[0]);
        end_close(&x[1]);
    }
}

/* A copied disk: two processes with one key, and they meet. The later one is to become another
 * node; the other goes on. */
static void twins_meet(void **state) {
    (void)state;
    static struct end x[2];
    for (int dialler = 0; dialler < 2; dialler++) {
        bus_test_started = 100;
        end_open(&x[0], "alpha", "s", "test", 0);
        bus_test_started = 200;
        end_open(&x[1], "alpha", "s", "test", 0);
        bus_test_started = 0;
        assert_true(bus_connect(x[dialler].bus, x[!dialler].address, NULL));
        assert_true(run(x, 2, &x[1].n_twin, 1, 5000));
        run(x, 2, NULL, 0, 300);
        assert_int_equal(x[0].n_twin, 0);
        assert_int_equal(x[1].n_twin, 1);
        assert_int_equal(x[0].n_up + x[1].n_up, 0);
        end_close(&x[1]);
        end_open(&x[1], "gamma", "s", "test", 0); /* as it should */
        assert_true(bus_connect(x[0].bus, x[1].address, NULL));
        assert_true(run(x, 2, &x[0].n_up, 1, 5000));
        end_close(&x[0]);
        end_close(&x[1]);
    }
}

/* They do not see each other, but a third node sees both, whoever dialled and whoever came first.
 */
static void twins_at_a_third(void **state) {
    (void)state;
    static struct end x[3];
    for (int way = 0; way < 4; way++) {
        u64 of_first = way & 1 ? 200 : 100, of_second = 300 - of_first;
        end_open(&x[0], "alpha", "s", "test", 0);
        bus_test_started = of_first;
        end_open(&x[1], "beta", "s", "test", 0);
        bus_test_started = of_second;
        end_open(&x[2], "beta", "s", "test", 0);
        bus_test_started = 0;
        struct end *from = way & 2 ? &x[0] : &x[1], *to = way & 2 ? &x[1] : &x[0];
        assert_true(bus_connect(from->bus, to->address, NULL));
        assert_true(run(x, 3, &x[0].n_up, 1, 5000));
        if (way & 2)
            assert_true(bus_connect(x[0].bus, x[2].address, NULL));
        else
            assert_true(bus_connect(x[2].bus, x[0].address, NULL));
        struct end *junior = of_first > of_second ? &x[1] : &x[2];
        struct end *senior = of_first > of_second ? &x[2] : &x[1];
        assert_true(run(x, 3, &junior->n_twin, 1, 8000));
        assert_int_equal(senior->n_twin, 0);
        end_close(junior);
        run(x, 3, NULL, 0, 500);
        x[0].n_messages = 0;
        assert_true(run(x, 3, &senior->n_up, 1, 5000));
        assert_true(bus_send(senior->bus, x[0].id, 1, "x", 1, NULL));
        assert_true(run(x, 3, &x[0].n_messages, 1, 5000));
        for (int i = 0; i < 3; i++) end_close(&x[i]);
    }
}

/* The machine lost its power: no word on the old connection, and it is back before the timeout. */
static void restart_without_a_word(void **state) {
    (void)state;
    static struct end x[3];
    end_open(&x[0], "alpha", "s", "test", 0);
    end_open(&x[1], "beta", "s", "test", 0);
    assert_true(bus_connect(x[1].bus, x[0].address, NULL));
    assert_true(run(x, 2, &x[0].n_up, 1, 5000));
    end_open(&x[2], "beta", "s", "test", 0);
    struct end frozen = x[1];
    x[1].bus = NULL; /* nobody runs it any more, but its connection stands */
    assert_true(bus_connect(x[2].bus, x[0].address, NULL));
    assert_true(run(x, 3, &x[0].n_up, 2, 8000));
    assert_int_equal(x[2].n_twin, 0);
    assert_true(bus_send(x[0].bus, x[2].id, 1, "x", 1, NULL));
    assert_true(run(x, 3, &x[2].n_messages, 1, 5000));
    end_close(&x[0]);
    end_close(&x[2]);
    end_close(&frozen);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spare_address),        cmocka_unit_test(the_best_way_is_taken),
        cmocka_unit_test(a_silent_way_is_left), cmocka_unit_test(twins_meet),
        cmocka_unit_test(twins_at_a_third),     cmocka_unit_test(restart_without_a_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
