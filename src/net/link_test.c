/* Meters on loopback. Figures are checked for sense, not for size: any machine may run this. */
#include "net/link.h"

#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/netif.h"
#include "base/str.h"
#include "base/test.h"

enum { LONG_MS = 60000 };

static struct link_meter *meter(u8 token, u32 refresh_ms) {
    struct err e = {0};
    struct link_cfg cfg = {
        .listen_host = "127.0.0.1", .token = {token}, .seed = token, .refresh_ms = refresh_ms};
    struct link_meter *m = link_start(&cfg, &e);
    assert_non_null(m);
    return m;
}

static struct link_peer peer(const char *id, u16 port, u8 token) {
    struct link_peer p = {.port = port, .token = {token}};
    str_copy(p.id, sizeof p.id, id);
    memcpy(p.host, "127.0.0.1", 10);
    return p;
}

static struct link_result next(struct link_meter *m) {
    struct link_result r = {0};
    for (u64 until = clock_ms() + LONG_MS; clock_ms() < until; clock_sleep_ms(5))
        if (link_take(m, &r)) return r;
    fail_msg("no result in time");
    return r;
}

static void check(const struct link_result *r) {
    if (*r->problem) fail_msg("%s", r->problem);
    assert_string_equal(r->host, "127.0.0.1");
    assert_int_equal(r->kind, NETIF_LOOPBACK);
    assert_true(r->rtt_p50_us > 0 && r->rtt_p50_us <= r->rtt_p99_us);
    assert_true(r->bandwidth_bytes_s > 100000);
    assert_true(r->mtu >= 1280);
    assert_true(r->at_unix_s > 1000000000);
}

/* Both at once, again and again: the sessions don't lock each other up. */
static void two_measure_each_other(void **state) {
    (void)state;
    struct link_meter *a = meter(1, 50), *b = meter(2, 50);
    struct link_peer to_b = peer("b", link_port(b), 2), to_a = peer("a", link_port(a), 1);
    link_set_peers(a, &to_b, 1);
    link_set_peers(b, &to_a, 1);
    for (u32 i = 0; i < 2; i++) {
        struct link_result ra = next(a), rb = next(b);
        check(&ra);
        check(&rb);
        assert_string_equal(ra.id, "b");
        assert_string_equal(rb.id, "a");
    }
    link_stop(a);
    link_stop(b);
}

static void who_lacks_the_token_measures_nothing(void **state) {
    (void)state;
    struct link_meter *a = meter(1, 0), *b = meter(2, 0);
    struct link_peer to_b = peer("b", link_port(b), 9);
    link_set_peers(a, &to_b, 1);
    struct link_result r = next(a);
    assert_int_not_equal(r.problem[0], 0);
    assert_int_equal(r.bandwidth_bytes_s, 0);
    /* The right one, told later (the node was started again): measured at once. */
    to_b = peer("b", link_port(b), 2);
    link_set_peers(a, &to_b, 1);
    r = next(a);
    check(&r);
    link_stop(a);
    link_stop(b);
}

static void what_is_no_meter_is_named(void **state) {
    (void)state;
    struct err e = {0};
    u16 port = 0;
    int fd = sock_listen("127.0.0.1", &port, &e);
    close(fd);
    struct link_meter *a = meter(1, 0);
    struct link_peer p = peer("b", port, 1); /* nobody listens there */
    link_set_peers(a, &p, 1);
    struct link_result r = next(a);
    assert_non_null(strstr(r.problem, "127.0.0.1"));
    link_stop(a);
}

/* While a session is open others are told to come again, at once. */
static void one_session_at_a_time(void **state) {
    (void)state;
    struct link_meter *m = meter(1, 0);
    struct sockaddr_storage to;
    socklen_t n;
    struct err e = {0};
    u8 b[LINK_GREETING_BYTES];
    struct link_greeting g[2];
    int fd[2];
    assert_true(sock_resolve("127.0.0.1", link_port(m), &to, &n, &e));
    for (u32 i = 0; i < 2; i++) {
        fd[i] = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(connect(fd[i], (struct sockaddr *)&to, n), 0);
        assert_int_equal(recv(fd[i], b, sizeof b, MSG_WAITALL), sizeof b);
        assert_true(link_greeting_get(b, &g[i]));
    }
    assert_int_equal(g[0].state, LINK_FREE);
    assert_int_equal(g[1].state, LINK_TAKEN);
    /* Nothing is echoed before the proof, and the stranger is gone in half a second. */
    memset(b, 0, sizeof b);
    b[0] = LINK_PING;
    assert_int_equal(send(fd[0], b, 16, MSG_NOSIGNAL), 16);
    assert_int_equal(recv(fd[0], b, sizeof b, 0) > 0, false);
    close(fd[0]);
    close(fd[1]);
    link_stop(m);
}

static void work_comes_before_a_refresh(void **state) {
    (void)state;
    struct link_meter *a = meter(1, 30), *b = meter(2, 0);
    struct link_peer to_b = peer("b", link_port(b), 2);
    struct link_result r;
    link_set_computing(b, true);
    link_set_peers(a, &to_b, 1);
    r = next(a); /* a newcomer is measured all the same */
    check(&r);
    clock_sleep_ms(300);
    assert_false(link_take(a, &r));
    memcpy(to_b.host, "127.1", 6); /* another way to the same one is no newcomer */
    link_set_peers(a, &to_b, 1);
    clock_sleep_ms(1500);
    while (link_take(a, &r)) assert_string_not_equal(r.host, "127.1");
    link_stop(a);
    link_stop(b);
}

static void who_measures_itself_is_measured_later(void **state) {
    (void)state;
    struct link_meter *a = meter(1, 0), *b = meter(2, 0);
    struct link_peer to_b = peer("b", link_port(b), 2);
    struct link_result r;
    link_set_busy(b, true);
    link_set_peers(a, &to_b, 1);
    clock_sleep_ms(2500);
    assert_false(link_take(a, &r));
    link_set_busy(b, false);
    r = next(a);
    check(&r);
    link_stop(a);
    link_stop(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_measure_each_other),
        cmocka_unit_test(who_lacks_the_token_measures_nothing),
        cmocka_unit_test(what_is_no_meter_is_named),
        cmocka_unit_test(one_session_at_a_time),
        cmocka_unit_test(work_comes_before_a_refresh),
        cmocka_unit_test(who_measures_itself_is_measured_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
