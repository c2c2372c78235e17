/* line.h - lines that somebody types: libedit with history on a terminal, plain reading elsewhere.
 * Main thread. */
#pragma once

#include "base/base.h"

struct line;
enum line_result { LINE_OK, LINE_END, LINE_INTERRUPTED };

/* history_path: loaded now, saved by line_close; NULL: not kept. Never fails: without a terminal,
 * or where libedit can't start, lines are read plainly and no prompt is shown. */
struct line *line_open(const char *history_path);
void line_close(struct line *l);
/* *text without its newline, valid until the next call. LINE_INTERRUPTED: Ctrl-C
 * (cli_catch_interrupts). */
enum line_result line_read(struct line *l, const char *prompt, const char **text);
void line_remember(struct line *l, const char *text);
