/* log.h - one line per event: time, level, module, verb and key=value pairs.
 *
 *     log_info("node", "runner started pid=%d rank=%u", pid, rank);
 *
 * Goes to stderr and, when log_open_file was called, to a file. info is for state changes, debug
 * for the rest; nothing is logged per token. Any thread; lines are written whole. Prompts and
 * answers are never logged. */
#pragma once

#include "base/err.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG, LOG_LEVEL_N };

/* Level of stderr and of the file. Default: info on both. */
void log_set_level(enum log_level stderr_level, enum log_level file_level);
/* "error" "warn"/"warning" "info" "debug" in any case; ERR_ARG lists them. */
bool log_parse_level(const char *text, enum log_level *out, struct err *e);
/* Appends to path; over 16 MiB the old file becomes path.1 when it is opened. */
bool log_open_file(const char *path, struct err *e);
/* The same without that: for a runner that writes to its node's file. Lines are appended whole. */
bool log_join_file(const char *path, struct err *e);
void log_close_file(void);
/* Name put before the module in every line, to tell processes apart: "runner 1a2b/0". */
void log_set_process(const char *name);
bool log_enabled(enum log_level level);

void log_line(enum log_level level, const char *module, const char *fmt, ...) PRINTF_LIKE(3, 4);
#define log_error(module, ...) log_line(LOG_ERROR, module, __VA_ARGS__)
#define log_warn(module, ...)  log_line(LOG_WARN, module, __VA_ARGS__)
#define log_info(module, ...)  log_line(LOG_INFO, module, __VA_ARGS__)
#define log_debug(module, ...) log_line(LOG_DEBUG, module, __VA_ARGS__)
