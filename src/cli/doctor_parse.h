/* doctor_parse.h - what other programs print, as facts. Pure: the text goes in whole, is never
 * trusted and may be cut anywhere; what is not found stays as it was. */
#pragma once

#include "base/base.h"

enum { DOCTOR_PORTS_MAX = 8 };

enum doctor_switch { SWITCH_UNKNOWN, SWITCH_OFF, SWITCH_ON };

/* A Thunderbolt port of a Mac as a network device. */
struct doctor_port {
    char service[64], device[16];
    bool is_bridge;   /* the service "Thunderbolt Bridge" itself */
    bool is_member;   /* of the bridge */
    bool is_active;   /* a cable with something at its other end */
    bool is_manual;   /* addresses by hand instead of DHCP */
    bool is_disabled; /* the service is switched off */
    u32 mtu;
};
struct doctor_mac {
    char version[16], build[16]; /* "26.2", "25C56" */
    enum doctor_switch rdma, firewall, block_all, low_power;
    bool has_rdma_ctl;
    u32 thunderbolt_gbit; /* of the fastest link; 0: none is connected */
    struct doctor_port ports[DOCTOR_PORTS_MAX];
    u32 n_ports;
};

/* `rdma_ctl status`: "enabled" or "disabled". */
void doctor_parse_rdma_ctl(const char *text, struct doctor_mac *m);
/* `sw_vers`. */
void doctor_parse_sw_vers(const char *text, struct doctor_mac *m);
/* `networksetup -listnetworkserviceorder`: names, devices, "(*)" before a service that is off. */
void doctor_parse_services(const char *text, struct doctor_mac *m);
/* `networksetup -getinfo SERVICE`. */
void doctor_parse_getinfo(const char *text, struct doctor_port *p);
/* `ifconfig`: MTU, "status: active" and the bridge's members. */
void doctor_parse_ifconfig(const char *text, struct doctor_mac *m);
/* `system_profiler SPThunderboltDataType`: the fastest connected port. */
void doctor_parse_thunderbolt(const char *text, struct doctor_mac *m);
/* `socketfilterfw --getglobalstate --getblockall`. */
void doctor_parse_mac_firewall(const char *text, struct doctor_mac *m);
/* `pmset -g therm` and `pmset -g`: the speed limit in percent (0: none told), low power mode. */
u32 doctor_parse_speed_limit(const char *text);
enum doctor_switch doctor_parse_low_power(const char *text);
/* `pmset -g batt`: it runs from a battery. */
bool doctor_parse_on_battery(const char *text);

/* `nft list ruleset`: an input chain drops what no rule names; *knows: a rule has this port. */
bool doctor_parse_nft(const char *text, u32 port, bool *knows);
/* `ufw status`. */
bool doctor_parse_ufw(const char *text, u32 port, bool *knows);
/* Negative, 0, positive, number by number: "26.10" is newer than "26.9". */
int doctor_version_cmp(const char *a, const char *b);
