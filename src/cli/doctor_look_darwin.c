#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/sysctl.h>

#include "cli/doctor.h"

enum { TEXT_MAX = 1 << 17 };

static void look_at_network(struct doctor_mac *m, char *text) {
    if (doctor_run("networksetup -listnetworkserviceorder", text, TEXT_MAX))
        doctor_parse_services(text, m);
    for (u32 i = 0; i < m->n_ports; i++) {
        char command[200];
        /* The name goes into a shell's command line: none with a quote or worse. */
        if (strpbrk(m->ports[i].service, "'\\`$\n")) continue;
        snprintf(command, sizeof command, "networksetup -getinfo '%s'", m->ports[i].service);
        if (doctor_run(command, text, TEXT_MAX)) doctor_parse_getinfo(text, &m->ports[i]);
    }
    if (doctor_run("ifconfig", text, TEXT_MAX)) doctor_parse_ifconfig(text, m);
    if (doctor_run("/usr/libexec/ApplicationFirewall/socketfilterfw --getglobalstate --getblockall",
                   text, TEXT_MAX))
        doctor_parse_mac_firewall(text, m);
}

static void look_at_rdma(struct doctor_mac *m, char *text) {
    if (doctor_run("sw_vers", text, TEXT_MAX)) doctor_parse_sw_vers(text, m);
    m->has_rdma_ctl = doctor_run("command -v rdma_ctl", text, TEXT_MAX);
    if (m->has_rdma_ctl && doctor_run("rdma_ctl status", text, TEXT_MAX))
        doctor_parse_rdma_ctl(text, m);
    if (doctor_run("system_profiler SPThunderboltDataType", text, TEXT_MAX))
        doctor_parse_thunderbolt(text, m);
}

static void look_at_power(struct doctor_machine *m, char *text) {
    if (doctor_run("pmset -g therm", text, TEXT_MAX)) m->speed_pct = doctor_parse_speed_limit(text);
    if (doctor_run("pmset -g", text, TEXT_MAX))
        m->low_power = doctor_parse_low_power(text) == SWITCH_ON;
    if (doctor_run("pmset -g batt", text, TEXT_MAX)) m->on_battery = doctor_parse_on_battery(text);
}

u32 doctor_unconfirmed(int fd) {
    int n = 0;
    socklen_t size = sizeof n;
    return getsockopt(fd, SOL_SOCKET, SO_NWRITE, &n, &size) == 0 && n > 0 ? (u32)n : 0;
}

void doctor_look_system(struct doctor_machine *m, u32 bus_port) {
    struct xsw_usage swap;
    size_t n = sizeof swap;
    char *text = malloc(TEXT_MAX);
    (void)bus_port;
    m->is_mac = true;
    if (sysctlbyname("vm.swapusage", &swap, &n, NULL, 0) == 0) {
        m->swap_total_bytes = swap.xsu_total;
        m->swap_free_bytes = swap.xsu_avail;
    }
    if (!text) return;
    look_at_network(&m->mac, text);
    look_at_rdma(&m->mac, text);
    look_at_power(m, text);
    free(text);
}
