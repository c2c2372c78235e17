#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { STDIN_MAX_BYTES = 16 << 20 };

struct store *cli_store(bool offline, struct err *e) {
    struct store_cfg cfg = store_cfg_env();
    cfg.offline |= offline;
    return store_open(&cfg, e);
}

bool cli_model_path(const char *name, char path[CLI_PATH_MAX], struct err *e) {
    if (strchr(name, '/') || access(name, F_OK) == 0)
        return str_copy(path, CLI_PATH_MAX, name) || err_set(e, ERR_ARG, "the path is too long");
    struct store *s = cli_store(true, e);
    struct store_model m = {0};
    bool ok = s && store_resolve(s, name, &m, e);
    if (ok && !m.path[0])
        ok = err_set(e, ERR_NOT_FOUND, "%s is not on this machine: fetch it with `skein pull %s`",
                     m.id, name);
    store_close(s);
    if (ok) str_copy(path, CLI_PATH_MAX, m.path);
    return ok;
}

void cli_print(const char *text) {
    struct err e = {0};
    if (fputs(text, stdout) >= 0 && fflush(stdout) == 0) return;
    if (errno == EPIPE) _exit(128 + SIGPIPE);
    err_errno(&e, ERR_IO, "standard output");
    _exit(opts_fail(&e));
}

static bool add_stdin(struct str *out, struct err *e) {
    char piece[65536];
    size_t n;
    while ((n = fread(piece, 1, sizeof piece, stdin)) > 0) {
        str_add(out, piece, n);
        if (out->n > STDIN_MAX_BYTES)
            return err_set(e, ERR_LIMIT, "more than %d bytes on standard input",
                           (int)STDIN_MAX_BYTES);
    }
    if (ferror(stdin)) return err_errno(e, ERR_IO, "standard input");
    if (out->n && memchr(out->p, 0, out->n))
        return err_set(e, ERR_ARG, "standard input holds NUL bytes: that is no text");
    return true;
}

bool cli_prompt(int n, char **words, struct str *out, struct err *e) {
    if (n == 0) return add_stdin(out, e);
    for (int i = 0; i < n; i++) {
        if (i) str_addc(out, ' ');
        if (strcmp(words[i], "-") != 0)
            str_addz(out, words[i]);
        else if (!add_stdin(out, e))
            return false;
    }
    return true;
}

/* Written by the signal handler, read by the main thread. */
static int wake[2] = {-1, -1};
static volatile sig_atomic_t n_interrupts;

static void on_signal(int sig) {
    int saved = errno;
    if (sig == SIGTERM || n_interrupts > 0) _exit(128 + sig);
    n_interrupts = n_interrupts + 1;
    if (write(wake[1], "!", 1) < 0) n_interrupts = 1; /* a full pipe is readable too */
    errno = saved;
}

int cli_catch_interrupts(struct err *e) {
    struct sigaction sa = {.sa_handler = on_signal};
    if (pipe(wake) != 0) {
        err_errno(e, ERR_IO, "pipe");
        return -1;
    }
    for (int i = 0; i < 2; i++) {
        fcntl(wake[i], F_SETFD, FD_CLOEXEC);
        fcntl(wake[i], F_SETFL, O_NONBLOCK);
    }
    sigemptyset(&sa.sa_mask);
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    return wake[0];
}

u32 cli_interrupts(bool clear) {
    u32 n = (u32)n_interrupts;
    char drop[16];
    if (clear) {
        while (read(wake[0], drop, sizeof drop) > 0) {
        }
        n_interrupts = 0;
    }
    return n;
}
