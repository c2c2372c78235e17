#include "cluster/place.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "base/test.h"
#include "cluster/place_impl.h"

enum { MAX_LAYERS = 80, MAX_NODES = 60 };

/* A question with everything it points to. */
struct made {
    struct place_ask q;
    struct msg_model m;
    struct msg_layer_cost kind;
    u64 bytes[MAX_LAYERS], kinds[MAX_LAYERS];
    struct place_node nodes[MAX_NODES];
    struct place_link links[MAX_NODES * MAX_NODES];
    char names[MAX_NODES][8];
    struct arena mem;
};

/* Layers of 120 bytes on nodes that read one byte a second, with free links. */
static struct made *make(u32 n_layers, u32 n_nodes) {
    static struct made d;
    arena_deinit(&d.mem);
    d = (struct made){.m = {.n_layers = n_layers, .n_vocab = 3200, .dim = 64}};
    for (u32 i = 0; i < n_layers; i++) d.bytes[i] = 120;
    d.m.layer_bytes = (struct wire_u64s){d.bytes, n_layers};
    for (u32 i = 0; i < n_nodes; i++) {
        snprintf(d.names[i], sizeof d.names[i], "n%u", i);
        d.nodes[i] = (struct place_node){.name = d.names[i],
                                         .budget_bytes = 1000000,
                                         .read_bytes_s = 1,
                                         .ops_s = 1e18,
                                         .machine = i};
    }
    for (u32 i = 0; i < n_nodes * n_nodes; i++) d.links[i] = (struct place_link){0, 1e18};
    d.q = (struct place_ask){.model = &d.m,
                             .nodes = d.nodes,
                             .n_nodes = n_nodes,
                             .links = d.links,
                             .n_ctx = 2,
                             .n_batch = 1,
                             .n_prompt = 1};
    return &d;
}

static void shape(struct made *d, u32 heads, u32 kv_heads, u32 ff, u32 step) {
    d->kind = (struct msg_layer_cost){
        .attn_bytes = 40, .ffn_bytes = 80, .attn_ops = 80, .ffn_ops = 160, .n_sums = 2};
    d->m.shape = (struct msg_shape){.n_heads = heads,
                                    .n_kv_heads = kv_heads,
                                    .head_dim_k = 16,
                                    .head_dim_v = 16,
                                    .n_ff = ff,
                                    .ff_step = step,
                                    .kinds = {&d->kind, 1},
                                    .layer_kind = {d->kinds, d->m.n_layers}};
}

static struct place_plan best_of(struct made *d) {
    struct place_plan p = {0};
    struct err e = {0};
    if (!place_best(&d->q, &d->mem, &p, &e)) fail_msg("%s", e.msg);
    return p;
}

/* Everything is there exactly once, nobody is above its memory, and place_check agrees. */
static void check_plan(struct made *d, const struct place_plan *p) {
    const struct msg_shape *s = &d->m.shape;
    u32 at = 0, end = 0;
    for (u32 i = 0; i < p->n_ranks; i++) {
        const struct place_rank *r = &p->ranks[i];
        assert_true(r->tp_ranks >= 1 && r->tp_first <= i && i < r->tp_first + r->tp_ranks);
        assert_true(d->q.force || r->need_bytes <= d->nodes[r->node].budget_bytes);
        for (u32 k = 0; k < i; k++) assert_int_not_equal(p->ranks[k].node, r->node);
        if (r->tp_first == i) {
            assert_int_equal(r->layer_first, end);
            end = r->layer_end;
        } else {
            assert_int_equal(r->layer_end, end);
            assert_int_equal(r->layer_first, p->ranks[i - 1].layer_first);
        }
        if (r->tp_ranks < 2) continue;
        const struct msg_slice *c = &r->slice, *b = r->tp_first == i ? &(struct msg_slice){0}
                                                                     : &p->ranks[i - 1].slice;
        assert_true(c->head_first == b->head_end && c->head_end > c->head_first);
        assert_true(c->ff_first == b->ff_end && c->ff_end > c->ff_first);
        assert_true(c->vocab_first == b->vocab_end && c->vocab_end > c->vocab_first);
        assert_true(c->ff_end % s->ff_step == 0 || c->ff_end == s->n_ff);
        at = r->tp_first + r->tp_ranks;
        if (i + 1 < at) continue;
        assert_int_equal(c->head_end, s->n_heads);
        assert_int_equal(c->ff_end, s->n_ff);
        assert_int_equal(c->vocab_end, d->m.n_vocab);
    }
    assert_int_equal(end, d->m.n_layers);
    struct err e = {0};
    struct place_rank copy[MAX_NODES];
    memcpy(copy, p->ranks, p->n_ranks * sizeof *copy);
    if (!place_check(&d->q, copy, p->n_ranks, &d->mem, &e)) fail_msg("%s", e.msg);
    assert_memory_equal(copy, p->ranks, p->n_ranks * sizeof *copy);
}

static void one_node_is_enough_when_it_is_fastest(void **state) {
    (void)state;
    struct made *d = make(30, 3);
    d->nodes[1].read_bytes_s = 2;
    d->q.sharding = SHARDING_PIPELINE;
    struct place_plan p = best_of(d);
    check_plan(d, &p);
    assert_int_equal(p.n_ranks, 1);
    assert_int_equal(p.ranks[0].node, 1);
    assert_int_equal(p.sharding, SHARDING_PIPELINE);
}

static void memory_asks_for_more_nodes(void **state) {
    (void)state;
    struct made *d = make(30, 3);
    d->nodes[1].read_bytes_s = 2;
    d->m.kv_bytes_per_token_layer = 10;
    d->q.kv_tokens = 2;
    d->q.scratch_bytes = 40;
    d->nodes[1].budget_bytes = 5 * 140 + 40;
    struct place_plan p = best_of(d);
    check_plan(d, &p);
    assert_int_equal(p.n_ranks, 2); /* the fast one takes what it can hold */
    u32 fast = p.ranks[0].node == 1 ? 0 : 1;
    assert_int_equal(p.ranks[fast].layer_end - p.ranks[fast].layer_first, 5);
    assert_int_equal(p.ranks[fast].need_bytes, 740);
    d->nodes[1].budget_bytes--;
    p = best_of(d);
    fast = p.ranks[0].node == 1 ? 0 : 1;
    assert_int_equal(p.ranks[fast].layer_end - p.ranks[fast].layer_first, 4);
    d->q.force = true;
    assert_int_equal(best_of(d).n_ranks, 1);
}

/* Of nodes that are nearly alike, a split that somebody asked for is a real one. */
static void a_split_is_even_where_that_costs_little(void **state) {
    (void)state;
    struct made *d = make(30, 2);
    d->q.sharding = SHARDING_PIPELINE;
    d->q.min_nodes = 2;
    d->nodes[1].read_bytes_s = 1.1;
    struct place_plan p =
        best_of(d); /* by the time per token alone the fast one takes nearly all */
    assert_int_equal(MAX(p.ranks[0].layer_end, 30 - p.ranks[0].layer_end), 29);
    d->q.balance = 0.1;
    p = best_of(d);
    check_plan(d, &p);
    assert_in_range(p.ranks[0].layer_end, 13, 17);
    d->nodes[1].read_bytes_s = 10; /* far from alike */
    p = best_of(d);
    assert_true(MAX(p.ranks[0].layer_end, 30 - p.ranks[0].layer_end) >= 28);
    d->q.min_nodes = 0;
    assert_int_equal(best_of(d).n_ranks, 1);
}

static void throughput_balances_stages(void **state) {
    (void)state;
    struct made *d = make(30, 3);
    d->q.goal = GOAL_THROUGHPUT;
    d->q.n_batch = 8;
    d->q.sharding = SHARDING_PIPELINE;
    /* Where memory is the limit, requests that share a step cost nothing: one node does as well. */
    assert_int_equal(best_of(d).n_ranks, 1);
    for (u32 i = 0; i < 3; i++) d->nodes[i].ops_s = 4;
    struct place_plan p = best_of(d);
    check_plan(d, &p);
    assert_int_equal(p.n_ranks, 3);
    for (u32 i = 0; i < 3; i++) assert_int_equal(p.ranks[i].layer_end - p.ranks[i].layer_first, 10);
    d->nodes[0].read_bytes_s = 4;
    d->nodes[0].ops_s = 16;
    p = best_of(d);
    for (u32 i = 0; i < 3; i++)
        assert_int_equal(p.ranks[i].layer_end - p.ranks[i].layer_first,
                         p.ranks[i].node == 0 ? 20 : 5);
}

static void tensor_shares_follow_speed(void **state) {
    (void)state;
    struct made *d = make(4, 3);
    shape(d, 128, 128, 1024, 32);
    d->q.sharding = SHARDING_TENSOR;
    d->q.min_nodes = 3;
    struct place_plan p = best_of(d);
    check_plan(d, &p);
    u32 most = 0;
    for (u32 i = 0; i < 3; i++)
        most = MAX(most, p.ranks[i].slice.head_end - p.ranks[i].slice.head_first);
    assert_int_equal(most, 43); /* 128 heads on 3 nodes */
    d->nodes[0].read_bytes_s = 6;
    p = best_of(d);
    check_plan(d, &p);
    for (u32 i = 0; i < 3; i++)
        if (p.ranks[i].node == 0)
            assert_int_equal(p.ranks[i].slice.ff_end - p.ranks[i].slice.ff_first, 768);
}

static void memory_cuts_a_tensor_share(void **state) {
    (void)state;
    struct made *d = make(4, 2);
    shape(d, 32, 32, 1024, 32);
    d->q.sharding = SHARDING_TENSOR;
    d->nodes[0].budget_bytes = 160; /* 480 in all */
    struct place_plan p = best_of(d);
    check_plan(d, &p);
    assert_true(p.ranks[0].need_bytes < p.ranks[1].need_bytes);
}

static void more_ranks_than_kv_heads(void **state) {
    (void)state;
    struct made *d = make(2, 5);
    shape(d, 9, 3, 320, 32);
    d->q.sharding = SHARDING_TENSOR;
    struct place_plan *all;
    assert_int_equal(place_all(&d->q, &d->mem, &all), 4);
    for (u32 n = 2; n <= 5; n++) {
        assert_int_equal(all[n - 2].n_ranks, n);
        check_plan(d, &all[n - 2]);
    }
}

/* 10 layers of 100 bytes and 200 operations a token. */
static void products_take_what_was_measured(void **state) {
    (void)state;
    struct made *d = make(10, 1);
    shape(d, 8, 8, 256, 32);
    d->kind = (struct msg_layer_cost){.ffn_bytes = 100, .ffn_ops = 200, .n_sums = 2};
    d->nodes[0].layers = (struct place_rate){.read_bytes_s = 50, .few_ops_s = 200, .ops_s = 400};
    d->nodes[0].call_s = 1e-30;
    struct place_work w;
    place_work_init(&w, &d->q, &d->mem);
    static const struct {
        double n_tok, layer_s;
    } ROWS[] = {{1, 2}, {8, 8}, {4.5, 5}, {132, 68}, {256, 128}, {512, 256}};
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        struct place_load load = {.n_tok = ROWS[i].n_tok};
        u32 node = 0;
        double t = place_layer_s(&w, &node, 1, &PLACE_WHOLE, &load, 3, NULL);
        assert_true(fabs(t - ROWS[i].layer_s) < 1e-6);
    }
}

/* Ten operations a token and position, 100 positions, 3 bytes each: keys and values are read while
 * attention computes, activations are not. */
static void attention_takes_what_was_measured(void **state) {
    (void)state;
    struct made *d = make(10, 1);
    shape(d, 8, 8, 256, 32);
    d->kind = (struct msg_layer_cost){.attend_ops = 10, .act_bytes = 70};
    d->m.kv_bytes_per_token_layer = 3;
    d->nodes[0].attend_ops_s = 5;
    d->nodes[0].call_s = 1e-30;
    static const struct {
        double n_tok, one_ops_s, layer_s;
    } ROWS[] = {{1, 0, 300 + 70}, {1, 2, 500 + 70}, {1, 4, 300 + 70}, {2, 2, 400 + 140}};
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        struct place_load load = {
            .n_tok = ROWS[i].n_tok, .n_seq = 1, .n_out = ROWS[i].n_tok, .pos = 100};
        struct place_work w;
        u32 node = 0;
        d->nodes[0].attend_one_ops_s = ROWS[i].one_ops_s;
        place_work_init(&w, &d->q, &d->mem);
        double t = place_layer_s(&w, &node, 1, &PLACE_WHOLE, &load, 3, NULL);
        if (fabs(t - ROWS[i].layer_s) > 1e-6) fail_msg("row %zu: %g", i, t);
    }
}

/* Half a layer on each of two: of the matrices whose columns are shared all rows are there, 64 of
 * each half layer, half of which is more than half; and some activations are everybody's. */
static void slices_are_more_than_their_share(void **state) {
    (void)state;
    struct made *d = make(10, 2);
    shape(d, 8, 8, 256, 32);
    d->kind = (struct msg_layer_cost){.attn_bytes = 40,
                                      .ffn_bytes = 80,
                                      .attn_ops = 80,
                                      .ffn_ops = 160,
                                      .act_bytes = 10,
                                      .act_whole_bytes = 4};
    for (u32 i = 0; i < 2; i++) {
        d->nodes[i].layers = (struct place_rate){.read_bytes_s = 1, .few_ops_s = 8, .ops_s = 256};
        d->nodes[i].call_s = 1e-30;
    }
    const struct place_part half[2] = {{0.5, 0.5, 0.5, 0.5, 0.5}, {0.5, 0.5, 0.5, 0.5, 0.5}};
    static const struct {
        double n_tok, row_one_s, row_many_s, layer_s;
    } ROWS[] = {
        {1, 0, 0, 60 + 7},        {1, 0.25, 9, 60 + 7 + 16},
        {8, 0, 0, 8 * 15 + 56},   {8, 9, 0.5, 8 * 15 + 56 + 8 * 32},
        {256, 0, 0.5, 2 * (128 * 32 + 120) + 1792},
    };
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        struct place_work w;
        u32 nodes[] = {0, 1};
        for (u32 k = 0; k < 2; k++) {
            d->nodes[k].layers.row_one_s = ROWS[i].row_one_s;
            d->nodes[k].layers.row_many_s = ROWS[i].row_many_s;
        }
        place_work_init(&w, &d->q, &d->mem);
        struct place_load load = {.n_tok = ROWS[i].n_tok, .n_out = ROWS[i].n_tok};
        double t = place_layer_s(&w, nodes, 2, half, &load, 0, NULL);
        if (fabs(t - ROWS[i].layer_s) > 1e-3) fail_msg("row %zu: %g", i, t);
    }
    double whole_s[2];
    for (u32 i = 0; i < 2; i++) { /* everybody's can't be more than all */
        struct place_work w;
        u32 nodes[] = {0, 1};
        d->kind.act_whole_bytes = i ? 1 << 30 : 10;
        place_work_init(&w, &d->q, &d->mem);
        struct place_load load = {.n_tok = 1, .n_out = 1};
        whole_s[i] = place_layer_s(&w, nodes, 2, half, &load, 0, NULL);
    }
    assert_true(whole_s[0] == whole_s[1]);
}

/* A prompt goes through two stages in pieces, both at work: it takes half the time, and one piece
 * more. Of the last layer there is but query, key and value: a quarter. */
static void prompts_flow_in_pieces(void **state) {
    (void)state;
    struct made *d = make(16, 2);
    shape(d, 8, 8, 256, 32);
    for (u32 i = 0; i < 2; i++) d->nodes[i].ops_s = 100;
    d->q.n_prompt = 1024;
    struct place_rank one[] = {{.node = 0, .layer_end = 16, .tp_ranks = 1}};
    struct place_rank two[] = {
        {.node = 0, .layer_end = 8, .tp_ranks = 1},
        {.node = 1, .layer_first = 8, .layer_end = 16, .tp_first = 1, .tp_ranks = 1}};
    double alone = place_predict(&d->q, one, 1, 0).first_s;
    double both = place_predict(&d->q, two, 2, 0).first_s;
    assert_true(fabs(both / alone - (15 * 8 + 15.25) / (16 * 15.25)) < 0.01);
    /* A link on which a piece takes as long as a stage: each waits for the one before last. */
    double stage = alone / (16 * 15.25) * 8, sum = 15.25 / 8;
    for (u32 i = 0; i < 4; i++) d->links[i].delay_s = stage;
    double slow = place_predict(&d->q, two, 2, 0).first_s;
    assert_true(fabs(slow / stage - (15 * (sum + 2) / 2 + sum + 2)) < 0.5);
    /* Its last token's logits, once. */
    d->m.head_bytes = 500;
    assert_true(fabs(place_predict(&d->q, one, 1, 0).first_s - alone - 500) < 0.01);
}

/* What a layer's two sums add to its time, on a link of this delay and bandwidth. */
static double sums_of(struct made *d, u32 n, double n_tok, double delay_s, double bytes_s) {
    struct place_part part[4], some = {0.5, 0.5, 0.5, 0.5, 0.5};
    struct place_load load = {.n_tok = n_tok};
    u32 nodes[] = {0, 1, 2, 3};
    struct place_work w;
    double t[2];
    for (u32 i = 0; i < n; i++) part[i] = some;
    for (u32 k = 0; k < 2; k++) {
        for (u32 i = 0; i < n * n; i++)
            d->links[i] = k ? (struct place_link){delay_s, bytes_s} : (struct place_link){0, 1e18};
        place_work_init(&w, &d->q, &d->mem);
        t[k] = place_layer_s(&w, nodes, n, part, &load, 0, NULL);
    }
    return t[1] - t[0];
}

/* Sums of a prompt travel while the other half of its tokens goes through half a layer; one token's
 * don't. With 512 tokens of 128 bytes, attention takes 20.48 seconds and feed-forward 40.96. */
static void sums_hide_behind_half_layers(void **state) {
    (void)state;
    struct made *d = make(10, 2);
    shape(d, 8, 8, 256, 32);
    for (u32 i = 0; i < 2; i++) d->nodes[i].ops_s = d->nodes[i].read_bytes_s = 1000;
    static const struct {
        double n_tok, delay_s, travel_s, added_s; /* travel: of one sum */
    } ROWS[] = {
        {1, 0, 3, 6},         {1, 2, 3, 10},           /* all of it */
        {512, 0, 20, 0},      {512, 10, 0.001, 0},     /* nothing */
        {512, 0, 30, 9.52},   {512, 0, 100, 138.56},   /* what the link takes longer */
        {512, 12, 0.48, 2.0}, {512, 12, 20.48, 13.76}, /* a piece's own time and its way */
    };
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        double bytes_s = ROWS[i].n_tok * 64 * 2 / ROWS[i].travel_s;
        double added = sums_of(d, 2, ROWS[i].n_tok, ROWS[i].delay_s, bytes_s);
        if (fabs(added - ROWS[i].added_s) > 0.01) fail_msg("row %zu: %g", i, added);
    }
    /* Four ranks: whole parts to three others take 30 s of the link, segments there and back 15,
     * all of it hidden; of two delays of 3 s that which is over after attention's 20.48. */
    d = make(10, 4);
    shape(d, 8, 8, 256, 32);
    for (u32 i = 0; i < 4; i++) d->nodes[i].ops_s = d->nodes[i].read_bytes_s = 1000;
    double bytes_s = 512 * 64 * 2 / 10.0;
    assert_true(fabs(sums_of(d, 4, 512, 0, bytes_s)) < 0.01);
    double added = sums_of(d, 4, 512, 3, bytes_s);
    if (fabs(added - (6 + (15 - 20.48) / 2)) > 0.01) fail_msg("%g", added);
}

/* Links that cost nothing: converting, sending and adding is left. 0.4 ns an element, and 1.2 for
 * each of the others; in segments 0.4 for each that is sent and 1.2 for there and back. */
static void sums_take_processors(void **state) {
    (void)state;
    static const struct {
        u32 n;
        double n_tok, element_s;
    } ROWS[] = {{2, 1, 1.6e-9}, {2, 64, 1.6e-9}, {3, 64, 2.133e-9}, {4, 64, 2.3e-9}};
    struct made *d = make(10, 4);
    shape(d, 8, 8, 256, 32);
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        struct place_part part[4], some = {0.5, 0.5, 0.5, 0.5, 0.5};
        struct place_load load = {.n_tok = ROWS[i].n_tok};
        u32 nodes[] = {0, 1, 2, 3};
        double t[2];
        for (u32 k = 0; k < 4; k++) part[k] = some;
        for (u32 k = 0; k < 2; k++) {
            struct place_work w;
            d->m.dim = 1000000000 + k * 1000000000;
            place_work_init(&w, &d->q, &d->mem);
            t[k] = place_layer_s(&w, nodes, ROWS[i].n, part, &load, 0, NULL);
        }
        double element_s = (t[1] - t[0]) / (2e9 * ROWS[i].n_tok); /* two sums */
        if (fabs(element_s - ROWS[i].element_s) > 0.01e-9) fail_msg("row %zu: %g", i, element_s);
    }
}

static void slow_links_keep_it_together(void **state) {
    (void)state;
    struct made *d = make(16, 4);
    shape(d, 32, 8, 1024, 32);
    assert_int_equal(best_of(d).sharding, SHARDING_TENSOR);
    assert_int_equal(best_of(d).n_ranks, 4);
    for (u32 i = 0; i < 16; i++) d->links[i].delay_s = 1000;
    assert_int_equal(best_of(d).n_ranks, 1);
    /* Two islands of fast links, none of which can hold all of it: a hybrid. */
    for (u32 i = 0; i < 4; i++)
        for (u32 j = 0; j < 4; j++) d->links[i * 4 + j].delay_s = i / 2 == j / 2 ? 0.01 : 300;
    for (u32 i = 0; i < 4; i++) d->nodes[i].budget_bytes = 700;
    struct place_plan p = best_of(d);
    check_plan(d, &p);
    assert_int_equal(p.sharding, SHARDING_HYBRID);
    assert_int_equal(p.n_ranks, 4);
    assert_int_equal(p.ranks[0].node / 2, p.ranks[1].node / 2);
}

static void nodes_of_one_machine_share_it(void **state) {
    (void)state;
    struct made *d = make(16, 2);
    shape(d, 32, 8, 1024, 32);
    assert_int_equal(best_of(d).n_ranks, 2);
    d->nodes[1].machine = d->nodes[0].machine;
    assert_int_equal(best_of(d).n_ranks, 1);
    d->q.goal = GOAL_THROUGHPUT;
    d->q.n_batch = 8;
    double one = best_of(d).t.rate;
    d->nodes[1].machine = 7;
    assert_true(best_of(d).t.rate > 1.5 * one);
}

static void expect_refusal(struct made *d, enum err_code code, const char *text) {
    struct place_plan p;
    struct err e = {0};
    assert_false(place_best(&d->q, &d->mem, &p, &e));
    if (!strstr(e.msg, text)) fail_msg("\"%s\" does not say \"%s\"", e.msg, text);
    assert_int_equal(e.code, code);
}

static void refusals_say_what_is_missing(void **state) {
    (void)state;
    struct made *d = make(4, 2);
    for (u32 i = 0; i < 4; i++) d->bytes[i] = (u64)10 << 30;
    d->nodes[0] = (struct place_node){
        .name = "left", .budget_bytes = (u64)16 << 30, .read_bytes_s = 1, .ops_s = 1, .machine = 0};
    d->nodes[1] = (struct place_node){
        .name = "right", .budget_bytes = (u64)8 << 30, .read_bytes_s = 1, .ops_s = 1, .machine = 1};
    expect_refusal(d, ERR_MEMORY,
                   "needs 40.0 GiB, the cluster has 24.0 GiB free on 2 nodes (left 16.0 GiB, right "
                   "8.0 GiB): use a smaller quantization or context, or add a node");
    d->nodes[0].budget_bytes = (u64)35 << 30;
    expect_refusal(d, ERR_MEMORY, "in pieces that no split fits: one layer alone needs 10.0 GiB");
    d->q.min_nodes = 3;
    expect_refusal(d, ERR_BUSY, "needs 3 nodes, 2 are there: start more with `skein up`");
    d->q.n_nodes = 0;
    d->q.min_nodes = 0;
    expect_refusal(d, ERR_BUSY, "no worker node is there");

    d = make(4, 5);
    d->q.min_nodes = 5;
    expect_refusal(d, ERR_ARG, "the model has only 4 layers");
    d->q.min_nodes = 0;
    d->q.sharding = SHARDING_TENSOR;
    expect_refusal(d, ERR_UNSUPPORTED, "can't be sliced");
    shape(d, 4, 2, 64, 32);
    d->q.min_nodes = 5;
    expect_refusal(d, ERR_ARG, "only 4 attention heads");
    d->q.min_nodes = 3; /* two blocks are not enough for three */
    expect_refusal(d, ERR_ARG, "2 blocks of its feed-forward part");
}

static void layouts_by_hand_are_checked(void **state) {
    (void)state;
    struct made *d = make(30, 3);
    struct err e = {0};
    struct place_rank two[2] = {{.node = 0, .layer_end = 12},
                                {.node = 1, .layer_first = 12, .layer_end = 30}};
    assert_true(place_check(&d->q, two, 2, &d->mem, &e));
    assert_int_equal(two[1].weights_bytes, 18 * 120);
    struct {
        struct place_rank r[2];
        const char *text;
    } bad[] = {
        {{{.node = 0, .layer_end = 12}, {.node = 0, .layer_first = 12, .layer_end = 30}}, "twice"},
        {{{.node = 0, .layer_end = 12}, {.node = 1, .layer_first = 13, .layer_end = 30}},
         "don't follow on layer 11"},
        {{{.node = 0, .layer_end = 12}, {.node = 1, .layer_first = 12, .layer_end = 29}},
         "layers 29-29 are on no node"},
        {{{.node = 0, .layer_end = 31}, {.node = 1, .layer_first = 31, .layer_end = 32}},
         "the model has layers 0-29"},
        {{{.node = 0, .layer_end = 30}, {.node = 1, .layer_end = 30}}, "can't be sliced"},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_false(place_check(&d->q, bad[i].r, 2, &d->mem, &e));
        if (!strstr(e.msg, bad[i].text)) fail_msg("\"%s\": no \"%s\"", e.msg, bad[i].text);
    }
    d->nodes[1].budget_bytes = 100;
    assert_false(place_check(&d->q, two, 2, &d->mem, &e));
    assert_non_null(strstr(e.msg, "layers 12-29 on n1 need 2.1 KiB, 100 B are free there"));
    d->q.force = true;
    assert_true(place_check(&d->q, two, 2, &d->mem, &e));

    shape(d, 8, 4, 256, 32);
    struct place_rank tp[3] = {{.node = 2, .layer_end = 20},
                               {.node = 0, .layer_end = 20},
                               {.node = 1, .layer_first = 20, .layer_end = 30}};
    assert_true(place_check(&d->q, tp, 3, &d->mem, &e));
    assert_int_equal(tp[1].tp_ranks, 2);
    assert_int_equal(tp[1].slice.head_first, 4);
    assert_int_equal(tp[2].tp_ranks, 1);
    tp[1].slice.head_first = 3;
    assert_false(place_check(&d->q, tp, 3, &d->mem, &e));
}

/* ---- brute force */

struct brute {
    struct made *d;
    struct place_rank r[4];
    double best;
};

static void brute_pipeline(struct brute *b, u32 n, u32 at) {
    const struct made *d = b->d;
    if (at == d->m.n_layers) {
        struct err e;
        struct place_rank copy[4];
        memcpy(copy, b->r, sizeof copy);
        if (n < d->q.min_nodes || !place_check(&d->q, copy, n, &b->d->mem, &e)) return;
        struct place_times t = place_predict(&d->q, copy, n, d->q.n_ctx / 2);
        b->best = fmin(b->best, place_score(&d->q, &t));
        return;
    }
    for (u32 i = 0; i < d->q.n_nodes; i++) {
        bool used = false;
        for (u32 k = 0; k < n; k++) used |= b->r[k].node == i;
        for (u32 end = at + 1; end <= d->m.n_layers && !used; end++) {
            b->r[n] = (struct place_rank){.node = i, .layer_first = at, .layer_end = end};
            brute_pipeline(b, n + 1, end);
        }
    }
}

/* One matrix for both ends counts once on a rank that has both, twice on two. */
static void a_tied_matrix_counts_once(void **state) {
    (void)state;
    struct made *d = make(4, 2);
    struct place_plan p;
    struct err e = {0};
    for (u32 i = 0; i < 4; i++) d->bytes[i] = 100;
    d->m.embed_bytes = d->m.head_bytes = 1000;
    d->m.kv_bytes_per_token_layer = 0;
    d->nodes[0].budget_bytes = d->nodes[1].budget_bytes = 1500;
    d->q.sharding = SHARDING_PIPELINE;
    assert_true(place_best(&d->q, &d->mem, &p, &e));
    assert_int_equal(p.n_ranks, 2); /* 2400 are too much for one */
    d->m.tied_bytes = 1000;
    assert_int_equal(place_need_bytes(&d->q), 1400 + d->q.scratch_bytes);
    assert_true(place_best(&d->q, &d->mem, &p, &e));
    assert_int_equal(p.n_ranks, 1);
    assert_int_equal(p.ranks[0].weights_bytes, 1400);
    d->q.min_nodes = 2;
    assert_true(place_best(&d->q, &d->mem, &p, &e));
    assert_int_equal(p.ranks[0].weights_bytes + p.ranks[1].weights_bytes, 2400);
}

static u64 draw(u64 seed, u64 *k, u64 n) {
    return random_at(seed, (*k)++) % n;
}

static void vary(struct made *d, u64 seed, u64 *k) {
    u32 n = d->q.n_nodes;
    for (u32 i = 0; i < d->m.n_layers; i++) d->bytes[i] = 50 + draw(seed, k, 100);
    for (u32 i = 0; i < n; i++) {
        d->nodes[i].read_bytes_s = 1 + (double)draw(seed, k, 40) / 10;
        d->nodes[i].budget_bytes = 100 + draw(seed, k, 120 * d->m.n_layers);
        for (u32 j = 0; j < n; j++)
            d->links[i * n + j] =
                (struct place_link){(double)draw(seed, k, 100), 1 + (double)draw(seed, k, 1000)};
    }
    d->m.embed_bytes = draw(seed, k, 200);
    d->m.head_bytes = draw(seed, k, 200);
    d->m.kv_bytes_per_token_layer = draw(seed, k, 5);
    d->q.kv_tokens = draw(seed, k, 5);
    d->q.min_nodes = (u32)draw(seed, k, n + 1);
    d->m.tied_bytes = draw(seed, k, 2) ? MIN(d->m.embed_bytes, d->m.head_bytes) : 0;
}

static void brute_force_agrees(void **state) {
    (void)state;
    u32 n_found = 0;
    for (u64 seed = 1; seed <= 150; seed++) {
        u64 k = 0;
        struct made *d = make(2 + (u32)draw(seed, &k, 4), 1 + (u32)draw(seed, &k, 4));
        vary(d, seed, &k);
        d->q.sharding = SHARDING_PIPELINE;
        d->q.goal = seed % 3;
        d->q.n_batch = d->q.goal == GOAL_THROUGHPUT ? 1 + (u32)draw(seed, &k, 6) : 1;
        d->q.n_prompt = 1 + (u32)draw(seed, &k, 3000);
        struct brute b = {.d = d, .best = INFINITY};
        struct place_plan p = {0};
        struct err e = {0};
        brute_pipeline(&b, 0, 0);
        bool found = place_best(&d->q, &d->mem, &p, &e);
        if (found != isfinite(b.best)) fail_msg("seed %d: found %d: %s", (int)seed, found, e.msg);
        if (!found) continue;
        n_found++;
        check_plan(d, &p);
        /* Exact for latency; the other goals weigh two things and try a few of the ways between. */
        double slack = d->q.goal == GOAL_LATENCY ? 1e-9 : 0.05, s = place_score(&d->q, &p.t);
        if (s > b.best * (1 + slack) || s < b.best * (1 - 1e-9))
            fail_msg("seed %d goal %u: %g, brute force %g", (int)seed, d->q.goal, s, b.best);
    }
    assert_true(n_found > 60);
}

static double brute_share(u64 units, const double *speed, const u64 *cap, u32 n) {
    if (n == 1) return units >= 1 && units <= cap[0] ? (double)units / speed[0] : INFINITY;
    double best = INFINITY;
    for (u64 u = 1; u <= units && u <= cap[0]; u++)
        best = fmin(best,
                    fmax((double)u / speed[0], brute_share(units - u, speed + 1, cap + 1, n - 1)));
    return best;
}

static void shares_are_the_best_there_are(void **state) {
    (void)state;
    for (u64 seed = 1; seed <= 300; seed++) {
        u64 k = 0, cap[4], got[4], sum = 0;
        double speed[4], worst = 0;
        u32 n = 1 + (u32)draw(seed, &k, 4);
        u64 units = 1 + draw(seed, &k, 40);
        for (u32 i = 0; i < n; i++) {
            speed[i] = 1 + (double)draw(seed, &k, 100) / 10;
            cap[i] = draw(seed, &k, 4) ? 1 + draw(seed, &k, 60) : draw(seed, &k, 3);
        }
        double best = brute_share(units, speed, cap, n);
        bool ok = place_share_out(units, speed, cap, n, got);
        if (ok != isfinite(best)) fail_msg("seed %d: %d", (int)seed, ok);
        for (u32 i = 0; ok && i < n; i++) {
            assert_true(got[i] >= 1 && got[i] <= cap[i]);
            sum += got[i];
            worst = fmax(worst, (double)got[i] / speed[i]);
        }
        if (!ok) continue;
        assert_int_equal(sum, units);
        if (worst > best * (1 + 1e-9)) fail_msg("seed %d: %g, best %g", (int)seed, worst, best);
    }
}

static void whatever_is_asked_it_adds_up(void **state) {
    (void)state;
    static const u32 KV[] = {1, 2, 3, 4, 8}, PER[] = {1, 3, 4, 8, 16};
    u32 kinds[4] = {0};
    for (u64 seed = 1; seed <= 300; seed++) {
        u64 k = 0;
        struct made *d = make(1 + (u32)draw(seed, &k, 12), 1 + (u32)draw(seed, &k, 9));
        vary(d, seed, &k);
        u32 kv = KV[draw(seed, &k, 5)], per = PER[draw(seed, &k, 5)];
        shape(d, kv * per, kv, 64 * (1 + (u32)draw(seed, &k, 20)), draw(seed, &k, 2) ? 32 : 64);
        for (u32 i = 0; i < d->m.n_layers; i++) d->bytes[i] = 120;
        d->q.sharding = (u32)draw(seed, &k, 4);
        d->q.goal = (u32)draw(seed, &k, 3);
        d->q.n_batch = 1 + (u32)draw(seed, &k, 10);
        d->q.n_prompt = 1 + (u32)draw(seed, &k, 2000);
        d->q.force = draw(seed, &k, 8) == 0;
        struct place_plan *all;
        u32 n = place_all(&d->q, &d->mem, &all);
        for (u32 i = 0; i < n; i++) {
            check_plan(d, &all[i]);
            kinds[all[i].sharding]++;
            assert_true(all[i].n_ranks >= d->q.min_nodes);
            double parts = all[i].t.memory_s + all[i].t.compute_s + all[i].t.network_s;
            assert_true(fabs(parts - all[i].t.token_s) <= 1e-9 * parts);
        }
        struct place_plan p;
        struct err e = {0};
        bool ok = place_best(&d->q, &d->mem, &p, &e);
        if (ok != (n > 0)) fail_msg("seed %d: %d of %u: %s", (int)seed, ok, n, e.msg);
        for (u32 i = 0; i < n; i++)
            assert_true(place_score(&d->q, &p.t) <= place_score(&d->q, &all[i].t) * 1.00001);
    }
    for (u32 i = SHARDING_PIPELINE; i <= SHARDING_HYBRID; i++) assert_true(kinds[i] > 20);
}

static void sixty_nodes(void **state) {
    (void)state;
    for (u32 goal = GOAL_LATENCY; goal <= GOAL_TTFT; goal++) {
        struct made *d = make(80, 60);
        shape(d, 64, 8, 28672, 256);
        u64 k = 0;
        for (u32 i = 0; i < 60; i++) {
            d->nodes[i].read_bytes_s = 1 + (double)draw(5, &k, 40) / 10;
            d->nodes[i].budget_bytes = 120 * (1 + draw(5, &k, 10));
        }
        for (u32 i = 0; i < 3600; i++)
            d->links[i] = (struct place_link){(double)(1 + draw(5, &k, 100)) / 100, 1e6};
        d->q.goal = goal;
        d->q.n_batch = goal == GOAL_THROUGHPUT ? 8 : 1;
        d->q.n_prompt = 1000;
        struct place_plan p = best_of(d);
        check_plan(d, &p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tied_matrix_counts_once),
        cmocka_unit_test(one_node_is_enough_when_it_is_fastest),
        cmocka_unit_test(memory_asks_for_more_nodes),
        cmocka_unit_test(a_split_is_even_where_that_costs_little),
        cmocka_unit_test(throughput_balances_stages),
        cmocka_unit_test(tensor_shares_follow_speed),
        cmocka_unit_test(memory_cuts_a_tensor_share),
        cmocka_unit_test(more_ranks_than_kv_heads),
        cmocka_unit_test(products_take_what_was_measured),
        cmocka_unit_test(attention_takes_what_was_measured),
        cmocka_unit_test(slices_are_more_than_their_share),
        cmocka_unit_test(prompts_flow_in_pieces),
        cmocka_unit_test(sums_hide_behind_half_layers),
        cmocka_unit_test(sums_take_processors),
        cmocka_unit_test(slow_links_keep_it_together),
        cmocka_unit_test(nodes_of_one_machine_share_it),
        cmocka_unit_test(refusals_say_what_is_missing),
        cmocka_unit_test(layouts_by_hand_are_checked),
        cmocka_unit_test(brute_force_agrees),
        cmocka_unit_test(shares_are_the_best_there_are),
        cmocka_unit_test(whatever_is_asked_it_adds_up),
        cmocka_unit_test(sixty_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
