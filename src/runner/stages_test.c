#include "runner/stages.h"

#include <string.h>

#include "base/test.h"

static const struct model_params P = {.n_layers = 10, .n_heads = 9, .n_ff = 96, .n_vocab = 100};

/* A stage of two with uneven slices, one of one, one of three with an idle rank. */
static void good(struct stage_part part[6]) {
    memset(part, 0, 6 * sizeof *part);
    for (u32 r = 0; r < 6; r++) {
        u32 stage = r < 2 ? 0 : r < 3 ? 1 : 2;
        part[r].tp_first = (u32[]){0, 2, 3}[stage];
        part[r].tp_ranks = (u32[]){2, 1, 3}[stage];
        part[r].layer_first = (u32[]){0, 4, 5}[stage];
        part[r].layer_end = (u32[]){4, 5, 10}[stage];
    }
    part[0].slice = (struct shard_slice){0, 7, 0, 64, 0, 30};
    part[1].slice = (struct shard_slice){7, 9, 64, 96, 30, 100};
    part[3].slice = (struct shard_slice){0, 3, 0, 32, 0, 50};
    part[4].slice = (struct shard_slice){3, 3, 32, 32, 50, 50};
    part[5].slice = (struct shard_slice){3, 9, 32, 96, 50, 100};
}

static void what_fits(void **state) {
    (void)state;
    struct stage_part part[6];
    struct stages s;
    struct err e = {0};
    good(part);
    if (!stages_of(&P, part, 6, &s, &e)) fail_msg("%s", e.msg);
    assert_int_equal(s.n, 3);
    assert_int_equal(stages_size(&s, 0), 2);
    assert_int_equal(stages_size(&s, 2), 3);
    static const u32 stage[] = {0, 0, 1, 2, 2, 2}, source[] = {0, 0, 0, 2, 2, 2};
    for (u32 r = 0; r < 6; r++) {
        assert_int_equal(stages_find(&s, r), stage[r]);
        if (stage[r]) assert_int_equal(stages_source(&s, r), source[r]);
    }
    /* Each of two sends to its share of four. */
    s = (struct stages){2, {0, 2, 6}};
    for (u32 r = 2; r < 6; r++) assert_int_equal(stages_source(&s, r), r % 2);
}

static void refuse(struct stage_part *part, u32 n_ranks, const char *words) {
    struct stages s;
    struct err e = {0};
    assert_false(stages_of(&P, part, n_ranks, &s, &e));
    assert_int_equal(e.code, ERR_ARG);
    if (!strstr(e.msg, words)) fail_msg("%s", e.msg);
}

static void what_does_not(void **state) {
    (void)state;
    struct stage_part part[6];
    good(part);
    part[1].slice.head_first = 6;
    refuse(part, 6, "rank 1 has query heads 6 to 9, the ranks before it end at 7");
    good(part);
    part[5].slice.ff_end = 64;
    refuse(part, 6, "share 9 of 9 heads, 64 of 96 feed-forward elements");
    good(part);
    part[4].slice.vocab_end = 40;
    refuse(part, 6, "rank 4 has vocabulary rows 50 to 40");
    good(part);
    part[2].slice.head_end = 4;
    refuse(part, 6, "rank 2 has its layers alone");
    good(part);
    part[2].layer_first = 5;
    refuse(part, 6, "rank 2 has layers 5 to 5");
    good(part);
    part[3].layer_first = 6;
    refuse(part, 6, "rank 3 has layers 6 to 10, the ranks before it end at 5");
    good(part);
    part[4].layer_end = 9;
    refuse(part, 6, "rank 4 does not share the layers of rank 3");
    good(part);
    part[3].tp_ranks = 4;
    refuse(part, 6, "rank 3 is to share its layers with ranks 3 to 6 of 6");
    good(part);
    part[0].tp_ranks = 0;
    refuse(part, 6, "rank 0 is to share");
    good(part);
    refuse(part, 3, "the ranks have 5 of 10 layers");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_fits),
        cmocka_unit_test(what_does_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
