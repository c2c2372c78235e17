#include "formats/template.h"
#include "base/test.h"

#include <string.h>

static struct err last;

/* Renders with vars_json into a static buffer; NULL and `last` on failure. */
static const char *render_with(const char *source, const char *vars,
                               const struct template_limits *limits) {
    static struct str out;
    last = (struct err){0};
    str_clear(&out);
    struct template *t = template_compile(view_of(source), &last);
    bool ok = t && template_render(t, view_of(vars), 1735221909, 3600, limits, &out, &last);
    template_free(t);
    return ok ? str_z(&out) : NULL;
}

static const char *render(const char *source) {
    return render_with(source, "{}", NULL);
}

static void assert_fails(const char *source, enum err_code code, const char *msg) {
    const char *out = render(source);
    if (out) fail_msg("%s gave '%s'", source, out);
    assert_string_equal(last.msg, msg);
    assert_int_equal(last.code, code);
}

static void errors_name_line_and_column(void **state) {
    (void)state;
    assert_fails("a\n  {{ x.y }}", ERR_FORMAT, "line 2, column 7: 'x' is undefined");
    assert_fails("é世 {{ 1 / 0 }}", ERR_FORMAT, "line 1, column 9: division by zero");
    assert_fails("{% if 1 %}\n{{ 'a'.nope() }}\n{% endif %}", ERR_FORMAT,
                 "line 2, column 12: 'str object' has no attribute 'nope'");
    assert_fails("\r\n\r\n{{ @ }}", ERR_FORMAT, "line 3, column 4: unexpected char '@'");
    assert_fails("{% for x in [1] %}", ERR_FORMAT,
                 "line 1, column 19: Unexpected end of template, looking for 'endfor'");
    assert_fails("{{ 1|nope }}", ERR_FORMAT, "line 1, column 6: No filter named 'nope'.");
    assert_fails("{% macro f(a) %}\n{{ a + 1 }}{% endmacro %}\n{{ f('x') }}", ERR_FORMAT,
                 "line 2, column 6: can only concatenate str (not \"int\") to str");
    assert_fails("{{ 'a' }}\n{{ [1]|map('nope')|list }}", ERR_FORMAT,
                 "line 2, column 8: No filter named 'nope'.");
}

static void what_is_not_supported_is_named(void **state) {
    (void)state;
    assert_fails("x {% include 'a' %}", ERR_UNSUPPORTED,
                 "line 1, column 6: the tag 'include' is not supported");
    assert_fails("{% block a %}{% endblock %}", ERR_UNSUPPORTED,
                 "line 1, column 4: the tag 'block' is not supported");
    assert_fails("{{ [1]|random }}", ERR_UNSUPPORTED,
                 "line 1, column 8: the filter 'random' is not supported");
    assert_fails("{{ 'a'.encode() }}", ERR_UNSUPPORTED,
                 "line 1, column 7: the method 'encode' of 'str' is not supported");
    assert_fails("{{ (-8) ** 0.5 }}", ERR_UNSUPPORTED,
                 "line 1, column 9: complex numbers are not supported");
    assert_fails("{% frob %}", ERR_FORMAT, "line 1, column 4: Encountered unknown tag 'frob'");
}

static void raise_exception_gives_its_message_alone(void **state) {
    (void)state;
    assert_fails("\n{{ raise_exception('Roles must alternate') }}", ERR_ARG,
                 "Roles must alternate");
    /* A long message is cut at a character's boundary. */
    assert_null(render("{{ raise_exception('a' ~ '世' * 600) }}"));
    assert_true(strlen(last.msg) > 800 && utf8_valid(last.msg, strlen(last.msg)));
}

static void limits_end_hostile_templates(void **state) {
    (void)state;
    static const char *const hostile[] = {
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}"
        "{% endfor %}",
        "{{ 'x' * 9223372036854775807 }}",
        "{{ [1] * 9223372036854775807 }}",
        "{{ 'x'.ljust(9223372036854775807) }}",
        "{{ '%999999999d' % 1 }}",
        "{{ '{:999999999}'.format('') }}",
        "{{ 'x'|indent(9223372036854775807, true) }}",
        "{{ [1]|tojson(indent=9223372036854775807) }}",
        "{{ [[]]|batch(9223372036854775807, 'x')|list }}",
        "{{ [1]|slice(9223372036854775807)|list }}",
        "{% set l = [] %}{% set _ = l.append(l) %}{{ l }}",
        "{% set l = [] %}{% set _ = l.append(l) %}{{ l|tojson }}",
        "{% set a, b = [], [] %}{% set _ = a.append(a) %}{% set _ = b.append(b) %}{{ a == b }}",
        "{% set l = [1] %}{% for i in l %}{% set _ = l.append(i) %}{% endfor %}",
        "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}",
        "{{ 9223372036854775807 + 1 }}",
        "{{ 2 ** 64 }}",
        "{{ -9223372036854775807 - 2 }}",
        "{{ (-9223372036854775807 - 1) // -1 }}",
        "{% set ns = namespace(l=[1, 1]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}"
        "{% endfor %}{{ ns.l }}",
    };
    for (size_t i = 0; i < ARRAY_LEN(hostile); i++) {
        const char *out = render(hostile[i]);
        if (out) fail_msg("%s gave '%.100s'", hostile[i], out);
        if (last.code != ERR_LIMIT) fail_msg("%s: %s", hostile[i], last.msg);
    }
}

static void deep_nesting_is_refused(void **state) {
    (void)state;
    static const char *const open[] = {"{{ ((((",
                                       "{{ [[[[",
                                       "{{ {1:{1:{1:{1:",
                                       "{{ not not not not ",
                                       "{{ - - - - ",
                                       "{% if 1 %}{% for a in b %}",
                                       "{% set x %}{% macro f() %}",
                                       "{{ a(a(a(a(",
                                       "{{ a[a[a[a["};
    for (size_t i = 0; i < ARRAY_LEN(open); i++) {
        struct str s = {0};
        str_addz(&s, open[i]);
        const char *again = strstr(open[i], "{{") ? open[i] + 3 : open[i];
        for (int k = 0; k < 5000; k++) str_addz(&s, again);
        assert_null(render(str_z(&s)));
        if (last.code != ERR_LIMIT && !strstr(last.msg, "brackets"))
            fail_msg("%s: %s", open[i], last.msg);
        str_deinit(&s);
    }
    struct str json = {0};
    str_addz(&json, "{\"x\":");
    for (int k = 0; k < 1000; k++) str_addz(&json, "[");
    for (int k = 0; k < 1000; k++) str_addz(&json, "]");
    str_addz(&json, "}");
    assert_null(render_with("{{ x }}", str_z(&json), NULL));
    assert_int_equal(last.code, ERR_LIMIT);
    str_deinit(&json);
}

static void long_chains_are_no_nesting(void **state) {
    (void)state;
    struct str s = {0};
    str_addz(&s, "{{ 0");
    for (int k = 0; k < 150; k++) str_addz(&s, " + 1");
    str_addz(&s, " }}");
    for (int k = 0; k < 500; k++) str_addz(&s, k ? "{% elif 0 %}" : "{% if 0 %}");
    str_addz(&s, "{% else %}end{% endif %}");
    assert_string_equal(render(str_z(&s)), "150end");
    str_deinit(&s);
}

static void limits_are_the_callers(void **state) {
    (void)state;
    const char *loop = "{% for i in range(1000) %}xxxxxxxxxx{% endfor %}";
    assert_int_equal(strlen(render(loop)), 10000);
    assert_null(render_with(loop, "{}", &(struct template_limits){.max_output_bytes = 9999}));
    assert_int_equal(last.code, ERR_LIMIT);
    assert_non_null(render_with(loop, "{}", &(struct template_limits){.max_output_bytes = 10000}));
    assert_null(render_with(loop, "{}", &(struct template_limits){.max_steps = 1000}));
    assert_int_equal(last.code, ERR_LIMIT);
    assert_null(render_with(loop, "{}", &(struct template_limits){.max_memory_bytes = 5000}));
    assert_int_equal(last.code, ERR_LIMIT);
    assert_null(render_with("{{ [[[[1]]]] }}", "{}", &(struct template_limits){.max_depth = 3}));
    assert_int_equal(last.code, ERR_LIMIT);
}

/* jinja2's sandbox refuses these; templates in GGUF files call them. */
static void lists_can_change(void **state) {
    (void)state;
    assert_string_equal(
        render("{% set l = [1] %}{% set _ = l.append(2) %}{% set _ = l.extend('ab') %}"
               "{% set _ = l.insert(1, 'i') %}{% set _ = l.insert(-1, 'j') %}{{ l }}"
               "{{ l.pop() }}{{ l.pop(0) }}{{ l.pop(-2) }}{{ l }}"),
        "[1, 'i', 2, 'a', 'j', 'b']b1a['i', 2, 'j']");
    assert_fails("{{ [].pop() }}", ERR_FORMAT, "line 1, column 10: pop from empty list");
    assert_fails("{{ [1].pop(1) }}", ERR_FORMAT, "line 1, column 11: pop index out of range");
    assert_string_equal(
        render("{% set q = namespace(ids=[]) %}{% for i in 'ab' %}{% set _ = q.ids.append(i) %}"
               "{% endfor %}{% for i in 'cd' %}{{ q.ids.pop(0) }}{{ i }}{% endfor %}"),
        "acbd");
}

static void variables_are_json(void **state) {
    (void)state;
    assert_string_equal(
        render_with("{{ a }} {{ b }} {{ c }} {{ d }} {{ e }}",
                    "{\"a\": 9223372036854775807, \"b\": 1.50, \"c\": {\"z\": null, "
                    "\"a\": [true]}, \"d\": \"\\ud83e\\udda9\", \"unused\": 1}",
                    NULL),
        "9223372036854775807 1.5 {'z': None, 'a': [True]} 🦩 ");
    assert_null(render_with("a", "{\"x\": 1", NULL));
    assert_int_equal(last.code, ERR_FORMAT);
    assert_non_null(strstr(last.msg, "template variables: line 1, column"));
    assert_null(render_with("a", "[1]", NULL));
    assert_string_equal(last.msg, "template variables: no JSON object");
    assert_null(render_with("a", "{\"x\": 99999999999999999999}", NULL));
    assert_string_equal(render_with("{{ range }}{{ dict(a=1) }}", "{\"range\": 5}", NULL),
                        "5{'a': 1}");
    assert_int_equal(strlen(render_with("{{ x }}", "{\"x\": \"a\\u0000b\"}", NULL)), 1);
}

static void sources_are_checked(void **state) {
    (void)state;
    assert_fails("a\xff", ERR_FORMAT, "the template is not valid UTF-8");
    assert_fails("{{ '\\ud800' }}", ERR_FORMAT, "line 1, column 5: bad or unsupported \\u escape");
    assert_fails("{{ 99999999999999999999 }}", ERR_FORMAT,
                 "line 1, column 4: the integer does not fit into 64 bits");
    assert_string_equal(render(""), "");
    assert_string_equal(render("plain\n"), "plain");
}

static void one_template_renders_many_times(void **state) {
    (void)state;
    struct err e = {0};
    struct str a = {0}, b = {0};
    struct template *t = template_compile(
        VIEW("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + m %}"
             "{% set _ = messages.append(1) if ns.n < 9 %}{% endfor %}{{ ns.n }}"),
        &e);
    assert_non_null(t);
    assert_true(template_render(t, VIEW("{\"messages\": [1]}"), 0, 0, NULL, &a, &e));
    assert_true(template_render(t, VIEW("{\"messages\": [1]}"), 0, 0, NULL, &b, &e));
    assert_string_equal(str_z(&a), "9");
    assert_string_equal(str_z(&b), "9");
    assert_true(template_uses(t, "messages"));
    assert_false(template_uses(t, "tools"));
    assert_false(template_uses(t, "append"));
    template_free(t);
    template_free(NULL);
    str_deinit(&a);
    str_deinit(&b);
}

static void time_is_local(void **state) {
    (void)state;
    assert_string_equal(render("{{ strftime_now('%d %b %Y %H:%M') }}"), "26 Dec 2024 15:05");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_name_line_and_column),
        cmocka_unit_test(what_is_not_supported_is_named),
        cmocka_unit_test(raise_exception_gives_its_message_alone),
        cmocka_unit_test(limits_end_hostile_templates),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(long_chains_are_no_nesting),
        cmocka_unit_test(limits_are_the_callers),
        cmocka_unit_test(lists_can_change),
        cmocka_unit_test(variables_are_json),
        cmocka_unit_test(sources_are_checked),
        cmocka_unit_test(one_template_renders_many_times),
        cmocka_unit_test(time_is_local),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
