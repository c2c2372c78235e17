/* doctor.c - the command: collects facts, has them judged, prints what was found. */
#include "cli/doctor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cli/cli.h"
#include "cli/daemon.h"
#include "node/node.h"

enum {
    LISTEN_MS = 2500 /* answers to the same question come at most once a second */,
    PATIENCE_MS = 1500,
    STATE_MS = 5000
};

static const char *const WORDS[] = {[DOCTOR_FINE] = "fine",
                                    [DOCTOR_NOTE] = "note",
                                    [DOCTOR_WARNING] = "warning",
                                    [DOCTOR_BROKEN] = "broken"};

static void add_finding(const struct doctor_finding *x, struct str *out) {
    static const char *const SIGNS[] = {"  ok     ", "  note   ", "  WARN   ", "  BROKEN "};
    str_addf(out, "%s %-11s %s\n", SIGNS[x->level], x->check, x->what);
    if (*x->why && x->level != DOCTOR_FINE) str_addf(out, "%21s %s\n", "", x->why);
    if (*x->fix && x->level != DOCTOR_FINE) str_addf(out, "%21s fix: %s\n", "", x->fix);
}

void doctor_text(const struct doctor_facts *f, const struct doctor_report *r, bool all,
                 struct str *out) {
    (void)f;
    for (int level = DOCTOR_BROKEN; level >= DOCTOR_FINE; level--)
        for (u32 i = 0; i < r->n && (all || level != DOCTOR_FINE); i++)
            if ((int)r->v[i].level == level) add_finding(&r->v[i], out);
    str_addf(out, "%u broken, %u warning%s, %u note%s, %u fine\n", doctor_count(r, DOCTOR_BROKEN),
             doctor_count(r, DOCTOR_WARNING), doctor_count(r, DOCTOR_WARNING) == 1 ? "" : "s",
             doctor_count(r, DOCTOR_NOTE), doctor_count(r, DOCTOR_NOTE) == 1 ? "" : "s",
             doctor_count(r, DOCTOR_FINE));
}

void doctor_json(const struct doctor_report *r, struct str *out) {
    str_addc(out, '{');
    json_put_bool(out, "ok", doctor_count(r, DOCTOR_BROKEN) == 0);
    json_put_u64(out, "broken", doctor_count(r, DOCTOR_BROKEN));
    json_put_u64(out, "warnings", doctor_count(r, DOCTOR_WARNING));
    json_key(out, "findings");
    str_addc(out, '[');
    for (u32 i = 0; i < r->n; i++) {
        const struct doctor_finding *x = &r->v[i];
        json_comma(out);
        str_addc(out, '{');
        json_put_str(out, "check", x->check);
        json_put_str(out, "level", WORDS[x->level]);
        json_put_str(out, "what", x->what);
        json_put_str(out, "why", *x->why ? x->why : NULL);
        json_put_str(out, "fix", *x->fix ? x->fix : NULL);
        str_addc(out, '}');
    }
    str_addz(out, "]}");
}

static void ask_node(const struct daemon *d, struct doctor_facts *f) {
    struct err e = {0};
    struct str text = {0};
    json_t *state = daemon_call(d, "/state", NULL, &e);
    if (state) {
        json_dump(state, &text);
        doctor_read_state(f, text.p, text.n);
    } else {
        char url[512];
        snprintf(f->node_error, sizeof f->node_error, "%s does not answer", daemon_url(d, "", url));
    }
    json_decref(state);
    str_deinit(&text);
}

static void add_given(struct doctor_facts *f, const struct opt_list *peers, u32 bus_port) {
    for (u32 i = 0; i < peers->n; i++) {
        char host[SOCK_HOST_CAP], address[SOCK_ADDRESS_CAP];
        u16 port;
        bool ok = sock_split(peers->v[i], (u16)bus_port, host, &port, NULL);
        struct doctor_peer *p =
            doctor_peer(f, "", ok ? sock_join(host, port, address) : peers->v[i]);
        if (p) p->is_given = true;
    }
}

static int doctor(const struct daemon *d, const struct opt_list *peers, u32 listen_ms, bool json,
                  bool all) {
    struct doctor_facts *f = calloc(1, sizeof *f);
    struct doctor_report *r = calloc(1, sizeof *r);
    struct str out = {0};
    if (!f || !r) return EXIT_FAIL;
    f->bus_port = NODE_BUS_PORT;
    ask_node(d, f);
    add_given(f, peers, NODE_BUS_PORT);
    doctor_look(f);
    doctor_probe_multicast(f);
    if (listen_ms) doctor_probe_announced(f, listen_ms);
    doctor_probe_reach(f, PATIENCE_MS);
    if (f->has_node) doctor_probe_own_bus(f, PATIENCE_MS);
    doctor_judge(f, r);
    if (json)
        doctor_json(r, &out), str_addc(&out, '\n');
    else
        doctor_text(f, r, all, &out);
    fputs(str_z(&out), stdout);
    int code = doctor_count(r, DOCTOR_BROKEN) ? EXIT_FAIL : EXIT_OK;
    str_deinit(&out);
    free(f);
    free(r);
    return code;
}

static const char TEXT[] =
    "Looks for what keeps this machine from being found, joined or fast: multicast, ports,\n"
    "firewall, MTU, versions, names of clusters, clock, memory, disk, limits, power, GPUs, RDMA.\n"
    "Each finding says what, why it matters and what helps. Works with a running node, which\n"
    "knows the others, and without one. Exits with 1 when something is broken.\n"
    "\n"
    "Examples:\n"
    "  skein doctor\n"
    "  skein doctor --peer 192.168.1.20          is that node reachable from here?\n"
    "  skein doctor --json | jq '.findings[] | select(.level != \"fine\")'";

int cmd_doctor(int argc, char **argv) {
    struct daemon d = daemon_default();
    struct opt_list peers = {0};
    bool json = false, all = false;
    u32 listen_ms = LISTEN_MS;
    d.timeout_ms = STATE_MS;
    struct opt opts[] = {
        DAEMON_OPTS(&d),
        {"peer", OPT_LIST, &peers, "another node to look for; may be given several times",
         .value = "HOST[:PORT]", .env = "PEERS"},
        {"listen", OPT_U32, &listen_ms, "how long to listen for other nodes' announcements (2500)",
         .value = "MS", .min = 0, .max = 60000},
        {"json", OPT_FLAG, &json, .help = "as JSON"},
        {"all", OPT_FLAG, &all, .help = "list what is fine too", .letter = 'a'},
    };
    const struct opts_cmd cmd = {"doctor", NULL, "find out what is wrong with machine and network",
                                 TEXT,     opts, ARRAY_LEN(opts),
                                 0,        0};
    int n, code;
    if (!opts_parse(&cmd, argc, argv, &n, &code)) return code;
    return doctor(&d, &peers, listen_ms, json, all);
}
