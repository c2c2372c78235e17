/* What a node finds out about itself and what it shows of it: nodes with real threads and a runner
 * (this program) that claims a speed. */
#include "node/self.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/test.h"

enum { LONG_MS = 60000 };

static char program[1024], folder[64];
static u32 again_ms;

/* How often it was started is in the folder's "starts" file. If SELF_TEST_FAIL is set the first
 * ends without a word; all but the first write their id into the file of SELF_TEST_HANG and measure
 * for ever. */
static int fake_runner(int fd) {
    struct frame_in in = {0};
    struct frame f;
    struct str out = {0};
    char buf[4096];
    bool first = !file_exists(getenv("SELF_TEST_STARTS"));
    FILE *log = fopen(getenv("SELF_TEST_STARTS"), "a");
    if (log) {
        fputs("x", log);
        fclose(log);
    }
    if (first && getenv("SELF_TEST_FAIL")) return 1;
    for (;;) {
        ssize_t k = read(fd, buf, sizeof buf);
        if (k <= 0) return 0;
        frame_in_add(&in, buf, (size_t)k);
        if (frame_in_next(&in, &f, NULL) != 1 || f.type != MSG_MEASURE) continue;
        if (!first && getenv("SELF_TEST_HANG")) {
            char id[32];
            size_t n = (size_t)snprintf(id, sizeof id, "%d", (int)getpid());
            file_write(getenv("SELF_TEST_HANG"), id, n, 0644, NULL);
            continue;
        }
        frame_add(&out, MSG_MEASURED,
                  &(struct msg_measured){.read_bytes_s = 50000000000,
                                         .int8_ops_s = 900000000000,
                                         .float_ops_s = 200000000000,
                                         .isa = "fake",
                                         .isas = "ref fake",
                                         .n_threads = 3});
        if (write(fd, out.p, out.n) != (ssize_t)out.n) return 1;
        str_clear(&out);
    }
}

static void values_are_told_when_they_moved(void **state) {
    (void)state;
    assert_int_equal(self_steady(40, 42, 2, 0), 40);
    assert_int_equal(self_steady(40, 43, 2, 0), 43);
    assert_int_equal(self_steady(40, 37, 2, 0), 37);
    assert_int_equal(self_steady(0, 1, 2, 0), 1); /* now it is known */
    assert_int_equal(self_steady(1, 0, 2, 0), 0); /* no longer */
    assert_int_equal(self_steady(100000, 109000, 1000, 10), 100000);
    assert_int_equal(self_steady(100000, 111000, 1000, 10), 111000);
}

/* What a measurement has taken counts as available, and no more than there was before it. */
static void a_measurement_gives_its_memory_back(void **state) {
    (void)state;
    assert_int_equal(self_available_with(700, 100, 800), 800);
    assert_int_equal(self_available_with(760, 100, 800), 800); /* not all taken yet */
    assert_int_equal(self_available_with(500, 100, 800), 600); /* others took the rest */
    assert_int_equal(self_available_with(900, 100, 800), 900); /* others gave some back */
    assert_int_equal(self_available(NULL, 5), 5);
}

/* One connection where one does; four on fast paths, and on long ones. */
static void streams(void **state) {
    (void)state;
    assert_int_equal(self_streams_of(0, 0), 1);
    assert_int_equal(self_streams_of(200, 118000000), 1);   /* 1 Gbit/s */
    assert_int_equal(self_streams_of(100, 1200000000), 4);  /* 10 Gbit/s */
    assert_int_equal(self_streams_of(80000, 118000000), 4); /* the same cable, far away */
    assert_int_equal(self_streams_of(80000, 20000000), 1);
    assert_int_equal(self_streams_of(8900, 500000000), 4); /* 4.4 MB under way; in 8 ms 4.0 */
    assert_int_equal(self_streams_of(8300, 500000000), 1);
}

/* The middle of two that agree, the better of others. */
static void two_measurements_agree(void **state) {
    (void)state;
    struct msg_rate rates[] = {{2, 10, 15, 20, 30, 40, 50}, {0, 1, 1, 2, 3, 4, 9}};
    struct msg_measured r = {.read_bytes_s = 1, .attend_ops_s = 77, .rates = {rates, 2}};
    /* Four figures of products, of which one may be anything, but not half. */
    struct msg_rate other[] = {{2, 11, 0, 0, 33, 0, 0}, {0, 3, 0, 0, 9, 0, 0}};
    struct msg_measured half = {.rates = {other, 2}};
    assert_true(self_rates_agree(&r, &r));
    assert_false(self_rates_agree(&half, &r));
    other[1].many_ops_s = 3;
    assert_true(self_rates_agree(&half, &r));
    assert_false(self_rates_agree(&r, &(struct msg_measured){0}));
    /* What was not measured does not agree. */
    struct msg_rate few[] = {{.type = 2, .one_ops_s = 10, .many_ops_s = 30}, {.type = 3}},
                    fewer[] = {{.type = 2, .one_ops_s = 10, .many_ops_s = 90}, {.type = 3}};
    assert_false(self_rates_agree(&(struct msg_measured){.rates = {few, 2}},
                                  &(struct msg_measured){.rates = {fewer, 2}}));
    half.read_bytes_s = 3;
    self_rates_better(&half, &r);
    assert_int_equal(half.read_bytes_s, 2); /* of 3 and 1 */
    assert_int_equal(other[0].many_ops_s, 31);
    assert_int_equal(half.attend_ops_s, 77);
}

static void rates_belong_to_the_hardware(void **state) {
    (void)state;
    struct msg_rate rates[] = {{2, 10, 15, 20, 30, 40, 50}, {0, 1, 1, 2, 3, UINT64_MAX / 4, 9}};
    struct msg_measured m = {.read_bytes_s = 1,
                             .call_ns = 1500,
                             .attend_ops_s = 77,
                             .attend_one_ops_s = 33,
                             .rates = {rates, 2},
                             .int8_ops_s = UINT64_MAX / 4,
                             .float_ops_s = 3,
                             .isa = "vnni",
                             .isas = "ref \"x\"",
                             .n_threads = 2},
                        r = {0};
    struct str s = {0};
    struct arena a = {0};
    bool confirmed = false;
    self_rates_write(&s, "cpu, 2 threads", &m, true);
    assert_true(self_rates_read(str_view(&s), "cpu, 2 threads", &a, &r, &confirmed));
    assert_true(confirmed);
    str_clear(&s);
    self_rates_write(&s, "cpu, 2 threads", &m, false);
    assert_true(self_rates_read(str_view(&s), "cpu, 2 threads", &a, &r, &confirmed));
    assert_false(confirmed);
    assert_int_equal(r.int8_ops_s, UINT64_MAX / 4);
    assert_string_equal(r.isas, "ref \"x\"");
    assert_int_equal(r.n_threads, 2);
    assert_int_equal(r.call_ns, 1500);
    assert_int_equal(r.attend_ops_s, 77);
    assert_int_equal(r.attend_one_ops_s, 33);
    assert_int_equal(r.rates.n, 2);
    const struct msg_rate *v = r.rates.v;
    for (u32 i = 0; i < 2; i++) {
        assert_int_equal(v[i].type, rates[i].type);
        assert_int_equal(v[i].one_ops_s, rates[i].one_ops_s);
        assert_int_equal(v[i].narrow_ops_s, rates[i].narrow_ops_s);
        assert_int_equal(v[i].few_ops_s, rates[i].few_ops_s);
        assert_int_equal(v[i].many_ops_s, rates[i].many_ops_s);
        assert_int_equal(v[i].many8_ops_s, rates[i].many8_ops_s);
        assert_int_equal(v[i].narrow_many_ops_s, rates[i].narrow_many_ops_s);
    }
    struct msg_rate slower[] = {{0, 2, 1, 1, 1, 1, 10}, {7, 1, 1, 1, 1, 1, 1}};
    struct msg_measured again = {.read_bytes_s = 2, .call_ns = 1600, .rates = {slower, 2}};
    self_rates_better(&again, &r);
    assert_int_equal(again.read_bytes_s, 2);
    assert_int_equal(again.float_ops_s, 3);
    assert_int_equal(again.call_ns, 1500);
    assert_int_equal(slower[0].one_ops_s, 2);
    assert_int_equal(slower[0].many_ops_s, 3);
    assert_int_equal(slower[0].narrow_many_ops_s, 10);
    assert_int_equal(again.attend_ops_s, 77);
    assert_int_equal(slower[1].many_ops_s, 1);
    assert_false(self_rates_read(str_view(&s), "cpu, 4 threads", &a, &r, &confirmed));
    assert_false(self_rates_read(VIEW("{\"version\":4}"), "cpu, 2 threads", &a, &r, &confirmed));
    assert_false(self_rates_read(VIEW("{"), "cpu, 2 threads", &a, &r, &confirmed));
    assert_false(self_rates_read(VIEW(""), "", &a, &r, &confirmed));
    arena_deinit(&a);
    str_deinit(&s);
}

struct host {
    char dir[96];
    struct node *node;
    pthread_t thread;
};

static void *run_node(void *n) {
    node_run(n);
    return NULL;
}

static void start(struct host *h, const char *name, const struct host *peer, struct store *store) {
    struct err e = {0};
    char address[32];
    const char *peers[1] = {address};
    snprintf(h->dir, sizeof h->dir, "%s/%s", folder, name);
    snprintf(address, sizeof address, "127.0.0.1:%u", peer ? node_bus_port(peer->node) : 0);
    struct node_cfg cfg = {.name = name,
                           .data_dir = h->dir,
                           .cluster = "self-test",
                           .listen_host = "127.0.0.1",
                           .peers = peers,
                           .n_peers = peer ? 1 : 0,
                           .program = program,
                           .store = store,
                           .again_ms = again_ms,
                           .timeout_ms = 10000};
    h->node = node_new(&cfg, &e);
    if (!h->node) fail_msg("%s", e.msg);
    assert_int_equal(pthread_create(&h->thread, NULL, run_node, h->node), 0);
}

static void stop(struct host *h) {
    node_stop(h->node);
    pthread_join(h->thread, NULL);
    node_free(h->node);
}

static json_t *state_of(struct host *h) {
    const struct snapshot_text *t = node_state(h->node);
    struct err e = {0};
    json_t *j = json_parse((struct view){t->p, t->n}, &e);
    node_state_done(h->node, t);
    if (!j) fail_msg("%s", e.msg);
    return j;
}

/* Links without a problem; and nodes with a measured speed, in *speeds. */
static u32 known(const json_t *state, u32 *speeds) {
    const json_t *links = json_object_get(state, "links"), *nodes = json_object_get(state, "nodes");
    u32 n = 0;
    *speeds = 0;
    for (size_t i = 0; i < json_array_size(links); i++)
        n += json_integer_value(json_object_get(json_array_get(links, i), "rtt_us")) > 0;
    for (size_t i = 0; i < json_array_size(nodes); i++)
        *speeds += json_integer_value(json_object_get(json_array_get(nodes, i),
                                                      "read_bytes_per_s")) == 50000000000;
    return n;
}

static json_t *await(struct host *h, u32 n_links, u32 n_speeds) {
    u32 speeds = 0, links = 0;
    for (u64 until = clock_ms() + LONG_MS; clock_ms() < until; clock_sleep_ms(20)) {
        json_t *s = state_of(h);
        links = known(s, &speeds);
        if (links >= n_links && speeds >= n_speeds) return s;
        json_decref(s);
    }
    fail_msg("%u of %u links, %u of %u speeds in time", links, n_links, speeds, n_speeds);
    return NULL;
}

static size_t n_starts(void) {
    struct str s = {0};
    file_read(getenv("SELF_TEST_STARTS"), 100, &s, NULL);
    size_t n = s.n;
    str_deinit(&s);
    return n;
}

/* Every shape that programs written for exo look into. */
static void check_maps(const json_t *s) {
    static const char *const MAPS[] = {"nodeIdentities", "nodeMemory",           "nodeDisk",
                                       "nodeSystem",     "nodeNetwork",          "nodeThunderbolt",
                                       "nodeRdmaCtl",    "nodeBackends",         "lastSeen",
                                       "downloads",      "nodeThunderboltBridge"};
    static const char *const EMPTY[] = {
        "tasks", "instanceLinks", "prefillServerPorts", "customModelCards", "instances", "runners"};
    for (size_t i = 0; i < ARRAY_LEN(MAPS); i++)
        if (json_object_size(json_object_get(s, MAPS[i])) != 2) fail_msg("%s", MAPS[i]);
    for (size_t i = 0; i < ARRAY_LEN(EMPTY); i++)
        if (!json_is_object(json_object_get(s, EMPTY[i]))) fail_msg("%s", EMPTY[i]);
    assert_true(json_is_array(json_object_get(s, "thunderboltBridgeCycles")));
    assert_true(json_is_integer(json_object_get(s, "lastEventAppliedIdx")));
    const json_t *topology = json_object_get(s, "topology");
    assert_int_equal(json_array_size(json_object_get(topology, "nodes")), 2);
    const json_t *edges = json_object_get(topology, "connections"), *to;
    const char *from, *sink;
    json_object_foreach((json_t *)(uintptr_t)edges, from, to) {
        json_t *list;
        assert_int_equal(json_object_size(to), 1);
        json_object_foreach((json_t *)(uintptr_t)to, sink, list) {
            assert_string_not_equal(from, sink);
            const json_t *a = json_object_get(json_array_get(list, 0), "sinkMultiaddr");
            assert_string_equal(json_string_value(json_object_get(a, "ip_address")), "127.0.0.1");
            assert_string_equal(json_string_value(json_object_get(a, "address_type")), "ip4");
        }
    }
    assert_int_equal(json_object_size(edges), 2);
    const json_t *mem;
    json_object_foreach(json_object_get(s, "nodeMemory"), from, mem) assert_true(
        json_integer_value(json_object_get(json_object_get(mem, "ramTotal"), "inBytes")) > 0);
}

static void two_nodes_show_speeds_and_links(void **state) {
    (void)state;
    struct err e = {0};
    struct host a, b;
    struct store *store = store_open(
        &(struct store_cfg){.models_dir = folder, .catalogue = folder, .offline = true}, &e);
    assert_non_null(store);
    start(&a, "a", NULL, store);
    start(&b, "b", &a, store);
    json_t *s = await(&a, 2, 2); /* each direction, told by either end */
    check_maps(s);
    const json_t *l = json_array_get(json_object_get(s, "links"), 0);
    assert_string_equal(json_string_value(json_object_get(l, "kind")), "loopback");
    assert_true(json_integer_value(json_object_get(l, "bandwidth_bytes_per_s")) > 0);
    assert_true(json_integer_value(json_object_get(l, "mtu")) >= 1280);
    const json_t *n = json_array_get(json_object_get(s, "nodes"), 1);
    assert_string_equal(json_string_value(json_object_get(n, "isas")), "ref fake");
    assert_string_equal(json_string_value(json_object_get(n, "role")), "worker");
    assert_true(json_array_size(json_object_get(n, "interfaces")) > 0);
    /* The token that lets others measure is no part of it. */
    const struct snapshot_text *t = node_state(a.node);
    assert_null(strstr(t->p, "token"));
    node_state_done(a.node, t);
    json_decref(s);
    assert_int_equal(n_starts(), 2);
    /* Started again it knows its speed from the file. */
    stop(&b);
    start(&b, "b", &a, store);
    json_decref(await(&b, 0, 2));
    assert_int_equal(n_starts(), 2);
    stop(&b);
    stop(&a);
    store_close(store);
}

static void a_measurement_that_failed_is_taken_again(void **state) {
    (void)state;
    struct err e = {0};
    struct host c;
    struct store *store = store_open(
        &(struct store_cfg){.models_dir = folder, .catalogue = folder, .offline = true}, &e);
    assert_non_null(store);
    remove(getenv("SELF_TEST_STARTS"));
    setenv("SELF_TEST_FAIL", "1", 1);
    again_ms = 50;
    start(&c, "c", NULL, store);
    json_decref(await(&c, 0, 1));
    assert_true(n_starts() >= 2);
    stop(&c);
    unsetenv("SELF_TEST_FAIL");
    again_ms = 0;
    store_close(store);
}

static void on_error(void *ctx, const struct err *e) {
    (void)e;
    *(bool *)ctx = true;
}

/* The process of a measurement that lasts for ever, or 0 in time. */
static pid_t hanging(void) {
    struct str s = {0};
    pid_t pid = 0;
    for (u64 until = clock_ms() + LONG_MS; !pid && clock_ms() < until; clock_sleep_ms(20))
        if (file_exists(getenv("SELF_TEST_HANG")) &&
            file_read(getenv("SELF_TEST_HANG"), 100, &s, NULL))
            pid = (pid_t)strtol(str_z(&s), NULL, 10);
    str_deinit(&s);
    return pid;
}

static void a_request_ends_a_measurement(void **state) {
    (void)state;
    enum { SOON_MS = 8000 }; /* a measurement may take 20 s */
    struct err e = {0};
    struct host d;
    char hang[96], model[96];
    bool ended = false;
    struct node_sink sink = {.error = on_error};
    struct store *store = store_open(
        &(struct store_cfg){.models_dir = folder, .catalogue = folder, .offline = true}, &e);
    assert_non_null(store);
    snprintf(hang, sizeof hang, "%s/hang", folder);
    snprintf(model, sizeof model, "%s/fake.gguf", folder);
    assert_true(file_write(model, "GGUF", 4, 0644, NULL));
    remove(getenv("SELF_TEST_STARTS"));
    setenv("SELF_TEST_HANG", hang, 1);
    again_ms = 50;
    start(&d, "d", NULL, store);
    pid_t pid = hanging();
    assert_true(pid > 0 && kill(pid, 0) == 0);
    node_submit(d.node, model, &(struct msg_generate){.prompt = "x"}, &sink, &ended);
    u64 until = clock_ms() + SOON_MS;
    while (kill(pid, 0) == 0 && clock_ms() < until) clock_sleep_ms(20);
    assert_int_equal(kill(pid, 0), -1);
    stop(&d);
    assert_true(ended); /* by the end of the node */
    unsetenv("SELF_TEST_HANG");
    again_ms = 0;
    store_close(store);
}

static int make_folder(void **state) {
    (void)state;
    char starts[96];
    snprintf(folder, sizeof folder, "/tmp/skein-self-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    snprintf(starts, sizeof starts, "%s/starts", folder);
    return setenv("SELF_TEST_STARTS", starts, 1);
}
static int drop_folder(void **state) {
    (void)state;
    char cmd[128];
    snprintf(cmd, sizeof cmd, "rm -r %s", folder);
    return system(cmd);
}

int main(int argc, char **argv) {
    if (argc > 3 && strcmp(argv[1], "runner") == 0)
        return fake_runner((int)strtol(argv[3], NULL, 10));
    if (!realpath(argv[0], program)) return 1;
    signal(SIGPIPE, SIG_IGN);
    if (!getenv("NODE_TEST_LOG")) log_set_level(LOG_ERROR, LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams),
        cmocka_unit_test(a_measurement_gives_its_memory_back),
        cmocka_unit_test(values_are_told_when_they_moved),
        cmocka_unit_test(two_measurements_agree),
        cmocka_unit_test(rates_belong_to_the_hardware),
        cmocka_unit_test(two_nodes_show_speeds_and_links),
        cmocka_unit_test(a_measurement_that_failed_is_taken_again),
        cmocka_unit_test(a_request_ends_a_measurement),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
