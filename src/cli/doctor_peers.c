/* doctor_peers.c - findings about one other node at a time: can it be reached, and how well. */
#include <stdio.h>
#include <string.h>

#include "cli/doctor.h"

enum {
    SKEW_MAX_MS = 5000, /* heartbeats are a second apart */
    JUMBO_MTU = 9000,
    ETHERNET_MTU = 1500,
};

static const char *name_of(const struct doctor_peer *p) {
    return *p->name ? p->name : p->address;
}

static bool is_live(const struct doctor_peer *p) {
    return strcmp(p->state, "live") == 0;
}

/* The interface that leads to the peer, or NULL: through a router. */
static const struct netif *toward(const struct doctor_facts *f, const struct doctor_peer *p) {
    static struct netif v[NETIF_MAX];
    char host[SOCK_HOST_CAP];
    u16 port;
    for (u32 i = 0; i < f->n_ifaces; i++) v[i] = f->ifaces[i].net;
    if (!sock_split(p->address, 1, host, &port, NULL)) return NULL;
    return netif_toward(v, f->n_ifaces, host);
}

static void silent(const struct doctor_facts *f, const struct doctor_peer *p,
                   struct doctor_report *r) {
    char fix[DOCTOR_TEXT], subnet[DOCTOR_SUBNET_CAP];
    const struct netif *i = toward(f, p);
    doctor_subnet(i, subnet);
    if (is_live(p)) {
        snprintf(fix, sizeof fix, "there: sudo ufw allow from %s", subnet);
        doctor_add(
            r, DOCTOR_WARNING, "reach",
            "It is in the cluster by a connection that it made. Its firewall lets nobody in, "
            "so ranks of a split model can't connect to it.",
            fix, "%s: nothing can connect to %s", name_of(p), p->address);
        return;
    }
    snprintf(fix, sizeof fix,
             "is it on, and the address right? There: sudo ufw allow from %s (Linux), or System "
             "Settings, Network, Firewall (macOS).%s",
             subnet, i ? "" : " It is in none of this machine's subnets: is there a route to it?");
    doctor_add(r, DOCTOR_BROKEN, "reach",
               "A firewall drops what is sent to it, or no machine has this address.", fix,
               "%s: %s does not answer at all", name_of(p), p->address);
}

static void other_cluster(const struct doctor_facts *f, const struct doctor_peer *p,
                          struct doctor_report *r) {
    doctor_add(r, p->is_given ? DOCTOR_BROKEN : DOCTOR_NOTE, "namespace",
               "Clusters of different names never mix.",
               "skein up --namespace NAME, the same on every node that belongs together",
               "%s is in cluster '%s', this node in '%s'", name_of(p), p->name_space, f->cluster);
}

static bool in_other_cluster(const struct doctor_facts *f, const struct doctor_peer *p) {
    return f->has_node && *p->name_space && strcmp(p->name_space, f->cluster) != 0;
}

/* It answers as a bus and yet is no member. */
static void outside(const struct doctor_peer *p, struct doctor_report *r) {
    doctor_add(r, DOCTOR_BROKEN, "join",
               "It has another join key or another --namespace, so neither lets the other in.",
               "the same --join-key (SKEIN_JOIN_KEY) and --namespace on every node",
               "%s: a node answers at %s, but it is not in this cluster", name_of(p), p->address);
}

static void judge_reach(const struct doctor_facts *f, const struct doctor_peer *p,
                        struct doctor_report *r) {
    if (p->is_stopped && p->bus != REACH_BUS) {
        doctor_add(r, DOCTOR_NOTE, "stopped", "It said goodbye: nothing is broken.",
                   "skein up there, if it is wanted", "%s was stopped", name_of(p));
        return;
    }
    switch (p->bus) {
    case REACH_BUS:
        if (f->has_node && !is_live(p) && !*p->refused && !in_other_cluster(f, p)) outside(p, r);
        if (is_live(p) || !f->has_node)
            doctor_add(r, DOCTOR_FINE, "reach", NULL, NULL, "%s: the bus at %s answers", name_of(p),
                       p->address);
        break;
    case REACH_OPEN:
        doctor_add(r, DOCTOR_BROKEN, "reach",
                   "Maybe it is the API port (52415): the bus port is the next one.",
                   "--peer HOST, or --peer HOST:BUS_PORT as that node's start prints it",
                   "%s: what listens at %s is not a node's bus", name_of(p), p->address);
        break;
    case REACH_REFUSED:
        doctor_add(r, is_live(p) ? DOCTOR_WARNING : DOCTOR_BROKEN, "reach",
                   "The machine is there, but nobody listens on that port, or a firewall rejects.",
                   "start skein up there; with another --port or --bus-port there, name it here: "
                   "--peer HOST:PORT",
                   "%s: nobody listens at %s", name_of(p), p->address);
        break;
    case REACH_SILENT: silent(f, p, r); break;
    case REACH_NO_ROUTE:
        doctor_add(r, DOCTOR_BROKEN, "reach",
                   "It is in none of this machine's networks, and no router leads there.",
                   "put both machines into one subnet, or check cable, Wi-Fi and address",
                   "%s: there is no way to %s", name_of(p), p->address);
        break;
    case REACH_NO_HOST:
        doctor_add(r, DOCTOR_BROKEN, "reach", NULL, "use its IP address, or HOST.local",
                   "%s: no machine of this name is known", name_of(p));
        break;
    case REACH_UNTRIED: break;
    }
}

/* Ranks and measurements use ports that the system chooses; and a link works both ways or not. */
static void judge_data_ports(const struct doctor_facts *f, const struct doctor_peer *p,
                             struct doctor_report *r) {
    char fix[DOCTOR_TEXT], subnet[DOCTOR_SUBNET_CAP];
    snprintf(fix, sizeof fix, "on the machine that is not reached: sudo ufw allow from %s",
             doctor_subnet(toward(f, p), subnet));
    if (p->bus == REACH_BUS && p->high == REACH_SILENT)
        doctor_add(r, DOCTOR_WARNING, "ports",
                   "Ranks of a split model connect on ports that the system chooses: a model that "
                   "is split between these machines would not load.",
                   fix, "%s answers on its bus port, but drops connections to other ports",
                   name_of(p));
    bool frames = p->big_lost || strstr(p->problem, "MTU") || strstr(p->problem_back, "MTU");
    if (is_live(p) && !frames && (*p->problem || *p->problem_back))
        doctor_add(r, DOCTOR_WARNING, "ports",
                   "A split model needs connections in both directions: a firewall on the machine "
                   "that is not reached, or another route back?",
                   fix,
                   *p->problem ? "no data link from this node to %s: %s"
                               : "no data link from %s to this node: %s",
                   name_of(p), *p->problem ? p->problem : p->problem_back);
}

static void judge_mtu(const struct doctor_facts *f, const struct doctor_peer *p,
                      struct doctor_report *r) {
    const struct netif *i = toward(f, p);
    bool small = i && i->mtu >= JUMBO_MTU && is_live(p) && p->is_measured && !p->jumbo_passes &&
                 p->mss + 200 >= i->mtu;
    if (p->big_lost || small || strstr(p->problem, "MTU") || strstr(p->problem_back, "MTU")) {
        doctor_add(
            r, DOCTOR_BROKEN, "mtu",
            "Both ends send large frames and a switch between them drops them: connections "
            "hang as soon as they carry data.",
            "switch jumbo frames on in the switch, or back: sudo ip link set DEVICE mtu 1500",
            "%s has an MTU of %u, but frames of that size don't reach %s",
            i ? i->name : "this machine", i ? i->mtu : p->mss + 40, name_of(p));
        return;
    }
    if (!i || i->kind == NETIF_LOOPBACK || !is_live(p)) return;
    /* The segment size is 40 bytes below the smaller MTU, 12 more with timestamps, 20 with IPv6. */
    u32 theirs = p->mss ? p->mss + 40 : 0;
    if (i->mtu >= JUMBO_MTU && theirs && theirs + 200 < i->mtu)
        doctor_add(r, DOCTOR_WARNING, "mtu",
                   "Large frames are only of use when both ends have them.",
                   "there: sudo ip link set DEVICE mtu 9000 (Linux), sudo ifconfig DEVICE mtu 9000 "
                   "(macOS)",
                   "%s has an MTU of %u towards %s, whose end has about %u", i->name, i->mtu,
                   name_of(p), theirs);
    else if (i->mtu < ETHERNET_MTU && i->kind != NETIF_TUNNEL)
        doctor_add(r, DOCTOR_NOTE, "mtu", "Below the usual 1500: a tunnel or a virtual machine?",
                   NULL, "%s has an MTU of %u towards %s", i->name, i->mtu, name_of(p));
}

static void judge_route(const struct doctor_facts *f, const struct doctor_peer *p,
                        struct doctor_report *r) {
    const struct netif *i = toward(f, p), *better = NULL;
    if (!i || !is_live(p)) return;
    for (u32 k = 0; k < f->n_ifaces; k++) {
        const struct netif *o = &f->ifaces[k].net;
        if (o->is_up && !o->is_inner && o->kind > i->kind && o->kind < NETIF_LOOPBACK && o->n_addrs)
            better = o;
    }
    if (i->is_inner || i->kind == NETIF_TUNNEL)
        doctor_add(r, DOCTOR_WARNING, "route",
                   "VPNs, overlays and bridges of containers cost time with every message.",
                   "skein up --interface DEVICE_OF_THE_NETWORK on both",
                   "%s is reached over %s, which is a %s", name_of(p), i->name,
                   i->is_inner ? "bridge inside this machine" : "tunnel");
    else if (i->kind == NETIF_WIFI)
        doctor_add(r, DOCTOR_WARNING, "route",
                   "Wi-Fi adds milliseconds to every token of a split model.",
                   better ? "skein up --interface DEVICE on both, or give both a cable"
                          : "connect both machines by cable",
                   "%s is reached over Wi-Fi (%s)%s%s", name_of(p), i->name,
                   better ? ", though there is " : "", better ? better->name : "");
    if (p->speed_mbit && p->bandwidth_bytes_s &&
        (double)p->bandwidth_bytes_s * 8 < 0.4e6 * (double)p->speed_mbit)
        doctor_add(r, DOCTOR_WARNING, "bandwidth",
                   "Something else fills the link, or a slower part lies between.",
                   "look for transfers, a 1 Gbit/s switch, or a cable below Cat 5e",
                   "the link to %s carries %.0f Mbit/s, its interface claims %u", name_of(p),
                   (double)p->bandwidth_bytes_s * 8e-6, p->speed_mbit);
}

/* Both are in sight, and yet they don't agree: it does not hear this node, or has just come. */
static void judge_master(const struct doctor_facts *f, const struct doctor_peer *p,
                         struct doctor_report *r) {
    if (!is_live(p) || !*p->follows || !*f->master || strcmp(p->follows, f->master) == 0) return;
    bool itself = strcmp(p->follows, p->id) == 0;
    doctor_add(r, DOCTOR_WARNING, "master",
               "It hears less than this node does: a firewall or route that lets one direction "
               "through only. (For some seconds after two groups of nodes met this is normal.)",
               "skein doctor on that machine",
               itself ? "%s follows itself, as if it saw only itself" : "%s follows another master",
               name_of(p));
}

static void judge_clock(const struct doctor_peer *p, struct doctor_report *r) {
    i64 skew = p->skew_ms < 0 ? -p->skew_ms : p->skew_ms;
    if (!p->has_skew || !is_live(p) || skew < SKEW_MAX_MS) return;
    doctor_add(r, DOCTOR_WARNING, "clock",
               "Nothing in the cluster waits for it, but logs can't be compared and certificates "
               "may be refused.",
               "sudo timedatectl set-ntp true (Linux); System Settings, Date & Time (macOS)",
               "the clock of %s is %.1f s %s this one", name_of(p), (double)skew / 1000,
               p->skew_ms > 0 ? "ahead of" : "behind");
}

void doctor_judge_peers(const struct doctor_facts *f, struct doctor_report *r) {
    for (u32 i = 0; i < f->n_peers; i++) {
        const struct doctor_peer *p = &f->peers[i];
        if (in_other_cluster(f, p)) other_cluster(f, p, r);
        judge_reach(f, p, r);
        judge_data_ports(f, p, r);
        judge_mtu(f, p, r);
        judge_route(f, p, r);
        judge_master(f, p, r);
        judge_clock(p, r);
        if (strcmp(p->state, "lost") == 0 && p->bus == REACH_BUS)
            doctor_add(r, DOCTOR_WARNING, "lost", "It may be overloaded, or stopped for a while.",
                       "skein doctor there", "%s is lost, though its bus answers", name_of(p));
        if (p->is_throttled)
            doctor_add(r, DOCTOR_WARNING, "thermal", "All of a split model waits for it.",
                       "cool it, or put it on its charger",
                       "%s has slowed down: it is too hot, or "
                       "short of power",
                       name_of(p));
        if (p->on_battery)
            doctor_add(r, DOCTOR_WARNING, "power", "All of a split model waits for it.",
                       "put it on its charger", "%s runs from its battery", name_of(p));
    }
}
