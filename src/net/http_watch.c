#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "net/http_internal.h"

enum { TICK_MS = 250, ACCEPT_BATCH = 64 };

static void accept_from(struct http_server *s, int listen_fd) {
    for (int i = 0; i < ACCEPT_BATCH; i++) {
        struct sockaddr_storage a;
        socklen_t n = sizeof a;
        int fd = accept(listen_fd, (struct sockaddr *)&a, &n);
        if (fd < 0) {
            /* Out of descriptors the socket stays readable: without a pause this thread would spin.
             */
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
                log_warn("http", "connection refused reason=\"out of descriptors or memory\"");
                clock_sleep_ms(50);
            }
            return;
        }
        /* Closes fd itself when it refuses (too many connections). */
        if (!sock_prepare(fd))
            close(fd);
        else if (MHD_add_connection(s->daemon, fd, (struct sockaddr *)&a, n) != MHD_YES) {
            log_debug("http", "connection refused reason=\"too many\"");
        }
    }
}

static void client_left(struct http_server *s, u64 id) {
    lock_take(&s->lock);
    for (struct http_answer *a = s->answers; a; a = a->next) {
        if (a->id != id) continue;
        http_answer_mark_gone(a);
        break;
    }
    lock_give(&s->lock);
}

static void tick(struct http_server *s, u64 now_ms) {
    lock_take(&s->lock);
    for (struct http_answer *a = s->answers; a; a = a->next) http_answer_tick(a, now_ms);
    lock_give(&s->lock);
}

void *http_watch_main(void *server) {
    struct http_server *s = server;
    u64 next_tick_ms = 0;
    for (;;) {
        u64 ids[64];
        int n = watch_wait(s->watch, TICK_MS, ids, ARRAY_LEN(ids));
        for (int i = 0; i < n; i++) {
            if (ids[i] == WATCH_ID_WAKE) return NULL;
            if (ids[i] < WATCH_ID_ANSWER)
                accept_from(s, s->listen_fd[ids[i] - WATCH_ID_LISTEN]);
            else
                client_left(s, ids[i]);
        }
        u64 now_ms = clock_ms();
        if (now_ms < next_tick_ms) continue;
        next_tick_ms = now_ms + TICK_MS;
        tick(s, now_ms);
    }
}
