#include "net/http_server.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "net/http_internal.h"

enum {
    CONN_MEMORY_BYTES = 16 << 10, /* bounds the headers of a request */
    STOP_WAIT_MS = 800,
};
/* A body over the limit is read and thrown away up to so many times the limit, since a client that
 * is cut off while sending sees a reset instead of the reply. */
enum { DRAIN_FACTOR = 8 };

static void server_free(struct http_server *s) {
    lock_deinit(&s->lock);
    free(s);
}

void http_server_unlock(struct http_server *s) {
    bool last = s->stopped && s->n_answers == 0;
    lock_give(&s->lock);
    if (last) server_free(s);
}

static void refuse(struct http_answer *a, int status, const char *code, const char *text) {
    if (a->refuse_status) return;
    a->refuse_status = status;
    a->refuse_code = code;
    a->refuse_text = text;
    a->server->n_body_bytes -= a->body.n;
    str_deinit(&a->body);
}

struct pairs {
    struct arena arena;
    struct http_pair *v;
    size_t n, cap;
};

static enum MHD_Result collect(void *ctx, enum MHD_ValueKind kind, const char *name,
                               const char *value) {
    struct pairs *p = ctx;
    (void)kind;
    if (p->n == p->cap) {
        p->cap = p->cap ? 2 * p->cap : 32;
        struct http_pair *v = arena_array(&p->arena, p->cap, sizeof *v);
        if (p->n) memcpy(v, p->v, p->n * sizeof *v);
        p->v = v;
    }
    p->v[p->n++] = (struct http_pair){name, value ? value : ""};
    return MHD_YES;
}

/* What libmicrohttpd accepts although it makes the length of a request ambiguous (request
 * smuggling, RFC 9112 section 6.3). */
static void check_framing(struct http_answer *a) {
    struct pairs h = {0};
    u32 n_lengths = 0, n_encodings = 0;
    u64 length = 0;
    MHD_get_connection_values(a->conn, MHD_HEADER_KIND, collect, &h);
    for (size_t i = 0; i < h.n; i++) {
        if (strcasecmp(h.v[i].name, "Transfer-Encoding") == 0) n_encodings++;
        if (strcasecmp(h.v[i].name, "Content-Length") != 0) continue;
        n_lengths++;
        length = strtoull(h.v[i].value, NULL, 10);
    }
    arena_deinit(&h.arena);
    if (n_lengths > 1 || n_encodings > 1 || (n_lengths && n_encodings)) {
        refuse(
            a, 400, "bad_framing",
            "The length of the body is given more than once (Content-Length, Transfer-Encoding).");
    }
    if (length > a->server->cfg.body_max_bytes) {
        refuse(a, 413, "request_too_large", "The body is larger than this server accepts.");
    }
}

static struct http_answer *answer_new(struct http_server *s, struct MHD_Connection *conn) {
    struct http_answer *a = xcalloc(1, sizeof *a);
    a->file_fd = -1;
    a->server = s;
    a->conn = conn;
    a->fd = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    lock_take(&s->lock);
    a->id = s->next_id++;
    a->next = s->answers;
    if (s->answers) s->answers->prev = a;
    s->answers = a;
    s->n_answers++;
    lock_give(&s->lock);
    return a;
}

/* False: give up on the connection. */
static bool take_body(struct http_answer *a, const char *p, size_t n) {
    struct http_server *s = a->server;
    a->n_received += n;
    if (a->n_received > s->cfg.body_max_bytes) {
        refuse(a, 413, "request_too_large", "The body is larger than this server accepts.");
    } else if (!a->refuse_status && s->n_body_bytes + n > s->cfg.bodies_max_bytes) {
        refuse(a, 503, "overloaded", "Too many large requests at once; try again.");
    }
    if (a->refuse_status) return a->n_received <= DRAIN_FACTOR * (u64)s->cfg.body_max_bytes;
    str_add(&a->body, p, n);
    s->n_body_bytes += n;
    return true;
}

/* A client that takes this server for a proxy sends "http://host/path" (RFC 9112, section 3.2.2).
 */
static const char *path_of(const char *url) {
    size_t n = strncasecmp(url, "http://", 7) == 0    ? 7
               : strncasecmp(url, "https://", 8) == 0 ? 8
                                                      : 0;
    const char *path = n ? url + n + strcspn(url + n, "/") : url;
    return *path ? path : "/";
}

static void call_handler(struct http_answer *a, const char *url, const char *method) {
    struct pairs headers = {0}, query = {0};
    char remote[SOCK_HOST_CAP];
    const struct sockaddr *peer =
        MHD_get_connection_info(a->conn, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr;
    MHD_get_connection_values(a->conn, MHD_HEADER_KIND, collect, &headers);
    MHD_get_connection_values(a->conn, MHD_GET_ARGUMENT_KIND, collect, &query);
    sock_text(peer, remote, NULL);
    struct http_req r = {
        .method = method,
        .path = path_of(url),
        .body = str_z(&a->body),
        .n_body = a->body.n,
        .remote = remote,
        .is_loopback = sock_is_loopback(peer),
        .headers = headers.v,
        .n_headers = headers.n,
        .query = query.v,
        .n_query = query.n,
    };
    a->held = true;
    a->server->cfg.handler(&r, a, a->server->cfg.ctx);
    a->server->n_body_bytes -= a->body.n;
    str_deinit(&a->body);
    arena_deinit(&headers.arena);
    arena_deinit(&query.arena);
}

/* MHD_AccessHandlerCallback: once with the headers, then for pieces of the body, then with no bytes
 * when the request is complete, and again each time a suspended connection is resumed. */
static enum MHD_Result on_request(void *ctx, struct MHD_Connection *conn, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *n_upload, void **request) {
    struct http_answer *a = *request;
    (void)version;
    if (!a) {
        *request = a = answer_new(ctx, conn);
        check_framing(a);
        const char *expect = MHD_lookup_connection_value(conn, MHD_HEADER_KIND, "Expect");
        bool asks_first = expect && strcasecmp(expect, "100-continue") == 0;
        if (!a->refuse_status || !asks_first) return MHD_YES;
    } else if (*n_upload) {
        bool ok = take_body(a, upload, *n_upload);
        *n_upload = 0;
        return ok ? MHD_YES : MHD_NO;
    }
    if (!a->handled) {
        a->handled = true;
        if (a->refuse_status)
            http_answer_refuse(a);
        else
            call_handler(a, url, method);
    }
    return http_answer_pump(a);
}

/* MHD_RequestCompletedCallback: before the descriptor is closed or serves the next request. */
static void on_completed(void *ctx, struct MHD_Connection *conn, void **request,
                         enum MHD_RequestTerminationCode how) {
    struct http_server *s = ctx;
    struct http_answer *a = *request;
    (void)conn;
    if (!a) return;
    *request = NULL;
    s->n_body_bytes -= a->body.n;
    lock_take(&s->lock);
    a->suspended = false;
    if (how != MHD_REQUEST_TERMINATED_COMPLETED_OK) http_answer_mark_gone(a);
    http_answer_drop_conn(a);
    lock_give(&s->lock);
}

/* MHD_UnescapeCallback. A %00 stays as it is: decoded it would end the text, and "/%00x" be "/". */
static size_t unescape(void *ctx, struct MHD_Connection *conn, char *s) {
    (void)ctx, (void)conn;
    return strstr(s, "%00") ? strlen(s) : MHD_http_unescape(s);
}

static void on_log(void *ctx, const char *fmt, va_list args) {
    char text[256];
    (void)ctx;
    int n = vsnprintf(text, sizeof text, fmt, args);
    if (n > 0 && (size_t)n < sizeof text && text[n - 1] == '\n') text[n - 1] = '\0';
    log_debug("http", "library message=\"%s\"", text);
}

static bool open_sockets(struct http_server *s, struct err *e) {
    const char *host = s->cfg.host;
    bool local = !host || !*host || strcasecmp(host, "localhost") == 0;
    s->port = s->cfg.port;
    s->listen_fd[0] = sock_listen(local ? "127.0.0.1" : host, &s->port, e);
    if (s->listen_fd[0] < 0) goto fail;
    if (local) {
        /* A machine without IPv6 has no ::1; that "localhost" means it elsewhere does not matter.
         */
        struct err e6 = {0};
        s->listen_fd[1] = sock_listen("::1", &s->port, &e6);
        if (s->listen_fd[1] < 0 && s->cfg.port && strstr(e6.msg, "in use")) {
            if (e) *e = e6;
            goto fail;
        }
    }
    char address[SOCK_ADDRESS_CAP];
    bool any = host && strcmp(host, "*") == 0;
    sock_join(local || any || strcmp(host, "0.0.0.0") == 0 ? "127.0.0.1" : host, s->port, address);
    snprintf(s->url, sizeof s->url, "http://%s", address);
    return true;
fail:
    if (e && strstr(e->msg, "in use")) {
        char msg[256];
        str_copy(msg, sizeof msg, e->msg);
        err_set(e, ERR_IO, "%s: stop that program (maybe another node) or choose another port",
                msg);
    }
    return false;
}

/* Each connection needs a descriptor, and the rest of the process some more. */
static u32 connection_limit(u32 wanted) {
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) != 0) return wanted;
    rlim_t most = l.rlim_max == RLIM_INFINITY ? 65536 : l.rlim_max;
    if (l.rlim_cur < most) {
        l.rlim_cur = most;
        if (setrlimit(RLIMIT_NOFILE, &l) != 0) getrlimit(RLIMIT_NOFILE, &l);
    }
    return (u32)MIN((rlim_t)wanted, MAX(l.rlim_cur / 2, 1));
}

static bool start_daemon(struct http_server *s, struct err *e) {
#ifdef __linux__
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD;
#else
    unsigned flags = MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD;
#endif
    u32 n = connection_limit(s->cfg.n_connections_max);
    s->daemon = MHD_start_daemon(
        flags | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ERROR_LOG, 0, NULL,
        NULL, on_request, s, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL, MHD_OPTION_NOTIFY_COMPLETED,
        on_completed, s, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONN_MEMORY_BYTES,
        MHD_OPTION_CONNECTION_LIMIT, n,
        /* One address can't take every connection. */
        MHD_OPTION_PER_IP_CONNECTION_LIMIT, MAX(n - n / 8, 1), MHD_OPTION_CONNECTION_TIMEOUT,
        MAX(s->cfg.idle_timeout_ms / 1000, 1), MHD_OPTION_STRICT_FOR_CLIENT, 1,
        MHD_OPTION_UNESCAPE_CALLBACK, unescape, NULL, MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1,
        MHD_OPTION_END);
    return s->daemon || err_set(e, ERR_IO, "libmicrohttpd did not start");
}

static bool start_watch(struct http_server *s, struct err *e) {
    if (pipe(s->wake) != 0) return err_errno(e, ERR_IO, "pipe");
    if (!sock_prepare(s->wake[0]) || !sock_prepare(s->wake[1])) {
        return err_errno(e, ERR_IO, "pipe");
    }
    s->watch = watch_new(e);
    if (!s->watch || !watch_add(s->watch, s->wake[0], WATCH_READ, WATCH_ID_WAKE, e)) return false;
    for (int i = 0; i < HTTP_LISTEN_MAX; i++) {
        if (s->listen_fd[i] < 0) continue;
        if (!watch_add(s->watch, s->listen_fd[i], WATCH_READ, WATCH_ID_LISTEN + (u64)i, e)) {
            return false;
        }
    }
    return true;
}

static void close_all(struct http_server *s) {
    if (s->daemon) MHD_stop_daemon(s->daemon);
    s->daemon = NULL;
    watch_free(s->watch);
    s->watch = NULL;
    for (int i = 0; i < HTTP_LISTEN_MAX; i++) {
        if (s->listen_fd[i] >= 0) close(s->listen_fd[i]);
    }
    for (int i = 0; i < 2; i++) {
        if (s->wake[i] >= 0) close(s->wake[i]);
    }
}

struct http_server *http_server_start(const struct http_server_cfg *cfg, struct err *e) {
    struct http_server *s = xcalloc(1, sizeof *s);
    s->cfg = *cfg;
    struct http_server_cfg *c = &s->cfg;
    if (!c->body_max_bytes) c->body_max_bytes = 32 << 20;
    if (!c->bodies_max_bytes) c->bodies_max_bytes = 256 << 20;
    if (!c->buffer_max_bytes) c->buffer_max_bytes = 1 << 20;
    if (!c->n_connections_max) c->n_connections_max = 1000;
    if (!c->idle_timeout_ms) c->idle_timeout_ms = 60000;
    s->listen_fd[0] = s->listen_fd[1] = s->wake[0] = s->wake[1] = -1;
    s->next_id = WATCH_ID_ANSWER;
    lock_init(&s->lock);
    signal(SIGPIPE, SIG_IGN);

    /* The threads leave signals to the main thread. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool ok = open_sockets(s, e) && start_watch(s, e) && start_daemon(s, e);
    if (ok && pthread_create(&s->watch_thread, NULL, http_watch_main, s) != 0) {
        ok = err_set(e, ERR_IO, "can't start the HTTP watch thread");
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (ok) return s;
    close_all(s);
    server_free(s);
    return NULL;
}

void http_server_stop(struct http_server *s) {
    if (!s) return;
    /* No new connections and no watch from here on. */
    ASSERT(write(s->wake[1], "", 1) == 1);
    pthread_join(s->watch_thread, NULL);

    /* libmicrohttpd must not be stopped while connections are suspended. */
    u64 end_ms = clock_ms() + STOP_WAIT_MS;
    for (;;) {
        u32 n_conns = 0;
        lock_take(&s->lock);
        s->quitting = true;
        for (struct http_answer *a = s->answers; a; a = a->next) {
            if (!a->conn) continue;
            n_conns++;
            /* Whoever has its answer may still receive it. */
            if (a->held || clock_ms() >= end_ms) http_answer_mark_gone(a);
        }
        lock_give(&s->lock);
        if (!n_conns || clock_ms() >= end_ms) break;
        clock_sleep_ms(2);
    }
    MHD_stop_daemon(s->daemon);
    s->daemon = NULL;
    close_all(s);
    lock_take(&s->lock);
    s->stopped = true;
    http_server_unlock(s);
}

u16 http_server_port(const struct http_server *s) {
    return s->port;
}
const char *http_server_url(const struct http_server *s) {
    return s->url;
}

u32 http_server_n_open(struct http_server *s) {
    lock_take(&s->lock);
    u32 n = s->n_answers;
    lock_give(&s->lock);
    return n;
}
