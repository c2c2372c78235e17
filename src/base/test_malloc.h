/* test_malloc.h - the malloc of tests: aborts inside noalloc_begin and noalloc_end.
 *
 * Included by base/test.h, into the one source file of a test. With glibc the functions themselves
 * are replaced, with a sanitizer its hook is used; elsewhere nothing is checked. */
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include "base/noalloc.h"

static inline void test_malloc_check(void) {
    static const char TEXT[] = "memory was allocated where nothing may be (base/noalloc.h)\n";
    if (!noalloc_on()) return;
    (void)!write(2, TEXT, sizeof TEXT - 1);
    abort();
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void *, size_t),
                                              void (*on_free)(const volatile void *));
static inline void test_malloc_hook(const volatile void *p, size_t n) {
    (void)p;
    (void)n;
    test_malloc_check();
}
static inline void test_free_hook(const volatile void *p) {
    (void)p;
}
__attribute__((constructor)) static void test_malloc_install(void) {
    __sanitizer_install_malloc_and_free_hooks(test_malloc_hook, test_free_hook);
}
#define TEST_MALLOC_CHECKED 1
#elif defined(__GLIBC__)
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

void *malloc(size_t n) {
    test_malloc_check();
    return __libc_malloc(n);
}
void *calloc(size_t n, size_t size) {
    test_malloc_check();
    return __libc_calloc(n, size);
}
void *realloc(void *p, size_t n) {
    test_malloc_check();
    return __libc_realloc(p, n);
}
void *aligned_alloc(size_t align, size_t n) {
    test_malloc_check();
    return __libc_memalign(align, n);
}
#define TEST_MALLOC_CHECKED 1
#else
#define TEST_MALLOC_CHECKED 0
#endif
