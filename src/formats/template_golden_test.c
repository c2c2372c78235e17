#include "formats/template.h"
#include "base/test.h"

#include <jansson.h>
#include <string.h>

#include "base/file.h"

/* The recordings of tests/golden/templates: what jinja2 made of the same templates and variables.
 * A case is {"out": text} or a failure: {"raise": message} from raise_exception, {"undefined":
 * message} of jinja2, {"error": ...} for any other exception, whose wording is Python's own. */

#define FOLDER "tests/golden/templates/"

enum { FILE_MAX = 4 << 20 };

static json_t *load(const char *path) {
    struct str text = {0};
    struct err e = {0};
    json_error_t je;
    if (!file_read(path, FILE_MAX, &text, &e)) fail_msg("%s", e.msg);
    json_t *j = json_loadb(text.p, text.n, JSON_ALLOW_NUL, &je);
    if (!j) fail_msg("%s: line %d: %s", path, je.line, je.text);
    str_deinit(&text);
    return j;
}

static struct view string_of(const json_t *j) {
    return (struct view){json_string_value(j), json_string_length(j)};
}

static bool ends_with(const char *s, struct view tail) {
    size_t n = strlen(s);
    return n >= tail.n && memcmp(s + n - tail.n, tail.p, tail.n) == 0;
}

/* The text of an error is longer than the message before it, and may be cut by struct err. */
static bool same_failure(const json_t *want, const struct err *e) {
    const json_t *raised = json_object_get(want, "raise");
    const json_t *undefined = json_object_get(want, "undefined");
    if (raised) return e->code == ERR_ARG && view_is(string_of(raised), e->msg);
    if (strncmp(e->msg, "line ", 5) != 0 || e->code == ERR_ARG) return false;
    return !undefined || ends_with(e->msg, string_of(undefined));
}

/* Renders and compares; says what differs. */
static bool check(const char *name, struct view source, const json_t *vars, i64 now_s,
                  const json_t *want) {
    struct err e = {0};
    struct str out = {0};
    const json_t *text = json_object_get(want, "out");
    char *json = json_dumps(vars, JSON_COMPACT | JSON_REAL_PRECISION(17));
    struct template *t = template_compile(source, &e);
    bool ok = t && template_render(t, view_of(json), now_s, 0, NULL, &out, &e);
    bool same = ok == (text != NULL) &&
                (ok ? view_eq(str_view(&out), string_of(text)) : same_failure(want, &e));
    if (!same) {
        char *w = json_dumps(want, 0);
        print_message("%s\n  want %s\n  got  %s\n", name, w, ok ? str_z(&out) : e.msg);
        free(w);
    }
    template_free(t);
    str_deinit(&out);
    free(json);
    return same;
}

static void renderings_equal_jinja2(void **state) {
    (void)state;
    json_t *all = load(FOLDER "renderings.json");
    json_t *conversations = json_object_get(all, "conversations"), *cases, *want;
    i64 now_s = json_integer_value(json_object_get(all, "now"));
    const char *name, *conversation;
    size_t n = 0, n_bad = 0;
    json_object_foreach(json_object_get(all, "templates"), name, cases) {
        struct str path = {0}, source = {0};
        struct err e = {0};
        str_addf(&path, FOLDER "%s.jinja", name);
        if (!file_read(str_z(&path), FILE_MAX, &source, &e)) fail_msg("%s", e.msg);
        json_object_foreach(cases, conversation, want) {
            json_t *vars = json_object_get(conversations, conversation);
            str_clear(&path);
            str_addf(&path, "%s, conversation %s", name, conversation);
            n_bad += !check(str_z(&path), str_view(&source), vars, now_s, want);
            n++;
        }
        str_deinit(&path);
        str_deinit(&source);
    }
    json_decref(all);
    assert_true(n > 700);
    assert_int_equal(n_bad, 0);
}

static void expressions_equal_jinja2(void **state) {
    (void)state;
    json_t *all = load(FOLDER "expressions.json"), *one;
    json_t *vars = json_object_get(all, "variables"), *cases = json_object_get(all, "cases");
    i64 now_s = json_integer_value(json_object_get(all, "now"));
    size_t i, n_bad = 0;
    json_array_foreach(cases, i, one) {
        struct view source = string_of(json_array_get(one, 0));
        n_bad += !check(source.p, source, vars, now_s, json_array_get(one, 1));
    }
    assert_true(json_array_size(cases) > 400);
    json_decref(all);
    assert_int_equal(n_bad, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(renderings_equal_jinja2),
        cmocka_unit_test(expressions_equal_jinja2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
