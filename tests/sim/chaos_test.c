/* chaos_test.c - anything at any time, to clusters of 2 to 100 nodes, then peace, and everything
 * must be in order. What happens follows from a seed.
 *
 * By itself 500 fixed seeds and 500 fresh ones, whose first is printed; SEEDS=N: N of each. SEED=S
 * SEEDS=1 SIM_TRACE=1 tells one of them again, with what the nodes log. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/random.h"
#include "base/test.h"
#include "sim.h"

enum { PROCESSES = 2, WISHES = 12, ROUNDS = 14, PEACE_MS = 35000, LEADER_MS = 45000 };

static u64 setting(const char *name, u64 otherwise) {
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

struct chaos {
    struct sim *s;
    u32 n;
    u32 wishes[WISHES], n_wishes;
};

static u32 pick(struct chaos *k) {
    return (u32)sim_random(k->s, k->n);
}

static void want_or_not(struct chaos *k) {
    struct sim *s = k->s;
    if (k->n_wishes < WISHES && sim_random(s, 3)) {
        u32 min_nodes = (u32)sim_random(s, MIN(k->n, 4));
        k->wishes[k->n_wishes++] = sim_want(s, pick(k), min_nodes, sim_random(s, 3) == 0);
    } else if (k->n_wishes) {
        u32 i = (u32)sim_random(s, k->n_wishes);
        if (sim_answer(s, k->wishes[i]) == SIM_YES) {
            sim_unwant(s, pick(k), k->wishes[i]);
            k->wishes[i] = k->wishes[--k->n_wishes];
        }
    }
}

static void something(struct chaos *k) {
    struct sim *s = k->s;
    u32 node = pick(k);
    switch (sim_random(s, 13)) {
    case 0: sim_crash(s, node); break;
    case 1: sim_crash_in_save(s, node); break;
    case 2:
    case 3:
    case 4:
        for (u32 i = 0; i <= k->n / 4; i++) {
            u32 other = (node + i) % k->n;
            if (!sim_is_up(s, other)) sim_start(s, other);
        }
        break;
    case 5: sim_split(s, 2 + (u32)sim_random(s, 2)); break;
    case 6: sim_cut(s, sim_random(s, ~(u64)0), sim_random(s, ~(u64)0)); break; /* not into parts */
    case 7: sim_heal(s); break;
    case 8: sim_pause(s, node); break;
    case 9: sim_resume(s, node); break;
    case 10: sim_drain(s, node, pick(k), sim_random(s, 2)); break;
    default: want_or_not(k); break;
    }
}

/* Everybody goes on, in as many parts as there are. */
static void revive(struct chaos *k) {
    for (u32 i = 0; i < k->n; i++) {
        sim_resume(k->s, i);
        if (!sim_is_up(k->s, i)) sim_start(k->s, i);
    }
}

/* Each part finds a master, however bad the network. */
static bool parts_find_masters(struct chaos *k) {
    sim_heal(k->s);
    sim_split(k->s, 1 + (u32)sim_random(k->s, 3));
    revive(k);
    for (u32 t = 0; t < LEADER_MS && !sim_parts_have_masters(k->s); t += 250) sim_run_ms(k->s, 250);
    if (sim_parts_have_masters(k->s)) return true;
    printf("sim: seed %llu, t=%llu ms: a part has not one master after %u s\n",
           (unsigned long long)sim_seed(k->s), (unsigned long long)sim_now_ms(k->s),
           LEADER_MS / 1000);
    return false;
}

static u32 size_of(u64 seed) {
    u64 r = random_at(seed, 1) % 1000, x = random_at(seed, 2);
    if (r < 700) return 2 + (u32)(x % 4);
    if (r < 900) return 6 + (u32)(x % 5);
    if (r < 980) return 11 + (u32)(x % 8);
    if (r < 995) return 19 + (u32)(x % 22);
    return 50 + (u32)(x % 51);
}

static bool survive(u64 seed) {
    u32 n = size_of(seed);
    struct sim_cfg cfg = {.nodes = n,
                          .loss_pct = (u32)(random_at(seed, 3) % 16),
                          .dup_pct = (u32)(random_at(seed, 4) % 6),
                          .delay_ms_max = 1 + (u32)(random_at(seed, 5) % 120),
                          .runner_fail_pct = (u32)(random_at(seed, 6) % 8),
                          .chain = random_at(seed, 7) % 4 == 0,
                          .memory_bytes = random_at(seed, 8) % 2 ? (u64)5 << 30 : 0,
                          .workers = random_at(seed, 9) % 8 ? 0 : 1 + (u32)(seed % n),
                          .clock_skew = true,
                          .force_master =
                              random_at(seed, 10) % 6 ? 0 : 1 + (u32)(random_at(seed, 11) % n)};
    struct chaos k = {.s = sim_new(&cfg, seed), .n = n};
    u32 rounds = n > 40 ? ROUNDS / 2 : ROUNDS;
    bool ok = true;
    sim_run_ms(k.s, sim_random(k.s, 6000));
    for (u32 round = 0; round < rounds && ok && !sim_broken(k.s); round++) {
        for (u64 i = 0; i <= n / 8; i++) something(&k);
        sim_run_ms(k.s, sim_random(k.s, 4000));
        /* In a chain a new node may be cut off from the only one it was told of. */
        if (round == rounds / 2 && !cfg.chain) ok = parts_find_masters(&k);
    }
    sim_heal(k.s);
    sim_calm(k.s);
    revive(&k);
    sim_run_ms(k.s, PEACE_MS);
    ok = ok && sim_settled(k.s, ~(u64)0) && !sim_broken(k.s);
    sim_free(k.s);
    return ok;
}

/* By several processes: true when all of them survived. */
static bool survive_all(u64 first, u64 n) {
    pid_t pids[PROCESSES];
    bool ok = true;
    fflush(stdout);
    for (u32 p = 0; p < PROCESSES; p++) {
        pids[p] = fork();
        if (pids[p] != 0) continue;
        bool all = true;
        for (u64 k = p; k < n; k += PROCESSES) all = survive(first + k) && all;
        fflush(stdout);
        _exit(all ? 0 : 1);
    }
    for (u32 p = 0; p < PROCESSES; p++) {
        int status = -1;
        ok = pids[p] > 0 && waitpid(pids[p], &status, 0) == pids[p] && status == 0 && ok;
    }
    printf("sim: chaos: seeds %llu to %llu: %s\n", (unsigned long long)first,
           (unsigned long long)(first + n - 1), ok ? "in order" : "broken");
    return ok;
}

static void fixed_seeds(void **state) {
    (void)state;
    assert_true(survive_all(setting("SEED", 1), setting("SEEDS", 500)));
}

static void fresh_seeds(void **state) {
    (void)state;
    if (setting("SEED", 0)) return; /* those were asked for */
    u64 first = random_u64() >> 24;
    printf("sim: fresh seeds from %llu\n", (unsigned long long)first);
    assert_true(survive_all(first, setting("SEEDS", 500)));
}

static void the_same_seed_is_the_same_run(void **state) {
    (void)state;
    struct sim_traffic t[2];
    for (u32 i = 0; i < 2; i++) {
        struct sim_cfg cfg = {.nodes = 7, .loss_pct = 10, .delay_ms_max = 50, .clock_skew = true};
        struct chaos k = {.s = sim_new(&cfg, 77), .n = 7};
        for (u32 round = 0; round < 30; round++) {
            something(&k);
            sim_run_ms(k.s, 1000);
        }
        t[i] = sim_traffic(k.s);
        sim_free(k.s);
    }
    assert_int_equal(t[0].messages, t[1].messages);
    assert_int_equal(t[0].bytes, t[1].bytes);
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_seed_is_the_same_run),
        cmocka_unit_test(fixed_seeds),
        cmocka_unit_test(fresh_seeds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
