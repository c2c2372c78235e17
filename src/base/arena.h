/* arena.h - many small allocations with one lifetime.
 *
 * An arena belongs to one load or one request and to one thread. Memory comes back zeroed, aligned
 * to 16 bytes, and lives until arena_deinit. A zeroed struct arena is valid and empty. Running out
 * of memory for small control-plane objects is not something a caller can handle: it aborts with a
 * message. Sizes that come from outside are checked against a limit before they get here. */
#pragma once

#include "base/base.h"

struct arena_block;
struct arena {
    struct arena_block *head;
    size_t used_bytes; /* sum of what was asked for */
};

void arena_deinit(struct arena *a);
/* Frees everything; the arena is empty and valid again. */
void arena_reset(struct arena *a);
void *arena_alloc(struct arena *a, size_t size_bytes);
/* n * size with an overflow check (aborts). */
void *arena_array(struct arena *a, size_t n, size_t size_bytes);
/* NUL-terminated copies. */
char *arena_strdup(struct arena *a, const char *s);
char *arena_memdup(struct arena *a, const void *p, size_t n);
char *arena_printf(struct arena *a, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Heap with the same rule (abort when the system has none): for long-lived control objects. */
void *xcalloc(size_t n, size_t size_bytes);
void *xrealloc(void *p, size_t size_bytes);
char *xstrdup(const char *s);
