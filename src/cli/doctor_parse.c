#include "cli/doctor_parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

enum { LINE_CAP = 512 };

/* The next line without its spaces at both ends, and how far it was indented; false at the end. */
static bool next_line(const char **p, char line[LINE_CAP], u32 *indent) {
    if (!**p) return false;
    size_t n = strcspn(*p, "\n"), skip = strspn(*p, " \t");
    if (skip > n) skip = n;
    size_t len = n - skip;
    while (len && ((*p)[skip + len - 1] == ' ' || (*p)[skip + len - 1] == '\r')) len--;
    snprintf(line, LINE_CAP, "%.*s", (int)MIN(len, (size_t)LINE_CAP - 1), *p + skip);
    if (indent) *indent = (u32)skip;
    *p += n + ((*p)[n] == '\n');
    return true;
}

/* The text behind "key", spaces skipped, or NULL. */
static const char *after(const char *line, const char *key) {
    size_t n = strlen(key);
    if (strncmp(line, key, n) != 0) return NULL;
    return line + n + strspn(line + n, " \t");
}

static u32 number(const char *s) {
    unsigned long v = strtoul(s, NULL, 10);
    return *s >= '0' && *s <= '9' && v <= UINT32_MAX ? (u32)v : 0;
}

static void copy_word(char *out, size_t cap, const char *s) {
    snprintf(out, cap, "%.*s", (int)MIN(strcspn(s, " \t,)"), cap - 1), s);
}

void doctor_parse_rdma_ctl(const char *text, struct doctor_mac *m) {
    if (strstr(text, "disabled"))
        m->rdma = SWITCH_OFF;
    else if (strstr(text, "enabled"))
        m->rdma = SWITCH_ON;
}

void doctor_parse_sw_vers(const char *text, struct doctor_mac *m) {
    char line[LINE_CAP];
    const char *v;
    while (next_line(&text, line, NULL)) {
        if ((v = after(line, "ProductVersion:"))) copy_word(m->version, sizeof m->version, v);
        if ((v = after(line, "BuildVersion:"))) copy_word(m->build, sizeof m->build, v);
    }
}

/* "(3) Thunderbolt Bridge" and in the next line "(Hardware Port: Thunderbolt Bridge, Device:
 * bridge0)". */
void doctor_parse_services(const char *text, struct doctor_mac *m) {
    char line[LINE_CAP], service[64] = "";
    bool disabled = false;
    const char *v;
    while (next_line(&text, line, NULL)) {
        if (!(v = after(line, "(Hardware Port:"))) {
            const char *close = *line == '(' ? strchr(line, ')') : NULL;
            if (!close) continue;
            disabled = line[1] == '*';
            str_copy(service, sizeof service, close + 1 + strspn(close + 1, " "));
            continue;
        }
        const char *device = strstr(v, "Device:");
        if (strncmp(v, "Thunderbolt", 11) != 0 && strncmp(v, "EXO Thunderbolt", 15) != 0) continue;
        if (!device || m->n_ports == DOCTOR_PORTS_MAX) continue;
        struct doctor_port *p = &m->ports[m->n_ports++];
        memset(p, 0, sizeof *p);
        str_copy(p->service, sizeof p->service, service);
        copy_word(p->device, sizeof p->device, device + 7 + strspn(device + 7, " "));
        p->is_bridge = strncmp(p->device, "bridge", 6) == 0;
        p->is_disabled = disabled;
    }
}

void doctor_parse_getinfo(const char *text, struct doctor_port *p) {
    char line[LINE_CAP];
    if (next_line(&text, line, NULL)) p->is_manual = strncmp(line, "Manual", 6) == 0;
}

static struct doctor_port *port_of(struct doctor_mac *m, const char *device, size_t n) {
    for (u32 i = 0; i < m->n_ports; i++)
        if (strlen(m->ports[i].device) == n && memcmp(m->ports[i].device, device, n) == 0)
            return &m->ports[i];
    return NULL;
}

void doctor_parse_ifconfig(const char *text, struct doctor_mac *m) {
    char line[LINE_CAP];
    u32 indent;
    struct doctor_port *p = NULL;
    while (next_line(&text, line, &indent)) {
        const char *v;
        if (indent == 0) {
            p = port_of(m, line, strcspn(line, ":"));
            v = strstr(line, " mtu ");
            if (p && v) p->mtu = number(v + 5);
            continue;
        }
        if (p && (v = after(line, "status:"))) p->is_active = strcmp(v, "active") == 0;
        struct doctor_port *member = p && p->is_bridge && (v = after(line, "member:"))
                                         ? port_of(m, v, strcspn(v, " "))
                                         : NULL;
        if (member) member->is_member = true;
    }
}

void doctor_parse_thunderbolt(const char *text, struct doctor_mac *m) {
    char line[LINE_CAP];
    bool connected = false;
    const char *v;
    while (next_line(&text, line, NULL)) {
        if ((v = after(line, "Status:"))) connected = strncmp(v, "Device connected", 16) == 0;
        if (!(v = after(line, "Speed:")) || !connected) continue;
        u32 gbit = strstr(v, "Gb/s") ? number(strncmp(v, "Up to ", 6) == 0 ? v + 6 : v) : 0;
        m->thunderbolt_gbit = MAX(m->thunderbolt_gbit, gbit);
        connected = false;
    }
}

void doctor_parse_mac_firewall(const char *text, struct doctor_mac *m) {
    char line[LINE_CAP];
    while (next_line(&text, line, NULL)) {
        if (strstr(line, "State = ")) m->firewall = strstr(line, "= 0") ? SWITCH_OFF : SWITCH_ON;
        if (!strstr(line, "lock all") && !strstr(line, "block all")) continue;
        m->block_all =
            strstr(line, "DISABLED") || strstr(line, "disabled") ? SWITCH_OFF : SWITCH_ON;
    }
}

u32 doctor_parse_speed_limit(const char *text) {
    const char *v = strstr(text, "CPU_Speed_Limit");
    v = v ? strchr(v, '=') : NULL;
    return v ? number(v + 1 + strspn(v + 1, " \t")) : 0;
}

enum doctor_switch doctor_parse_low_power(const char *text) {
    char line[LINE_CAP];
    const char *v;
    while (next_line(&text, line, NULL))
        if ((v = after(line, "lowpowermode"))) return number(v) ? SWITCH_ON : SWITCH_OFF;
    return SWITCH_UNKNOWN;
}

bool doctor_parse_on_battery(const char *text) {
    return strstr(text, "'Battery Power'") != NULL;
}

/* The number as a word of its own, or inside a range such as 52000-53000 or 52000:53000. */
static bool names_port(const char *line, u32 port) {
    for (const char *p = line; *p;) {
        if (*p < '0' || *p > '9') {
            p++;
            continue;
        }
        char *end;
        unsigned long a = strtoul(p, &end, 10), b = a;
        if ((*end == '-' || *end == ':') && end[1] >= '0' && end[1] <= '9')
            b = strtoul(end + 1, &end, 10);
        if (a <= port && port <= b) return true;
        p = end;
    }
    return false;
}

bool doctor_parse_nft(const char *text, u32 port, bool *knows) {
    char line[LINE_CAP];
    bool input = false, drops = false;
    *knows = false;
    while (next_line(&text, line, NULL)) {
        if (strncmp(line, "chain ", 6) == 0) input = false;
        if (strstr(line, "hook input")) {
            input = true;
            if (strstr(line, "policy drop")) drops = true;
        } else if (input && (strcmp(line, "drop") == 0 || strcmp(line, "reject") == 0)) {
            drops = true; /* a last rule for everything, as firewalld has it */
        }
        const char *rule = strstr(line, "dport");
        if (rule && names_port(rule, port)) *knows = true;
    }
    return drops;
}

bool doctor_parse_ufw(const char *text, u32 port, bool *knows) {
    char line[LINE_CAP];
    bool active = false;
    *knows = false;
    while (next_line(&text, line, NULL)) {
        if (strcmp(line, "Status: active") == 0) active = true;
        if (!strstr(line, "ALLOW")) continue;
        if (names_port(line, port) || strncmp(line, "Anywhere", 8) == 0) *knows = true;
    }
    return active;
}

int doctor_version_cmp(const char *a, const char *b) {
    for (;;) {
        char *ea, *eb;
        unsigned long va = strtoul(a, &ea, 10), vb = strtoul(b, &eb, 10);
        if (va != vb) return va < vb ? -1 : 1;
        if (*ea != '.' && *eb != '.') return 0;
        a = *ea == '.' ? ea + 1 : "0";
        b = *eb == '.' ? eb + 1 : "0";
    }
}
