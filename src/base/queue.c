#include "base/queue.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/lock.h"

/* A pipe instead of eventfd: the same code on Linux and macOS. It holds at most one byte, written
 * when the queue turns from empty to not empty and read when it turns empty again. */
struct queue {
    struct lock lock; /* guards the ring; producers and the consumer take it */
    void **ring;
    u32 cap, head, n;
    int rd, wr;
};

static bool fd_flags(int fd) {
    int fl = fcntl(fd, F_GETFL);
    return fl >= 0 && fcntl(fd, F_SETFL, fl | O_NONBLOCK) == 0 &&
           fcntl(fd, F_SETFD, FD_CLOEXEC) == 0;
}

struct queue *queue_new(u32 cap, struct err *e) {
    ASSERT(cap > 0);
    int fd[2];
    if (pipe(fd) != 0) {
        err_errno(e, ERR_IO, "pipe for a queue");
        return NULL;
    }
    if (!fd_flags(fd[0]) || !fd_flags(fd[1])) {
        err_errno(e, ERR_IO, "pipe flags");
        close(fd[0]);
        close(fd[1]);
        return NULL;
    }
    struct queue *q = xcalloc(1, sizeof *q);
    lock_init(&q->lock);
    q->ring = xcalloc(cap, sizeof *q->ring);
    q->cap = cap;
    q->rd = fd[0];
    q->wr = fd[1];
    return q;
}

void queue_free(struct queue *q) {
    if (!q) return;
    close(q->rd);
    close(q->wr);
    lock_deinit(&q->lock);
    free(q->ring);
    free(q);
}

bool queue_push(struct queue *q, void *item) {
    ASSERT(item);
    lock_take(&q->lock);
    bool ok = q->n < q->cap;
    if (ok) {
        q->ring[(q->head + q->n) % q->cap] = item;
        if (q->n++ == 0) ok = write(q->wr, "x", 1) == 1;
        ASSERT(ok); /* the pipe is empty whenever the ring is */
    }
    lock_give(&q->lock);
    return ok;
}

void *queue_pop(struct queue *q) {
    lock_take(&q->lock);
    void *item = NULL;
    if (q->n) {
        item = q->ring[q->head];
        q->head = (q->head + 1) % q->cap;
        if (--q->n == 0) {
            char c;
            ASSERT(read(q->rd, &c, 1) == 1);
        }
    }
    lock_give(&q->lock);
    return item;
}

int queue_fd(const struct queue *q) {
    return q->rd;
}
