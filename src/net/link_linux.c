#include "net/link_internal.h"

u32 link_os_mtu(int fd, bool v6) {
    int mtu = 0;
    socklen_t n = sizeof mtu;
    int ok = v6 ? getsockopt(fd, IPPROTO_IPV6, IPV6_MTU, &mtu, &n)
                : getsockopt(fd, IPPROTO_IP, IP_MTU, &mtu, &n);
    return ok == 0 && mtu > 0 ? (u32)mtu : 0;
}

/* PROBE: may not be cut, and what earlier packets met on the path is not held against it. */
bool link_os_dont_fragment(int fd, bool v6) {
    int v = v6 ? IPV6_PMTUDISC_PROBE : IP_PMTUDISC_PROBE;
    return (v6 ? setsockopt(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, &v, sizeof v)
               : setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &v, sizeof v)) == 0;
}
