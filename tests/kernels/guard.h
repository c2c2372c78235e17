/* guard.h - memory for tests that ends, or begins, at a page nobody may touch.
 *
 * A kernel that reads or writes one byte too far is killed on the spot, with or without a sanitizer
 * (vector intrinsics are not always instrumented). */
#pragma once

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/base.h"

struct guarded {
    u8 *map;
    size_t map_bytes;
};

enum { GUARD_PAGE = 16384 };

/* n bytes whose end is the page's end, up to `align`: so the last byte has fewer than `align` bytes
 * behind it. Filled with 0xFF (NaN in every float format). */
static inline void *guard_alloc(struct guarded *g, size_t n, size_t align) {
    size_t body = align_up(n + align, GUARD_PAGE);
    g->map_bytes = body + 2 * GUARD_PAGE;
    g->map = mmap(NULL, g->map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (g->map == MAP_FAILED || mprotect(g->map + GUARD_PAGE, body, PROT_READ | PROT_WRITE))
        abort();
    memset(g->map + GUARD_PAGE, 0xFF, body);
    return g->map + GUARD_PAGE + body - align_up(n, align);
}
static inline void guard_free(struct guarded *g) {
    munmap(g->map, g->map_bytes);
}
