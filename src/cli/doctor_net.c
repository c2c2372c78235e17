/* doctor_net.c - findings about this machine's networks: multicast, interfaces, firewall. */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "cli/doctor.h"

const char *doctor_subnet(const struct netif *i, char out[DOCTOR_SUBNET_CAP]) {
    str_copy(out, DOCTOR_SUBNET_CAP, "THIS_SUBNET");
    for (u32 k = 0; i && k < i->n_addrs; k++) {
        struct in_addr a;
        char text[INET_ADDRSTRLEN];
        u32 bits = i->addrs[k].prefix;
        if (i->addrs[k].is_v6 || bits == 0 || bits > 32) continue;
        if (inet_pton(AF_INET, i->addrs[k].host, &a) != 1) continue;
        a.s_addr &= htonl(UINT32_MAX << (32 - bits));
        snprintf(out, DOCTOR_SUBNET_CAP, "%s/%u", inet_ntop(AF_INET, &a, text, sizeof text), bits);
        break;
    }
    return out;
}

static bool is_usable(const struct netif *i) {
    return i->is_up && !i->is_inner && i->n_addrs && i->kind != NETIF_LOOPBACK;
}

static void judge_multicast(const struct doctor_facts *f, struct doctor_report *r) {
    u32 heard = 0;
    for (u32 k = 0; k < f->n_ifaces; k++) {
        const struct doctor_iface *i = &f->ifaces[k];
        if (!is_usable(&i->net)) continue;
        heard += i->is_heard;
        if (i->net.kind == NETIF_TUNNEL || !i->is_tried || i->is_heard) continue;
        doctor_add(r, DOCTOR_BROKEN, "multicast",
                   "What this machine sends to the group of multicast DNS does not even come back "
                   "to itself: a firewall drops UDP port 5353, so nodes don't find each other.",
                   f->machine.is_mac
                       ? "System Settings, Privacy & Security, Local Network: allow skein; or name "
                         "a node: skein up --peer ADDRESS"
                       : "sudo ufw allow 5353/udp, or sudo firewall-cmd --add-service=mdns; or "
                         "name a node: skein up --peer ADDRESS",
                   "%s does not hear its own multicast", i->net.name);
    }
    if (heard)
        doctor_add(r, DOCTOR_FINE, "multicast", NULL, NULL,
                   "multicast comes back on %u interface%s", heard, heard == 1 ? "" : "s");
    if (*f->discovery_error)
        doctor_add(r, DOCTOR_WARNING, "discovery", "Nodes are not found by themselves.",
                   "skein up --peer ADDRESS_OF_ANOTHER_NODE", "%s", f->discovery_error);
    bool peers_live = false, announced = false;
    for (u32 i = 0; i < f->n_peers; i++) {
        peers_live |= strcmp(f->peers[i].state, "live") == 0;
        announced |= f->peers[i].is_announced && strcmp(f->peers[i].id, f->id) != 0;
    }
    if (heard && peers_live && !announced && !*f->discovery_error)
        doctor_add(r, DOCTOR_NOTE, "multicast",
                   "Multicast does not pass between the machines: guest Wi-Fi, client isolation, a "
                   "VPN, or a switch that filters it. The nodes found each other by address.",
                   "keep --peer; or switch client isolation off in the access point",
                   "other nodes are in the cluster, but none of them is heard by multicast");
}

static void judge_interfaces(const struct doctor_facts *f, struct doctor_report *r) {
    u32 n = 0;
    for (u32 k = 0; k < f->n_ifaces; k++) {
        const struct netif *i = &f->ifaces[k].net;
        n += is_usable(i) && i->kind != NETIF_TUNNEL;
        if (!is_usable(i)) continue;
        doctor_add(r, DOCTOR_FINE, "interface", NULL, NULL, "%s: %s, %s, MTU %u", i->name,
                   netif_kind_text(i->kind), i->addrs[0].host, i->mtu);
        if (i->kind == NETIF_TUNNEL)
            doctor_add(r, DOCTOR_NOTE, "interface",
                       "Other nodes are told its address too, and use it where nothing better "
                       "leads here.",
                       "skein up --interface DEVICE keeps to the network of that device",
                       "%s is a VPN or another tunnel", i->name);
        bool copper = i->kind == NETIF_ETHERNET && i->speed_mbit && i->speed_mbit < 1000;
        if (copper)
            doctor_add(r, DOCTOR_WARNING, "interface",
                       "A split model moves kilobytes a token and megabytes a prompt.",
                       "another cable (Cat 5e or better) or port: 1000 Mbit/s is usual",
                       "%s runs at %u Mbit/s only", i->name, i->speed_mbit);
    }
    if (n == 0)
        doctor_add(r, DOCTOR_BROKEN, "interface", "No other machine can be reached.",
                   "plug a cable in, or join the Wi-Fi",
                   "no interface to a network is up and has an address");
}

static void judge_firewall(const struct doctor_facts *f, struct doctor_report *r) {
    const struct doctor_machine *m = &f->machine;
    char fix[DOCTOR_TEXT], subnet[DOCTOR_SUBNET_CAP];
    const struct netif *lan = NULL;
    for (u32 k = 0; k < f->n_ifaces; k++) {
        const struct netif *i = &f->ifaces[k].net;
        if (is_usable(i) && i->kind != NETIF_TUNNEL && !lan) lan = i;
    }
    snprintf(fix, sizeof fix, "sudo ufw allow from %s, or at least TCP %u and UDP 5353",
             doctor_subnet(lan, subnet), f->bus_port);
    if (*m->firewall && !m->firewall_knows)
        doctor_add(r, DOCTOR_WARNING, "firewall",
                   "Other nodes can't connect to this one, nor its ranks to each other.", fix,
                   "%s drops what it does not know, and no rule names the bus port %u", m->firewall,
                   f->bus_port);
    if (m->mac.block_all == SWITCH_ON && m->mac.firewall == SWITCH_ON)
        doctor_add(r, DOCTOR_BROKEN, "firewall", "Other nodes can't connect to this one.",
                   "sudo /usr/libexec/ApplicationFirewall/socketfilterfw --setblockall off",
                   "the firewall blocks all incoming connections");
    else if (m->mac.firewall == SWITCH_ON)
        doctor_add(r, DOCTOR_NOTE, "firewall",
                   "It asks at the first start whether skein may accept connections.",
                   "sudo /usr/libexec/ApplicationFirewall/socketfilterfw --add \"$(command -v "
                   "skein)\"",
                   "the application firewall is on");
}

void doctor_judge_net(const struct doctor_facts *f, struct doctor_report *r) {
    judge_interfaces(f, r);
    judge_multicast(f, r);
    judge_firewall(f, r);
}
