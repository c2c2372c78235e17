#include "kernels/amx/tiles.h"
#include "kernels/avx512/vec.h"

#if defined(HAVE_TILES)
#include "kernels/peak.h"

/* Products of tiles of 32 columns, a block of most formats. */
static i32 tiles_int8(const i32 *seed, u64 rounds) {
    i32 sum[TILE_TOKENS][TILE_ROWS];
    tiles_config(TILE_TOKENS, 1);
    _tile_loadd(ACT_HI, seed, 32);
    _tile_loadd(WEIGHTS_0, seed, 64);
    _tile_zero(SUM_HI_0);
    _tile_zero(SUM_LO_0);
    _tile_zero(SUM_HI_1);
    _tile_zero(SUM_LO_1);
    for (u64 i = 0; i < rounds; i++) {
        _tile_dpbssd(SUM_HI_0, ACT_HI, WEIGHTS_0);
        _tile_dpbssd(SUM_LO_0, ACT_HI, WEIGHTS_0);
        _tile_dpbssd(SUM_HI_1, ACT_HI, WEIGHTS_0);
        _tile_dpbssd(SUM_LO_1, ACT_HI, WEIGHTS_0);
    }
    _tile_stored(SUM_HI_0, sum, sizeof *sum);
    _tile_release();
    return sum[0][0];
}

/* The same of bf16: numbers of the seed's bytes, whatever they are. */
static float tiles_bf16(const float *seed, u64 rounds) {
    float sum[TILE_TOKENS][TILE_ROWS];
    tiles_config(TILE_TOKENS, 2);
    _tile_loadd(ACT_HI, seed, 64);
    _tile_loadd(WEIGHTS_0, seed, 64);
    _tile_zero(SUM_HI_0);
    _tile_zero(SUM_LO_0);
    _tile_zero(SUM_HI_1);
    _tile_zero(SUM_LO_1);
    for (u64 i = 0; i < rounds; i++) {
        _tile_dpbf16ps(SUM_HI_0, ACT_HI, WEIGHTS_0);
        _tile_dpbf16ps(SUM_LO_0, ACT_HI, WEIGHTS_0);
        _tile_dpbf16ps(SUM_HI_1, ACT_HI, WEIGHTS_0);
        _tile_dpbf16ps(SUM_LO_1, ACT_HI, WEIGHTS_0);
    }
    _tile_stored(SUM_HI_0, sum, sizeof *sum);
    _tile_release();
    return sum[0][0];
}

#define PEAK_SET      PEAK_AMX
#define PEAK_INT8     tiles_int8
#define PEAK_INT8_OPS (4 * TILE_TOKENS * TILE_ROWS * 32 * 2)
#define PEAK_BF16     tiles_bf16
#define PEAK_BF16_OPS PEAK_INT8_OPS
#include "kernels/peak.inc"
#endif
