/* strtab.h - strings numbered in the order in which they come, and found by their bytes.
 *
 * The tokenizers' vocabulary: entry i is token i. Owns copies of all bytes in one block. Zeroed is
 * valid and empty. Growing is for one thread; a finished table may be read by any number. The
 * caller keeps the sum of all bytes below 4 GiB and the count below 2^31. */
#pragma once

#include "base/base.h"
#include "base/str.h"

struct strtab {
    char *bytes;
    u32 *end;  /* [n] where entry i ends in bytes; it begins where i - 1 ends */
    u32 *slot; /* [n_slots] open addressing: index + 1, 0 is free */
    u32 n, cap, n_slots;
    u32 n_bytes, cap_bytes;
};

void strtab_deinit(struct strtab *t);
/* Appends s as entry n, also when it is there already: the newest of equal entries is found. An
 * empty string gets its number, but is never found. */
u32 strtab_add(struct strtab *t, struct view s);
/* The number of an equal entry, or of a new one. */
u32 strtab_intern(struct strtab *t, struct view s);
/* -1 where there is none. */
i64 strtab_find(const struct strtab *t, struct view s);
struct view strtab_get(const struct strtab *t, u32 i);
