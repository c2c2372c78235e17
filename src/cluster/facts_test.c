/* What nodes tell of themselves: who hears it, which word counts, and what placement makes of it.
 */
#include <stdio.h>
#include <string.h>

#include "base/test.h"
#include "cluster/cluster.h"

static struct cluster_output out;

static struct msg_hello hello_of(const char *name, u64 boot, u32 n_cores) {
    return (struct msg_hello){.protocol = 1,
                              .build = "test",
                              .os = "none",
                              .cluster = "c",
                              .name = name,
                              .boot = boot,
                              .seniority = boot,
                              .is_worker = 1,
                              .n_cores = n_cores};
}

static void step(struct cluster *c, struct cluster_input in, u64 now) {
    cluster_step(c, &in, now, &out);
}

static void say(struct cluster *c, const char *from, u32 type, const void *msg, u64 now) {
    struct str b = {0};
    wire_encode(msg_table(type), msg, &b);
    step(c,
         (struct cluster_input){
             .kind = CLUSTER_MESSAGE, .peer = from, .type = type, .body = b.p, .n = b.n},
         now);
    str_deinit(&b);
}

static void tell(struct cluster *c, const struct msg_facts *f, u64 now) {
    step(c, (struct cluster_input){.kind = CLUSTER_FACTS, .facts = f}, now);
}

static void up(struct cluster *c, const char *id, u64 boot, u64 now) {
    struct msg_hello h = hello_of(id, boot, 4);
    step(c, (struct cluster_input){.kind = CLUSTER_PEER_UP, .peer = id, .address = "10.0.0.2:5"},
         now);
    say(c, id, MSG_HELLO, &h, now);
    say(c, id, MSG_HEARTBEAT,
        &(struct msg_heartbeat){
            .boot = boot, .seq = now, .mem_available_bytes = 1 << 30, .mem_limit_bytes = 1 << 30},
        now);
}

static struct cluster *start(void) {
    struct cluster_cfg cfg = {.id = "me", .hello = hello_of("me", 5, 4)};
    struct cluster *c = cluster_new(&cfg, NULL, 0, 1000, NULL);
    assert_non_null(c);
    step(c, (struct cluster_input){.kind = CLUSTER_MACHINE, .machine = {1 << 30, 1 << 30, 0}},
         1000);
    return c;
}

static void stop(struct cluster *c) {
    cluster_free(c);
    cluster_output_deinit(&out);
}

static const struct msg_facts *facts(struct cluster *c, const char *id) {
    struct cluster_member m;
    for (u32 i = 0; i < cluster_n_members(c); i++) {
        cluster_member(c, i, 1000, &m);
        if (strcmp(m.id, id) == 0) return m.facts;
    }
    fail_msg("no member %s", id);
    return NULL;
}

/* How many of the last step's messages to `id` are facts, and what the last one said. */
static u32 heard(const char *id, u64 *seq, u32 *temperature) {
    u32 n = 0;
    for (u32 i = 0; i < out.n; i++) {
        if (out.v[i].what != DO_SEND || out.v[i].type != MSG_FACTS || strcmp(out.v[i].to, id) != 0)
            continue;
        struct arena mem = {0};
        struct msg_facts f;
        assert_true(wire_decode(msg_table(MSG_FACTS), out.v[i].body, out.v[i].n, &mem, &f, NULL));
        assert_int_equal(f.boot, 5);
        *seq = f.seq;
        *temperature = f.temperature_c;
        arena_deinit(&mem);
        n++;
    }
    return n;
}

static void own_facts_go_to_each_peer_once_and_when_they_change(void **state) {
    (void)state;
    struct cluster *c = start();
    u64 seq = 0;
    u32 t = 0;
    up(c, "other", 9, 2000);
    assert_int_equal(heard("other", &seq, &t), 0); /* there are none yet */
    tell(c, &(struct msg_facts){.temperature_c = 40}, 2100);
    assert_int_equal(heard("other", &seq, &t), 1);
    assert_int_equal(t, 40);
    u64 first = seq;
    up(c, "third", 11, 2200); /* a newcomer hears them at once, the other not again */
    tell(c, &(struct msg_facts){.temperature_c = 40}, 2300);
    assert_int_equal(facts(c, "me")->seq, first);
    /* A change: not before CLUSTER_FACTS_LEAST_MS have passed, then to both, once. */
    tell(c, &(struct msg_facts){.temperature_c = 41}, 2400);
    assert_int_equal(heard("other", &seq, &t), 0);
    u32 n = 0;
    for (u64 now = 2600; now <= 9000; now += 200) {
        step(c, (struct cluster_input){.kind = CLUSTER_TICK}, now);
        u32 k = heard("other", &seq, &t);
        if (k) assert_true(now >= 2100 + CLUSTER_FACTS_LEAST_MS);
        n += k;
    }
    assert_int_equal(n, 1);
    assert_int_equal(t, 41);
    assert_int_equal(seq, first + 1);
    /* A link that comes up again may have lost them. */
    step(c,
         (struct cluster_input){.kind = CLUSTER_PEER_UP, .peer = "other", .address = "10.0.0.2:5"},
         9100);
    assert_int_equal(heard("other", &seq, &t), 1);
    stop(c);
}

static void a_peer_that_missed_them_hears_them_again(void **state) {
    (void)state;
    struct cluster *c = start();
    u64 seq, n = 0;
    u32 t;
    up(c, "other", 9, 2000);
    tell(c, &(struct msg_facts){.temperature_c = 40}, 2100);
    for (u64 now = 3000; now <= 2100 + 2 * CLUSTER_FACTS_MOST_MS + 500; now += 500) {
        step(c, (struct cluster_input){.kind = CLUSTER_TICK}, now);
        n += heard("other", &seq, &t);
    }
    assert_int_equal(n, 2);
    stop(c);
}

static void the_newest_word_of_the_present_process_counts(void **state) {
    (void)state;
    struct cluster *c = start();
    say(c, "other", MSG_FACTS, &(struct msg_facts){.boot = 9, .seq = 1, .n_cores = 7}, 1500);
    up(c, "other", 9, 2000);
    assert_int_equal(facts(c, "other")->n_cores, 0); /* a stranger's word is nothing */
    assert_string_equal(facts(c, "other")->model, "");
    struct msg_link l = {.peer = "me", .rtt_p50_us = 90, .interface = "eth0"};
    struct msg_facts f = {.boot = 9, .seq = 3, .n_cores = 8, .links = {&l, 1}};
    say(c, "other", MSG_FACTS, &f, 2100);
    assert_int_equal(facts(c, "other")->n_cores, 8);
    assert_string_equal(((struct msg_link *)facts(c, "other")->links.v)->interface, "eth0");
    f.n_cores = 9;
    f.seq = 2;
    say(c, "other", MSG_FACTS, &f, 2200);
    assert_int_equal(facts(c, "other")->n_cores, 8); /* overtaken */
    f.boot = 8;
    f.seq = 9;
    say(c, "other", MSG_FACTS, &f, 2300);
    assert_int_equal(facts(c, "other")->n_cores, 8); /* of an earlier process */
    cluster_step(c,
                 &(struct cluster_input){.kind = CLUSTER_MESSAGE,
                                         .peer = "other",
                                         .type = MSG_FACTS,
                                         .body = "\xff\xff",
                                         .n = 2},
                 2400, &out);
    assert_int_equal(facts(c, "other")->n_cores, 8); /* no message at all */
    up(c, "other", 10, 2500);                        /* started anew: what it was is forgotten */
    assert_int_equal(facts(c, "other")->n_cores, 0);
    stop(c);
}

static void more_links_than_there_can_be_are_not_kept(void **state) {
    (void)state;
    struct cluster *c = start();
    static struct msg_link l[CLUSTER_FACTS_LISTS_MAX + 1];
    up(c, "other", 9, 2000);
    say(c, "other", MSG_FACTS,
        &(struct msg_facts){.boot = 9, .seq = 1, .n_cores = 8, .links = {l, ARRAY_LEN(l)}}, 2100);
    assert_int_equal(facts(c, "other")->n_cores, 0);
    stop(c);
}

static u32 layers_of(struct cluster *c, const char *node) {
    struct cluster_instance i;
    cluster_instance(c, cluster_n_instances(c) - 1, &i);
    for (u32 r = 0; r < i.n_ranks; r++)
        if (strcmp(i.ranks[r].node, node) == 0)
            return i.ranks[r].layer_end - i.ranks[r].layer_first;
    return 0;
}

static void want(struct cluster *c, const char *id, u64 now) {
    static const u8 KEY[32] = {1};
    u64 layers[20];
    for (u32 i = 0; i < 20; i++) layers[i] = 1 << 20;
    struct msg_propose p = {
        .id = now,
        .kind = PROPOSE_WANT,
        .wanted = {
            .id = id,
            .model = id,
            .first_node = "me",
            .min_nodes = 2,
            .key = {KEY, 32},
            .desc = {.n_layers = 20, .layer_bytes = {layers, 20}, .kv_bytes_per_token_layer = 64}}};
    step(c, (struct cluster_input){.kind = CLUSTER_PROPOSE, .propose = &p}, now);
}

/* Equal cores: what they read in a second decides. */
static void layers_go_where_memory_is_fast(void **state) {
    (void)state;
    static const u64 SLOW = 40000000000, FAST = 120000000000;
    for (u32 i = 0; i < 2; i++) {
        struct cluster *c = start();
        up(c, "other", 9, 2000);
        tell(c, &(struct msg_facts){.read_bytes_s = i ? FAST : SLOW}, 2400);
        say(c, "other", MSG_FACTS,
            &(struct msg_facts){.boot = 9, .seq = 1, .read_bytes_s = i ? SLOW : FAST}, 2500);
        want(c, "a", 2600);
        u32 me = layers_of(c, "me"), other = layers_of(c, "other");
        assert_int_equal(me + other, 20);
        assert_int_equal(me > other, i);
        stop(c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_facts_go_to_each_peer_once_and_when_they_change),
        cmocka_unit_test(a_peer_that_missed_them_hears_them_again),
        cmocka_unit_test(the_newest_word_of_the_present_process_counts),
        cmocka_unit_test(more_links_than_there_can_be_are_not_kept),
        cmocka_unit_test(layers_go_where_memory_is_fast),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
