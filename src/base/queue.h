/* queue.h - a bounded queue of pointers between threads, with a file descriptor to poll.
 *
 * Any number of producers, one consumer. The queue owns nothing: what is pushed belongs to the
 * consumer once it is popped. The descriptor is readable while items may be waiting; queue_pop
 * drains it. */
#pragma once

#include "base/base.h"
#include "base/err.h"

struct queue;
/* cap: items it holds; NULL on failure (no descriptors left). */
struct queue *queue_new(u32 cap, struct err *e);
/* The queue must be empty or its items otherwise owned. */
void queue_free(struct queue *q);
/* False when it is full; never blocks. */
bool queue_push(struct queue *q, void *item);
/* NULL when empty. Consumer only. */
void *queue_pop(struct queue *q);
int queue_fd(const struct queue *q);
