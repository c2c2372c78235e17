/* stops.h - text on its way to the client, held back where a stop string may be beginning.
 *
 * What stops_add lets out never contains a stop string nor a beginning of one that the next text
 * could complete; what is refuted is let out at once. Pure; one object per request. */
#pragma once

#include "base/str.h"

enum { STOPS_MAX = 16, STOP_BYTES_MAX = 1024 };

struct stops {
    struct str stop[STOPS_MAX];
    u32 n;
    struct str held;
};

void stops_deinit(struct stops *s);
/* False when there are too many, or one is empty or too long. */
bool stops_add_string(struct stops *s, struct view stop);

/* Appends to `out` what can be shown. Returns the index of the stop string that was met (its text
 * and all behind it is dropped), or -1. The earliest stop in the text wins, of several at one place
 * the longest. */
int stops_add(struct stops *s, struct view text, struct str *out);
/* The end without a stop: lets out what is held. */
void stops_end(struct stops *s, struct str *out);
