#include "kernels/ref/ref.h"

#include <math.h>
#include <string.h>

#include "kernels/act.h"
#include "kernels/codes.h"

/* Nearest even for |x| < 2^22: adding 1.5 * 2^23 leaves no bits below the unit. */
static int round_even(float x) {
    return (int)((x + 0x1.8p23f) - 0x1.8p23f);
}

/* A block's integers: those of the one token, in one of the ways of act.h. */
static void put_q(struct act_block *b, const int q[ACT_BLOCK], enum act_kind kind) {
    i32 sum[2] = {0, 0};
    for (int k = 0; k < ACT_BLOCK; k++) {
        int lo = (i8)(q[k] & 0xFF), hi = (q[k] - lo) / 256;
        lo = MAX(lo, -127); /* one unit off in 256 cases of one: see act.h */
        if (kind == ACT_Q8) {
            hi = 0;
            b->hi[k] = (i8)lo;
        } else if (kind == ACT_Q16W) {
            static const i8 TO[4] = {0, 2, 1, 3};
            b->words[k / 4 * 4 + TO[k % 4]] = (i16)(256 * hi + lo);
        } else {
            b->hi[k] = (i8)hi;
            b->lo[k] = (i8)lo;
        }
        sum[k / 16] += 256 * hi + lo;
    }
    for (int h = 0; h < 2; h++) {
        b->c128_16[h] = -128 * sum[h];
        b->s16[h] = b->d * (float)sum[h];
    }
    b->c8 = -8 * (sum[0] + sum[1]);
    b->c128 = -128 * (sum[0] + sum[1]);
    b->s32 = b->d * (float)(sum[0] + sum[1]);
}

static int get_q(const struct act_block *b, int k, enum act_kind kind) {
    static const i8 TO[4] = {0, 2, 1, 3};
    return kind == ACT_Q8     ? b->hi[k]
           : kind == ACT_Q16W ? b->words[k / 4 * 4 + TO[k % 4]]
                              : 256 * b->hi[k] + b->lo[k];
}

static void act_bf16(u16 *dst, const float *x, u64 cols, enum act_kind kind) {
    u16 *rest = dst + kernels_act_bytes(ACT_BF16, cols) / sizeof *dst;
    for (u64 i = 0; i < align_up(cols, ACT_BLOCK); i++) {
        float v = i < cols ? x[i] : 0;
        dst[i] = f32_to_bf16(v);
        if (kind != ACT_BF16X2) continue;
        float left = v - bf16_to_f32(dst[i]);
        rest[i] = isfinite(left) ? f32_to_bf16(left) : 0;
    }
}

void ref_act_q(void *dst, const float *x, u64 cols, enum act_kind kind) {
    if (kind == ACT_BF16X2 || kind == ACT_BF16) {
        act_bf16(dst, x, cols, kind);
        return;
    }
    struct act_block *b = dst;
    const float top = kind == ACT_Q8 ? ACT_MAX8 : ACT_MAX;
    for (u64 i = 0; i < cols / ACT_BLOCK; i++, b++, x += ACT_BLOCK) {
        /* As integers, magnitudes compare like floats and NaN is above infinity. */
        u32 max_bits = 0;
        for (int k = 0; k < ACT_BLOCK; k++) {
            u32 u;
            memcpy(&u, &x[k], 4);
            max_bits = MAX(max_bits, u & 0x7FFFFFFF);
        }
        float max, inv;
        memcpy(&max, &max_bits, 4);
        bool finite = max_bits < 0x7F800000;
        /* Below 2^-110 the inverse would be infinite; such a block counts as zero. */
        inv = finite && max >= 0x1p-110f ? top / max : 0;
        b->d = !finite ? NAN : inv > 0 ? max / top : 0;
        int q[ACT_BLOCK];
        for (int k = 0; k < ACT_BLOCK; k++) q[k] = inv > 0 ? round_even(x[k] * inv) : 0;
        put_q(b, q, kind);
    }
}

static bool packed_bytes(const struct matmul_kernel *k, u64 rows, u64 cols, u64 *bytes) {
    u64 row;
    return dtype_row_bytes(k->type, cols, &row) && size_mul(rows, row, bytes);
}

static u64 row_bytes(const struct matmul_kernel *k, u64 cols) {
    u64 row;
    ASSERT(dtype_row_bytes(k->type, cols, &row));
    return row;
}

/* The reference set computes from the file's own layout. */
static void pack(const struct matmul_kernel *k, void *dst, const void *src, u64 stride, u64 rows,
                 u64 cols, u64 row0, u64 row1) {
    (void)rows;
    u64 n = row_bytes(k, cols);
    for (u64 r = row0; r < row1; r++)
        memcpy((u8 *)dst + r * n, (const u8 *)src + r * stride, n);
}

enum { TOKENS = 8 };

/* One row, up to TOKENS tokens: per 32 (or 16) columns an exact integer product, converted, times
 * the activation's scale, then fused into the sum with the weight's scale. */
static void row_dot(const struct matmul_kernel *k, const u8 *row, u64 cols, const u8 *act,
                    u64 act_stride, u32 n, float *sum, enum act_kind kind) {
    const struct code_format f = codes_format(k->type);
    int n_half = f.sub == 16 ? 2 : 1;
    for (u64 i = 0; i < cols / 32; i++) {
        struct codes c;
        codes_read(k->type, row, i, &c);
        for (u32 t = 0; t < n; t++) {
            const struct act_block *b = (const struct act_block *)(act + t * act_stride) + i;
            for (int h = 0; h < n_half; h++) {
                int dot = 0;
                for (int j = h * f.sub; j < (h + 1) * f.sub; j++)
                    dot += codes_value(&f, c.c[j]) * get_q(b, j, kind);
                sum[t] = fmaf((float)dot * b->d, codes_scale(&f, &c, h), sum[t]);
                if (f.has_min)
                    sum[t] = fmaf(codes_min(&f, &c, h), n_half == 2 ? b->s16[h] : b->s32, sum[t]);
            }
        }
    }
}

static void mul_codes(const struct matmul_kernel *k, const struct mul_args *a) {
    u64 row = row_bytes(k, a->cols), act = kernels_act_bytes(ACT_Q16, a->cols);
    for (u64 r = a->row0; r < a->row1; r++)
        for (u32 t = 0; t < a->n_tok; t += TOKENS) {
            float sum[TOKENS] = {0};
            u32 n = MIN(a->n_tok - t, (u32)TOKENS);
            row_dot(k, (const u8 *)a->packed + r * row, a->cols, (const u8 *)a->act + t * act, act,
                    n, sum, a->kind);
            for (u32 i = 0; i < n; i++) a->y[(t + i) * a->ldy + r] = sum[i];
        }
}

static void get_row_codes(const struct matmul_kernel *k, float *dst, const void *packed, u64 rows,
                          u64 cols, u64 row) {
    (void)rows;
    const struct code_format f = codes_format(k->type);
    const u8 *src = (const u8 *)packed + row * row_bytes(k, cols);
    for (u64 i = 0; i < cols / 32; i++) {
        struct codes c;
        codes_read(k->type, src, i, &c);
        for (int j = 0; j < 32; j++)
            dst[i * 32 + (u64)j] = fmaf(codes_scale(&f, &c, j / 16), (float)codes_value(&f, c.c[j]),
                                        codes_min(&f, &c, j / 16));
    }
}

static float element(enum dtype type, const u8 *row, u64 i) {
    float f;
    u16 h;
    if (type == DTYPE_F32) {
        memcpy(&f, row + 4 * i, 4);
        return f;
    }
    memcpy(&h, row + 2 * i, 2);
    return type == DTYPE_F16 ? f16_to_f32(h) : bf16_to_f32(h);
}

static void mul_floats(const struct matmul_kernel *k, const struct mul_args *a) {
    u64 row = row_bytes(k, a->cols), act = kernels_act_bytes(ACT_F32, a->cols);
    for (u64 r = a->row0; r < a->row1; r++)
        for (u32 t = 0; t < a->n_tok; t++) {
            const float *x = (const float *)(const void *)((const u8 *)a->act + t * act);
            float sum = 0;
            for (u64 c = 0; c < a->cols; c++)
                sum = fmaf(element(k->type, (const u8 *)a->packed + r * row, c), x[c], sum);
            a->y[t * a->ldy + r] = sum;
        }
}

static void get_row_floats(const struct matmul_kernel *k, float *dst, const void *packed, u64 rows,
                           u64 cols, u64 row) {
    (void)rows;
    const u8 *src = (const u8 *)packed + row * row_bytes(k, cols);
    for (u64 i = 0; i < cols; i++) dst[i] = element(k->type, src, i);
}

#define CODES(T)                                                                                  \
    {                                                                                             \
        "ref", DTYPE_##T, ACT_Q16, 1, TOKENS, packed_bytes, pack, mul_codes, get_row_codes, 0, 0, \
            0, 0, 0                                                                               \
    }
#define FLOATS(T)                                                                                 \
    {                                                                                             \
        "ref", DTYPE_##T, ACT_F32, 1, 1, packed_bytes, pack, mul_floats, get_row_floats, 0, 0, 0, \
            0, 0                                                                                  \
    }

const struct matmul_kernel REF_MATMUL[] = {
    CODES(Q4_0),  CODES(Q4_1), CODES(Q5_0), CODES(Q5_1),  CODES(Q8_0),   CODES(Q2_K),
    CODES(Q3_K),  CODES(Q4_K), CODES(Q5_K), CODES(Q6_K),  CODES(IQ4_NL), CODES(IQ4_XS),
    CODES(MXFP4), FLOATS(F32), FLOATS(F16), FLOATS(BF16),
};
const u32 REF_N_MATMUL = ARRAY_LEN(REF_MATMUL);
