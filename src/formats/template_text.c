#include "formats/template_text.h"

#include <string.h>

u32 tmpl_cp_class(u32 cp) {
    size_t lo = 0, hi = tmpl_n_cp_runs;
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;
        if (tmpl_cp_runs[mid] >> 8 <= cp)
            lo = mid;
        else
            hi = mid;
    }
    return tmpl_cp_classes[tmpl_cp_runs[lo] & 0xFF];
}

static u32 map_simple(const struct tmpl_case_range *r, size_t n, u32 cp) {
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (r[mid].last < cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == n || cp < r[lo].first || (cp - r[lo].first) % r[lo].step) return cp;
    return (u32)((i32)cp + r[lo].delta);
}

int tmpl_case_map(u32 cp, enum tmpl_case c, u32 to[3]) {
    static const struct tmpl_case_range *const ranges[] = {tmpl_upper_ranges, tmpl_lower_ranges,
                                                           tmpl_title_ranges};
    static const struct tmpl_case_special *const specials[] = {
        tmpl_upper_specials, tmpl_lower_specials, tmpl_title_specials};
    const size_t n_ranges[] = {tmpl_n_upper_ranges, tmpl_n_lower_ranges, tmpl_n_title_ranges};
    const size_t n_specials[] = {tmpl_n_upper_specials, tmpl_n_lower_specials,
                                 tmpl_n_title_specials};
    if (cp < 0x80) {
        bool letter = c == CASE_LOWER ? cp >= 'A' && cp <= 'Z' : cp >= 'a' && cp <= 'z';
        to[0] = letter ? cp ^ 0x20 : cp;
        return 1;
    }
    for (size_t i = 0; i < n_specials[c]; i++) {
        if (specials[c][i].cp != cp) continue;
        int n = 0;
        while (n < 3 && specials[c][i].to[n]) {
            to[n] = specials[c][i].to[n];
            n++;
        }
        return n;
    }
    to[0] = map_simple(ranges[c], n_ranges[c], cp);
    return 1;
}

bool tmpl_sigma_is_final(struct view s, size_t at) {
    size_t i = at;
    u32 k = 0;
    while (i > 0 && (k = tmpl_cp_class(tmpl_cp_prev(s, &i))) & CP_IGNORABLE) k = 0;
    if (!(k & CP_CASED)) return false;
    i = at;
    tmpl_cp_next(s, &i);
    k = 0;
    while (i < s.n && (k = tmpl_cp_class(tmpl_cp_next(s, &i))) & CP_IGNORABLE) k = 0;
    return !(k & CP_CASED);
}

u32 tmpl_cp_next(struct view s, size_t *at) {
    u8 c = (u8)s.p[*at];
    if (c < 0x80) {
        ++*at;
        return c;
    }
    u32 cp = 0xFFFD;
    int n = utf8_decode(s.p + *at, s.n - *at, &cp);
    *at += n ? (size_t)n : 1;
    return cp;
}

u32 tmpl_cp_prev(struct view s, size_t *at) {
    size_t i = *at - 1;
    while (i > 0 && ((u8)s.p[i] & 0xC0) == 0x80) i--;
    *at = i;
    return tmpl_cp_next(s, &i);
}

size_t tmpl_cp_count(struct view s) {
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) n += ((u8)s.p[i] & 0xC0) != 0x80;
    return n;
}

size_t tmpl_cp_offset(struct view s, size_t from, size_t i) {
    size_t at = from;
    while (at < s.n && i > 0) {
        at++;
        while (at < s.n && ((u8)s.p[at] & 0xC0) == 0x80) at++;
        i--;
    }
    return at;
}

size_t tmpl_find(struct view s, struct view needle) {
    if (needle.n > s.n) return SIZE_MAX;
    if (needle.n == 0) return 0;
    const char *p = memmem(s.p, s.n, needle.p, needle.n);
    return p ? (size_t)(p - s.p) : SIZE_MAX;
}

size_t tmpl_rfind(struct view s, struct view needle) {
    if (needle.n > s.n) return SIZE_MAX;
    for (size_t i = s.n - needle.n + 1; i-- > 0;)
        if (memcmp(s.p + i, needle.p, needle.n) == 0) return i;
    return SIZE_MAX;
}

static bool strips(u32 cp, const struct view *chars) {
    if (!chars) return tmpl_cp_class(cp) & CP_SPACE;
    for (size_t i = 0; i < chars->n;)
        if (tmpl_cp_next(*chars, &i) == cp) return true;
    return false;
}

struct view tmpl_strip(struct view s, const struct view *chars, bool left, bool right) {
    while (left && s.n > 0) {
        size_t at = 0;
        if (!strips(tmpl_cp_next(s, &at), chars)) break;
        s.p += at;
        s.n -= at;
    }
    while (right && s.n > 0) {
        size_t at = s.n;
        if (!strips(tmpl_cp_prev(s, &at), chars)) break;
        s.n = at;
    }
    return s;
}

static bool ends_line(u32 cp) {
    return (cp >= 0x0A && cp <= 0x0D) || (cp >= 0x1C && cp <= 0x1E) || cp == 0x85 || cp == 0x2028 ||
           cp == 0x2029;
}

bool tmpl_next_line(struct view *s, bool keep_end, struct view *line) {
    if (s->n == 0) return false;
    size_t at = 0, end = s->n;
    while (at < s->n) {
        size_t before = at;
        u32 cp = tmpl_cp_next(*s, &at);
        if (!ends_line(cp)) continue;
        end = before;
        if (cp == '\r' && at < s->n && s->p[at] == '\n') at++;
        break;
    }
    *line = (struct view){s->p, keep_end ? at : end};
    s->p += at;
    s->n -= at;
    return true;
}
