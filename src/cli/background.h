/* background.h - a node that outlives its terminal: `skein up --daemon`, and what `skein down`
 * looks for. Main thread, before any other thread is started. */
#pragma once

#include "base/err.h"

/* Goes into the background. True in the new process, which still has the terminal's output until
 * background_ready. False in the one that was called, with the exit code in *code, once the new one
 * is ready or has failed; or when there is no new one (*e). */
bool background_start(int *code, struct err *e);
/* The node serves: the caller's process may end. */
void background_ready(void);

/* The process that holds a data folder's lock; 0: none does. */
int background_pid(const char *data_dir, struct err *e);
bool background_write_pid(const char *path, struct err *e);
