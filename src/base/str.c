#include "base/str.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

struct view view_of(const char *s) {
    return (struct view){s ? s : "", s ? strlen(s) : 0};
}
bool view_eq(struct view a, struct view b) {
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}
bool view_is(struct view a, const char *s) {
    return view_eq(a, view_of(s));
}
bool view_starts(struct view a, const char *prefix) {
    size_t n = strlen(prefix);
    return a.n >= n && memcmp(a.p, prefix, n) == 0;
}

void str_deinit(struct str *s) {
    free(s->p);
    *s = (struct str){0};
}

void str_clear(struct str *s) {
    s->n = 0;
    if (s->p) s->p[0] = 0;
}

void str_reserve(struct str *s, size_t more) {
    ASSERT(more < SIZE_MAX / 4 && s->n < SIZE_MAX / 4);
    size_t need = s->n + more + 1;
    if (need <= s->cap) return;
    size_t cap = MAX(need, s->cap * 2);
    cap = MAX(cap, (size_t)64);
    s->p = xrealloc(s->p, cap);
    s->cap = cap;
}

void str_add(struct str *s, const void *p, size_t n) {
    str_reserve(s, n);
    if (n) memcpy(s->p + s->n, p, n);
    s->n += n;
    s->p[s->n] = 0;
}

void str_addz(struct str *s, const char *z) {
    str_add(s, z, strlen(z));
}
void str_addv(struct str *s, struct view v) {
    str_add(s, v.p, v.n);
}
void str_addc(struct str *s, char c) {
    str_add(s, &c, 1);
}

void str_addf(struct str *s, const char *fmt, ...) {
    va_list ap, ap2;
    va_start(ap, fmt);
    va_copy(ap2, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    ASSERT(n >= 0);
    str_reserve(s, (size_t)n);
    vsnprintf(s->p + s->n, (size_t)n + 1, fmt, ap2);
    va_end(ap2);
    s->n += (size_t)n;
}

const char *str_z(const struct str *s) {
    return s->p ? s->p : "";
}
struct view str_view(const struct str *s) {
    return (struct view){str_z(s), s->n};
}

char *str_take(struct str *s) {
    str_reserve(s, 0);
    s->p[s->n] = 0;
    char *p = s->p;
    *s = (struct str){0};
    return p;
}

bool str_copy(char *dst, size_t cap, const char *src) {
    ASSERT(cap > 0);
    size_t n = strlen(src), k = MIN(n, cap - 1);
    memcpy(dst, src, k);
    dst[k] = 0;
    return n < cap;
}

int utf8_decode(const char *s, size_t n, u32 *cp) {
    const u8 *p = (const u8 *)s;
    ASSERT(n > 0);
    if (p[0] < 0x80) {
        *cp = p[0];
        return 1;
    }
    int len = p[0] >= 0xC2 && p[0] <= 0xDF ? 2 : (p[0] & 0xF0) == 0xE0 ? 3 : 0;
    if (p[0] >= 0xF0 && p[0] <= 0xF4) len = 4;
    if (len == 0 || n < (size_t)len) return 0;
    u32 c = p[0] & (0xFF >> (len + 1));
    for (int i = 1; i < len; i++) {
        if ((p[i] & 0xC0) != 0x80) return 0;
        c = c << 6 | (p[i] & 0x3F);
    }
    static const u32 LEAST[5] = {0, 0, 0x80, 0x800, 0x10000};
    if (c < LEAST[len] || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) return 0;
    *cp = c;
    return len;
}

int utf8_encode(u32 cp, char out[4]) {
    ASSERT(cp <= 0x10FFFF && !(cp >= 0xD800 && cp <= 0xDFFF));
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    int len = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    static const u8 LEAD[5] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (int i = len - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (cp & 0x3F));
        cp >>= 6;
    }
    out[0] = (char)(LEAD[len] | cp);
    return len;
}

bool utf8_valid(const char *p, size_t n) {
    for (size_t i = 0; i < n;) {
        u32 cp;
        int k = utf8_decode(p + i, n - i, &cp);
        if (k == 0) return false;
        i += (size_t)k;
    }
    return true;
}

size_t utf8_incomplete_tail(const char *p, size_t n) {
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        u8 c = (u8)p[n - back];
        if ((c & 0xC0) == 0x80) continue;
        size_t want = c >= 0xF0 && c <= 0xF4  ? 4
                      : c >= 0xE0 && c < 0xF0 ? 3
                      : c >= 0xC2 && c < 0xE0 ? 2
                                              : 1;
        return want > back ? back : 0;
    }
    return 0;
}

void utf8_add_lossy(struct str *out, const char *p, size_t n) {
    for (size_t i = 0; i < n;) {
        u32 cp;
        int k = utf8_decode(p + i, n - i, &cp);
        if (k == 0) {
            str_add(out, "\xEF\xBF\xBD", 3);
            i++;
        } else {
            str_add(out, p + i, (size_t)k);
            i += (size_t)k;
        }
    }
}

const char *size_text(u64 bytes, char buf[32]) {
    static const char *const UNIT[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double x = (double)bytes;
    size_t u = 0;
    while (x >= 1024 && u + 1 < ARRAY_LEN(UNIT)) {
        x /= 1024;
        u++;
    }
    snprintf(buf, 32, u == 0 || x >= 100 ? "%.0f %s" : "%.1f %s", x, UNIT[u]);
    return buf;
}
