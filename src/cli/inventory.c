#include "cli/inventory.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/similar.h"
#include "base/sock.h"
#include "base/yaml.h"

enum field {
    F_NAME,
    F_ADDRESS,
    F_PORT,
    F_CHIP,
    F_GPU,
    F_MEMORY,
    F_MEMORY_GB,
    F_BANDWIDTH,
    F_BANDWIDTH_GB,
    F_ROLE,
    F_NONE
};

static const struct {
    const char *key;
    enum field field;
} FIELDS[] = {
    {"host", F_NAME},
    {"hostname", F_NAME},
    {"name", F_NAME},
    {"node", F_NAME},
    {"address", F_ADDRESS},
    {"addresses", F_ADDRESS},
    {"ip", F_ADDRESS},
    {"ips", F_ADDRESS},
    {"ip_address", F_ADDRESS},
    {"addr", F_ADDRESS},
    {"port", F_PORT},
    {"bus_port", F_PORT},
    {"chip", F_CHIP},
    {"cpu", F_CHIP},
    {"soc", F_CHIP},
    {"processor", F_CHIP},
    {"gpu_cores", F_GPU},
    {"memory", F_MEMORY},
    {"ram", F_MEMORY},
    {"unified_memory", F_MEMORY},
    {"memory_gb", F_MEMORY_GB},
    {"ram_gb", F_MEMORY_GB},
    {"unified_memory_gb", F_MEMORY_GB},
    {"bandwidth", F_BANDWIDTH},
    {"memory_bandwidth", F_BANDWIDTH},
    {"bandwidth_gbps", F_BANDWIDTH_GB},
    {"bandwidth_gb_s", F_BANDWIDTH_GB},
    {"memory_bandwidth_gbps", F_BANDWIDTH_GB},
    {"memory_bandwidth_gb_s", F_BANDWIDTH_GB},
    {"role", F_ROLE},
};

/* "gpu-cores", "gpuCores" and "GPU_Cores" are gpu_cores. */
static void plain_key(const char *key, char out[64]) {
    size_t n = 0;
    for (const char *p = key; *p && n < 62; p++) {
        bool upper = *p >= 'A' && *p <= 'Z';
        bool hump = upper && p > key && p[-1] >= 'a' && p[-1] <= 'z';
        if (hump) out[n++] = '_';
        out[n++] = upper ? (char)(*p + 32) : *p == '-' || *p == ' ' ? '_' : *p;
    }
    out[n] = 0;
}

static enum field field_of(const char *key) {
    char plain[64];
    plain_key(key, plain);
    for (u32 i = 0; i < ARRAY_LEN(FIELDS); i++)
        if (strcmp(FIELDS[i].key, plain) == 0) return FIELDS[i].field;
    return F_NONE;
}

static const char *near_key(const char *key) {
    char plain[64];
    plain_key(key, plain);
    struct similar s = similar_to(plain);
    for (u32 i = 0; i < ARRAY_LEN(FIELDS); i++) similar_offer(&s, FIELDS[i].key);
    return s.best;
}

bool inventory_size(const char *text, u64 unit, bool binary, u64 *out) {
    static const char UNITS[] = "KMGTP";
    char *end;
    if (*text < '0' || *text > '9') return false;
    double v = strtod(text, &end);
    end += strspn(end, " ");
    double scale = (double)unit;
    const char *prefix = *end ? strchr(UNITS, *end >= 'a' ? *end - 32 : *end) : NULL;
    if (*end && prefix) {
        end++;
        bool is_binary = *end == 'i';
        end += is_binary;
        scale = 1;
        for (const char *u = UNITS; u <= prefix; u++) scale *= is_binary || binary ? 1024 : 1000;
    } else if (*end) {
        scale = 1;
    }
    if (*end == 'B' || *end == 'b') end++;
    if (strcmp(end, "/s") == 0 || strcmp(end, "ps") == 0) end += 2;
    if (*end || !(v * scale < 1e18)) return false;
    *out = (u64)(v * scale);
    return true;
}

static bool at(const struct yaml *y, struct err *e, const char *what, const char *help) {
    return err_set(e, ERR_FORMAT, "line %u: %s%s%.60s%s: %s", y->line, what, y->text ? " \"" : "",
                   y->text ? y->text : "", y->text ? "\"" : "", help);
}

static bool add_address(struct inventory_node *n, const struct yaml *y, struct err *e) {
    char host[SOCK_HOST_CAP];
    u16 port;
    if (y->kind != YAML_SCALAR || !sock_split(y->text, 1, host, &port, NULL))
        return at(y, e, "address", "expected HOST or HOST:PORT");
    if (n->n_addresses == INVENTORY_ADDRESSES_MAX)
        return at(y, e, "address", "a node has at most 8 of them");
    n->addresses[n->n_addresses++] = y->text;
    return true;
}

static bool add_addresses(struct inventory_node *n, const struct yaml *y, struct err *e) {
    if (y->kind != YAML_SEQ) return add_address(n, y, e);
    for (const struct yaml *c = y->first; c; c = c->next)
        if (!add_address(n, c, e)) return false;
    return true;
}

/* `what` is for the error. */
static bool text_of(const struct yaml *y, const char *what, const char **out, struct err *e) {
    if (y->kind != YAML_SCALAR || !*y->text) return at(y, e, what, "expected a text");
    *out = y->text;
    return true;
}

static bool size_of(const struct yaml *y, const char *what, u64 unit, bool binary, u64 *out,
                    struct err *e) {
    if (y->kind == YAML_SCALAR && inventory_size(y->text, unit, binary, out)) return true;
    return at(y, e, what, "expected a size such as 64 GB");
}

static bool read_role(struct inventory_node *n, const struct yaml *y, struct err *e) {
    static const char *const COORDINATORS[] = {"coordinator", "master",        "api",
                                               "router",      "load_balancer", "loadbalancer"};
    const char *role = "";
    if (!text_of(y, "role", &role, e)) return false;
    char plain[64];
    plain_key(role, plain);
    for (u32 i = 0; i < ARRAY_LEN(COORDINATORS); i++)
        if (strcmp(plain, COORDINATORS[i]) == 0) n->is_coordinator = true;
    return n->is_coordinator || strcmp(plain, "worker") == 0 ||
           at(y, e, "role", "expected worker or coordinator");
}

static bool read_field(struct inventory *inv, struct inventory_node *n, const struct yaml *y,
                       u64 *port, struct err *e) {
    enum { GB = 1000000000, GIB = 1 << 30 };
    switch (field_of(y->key)) {
    case F_NAME: return text_of(y, "host", &n->name, e);
    case F_ADDRESS: return add_addresses(n, y, e);
    case F_CHIP: return text_of(y, "chip", &n->chip, e);
    case F_MEMORY:
    case F_MEMORY_GB: return size_of(y, "memory", GIB, true, &n->memory_bytes, e);
    case F_BANDWIDTH:
    case F_BANDWIDTH_GB: return size_of(y, "bandwidth", GB, false, &n->bandwidth_bytes_s, e);
    case F_ROLE: return read_role(n, y, e);
    case F_PORT:
        if (y->kind != YAML_SCALAR || !inventory_size(y->text, 1, false, port) || !*port ||
            *port > 65535)
            return at(y, e, "port", "expected 1..65535");
        return true;
    case F_GPU:
        return (y->kind == YAML_SCALAR && inventory_size(y->text, 1, false, &n->gpu_cores)) ||
               at(y, e, "gpu_cores", "expected a number");
    case F_NONE: break;
    }
    const char *near = near_key(y->key);
    str_addf(&inv->remarks, "line %u: field %.60s means nothing here%s%s%s\n", y->line, y->key,
             near ? " (did you mean " : "", near ? near : "", near ? "?)" : "");
    return true;
}

/* A port of its own goes to addresses that name none. */
static void add_port(struct inventory_node *n, u64 port, struct arena *mem) {
    for (u32 i = 0; port && i < n->n_addresses; i++) {
        char host[SOCK_HOST_CAP], joined[SOCK_ADDRESS_CAP];
        u16 own = 0;
        if (sock_split(n->addresses[i], 0, host, &own, NULL)) continue;
        if (sock_split(n->addresses[i], 1, host, &own, NULL))
            n->addresses[i] = arena_strdup(mem, sock_join(host, (u16)port, joined));
    }
}

static bool read_node(struct inventory *inv, const struct yaml *y, const char *key,
                      struct arena *mem, struct err *e) {
    struct inventory_node *n = &inv->v[inv->n];
    u64 port = 0;
    *n = (struct inventory_node){.name = key, .line = y->line};
    if (y->kind == YAML_SCALAR) { /* "- studio-1" */
        if (!add_address(n, y, e)) return false;
        n->name = key ? key : y->text;
    } else if (y->kind != YAML_MAP) {
        return at(y, e, "a node", "expected fields such as host: and address:");
    }
    for (const struct yaml *c = y->first; c; c = c->next)
        if (!read_field(inv, n, c, &port, e)) return false;
    if (!n->name && n->n_addresses) n->name = n->addresses[0];
    if (!n->name) return at(y, e, "a node", "it has neither host nor address");
    if (!n->n_addresses) {
        const struct yaml as_address = {.line = y->line, .text = n->name};
        if (!add_address(n, &as_address, e)) return false;
    }
    add_port(n, port, mem);
    for (u32 i = 0; i < inv->n; i++)
        if (strcasecmp(inv->v[i].name, n->name) == 0)
            return err_set(e, ERR_FORMAT, "line %u: %.60s is listed in line %u already", y->line,
                           n->name, inv->v[i].line);
    inv->n++;
    return true;
}

static const struct yaml *list_of(const struct yaml *root) {
    static const char *const KEYS[] = {"nodes", "devices", "machines", "hosts", "inventory"};
    if (root->kind == YAML_SEQ) return root;
    for (u32 i = 0; i < ARRAY_LEN(KEYS); i++) {
        const struct yaml *y = yaml_get(root, KEYS[i]);
        if (y) return y;
    }
    const struct yaml *inner = yaml_get(root, "cluster");
    return inner && inner->kind == YAML_MAP ? list_of(inner) : NULL;
}

static const char *namespace_of(const struct yaml *root) {
    const char *t = yaml_text(root, "namespace");
    if (t) return t;
    const struct yaml *c = yaml_get(root, "cluster");
    if (!c) return NULL;
    if (c->kind == YAML_SCALAR) return c->text;
    t = yaml_text(c, "namespace");
    return t ? t : yaml_text(c, "name");
}

bool inventory_parse(struct view text, struct arena *mem, struct inventory *out, struct err *e) {
    *out = (struct inventory){0};
    const struct yaml *root = yaml_parse(text, mem, e);
    if (!root) return false;
    const struct yaml *list = list_of(root);
    if (!list || list->kind == YAML_SCALAR)
        return err_set(e, ERR_FORMAT,
                       "line %u: no list of nodes: expected nodes: with an entry for each machine",
                       list ? list->line : root->line);
    u32 n = 0;
    for (const struct yaml *c = list->first; c; c = c->next) n++;
    if (n == 0) return err_set(e, ERR_FORMAT, "line %u: the list of nodes is empty", list->line);
    if (n > INVENTORY_NODES_MAX)
        return err_set(e, ERR_LIMIT, "%u nodes, the limit is %d", n, (int)INVENTORY_NODES_MAX);
    out->name_space = namespace_of(root);
    out->v = arena_array(mem, n, sizeof *out->v);
    for (const struct yaml *c = list->first; c; c = c->next) {
        if (read_node(out, c, list->kind == YAML_MAP ? c->key : NULL, mem, e)) continue;
        inventory_deinit(out);
        return false;
    }
    return true;
}

void inventory_deinit(struct inventory *inv) {
    str_deinit(&inv->remarks);
}

bool inventory_memory_fits(u64 listed, u64 reported) {
    return reported >= listed - listed / 8 && reported <= listed + listed / 8;
}

bool inventory_chip_fits(const char *listed, const char *reported) {
    for (const char *p = listed; *p;) {
        size_t n = strcspn(p, " ");
        bool found = n == 0;
        for (const char *r = reported; *r && !found; r++) found = strncasecmp(r, p, n) == 0;
        if (!found) return false;
        p += n + (p[n] == ' ');
    }
    return true;
}

bool inventory_same_host(const char *a, const char *b) {
    size_t n = strcspn(a, "."), m = strcspn(b, ".");
    bool numeric = a[strspn(a, "0123456789.")] == 0 || strchr(a, ':');
    if (numeric) return strcasecmp(a, b) == 0;
    return n && n == m && strncasecmp(a, b, n) == 0;
}
