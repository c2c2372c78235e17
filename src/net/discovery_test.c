#include "base/test.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/random.h"
#include "base/hash.h"
#include "net/discovery.h"

static struct discovery_info info_of(const char *name_space, u16 bus_port) {
    struct discovery_info i = {.bus_port = bus_port, .api_port = 1, .boot = random_u64()};
    u8 raw[16];
    random_bytes(raw, sizeof raw);
    hex_encode(raw, sizeof raw, i.node_id);
    str_copy(i.name_space, sizeof i.name_space, name_space);
    str_copy(i.version, sizeof i.version, "v1");
    return i;
}

static void txt(void **state) {
    (void)state;
    struct discovery_info i = info_of("büro", 52416), o;
    struct str s = {0};
    struct err e = {0};
    discovery_txt_write(&i, &s);
    assert_true(discovery_txt_parse(s.p, s.n, &o, &e));
    assert_memory_equal(&i, &o, sizeof i);
    for (size_t n = 1; n < s.n; n++) /* cut anywhere: an error, or the strings before the cut */
        (void)discovery_txt_parse(s.p, n, &o, NULL);
    assert_false(discovery_txt_parse(s.p, 12, &o, &e));
    assert_int_equal(e.code, ERR_FORMAT);
    str_deinit(&s);
    /* Another program's, bad ports, bad ids, control characters, text that is not UTF-8. */
    static const char *const BAD[] = {"",
                                      "path=/",
                                      "id=00112233445566778899aabbccddeeff",
                                      "bus=5",
                                      "bus=0",
                                      "bus=65536",
                                      "bus=-1",
                                      "bus=",
                                      "id=xx",
                                      "id=00112233445566778899AABBCCDDEEFF",
                                      "ns=a\nb",
                                      "ns=\xff",
                                      "boot=123456789abcdef01",
                                      "api=1e3"};
    for (u32 k = 0; k < ARRAY_LEN(BAD); k++) {
        char raw[400];
        static const char GOOD[] = "\x23id=00112233445566778899aabbccddeeff\x05"
                                   "bus=5";
        size_t n = strlen(BAD[k]);
        raw[0] = (char)n;
        memcpy(raw + 1, BAD[k], n);
        bool lone = k < 4; /* refused for what is missing; the others in front of a good record */
        if (!lone) memcpy(raw + 1 + n, GOOD, sizeof GOOD - 1);
        if (discovery_txt_parse(raw, 1 + n + (lone ? 0 : sizeof GOOD - 1), &o, &e))
            fail_msg("accepted %s", BAD[k]);
    }
    /* Keys in any case, unknown ones and flags without a value are skipped, the first one counts.
     */
    static const char MIXED[] = "\x04"
                                "flag"
                                "\x01="
                                "\x03x=y"
                                "\x06"
                                "BUS=77"
                                "\x06"
                                "bus=78"
                                "\x23"
                                "Id=00112233445566778899aabbccddeeff";
    assert_true(discovery_txt_parse(MIXED, sizeof MIXED - 1, &o, &e));
    assert_int_equal(o.bus_port, 77);
    char big[DISCOVERY_TXT_MAX + 1] = {0};
    assert_false(discovery_txt_parse(big, sizeof big, &o, &e));
    assert_int_equal(e.code, ERR_LIMIT);
}

/* Looks until d has told of `want`'s node (gone or not), for at most 20 s. */
static bool await(struct discovery *d, const struct discovery_info *want, bool is_gone,
                  struct discovery_found *f) {
    for (u64 end = clock_ms() + 20000; clock_ms() < end;) {
        struct pollfd p = {.fd = discovery_fd(d), .events = POLLIN};
        poll(&p, 1, 100);
        while (discovery_next(d, f))
            if (strcmp(f->info.node_id, want->node_id) == 0 && f->is_gone == is_gone &&
                (is_gone || (f->info.boot == want->boot && f->info.api_port == want->api_port)))
                return true;
    }
    return false;
}

static struct discovery *start(const struct discovery_info *i, const char *name) {
    static const char *const LO[] = {"lo"};
    struct discovery_cfg cfg = {.info = *i, .name = name, .interfaces = LO, .n_interfaces = 1};
    struct err e = {0};
    struct discovery *d = discovery_start(&cfg, &e);
    if (!d) print_message("no discovery here: %s\n", e.msg);
    return d;
}

/* Two of them on the loopback interface: they find each other, see a changed port, a new process of
 * the same node, and a goodbye. */
static void two_meet(void **state) {
    (void)state;
    struct discovery_info a = info_of("one", 1001), b = info_of("two", 1002);
    struct discovery_found f;
    struct discovery *x = start(&a, "alpha");
    if (!x) skip();
    u64 before = clock_ms();
    struct discovery *y = start(&b, "beta");
    assert_non_null(y);
    assert_true(await(x, &b, false, &f));
    assert_int_equal(f.info.bus_port, 1002);
    assert_string_equal(f.info.name_space, "two");
    assert_true(strcmp(f.host, "127.0.0.1") == 0 || strcmp(f.host, "::1") == 0);
    assert_string_equal(f.interface, "lo");
    assert_true(await(y, &a, false, &f));
    print_message("met after %llu ms\n", (unsigned long long)(clock_ms() - before));
    a.api_port = 7;
    discovery_set_api(x, 7);
    assert_true(await(y, &a, false, &f));
    discovery_stop(x);
    assert_true(await(y, &a, true, &f));
    a.boot++;
    x = start(&a, "alpha");
    assert_true(await(y, &a, false, &f));
    discovery_stop(x);
    discovery_stop(y);
}

/* A copied disk: the same id twice. Both are seen, by their boots. */
static void same_id_twice(void **state) {
    (void)state;
    struct discovery_info a = info_of("one", 1001), b = a, c = info_of("one", 1003);
    struct discovery_found f;
    b.boot++;
    b.bus_port = 1002;
    struct discovery *z = start(&c, "gamma");
    if (!z) skip();
    struct discovery *x = start(&a, "alpha");
    assert_true(await(z, &a, false, &f));
    assert_int_equal(f.info.bus_port, 1001);
    struct discovery *y = start(&b, "alpha");
    assert_true(await(z, &b, false, &f));
    assert_int_equal(f.info.bus_port, 1002);
    discovery_stop(x);
    discovery_stop(y);
    discovery_stop(z);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(txt),
        cmocka_unit_test(two_meet),
        cmocka_unit_test(same_id_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
