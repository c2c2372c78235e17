#include "formats/strtab.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

/* Multiply-and-fold over eight bytes at a time; vocabularies are short strings. */
static u32 hash(struct view s) {
    const u64 k = 0x9E3779B97F4A7C15u;
    u64 h = s.n * k;
    for (; s.n >= 8; s.p += 8, s.n -= 8) {
        u64 w;
        memcpy(&w, s.p, 8);
        h = (h ^ w) * k;
        h ^= h >> 29;
    }
    u64 w = 0;
    if (s.n > 0) memcpy(&w, s.p, s.n);
    h = (h ^ w) * k;
    return (u32)(h >> 32);
}

/* The slot that holds s, or the free one where it belongs. n_slots is a power of two > n. */
static u32 slot_of(const struct strtab *t, struct view s) {
    u32 i = hash(s) & (t->n_slots - 1);
    while (t->slot[i] != 0 && !view_eq(strtab_get(t, t->slot[i] - 1), s))
        i = (i + 1) & (t->n_slots - 1);
    return i;
}

static void grow_slots(struct strtab *t) {
    u32 n_slots = t->n_slots ? t->n_slots * 2 : 64;
    free(t->slot);
    t->slot = xcalloc(n_slots, sizeof *t->slot);
    t->n_slots = n_slots;
    for (u32 i = 0; i < t->n; i++) {
        struct view s = strtab_get(t, i);
        if (s.n > 0) t->slot[slot_of(t, s)] = i + 1;
    }
}

void strtab_deinit(struct strtab *t) {
    free(t->bytes);
    free(t->end);
    free(t->slot);
    *t = (struct strtab){0};
}

u32 strtab_add(struct strtab *t, struct view s) {
    ASSERT(s.n < UINT32_MAX - t->n_bytes && t->n < INT32_MAX);
    if (t->n == t->cap) {
        t->cap = t->cap ? t->cap * 2 : 64;
        t->end = xrealloc(t->end, t->cap * sizeof *t->end);
    }
    if (!t->bytes || t->n_bytes + s.n > t->cap_bytes) {
        u64 cap = MAX((u64)t->cap_bytes * 2, t->n_bytes + s.n + 256);
        t->cap_bytes = (u32)MIN(cap, UINT32_MAX);
        t->bytes = xrealloc(t->bytes, t->cap_bytes);
    }
    if (s.n > 0) memcpy(t->bytes + t->n_bytes, s.p, s.n);
    t->n_bytes += (u32)s.n;
    u32 i = t->n++;
    t->end[i] = t->n_bytes;
    if (t->n > t->n_slots / 2)
        grow_slots(t);
    else if (s.n > 0)
        t->slot[slot_of(t, s)] = i + 1;
    return i;
}

u32 strtab_intern(struct strtab *t, struct view s) {
    i64 i = strtab_find(t, s);
    return i >= 0 ? (u32)i : strtab_add(t, s);
}

i64 strtab_find(const struct strtab *t, struct view s) {
    if (t->n_slots == 0 || s.n == 0) return -1;
    return (i64)t->slot[slot_of(t, s)] - 1;
}

struct view strtab_get(const struct strtab *t, u32 i) {
    ASSERT(i < t->n);
    u32 start = i ? t->end[i - 1] : 0;
    return (struct view){t->bytes + start, t->end[i] - start};
}
