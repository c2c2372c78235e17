/* link_internal.h - shared by the meter's files. All of it runs on the meter's thread, except what
 * the lock guards. */
#pragma once

#include "base/lock.h"
#include "base/queue.h"
#include "net/link.h"

enum { LINK_CHUNK_BYTES = 256 << 10 };

/* A peer and when it is measured next. */
struct link_target {
    struct link_peer p;
    u64 due_ms;
    u32 n_failed;
    bool was_measured;
};

struct link_meter {
    struct link_cfg cfg;
    pthread_t thread;
    int listen_fd, udp_fd;
    u16 port, udp_port;
    struct queue *wake, *results;
    struct lock lock; /* guards wanted to wanted_changed, which the owner's thread sets */
    struct link_peer *wanted;
    u32 n_wanted;
    bool stop, computing, busy, wanted_changed;
    /* of the thread: */
    struct link_target *targets;
    u32 n_targets;
    u64 n_draws;
    u8 *chunk; /* [LINK_CHUNK_BYTES] */
};

enum link_wait { LINK_READY, LINK_LATE, LINK_STOPPED };
/* Waits for the descriptor, meanwhile telling others to come again. */
enum link_wait link_wait_fd(struct link_meter *m, int fd, short events, u64 deadline_ms);
/* Whole buffers, or false with the reason in *e. */
bool link_send_all(struct link_meter *m, int fd, const void *p, size_t n, u64 deadline_ms,
                   struct err *e);
bool link_recv_all(struct link_meter *m, int fd, void *p, size_t n, u64 deadline_ms, struct err *e);
bool link_is_stopping(struct link_meter *m);
bool link_is_computing(struct link_meter *m);

/* link_serve.c: one session from greeting to end. Closes fd. */
void link_serve(struct link_meter *m, int fd);
/* Greets with LINK_TAKEN and closes. */
void link_turn_away(struct link_meter *m, int fd);
/* link_measure.c. False with ERR_BUSY: come again soon; with another code: it can't be measured. */
bool link_measure(struct link_meter *m, const struct link_target *t, struct link_result *r,
                  struct err *e);

/* link_linux.c, link_darwin.c: the largest packet for this connection as the system knows it; 0:
 * it does not tell. Datagrams are not cut on their way. */
u32 link_os_mtu(int tcp_fd, bool v6);
bool link_os_dont_fragment(int udp_fd, bool v6);
