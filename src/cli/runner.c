#include "runner/runner.h"

#include <stdlib.h>

#include "base/log.h"
#include "cli/cli.h"

/* Started by a node or by `skein run`, never by people. */
int cmd_runner(int argc, char **argv) {
    u32 fd = 0;
    struct opt opts[] = {{"fd", OPT_U32, &fd, "descriptor of the channel to the node", .value = "N",
                          .min = 3, .max = 1024}};
    const struct opts_cmd cmd = {
        "runner", NULL, "serve one shard for a node (internal)", NULL, opts, ARRAY_LEN(opts), 0, 0};
    int n, code;
    if (!opts_parse(&cmd, argc, argv, &n, &code)) return code;
    if (!fd)
        return opts_fail(
            &(struct err){ERR_ARG, "the runner is started by skein itself (--fd is missing)"});
    const char *log = getenv("SKEIN_RUNNER_LOG"); /* set by cmd_up */
    if (log) log_join_file(log, NULL);
    /* Standard error has the lines too, unless the node is to be quiet. */
    if (log && getenv("SKEIN_RUNNER_QUIET")) log_set_level(LOG_WARN, LOG_INFO);
    return runner_main((int)fd);
}
