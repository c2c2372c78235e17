#include "base/shm.h"

#include <string.h>
#include <sys/mman.h>

/* Each side's counter on a cache line of its own. head counts what was written, tail what was read;
 * the writer owns head, the reader tail. The flags are set by who sleeps and cleared by who wakes
 * it: a counter is stored before the other's flag is read, and a flag before the counter is read
 * again, all sequentially consistent, so that one of the two sees the other. */
struct ring_shared {
    _Alignas(64) u64 head;
    _Alignas(64) u64 tail;
    _Alignas(64) u32 reader_sleeps;
    _Alignas(64) u32 writer_sleeps;
    _Alignas(64) u8 data[];
};

size_t ring_bytes(u64 cap) {
    return sizeof(struct ring_shared) + cap;
}

struct ring ring_at(void *mem, u64 cap) {
    return (struct ring){.s = mem, .cap = cap};
}

static void copy_in(struct ring *r, const u8 *p, size_t n) {
    size_t at = r->pos & (r->cap - 1), part = MIN(n, (size_t)(r->cap - at));
    memcpy(r->s->data + at, p, part);
    memcpy(r->s->data, p + part, n - part);
}

static size_t room(const struct ring *r) {
    u64 used = r->pos - __atomic_load_n(&r->s->tail, __ATOMIC_ACQUIRE);
    return used > r->cap ? 0 : (size_t)(r->cap - used);
}

size_t ring_write(struct ring *r, const void *p, size_t n) {
    size_t most = room(r), take = MIN(n, most); /* read once: the reader makes room meanwhile */
    copy_in(r, p, take);
    r->pos += take;
    return take;
}

/* Who slept is woken once. */
static bool wake(u32 *flag) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return __atomic_load_n(flag, __ATOMIC_RELAXED) &&
           __atomic_exchange_n(flag, 0, __ATOMIC_SEQ_CST);
}

bool ring_publish(struct ring *r) {
    __atomic_store_n(&r->s->head, r->pos, __ATOMIC_RELEASE);
    return wake(&r->s->reader_sleeps);
}

size_t ring_ready(const struct ring *r) {
    u64 n = __atomic_load_n(&r->s->head, __ATOMIC_ACQUIRE) - r->pos;
    return n > r->cap ? SIZE_MAX : (size_t)n;
}

bool ring_read(struct ring *r, void *p, size_t n) {
    size_t at = r->pos & (r->cap - 1), part = MIN(n, (size_t)(r->cap - at));
    memcpy(p, r->s->data + at, part);
    memcpy((u8 *)p + part, r->s->data, n - part);
    return ring_skip(r, n);
}

const u8 *ring_peek(const struct ring *r, size_t n) {
    size_t at = r->pos & (r->cap - 1);
    return n <= r->cap - at ? r->s->data + at : NULL;
}

bool ring_skip(struct ring *r, size_t n) {
    r->pos += n;
    __atomic_store_n(&r->s->tail, r->pos, __ATOMIC_RELEASE);
    return wake(&r->s->writer_sleeps);
}

bool ring_reader_sleeps(struct ring *r, bool sleeps) {
    __atomic_store_n(&r->s->reader_sleeps, sleeps, __ATOMIC_SEQ_CST);
    return !sleeps || __atomic_load_n(&r->s->head, __ATOMIC_SEQ_CST) == r->pos;
}

bool ring_writer_sleeps(struct ring *r, bool sleeps) {
    __atomic_store_n(&r->s->writer_sleeps, sleeps, __ATOMIC_SEQ_CST);
    return !sleeps || r->pos - __atomic_load_n(&r->s->tail, __ATOMIC_SEQ_CST) >= r->cap;
}

void shm_unmap(void *p, size_t n_bytes) {
    if (p) munmap(p, n_bytes);
}

void shm_forget(const char *name) {
    shm_unlink(name);
}
