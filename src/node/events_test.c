#include "node/events.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/test.h"

struct ear {
    struct str heard;
    u32 n, looks, lasts;
    bool deaf; /* says that it is gone */
};

static bool on_event(void *ctx, const char *p, size_t n) {
    struct ear *e = ctx;
    if (!p)
        e->lasts++;
    else if (n == 0)
        e->looks++;
    else
        e->n++;
    if (n) str_add(&e->heard, p, n);
    return !e->deaf;
}

static void put(struct events *e, const char *type, u64 value) {
    struct str *o = events_begin(e, type);
    json_put_u64(o, "value", value);
    json_put_str(o, "text", "two\nlines");
    events_end(e);
}

static void listeners_hear_what_happens(void **state) {
    (void)state;
    struct events *e = events_new(0x1234567812345679);
    struct ear a = {0}, b = {0};
    put(e, "before", 1);
    assert_true(events_listen(e, NULL, on_event, &a, NULL));
    assert_int_equal(a.n, 0); /* what was before is not asked for */
    put(e, "node_joined", 2);
    assert_int_equal(a.n, 1);
    const char *at = strstr(str_z(&a.heard), "\ndata: ");
    assert_non_null(at);
    assert_true(strncmp(str_z(&a.heard), "id: 00000001-2\nevent: node_joined\ndata: {", 41) == 0);
    assert_int_equal(strcmp(str_z(&a.heard) + a.heard.n - 2, "\n\n"), 0);
    json_t *j = json_parse((struct view){at + 7, strcspn(at + 7, "\n")}, NULL);
    assert_string_equal(json_string_value(json_object_get(j, "type")), "node_joined");
    assert_string_equal(json_string_value(json_object_get(j, "text")), "two\nlines");
    assert_string_equal(json_string_value(json_object_get(j, "id")), "00000001-2");
    json_decref(j);
    /* One that is gone is not called again; the other hears on. */
    assert_true(events_listen(e, "", on_event, &b, NULL));
    events_look(e);
    assert_int_equal(b.looks, 2); /* the first when it began */
    b.deaf = true;
    events_look(e);
    put(e, "x", 3);
    assert_int_equal(b.looks, 3);
    assert_int_equal(b.n, 0);
    assert_int_equal(a.n, 2);
    events_close(e);
    assert_int_equal(a.lasts, 1);
    assert_int_equal(b.lasts, 0);
    struct err err = {0};
    assert_false(events_listen(e, NULL, on_event, &b, &err));
    assert_int_equal(err.code, ERR_BUSY);
    events_free(e);
    str_deinit(&a.heard);
    str_deinit(&b.heard);
}

/* Who comes back gets what was missed, in order, or is told that it can't be had. */
static void who_comes_back_catches_up(void **state) {
    (void)state;
    struct events *e = events_new(1);
    char id[32];
    for (u64 i = 1; i <= EVENTS_KEPT + 10; i++) put(e, "x", i);
    events_last_id(e, id);
    static const struct {
        u64 heard;
        u32 n;
        const char *first;
    } CASES[] = {
        {EVENTS_KEPT + 10, 0, ""},
        {EVENTS_KEPT + 8, 2, "-521\nevent: x"},
        {11, EVENTS_KEPT - 1, "-12\nevent: x"},
        {10, 1, "\nevent: reset"},
        {0, 1, "\nevent: reset"},
        {EVENTS_KEPT + 11, 1, "\nevent: reset"}, /* has not happened: of another life */
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        struct ear a = {.deaf = false};
        snprintf(id, sizeof id, "00000001-%llu", (unsigned long long)CASES[i].heard);
        assert_true(events_listen(e, id, on_event, &a, NULL));
        assert_int_equal(a.n, CASES[i].n);
        str_addz(&a.heard, "");
        if (!strstr(str_z(&a.heard), CASES[i].first)) fail_msg("%s", str_z(&a.heard));
        a.deaf = true;
        events_look(e);
        str_deinit(&a.heard);
    }
    static const char *const STRANGE[] = {"7",           "00000002-5",  "00000001-",
                                          "00000001-5x", "00000001--1", "\xff"};
    for (size_t i = 0; i < ARRAY_LEN(STRANGE); i++) {
        struct ear a = {0};
        assert_true(events_listen(e, STRANGE[i], on_event, &a, NULL));
        assert_non_null(strstr(str_z(&a.heard), "event: reset"));
        a.deaf = true;
        events_look(e);
        str_deinit(&a.heard);
    }
    events_close(e);
    events_free(e);
}

static void there_is_a_limit(void **state) {
    (void)state;
    struct events *e = events_new(1);
    struct ear a[EVENTS_LISTENERS_MAX + 1] = {{.n = 0}};
    struct err err = {0};
    for (u32 i = 0; i < EVENTS_LISTENERS_MAX; i++)
        assert_true(events_listen(e, NULL, on_event, &a[i], NULL));
    assert_false(events_listen(e, NULL, on_event, &a[EVENTS_LISTENERS_MAX], &err));
    assert_int_equal(err.code, ERR_BUSY);
    a[5].deaf = true;
    events_look(e);
    assert_true(events_listen(e, NULL, on_event, &a[EVENTS_LISTENERS_MAX], &err));
    events_close(e);
    events_free(e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(listeners_hear_what_happens),
        cmocka_unit_test(who_comes_back_catches_up),
        cmocka_unit_test(there_is_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
