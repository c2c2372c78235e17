#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "cli/daemon.h"

enum { POLL_MS = 200 };

/* "smollm2 0-14 of 30, ...": what the node holds. */
static void add_layers(struct str *out, const json_t *shards) {
    size_t i;
    json_t *s;
    json_array_foreach((json_t *)(uintptr_t)shards, i, s) {
        u64 first = daemon_u64(s, "layer_first"), end = daemon_u64(s, "layer_end");
        str_addf(out, "%s%s %llu-%llu of %llu", i ? ", " : "", daemon_text(s, "model"),
                 (unsigned long long)first, (unsigned long long)(end ? end - 1 : 0),
                 (unsigned long long)daemon_u64(s, "n_layers"));
        if (strcmp(daemon_text(s, "status"), "ready") != 0)
            str_addf(out, " (%s)", daemon_text(s, "status"));
    }
    if (i == 0) str_addz(out, "-");
}

static void print_table(const json_t *state) {
    size_t i;
    json_t *n;
    const json_t *nodes = json_object_get(state, "nodes"),
                 *refused = json_object_get(state, "refused");
    printf("%-20s %-7s %-20s %9s %9s %9s  %s\n", "NODE", "STATE", "ADDRESS", "MODELS", "FREE",
           "MEMORY", "LAYERS");
    json_array_foreach((json_t *)(uintptr_t)nodes, i, n) {
        char used[32], free_mem[32], total[32], name[64], address[80];
        struct str layers = {0};
        bool self = strcmp(daemon_text(n, "state"), "self") == 0;
        snprintf(name, sizeof name, "%.50s%s", daemon_text(n, "name"),
                 json_is_true(json_object_get(n, "is_master")) ? "*" : "");
        snprintf(address, sizeof address, "%.60s",
                 self ? "(this node)" : daemon_text(n, "address"));
        add_layers(&layers, json_object_get(n, "shards"));
        printf("%-20s %-7s %-20s %9s %9s %9s  %s\n", name, self ? "live" : daemon_text(n, "state"),
               address, size_text(daemon_u64(n, "memory_instances"), used),
               size_text(daemon_u64(n, "memory_available"), free_mem),
               size_text(daemon_u64(n, "memory"), total), str_z(&layers));
        str_deinit(&layers);
    }
    printf("\n* master%s\n", json_is_true(json_object_get(state, "cluster_is_open"))
                                 ? "; the cluster has no join key: it is open"
                                 : "");
    json_array_foreach((json_t *)(uintptr_t)refused, i, n)
        printf("refused: %s at %s: %s\n", daemon_text(n, "id"), daemon_text(n, "address"),
               daemon_text(n, "reason"));
}

static u32 n_live(const json_t *state) {
    u32 live = 0;
    size_t i;
    json_t *n;
    json_array_foreach(json_object_get(state, "nodes"), i, n) {
        const char *s = daemon_text(n, "state");
        live += strcmp(s, "self") == 0 || strcmp(s, "live") == 0;
    }
    return live;
}

/* The state once it shows `wanted` live nodes; also waits for the node itself to come up. */
static json_t *await_nodes(const struct daemon *d, u32 wanted, u32 timeout_s, struct err *e) {
    u64 until = clock_ms() + (u64)timeout_s * 1000;
    for (;;) {
        struct err why = {0};
        json_t *state = daemon_call(d, "/state", NULL, &why);
        u32 live = state ? n_live(state) : 0;
        if (state && live >= wanted) return state;
        json_decref(state);
        if (clock_ms() >= until) {
            if (wanted && !*why.msg)
                err_set(e, ERR_NET, "%u of %u nodes are there after %u s", live, wanted, timeout_s);
            else
                *e = why;
            return NULL;
        }
        clock_sleep_ms(POLL_MS);
    }
}

static const char TEXT[] = "Asks a running node. MODELS is the memory that models take there, FREE "
                           "what is left of MEMORY.\n"
                           "\n"
                           "Examples:\n"
                           "  skein nodes\n"
                           "  skein nodes --wait 3 --timeout 60\n"
                           "  skein nodes --json | jq '.[].name'";

int cmd_nodes(int argc, char **argv) {
    struct daemon d = daemon_default();
    bool json = false;
    u32 wait_for = 0, timeout_s = 0;
    struct opt opts[] = {
        DAEMON_OPTS(&d),
        {"json", OPT_FLAG, &json, .help = "as JSON"},
        {"wait", OPT_U32, &wait_for, "wait until so many nodes are live", .value = "N",
         .max = 10000},
        {"timeout", OPT_U32, &timeout_s, "how long to wait (30)", .value = "SECONDS", .max = 86400},
    };
    const struct opts_cmd cmd = {
        "nodes", NULL, "list the nodes of a running cluster", TEXT, opts, ARRAY_LEN(opts), 0, 0};
    int n, code;
    struct err e = {0};
    if (!opts_parse(&cmd, argc, argv, &n, &code)) return code;
    if (wait_for && !timeout_s) timeout_s = 30;
    json_t *state = await_nodes(&d, wait_for, timeout_s, &e);
    if (!state) return opts_fail(&e);
    struct str out = {0};
    if (json)
        json_dump(json_object_get(state, "nodes"), &out), printf("%s\n", str_z(&out));
    else
        print_table(state);
    str_deinit(&out);
    json_decref(state);
    return EXIT_OK;
}
