#include "net/watch.h"

#include <stdlib.h>
#include <sys/event.h>
#include <unistd.h>

#include "base/arena.h"

struct watch {
    int fd;
};

struct watch *watch_new(struct err *e) {
    int fd = kqueue();
    if (fd < 0) {
        err_errno(e, ERR_IO, "kqueue");
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

/* udata holds id << 1 | gone. */
bool watch_add(struct watch *w, int fd, enum watch_for what, u64 id, struct err *e) {
    struct kevent ev;
    bool gone = what == WATCH_GONE;
    EV_SET(&ev, fd, EVFILT_READ, gone ? EV_ADD | EV_CLEAR : EV_ADD, 0, 0,
           (void *)(uintptr_t)(id << 1 | gone));
    if (kevent(w->fd, &ev, 1, NULL, 0, NULL) == 0) return true;
    return err_errno(e, ERR_IO, "can't watch descriptor %d", fd);
}

void watch_del(struct watch *w, int fd) {
    struct kevent ev;
    EV_SET(&ev, fd, EVFILT_READ, EV_DELETE, 0, 0, NULL);
    kevent(w->fd, &ev, 1, NULL, 0, NULL);
}

int watch_wait(struct watch *w, int timeout_ms, u64 *ids, int max) {
    struct kevent ev[64];
    struct timespec t = {timeout_ms / 1000, timeout_ms % 1000 * 1000000L};
    int n = kevent(w->fd, NULL, 0, ev, MIN(max, (int)ARRAY_LEN(ev)), timeout_ms < 0 ? NULL : &t);
    int m = 0;
    for (int i = 0; i < n; i++) {
        uintptr_t tag = (uintptr_t)ev[i].udata;
        /* There is no filter for the end of the stream alone: EV_CLEAR reports new data once, and
         * that is skipped. */
        if (tag & 1 && !(ev[i].flags & EV_EOF)) continue;
        ids[m++] = tag >> 1;
    }
    return m;
}
