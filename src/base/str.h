/* str.h - a growing byte string, string views, and the few UTF-8 functions everybody needs.
 *
 * struct str owns its bytes; zeroed is valid and empty; `p` is NUL-terminated whenever it is not
 * NULL (bytes may hold NULs before that). struct view borrows. No thread owns these but the one
 * that holds them. */
#pragma once

#include "base/base.h"

struct view {
    const char *p;
    size_t n;
};
#define VIEW(lit)   ((struct view){"" lit "", sizeof(lit) - 1})
#define VIEW_FMT(v) (int)(v).n, (v).p /* for "%.*s" */

struct view view_of(const char *s); /* NULL gives an empty view */
bool view_eq(struct view a, struct view b);
bool view_is(struct view a, const char *s);
bool view_starts(struct view a, const char *prefix);

struct str {
    char *p;
    size_t n, cap;
};

void str_deinit(struct str *s);
void str_clear(struct str *s); /* length 0, memory kept */
void str_reserve(struct str *s, size_t more);
void str_add(struct str *s, const void *p, size_t n);
void str_addz(struct str *s, const char *z);
void str_addv(struct str *s, struct view v);
void str_addc(struct str *s, char c);
void str_addf(struct str *s, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* "" when empty: never NULL. */
const char *str_z(const struct str *s);
struct view str_view(const struct str *s);
/* Gives the bytes to the caller (free() them) and empties s. */
char *str_take(struct str *s);

/* Copies with truncation into dst[cap], always NUL-terminated; returns false when it was cut. */
bool str_copy(char *dst, size_t cap, const char *src);

/* Decodes one code point at p[0..n). Returns its length 1..4, or 0 when the bytes there are not
 * well-formed UTF-8 (RFC 3629: no surrogates, no overlong forms). n must be at least 1. */
int utf8_decode(const char *p, size_t n, u32 *cp);
/* Writes 1..4 bytes; cp must be a valid scalar value. */
int utf8_encode(u32 cp, char out[4]);
bool utf8_valid(const char *p, size_t n);
/* Number of trailing bytes (0..3) that begin a code point but don't finish it. */
size_t utf8_incomplete_tail(const char *p, size_t n);
/* Appends p[0..n) with every ill-formed byte sequence replaced by U+FFFD. */
void utf8_add_lossy(struct str *out, const char *p, size_t n);

/* "1.4 GiB", "312 KiB", "17 B". */
const char *size_text(u64 bytes, char buf[32]);
