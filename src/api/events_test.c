/* The event stream as clients see it: a real server, sockets that read, lag or leave. */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "api/api_impl.h"
#include "base/clock.h"
#include "base/sock.h"
#include "base/test.h"

enum { LONG_MS = 60000 };

static struct events *events;
static struct http_server *server;

static void handler(const struct http_req *r, struct http_answer *a, void *ctx) {
    (void)ctx;
    api_events_stream(events, r, a);
}

static int begin(void **state) {
    (void)state;
    events = events_new(7);
    server =
        http_server_start(&(struct http_server_cfg){.host = "127.0.0.1", .handler = handler}, NULL);
    return server ? 0 : -1;
}
static int end(void **state) {
    (void)state;
    events_close(events);
    http_server_stop(server);
    events_free(events);
    return 0;
}

/* Asks, and waits until it listens. */
static int ask(const char *headers) {
    struct sockaddr_storage to;
    socklen_t n;
    char q[300], c = 0;
    int room = 4096, fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(sock_resolve("127.0.0.1", http_server_port(server), &to, &n, NULL));
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, n), 0);
    int k = snprintf(q, sizeof q, "GET / HTTP/1.1\r\nHost: x\r\n%s\r\n", headers);
    assert_int_equal(send(fd, q, (size_t)k, MSG_NOSIGNAL), k);
    for (u32 newlines = 0; newlines < 2;) { /* the head, up to its empty line */
        assert_int_equal(recv(fd, &c, 1, 0), 1);
        newlines = c == '\n' ? newlines + 1 : c == '\r' ? newlines : 0;
    }
    return fd;
}

static void put(u64 value, size_t size) {
    struct str *o = events_begin(events, "test"), text = {0};
    for (size_t i = 0; i < size; i++) str_addc(&text, 'x');
    json_put_u64(o, "value", value);
    json_put_str(o, "text", str_z(&text));
    events_end(events);
    str_deinit(&text);
}

/* Reads until `what` came; the bytes so far are in s. */
static void read_until(int fd, struct str *s, const char *what) {
    char buf[65536];
    for (u64 until = clock_ms() + LONG_MS; clock_ms() < until;) {
        if (strstr(str_z(s), what)) return;
        if (poll(&(struct pollfd){fd, POLLIN, 0}, 1, 1000) <= 0) continue;
        ssize_t k = recv(fd, buf, sizeof buf, 0);
        if (k <= 0) break;
        str_add(s, buf, (size_t)k);
    }
    fail_msg("no \"%s\" in %zu bytes", what, s->n);
}

static void a_client_reads_along(void **state) {
    (void)state;
    struct str s = {0};
    int fd = ask("");
    put(1, 10);
    read_until(fd, &s, "\"value\":1,");
    close(fd);
    put(2, 10);
    str_clear(&s);
    fd = ask("Last-Event-ID: 00000007-1\r\n"); /* what it missed */
    read_until(fd, &s, "\"value\":2,");
    assert_null(strstr(str_z(&s), "\"value\":1,"));
    close(fd);
    str_deinit(&s);
}

static void who_lags_is_told_and_dropped(void **state) {
    (void)state;
    struct str s = {0}, t = {0};
    int slow = ask(""), fast = ask("");
    for (u64 i = 1; i <= 1000; i++) {
        char what[40];
        snprintf(what, sizeof what, "\"value\":%llu,", (unsigned long long)i);
        put(i, 1000);
        read_until(fast, &t, what);
        str_clear(&t);
    }
    read_until(slow, &s, "event: dropped");
    read_until(slow, &s, "\r\n0\r\n\r\n"); /* a proper end */
    assert_true(s.n < 700 << 10);          /* a bounded buffer, and what the system took */
    close(slow);
    close(fast);
    str_deinit(&s);
    str_deinit(&t);
}

static void who_leaves_is_forgotten(void **state) {
    (void)state;
    int fd = ask("");
    assert_int_equal(http_server_n_open(server), 1);
    close(fd);
    for (u64 until = clock_ms() + LONG_MS; http_server_n_open(server) && clock_ms() < until;) {
        events_look(events);
        clock_sleep_ms(10);
    }
    assert_int_equal(http_server_n_open(server), 0);
}

int main(void) {
#define WITH_SERVER(fn) cmocka_unit_test_setup_teardown(fn, begin, end)
    const struct CMUnitTest tests[] = {
        WITH_SERVER(a_client_reads_along),
        WITH_SERVER(who_lags_is_told_and_dropped),
        WITH_SERVER(who_leaves_is_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
