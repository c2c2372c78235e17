/* As vnni/, but products of many tokens with weights whose scales hold for 32 columns are computed
 * in tiles of Intel's AMX: registers of 16 rows of 64 bytes, and one instruction that multiplies
 * two of them.
 *
 * Codes become signed bytes (their offset is taken off here), and a panel, which is 16 rows of the
 * matrix, is unpacked for some blocks of 32 columns. A product of tiles is one block of a panel and
 * up to 16 tokens. Its integer sums, a line of 16 rows for each token, go through a buffer to
 * vector registers, where they are scaled and added to float sums, in ref_matmul.c's order.
 * Activations come as two bytes or as one; of two, each is multiplied for itself.
 *
 * Multiplying takes 16 cycles a tile, which the vectors' work (three to six instructions for
 * each token of a block) would hide; bench/README.md has what came out. */
#include "kernels/amx/tiles.h"
#include "kernels/avx512/vec.h"
#include "kernels/sets.h"

#if defined(HAVE_TILES)
#include "kernels/act.h"
#include "kernels/unpack.inc"

/* Blocks of columns that are unpacked at once; panels and tokens of a pass. */
enum { BLOCKS = 8, PANELS = 8, PASS = 256 };
/* Weights are fetched so many bytes before their turn. */
enum { AHEAD = 4096 };
/* Of fewer tokens, vnni's tiles are faster. */
enum { FROM = 6 };

enum { LINES = ACT_BLOCK / 4, BLOCK_BYTES = LINES * LINE };
struct panel {
    u8 w[BLOCKS][LINES][LINE]; /* tiles: line j holds columns 4j..4j+3 of each row */
    float d[BLOCKS][PACK_ROWS], m[BLOCKS][PACK_ROWS];
} __attribute__((aligned(64)));

/* Blocks i0..i0+n_blk-1 of the group. */
VINLINE void unpack(struct panel *to, struct pack16_group g, u64 i0, u32 n_blk,
                    const struct code_format f) {
    const u64 plane = pack16_plane_bytes(&f), head_bytes = pack16_head_bytes(&f);
    const u32 d_size = f.e8 ? 1 : 2;
    const vi table = f.lut ? vi_table(f.lut) : vi_set(0);
    for (u32 b = 0; b < n_blk; b++) {
        const u8 *p = g.planes + (i0 + b) * plane,
                 *head = g.heads + (i0 + b) / f.n_sub * head_bytes;
        const u8 *sc = head + PACK_ROWS * (d_size + (f.has_min ? 2 : 0) + (i0 + b) % f.n_sub);
        for (u64 at = 0; at < plane; at += LINE) __builtin_prefetch(p + AHEAD + at, 0, 2);
        __builtin_prefetch(head + AHEAD / 8, 0, 2);
        vf d = f.e8 ? vf_e8(head) : vf_f16(head), m = vf_set(0);
        if (f.has_min) m = vf_f16(head + PACK_ROWS * 2);
        UNROLL for (int h = 0; h < 2; h++) {
            vi w[4];
            half_codes(w, p, f, h, table);
            UNROLL for (int j = 0; j < 4; j++) {
                if (f.bits == 8)
                    w[j] = vi_flip(w[j]); /* their offset is 128 */
                else if (f.off)
                    w[j] = vi_add8(w[j], vi_set8(-f.off));
                vi_store(to->w[b][4 * h + j], w[j]);
            }
        }
        vf_store(to->d[b], f.has_sc ? vf_mul(d, vf_i8(sc)) : d);
        if (f.has_min)
            vf_store(to->m[b], f.has_sc ? vf_mul(m, vf_i8(sc + f.n_sub * PACK_ROWS)) : m);
    }
}

VINLINE vi vi_shl_byte(vi a) { /* a shuffle */
    static const u8 ORDER[16] = {0x80, 0, 1, 2, 0x80, 4, 5, 6, 0x80, 8, 9, 10, 0x80, 12, 13, 14};
    return _mm512_shuffle_epi8(a, _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)ORDER)));
}

/* Integer sums of a block: [token][row]. */
struct sums {
    i32 hi[TILE_TOKENS][PACK_ROWS], lo[TILE_TOKENS][PACK_ROWS];
} __attribute__((aligned(64)));

/* The tile instructions name registers by number, so each number is code of its own. */
#define PRODUCTS(HI, LO, W)                    \
    do {                                       \
        _tile_loadd(W, w, LINE);               \
        _tile_zero(HI);                        \
        _tile_loadd(ACT_HI, act, stride);      \
        _tile_dpbssd(HI, ACT_HI, W);           \
        if (!two) break;                       \
        _tile_zero(LO);                        \
        _tile_loadd(ACT_LO, act + 32, stride); \
        _tile_dpbssd(LO, ACT_LO, W);           \
    } while (0)

/* Step i, a block: w is its first line, act the first token's activations. */
VINLINE void products(u32 i, const u8 *w, const u8 *act, u64 stride, const bool two) {
    if (i % 2)
        PRODUCTS(SUM_HI_1, SUM_LO_1, WEIGHTS_1);
    else
        PRODUCTS(SUM_HI_0, SUM_LO_0, WEIGHTS_0);
}
VINLINE void store_sums(u32 i, struct sums *to, const bool two) {
    if (i % 2) {
        _tile_stored(SUM_HI_1, to->hi, LINE);
        if (two) _tile_stored(SUM_LO_1, to->lo, LINE);
    } else {
        _tile_stored(SUM_HI_0, to->hi, LINE);
        if (two) _tile_stored(SUM_LO_0, to->lo, LINE);
    }
    __asm__ volatile("" ::: "memory");
}

/* What token t's sums add to its float sum. While tiles are multiplied, one port is left to what
 * multiplies and converts, and another to shuffles and integer sums. */
VINLINE vf add_sums(vf sum, const struct sums *s, u32 t, const struct act_block *x, vf d, vf m,
                    const bool has_min, const bool two) {
    vi dot = vi_load(s->hi[t]);
    if (two) dot = vi_add(vi_shl_byte(dot), vi_load(s->lo[t]));
    sum = vf_fma(vf_mul(vf_of_int(dot), vf_set(x->d)), d, sum);
    return has_min ? vf_fma(m, vf_set(x->s32), sum) : sum;
}

/* The tiles' pipeline: the step that is multiplied next. Sums of the last steps are kept. */
enum { SUMS = 4 };
struct cursor {
    const u8 *w, *act;
    u32 step, in_panel, left;
};

/* Multiplies a step, if there is one left, and stores the sums of the one before. Returns those
 * that were stored `lag` steps ago. */
VINLINE const struct sums *next_step(struct cursor *at, struct sums sums[SUMS], const u8 *act,
                                     u64 stride, u32 n_blk, const bool two, const u32 lag) {
    if (at->left) {
        products(at->step, at->w, at->act, stride, two);
        at->left--;
        at->w += BLOCK_BYTES;
        at->act += sizeof(struct act_block);
        if (++at->in_panel == n_blk) {
            at->w += sizeof(struct panel) - n_blk * BLOCK_BYTES;
            at->act = act;
            at->in_panel = 0;
        }
    }
    if (at->step) store_sums(at->step - 1, &sums[(at->step - 1) % SUMS], two);
    at->step++;
    return &sums[(at->step - 2 - lag) % SUMS];
}

/* Adds the products of n_blk blocks of n_panels panels and n tokens to sum: those of one panel and
 * a full tile in registers. */
VINLINE void tile(float (*sum)[PASS][PACK_ROWS], const struct panel *p, u32 n_panels, const u8 *act,
                  u64 stride, u32 n_blk, u32 n, const bool has_min, const bool two,
                  const bool full) {
    struct cursor at = {.w = p->w[0][0], .act = act, .left = n_blk * n_panels};
    struct sums sums[SUMS];
    const u32 lag = two ? 1 : 2; /* measured */
    for (u32 i = 0; i < 1 + lag; i++) (void)next_step(&at, sums, act, stride, n_blk, two, lag);
    for (u32 q = 0; q < n_panels; q++, p++) {
        float(*to)[PACK_ROWS] = sum[q];
        vf stay[TILE_TOKENS];
        UNROLL for (u32 t = 0; full && t < TILE_TOKENS; t++) stay[t] = vf_load(to[t]);
        for (u32 b = 0; b < n_blk; b++) {
            const struct sums *from = next_step(&at, sums, act, stride, n_blk, two, lag);
            const vf d = vf_load(p->d[b]), m = has_min ? vf_load(p->m[b]) : d;
            const u8 *x = act + b * sizeof(struct act_block);
            if (full) {
                UNROLL for (u32 t = 0; t < TILE_TOKENS; t++, x += stride) {
                    __asm__("" : "+r"(x)); /* else addresses are kept, and spilled */
                    stay[t] = add_sums(stay[t], from, t, (const void *)x, d, m, has_min, two);
                }
            } else {
                for (u32 t = 0; t < n; t++, x += stride)
                    vf_store(to[t], add_sums(vf_load(to[t]), from, t, (const void *)x, d, m,
                                             has_min, two));
            }
        }
        UNROLL for (u32 t = 0; full && t < TILE_TOKENS; t++) vf_store(to[t], stay[t]);
    }
}

typedef void tile_fn(float (*sum)[PASS][PACK_ROWS], const struct panel *p, u32 n_panels,
                     const u8 *act, u64 stride, u32 n_blk, u32 n);
typedef void unpack_fn(struct panel *to, struct pack16_group g, u64 i0, u32 n_blk);

/* Tiles that are full or not, of activations in one byte or two. */
#define TILE(NAME, HAS_MIN, TWO, FULL)                                                  \
    static void NAME(float(*sum)[PASS][PACK_ROWS], const struct panel *p, u32 n_panels, \
                     const u8 *act, u64 stride, u32 n_blk, u32 n) {                     \
        tile(sum, p, n_panels, act, stride, n_blk, n, HAS_MIN, TWO, FULL);              \
    }
#define TILES(NAME, HAS_MIN)                                           \
    TILE(NAME##_one, HAS_MIN, false, false)                            \
    TILE(NAME##_one_full, HAS_MIN, false, true)                        \
    TILE(NAME##_two, HAS_MIN, true, false)                             \
    TILE(NAME##_two_full, HAS_MIN, true, true)                         \
    static tile_fn *const NAME[2][2] = {{NAME##_one, NAME##_one_full}, \
                                        {NAME##_two, NAME##_two_full}};
TILES(plain, false)
TILES(mins, true)

struct job {
    const struct mul_args *a;
    enum dtype type;
    unpack_fn *unpack;
    tile_fn *const *tiles; /* [2]: with fewer tokens, full */
    u32 in_tile;           /* tokens that the registers are configured for */
};

/* Rows row0..row1-1 (at most PANELS panels) of tokens t0..t0+n-1 (at most PASS). */
static void part(struct job *j, u64 row0, u64 row1, u32 t0, u32 n) {
    const struct mul_args *a = j->a;
    const u64 stride = kernels_act_bytes(a->kind, a->cols), n_blk = a->cols / ACT_BLOCK;
    const u8 *act = (const u8 *)a->act + t0 * stride;
    const u32 n_panels = (u32)((row1 - row0 + PACK_ROWS - 1) / PACK_ROWS);
    struct panel panels[PANELS];
    float sum[PANELS][PASS][PACK_ROWS] __attribute__((aligned(64)));
    for (u32 i = 0; i < n_panels; i++) __builtin_memset(sum[i], 0, n * sizeof sum[i][0]);
    for (u64 i0 = 0; i0 < n_blk; i0 += BLOCKS, act += BLOCKS * sizeof(struct act_block)) {
        const u32 n_in = (u32)MIN(n_blk - i0, (u64)BLOCKS);
        for (u32 i = 0; i < n_panels; i++)
            j->unpack(&panels[i],
                      pack16_group(j->type, a->packed, a->rows, a->cols, row0 / PACK_ROWS + i), i0,
                      n_in);
        __asm__ volatile("" ::: "memory"); /* tiles are loaded behind the compiler's back */
        for (u32 t = 0; t < n; t += TILE_TOKENS) {
            const u32 n_tok = MIN(n - t, (u32)TILE_TOKENS);
            if (n_tok != j->in_tile) tiles_config(j->in_tile = n_tok, 1);
            j->tiles[n_tok == TILE_TOKENS]((void *)&sum[0][t], panels, n_panels, act + t * stride,
                                           stride, n_in, n_tok);
        }
    }
    for (u32 t = 0; t < n; t++)
        for (u32 i = 0; i < n_panels; i++) {
            const u64 row = row0 + i * PACK_ROWS;
            __builtin_memcpy(a->y + (t0 + t) * a->ldy + row, sum[i][t],
                             MIN(row1 - row, (u64)PACK_ROWS) * sizeof(float));
        }
}

static void mul(const struct mul_args *a, enum dtype type, unpack_fn *unpack_type,
                tile_fn *const tiles[2][2]) {
    ASSERT(a->kind != ACT_Q16W);
    if (a->n_tok < FROM) {
        const struct matmul_kernel *few = vnni_kernel(type);
        few->mul(few, a);
        return;
    }
    struct job j = {a, type, unpack_type, tiles[a->kind != ACT_Q8], 0};
    for (u32 t = 0, n; t < a->n_tok; t += n) {
        n = MIN(a->n_tok - t, (u32)PASS);
        /* A panel at a time is a stream of weights, which few tokens wait for. */
        const u64 rows = (n <= 2 * TILE_TOKENS ? 1 : PANELS) * PACK_ROWS;
        for (u64 row = a->row0; row < a->row1; row += rows)
            part(&j, row, MIN(row + rows, a->row1), t, n);
    }
    _tile_release(); /* nothing for the system to save when threads change */
}

#define FORMAT(T, CLASS)                                                                 \
    static void unpack_##T(struct panel *to, struct pack16_group g, u64 i0, u32 n_blk) { \
        unpack(to, g, i0, n_blk, codes_format(DTYPE_##T));                               \
    }                                                                                    \
    static void mul_##T(const struct matmul_kernel *k, const struct mul_args *a) {       \
        (void)k;                                                                         \
        mul(a, DTYPE_##T, unpack_##T, CLASS);                                            \
    }
FORMAT(Q4_0, plain)
FORMAT(Q4_1, mins)
FORMAT(Q5_0, plain)
FORMAT(Q5_1, mins)
FORMAT(Q8_0, plain)
FORMAT(Q4_K, mins)
FORMAT(Q5_K, mins)
FORMAT(IQ4_NL, plain)
FORMAT(IQ4_XS, plain)
FORMAT(MXFP4, plain)

#define KERNEL(T)                                                                            \
    {                                                                                        \
        "amx", DTYPE_##T, ACT_Q16, PACK_ROWS, TILE_TOKENS, pack16_packed_bytes, pack16_pack, \
            mul_##T, pack16_get_row, FROM, PACK_ROWS, PANELS *PACK_ROWS, VNNI_ALONE_ROWS, 0  \
    }
static const struct matmul_kernel MATMUL[] = {
    KERNEL(Q4_0), KERNEL(Q4_1), KERNEL(Q5_0),   KERNEL(Q5_1),   KERNEL(Q8_0),
    KERNEL(Q4_K), KERNEL(Q5_K), KERNEL(IQ4_NL), KERNEL(IQ4_XS), KERNEL(MXFP4)};

void amx_fill(struct kernels *k) {
    for (u32 i = 0; i < ARRAY_LEN(MATMUL); i++) {
        k->matmul[MATMUL[i].type] = &MATMUL[i];
        k->words_many &= ~(1ull << MATMUL[i].type);
    }
    k->matmul[DTYPE_BF16] = &AMX_BF16;
}
#endif
