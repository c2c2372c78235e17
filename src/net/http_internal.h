/* http_internal.h - what http_server.c, http_answer.c and http_watch.c share. Not for others.
 *
 * One lock a server guards every answer, for a producer's append and libmicrohttpd's suspend and
 * resume must exclude each other; it is held for a copy of bytes at most. Fields say what guards
 * them; those without a word belong to the HTTP thread. */
#pragma once

#include <microhttpd.h>

#include "base/lock.h"
#include "base/sock.h"
#include "base/str.h"
#include "net/http_server.h"
#include "net/watch.h"

enum { HTTP_LISTEN_MAX = 2, HTTP_ANSWER_HEADERS_MAX = 16 };
/* Ids in the watch: the wake pipe, the listening sockets, then answers. */
enum { WATCH_ID_WAKE = 0, WATCH_ID_LISTEN = 1, WATCH_ID_ANSWER = 16 };

enum answer_mode { ANSWER_WAITING, ANSWER_WHOLE, ANSWER_FILE, ANSWER_STREAM, ANSWER_ABORTED };

struct http_answer {
    struct http_server *server;
    struct http_answer *next, *prev; /* lock */
    u64 id;

    /* the request */
    struct MHD_Connection *conn; /* lock; NULL once libmicrohttpd is done with it */
    int fd;
    struct str body;
    u64 n_received;
    bool handled;
    int refuse_status; /* decided before the handler could be asked */
    const char *refuse_code, *refuse_text;

    /* the answer; all under the lock */
    enum answer_mode mode;
    int status;
    char *content_type;
    struct http_header {
        char *name, *value;
    } headers[HTTP_ANSWER_HEADERS_MAX];
    u32 n_headers;
    struct str out; /* whole body, or the unsent part of a stream from out_off on */
    size_t out_off;
    int file_fd; /* ANSWER_FILE until libmicrohttpd has it; else -1 */
    u64 file_off, file_n;
    bool held;      /* by whoever answers; conn and held both gone: freed */
    bool ended;     /* stream: nothing more will be added */
    bool queued;    /* libmicrohttpd has the response */
    bool suspended; /* libmicrohttpd sleeps on it: whoever changes something resumes */
    bool watched;   /* the watch has the descriptor */
    bool gone;      /* the client left */
    void (*on_gone)(void *ctx);
    void *on_gone_ctx;

    /* keep-alive; under the lock */
    u32 keepalive_ms;
    char *keepalive_type, *keepalive_text;
    u64 last_add_ms;
};

struct http_server {
    struct http_server_cfg cfg;
    struct MHD_Daemon *daemon;
    struct watch *watch;
    pthread_t watch_thread;
    int wake[2]; /* pipe that ends the watch thread */
    int listen_fd[HTTP_LISTEN_MAX];
    u16 port;
    char url[SOCK_ADDRESS_CAP + 8];
    size_t n_body_bytes; /* of all requests being read */

    struct lock lock;
    struct http_answer *answers; /* lock */
    u32 n_answers;               /* lock */
    u64 next_id;                 /* lock */
    bool quitting;               /* lock */
    bool stopped;                /* lock; the last answer to be closed frees the server */
};

/* All with the lock held. */
void http_answer_mark_gone(struct http_answer *a);
void http_answer_resume(struct http_answer *a);
void http_answer_tick(struct http_answer *a, u64 now_ms);
/* The connection's, or the holder's, end of it; frees the answer when it was the other's too. */
void http_answer_drop_conn(struct http_answer *a);
void http_answer_drop_held(struct http_answer *a);

/* On the HTTP thread, without the lock: gives the answer to libmicrohttpd, or suspends until there
 * is one. MHD_NO closes the connection. */
enum MHD_Result http_answer_pump(struct http_answer *a);

/* A whole JSON error in OpenAI's shape, for what the server refuses itself. */
void http_answer_refuse(struct http_answer *a);

void *http_watch_main(void *server);
/* Gives the lock back; frees the server when it was stopped and nothing is left of it. */
void http_server_unlock(struct http_server *s);
