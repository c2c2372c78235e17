#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/column.h"
#include "cli/daemon.h"

/* Name of the node with this id; the id's beginning when it is not in the list. */
static const char *node_name(const json_t *state, const char *id, char buf[64]) {
    size_t i;
    json_t *n;
    json_array_foreach(json_object_get(state, "nodes"), i,
                       n) if (strcmp(daemon_text(n, "id"), id) == 0) return daemon_text(n, "name");
    snprintf(buf, 64, "%.8s", id);
    return buf;
}

/* The slice of a tensor rank: ", heads 0-4 of 9 (56 %)". */
static const char *share_text(const json_t *s, char buf[96]) {
    u64 first = daemon_u64(s, "head_first"), end = daemon_u64(s, "head_end");
    u64 n_ff = MAX(daemon_u64(s, "n_ff"), 1u),
        ff = daemon_u64(s, "ff_end") - daemon_u64(s, "ff_first");
    if (daemon_u64(s, "tp_ranks") < 2) return "";
    if (end <= first)
        snprintf(buf, 96, ", no heads of %llu, %llu %% of the feed-forward part",
                 (unsigned long long)daemon_u64(s, "n_heads"),
                 (unsigned long long)(ff * 100 / n_ff));
    else
        snprintf(buf, 96, ", heads %llu-%llu of %llu, %llu %% of the feed-forward part",
                 (unsigned long long)first, (unsigned long long)end - 1,
                 (unsigned long long)daemon_u64(s, "n_heads"),
                 (unsigned long long)(ff * 100 / n_ff));
    return buf;
}

/* What carries the frames between a rank and its next; "" while they are not connected. */
static const char *carrier_to(const json_t *shard, size_t next) {
    size_t i;
    json_t *l;
    json_array_foreach(json_object_get(shard, "links"), i,
                       l) if (daemon_u64(l, "rank") == next) return daemon_text(l, "carrier");
    return "";
}

/* The measured link between two nodes; NULL where there is none. */
static const json_t *find_link(const json_t *state, const char *from, const char *to) {
    size_t i;
    json_t *l;
    json_array_foreach(json_object_get(state, "links"), i, l) {
        if (strcmp(daemon_text(l, "from"), from) == 0 && strcmp(daemon_text(l, "to"), to) == 0 &&
            daemon_u64(l, "rtt_us"))
            return l;
    }
    return NULL;
}

/* The links between neighbouring ranks: what is used, and what was measured. */
static void print_links(const json_t *state, const json_t *inst) {
    const json_t *shards = json_object_get(inst, "shards");
    for (size_t i = 0; i + 1 < json_array_size(shards); i++) {
        const json_t *shard = json_array_get(shards, i);
        const char *from = daemon_text(shard, "node"), *carrier = carrier_to(shard, i + 1);
        const char *to = daemon_text(json_array_get(shards, i + 1), "node");
        const json_t *l = find_link(state, from, to);
        char a[64], b[64];
        if (!*carrier && !l) continue;
        printf("  link %s to %s: %s", node_name(state, from, a), node_name(state, to, b), carrier);
        if (l)
            printf("%s%s, %llu us there and back, %.1f Gbit/s", *carrier ? "; " : "",
                   daemon_text(l, "kind"), (unsigned long long)daemon_u64(l, "rtt_us"),
                   (double)daemon_u64(l, "bandwidth_bytes_per_s") * 8 / 1e9);
        printf("\n");
    }
}

static void print_instance(const json_t *state, const char *id, const json_t *inst) {
    char mem[32], what[64], share[96], shown[COLUMN_CAP];
    size_t i;
    json_t *s;
    printf("%s %-12s %-9s %8llu %10s  %s\n",
           column_text(daemon_text(inst, "model"), 26, UINT32_MAX, shown),
           daemon_text(inst, "status"), daemon_text(inst, "sharding"),
           (unsigned long long)daemon_u64(inst, "n_ctx"),
           size_text(daemon_u64(inst, "memory_instances"), mem), id);
    json_array_foreach(json_object_get(inst, "shards"), i, s) {
        char name[64];
        u64 total = daemon_u64(s, "total");
        snprintf(what, sizeof what, "%.32s", daemon_text(s, "status"));
        if (total && strcmp(what, "ready") != 0)
            snprintf(what, sizeof what, "%.32s %llu/%llu", daemon_text(s, "status"),
                     (unsigned long long)daemon_u64(s, "done"), (unsigned long long)total);
        u64 bytes = daemon_u64(s, "weights_bytes") + daemon_u64(s, "kv_bytes") +
                    daemon_u64(s, "scratch_bytes");
        const char *on = node_name(state, daemon_text(s, "node"), name);
        printf("  %s %-12s layers %llu-%llu%s, %s, %llu threads %s\n",
               column_text(on, 24, UINT32_MAX, shown), what,
               (unsigned long long)daemon_u64(s, "layer_first"),
               (unsigned long long)MAX(daemon_u64(s, "layer_end"), 1u) - 1, share_text(s, share),
               size_text(bytes, mem), (unsigned long long)daemon_u64(s, "n_threads"),
               daemon_text(s, "isa"));
    }
    print_links(state, inst);
    if (*daemon_text(inst, "reason")) printf("  %s\n", daemon_text(inst, "reason"));
}

static const char TEXT[] = "Asks a running node for the cluster's model instances: which node "
                           "holds which layers, and how\n"
                           "far those that are not ready have come. `skein stop` takes one away.\n"
                           "\n"
                           "Examples:\n"
                           "  skein ps\n"
                           "  skein ps --port 52425 --json";

int cmd_ps(int argc, char **argv) {
    struct daemon d = daemon_default();
    bool json = false;
    struct opt opts[] = {DAEMON_OPTS(&d), {"json", OPT_FLAG, &json, .help = "as JSON"}};
    const struct opts_cmd cmd = {
        "ps", NULL, "list the models a running cluster serves", TEXT, opts, ARRAY_LEN(opts), 0, 0};
    int n, code;
    struct err e = {0};
    if (!opts_parse(&cmd, argc, argv, &n, &code)) return code;
    json_t *state = daemon_call(&d, "/state", NULL, &e),
           *instances = json_object_get(state, "instances"), *inst;
    const char *id;
    if (!state) return opts_fail(&e);
    if (json) {
        struct str out = {0};
        json_dump(instances, &out);
        printf("%s\n", str_z(&out));
        str_deinit(&out);
    } else if (json_object_size(instances) == 0) {
        printf("no model is loaded: the first request for one loads it (`skein ask`, or any OpenAI "
               "client)\n");
    } else {
        printf("%-26s %-12s %-9s %8s %10s  %s\n", "MODEL", "STATUS", "SHARDING", "CONTEXT",
               "MEMORY", "INSTANCE");
        json_object_foreach(instances, id, inst) print_instance(state, id, inst);
    }
    json_decref(state);
    return EXIT_OK;
}
