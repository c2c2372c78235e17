/* doctor_judge.c - the list of findings, and those about the cluster as a whole. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/version.h"
#include "cli/doctor.h"

struct doctor_finding *doctor_add(struct doctor_report *r, enum doctor_level level,
                                  const char *check, const char *why, const char *fix,
                                  const char *what, ...) {
    static struct doctor_finding spare;
    struct doctor_finding *x = r->n < DOCTOR_FINDINGS_MAX ? &r->v[r->n++] : &spare;
    va_list ap;
    *x = (struct doctor_finding){.level = level, .check = check};
    va_start(ap, what);
    vsnprintf(x->what, sizeof x->what, what, ap);
    va_end(ap);
    str_copy(x->why, sizeof x->why, why ? why : "");
    str_copy(x->fix, sizeof x->fix, fix ? fix : "");
    return x;
}

u32 doctor_count(const struct doctor_report *r, enum doctor_level level) {
    u32 n = 0;
    for (u32 i = 0; i < r->n; i++) n += r->v[i].level == level;
    return n;
}

const struct doctor_finding *doctor_find(const struct doctor_report *r, const char *check,
                                         enum doctor_level level, const char *text) {
    for (u32 i = 0; i < r->n; i++) {
        const struct doctor_finding *x = &r->v[i];
        if (x->level == level && strcmp(x->check, check) == 0 && strstr(x->what, text)) return x;
    }
    return NULL;
}

struct doctor_peer *doctor_peer(struct doctor_facts *f, const char *id, const char *address) {
    for (u32 i = 0; i < f->n_peers; i++) {
        struct doctor_peer *p = &f->peers[i];
        if (*id && *p->id ? strcmp(p->id, id) == 0 : strcmp(p->address, address) == 0) {
            if (*id) str_copy(p->id, sizeof p->id, id);
            return p;
        }
    }
    if (f->n_peers == DOCTOR_PEERS_MAX) return NULL;
    struct doctor_peer *p = &f->peers[f->n_peers++];
    *p = (struct doctor_peer){0};
    str_copy(p->id, sizeof p->id, id);
    str_copy(p->address, sizeof p->address, address);
    return p;
}

static bool is_live(const struct doctor_peer *p) {
    return strcmp(p->state, "live") == 0;
}

static u32 n_live(const struct doctor_facts *f) {
    u32 n = 0;
    for (u32 i = 0; i < f->n_peers; i++) n += is_live(&f->peers[i]);
    return n;
}

static void judge_node(const struct doctor_facts *f, struct doctor_report *r) {
    if (!f->has_node) {
        doctor_add(r, DOCTOR_NOTE, "node", "What only a running node knows was not looked at.",
                   "skein up", "no node runs here%s%s", *f->node_error ? ": " : "", f->node_error);
        return;
    }
    doctor_add(r, DOCTOR_FINE, "node", NULL, NULL, "%s runs here, skein %s, cluster '%s'", f->name,
               f->version, f->cluster);
    if (strcmp(f->version, version_text()) != 0)
        doctor_add(r, DOCTOR_WARNING, "version",
                   "An update was installed and the node was not started again.",
                   "skein down; skein up", "the running node is skein %s, this program is %s",
                   f->version, version_text());
    if (f->is_open && n_live(f))
        doctor_add(
            r, DOCTOR_NOTE, "key", "Whoever reaches the bus port can join, and read what is asked.",
            "skein up --join-key SECRET, the same on every node", "the cluster has no join key");
    if (!*f->master)
        doctor_add(r, DOCTOR_BROKEN, "master", "Without one nothing is placed.",
                   "wait some seconds; if it stays, look into the log for 'master'",
                   "the node follows no master");
    if (f->bus_is_local)
        doctor_add(r, DOCTOR_BROKEN, "bus", "Other machines can't reach it.",
                   "start skein up without --bus-host, or with an address of the network",
                   "the bus (port %u) listens on loopback only", f->bus_port);
}

/* "Only this node is listed": the reasons stand in the findings about peers and multicast. */
static void judge_alone(const struct doctor_facts *f, struct doctor_report *r) {
    if (!f->has_node || n_live(f)) return;
    bool known = false, stopped = false;
    for (u32 i = 0; i < f->n_peers; i++) {
        const struct doctor_peer *p = &f->peers[i];
        stopped |= p->is_stopped;
        known |= !p->is_stopped && (p->is_given || p->is_announced || *p->state);
    }
    if (stopped && !known) return; /* said of each of them */
    if (known)
        doctor_add(r, DOCTOR_WARNING, "alone", "The reasons are the findings about each of them.",
                   NULL, "the node sees no other node, though some are known");
    else
        doctor_add(r, DOCTOR_NOTE, "alone",
                   "Multicast may be blocked between the machines (guest networks, client "
                   "isolation of access points, VPNs), they may be in different subnets, or no "
                   "other node runs.",
                   "skein up --peer ADDRESS_OF_ANOTHER_NODE, and skein doctor on that machine",
                   "the node sees no other node, and none is announced on the network");
}

static void judge_versions(const struct doctor_facts *f, struct doctor_report *r) {
    for (u32 i = 0; i < f->n_peers; i++) {
        const struct doctor_peer *p = &f->peers[i];
        bool key = strstr(p->refused, "key") != NULL;
        if (key && !is_live(p))
            doctor_add(r, DOCTOR_BROKEN, "join", "Neither lets the other in.",
                       "the same --join-key (SKEIN_JOIN_KEY) and --namespace on every node",
                       "%s at %s is not in this cluster: %s", *p->name ? p->name : "a node",
                       p->address, p->refused);
        else if (*p->refused && !key)
            doctor_add(r, DOCTOR_BROKEN, "version", "Their protocols don't understand each other.",
                       "install the same version of skein on both machines", "%s is refused: %s",
                       *p->name ? p->name : p->address, p->refused);
        else if (is_live(p) && *p->build && strcmp(p->build, f->version) != 0)
            doctor_add(r, DOCTOR_WARNING, "version",
                       "They work together, but an answer may differ between builds.",
                       "install the same version of skein on both machines",
                       "%s runs skein %s, this node %s", p->name, p->build, f->version);
        bool macs = strncmp(p->os, "macOS", 5) == 0 && f->machine.is_mac;
        if (is_live(p) && macs && strcmp(p->os, f->machine.os) != 0)
            doctor_add(r, DOCTOR_WARNING, "os",
                       "RDMA over Thunderbolt needs the same macOS build on all machines.",
                       "softwareupdate --list", "%s runs %s, this machine %s", p->name, p->os,
                       f->machine.os);
    }
}

static void judge_instances(const struct doctor_facts *f, struct doctor_report *r) {
    for (u32 i = 0; i < f->n_instances; i++) {
        const struct doctor_instance *x = &f->instances[i];
        bool failed = strcmp(x->status, "failed") == 0, waits = strcmp(x->status, "waiting") == 0;
        if (!failed && !(waits && *x->text)) continue;
        bool memory = strstr(x->text, "memory") || strstr(x->text, "GiB");
        doctor_add(r, DOCTOR_BROKEN, "instance",
                   memory ? "The model does not fit into the memory that is free." : NULL,
                   memory ? "a smaller quantization (skein models), a smaller context (-c), "
                            "another node, or close what else takes memory"
                          : "skein ps shows the ranks; the log of the node named has the reason",
                   "model %s is not served: %s", x->model, *x->text ? x->text : x->status);
    }
}

static bool holds(const struct doctor_instance *x, const char *node) {
    for (u32 i = 0; i < MIN(x->n_ranks, (u32)ARRAY_LEN(x->nodes)); i++)
        if (strcmp(x->nodes[i], node) == 0) return true;
    return false;
}

/* Why answers may come slowly: the way a model is split, and what its tokens travel over. */
static void judge_split(const struct doctor_facts *f, struct doctor_report *r) {
    for (u32 i = 0; i < f->n_instances; i++) {
        const struct doctor_instance *x = &f->instances[i];
        char fix[DOCTOR_TEXT];
        if (x->n_ranks < 2 || strcmp(x->status, "ready") != 0) continue;
        snprintf(fix, sizeof fix,
                 "skein plan %s shows the ways and what each would bring; skein bench measures",
                 x->model);
        if (strcmp(x->sharding, "Pipeline") == 0)
            doctor_add(r, DOCTOR_NOTE, "speed",
                       "One request goes through them one after the other and is no faster than on "
                       "one machine; several at once are.",
                       fix, "%s is split by layers over %u ranks", x->model, x->n_ranks);
        for (u32 k = 0; k < f->n_peers; k++) {
            const struct doctor_peer *p = &f->peers[k];
            bool slow = p->kind == NETIF_WIFI || p->kind == NETIF_TUNNEL;
            if (slow && holds(x, p->id) && holds(x, f->id))
                doctor_add(r, DOCTOR_WARNING, "speed",
                           "Each token of it waits for this link, some milliseconds each time.",
                           "connect them by cable, or keep the model on one of them: skein launch "
                           "MODEL --nodes NODE",
                           "%s is split over %s and this node, which are linked by %s", x->model,
                           p->name, p->kind == NETIF_WIFI ? "Wi-Fi" : "a tunnel");
        }
    }
}

void doctor_judge_cluster(const struct doctor_facts *f, struct doctor_report *r) {
    judge_node(f, r);
    judge_alone(f, r);
    judge_versions(f, r);
    judge_instances(f, r);
    judge_split(f, r);
}

void doctor_judge(const struct doctor_facts *f, struct doctor_report *r) {
    doctor_judge_cluster(f, r);
    doctor_judge_peers(f, r);
    doctor_judge_net(f, r);
    doctor_judge_machine(f, r);
    doctor_judge_rdma(f, r);
}
