#include "kernels/mem.h"

#include <sys/mman.h>

#include "base/str.h"

enum { HUGE_PAGE = 2 << 20 };

void *mem_map(u64 bytes, const char *what, struct err *e) {
    char size[32];
    u64 slack = bytes >= HUGE_PAGE ? HUGE_PAGE : 0, n = bytes ? bytes : 1;
    u8 *p = MAP_FAILED;
    if (n <= SIZE_MAX / 2)
        p = mmap(NULL, n + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        err_set(e, ERR_MEMORY, "no memory for %s: %s needed", what, size_text(bytes, size));
        return NULL;
    }
    if (slack) {
        /* Cut the mapping down to a huge-page boundary at the front, and the rest at the back. */
        u64 front = align_up((uintptr_t)p, HUGE_PAGE) - (uintptr_t)p;
        u64 end = align_up(front + n, 4096);
        if (front) munmap(p, front);
        if (end < n + slack) munmap(p + end, n + slack - end);
        p += front;
#ifdef MADV_HUGEPAGE
        madvise(p, n, MADV_HUGEPAGE);
#endif
    }
    return p;
}

void mem_unmap(void *p, u64 bytes) {
    if (p) munmap(p, bytes ? bytes : 1);
}
