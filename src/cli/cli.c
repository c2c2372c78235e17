#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

struct store *cli_store(bool offline, struct err *e) {
    struct store_cfg cfg = store_cfg_env();
    cfg.offline |= offline;
    return store_open(&cfg, e);
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
