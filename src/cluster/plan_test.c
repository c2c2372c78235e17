/* What the cluster makes of a wish: who may be used, layouts by hand, what was measured, copies. */
#include "cluster/plan.h"

#include <math.h>
#include <string.h>

#include "base/test.h"

static struct cluster_output out;
enum { LAYERS = 12, NOW = 2000 };
static const u64 BYTES[LAYERS] = {1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20,
                                  1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20},
                 KINDS[LAYERS];
static const struct msg_layer_cost COST = {.attn_bytes = 400000,
                                           .ffn_bytes = 640000,
                                           .attn_ops = 1600000,
                                           .ffn_ops = 2560000,
                                           .n_sums = 2,
                                           .n_calls = 15};
static const u8 KEY[32] = {1};

static struct msg_hello hello_of(const char *name, u64 boot) {
    return (struct msg_hello){.protocol = 1,
                              .build = "test",
                              .os = "none",
                              .cluster = "c",
                              .name = name,
                              .boot = boot,
                              .seniority = boot,
                              .is_worker = 1,
                              .n_cores = 4};
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

static void beat(struct cluster *c, const char *id, u64 boot, u64 now) {
    say(c, id, MSG_HEARTBEAT,
        &(struct msg_heartbeat){
            .boot = boot, .seq = now, .mem_available_bytes = 1 << 30, .mem_limit_bytes = 1 << 30},
        now);
}

/* "me" leads "b" and "d"; names are the ids in capitals. */
static struct cluster *start(void) {
    struct cluster_cfg cfg = {.id = "me", .hello = hello_of("ME", 5)};
    struct cluster *c = cluster_new(&cfg, NULL, 0, 1000, NULL);
    const char *const ids[] = {"b", "d"}, *const names[] = {"B", "D"};
    step(c, (struct cluster_input){.kind = CLUSTER_MACHINE, .machine = {1 << 30, 1 << 30, 0}},
         1000);
    for (u64 i = 0; i < 2; i++) {
        struct msg_hello h = hello_of(names[i], 90 + i);
        step(c, (struct cluster_input){.kind = CLUSTER_PEER_UP, .peer = ids[i], .address = "h:5"},
             1500);
        say(c, ids[i], MSG_HELLO, &h, 1500);
        beat(c, ids[i], 90 + i, 1500);
    }
    assert_string_equal(cluster_master(c), "me");
    return c;
}

static void stop(struct cluster *c) {
    cluster_free(c);
    cluster_output_deinit(&out);
}

static struct msg_wanted wanted(const char *id) {
    return (struct msg_wanted){.id = id,
                               .model = "m",
                               .first_node = "me",
                               .key = {KEY, 32},
                               .desc = {.n_layers = LAYERS,
                                        .n_vocab = 1000,
                                        .dim = 64,
                                        .n_ctx_train = 4096,
                                        .layer_bytes = {BYTES, LAYERS},
                                        .kv_bytes_per_token_layer = 64,
                                        .shape = {.n_heads = 8,
                                                  .n_kv_heads = 4,
                                                  .head_dim_k = 16,
                                                  .head_dim_v = 16,
                                                  .n_ff = 512,
                                                  .ff_step = 32,
                                                  .kinds = {(void *)(uintptr_t)&COST, 1},
                                                  .layer_kind = {KINDS, LAYERS}}}};
}

static struct err want(struct cluster *c, const struct msg_wanted *w, u64 now) {
    struct msg_propose p = {.id = 5, .kind = PROPOSE_WANT, .wanted = *w};
    step(c, (struct cluster_input){.kind = CLUSTER_PROPOSE, .propose = &p}, now);
    for (u32 i = 0; i < out.n; i++)
        if (out.v[i].what == DO_ANSWER) return *out.v[i].answer;
    fail_msg("no answer");
    return (struct err){0};
}

static struct cluster_instance placed(struct cluster *c, const struct msg_wanted *w, u64 now) {
    struct cluster_instance i;
    struct err e = want(c, w, now);
    if (e.code) fail_msg("%s", e.msg);
    assert_true(cluster_find_instance(c, w->id, &i) && i.placement->place);
    return i;
}

static struct wire_list names(struct msg_string *v, u64 n) {
    return (struct wire_list){v, n};
}

static void only_the_nodes_that_were_named(void **state) {
    (void)state;
    struct cluster *c = start();
    struct msg_wanted w = wanted("i1");
    struct msg_string b[] = {{"b"}}, more[] = {{"b"}, {"x"}}, not_me[] = {{"me"}, {"d"}};
    w.wish.nodes = names(b, 1);
    assert_string_equal(placed(c, &w, NOW).ranks[0].node, "b");
    w = wanted("i2");
    w.wish.exclude = names(not_me, 2);
    assert_string_equal(placed(c, &w, NOW).ranks[0].node, "b");
    w = wanted("i3");
    w.wish.nodes = names(more, 2);
    struct err e = want(c, &w, NOW);
    assert_int_equal(e.code, ERR_BUSY);
    assert_non_null(strstr(e.msg, "node x, which this placement names, is not there"));
    struct cluster_instance i;
    assert_false(cluster_find_instance(c, "i3", &i));
    stop(c);
}

static void by_hand_it_is_kept_until_a_node_is_lost(void **state) {
    (void)state;
    struct cluster *c = start();
    struct msg_wanted w = wanted("i1");
    struct msg_rank hand[] = {{.node = "d", .layer_end = 5},
                              {.node = "me", .layer_first = 5, .layer_end = LAYERS}};
    w.wish.ranks = (struct wire_list){hand, 2};
    struct cluster_instance i = placed(c, &w, NOW);
    assert_int_equal(i.n_ranks, 2);
    assert_string_equal(i.ranks[0].node, "d");
    assert_int_equal(i.ranks[0].layer_end, 5);
    assert_int_equal(i.ranks[1].weights_bytes, 7 << 20);
    for (u64 t = NOW; t < NOW + 12000; t += 500) { /* d falls silent */
        beat(c, "b", 90, t);
        step(c, (struct cluster_input){.kind = CLUSTER_TICK}, t);
    }
    assert_true(cluster_find_instance(c, "i1", &i) && i.placement->place);
    for (u32 r = 0; r < i.n_ranks; r++) assert_string_not_equal(i.ranks[r].node, "d");

    hand[0].layer_end = 4;
    w.id = "i2";
    struct err e = want(c, &w, NOW + 12000);
    assert_int_equal(e.code, ERR_BUSY); /* d again, and it is not there now */
    stop(c);
}

static void tensor_ranks_carry_their_slices(void **state) {
    (void)state;
    struct cluster *c = start();
    struct msg_wanted w = wanted("i1");
    w.wish.sharding = SHARDING_TENSOR;
    w.min_nodes = 3;
    struct cluster_instance i = placed(c, &w, NOW);
    assert_int_equal(i.n_ranks, 3);
    u32 heads = 0, ff = 0, vocab = 0;
    for (u32 r = 0; r < 3; r++) {
        const struct msg_rank *k = &i.ranks[r];
        assert_true(k->layer_first == 0 && k->layer_end == LAYERS);
        assert_true(k->tp_first == 0 && k->tp_ranks == 3);
        assert_true(k->slice.head_first == heads && k->slice.ff_first == ff);
        heads = k->slice.head_end;
        ff = k->slice.ff_end;
        vocab = k->slice.vocab_end;
        assert_true(k->memory_bytes > k->weights_bytes);
    }
    assert_true(heads == 8 && ff == 512 && vocab == 1000);
    stop(c);
}

/* "me" goes on alone, though a tensor group needs two and a hybrid three. */
static void a_sharding_holds_as_long_as_there_are_enough_nodes(u32 sharding, u32 n) {
    struct cluster *c = start();
    struct msg_wanted w = wanted("i1");
    w.wish.sharding = sharding;
    w.min_nodes = n;
    struct cluster_instance i = placed(c, &w, NOW);
    assert_int_equal(i.n_ranks, n);
    for (u64 t = NOW; t < NOW + 12000; t += 500) /* the others fall silent */
        step(c, (struct cluster_input){.kind = CLUSTER_TICK}, t);
    assert_true(cluster_find_instance(c, "i1", &i) && i.placement->place);
    assert_int_equal(i.n_ranks, 1);
    w.id = "i2";
    assert_int_equal(want(c, &w, NOW + 12000).code, ERR_BUSY); /* a new one is refused */
    stop(c);
}

static void what_is_left_takes_over(void **state) {
    (void)state;
    a_sharding_holds_as_long_as_there_are_enough_nodes(SHARDING_TENSOR, 2);
    a_sharding_holds_as_long_as_there_are_enough_nodes(SHARDING_HYBRID, 3);
}

/* A heartbeat in which the node's only runner is ready. */
static void beat_ready(struct cluster *c, const char *id, u64 boot, u64 place, u64 now) {
    struct msg_runner f = {.instance = "i1", .place = place, .status = RUNNER_READY};
    say(c, id, MSG_HEARTBEAT,
        &(struct msg_heartbeat){.boot = boot,
                                .seq = now,
                                .mem_available_bytes = 1 << 30,
                                .mem_limit_bytes = 1 << 30,
                                .runners = {&f, 1}},
        now);
}

/* Three nodes were asked for; one of them is drained, so two have to do. */
static void a_drained_node_is_left_though_there_are_fewer_then(void **state) {
    (void)state;
    struct cluster *c = start();
    struct msg_wanted w = wanted("i1");
    w.min_nodes = 3;
    w.wish.sharding = SHARDING_HYBRID;
    struct cluster_instance i = placed(c, &w, NOW);
    u64 place = i.placement->place;
    struct msg_runner mine = {.instance = "i1", .place = place, .status = RUNNER_READY};
    step(c, (struct cluster_input){.kind = CLUSTER_RUNNER, .runner = &mine}, NOW);
    beat_ready(c, "b", 90, place, NOW + 100);
    beat_ready(c, "d", 91, place, NOW + 100);
    assert_true(cluster_find_instance(c, "i1", &i) && i.status == INSTANCE_READY);
    struct msg_propose p = {.id = 6, .kind = PROPOSE_DRAIN, .node = "d"};
    step(c, (struct cluster_input){.kind = CLUSTER_PROPOSE, .propose = &p}, NOW + 200);
    for (u64 t = NOW + 300; t < NOW + 1500; t += 200) {
        beat_ready(c, "b", 90, place, t);
        beat_ready(c, "d", 91, place, t);
    }
    assert_true(cluster_find_instance(c, "i1", &i) && i.placement->place == place);
    if (!i.placement->next_place) fail_msg("it stays: %s", i.text);
    const struct msg_rank *next = i.placement->next_ranks.v;
    for (u64 k = 0; k < i.placement->next_ranks.n; k++) assert_string_not_equal(next[k].node, "d");
    stop(c);
}

/* D is drained. A refusal says so where D would have helped. */
static void drained_nodes_are_blamed_for_what_they_miss(void **state) {
    (void)state;
    static const struct {
        const char *nodes, *exclude[2];
        u32 min_nodes;
        bool by_hand, huge, whole, blamed;
        const char *says;
    } ROWS[] = {
        {.min_nodes = 3, .blamed = true, .says = "needs 3 nodes, 2 are there"},
        {.huge = true, .blamed = true, .says = "GiB"},
        {.exclude = {"me", "b"}, .blamed = true, .says = "no worker node is there"},
        {.exclude = {"d"}, .min_nodes = 3, .says = "needs 3 nodes, 2 are there"},
        {.exclude = {"d"}, .huge = true, .says = "GiB"},
        {.nodes = "b", .min_nodes = 2, .says = "needs 2 nodes, 1 is there"},
        {.nodes = "b", .exclude = {"b"}, .says = "no worker is left"},
        {.min_nodes = LAYERS + 1, .says = "needs 13 nodes", .blamed = true},
        {.by_hand = true, .says = "layers 6-11 are on no node"},
        {.by_hand = true, .huge = true, .says = "GiB"},
        {.whole = true, .says = "can't be sliced"},
    };
    struct cluster *c = start();
    struct msg_propose p = {.id = 6, .kind = PROPOSE_DRAIN, .node = "d"};
    step(c, (struct cluster_input){.kind = CLUSTER_PROPOSE, .propose = &p}, NOW);
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        struct msg_wanted w = wanted("i1");
        struct msg_string in[] = {{ROWS[i].nodes}};
        struct msg_string no[] = {{ROWS[i].exclude[0]}, {ROWS[i].exclude[1]}};
        struct msg_rank hand[] = {{.node = "b", .layer_end = ROWS[i].huge ? LAYERS : 6}};
        w.min_nodes = ROWS[i].min_nodes;
        w.wish.nodes = names(in, ROWS[i].nodes != NULL);
        w.wish.exclude = names(no, (ROWS[i].exclude[0] != NULL) + (ROWS[i].exclude[1] != NULL));
        if (ROWS[i].by_hand) w.wish.ranks = (struct wire_list){hand, 1};
        if (ROWS[i].whole) {
            w.wish.sharding = SHARDING_TENSOR;
            w.desc.shape = (struct msg_shape){0};
        }
        if (ROWS[i].huge) w.desc.kv_bytes_per_token_layer = 1 << 20;
        struct err e = want(c, &w, NOW);
        bool blamed = strstr(e.msg, "1 worker is drained") != NULL;
        if (!strstr(e.msg, ROWS[i].says) || blamed != ROWS[i].blamed)
            fail_msg("row %zu: %s", i, e.msg);
    }
    stop(c);
}

static void wishes_that_contradict_each_other(void **state) {
    (void)state;
    struct cluster *c = start();
    struct msg_wanted w = wanted("i1");
    struct msg_string d[] = {{"d"}};
    struct msg_rank hand[] = {{.node = "d", .layer_end = LAYERS}};
    w.wish.ranks = (struct wire_list){hand, 1};
    w.wish.exclude = names(d, 1);
    struct err e = want(c, &w, NOW);
    assert_int_equal(e.code, ERR_ARG);
    assert_non_null(strstr(e.msg, "the layout names node D, which is excluded"));
    w.wish.exclude.n = 0;
    w.min_nodes = 2;
    e = want(c, &w, NOW);
    assert_true(e.code == ERR_ARG && strstr(e.msg, "names 1 node, at least 2"));
    w.min_nodes = 0;
    w.wish.sharding = SHARDING_TENSOR;
    e = want(c, &w, NOW);
    assert_true(e.code == ERR_ARG && strstr(e.msg, "not the sharding"));
    w.wish.sharding = SHARDING_PIPELINE;
    assert_int_equal(placed(c, &w, NOW).n_ranks, 1);
    stop(c);
}

/* All on one node is no hybrid, though it may be faster. */
static void a_hybrid_has_a_group(void **state) {
    (void)state;
    struct cluster *c = start();
    struct msg_wanted w = wanted("i1");
    w.wish.sharding = SHARDING_HYBRID;
    struct cluster_instance i = placed(c, &w, NOW);
    bool group = false;
    for (u32 r = 0; r < i.n_ranks; r++) group |= i.ranks[r].tp_ranks > 1;
    assert_true(group && i.n_ranks == 3);
    stop(c);
}

static void copies_go_to_the_idle(void **state) {
    (void)state;
    struct cluster *c = start();
    struct msg_wanted w = wanted("i1");
    const char *first = placed(c, &w, NOW).ranks[0].node;
    char kept[8];
    str_copy(kept, sizeof kept, first);
    w.id = "i2";
    assert_string_not_equal(placed(c, &w, NOW).ranks[0].node, kept);
    stop(c);
}

static void what_was_measured_decides(void **state) {
    (void)state;
    struct cluster *c = start();
    struct msg_wanted w = wanted("i1");
    struct msg_link slow[] = {{.peer = "me", .rtt_p50_us = 50000, .bandwidth_bytes_s = 1000000},
                              {.peer = "d", .rtt_p50_us = 50000, .bandwidth_bytes_s = 1000000}};
    struct msg_facts f = {.boot = 90,
                          .seq = 1,
                          .read_bytes_s = (u64)400 << 30,
                          .int8_ops_s = (u64)1 << 42,
                          .links = {slow, 2}};
    struct msg_facts mine = {.read_bytes_s = (u64)10 << 30, .int8_ops_s = (u64)1 << 38};
    step(c, (struct cluster_input){.kind = CLUSTER_FACTS, .facts = &mine}, NOW);
    say(c, "b", MSG_FACTS, &f, NOW);
    assert_string_equal(placed(c, &w, NOW).ranks[0].node, "b");
    struct arena a = {0};
    struct plan s;
    struct err e = {0};
    struct cluster_instance i;
    cluster_find_instance(c, "i1", &i);
    struct msg_wanted other = *i.wanted;
    other.id = "i2";
    assert_true(plan_ask(c, &other, NULL, NOW, &a, &s, &e));
    assert_int_equal(s.q.n_nodes, 3);
    for (u32 k = 0; k < 3; k++) /* it shares b with i1 */
        if (strcmp(s.ids[k], "b") == 0)
            assert_true(s.q.nodes[k].read_bytes_s < 0.41 * (double)f.read_bytes_s);
    u32 me = strcmp(s.ids[0], "me") == 0 ? 0 : 1, b = 1;
    assert_int_equal(me, 0);
    assert_true(s.q.links[b].delay_s == 0.025 && s.q.links[b].bytes_s == 1e6);
    /* Each end has its own figure: of round trips the shorter, of bytes that of who sends. */
    struct msg_link to_b = {.peer = "b", .rtt_p50_us = 40000, .bandwidth_bytes_s = 2000000};
    mine.links = (struct wire_list){&to_b, 1};
    step(c, (struct cluster_input){.kind = CLUSTER_FACTS, .facts = &mine}, NOW);
    assert_true(plan_ask(c, &other, NULL, NOW, &a, &s, &e));
    assert_true(s.q.links[b].delay_s == 0.02 && s.q.links[b].bytes_s == 2e6);
    assert_true(s.q.links[b * 3].delay_s == 0.02 && s.q.links[b * 3].bytes_s == 1e6);
    arena_deinit(&a);
    stop(c);
}

/* Layers of two formats, three parts of type 2 and one of type 14; the head is of type 8. */
static void what_each_format_reaches_is_mixed(void **state) {
    (void)state;
    struct cluster *c = start();
    struct msg_wanted w = wanted("i1");
    struct msg_type_ops types[] = {{2, 3000, 1}, {14, 1000, 1}};
    struct msg_rate rates[] = {{2, 1000000, 1000000, 3000000, 6000000, 9000000, 0},
                               {14, 500000, 500000, 1000000, 2000000, 3000000, 0},
                               {8, 700000, 700000, 1, 1, 1, 0}};
    struct msg_facts mine = {
        .read_bytes_s = 10 << 20, .float_ops_s = 123, .call_ns = 2000, .rates = {rates, 3}};
    struct arena a = {0};
    struct plan s;
    struct err e = {0};
    w.desc.shape.types = (struct wire_list){types, 2};
    w.desc.shape.head_type = 8;
    w.desc.shape.head_ops = 100;
    w.desc.head_bytes = 50;
    step(c, (struct cluster_input){.kind = CLUSTER_FACTS, .facts = &mine}, NOW);
    assert_true(plan_ask(c, &w, NULL, NOW, &a, &s, &e));
    const struct place_node *k = &s.q.nodes[0];
    /* 3000 at 1e6 and 1000 at 5e5 take 5 ms of LAYERS * 1040000 bytes, and so on. */
    assert_true(fabs(k->layers.read_bytes_s / (LAYERS * 1040000 / 0.005) - 1) < 1e-9);
    assert_true(fabs(k->layers.few_ops_s / (4000 / 0.002) - 1) < 1e-9);
    assert_true(fabs(k->layers.ops_s / (4000 / 0.001) - 1) < 1e-9);
    assert_true(fabs(k->head.read_bytes_s / (50 / (100 / 7e5)) - 1) < 1e-9);
    assert_true(k->read_bytes_s == 10 << 20 && k->attend_ops_s == 123 && k->call_s == 2e-6);
    /* As narrow as what the second figure is of: 3000 operations of rows of 512 columns. */
    rates[0].narrow_ops_s = 600000;
    types[0] = (struct msg_type_ops){2, 3 * 1024 * 1000, 3 * 1000};
    types[1].ops = 0;
    step(c, (struct cluster_input){.kind = CLUSTER_FACTS, .facts = &mine}, NOW);
    assert_true(plan_ask(c, &w, NULL, NOW, &a, &s, &e));
    k = &s.q.nodes[0];
    assert_true(fabs(k->layers.read_bytes_s / (LAYERS * 1040000 / (3072000 / 6e5)) - 1) < 1e-9);
    /* And the same of many tokens; attention as it was measured. */
    rates[0].narrow_many_ops_s = 4000000;
    mine.attend_ops_s = 77;
    mine.attend_one_ops_s = 33;
    step(c, (struct cluster_input){.kind = CLUSTER_FACTS, .facts = &mine}, NOW);
    assert_true(plan_ask(c, &w, NULL, NOW, &a, &s, &e));
    k = &s.q.nodes[0];
    assert_true(fabs(k->layers.ops_s / 4e6 - 1) < 1e-9 && k->attend_ops_s == 77);
    assert_true(k->attend_one_ops_s == 33);
    double row = 2 * (1 / 4e6 - 1 / 6e6) / (1.0 / 512 - 1.0 / 2048);
    assert_true(fabs(k->layers.row_many_s / row - 1) < 1e-9);
    rates[0].narrow_many_ops_s = 0;
    step(c, (struct cluster_input){.kind = CLUSTER_FACTS, .facts = &mine}, NOW);
    types[0] = (struct msg_type_ops){2, 3000, 1};
    types[1].ops = 1000;
    w.act_bits = 8;
    assert_true(plan_ask(c, &w, NULL, NOW, &a, &s, &e));
    assert_true(fabs(s.q.nodes[0].layers.ops_s * (3000 / 9e6 + 1000 / 3e6) / 4000 - 1) < 1e-9);
    types[1].type = 39; /* nobody measured that */
    assert_true(plan_ask(c, &w, NULL, NOW, &a, &s, &e));
    assert_true(s.q.nodes[0].layers.few_ops_s == 0);
    arena_deinit(&a);
    stop(c);
}

/* What is kept does not need the cluster any more: another thread works on it. */
static void a_plan_outlives_the_cluster(void **state) {
    (void)state;
    struct cluster *c = start();
    struct msg_wanted w = wanted("i1");
    struct arena asked = {0}, kept = {0};
    struct plan s;
    struct place_plan before, after;
    struct err e = {0};
    assert_true(plan_ask(c, &w, NULL, NOW, &asked, &s, &e));
    assert_true(plan_best(&s, &w, &kept, &before, &e));
    const char *id = s.ids[0], *name = s.q.nodes[0].name;
    const void *links = s.q.links;
    plan_keep(&s, &kept);
    assert_true(s.ids[0] != id && s.q.nodes[0].name != name && s.q.links != links);
    arena_deinit(&asked);
    stop(c);
    assert_int_equal(s.q.n_nodes, 3);
    assert_string_equal(s.ids[0], "me");
    assert_string_equal(s.q.nodes[0].name, "ME");
    assert_true(plan_best(&s, &w, &kept, &after, &e));
    assert_int_equal(after.n_ranks, before.n_ranks);
    assert_true(after.t.token_s == before.t.token_s);
    arena_deinit(&kept);
}

static void nodes_on_one_machine_are_seen(void **state) {
    (void)state;
    struct cluster *c = start();
    struct msg_link lo[] = {{.peer = "me", .kind = LINK_LOOPBACK, .rtt_p50_us = 20}};
    struct msg_facts f = {.boot = 90, .seq = 1, .read_bytes_s = 5 << 20, .links = {lo, 1}};
    struct msg_facts mine = {.read_bytes_s = 7 << 20}; /* the machine was less busy then */
    struct msg_wanted w = wanted("i1");
    struct arena a = {0};
    struct plan s;
    struct err e = {0};
    say(c, "b", MSG_FACTS, &f, NOW);
    step(c, (struct cluster_input){.kind = CLUSTER_FACTS, .facts = &mine}, NOW);
    assert_true(plan_ask(c, &w, NULL, NOW, &a, &s, &e));
    assert_true(s.q.nodes[0].read_bytes_s == s.q.nodes[1].read_bytes_s);
    assert_string_equal(s.ids[1], "b");
    assert_int_equal(s.q.nodes[0].machine, s.q.nodes[1].machine);
    assert_int_not_equal(s.q.nodes[0].machine, s.q.nodes[2].machine);
    arena_deinit(&a);
    stop(c);
}

static void the_context_shrinks_before_it_is_refused(void **state) {
    (void)state;
    struct cluster *c = start();
    struct msg_wanted w = wanted("i1");
    w.desc.kv_bytes_per_token_layer = 60000; /* 2.9 GB for 4,096 tokens; 1.5 for half of them */
    struct msg_string one[] = {{"me"}};
    struct err e = {0};
    assert_int_equal(placed(c, &w, NOW).placement->n_ctx, 4096); /* over several nodes */
    w.id = "i2";
    w.desc.kv_bytes_per_token_layer = 20000;
    w.wish.nodes = names(one, 1);
    e = want(c, &w, NOW);
    assert_int_equal(e.code, ERR_MEMORY);
    w.n_ctx = 4096;
    w.wish.force = 1;
    assert_int_equal(placed(c, &w, NOW).placement->n_ctx, 4096);
    stop(c);
}

static void nonsense_does_not_get_in(void **state) {
    (void)state;
    struct cluster *c = start();
    struct msg_wanted w = wanted("i1");
    u64 kinds[LAYERS] = {0, 7};
    w.desc.shape.layer_kind.v = kinds;
    assert_int_equal(want(c, &w, NOW).code, ERR_FORMAT);
    w = wanted("i1");
    w.desc.shape.layer_kind.n = LAYERS - 1;
    assert_int_equal(want(c, &w, NOW).code, ERR_FORMAT);
    w = wanted("i1");
    w.desc.kv_bytes_per_token_layer = (u64)1 << 50;
    assert_int_not_equal(want(c, &w, NOW).code, ERR_NONE);
    stop(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_nodes_that_were_named),
        cmocka_unit_test(by_hand_it_is_kept_until_a_node_is_lost),
        cmocka_unit_test(tensor_ranks_carry_their_slices),
        cmocka_unit_test(what_is_left_takes_over),
        cmocka_unit_test(a_drained_node_is_left_though_there_are_fewer_then),
        cmocka_unit_test(drained_nodes_are_blamed_for_what_they_miss),
        cmocka_unit_test(wishes_that_contradict_each_other),
        cmocka_unit_test(a_hybrid_has_a_group),
        cmocka_unit_test(copies_go_to_the_idle),
        cmocka_unit_test(what_was_measured_decides),
        cmocka_unit_test(what_each_format_reaches_is_mixed),
        cmocka_unit_test(a_plan_outlives_the_cluster),
        cmocka_unit_test(nodes_on_one_machine_are_seen),
        cmocka_unit_test(the_context_shrinks_before_it_is_refused),
        cmocka_unit_test(nonsense_does_not_get_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
