#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/api.h"
#include "base/file.h"
#include "base/log.h"
#include "base/paths.h"
#include "base/sysinfo.h"
#include "base/version.h"
#include "cli/background.h"
#include "cli/cli.h"
#include "cli/inventory.h"
#include "comm/team.h"
#include "kernels/kernels.h"
#include "kernels/kv.h"
#include "kernels/pool.h"
#include "node/node.h"
#include "ops/ops_cpu.h"

/* What fits into an announcement (net/discovery_txt.h): a longer name would never be found. */
enum { NAMESPACE_MAX = 127 };

/* With the API's default port 52415, up to the API port of a second node here (52425, usually). */
enum { MORE_BUS_PORTS = 8 };

struct up {
    const char *name, *host, *bus_host, *data_dir, *cluster, *join_key, *api_key, *cpu_mask, *model,
        *kv_type, *data_wire, *fabric, *join_key_file, *inventory, *pid_file;
    u32 act_bits;
    struct opt_list peers, interfaces;
    const char **all_peers; /* those, and the inventory's */
    u32 n_all_peers;
    struct arena mem;
    char file_key[512]; /* of join_key_file */
    u32 port, bus_port, timeout_ms, n_ctx, n_threads, n_seq_max, min_nodes, n_streams;
    u64 memory_mib;
    bool force_master, no_worker, offline, quiet, no_discovery, no_measure, no_api, no_batch,
        verbose, daemon, encrypt_data;
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
    if (u->n_all_peers == 0 && u->no_discovery)
        printf("  peers    none given: on another machine, skein up --peer THIS_MACHINE\n");
    else if (u->n_all_peers == 0)
        printf("  peers    found by themselves; where multicast is blocked, on another machine: "
               "skein up --peer THIS_MACHINE\n");
    for (u32 i = 0; i < u->n_all_peers; i++)
        printf("%s%s", i ? ", " : "  peers    ", u->all_peers[i]);
    printf("%s  %s stops the node.\n", u->n_all_peers ? "\n" : "",
           u->daemon ? "skein down" : "Ctrl-C");
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
    struct err why = {0};
    if (u->pid_file && !background_write_pid(u->pid_file, &why))
        log_warn("up", "no PID file: %s", why.msg);
    catch_signals(n);
    background_ready();
    node_run(n);
    catch_signals(NULL);
    if (u->pid_file) unlink(u->pid_file);
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

/* `--join-key "$(cat FILE)"` without the file would make an open cluster of a closed one. */
static bool check_words(const struct up *u, struct err *e) {
    if (u->join_key && !*u->join_key)
        return err_set(e, ERR_ARG,
                       "--join-key is empty, which would leave the cluster open: give the secret, "
                       "or no --join-key at all");
    if (u->api_key && !*u->api_key)
        return err_set(e, ERR_ARG,
                       "--api-key is empty: give the key, or no --api-key at all, and other "
                       "machines change nothing");
    if (!u->cluster || strlen(u->cluster) <= NAMESPACE_MAX) return true;
    return err_set(e, ERR_ARG, "--namespace: the name has %zu bytes, and %d is the most",
                   strlen(u->cluster), (int)NAMESPACE_MAX);
}

/* The first line of the file; others must not be able to read it. */
static bool read_join_key(struct up *u, struct err *e) {
    struct str text = {0};
    struct stat st;
    if (!u->join_key_file || u->join_key) return true; /* the nearer one counts */
    bool ok = file_read(u->join_key_file, 4096, &text, e);
    if (ok) {
        size_t n = strcspn(str_z(&text), "\r\n");
        ok = n > 0 && n < sizeof u->file_key;
        if (!ok)
            err_set(e, ERR_ARG, "%s: the first line must hold the join key, at most %zu characters",
                    u->join_key_file, sizeof u->file_key - 1);
        if (ok) memcpy(u->file_key, text.p, n), u->join_key = u->file_key;
        if (ok && stat(u->join_key_file, &st) == 0 && (st.st_mode & 077))
            log_warn("up", "join key readable by others file=%s: chmod 600 it", u->join_key_file);
    }
    str_deinit(&text);
    return ok || err_wrap(e, "join key");
}

/* Those of --peer, then those of the inventory but for this machine's own. */
static bool gather_peers(struct up *u, struct err *e) {
    struct inventory inv = {0};
    char own[256];
    if (u->inventory && !cli_inventory(u->inventory, &u->mem, &inv, e)) return false;
    fputs(str_z(&inv.remarks), stderr);
    sysinfo_hostname(own, sizeof own);
    u32 cap = u->peers.n + inv.n * INVENTORY_ADDRESSES_MAX;
    u->all_peers = arena_array(&u->mem, cap + 1, sizeof *u->all_peers);
    for (u32 i = 0; i < u->peers.n; i++) u->all_peers[u->n_all_peers++] = u->peers.v[i];
    for (u32 i = 0; i < inv.n; i++) {
        bool self = inventory_same_host(inv.v[i].name, u->name ? u->name : own);
        for (u32 k = 0; k < inv.v[i].n_addresses && !self; k++)
            u->all_peers[u->n_all_peers++] = inv.v[i].addresses[k];
    }
    if (!u->cluster && inv.name_space) u->cluster = inv.name_space;
    inventory_deinit(&inv);
    return true;
}

static int up(struct up *u) {
    struct err e = {0};
    if (!read_join_key(u, &e) || !gather_peers(u, &e) || !check_words(u, &e)) return opts_fail(&e);
    char data[1024], log[1024];
    enum kv_type kv_type;
    enum team_wire wire;
    if (!team_wire_parse(u->data_wire, &wire)) {
        err_set(&e, ERR_ARG, "--data-wire %s: expected f16, f32 or q8", u->data_wire);
        return opts_fail(&e);
    }
    if (!group_fabric_check(u->fabric, &e)) {
        err_wrap(&e, "--fabric %s", u->fabric);
        return opts_fail(&e);
    }
    struct kernels kernels; /* the runners choose them: a wrong name is said now */
    if (!kv_type_read(u->kv_type, &kv_type, &e) || !ops_cpu_act_bits(u->act_bits, &e) ||
        !kernels_select(&kernels, u->cpu_mask, &e) ||
        !find_folders(u, data, log, &e))
        return opts_fail(&e);
    int code = 1;
    if (u->daemon && !background_start(&code, &e)) return e.code ? opts_fail(&e) : code;
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
                           .n_more_bus_ports = u->bus_port ? 0 : MORE_BUS_PORTS,
                           .api_port = u->no_api ? 0 : (u16)u->port,
                           .peers = u->all_peers,
                           .n_peers = u->n_all_peers,
                           .discover = !u->no_discovery,
                           .interfaces = u->interfaces.v,
                           .n_interfaces = u->interfaces.n,
                           .timeout_ms = u->timeout_ms,
                           .no_worker = u->no_worker,
                           .force_master = u->force_master,
                           .no_measure = u->no_measure,
                           .n_threads = u->n_threads,
                           .n_seq_max = u->no_batch ? 1 : u->n_seq_max,
                           .cpu_mask = u->cpu_mask,
                           .n_ctx = u->n_ctx,
                           .kv_type = kv_type,
                           .sum_wire = wire,
                           .n_streams = u->n_streams,
                           .fabric = u->fabric,
                           .encrypt_data = u->encrypt_data,
                           .act_bits = u->act_bits,
                           .memory_max_bytes = u->memory_mib << 20,
                           .store = s};
    code = run_node(u, &cfg, log);
    store_close(s);
    return code;
}

static const char TEXT[] =
    "The node takes requests on its HTTP port, on loopback unless --host says otherwise, and "
    "talks\n"
    "to other nodes on its bus port, the next one. Nodes on one network find each other by "
    "multicast\n"
    "DNS; where that is blocked, --peer names one node of the cluster, or --inventory lists "
    "machines.\n"
    "Nodes with different --namespace or different --join-key never mix.\n\n"
    "Examples:\n"
    "  skein up\n"
    "  skein up --peer 192.168.1.20\n"
    "  skein up --daemon --join-key-file ~/.config/skein/key\n"
    "  skein up --host 0.0.0.0 --join-key \"$(cat key)\" -m smollm2\n"
    "  skein up --name two --port 52425 --peer localhost:52416 --data-dir /tmp/two   (a second one "
    "here)";

/* One command runs in a process: its options may as well be static. */
static struct up asked = {.port = NODE_API_PORT,
                          .timeout_ms = NODE_TIMEOUT_MS,
                          .kv_type = "f16",
                          .data_wire = "f16",
                          .fabric = "off",
                          .act_bits = 16};
static bool ignored;
static struct opt OPTS[] = {
    {"port", OPT_U32, &asked.port, "HTTP port; 0: any free one", .word = "api-port", .value = "N",
     .env = "API_PORT", .min = 0, .max = 65534},
    {"host", OPT_STR, &asked.host, "address for HTTP: one, or * for all (default: loopback)",
     .word = "listen", .value = "HOST", .env = "LISTEN"},
    {"peer", OPT_LIST, &asked.peers, "another node's address; may be given several times",
     .value = "HOST[:PORT]", .env = "PEERS", .word = "bootstrap-peers"},
    {"no-discovery", OPT_FLAG, &asked.no_discovery,
     "find nodes by --peer alone, not by multicast DNS", .env = "NO_DISCOVERY"},
    {"interface", OPT_LIST, &asked.interfaces,
     "announce and dial over this interface alone; repeatable", .value = "NAME",
     .env = "INTERFACES"},
    {"bus-port", OPT_U32, &asked.bus_port, "port for other nodes (default: HTTP port + 1)",
     .word = "zenoh-port", .value = "N", .env = "BUS_PORT", .min = 0, .max = 65535},
    {"bus-host", OPT_STR, &asked.bus_host, "address for other nodes (default: all)",
     .value = "HOST", .env = "BUS_HOST"},
    {"name", OPT_STR, &asked.name, "what the node is called (default: the host's name)",
     .value = "NAME", .env = "NODE_NAME"},
    {"namespace", OPT_STR, &asked.cluster, "the cluster's name", .value = "NAME",
     .env = "NAMESPACE"},
    {"join-key", OPT_STR, &asked.join_key, "secret that all nodes of the cluster share",
     .value = "KEY", .env = "JOIN_KEY"},
    {"join-key-file", OPT_STR, &asked.join_key_file, "file with that secret in its first line",
     .value = "FILE", .env = "JOIN_KEY_FILE"},
    {"inventory", OPT_STR, &asked.inventory,
     "YAML list of machines to dial (see skein help cluster)", .value = "FILE", .env = "INVENTORY"},
    {"daemon", OPT_FLAG, &asked.daemon, "into the background, once it serves; skein down stops it",
     .letter = 'd', .word = "legacy-daemon"},
    {"pid-file", OPT_STR, &asked.pid_file, "where to write the process's number", .value = "FILE"},
    {"api-key", OPT_STR, &asked.api_key, "key that other machines need to change things by HTTP",
     .value = "KEY", .env = "API_KEY"},
    {"data-dir", OPT_STR, &asked.data_dir, "folder for node id, state and log", .value = "DIR",
     .env = "DATA_DIR"},
    {"model", OPT_STR, &asked.model, "place this model at once", .letter = 'm', .value = "MODEL"},
    {"min-nodes", OPT_U32, &asked.min_nodes, "with -m: split it over that many nodes at least",
     .value = "N", .min = 0, .max = 1024},
    {"ctx", OPT_U32, &asked.n_ctx, "context window of models placed here", .letter = 'c',
     .word = "ctx-size", .value = "N", .env = "CTX", .min = 0, .max = 1 << 24},
    {"parallel", OPT_U32, &asked.n_seq_max, "requests that a model works on at once (default: 16)",
     .word = "np", .value = "N", .env = "MAX_CONCURRENT_REQUESTS", .min = 0, .max = 256},
    {"no-batch", OPT_FLAG, &asked.no_batch, "one request after the other", .env = "NO_BATCH"},
    {"threads", OPT_U32, &asked.n_threads, "threads of a runner (default: all cores)",
     .letter = 't', .value = "N", .env = "THREADS", .min = 0, .max = POOL_MAX_THREADS},
    {"memory", OPT_U64, &asked.memory_mib, "MiB that models may take here (default: what is free)",
     .value = "MIB", .env = "MEMORY", .min = 0, .max = 1 << 30},
    {"kv-type", OPT_STR, &asked.kv_type,
     "KV cache of models placed here: f16, or q8 for half the memory (f16)", .value = "TYPE",
     .env = "KV_TYPE"},
    {"encrypt-data", OPT_FLAG, &asked.encrypt_data,
     "encrypt what ranks of a model send each other; on all nodes or none", .env = "ENCRYPT_DATA"},
    {"data-wire", OPT_STR, &asked.data_wire,
     "how ranks send partial sums of layers: f16, f32 (exact) or q8 (f16)", .value = "TYPE",
     .env = "DATA_WIRE"},
    {"data-streams", OPT_U32, &asked.n_streams,
     "data connections between two ranks, 1 to 8 (0: as measured)", .value = "N",
     .env = "DATA_STREAMS", .min = 0, .max = GROUP_STREAMS_MAX},
    {"fabric", OPT_STR, &asked.fabric,
     "libfabric between ranks: tcp, efa, verbs, ..., auto or off (off)", .value = "PROVIDER",
     .env = "FABRIC"},
    {"activations", OPT_U32, &asked.act_bits,
     "bits beside quantized weights: 16, or 8, faster and less exact (16)", .value = "BITS",
     .env = "ACTIVATIONS"},
    {"cpu-mask", OPT_STR, &asked.cpu_mask, "use no newer instructions than these", .value = "LEVEL",
     .env = "CPU_MASK"},
    {"node-timeout", OPT_U32, &asked.timeout_ms,
     "milliseconds of silence after which a node is lost", .value = "MS", .env = "NODE_TIMEOUT",
     .min = 2000, .max = 600000},
    {"force-master", OPT_FLAG, &asked.force_master, "lead the cluster whenever this node is there",
     .env = "FORCE_MASTER"},
    {"no-worker", OPT_FLAG, &asked.no_worker, "coordinator and API only: take no layers",
     .env = "NO_WORKER"},
    {"no-api", OPT_FLAG, &asked.no_api, "no HTTP: neither API nor web page", .env = "NO_API"},
    {"no-measure", OPT_FLAG, &asked.no_measure,
     "measure neither this machine's speed nor its links", .env = "NO_MEASURE"},
    {"offline", OPT_FLAG, &asked.offline, "never download", .env = "OFFLINE"},
    {"quiet", OPT_FLAG, &asked.quiet, "no banner, and of the log only warnings and errors",
     .letter = 'q'},
    {"verbose", OPT_FLAG, &asked.verbose, "as --log-level debug", .letter = 'v'},
    {"discovery-port", OPT_IGNORE, NULL, NULL, .value = "N"},
    {"fast-synch", OPT_FLAG, &ignored, .help = NULL},
    {"no-downloads", OPT_FLAG, &asked.offline, .help = NULL},
    {"gpu-layers", OPT_IGNORE, NULL, "accepted; this build computes on the CPU", .word = "ngl",
     .value = "N"},
    {"n-gpu-layers", OPT_IGNORE, NULL, NULL, .value = "N"},
};

int cmd_up(int argc, char **argv) {
    const struct opts_cmd cmd = {
        "up", NULL, "start a node: cluster, HTTP API, web page", TEXT, OPTS, ARRAY_LEN(OPTS), 0, 0};
    int n, code;
    if (!opts_parse(&cmd, argc, argv, &n, &code)) return code;
    if (asked.verbose) {
        log_set_level(LOG_DEBUG, LOG_DEBUG);
    } else if (asked.quiet && !paths_env("LOG_LEVEL")) {
        log_set_level(LOG_WARN, LOG_INFO); /* the file has it all the same */
        setenv("SKEIN_RUNNER_QUIET", "1", 1);
    }
    code = up(&asked);
    arena_deinit(&asked.mem);
    return code;
}
