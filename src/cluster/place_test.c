#include "cluster/place.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "base/test.h"

enum { MAX_LAYERS = 12, MAX_NODES = 5 };

static const u64 EVEN[30] = {100, 100, 100, 100, 100, 100, 100, 100, 100, 100,
                             100, 100, 100, 100, 100, 100, 100, 100, 100, 100,
                             100, 100, 100, 100, 100, 100, 100, 100, 100, 100};

static void check_shape(const struct place_model *m, const struct place_rank *r, u32 n) {
    u32 at = 0;
    u64 sum = 0;
    for (u32 i = 0; i < n; i++) {
        assert_int_equal(r[i].layer_first, at);
        assert_true(r[i].layer_end > at);
        at = r[i].layer_end;
        sum += r[i].weights_bytes;
    }
    assert_int_equal(at, m->n_layers);
    for (u32 i = 0; i < m->n_layers; i++) sum -= m->layer_bytes[i];
    assert_int_equal(sum, m->embed_bytes + m->head_bytes);
}

static void equal_nodes_get_equal_work(void **state) {
    (void)state;
    struct place_model m = {.n_layers = 30, .layer_bytes = EVEN};
    struct place_node nodes[3] = {{"a", 10000, 4}, {"b", 10000, 4}, {"c", 10000, 4}};
    struct place_rank r[3];
    u32 n = 0;
    struct err e = {0};
    assert_true(place_pipeline(&m, nodes, 3, 0, r, &n, &e));
    assert_int_equal(n, 3);
    check_shape(&m, r, n);
    for (u32 i = 0; i < 3; i++) assert_int_equal(r[i].layer_end - r[i].layer_first, 10);

    m.head_bytes = 600; /* as heavy as six layers, on the last rank */
    assert_true(place_pipeline(&m, nodes, 3, 0, r, &n, &e));
    check_shape(&m, r, n);
    assert_int_equal(r[2].layer_end - r[2].layer_first, 6);
}

static void a_slow_node_gets_a_thin_share(void **state) {
    (void)state;
    struct place_model m = {.n_layers = 30, .layer_bytes = EVEN};
    struct place_node nodes[2] = {{"fast", 10000, 8}, {"slow", 10000, 2}};
    struct place_rank r[2];
    u32 n;
    assert_true(place_pipeline(&m, nodes, 2, 0, r, &n, NULL));
    assert_int_equal(r[0].layer_end, 24);
}

static void memory_limits_a_fast_node(void **state) {
    (void)state;
    struct place_model m = {
        .n_layers = 30, .layer_bytes = EVEN, .kv_bytes_per_layer = 20, .scratch_bytes = 40};
    struct place_node nodes[2] = {{"fast", 640, 8}, {"large", 10000, 1}};
    struct place_rank r[2];
    u32 n;
    assert_true(place_pipeline(&m, nodes, 2, 0, r, &n, NULL));
    assert_int_equal(r[0].layer_end, 5); /* 5 * (100 + 20) + 40 = 640 */
    assert_int_equal(r[0].need_bytes, 640);
    nodes[0].budget_bytes = 639;
    assert_true(place_pipeline(&m, nodes, 2, 0, r, &n, NULL));
    assert_int_equal(r[0].layer_end, 4);
}

static void nodes_in_the_way_are_left_out(void **state) {
    (void)state;
    struct place_model m = {.n_layers = 30, .layer_bytes = EVEN};
    struct place_node nodes[3] = {{"tiny", 50, 1}, {"a", 2000, 4}, {"b", 2000, 4}};
    struct place_rank r[3];
    u32 n;
    struct err e = {0};
    assert_true(place_pipeline(&m, nodes, 3, 0, r, &n, &e));
    assert_int_equal(n, 2);
    assert_int_equal(r[0].node, 1);
    assert_false(place_pipeline(&m, nodes, 3, 3, r, &n, &e)); /* three were asked for */
    assert_int_equal(e.code, ERR_MEMORY);
}

static void refusals_say_what_is_missing(void **state) {
    (void)state;
    u64 big[4] = {(u64)10 << 30, (u64)10 << 30, (u64)10 << 30, (u64)10 << 30};
    struct place_model m = {.n_layers = 4, .layer_bytes = big};
    struct place_node nodes[2] = {{"left", (u64)16 << 30, 1}, {"right", (u64)8 << 30, 1}};
    struct place_rank r[2];
    u32 n;
    struct err e = {0};
    assert_false(place_pipeline(&m, nodes, 2, 0, r, &n, &e));
    assert_int_equal(e.code, ERR_MEMORY);
    assert_string_equal(
        e.msg, "needs 40.0 GiB, the cluster has 24.0 GiB free on 2 nodes (left 16.0 GiB, right "
               "8.0 GiB): use a smaller quantization or context, or add a node");
    assert_false(place_pipeline(&m, nodes, 2, 3, r, &n, &e));
    assert_int_equal(e.code, ERR_BUSY);
    assert_string_equal(e.msg, "needs 3 nodes, 2 are there: start more with `skein up`");
    assert_false(place_pipeline(&m, nodes, 0, 0, r, &n, &e));
    assert_string_equal(e.msg, "no worker node is there");
    struct place_node many[5] = {{"a", 1, 1}, {"b", 1, 1}, {"c", 1, 1}, {"d", 1, 1}, {"e", 1, 1}};
    assert_false(place_pipeline(&m, many, 5, 5, r, &n, &e));
    assert_int_equal(e.code, ERR_ARG);
}

/* The slowest stage of the best cut by trying all of them; infinity when none fits. */
static double brute(const struct place_model *m, const struct place_node *nodes, u32 n, u32 rank,
                    u32 first) {
    double best = INFINITY;
    for (u32 end = first + 1; end <= m->n_layers; end++) {
        if (rank + 1 == n && end != m->n_layers) continue;
        u64 weights = 0;
        for (u32 i = first; i < end; i++) weights += m->layer_bytes[i];
        if (rank + 1 == n) weights += m->head_bytes;
        u64 need = weights + (rank == 0 ? m->embed_bytes : 0) +
                   (end - first) * m->kv_bytes_per_layer + m->scratch_bytes;
        if (need > nodes[rank].budget_bytes) continue;
        double t = (double)weights / nodes[rank].speed;
        if (rank + 1 < n) t = fmax(t, brute(m, nodes, n, rank + 1, end));
        best = fmin(best, t);
    }
    return best;
}

static double slowest(const struct place_model *m, const struct place_node *nodes,
                      const struct place_rank *r, u32 n) {
    double t = 0;
    for (u32 i = 0; i < n; i++) {
        assert_true(r[i].need_bytes <= nodes[r[i].node].budget_bytes);
        t = fmax(t, (double)(r[i].weights_bytes - (i == 0 ? m->embed_bytes : 0)) /
                        nodes[r[i].node].speed);
    }
    return t;
}

static void the_cut_is_the_best_one(void **state) {
    (void)state;
    u32 n_fit = 0;
    for (u64 seed = 1; seed <= 400; seed++) {
        u64 k = 0, layers[MAX_LAYERS];
        struct place_node nodes[MAX_NODES];
        struct place_rank r[MAX_NODES];
        u32 n_nodes = 1 + (u32)(random_at(seed, k++) % MAX_NODES), n;
        struct place_model m = {
            .n_layers = n_nodes + (u32)(random_at(seed, k++) % (MAX_LAYERS - n_nodes + 1)),
            .layer_bytes = layers};
        for (u32 i = 0; i < m.n_layers; i++) layers[i] = 1 + random_at(seed, k++) % 100;
        for (u32 i = 0; i < n_nodes; i++, k += 2)
            nodes[i] = (struct place_node){"n", 100 + random_at(seed, k) % 900,
                                           1 + (double)(random_at(seed, k + 1) % 8)};
        m.embed_bytes = random_at(seed, k++) % 100;
        m.head_bytes = random_at(seed, k++) % 100;
        m.kv_bytes_per_layer = random_at(seed, k++) % 20;
        double best = brute(&m, nodes, n_nodes, 0, 0);
        bool ok = place_pipeline(&m, nodes, n_nodes, n_nodes, r, &n, NULL);
        if (ok != isfinite(best))
            fail_msg("seed %llu: %s", (unsigned long long)seed, ok ? "placed" : "refused");
        if (!ok) continue;
        n_fit++;
        check_shape(&m, r, n);
        assert_int_equal(n, n_nodes);
        if (fabs(slowest(&m, nodes, r, n) - best) > 1e-9)
            fail_msg("seed %llu: not the best", (unsigned long long)seed);
    }
    assert_true(n_fit > 50 && n_fit < 400);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_nodes_get_equal_work),
        cmocka_unit_test(a_slow_node_gets_a_thin_share),
        cmocka_unit_test(memory_limits_a_fast_node),
        cmocka_unit_test(nodes_in_the_way_are_left_out),
        cmocka_unit_test(refusals_say_what_is_missing),
        cmocka_unit_test(the_cut_is_the_best_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
