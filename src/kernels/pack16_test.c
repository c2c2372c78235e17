#include "kernels/pack16.h"

#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "base/test.h"

/* Packing goes from the file's bytes to planes and heads in one step. Here the layout is read as
 * pack16.h words it, byte by byte, and compared with what codes.c reads from the file. */

enum { ROWS = 35, COLS = 512 }; /* a full group twice, and one of three rows */

static u8 code_at(const u8 *plane, u32 bits, u32 r, u32 col) {
    u32 h = col / 16, j = col / 4 % 4, at = 4 * r + col % 4;
    u32 low2 = plane[64 * h + at] >> 2 * j & 3, low4 = plane[64 * j + at] >> 4 * h & 15;
    switch (bits) {
    case 2: return (u8)low2;
    case 3: return (u8)(low2 | (plane[128 + at] >> (4 * h + j) & 1) << 2);
    case 4: return (u8)low4;
    case 5: return (u8)(low4 | (plane[256 + at] >> (4 * h + j) & 1) << 4);
    case 6: return (u8)(low4 | (plane[256 + 64 * h + at] >> 2 * j & 3) << 4);
    default: return plane[64 * (4 * h + j) + at];
    }
}

static void check_head(const struct code_format *f, const u8 *head, u32 r, u32 s,
                       const struct codes *c) {
    u32 n = 32u / f->sub, n_sc = f->n_sub * n;
    u16 d = 0, m = 0;
    memcpy(&d, head + (f->e8 ? r : 2 * r), f->e8 ? 1 : 2);
    assert_int_equal(d, c->d);
    head += f->e8 ? PACK_ROWS : 2 * PACK_ROWS;
    if (f->has_min) {
        memcpy(&m, head + 2 * r, 2);
        head += 2 * PACK_ROWS;
    }
    assert_int_equal(m, c->m);
    for (u32 i = 0; f->has_sc && i < n; i++) {
        assert_int_equal((i8)head[(s * n + i) * PACK_ROWS + r], c->sc[i]);
        if (f->has_min) assert_int_equal((i8)head[(n_sc + s * n + i) * PACK_ROWS + r], c->mc[i]);
    }
}

static void check_codes(enum dtype type, const u8 *file, u64 row_bytes, const u8 *packed) {
    const struct code_format f = codes_format(type);
    const u64 planes = COLS / 32 * pack16_plane_bytes(&f);
    const u64 heads = COLS / 32 / f.n_sub * pack16_head_bytes(&f);
    for (u32 row = 0; row < ROWS; row++) {
        const u8 *g = packed + row / PACK_ROWS * planes;
        const u8 *h = packed + 3 * planes + row / PACK_ROWS * heads;
        for (u32 i = 0; i < COLS / 32; i++) {
            struct codes c;
            codes_read(type, file + row * row_bytes, i, &c);
            for (u32 k = 0; k < 32; k++)
                assert_int_equal(
                    code_at(g + i * pack16_plane_bytes(&f), f.bits, row % PACK_ROWS, k), c.c[k]);
            check_head(&f, h + i / f.n_sub * pack16_head_bytes(&f), row % PACK_ROWS, i % f.n_sub,
                       &c);
        }
    }
}

static void check_floats(u32 size, u64 cols, const u8 *file, u64 row_bytes, const u8 *packed,
                         u64 group) {
    for (u32 row = 0; row < ROWS; row++)
        for (u64 c = 0; c < cols; c++)
            assert_memory_equal(packed + row / PACK_ROWS * group +
                                    (c * PACK_ROWS + row % PACK_ROWS) * size,
                                file + row * row_bytes + c * size, size);
}

static void check_type(enum dtype type, u64 cols, u64 seed) {
    const struct matmul_kernel k = {.type = type};
    const u64 planes = pack16_planes_bytes(type, cols), heads = pack16_heads_bytes(type, cols);
    u64 row_bytes, bytes;
    assert_true(dtype_row_bytes(type, cols, &row_bytes));
    u64 before = dtype_info(type)->block_bytes, stride = row_bytes + 3 * before;
    assert_true(pack16_packed_bytes(&k, ROWS, cols, &bytes));
    assert_int_equal(bytes, align_up(3 * (planes + heads), KERNEL_ALIGN));
    /* Some columns of longer rows. */
    u8 *all = malloc(ROWS * stride), *file = all + before, *packed = malloc(bytes);
    assert_non_null(all);
    assert_non_null(packed);
    for (u64 i = 0; i < ROWS * stride; i++) all[i] = (u8)random_at(seed, i);
    memset(packed, 0xA5, bytes);
    pack16_pack(&k, packed, file, stride, ROWS, cols, 32, ROWS); /* as two threads would */
    pack16_pack(&k, packed, file, stride, ROWS, cols, 0, 32);
    if (codes_format(type).bits)
        check_codes(type, file, stride, packed);
    else
        check_floats(type == DTYPE_F32 ? 4 : 2, cols, file, stride, packed, planes);
    free(all);
    free(packed);
}

static void test_layout(void **state) {
    (void)state;
    for (u32 type = 0; type < DTYPE_N; type++)
        if (codes_format(type).bits) check_type(type, COLS, type);
    static const enum dtype FLOATS[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    for (size_t i = 0; i < ARRAY_LEN(FLOATS); i++)
        for (u64 cols = 1; cols < 20; cols++) check_type(FLOATS[i], cols, i);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_layout)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
