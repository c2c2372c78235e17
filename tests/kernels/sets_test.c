/* Every kernel of every set that this CPU can run gives the bits of ref/ (BF16 in amx: those of its
 * instruction's description), on random and on extreme data, with guard pages behind every buffer;
 * and ref/ itself agrees with the mathematics in double precision. The seed is printed, and
 * SKEIN_TEST_SEED sets it; with SKEIN_TEST_TOP only the best set is tested, for emulators, which
 * pretend to be one CPU after another; and with fewer tokens: enough for panels, and no more where
 * a kernel has but tiles. */
#include "kernels/kernels.h"

#include <math.h>
#include <stdio.h>

#include "base/random.h"
#include "base/test.h"
#include "kernels/act.h"
#include "kernels/codes.h"
#include "kernels/kv.h"
#include "kernels/sets.h"
#include "guard.h"

static u64 seed, counter;
static struct kernels ref, sets[8];
static bool top_only;                      /* SKEIN_TEST_TOP */
static u32 n_sets;                         /* better than ref */
static bool own_vectors[8], own_attend[8]; /* not those of the set below */

static u64 draw(void) {
    return random_at(seed, counter++);
}
static float uniform(void) {
    return (float)(random_unit(seed, counter++) * 2 - 1);
}

/* Mostly ordinary numbers; sometimes zero, subnormal, huge or equal to the neighbour. */
static float odd_float(float range) {
    switch (draw() % 32) {
    case 0: return 0;
    case 1: return -0.0f;
    case 2: return 1e-41f;
    case 3: return -3e-39f;
    case 4: return range * 1000;
    case 5: return range;
    default: return uniform() * range;
    }
}

static void fill_floats(float *x, u64 n, float range) {
    for (u64 i = 0; i < n; i++) x[i] = odd_float(range);
}

static bool same_bits(const float *a, const float *b, u64 n) {
    for (u64 i = 0; i < n; i++) {
        if (memcmp(&a[i], &b[i], 4) == 0 || (isnan(a[i]) && isnan(b[i]))) continue;
        print_message("element %llu: %a, ref has %a\n", (unsigned long long)i, (double)b[i],
                      (double)a[i]);
        return false;
    }
    return true;
}

/* Where the f16 scales of a block are: random bytes elsewhere are valid codes in every format. */
static void sane_scales(u32 type, u8 *b) {
    static const struct {
        u32 type, at[2], n;
    } SCALES[] = {
        {DTYPE_Q4_0, {0}, 1},    {DTYPE_Q4_1, {0, 2}, 2}, {DTYPE_Q5_0, {0}, 1},
        {DTYPE_Q5_1, {0, 2}, 2}, {DTYPE_Q8_0, {0}, 1},    {DTYPE_Q2_K, {80, 82}, 2},
        {DTYPE_Q3_K, {108}, 1},  {DTYPE_Q4_K, {0, 2}, 2}, {DTYPE_Q5_K, {0, 2}, 2},
        {DTYPE_Q6_K, {208}, 1},  {DTYPE_IQ4_NL, {0}, 1},  {DTYPE_IQ4_XS, {0}, 1},
    };
    static const u16 EXTREME[] = {0x0000, 0x8000, 0x0001, 0x83FF, 0x7BFF, 0xFBFF, 0x0400};
    for (u32 i = 0; i < ARRAY_LEN(SCALES); i++)
        for (u32 j = 0; SCALES[i].type == type && j < SCALES[i].n; j++) {
            u16 h = f32_to_f16(uniform() * 0.1f);
            if (draw() % 8 == 0) h = EXTREME[draw() % ARRAY_LEN(EXTREME)];
            memcpy(b + SCALES[i].at[j], &h, 2);
        }
    if (type == DTYPE_MXFP4) b[0] = draw() % 16 ? (u8)(118 + draw() % 8) : (u8)(draw() % 240);
}

/* Codes and activations of the largest size, where sums in few bits would first overflow. */
static bool largest;

static void fill_weights(u32 type, u8 *w, u64 rows, u64 cols) {
    static const u8 LARGEST[] = {0xFF, 0, 0x80, 0x7F};
    const struct dtype_info *t = dtype_info(type);
    u64 n = rows * cols / t->block_elems;
    for (u64 i = 0; i < n; i++, w += t->block_bytes) {
        if (codes_format(type).bits) {
            for (u32 k = 0; k < t->block_bytes; k++) w[k] = (u8)draw();
            if (largest)
                memset(w, LARGEST[draw() % 4], t->block_bytes);
            else if (draw() % 16 == 0)
                memset(w, draw() % 2 ? 0xFF : 0, t->block_bytes);
            sane_scales(type, w);
            continue;
        }
        float f = odd_float(0.1f);
        u16 h = type == DTYPE_F16 ? f32_to_f16(f) : f32_to_bf16(f);
        memcpy(w, type == DTYPE_F32 ? (const void *)&f : &h, t->block_bytes);
    }
}

static const u32 TYPES[] = {DTYPE_F32,  DTYPE_F16,    DTYPE_BF16,   DTYPE_Q4_0,
                            DTYPE_Q4_1, DTYPE_Q5_0,   DTYPE_Q5_1,   DTYPE_Q8_0,
                            DTYPE_Q2_K, DTYPE_Q3_K,   DTYPE_Q4_K,   DTYPE_Q5_K,
                            DTYPE_Q6_K, DTYPE_IQ4_NL, DTYPE_IQ4_XS, DTYPE_MXFP4};

enum { MAX_TOK = 33 };
static u32 some_toks = MAX_TOK, n_toks = MAX_TOK;

/* One matrix in one set's layout, and activations for n_toks tokens: as few tokens and as many
 * want them. */
struct product {
    const struct matmul_kernel *k;
    u64 rows, cols;
    const struct kernels *set;
    enum act_kind kind[2];
    struct guarded g_packed, g_act[2], g_y;
    void *packed, *act[2];
    float *y;
};

static void product_open(struct product *p, const struct kernels *k, u32 type, u64 rows, u64 cols,
                         const u8 *w, const float *x, u32 act_bits) {
    u64 bytes, stride;
    *p = (struct product){.k = k->matmul[type], .rows = rows, .cols = cols, .set = k};
    bool floats = p->k->act == ACT_F32;
    p->kind[0] = kernels_act_of(&ref, p->k->act, 0, 1, act_bits);
    p->kind[1] = p->kind[0] == ACT_Q16 ? ACT_Q16W : p->kind[0];
    assert_true(p->k->packed_bytes(p->k, rows, cols, &bytes));
    p->packed = guard_alloc(&p->g_packed, bytes, KERNEL_ALIGN);
    u64 half = rows / 2 / p->k->row_align * p->k->row_align; /* as two threads would */
    assert_true(dtype_row_bytes(type, cols, &stride));
    p->k->pack(p->k, p->packed, w, stride, rows, cols, half, rows);
    p->k->pack(p->k, p->packed, w, stride, rows, cols, 0, half);
    stride = kernels_act_bytes(p->kind[0], cols);
    for (u32 way = 0; way < 2; way++) {
        p->act[way] = guard_alloc(&p->g_act[way], stride * n_toks, floats ? 4 : KERNEL_ALIGN);
        for (u32 t = 0; t < n_toks; t++) {
            u8 *dst = (u8 *)p->act[way] + t * stride;
            if (floats)
                memcpy(dst, x + t * cols, stride);
            else
                k->act_q(dst, x + t * cols, cols, p->kind[way]);
        }
    }
    p->y = guard_alloc(&p->g_y, n_toks * rows * sizeof(float), 4);
}

static void product_close(struct product *p) {
    guard_free(&p->g_packed);
    guard_free(&p->g_act[0]);
    guard_free(&p->g_act[1]);
    guard_free(&p->g_y);
}

/* Of tokens first..first+n-1. */
static struct mul_args product_args(struct product *p, u32 first, u32 n) {
    const u32 way = kernels_act_kind(p->set, 1ull << p->k->type, n) == ACT_Q16W;
    const u64 act = first * kernels_act_bytes(p->kind[way], p->cols);
    return (struct mul_args){.y = p->y + first * p->rows,
                             .ldy = p->rows,
                             .packed = p->packed,
                             .rows = p->rows,
                             .cols = p->cols,
                             .act = (u8 *)p->act[way] + act,
                             .n_tok = n,
                             .kind = p->kind[way]};
}

/* Tokens first..first+n-1, rows row0..row1-1. */
static void product_mul(struct product *p, u32 first, u32 n, u64 row0, u64 row1) {
    struct mul_args a = product_args(p, first, n);
    a.row0 = row0;
    a.row1 = row1;
    p->k->mul(p->k, &a);
}

/* Tokens one by one, each in two runs of pieces. */
static void product_alone(struct product *p) {
    memset(p->y, 0xFF, n_toks * p->rows * sizeof(float));
    for (u32 t = 0; t < n_toks; t++) {
        struct mul_args a = product_args(p, t, 1);
        u64 n = kernels_alone_pieces(p->k, p->rows);
        kernels_alone_mul(p->k, &a, n / 3, n);
        if (n / 3) kernels_alone_mul(p->k, &a, 0, n / 3);
    }
}

static void same_acts(const struct product *r, const struct product *p) {
    for (u32 way = 0; way < 2 && r->k->act == ACT_Q16; way++)
        for (u32 t = 0; t < n_toks; t++)
            for (u64 i = 0; i < r->cols / ACT_BLOCK; i++) {
                u64 at = t * kernels_act_bytes(ACT_Q16, r->cols) + i * sizeof(struct act_block);
                const struct act_block *a = (void *)((u8 *)r->act[way] + at);
                const struct act_block *b = (void *)((u8 *)p->act[way] + at);
                assert_memory_equal(a->hi, b->hi,
                                    r->kind[way] == ACT_Q8 ? ACT_BLOCK : 2 * ACT_BLOCK);
                assert_memory_equal(&a->d, &b->d, sizeof *a - offsetof(struct act_block, d));
            }
}

/* TDPBF16PS on one line of activations: Intel SDM vol. 2. Subnormals are zeros (MXCSR: DAZ, FTZ).
 */
static __attribute__((noinline)) float tiles_line(const u16 *w, const u16 *x, u64 cols) {
    float sum = 0;
    for (u64 i = 0; i < cols; i += 32) {
        float chain[2] = {0, 0};
        for (u64 c = i; c < MIN(i + 32, cols); c++)
            chain[c % 2] = fmaf(bf16_to_f32(w[c]), bf16_to_f32(x[c]), chain[c % 2]);
        sum += chain[0] + chain[1];
    }
    return sum;
}
static void flush_subnormals(bool on) {
#if defined(__x86_64__)
    u32 csr;
    __asm__ volatile("stmxcsr %0" : "=m"(csr));
    csr = on ? csr | 0x8040 : csr & ~0x8040u;
    __asm__ volatile("ldmxcsr %0" ::"m"(csr) : "memory");
#else
    (void)on;
#endif
}
/* What amx/bf16.c says. */
static void tiles_product(const struct product *p, const u8 *w, const float *x, float *y) {
    const enum act_kind kind = p->kind[0];
    const u64 line = kernels_act_bytes(ACT_BF16, p->cols), n = p->cols;
    u16 *act = malloc(2 * line), *row = malloc(n * sizeof *row);
    for (u32 t = 0; t < n_toks; t++) {
        ref.act_q(act, x + t * n, n, kind);
        for (u64 r = 0; r < p->rows; r++) {
            float two = 0;
            memcpy(row, w + r * n * sizeof *row, n * sizeof *row);
            flush_subnormals(true);
            float one = tiles_line(row, act, n);
            if (kind == ACT_BF16X2) two = tiles_line(row, act + line / sizeof *act, n);
            flush_subnormals(false);
            y[t * p->rows + r] = kind == ACT_BF16X2 ? one + two : one;
        }
    }
    free(act);
    free(row);
}

static void check_product(u32 type, u64 rows, u64 cols, const struct kernels *k, u32 act_bits) {
    u64 row_bytes;
    assert_true(dtype_row_bytes(type, cols, &row_bytes));
    struct guarded gw;
    u8 *w = guard_alloc(&gw, rows * row_bytes, 1); /* unaligned: a file's blocks are */
    float *x = malloc(n_toks * cols * sizeof *x);
    fill_weights(type, w, rows, cols);
    fill_floats(x, n_toks * cols, 2);
    memset(x, 0, cols * sizeof *x); /* one token of zeros, one of products at the edge of f32 */
    for (u64 i = cols; i < 2 * cols; i++) x[i] *= 1e-37f;
    for (u64 i = cols; largest && i < n_toks * cols; i++) /* some tokens of one sign */
        x[i] = i / cols % 3 && draw() % 2 ? -2.0f : 2.0f;
    struct product r, p;
    product_open(&r, &ref, type, rows, cols, w, x, act_bits);
    product_open(&p, k, type, rows, cols, w, x, act_bits);
    same_acts(&r, &p);
    if (p.k->act == ACT_BF16X2)
        tiles_product(&p, w, x, r.y);
    else
        product_mul(&r, 0, n_toks, 0, rows);

    /* Any batch, any cut of the rows: the same bits. */
    static const u32 BATCH[] = {1, 2, 3, 5, 7, 8, 11, 15, 32, 33, 262};
    for (u32 i = n_toks > MAX_TOK ? 9 : 0; i < ARRAY_LEN(BATCH) && BATCH[i] <= n_toks; i++) {
        u64 cut = rows / 3 / p.k->row_align * p.k->row_align;
        memset(p.y, 0xFF, n_toks * rows * sizeof(float));
        for (u32 t = 0; t < n_toks; t += BATCH[i]) {
            u32 n = MIN(BATCH[i], n_toks - t);
            product_mul(&p, t, n, cut, rows);
            product_mul(&p, t, n, 0, cut);
        }
        if (!same_bits(r.y, p.y, n_toks * rows))
            fail_msg("%s %s, %llu x %llu, batch %u, %u-bit activations", k->set,
                     dtype_info(type)->name, (unsigned long long)rows, (unsigned long long)cols,
                     BATCH[i], act_bits);
    }
    product_alone(&p);
    assert_true(same_bits(r.y, p.y, n_toks * rows));
    /* Beside a matrix that wants bytes, tokens come in bytes, one or many. */
    p.set = &ref;
    memset(p.y, 0xFF, n_toks * rows * sizeof(float));
    product_mul(&p, 0, n_toks, 0, rows);
    assert_true(same_bits(r.y, p.y, n_toks * rows));
    product_alone(&p);
    assert_true(same_bits(r.y, p.y, n_toks * rows));
    memset(p.y, 0xFF, n_toks * rows * sizeof(float));
    for (u32 t = 0; t < n_toks; t++) product_mul(&p, t, 1, 0, rows);
    assert_true(same_bits(r.y, p.y, n_toks * rows));
    float *a = malloc(cols * sizeof *a), *b = malloc(cols * sizeof *b);
    for (u64 row = 0; row < rows; row++) {
        r.k->get_row(r.k, a, r.packed, rows, cols, row);
        p.k->get_row(p.k, b, p.packed, rows, cols, row);
        assert_true(same_bits(a, b, cols));
    }
    free(a);
    free(b);
    product_close(&r);
    product_close(&p);
    free(x);
    guard_free(&gw);
}

static void matmul_equals_ref(void **state) {
    (void)state;
    static const u64 ROWS[] = {1, 15, 16, 17, 64, 83, 200};
    for (u32 s = 0; s < n_sets; s++)
        for (u32 i = 0; i < ARRAY_LEN(TYPES); i++)
            for (u32 j = 0; j < ARRAY_LEN(ROWS); j++) {
                u64 block = dtype_info(TYPES[i])->block_elems;
                u64 cols = block * (block == 256  ? 1 + j % 3
                                    : block == 32 ? 1 + 2 * j
                                                  : 7 + 11 * j);
                check_product(TYPES[i], ROWS[j], cols, &sets[s], 16);
                if (sets[s].matmul[TYPES[i]]->act != ACT_F32)
                    check_product(TYPES[i], ROWS[j], cols, &sets[s], 8);
            }
}

/* More tokens and rows than one pass of a kernel takes. */
static void matmul_of_many(void **state) {
    (void)state;
    static const u32 MANY[] = {DTYPE_F16,  DTYPE_BF16, DTYPE_Q4_0,
                               DTYPE_Q8_0, DTYPE_Q4_K, DTYPE_Q6_K};
    n_toks = 262;
    for (u32 s = 0; s < n_sets; s++)
        for (u32 i = 0; i < ARRAY_LEN(MANY); i++)
            for (u32 bits = 8; bits <= 16; bits += 8)
                if (!top_only || sets[s].matmul[MANY[i]]->panel_rows)
                    check_product(MANY[i], 147, 512, &sets[s], bits);
    n_toks = 135; /* two lines each: more than 256 */
    for (u32 s = 0; s < n_sets; s++)
        for (u32 bits = 8; bits <= 16 && sets[s].matmul[DTYPE_BF16]->act == ACT_BF16X2; bits += 8)
            check_product(DTYPE_BF16, 275, 331, &sets[s], bits);
    n_toks = some_toks;
}

static void matmul_of_the_largest(void **state) {
    (void)state;
    largest = true;
    for (u32 s = 0; s < n_sets; s++)
        for (u32 i = 0; i < ARRAY_LEN(TYPES); i++)
            for (u32 bits = 8; bits <= 16 && codes_format(TYPES[i]).bits; bits += 8)
                check_product(TYPES[i], 33, 256, &sets[s], bits);
    largest = false;
}

/* ref's rows are right: against decoded weights and the given activations, in double. */
static void ref_is_right(u32 bits) {
    enum { ROWS = 5, COLS = 512, N = 3 };
    for (u32 i = 0; i < ARRAY_LEN(TYPES); i++) {
        u64 row_bytes;
        dtype_row_bytes(TYPES[i], COLS, &row_bytes);
        u8 *w = malloc(ROWS * row_bytes);
        float x[MAX_TOK * COLS], row[COLS];
        fill_weights(TYPES[i], w, ROWS, COLS);
        for (u32 k = 0; k < MAX_TOK * COLS; k++) x[k] = uniform();
        struct product p;
        product_open(&p, &ref, TYPES[i], ROWS, COLS, w, x, bits);
        product_mul(&p, 0, N, 0, ROWS);
        for (u32 r = 0; r < ROWS; r++)
            for (u32 t = 0; t < N; t++) {
                double want = 0, size = 0;
                p.k->get_row(p.k, row, p.packed, ROWS, COLS, r);
                for (u32 c = 0; c < COLS; c++) {
                    want += (double)row[c] * (double)x[t * COLS + c];
                    size += fabs((double)row[c]);
                }
                /* 16-bit activations are off by half a step each, or one where -128 became -127 */
                double slack = p.k->act == ACT_F32 ? size * 1e-5
                               : bits == 8         ? size / ACT_MAX8 * 0.51
                                                   : size / ACT_MAX * 1.01 + size * 1e-6;
                if (!(fabs((double)p.y[t * ROWS + r] - want) <= slack))
                    fail_msg("%s: %g, want %g", dtype_info(TYPES[i])->name,
                             (double)p.y[t * ROWS + r], want);
            }
        product_close(&p);
        free(w);
    }
}

static void matmul_ref_is_right(void **state) {
    (void)state;
    ref_is_right(16);
    ref_is_right(8);
}

static void act_q16_extremes(void **state) {
    (void)state;
    float x[32] = {0};
    struct act_block b __attribute__((aligned(64)));
    for (u32 s = 0; s <= n_sets; s++) {
        const struct kernels *k = s ? &sets[s - 1] : &ref;
        memset(x, 0, sizeof x);
        k->act_q(&b, x, 32, ACT_Q16);
        assert_true(b.d == 0 && b.hi[5] == 0 && b.lo[5] == 0 && b.c128 == 0);
        x[3] = 1e-40f; /* its inverse is not finite */
        k->act_q(&b, x, 32, ACT_Q16);
        assert_true(b.d == 0 && b.hi[3] == 0 && b.lo[3] == 0);
        x[3] = -ACT_MAX;
        x[31] = 0.5f; /* ties go to even */
        x[30] = 1.5f;
        x[29] = 128; /* would be -128 in the low byte: one unit off instead */
        x[28] = 255;
        k->act_q(&b, x, 32, ACT_Q16);
        assert_true(b.d == 1 && b.hi[3] == -127 && b.lo[3] == -127 && b.lo[31] == 0 &&
                    b.lo[30] == 2);
        assert_true(b.hi[29] == 1 && b.lo[29] == -127 && b.hi[28] == 1 && b.lo[28] == -1);
        assert_true(b.c128_16[0] == 128 * ACT_MAX && b.c128_16[1] == -128 * (2 + 129 + 255) &&
                    b.c128 == 128 * (ACT_MAX - 386) && b.c8 == 8 * (ACT_MAX - 386) &&
                    b.s32 == 386 - ACT_MAX);
        k->act_q(&b, x, 32, ACT_Q16W); /* the same integers */
        assert_true(b.words[3] == -ACT_MAX && b.words[31] == 0 && b.words[30] == 256 - 127);
        assert_true(b.words[28] == 255 && b.words[29] == 2 && b.c8 == 8 * (ACT_MAX - 386));
        x[3] = -ACT_MAX8;
        x[29] = 126.5f;
        x[28] = -0.5f;
        k->act_q(&b, x, 32, ACT_Q8);
        assert_true(b.hi[3] == -127 && b.hi[31] == 0 && b.hi[30] == 2 && b.hi[29] == 126 &&
                    b.hi[28] == 0 && b.d == 1 && b.c8 == -8 && b.s32 == 1);
        x[7] = INFINITY; /* must show, not vanish */
        k->act_q(&b, x, 32, ACT_Q16);
        assert_true(isnan(b.d) && b.hi[7] == 0);
        x[7] = NAN;
        k->act_q(&b, x, 32, ACT_Q16);
        assert_true(isnan(b.d));
    }
}

/* One of the blocks that conversion meets: ordinary, all zero, too small for a scale, with what is
 * no number. */
static void fill_block(float x[ACT_BLOCK]) {
    fill_floats(x, ACT_BLOCK, 3);
    switch (draw() % 8) {
    case 0: memset(x, 0, ACT_BLOCK * sizeof *x); break;
    case 1:
        for (u32 i = 0; i < ACT_BLOCK; i++) x[i] = uniform() * 1e-36f;
        break;
    case 2: x[draw() % ACT_BLOCK] = -INFINITY; break;
    case 3: x[draw() % ACT_BLOCK] = NAN; break;
    default: break;
    }
}

static bool same_block(const struct act_block *a, const struct act_block *b, enum act_kind kind) {
    const float fa[] = {a->d, a->s32, a->s16[0], a->s16[1]};
    const float fb[] = {b->d, b->s32, b->s16[0], b->s16[1]};
    return memcmp(a->words, b->words, kind == ACT_Q8 ? sizeof a->hi : sizeof a->words) == 0 &&
           same_bits(fa, fb, 4) && a->c8 == b->c8 && a->c128 == b->c128 &&
           memcmp(a->c128_16, b->c128_16, sizeof a->c128_16) == 0;
}

/* What is no number stays none, columns that aren't there are zeros. */
static void check_bf16(const struct kernels *k, const float *x, u64 cols) {
    const u64 line = kernels_act_bytes(ACT_BF16, cols) / sizeof(u16), n = align_up(cols, ACT_BLOCK);
    struct guarded g[3];
    u16 *a = guard_alloc(&g[0], 2 * line * sizeof *a, KERNEL_ALIGN);
    u16 *b = guard_alloc(&g[1], 2 * line * sizeof *b, KERNEL_ALIGN);
    u16 *one = guard_alloc(&g[2], line * sizeof *one, KERNEL_ALIGN);
    ref.act_q(a, x, cols, ACT_BF16X2);
    k->act_q(b, x, cols, ACT_BF16X2);
    k->act_q(one, x, cols, ACT_BF16);
    for (u64 i = 0; i < n; i++) {
        bool number = !isnan(bf16_to_f32(a[i]));
        assert_true(number ? a[i] == b[i] && a[i] == one[i]
                           : isnan(bf16_to_f32(b[i])) && isnan(bf16_to_f32(one[i])));
        assert_true(a[line + i] == b[line + i]);
        if (i >= cols) assert_true(a[i] == 0 && a[line + i] == 0);
    }
    for (u32 i = 0; i < 3; i++) guard_free(&g[i]);
}

static void act_bf16_equals_ref(void **state) {
    (void)state;
    for (u32 s = 0; s <= n_sets; s++)
        for (u64 cols = 1; cols < 100; cols++) {
            struct guarded g;
            float *x = guard_alloc(&g, cols * sizeof *x, 4);
            const u32 nan = 0xFFFFFFFF;
            fill_floats(x, cols, 3);
            x[draw() % cols] = -INFINITY;
            x[draw() % cols] = 0x1.fffffep127f; /* would be rounded to infinity */
            memcpy(&x[draw() % cols], &nan, sizeof nan);
            check_bf16(s ? &sets[s - 1] : &ref, x, cols);
            guard_free(&g);
        }
}

/* Ties go to even; what rounding left. */
static void bf16_is_right(void **state) {
    (void)state;
    const float x[] = {0x1.01p0f, 0x1.03p0f, 0x1.0101p0f, -INFINITY, 0x1.fffffep127f, NAN};
    u16 a[2 * 96] __attribute__((aligned(64)));
    float f[6], left[6];
    ref.act_q(a, x, ARRAY_LEN(x), ACT_BF16X2);
    for (u32 i = 0; i < ARRAY_LEN(x); i++) {
        f[i] = bf16_to_f32(a[i]);
        left[i] = bf16_to_f32(a[kernels_act_bytes(ACT_BF16, ARRAY_LEN(x)) / sizeof *a + i]);
    }
    assert_true(f[0] == 1 && f[1] == 0x1.04p0f && f[2] == 0x1.02p0f && f[3] == -INFINITY &&
                f[4] == INFINITY && isnan(f[5]));
    assert_true(left[0] == 0x1p-8f && left[1] == -0x1p-8f && left[2] == -0x1.fep-9f);
    assert_true(left[3] == 0 && left[4] == 0 && left[5] == 0);
}

/* Any kind fits where the largest does. */
static void acts_fit(void **state) {
    (void)state;
    for (u64 cols = 1; cols <= 4096; cols++) {
        assert_true(kernels_act_bytes(ACT_BF16X2, cols) <= kernels_act_most(cols));
        assert_true(kernels_act_bytes(ACT_BF16, cols) <= kernels_act_most(cols));
        if (cols % ACT_BLOCK) continue;
        for (enum act_kind kind = ACT_Q16; kind <= ACT_Q8; kind++)
            if (kind != ACT_F32)
                assert_true(kernels_act_bytes(kind, cols) <= kernels_act_most(cols));
    }
}

/* Any number of blocks, whatever their neighbours are, in every way to keep them. */
static void act_q_equals_ref(void **state) {
    (void)state;
    static const enum act_kind KINDS[] = {ACT_Q16, ACT_Q16W, ACT_Q8};
    struct guarded g[3];
    for (u32 s = 0; s < n_sets; s++)
        for (u64 n = 1; own_vectors[s] && n <= 27; n++)
            for (u32 i = 0; i < ARRAY_LEN(KINDS); i++) {
                u64 cols = n * ACT_BLOCK, bytes = n * sizeof(struct act_block);
                float *x = guard_alloc(&g[0], cols * sizeof *x, 4);
                struct act_block *a = guard_alloc(&g[1], bytes, KERNEL_ALIGN);
                struct act_block *b = guard_alloc(&g[2], bytes, KERNEL_ALIGN);
                for (u64 k = 0; k < n; k++) fill_block(x + k * ACT_BLOCK);
                ref.act_q(a, x, cols, KINDS[i]);
                sets[s].act_q(b, x, cols, KINDS[i]);
                for (u64 k = 0; k < n; k++)
                    if (!same_block(&a[k], &b[k], KINDS[i]))
                        fail_msg("%s: block %llu of %llu, kind %u", sets[s].set,
                                 (unsigned long long)k, (unsigned long long)n, (u32)KINDS[i]);
                for (u32 m = 0; m < 3; m++) guard_free(&g[m]);
            }
}

enum { VEC_MAX = 200 };

static void vectors_equal_ref(void **state) {
    (void)state;
    struct guarded g[6];
    for (u32 s = 0; s < n_sets; s++)
        for (u64 n = 1; own_vectors[s] && n <= VEC_MAX; n += n < 40 ? 1 : 13) {
            const struct kernels *k = &sets[s];
            float *x = guard_alloc(&g[0], n * 4, 4), *w = guard_alloc(&g[1], n * 4, 4);
            float *a = guard_alloc(&g[2], n * 4, 4), *b = guard_alloc(&g[3], n * 4, 4);
            u16 *ha = guard_alloc(&g[4], n * 2, 2), *hb = guard_alloc(&g[5], n * 2, 2);
            fill_floats(x, n, 5);
            fill_floats(w, n, 2);
#define BOTH(...)                                                                        \
    do {                                                                                 \
        memcpy(a, x, n * 4);                                                             \
        memcpy(b, x, n * 4);                                                             \
        {                                                                                \
            const struct kernels *kk = &ref;                                             \
            float *y = a;                                                                \
            __VA_ARGS__;                                                                 \
        }                                                                                \
        {                                                                                \
            const struct kernels *kk = k;                                                \
            float *y = b;                                                                \
            __VA_ARGS__;                                                                 \
        }                                                                                \
        if (!same_bits(a, b, n)) fail_msg("%s: %s, n %d", k->set, #__VA_ARGS__, (int)n); \
    } while (0)
            BOTH(kk->rms_norm(y, x, w, n, 1e-6f));
            BOTH(kk->rms_norm(y, y, NULL, n, 1e-5f));
            BOTH(kk->add(y, w, n));
            BOTH(kk->scale(y, 0.37f, n));
            BOTH(kk->softcap(y, 30, n));
            BOTH(kk->softmax(y, n));
            BOTH(kk->silu_mul(y, x, w, n));
            BOTH(kk->gelu_mul(y, y, w, n));
            if (n % 2 == 0) {
                BOTH(kk->rope(y, w, (u32)n, ROPE_NEOX));
                BOTH(kk->rope(y, w, (u32)n, ROPE_NORM));
            }
            x[n / 2] = 1e6f;
            x[n / 3] = -1e30f;
            ref.to_f16(ha, x, n);
            k->to_f16(hb, x, n);
            assert_memory_equal(ha, hb, n * 2);
            for (u64 i = 0; i < n; i++) ha[i] = (u16)draw();
            ref.from_f16(a, ha, n);
            k->from_f16(b, ha, n);
            assert_true(same_bits(a, b, n));
            for (u32 i = 0; i < 6; i++) guard_free(&g[i]);
        }
}

static void near(float got, double want, double rel, double abs_err) {
    if (!(fabs((double)got - want) <= rel * fabs(want) + abs_err))
        fail_msg("got %.9g, want %.9g", (double)got, want);
}

/* ref's vector functions against double precision. */
static void vectors_ref_is_right(void **state) {
    (void)state;
    enum { N = 1000 };
    static float x[N], y[N], up[N], w[N];
    double ss = 0, max = -1e9, sum = 0;
    for (u32 i = 0; i < N; i++) {
        x[i] = (float)i / 10 - 50;
        w[i] = uniform();
        up[i] = uniform();
        ss += (double)x[i] * (double)x[i];
        max = fmax(max, (double)x[i]);
    }
    ref.silu_mul(y, x, up, N);
    for (u32 i = 0; i < N; i++)
        near(y[i], (double)x[i] / (1 + exp(-(double)x[i])) * (double)up[i], 5e-7, 1e-30);
    ref.gelu_mul(y, x, up, N);
    for (u32 i = 0; i < N; i++) {
        double z = (double)x[i], t = tanh(sqrt(2 / M_PI) * (z + 0.044715 * z * z * z));
        near(y[i], 0.5 * z * (1 + t) * (double)up[i], 2e-6, 1e-6);
    }
    memcpy(y, x, sizeof y);
    ref.softcap(y, 30, N);
    for (u32 i = 0; i < N; i++) near(y[i], 30 * tanh((double)x[i] / 30), 1e-6, 1e-5);
    ref.rms_norm(y, x, w, N, 1e-6f);
    for (u32 i = 0; i < N; i++)
        near(y[i], (double)x[i] * (double)w[i] / sqrt(ss / N + 1e-6), 1e-6, 1e-12);
    memcpy(y, x, sizeof y);
    ref.softmax(y, N);
    for (u32 i = 0; i < N; i++) sum += exp((double)x[i] - max);
    /* x - max is rounded to f32: up to 4e-6 near -80. */
    for (u32 i = 0; i < N; i++) near(y[i], exp((double)x[i] - max) / sum, 5e-6, 1e-36);
    /* A turn by 60 degrees in both layouts. */
    float cs[4] = {0.5f, 0.5f, 0.8660254f, 0.8660254f}, a[4] = {1, 2, 3, 4}, b[4] = {1, 3, 2, 4};
    ref.rope(a, cs, 4, ROPE_NEOX);
    ref.rope(b, cs, 4, ROPE_NORM);
    near(a[0], 0.5 * 1 - 0.8660254 * 3, 1e-6, 0);
    near(a[2], 0.5 * 3 + 0.8660254 * 1, 1e-6, 0);
    near(a[1], 0.5 * 2 - 0.8660254 * 4, 1e-6, 0);
    assert_true(a[0] == b[0] && a[2] == b[1] && a[1] == b[2] && a[3] == b[3]);
}

struct context {
    struct guarded g;
    enum kv_type type;
    u8 *mem; /* [block]: one head's part each */
    u32 blocks[24], n_blocks, dk, dv, len;
    u64 stride;
};

static void context_store(struct context *c, u8 *b, u32 t, const float *k, const float *v) {
    enum { T = KV_BLOCK_TOKENS };
    u8 *values = b + kv_values_at(c->type, c->dk);
    if (c->type == KV_F16) {
        for (u32 d = 0; d < c->dk; d++) ((u16 *)(void *)b)[d * T + t] = f32_to_f16(k[d]);
        ref.to_f16((u16 *)(void *)values + t * c->dv, v, c->dv);
        return;
    }
    u16 *ks = (u16 *)(void *)(b + kv_key_scales_at(c->dk, c->dv)) + t;
    u16 *vs = (u16 *)(void *)(b + kv_value_scales_at(c->dk, c->dv)) + t;
    for (u32 d = 0; d < c->dk; d += KV_GROUP)
        kv_q8_store((i8 *)b + d * T + t, T, ks + d, k + d, MIN(c->dk - d, (u32)KV_GROUP));
    for (u32 d = 0; d < c->dv; d += KV_GROUP)
        kv_q8_store((i8 *)values + t * c->dv + d, 1, vs + d, v + d, MIN(c->dv - d, (u32)KV_GROUP));
}

/* A sequence of `len` tokens in shuffled blocks; what was not written is NaN (f16) or a NaN scale.
 */
static void context_open(struct context *c, enum kv_type type, u32 len, u32 dk, u32 dv) {
    float k[256], v[256];
    *c = (struct context){.type = type,
                          .n_blocks = (len + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS,
                          .dk = dk,
                          .dv = dv,
                          .len = len,
                          .stride = kv_head_bytes(type, dk, dv)};
    assert_true(c->n_blocks <= ARRAY_LEN(c->blocks) && dk <= 256 && dv <= 256);
    c->mem = guard_alloc(&c->g, c->n_blocks * c->stride, 2);
    for (u32 i = 0; i < c->n_blocks; i++) c->blocks[i] = (i * 7 + 3) % c->n_blocks;
    if (c->n_blocks % 7 == 0)
        for (u32 i = 0; i < c->n_blocks; i++) c->blocks[i] = i;
    for (u32 pos = 0; pos < len; pos++) {
        for (u32 d = 0; d < dk; d++) k[d] = uniform() * 2;
        for (u32 d = 0; d < dv; d++) v[d] = uniform() * 3;
        context_store(c, c->mem + c->blocks[pos / KV_BLOCK_TOKENS] * c->stride,
                      pos % KV_BLOCK_TOKENS, k, v);
    }
}

/* Element d of a key (at 0) or value, as it is stored. */
static double stored(const struct context *c, u32 pos, u32 d, bool key) {
    enum { T = KV_BLOCK_TOKENS };
    const u8 *b = c->mem + c->blocks[pos / T] * c->stride;
    const u8 *p = b + (key ? 0 : kv_values_at(c->type, c->dk));
    u32 t = pos % T, at = key ? d * T + t : t * c->dv + d;
    if (c->type == KV_F16) return (double)f16_to_f32(((const u16 *)(const void *)p)[at]);
    u64 scales = key ? kv_key_scales_at(c->dk, c->dv) : kv_value_scales_at(c->dk, c->dv);
    const u16 *s = (const u16 *)(const void *)(b + scales);
    return ((const i8 *)p)[at] * (double)f16_to_f32(s[d / KV_GROUP * T + t]);
}

static void attend_double(const struct context *c, const struct attend_args *a,
                          const struct attend_row *r, double *out) {
    double s[1024], max = -1e300, sum = 0;
    for (u32 p = r->lo; p < r->hi; p++) {
        double dot = 0;
        for (u32 d = 0; d < a->dk; d++) dot += (double)r->q[d] * stored(c, p, d, true);
        dot *= (double)a->scale;
        if (a->softcap > 0) dot = (double)a->softcap * tanh(dot / (double)a->softcap);
        s[p] = dot;
        max = fmax(max, dot);
    }
    for (u32 d = 0; d < a->dv; d++) out[d] = 0;
    for (u32 p = r->lo; p < r->hi; p++) {
        double e = exp(s[p] - max);
        sum += e;
        for (u32 d = 0; d < a->dv; d++) out[d] += e * stored(c, p, d, false);
    }
    for (u32 d = 0; d < a->dv; d++) out[d] /= sum;
}

/* All parts of a call's rows, merged; each row's outputs and sums are the kernels' own memory. */
static void attend_all(const struct kernels *k, struct attend_args a, float *out, u32 len) {
    struct attend_sum total[ATTEND_ROWS], sums[ATTEND_ROWS];
    struct attend_row rows[ATTEND_ROWS];
    struct guarded g;
    float *part = guard_alloc(&g, a.n_rows * a.dv * 4, 4);
    bool begun[ATTEND_ROWS] = {false};
    memcpy(rows, a.rows, a.n_rows * sizeof *rows);
    for (u32 i = 0; i < a.n_rows; i++) rows[i].out = part + i * a.dv;
    a.rows = rows;
    a.sums = sums;
    for (a.part = 0; a.part * ATTEND_PART < len; a.part++) {
        k->attend(&a);
        for (u32 i = 0; i < a.n_rows; i++) {
            if (rows[i].lo >= (a.part + 1) * ATTEND_PART || rows[i].hi <= a.part * ATTEND_PART) {
                assert_true(isinf(sums[i].max) && sums[i].sum == 0 && rows[i].out[0] == 0);
            } else if (begun[i]) {
                k->attend_merge(out + i * a.dv, &total[i], rows[i].out, &sums[i], a.dv);
            } else {
                memcpy(out + i * a.dv, rows[i].out, a.dv * 4);
                total[i] = sums[i];
                begun[i] = true;
            }
        }
    }
    for (u32 i = 0; i < a.n_rows; i++) k->scale(out + i * a.dv, 1.0f / total[i].sum, a.dv);
    guard_free(&g);
}

static void check_attend(enum kv_type type, u32 len, u32 dk, u32 dv, u32 n_rows, float softcap,
                         u32 window) {
    bool own = n_sets == 0;
    for (u32 s = 0; s < n_sets; s++) own |= own_attend[s];
    if (!own) return; /* SKEIN_TEST_TOP: these functions are tested as those of another CPU */
    struct context c;
    struct guarded g[3];
    context_open(&c, type, len, dk, dv);
    float *q = guard_alloc(&g[0], n_rows * dk * 4, 4),
          *want = guard_alloc(&g[1], n_rows * dv * 4, 4),
          *got = guard_alloc(&g[2], n_rows * dv * 4, 4);
    double *exact = malloc(dv * sizeof *exact);
    for (u32 i = 0; i < n_rows * dk; i++) q[i] = uniform() * 3;
    struct attend_row rows[ATTEND_ROWS];
    for (u32 i = 0; i < n_rows; i++) {
        u32 hi = (u32)(1 + draw() % len);
        rows[i] = (struct attend_row){
            .q = q + i * dk, .lo = window && hi > window ? hi - window : 0, .hi = hi};
    }
    struct attend_args a = {.rows = rows,
                            .n_rows = n_rows,
                            .type = type,
                            .dk = dk,
                            .dv = dv,
                            .kv = c.mem,
                            .block_stride = c.stride,
                            .blocks = c.blocks,
                            .scale = 0.2f,
                            .softcap = softcap};
    attend_all(&ref, a, want, len);
    for (u32 i = 0; i < n_rows; i++) {
        attend_double(&c, &a, &rows[i], exact);
        for (u32 d = 0; d < dv; d++) near(want[i * dv + d], exact[d], 1e-4, 2e-5);
    }
    for (u32 s = 0; s < n_sets; s++) {
        if (!own_attend[s]) continue;
        attend_all(&sets[s], a, got, len);
        if (!same_bits(want, got, n_rows * dv)) fail_msg("%s: all rows at once", sets[s].set);
        struct attend_args one = a;
        one.n_rows = 1;
        for (u32 i = 0; i < n_rows; i++) { /* each row alone */
            one.rows = rows + i;
            attend_all(&sets[s], one, got + i * dv, len);
        }
        if (!same_bits(want, got, n_rows * dv)) fail_msg("%s: rows one by one", sets[s].set);
    }
    free(exact);
    for (u32 i = 0; i < 3; i++) guard_free(&g[i]);
    guard_free(&c.g);
}

static void attend_equals_ref(void **state) {
    (void)state;
    static const u32 LEN[] = {1, 2, 31, 32, 33, 64, 100, 257};
    for (u32 type = 0; type < KV_TYPES; type++)
        for (u32 i = 0; i < ARRAY_LEN(LEN); i++)
            for (u32 n = 1; n <= ATTEND_ROWS; n += n < 9 ? 1 : 7) {
                enum kv_type t = (enum kv_type)type;
                check_attend(t, LEN[i], 64, 64, n, 0, 0);
                check_attend(t, LEN[i], 16, 48, n, n % 2 ? 20.0f : 0, n % 3 ? 40 : 0);
                if (n % 3 == 2) check_attend(t, LEN[i], 80, 256, n, 0, 5);
            }
}

/* More than one part, windows that begin and end in any of them. */
static void attend_merges_parts(void **state) {
    (void)state;
    static const u32 LEN[] = {256, 258, 512, 700}, WINDOW[] = {0, 1, 100, 256, 300};
    for (u32 type = 0; type < KV_TYPES; type++)
        for (u32 i = 0; i < ARRAY_LEN(LEN); i++)
            for (u32 w = 0; w < ARRAY_LEN(WINDOW); w++)
                check_attend((enum kv_type)type, LEN[i], 32, 48, w % 2 ? 3 : 7, 0, WINDOW[w]);
}

/* Zen 4 is slower when weights are asked for ahead, others are faster. */
static void whole_registers_ask_ahead(void **state) {
    (void)state;
#if defined(__x86_64__)
    for (u32 i = 0; i < n_sets; i++) {
        struct kernels whole = sets[i], halves = sets[i];
        if (strcmp(sets[i].set, "vnni") != 0) continue;
        vnni_fill_halves(&whole, false);
        vnni_fill_halves(&halves, true);
        for (u32 t = 0; t < DTYPE_N; t++)
            if (whole.matmul[t]) assert_true(whole.matmul[t]->ahead && !halves.matmul[t]->ahead);
    }
#endif
}

int main(void) {
    const char *s = getenv("SKEIN_TEST_SEED");
    u32 known, usable;
    const char *const *names = kernels_sets(&known, &usable);
    top_only = getenv("SKEIN_TEST_TOP") != NULL;
    if (top_only) n_toks = some_toks = 27;
    seed = s ? strtoull(s, NULL, 0) : random_u64();
    printf("sets_test: SKEIN_TEST_SEED=%llu, sets:", (unsigned long long)seed);
    kernels_select(&ref, "ref", NULL);
    for (u32 i = 1; i < usable; i++) {
        struct kernels below, *k = &sets[n_sets];
        if (top_only && i + 1 < usable) continue;
        kernels_select(&below, names[i - 1], NULL);
        kernels_select(k, names[i], NULL);
        own_attend[n_sets] = k->attend != below.attend;
        own_vectors[n_sets] = k->rms_norm != below.rms_norm;
        n_sets++;
        printf(" %s", names[i]);
    }
#if defined(__x86_64__)
    for (u32 i = 0; i < n_sets; i++) { /* and what other CPUs take of it */
        if (strcmp(sets[i].set, "vnni") != 0) continue;
        sets[n_sets] = sets[i];
        vnni_fill_halves(&sets[n_sets++], !vnni_halves());
        printf(", and vnni of CPUs with %s registers", vnni_halves() ? "whole" : "halved");
        break;
    }
#endif
    printf("\n");
    fflush(stdout);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(act_q16_extremes),
        cmocka_unit_test(act_q_equals_ref),
        cmocka_unit_test(matmul_ref_is_right),
        cmocka_unit_test(matmul_equals_ref),
        cmocka_unit_test(vectors_ref_is_right),
        cmocka_unit_test(vectors_equal_ref),
        cmocka_unit_test(attend_equals_ref),
        cmocka_unit_test(attend_merges_parts),
        cmocka_unit_test(matmul_of_many),
        cmocka_unit_test(matmul_of_the_largest),
        cmocka_unit_test(whole_registers_ask_ahead),
        cmocka_unit_test(act_bf16_equals_ref),
        cmocka_unit_test(bf16_is_right),
        cmocka_unit_test(acts_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
