#include "formats/blocks.h"
#include "base/test.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"

/* tests/golden/blocks.bin is written by tools/record_blocks.py, which describes its layout. */
static void every_format_decodes_as_recorded(void **state) {
    (void)state;
    struct err e = {0};
    struct str file = {0};
    if (!file_read("tests/golden/blocks.bin", 1 << 20, &file, &e)) fail_msg("%s", e.msg);
    struct rd r = rd_of(file.p, file.n);
    assert_memory_equal(rd_bytes(&r, 4), "BLKS", 4);
    u32 n_formats = rd_u32(&r), n_seen = 0;
    for (u32 f = 0; f < n_formats; f++) {
        u32 type = rd_u32(&r), n = rd_u32(&r), n_bytes = rd_u32(&r);
        const u8 *blocks = rd_bytes(&r, n_bytes);
        float got[1024], want[1024];
        assert_true(n <= ARRAY_LEN(got) && blocks_can_decode(type));
        u64 row_bytes;
        assert_true(dtype_row_bytes(type, n, &row_bytes) && row_bytes == n_bytes);
        memcpy(want, rd_bytes(&r, 4 * n), 4 * n);
        blocks_decode(type, got, blocks, n);
        for (u32 i = 0; i < n; i++)
            if (memcmp(&got[i], &want[i], sizeof(float)) != 0 && got[i] != want[i])
                fail_msg("%s element %u: %.9g, recorded %.9g", dtype_info(type)->name, i,
                         (double)got[i], (double)want[i]);
        n_seen++;
    }
    assert_false(r.bad);
    assert_int_equal(rd_left(&r), 0);
    u32 n_decodable = 0;
    for (u32 t = 0; t < DTYPE_N; t++) n_decodable += blocks_can_decode(t);
    assert_int_equal(n_seen, n_decodable);
    str_deinit(&file);
}

/* Formats are looked up by ids from files: what can be decoded has a size, and the reverse, save
 * for integers and F64. */
static void decodable_formats_have_sizes(void **state) {
    (void)state;
    for (u32 t = 0; t < DTYPE_N + 10; t++) {
        bool integer = (t >= DTYPE_I8 && t <= DTYPE_I64) || t == DTYPE_F64;
        bool sized = dtype_info(t)->block_elems > 0;
        assert_int_equal(blocks_can_decode(t), sized && !integer);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_decodes_as_recorded),
        cmocka_unit_test(decodable_formats_have_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
