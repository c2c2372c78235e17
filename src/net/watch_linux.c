#include "net/watch.h"

#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/arena.h"

struct watch {
    int fd;
};

struct watch *watch_new(struct err *e) {
    int fd = epoll_create1(EPOLL_CLOEXEC);
    if (fd < 0) {
        err_errno(e, ERR_IO, "epoll_create1");
        return NULL;
    }
    struct watch *w = xcalloc(1, sizeof *w);
    w->fd = fd;
    return w;
}

void watch_free(struct watch *w) {
    if (!w) return;
    close(w->fd);
    free(w);
}

int watch_fd(const struct watch *w) {
    return w->fd;
}

bool watch_add(struct watch *w, int fd, enum watch_for what, u64 id, struct err *e) {
    struct epoll_event ev = {.events = what == WATCH_READ ? EPOLLIN : EPOLLRDHUP | EPOLLONESHOT,
                             .data.u64 = id};
    if (epoll_ctl(w->fd, EPOLL_CTL_ADD, fd, &ev) == 0) return true;
    return err_errno(e, ERR_IO, "can't watch descriptor %d", fd);
}

void watch_del(struct watch *w, int fd) {
    epoll_ctl(w->fd, EPOLL_CTL_DEL, fd, NULL);
}

int watch_wait(struct watch *w, int timeout_ms, u64 *ids, int max) {
    struct epoll_event ev[64];
    int n = epoll_wait(w->fd, ev, MIN(max, (int)ARRAY_LEN(ev)), timeout_ms);
    for (int i = 0; i < n; i++) ids[i] = ev[i].data.u64;
    return MAX(n, 0);
}
