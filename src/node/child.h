/* child.h - one `skein runner` process and the channel to it.
 *
 * child_spawn starts `program runner --fd 3` with a socket pair as descriptor 3; messages of
 * wire/msg.h travel on it in frames. The runner ends when the channel closes and dies with its
 * parent. It ignores SIGINT: Ctrl-C is its parent's business. Writes never block: what the socket
 * does not take waits in memory until child_flush. A struct child belongs to the thread that
 * spawned it (the kernel ties the child's life to that thread). */
#pragma once

#include "base/err.h"
#include "wire/frame.h"

struct child;

/* program: path of the binary, NULL for this one. label names the runner in errors ("runner of
 * smollm2"). NULL and *e when the process can't be started. */
struct child *child_spawn(const char *program, const char *label, struct err *e);
/* Closes the channel, waits up to grace_ms for the process to end, then kills it. Reaps it. NULL is
 * fine. */
void child_close(struct child *c, u32 grace_ms);

/* Closes the channel without waiting; child_gone is then asked now and then until it is true (the
 * process is reaped; after grace_ms it is killed), and child_close frees the rest at no delay. */
void child_hangup(struct child *c, u32 grace_ms);
bool child_gone(struct child *c);

/* For how long the process has stood still under SIGSTOP or the like; 0: it runs. Ask it often. */
u64 child_stopped_ms(struct child *c);
/* Ends a process that stands still: child_recv then gives -1 and says so. */
void child_kill_stopped(struct child *c);

int child_pid(const struct child *c);
/* For poll(); child_events is POLLIN, with POLLOUT while something waits to be written. -1 after
 * the end. */
int child_fd(const struct child *c);
short child_events(const struct child *c);

/* Encodes the message of `type` (wire/msg.h; msg NULL for one without a body) and sends what the
 * socket takes. A broken channel is not an error here: child_recv tells how the process ended. */
void child_send(struct child *c, u32 type, const void *msg);
/* A body that is encoded already. */
void child_send_bytes(struct child *c, u32 type, const void *body, size_t n);
/* Writes more of what waits; after POLLOUT. */
void child_flush(struct child *c);

/* One frame without blocking. 1: *out filled, valid until the next call; 0: none yet; -1: the
 * runner is gone, and *e says how ("runner of smollm2 was killed by signal 9 (out of memory?)"). */
int child_recv(struct child *c, struct frame *out, struct err *e);
/* The same, waiting up to timeout_ms (-1: for ever) and flushing meanwhile. wake_fd >= 0: returns 0
 * as soon as it is readable. For commands that own a runner without a node. */
int child_wait(struct child *c, int timeout_ms, int wake_fd, struct frame *out, struct err *e);
