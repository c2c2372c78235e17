/* runner.h - the process that owns one shard: `skein runner --fd N`.
 *
 * It talks to the node (or to `skein run`) over one socket with the messages of wire/msg.h, and to
 * the other ranks of its instance over comm/. One thread does everything in a loop: read messages,
 * compute a step, pass it on; the kernel pool's workers help it inside a step. Rank 0 owns the
 * tokenizer, the template and the scheduler; the last rank samples. Errors of one request go to
 * that request; when the shard itself can't go on (file, memory, a lost rank) the runner says
 * MSG_FAILED and exits. */
#pragma once

#include "base/err.h"
#include "model/model_file.h"
#include "wire/msg.h"

/* Serves the channel until it closes. Returns the process's exit status. */
int runner_main(int fd);

/* What MSG_DESCRIBED says of an open file. Lists and texts live in a, or in *m. */
bool runner_describe(const struct model_file *f, const struct msg_describe *m, struct arena *a,
                     struct msg_described *d, struct err *e);
