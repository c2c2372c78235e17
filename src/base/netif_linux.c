#include <dirent.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/file.h"
#include "base/netif_os.h"

/* The first word of a small file; "" when it can't be read (the speed of an interface that is
 * down, say). */
static void word(const char *dir, const char *name, const char *file, char out[64]) {
    char path[512];
    struct str s = {0};
    out[0] = 0;
    snprintf(path, sizeof path, "%s/net/%s/%s", dir, name, file);
    if (file_read(path, 4096, &s, NULL)) {
        size_t n = strcspn(str_z(&s), " \n");
        snprintf(out, 64, "%.*s", (int)MIN(n, 63u), str_z(&s));
    }
    str_deinit(&s);
}

static bool there(const char *dir, const char *name, const char *file) {
    char path[512];
    snprintf(path, sizeof path, "%s/net/%s/%s", dir, name, file);
    return access(path, F_OK) == 0;
}

/* Names of the driver's folder: /sys/class/net/X/device/driver is a link to it. */
static void driver(const char *dir, const char *name, char out[64]) {
    char path[512], target[512];
    snprintf(path, sizeof path, "%s/net/%s/device/driver", dir, name);
    ssize_t n = readlink(path, target, sizeof target - 1);
    target[n > 0 ? n : 0] = 0;
    const char *slash = strrchr(target, '/');
    snprintf(out, 64, "%.63s", slash ? slash + 1 : target);
}

/* DEVTYPE=wlan of the uevent file. */
static bool is_devtype(const char *dir, const char *name, const char *type) {
    char path[512];
    struct str s = {0};
    snprintf(path, sizeof path, "%s/net/%s/uevent", dir, name);
    bool ok = file_read(path, 4096, &s, NULL) && strstr(str_z(&s), type);
    str_deinit(&s);
    return ok;
}

/* RDMA devices name the interfaces that they belong to: infiniband/mlx5_0/device/net/ens1. */
static bool has_rdma(const char *dir, const char *name) {
    char path[1024];
    bool found = false;
    snprintf(path, sizeof path, "%s/infiniband", dir);
    DIR *d = opendir(path);
    for (struct dirent *f; d && !found && (f = readdir(d));) {
        if (f->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/infiniband/%s/device/net/%s", dir, f->d_name, name);
        found = access(path, F_OK) == 0;
    }
    if (d) closedir(d);
    return found;
}

static enum netif_kind kind_of(const char *dir, const struct netif *i) {
    enum { ARPHRD_ETHERNET = 1, ARPHRD_IB = 32, ARPHRD_LOOP = 772, ARPHRD_NOTHING = 65534 };
    char type[64], drv[64];
    word(dir, i->name, "type", type);
    driver(dir, i->name, drv);
    unsigned long hardware = strtoul(type, NULL, 10);
    if (i->kind == NETIF_LOOPBACK || hardware == ARPHRD_LOOP) return NETIF_LOOPBACK;
    if (there(dir, i->name, "wireless") || there(dir, i->name, "phy80211") ||
        is_devtype(dir, i->name, "DEVTYPE=wlan"))
        return NETIF_WIFI;
    if (strcmp(drv, "thunderbolt-net") == 0 || strcmp(drv, "thunderbolt_net") == 0)
        return NETIF_THUNDERBOLT;
    if (hardware == ARPHRD_IB || has_rdma(dir, i->name)) return NETIF_RDMA;
    if (is_devtype(dir, i->name, "DEVTYPE=wireguard") || hardware == ARPHRD_NOTHING)
        return NETIF_TUNNEL;
    /* A TAP is Ethernet to the kernel; its owner names it (zt*, tap*). Names that say tunnel win.
     */
    if (i->kind != NETIF_UNKNOWN) return i->kind;
    return hardware == ARPHRD_ETHERNET ? NETIF_ETHERNET : NETIF_UNKNOWN;
}

void netif_os_facts_in(const char *sys_class, struct netif *v, u32 n) {
    for (u32 i = 0; i < n; i++) {
        char text[64];
        if (!there(sys_class, v[i].name, ".")) continue; /* sysfs of another namespace */
        v[i].kind = kind_of(sys_class, &v[i]);
        word(sys_class, v[i].name, "speed", text);
        unsigned long speed = text[0] >= '0' && text[0] <= '9' ? strtoul(text, NULL, 10) : 0;
        v[i].speed_mbit = speed < 10000000 ? (u32)speed : 0; /* 4294967295 means unknown */
        word(sys_class, v[i].name, "mtu", text);
        unsigned long mtu = strtoul(text, NULL, 10);
        if (mtu) v[i].mtu = (u32)mtu;
    }
}

void netif_os_facts(struct netif *v, u32 n) {
    netif_os_facts_in("/sys/class", v, n);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return;
    for (u32 i = 0; i < n; i++) { /* the kernel's own word: sysfs may show another namespace */
        struct ifreq r = {0};
        snprintf(r.ifr_name, sizeof r.ifr_name, "%.15s", v[i].name);
        if (ioctl(fd, SIOCGIFMTU, &r) == 0 && r.ifr_mtu > 0) v[i].mtu = (u32)r.ifr_mtu;
    }
    close(fd);
}
