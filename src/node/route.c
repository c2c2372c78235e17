#include "node/route.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/str.h"

bool route_allowed(const char *const *only, u32 n_only, const char *interface) {
    for (u32 i = 0; i < n_only; i++)
        if (strcmp(only[i], interface) == 0) return true;
    return n_only == 0;
}

u32 route_own_hosts(const struct netif *v, u32 n, const char *const *only, u32 n_only,
                    char out[ROUTE_HOSTS_MAX][NETIF_HOST_CAP]) {
    u32 k = 0;
    /* Best kinds first, loopback last; of one interface in the system's order. */
    for (int kind = NETIF_LOOPBACK - 1; kind >= -1; kind--) {
        enum netif_kind want = kind < 0 ? NETIF_LOOPBACK : (enum netif_kind)kind;
        if (kind < 0 && k && !n_only) break;
        for (u32 i = 0; i < n; i++) {
            if (v[i].kind != want || !v[i].is_up || !route_allowed(only, n_only, v[i].name))
                continue;
            if (v[i].is_inner && !n_only) continue;
            for (u32 a = 0; a < v[i].n_addrs && k < ROUTE_HOSTS_MAX; a++) {
                str_copy(out[k], NETIF_HOST_CAP, v[i].addrs[a].host);
                out[k][strcspn(out[k], "%")] = 0;
                k++;
            }
        }
    }
    return k;
}

static u32 add(u32 k, u32 max, const char *host, u16 port, char out[][SOCK_ADDRESS_CAP]) {
    if (k >= max) return k;
    sock_join(host, port, out[k]);
    return k + 1;
}

u32 route_expand(const struct netif *v, u32 n, const char *const *only, u32 n_only,
                 const char *host, u16 port, char out[][SOCK_ADDRESS_CAP], u32 max) {
    u32 k = 0;
    if (strlen(host) >= NETIF_HOST_CAP || netif_of_host(v, n, host)) return 0;
    if (strncasecmp(host, "fe80:", 5) == 0 && !strchr(host, '%')) {
        for (u32 i = 0; i < n; i++) {
            char scoped[2 * NETIF_HOST_CAP];
            bool has = false;
            for (u32 a = 0; a < v[i].n_addrs; a++)
                has = has || (v[i].addrs[a].is_v6 && v[i].addrs[a].is_link_local);
            if (!has || !v[i].is_up || v[i].is_inner || !route_allowed(only, n_only, v[i].name))
                continue;
            snprintf(scoped, sizeof scoped, "%s%%%s", host, v[i].name);
            k = add(k, max, scoped, port, out);
        }
        return k;
    }
    const struct netif *over = netif_toward(v, n, host);
    if (over && !route_allowed(only, n_only, over->name)) return 0;
    /* 169.254 and loopback mean something only where an interface of ours has that network. */
    bool local = strncmp(host, "169.254.", 8) == 0 || strncmp(host, "127.", 4) == 0 ||
                 strcmp(host, "::1") == 0;
    return local && !over ? 0 : add(0, max, host, port, out);
}

u32 route_rank(const struct netif *v, u32 n, const char *host) {
    const struct netif *i = netif_toward(v, n, host);
    if (!i) return NETIF_TUNNEL; /* through a router */
    return i->is_inner ? 0 : i->kind;
}
