/* sim_test.c - stories in virtual time, each told with many seeds: `make sim SEEDS=400`.
 *
 * SEEDS: how many a story, from SEED (1) on. With SIM_TRACE=1 what the nodes log is printed: SEED
 * and SEEDS=1 then show one run alone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/test.h"
#include "sim.h"

static u32 failures;

#define CHECK(cond)                                                                        \
    do {                                                                                   \
        if (cond) break;                                                                   \
        printf("sim: %s:%d: seed %llu, t=%llu ms: %s\n", __FILE__, __LINE__,               \
               (unsigned long long)sim_seed(s), (unsigned long long)sim_now_ms(s), #cond); \
        failures++;                                                                        \
        return;                                                                            \
    } while (0)

#define SIM(name, ...)                                      \
    static void name(struct sim *s);                        \
    static const struct sim_cfg name##_cfg = {__VA_ARGS__}; \
    static void name(struct sim *s)

SIM(two_nodes_form_a_cluster, .nodes = 2, .delay_ms_max = 5) {
    sim_run_ms(s, 2000);
    CHECK(sim_settled(s, 3));
    CHECK(sim_n_members(s, 0, MEMBER_LIVE) == 1);
}

SIM(one_known_address_is_enough, .nodes = 6, .delay_ms_max = 20, .chain = true) {
    sim_run_ms(s, 8000);
    CHECK(sim_settled(s, 0x3f));
    for (u32 i = 0; i < 6; i++) CHECK(sim_n_members(s, i, MEMBER_LIVE) == 5);
}

SIM(elect_heals_after_partition, .nodes = 5, .loss_pct = 10, .delay_ms_max = 40) {
    sim_run_ms(s, 8000);
    CHECK(sim_settled(s, 0x1f));
    sim_cut(s, 0x03, 0x1c); /* {0,1} from {2,3,4} */
    sim_run_ms(s, 14000);
    CHECK(sim_masters(s, 0x1c) == 1);
    CHECK(sim_masters(s, 0x03) == 1);
    sim_heal(s);
    sim_run_ms(s, 10000);
    CHECK(sim_settled(s, 0x1f));
}

/* The part that kept the majority keeps its master, whoever was cut off. */
SIM(the_majority_keeps_its_master, .nodes = 5, .delay_ms_max = 10) {
    char before[80];
    sim_run_ms(s, 8000);
    str_copy(before, sizeof before, sim_master(s, 0));
    u32 alone = 0;
    while (strcmp(sim_master(s, 0), before) == 0 && alone < 5) { /* one that does not lead */
        u64 set = (u64)1 << alone;
        sim_cut(s, set, 0x1f & ~set);
        sim_run_ms(s, 12000);
        if (sim_masters(s, set) == 1 && sim_masters(s, 0x1f & ~set) == 1) {
            bool led = strcmp(before, sim_master(s, alone)) == 0;
            sim_heal(s);
            sim_run_ms(s, 8000);
            CHECK(sim_settled(s, 0x1f));
            if (!led) CHECK(strcmp(sim_master(s, 0), before) == 0);
            return;
        }
        sim_heal(s);
        sim_run_ms(s, 8000);
        alone++;
    }
    CHECK(alone < 5);
}

SIM(a_returning_master_follows, .nodes = 3, .delay_ms_max = 20) {
    char now[80];
    u32 was = 0;
    sim_run_ms(s, 6000);
    CHECK(sim_settled(s, 7));
    while (sim_masters(s, (u64)1 << was) == 0) was++;
    sim_crash(s, was);
    sim_run_ms(s, 8000);
    CHECK(sim_settled(s, 7 & ~((u64)1 << was)));
    str_copy(now, sizeof now, sim_master(s, (was + 1) % 3));
    sim_start(s, was);
    sim_run_ms(s, 8000);
    CHECK(sim_settled(s, 7));
    CHECK(strcmp(sim_master(s, was), now) == 0);
    for (u32 i = 0; i < 3; i++)
        CHECK(sim_n_members(s, i, MEMBER_LIVE) == 2 && sim_n_members(s, i, MEMBER_LOST) == 0);
}

SIM(a_stopped_master_follows_when_it_wakes, .nodes = 3, .delay_ms_max = 20) {
    u32 was = 0;
    sim_run_ms(s, 8000);
    while (sim_masters(s, (u64)1 << was) == 0) was++;
    sim_pause(s, was);
    sim_run_ms(s, 20000);
    char now[80];
    str_copy(now, sizeof now, sim_master(s, (was + 1) % 3));
    sim_resume(s, was);
    sim_run_ms(s, 8000);
    CHECK(sim_settled(s, 7));
    CHECK(strcmp(sim_master(s, was), now) == 0);
}

SIM(an_instance_gets_ready, .nodes = 3, .loss_pct = 5, .delay_ms_max = 30) {
    sim_run_ms(s, 6000);
    u32 a = sim_want(s, 1, 2, false);
    sim_run_ms(s, 10000);
    CHECK(sim_answer(s, a) == SIM_YES);
    CHECK(sim_settled(s, 7));
    for (u32 i = 0; i < 3; i++) CHECK(sim_ready(s, i) == 1);
    sim_unwant(s, 2, a);
    sim_run_ms(s, 5000);
    CHECK(sim_settled(s, 7));
    for (u32 i = 0; i < 3; i++) CHECK(sim_n_instances(s, i) == 0);
}

SIM(a_request_that_cannot_be_placed_is_refused, .nodes = 2, .delay_ms_max = 10,
    .memory_bytes = 1 << 30) {
    sim_run_ms(s, 5000);
    u32 a = sim_want(s, 0, 0, false), b = sim_want(s, 1, 3, false);
    sim_run_ms(s, 4000);
    CHECK(sim_answer(s, a) == SIM_NO && sim_answer(s, b) == SIM_NO);
    CHECK(sim_n_instances(s, 0) == 0 && sim_n_instances(s, 1) == 0);
}

SIM(a_lost_node_is_replaced, .nodes = 4, .loss_pct = 5, .delay_ms_max = 30) {
    sim_run_ms(s, 8000);
    u32 a = sim_want(s, 0, 2, false);
    sim_run_ms(s, 6000);
    CHECK(sim_answer(s, a) == SIM_YES);
    u32 victim = (u32)sim_random(s, 4);
    sim_crash(s, victim);
    sim_run_ms(s, 12000);
    u64 left = 0xf & ~((u64)1 << victim);
    CHECK(sim_settled(s, left));
    for (u32 i = 0; i < 4; i++) CHECK(i == victim || sim_ready(s, i) == 1);
}

SIM(failing_shards_are_tried_again, .nodes = 3, .delay_ms_max = 20, .runner_fail_pct = 30) {
    sim_run_ms(s, 6000);
    u32 a = sim_want(s, 0, 0, false);
    sim_run_ms(s, 90000);
    CHECK(sim_answer(s, a) == SIM_YES);
    CHECK(sim_settled(s, 7)); /* ready, or given up with a reason, but agreed */
    CHECK(sim_n_instances(s, 0) == 1);
}

SIM(wanted_instances_survive_a_full_restart, .nodes = 3, .delay_ms_max = 20) {
    sim_run_ms(s, 6000);
    u32 a = sim_want(s, 0, 3, false), b = sim_want(s, 1, 0, false), c = sim_want(s, 2, 0, true);
    sim_run_ms(s, 6000);
    CHECK(sim_ready(s, 0) == 3);
    sim_unwant(s, 0, b);
    sim_run_ms(s, 3000);
    for (u32 i = 0; i < 3; i++) sim_crash(s, i);
    sim_run_ms(s, 3000);
    for (u32 i = 0; i < 3; i++) sim_start(s, i);
    sim_run_ms(s, 10000);
    CHECK(sim_settled(s, 7));
    CHECK(sim_has(s, 0, a) && !sim_has(s, 0, b) && !sim_has(s, 0, c));
    CHECK(sim_ready(s, 0) == 1);
}

/* Both sides make the same instance for their requests, and one more each that a user wants. */
SIM(both_sides_of_a_partition_merge, .nodes = 4, .delay_ms_max = 20) {
    sim_run_ms(s, 8000);
    sim_cut(s, 0x3, 0xc);
    sim_run_ms(s, 14000);
    u32 a = sim_want(s, 0, 0, true), b = sim_want(s, 2, 0, true);
    u32 x = sim_want(s, 1, 0, false), y = sim_want(s, 3, 0, false);
    sim_run_ms(s, 6000);
    CHECK(sim_answer(s, a) == SIM_YES && sim_answer(s, b) == SIM_YES);
    sim_heal(s);
    sim_run_ms(s, 12000);
    CHECK(sim_settled(s, 0xf));
    CHECK(sim_has(s, 0, x) && sim_has(s, 0, y));
    CHECK(sim_n_instances(s, 0) == 3 && sim_ready(s, 0) == 3);
}

SIM(nodes_that_are_no_workers_get_no_shards, .nodes = 3, .delay_ms_max = 10, .workers = 1) {
    sim_run_ms(s, 6000);
    u32 a = sim_want(s, 2, 0, false), b = sim_want(s, 1, 2, false);
    sim_run_ms(s, 5000);
    CHECK(sim_answer(s, a) == SIM_YES && sim_answer(s, b) == SIM_NO);
    CHECK(sim_settled(s, 7));
}

/* It takes over, but not before it knows what runs; the runners stay the same ones. */
SIM(a_forced_master_takes_over_without_an_interruption, .nodes = 4, .delay_ms_max = 20,
    .force_master = 4) {
    sim_run_ms(s, 10000);
    CHECK(sim_settled(s, 0xf) && sim_masters(s, 8) == 1);
    sim_crash(s, 3);
    sim_run_ms(s, 8000);
    CHECK(sim_settled(s, 7));
    u32 a = sim_want(s, 0, 2, false);
    sim_run_ms(s, 6000);
    CHECK(sim_answer(s, a) == SIM_YES && sim_ready(s, 0) == 1);
    u64 place = sim_place(s, 0, a);
    sim_start(s, 3);
    sim_run_ms(s, 12000);
    CHECK(sim_settled(s, 0xf) && sim_masters(s, 8) == 1);
    CHECK(sim_place(s, 0, a) == place);
}

SIM(a_drained_node_gives_its_work_away, .nodes = 4, .loss_pct = 5, .delay_ms_max = 30) {
    sim_run_ms(s, 8000);
    u32 a = sim_want(s, 0, 2, false);
    sim_run_ms(s, 6000);
    CHECK(sim_answer(s, a) == SIM_YES && sim_ready(s, 0) == 1);
    u32 node = 0;
    while (!sim_runs(s, node, a)) node++;
    sim_drain(s, 3, node, true);
    for (u32 t = 0; t < 15000; t += 50) { /* ready at any time, in the view of who leads */
        sim_run_ms(s, 50);
        for (u32 i = 0; i < 4; i++) CHECK(!sim_masters(s, (u64)1 << i) || sim_ready(s, i) == 1);
    }
    CHECK(!sim_runs(s, node, a) && sim_settled(s, 0xf));
    for (u32 i = 0; i < 4; i++) sim_crash(s, i); /* it is drained still */
    for (u32 i = 0; i < 4; i++) sim_start(s, i);
    sim_run_ms(s, 15000);
    CHECK(sim_settled(s, 0xf) && sim_ready(s, 0) == 1 && !sim_runs(s, node, a));
    sim_drain(s, 0, node, false);
    sim_run_ms(s, 4000);
    u32 b = sim_want(s, node, 4, false);
    sim_run_ms(s, 8000);
    CHECK(sim_answer(s, b) == SIM_YES && sim_runs(s, node, b) && sim_settled(s, 0xf));
}

/* The whole model is on one node and needs both when the other leaves no room. */
SIM(a_drained_node_serves_until_there_is_room, .nodes = 2, .delay_ms_max = 20,
    .memory_bytes = (u64)3 << 30) {
    sim_run_ms(s, 8000);
    u32 a = sim_want(s, 0, 2, false);
    sim_run_ms(s, 6000);
    CHECK(sim_answer(s, a) == SIM_YES && sim_ready(s, 0) == 1);
    sim_drain(s, 0, 1, true);
    sim_run_ms(s, 20000);
    CHECK(sim_settled(s, 3) && sim_ready(s, 0) == 1 && sim_runs(s, 1, a));
}

SIM(a_returned_node_is_used_again_once, .nodes = 3, .delay_ms_max = 20) {
    sim_run_ms(s, 8000);
    u32 a = sim_want(s, 0, 0, false);
    sim_run_ms(s, 6000);
    CHECK(sim_answer(s, a) == SIM_YES && sim_ready(s, 0) == 1);
    u32 node = 1 + (u32)sim_random(s, 2);
    bool used = sim_runs(s, node, a);
    sim_crash(s, node);
    sim_run_ms(s, 10000);
    CHECK(sim_ready(s, 0) == 1);
    sim_start(s, node);
    sim_run_ms(s, 40000);
    CHECK(!sim_runs(s, node, a)); /* not at once */
    sim_run_ms(s, 60000);
    CHECK(sim_settled(s, 7) && sim_ready(s, 0) == 1 && sim_runs(s, node, a) == used);
    u64 place = sim_place(s, 0, a);
    sim_run_ms(s, 100000);
    CHECK(sim_place(s, 0, a) == place);
}

/* One part deletes more than it remembers by id; the other comes back with the oldest of them, and
 * with one that it has made meanwhile. */
SIM(what_was_deleted_long_ago_stays_so, .nodes = 4, .delay_ms_max = 3) {
    sim_run_ms(s, 8000);
    u32 old = sim_want(s, 0, 0, false), kept = sim_want(s, 0, 0, false);
    sim_run_ms(s, 4000);
    CHECK(sim_answer(s, old) == SIM_YES && sim_answer(s, kept) == SIM_YES);
    sim_cut(s, 0x8, 0x7);
    sim_run_ms(s, 15000);
    CHECK(sim_has(s, 3, old) && sim_masters(s, 8) == 1);
    u32 own = sim_want(s, 3, 0, false);
    sim_unwant(s, 0, old);
    sim_run_ms(s, 1000);
    for (u32 i = 0; i < CLUSTER_GONE_MAX + 10; i += 20) {
        u32 first = sim_want(s, 0, 0, false);
        for (u32 k = 1; k < 20; k++) sim_want(s, 0, 0, false);
        sim_run_ms(s, 100);
        for (u32 k = 0; k < 20; k++) {
            CHECK(sim_answer(s, first + k) == SIM_YES);
            sim_unwant(s, 0, first + k);
        }
        sim_run_ms(s, 100);
    }
    sim_heal(s);
    sim_run_ms(s, 15000);
    CHECK(sim_settled(s, 0xf));
    for (u32 i = 0; i < 4; i++)
        CHECK(!sim_has(s, i, old) && sim_has(s, i, kept) && sim_has(s, i, own));
}

/* Anything, at any time; then peace, and everything must be in order. */
SIM(chaos, .nodes = 5, .loss_pct = 15, .dup_pct = 5, .delay_ms_max = 80, .runner_fail_pct = 5) {
    u32 wishes[8], n = 0;
    sim_run_ms(s, 3000 + sim_random(s, 4000));
    for (u32 round = 0; round < 30; round++) {
        u32 node = (u32)sim_random(s, 5);
        switch (sim_random(s, 10)) {
        case 0: sim_crash(s, node); break;
        case 9: sim_crash_in_save(s, node); break;
        case 1:
        case 2:
            if (!sim_is_up(s, node)) sim_start(s, node);
            break;
        case 3: sim_cut(s, 1 + sim_random(s, 30), sim_random(s, 32)); break;
        case 4: sim_heal(s); break;
        case 5: sim_pause(s, node); break;
        case 6: sim_resume(s, node); break;
        case 7:
            if (n < 8) wishes[n++] = sim_want(s, node, (u32)sim_random(s, 3), sim_random(s, 2));
            break;
        case 8:
            if (n && sim_answer(s, wishes[n - 1]) == SIM_YES) sim_unwant(s, node, wishes[--n]);
            break;
        }
        sim_run_ms(s, sim_random(s, 4000));
    }
    sim_heal(s);
    for (u32 i = 0; i < 5; i++) {
        sim_resume(s, i);
        if (!sim_is_up(s, i)) sim_start(s, i);
    }
    sim_run_ms(s, 40000);
    CHECK(sim_settled(s, 0x1f));
}

#define STORY(name, weight) \
    { #name, name, &name##_cfg, weight }
static struct story {
    const char *name;
    void (*tell)(struct sim *s);
    const struct sim_cfg *cfg;
    u32 weight; /* seeds, relative; 0: one, whatever is asked for */
} STORIES[] = {
    STORY(two_nodes_form_a_cluster, 1),
    STORY(one_known_address_is_enough, 1),
    STORY(elect_heals_after_partition, 1),
    STORY(the_majority_keeps_its_master, 1),
    STORY(a_returning_master_follows, 1),
    STORY(a_stopped_master_follows_when_it_wakes, 1),
    STORY(an_instance_gets_ready, 1),
    STORY(a_request_that_cannot_be_placed_is_refused, 1),
    STORY(a_lost_node_is_replaced, 1),
    STORY(failing_shards_are_tried_again, 1),
    STORY(wanted_instances_survive_a_full_restart, 1),
    STORY(both_sides_of_a_partition_merge, 1),
    STORY(nodes_that_are_no_workers_get_no_shards, 1),
    STORY(a_forced_master_takes_over_without_an_interruption, 1),
    STORY(a_drained_node_gives_its_work_away, 1),
    STORY(a_drained_node_serves_until_there_is_room, 1),
    STORY(a_returned_node_is_used_again_once, 1),
    STORY(what_was_deleted_long_ago_stays_so, 0),
    STORY(chaos, 4),
};

static u64 setting(const char *name, u64 otherwise) {
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

static void tell_story(void **state) {
    const struct story *story = *state;
    u64 first = setting("SEED", 1), n = setting("SEEDS", 20), sent = 0;
    failures = 0;
    if (n > 1) n = story->weight ? n * story->weight : 1;
    for (u64 k = 0; k < n; k++) {
        struct sim *s = sim_new(story->cfg, first + k);
        story->tell(s);
        sent += sim_n_sent(s);
        failures += sim_broken(s);
        sim_free(s);
    }
    printf("sim: %s: seeds %llu to %llu, %llu messages\n", story->name, (unsigned long long)first,
           (unsigned long long)(first + n - 1), (unsigned long long)sent);
    assert_int_equal(failures, 0);
}

static void the_same_seed_gives_the_same_run(void **state) {
    (void)state;
    u64 sent[2];
    for (int i = 0; i < 2; i++) {
        struct sim *s = sim_new(&chaos_cfg, 7);
        chaos(s);
        sent[i] = sim_n_sent(s);
        sim_free(s);
    }
    assert_int_equal(sent[0], sent[1]);
}

int main(void) {
    struct CMUnitTest tests[ARRAY_LEN(STORIES) + 1];
    for (u32 i = 0; i < ARRAY_LEN(STORIES); i++)
        tests[i] = (struct CMUnitTest){
            .name = STORIES[i].name, .test_func = tell_story, .initial_state = &STORIES[i]};
    tests[ARRAY_LEN(STORIES)] =
        (struct CMUnitTest)cmocka_unit_test(the_same_seed_gives_the_same_run);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
