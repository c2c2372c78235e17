/* One node's view, message by message; many nodes together are tests/sim. */
#include "cluster/cluster.h"

#include <stdio.h>
#include <string.h>

#include "base/test.h"

static struct cluster_output out;

static struct msg_hello hello_of(const char *name, u64 seniority) {
    return (struct msg_hello){.protocol = 7,
                              .build = "test",
                              .os = "none",
                              .cluster = "c",
                              .name = name,
                              .boot = 100 + seniority,
                              .seniority = seniority,
                              .is_worker = 1,
                              .n_cores = 2,
                              .mem_total_bytes = (u64)8 << 30};
}

static struct cluster *start(bool has_peers) {
    struct err e = {0};
    struct cluster_cfg cfg = {.id = "me", .hello = hello_of("me", 50), .has_peers = has_peers};
    struct cluster *c = cluster_new(&cfg, NULL, 0, 1000, &e);
    assert_non_null(c);
    cluster_step(c,
                 &(struct cluster_input){.kind = CLUSTER_MACHINE,
                                         .machine = {(u64)8 << 30, (u64)8 << 30, 0, 0}},
                 1000, &out);
    return c;
}

static void stop(struct cluster *c) {
    cluster_free(c);
    cluster_output_deinit(&out);
}

static void tick(struct cluster *c, u64 now) {
    cluster_step(c, &(struct cluster_input){.kind = CLUSTER_TICK}, now, &out);
}

static void say(struct cluster *c, const char *from, u32 type, const void *msg, u64 now) {
    struct str b = {0};
    wire_encode(msg_table(type), msg, &b);
    cluster_step(c,
                 &(struct cluster_input){
                     .kind = CLUSTER_MESSAGE, .peer = from, .type = type, .body = b.p, .n = b.n},
                 now, &out);
    str_deinit(&b);
}

static void greet(struct cluster *c, const char *id, const struct msg_hello *h, u64 now) {
    cluster_step(
        c, &(struct cluster_input){.kind = CLUSTER_PEER_UP, .peer = id, .address = "10.0.0.2:5"},
        now, &out);
    say(c, id, MSG_HELLO, h, now);
}

/* The last message of that type which the step sent; NULL when there is none. */
static const struct cluster_action *sent(u32 type) {
    const struct cluster_action *found = NULL;
    for (u32 i = 0; i < out.n; i++)
        if (out.v[i].what == DO_SEND && out.v[i].type == type) found = &out.v[i];
    return found;
}
static const struct cluster_action *done(enum cluster_do what) {
    for (u32 i = 0; i < out.n; i++)
        if (out.v[i].what == what) return &out.v[i];
    return NULL;
}

static struct cluster_member member(struct cluster *c, const char *id, u64 now) {
    struct cluster_member m;
    for (u32 i = 0; i < cluster_n_members(c); i++) {
        cluster_member(c, i, now, &m);
        if (strcmp(m.id, id) == 0) return m;
    }
    fail_msg("no member %s", id);
    return m;
}

static void a_node_alone_leads_at_once(void **state) {
    (void)state;
    struct cluster *c = start(false);
    assert_string_equal(cluster_master(c), "me");
    assert_true(out.save);
    stop(c);
}

static void with_peers_it_waits_for_them(void **state) {
    (void)state;
    struct cluster *c = start(true);
    for (u64 t = 1200; t < 3900; t += 200) {
        tick(c, t);
        assert_string_equal(cluster_master(c), "");
    }
    tick(c, 4100);
    assert_string_equal(cluster_master(c), "me");
    stop(c);
}

static bool is_known(struct cluster *c, const char *id) {
    struct cluster_member m;
    bool found = false;
    for (u32 i = 0; i < cluster_n_members(c); i++) {
        cluster_member(c, i, 0, &m);
        found = found || strcmp(m.id, id) == 0;
    }
    return found;
}

static void peer_down(struct cluster *c, const char *id, u64 now) {
    for (u32 gone = 0; gone < 2; gone++) /* the link is, then the process */
        cluster_step(c,
                     &(struct cluster_input){.kind = CLUSTER_PEER_DOWN, .peer = id, .number = gone},
                     now, &out);
}

static void forget(struct cluster *c, const char *id, u64 now) {
    cluster_step(c, &(struct cluster_input){.kind = CLUSTER_FORGET, .peer = id}, now, &out);
}

/* Two others, heard once each. */
static struct cluster *with_two(void) {
    struct cluster *c = start(false);
    const char *const ids[] = {"old", "new"};
    for (u32 i = 0; i < 2; i++) {
        struct msg_hello h = hello_of(ids[i], 90 + i);
        struct msg_heartbeat b = {.boot = h.boot, .seq = 1};
        greet(c, ids[i], &h, 2000);
        say(c, ids[i], MSG_HEARTBEAT, &b, 2000);
    }
    return c;
}

static void a_lost_node_can_be_forgotten(void **state) {
    (void)state;
    struct cluster *c = with_two();
    forget(c, "old", 2100); /* it is here */
    forget(c, "me", 2100);
    forget(c, "nobody", 2100);
    assert_true(is_known(c, "old"));
    assert_null(sent(MSG_FORGET));
    peer_down(c, "old", 2200);
    forget(c, "old", 2300);
    assert_false(is_known(c, "old"));
    const struct cluster_action *a = sent(MSG_FORGET);
    assert_non_null(a);
    assert_string_equal(a->to, "new");
    /* The other one has the same address: the machine came back as another node. */
    assert_null(done(DO_HANGUP));
    peer_down(c, "new", 2400);
    forget(c, "new", 2500);
    assert_string_equal(done(DO_HANGUP)->address, "10.0.0.2:5");
    stop(c);
}

static void what_another_forgets_is_forgotten_here(void **state) {
    (void)state;
    struct cluster *c = with_two();
    say(c, "new", MSG_FORGET, &(struct msg_reason){.text = "old"}, 2100); /* not so here */
    assert_true(is_known(c, "old"));
    peer_down(c, "old", 2200);
    say(c, "stranger", MSG_FORGET, &(struct msg_reason){.text = "old"}, 2300);
    assert_true(is_known(c, "old"));
    say(c, "new", MSG_FORGET, &(struct msg_reason){.text = "old"}, 2400);
    assert_false(is_known(c, "old"));
    assert_null(sent(MSG_FORGET)); /* who was asked tells all */
    struct msg_hello h = hello_of("old", 95);
    struct msg_heartbeat b = {.boot = h.boot, .seq = 1};
    greet(c, "old", &h, 3000); /* and welcome it is */
    say(c, "old", MSG_HEARTBEAT, &b, 3000);
    assert_int_equal(member(c, "old", 3000).state, MEMBER_LIVE);
    stop(c);
}

static void another_protocol_is_refused_on_both_sides(void **state) {
    (void)state;
    struct cluster *c = start(false);
    struct msg_hello h = hello_of("other", 10);
    h.protocol = 8;
    h.build = "9.9";
    greet(c, "other", &h, 2000);
    struct cluster_member m = member(c, "other", 2000);
    assert_int_equal(m.state, MEMBER_REFUSED);
    const char *why = "other speaks protocol 8 (9.9), me speaks protocol 7 (test): install the "
                      "same version of skein on both";
    assert_string_equal(m.refused, why);
    const struct cluster_action *a = sent(MSG_REFUSED);
    struct arena mem = {0};
    struct msg_reason r;
    assert_non_null(a);
    assert_true(wire_decode(msg_table(MSG_REFUSED), a->body, a->n, &mem, &r, NULL));
    assert_string_equal(r.text, why);
    assert_int_equal(r.protocol, 7);
    arena_deinit(&mem);
    const struct cluster_action *log = done(DO_LOG);
    assert_non_null(log);
    assert_non_null(strstr(log->text, why));
    /* Its heartbeats count for nothing, and the refusal is logged once. */
    struct msg_heartbeat b = {.boot = 110, .seq = 1, .term = 99};
    say(c, "other", MSG_HEARTBEAT, &b, 2100);
    assert_int_equal(cluster_term(c), 1);
    say(c, "other", MSG_HELLO, &h, 2200);
    assert_null(done(DO_LOG));
    /* Updated, it is welcome. */
    h.protocol = 7;
    h.boot++;
    say(c, "other", MSG_HELLO, &h, 2300);
    b.boot = h.boot;
    say(c, "other", MSG_HEARTBEAT, &b, 2300);
    assert_int_equal(member(c, "other", 2300).state, MEMBER_LIVE);
    stop(c);
}

static void being_refused_is_shown(void **state) {
    (void)state;
    struct cluster *c = start(false);
    struct msg_hello h = hello_of("other", 10);
    greet(c, "other", &h, 2000);
    say(c, "other", MSG_REFUSED, &(struct msg_reason){.protocol = 9, .text = "too old"}, 2000);
    struct cluster_member m = member(c, "other", 2000);
    assert_int_equal(m.state, MEMBER_REFUSED);
    assert_string_equal(m.refused, "too old");
    stop(c);
}

static void another_cluster_is_refused(void **state) {
    (void)state;
    struct cluster *c = start(false);
    struct msg_hello h = hello_of("other", 10);
    h.cluster = "d";
    greet(c, "other", &h, 2000);
    assert_string_equal(member(c, "other", 2000).refused,
                        "it belongs to the cluster 'd', this node to 'c'");
    stop(c);
}

static void silence_and_goodbye_mean_lost(void **state) {
    (void)state;
    struct cluster *c = start(false);
    struct msg_hello h = hello_of("other", 90);
    struct msg_heartbeat b = {.boot = h.boot, .seq = 1};
    greet(c, "other", &h, 2000);
    say(c, "other", MSG_HEARTBEAT, &b, 2000);
    for (u64 t = 2200; t < 7000; t += 200) {
        tick(c, t);
        assert_int_equal(member(c, "other", t).state, MEMBER_LIVE);
    }
    tick(c, 7000);
    assert_int_equal(member(c, "other", 7000).state, MEMBER_LOST);
    assert_false(member(c, "other", 7000).is_stopped);
    b.seq++;
    say(c, "other", MSG_HEARTBEAT, &b, 7100);
    assert_int_equal(member(c, "other", 7100).state, MEMBER_LIVE);
    say(c, "other", MSG_BYE, &(struct msg_reason){.text = "stopped"}, 7200);
    assert_int_equal(member(c, "other", 7200).state, MEMBER_LOST);
    assert_true(member(c, "other", 7200).is_stopped);
    assert_int_equal(member(c, "other", 7300).seen_ms_ago, 200);
    /* A broken link is a sign: lost in 1.5 s instead of 5. */
    b.seq++;
    say(c, "other", MSG_HEARTBEAT, &b, 7300);
    cluster_step(c, &(struct cluster_input){.kind = CLUSTER_PEER_DOWN, .peer = "other"}, 7300,
                 &out);
    tick(c, 8700);
    assert_int_equal(member(c, "other", 8700).state, MEMBER_LIVE);
    tick(c, 8900);
    assert_int_equal(member(c, "other", 8900).state, MEMBER_LOST);
    assert_false(member(c, "other", 8900).is_stopped); /* it was heard since */
    /* And where its machine says that the process has ended, at once. */
    struct cluster_input gone = {.kind = CLUSTER_PEER_DOWN, .peer = "other", .number = 1};
    b.seq++;
    say(c, "other", MSG_HEARTBEAT, &b, 9000);
    assert_int_equal(member(c, "other", 9000).state, MEMBER_LIVE);
    cluster_step(c, &gone, 9010, &out);
    assert_int_equal(member(c, "other", 9010).state, MEMBER_LOST);
    greet(c, "other", &h, 9100); /* the news of an end came late: it is here again */
    b.seq++;
    say(c, "other", MSG_HEARTBEAT, &b, 9100);
    cluster_step(c, &gone, 9110, &out);
    assert_int_equal(member(c, "other", 9110).state, MEMBER_LIVE);
    stop(c);
}

static void an_overtaken_heartbeat_is_dropped(void **state) {
    (void)state;
    struct cluster *c = start(false);
    struct msg_hello h = hello_of("other", 90);
    greet(c, "other", &h, 2000);
    say(c, "other", MSG_HEARTBEAT,
        &(struct msg_heartbeat){.boot = h.boot, .seq = 2, .mem_available_bytes = 22}, 2000);
    say(c, "other", MSG_HEARTBEAT,
        &(struct msg_heartbeat){.boot = h.boot, .seq = 1, .mem_available_bytes = 11}, 2001);
    assert_int_equal(member(c, "other", 2001).heartbeat->mem_available_bytes, 22);
    stop(c);
}

/* For people: doctor compares it with its own. */
static void heartbeats_tell_the_wall_clock(void **state) {
    (void)state;
    struct cluster *c = start(false);
    struct msg_hello h = hello_of("other", 90);
    struct msg_heartbeat b;
    struct arena mem = {0};
    greet(c, "other", &h, 2000);
    cluster_step(c,
                 &(struct cluster_input){.kind = CLUSTER_MACHINE,
                                         .machine = {.wall_ahead_ms = 1700000000000}},
                 2500, &out);
    tick(c, 4000);
    assert_non_null(sent(MSG_HEARTBEAT));
    assert_true(wire_decode(msg_table(MSG_HEARTBEAT), sent(MSG_HEARTBEAT)->body,
                            sent(MSG_HEARTBEAT)->n, &mem, &b, NULL));
    assert_int_equal(b.wall_ms, 1700000004000);
    arena_deinit(&mem);
    stop(c);
}

static void what_a_peer_knows_is_dialled(void **state) {
    (void)state;
    struct cluster *c = start(false);
    struct msg_hello h = hello_of("other", 90);
    struct msg_string hosts[] = {{"10.0.0.3"}, {"fe80::3"}};
    struct msg_route r[2] = {{.node = "me", .address = "10.0.0.1:5"},
                             {"third", "10.0.0.3:5", {hosts, 2}, 5}};
    h.routes = (struct wire_list){r, 2};
    greet(c, "other", &h, 2000);
    const struct cluster_action *a = done(DO_DIAL);
    assert_non_null(a);
    assert_string_equal(a->address, "10.0.0.3:5");
    struct cluster_member third; /* its other addresses are for whoever dials */
    cluster_member(c, 2, 2000, &third);
    assert_int_equal(third.state, MEMBER_UNKNOWN);
    assert_int_equal(third.hello->bus_port, 5);
    assert_int_equal(third.hello->addresses.n, 2);
    assert_string_equal(((const struct msg_string *)third.hello->addresses.v)[1].s, "fe80::3");
    tick(c, 2200);
    assert_null(done(DO_DIAL)); /* once: the bus keeps at it */
    stop(c);
}

static void want(struct cluster *c, const char *id, u64 layer_bytes, u64 now) {
    static const u8 KEY[32] = {1};
    u64 layers[4] = {layer_bytes, layer_bytes, layer_bytes, layer_bytes};
    struct msg_propose p = {
        .id = 5,
        .kind = PROPOSE_WANT,
        .wanted = {
            .id = id,
            .model = "m",
            .first_node = "me",
            .key = {KEY, 32},
            .desc = {.n_layers = 4, .layer_bytes = {layers, 4}, .kv_bytes_per_token_layer = 64}}};
    cluster_step(c, &(struct cluster_input){.kind = CLUSTER_PROPOSE, .propose = &p}, now, &out);
}

static void an_instance_lives_and_fails_and_is_given_up(void **state) {
    (void)state;
    struct cluster *c = start(false);
    struct cluster_instance i;
    want(c, "i1", 1 << 20, 2000);
    const struct cluster_action *a = done(DO_ANSWER);
    assert_non_null(a);
    assert_int_equal(a->answer->code, ERR_NONE);
    assert_non_null(done(DO_START));
    u64 now = 2000;
    for (u32 try = 1; try <= CLUSTER_TRIES_MAX; try++) {
        assert_true(cluster_find_instance(c, "i1", &i));
        struct msg_runner f = {
            .instance = "i1", .place = i.placement->place, .status = RUNNER_READY};
        cluster_step(c, &(struct cluster_input){.kind = CLUSTER_RUNNER, .runner = &f}, now += 100,
                     &out);
        assert_true(cluster_find_instance(c, "i1", &i) && i.status == INSTANCE_READY);
        f.status = RUNNER_FAILED;
        f.code = ERR_NET;
        f.text = "it fell over";
        cluster_step(c, &(struct cluster_input){.kind = CLUSTER_RUNNER, .runner = &f}, now += 100,
                     &out);
        assert_non_null(done(DO_STOP));
        assert_true(cluster_find_instance(c, "i1", &i));
        assert_string_equal(i.text, "me: it fell over");
        for (u32 k = 0; k < 100 && !i.placement->place && !i.placement->gave_up; k++) {
            tick(c, now += 200);
            assert_true(cluster_find_instance(c, "i1", &i));
        }
        assert_int_equal(i.placement->tries, try);
    }
    assert_int_equal(i.status, INSTANCE_FAILED);
    struct msg_propose p = {.id = 6, .kind = PROPOSE_RELOAD, .wanted.id = "i1"};
    cluster_step(c, &(struct cluster_input){.kind = CLUSTER_PROPOSE, .propose = &p}, now += 100,
                 &out);
    assert_true(cluster_find_instance(c, "i1", &i));
    assert_true(i.placement->place != 0 && i.placement->tries == 0);
    stop(c);
}

/* A file that is on no node does not come back by trying: the asker hears it at once. */
static void what_no_worker_can_load_is_given_up_at_once(void **state) {
    (void)state;
    struct cluster *c = start(false);
    struct cluster_instance i;
    want(c, "i1", 1 << 20, 2000);
    assert_true(cluster_find_instance(c, "i1", &i));
    struct msg_runner f = {.instance = "i1",
                           .place = i.placement->place,
                           .status = RUNNER_FAILED,
                           .code = ERR_NOT_FOUND,
                           .text = "there is no such file"};
    cluster_step(c, &(struct cluster_input){.kind = CLUSTER_RUNNER, .runner = &f}, 2100, &out);
    assert_true(cluster_find_instance(c, "i1", &i));
    assert_true(i.placement->gave_up);
    assert_string_equal(i.text, "me: there is no such file");
    stop(c);
}

static void what_does_not_fit_is_refused_with_numbers(void **state) {
    (void)state;
    struct cluster *c = start(false);
    want(c, "i1", (u64)10 << 30, 2000);
    const struct cluster_action *a = done(DO_ANSWER);
    assert_non_null(a);
    assert_int_equal(a->answer->code, ERR_MEMORY);
    assert_non_null(strstr(a->answer->msg, "the cluster has 8.0 GiB free on 1 node (me 8.0 GiB)"));
    assert_int_equal(cluster_n_instances(c), 0);
    stop(c);
}

static void who_slept_leads_no_more(void **state) {
    (void)state;
    struct cluster *c = start(false);
    struct msg_hello h = hello_of("other", 90);
    greet(c, "other", &h, 2000);
    say(c, "other", MSG_HEARTBEAT, &(struct msg_heartbeat){.boot = h.boot, .seq = 1}, 2000);
    assert_string_equal(cluster_master(c), "me");
    tick(c, 9000);
    assert_string_equal(cluster_master(c), "");
    for (u64 t = 9200; t < 11900; t += 200) { /* listens before it claims anything */
        tick(c, t);
        assert_string_equal(cluster_master(c), "");
    }
    stop(c);
}

/* The master says yes and dies before its state has reached anybody. */
static void whoever_asked_remembers(void **state) {
    (void)state;
    struct cluster *c = start(true);
    struct msg_hello h = hello_of("other", 10);
    struct msg_heartbeat b = {.boot = h.boot,
                              .seq = 1,
                              .term = 3,
                              .hears_master = 1,
                              .claim = {.master = "other", .term = 3, .seniority = 10}};
    greet(c, "other", &h, 2000);
    say(c, "other", MSG_HEARTBEAT, &b, 2000);
    assert_string_equal(cluster_master(c), "other");
    want(c, "i1", 1 << 20, 2100);
    const struct cluster_action *a = sent(MSG_PROPOSE);
    assert_non_null(a);
    assert_string_equal(a->to, "other");
    assert_null(done(DO_ANSWER));
    say(c, "other", MSG_PROPOSED, &(struct msg_proposed){.id = 5, .instance = "i1"}, 2200);
    assert_non_null(done(DO_ANSWER));
    assert_true(out.save);
    assert_int_equal(cluster_n_instances(c), 1);
    stop(c);
}

static void the_saved_state_comes_back(void **state) {
    (void)state;
    struct cluster *c = start(false);
    struct str saved = {0};
    struct err e = {0};
    want(c, "i1", 1 << 20, 2000);
    want(c, "i2", 1 << 20, 2000);
    struct msg_propose p = {.id = 6, .kind = PROPOSE_UNWANT, .wanted.id = "i2"};
    cluster_step(c, &(struct cluster_input){.kind = CLUSTER_PROPOSE, .propose = &p}, 2100, &out);
    assert_true(out.save);
    cluster_save(c, &saved);
    stop(c);
    struct cluster_cfg cfg = {.id = "me", .hello = hello_of("me", 51)};
    c = cluster_new(&cfg, saved.p, saved.n, 9000, &e);
    assert_non_null(c);
    assert_int_equal(cluster_n_instances(c), 1);
    assert_int_equal(cluster_term(c), 1);
    cluster_step(c,
                 &(struct cluster_input){.kind = CLUSTER_MACHINE,
                                         .machine = {(u64)8 << 30, (u64)8 << 30, 0, 0}},
                 9000, &out);
    assert_non_null(done(DO_START));
    want(c, "i2", 1 << 20, 9100); /* what was deleted stays so */
    assert_int_equal(done(DO_ANSWER)->answer->code, ERR_NOT_FOUND);
    stop(c);
    for (size_t cut = 1; cut < saved.n;
         cut++) { /* half a file must not count: what it lacks would be taken for deleted */
        assert_null(cluster_new(&cfg, saved.p, cut, 9000, &e));
        assert_int_equal(e.code, ERR_FORMAT);
    }
    saved.p[saved.n - 1] ^= 1;
    assert_null(cluster_new(&cfg, saved.p, saved.n, 9000, &e));
    str_deinit(&saved);
}

static const struct cluster_event *event(enum cluster_event_kind kind) {
    for (u32 i = 0; i < out.n_events; i++)
        if (out.events[i].kind == kind) return &out.events[i];
    return NULL;
}

static void changes_are_told_as_events(void **state) {
    (void)state;
    struct cluster *c = start(false);
    assert_string_equal(event(EVENT_MASTER)->node, "me");
    want(c, "i1", 1 << 20, 2000);
    assert_string_equal(event(EVENT_INSTANCE_WANTED)->instance, "i1");
    assert_string_equal(event(EVENT_INSTANCE_PLACED)->text, "me layers 0-3");
    struct cluster_instance i;
    assert_true(cluster_find_instance(c, "i1", &i));
    struct msg_runner f = {.instance = "i1", .place = i.placement->place, .status = RUNNER_READY};
    cluster_step(c, &(struct cluster_input){.kind = CLUSTER_RUNNER, .runner = &f}, 2100, &out);
    assert_string_equal(event(EVENT_INSTANCE_READY)->model, "m");
    tick(c, 2200);
    assert_int_equal(out.n_events, 0);
    f.status = RUNNER_FAILED;
    f.text = "it fell over";
    cluster_step(c, &(struct cluster_input){.kind = CLUSTER_RUNNER, .runner = &f}, 2300, &out);
    assert_string_equal(event(EVENT_INSTANCE_UNPLACED)->text, "me: it fell over");
    struct msg_propose p = {.id = 6, .kind = PROPOSE_UNWANT, .wanted.id = "i1"};
    cluster_step(c, &(struct cluster_input){.kind = CLUSTER_PROPOSE, .propose = &p}, 2400, &out);
    assert_string_equal(event(EVENT_INSTANCE_DELETED)->model, "m");
    struct msg_hello h = hello_of("other", 90);
    struct msg_heartbeat b = {.boot = h.boot, .seq = 1};
    greet(c, "other", &h, 2500);
    say(c, "other", MSG_HEARTBEAT, &b, 2500);
    assert_string_equal(event(EVENT_NODE_JOINED)->node, "other");
    for (u64 t = 2700; t < 7500; t += 200) tick(c, t);
    tick(c, 7500);
    assert_string_equal(event(EVENT_NODE_LOST)->node, "other");
    b.seq++;
    say(c, "other", MSG_HEARTBEAT, &b, 7600);
    assert_string_equal(event(EVENT_NODE_RETURNED)->node, "other");
    h.cluster = "d";
    say(c, "other", MSG_HELLO, &h, 7700);
    assert_non_null(strstr(event(EVENT_NODE_REFUSED)->text, "'d'"));
    stop(c);
}

/* A node that makes a new id at every start does not lock others out. */
static void ids_that_came_and_went_make_room(void **state) {
    (void)state;
    struct cluster *c = start(false);
    u64 now = 2000;
    for (u32 i = 0; i < CLUSTER_NODES_MAX + 10; i++) {
        char id[16];
        snprintf(id, sizeof id, "n%u", i);
        struct msg_hello h = hello_of(id, 90 + i);
        greet(c, id, &h, now += 10);
        say(c, id, MSG_HEARTBEAT, &(struct msg_heartbeat){.boot = h.boot, .seq = 1}, now);
        assert_int_equal(member(c, id, now).state, MEMBER_LIVE);
        say(c, id, MSG_BYE, &(struct msg_reason){.text = "stopped"}, now);
        cluster_step(c, &(struct cluster_input){.kind = CLUSTER_PEER_DOWN, .peer = id}, now, &out);
        if (i % 100 == 0) tick(c, now += 300);
    }
    assert_true(cluster_n_members(c) <= CLUSTER_NODES_MAX);
    stop(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_node_alone_leads_at_once),
        cmocka_unit_test(with_peers_it_waits_for_them),
        cmocka_unit_test(another_protocol_is_refused_on_both_sides),
        cmocka_unit_test(being_refused_is_shown),
        cmocka_unit_test(another_cluster_is_refused),
        cmocka_unit_test(silence_and_goodbye_mean_lost),
        cmocka_unit_test(a_lost_node_can_be_forgotten),
        cmocka_unit_test(what_another_forgets_is_forgotten_here),
        cmocka_unit_test(an_overtaken_heartbeat_is_dropped),
        cmocka_unit_test(heartbeats_tell_the_wall_clock),
        cmocka_unit_test(what_a_peer_knows_is_dialled),
        cmocka_unit_test(an_instance_lives_and_fails_and_is_given_up),
        cmocka_unit_test(what_no_worker_can_load_is_given_up_at_once),
        cmocka_unit_test(what_does_not_fit_is_refused_with_numbers),
        cmocka_unit_test(who_slept_leads_no_more),
        cmocka_unit_test(whoever_asked_remembers),
        cmocka_unit_test(ids_that_came_and_went_make_room),
        cmocka_unit_test(changes_are_told_as_events),
        cmocka_unit_test(the_saved_state_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
