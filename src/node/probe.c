#include "node/probe.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/lock.h"
#include "base/queue.h"

enum { EVERY_MS = 5000, FIRST_MS = 1000, STOP_MS = 1000, STACK_BYTES = 1 << 20 };

struct prober {
    pthread_t thread;
    u32 every_ms;
    struct queue *stop; /* anything in it ends the thread */
    struct queue *ended;
    struct lock lock; /* guards latest: the prober's thread writes it, the node's reads it */
    struct probe latest;
};

static void *probe_thread(void *arg) {
    struct prober *p = arg;
    struct probe_memory m = {0};
    for (u64 seq = 1;; seq++) {
        struct probe now = {.seq = seq};
        probe_look(&now, &m);
        lock_take(&p->lock);
        p->latest = now;
        lock_give(&p->lock);
        /* Rates need two looks: the second comes soon. */
        int wait = (int)(seq == 1 ? MIN(p->every_ms, FIRST_MS) : p->every_ms);
        poll(&(struct pollfd){queue_fd(p->stop), POLLIN, 0}, 1, wait);
        if (queue_pop(p->stop)) break;
    }
    probe_memory_deinit(&m);
    queue_push(p->ended, p);
    return NULL;
}

struct prober *probe_start(u32 every_ms, struct err *e) {
    struct prober *p = xcalloc(1, sizeof *p);
    pthread_attr_t attr;
    p->every_ms = every_ms ? every_ms : EVERY_MS;
    lock_init(&p->lock);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    p->stop = queue_new(1, e);
    p->ended = p->stop ? queue_new(1, e) : NULL;
    int no = p->ended ? pthread_create(&p->thread, &attr, probe_thread, p) : 0;
    pthread_attr_destroy(&attr);
    if (p->ended && no == 0) return p;
    if (no) err_set(e, ERR_IO, "can't start the prober's thread: %s", strerror(no));
    queue_free(p->stop);
    queue_free(p->ended);
    lock_deinit(&p->lock);
    free(p);
    return NULL;
}

void probe_stop(struct prober *p) {
    if (!p) return;
    queue_push(p->stop, p);
    poll(&(struct pollfd){queue_fd(p->ended), POLLIN, 0}, 1, STOP_MS);
    if (!queue_pop(p->ended)) return; /* it hangs in a driver; the process is about to end */
    pthread_join(p->thread, NULL);
    queue_free(p->stop);
    queue_free(p->ended);
    lock_deinit(&p->lock);
    free(p);
}

bool probe_take(struct prober *p, struct probe *out) {
    lock_take(&p->lock);
    bool newer = p->latest.seq > out->seq;
    if (newer) *out = p->latest;
    lock_give(&p->lock);
    return newer;
}
