/* BF16 matrices in tiles: a tile of weights, 32 columns of 16 rows, is 16 lines of the packed
 * layout as they lie, and one of activations 32 columns of up to 16 lines. A token is one line, or
 * two: its numbers rounded to bf16, and what rounding left.
 *
 * A line's sum is that of the instruction (Intel SDM vol. 2, TDPBF16PS): of 32 columns those with
 * even numbers are a chain of fused multiply-adds, which begins with zero, and the odd ones
 * another; both are added, then their sum to that of the columns before. Subnormal numbers count as
 * zeros. The sums of a token's two lines are added last. So it is the same number in any batch, but
 * not the bits of the other sets, whose floats are one chain.
 *
 * Four groups of rows share each tile of activations. Of many lines, some columns are multiplied
 * for all of them, so that weights are read from the first cache and activations from the second;
 * sums wait in memory. Few lines, which wait for weights, go through all columns at once. */
#include "kernels/amx/tiles.h"
#include "kernels/avx512/vec.h"
#include "kernels/sets.h"

#if defined(HAVE_TILES)
#include "kernels/pack16.h"

/* GROUPS: that go together. BLOCK_COLS, BLOCK_BYTES: of a tile. */
enum { GROUPS = 4, BLOCK_COLS = 32, BLOCK_BYTES = BLOCK_COLS * PACK_ROWS * 2 };
/* Blocks that many lines share, lines and rows of a pass. */
enum { BLOCKS = 8, PASS = 256, PASS_ROWS = 256 };
/* So many lines are few; weights are fetched so many bytes before their turn. */
enum { FEW = 32, AHEAD = 2048 };

/* Sums of a tile, [line][row]. */
typedef float tile_sums[TILE_TOKENS][PACK_ROWS];

/* The tile instructions name registers by number: 0 to 3 are sums, 4 activations, 6 and 7 weights
 * in turn. */
#define EACH(X, n)            \
    do {                      \
        X(0, 6);              \
        if ((n) > 1) X(1, 7); \
        if ((n) > 2) X(2, 6); \
        if ((n) > 3) X(3, 7); \
    } while (0)
#define ZERO(G, W)  _tile_zero(G)
#define LOAD(G, W)  _tile_loadd(G, sum[G], sizeof sum[G][0])
#define STORE(G, W) _tile_stored(G, sum[G], sizeof sum[G][0])
#define PRODUCT(G, W)                                       \
    do {                                                    \
        const u8 *p = w[G] + i * BLOCK_BYTES;               \
        for (u64 at = 0; few && at < BLOCK_BYTES; at += 64) \
            __builtin_prefetch(p + AHEAD + at, 0, 3);       \
        _tile_loadd(W, p, 64);                              \
        _tile_dpbf16ps(G, 4, W);                            \
    } while (0)

/* Blocks i0..end-1 of some groups, whose weights are w, for one tile of lines. */
VINLINE void products(tile_sums *sum, const u8 *const w[GROUPS], const u8 *act, u64 stride, u64 i0,
                      u64 end, const int n_groups, const bool few) {
    if (i0)
        EACH(LOAD, n_groups);
    else
        EACH(ZERO, n_groups);
    for (u64 i = i0; i < end; i++) {
        _tile_loadd(4, act + i * BLOCK_COLS * 2, stride);
        EACH(PRODUCT, n_groups);
    }
    EACH(STORE, n_groups);
}

static void products_of(u32 n_groups, tile_sums *sum, const u8 *const w[GROUPS], const u8 *act,
                        u64 stride, u64 i0, u64 end, bool few) {
    switch (n_groups) {
    case 4:
        if (few)
            products(sum, w, act, stride, i0, end, 4, true);
        else
            products(sum, w, act, stride, i0, end, 4, false);
        break;
    case 3: products(sum, w, act, stride, i0, end, 3, false); break;
    case 2: products(sum, w, act, stride, i0, end, 2, false); break;
    default: products(sum, w, act, stride, i0, end, 1, false);
    }
}

struct pass {
    const struct mul_args *a;
    u64 g, step;          /* first group; how far apart they are */
    u32 n_groups;         /* at most PASS_ROWS / PACK_ROWS */
    u32 t0, n_tok, lines; /* lines of a token; at most PASS in all */
    tile_sums sum[PASS / TILE_TOKENS][PASS_ROWS / PACK_ROWS] __attribute__((aligned(64)));
};

static void multiply(struct pass *p) {
    const struct mul_args *a = p->a;
    const u64 stride = kernels_act_bytes(ACT_BF16, a->cols), plane = pack16_pairs_bytes(a->cols);
    const u64 n_blk = align_up(a->cols, BLOCK_COLS) / BLOCK_COLS;
    const u8 *act = (const u8 *)a->act + p->t0 * p->lines * stride;
    const u32 n = p->n_tok * p->lines;
    const bool few = n <= FEW;
    u32 in_tile = 0; /* lines that the registers are configured for */
    u64 i0 = 0, end;
    do { /* once at least: no columns are sums of zero */
        end = few ? n_blk : MIN(n_blk, i0 + BLOCKS);
        for (u32 k = 0; k < p->n_groups; k += GROUPS) {
            const u8 *w[GROUPS];
            for (u32 j = 0; j < GROUPS; j++)
                w[j] = (const u8 *)a->packed + (p->g + (k + j) * p->step) * plane;
            for (u32 i = 0; i < n; i += TILE_TOKENS) {
                const u32 n_in = MIN(n - i, (u32)TILE_TOKENS);
                if (n_in != in_tile) tiles_config(in_tile = n_in, 2);
                products_of(MIN(p->n_groups - k, (u32)GROUPS), &p->sum[i / TILE_TOKENS][k], w,
                            act + i * stride, stride, i0, end, few);
            }
        }
    } while ((i0 = end) < n_blk);
    __asm__ volatile("" ::: "memory"); /* tiles are stored behind the compiler's back */
}

static void copy_out(const struct pass *p) {
    const struct mul_args *a = p->a;
    const u64 last = a->apart ? a->rows : a->row1;
    for (u32 t = 0, i = 0; t < p->n_tok; t++, i += p->lines)
        for (u32 k = 0; k < p->n_groups; k++) {
            const float(*line)[PACK_ROWS] = &p->sum[i / TILE_TOKENS][k][i % TILE_TOKENS];
            const u64 row = (p->g + k * p->step) * PACK_ROWS;
            float y[PACK_ROWS];
            vf sum = vf_load(line[0]);
            if (p->lines == 2) sum = vf_add(sum, vf_load(line[1]));
            vf_store(y, sum);
            __builtin_memcpy(a->y + (p->t0 + t) * a->ldy + row, y,
                             MIN(last - row, (u64)PACK_ROWS) * sizeof *y);
        }
}

static void mul(const struct matmul_kernel *k, const struct mul_args *a) {
    const u64 g1 = (a->row1 + PACK_ROWS - 1) / PACK_ROWS;
    struct pass p; /* a quarter of a MiB, of a stack of 8: a thread is a pool's or the main one */
    ASSERT(a->kind == ACT_BF16X2 || a->kind == ACT_BF16);
    (void)k;
    p.a = a;
    p.step = a->apart ? a->apart / PACK_ROWS : 1;
    p.lines = a->kind == ACT_BF16X2 ? 2 : 1;
    for (p.t0 = 0; p.t0 < a->n_tok; p.t0 += p.n_tok) {
        p.n_tok = MIN(a->n_tok - p.t0, PASS / p.lines);
        for (p.g = a->row0 / PACK_ROWS; p.g < g1; p.g += a->apart ? 1 : p.n_groups) {
            p.n_groups = a->apart ? GROUPS : (u32)MIN(g1 - p.g, (u64)PASS_ROWS / PACK_ROWS);
            multiply(&p);
            copy_out(&p);
        }
    }
    _tile_release(); /* nothing for the system to save when threads change */
}

const struct matmul_kernel AMX_BF16 = {.set = "amx",
                                       .type = DTYPE_BF16,
                                       .act = ACT_BF16X2,
                                       .row_align = PACK_ROWS,
                                       .tok_tile = TILE_TOKENS / 2,
                                       .packed_bytes = pack16_pairs_packed_bytes,
                                       .pack = pack16_pairs_pack,
                                       .mul = mul,
                                       .get_row = pack16_pairs_get_row,
                                       .panels_from = 2,
                                       .panel_rows = GROUPS * PACK_ROWS,
                                       .pass_rows = PASS_ROWS,
                                       .alone_rows = GROUPS * PACK_ROWS};
#endif
