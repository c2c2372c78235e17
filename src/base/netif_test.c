#include "base/test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/netif.h"
#include "base/netif_os.h"

static void add(struct netif *i, const char *host, u32 prefix) {
    struct sockaddr_in6 a6 = {.sin6_family = AF_INET6}, m6 = a6;
    struct sockaddr_in a4 = {.sin_family = AF_INET}, m4 = a4;
    if (inet_pton(AF_INET, host, &a4.sin_addr) == 1) {
        m4.sin_addr.s_addr = htonl(prefix ? ~0u << (32 - prefix) : 0);
        netif_add_addr(i, (struct sockaddr *)&a4, (struct sockaddr *)&m4);
        return;
    }
    assert_int_equal(inet_pton(AF_INET6, host, &a6.sin6_addr), 1);
    for (u32 k = 0; k < prefix; k++) m6.sin6_addr.s6_addr[k / 8] |= (u8)(0x80 >> k % 8);
    netif_add_addr(i, (struct sockaddr *)&a6, (struct sockaddr *)&m6);
}

static u32 example(struct netif *v, u32 max) {
    u32 n = 0;
    static const struct {
        const char *name, *host;
        u32 prefix, index;
    } ROWS[] = {{"lo", "127.0.0.1", 8, 1},    {"lo", "::1", 128, 1},
                {"eth0", "10.0.0.2", 24, 2},  {"eth0", "fe80::2", 64, 2},
                {"wlan0", "10.0.1.2", 16, 3}, {"thunderbolt0", "169.254.3.4", 16, 4},
                {"wg0", "10.99.0.1", 32, 5},  {"docker0", "172.17.0.1", 16, 6},
                {"wlan0", "fd00::5", 64, 3}};
    for (u32 i = 0; i < ARRAY_LEN(ROWS); i++) {
        struct netif *x = netif_slot(v, &n, max, ROWS[i].name);
        assert_non_null(x);
        x->is_up = true;
        x->index = ROWS[i].index;
        add(x, ROWS[i].host, ROWS[i].prefix);
    }
    return n;
}

static const char *toward(const struct netif *v, u32 n, const char *host) {
    const struct netif *i = netif_toward(v, n, host);
    return i ? i->name : "-";
}

static void routes(void **state) {
    (void)state;
    struct netif v[8];
    u32 n = example(v, 8);
    assert_int_equal(n, 6);
    assert_string_equal(toward(v, n, "10.0.0.9"), "eth0"); /* /24 before Wi-Fi's /16 */
    assert_string_equal(toward(v, n, "10.0.7.9"), "wlan0");
    assert_string_equal(toward(v, n, "10.0.0.2"), "lo"); /* our own */
    assert_string_equal(toward(v, n, "::ffff:10.0.0.9"), "eth0");
    assert_string_equal(toward(v, n, "fd00::77"), "wlan0");
    assert_string_equal(toward(v, n, "fe80::9%eth0"), "eth0");
    assert_string_equal(toward(v, n, "fe80::9%4"), "thunderbolt0");
    assert_string_equal(toward(v, n, "8.8.8.8"), "-");
    assert_string_equal(toward(v, n, "a.host"), "-");
    assert_string_equal(netif_of_host(v, n, "fe80::2%eth0")->name, "eth0");
    assert_null(netif_of_host(v, n, "10.0.0.3"));
    const struct netif *eth = netif_named(v, n, "eth0");
    assert_string_equal(eth->addrs[1].host, "fe80::2%eth0");
    assert_true(eth->addrs[1].is_link_local && eth->addrs[1].is_v6);
    assert_int_equal(eth->addrs[0].prefix, 24);
    v[1].is_up = false;
    assert_string_equal(toward(v, n, "10.0.0.9"), "wlan0");
}

static void names(void **state) {
    (void)state;
    static const struct {
        const char *name;
        enum netif_kind kind;
        bool inner;
    } ROWS[] = {
        {"lo", NETIF_LOOPBACK, false},     {"lo0", NETIF_LOOPBACK, false},
        {"wlp3s0", NETIF_WIFI, false},     {"tailscale0", NETIF_TUNNEL, false},
        {"ztabc", NETIF_TUNNEL, false},    {"utun3", NETIF_TUNNEL, false},
        {"enp1s0", NETIF_ETHERNET, false}, {"thunderbolt0", NETIF_THUNDERBOLT, false},
        {"ib0", NETIF_RDMA, false},        {"docker0", NETIF_UNKNOWN, true},
        {"br-1a2b", NETIF_ETHERNET, true}, {"xyz", NETIF_UNKNOWN, false},
    };
    for (u32 i = 0; i < ARRAY_LEN(ROWS); i++) {
        assert_int_equal(netif_kind_by_name(ROWS[i].name), ROWS[i].kind);
        assert_int_equal(netif_inner_by_name(ROWS[i].name), ROWS[i].inner);
    }
    assert_string_equal(netif_kind_text(NETIF_WIFI), "wifi");
    assert_string_equal(netif_kind_text((enum netif_kind)99), "unknown");
    struct netif v[1];
    u32 n = 0;
    assert_non_null(netif_slot(v, &n, 1, "a"));
    assert_ptr_equal(netif_slot(v, &n, 1, "a"), v);
    assert_null(netif_slot(v, &n, 1, "b"));
}

static void put(const char *root, const char *path, const char *text) {
    char full[600], dir[600];
    snprintf(full, sizeof full, "%s/%s", root, path);
    snprintf(dir, sizeof dir, "%s", full);
    *strrchr(dir, '/') = 0;
    assert_true(file_make_dirs(dir, NULL));
    assert_true(file_write(full, text, strlen(text), 0644, NULL));
}

/* A tree as Linux shows it. Elsewhere nothing reads it. */
static void sysfs(void **state) {
    (void)state;
#ifdef __linux__
    char root[] = "/tmp/netif-XXXXXX", link[600], command[64];
    struct netif v[8];
    u32 n = 0;
    assert_non_null(mkdtemp(root));
    put(root, "net/a0/type", "1\n"), put(root, "net/a0/speed", "10000\n");
    put(root, "net/a0/mtu", "9000\n");
    put(root, "net/b0/type", "1\n"), put(root, "net/b0/uevent", "DEVTYPE=wlan\nINTERFACE=b0\n");
    put(root, "net/b0/speed", "-1\n");
    put(root, "net/c0/type", "1\n"), put(root, "net/c0/device/x", "");
    snprintf(link, sizeof link, "%s/net/c0/device/driver", root);
    assert_int_equal(symlink("../../../bus/thunderbolt/drivers/thunderbolt-net", link), 0);
    put(root, "net/d0/type", "1\n"), put(root, "infiniband/mlx5_0/device/net/d0/x", "");
    put(root, "net/d0/speed", "4294967295\n");
    put(root, "net/e0/type", "65534\n");
    put(root, "net/zt0/type", "1\n");
    static const char *const NAMES[] = {"a0", "b0", "c0", "d0", "e0", "zt0", "gone"};
    static const enum netif_kind KINDS[] = {NETIF_ETHERNET, NETIF_WIFI,   NETIF_THUNDERBOLT,
                                            NETIF_RDMA,     NETIF_TUNNEL, NETIF_TUNNEL,
                                            NETIF_UNKNOWN};
    for (u32 i = 0; i < ARRAY_LEN(NAMES); i++) netif_slot(v, &n, 8, NAMES[i]);
    netif_os_facts_in(root, v, n);
    for (u32 i = 0; i < n; i++) assert_int_equal(v[i].kind, KINDS[i]);
    assert_int_equal(v[0].speed_mbit, 10000);
    assert_int_equal(v[0].mtu, 9000);
    assert_int_equal(v[1].speed_mbit, 0);
    assert_int_equal(v[3].speed_mbit, 0);
    snprintf(command, sizeof command, "rm -r %s", root);
    assert_int_equal(system(command), 0);
#endif
}

/* This machine has a loopback interface, whatever else it has. */
static void here(void **state) {
    (void)state;
    static struct netif v[NETIF_MAX];
    u32 n = netif_list(v, NETIF_MAX);
    assert_true(n > 0);
    const struct netif *lo = netif_toward(v, n, "127.0.0.1");
    assert_non_null(lo);
    assert_int_equal(lo->kind, NETIF_LOOPBACK);
    assert_true(lo->is_up && lo->mtu > 0 && lo->index > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(routes),
        cmocka_unit_test(names),
        cmocka_unit_test(sysfs),
        cmocka_unit_test(here),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
