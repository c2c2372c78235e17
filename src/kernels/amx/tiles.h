/* tiles.h - how the tile registers are used (Intel SDM vol. 1, 18). Empty without the flags. */
#pragma once

#if defined(__AMX_INT8__) || defined(__AMXINT8__) /* gcc's name, clang's */
#define HAVE_TILES 1
#include <immintrin.h>

#include "base/base.h"

enum { TILE_TOKENS = 16, TILE_ROWS = 16 /* of a matrix */ };

/* Sums of the activations' high and low bytes (or of the only ones), activations, weights; two of
 * some, for even and odd steps. Compilers want literals. */
#define SUM_HI_0  0
#define SUM_LO_0  1
#define SUM_HI_1  2
#define SUM_LO_1  3
#define ACT_HI    4
#define ACT_LO    5
#define WEIGHTS_0 6
#define WEIGHTS_1 7
enum { N_TILES = 8 };

/* Operand of LDTILECFG. */
struct tile_config {
    u8 palette, start_row, reserved[14];
    u16 row_bytes[16];
    u8 rows[16];
};
_Static_assert(sizeof(struct tile_config) == 64, "a cache line");

struct matmul_kernel;
extern const struct matmul_kernel AMX_BF16; /* bf16.c */

/* Of blocks of 32 columns, for so many tokens: of this thread, until _tile_release. elem: bytes of
 * an activation and a weight. */
static inline void tiles_config(u32 n_tok, u32 elem) {
    struct tile_config c = {.palette = 1};
    for (u32 i = 0; i < N_TILES; i++) {
        c.row_bytes[i] = (u16)(i == ACT_HI || i == ACT_LO ? 32 * elem : TILE_ROWS * 4);
        c.rows[i] = (u8)(i >= WEIGHTS_0 ? 32 * elem / 4 : n_tok);
    }
    __asm__ volatile("" ::"r"(&c) : "memory"); /* compilers think that it reads eight bytes */
    _tile_loadconfig(&c);
}
#endif
