#include "cli/inspect.h"
#include "base/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "formats/toymodel.h"

static char path[64];

/* Saves the file and reports on it. */
static void report(const struct str *file, struct inspect_options o, struct str *out) {
    struct err e = {0};
    if (!file_write(path, file->p, file->n, 0600, &e)) fail_msg("%s", e.msg);
    struct model_file *f = model_file_open(path, &e);
    if (!f) fail_msg("%s", e.msg);
    inspect_report(f, &o, out);
    model_file_close(f);
}

static void toy_report(struct inspect_options o, struct str *out) {
    struct toymodel m;
    struct str file = {0};
    assert_true(toymodel_init(
        &m, &(struct toymodel_spec){.family = "gemma3", .type = DTYPE_Q8_0, .sliding_window = 8},
        NULL));
    toymodel_build(&m, &file);
    report(&file, o, out);
    str_deinit(&file);
    toymodel_deinit(&m);
}

static void expect(const struct str *out, const char *says) {
    if (!strstr(str_z(out), says)) fail_msg("\"%s\" is not in:\n%s", says, str_z(out));
}

static void text_tells_the_facts(void **state) {
    (void)state;
    struct str out = {0};
    toy_report((struct inspect_options){0}, &out);
    expect(&out, "GGUF v3");
    expect(&out, "architecture        \"gemma3\"\n");
    expect(&out, "layers              2\n");
    expect(&out, "sliding window      8\n");
    expect(&out, "15 Q8_0 (");
    expect(&out, "384 tokens\n");
    expect(&out, "chat template       262 bytes, begins \"{{ bos_token }}{% for");
    expect(&out, "skein runs it       yes\n");
    assert_null(strstr(out.p, "blk.0"));
    str_deinit(&out);
    toy_report((struct inspect_options){.kv = true, .tensors = true}, &out);
    expect(&out, "gemma3.attention.sliding_window  u32  8\n");
    expect(&out, "tokenizer.ggml.token_type  i32  [3, 3, 3, 2, 3, 3, 6, 6, ...] (384)\n");
    expect(&out, "blk.1.ffn_down.weight                    Q8_0    128 x 64  8.5 KiB\n");
    str_deinit(&out);
}

static void json_parses_and_holds_the_same(void **state) {
    (void)state;
    struct str out = {0};
    struct err e = {0};
    toy_report((struct inspect_options){.json = true, .kv = true, .tensors = true}, &out);
    json_t *j = json_parse(str_view(&out), &e), *first;
    if (!j) fail_msg("%s in %s", e.msg, out.p);
    assert_string_equal(json_string_value(json_object_get(j, "architecture")), "gemma3");
    assert_int_equal(json_integer_value(json_object_get(j, "layers")), 2);
    assert_int_equal(json_integer_value(json_object_get(j, "vocab_size")), 384);
    assert_true(json_is_true(json_object_get(j, "supported")));
    assert_int_equal(json_array_size(json_object_get(j, "tensors")),
                     json_integer_value(json_object_get(j, "n_tensors")));
    first = json_array_get(json_object_get(j, "tensors"), 0);
    assert_string_equal(json_string_value(json_object_get(first, "name")), "token_embd.weight");
    assert_int_equal(json_integer_value(json_array_get(json_object_get(first, "shape"), 1)), 384);
    assert_non_null(json_object_get(json_object_get(j, "metadata"), "tokenizer.chat_template"));
    json_decref(j);
    str_deinit(&out);
}

static void hostile_text_reaches_neither_terminal_nor_json(void **state) {
    (void)state;
    struct gguf_writer w = {0};
    struct str file = {0}, out = {0};
    struct err e = {0};
    float nan = __builtin_nanf("");
    gguf_writer_str(&w, "general.architecture", "x\033[2J\xFF");
    gguf_writer_str(&w, "general.name", "two\nlines\xC2\x9B");
    gguf_writer_array(&w, "nan", GGUF_F32, 1, &nan, 4);
    gguf_writer_finish(&w, &file);
    report(&file, (struct inspect_options){.kv = true}, &out);
    for (size_t i = 0; i < out.n; i++) assert_true((u8)out.p[i] >= 0x20 || out.p[i] == '\n');
    assert_true(utf8_valid(out.p, out.n));
    expect(&out, "\"x\\x1B[2J\\xFF\"");
    expect(&out, "\"two\\nlines\\xC2\\x9B\"");
    expect(&out, "skein runs it       no: ");
    str_clear(&out);
    report(&file, (struct inspect_options){.json = true, .kv = true}, &out);
    json_t *j = json_parse(str_view(&out), &e);
    if (!j) fail_msg("%s in %s", e.msg, out.p);
    assert_true(json_is_false(json_object_get(j, "supported")));
    json_decref(j);
    str_deinit(&out);
    str_deinit(&file);
    gguf_writer_deinit(&w);
}

static int make_file(void **state) {
    (void)state;
    snprintf(path, sizeof path, "/tmp/skein-inspect-test-XXXXXX");
    int fd = mkstemp(path);
    return fd < 0 || close(fd) != 0 ? -1 : 0;
}

static int remove_file(void **state) {
    (void)state;
    return unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_tells_the_facts),
        cmocka_unit_test(json_parses_and_holds_the_same),
        cmocka_unit_test(hostile_text_reaches_neither_terminal_nor_json),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
