#include "node/route.h"

#include <string.h>

#include "base/str.h"
#include "base/test.h"

static struct netif net(const char *name, enum netif_kind kind, u32 index) {
    struct netif i = {.kind = kind, .index = index, .is_up = true};
    str_copy(i.name, sizeof i.name, name);
    i.is_inner = netif_inner_by_name(name);
    return i;
}

static void host(struct netif *i, const char *h, u32 prefix) {
    struct netif_addr *a = &i->addrs[i->n_addrs++];
    str_copy(a->host, sizeof a->host, h);
    a->prefix = prefix;
    a->is_v6 = strchr(h, ':') != NULL;
    a->is_link_local = strncmp(h, "fe80", 4) == 0 || strncmp(h, "169.254", 7) == 0;
}

static u32 machine(struct netif v[6]) {
    v[0] = net("lo", NETIF_LOOPBACK, 1);
    host(&v[0], "127.0.0.1", 8), host(&v[0], "::1", 128);
    v[1] = net("wlan0", NETIF_WIFI, 2);
    host(&v[1], "192.168.1.5", 24), host(&v[1], "fe80::5%wlan0", 64);
    v[2] = net("docker0", NETIF_UNKNOWN, 3);
    host(&v[2], "172.17.0.1", 16);
    v[3] = net("eth0", NETIF_ETHERNET, 4);
    host(&v[3], "10.0.0.5", 24), host(&v[3], "fe80::6%eth0", 64);
    v[4] = net("thunderbolt0", NETIF_THUNDERBOLT, 5);
    host(&v[4], "169.254.1.1", 16);
    v[5] = net("tun0", NETIF_TUNNEL, 6);
    host(&v[5], "10.8.0.2", 24);
    return 6;
}

static void own_hosts(void **state) {
    (void)state;
    struct netif v[6];
    u32 n = machine(v);
    char out[ROUTE_HOSTS_MAX][NETIF_HOST_CAP];
    static const char *const WANT[] = {"169.254.1.1", "10.0.0.5", "fe80::6",
                                       "192.168.1.5", "fe80::5",  "10.8.0.2"};
    assert_int_equal(route_own_hosts(v, n, NULL, 0, out), ARRAY_LEN(WANT));
    for (u32 i = 0; i < ARRAY_LEN(WANT); i++) assert_string_equal(out[i], WANT[i]);
    const char *only[] = {"wlan0", "docker0"};
    assert_int_equal(route_own_hosts(v, n, only, 2, out), 3);
    assert_string_equal(out[0], "192.168.1.5");
    assert_string_equal(out[2], "172.17.0.1");
    /* A machine without a network has its loopback. */
    assert_int_equal(route_own_hosts(v, 1, NULL, 0, out), 2);
    assert_string_equal(out[0], "127.0.0.1");
    v[3].is_up = false;
    assert_int_equal(route_own_hosts(v, n, NULL, 0, out), 4);
}

static void expansion(void **state) {
    (void)state;
    struct netif v[6];
    u32 n = machine(v);
    char out[4][SOCK_ADDRESS_CAP];
    const char *only[] = {"eth0"};
    assert_int_equal(route_expand(v, n, NULL, 0, "10.0.0.9", 7, out, 4), 1);
    assert_string_equal(out[0], "10.0.0.9:7");
    assert_int_equal(route_expand(v, n, NULL, 0, "8.8.8.8", 7, out, 4), 1); /* by a router, maybe */
    assert_int_equal(route_expand(v, n, NULL, 0, "10.0.0.5", 7, out, 4), 0); /* ourselves */
    assert_int_equal(route_expand(v, n, NULL, 0, "172.17.0.1", 7, out, 4),
                     0); /* its docker0, ours */
    assert_int_equal(route_expand(v, n, only, 1, "192.168.1.9", 7, out, 4), 0);
    assert_int_equal(route_expand(v, n, NULL, 0, "fe80::9", 7, out, 4), 2);
    assert_string_equal(out[0], "[fe80::9%wlan0]:7");
    assert_string_equal(out[1], "[fe80::9%eth0]:7");
    assert_int_equal(route_expand(v, n, NULL, 0, "fe80::9", 7, out, 1), 1);
    assert_int_equal(route_expand(v, n, only, 1, "fe80::9", 7, out, 4), 1);
    assert_int_equal(route_expand(v, n, NULL, 0, "169.254.9.9", 7, out, 4), 1);
    assert_int_equal(route_expand(v, 4, NULL, 0, "169.254.9.9", 7, out, 4), 0); /* no such cable */
    char big[NETIF_HOST_CAP + 9];
    memset(big, '1', sizeof big - 1), big[sizeof big - 1] = 0;
    assert_int_equal(route_expand(v, n, NULL, 0, big, 7, out, 4), 0);
}

static void ranks(void **state) {
    (void)state;
    struct netif v[6];
    u32 n = machine(v);
    static const char *const BEST_FIRST[] = {"127.0.0.1",   "169.254.3.3", "10.0.0.9",
                                             "192.168.1.9", "8.8.8.8",     "172.17.0.2"};
    for (u32 i = 1; i < ARRAY_LEN(BEST_FIRST); i++)
        assert_true(route_rank(v, n, BEST_FIRST[i - 1]) > route_rank(v, n, BEST_FIRST[i]));
    assert_int_equal(route_rank(v, n, "fe80::9%eth0"), NETIF_ETHERNET);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_hosts),
        cmocka_unit_test(expansion),
        cmocka_unit_test(ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
