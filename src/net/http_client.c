#include "net/http_client.h"

#include <string.h>

#include "net/http_curl.h"

enum {
    BODY_MAX_BYTES = 16 << 20,
    STREAM_ERROR_MAX_BYTES = 64 << 10,
    SSE_EVENT_MAX_BYTES = 1 << 20,
    POLL_MS = 100,
};

struct transfer {
    CURL *curl;
    struct http_client_res *out;
    size_t body_max;
    http_client_chunk *chunk; /* NULL: collect everything */
    void *ctx;
    bool too_large, cancelled;
};

void http_client_res_deinit(struct http_client_res *r) {
    str_deinit(&r->body);
}

static size_t on_body(char *p, size_t one, size_t n, void *ctx) {
    struct transfer *t = ctx;
    long status = 0;
    (void)one;
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &status);
    if (t->chunk && status >= 200 && status < 300) {
        if (t->chunk(t->ctx, p, n)) return n;
        t->cancelled = true;
        return 0;
    }
    if (n > t->body_max - t->out->body.n) {
        t->too_large = true;
        return 0;
    }
    str_add(&t->out->body, p, n);
    return n;
}

static CURLcode drive(struct transfer *t) {
    CURLM *m = curl_multi_init();
    CURLcode code = CURLE_FAILED_INIT;
    int n_running = 1;
    if (!m) return code;
    curl_multi_add_handle(m, t->curl);
    while (n_running) {
        int n_events = 0;
        if (curl_multi_perform(m, &n_running) != CURLM_OK) break;
        if (!n_running) break;
        if (curl_multi_poll(m, NULL, 0, POLL_MS, &n_events) != CURLM_OK) break;
        if (!n_events && t->chunk && !t->chunk(t->ctx, "", 0)) {
            t->cancelled = true;
            break;
        }
    }
    int left;
    CURLMsg *msg = curl_multi_info_read(m, &left);
    if (msg && msg->msg == CURLMSG_DONE) code = msg->data.result;
    curl_multi_remove_handle(m, t->curl);
    curl_multi_cleanup(m);
    return code;
}

static void set_request(CURL *c, const struct http_client_req *q, struct curl_slist *headers) {
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
    if (q->body) {
        curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)q->n_body);
        curl_easy_setopt(c, CURLOPT_POSTFIELDS, q->body);
    }
    if (q->method && strcmp(q->method, "HEAD") == 0)
        curl_easy_setopt(c, CURLOPT_NOBODY, 1L);
    else if (q->method)
        curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, q->method);
    curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)q->total_timeout_ms);
    u32 idle_ms = q->idle_timeout_ms ? q->idle_timeout_ms : 30000;
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, (long)MAX(idle_ms / 1000, 1));
}

static bool perform(const struct http_client_req *q, struct transfer *t, struct err *e) {
    char text[CURL_ERROR_SIZE];
    struct curl_slist *headers = NULL;
    t->curl = http_curl_new(q->url, q->connect_timeout_ms, text, e);
    if (!t->curl) return false;
    for (size_t i = 0; q->headers && q->headers[i]; i++) {
        headers = curl_slist_append(headers, q->headers[i]);
    }
    set_request(t->curl, q, headers);
    curl_easy_setopt(t->curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(t->curl, CURLOPT_WRITEDATA, t);

    CURLcode code = drive(t);
    long status = 0, sent = 0;
    const char *type = NULL;
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(t->curl, CURLINFO_CONTENT_TYPE, &type);
    curl_easy_getinfo(t->curl, CURLINFO_REQUEST_SIZE, &sent);
    t->out->status = (int)status;
    t->out->was_sent = sent > 0;
    str_copy(t->out->content_type, sizeof t->out->content_type, type ? type : "");
    curl_easy_cleanup(t->curl);
    curl_slist_free_all(headers);

    char host[280];
    http_curl_host(q->url, host, sizeof host);
    if (t->cancelled) return err_set(e, ERR_CANCELLED, "%s: cancelled", host);
    if (t->too_large) {
        return err_set(e, ERR_LIMIT, "%s: the reply is larger than %zu bytes", host, t->body_max);
    }
    return code == CURLE_OK || http_curl_fail(code, q->url, text, e);
}

bool http_client_fetch(const struct http_client_req *q, struct http_client_res *out,
                       struct err *e) {
    struct transfer t = {.out = out,
                         .body_max = q->body_max_bytes ? q->body_max_bytes : BODY_MAX_BYTES};
    *out = (struct http_client_res){0};
    return perform(q, &t, e);
}

bool http_client_stream(const struct http_client_req *q, http_client_chunk *chunk, void *ctx,
                        struct http_client_res *out, struct err *e) {
    struct transfer t = {
        .out = out, .body_max = STREAM_ERROR_MAX_BYTES, .chunk = chunk, .ctx = ctx};
    *out = (struct http_client_res){0};
    return perform(q, &t, e);
}

static bool sse_line(struct http_sse *s, bool (*fn)(void *ctx, const char *data, size_t n),
                     void *ctx, struct err *e) {
    struct view l = str_view(&s->line);
    if (l.n && l.p[l.n - 1] == '\r') l.n--;
    if (l.n == 0) { /* end of the event */
        bool more = true;
        if (s->data.n) more = fn(ctx, s->data.p, s->data.n - 1);
        str_clear(&s->data);
        if (!more) return err_set(e, ERR_CANCELLED, "stopped");
    } else if (view_starts(l, "data:")) {
        size_t skip = l.n > 5 && l.p[5] == ' ' ? 6 : 5;
        str_add(&s->data, l.p + skip, l.n - skip);
        str_addc(&s->data, '\n');
    }
    str_clear(&s->line);
    return true;
}

bool http_sse_feed(struct http_sse *s, const char *p, size_t n,
                   bool (*fn)(void *ctx, const char *data, size_t n), void *ctx, struct err *e) {
    while (n) {
        const char *nl = memchr(p, '\n', n);
        size_t k = nl ? (size_t)(nl - p) : n;
        if (s->line.n + s->data.n + k > SSE_EVENT_MAX_BYTES) {
            return err_set(e, ERR_LIMIT, "an event is larger than %d bytes", SSE_EVENT_MAX_BYTES);
        }
        str_add(&s->line, p, k);
        if (!nl) return true;
        if (!sse_line(s, fn, ctx, e)) return false;
        p += k + 1;
        n -= k + 1;
    }
    return true;
}

void http_sse_deinit(struct http_sse *s) {
    str_deinit(&s->line);
    str_deinit(&s->data);
}
