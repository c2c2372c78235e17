#include "base/test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/sock.h"
#include "net/http_client.h"
#include "net/http_server.h"

static struct http_server *S;

static void handler(const struct http_req *r, struct http_answer *a, void *ctx) {
    (void)ctx;
    if (strcmp(r->path, "/redirect") == 0) {
        http_answer_header(a, "Location", "/echo?from=redirect");
        assert_true(http_answer_whole(a, 302, NULL, NULL, 0));
    } else if (strcmp(r->path, "/sse") == 0) {
        http_answer_start(a, 200, "text/event-stream");
        for (int i = 0; i < 100; i++) {
            struct str s = {0};
            str_addf(&s, ": hi\r\ndata: %d\r\ndata:x\n\n", i);
            http_answer_add(a, s.p, s.n);
            str_deinit(&s);
        }
        http_answer_end(a);
    } else if (strcmp(r->path, "/hang") == 0) {
        http_answer_start(a, 200, "text/event-stream");
        http_answer_keepalive(a, 100000, "text/event-stream", ":\n\n");
        *(struct http_answer **)ctx = a;
    } else if (strcmp(r->path, "/big") == 0) {
        char *p = calloc(1, 1 << 20);
        assert_true(http_answer_whole(a, 200, "text/plain", p, 1 << 20));
        free(p);
    } else if (strcmp(r->path, "/bad") == 0) {
        assert_true(http_answer_whole(a, 400, "application/json", "{\"error\":1}", 11));
    } else {
        struct str s = {0};
        const char *h = http_req_header(r, "X-H");
        str_addf(&s, "%s %s %s %s", r->method, r->path, h ? h : "", r->body);
        assert_true(http_answer_whole(a, 200, "text/plain", s.p, s.n));
        str_deinit(&s);
    }
}

static struct http_answer *hanging;

static const char *url(const char *path) {
    static char text[256];
    snprintf(text, sizeof text, "%s%s", http_server_url(S), path);
    return text;
}

static int setup(void **state) {
    (void)state;
    struct http_server_cfg cfg = {.handler = handler, .ctx = &hanging};
    S = http_server_start(&cfg, NULL);
    return S ? 0 : -1;
}
static int teardown(void **state) {
    (void)state;
    http_server_stop(S);
    if (hanging) http_answer_abort(hanging);
    return 0;
}

static void fetches(void **state) {
    (void)state;
    struct http_client_res r;
    struct err e = {0};
    const char *headers[] = {"X-H: hello", NULL};
    struct http_client_req q = {.url = url("/a"), .headers = headers};
    assert_true(http_client_fetch(&q, &r, &e));
    assert_int_equal(r.status, 200);
    assert_string_equal(r.body.p, "GET /a hello ");
    assert_string_equal(r.content_type, "text/plain");
    http_client_res_deinit(&r);

    q = (struct http_client_req){.url = url("/a"), .body = "{}", .n_body = 2};
    assert_true(http_client_fetch(&q, &r, &e));
    assert_string_equal(r.body.p, "POST /a  {}");
    http_client_res_deinit(&r);

    q = (struct http_client_req){.url = url("/a"), .method = "DELETE"};
    assert_true(http_client_fetch(&q, &r, &e));
    assert_string_equal(r.body.p, "DELETE /a  ");
    http_client_res_deinit(&r);

    q = (struct http_client_req){.url = url("/redirect")};
    assert_true(http_client_fetch(&q, &r, &e));
    assert_string_equal(r.body.p, "GET /echo  ");
    http_client_res_deinit(&r);

    q = (struct http_client_req){.url = url("/bad")};
    assert_true(http_client_fetch(&q, &r, &e));
    assert_int_equal(r.status, 400);
    assert_string_equal(r.body.p, "{\"error\":1}");
    http_client_res_deinit(&r);
}

static void failures(void **state) {
    (void)state;
    struct http_client_res r;
    struct err e = {0};
    struct http_client_req q = {.url = "ftp://x/"};
    assert_false(http_client_fetch(&q, &r, &e));
    assert_int_equal(e.code, ERR_ARG);
    q.url = "http://";
    assert_false(http_client_fetch(&q, &r, &e));
    assert_int_equal(e.code, ERR_ARG);
    /* A port that nobody listens on. */
    char nobody[64];
    u16 port = 0;
    int fd = sock_listen("127.0.0.1", &port, &e);
    close(fd);
    snprintf(nobody, sizeof nobody, "http://127.0.0.1:%u/", port);
    q.url = nobody;
    assert_false(http_client_fetch(&q, &r, &e));
    assert_int_equal(e.code, ERR_NET);
    assert_non_null(strstr(e.msg, "127.0.0.1"));
    /* The reply is larger than the caller wants. */
    q = (struct http_client_req){.url = url("/big"), .body_max_bytes = 1000};
    assert_false(http_client_fetch(&q, &r, &e));
    assert_int_equal(e.code, ERR_LIMIT);
    http_client_res_deinit(&r);
    q = (struct http_client_req){.url = url("/hang"), .total_timeout_ms = 300};
    assert_false(http_client_fetch(&q, &r, &e));
    assert_int_equal(e.code, ERR_NET);
    http_client_res_deinit(&r);
    http_answer_abort(hanging);
    hanging = NULL;
}

struct sse_seen {
    struct http_sse sse;
    int n, stop_at;
    size_t piece;
    struct err e;
};

static bool on_event(void *ctx, const char *data, size_t n) {
    struct sse_seen *s = ctx;
    char want[32];
    snprintf(want, sizeof want, "%d\nx", s->n++);
    assert_int_equal(n, strlen(want));
    assert_memory_equal(data, want, n);
    return s->n != s->stop_at;
}

static bool on_chunk(void *ctx, const char *p, size_t n) {
    struct sse_seen *s = ctx;
    for (size_t i = 0; i < n; i += s->piece) {
        if (!http_sse_feed(&s->sse, p + i, MIN(s->piece, n - i), on_event, s, &s->e)) return false;
    }
    return true;
}

static void streams(void **state) {
    (void)state;
    for (size_t piece = 1; piece <= 100; piece += 33) {
        struct sse_seen seen = {.piece = piece};
        struct http_client_res r;
        struct err e = {0};
        struct http_client_req q = {.url = url("/sse")};
        assert_true(http_client_stream(&q, on_chunk, &seen, &r, &e));
        assert_int_equal(seen.n, 100);
        http_client_res_deinit(&r);
        http_sse_deinit(&seen.sse);
    }
    struct sse_seen seen = {.piece = 1, .stop_at = 5};
    struct http_client_res r;
    struct err e = {0};
    struct http_client_req q = {.url = url("/sse")};
    assert_false(http_client_stream(&q, on_chunk, &seen, &r, &e));
    assert_int_equal(e.code, ERR_CANCELLED);
    assert_int_equal(seen.n, 5);
    http_client_res_deinit(&r);
    http_sse_deinit(&seen.sse);
    /* Another status than 2xx does not go to the callback. */
    q.url = url("/bad");
    assert_true(http_client_stream(&q, on_chunk, &seen, &r, &e));
    assert_int_equal(r.status, 400);
    assert_string_equal(r.body.p, "{\"error\":1}");
    http_client_res_deinit(&r);
}

static bool after_300_ms(void *ctx, const char *p, size_t n) {
    (void)p, (void)n;
    return clock_ms() < *(u64 *)ctx + 300;
}

/* Who waits for a connection has asked for nothing yet. */
static void cancels_before_anything_was_sent(void **state) {
    (void)state;
    enum { FILLERS = 4 };
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    char text[64];
    struct http_client_res r;
    struct err e = {0};
    int fill[FILLERS], s = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(bind(s, (struct sockaddr *)&a, n) == 0 && listen(s, 1) == 0);
    assert_int_equal(getsockname(s, (struct sockaddr *)&a, &n), 0);
    for (int i = 0; i < FILLERS; i++) { /* nobody accepts them, and no more are taken */
        fill[i] = socket(AF_INET, SOCK_STREAM, 0);
        fcntl(fill[i], F_SETFL, O_NONBLOCK);
        assert_true(connect(fill[i], (struct sockaddr *)&a, n) == 0 || errno == EINPROGRESS);
    }
    snprintf(text, sizeof text, "http://127.0.0.1:%u/", ntohs(a.sin_port));
    u64 t0 = clock_ms();
    struct http_client_req q = {.url = text};
    assert_false(http_client_stream(&q, after_300_ms, &t0, &r, &e));
    assert_false(r.was_sent);
    http_client_res_deinit(&r);
    for (int i = 0; i < FILLERS; i++) close(fill[i]);
    close(s);
}

/* Nothing arrives: the callback can still end it, and the server learns of that. */
static void cancels_while_waiting(void **state) {
    (void)state;
    struct http_client_res r;
    struct err e = {0};
    u64 t0 = clock_ms();
    struct http_client_req q = {.url = url("/hang")};
    assert_false(http_client_stream(&q, after_300_ms, &t0, &r, &e));
    assert_int_equal(e.code, ERR_CANCELLED);
    assert_true(clock_ms() - t0 < 10000); /* it would hang for ever */
    assert_true(r.was_sent);
    http_client_res_deinit(&r);
    for (int i = 0; i < 100 && !http_answer_is_gone(hanging); i++) clock_sleep_ms(10);
    assert_true(http_answer_is_gone(hanging));
    http_answer_abort(hanging);
    hanging = NULL;
}

static void event_too_large(void **state) {
    (void)state;
    struct http_sse s = {0};
    struct err e = {0};
    char *p = malloc(2 << 20);
    memset(p, 'a', 2 << 20);
    assert_false(http_sse_feed(&s, p, 2 << 20, on_event, NULL, &e));
    assert_int_equal(e.code, ERR_LIMIT);
    free(p);
    http_sse_deinit(&s);
}

/* The file that SSL_CERT_FILE names is the one that is used: one that is not there fails. */
static void own_authorities(void **state) {
    (void)state;
    char text[300];
    struct err e = {0};
    struct http_client_res r = {0};
    snprintf(text, sizeof text, "https%s", strchr(url("/echo"), ':'));
    struct http_client_req q = {.url = text, .total_timeout_ms = 10000};
    setenv("SSL_CERT_FILE", "/no/such/file.pem", 1);
    assert_false(http_client_fetch(&q, &r, &e));
    unsetenv("SSL_CERT_FILE");
    assert_non_null(strstr(e.msg, "/no/such/file.pem"));
    http_client_res_deinit(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(fetches),
                                       cmocka_unit_test(failures),
                                       cmocka_unit_test(streams),
                                       cmocka_unit_test(own_authorities),
                                       cmocka_unit_test(cancels_while_waiting),
                                       cmocka_unit_test(cancels_before_anything_was_sent),
                                       cmocka_unit_test(event_too_large)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
