#include "net/http_answer.h"

#include <stdlib.h>
#include <string.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/json.h"
#include "net/http_internal.h"

static void answer_free(struct http_answer *a) {
    struct http_server *s = a->server;
    if (a->prev)
        a->prev->next = a->next;
    else
        s->answers = a->next;
    if (a->next) a->next->prev = a->prev;
    s->n_answers--;
    for (u32 i = 0; i < a->n_headers; i++) {
        free(a->headers[i].name);
        free(a->headers[i].value);
    }
    if (a->file_fd >= 0) close(a->file_fd);
    str_deinit(&a->body);
    str_deinit(&a->out);
    free(a->content_type);
    free(a->keepalive_type);
    free(a->keepalive_text);
    free(a);
}

void http_answer_drop_conn(struct http_answer *a) {
    if (a->watched) watch_del(a->server->watch, a->fd);
    a->watched = false;
    a->conn = NULL;
    if (!a->held) answer_free(a);
}

void http_answer_drop_held(struct http_answer *a) {
    a->held = false;
    a->on_gone = NULL;
    if (!a->conn) answer_free(a);
}

void http_answer_resume(struct http_answer *a) {
    if (!a->suspended) return;
    a->suspended = false;
    MHD_resume_connection(a->conn);
}

void http_answer_mark_gone(struct http_answer *a) {
    if (a->gone) return;
    a->gone = true;
    if (a->on_gone) a->on_gone(a->on_gone_ctx);
    http_answer_resume(a);
}

void http_answer_on_gone(struct http_answer *a, void (*fn)(void *ctx), void *ctx) {
    struct http_server *s = a->server;
    lock_take(&s->lock);
    a->on_gone = fn;
    a->on_gone_ctx = ctx;
    if (a->gone) fn(ctx);
    http_server_unlock(s);
}

bool http_answer_is_gone(struct http_answer *a) {
    lock_take(&a->server->lock);
    bool gone = a->gone;
    http_server_unlock(a->server);
    return gone;
}

void http_answer_header(struct http_answer *a, const char *name, const char *value) {
    ASSERT(!strpbrk(name, "\r\n:") && !strpbrk(value, "\r\n"));
    lock_take(&a->server->lock);
    if (a->mode == ANSWER_WAITING) {
        ASSERT(a->n_headers < HTTP_ANSWER_HEADERS_MAX);
        a->headers[a->n_headers++] = (struct http_header){xstrdup(name), xstrdup(value)};
    }
    http_server_unlock(a->server);
}

static void set_whole(struct http_answer *a, int status, const char *content_type, const void *body,
                      size_t n) {
    a->mode = ANSWER_WHOLE;
    a->status = status;
    a->content_type = content_type ? xstrdup(content_type) : NULL;
    str_add(&a->out, body, n);
}

bool http_answer_whole(struct http_answer *a, int status, const char *content_type,
                       const void *body, size_t n) {
    struct http_server *s = a->server;
    lock_take(&s->lock);
    bool ok = a->mode == ANSWER_WAITING;
    if (ok) {
        set_whole(a, status, content_type, body, n);
        http_answer_resume(a);
        http_answer_drop_held(a);
    }
    http_server_unlock(s);
    return ok;
}

bool http_answer_file(struct http_answer *a, int status, const char *content_type, int fd,
                      u64 offset, u64 n) {
    struct http_server *s = a->server;
    lock_take(&s->lock);
    bool ok = a->mode == ANSWER_WAITING;
    if (ok) {
        a->mode = ANSWER_FILE;
        a->status = status;
        a->content_type = xstrdup(content_type);
        a->file_fd = fd;
        a->file_off = offset;
        a->file_n = n;
        http_answer_resume(a);
        http_answer_drop_held(a);
    } else {
        close(fd);
    }
    http_server_unlock(s);
    return ok;
}

static void begin(struct http_answer *a, int status, const char *content_type) {
    if (a->mode != ANSWER_WAITING) return;
    a->mode = ANSWER_STREAM;
    a->status = status;
    a->content_type = xstrdup(content_type);
    a->last_add_ms = clock_ms();
    http_answer_resume(a);
}

static void append(struct http_answer *a, const void *p, size_t n) {
    if (a->gone) return;
    if (a->out.n - a->out_off + n > a->server->cfg.buffer_max_bytes) {
        http_answer_mark_gone(a);
        return;
    }
    str_add(&a->out, p, n);
    a->last_add_ms = clock_ms();
    http_answer_resume(a);
}

void http_answer_start(struct http_answer *a, int status, const char *content_type) {
    lock_take(&a->server->lock);
    begin(a, status, content_type);
    http_server_unlock(a->server);
}

bool http_answer_add(struct http_answer *a, const void *p, size_t n) {
    struct http_server *s = a->server;
    lock_take(&s->lock);
    ASSERT(a->mode == ANSWER_STREAM);
    append(a, p, n);
    bool ok = !a->gone;
    http_server_unlock(s);
    return ok;
}

size_t http_answer_unsent(struct http_answer *a) {
    lock_take(&a->server->lock);
    size_t n = a->out.n - a->out_off;
    http_server_unlock(a->server);
    return n;
}

void http_answer_end(struct http_answer *a) {
    struct http_server *s = a->server;
    lock_take(&s->lock);
    ASSERT(a->mode == ANSWER_STREAM);
    a->ended = true;
    http_answer_resume(a);
    http_answer_drop_held(a);
    http_server_unlock(s);
}

void http_answer_abort(struct http_answer *a) {
    struct http_server *s = a->server;
    lock_take(&s->lock);
    a->mode = ANSWER_ABORTED;
    http_answer_resume(a);
    http_answer_drop_held(a);
    http_server_unlock(s);
}

void http_answer_keepalive(struct http_answer *a, u32 every_ms, const char *content_type,
                           const char *text) {
    lock_take(&a->server->lock);
    free(a->keepalive_type);
    free(a->keepalive_text);
    a->keepalive_ms = every_ms;
    a->keepalive_type = xstrdup(content_type);
    a->keepalive_text = xstrdup(text);
    a->last_add_ms = clock_ms();
    http_server_unlock(a->server);
}

void http_answer_tick(struct http_answer *a, u64 now_ms) {
    if (!a->keepalive_ms || !a->held || now_ms - a->last_add_ms < a->keepalive_ms) return;
    begin(a, 200, a->keepalive_type);
    if (a->mode == ANSWER_STREAM) append(a, a->keepalive_text, strlen(a->keepalive_text));
}

void http_answer_refuse(struct http_answer *a) {
    struct str s = {0};
    str_addz(&s, "{\"error\":{");
    json_put_str(&s, "message", a->refuse_text);
    json_put_str(&s, "type", "invalid_request_error");
    json_put_null(&s, "param");
    json_put_str(&s, "code", a->refuse_code);
    str_addz(&s, "}}");
    lock_take(&a->server->lock);
    set_whole(a, a->refuse_status, "application/json", s.p, s.n);
    http_server_unlock(a->server);
    str_deinit(&s);
}

static void suspend(struct http_answer *a) {
    /* A connection that sleeps is not watched by libmicrohttpd: our own watch sees the client
     * leave. */
    if (!a->watched) a->watched = watch_add(a->server->watch, a->fd, WATCH_GONE, a->id, NULL);
    a->suspended = true;
    MHD_suspend_connection(a->conn);
}

/* MHD_ContentReaderCallback. Returning 0 without suspending would spin. */
static ssize_t read_stream(void *ctx, uint64_t pos, char *buf, size_t max) {
    struct http_answer *a = ctx;
    struct http_server *s = a->server;
    ssize_t got = 0;
    (void)pos;
    lock_take(&s->lock);
    size_t left = a->out.n - a->out_off;
    if (a->gone || a->mode == ANSWER_ABORTED) {
        got = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (left) {
        got = (ssize_t)MIN(left, max);
        memcpy(buf, a->out.p + a->out_off, (size_t)got);
        a->out_off += (size_t)got;
        if (a->out_off == a->out.n) {
            str_clear(&a->out);
            a->out_off = 0;
        }
    } else if (a->ended) {
        got = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        suspend(a);
    }
    lock_give(&s->lock);
    return got;
}

/* The kernel's send buffer would hide a client that reads slowly behind megabytes. */
static void limit_send_buffer(int fd) {
    int bytes = 64 << 10;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
#ifdef TCP_NOTSENT_LOWAT
    bytes = 16 << 10;
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, sizeof bytes);
#endif
}

static struct MHD_Response *make_response(struct http_answer *a) {
    struct MHD_Response *r;
    if (a->mode == ANSWER_STREAM) {
        limit_send_buffer(a->fd);
        r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 4096, read_stream, a, NULL);
    } else if (a->mode == ANSWER_FILE) {
        r = MHD_create_response_from_fd_at_offset64(a->file_n, a->file_fd, a->file_off);
        if (r) a->file_fd = -1; /* closed with the response */
    } else {
        size_t n = a->out.n;
        char *p = str_take(&a->out);
        r = MHD_create_response_from_buffer(n, p,
                                            n ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
        if (!n) free(p);
    }
    if (!r) return NULL;
    if (a->content_type) MHD_add_response_header(r, "Content-Type", a->content_type);
    for (u32 i = 0; i < a->n_headers; i++) {
        MHD_add_response_header(r, a->headers[i].name, a->headers[i].value);
    }
    return r;
}

enum MHD_Result http_answer_pump(struct http_answer *a) {
    struct http_server *s = a->server;
    struct MHD_Response *r = NULL;
    lock_take(&s->lock);
    bool close = a->gone || a->mode == ANSWER_ABORTED || s->quitting;
    if (!close && a->mode == ANSWER_WAITING)
        suspend(a);
    else if (!close)
        r = make_response(a);
    bool waiting = a->suspended;
    lock_give(&s->lock);
    if (waiting) return MHD_YES;
    if (!r) return MHD_NO;
    enum MHD_Result ok = MHD_queue_response(a->conn, (unsigned)a->status, r);
    MHD_destroy_response(r);
    return ok;
}
