/* chat.h - asking a loaded model: one answer, or a conversation. Main thread. */
#pragma once

#include "cli/session.h"

struct ask {
    struct msg_sampling sampling;
    u32 max_tokens;     /* 0: up to the context's end */
    const char *system; /* NULL: none */
    bool raw;           /* the text as it is, without the chat template */
    bool verbose;       /* timings on stderr */
};

/* One question, its answer on stdout with a newline at the end. Returns the exit status. */
int chat_once(struct session *s, const struct ask *ask, const char *prompt);

/* Reads messages until the end of input or /exit. With a terminal: line editing, history (kept in
 * history_path, NULL: not kept), and Ctrl-C that stops an answer or, twice at the prompt, leaves.
 * Returns the exit status. */
int chat_loop(struct session *s, const struct ask *ask, const char *history_path);
