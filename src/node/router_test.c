#include "node/router.h"

#include <stdio.h>
#include <string.h>

#include "base/test.h"

static const char TALK[] = /* of more than 512 bytes */
    "[{\"role\":\"system\",\"content\":\"You are the librarian of a small town. Answer from the "
    "catalogue, "
    "name shelf and row, and say so when a book is lent. Be brief. Do not recommend books that the "
    "town does "
    "not have. When somebody asks for the way, tell it from the door at the market, past the "
    "stairs.\"},"
    "{\"role\":\"user\",\"content\":\"Where is the atlas of rivers? I looked on the second floor, "
    "in the row "
    "of maps, and beside the globes, but there were only charts of the sea and a box of old "
    "postcards. Is it "
    "lent, or did someone move it again?\"}";

static u32 pick(struct router *r, const char *prompt, u32 load_a, u32 load_b) {
    struct router_key k = router_key("m", prompt, strlen(prompt));
    struct router_replica v[2] = {{11, load_a}, {22, load_b}};
    u32 i = router_pick(r, &k, v, 2);
    router_sent(r, &k, v[i].place);
    return i;
}

static void the_least_work_wins(void **state) {
    (void)state;
    static struct router r;
    memset(&r, 0, sizeof r);
    assert_int_equal(pick(&r, "short", 3, 1), 1);
    assert_int_equal(pick(&r, "short", 0, 1), 0);
    struct router_replica three[] = {{1, 5}, {2, 4}, {3, 4}};
    assert_int_equal(router_pick(&r, &(struct router_key){0}, three, 3), 1);
}

static void a_conversation_stays_where_it_was(void **state) {
    (void)state;
    static struct router r;
    char longer[sizeof TALK + 64];
    memset(&r, 0, sizeof r);
    assert_int_equal(pick(&r, TALK, 1, 0), 1);
    snprintf(longer, sizeof longer, "%s,{\"role\":\"assistant\",\"content\":\"Lent.\"}", TALK);
    assert_int_equal(pick(&r, longer, 0, ROUTER_SLACK), 1);
    /* too much to do there: it moves, and stays at the new place */
    assert_int_equal(pick(&r, longer, 0, ROUTER_SLACK + 1), 0);
    assert_int_equal(pick(&r, longer, 1, 0), 0);
    /* the same words for another model are no match */
    struct router_key k = router_key("other", TALK, strlen(TALK));
    struct router_replica v[2] = {{11, 1}, {22, 0}};
    assert_int_equal(router_pick(&r, &k, v, 2), 1);
}

/* More prefixes than there is room for: the oldest are forgotten, nothing breaks. */
static void memory_is_bounded(void **state) {
    (void)state;
    static struct router r;
    char prompt[300];
    memset(&r, 0, sizeof r);
    for (u32 i = 0; i < 3 * ROUTER_SEEN; i++) {
        memset(prompt, 'x', sizeof prompt);
        snprintf(prompt, sizeof prompt, "%u", i);
        prompt[strlen(prompt)] = ' ';
        struct router_key k = router_key("m", prompt, sizeof prompt);
        assert_int_equal(k.n, 1);
        router_sent(&r, &k, i + 1);
    }
    memset(prompt, 'x', sizeof prompt);
    prompt[0] = '0';
    prompt[1] = ' ';
    struct router_key first = router_key("m", prompt, sizeof prompt);
    struct router_replica v[2] = {{1, 1}, {22, 0}};
    assert_int_equal(router_pick(&r, &first, v, 2), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_work_wins),
        cmocka_unit_test(a_conversation_stays_where_it_was),
        cmocka_unit_test(memory_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
