#include "cli/machines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

enum { MOST_PARTS = 4, OPS_A_BYTE = 12 };

/* Memory and its bandwidth as the makers state them. */
static const struct kind {
    const char *name;
    u32 memory_gib, bandwidth_gb_s;
} KINDS[] = {
    {"m1", 16, 68},         {"m1-max", 64, 400},      {"m1-ultra", 128, 800},
    {"m2", 24, 100},        {"m2-ultra", 192, 800},   {"m3-max", 128, 400},
    {"m3-ultra", 512, 819}, {"m4", 32, 120},          {"m4-pro", 64, 273},
    {"m4-max", 128, 546},   {"dgx-spark", 128, 273},  {"strix-halo", 128, 256},
    {"rpi5", 8, 17},        {"desktop-ddr5", 64, 80}, {"epyc-ddr5", 768, 460},
};

struct node_extra machine_of(const char *name, double memory_bytes, double read_bytes_s) {
    return (struct node_extra){.name = name,
                               .memory_bytes =
                                   (u64)(memory_bytes * 0.9), /* the system takes some */
                               .read_bytes_s = read_bytes_s,
                               .ops_s = read_bytes_s * OPS_A_BYTE,
                               .delay_s = 150e-6,
                               .link_bytes_s = 1.15e8};
}

static bool refuse(const char *text, struct err *e) {
    struct str kinds = {0};
    for (size_t i = 0; i < ARRAY_LEN(KINDS); i++)
        str_addf(&kinds, "%s%s", i ? ", " : "", KINDS[i].name);
    err_set(e, ERR_ARG,
            "\"%.80s\" is no machine: say one of %s, or "
            "NAME=MEMORY_GIB:BANDWIDTH_GB_S[:LINK_GBIT_S[:DELAY_US]]",
            text, str_z(&kinds));
    str_deinit(&kinds);
    return false;
}

bool machine_parse(const char *text, struct node_extra *m, char name[MACHINE_NAME_CAP],
                   struct err *e) {
    const char *eq = strchr(text, '='), *what = eq ? eq + 1 : text;
    double x[MOST_PARTS] = {0};
    int n = 0;
    snprintf(name, MACHINE_NAME_CAP, "%.*s", eq ? (int)(eq - text) : (int)strlen(text), text);
    if (!*name || strchr(name, ',')) return refuse(text, e);
    for (size_t i = 0; i < ARRAY_LEN(KINDS); i++) {
        if (strcmp(what, KINDS[i].name) != 0) continue;
        *m = machine_of(name, (double)((u64)KINDS[i].memory_gib << 30),
                        KINDS[i].bandwidth_gb_s * 1e9);
        return true;
    }
    for (const char *at = what; n < MOST_PARTS;) {
        char *end;
        x[n] = strtod(at, &end);
        if (end == at || !(x[n] > 0 && x[n] < 1e6)) return refuse(text, e);
        n++;
        if (!*end) break;
        if (*end != ':' || n == MOST_PARTS) return refuse(text, e);
        at = end + 1;
    }
    if (n < 2) return refuse(text, e);
    *m = machine_of(name, x[0] * 1024 * 1024 * 1024, x[1] * 1e9);
    if (n > 2) m->link_bytes_s = x[2] / 8 * 1e9 * 0.94;
    if (n > 3) m->delay_s = x[3] / 1e6;
    return true;
}
