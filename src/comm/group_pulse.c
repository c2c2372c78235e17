#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/group_internal.h"

enum { BEAT_MS = 100 };
/* What a byte says. */
enum { PULSE_BEAT, PULSE_BYE };

/* False when the connection is over. *heard: something arrived; *bye: its last word. */
static bool listen_to(int fd, bool *heard, bool *bye) {
    char bytes[64];
    for (;;) {
        ssize_t n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (n > 0) {
            *heard = true;
            *bye = *bye || memchr(bytes, PULSE_BYE, (size_t)n);
            continue;
        }
        if (n < 0 && errno == EINTR) continue;
        return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    }
}

/* One look at every peer; false when one is lost. late: this process itself stood still, so nobody
 * may be blamed. */
static bool beat(struct group *g, u64 heard_ms[GROUP_RANKS_MAX], u64 now_ms, bool send_now,
                 bool late) {
    for (u32 r = 0; r < g->n_ranks; r++) {
        int fd = g->ranks[r].pulse_fd;
        struct group_loss loss = {.rank = r};
        bool heard = late;
        if (fd < 0) continue;
        bool open = listen_to(fd, &heard, &loss.has_left) && !loss.has_left;
        if (heard) heard_ms[r] = now_ms;
        if (open && now_ms - heard_ms[r] <= g->silence_ms) {
            /* A full socket buffer is a silent peer; its silence is counted above. */
            if (send_now) send(fd, &(u8){PULSE_BEAT}, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
            continue;
        }
        if (open) loss.silent_ms = (u32)(now_ms - heard_ms[r]);
        ASSERT(write(g->lost[1], &loss, sizeof loss) == sizeof loss); /* the pipe is empty */
        return false;
    }
    return true;
}

static void *pulse_main(void *ctx) {
    struct group *g = ctx;
    struct pollfd p[GROUP_RANKS_MAX + 1];
    u64 heard_ms[GROUP_RANKS_MAX], last_ms = clock_ms(), beat_ms = 0;
    nfds_t n = 0;
    p[n++] = (struct pollfd){.fd = g->stop[0], .events = POLLIN};
    for (u32 r = 0; r < g->n_ranks; r++) {
        heard_ms[r] = last_ms;
        if (g->ranks[r].pulse_fd >= 0) {
            p[n++] = (struct pollfd){.fd = g->ranks[r].pulse_fd, .events = POLLIN};
        }
    }
    for (bool all_there = true; all_there;) {
        u64 now_ms = clock_ms();
        int timeout = now_ms >= beat_ms ? 0 : (int)(beat_ms - now_ms);
        poll(p, n, timeout);
        if (p[0].revents) return NULL;
        now_ms = clock_ms();
        bool send_now = now_ms >= beat_ms;
        if (send_now) beat_ms = now_ms + BEAT_MS;
        bool late = now_ms - last_ms > g->silence_ms / 2;
        all_there = beat(g, heard_ms, now_ms, send_now, late);
        last_ms = now_ms;
    }
    /* The group is over: the peers see it when it is freed. */
    return NULL;
}

bool group_pulse_start(struct group *g, struct err *e) {
    sigset_t all, before;
    if (pipe(g->stop) != 0 || pipe(g->lost) != 0) return err_errno(e, ERR_IO, "pipe");
    for (int i = 0; i < 2; i++) {
        if (!sock_prepare(g->stop[i]) || !sock_prepare(g->lost[i])) {
            return err_errno(e, ERR_IO, "pipe");
        }
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    g->has_pulse = pthread_create(&g->pulse, NULL, pulse_main, g) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return g->has_pulse || err_set(e, ERR_IO, "can't start the group's pulse thread");
}

/* Before the data connections close. What is unread would make the system throw the word away. */
static void say_bye(int fd) {
    char bytes[256];
    if (fd < 0) return;
    send(fd, &(u8){PULSE_BYE}, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    shutdown(fd, SHUT_WR);
    while (recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0) {
    }
}

void group_pulse_stop(struct group *g) {
    if (g->has_pulse) {
        ssize_t n = write(g->stop[1], "", 1);
        (void)n;
        pthread_join(g->pulse, NULL);
        for (u32 r = 0; r < g->n_ranks && g->leaves; r++) say_bye(g->ranks[r].pulse_fd);
    }
    for (int i = 0; i < 2; i++) {
        if (g->stop[i] >= 0) close(g->stop[i]);
        if (g->lost[i] >= 0) close(g->lost[i]);
    }
}
