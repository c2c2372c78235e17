#include "kernels/pack16.h"

#include <math.h>
#include <string.h>

bool pack16_packed_bytes(const struct matmul_kernel *k, u64 rows, u64 cols, u64 *bytes) {
    u64 row, unpacked, groups = rows / PACK_ROWS + (rows % PACK_ROWS != 0);
    /* A group is at most four times its rows in the file (MXFP4's smallest padding included), so
     * that bounding this product first keeps the size of a group from wrapping. */
    if (!dtype_row_bytes(k->type, cols, &row) || !size_mul(row, 4 * PACK_ROWS, &unpacked) ||
        !size_add(unpacked, 64, &unpacked))
        return false;
    return size_mul(groups, pack16_group_bytes(k->type, cols), bytes);
}

/* Puts 32 codes of row r into the planes: what pack16.h says, read from the right. */
static void put_codes(u8 *p, const struct code_format *f, const u8 c[32], u32 r) {
    u8 lo[16];
    if (f->bits == 8) {
        for (u32 j = 0; j < 8; j++) memcpy(p + 64 * j + 4 * r, c + 4 * j, 4);
        return;
    }
    if (f->bits < 4) {
        for (u32 h = 0; h < 2; h++)
            for (u32 i = 0; i < 4; i++) {
                const u8 *q = c + 16 * h + i;
                p[64 * h + 4 * r + i] =
                    (u8)((q[0] & 3) | (q[4] & 3) << 2 | (q[8] & 3) << 4 | (q[12] & 3) << 6);
            }
        p += 128;
    } else {
        for (u32 i = 0; i < 16; i++) lo[i] = (u8)((c[i] & 15) | c[16 + i] << 4);
        for (u32 j = 0; j < 4; j++) memcpy(p + 64 * j + 4 * r, lo + 4 * j, 4);
        p += 256;
    }
    if (f->bits == 3 || f->bits == 5) {
        int top = f->bits - 1;
        for (u32 i = 0; i < 4; i++) {
            u32 b = 0;
            for (u32 j = 0; j < 8; j++) b |= (u32)(c[4 * j + i] >> top & 1) << j;
            p[4 * r + i] = (u8)b;
        }
    } else if (f->bits == 6) {
        for (u32 h = 0; h < 2; h++)
            for (u32 i = 0; i < 4; i++) {
                u32 b = 0;
                for (u32 j = 0; j < 4; j++) b |= (u32)(c[16 * h + 4 * j + i] >> 4) << 2 * j;
                p[64 * h + 4 * r + i] = (u8)b;
            }
    }
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

static struct head head_of(u8 *head, const struct code_format *f, u32 r) {
    u32 n_sc = f->n_sub * 32u / f->sub;
    struct head h = {.d = head + (f->e8 ? r : 2 * r)};
    head += f->e8 ? PACK_ROWS : 2 * PACK_ROWS;
    h.m = head + 2 * r;
    if (f->has_min) head += 2 * PACK_ROWS;
    h.sc = head + r;
    h.mc = head + n_sc * PACK_ROWS + r;
    return h;
}

static void put_head(u8 *head, const struct code_format *f, const struct codes *c, u32 r, u32 s) {
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

static void pack_group(enum dtype type, u8 *dst, const u8 *src, u64 row_bytes, u64 cols, u32 n) {
    const struct code_format f = codes_format(type);
    u8 *heads = dst + pack16_heads_at(&f, cols);
    u64 plane = pack16_plane_bytes(&f), head = pack16_head_bytes(&f);
    if (n < PACK_ROWS) memset(dst, 0, pack16_group_bytes(type, cols));
    for (u64 i = 0; i < cols / 32; i++)
        for (u32 r = 0; r < n; r++) {
            struct codes c;
            codes_read(type, src + r * row_bytes, i, &c);
            put_codes(dst + i * plane, &f, c.c, r);
            put_head(heads + i / f.n_sub * head, &f, &c, r, (u32)(i % f.n_sub));
        }
}

static void pack_group_floats(u8 *dst, const u8 *src, u64 row_bytes, u64 cols, u32 n, u32 size) {
    if (n < PACK_ROWS) memset(dst, 0, align_up(cols * PACK_ROWS * size, 64));
    for (u64 c = 0; c < cols; c++)
        for (u32 r = 0; r < n; r++)
            memcpy(dst + (c * PACK_ROWS + r) * size, src + r * row_bytes + c * size, size);
}

void pack16_pack(const struct matmul_kernel *k, void *dst, const void *src, u64 rows, u64 cols,
                 u64 row0, u64 row1) {
    u64 row_bytes, group = pack16_group_bytes(k->type, cols);
    ASSERT(dtype_row_bytes(k->type, cols, &row_bytes));
    ASSERT(row0 % PACK_ROWS == 0 && row1 <= rows);
    for (u64 r = row0; r < row1; r += PACK_ROWS) {
        u8 *g = (u8 *)dst + r / PACK_ROWS * group;
        const u8 *s = (const u8 *)src + r * row_bytes;
        u32 n = (u32)MIN(rows - r, (u64)PACK_ROWS);
        if (codes_format(k->type).bits)
            pack_group(k->type, g, s, row_bytes, cols, n);
        else
            pack_group_floats(g, s, row_bytes, cols, n, k->type == DTYPE_F32 ? 4 : 2);
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
    u8 *g = (u8 *)(uintptr_t)packed + row / PACK_ROWS * pack16_group_bytes(k->type, cols);
    if (!f.bits) {
        get_row_floats(k->type, dst, g, cols, r);
        return;
    }
    u8 *heads = g + pack16_heads_at(&f, cols);
    for (u64 i = 0; i < cols / 32; i++) {
        struct codes c;
        get_head(heads + i / f.n_sub * pack16_head_bytes(&f), &f, &c, r, (u32)(i % f.n_sub));
        for (u32 j = 0; j < 32; j++) {
            int v = codes_value(&f, get_code(g + i * pack16_plane_bytes(&f), &f, r, j));
            int h = (int)j / 16;
            dst[i * 32 + j] = fmaf(codes_scale(&f, &c, h), (float)v, codes_min(&f, &c, h));
        }
    }
}
