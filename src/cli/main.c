/* skein's main: finds the command. Called or linked as `exo` it does the same, and without a
 * command, or with options only, it starts a node, as people who type `exo` expect. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/paths.h"
#include "base/similar.h"
#include "base/version.h"
#include "cli/cli.h"

static cmd_fn cmd_help, cmd_version;

static const struct command {
    const char *name;
    cmd_fn *run;
    const char *summary; /* NULL: not listed */
} COMMANDS[] = {
    {"run", cmd_run, "ask a model on this machine, or chat with it"},
    {"up", cmd_up, "start a node: cluster, HTTP API, web page"},
    {"down", cmd_down, "stop the node of this machine"},
    {"cluster", cmd_cluster, "make a cluster of the machines in a file"},
    {"ask", cmd_ask, "ask a running node"},
    {"launch", cmd_launch, "load a model onto a running cluster"},
    {"stop", cmd_stop, "unload a model from a running cluster"},
    {"plan", cmd_plan, "show where a model could go, and how fast it would be"},
    {"explain", cmd_explain, "show a forward pass, operation by operation"},
    {"drain", cmd_drain, "move work away from a node, for maintenance"},
    {"nodes", cmd_nodes, "list the nodes of a running cluster"},
    {"ps", cmd_ps, "list the models a running cluster serves"},
    {"models", cmd_models, "list the models that can be had and those on this machine"},
    {"pull", cmd_pull, "fetch models to this machine"},
    {"rm", cmd_rm, "delete models from this machine"},
    {"inspect", cmd_inspect, "show what is in a model file"},
    {"bench", cmd_bench, "measure how fast a model runs here"},
    {"doctor", cmd_doctor, "find out what is wrong with machine and network"},
    {"version", cmd_version, "show the version"},
    {"help", cmd_help, "show this page, or a command's"},
    {"chat", cmd_run, NULL},
    {"place", cmd_launch, NULL},
    {"list", cmd_models, NULL},
    {"ls", cmd_models, NULL},
    {"serve", cmd_up, NULL},
    {"undrain", cmd_drain, NULL},
    {"runner", cmd_runner, NULL},
};

static const struct command *find_command(const char *name) {
    for (u32 i = 0; i < ARRAY_LEN(COMMANDS); i++)
        if (strcmp(COMMANDS[i].name, name) == 0) return &COMMANDS[i];
    return NULL;
}

static int unknown_command(const char *name) {
    struct similar near = similar_to(name);
    for (u32 i = 0; i < ARRAY_LEN(COMMANDS); i++)
        if (COMMANDS[i].summary) similar_offer(&near, COMMANDS[i].name);
    if (near.best)
        fprintf(stderr, "skein: there is no command %s: did you mean %s?\n", name, near.best);
    else
        fprintf(stderr, "skein: there is no command %s: `skein help` lists them\n", name);
    return EXIT_USAGE;
}

static int overview(FILE *to, int code) {
    fprintf(to, "skein: one LLM server out of the machines you have\n\n"
                "Usage: skein COMMAND [OPTIONS] [ARGUMENTS]\n\nCommands:\n");
    for (u32 i = 0; i < ARRAY_LEN(COMMANDS); i++)
        if (COMMANDS[i].summary) fprintf(to, "  %-10s %s\n", COMMANDS[i].name, COMMANDS[i].summary);
    fprintf(to, "\nFirst steps:\n"
                "  skein run smollm2 \"Why is the sky blue?\"     an answer on this machine\n"
                "  skein up                                     a node; on a second machine:\n"
                "  skein up --peer FIRST_MACHINE                one cluster of both\n\n"
                "`skein help COMMAND` shows a command's options and examples; the variable in\n"
                "brackets stands for an option in the environment.\n");
    return code;
}

static int cmd_help(int argc, char **argv) {
    if (argc < 2 || argv[1][0] == '-') return overview(stdout, EXIT_OK);
    const struct command *c = find_command(argv[1]);
    if (!c) return unknown_command(argv[1]);
    if (c->run == cmd_help) return overview(stdout, EXIT_OK);
    char flag[] = "--help", *args[] = {argv[1], flag, NULL};
    return c->run(2, args);
}

static int cmd_version(int argc, char **argv) {
    const struct opts_cmd cmd = {"version", NULL, "show the version", NULL, NULL, 0, 0, 0};
    int n, code;
    if (!opts_parse(&cmd, argc, argv, &n, &code)) return code;
    printf("skein %s, protocol %d\n", version_text(), (int)SKEIN_PROTOCOL);
    return EXIT_OK;
}

/* Commands that answer somebody are silent about state changes, and so are the runners they start;
 * a node logs them. */
static void quieten(cmd_fn *run) {
    if (run == cmd_up || run == cmd_runner || paths_env("LOG_LEVEL")) return;
    log_set_level(LOG_WARN, LOG_WARN);
    setenv("SKEIN_LOG_LEVEL", "warn", 1);
}

static bool is(const char *word, const char *a, const char *b) {
    return strcmp(word, a) == 0 || strcmp(word, b) == 0;
}

/* What stands in stdout's buffer is written here, and a full disk is an error of every command. */
static int finish(int code) {
    struct err e = {0};
    bool flushed = fflush(stdout) == 0;
    if (!flushed && errno == EPIPE) return 128 + SIGPIPE;
    if (code != EXIT_OK || (flushed && !ferror(stdout))) return code;
    if (flushed)
        err_set(&e, ERR_IO, "standard output could not be written");
    else
        err_errno(&e, ERR_IO, "standard output");
    return opts_fail(&e);
}

static int run(int argc, char **argv) {
    const char *slash = argc ? strrchr(argv[0], '/') : NULL, *self = slash  ? slash + 1
                                                                     : argc ? argv[0]
                                                                            : "skein";
    signal(SIGPIPE,
           SIG_IGN); /* a broken pipe or connection is an error of that write, not our end */
    const char *first = argc > 1 ? argv[1] : "";
    if (is(first, "--help", "-h")) return overview(stdout, EXIT_OK);
    if (is(first, "--version", "-V")) return cmd_version(1, argv);
    if (strcmp(self, "exo") == 0 && (!*first || *first == '-')) return cmd_up(argc, argv);
    if (!*first || *first == '-') return overview(stderr, EXIT_USAGE);
    const struct command *c = find_command(first);
    if (!c) return unknown_command(first);
    quieten(c->run);
    return c->run(argc - 1, argv + 1);
}

int main(int argc, char **argv) {
    return finish(run(argc, argv));
}
