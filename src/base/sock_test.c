#include "base/test.h"

#include <string.h>
#include <unistd.h>

#include "base/sock.h"

static void splits(void **state) {
    (void)state;
    static const struct {
        const char *in, *host;
        u16 port;
    } good[] = {
        {"localhost:80", "localhost", 80},
        {"10.0.0.7:52416", "10.0.0.7", 52416},
        {"[::1]:9", "::1", 9},
        {"[fe80::1%eth0]:9", "fe80::1%eth0", 9},
        {"spark.local", "spark.local", 777},
        {"::1", "::1", 777},
        {"[::1]", "::1", 777},
    };
    static const char *bad[] = {"",     ":80",  "a:",      "a:0",   "a:65536",    "a:8x",  "a:-1",
                                "[::1", "[]:1", "[::1]80", "a b:1", "http://a:1", "a:+80", "a: 80"};
    char host[SOCK_HOST_CAP], text[SOCK_ADDRESS_CAP];
    u16 port;
    struct err e;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        assert_true(sock_split(good[i].in, 777, host, &port, &e));
        assert_string_equal(host, good[i].host);
        assert_int_equal(port, good[i].port);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_false(sock_split(bad[i], 777, host, &port, &e));
        assert_int_equal(e.code, ERR_ARG);
    }
    assert_false(sock_split("host", 0, host, &port, &e));
    assert_string_equal(sock_join("::1", 5, text), "[::1]:5");
    assert_string_equal(sock_join("a.b", 5, text), "a.b:5");
}

static void loopback_and_text(void **state) {
    (void)state;
    static const struct {
        const char *in, *text;
        bool loopback;
    } cases[] = {{"127.0.0.1", "127.0.0.1", true},
                 {"127.9.9.9", "127.9.9.9", true},
                 {"::1", "::1", true},
                 {"::ffff:127.0.0.1", "127.0.0.1", true},
                 {"10.0.0.1", "10.0.0.1", false},
                 {"::ffff:10.1.2.3", "10.1.2.3", false},
                 {"2001:db8::1", "2001:db8::1", false}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct sockaddr_storage a;
        socklen_t n;
        char host[SOCK_HOST_CAP];
        u16 port;
        struct err e;
        assert_true(sock_resolve(cases[i].in, 1234, &a, &n, &e));
        sock_text((struct sockaddr *)&a, host, &port);
        assert_string_equal(host, cases[i].text);
        assert_int_equal(port, 1234);
        assert_int_equal(sock_is_loopback((struct sockaddr *)&a), cases[i].loopback);
    }
}

static void listens_once(void **state) {
    (void)state;
    struct err e = {0};
    u16 port = 0;
    int fd = sock_listen("127.0.0.1", &port, &e);
    assert_true(fd >= 0);
    assert_true(port > 0);
    u16 again = port;
    assert_int_equal(sock_listen("127.0.0.1", &again, &e), -1);
    assert_int_equal(e.code, ERR_IO);
    assert_non_null(strstr(e.msg, "in use"));
    assert_int_equal(sock_listen("*", &again, &e), -1);
    assert_non_null(strstr(e.msg, "in use"));
    assert_true(sock_is_listened("127.0.0.1", port) && sock_is_listened("*", port));
    close(fd);
    assert_false(sock_is_listened("127.0.0.1", port) || sock_is_listened(NULL, port));
    fd = sock_listen(NULL, &again, &e);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(sock_listen("no such host", &again, &e), -1);
    assert_int_equal(e.code, ERR_ARG);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(splits),
                                       cmocka_unit_test(loopback_and_text),
                                       cmocka_unit_test(listens_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
