#include <stdio.h>

#include "base/clock.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/progress.h"

static int pull(const char *name, bool offline, bool quiet, struct err *e) {
    struct store *s = cli_store(offline, e);
    struct store_model m;
    struct progress p = {.what = name, .quiet = quiet};
    if (!s) return opts_fail(e);
    u64 start = clock_ms();
    bool there = store_resolve(s, name, &m, e), had = there && m.path[0];
    p.what = there ? m.id : name;
    bool ok = there && (had || store_fetch(s, name, progress_show, &p, &m, e));
    progress_end(&p);
    char size[32];
    if (ok && had)
        fprintf(stderr, "%s is there\n", m.id);
    else if (ok)
        fprintf(stderr, "%s: %s in %.1f s, sha256 right\n", m.id, size_text(m.size_bytes, size),
                (double)(clock_ms() - start) / 1e3);
    if (ok) printf("%s\n", m.path);
    store_close(s);
    return ok ? EXIT_OK : opts_fail(e);
}

static const char TEXT[] =
    "Each MODEL is a name that `skein models` lists. The sources of the catalogue are tried in\n"
    "their order. An interrupted download goes on where it stopped when the command is run again;\n"
    "size and sha256 are checked before the file gets its name. The path is printed.\n"
    "\n"
    "Examples:\n"
    "  skein pull smollm2\n"
    "  SKEIN_MODELS_DIR=/mnt/ssd/models skein pull gemma-3-270m";

int cmd_pull(int argc, char **argv) {
    bool offline = false, quiet = false;
    struct opt opts[] = {
        {"offline", OPT_FLAG, &offline, "only look whether it is there", .env = "OFFLINE"},
        {"quiet", OPT_FLAG, &quiet, "no progress bar", .letter = 'q'},
    };
    const struct opts_cmd cmd = {
        "pull", "MODEL...", "fetch models to this machine", TEXT, opts, ARRAY_LEN(opts), 1, -1};
    int n, code;
    struct err e = {0};
    if (!opts_parse(&cmd, argc, argv, &n, &code)) return code;
    if (cli_catch_interrupts(&e) < 0) return opts_fail(&e);
    code = EXIT_OK;
    for (int i = 0; i < n && code == EXIT_OK; i++) code = pull(argv[i], offline, quiet, &e);
    return code;
}
