#include "formats/blocks.h"
#include "base/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/random.h"

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

/* Encoded values come back within half a level, plus what rounding the scale to f16 costs. */
static void encoders_stay_within_half_a_level(void **state) {
    (void)state;
    static const struct {
        enum dtype type;
        float tolerance; /* relative to the block's largest magnitude */
    } TYPES[] = {{DTYPE_F32, 0},      {DTYPE_F16, 0.0005f}, {DTYPE_BF16, 0.004f},
                 {DTYPE_Q4_0, 0.13f}, {DTYPE_Q4_1, 0.07f},  {DTYPE_Q5_0, 0.065f},
                 {DTYPE_Q5_1, 0.04f}, {DTYPE_Q8_0, 0.005f}};
    enum { N_BLOCKS = 20 };
    float x[32 * N_BLOCKS], back[32 * N_BLOCKS];
    for (u32 i = 0; i < ARRAY_LEN(x); i++) {
        float scale = ldexpf(1, (int)(i / 32) - 8); /* one magnitude a block */
        x[i] = i < 32 ? 0 : scale * (float)(random_unit(7, i) * 2 - 1);
    }
    for (size_t t = 0; t < ARRAY_LEN(TYPES); t++) {
        u8 bytes[4 * ARRAY_LEN(x)];
        blocks_encode(TYPES[t].type, bytes, x, 32 * N_BLOCKS);
        blocks_decode(TYPES[t].type, back, bytes, 32 * N_BLOCKS);
        for (u32 i = 0; i < 32 * N_BLOCKS; i++) {
            float most = 0;
            for (u32 k = i / 32 * 32; k < i / 32 * 32 + 32; k++) most = fmaxf(most, fabsf(x[k]));
            if (fabsf(back[i] - x[i]) > TYPES[t].tolerance * most)
                fail_msg("%s element %u: %g became %g", dtype_info(TYPES[t].type)->name, i,
                         (double)x[i], (double)back[i]);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_decodes_as_recorded),
        cmocka_unit_test(decodable_formats_have_sizes),
        cmocka_unit_test(encoders_stay_within_half_a_level),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
