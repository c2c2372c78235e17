#include "kernels/cores.h"

#include <stdlib.h>

u32 cores_physical(const struct cores *c) {
    u32 n = 0;
    for (u32 i = 0; i < c->n; i++) n += c->core[i].second == 0;
    return MAX(n, 1u);
}

static int before(const void *a, const void *b) {
    const struct core *x = a, *y = b;
    if (x->second != y->second) return x->second < y->second ? -1 : 1;
    if (x->speed != y->speed) return x->speed > y->speed ? -1 : 1;
    return x->cpu - y->cpu;
}

void cores_sort(struct cores *c) {
    qsort(c->core, c->n, sizeof *c->core, before);
}

/* The next range of a list; false at its end and where it is none. */
static bool next_range(const char **p, u32 *lo, u32 *hi) {
    char *end;
    if (**p < '0' || **p > '9') return false;
    *lo = *hi = (u32)strtoul(*p, &end, 10);
    if (*end == '-') *hi = (u32)strtoul(end + 1, &end, 10);
    *p = *end == ',' ? end + 1 : end;
    return *hi >= *lo;
}

bool cores_list_has(const char *list, u32 cpu) {
    u32 lo, hi;
    while (next_range(&list, &lo, &hi))
        if (cpu >= lo && cpu <= hi) return true;
    return false;
}

u32 cores_list_first(const char *list) {
    u32 lo, hi;
    return next_range(&list, &lo, &hi) ? lo : UINT32_MAX;
}
