#include "net/link_proto.h"

#include <string.h>

#include "base/test.h"

static void what_is_put_is_read(void **state) {
    (void)state;
    u8 b[64], token[LINK_TOKEN_BYTES] = {7}, other[LINK_TOKEN_BYTES] = {8};
    struct link_greeting g = {LINK_TAKEN, true, 0xABCD, "0123456789abcde"}, h = {0};
    link_greeting_put(&g, b);
    assert_true(link_greeting_get(b, &h));
    assert_int_equal(h.state, LINK_TAKEN);
    assert_true(h.computing);
    assert_int_equal(h.udp_port, 0xABCD);
    assert_memory_equal(h.nonce, g.nonce, LINK_NONCE_BYTES);
    b[4]++; /* another version */
    assert_false(link_greeting_get(b, &h));
    link_proof_put(token, g.nonce, b);
    assert_true(link_proof_ok(b, token, g.nonce));
    assert_false(link_proof_ok(b, other, g.nonce));
    g.nonce[0]++;
    assert_false(link_proof_ok(b, token, g.nonce)); /* one of an earlier session */
}

static void orders_are_bounded(void **state) {
    (void)state;
    static const struct {
        struct link_order o;
        bool ok;
    } CASES[] = {
        {{LINK_PING, 5}, true},
        {{LINK_BYE, 0}, true},
        {{LINK_SINK, 1}, true},
        {{LINK_SINK, LINK_SESSION_BYTES}, true},
        {{LINK_SINK, (u64)LINK_SESSION_BYTES + 1}, false},
        {{LINK_SINK, 0}, false},
        {{LINK_DATAGRAM, 8972}, true},
        {{LINK_DATAGRAM, 3}, false},
        {{LINK_DATAGRAM, 65508}, false},
        {{(enum link_op)0, 0}, false},
        {{(enum link_op)77, 0}, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        u8 b[LINK_ORDER_BYTES];
        struct link_order o;
        link_order_put(CASES[i].o, b);
        assert_int_equal(link_order_get(b, &o), CASES[i].ok);
        assert_int_equal(o.value, CASES[i].o.value);
    }
}

static void quantiles(void **state) {
    (void)state;
    u32 v[200];
    assert_int_equal(link_quantile(v, 0, 0.5), 0);
    for (u32 i = 0; i < 200; i++) v[i] = 200 - i;
    assert_int_equal(link_quantile(v, 200, 0.5), 100);
    assert_int_equal(link_quantile(v, 200, 0.99), 198);
    assert_int_equal(link_quantile(v, 200, 1), 200);
    assert_int_equal(link_quantile(v, 200, 0), 1);
    v[0] = 9;
    assert_int_equal(link_quantile(v, 1, 0.99), 9);
}

/* On any link the bursts end, and the last one lasts or is the largest. */
static void bursts_grow_until_they_last(void **state) {
    (void)state;
    static const u64 RATES[] = {100000, 12500000, 1250000000, 12500000000};
    for (size_t i = 0; i < ARRAY_LEN(RATES); i++) {
        u64 bytes = 256 << 10, ns = 0;
        for (u32 n = 0;; n++) {
            assert_true(n < 10);
            ns = bytes * 1000000000 / RATES[i];
            u64 next = link_next_burst(bytes, ns, 100);
            if (!next) break;
            bytes = next;
        }
        assert_true(ns >= 60000000 || bytes == 64 << 20);
        assert_true(bytes <= LINK_SESSION_BYTES / 2);
    }
    assert_int_not_equal(link_next_burst(1 << 20, 500000000, 200000), 0); /* a far peer */
}

static void packet_sizes(void **state) {
    (void)state;
    u32 v[LINK_MTUS_MAX];
    assert_int_equal(link_mtus(1500, v), 5);
    assert_int_equal(v[0], 1500);
    assert_int_equal(v[1], 1492);
    assert_true(link_mtus(65536, v) >= 2);
    assert_true(v[0] > 9000 && v[0] - 28 <= LINK_DATAGRAM_MAX);
    assert_int_equal(v[1], 9000);
    assert_int_equal(link_mtus(0, v), 6); /* the system does not tell: all the usual ones */
    assert_int_equal(v[0], 9000);
    assert_int_equal(link_mtus(1280, v), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_put_is_read), cmocka_unit_test(orders_are_bounded),
        cmocka_unit_test(quantiles),           cmocka_unit_test(bursts_grow_until_they_last),
        cmocka_unit_test(packet_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
