/* lock.h - the mutex and condition that shared objects of base/ and the node's few shared tables
 * use.
 *
 * Mutexes appear in base/ and the kernel pool (style); other folders share through queue.h and
 * snapshot.h, which are built on this. */
#pragma once

#include <pthread.h>

#include "base/base.h"

struct lock {
    pthread_mutex_t m;
};
#define LOCK_INIT \
    { PTHREAD_MUTEX_INITIALIZER }

static inline void lock_init(struct lock *l) {
    ASSERT(pthread_mutex_init(&l->m, NULL) == 0);
}
static inline void lock_deinit(struct lock *l) {
    pthread_mutex_destroy(&l->m);
}
static inline void lock_take(struct lock *l) {
    ASSERT(pthread_mutex_lock(&l->m) == 0);
}
static inline void lock_give(struct lock *l) {
    ASSERT(pthread_mutex_unlock(&l->m) == 0);
}
