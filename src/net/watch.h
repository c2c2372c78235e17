/* watch.h - one pollable descriptor over many: epoll on Linux, kqueue on macOS.
 *
 * One thread waits; watch_add and watch_del may be called from others meanwhile. A descriptor has
 * to be taken out before it is closed. */
#pragma once

#include "base/err.h"

enum watch_for {
    WATCH_READ, /* readable: reported again and again until it is not */
    WATCH_GONE, /* the peer closed its sending side or the connection: reported once */
};

struct watch;

struct watch *watch_new(struct err *e);
void watch_free(struct watch *w);
/* Itself readable when something is to be reported: a watch can be polled, or watched. */
int watch_fd(const struct watch *w);
bool watch_add(struct watch *w, int fd, enum watch_for what, u64 id, struct err *e);
void watch_del(struct watch *w, int fd);
/* Fills ids with what was given to watch_add; returns how many, 0 when the time is over. timeout_ms
 * -1: for ever. */
int watch_wait(struct watch *w, int timeout_ms, u64 *ids, int max);
