#include "kernels/amx/tiles.h"
#include "kernels/avx512/vec.h"

#if defined(HAVE_TILES)
#include "kernels/peak.h"

/* Products of tiles of 32 columns, a block of most formats: of bytes, and of bf16, which are the
 * seed's bytes, whatever numbers they are. */
#define TILES(NAME, TYPE, ELEM, PRODUCT)             \
    static TYPE NAME(const TYPE *seed, u64 rounds) { \
        TYPE sum[TILE_TOKENS][TILE_ROWS];            \
        tiles_config(TILE_TOKENS, ELEM);             \
        _tile_loadd(ACT_HI, seed, 32 * (ELEM));      \
        _tile_loadd(WEIGHTS_0, seed, 64);            \
        _tile_zero(SUM_HI_0);                        \
        _tile_zero(SUM_LO_0);                        \
        _tile_zero(SUM_HI_1);                        \
        _tile_zero(SUM_LO_1);                        \
        for (u64 i = 0; i < rounds; i++) {           \
            PRODUCT(SUM_HI_0, ACT_HI, WEIGHTS_0);    \
            PRODUCT(SUM_LO_0, ACT_HI, WEIGHTS_0);    \
            PRODUCT(SUM_HI_1, ACT_HI, WEIGHTS_0);    \
            PRODUCT(SUM_LO_1, ACT_HI, WEIGHTS_0);    \
        }                                            \
        _tile_stored(SUM_HI_0, sum, sizeof *sum);    \
        _tile_release();                             \
        return sum[0][0];                            \
    }
TILES(tiles_int8, i32, 1, _tile_dpbssd)
TILES(tiles_bf16, float, 2, _tile_dpbf16ps)

#define PEAK_SET      PEAK_AMX
#define PEAK_INT8     tiles_int8
#define PEAK_INT8_OPS (4 * TILE_TOKENS * TILE_ROWS * 32 * 2)
#define PEAK_BF16     tiles_bf16
#define PEAK_BF16_OPS PEAK_INT8_OPS
#include "kernels/peak.inc"
#endif
