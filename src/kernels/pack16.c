#include "kernels/pack16.h"

#include <math.h>
#include <string.h>

#include "kernels/codes_head.h"

/* So that a function made for one format sees constants, at any level of optimization. */
#define INLINED static inline __attribute__((always_inline))

bool pack16_packed_bytes(const struct matmul_kernel *k, u64 rows, u64 cols, u64 *bytes) {
    u64 row, unpacked, groups = rows / PACK_ROWS + (rows % PACK_ROWS != 0);
    /* A group is at most four times its rows in the file (MXFP4's smallest padding included), so
     * that bounding this product first keeps the size of a group from wrapping. */
    if (!dtype_row_bytes(k->type, cols, &row) || !size_mul(row, 4 * PACK_ROWS, &unpacked) ||
        !size_add(unpacked, 64, &unpacked))
        return false;
    u64 group = pack16_planes_bytes(k->type, cols) + pack16_heads_bytes(k->type, cols);
    if (!size_mul(groups, group, bytes) || *bytes > UINT64_MAX - KERNEL_ALIGN) return false;
    *bytes = align_up(*bytes, KERNEL_ALIGN);
    return true;
}

/* A row's part of the planes of 32 columns: four bytes of each line, line after line. */
typedef u32 words[8];

typedef u32 quad __attribute__((vector_size(16)));
typedef u16 octet __attribute__((vector_size(16)));

/* Four rows of four words to four lines of four words. */
INLINED void transpose4(quad out[4], const void *r0, const void *r1, const void *r2,
                        const void *r3) {
    quad a, b, c, d;
    memcpy(&a, r0, 16);
    memcpy(&b, r1, 16);
    memcpy(&c, r2, 16);
    memcpy(&d, r3, 16);
    quad ac0 = __builtin_shufflevector(a, c, 0, 4, 1, 5);
    quad ac1 = __builtin_shufflevector(a, c, 2, 6, 3, 7);
    quad bd0 = __builtin_shufflevector(b, d, 0, 4, 1, 5);
    quad bd1 = __builtin_shufflevector(b, d, 2, 6, 3, 7);
    out[0] = __builtin_shufflevector(ac0, bd0, 0, 4, 1, 5);
    out[1] = __builtin_shufflevector(ac0, bd0, 2, 6, 3, 7);
    out[2] = __builtin_shufflevector(ac1, bd1, 0, 4, 1, 5);
    out[3] = __builtin_shufflevector(ac1, bd1, 2, 6, 3, 7);
}

INLINED void put_lines(u8 *p, const words w[PACK_ROWS], u32 n_lines) {
    for (u32 r = 0; r < PACK_ROWS; r += 4)
        for (u32 j = 0; j < n_lines; j += 4) {
            quad q[4];
            transpose4(q, &w[r][j], &w[r + 1][j], &w[r + 2][j], &w[r + 3][j]);
            for (u32 k = 0; k < MIN(4u, n_lines - j); k++)
                memcpy(p + 64 * (j + k) + 4 * r, &q[k], 16);
        }
}

/* Four bytes of 32 codes at a time: the sum over j of (x[j] >> shift & mask) << step * j. */
INLINED u32 gather(const u8 *x, u32 n, u32 shift, u32 mask, u32 step) {
    u32 sum = 0, v;
    for (u32 j = 0; j < n; j++) {
        memcpy(&v, x + 4 * j, 4);
        sum |= (v >> shift & mask) << step * j;
    }
    return sum;
}

/* Bit 4 * j + i of 32 to bit j of byte i. */
INLINED u32 fifth_bits(const u8 *qh) {
    u32 bits, sum = 0;
    memcpy(&bits, qh, 4);
    for (u32 j = 0; j < 8; j++) /* the product puts bit i of four at bit 8 * i */
        sum |= ((bits >> 4 * j & 15) * 0x00204081 & 0x01010101) << j;
    return sum;
}

/* 32 bytes, of which one nibble each counts (the high one if `high`), to the four lines of 4 bits.
 */
INLINED void words_of_nibbles(u32 *w, const u8 *qs, bool high) {
    u32 v[8];
    memcpy(v, qs, sizeof v);
    for (u32 j = 0; j < 4; j++)
        w[j] = high ? (v[j] >> 4 & 0x0F0F0F0F) | (v[4 + j] & 0xF0F0F0F0)
                    : (v[j] & 0x0F0F0F0F) | (v[4 + j] & 0x0F0F0F0F) << 4;
}

/* Of 32 bytes for each four blocks, the s-th block's two bits to the line of each half. */
INLINED void words_of_pairs(u32 *w, const u8 *b, u32 s) {
    for (u32 h = 0; h < 2; h++)
        w[h] = gather(b + 32 * (s / 4) + 16 * h, 4, 2 * (s % 4), 0x03030303, 2);
}

/* The i-th 32 columns of a row, from the file's bytes to words without codes between. */
INLINED void read_words(enum dtype type, const struct code_format *f, u32 block_bytes,
                        const u8 *row, u64 i, u32 *w, struct codes *c) {
    u32 s = (u32)(i % f->n_sub);
    const u8 *b = row + i / f->n_sub * block_bytes;
    switch (type) {
    case DTYPE_Q4_0:
    case DTYPE_IQ4_NL: memcpy(w, b + 2, 16); break; /* the file pairs nibbles as the planes do */
    case DTYPE_IQ4_XS: memcpy(w, b + 8 + 16 * s, 16); break;
    case DTYPE_Q4_1: memcpy(w, b + 4, 16); break;
    case DTYPE_MXFP4: memcpy(w, b + 1, 16); break;
    case DTYPE_Q5_0:
        memcpy(w, b + 6, 16);
        w[4] = fifth_bits(b + 2);
        break;
    case DTYPE_Q5_1:
        memcpy(w, b + 8, 16);
        w[4] = fifth_bits(b + 4);
        break;
    case DTYPE_Q8_0:
        memcpy(w, b + 2, 32);
        for (u32 j = 0; j < 8; j++) w[j] ^= 0x80808080;
        break;
    case DTYPE_Q2_K: words_of_pairs(w, b + 16, s); break;
    case DTYPE_Q3_K:
        words_of_pairs(w, b + 32, s);
        w[2] = gather(b, 8, s, 0x01010101, 1);
        break;
    case DTYPE_Q4_K: words_of_nibbles(w, b + 16 + 32 * (s / 2), s % 2); break;
    case DTYPE_Q5_K:
        words_of_nibbles(w, b + 48 + 32 * (s / 2), s % 2);
        w[4] = gather(b + 16, 8, s, 0x01010101, 1);
        break;
    case DTYPE_Q6_K:
        words_of_nibbles(w, b + 64 * (s / 4) + 32 * (s & 1), s % 4 >= 2);
        words_of_pairs(w + 4, b + 128, s);
        break;
    default: ASSERT(!"a quantized type");
    }
    codes_read_head(type, b, s, c);
}

static u8 get_code(const u8 *p, const struct code_format *f, u32 r, u32 i) {
    u32 h = i / 16, j = i / 4 % 4, at = 4 * r + i % 4;
    switch (f->bits) {
    case 2: return p[64 * h + at] >> 2 * j & 3;
    case 3: return (u8)((p[64 * h + at] >> 2 * j & 3) | (p[128 + at] >> (4 * h + j) & 1) << 2);
    case 4: return p[64 * j + at] >> 4 * h & 15;
    case 5: return (u8)((p[64 * j + at] >> 4 * h & 15) | (p[256 + at] >> (4 * h + j) & 1) << 4);
    case 6: return (u8)((p[64 * j + at] >> 4 * h & 15) | (p[256 + 64 * h + at] >> 2 * j & 3) << 4);
    default: return p[64 * (4 * h + j) + at];
    }
}

/* Where row r's parts of a head are. */
struct head {
    u8 *d, *m, *sc, *mc; /* sc and mc step by PACK_ROWS */
};

INLINED struct head head_of(u8 *head, const struct code_format *f, u32 r) {
    u32 n_sc = f->n_sub * 32u / f->sub;
    struct head h = {.d = head + (f->e8 ? r : 2 * r)};
    head += f->e8 ? PACK_ROWS : 2 * PACK_ROWS;
    h.m = head + 2 * r;
    if (f->has_min) head += 2 * PACK_ROWS;
    h.sc = head + r;
    h.mc = head + n_sc * PACK_ROWS + r;
    return h;
}

INLINED void put_head(u8 *head, const struct code_format *f, const struct codes *c, u32 r, u32 s) {
    struct head h = head_of(head, f, r);
    memcpy(h.d, &c->d, f->e8 ? 1 : 2);
    if (f->has_min) memcpy(h.m, &c->m, 2);
    if (!f->has_sc) return;
    u32 n = 32 / f->sub;
    for (u32 i = 0; i < n; i++) {
        h.sc[(s * n + i) * PACK_ROWS] = (u8)c->sc[i];
        if (f->has_min) h.mc[(s * n + i) * PACK_ROWS] = (u8)c->mc[i];
    }
}

static void get_head(u8 *head, const struct code_format *f, struct codes *c, u32 r, u32 s) {
    struct head h = head_of(head, f, r);
    u32 n = 32 / f->sub;
    memset(c, 0, sizeof *c);
    memcpy(&c->d, h.d, f->e8 ? 1 : 2);
    if (f->has_min) memcpy(&c->m, h.m, 2);
    for (u32 i = 0; i < 2; i++) {
        u32 at = (s * n + (n == 2 ? i : 0)) * PACK_ROWS;
        c->sc[i] = f->has_sc ? (i8)h.sc[at] : 1;
        c->mc[i] = f->has_sc && f->has_min ? (i8)h.mc[at] : 1;
    }
}

/* A group while it is written. */
struct group {
    u8 *planes, *heads;
};

INLINED void pack_codes(enum dtype type, struct group dst, const u8 *src, u64 stride, u64 cols,
                        u32 n) {
    const struct code_format f = codes_format(type);
    u64 plane = pack16_plane_bytes(&f), head = pack16_head_bytes(&f);
    u32 block_bytes = dtype_info(type)->block_bytes;
    for (u64 i = 0; i < cols / 32; i++) {
        words w[PACK_ROWS] = {0};
        u8 *p = dst.planes + i * plane;
        for (u32 r = 0; r < n; r++) {
            struct codes c;
            read_words(type, &f, block_bytes, src + r * stride, i, w[r], &c);
            put_head(dst.heads + i / f.n_sub * head, &f, &c, r, (u32)(i % f.n_sub));
        }
        put_lines(p, w, (u32)(plane / 64));
    }
}

/* The most frequent formats get code of their own, in which the format is a constant. */
static void pack_group(enum dtype type, struct group dst, const u8 *src, u64 stride, u64 cols,
                       u32 n) {
    if (n < PACK_ROWS) {
        memset(dst.planes, 0, pack16_planes_bytes(type, cols));
        memset(dst.heads, 0, pack16_heads_bytes(type, cols));
    }
    switch (type) {
    case DTYPE_Q4_0: pack_codes(DTYPE_Q4_0, dst, src, stride, cols, n); break;
    case DTYPE_Q8_0: pack_codes(DTYPE_Q8_0, dst, src, stride, cols, n); break;
    case DTYPE_Q4_K: pack_codes(DTYPE_Q4_K, dst, src, stride, cols, n); break;
    case DTYPE_Q5_K: pack_codes(DTYPE_Q5_K, dst, src, stride, cols, n); break;
    case DTYPE_Q6_K: pack_codes(DTYPE_Q6_K, dst, src, stride, cols, n); break;
    default: pack_codes(type, dst, src, stride, cols, n);
    }
}

/* Four words of each row at a time: four columns of f32, eight of the 16-bit types. */
static void pack_group_floats(u8 *dst, const u8 *src, u64 stride, u64 cols, u32 n, u32 size) {
    u64 c = 0, step = 16 / size;
    if (n < PACK_ROWS) memset(dst, 0, align_up(cols * PACK_ROWS * size, 64));
    for (; n == PACK_ROWS && c + step <= cols; c += step, dst += PACK_ROWS * 16, src += 16) {
        words w[PACK_ROWS];
        for (u32 r = 0; r < PACK_ROWS; r++) memcpy(w[r], src + r * stride, 16);
        if (size == 4) {
            put_lines(dst, w, 4);
            continue;
        }
        u8 pairs[4 * 64]; /* lines of [16 rows][2 columns] */
        put_lines(pairs, w, 4);
        for (u32 i = 0; i < 4 * 64; i += 32) {
            octet a, b;
            memcpy(&a, pairs + i, 16);
            memcpy(&b, pairs + i + 16, 16);
            octet even = __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14);
            octet odd = __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
            memcpy(dst + i / 64 * 64 + i % 64 / 2, &even, 16);
            memcpy(dst + i / 64 * 64 + i % 64 / 2 + 32, &odd, 16);
        }
    }
    for (u64 i = 0; i < cols - c; i++)
        for (u32 r = 0; r < n; r++)
            memcpy(dst + (i * PACK_ROWS + r) * size, src + r * stride + i * size, size);
}

void pack16_pack(const struct matmul_kernel *k, void *dst, const void *src, u64 stride, u64 rows,
                 u64 cols, u64 row0, u64 row1) {
    ASSERT(row0 % PACK_ROWS == 0 && row1 <= rows);
    for (u64 r = row0; r < row1; r += PACK_ROWS) {
        struct pack16_group at = pack16_group(k->type, dst, rows, cols, r / PACK_ROWS);
        struct group g = {(u8 *)(uintptr_t)at.planes, (u8 *)(uintptr_t)at.heads};
        const u8 *s = (const u8 *)src + r * stride;
        u32 n = (u32)MIN(rows - r, (u64)PACK_ROWS);
        if (codes_format(k->type).bits)
            pack_group(k->type, g, s, stride, cols, n);
        else
            pack_group_floats(g.planes, s, stride, cols, n, k->type == DTYPE_F32 ? 4 : 2);
    }
}

static void get_row_floats(enum dtype type, float *dst, const u8 *g, u64 cols, u32 r) {
    for (u64 c = 0; c < cols; c++) {
        u64 i = c * PACK_ROWS + r;
        u16 h;
        if (type == DTYPE_F32) {
            memcpy(&dst[c], g + 4 * i, 4);
            continue;
        }
        memcpy(&h, g + 2 * i, 2);
        dst[c] = type == DTYPE_F16 ? f16_to_f32(h) : bf16_to_f32(h);
    }
}

void pack16_get_row(const struct matmul_kernel *k, float *dst, const void *packed, u64 rows,
                    u64 cols, u64 row) {
    ASSERT(row < rows);
    const struct code_format f = codes_format(k->type);
    u32 r = (u32)(row % PACK_ROWS);
    const struct pack16_group g = pack16_group(k->type, packed, rows, cols, row / PACK_ROWS);
    if (!f.bits) {
        get_row_floats(k->type, dst, g.planes, cols, r);
        return;
    }
    for (u64 i = 0; i < cols / 32; i++) {
        struct codes c;
        const u8 *head = g.heads + i / f.n_sub * pack16_head_bytes(&f);
        get_head((u8 *)(uintptr_t)head, &f, &c, r, (u32)(i % f.n_sub));
        for (u32 j = 0; j < 32; j++) {
            int v = codes_value(&f, get_code(g.planes + i * pack16_plane_bytes(&f), &f, r, j));
            int h = (int)j / 16;
            dst[i * 32 + j] = fmaf(codes_scale(&f, &c, h), (float)v, codes_min(&f, &c, h));
        }
    }
}

bool pack16_pairs_packed_bytes(const struct matmul_kernel *k, u64 rows, u64 cols, u64 *bytes) {
    u64 row, groups = rows / PACK_ROWS + (rows % PACK_ROWS != 0);
    (void)k;
    return size_add(cols, 31, &row) && size_mul(row / 32, 32 * PACK_ROWS * 2, &row) &&
           size_mul(groups, row, bytes);
}

/* Where row r's column c is in its group. */
static u64 pair_at(u32 r, u64 c) {
    return (c / 2 * PACK_ROWS + r) * 4 + c % 2 * 2;
}

/* Four words of each row at a time, eight columns; then one column after the other. */
static void pack_group_pairs(u8 *dst, const u8 *src, u64 stride, u64 cols, u32 n) {
    u64 c = 0;
    if (n < PACK_ROWS || cols % 32) memset(dst, 0, pack16_pairs_bytes(cols));
    for (; n == PACK_ROWS && c + 8 <= cols; c += 8) {
        words w[PACK_ROWS];
        for (u32 r = 0; r < PACK_ROWS; r++) memcpy(w[r], src + r * stride + c * 2, 16);
        put_lines(dst + c * PACK_ROWS * 2, w, 4);
    }
    for (; c < cols; c++)
        for (u32 r = 0; r < n; r++) memcpy(dst + pair_at(r, c), src + r * stride + c * 2, 2);
}

void pack16_pairs_pack(const struct matmul_kernel *k, void *dst, const void *src, u64 stride,
                       u64 rows, u64 cols, u64 row0, u64 row1) {
    (void)k;
    ASSERT(row0 % PACK_ROWS == 0 && row1 <= rows);
    for (u64 r = row0; r < row1; r += PACK_ROWS)
        pack_group_pairs((u8 *)dst + r / PACK_ROWS * pack16_pairs_bytes(cols),
                         (const u8 *)src + r * stride, stride, cols,
                         (u32)MIN(rows - r, (u64)PACK_ROWS));
}

void pack16_pairs_get_row(const struct matmul_kernel *k, float *dst, const void *packed, u64 rows,
                          u64 cols, u64 row) {
    (void)k;
    ASSERT(row < rows);
    const u8 *group = (const u8 *)packed + row / PACK_ROWS * pack16_pairs_bytes(cols);
    for (u64 c = 0; c < cols; c++) {
        u16 h;
        memcpy(&h, group + pair_at((u32)(row % PACK_ROWS), c), 2);
        dst[c] = bf16_to_f32(h);
    }
}
