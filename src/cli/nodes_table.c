#include "cli/nodes_table.h"

#include <stdio.h>
#include <string.h>

#include "cli/column.h"
#include "cli/daemon.h"

enum {
    NAME_MAX_SHOWN = 24,
    ID_MIN_SHOWN = 6,
    ID_CAP = 65,
};

static const json_t *get(const json_t *o, const char *key) {
    return json_object_get(o, key);
}
static bool is(const json_t *o, const char *key) {
    return json_is_true(get(o, key));
}

/* Rates in powers of ten, as networks and memory are sold: "45.1 GB/s"; "-" when not known. */
static const char *rate_text(u64 bytes_s, char buf[32]) {
    static const char *const UNITS[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
    double v = (double)bytes_s;
    u32 u = 0;
    while (v >= 999.5 && u + 1 < ARRAY_LEN(UNITS)) {
        v /= 1000;
        u++;
    }
    if (!bytes_s)
        str_copy(buf, 32, "-");
    else
        snprintf(buf, 32, v < 9.95 && u ? "%.1f %s" : "%.0f %s", v, UNITS[u]);
    return buf;
}

static const char *time_text(u64 us, char buf[32]) {
    if (!us)
        str_copy(buf, 32, "-");
    else if (us < 1000)
        snprintf(buf, 32, "%llu us", (unsigned long long)us);
    else
        snprintf(buf, 32, us < 10000 ? "%.2f ms" : "%.1f ms", (double)us / 1000);
    return buf;
}

static const char *speed_text(u64 mbit, char buf[32]) {
    if (!mbit)
        str_copy(buf, 32, "");
    else if (mbit % 1000 == 0 || mbit > 10000)
        snprintf(buf, 32, " %llu Gbit/s", (unsigned long long)(mbit / 1000));
    else if (mbit > 1000)
        snprintf(buf, 32, " %.1f Gbit/s", (double)mbit / 1000);
    else
        snprintf(buf, 32, " %llu Mbit/s", (unsigned long long)mbit);
    return buf;
}

static const char *bytes_text(const json_t *o, const char *key, char buf[32]) {
    u64 v = daemon_u64(o, key);
    if (v) return size_text(v, buf);
    str_copy(buf, 32, "-");
    return buf;
}

static const char *temperature_text(const json_t *n, char buf[32]) {
    u64 c = daemon_u64(n, "temperature_c");
    if (c)
        snprintf(buf, 32, "%llu C", (unsigned long long)c);
    else
        str_copy(buf, 32, "-");
    return buf;
}

static const char *power_text(const json_t *n, char buf[32]) {
    double w = json_number_value(get(n, "power_w"));
    if (w > 0)
        snprintf(buf, 32, w < 10 ? "%.1f W" : "%.0f W", w);
    else
        str_copy(buf, 32, "-");
    return buf;
}

/* "0.1.0" of "0.1.0 (build ...)". */
static const char *version_of(const json_t *n, char buf[32]) {
    const char *build = daemon_text(n, "build");
    snprintf(buf, 32, "%.*s", (int)MIN(strcspn(build, " "), 20u), build);
    return *buf ? buf : "-";
}

static const char *state_text(const json_t *n, char buf[32]) {
    bool lost = strcmp(daemon_text(n, "state"), "lost") == 0;
    str_copy(buf, 32,
             lost                  ? (is(n, "is_stopped") ? "stopped" : "lost")
             : is(n, "is_drained") ? "drained"
                                   : "live");
    return buf;
}

static void add_part(struct str *o, size_t begin, const char *text) {
    if (!*text) return;
    if (o->n > begin) str_addz(o, ", ");
    str_addz(o, text);
}

static void add_gpus(const json_t *n, struct str *o, size_t begin) {
    size_t i;
    json_t *g;
    char text[256], mem[32];
    json_array_foreach(get(n, "gpus"), i, g) {
        u64 bytes = daemon_u64(g, "memory");
        snprintf(text, sizeof text, "%.90s%s%s", daemon_text(g, "name"), bytes ? " " : "",
                 bytes ? size_text(bytes, mem) : "");
        add_part(o, begin, text);
    }
}

static void add_hardware(const json_t *n, struct str *o) {
    char text[128];
    str_addz(o, "  ");
    size_t begin = o->n;
    add_part(o, begin, daemon_text(n, "model"));
    add_part(o, begin, daemon_text(n, "cpu"));
    add_part(o, begin, daemon_text(n, "isa"));
    u64 big = daemon_u64(n, "cores_big"), cores = daemon_u64(n, "cores");
    if (big && big < cores) {
        snprintf(text, sizeof text, "%llu fast cores", (unsigned long long)big);
        add_part(o, begin, text);
    }
    add_gpus(n, o, begin);
    add_part(o, begin, daemon_text(n, "os"));
    if (is(n, "is_throttled")) {
        snprintf(text, sizeof text, "SLOWED DOWN (%.40s)", daemon_text(n, "throttle"));
        add_part(o, begin, text);
    }
    if (is(n, "is_on_battery")) add_part(o, begin, "on battery");
    if (strcmp(daemon_text(n, "state"), "lost") == 0) {
        snprintf(text, sizeof text, "last heard %llu s ago",
                 (unsigned long long)(daemon_u64(n, "seen_ms_ago") / 1000));
        add_part(o, begin, text);
    }
    str_addc(o, '\n');
}

/* What the node holds. */
static void add_layers(const json_t *n, struct str *o) {
    size_t i;
    json_t *s;
    char mem[32];
    const json_t *shards = get(n, "shards");
    if (!json_array_size(shards)) return;
    str_addz(o, "  holds ");
    json_array_foreach((json_t *)(uintptr_t)shards, i, s) {
        u64 first = daemon_u64(s, "layer_first"), end = daemon_u64(s, "layer_end");
        str_addf(o, "%s%s %llu-%llu of %llu", i ? ", " : "", daemon_text(s, "model"),
                 (unsigned long long)first, (unsigned long long)(end ? end - 1 : 0),
                 (unsigned long long)daemon_u64(s, "n_layers"));
        if (strcmp(daemon_text(s, "status"), "ready") != 0)
            str_addf(o, " (%s)", daemon_text(s, "status"));
    }
    str_addf(o, ", %s\n", size_text(daemon_u64(n, "memory_instances"), mem));
}

/* "10.0.0.2:52416 over eth0": the way that messages take. */
static const char *address_of(const json_t *n, char buf[160]) {
    const json_t *route = get(n, "route");
    if (strcmp(daemon_text(n, "state"), "self") == 0) return "(this node)";
    const char *over = daemon_text(route, "interface"), *kind = daemon_text(route, "kind");
    snprintf(buf, 160, "%.80s%s%.30s%s%.20s%s",
             *daemon_text(route, "address") ? daemon_text(route, "address")
                                            : daemon_text(n, "address"),
             *over ? " over " : "", over, *over ? " (" : "", *over ? kind : "", *over ? ")" : "");
    return buf;
}

static bool same_word(const json_t *a, const json_t *b, const char *key) {
    return strcmp(daemon_text(a, key), daemon_text(b, key)) == 0;
}

/* A line a node and reason: a machine has several addresses, and it refuses us at each of them. */
static void add_refused(const json_t *refused, struct str *o) {
    size_t n = json_array_size(refused);
    for (size_t i = 0; i < n; i++) {
        const json_t *r = json_array_get(refused, i);
        size_t k = 0;
        while (k < i && !(same_word(json_array_get(refused, k), r, "id") &&
                          same_word(json_array_get(refused, k), r, "reason")))
            k++;
        if (k < i) continue; /* in the line of k */
        str_addf(o, "refused: %s at %s", daemon_text(r, "id"), daemon_text(r, "address"));
        for (k = i + 1; k < n; k++) {
            const json_t *more = json_array_get(refused, k);
            if (same_word(more, r, "id") && same_word(more, r, "reason"))
                str_addf(o, ", %s", daemon_text(more, "address"));
        }
        str_addf(o, ": %s\n", daemon_text(r, "reason"));
    }
}

/* As much of the id as no other node's has, so that it can be typed where a node is named. */
static void id_text(const json_t *nodes, const json_t *n, char out[ID_CAP]) {
    size_t i, same = ID_MIN_SHOWN - 1;
    json_t *other;
    const char *id = daemon_text(n, "id");
    json_array_foreach((json_t *)(uintptr_t)nodes, i, other) {
        const char *theirs = daemon_text(other, "id");
        size_t k = 0;
        while (id[k] && id[k] == theirs[k]) k++;
        if (other != n) same = MAX(same, k);
    }
    str_copy(out, MIN((size_t)ID_CAP, same + 2), *id ? id : "-");
}

void nodes_table(const json_t *state, struct str *o) {
    size_t i;
    json_t *n;
    str_addf(o, "%-*s %-8s %-8s %-12s %5s %10s %9s %9s %6s %7s  %-8s %s\n", NAME_MAX_SHOWN, "NODE",
             "ID", "STATE", "ROLE", "CORES", "READS", "FREE", "MEMORY", "TEMP", "POWER", "VERSION",
             "ADDRESS");
    json_array_foreach(get(state, "nodes"), i, n) {
        char name[COLUMN_CAP + 1], shown[COLUMN_CAP], id[ID_CAP], st[32], read[32], free_mem[32],
            mem[32], temp[32], power[32], version[32], address[160];
        column_text(daemon_text(n, "name"), 0, NAME_MAX_SHOWN - 2, name);
        if (is(n, "is_master")) str_copy(name + strlen(name), 2, "*");
        id_text(get(state, "nodes"), n, id);
        str_addf(o, "%s %-8s %-8s %-12s %5llu %10s %9s %9s %6s %7s  %-8s %s\n",
                 column_text(name, NAME_MAX_SHOWN, NAME_MAX_SHOWN, shown), id, state_text(n, st),
                 daemon_text(n, "role"),
                 (unsigned long long)daemon_u64(n, "cores"),
                 rate_text(daemon_u64(n, "read_bytes_per_s"), read),
                 bytes_text(n, "memory_available", free_mem), bytes_text(n, "memory", mem),
                 temperature_text(n, temp), power_text(n, power), version_of(n, version),
                 address_of(n, address));
        add_hardware(n, o);
        add_layers(n, o);
    }
    str_addf(o, "\n* master%s\n",
             is(state, "cluster_is_open") ? "; the cluster has no join key: it is open" : "");
    add_refused(get(state, "refused"), o);
}

static const char *name_of(const json_t *state, const char *id, char buf[COLUMN_CAP]) {
    size_t i;
    json_t *n;
    snprintf(buf, COLUMN_CAP, "%.8s", id);
    json_array_foreach(get(state, "nodes"), i, n) if (strcmp(daemon_text(n, "id"), id) == 0)
        column_text(daemon_text(n, "name"), 0, 24, buf);
    return buf;
}

void nodes_links(const json_t *state, struct str *o) {
    size_t i;
    json_t *l;
    const json_t *links = get(state, "links");
    if (!json_array_size(links)) return;
    str_addf(o, "%-34s %-28s %9s %9s %10s %6s  %s\n", "LINK", "OVER", "RTT", "P99", "BANDWIDTH",
             "MTU", "JUMBO");
    json_array_foreach((json_t *)(uintptr_t)links, i, l) {
        char from[COLUMN_CAP], to[COLUMN_CAP], both[2 * COLUMN_CAP + 8], pair[COLUMN_CAP],
            over[128], speed[32], rtt[32], p99[32], rate[32];
        snprintf(both, sizeof both, "%s -> %s", name_of(state, daemon_text(l, "from"), from),
                 name_of(state, daemon_text(l, "to"), to));
        column_text(both, 34, UINT32_MAX, pair);
        snprintf(over, sizeof over, "%.30s %.20s%s", daemon_text(l, "interface"),
                 daemon_text(l, "kind"), speed_text(daemon_u64(l, "speed_mbit"), speed));
        const char *problem = daemon_text(l, "problem");
        if (*problem && !daemon_u64(l, "rtt_us")) {
            str_addf(o, "%s not measured: %s\n", pair, problem);
            continue;
        }
        str_addf(o, "%s %-28s %9s %9s %10s %6llu  %s\n", pair, over,
                 time_text(daemon_u64(l, "rtt_us"), rtt),
                 time_text(daemon_u64(l, "rtt_p99_us"), p99),
                 rate_text(daemon_u64(l, "bandwidth_bytes_per_s"), rate),
                 (unsigned long long)daemon_u64(l, "mtu"), is(l, "jumbo") ? "yes" : "no");
        if (*problem) str_addf(o, "  %s\n", problem);
    }
}
