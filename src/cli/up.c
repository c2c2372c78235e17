#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/file.h"
#include "base/log.h"
#include "base/paths.h"
#include "base/version.h"
#include "cli/cli.h"
#include "kernels/kv.h"
#include "node/node.h"

struct up {
    const char *name, *host, *bus_host, *data_dir, *cluster, *join_key, *api_key, *cpu_mask, *model,
        *kv_type;
    struct opt_list peers, interfaces;
    u32 port, bus_port, timeout_ms, n_ctx, n_threads, min_nodes;
    u64 memory_mib;
    bool no_worker, offline, quiet, no_discovery, no_measure, no_api;
};

/* Set before the handlers are, and constant while they may run. */
static struct node *running;

static void on_signal(int sig) {
    (void)sig;
    node_stop(running);
}

static void catch_signals(struct node *n) {
    struct sigaction sa = {.sa_handler = n ? on_signal : SIG_DFL};
    running = n;
    sigemptyset(&sa.sa_mask);
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
}

static bool find_folders(const struct up *u, char data[1024], char log[1024], struct err *e) {
    struct paths p;
    if (!paths_init(&p, NULL, e)) return false;
    str_copy(data, 1024, u->data_dir ? u->data_dir : p.state);
    const char *log_dir = u->data_dir ? u->data_dir : p.log;
    return (file_make_dirs(log_dir, e) && paths_join(log, 1024, log_dir, "skein.log")) ||
           err_wrap(e, "log folder %s", log_dir);
}

static void print_banner(const struct up *u, struct node *n, struct api *a) {
    if (u->quiet) return;
    printf("skein %s\n", version_text());
    printf("  node     %s (%s)\n", node_name(n), node_id(n));
    if (a)
        printf("  API      %s/v1   web page %s/\n", api_url(a), api_url(a));
    else
        printf("  API      off (--no-api)\n");
    printf("  bus      port %u, cluster '%s' %s\n", node_bus_port(n),
           u->cluster ? u->cluster : "default",
           node_is_open(n) ? "(open: whoever reaches the port can join; --join-key closes it)"
                           : "(closed by a join key)");
    if (u->peers.n == 0)
        printf("  peers    none given: on another machine, skein up --peer THIS_MACHINE\n");
    for (u32 i = 0; i < u->peers.n; i++) printf("%s%s", i ? ", " : "  peers    ", u->peers.v[i]);
    printf("%s  Ctrl-C stops the node.\n", u->peers.n ? "\n" : "");
    fflush(stdout);
}

static void on_placed(void *ctx, const char *instance, const struct err *e) {
    const char *model = ctx;
    if (e)
        log_error("up", "model not placed model=%s: %s", model, e->msg);
    else
        log_info("up", "model placed model=%s instance=%s", model, instance);
}

static int serve(const struct up *u, struct node *n, struct err *e) {
    struct api_cfg cfg = {.host = u->host, .port = (u16)u->port, .api_key = u->api_key};
    struct api *a = u->no_api ? NULL : api_start(n, &cfg, e);
    if (!a && !u->no_api) return opts_fail(e);
    print_banner(u, n, a);
    if (u->model) {
        struct node_place p = {.model = u->model, .min_nodes = u->min_nodes, .n_ctx = u->n_ctx};
        node_place(n, &p, on_placed, (void *)u->model);
    }
    catch_signals(n);
    node_run(n);
    catch_signals(NULL);
    api_stop(a);
    return EXIT_OK;
}

/* Once, or again as another node when it has to become one. */
static int run_node(const struct up *u, const struct node_cfg *cfg, const char *log) {
    for (;;) {
        struct err e = {0};
        struct node *n = node_new(cfg, &e);
        if (n && !log_open_file(log, &e))
            log_warn("up", "no log file: %s", e.msg); /* it serves all the same */
        else
            setenv("SKEIN_RUNNER_LOG", log, 1); /* cmd_runner appends to it */
        int code = n ? serve(u, n, &e) : opts_fail(&e);
        bool again = n && code == EXIT_OK && node_is_reborn(n);
        node_free(n);
        log_close_file();
        if (!again) return code;
    }
}

static int up(const struct up *u) {
    struct err e = {0};
    char data[1024], log[1024];
    enum kv_type kv_type;
    if (!kv_type_read(u->kv_type, &kv_type, &e) || !find_folders(u, data, log, &e))
        return opts_fail(&e);
    struct store *s = cli_store(u->offline, &e);
    if (!s) return opts_fail(&e);
    struct node_cfg cfg = {.name = u->name,
                           .data_dir = data,
                           .cluster = u->cluster,
                           .join_key = u->join_key,
                           .listen_host = u->bus_host,
                           .bus_port = (u16)(u->bus_port ? u->bus_port
                                             : u->port   ? u->port + 1
                                                         : 0),
                           .api_port = u->no_api ? 0 : (u16)u->port,
                           .peers = u->peers.v,
                           .n_peers = u->peers.n,
                           .discover = !u->no_discovery,
                           .interfaces = u->interfaces.v,
                           .n_interfaces = u->interfaces.n,
                           .timeout_ms = u->timeout_ms,
                           .no_worker = u->no_worker,
                           .no_measure = u->no_measure,
                           .n_threads = u->n_threads,
                           .cpu_mask = u->cpu_mask,
                           .n_ctx = u->n_ctx,
                           .kv_type = kv_type,
                           .memory_max_bytes = u->memory_mib << 20,
                           .store = s};
    int code = run_node(u, &cfg, log);
    store_close(s);
    return code;
}

static const char TEXT[] =
    "The node takes requests on its HTTP port, on loopback unless --host says otherwise, and "
    "talks\n"
    "to other nodes on its bus port, the next one. Nodes that know each other by --peer (one "
    "address of\n"
    "one node is enough) form a cluster and share a model's layers. Nodes with different "
    "--namespace\n"
    "or different --join-key never mix.\n\n"
    "Examples:\n"
    "  skein up\n"
    "  skein up --peer 192.168.1.20\n"
    "  skein up --host 0.0.0.0 --join-key \"$(cat key)\" -m smollm2\n"
    "  skein up --name two --port 52425 --peer localhost:52416 --data-dir /tmp/two   (a second one "
    "here)";

int cmd_up(int argc, char **argv) {
    struct up u = {.port = NODE_API_PORT, .timeout_ms = NODE_TIMEOUT_MS, .kv_type = "f16"};
    struct opt opts[] = {
        {"port", OPT_U32, &u.port, "HTTP port; 0: any free one", .word = "api-port", .value = "N",
         .env = "API_PORT", .min = 0, .max = 65534},
        {"host", OPT_STR, &u.host, "address for HTTP: one, or * for all (default: loopback)",
         .word = "listen", .value = "HOST", .env = "LISTEN"},
        {"peer", OPT_LIST, &u.peers, "another node's address; may be given several times",
         .value = "HOST[:PORT]", .env = "PEERS"},
        {"no-discovery", OPT_FLAG, &u.no_discovery,
         "find nodes by --peer alone, not by multicast DNS", .env = "NO_DISCOVERY"},
        {"interface", OPT_LIST, &u.interfaces,
         "announce and dial over this network interface alone; may be given several times",
         .value = "NAME", .env = "INTERFACES"},
        {"bus-port", OPT_U32, &u.bus_port, "port for other nodes (default: HTTP port + 1)",
         .value = "N", .env = "BUS_PORT", .min = 0, .max = 65535},
        {"bus-host", OPT_STR, &u.bus_host, "address for other nodes (default: all)",
         .value = "HOST", .env = "BUS_HOST"},
        {"name", OPT_STR, &u.name, "what the node is called (default: the host's name)",
         .value = "NAME", .env = "NODE_NAME"},
        {"namespace", OPT_STR, &u.cluster, "the cluster's name", .value = "NAME",
         .env = "NAMESPACE"},
        {"join-key", OPT_STR, &u.join_key, "secret that all nodes of the cluster share",
         .value = "KEY", .env = "JOIN_KEY"},
        {"api-key", OPT_STR, &u.api_key, "key that other machines need to change things by HTTP",
         .value = "KEY", .env = "API_KEY"},
        {"data-dir", OPT_STR, &u.data_dir, "folder for node id, state and log", .value = "DIR",
         .env = "DATA_DIR"},
        {"model", OPT_STR, &u.model, "place this model at once", .letter = 'm', .value = "MODEL"},
        {"min-nodes", OPT_U32, &u.min_nodes, "with -m: split it over that many nodes at least",
         .value = "N", .min = 0, .max = 1024},
        {"ctx", OPT_U32, &u.n_ctx, "context window of models placed here", .letter = 'c',
         .word = "ctx-size", .value = "N", .env = "CTX", .min = 0, .max = 1 << 24},
        {"threads", OPT_U32, &u.n_threads, "threads of a runner (default: all cores)",
         .letter = 't', .value = "N", .env = "THREADS", .min = 0, .max = 1024},
        {"memory", OPT_U64, &u.memory_mib, "MiB that models may take here (default: what is free)",
         .value = "MIB", .env = "MEMORY", .min = 0, .max = 1 << 30},
        {"kv-type", OPT_STR, &u.kv_type,
         "KV cache of models placed here: f16, or q8 for half the memory (f16)", .value = "TYPE",
         .env = "KV_TYPE"},
        {"cpu-mask", OPT_STR, &u.cpu_mask, "use no newer instructions than these", .value = "LEVEL",
         .env = "CPU_MASK"},
        {"node-timeout", OPT_U32, &u.timeout_ms,
         "milliseconds of silence after which a node is lost", .value = "MS", .env = "NODE_TIMEOUT",
         .min = 2000, .max = 600000},
        {"no-worker", OPT_FLAG, &u.no_worker, "coordinator and API only: take no layers",
         .env = "NO_WORKER"},
        {"no-api", OPT_FLAG, &u.no_api, "no HTTP: neither API nor web page", .env = "NO_API"},
        {"no-measure", OPT_FLAG, &u.no_measure,
         "measure neither this machine's speed nor its links", .env = "NO_MEASURE"},
        {"offline", OPT_FLAG, &u.offline, "never download", .env = "OFFLINE"},
        {"quiet", OPT_FLAG, &u.quiet, "print no banner", .letter = 'q'},
        {"gpu-layers", OPT_IGNORE, NULL, "accepted; this build computes on the CPU", .word = "ngl",
         .value = "N"},
        {"n-gpu-layers", OPT_IGNORE, NULL, NULL, .value = "N"},
    };
    const struct opts_cmd cmd = {
        "up", NULL, "start a node: cluster, HTTP API, web page", TEXT, opts, ARRAY_LEN(opts), 0, 0};
    int n, code;
    if (!opts_parse(&cmd, argc, argv, &n, &code)) return code;
    return up(&u);
}
