#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/daemon.h"

static const char TEXT[] =
    "Before maintenance: the node gets no new work, and what runs there moves to the others as "
    "soon as\n"
    "there is room, without an interruption. `skein ps` shows when it is empty.\n"
    "\n"
    "Examples:\n"
    "  skein drain mini\n"
    "  skein drain --undo mini                   or: skein undrain mini";

int cmd_drain(int argc, char **argv) {
    struct daemon d = daemon_default();
    bool undo = strcmp(argv[0], "undrain") == 0;
    struct opt opts[] = {DAEMON_OPTS(&d), {"undo", OPT_FLAG, &undo, .help = "give it work again"}};
    const struct opts_cmd cmd = {"drain", "NODE", "move work away from a node, for maintenance",
                                 TEXT,    opts,   ARRAY_LEN(opts),
                                 1,       1};
    int n, code;
    struct err e = {0};
    if (!opts_parse(&cmd, argc, argv, &n, &code)) return code;
    if (!daemon_node(&d, undo ? "undrain" : "drain", argv[0], &e)) return opts_fail(&e);
    printf(undo ? "%s gets work again\n" : "%s gets no new work; what runs there moves away\n",
           argv[0]);
    return EXIT_OK;
}
