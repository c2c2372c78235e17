#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "cli/daemon.h"
#include "cli/nodes_table.h"

enum { POLL_MS = 200 };

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

static void print(const json_t *state, bool links, bool json) {
    struct str out = {0};
    if (json) {
        json_dump(json_object_get(state, links ? "links" : "nodes"), &out);
        str_addc(&out, '\n');
    } else {
        if (!links) nodes_table(state, &out);
        size_t n = out.n;
        if (!links) str_addc(&out, '\n');
        nodes_links(state, &out);
        if (out.n == n + 1 && !links) out.p[--out.n] = 0; /* no links: no empty line either */
        if (!out.n) str_addz(&out, "no links: this node is alone, or they are not measured yet\n");
    }
    cli_print(str_z(&out));
    str_deinit(&out);
}

static const char TEXT[] =
    "Asks a running node. READS is the rate at which a node reads its memory with all cores, FREE\n"
    "what models may still take of MEMORY, ID enough of a node's id to name it by (--nodes).\n"
    "Links are measured when nodes meet, each direction by the node that sends, and every ten\n"
    "minutes while they have no work. A lost node is forgotten after ten minutes, or at once, by\n"
    "all nodes, with --forget; should it come back it is welcome.\n"
    "\n"
    "Examples:\n"
    "  skein nodes\n"
    "  skein nodes --links\n"
    "  skein nodes --wait 3 --timeout 60\n"
    "  skein nodes --forget mini\n"
    "  skein nodes --json | jq '.[].name'\n"
    "  skein nodes --links --json | jq '.[] | {from, to, rtt_us}'";

static int forget(const struct daemon *d, const char *node, struct err *e) {
    bool ok = daemon_node(d, "forget", node, e);
    if (ok) printf("%s is forgotten\n", node);
    return ok ? EXIT_OK : opts_fail(e);
}

int cmd_nodes(int argc, char **argv) {
    struct daemon d = daemon_default();
    bool json = false, links = false;
    u32 wait_for = 0, timeout_s = 0;
    const char *gone = NULL;
    struct opt opts[] = {
        DAEMON_OPTS(&d),
        {"json", OPT_FLAG, &json, .help = "as JSON"},
        {"links", OPT_FLAG, &links, .help = "only the links between them"},
        {"wait", OPT_U32, &wait_for, "wait until so many nodes are live", .value = "N",
         .max = 10000},
        {"timeout", OPT_U32, &timeout_s, "how long to wait (30)", .value = "SECONDS", .max = 86400},
        {"forget", OPT_STR, &gone, "take a lost node that won't come back off the list",
         .value = "NODE"},
    };
    const struct opts_cmd cmd = {
        "nodes", NULL, "list the nodes of a running cluster", TEXT, opts, ARRAY_LEN(opts), 0, 0};
    int n, code;
    struct err e = {0};
    if (!opts_parse(&cmd, argc, argv, &n, &code)) return code;
    if (gone) return forget(&d, gone, &e);
    if (wait_for && !timeout_s) timeout_s = 30;
    json_t *state = await_nodes(&d, wait_for, timeout_s, &e);
    if (!state) return opts_fail(&e);
    print(state, links, json);
    json_decref(state);
    return EXIT_OK;
}
