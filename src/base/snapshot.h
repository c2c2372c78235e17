/* snapshot.h - an immutable text that one thread replaces and others read.
 *
 * Readers hold a reference to the version they took; it is freed when the last one lets go. */
#pragma once

#include "base/str.h"

struct snapshot_text {
    u32 refs; /* guarded by the cell's lock */
    size_t n;
    char p[]; /* NUL-terminated */
};
struct snapshot;

struct snapshot *snapshot_new(void);
/* All references must have been let go. */
void snapshot_free(struct snapshot *s);
/* Copies the text and makes it current. */
void snapshot_set(struct snapshot *s, struct view text);
/* The current text with a reference, never NULL ("" before the first set). */
const struct snapshot_text *snapshot_get(struct snapshot *s);
void snapshot_let_go(struct snapshot *s, const struct snapshot_text *t);
