#include <CoreFoundation/CoreFoundation.h>
#include <SystemConfiguration/SystemConfiguration.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <net/if_types.h>
#include <net/if_var.h>
#include <string.h>

#include "base/netif_os.h"

static bool text_of(CFStringRef s, char *out, CFIndex cap) {
    out[0] = 0;
    return s && CFStringGetCString(s, out, cap, kCFStringEncodingUTF8);
}

/* What System Settings calls the hardware: "Wi-Fi" is of type IEEE80211, a Thunderbolt port is
 * "Thunderbolt 1" and the bridge over them "Thunderbolt Bridge". A Thunderbolt Ethernet adapter has
 * a longer name and is Ethernet. */
static enum netif_kind kind_of(SCNetworkInterfaceRef i, enum netif_kind by_name) {
    char type[64], shown[128];
    text_of(SCNetworkInterfaceGetInterfaceType(i), type, sizeof type);
    text_of(SCNetworkInterfaceGetLocalizedDisplayName(i), shown, sizeof shown);
    if (strcmp(type, "IEEE80211") == 0) return NETIF_WIFI;
    if (strcmp(shown, "Thunderbolt Bridge") == 0) return NETIF_THUNDERBOLT;
    if (strncmp(shown, "Thunderbolt ", 12) == 0 && shown[12] >= '0' && shown[12] <= '9')
        return NETIF_THUNDERBOLT;
    if (strcmp(type, "Ethernet") == 0 || strcmp(type, "Bond") == 0 || strcmp(type, "VLAN") == 0)
        return NETIF_ETHERNET;
    return by_name;
}

static void mtu_and_speed(struct netif *v, u32 n) {
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) != 0) return;
    for (const struct ifaddrs *a = all; a; a = a->ifa_next) {
        struct netif *i = (struct netif *)(uintptr_t)netif_named(v, n, a->ifa_name);
        const struct if_data *d = a->ifa_data;
        if (!i || !d || !a->ifa_addr || a->ifa_addr->sa_family != AF_LINK) continue;
        i->mtu = d->ifi_mtu;
        if (i->kind != NETIF_LOOPBACK) i->speed_mbit = (u32)(d->ifi_baudrate / 1000000);
        if (d->ifi_type == IFT_BRIDGE && i->kind == NETIF_UNKNOWN) i->kind = NETIF_ETHERNET;
    }
    freeifaddrs(all);
}

void netif_os_facts_in(const char *sys_class, struct netif *v, u32 n) {
    (void)sys_class, (void)v, (void)n;
}

void netif_os_facts(struct netif *v, u32 n) {
    CFArrayRef all = SCNetworkInterfaceCopyAll();
    for (CFIndex k = 0; all && k < CFArrayGetCount(all); k++) {
        char name[NETIF_NAME_CAP];
        SCNetworkInterfaceRef i = CFArrayGetValueAtIndex(all, k);
        if (!text_of(SCNetworkInterfaceGetBSDName(i), name, sizeof name)) continue;
        struct netif *mine = (struct netif *)(uintptr_t)netif_named(v, n, name);
        if (mine && mine->kind != NETIF_LOOPBACK) mine->kind = kind_of(i, mine->kind);
    }
    if (all) CFRelease(all);
    mtu_and_speed(v, n);
}
