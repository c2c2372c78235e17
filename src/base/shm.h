/* shm.h - memory that two processes of one machine share, and the byte ring they put into it.
 *
 * One process makes the memory and tells the other its name, the other attaches, which removes the
 * name: nothing is left behind when both end. The ring is for one writer and one reader, each of
 * which may sleep; how the other wakes it (a byte on a socket) is the caller's business. A counter
 * that makes no sense is the other's fault and never leads outside the ring. */
#pragma once

#include "base/err.h"

enum { SHM_NAME_CAP = 32, SHM_HOST_CAP = 64 };

/* What tells this machine, since it was started, from all others. False where the system has no
 * such thing. */
bool shm_host_id(char out[SHM_HOST_CAP]);
/* Zeroed and really there: a full file system fails here and not at the first touch. NULL and *e.
 */
void *shm_make(size_t n_bytes, char name[SHM_NAME_CAP], struct err *e);
/* NULL and *e when there is none of this name and size, or it belongs to another user. */
void *shm_attach(const char *name, size_t n_bytes, struct err *e);
/* Removes a name that nobody attached to. */
void shm_forget(const char *name);
void shm_unmap(void *p, size_t n_bytes); /* NULL is allowed */

struct ring_shared;
struct ring {
    struct ring_shared *s;
    u64 cap; /* a power of two */
    u64 pos; /* our own counter, not yet published by a writer */
};

/* Bytes for a ring of cap (a power of two) bytes. */
size_t ring_bytes(u64 cap);
struct ring ring_at(void *mem, u64 cap);
/* Copies what fits and returns how much that was; visible to the reader after ring_publish. */
size_t ring_write(struct ring *r, const void *p, size_t n);
/* True when the reader sleeps: wake it. */
bool ring_publish(struct ring *r);
/* Bytes that can be read now; SIZE_MAX when the writer's counter makes no sense. */
size_t ring_ready(const struct ring *r);
/* n <= ring_ready. True when the writer sleeps for want of room: wake it. */
bool ring_read(struct ring *r, void *p, size_t n);
/* Where the next n <= ring_ready bytes lie, to be read there, and as many times as one likes; NULL
 * when they go round the ring's end. The writer owns that memory: it may change at any time. */
const u8 *ring_peek(const struct ring *r, size_t n);
/* ring_read without the reading. */
bool ring_skip(struct ring *r, size_t n);
/* Says that this side is going to sleep (or not any more). Look once more before you do: false when
 * there is something to read, or room to write. */
bool ring_reader_sleeps(struct ring *r, bool sleeps);
bool ring_writer_sleeps(struct ring *r, bool sleeps);
