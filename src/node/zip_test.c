#include "node/zip.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/buf.h"
#include "base/test.h"

/* A writer for the tests: members one after the other, then directory and end record. */
struct maker {
    struct str file, directory;
    u32 n;
};

static void add_heads(struct maker *z, const char *name, u32 method, u32 crc, u32 packed,
                      u32 size) {
    u32 local = (u32)z->file.n, n_name = (u32)strlen(name);
    for (int central = 0; central < 2; central++) {
        struct str *s = central ? &z->directory : &z->file;
        wr_u32(s, central ? 0x02014b50 : 0x04034b50);
        if (central) wr_u16(s, 20);
        wr_u16(s, 20);
        wr_u16(s, 0);
        wr_u16(s, (u16)method);
        wr_u32(s, 0);
        wr_u32(s, crc);
        wr_u32(s, packed);
        wr_u32(s, size);
        wr_u16(s, (u16)n_name);
        wr_u16(s, 0);
        if (central) str_add(s, "\0\0\0\0\0\0\0\0\0\0", 10), wr_u32(s, local);
        str_add(s, name, n_name);
    }
    z->n++;
}

static void add(struct maker *z, const char *name, bool packed, const void *data, size_t n) {
    u8 *out = malloc(n + 1024);
    z_stream s = {.next_in = (Bytef *)(uintptr_t)data,
                  .avail_in = (uInt)n,
                  .next_out = out,
                  .avail_out = (uInt)n + 1024};
    assert_int_equal(deflateInit2(&s, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&s, Z_FINISH), Z_STREAM_END);
    u32 n_out = (u32)s.total_out, crc = (u32)crc32(0, data, (uInt)n);
    deflateEnd(&s);
    add_heads(z, name, packed ? 8 : 0, crc, packed ? n_out : (u32)n, (u32)n);
    str_add(&z->file, packed ? out : data, packed ? n_out : n);
    free(out);
}

static void finish(struct maker *z, const char *comment) {
    u32 off = (u32)z->file.n;
    str_add(&z->file, z->directory.p, z->directory.n);
    wr_u32(&z->file, 0x06054b50);
    wr_u32(&z->file, 0);
    wr_u16(&z->file, (u16)z->n);
    wr_u16(&z->file, (u16)z->n);
    wr_u32(&z->file, (u32)z->directory.n);
    wr_u32(&z->file, off);
    wr_u16(&z->file, (u16)strlen(comment));
    str_addz(&z->file, comment);
    str_deinit(&z->directory);
}

static bool collect(void *ctx, const void *p, size_t n, struct err *e) {
    (void)e;
    str_add(ctx, p, n);
    return true;
}

static char big[700000];

static struct maker sample(void) {
    struct maker z = {0};
    for (size_t i = 0; i < sizeof big; i++) big[i] = (char)(i * i >> 7);
    add(&z, "pkg/__init__.py", true, "x = 1\n", 6);
    add(&z, "pkg/model.gguf", true, big, sizeof big);
    add(&z, "pkg/stored", false, big, 300000);
    finish(&z, "a comment");
    return z;
}

static void members_come_out_as_they_went_in(void **state) {
    (void)state;
    struct maker z = sample();
    struct err e = {0};
    struct zip_member m;
    struct str out = {0};
    assert_true(zip_find(z.file.p, z.file.n, "pkg/model.gguf", &m, &e));
    assert_true(zip_read(z.file.p, z.file.n, &m, collect, &out, &e));
    assert_int_equal(out.n, sizeof big);
    assert_memory_equal(out.p, big, sizeof big);
    str_clear(&out);
    assert_true(zip_find(z.file.p, z.file.n, "pkg/stored", &m, &e));
    assert_true(zip_read(z.file.p, z.file.n, &m, collect, &out, &e));
    assert_int_equal(out.n, 300000);
    assert_memory_equal(out.p, big, 300000);
    assert_false(zip_find(z.file.p, z.file.n, "pkg/model", &m, &e));
    assert_int_equal(e.code, ERR_NOT_FOUND);
    str_deinit(&out);
    str_deinit(&z.file);
}

static void cut_anywhere_is_an_error(void **state) {
    (void)state;
    struct maker z = sample();
    struct zip_member m;
    for (size_t n = 0; n<z.file.n; n += n> z.file.n - 400 ? 1 : 997) {
        struct err e = {0};
        char *copy = malloc(n + 1); /* of its own, so that a sanitizer sees reads beyond */
        memcpy(copy, z.file.p, n);
        assert_false(zip_find(copy, n, "pkg/stored", &m, &e));
        assert_int_equal(e.code, ERR_FORMAT);
        free(copy);
    }
    str_deinit(&z.file);
}

/* Reads "a" out of an archive whose one member's head lies about it. */
static enum err_code lying(u32 method, u32 crc, u32 packed, u32 size) {
    struct maker z = {0};
    struct err e = {0};
    struct zip_member m;
    struct str out = {0};
    add_heads(&z, "a", method, crc, packed, size);
    str_addz(&z.file, "hello");
    finish(&z, "");
    if (zip_find(z.file.p, z.file.n, "a", &m, &e) &&
        zip_read(z.file.p, z.file.n, &m, collect, &out, &e))
        e.code = ERR_NONE;
    str_deinit(&out);
    str_deinit(&z.file);
    return e.code;
}

static void heads_that_lie_are_refused(void **state) {
    (void)state;
    u32 crc = (u32)crc32(0, (const Bytef *)"hello", 5);
    assert_int_equal(lying(0, crc, 5, 5), ERR_NONE);
    assert_int_equal(lying(0, crc + 1, 5, 5), ERR_FORMAT);
    assert_int_equal(lying(0, crc, 5, 6), ERR_FORMAT);
    assert_int_equal(lying(0, crc, 5, 4), ERR_FORMAT);
    assert_int_equal(lying(0, crc, 1u << 30, 1u << 30), ERR_FORMAT);
    assert_int_equal(lying(8, crc, 5, 5), ERR_FORMAT);
    assert_int_equal(lying(12, crc, 5, 5), ERR_UNSUPPORTED);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_come_out_as_they_went_in),
        cmocka_unit_test(cut_anywhere_is_an_error),
        cmocka_unit_test(heads_that_lie_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
