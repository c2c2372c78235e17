#include <stdio.h>

#include "base/str.h"
#include "cli/cli.h"

static const char TEXT[] = "Deletes the file and what is left of an interrupted download. Files "
                           "outside the models folder\n"
                           "are not touched. A model that is wanted again is fetched again.\n"
                           "\n"
                           "Example:\n"
                           "  skein rm gemma-3-270m";

int cmd_rm(int argc, char **argv) {
    const struct opts_cmd cmd = {"rm", "MODEL...", "delete models from this machine", TEXT, NULL, 0,
                                 1,    -1};
    int n, code;
    struct err e = {0};
    if (!opts_parse(&cmd, argc, argv, &n, &code)) return code;
    struct store *s = cli_store(true, &e);
    if (!s) return opts_fail(&e);
    code = EXIT_OK;
    for (int i = 0; i < n && code == EXIT_OK; i++) {
        u64 freed;
        char size[32];
        if (store_remove(s, argv[i], &freed, &e))
            printf("%s: %s freed\n", argv[i], size_text(freed, size));
        else
            code = opts_fail(&e);
    }
    store_close(s);
    return code;
}
