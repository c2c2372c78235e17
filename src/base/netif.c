#include "base/netif.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "base/netif_os.h"
#include "base/str.h"

const char *netif_kind_text(enum netif_kind k) {
    static const char *const TEXTS[] = {
        [NETIF_UNKNOWN] = "unknown",   [NETIF_TUNNEL] = "tunnel",
        [NETIF_WIFI] = "wifi",         [NETIF_ETHERNET] = "ethernet",
        [NETIF_RDMA] = "rdma",         [NETIF_THUNDERBOLT] = "thunderbolt",
        [NETIF_LOOPBACK] = "loopback",
    };
    return (u32)k < ARRAY_LEN(TEXTS) ? TEXTS[k] : TEXTS[NETIF_UNKNOWN];
}

static bool begins(const char *name, const char *const *prefixes, u32 n) {
    for (u32 i = 0; i < n; i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0) return true;
    return false;
}

enum netif_kind netif_kind_by_name(const char *name) {
    static const char *const TUNNEL[] = {"tun",    "utun",  "wg",     "tailscale", "zt",
                                         "ppp",    "sit",   "gre",    "ipsec",     "gif",
                                         "ip6tnl", "vxlan", "nebula", "warp",      "teredo"};
    static const char *const WIFI[] = {"wl", "ath", "awdl", "llw"};
    static const char *const ETHERNET[] = {"eth", "en", "em", "bond", "br"};
    if (strcmp(name, "lo") == 0 || strcmp(name, "lo0") == 0) return NETIF_LOOPBACK;
    if (begins(name, TUNNEL, ARRAY_LEN(TUNNEL))) return NETIF_TUNNEL;
    if (begins(name, WIFI, ARRAY_LEN(WIFI))) return NETIF_WIFI;
    if (strncmp(name, "thunderbolt", 11) == 0) return NETIF_THUNDERBOLT;
    if (strncmp(name, "ib", 2) == 0 && name[2] >= '0' && name[2] <= '9') return NETIF_RDMA;
    if (begins(name, ETHERNET, ARRAY_LEN(ETHERNET))) return NETIF_ETHERNET;
    return NETIF_UNKNOWN;
}

bool netif_inner_by_name(const char *name) {
    static const char *const INNER[] = {"docker",  "br-",  "virbr", "podman", "cni",     "flannel",
                                        "cali",    "lxc",  "lxd",   "vmnet",  "kube-",   "cilium",
                                        "vboxnet", "veth", "vnet",  "feth",   "bridge10"};
    return begins(name, INNER, ARRAY_LEN(INNER));
}

struct netif *netif_slot(struct netif *v, u32 *n, u32 max, const char *name) {
    struct netif *known = (struct netif *)(uintptr_t)netif_named(v, *n, name);
    if (known) return known;
    if (*n >= max || strlen(name) >= NETIF_NAME_CAP) return NULL;
    v[*n] = (struct netif){.kind = netif_kind_by_name(name), .is_inner = netif_inner_by_name(name)};
    str_copy(v[*n].name, NETIF_NAME_CAP, name);
    return &v[(*n)++];
}

static u32 mask_bits(const u8 *p, u32 n) {
    u32 bits = 0;
    for (u32 i = 0; i < n; i++) bits += (u32)__builtin_popcount(p[i]);
    return bits;
}

void netif_add_addr(struct netif *i, const struct sockaddr *a, const struct sockaddr *mask) {
    if (i->n_addrs == NETIF_ADDRS_MAX) return;
    struct netif_addr *out = &i->addrs[i->n_addrs];
    *out = (struct netif_addr){0};
    if (a->sa_family == AF_INET) {
        const struct sockaddr_in *s = (const void *)a, *m = (const void *)mask;
        if (!inet_ntop(AF_INET, &s->sin_addr, out->host, sizeof out->host)) return;
        out->prefix = m ? mask_bits((const u8 *)&m->sin_addr, 4) : 32;
        out->is_link_local = ntohl(s->sin_addr.s_addr) >> 16 == 0xa9fe;
    } else if (a->sa_family == AF_INET6) {
        const struct sockaddr_in6 *s = (const void *)a, *m = (const void *)mask;
        struct in6_addr plain = s->sin6_addr;
        out->is_v6 = true;
        out->is_link_local = IN6_IS_ADDR_LINKLOCAL(&plain);
        if (out->is_link_local) /* BSD keeps the scope inside the address */
            plain.s6_addr[2] = plain.s6_addr[3] = 0;
        if (!inet_ntop(AF_INET6, &plain, out->host, sizeof out->host)) return;
        out->prefix = m ? mask_bits(m->sin6_addr.s6_addr, 16) : 128;
        char scope[NETIF_NAME_CAP + 1] = "";
        if (out->is_link_local) snprintf(scope, sizeof scope, "%%%.30s", i->name);
        size_t used = strlen(out->host);
        str_copy(out->host + used, sizeof out->host - used, scope);
    } else {
        return;
    }
    i->n_addrs++;
}

u32 netif_list(struct netif *out, u32 max) {
    struct ifaddrs *all = NULL;
    u32 n = 0;
    if (getifaddrs(&all) != 0) return 0;
    for (const struct ifaddrs *a = all; a; a = a->ifa_next) {
        bool inet = a->ifa_addr &&
                    (a->ifa_addr->sa_family == AF_INET || a->ifa_addr->sa_family == AF_INET6);
        struct netif *i = inet ? netif_slot(out, &n, max, a->ifa_name) : NULL;
        if (!i) continue;
        i->is_up = (a->ifa_flags & IFF_UP) && (a->ifa_flags & IFF_RUNNING);
        i->has_multicast = a->ifa_flags & IFF_MULTICAST;
        if (a->ifa_flags & IFF_LOOPBACK) i->kind = NETIF_LOOPBACK;
        if (a->ifa_flags & IFF_POINTOPOINT && i->kind == NETIF_UNKNOWN) i->kind = NETIF_TUNNEL;
        i->index = if_nametoindex(a->ifa_name);
        netif_add_addr(i, a->ifa_addr, a->ifa_netmask);
    }
    freeifaddrs(all);
    netif_os_facts(out, n);
    return n;
}

const struct netif *netif_named(const struct netif *v, u32 n, const char *name) {
    for (u32 i = 0; i < n; i++)
        if (strcmp(v[i].name, name) == 0) return &v[i];
    return NULL;
}

/* 4 or 16 address bytes; 0 when it is no numeric address. */
static u32 parse(const char *host, u8 out[16], const char **scope) {
    char plain[NETIF_HOST_CAP];
    const char *percent = strchr(host, '%');
    size_t n = percent ? (size_t)(percent - host) : strlen(host);
    *scope = percent ? percent + 1 : NULL;
    if (n >= sizeof plain) return 0;
    memcpy(plain, host, n);
    plain[n] = 0;
    if (inet_pton(AF_INET, plain, out) == 1) return 4;
    if (inet_pton(AF_INET6, plain, out) != 1) return 0;
    static const u8 MAPPED[12] = {[10] = 0xff, [11] = 0xff};
    if (memcmp(out, MAPPED, 12) != 0) return 16;
    memmove(out, out + 12, 4);
    return 4;
}

static bool same_prefix(const u8 *a, const u8 *b, u32 bits) {
    u32 whole = bits / 8, rest = bits % 8;
    if (memcmp(a, b, whole) != 0) return false;
    return !rest || (u8)((a[whole] ^ b[whole]) >> (8 - rest)) == 0;
}

const struct netif *netif_of_host(const struct netif *v, u32 n, const char *host) {
    u8 want[16], have[16];
    const char *scope;
    u32 len = parse(host, want, &scope);
    for (u32 i = 0; len && i < n; i++)
        for (u32 k = 0; k < v[i].n_addrs; k++)
            if (parse(v[i].addrs[k].host, have, &scope) == len && memcmp(want, have, len) == 0)
                return &v[i];
    return NULL;
}

static const struct netif *scoped(const struct netif *v, u32 n, const char *scope) {
    u32 index = 0;
    for (const char *p = scope; *p >= '0' && *p <= '9' && index < 1u << 24; p++)
        index = index * 10 + (u32)(*p - '0');
    for (u32 i = 0; i < n; i++)
        if (strcmp(v[i].name, scope) == 0 || (index && v[i].index == index)) return &v[i];
    return NULL;
}

const struct netif *netif_toward(const struct netif *v, u32 n, const char *host) {
    u8 want[16], have[16];
    const char *scope, *own_scope;
    const struct netif *best = NULL;
    u32 len = parse(host, want, &scope), best_bits = 0;
    if (!len) return NULL;
    if (scope) return scoped(v, n, scope);
    if (netif_of_host(v, n, host)) /* packets to oneself never leave */
        for (u32 i = 0; i < n; i++)
            if (v[i].kind == NETIF_LOOPBACK) return &v[i];
    for (u32 i = 0; i < n; i++) {
        for (u32 k = 0; k < v[i].n_addrs; k++) {
            const struct netif_addr *a = &v[i].addrs[k];
            if (!v[i].is_up || parse(a->host, have, &own_scope) != len || a->prefix > len * 8)
                continue;
            if (!same_prefix(want, have, a->prefix)) continue;
            bool better = !best || a->prefix > best_bits ||
                          (a->prefix == best_bits && v[i].kind > best->kind);
            if (better) best = &v[i], best_bits = a->prefix;
        }
    }
    return best;
}
