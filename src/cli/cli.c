#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"

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

bool cli_node_model(const char *name, char out[CLI_PATH_MAX], struct err *e) {
    char real[PATH_MAX], other[PATH_MAX];
    struct arena a = {0};
    struct store_model file = {0};
    struct stat st;
    u32 n = 0;
    if (!str_copy(out, CLI_PATH_MAX, name)) return err_set(e, ERR_ARG, "the name is too long");
    if (!strchr(name, '/') || !realpath(name, real) || stat(real, &st) != 0 || !S_ISREG(st.st_mode))
        return true;
    struct store *s = cli_store(true, e);
    if (!s) return false;
    const struct store_model *m = store_list(s, &a, &n);
    bool known = store_resolve_name(s, name, &file, NULL);
    for (u32 i = 0; i < n && !known; i++) {
        known = *m[i].path && realpath(m[i].path, other) && strcmp(other, real) == 0;
        if (known) str_copy(out, CLI_PATH_MAX, m[i].id);
    }
    bool is = known || store_resolve(s, name, &file, e);
    if (is && !known)
        err_set(e, ERR_ARG,
                "nodes know models by name, and %.300s lies in no models folder here: put it (or a "
                "link to it) into %.300s, then its name is %.90s. `skein run` takes it as it is",
                name, store_dir(s), file.id);
    store_close(s);
    arena_deinit(&a);
    return known;
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
