#include "base/test.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/sock.h"
#include "base/str.h"
#include "net/http_server.h"

static int dial(const struct http_server *s) {
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons(http_server_port(s)),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

static void put(int fd, const char *text) {
    size_t n = strlen(text), off = 0;
    while (off < n) {
        ssize_t k = send(fd, text + off, n - off, MSG_NOSIGNAL);
        assert_true(k > 0);
        off += (size_t)k;
    }
}

/* Reads until `until` appears, the end of the stream, or 5 s. */
static void get(int fd, struct str *out, const char *until) {
    u64 end = clock_ms() + 5000;
    while (clock_ms() < end && !(until && strstr(str_z(out), until))) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        char buf[65536];
        if (poll(&p, 1, 100) < 1) continue;
        ssize_t k = recv(fd, buf, sizeof buf, 0);
        if (k <= 0) return;
        str_add(out, buf, (size_t)k);
    }
}

/* One request on a connection of its own; the whole reply. */
static const char *ask(const struct http_server *s, const char *request, struct str *out) {
    str_clear(out);
    int fd = dial(s);
    put(fd, request);
    get(fd, out, NULL);
    close(fd);
    return str_z(out);
}

static struct {
    struct http_answer *_Atomic kept; /* of /later and /stream: answered by the test itself */
    atomic_int n_gone, n_calls;
    size_t n_body;
} T;

static void gone(void *ctx) {
    (void)ctx;
    atomic_fetch_add(&T.n_gone, 1);
}

static void echo(const struct http_req *r, struct http_answer *a) {
    struct str s = {0};
    const char *q = http_req_query(r, "q"), *h = http_req_header(r, "x-thing");
    str_addf(&s, "%s %s q=%s h=%s loop=%d n=%zu body=", r->method, r->path, q ? q : "-",
             h ? h : "-", r->is_loopback, r->n_body);
    str_add(&s, r->body, MIN(r->n_body, 100));
    http_answer_header(a, "X-Reply", "yes");
    assert_true(http_answer_whole(a, 200, "text/plain", s.p, s.n));
    str_deinit(&s);
}

static void handler(const struct http_req *r, struct http_answer *a, void *ctx) {
    (void)ctx;
    T.n_body = r->n_body;
    if (strcmp(r->path, "/later") && strcmp(r->path, "/stream")) {
        echo(r, a);
    } else {
        http_answer_on_gone(a, gone, NULL);
        if (strcmp(r->path, "/stream") == 0) http_answer_start(a, 200, "text/event-stream");
        atomic_store(&T.kept, a);
    }
    atomic_fetch_add(&T.n_calls, 1);
}

static struct http_server *serve(struct http_server_cfg cfg) {
    struct err e = {0};
    cfg.handler = handler;
    atomic_store(&T.kept, NULL);
    atomic_store(&T.n_gone, 0);
    atomic_store(&T.n_calls, 0);
    struct http_server *s = http_server_start(&cfg, &e);
    if (!s) fail_msg("%s", e.msg);
    return s;
}

static struct http_answer *kept(void) {
    for (int i = 0; i < 500 && !atomic_load(&T.kept); i++) clock_sleep_ms(10);
    struct http_answer *a = atomic_exchange(&T.kept, NULL);
    assert_non_null(a);
    return a;
}

static bool wait_gone(int n, u32 ms) {
    for (u64 end = clock_ms() + ms; clock_ms() < end; clock_sleep_ms(5)) {
        if (atomic_load(&T.n_gone) == n) return true;
    }
    return false;
}

static void request_parts(void **state) {
    (void)state;
    struct http_server *s = serve((struct http_server_cfg){0});
    struct str out = {0};
    ask(s,
        "GET /a%20b/c?q=1%262+3&z HTTP/1.1\r\nHost: x\r\nX-THING: t\r\nConnection: close\r\n\r\n",
        &out);
    assert_non_null(strstr(out.p, "HTTP/1.1 200"));
    assert_non_null(strstr(out.p, "X-Reply: yes"));
    assert_non_null(strstr(out.p, "GET /a b/c q=1&2 3 h=t loop=1 n=0 body="));
    ask(s, "GET /a%00b?q=1%002 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", &out);
    assert_non_null(strstr(out.p, "GET /a%00b q=1%002 "));
    ask(s, "GET http://x:1/a/b?q=1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", &out);
    assert_non_null(strstr(out.p, "GET /a/b q=1 "));
    ask(s, "GET HTTP://x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", &out);
    assert_non_null(strstr(out.p, "GET / q=- "));
    ask(s, "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
        &out);
    assert_non_null(strstr(out.p, "POST /x q=- h=- loop=1 n=5 body=hello"));
    ask(s,
        "POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
        &out);
    assert_non_null(strstr(out.p, "n=5 body=abcde"));
    ask(s, "HEAD /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", &out);
    assert_non_null(strstr(out.p, "Content-Length: "));
    assert_null(strstr(out.p, "HEAD /x q"));

    /* Two requests on one connection. */
    int fd = dial(s);
    put(fd, "GET /one HTTP/1.1\r\nHost: x\r\n\r\n");
    str_clear(&out);
    get(fd, &out, "GET /one");
    put(fd, "GET /two HTTP/1.1\r\nHost: x\r\n\r\n");
    get(fd, &out, "GET /two");
    assert_non_null(strstr(out.p, "GET /two"));
    close(fd);
    str_deinit(&out);
    http_server_stop(s);
}

static void ambiguous_framing(void **state) {
    (void)state;
    static const char *bad[] = {
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 3\r\nConnection: "
        "close\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n"
        "Connection: close\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\nConnection: close\r\n\r\n",
    };
    struct http_server *s = serve((struct http_server_cfg){0});
    struct str out = {0};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        ask(s, bad[i], &out);
        assert_non_null(strstr(str_z(&out), "HTTP/1.1 400"));
    }
    assert_int_equal(atomic_load(&T.n_calls), 0);

    str_clear(&out);
    struct str big = {0};
    str_addz(&big, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Big: ");
    for (int i = 0; i < 20000; i++) str_addc(&big, 'x');
    str_addz(&big, "\r\n\r\n");
    ask(s, big.p, &out);
    assert_non_null(strstr(str_z(&out), "HTTP/1.1 431"));
    ask(s, "GET /alive HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", &out);
    assert_non_null(strstr(out.p, "GET /alive"));
    str_deinit(&big);
    str_deinit(&out);
    http_server_stop(s);
}

static void post_bytes(int fd, size_t n) {
    static char zeros[65536];
    while (n) {
        ssize_t k = send(fd, zeros, MIN(n, sizeof zeros), MSG_NOSIGNAL);
        if (k <= 0) return;
        n -= (size_t)k;
    }
}

static void body_limit(void **state) {
    (void)state;
    struct http_server *s = serve((struct http_server_cfg){.body_max_bytes = 1 << 20});
    struct str out = {0};
    /* Announced, 4 MB: read and thrown away, and the reply arrives. */
    int fd = dial(s);
    put(fd, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4000000\r\n\r\n");
    post_bytes(fd, 4000000);
    get(fd, &out, "}}");
    assert_non_null(strstr(out.p, "HTTP/1.1 413"));
    assert_non_null(strstr(out.p, "\"code\":\"request_too_large\""));
    close(fd);
    /* With Expect the answer comes before the body. */
    str_clear(&out);
    fd = dial(s);
    put(fd,
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\nExpect: 100-continue\r\n\r\n");
    get(fd, &out, "}}");
    assert_non_null(strstr(out.p, "HTTP/1.1 413"));
    assert_null(strstr(out.p, "100 Continue"));
    close(fd);
    /* Endless: cut off after eight times the limit. */
    str_clear(&out);
    fd = dial(s);
    put(fd, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n");
    post_bytes(fd, 100000000);
    get(fd, &out, NULL);
    assert_int_equal(out.n, 0);
    close(fd);
    /* Not announced. */
    str_clear(&out);
    fd = dial(s);
    put(fd, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 20; i++) {
        put(fd, "10000\r\n");
        post_bytes(fd, 0x10000);
        put(fd, "\r\n");
    }
    put(fd, "0\r\n\r\n");
    get(fd, &out, "}}");
    assert_non_null(strstr(out.p, "HTTP/1.1 413"));
    close(fd);
    assert_int_equal(atomic_load(&T.n_calls), 0);
    /* Exactly the limit passes. */
    str_clear(&out);
    fd = dial(s);
    put(fd, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1048576\r\nConnection: close\r\n\r\n");
    post_bytes(fd, 1048576);
    get(fd, &out, NULL);
    assert_non_null(strstr(out.p, "n=1048576"));
    close(fd);
    str_deinit(&out);
    http_server_stop(s);
}

static void answers_later(void **state) {
    (void)state;
    struct http_server *s = serve((struct http_server_cfg){.idle_timeout_ms = 1000});
    struct str out = {0};
    int fd = dial(s);
    put(fd, "POST /later HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx");
    struct http_answer *a = kept();
    clock_sleep_ms(2200); /* longer than the idle timeout: a waiting request is not idle */
    assert_true(http_answer_whole(a, 418, "text/plain", "tea", 3));
    get(fd, &out, NULL);
    assert_non_null(strstr(str_z(&out), "HTTP/1.1 418"));
    assert_non_null(strstr(str_z(&out), "Content-Length: 3"));
    close(fd);
    assert_int_equal(atomic_load(&T.n_gone), 0);
    str_deinit(&out);
    http_server_stop(s);
}

static void *stream_writer(void *ctx) {
    struct http_answer *a = ctx;
    char text[32];
    for (int i = 0; i < 2000; i++) {
        int n = snprintf(text, sizeof text, "data: %d\n\n", i);
        http_answer_add(a, text, (size_t)n);
        if (i % 500 == 0) clock_sleep_ms(20);
    }
    http_answer_end(a);
    return NULL;
}

static void streams(void **state) {
    (void)state;
    struct http_server *s = serve((struct http_server_cfg){0});
    struct str out = {0};
    for (int round = 0; round < 2; round++) {
        bool v10 = round == 1;
        int fd = dial(s);
        put(fd, v10 ? "GET /stream HTTP/1.0\r\nHost: x\r\n\r\n"
                    : "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
        pthread_t t;
        struct http_answer *a = kept();
        assert_false(http_answer_whole(a, 200, "text/plain", "x", 1)); /* too late for that */
        assert_int_equal(pthread_create(&t, NULL, stream_writer, a), 0);
        str_clear(&out);
        get(fd, &out, v10 ? NULL : "0\r\n\r\n");
        pthread_join(t, NULL);
        close(fd);
        const char *p = str_z(&out);
        assert_int_equal(strstr(p, "Transfer-Encoding: chunked") != NULL, !v10);
        for (int i = 0; i < 2000; i += v10 ? 1 : 100) {
            char want[32];
            snprintf(want, sizeof want, "data: %d\n", i);
            p = strstr(p, want);
            if (!p) fail_msg("missing %s", want);
        }
    }
    str_deinit(&out);
    http_server_stop(s);
}

/* The client leaves while nothing is sent to it: by FIN, by RST, by half-close. */
static void idle_client_leaves(void **state) {
    (void)state;
    struct http_server *s = serve((struct http_server_cfg){0});
    for (int how = 0; how < 6; how++) {
        int fd = dial(s);
        put(fd, how < 3 ? "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n"
                        : "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
        struct http_answer *a = kept();
        if (how < 3) http_answer_add(a, "x", 1);
        clock_sleep_ms(30);
        assert_int_equal(atomic_load(&T.n_gone), how);
        struct linger rst = {.l_onoff = 1};
        if (how % 3 == 1) setsockopt(fd, SOL_SOCKET, SO_LINGER, &rst, sizeof rst);
        if (how % 3 == 2)
            shutdown(fd, SHUT_WR);
        else
            close(fd);
        assert_true(wait_gone(how + 1, 1000));
        assert_true(http_answer_is_gone(a));
        if (how < 3) assert_false(http_answer_add(a, "late", 4));
        if (how < 3)
            http_answer_end(a);
        else
            assert_true(http_answer_whole(a, 200, "text/plain", "late", 4));
        if (how % 3 == 2) close(fd);
    }
    for (int i = 0; i < 100 && http_server_n_open(s); i++) clock_sleep_ms(10);
    assert_int_equal(http_server_n_open(s), 0);
    http_server_stop(s);
}

/* A client that never reads fills the kernel's buffers and ours, then counts as gone. */
static void slow_client(void **state) {
    (void)state;
    struct http_server *s = serve((struct http_server_cfg){.buffer_max_bytes = 256 << 10});
    static char chunk[4096];
    int fd = dial(s);
    put(fd, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    struct http_answer *a = kept();
    size_t n = 0;
    while (n < 64 << 20 && http_answer_add(a, chunk, sizeof chunk)) {
        n += sizeof chunk;
        if (n % (64 << 10) == 0) clock_sleep_ms(1);
    }
    assert_true(n < 16 << 20);
    assert_int_equal(atomic_load(&T.n_gone), 1);
    http_answer_end(a);
    close(fd);
    http_server_stop(s);
}

static void keepalive(void **state) {
    (void)state;
    struct http_server *s = serve((struct http_server_cfg){0});
    struct str out = {0};
    int fd = dial(s);
    put(fd, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
    struct http_answer *a = kept();
    http_answer_keepalive(a, 300, "text/event-stream", ": ping\n\n");
    get(fd, &out, ": ping");
    assert_non_null(strstr(str_z(&out), "HTTP/1.1 200"));
    assert_non_null(strstr(str_z(&out), "text/event-stream"));
    assert_false(http_answer_whole(a, 404, "text/plain", "no", 2));
    http_answer_add(a, "data: 1\n\n", 9);
    http_answer_end(a);
    get(fd, &out, "0\r\n\r\n");
    assert_non_null(strstr(str_z(&out), "data: 1"));
    close(fd);
    /* An answer within the time keeps its own status. */
    fd = dial(s);
    put(fd, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
    a = kept();
    http_answer_keepalive(a, 5000, "text/event-stream", ": ping\n\n");
    assert_true(http_answer_whole(a, 404, "text/plain", "no", 2));
    str_clear(&out);
    get(fd, &out, "no");
    assert_non_null(strstr(str_z(&out), "HTTP/1.1 404"));
    close(fd);
    str_deinit(&out);
    http_server_stop(s);
}

static void aborted(void **state) {
    (void)state;
    struct http_server *s = serve((struct http_server_cfg){0});
    struct str out = {0};
    int fd = dial(s);
    put(fd, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    struct http_answer *a = kept();
    http_answer_add(a, "half", 4);
    get(fd, &out, "half");
    http_answer_abort(a);
    get(fd, &out, NULL);
    assert_null(strstr(str_z(&out), "0\r\n\r\n"));
    close(fd);
    str_deinit(&out);
    http_server_stop(s);
}

/* Stopping with a request waiting, one streaming, and answers that outlive the server. */
static void stops_with_open_answers(void **state) {
    (void)state;
    struct http_server *s = serve((struct http_server_cfg){0});
    int f1 = dial(s), f2 = dial(s), f3 = dial(s);
    put(f1, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
    struct http_answer *a1 = kept();
    put(f2, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    struct http_answer *a2 = kept();
    put(f3, "GET /half HTTP/1.1\r\nHost:");
    clock_sleep_ms(50);
    u64 t0 = clock_ms();
    http_server_stop(s);
    assert_true(clock_ms() - t0 < 10000);
    assert_int_equal(atomic_load(&T.n_gone), 2);
    assert_false(http_answer_add(a2, "x", 1));
    http_answer_end(a2);
    assert_true(http_answer_whole(a1, 200, "text/plain", "x", 1));
    close(f1);
    close(f2);
    close(f3);
}

static void port_in_use(void **state) {
    (void)state;
    struct err e = {0};
    struct http_server *s = serve((struct http_server_cfg){0});
    struct http_server_cfg cfg = {.handler = handler, .port = http_server_port(s)};
    assert_null(http_server_start(&cfg, &e));
    char port[16];
    snprintf(port, sizeof port, "%u", cfg.port);
    assert_int_equal(e.code, ERR_IO);
    assert_non_null(strstr(e.msg, port));
    assert_non_null(strstr(e.msg, "127.0.0.1"));
    assert_non_null(strstr(e.msg, "choose another port"));
    cfg = (struct http_server_cfg){.handler = handler, .host = "no such host"};
    assert_null(http_server_start(&cfg, &e));
    assert_int_equal(e.code, ERR_ARG);
    http_server_stop(s);
}

static void many_clients(void **state) {
    (void)state;
    enum { N = 200 };
    struct http_server *s = serve((struct http_server_cfg){.n_connections_max = 100});
    int fd[N];
    struct str out = {0};
    int n_served = 0;
    for (int i = 0; i < N; i++) {
        fd[i] = dial(s);
        send(fd[i], "GET /x HTTP/1.1\r\nHost: x\r\n\r\n", 29, MSG_NOSIGNAL);
    }
    for (int i = 0; i < N; i++) {
        str_clear(&out);
        get(fd[i], &out, "body=");
        n_served += out.n > 0;
    }
    assert_true(n_served >= 80 && n_served <= 100);
    for (int i = 0; i < N; i++) close(fd[i]);
    clock_sleep_ms(50);
    ask(s, "GET /again HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", &out);
    assert_non_null(strstr(str_z(&out), "GET /again"));
    str_deinit(&out);
    http_server_stop(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(request_parts), cmocka_unit_test(ambiguous_framing),
        cmocka_unit_test(body_limit),    cmocka_unit_test(answers_later),
        cmocka_unit_test(streams),       cmocka_unit_test(idle_client_leaves),
        cmocka_unit_test(slow_client),   cmocka_unit_test(keepalive),
        cmocka_unit_test(aborted),       cmocka_unit_test(stops_with_open_answers),
        cmocka_unit_test(port_in_use),   cmocka_unit_test(many_clients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
