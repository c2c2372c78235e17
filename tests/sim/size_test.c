/* size_test.c - how long n nodes that start at once take to agree, what they send each other while
 * they do and afterwards, and what a node costs. SIZES="2 8 32 128 512 1000" tells which; by itself
 * only what a few seconds allow. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/test.h"
#include "sim.h"

enum { STEP_MS = 100, LIMIT_MS = 60000, IDLE_MS = 10000 };

/* All see all, and one is the master. */
static bool is_formed(struct sim *s, u32 n) {
    for (u32 i = 0; i < n; i++)
        if (sim_n_live(s, i) != n) return false;
    return sim_masters(s, UINT64_MAX) == 1 && sim_agree(s, UINT64_MAX);
}

static void measure(u32 n, bool chain) {
    struct sim_cfg cfg = {.nodes = n, .delay_ms_max = 10, .chain = chain};
    struct sim *s = sim_new(&cfg, 1);
    while (!is_formed(s, n) && sim_now_ms(s) < LIMIT_MS) sim_run_ms(s, STEP_MS);
    u64 formed_ms = sim_now_ms(s), sent = sim_n_sent(s);
    assert_true(formed_ms < LIMIT_MS);
    sim_run_ms(s, 5000); /* let it settle */
    struct sim_traffic before = sim_traffic(s);
    u64 start_ms = clock_ms();
    sim_run_ms(s, IDLE_MS);
    double cpu_s = (double)(clock_ms() - start_ms) / 1000;
    struct sim_traffic after = sim_traffic(s);
    double node_s = (double)n * IDLE_MS / 1000;
    printf("sim: size %4u %-8s: agreed after %5.1f s and %7.0f messages a node; then %6.1f "
           "messages and %7.0f bytes a node and second, %5.2f %% of this core\n",
           n, chain ? "one peer" : "all", (double)formed_ms / 1000, (double)sent / n,
           (double)(after.messages - before.messages) / node_s,
           (double)(after.bytes - before.bytes) / node_s, 100 * cpu_s / node_s);
    assert_false(sim_broken(s));
    sim_free(s);
}

static void clusters_of_any_size_agree(void **state) {
    (void)state;
    const char *text = getenv("SIZES");
    char *end;
    for (text = text && *text ? text : "2 8 32 100"; *text; text = end) {
        u32 n = (u32)strtoul(text, &end, 10);
        if (end == text || n < 2) break;
        measure(n, false);
        measure(n, true);
    }
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    const struct CMUnitTest tests[] = {cmocka_unit_test(clusters_of_any_size_agree)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
