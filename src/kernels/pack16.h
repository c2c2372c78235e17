/* pack16.h - the packed layout of the vector sets: 16 rows side by side.
 *
 * Lane i of a 512-bit register (or of two 256-bit, four 128-bit ones) belongs to row i of a group
 * of 16 rows, so that sums run down the columns in lanes and no kernel ever adds across a register.
 * The last group is padded with zero rows.
 *
 * Float types: a group is [cols][16] elements.
 *
 * Codes (codes.h): the planes of all groups, then the heads of all groups: reading group after
 * group, each of the two goes on at one pace, which is what hardware fetches ahead. Planes, for
 * each 32 columns, are lines of 64 bytes; byte 4 * row + c of line j belongs to column 4 * j + c of
 * the half h (0: columns 0-15, 1: columns 16-31): 4 bits: four lines; h = 0 in the low nibble, h =
 * 1 in the high one 5 bits: the low four as above, then one line whose bit 4 * h + j is the fifth
 * bit 6 bits: the low four as above, then a line for each h whose bits 2j, 2j+1 are the top two 8
 * bits: eight lines, 4 * h + j 2 bits: a line for each h, column group j in bits 2j, 2j+1 3 bits:
 * the low two as above, then one line whose bit 4 * h + j is the third bit Heads, for each block of
 * the format (32 or 256 columns): d[16] (f16, or one byte for E8M0), m[16] (if there is a minimum),
 * then if sc is there sc[256 / sub][16] and mc likewise.
 *
 * Packing and rows run at load and in the embedding look-up; any thread. */
#pragma once

#include "kernels/codes.h"
#include "kernels/kernels.h"

enum { PACK_ROWS = 16 };

static inline u64 pack16_plane_bytes(const struct code_format *f) {
    switch (f->bits) {
    case 2: return 128;
    case 3: return 192;
    case 4: return 256;
    case 5: return 320;
    case 6: return 384;
    default: return 512;
    }
}
static inline u64 pack16_head_bytes(const struct code_format *f) {
    u64 d = f->e8 ? 1 : 2, m = f->has_min ? 2 : 0;
    u64 sc = f->has_sc ? f->n_sub * 32u / f->sub * (f->has_min ? 2u : 1u) : 0;
    return PACK_ROWS * (d + m + sc);
}
/* Of a group of rows: floats have planes only. */
static inline u64 pack16_planes_bytes(enum dtype type, u64 cols) {
    const struct code_format f = codes_format(type);
    if (!f.bits) return align_up(cols * PACK_ROWS * (type == DTYPE_F32 ? 4 : 2), 64);
    return cols / 32 * pack16_plane_bytes(&f);
}
static inline u64 pack16_heads_bytes(enum dtype type, u64 cols) {
    const struct code_format f = codes_format(type);
    return f.bits ? cols / 32 / f.n_sub * pack16_head_bytes(&f) : 0;
}
/* Group g of a matrix [rows][cols]. */
struct pack16_group {
    const u8 *planes, *heads;
};
static inline struct pack16_group pack16_group(enum dtype type, const void *packed, u64 rows,
                                               u64 cols, u64 g) {
    const u64 groups = (rows + PACK_ROWS - 1) / PACK_ROWS, planes = pack16_planes_bytes(type, cols);
    const u8 *p = packed;
    return (struct pack16_group){p + g * planes,
                                 p + groups * planes + g * pack16_heads_bytes(type, cols)};
}

/* BF16 as amx has it: a group is [cols / 2][16][2], with columns of zeros up to a multiple of 32.
 */
static inline u64 pack16_pairs_bytes(u64 cols) {
    return align_up(cols, 32) * PACK_ROWS * 2;
}
bool pack16_pairs_packed_bytes(const struct matmul_kernel *k, u64 rows, u64 cols, u64 *bytes);
void pack16_pairs_pack(const struct matmul_kernel *k, void *dst, const void *src, u64 stride,
                       u64 rows, u64 cols, u64 row0, u64 row1);
void pack16_pairs_get_row(const struct matmul_kernel *k, float *dst, const void *packed, u64 rows,
                          u64 cols, u64 row);

/* Entries of struct matmul_kernel. */
bool pack16_packed_bytes(const struct matmul_kernel *k, u64 rows, u64 cols, u64 *bytes);
void pack16_pack(const struct matmul_kernel *k, void *dst, const void *src, u64 stride, u64 rows,
                 u64 cols, u64 row0, u64 row1);
void pack16_get_row(const struct matmul_kernel *k, float *dst, const void *packed, u64 rows,
                    u64 cols, u64 row);
