/* progress.h - a download as people see it: one line with bar, size, rate and time left.
 *
 * On a terminal the line is drawn over and over; elsewhere a line is printed every few seconds.
 * Writes to stderr. Main thread. */
#pragma once

#include "node/store.h"

struct progress {
    const char *what; /* "smollm2-135m-instruct", borrowed */
    bool quiet;       /* notes only */
    u64 shown_ms;     /* when the last line was printed */
    enum store_phase phase;
    u32 width; /* of the line that stands there now; 0: none */
};

/* For store_fetch: draws, and says stop when Ctrl-C was pressed (cli_catch_interrupts). ctx is a
 * struct progress. */
bool progress_show(const struct store_progress *p, void *ctx);
/* Ends the line that stands there. */
void progress_end(struct progress *s);

/* The line itself, without colours: "  41% [====>     ] 39.1 MiB of 93.8 MiB  12.4 MiB/s  4 s
 * left". */
void progress_text(const struct store_progress *p, u32 columns, char *out, size_t cap);
