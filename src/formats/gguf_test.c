#include "formats/gguf.h"
#include "base/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "formats/gguf_writer.h"

/* Parses an exact heap copy, so that a sanitizer sees any read behind the end. *copy must be freed
 * after the view. */
static struct gguf *parse_copy(const struct str *file, size_t n, u8 **copy, struct err *e) {
    *copy = malloc(n ? n : 1);
    assert_non_null(*copy);
    memcpy(*copy, file->p, n);
    *e = (struct err){0};
    return gguf_parse(*copy, n, e);
}

static void add_str_array(struct gguf_writer *w, const char *key, const char *const *v, u64 n) {
    struct str s = {0};
    for (u64 i = 0; i < n; i++) gguf_writer_add_str(&s, view_of(v[i]));
    gguf_writer_array(w, key, GGUF_STR, n, str_z(&s), s.n);
    str_deinit(&s);
}

/* A value of every type, arrays, and three tensors, the last of which needs no padding. */
static void build_sample(struct gguf_writer *w) {
    gguf_writer_str(w, "general.architecture", "llama");
    gguf_writer_scalar(w, "t.u8", GGUF_U8, "\xFE", 1);
    gguf_writer_scalar(w, "t.i8", GGUF_I8, "\xFE", 1);
    gguf_writer_scalar(w, "t.u16", GGUF_U16, "\xFE\xFF", 2);
    gguf_writer_scalar(w, "t.i16", GGUF_I16, "\xFE\xFF", 2);
    gguf_writer_u32(w, "t.u32", 0xFFFFFFFE);
    gguf_writer_scalar(w, "t.i32", GGUF_I32, "\xFE\xFF\xFF\xFF", 4);
    gguf_writer_f32(w, "t.f32", 1.5f);
    gguf_writer_bool(w, "t.bool", true);
    gguf_writer_u64(w, "t.u64", UINT64_MAX - 1);
    gguf_writer_scalar(w, "t.i64", GGUF_I64, "\xFE\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 8);
    double d = 0.1;
    gguf_writer_scalar(w, "t.f64", GGUF_F64, &d, 8);
    static const char *const WORDS[] = {"a", "", "\xC3\xA9\xFF"};
    add_str_array(w, "t.words", WORDS, 3);
    static const i16 SHORTS[] = {-1, 2, 300};
    gguf_writer_array(w, "t.shorts", GGUF_I16, 3, SHORTS, sizeof SHORTS);
    gguf_writer_array(w, "t.none", GGUF_F64, 0, "", 0);
    u8 bytes[1024];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (u8)i;
    gguf_writer_tensor(w, "a", DTYPE_F32, 2, (u64[]){3, 2}, bytes);
    gguf_writer_tensor(w, "b", DTYPE_Q8_0, 3, (u64[]){64, 2, 3}, bytes);
    gguf_writer_tensor(w, "c", DTYPE_I8, 1, (u64[]){32}, bytes);
}

static void a_file_of_all_types_reads_back(void **state) {
    (void)state;
    struct gguf_writer w = {0};
    struct str file = {0};
    struct err e;
    u8 *copy;
    build_sample(&w);
    gguf_writer_finish(&w, &file);
    struct gguf *g = parse_copy(&file, file.n, &copy, &e);
    if (!g) fail_msg("%s", e.msg);
    assert_int_equal(g->n_kv, 15);
    assert_int_equal(g->version, 3);
    static const char *const MINUS_TWO[] = {"t.i8", "t.i16", "t.i32", "t.i64"};
    for (size_t i = 0; i < ARRAY_LEN(MINUS_TWO); i++)
        assert_int_equal(gguf_arr_i64(gguf_find(g, MINUS_TWO[i]), 0), -2);
    assert_int_equal(gguf_arr_i64(gguf_find(g, "t.u8"), 0), 254);
    assert_int_equal(gguf_arr_i64(gguf_find(g, "t.u16"), 0), 0xFFFE);
    assert_int_equal(gguf_arr_i64(gguf_find(g, "t.u32"), 0), 0xFFFFFFFE);
    assert_true(gguf_arr_i64(gguf_find(g, "t.u64"), 0) == INT64_MAX);
    assert_true(gguf_arr_f64(gguf_find(g, "t.u64"), 0) == 0x1p64);
    assert_true(gguf_arr_f64(gguf_find(g, "t.f64"), 0) == 0.1);
    assert_int_equal(gguf_arr_i64(gguf_find(g, "t.shorts"), 2), 300);
    assert_true(gguf_arr_f64(gguf_find(g, "t.shorts"), 0) == -1.0);
    assert_int_equal(gguf_find(g, "t.none")->n, 0);

    struct view v = {0};
    size_t at = 0;
    const struct gguf_kv *words = gguf_find(g, "t.words");
    assert_true(gguf_arr_next_str(words, &at, &v) && view_is(v, "a"));
    assert_true(gguf_arr_next_str(words, &at, &v) && v.n == 0);
    assert_true(gguf_arr_next_str(words, &at, &v) && view_is(v, "\xC3\xA9\xFF"));
    assert_false(gguf_arr_next_str(words, &at, &v));

    const struct gguf_tensor *b = gguf_tensor(g, "b");
    assert_int_equal(b->type, DTYPE_Q8_0);
    assert_int_equal(b->size_bytes, 6 * 2 * 34);
    assert_int_equal(b->dims[2], 3);
    assert_int_equal(b->dims[3], 1);
    assert_int_equal(b->offset % 32, 0);
    assert_int_equal(copy[b->offset + 7], 7);
    assert_null(gguf_tensor(g, "d"));
    assert_null(gguf_find(g, "t"));
    gguf_free(g);
    free(copy);
    str_deinit(&file);
    gguf_writer_deinit(&w);
}

static void getters_convert_and_name_what_is_wrong(void **state) {
    (void)state;
    struct gguf_writer w = {0};
    struct str file = {0};
    struct err e;
    u8 *copy;
    build_sample(&w);
    gguf_writer_finish(&w, &file);
    struct gguf *g = parse_copy(&file, file.n, &copy, &e);
    assert_non_null(g);
    u32 u = 7;
    u64 u64v = 7;
    float f = 7;
    bool b = false;
    struct view s = {0};
    assert_true(gguf_get_u32(g, "missing", &u, &e) && u == 7);
    assert_true(gguf_get_f32(g, "missing", &f, &e) && f == 7);
    assert_true(gguf_get_u32(g, "t.u8", &u, &e) && u == 254);
    assert_true(gguf_get_u64(g, "t.u64", &u64v, &e) && u64v == UINT64_MAX - 1);
    assert_true(gguf_get_f32(g, "t.f64", &f, &e) && f == 0.1f);
    assert_true(gguf_get_f32(g, "t.i8", &f, &e) && f == -2.0f);
    assert_true(gguf_get_bool(g, "t.bool", &b, &e) && b);
    assert_true(gguf_get_str(g, "general.architecture", &s, &e) && view_is(s, "llama"));

    assert_false(gguf_get_u32(g, "t.u64", &u, &e));
    assert_string_equal(e.msg, "metadata key t.u64: 18446744073709551614 is above 4294967295");
    assert_false(gguf_get_u64(g, "t.i32", &u64v, &e));
    assert_string_equal(e.msg, "metadata key t.i32: -2 is negative");
    assert_false(gguf_get_u32(g, "t.f32", &u, &e));
    assert_string_equal(e.msg, "metadata key t.f32: expected an integer, found f32");
    assert_false(gguf_get_f32(g, "t.words", &f, &e));
    assert_string_equal(e.msg, "metadata key t.words: expected a number, found an array of string");
    assert_false(gguf_get_bool(g, "t.u8", &b, &e));
    assert_string_equal(e.msg, "metadata key t.u8: expected a bool, found u8");
    assert_false(gguf_get_str(g, "t.words", &s, &e));
    assert_int_equal(e.code, ERR_FORMAT);
    assert_int_equal(u, 254);
    gguf_free(g);
    free(copy);
    str_deinit(&file);
    gguf_writer_deinit(&w);
}

static void dimension_sections_of_3_and_4_load_and_5_is_an_error(void **state) {
    (void)state;
    static const i32 SECTIONS[5] = {16, 24, 24, 8, 9};
    for (u32 n = 3; n <= 5; n++) {
        struct gguf_writer w = {0};
        struct str file = {0};
        struct err e = {0};
        gguf_writer_array(&w, "x.rope.dimension_sections", GGUF_I32, n, SECTIONS, 4 * n);
        gguf_writer_finish(&w, &file);
        struct gguf *g = gguf_parse(file.p, file.n, &e);
        assert_non_null(g);
        i32 got[4] = {-1, -1, -1, -1};
        bool ok = gguf_get_i32s(g, "x.rope.dimension_sections", got, 3, 4, &e);
        assert_int_equal(ok, n <= 4);
        if (ok)
            assert_int_equal(got[3], n == 4 ? 8 : 0);
        else
            assert_string_equal(e.msg, "metadata key x.rope.dimension_sections: expected 3 to 4 "
                                       "entries, found 5");
        gguf_free(g);
        str_deinit(&file);
        gguf_writer_deinit(&w);
    }
}

static void every_truncation_is_an_error(void **state) {
    (void)state;
    struct gguf_writer w = {0};
    struct str file = {0};
    build_sample(&w);
    gguf_writer_finish(&w, &file);
    for (size_t n = 0; n < file.n; n++) {
        struct err e;
        u8 *copy;
        struct gguf *g = parse_copy(&file, n, &copy, &e);
        if (g) fail_msg("parsed when cut to %zu of %zu bytes", n, file.n);
        assert_true(e.code == ERR_FORMAT || e.code == ERR_LIMIT);
        assert_true(strlen(e.msg) > 10);
        free(copy);
    }
    str_deinit(&file);
    gguf_writer_deinit(&w);
}

/* One directory entry, as hostile as the caller likes. */
static void raw_tensor(struct gguf_writer *w, const char *name, u32 n_dims, const u64 *dims,
                       u32 type, u64 offset) {
    gguf_writer_add_str(&w->dir, view_of(name));
    wr_u32(&w->dir, n_dims);
    for (u32 i = 0; i < n_dims; i++) wr_u64(&w->dir, dims[i]);
    wr_u32(&w->dir, type);
    wr_u64(&w->dir, offset);
    w->n_tensors++;
}

static void dims(struct gguf_writer *w, u32 n, u64 a, u64 b, u64 c) {
    raw_tensor(w, "blk.0.x", n, (u64[5]){a, b, c, 1, 1}, DTYPE_F32, 0);
}

static void zero_dim(struct gguf_writer *w) {
    dims(w, 2, 4, 0, 0);
}
static void no_dims(struct gguf_writer *w) {
    dims(w, 0, 0, 0, 0);
}
static void five_dims(struct gguf_writer *w) {
    dims(w, 5, 1, 1, 1);
}
static void product_wraps(struct gguf_writer *w) {
    dims(w, 2, INT64_MAX, 2, 0);
}
static void three_wrap(struct gguf_writer *w) {
    dims(w, 3, 4, (1u << 30) - 1, (1u << 30) + 1);
}
static void rows_wrap(struct gguf_writer *w) {
    dims(w, 3, 1, 1ull << 33, 1ull << 33);
}
static void past_end(struct gguf_writer *w) {
    dims(w, 1, 1000, 0, 0);
}
static void offset_wraps(struct gguf_writer *w) {
    raw_tensor(w, "t", 1, (u64[]){8}, DTYPE_F32, UINT64_MAX - 31);
}
static void offset_odd(struct gguf_writer *w) {
    raw_tensor(w, "t", 1, (u64[]){1}, DTYPE_F32, 4);
}
static void ragged_rows(struct gguf_writer *w) {
    raw_tensor(w, "t", 2, (u64[]){33, 1}, DTYPE_Q4_0, 0);
}
static void known_format(struct gguf_writer *w) {
    raw_tensor(w, "blk.0.ffn_up.weight", 1, (u64[]){256}, 16, 0);
}
static void unknown_format(struct gguf_writer *w) {
    raw_tensor(w, "t", 1, (u64[]){256}, 1000, 0);
}
static void twin_tensors(struct gguf_writer *w) {
    for (int i = 0; i < 2; i++)
        gguf_writer_tensor(w, "twin", DTYPE_F32, 1, (u64[]){8}, "01234567890123456789012345678901");
}
static void nameless(struct gguf_writer *w) {
    raw_tensor(w, "", 1, (u64[]){1}, DTYPE_F32, 0);
}
static void long_name(struct gguf_writer *w) {
    char name[300];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    raw_tensor(w, name, 1, (u64[]){1}, DTYPE_F32, 0);
}

static void empty_key(struct gguf_writer *w) {
    gguf_writer_u32(w, "", 1);
}
static void control_key(struct gguf_writer *w) {
    gguf_writer_u32(w, "a\033[2J", 1);
}
static void latin1_key(struct gguf_writer *w) {
    gguf_writer_u32(w, "caf\xE9", 1);
}
static void twin_keys(struct gguf_writer *w) {
    gguf_writer_u32(w, "twin", 1);
    gguf_writer_str(w, "twin", "2");
}
static void bad_type(struct gguf_writer *w) {
    gguf_writer_scalar(w, "k", GGUF_TYPE_N, "1234", 4);
}
static void bad_elem(struct gguf_writer *w) {
    gguf_writer_array(w, "k", (enum gguf_type)99, 1, "1234", 4);
}
static void nested(struct gguf_writer *w) {
    gguf_writer_array(w, "k", GGUF_ARR, 1, "123456789012", 12);
}
static void bad_bool(struct gguf_writer *w) {
    gguf_writer_scalar(w, "k", GGUF_BOOL, "\2", 1);
}
static void array_wraps(struct gguf_writer *w) {
    gguf_writer_array(w, "k", GGUF_U64, (1ull << 61) + 1, "12345678", 8);
}
static void strings_too_many(struct gguf_writer *w) {
    gguf_writer_array(w, "k", GGUF_STR, UINT64_MAX, "\0\0\0\0\0\0\0\0", 8);
}
static void string_wraps(struct gguf_writer *w) {
    gguf_writer_scalar(w, "k", GGUF_STR, "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 8);
}
static void key_wraps(struct gguf_writer *w) {
    wr_u64(&w->kv, UINT64_MAX - 8);
    str_addz(&w->kv, "123456789012345678");
    w->n_kv++;
}
static void many_keys(struct gguf_writer *w) {
    w->n_kv = UINT64_MAX;
}
static void more_keys_than_bytes(struct gguf_writer *w) {
    w->n_kv = 60000;
}
static void more_tensors_than_bytes(struct gguf_writer *w) {
    w->n_tensors = 60000;
}
static void many_tensors(struct gguf_writer *w) {
    w->n_tensors = 1ull << 60;
}
static void align_type(struct gguf_writer *w) {
    gguf_writer_str(w, "general.alignment", "32");
}
static void align_zero(struct gguf_writer *w) {
    gguf_writer_u32(w, "general.alignment", 0);
}
static void align_odd(struct gguf_writer *w) {
    gguf_writer_u32(w, "general.alignment", 48);
}
static void align_huge(struct gguf_writer *w) {
    gguf_writer_u32(w, "general.alignment", 1u << 31);
}
static void version_1(struct gguf_writer *w) {
    w->version = 1;
}
static void version_4(struct gguf_writer *w) {
    w->version = 4;
}
static void big_endian(struct gguf_writer *w) {
    w->version = 0x03000000;
}

static const struct {
    void (*build)(struct gguf_writer *w);
    enum err_code code;
    const char *says;
} HOSTILE[] = {
    {zero_dim, ERR_FORMAT, "tensor blk.0.x at byte 24: dimension 1 is zero"},
    {no_dims, ERR_FORMAT, "0 dimensions"},
    {five_dims, ERR_FORMAT, "5 dimensions"},
    {product_wraps, ERR_LIMIT, "overflows"},
    {three_wrap, ERR_FORMAT, "its 18446744073709551600 bytes at data offset 0 reach beyond"},
    {rows_wrap, ERR_LIMIT, "overflows"},
    {past_end, ERR_FORMAT, "reach beyond the end of the file"},
    {offset_wraps, ERR_FORMAT, "reach beyond the end of the file"},
    {offset_odd, ERR_FORMAT, "no multiple of the alignment 32"},
    {ragged_rows, ERR_FORMAT, "rows of 33 elements do not divide into Q4_0 blocks of 32"},
    {known_format, ERR_UNSUPPORTED,
     "tensor blk.0.ffn_up.weight: block format IQ2_XXS is not supported"},
    {unknown_format, ERR_UNSUPPORTED, "tensor t: block format type 1000 is not supported"},
    {twin_tensors, ERR_FORMAT, "tensor twin occurs twice"},
    {nameless, ERR_FORMAT, "empty tensor name at byte 24"},
    {long_name, ERR_LIMIT, "299 bytes long, the limit is 255"},
    {empty_key, ERR_FORMAT, "empty metadata key at byte 24"},
    {control_key, ERR_FORMAT, "not printable UTF-8"},
    {latin1_key, ERR_FORMAT, "not printable UTF-8"},
    {twin_keys, ERR_FORMAT, "metadata key twin occurs twice"},
    {bad_type, ERR_FORMAT, "metadata key k: unknown value type 13 at byte 33"},
    {bad_elem, ERR_FORMAT, "unknown value type 99"},
    {nested, ERR_UNSUPPORTED, "metadata key k: an array of arrays"},
    {bad_bool, ERR_FORMAT, "boolean of value 2"},
    {array_wraps, ERR_FORMAT, "reach beyond the end of the file"},
    {strings_too_many, ERR_FORMAT, "reach beyond the end of the file"},
    {string_wraps, ERR_FORMAT, "1 value(s) of type string"},
    {key_wraps, ERR_LIMIT, "the limit is 65535"},
    {many_keys, ERR_LIMIT, "18446744073709551615 metadata entries"},
    {more_keys_than_bytes, ERR_LIMIT, "60000 metadata entries"},
    {more_tensors_than_bytes, ERR_LIMIT, "60000 tensors"},
    {many_tensors, ERR_LIMIT, "1152921504606846976 tensors"},
    {align_type, ERR_FORMAT, "general.alignment: expected an integer, found string"},
    {align_zero, ERR_FORMAT, "0 is no power of two"},
    {align_odd, ERR_FORMAT, "48 is no power of two"},
    {align_huge, ERR_FORMAT, "2147483648 is no power of two from 8 to 65536"},
    {version_1, ERR_UNSUPPORTED, "GGUF version 1 is not supported"},
    {version_4, ERR_UNSUPPORTED, "GGUF version 4 is not supported"},
    {big_endian, ERR_UNSUPPORTED, "big-endian"},
};

static void hostile_files_are_refused_with_place_and_reason(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(HOSTILE); i++) {
        struct gguf_writer w = {0};
        struct str file = {0};
        struct err e;
        u8 *copy;
        HOSTILE[i].build(&w);
        gguf_writer_finish(&w, &file);
        struct gguf *g = parse_copy(&file, file.n, &copy, &e);
        if (g || e.code != HOSTILE[i].code || !strstr(e.msg, HOSTILE[i].says))
            fail_msg("expected %s \"%s\", got %s \"%s\"", err_name(HOSTILE[i].code),
                     HOSTILE[i].says, err_name(e.code), e.msg);
        free(copy);
        str_deinit(&file);
        gguf_writer_deinit(&w);
    }
}

/* Sizes whose padded sum wraps to something small: the single tensors are plausible. */
static void sums_do_not_wrap(void **state) {
    (void)state;
    struct gguf_writer w = {0};
    struct str file = {0};
    struct err e;
    u8 *copy;
    raw_tensor(&w, "a", 1, (u64[]){(1ull << 63) - 16}, DTYPE_I8, 1ull << 63);
    gguf_writer_finish(&w, &file);
    assert_null(parse_copy(&file, file.n, &copy, &e));
    assert_non_null(strstr(e.msg, "tensor a: its 9223372036854775792 bytes"));
    free(copy);
    str_deinit(&file);
    gguf_writer_deinit(&w);
}

static void other_files_are_recognised(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        const char *says;
    } FILES[] = {
        {"", 0, "the file is empty"},
        {"PK\3\4....", 8, "zip archive"},
        {"\x40\1\0\0\0\0\0\0{\"__metadata__\"", 23, "safetensors"},
        {"\n <!DOCTYPE html><html>", 23, "web page"},
        {"<HTML>", 6, "web page"},
        {"version https://git-lfs.github.com/spec/v1\n", 43, "Git LFS pointer"},
        {"{\"error\": \"Entry not found\"}", 28, "JSON"},
        {"tjgg\3\0\0\0", 8, "before GGUF"},
        {"GGU", 3, "does not begin"},
    };
    for (size_t i = 0; i < ARRAY_LEN(FILES); i++) {
        struct err e = {0};
        assert_null(gguf_parse(FILES[i].bytes, FILES[i].n, &e));
        assert_int_equal(e.code, ERR_FORMAT);
        if (!strstr(e.msg, FILES[i].says)) fail_msg("%s: %s", FILES[i].says, e.msg);
    }
}

static void version_2_and_other_alignments_load(void **state) {
    (void)state;
    for (u32 align = 8; align <= 65536; align *= 2) {
        struct gguf_writer w = {.version = 2, .alignment = align};
        struct str file = {0};
        struct err e;
        u8 *copy;
        gguf_writer_u32(&w, "general.alignment", align);
        gguf_writer_tensor(&w, "a", DTYPE_F32, 1, (u64[]){1}, "1234");
        gguf_writer_tensor(&w, "b", DTYPE_F32, 1, (u64[]){1}, "5678");
        gguf_writer_finish(&w, &file);
        struct gguf *g = parse_copy(&file, file.n, &copy, &e);
        if (!g) fail_msg("%s", e.msg);
        assert_int_equal(g->version, 2);
        assert_int_equal(gguf_tensor(g, "b")->offset % align, 0);
        assert_memory_equal(copy + gguf_tensor(g, "b")->offset, "5678", 4);
        gguf_free(g);
        free(copy);
        str_deinit(&file);
        gguf_writer_deinit(&w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_of_all_types_reads_back),
        cmocka_unit_test(getters_convert_and_name_what_is_wrong),
        cmocka_unit_test(dimension_sections_of_3_and_4_load_and_5_is_an_error),
        cmocka_unit_test(every_truncation_is_an_error),
        cmocka_unit_test(hostile_files_are_refused_with_place_and_reason),
        cmocka_unit_test(sums_do_not_wrap),
        cmocka_unit_test(other_files_are_recognised),
        cmocka_unit_test(version_2_and_other_alignments_load),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
