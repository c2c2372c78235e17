#include <stdlib.h>
#include <string.h>

#include "cli/doctor_parse.h"

int LLVMFuzzerTestOneInput(const u8 *data, size_t n);
int LLVMFuzzerTestOneInput(const u8 *data, size_t n) {
    struct doctor_mac m = {0};
    bool knows;
    char *text = malloc(n + 1);
    if (!text) return 0;
    if (n) memcpy(text, data, n);
    text[n] = 0;
    doctor_parse_rdma_ctl(text, &m);
    doctor_parse_sw_vers(text, &m);
    doctor_parse_services(text, &m);
    for (u32 i = 0; i < m.n_ports; i++) doctor_parse_getinfo(text, &m.ports[i]);
    doctor_parse_ifconfig(text, &m);
    doctor_parse_thunderbolt(text, &m);
    doctor_parse_mac_firewall(text, &m);
    doctor_parse_speed_limit(text);
    doctor_parse_low_power(text);
    doctor_parse_on_battery(text);
    doctor_parse_nft(text, 52416, &knows);
    doctor_parse_ufw(text, 52416, &knows);
    doctor_version_cmp(text, m.version);
    free(text);
    return 0;
}
