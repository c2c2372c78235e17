/* doctor_rdma.c - what RDMA needs: on Macs over Thunderbolt 5, on Linux with an adapter. */
#include <string.h>

#include "cli/doctor.h"

static const char *const SINCE = "26.2";
enum { TB5_GBIT = 80, JUMBO_MTU = 9000 };

static void judge_ports(const struct doctor_mac *m, struct doctor_report *r) {
    bool members = false;
    const struct doctor_port *bridge = NULL;
    for (u32 i = 0; i < m->n_ports; i++) {
        const struct doctor_port *p = &m->ports[i];
        members |= p->is_member;
        if (p->is_bridge && !p->is_disabled) bridge = p;
    }
    if (bridge && members)
        doctor_add(r, DOCTOR_BROKEN, "thunderbolt",
                   "The bridge makes one network of all ports: cables in a ring loop packets for "
                   "ever, and RDMA needs each port for itself.",
                   "sudo networksetup -setnetworkserviceenabled \"Thunderbolt Bridge\" off, then "
                   "give each Thunderbolt port its own service with DHCP",
                   "the Thunderbolt bridge (%s) is on", bridge->device);
    for (u32 i = 0; i < m->n_ports; i++) {
        const struct doctor_port *p = &m->ports[i];
        if (p->is_bridge || p->is_disabled || !p->is_active) continue;
        if (p->is_manual)
            doctor_add(r, DOCTOR_WARNING, "thunderbolt",
                       "With DHCP each end takes an address of its own; those set by hand collide "
                       "when cables are moved.",
                       "sudo networksetup -setdhcp \"SERVICE\" for each Thunderbolt port",
                       "%s (%s) has an address set by hand", p->service, p->device);
        if (p->mtu && p->mtu < JUMBO_MTU)
            doctor_add(r, DOCTOR_NOTE, "mtu", "Larger frames carry the same with fewer packets.",
                       "sudo networksetup -setMTU DEVICE 9000", "%s (%s) has an MTU of %u",
                       p->service, p->device, p->mtu);
    }
}

/* Only where a Thunderbolt 5 link is up can RDMA work at all; older ones are never nagged. */
static void judge_mac(const struct doctor_machine *x, struct doctor_report *r) {
    const struct doctor_mac *m = &x->mac;
    judge_ports(m, r);
    if (m->thunderbolt_gbit && m->thunderbolt_gbit < TB5_GBIT)
        doctor_add(r, DOCTOR_NOTE, "rdma",
                   "RDMA needs Thunderbolt 5 ports and cables at both ends.",
                   "IP over Thunderbolt works, and is used",
                   "the Thunderbolt link runs at %u Gbit/s", m->thunderbolt_gbit);
    if (m->thunderbolt_gbit < TB5_GBIT) return;
    if (*m->version && doctor_version_cmp(m->version, SINCE) < 0)
        doctor_add(r, DOCTOR_WARNING, "rdma", "RDMA over Thunderbolt came with macOS 26.2.",
                   "softwareupdate --install --all, the same version on every machine",
                   "macOS %s has no RDMA over Thunderbolt", m->version);
    else if (m->rdma == SWITCH_OFF)
        doctor_add(r, DOCTOR_WARNING, "rdma",
                   "Messages between the machines take about 0.3 ms instead of some microseconds.",
                   "restart into Recovery (hold the power button), open Utilities, Terminal, type "
                   "rdma_ctl enable, restart. On a Mac Studio don't use the Thunderbolt port next "
                   "to the Ethernet port",
                   "RDMA is disabled (rdma_ctl status)");
    else if (m->rdma == SWITCH_ON)
        doctor_add(r, DOCTOR_FINE, "rdma", NULL, NULL, "RDMA over Thunderbolt is enabled");
    else
        doctor_add(r, DOCTOR_WARNING, "rdma", "Without it RDMA can't be used.",
                   "softwareupdate --install --all",
                   m->has_rdma_ctl ? "rdma_ctl does not say whether RDMA is enabled"
                                   : "this macOS has no rdma_ctl");
}

static void judge_linux(const struct doctor_machine *m, struct doctor_report *r) {
    if (!*m->rdma_device) return;
    if (!strstr(m->rdma_state, "ACTIVE"))
        doctor_add(r, DOCTOR_WARNING, "rdma", "Without a link there is no RDMA.",
                   "plug the cable in; ibstat shows the port; InfiniBand needs a subnet manager "
                   "(opensm)",
                   "the port of %s is %s", m->rdma_device, m->rdma_state);
    else
        doctor_add(r, DOCTOR_FINE, "rdma", NULL, NULL, "%s: the port is active", m->rdma_device);
    if (m->memlock_bytes < 1 << 26)
        doctor_add(r, DOCTOR_WARNING, "memlock", "RDMA needs memory that stays where it is.",
                   "LimitMEMLOCK=infinity in the systemd unit, or memlock in "
                   "/etc/security/limits.conf",
                   "a process may lock %llu KiB only",
                   (unsigned long long)(m->memlock_bytes >> 10));
}

void doctor_judge_rdma(const struct doctor_facts *f, struct doctor_report *r) {
    if (f->machine.is_mac)
        judge_mac(&f->machine, r);
    else
        judge_linux(&f->machine, r);
}
