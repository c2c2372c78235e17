/* The master's decisions about room: idle models make some, drained nodes get no work. One node's
 * view, message by message; many nodes together are tests/sim. */
#include <string.h>

#include "base/test.h"
#include "cluster/cluster.h"

static struct cluster_output out;

enum { LAYERS = 4 };

static void step(struct cluster *c, struct cluster_input in, u64 now) {
    cluster_step(c, &in, now, &out);
}

static void tick(struct cluster *c, u64 now) {
    step(c, (struct cluster_input){.kind = CLUSTER_TICK}, now);
}

static void free_memory(struct cluster *c, u64 available_gib, u64 now) {
    step(c,
         (struct cluster_input){.kind = CLUSTER_MACHINE,
                                .machine = {available_gib << 30, (u64)8 << 30, 0}},
         now);
}

static struct msg_hello hello_of(const char *name, u64 seniority) {
    return (struct msg_hello){.protocol = 7,
                              .build = "test",
                              .os = "none",
                              .cluster = "c",
                              .name = name,
                              .boot = 100 + seniority,
                              .seniority = seniority,
                              .is_worker = 1,
                              .n_cores = 2};
}

static struct cluster *start(void) {
    struct cluster_cfg cfg = {.id = "me", .hello = hello_of("my-name", 50)};
    struct cluster *c = cluster_new(&cfg, NULL, 0, 1000, NULL);
    assert_non_null(c);
    free_memory(c, 8, 1000);
    return c;
}

static void stop(struct cluster *c) {
    cluster_free(c);
    cluster_output_deinit(&out);
}

static const struct cluster_action *done(enum cluster_do what) {
    for (u32 i = 0; i < out.n; i++)
        if (out.v[i].what == what) return &out.v[i];
    return NULL;
}

static void want(struct cluster *c, const char *id, u64 layer_mib, bool automatic, u64 now) {
    static const u8 KEY[32] = {1};
    u64 layers[LAYERS];
    for (u32 i = 0; i < LAYERS; i++) layers[i] = layer_mib << 20;
    struct msg_propose p = {.id = 5,
                            .kind = PROPOSE_WANT,
                            .wanted = {.id = id,
                                       .model = id,
                                       .first_node = "me",
                                       .is_automatic = automatic,
                                       .key = {KEY, 32},
                                       .desc = {.n_layers = LAYERS,
                                                .layer_bytes = {layers, LAYERS},
                                                .kv_bytes_per_token_layer = 64}}};
    step(c, (struct cluster_input){.kind = CLUSTER_PROPOSE, .propose = &p}, now);
}

static void drain(struct cluster *c, const char *node, bool on, u64 now) {
    struct msg_propose p = {.id = 6, .kind = on ? PROPOSE_DRAIN : PROPOSE_UNDRAIN, .node = node};
    step(c, (struct cluster_input){.kind = CLUSTER_PROPOSE, .propose = &p}, now);
}

static struct cluster_instance find(struct cluster *c, const char *id) {
    struct cluster_instance i;
    assert_true(cluster_find_instance(c, id, &i));
    return i;
}

static void report(struct cluster *c, const char *id, u32 n_active, u64 n_served, u64 now) {
    struct msg_runner f = {.instance = id,
                           .place = find(c, id).placement->place,
                           .status = RUNNER_READY,
                           .n_active = n_active,
                           .n_served = n_served};
    step(c, (struct cluster_input){.kind = CLUSTER_RUNNER, .runner = &f}, now);
}

/* "busy" and "fresh" were made by requests, "launched" by somebody; each takes some 2 GiB. */
static struct cluster *start_full(void) {
    struct cluster *c = start();
    want(c, "busy", 500, true, 2000);
    report(c, "busy", 1, 1, 2000);
    want(c, "old", 500, true, 2100);
    report(c, "old", 0, 1, 2100);
    want(c, "launched", 500, false, 2200);
    report(c, "launched", 0, 1, 2200);
    free_memory(c, 1, 2300);
    return c;
}

static void an_idle_model_makes_room_for_another(void **state) {
    (void)state;
    struct cluster *c = start_full();
    tick(c, 5000);
    want(c, "new", 500, true, 5100);
    assert_int_equal(done(DO_ANSWER)->answer->code, ERR_NONE);
    assert_non_null(done(DO_STOP));
    assert_string_equal(done(DO_STOP)->instance, "old");
    assert_int_equal(cluster_n_instances(c), 3);
    struct cluster_instance i = find(c, "new");
    assert_int_equal(i.status, INSTANCE_WAITING);
    assert_string_equal(i.text, "waits for idle models to be unloaded");
    for (u64 t = 5300; t < 6000; t += 200) tick(c, t);
    assert_int_equal(find(c, "new").placement->place, 0); /* its memory is not free yet */
    free_memory(c, 3, 6000);
    for (u64 t = 6200; t < 7000; t += 200) tick(c, t);
    assert_true(find(c, "new").placement->place != 0);
    assert_true(find(c, "busy").status == INSTANCE_READY);
    stop(c);
}

static void what_works_or_was_launched_stays(void **state) {
    (void)state;
    struct cluster *c = start_full();
    tick(c, 5000);
    report(c, "old", 1, 2, 5000);
    want(c, "new", 500, true, 5100);
    assert_int_equal(done(DO_ANSWER)->answer->code, ERR_MEMORY);
    assert_int_equal(cluster_n_instances(c), 3);
    report(c, "old", 0, 2, 5200);
    want(c, "new", 500, true, 5300); /* it has only just become idle */
    assert_int_equal(done(DO_ANSWER)->answer->code, ERR_MEMORY);
    want(c, "huge", 1900, true, 9000); /* room for this one can't be made */
    assert_int_equal(done(DO_ANSWER)->answer->code, ERR_MEMORY);
    assert_int_equal(cluster_n_instances(c), 3);
    stop(c);
}

/* The id may be a client's: asked again for the same it is there, something else is refused. */
static void an_id_stands_for_one_layout(void **state) {
    (void)state;
    static const u8 KEYS[2][32] = {{1}, {2}};
    u64 layers[LAYERS] = {1 << 20, 1 << 20, 1 << 20, 1 << 20};
    struct msg_rank all = {.node = "me", .layer_end = LAYERS};
    struct msg_propose p = {.id = 7,
                            .kind = PROPOSE_WANT,
                            .wanted = {.id = "i",
                                       .model = "m",
                                       .first_node = "me",
                                       .key = {KEYS[0], 32},
                                       .n_ctx = 64,
                                       .wish.ranks = {&all, 1},
                                       .desc = {.n_layers = LAYERS,
                                                .layer_bytes = {layers, LAYERS},
                                                .kv_bytes_per_token_layer = 64}}};
    struct cluster_input in = {.kind = CLUSTER_PROPOSE, .propose = &p};
    struct cluster *c = start();
    tick(c, 1900); /* alone it leads in the end */
    for (u64 now = 2000; now < 6000; now += 100) tick(c, now);
    step(c, in, 6000);
    assert_int_equal(done(DO_ANSWER)->answer->code, ERR_NONE);
    u64 place = find(c, "i").placement->place;
    assert_true(place != 0);
    p.wanted.key.p = KEYS[1];
    step(c, in, 6100);
    assert_int_equal(done(DO_ANSWER)->answer->code, ERR_NONE);
    p.wanted.n_ctx = 32;
    step(c, in, 6200);
    assert_int_equal(done(DO_ANSWER)->answer->code, ERR_ARG);
    p.wanted.n_ctx = 64;
    p.wanted.wish.ranks.n = 0;
    step(c, in, 6300);
    assert_int_equal(done(DO_ANSWER)->answer->code, ERR_ARG);
    assert_non_null(strstr(done(DO_ANSWER)->answer->msg, "another instance i already"));
    assert_true(find(c, "i").placement->place == place);
    struct msg_propose gone = {.id = 8, .kind = PROPOSE_UNWANT, .wanted.id = "i"};
    step(c, (struct cluster_input){.kind = CLUSTER_PROPOSE, .propose = &gone}, 6400);
    step(c, in, 6500);
    assert_non_null(strstr(done(DO_ANSWER)->answer->msg, "leave the id out"));
    stop(c);
}

static void a_drained_node_is_given_nothing(void **state) {
    (void)state;
    struct cluster *c = start();
    struct cluster_member m;
    want(c, "i1", 100, false, 2000);
    report(c, "i1", 0, 0, 2100);
    drain(c, "nobody", true, 2200);
    assert_string_equal(done(DO_ANSWER)->answer->msg,
                        "no node nobody is known: skein nodes lists them");
    drain(c, "my-name", true, 2300);
    assert_int_equal(done(DO_ANSWER)->answer->code, ERR_NONE);
    assert_true(out.save);
    assert_int_equal(out.n_events, 1);
    assert_int_equal(out.events[0].kind, EVENT_NODE_DRAINED);
    cluster_member(c, 0, 2300, &m);
    assert_true(m.is_drained);
    want(c, "i2", 100, false, 2400);
    assert_int_not_equal(done(DO_ANSWER)->answer->code, ERR_NONE);
    assert_non_null(strstr(done(DO_ANSWER)->answer->msg, "drained"));
    for (u64 t = 2600; t < 9000; t += 200) tick(c, t);
    struct cluster_instance i = find(c, "i1"); /* it serves, there is nowhere else */
    assert_int_equal(i.status, INSTANCE_READY);
    assert_non_null(strstr(i.text, "stays on the drained node my-name"));
    struct str saved = {0};
    cluster_save(c, &saved);
    drain(c, "me", false, 9000);
    assert_int_equal(out.events[0].kind, EVENT_NODE_UNDRAINED);
    tick(c, 9200);
    assert_string_equal(find(c, "i1").text, "");
    want(c, "i2", 100, false, 9300);
    assert_int_equal(done(DO_ANSWER)->answer->code, ERR_NONE);
    cluster_free(c);
    struct cluster_cfg cfg = {.id = "me", .hello = hello_of("my-name", 60)};
    c = cluster_new(&cfg, saved.p, saved.n, 20000, NULL);
    cluster_member(c, 0, 20000, &m);
    assert_true(m.is_drained);
    str_deinit(&saved);
    stop(c);
}

static void say(struct cluster *c, u32 type, const void *msg, u64 now) {
    struct str b = {0};
    wire_encode(msg_table(type), msg, &b);
    step(c,
         (struct cluster_input){
             .kind = CLUSTER_MESSAGE, .peer = "other", .type = type, .body = b.p, .n = b.n},
         now);
    str_deinit(&b);
}

/* `other` comes back from its own part of the cluster, where it runs "theirs" by itself. */
static u64 place_of_theirs(u64 memory_gib) {
    static const u8 KEY[32] = {1};
    u64 layers[LAYERS] = {1 << 20, 1 << 20, 1 << 20, 1 << 20};
    struct cluster *c = start();
    struct msg_hello h = hello_of("other", 90);
    step(c,
         (struct cluster_input){.kind = CLUSTER_PEER_UP, .peer = "other", .address = "10.0.0.2:5"},
         2000);
    say(c, MSG_HELLO, &h, 2000);
    say(c, MSG_HEARTBEAT,
        &(struct msg_heartbeat){.boot = h.boot,
                                .seq = 1,
                                .mem_available_bytes = (u64)8 << 30,
                                .mem_limit_bytes = (u64)8 << 30},
        2000);
    struct msg_wanted w = {.id = "theirs",
                           .model = "m",
                           .first_node = "other",
                           .key = {KEY, 32},
                           .desc = {.n_layers = LAYERS,
                                    .layer_bytes = {layers, LAYERS},
                                    .kv_bytes_per_token_layer = 64}};
    struct msg_rank r = {
        .node = "other", .layer_end = LAYERS, .memory_bytes = memory_gib << 30, .tp_ranks = 1};
    struct msg_placement p = {.instance = "theirs", .place = 77, .n_ctx = 256, .ranks = {&r, 1}};
    say(c, MSG_STATE,
        &(struct msg_state){.session = {.master = "other", .term = 1, .seniority = 90},
                            .index = 3,
                            .wanted = {&w, 1},
                            .placements = {&p, 1}},
        2100);
    u64 place = find(c, "theirs").placement->place;
    stop(c);
    return place;
}

/* The master takes what another part runs over where it is, unless that is more than fits there. */
static void what_others_placed_is_kept_where_it_fits(void **state) {
    (void)state;
    assert_int_equal(place_of_theirs(7), 77);
    assert_int_not_equal(place_of_theirs(9), 77);
}

static void fail_runner(struct cluster *c, const char *id, u64 now) {
    struct msg_runner f = {.instance = id,
                           .place = find(c, id).placement->place,
                           .status = RUNNER_FAILED,
                           .weights_bytes = (u64)2 << 30,
                           .code = ERR_NET,
                           .text = "killed"};
    step(c, (struct cluster_input){.kind = CLUSTER_RUNNER, .runner = &f}, now);
}

static u32 where_sent(u32 type) {
    u32 i = 0;
    while (i < out.n && !(out.v[i].what == DO_SEND && out.v[i].type == type)) i++;
    return i;
}

/* Another node asks: when it has its answer, it has the instance with its ranks. */
static void the_orders_come_before_the_answer(void **state) {
    (void)state;
    static const u8 KEY[32] = {1};
    u64 layers[LAYERS] = {1 << 20, 1 << 20, 1 << 20, 1 << 20};
    struct cluster *c = start();
    struct msg_hello h = hello_of("other", 90);
    step(c,
         (struct cluster_input){.kind = CLUSTER_PEER_UP, .peer = "other", .address = "10.0.0.2:5"},
         2000);
    say(c, MSG_HELLO, &h, 2000);
    say(c, MSG_HEARTBEAT, &(struct msg_heartbeat){.boot = h.boot, .seq = 1}, 2000);
    want(c, "own", 1, false, 2100); /* it leads */
    struct msg_propose p = {.id = 5,
                            .kind = PROPOSE_WANT,
                            .wanted = {.id = "i1",
                                       .model = "m",
                                       .first_node = "me",
                                       .key = {KEY, 32},
                                       .desc = {.n_layers = LAYERS,
                                                .layer_bytes = {layers, LAYERS},
                                                .kv_bytes_per_token_layer = 64}}};
    say(c, MSG_PROPOSE, &p, 2100);
    assert_true(find(c, "i1").n_ranks > 0);
    assert_true(where_sent(MSG_STATE) < where_sent(MSG_PROPOSED));
    assert_true(where_sent(MSG_PROPOSED) < out.n);
    stop(c);
}

/* Two nodes were asked for, and one of them is lost: better on one than not at all. A new instance
 * that asks for two is told so. */
static void lose_one_of_two(bool runner_first) {
    static const u8 KEY[32] = {1};
    u64 layers[LAYERS] = {1 << 20, 1 << 20, 1 << 20, 1 << 20};
    struct cluster *c = start();
    struct msg_hello h = hello_of("other", 90);
    step(c,
         (struct cluster_input){.kind = CLUSTER_PEER_UP, .peer = "other", .address = "10.0.0.2:5"},
         2000);
    say(c, MSG_HELLO, &h, 2000);
    say(c, MSG_HEARTBEAT,
        &(struct msg_heartbeat){.boot = h.boot,
                                .seq = 1,
                                .mem_available_bytes = (u64)8 << 30,
                                .mem_limit_bytes = (u64)8 << 30},
        2000);
    struct msg_propose p = {.id = 5,
                            .kind = PROPOSE_WANT,
                            .wanted = {.id = "i1",
                                       .model = "m",
                                       .min_nodes = 2,
                                       .key = {KEY, 32},
                                       .desc = {.n_layers = LAYERS,
                                                .layer_bytes = {layers, LAYERS},
                                                .kv_bytes_per_token_layer = 64}}};
    step(c, (struct cluster_input){.kind = CLUSTER_PROPOSE, .propose = &p}, 2100);
    assert_int_equal(done(DO_ANSWER)->answer->code, ERR_NONE);
    assert_int_equal(find(c, "i1").n_ranks, 2);
    step(c, (struct cluster_input){.kind = CLUSTER_PEER_DOWN, .peer = "other"}, 2200);
    assert_int_equal(find(c, "i1").n_ranks, 2);
    if (runner_first)
        fail_runner(c, "i1", 2200); /* the other rank's end is seen before its node's */
    step(c, (struct cluster_input){.kind = CLUSTER_PEER_DOWN, .peer = "other", .number = 1}, 2200);
    for (u64 t = 2400; t < 3400; t += 200) tick(c, t);
    assert_int_equal(find(c, "i1").n_ranks, 1);
    assert_string_equal(find(c, "i1").ranks[0].node, "me");
    p.wanted.id = "i2";
    step(c, (struct cluster_input){.kind = CLUSTER_PROPOSE, .propose = &p}, 3400);
    assert_non_null(strstr(done(DO_ANSWER)->answer->msg, "needs 2 nodes, 1 is there"));
    stop(c);
}

static void what_is_left_serves_though_more_were_asked_for(void **state) {
    (void)state;
    lose_one_of_two(false);
    lose_one_of_two(true);
}

/* What worked is placed again at once, though the memory of its runner does not show as free yet;
 * what fails at once waits longer and longer. */
static void a_runner_that_worked_is_replaced_at_once(void **state) {
    (void)state;
    struct cluster *c = start();
    want(c, "i1", 500, false, 2000);
    u64 first = find(c, "i1").placement->place;
    struct msg_runner f = {
        .instance = "i1", .place = first, .status = RUNNER_READY, .weights_bytes = (u64)2 << 30};
    step(c, (struct cluster_input){.kind = CLUSTER_RUNNER, .runner = &f}, 2100);
    free_memory(c, 1, 2200);
    for (u64 t = 2400; t < 5000; t += 200) tick(c, t);
    fail_runner(c, "i1", 5000);
    u64 second = find(c, "i1").placement->place;
    assert_true(second && second != first);
    assert_int_equal(find(c, "i1").placement->tries, 1);
    free_memory(c, 7, 5100);
    fail_runner(c, "i1", 5200); /* it never worked */
    assert_int_equal(find(c, "i1").placement->place, 0);
    tick(c, 5800);
    assert_int_equal(find(c, "i1").placement->place, 0);
    for (u64 t = 6000; t < 6600; t += 200) tick(c, t);
    assert_true(find(c, "i1").placement->place != 0);
    assert_int_equal(find(c, "i1").placement->tries, 2);
    stop(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_idle_model_makes_room_for_another),
        cmocka_unit_test(what_works_or_was_launched_stays),
        cmocka_unit_test(an_id_stands_for_one_layout),
        cmocka_unit_test(a_drained_node_is_given_nothing),
        cmocka_unit_test(what_others_placed_is_kept_where_it_fits),
        cmocka_unit_test(the_orders_come_before_the_answer),
        cmocka_unit_test(what_is_left_serves_though_more_were_asked_for),
        cmocka_unit_test(a_runner_that_worked_is_replaced_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
