/* `skein cluster init`: the machines of an inventory become a cluster, or it says which are missing
 * and why. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/sock.h"
#include "cli/cli.h"
#include "cli/column.h"
#include "cli/daemon.h"
#include "cli/inventory.h"
#include "node/node.h"

enum { POLL_MS = 200, TRY_MS = 2000, FILE_MAX_BYTES = 256 << 10 };

bool cli_inventory(const char *path, struct arena *mem, struct inventory *inv, struct err *e) {
    struct str text = {0};
    bool ok = file_read(path, FILE_MAX_BYTES, &text, e) &&
              (inventory_parse(str_view(&text), mem, inv, e) || err_wrap(e, "inventory %s", path));
    str_deinit(&text);
    return ok;
}

static bool is_live(const json_t *node) {
    const char *s = daemon_text(node, "state");
    return strcmp(s, "self") == 0 || strcmp(s, "live") == 0;
}

static bool has_address(const json_t *node, const char *host) {
    size_t i;
    json_t *a;
    char own[SOCK_HOST_CAP];
    u16 port;
    if (sock_split(daemon_text(node, "address"), 1, own, &port, NULL) && strcmp(own, host) == 0)
        return true;
    json_array_foreach(json_object_get(node, "addresses"), i, a) {
        const char *text = json_string_value(a);
        if (text && strcmp(text, host) == 0) return true;
    }
    return false;
}

/* By name, or by one of its addresses. A port that the inventory names has to be right, too:
 * several nodes may share a machine. */
static bool is_node(const struct inventory_node *x, const json_t *node) {
    if (inventory_same_host(x->name, daemon_text(node, "name"))) return true;
    for (u32 i = 0; i < x->n_addresses; i++) {
        char host[SOCK_HOST_CAP], seen[SOCK_ADDRESS_CAP];
        struct sockaddr_storage a;
        socklen_t n;
        u16 port;
        if (!sock_split(x->addresses[i], NODE_BUS_PORT, host, &port, NULL)) continue;
        if (daemon_u64(node, "bus_port") != port) continue;
        if (has_address(node, host)) return true;
        if (strcmp(daemon_text(node, "state"), "self") == 0 && strcmp(host, "localhost") == 0)
            return true;
        if (!sock_resolve(host, port, &a, &n, NULL)) continue;
        sock_text((struct sockaddr *)&a, seen, NULL);
        if (has_address(node, seen)) return true;
        if (sock_is_loopback((struct sockaddr *)&a) &&
            strcmp(daemon_text(node, "state"), "self") == 0)
            return true;
    }
    return false;
}

static const json_t *find_node(const json_t *state, const struct inventory_node *x) {
    size_t i;
    json_t *n;
    const json_t *found = NULL;
    json_array_foreach(json_object_get(state, "nodes"), i, n) {
        if (is_node(x, n) && (!found || is_live(n))) found = n;
    }
    return found;
}

static u32 n_there(const struct inventory *inv, const json_t *state) {
    u32 n = 0;
    for (u32 i = 0; i < inv->n; i++) {
        const json_t *x = find_node(state, &inv->v[i]);
        n += x && is_live(x);
    }
    return n;
}

/* What a plain connection finds: "" when somebody takes it. */
static const char *try_address(const char *host, u16 port) {
    struct sockaddr_storage a;
    socklen_t n;
    int fd, failure = 0;
    socklen_t size = sizeof failure;
    if (!sock_resolve(host, port, &a, &n, NULL)) return "no such host: check the name in the file";
    fd = socket(a.ss_family, SOCK_STREAM, 0);
    if (fd < 0 || !sock_prepare(fd)) failure = errno;
    if (!failure && connect(fd, (struct sockaddr *)&a, n) != 0 && errno != EINPROGRESS)
        failure = errno;
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    if (!failure && poll(&p, 1, TRY_MS) < 1) failure = ETIMEDOUT;
    if (!failure) getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &size);
    if (fd >= 0) close(fd);
    if (!failure) return "";
    if (failure == ECONNREFUSED) return "the machine is on, but no node runs there: skein up";
    bool silent = failure == ETIMEDOUT || failure == EHOSTUNREACH || failure == ENETUNREACH;
    return silent ? "no answer: switched off, another address, or a firewall" : strerror(failure);
}

/* Why a listed machine is not in the cluster. */
static void add_reason(const json_t *state, const struct inventory_node *x, struct str *out) {
    const json_t *lost = find_node(state, x);
    size_t i;
    json_t *r;
    json_array_foreach(json_object_get(state, "refused"), i, r) {
        char host[SOCK_HOST_CAP], other[SOCK_HOST_CAP];
        u16 port;
        if (!sock_split(daemon_text(r, "address"), 1, other, &port, NULL)) continue;
        for (u32 k = 0; k < x->n_addresses; k++) {
            if (!sock_split(x->addresses[k], NODE_BUS_PORT, host, &port, NULL)) continue;
            if (strcmp(host, other) != 0) continue;
            str_addf(out, "refused: %s", daemon_text(r, "reason"));
            return;
        }
    }
    for (u32 k = 0; k < x->n_addresses; k++) {
        char host[SOCK_HOST_CAP];
        u16 port;
        if (!sock_split(x->addresses[k], NODE_BUS_PORT, host, &port, NULL)) continue;
        const char *why = try_address(host, port);
        str_addf(out, "%s%s: ", k ? "; " : lost ? "was there, and is lost; " : "", x->addresses[k]);
        str_addz(out, *why ? why
                           : "a program takes connections there, but it is no member: another "
                             "namespace, join key or version of skein (its log says which)");
    }
}

/* Differences between what is listed and what the node says of itself. */
static void add_differences(const json_t *node, const struct inventory_node *x, struct str *out) {
    char a[32], b[32];
    u64 memory = daemon_u64(node, "memory");
    u64 bandwidth = daemon_u64(node, "read_bytes_per_s");
    if (x->memory_bytes && !inventory_memory_fits(x->memory_bytes, memory))
        str_addf(out, "%smemory: listed %s, the node has %s", out->n ? "; " : "",
                 size_text(x->memory_bytes, a), size_text(memory, b));
    if (x->chip && !inventory_chip_fits(x->chip, daemon_text(node, "cpu")))
        str_addf(out, "%schip: listed %s, the node has %s", out->n ? "; " : "", x->chip,
                 daemon_text(node, "cpu"));
    if (x->bandwidth_bytes_s && bandwidth && bandwidth < x->bandwidth_bytes_s / 2)
        str_addf(out, "%smemory bandwidth: listed %s/s, measured %s/s", out->n ? "; " : "",
                 size_text(x->bandwidth_bytes_s, a), size_text(bandwidth, b));
    if (x->is_coordinator && json_is_true(json_object_get(node, "is_worker")))
        str_addf(out, "%slisted as coordinator, but it takes layers: start it with --no-worker",
                 out->n ? "; " : "");
}

static void report(const struct inventory *inv, const json_t *state, bool json) {
    struct str o = {0};
    if (json)
        str_addc(&o, '[');
    else
        printf("%-20s %-8s %-24s %s\n", "HOST", "STATE", "ADDRESS", "REMARKS");
    for (u32 i = 0; i < inv->n; i++) {
        const struct inventory_node *x = &inv->v[i];
        const json_t *n = find_node(state, x);
        bool live = n && is_live(n);
        struct str note = {0};
        if (live)
            add_differences(n, x, &note);
        else
            add_reason(state, x, &note);
        if (json) {
            json_comma(&o);
            str_addc(&o, '{');
            json_put_str(&o, "host", x->name);
            json_put_bool(&o, "is_there", live);
            json_put_str(&o, "id", live ? daemon_text(n, "id") : NULL);
            json_put_str(&o, "remarks", str_z(&note));
            str_addc(&o, '}');
        } else {
            char name[COLUMN_CAP];
            printf("%s %-8s %-24.60s %s\n", column_text(x->name, 20, 40, name),
                   live ? "live" : "missing", x->addresses[0], str_z(&note));
        }
        str_deinit(&note);
    }
    if (json) printf("%s]\n", str_z(&o));
    str_deinit(&o);
}

/* Tells the node of all addresses. */
static bool tell(const struct daemon *d, const struct inventory *inv, struct err *e) {
    struct str body = {0};
    str_addz(&body, "{\"addresses\":[");
    for (u32 i = 0; i < inv->n; i++)
        for (u32 k = 0; k < inv->v[i].n_addresses; k++) {
            json_comma(&body);
            json_add_str(&body, view_of(inv->v[i].addresses[k]));
        }
    str_addz(&body, "]}");
    json_t *j = daemon_call(d, "/cluster/peers", str_z(&body), e);
    str_deinit(&body);
    json_decref(j);
    return j != NULL;
}

static bool same_namespace(const struct inventory *inv, const json_t *state, struct err *e) {
    const char *mine = daemon_text(state, "cluster");
    return !inv->name_space || strcmp(inv->name_space, mine) == 0 ||
           err_set(e, ERR_ARG,
                   "the inventory is of the namespace %s, the node here belongs to %s: start it "
                   "with --namespace %s",
                   inv->name_space, mine, inv->name_space);
}

static int init(const struct daemon *d, const struct inventory *inv, u32 timeout_s, bool json) {
    struct err e = {0};
    json_t *state = daemon_call(d, "/state", NULL, &e);
    bool ok = state && same_namespace(inv, state, &e) && tell(d, inv, &e);
    for (u64 end = clock_ms() + (u64)timeout_s * 1000;
         ok && n_there(inv, state) < inv->n && clock_ms() < end;) {
        clock_sleep_ms(POLL_MS);
        json_decref(state);
        state = daemon_call(d, "/state", NULL, &e);
        ok = state != NULL;
    }
    int code = EXIT_OK;
    if (ok) {
        u32 there = n_there(inv, state);
        report(inv, state, json);
        if (!json)
            printf("\n%u of %u nodes are there%s\n", there, inv->n,
                   there == inv->n ? "" : "; the others join by themselves when they can");
        code = there == inv->n ? EXIT_OK : EXIT_FAIL;
    }
    json_decref(state);
    return ok ? code : opts_fail(&e);
}

static const char TEXT[] =
    "Reads an inventory of machines, tells the node that runs here of their addresses, waits for\n"
    "them, and says which are missing and why, and where a machine is not what the file says. "
    "Start\n"
    "the nodes first (skein up on each machine).\n\n"
    "The inventory is YAML:\n"
    "  namespace: home\n"
    "  nodes:\n"
    "    - host: studio-1\n"
    "      address: 192.168.1.20      (or HOST:PORT of the bus, 52416; a list does as well)\n"
    "      chip: M3 Ultra\n"
    "      gpu_cores: 80\n"
    "      memory: 512 GB\n"
    "      bandwidth: 819 GB/s\n\n"
    "Examples:\n"
    "  skein cluster init --config inventory.yaml\n"
    "  skein up --inventory inventory.yaml        (a node that dials them from its start)";

int cmd_cluster(int argc, char **argv) {
    struct daemon d = daemon_default();
    const char *path = NULL;
    bool json = false;
    u32 timeout_s = 15;
    struct opt opts[] = {
        DAEMON_OPTS(&d),
        {"config", OPT_STR, &path, "the inventory", .word = "inventory", .value = "FILE"},
        {"timeout", OPT_U32, &timeout_s, "how long to wait for all (15)", .value = "SECONDS",
         .max = 86400},
        {"json", OPT_FLAG, &json, .help = "as JSON"},
    };
    const struct opts_cmd cmd = {"cluster", "init", "make a cluster of the machines in a file",
                                 TEXT,      opts,   ARRAY_LEN(opts),
                                 1,         1};
    int n, code;
    struct err e = {0};
    if (!opts_parse(&cmd, argc, argv, &n, &code)) return code;
    if (strcmp(argv[0], "init") != 0)
        err_set(&e, ERR_ARG, "there is no `skein cluster %s`: the one that is there is init",
                argv[0]);
    else if (!path)
        err_set(&e, ERR_ARG, "no inventory: skein cluster init --config FILE");
    if (e.code) return opts_fail(&e);
    struct arena mem = {0};
    struct inventory inv;
    code = EXIT_FAIL;
    if (cli_inventory(path, &mem, &inv, &e)) {
        fputs(str_z(&inv.remarks), stderr);
        code = init(&d, &inv, timeout_s, json);
        inventory_deinit(&inv);
    } else {
        code = opts_fail(&e);
    }
    arena_deinit(&mem);
    return code;
}
