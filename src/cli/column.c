#include "cli/column.h"

#include <string.h>

/* Unicode 15.1: East_Asian_Width W and F, and what joins the character before it, rounded to whole
 * blocks where what is between is not assigned. */
static const struct range {
    u32 first, last, width;
} RANGES[] = {
    {0x0300, 0x036f, 0},   {0x0483, 0x0489, 0},   {0x0591, 0x05bd, 0},   {0x064b, 0x065f, 0},
    {0x093c, 0x093c, 0},   {0x0941, 0x0948, 0},   {0x094d, 0x094d, 0},   {0x0e31, 0x0e31, 0},
    {0x0e34, 0x0e3a, 0},   {0x0e47, 0x0e4e, 0},   {0x1100, 0x115f, 2},   {0x1160, 0x11ff, 0},
    {0x1ab0, 0x1aff, 0},   {0x1dc0, 0x1dff, 0},   {0x200b, 0x200f, 0},   {0x202a, 0x202e, 0},
    {0x2060, 0x2064, 0},   {0x20d0, 0x20f0, 0},   {0x231a, 0x231b, 2},   {0x23e9, 0x23ec, 2},
    {0x26a1, 0x26a1, 2},   {0x2705, 0x2705, 2},   {0x2728, 0x2728, 2},   {0x2b50, 0x2b50, 2},
    {0x2e80, 0x303e, 2},   {0x3041, 0x3098, 2},   {0x3099, 0x309a, 0},   {0x309b, 0x33ff, 2},
    {0x3400, 0x4dbf, 2},   {0x4e00, 0xa4cf, 2},   {0xa960, 0xa97f, 2},   {0xac00, 0xd7a3, 2},
    {0xf900, 0xfaff, 2},   {0xfe00, 0xfe0f, 0},   {0xfe20, 0xfe2f, 0},   {0xfe30, 0xfe6f, 2},
    {0xfeff, 0xfeff, 0},   {0xff01, 0xff60, 2},   {0xffe0, 0xffe6, 2},   {0x17000, 0x18cff, 2},
    {0x1b000, 0x1b2ff, 2}, {0x1f300, 0x1f320, 2}, {0x1f32d, 0x1f335, 2}, {0x1f337, 0x1f37c, 2},
    {0x1f37e, 0x1f393, 2}, {0x1f3a0, 0x1f3ca, 2}, {0x1f3cf, 0x1f3d3, 2}, {0x1f3e0, 0x1f3f0, 2},
    {0x1f3f4, 0x1f3f4, 2}, {0x1f3f8, 0x1f3fa, 2}, {0x1f3fb, 0x1f3ff, 0}, {0x1f400, 0x1f43e, 2},
    {0x1f440, 0x1f440, 2}, {0x1f442, 0x1f4fc, 2}, {0x1f4ff, 0x1f53d, 2}, {0x1f54b, 0x1f54e, 2},
    {0x1f550, 0x1f567, 2}, {0x1f5a4, 0x1f5a4, 2}, {0x1f5fb, 0x1f64f, 2}, {0x1f680, 0x1f6c5, 2},
    {0x1f6cc, 0x1f6cc, 2}, {0x1f6d0, 0x1f6df, 2}, {0x1f6eb, 0x1f6ec, 2}, {0x1f6f4, 0x1f6fc, 2},
    {0x1f7e0, 0x1f7f0, 2}, {0x1f90c, 0x1f93a, 2}, {0x1f93c, 0x1f945, 2}, {0x1f947, 0x1f9ff, 2},
    {0x1fa70, 0x1faff, 2}, {0x20000, 0x3fffd, 2}, {0xe0100, 0xe01ef, 0},
};

static u32 width_of(u32 cp) {
    for (size_t i = 0; i < ARRAY_LEN(RANGES) && cp >= RANGES[i].first; i++)
        if (cp <= RANGES[i].last) return RANGES[i].width;
    return 1;
}

/* Columns of the character at s, and its bytes; what is no UTF-8 counts byte by byte. */
static u32 next(const char *s, int *bytes) {
    u32 cp;
    *bytes = utf8_decode(s, strlen(s), &cp);
    if (*bytes) return width_of(cp);
    *bytes = 1;
    return 1;
}

const char *column_text(const char *s, u32 width, u32 most, char buf[COLUMN_CAP]) {
    u32 columns = 0, k = 0;
    ASSERT(width < COLUMN_CAP);
    for (int n; *s; s += n) {
        u32 wide = next(s, &n);
        if (columns + wide > most || k + (u32)n + width >= COLUMN_CAP) break;
        memcpy(buf + k, s, (size_t)n);
        k += (u32)n;
        columns += wide;
    }
    for (; columns < width; columns++) buf[k++] = ' ';
    buf[k] = 0;
    return buf;
}
