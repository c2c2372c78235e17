/* opts.h - command-line options, from a table.
 *
 * Each command builds one table of struct opt whose `out` points at its own variables, already set
 * to the defaults, and calls opts_parse. Long names (--temp 0.7, --temp=0.7), one-letter names
 * (-n 5, -n5) and old single-dash words (-ngl 99) are understood; an option that was not given is
 * looked up in the environment (SKEIN_X, then EXO_X). -h and --help print the page that
 * `skein help COMMAND` shows, made from the same table. Main thread only. */
#pragma once

#include "base/err.h"

enum opt_kind {
    OPT_FLAG,   /* bool *: sets true; --no-NAME sets false; in the environment 1/0, true/false */
    OPT_U32,    /* u32 *, from min to max */
    OPT_U64,    /* u64 *, from min to max */
    OPT_F32,    /* float *, from min to max */
    OPT_STR,    /* const char **: borrowed from argv or the environment */
    OPT_LIST,   /* struct opt_list *: may be given several times; commas separate too */
    OPT_IGNORE, /* takes a value that has no meaning here; accepted so that known commands work */
};

struct opt {
    const char *name; /* "max-tokens"; a name of one letter is short only */
    enum opt_kind kind;
    void *out;
    const char *help;  /* one line; NULL: accepted, not listed */
    char letter;       /* 'n', or 0 */
    const char *word;  /* other name, accepted as --word and -word: "ngl" */
    const char *value; /* what the help calls the value: "N" */
    const char *env;   /* "PORT": SKEIN_PORT, then EXO_PORT */
    double min, max;   /* of numbers; both 0: any */
};

enum { OPT_LIST_MAX = 32 };
struct opt_list {
    const char
        *v[OPT_LIST_MAX]; /* borrowed; pieces between commas are kept for the process's life */
    u32 n;
};

struct opts_cmd {
    const char *name;    /* "run" */
    const char *args;    /* "MODEL [PROMPT]" */
    const char *summary; /* one line */
    const char *text;    /* paragraphs and examples, or NULL */
    struct opt *opts;
    u32 n_opts;
    int args_min, args_max; /* positional ones; args_max < 0: any number */
};

enum { EXIT_OK = 0, EXIT_FAIL = 1, EXIT_USAGE = 2 };

/* argv[0] is the command's name. On true the positional arguments are argv[0..*n_args), in order,
 * and every `out` is set. On false the command returns *exit_code at once: help was printed (0), or
 * the mistake and what was probably meant (2). */
bool opts_parse(const struct opts_cmd *cmd, int argc, char **argv, int *n_args, int *exit_code);

/* The same without printing: false with *e filled (ERR_ARG), or with e->code ERR_NONE when help was
 * asked for. getenv_fn NULL: the environment is not read. For tests. */
bool opts_read(const struct opts_cmd *cmd, int argc, char **argv, int *n_args,
               const char *(*getenv_fn)(const char *), struct err *e);

/* For a command that fails: prints "skein: <message>" to stderr, returns EXIT_FAIL (EXIT_USAGE for
 * ERR_ARG). */
int opts_fail(const struct err *e);
