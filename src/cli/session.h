/* session.h - one model in one runner process, for commands that answer without a node.
 *
 * Opening starts the runner and loads the whole model into it; then requests go one after the
 * other. Everything blocks the main thread, but Ctrl-C (cli.h) ends a load with ERR_CANCELLED and
 * an answer early with what it has so far. */
#pragma once

#include "base/arena.h"
#include "node/child.h"
#include "wire/msg.h"

struct session_cfg {
    const char *path, *label; /* model file; what errors call it */
    u32 n_ctx, n_threads;     /* 0: as much as makes sense */
    const char *kv_type;      /* "f16" or "q8" */
    u32 act_bits;             /* 16 or 8 */
    const char *cpu_mask;     /* NULL: what the machine has */
    bool show_loading;        /* on stderr, when it takes long */
};

struct session {
    struct child *child;
    int wake_fd;
    struct arena arena; /* what ready points to */
    struct msg_ready ready;
    u64 last_id;
};

/* wake_fd: cli_catch_interrupts. False: nothing is left open. */
bool session_open(struct session *s, const struct session_cfg *cfg, int wake_fd, struct err *e);
void session_close(struct session *s);

/* Text as it comes; valid UTF-8, never empty. */
typedef void session_text_fn(void *ctx, const char *text);
/* m->id is chosen here. True with *done also when Ctrl-C cut it short (FINISH_CANCELLED);
 * done->stop is not kept. False: this request failed (ERR_CONTEXT, ...) or the runner is gone
 * (session_alive). */
bool session_generate(struct session *s, struct msg_generate *m, session_text_fn *text, void *ctx,
                      struct msg_done *done, struct err *e);
bool session_alive(const struct session *s);
