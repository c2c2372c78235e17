/* cli.h - the subcommands, one a file, and what several of them use.
 *
 * A command gets argv with its own name first and returns the exit status: 0, 1 (it failed, and
 * stderr says why) or 2 (it was asked wrongly). Commands run on the main thread. */
#pragma once

#include "base/err.h"
#include "base/str.h"
#include "cli/opts.h"
#include "node/store.h"

typedef int cmd_fn(int argc, char **argv);
cmd_fn cmd_run, cmd_up, cmd_pull, cmd_models, cmd_rm, cmd_nodes, cmd_ps, cmd_launch, cmd_stop,
    cmd_plan, cmd_explain, cmd_drain, cmd_ask, cmd_inspect, cmd_bench, cmd_doctor, cmd_cluster,
    cmd_down, cmd_runner;

struct inventory;
struct arena;
/* An inventory file, parsed; inventory_deinit it. */
bool cli_inventory(const char *path, struct arena *mem, struct inventory *inv, struct err *e);

/* The store as environment and --offline want it; NULL and a printed error. */
struct store *cli_store(bool offline, struct err *e);

/* The file of a model that is on this machine: `name` itself where it is a path, else what the
 * store calls so. Nothing is fetched: ERR_NOT_FOUND says how to. */
enum { CLI_PATH_MAX = 1100 };
bool cli_model_path(const char *name, char path[CLI_PATH_MAX], struct err *e);
/* What a node is to be asked for: a file of a models folder that is named with a slash by its name,
 * for nodes take no paths, other names as they are. ERR_ARG says what to do with a file that lies
 * elsewhere. */
bool cli_node_model(const char *name, char out[CLI_PATH_MAX], struct err *e);

/* The words with spaces between them, "-" standing for standard input; without words all of
 * standard input. ERR_LIMIT over 16 MiB, ERR_ARG when that is no text. */
bool cli_prompt(int n, char **words, struct str *out, struct err *e);

/* Text to standard output, at once. Nobody waits for an answer that can't be written, so that ends
 * the program: without a word, as SIGPIPE would, when the reader left, else with an error. */
void cli_print(const char *text);

/* Ctrl-C as an event instead of an end. After cli_catch_interrupts the descriptor is readable once
 * SIGINT (or SIGTERM) came; cli_interrupts counts them and empties it when clear is set. The
 * process ends by the second one that nobody cleared, or by the first SIGTERM. */
int cli_catch_interrupts(struct err *e);
u32 cli_interrupts(bool clear);
