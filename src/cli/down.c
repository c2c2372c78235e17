#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/paths.h"
#include "cli/background.h"
#include "cli/cli.h"

enum { POLL_MS = 50 };

static bool wait_gone(const char *dir, u32 seconds) {
    for (u64 end = clock_ms() + (u64)seconds * 1000; clock_ms() < end; clock_sleep_ms(POLL_MS))
        if (!background_pid(dir, NULL)) return true;
    return !background_pid(dir, NULL);
}

static int down(const char *dir, u32 seconds, bool force) {
    struct err e = {0};
    int pid = background_pid(dir, &e);
    if (!pid) {
        if (!e.code)
            err_set(&e, ERR_NOT_FOUND,
                    "no node runs on the data folder %s: --data-dir names another", dir);
        return opts_fail(&e);
    }
    if (kill(pid, SIGTERM) != 0 && errno != ESRCH) {
        err_errno(&e, ERR_IO, "can't stop process %d", pid);
        return opts_fail(&e);
    }
    bool gone = wait_gone(dir, seconds);
    if (!gone && force) {
        kill(pid, SIGKILL);
        gone = wait_gone(dir, 5);
    }
    if (!gone) {
        err_set(&e, ERR_BUSY, "process %d has not ended after %u s: --force kills it", pid,
                seconds);
        return opts_fail(&e);
    }
    printf("stopped process %d\n", pid);
    return EXIT_OK;
}

static const char TEXT[] = "Stops the node that runs on this machine with this data folder, in the "
                           "background or not.\nRequests that it serves get a word; instances move "
                           "to the other nodes.\n\n"
                           "Examples:\n  skein down\n  skein down --data-dir /tmp/two";

int cmd_down(int argc, char **argv) {
    const char *dir = NULL;
    u32 seconds = 20;
    bool force = false;
    struct opt opts[] = {
        {"data-dir", OPT_STR, &dir, "the node's data folder", .value = "DIR", .env = "DATA_DIR"},
        {"timeout", OPT_U32, &seconds, "how long to wait for its end (20)", .value = "SECONDS",
         .min = 1, .max = 3600},
        {"force", OPT_FLAG, &force, .help = "kill it when it has not ended by then"},
    };
    const struct opts_cmd cmd = {
        "down", NULL, "stop the node of this machine", TEXT, opts, ARRAY_LEN(opts), 0, 0};
    int n, code;
    struct paths p;
    struct err e = {0};
    if (!opts_parse(&cmd, argc, argv, &n, &code)) return code;
    if (!dir && !paths_init(&p, NULL, &e)) return opts_fail(&e);
    return down(dir ? dir : p.state, seconds, force);
}
