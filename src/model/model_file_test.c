#include "model/model_file.h"
#include "base/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/gguf_writer.h"

static char folder[64];

static const char *in_folder(const char *name, char buf[256]) {
    snprintf(buf, 256, "%s/%s", folder, name);
    return buf;
}

static void save(struct gguf_writer *w, const char *name) {
    char path[256];
    struct str file = {0};
    struct err e = {0};
    gguf_writer_finish(w, &file);
    if (!file_write(in_folder(name, path), file.p, file.n, 0644, &e)) fail_msg("%s", e.msg);
    str_deinit(&file);
    gguf_writer_deinit(w);
}

/* Part no of count with one tensor "t<tensor>" whose bytes are 'a' + tensor. */
static void save_part(const char *name, u32 no, u32 count, u32 n_tensors, u32 tensor) {
    struct gguf_writer w = {0};
    char bytes[32], tensor_name[16];
    if (no == 0) gguf_writer_str(&w, "general.architecture", "llama");
    gguf_writer_scalar(&w, "split.no", GGUF_U16, &no, 2);
    gguf_writer_scalar(&w, "split.count", GGUF_U16, &count, 2);
    gguf_writer_scalar(&w, "split.tensors.count", GGUF_I32, &n_tensors, 4);
    memset(bytes, (int)('a' + tensor), sizeof bytes);
    snprintf(tensor_name, sizeof tensor_name, "t%u", tensor);
    gguf_writer_tensor(&w, tensor_name, DTYPE_F32, 1, (u64[]){8}, bytes);
    save(&w, name);
}

static struct model_file *open_file(const char *name, struct err *e) {
    char path[256];
    *e = (struct err){0};
    return model_file_open(in_folder(name, path), e);
}

static void expect_error(const char *name, enum err_code code, const char *says) {
    struct err e;
    struct model_file *f = open_file(name, &e);
    if (f || e.code != code || !strstr(e.msg, says))
        fail_msg("%s: expected \"%s\", got %s \"%s\"", name, says, err_name(e.code), e.msg);
}

static void single_file_opens(void **state) {
    (void)state;
    struct gguf_writer w = {0};
    gguf_writer_str(&w, "general.architecture", "llama");
    gguf_writer_tensor(&w, "w", DTYPE_F16, 2, (u64[]){16, 3},
                       "0123456789abcdef0123456789abcdef"
                       "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef");
    gguf_writer_tensor(&w, "v.patch", DTYPE_F32, 1, (u64[]){1}, "1234");
    save(&w, "one.gguf");
    struct err e;
    struct model_file *f = open_file("one.gguf", &e);
    if (!f) fail_msg("%s", e.msg);
    struct model_tensor t;
    assert_int_equal(f->n_parts, 1);
    assert_int_equal(model_file_n_params(f), 49);
    assert_true(model_file_tensor(f, "w", &t));
    assert_memory_equal(t.data, "0123456789abcdef", 16);
    assert_int_equal(t.info->size_bytes, 96);
    assert_false(model_file_tensor(f, "x", &t));
    assert_true(model_file_is_extra(view_of("v.patch")));
    assert_false(model_file_is_extra(view_of("blk.0.attn_q.weight")));
    model_file_close(f);
}

static void split_file_opens_from_any_part(void **state) {
    (void)state;
    for (u32 i = 0; i < 3; i++) {
        char name[64];
        snprintf(name, sizeof name, "good-%05u-of-00003.gguf", i + 1);
        save_part(name, i, 3, 3, i);
    }
    static const char *const ANY[] = {"good-00001-of-00003.gguf", "good-00002-of-00003.gguf",
                                      "good-00003-of-00003.gguf"};
    for (size_t i = 0; i < ARRAY_LEN(ANY); i++) {
        struct err e;
        struct model_file *f = open_file(ANY[i], &e);
        if (!f) fail_msg("%s", e.msg);
        assert_int_equal(f->n_parts, 3);
        assert_int_equal(f->n_tensors, 3);
        assert_non_null(gguf_find(f->meta, "general.architecture"));
        for (u32 k = 0; k < 3; k++) {
            char name[16];
            struct model_tensor t;
            snprintf(name, sizeof name, "t%u", k);
            assert_true(model_file_tensor(f, name, &t));
            assert_int_equal(t.data[31], 'a' + k);
        }
        model_file_close(f);
    }
}

static void incomplete_sets_are_refused(void **state) {
    (void)state;
    save_part("gap-00001-of-00003.gguf", 0, 3, 3, 0);
    save_part("gap-00003-of-00003.gguf", 2, 3, 3, 2);
    expect_error("gap-00003-of-00003.gguf", ERR_NOT_FOUND, "gap-00002-of-00003.gguf");

    save_part("swap-00001-of-00002.gguf", 0, 2, 2, 0);
    save_part("swap-00002-of-00002.gguf", 0, 2, 2, 1);
    expect_error("swap-00001-of-00002.gguf", ERR_FORMAT,
                 "named as part 2 of 2, but its metadata says part 1 of 2");
    expect_error("swap-00002-of-00002.gguf", ERR_FORMAT, "its metadata says part 1 of 2");

    save_part("twin-00001-of-00002.gguf", 0, 2, 2, 0);
    save_part("twin-00002-of-00002.gguf", 1, 2, 2, 0);
    expect_error("twin-00001-of-00002.gguf", ERR_FORMAT, "tensor t0 is in ");

    save_part("few-00001-of-00002.gguf", 0, 2, 3, 0);
    save_part("few-00002-of-00002.gguf", 1, 2, 3, 1);
    expect_error("few-00001-of-00002.gguf", ERR_FORMAT,
                 "hold 2 tensors, split.tensors.count says 3");

    save_part("renamed.gguf", 1, 2, 2, 1);
    expect_error("renamed.gguf", ERR_FORMAT, "is part 2 of 2: its name must be ...-00002-of-00002");
    save_part("no-00001-of-00002.gguf", 5, 2, 2, 1);
    expect_error("no-00001-of-00002.gguf", ERR_FORMAT, "split.no 5 of split.count 2");
    save_part("zero-00000-of-00002.gguf", 0, 2, 2, 1);
    expect_error("zero-00000-of-00002.gguf", ERR_FORMAT, "parts count from 00001");
    save_part("lots-00001-of-60000.gguf", 0, 60000, 2, 1);
    expect_error("lots-00001-of-60000.gguf", ERR_FORMAT, "at most 1024 parts");
}

static void unsplit_file_with_a_split_name_is_refused(void **state) {
    (void)state;
    struct gguf_writer w = {0};
    gguf_writer_str(&w, "general.architecture", "llama");
    save(&w, "odd-00002-of-00003.gguf");
    expect_error("odd-00002-of-00003.gguf", ERR_FORMAT, "its metadata says part 1 of 1");
    gguf_writer_str(&w, "general.architecture", "llama");
    save(&w, "fine-00001-of-00001.gguf");
    struct err e;
    struct model_file *f = open_file("fine-00001-of-00001.gguf", &e);
    if (!f) fail_msg("%s", e.msg);
    model_file_close(f);
}

static void wrong_files_are_named(void **state) {
    (void)state;
    char path[256];
    struct err e;
    expect_error("absent.gguf", ERR_NOT_FOUND, "absent.gguf: No such file");
    assert_true(file_write(in_folder("empty.gguf", path), "", 0, 0644, &e));
    expect_error("empty.gguf", ERR_FORMAT, "empty.gguf: not a GGUF file: the file is empty");
    assert_true(file_write(in_folder("page.gguf", path), "<!doctype html>", 15, 0644, &e));
    expect_error("page.gguf", ERR_FORMAT, "page.gguf: not a GGUF file: it looks like a web page");

    save_part("cut.gguf", 0, 1, 1, 0);
    struct str s = {0};
    assert_true(file_read(in_folder("cut.gguf", path), 10000, &s, &e));
    assert_true(file_write(path, s.p, s.n - 1, 0644, &e));
    str_deinit(&s);
    expect_error("cut.gguf", ERR_FORMAT, "truncated");
}

static int make_folder(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/skein-model-file-test-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    char cmd[128];
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", folder);
    return system(cmd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(single_file_opens),
        cmocka_unit_test(split_file_opens_from_any_part),
        cmocka_unit_test(incomplete_sets_are_refused),
        cmocka_unit_test(unsplit_file_with_a_split_name_is_refused),
        cmocka_unit_test(wrong_files_are_named),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
