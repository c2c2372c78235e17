#include "cli/bench.h"
#include "cli/bench_cluster.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "cli/cli.h"
#include "ops/ops_cpu.h"

enum { PP = 512, TG = 128, TOKENS_MAX = 1 << 20 };

struct options {
    const char *host; /* NULL: not given */
    u32 port;
    const char *model, *sharding, *json_out, *cpu_mask, *kv_type;
    u32 act_bits;
    u32 max_nodes, repeat;
    bool all_combinations, json;
    struct opt_list pp, tg, batch, depth, threads;
};

static void show_case(const struct bench_case *c) {
    fprintf(stderr, "%u threads, batch %u, depth %u, pp %u, tg %u\n", c->threads, c->batch,
            c->depth, c->pp, c->tg);
}

/* A running cluster is measured, not this process. */
static bool on_cluster(const struct options *o) {
    return o->host || o->port || o->max_nodes > 1 || strcmp(o->sharding, "pipeline") != 0;
}

static bool read_cases(const struct options *o, struct bench_case **cases, u32 *n, struct err *e) {
    struct bench_lists l = {.all_combinations = o->all_combinations};
    if (strcmp(o->sharding, "pipeline") != 0 && strcmp(o->sharding, "tensor") != 0 &&
        strcmp(o->sharding, "both") != 0)
        return err_set(e, ERR_ARG, "--sharding %.40s: there are pipeline, tensor and both",
                       o->sharding);
    if (on_cluster(o) &&
        (o->batch.n || o->depth.n || o->threads.n || *o->cpu_mask || o->act_bits != 16))
        return err_set(e, ERR_ARG,
                       "--batch, --depth, --threads, --activations and --cpu-mask measure this "
                       "machine alone: leave out --host, --port, --max-nodes and --sharding, or "
                       "these (and SKEIN_ACTIVATIONS and SKEIN_CPU_MASK)");
    return bench_list_read("pp", &o->pp, 0, TOKENS_MAX, PP, &l.pp, e) &&
           bench_list_read("tg", &o->tg, 0, TOKENS_MAX, TG, &l.tg, e) &&
           bench_list_read("batch", &o->batch, 1, BENCH_BATCH_MAX, 1, &l.batch, e) &&
           bench_list_read("depth", &o->depth, 0, TOKENS_MAX, 0, &l.depth, e) &&
           bench_list_read("threads", &o->threads, 1, POOL_MAX_THREADS, pool_cpus(), &l.threads,
                           e) &&
           bench_cases(&l, cases, n, e);
}

/* Runs of cases with equal threads: each loads the model anew. */
static bool run_all(const struct options *o, const struct bench_case *cases, u32 n,
                    struct str *json, struct err *e) {
    char path[CLI_PATH_MAX];
    struct bench_run run = {.path = path,
                            .cpu_mask = o->cpu_mask,
                            .act_bits = o->act_bits,
                            .repeat = o->repeat,
                            .progress = isatty(STDERR_FILENO) ? show_case : NULL};
    if (!kv_type_read(o->kv_type, &run.kv_type, e) || !ops_cpu_act_bits(o->act_bits, e) ||
        !cli_model_path(o->model, path, e))
        return false;
    struct bench_row *rows = xcalloc(n, sizeof *rows);
    bool ok = true;
    str_addc(json, '[');
    for (u32 i = 0, end; ok && i < n; i = end) {
        struct bench_machine m;
        struct str table = {0};
        for (end = i; end < n && cases[end].threads == cases[i].threads; end++)
            rows[end].c = cases[end];
        ok = bench_measure(&run, &m, rows + i, end - i, e);
        if (!ok) break;
        bench_json(&m, rows + i, end - i, json);
        bench_table(&m, rows + i, end - i, &table);
        if (!o->json) cli_print(str_z(&table));
        str_deinit(&table);
    }
    str_addz(json, "\n]\n");
    free(rows);
    return ok;
}

static bool run_cluster(const struct options *o, const struct bench_case *cases, u32 n,
                        struct str *json, struct err *e) {
    char model[CLI_PATH_MAX];
    struct bench_cluster b = {.daemon = daemon_default(),
                              .model = model,
                              .sharding = o->sharding,
                              .max_nodes = o->max_nodes,
                              .repeat = o->repeat,
                              .kv_type = o->kv_type,
                              .progress = isatty(STDERR_FILENO)};
    enum kv_type type;
    struct str table = {0};
    if (o->host) b.daemon.host = o->host;
    if (o->port) b.daemon.port = o->port;
    str_addc(json, '[');
    bool ok = kv_type_read(o->kv_type, &type, e) && cli_catch_interrupts(e) >= 0 &&
              cli_node_model(o->model, model, e) &&
              bench_cluster_run(&b, cases, n, json, &table, e);
    str_addz(json, "\n]\n");
    if (ok && !o->json) cli_print(str_z(&table));
    str_deinit(&table);
    return ok;
}

/* Opened before anything is measured: a path that can't be written is said at once and not after
 * minutes. What it held stays until there are rows. Written in place, as it may be a device. */
static bool open_out(const char *path, FILE **f, struct err *e) {
    if (path && !(*f = fopen(path, "ae"))) return err_errno(e, ERR_IO, "--json-out %s", path);
    return true;
}

static bool write_out(const char *path, FILE *f, const struct str *json, struct err *e) {
    bool ok = ftruncate(fileno(f), 0) == 0 || errno == EINVAL; /* EINVAL: no regular file */
    ok = ok && fwrite(json->p, 1, json->n, f) == json->n && fflush(f) == 0;
    return ok || err_errno(e, ERR_IO, "writing %s", path);
}

/* Of a run that failed no empty file is left. */
static void close_out(const char *path, FILE *f, bool ok) {
    struct stat st;
    bool empty = fstat(fileno(f), &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 0;
    fclose(f);
    if (!ok && empty) unlink(path);
}

static int bench(const struct options *o) {
    struct err e = {0};
    struct bench_case *cases = NULL;
    struct str json = {0};
    FILE *out = NULL;
    u32 n;
    bool ok = read_cases(o, &cases, &n, &e) && open_out(o->json_out, &out, &e) &&
              (on_cluster(o) ? run_cluster : run_all)(o, cases, n, &json, &e);
    if (ok && o->json) cli_print(str_z(&json));
    if (ok && out) ok = write_out(o->json_out, out, &json, &e);
    if (out) close_out(o->json_out, out, ok);
    free(cases);
    str_deinit(&json);
    return ok ? EXIT_OK : opts_fail(&e);
}

static const char TEXT[] =
    "Loads the model into this process and times random tokens: the prompt, then generation "
    "behind\n"
    "it. Numbers may be lists. Prompt and generation lengths go in pairs when there are equally "
    "many,\n"
    "else in every combination. A length of 0 leaves that half out.\n\n"
    "\"roof\" is the share of what the machine could do: bytes that must be read over the "
    "bandwidth,\n"
    "or operations over the peak, whichever is slower, both measured in the same run.\n\n"
    "With --host, --port, --max-nodes above 1, or --sharding tensor or both, a running cluster is\n"
    "measured instead: the model is placed on 1, 2, ... nodes, asked over HTTP, and taken away "
    "again.\n\n"
    "Examples:\n"
    "  skein bench smollm2\n"
    "  skein bench smollm2 --max-nodes 2 --pp 512 --tg 64\n"
    "  skein bench --model model.gguf --pp 128,512 --tg 32,128 --threads 1,2 --json-out rows.json\n"
    "  skein bench model.gguf --pp 0 --tg 64 --batch 1,8,32 --depth 0,4096";

int cmd_bench(int argc, char **argv) {
    struct options o = {.sharding = "pipeline",
                        .max_nodes = 1,
                        .repeat = 5,
                        .cpu_mask = "",
                        .kv_type = "f16",
                        .act_bits = 16};
    struct opt opts[] = {
        {"model", OPT_STR, &o.model, "instead of the argument", .letter = 'm', .value = "MODEL"},
        {"pp", OPT_LIST, &o.pp, "tokens of the prompt (512)", .letter = 'p', .value = "N,..."},
        {"tg", OPT_LIST, &o.tg, "tokens to generate (128)", .letter = 'n', .value = "N,..."},
        {"all-combinations", OPT_FLAG, &o.all_combinations,
         .help = "of --pp and --tg, never pairs"},
        {"batch", OPT_LIST, &o.batch, "sequences that decode together (1)", .value = "N,..."},
        {"depth", OPT_LIST, &o.depth, "tokens of context before the prompt (0)", .letter = 'd',
         .value = "N,..."},
        {"threads", OPT_LIST, &o.threads, "compute threads (one for each CPU)", .letter = 't',
         .value = "N,..."},
        {"repeat", OPT_U32, &o.repeat, "how often each is measured, after a round of warm-up (5)",
         .letter = 'r', .value = "N", .min = 1, .max = BENCH_REPEAT_MAX},
        {"max-nodes", OPT_U32, &o.max_nodes, "measure a cluster on 1, 2, ... N nodes", .value = "N",
         .min = 1, .max = 10000},
        {"sharding", OPT_STR, &o.sharding, "of a cluster: pipeline, tensor or both (pipeline)",
         .value = "KIND"},
        {"host", OPT_STR, &o.host, "measure the cluster of this node, over HTTP", .value = "HOST"},
        {"port", OPT_U32, &o.port, "its API port (52415)", .value = "PORT", .min = 1, .max = 65535},
        {"kv-type", OPT_STR, &o.kv_type, "KV cache: f16 or q8 (f16)", .value = "TYPE",
         .env = "KV_TYPE"},
        {"activations", OPT_U32, &o.act_bits, "bits beside quantized weights: 16 or 8 (16)",
         .value = "BITS", .env = "ACTIVATIONS"},
        {"cpu-mask", OPT_STR, &o.cpu_mask, "use no kernels above this set", .value = "SET",
         .env = "CPU_MASK"},
        {"json", OPT_FLAG, &o.json, .help = "print JSON instead of the table"},
        {"json-out", OPT_STR, &o.json_out, "write the rows to a file as JSON", .value = "FILE"},
    };
    const struct opts_cmd cmd = {"bench", "[MODEL]", "measure how fast a model runs here",
                                 TEXT,    opts,      ARRAY_LEN(opts),
                                 0,       1};
    int n, code;
    if (!opts_parse(&cmd, argc, argv, &n, &code)) return code;
    if (n == 1) o.model = argv[0];
    if (!o.model) {
        struct err e = {0};
        err_set(&e, ERR_ARG, "which model? `skein models` lists those on this machine");
        return opts_fail(&e);
    }
    return bench(&o);
}
