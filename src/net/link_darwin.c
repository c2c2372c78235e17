/* Written from Apple's headers and man pages; not yet run on a Mac (README says so). */
#define __APPLE_USE_RFC_3542 1 /* IPV6_DONTFRAG */
#include "net/link_internal.h"

u32 link_os_mtu(int fd, bool v6) {
    (void)fd;
    (void)v6;
    return 0; /* the interface's is taken */
}

bool link_os_dont_fragment(int fd, bool v6) {
    int on = 1;
    return (v6 ? setsockopt(fd, IPPROTO_IPV6, IPV6_DONTFRAG, &on, sizeof on)
               : setsockopt(fd, IPPROTO_IP, IP_DONTFRAG, &on, sizeof on)) == 0;
}
