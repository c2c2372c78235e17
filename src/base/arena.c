#include "base/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA_ALIGN = 16, ARENA_BLOCK_MIN = 256 };

struct arena_block {
    struct arena_block *next;
    size_t cap, used;
    _Alignas(ARENA_ALIGN) u8 data[];
};

static NORETURN void out_of_memory(size_t n) {
    fprintf(stderr, "skein: out of memory: %zu bytes asked for\n", n);
    abort();
}

void *xcalloc(size_t n, size_t size_bytes) {
    void *p = calloc(n ? n : 1, size_bytes ? size_bytes : 1);
    if (!p) out_of_memory(n * size_bytes);
    return p;
}

void *xrealloc(void *p, size_t size_bytes) {
    void *q = realloc(p, size_bytes ? size_bytes : 1);
    if (!q) out_of_memory(size_bytes);
    return q;
}

char *xstrdup(const char *s) {
    size_t n = strlen(s) + 1;
    return memcpy(xcalloc(n, 1), s, n);
}

void arena_deinit(struct arena *a) {
    struct arena_block *b = a->head;
    while (b) {
        struct arena_block *next = b->next;
        free(b);
        b = next;
    }
    *a = (struct arena){0};
}

void arena_reset(struct arena *a) {
    arena_deinit(a);
}

void *arena_alloc(struct arena *a, size_t size_bytes) {
    if (size_bytes > SIZE_MAX / 2) out_of_memory(size_bytes);
    size_t need = align_up(size_bytes ? size_bytes : 1, ARENA_ALIGN);
    struct arena_block *b = a->head;
    if (!b || b->cap - b->used < need) {
        size_t cap = MAX(need, b ? MIN(b->cap * 2, (size_t)1 << 20) : (size_t)ARENA_BLOCK_MIN);
        b = xcalloc(1, sizeof *b + cap);
        b->cap = cap;
        b->next = a->head;
        a->head = b;
    }
    void *p = b->data + b->used;
    b->used += need;
    a->used_bytes += size_bytes;
    return p;
}

void *arena_array(struct arena *a, size_t n, size_t size_bytes) {
    u64 total;
    if (!size_mul(n, size_bytes, &total)) out_of_memory(SIZE_MAX);
    return arena_alloc(a, total);
}

char *arena_memdup(struct arena *a, const void *p, size_t n) {
    char *q = arena_alloc(a, n + 1);
    if (n) memcpy(q, p, n);
    return q;
}

char *arena_strdup(struct arena *a, const char *s) {
    return arena_memdup(a, s, strlen(s));
}

char *arena_printf(struct arena *a, const char *fmt, ...) {
    va_list ap, ap2;
    va_start(ap, fmt);
    va_copy(ap2, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    ASSERT(n >= 0);
    char *p = arena_alloc(a, (size_t)n + 1);
    vsnprintf(p, (size_t)n + 1, fmt, ap2);
    va_end(ap2);
    return p;
}
