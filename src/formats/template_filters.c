/* Filters on text and numbers. Those on sequences are in template_seq.c. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/template_builtin.h"

/* The text of what a filter works on: str(self), and whether it is Markup. */
static bool self_text(struct trun *r, const struct tcall *c, struct view *s, bool *markup) {
    struct tval v;
    if (!tmpl_to_str(r, c->self, &v)) return false;
    *s = v.s->v;
    *markup = v.s->markup;
    return true;
}

static bool give(struct trun *r, struct tcall *c, struct tbuf *b, bool markup) {
    c->out = tmpl_buf_str(r, b);
    c->out.s->markup = markup;
    return !r->failed;
}

void tmpl_put_case(struct trun *r, struct tbuf *b, struct view s, size_t from, size_t to,
                   enum tmpl_case how) {
    for (size_t i = from; i < to && !r->failed;) {
        size_t at = i;
        u32 map[3], cp = tmpl_cp_next(s, &i);
        int n = tmpl_case_map(cp, how, map);
        if (cp == 0x3A3 && how == CASE_LOWER && tmpl_sigma_is_final(s, at)) map[0] = 0x3C2;
        for (int k = 0; k < n; k++) tmpl_putc(r, b, map[k]);
    }
}

static bool change_case(struct trun *r, struct tcall *c, enum tmpl_case how) {
    struct view s;
    struct tbuf b = {0};
    bool markup;
    if (!self_text(r, c, &s, &markup)) return false;
    tmpl_put_case(r, &b, s, 0, s.n, how);
    return give(r, c, &b, markup);
}

static bool f_upper(struct trun *r, struct tcall *c) {
    return change_case(r, c, CASE_UPPER);
}
static bool f_lower(struct trun *r, struct tcall *c) {
    return change_case(r, c, CASE_LOWER);
}

static bool f_capitalize(struct trun *r, struct tcall *c) {
    struct view s;
    struct tbuf b = {0};
    bool markup;
    if (!self_text(r, c, &s, &markup)) return false;
    size_t second = tmpl_cp_offset(s, 0, 1);
    tmpl_put_case(r, &b, s, 0, second, CASE_TITLE);
    tmpl_put_case(r, &b, s, second, s.n, CASE_LOWER);
    return give(r, c, &b, markup);
}

static bool f_title(struct trun *r, struct tcall *c) { /* words begin behind -, space and ({[< */
    struct view s;
    struct tbuf b = {0};
    bool markup;
    if (!self_text(r, c, &s, &markup)) return false;
    for (size_t i = 0, from = 0; from < s.n; from = i) {
        bool separator = false;
        while (i < s.n) {
            size_t at = i;
            u32 cp = tmpl_cp_next(s, &at);
            bool is_sep =
                tmpl_cp_class(cp) & CP_SPACE || (cp && cp < 0x80 && strchr("-({[<", (int)cp));
            if (i == from) separator = is_sep;
            if (is_sep != separator) break;
            i = at;
        }
        size_t second = tmpl_cp_offset(s, from, 1);
        struct view rest = {s.p + second, i - second};
        tmpl_put_case(r, &b, s, from, second, CASE_UPPER);
        tmpl_put_case(r, &b, rest, 0, rest.n, CASE_LOWER);
    }
    c->out = tmpl_buf_str(r, &b);
    return true;
}

static bool f_trim(struct trun *r, struct tcall *c) {
    struct view s, chars;
    bool markup, given = c->arg[0].kind != T_ABSENT && c->arg[0].kind != T_NONE;
    if (!self_text(r, c, &s, &markup)) return false;
    if (given && !tmpl_arg_str(r, c, 0, &chars)) return false;
    c->out = tmpl_str(r, tmpl_strip(s, given ? &chars : NULL, true, true));
    c->out.s->markup = markup;
    return true;
}

bool tmpl_replace(struct trun *r, struct tbuf *b, struct view s, struct view from, struct view to,
                  i64 count) {
    while (count != 0) {
        size_t at = tmpl_find(s, from);
        if (!tmpl_step(r, 1)) return false;
        if (at == SIZE_MAX) break;
        if (from.n == 0) { /* before every code point and at the end */
            tmpl_put(r, b, to);
            if (s.n == 0) return !r->failed;
            at = tmpl_cp_offset(s, 0, 1);
            tmpl_put(r, b, (struct view){s.p, at});
        } else {
            tmpl_put(r, b, (struct view){s.p, at});
            tmpl_put(r, b, to);
        }
        s.p += at + from.n;
        s.n -= at + from.n;
        count--;
    }
    tmpl_put(r, b, s);
    return !r->failed;
}

static bool f_replace(struct trun *r, struct tcall *c) {
    struct view s;
    struct tval from, to;
    struct tbuf b = {0};
    bool markup;
    i64 count;
    if (!self_text(r, c, &s, &markup)) return false;
    if (!tmpl_to_str(r, c->arg[0], &from) || !tmpl_to_str(r, c->arg[1], &to)) return false;
    if (!tmpl_arg_int(r, c, 2, -1, &count)) return false;
    if (!tmpl_replace(r, &b, s, from.s->v, to.s->v, count)) return false;
    return give(r, c, &b, false);
}

static bool f_center(struct trun *r, struct tcall *c) {
    struct view s;
    struct tbuf b = {0};
    bool markup;
    i64 width;
    if (!self_text(r, c, &s, &markup) || !tmpl_arg_int(r, c, 0, 80, &width)) return false;
    i64 pad = width - (i64)tmpl_cp_count(s), left = pad / 2 + (pad & width & 1);
    tmpl_put_fill(r, &b, ' ', pad > 0 ? (size_t)left : 0);
    tmpl_put(r, &b, s);
    tmpl_put_fill(r, &b, ' ', pad > 0 ? (size_t)(pad - left) : 0);
    return give(r, c, &b, markup);
}

/* indent(width=4, first=False, blank=False): width may be the text itself. */
static bool f_indent(struct trun *r, struct tcall *c) {
    struct view s, line, by;
    struct tbuf b = {0}, spaces = {0};
    bool first = tmpl_arg_truth(r, c, 1, false), blank = tmpl_arg_truth(r, c, 2, false);
    i64 width;
    if (c->self.kind == T_UNDEF) return tmpl_fail_undef(r, c->self);
    if (c->self.kind != T_STR)
        return tmpl_fail(r, "indent: str expected, not %s", tmpl_type_name(c->self));
    if (c->arg[0].kind == T_STR) {
        by = c->arg[0].s->v;
    } else {
        if (!tmpl_arg_int(r, c, 0, 4, &width)) return false;
        tmpl_put_fill(r, &spaces, ' ', width > 0 ? (size_t)width : 0);
        by = (struct view){spaces.p ? spaces.p : "", spaces.n};
    }
    tmpl_put(r, &b, c->self.s->v); /* the filter adds a newline before it splits */
    tmpl_putc(r, &b, '\n');
    s = (struct view){b.p ? b.p : "", b.n};
    b = (struct tbuf){0};
    for (size_t i = 0; tmpl_next_line(&s, false, &line); i++) {
        if (!tmpl_step(r, 1)) return false;
        if (i) tmpl_putc(r, &b, '\n');
        if (i ? blank || line.n : first) tmpl_put(r, &b, by);
        tmpl_put(r, &b, line);
    }
    return give(r, c, &b, c->self.s->markup);
}

static bool f_truncate(struct trun *r, struct tcall *c) {
    struct view s, end = VIEW("...");
    struct tbuf b = {0};
    i64 length, leeway;
    size_t n;
    if (!tmpl_arg_int(r, c, 0, 255, &length) || !tmpl_arg_int(r, c, 3, 5, &leeway)) return false;
    if (c->arg[2].kind != T_ABSENT && !tmpl_arg_str(r, c, 2, &end)) return false;
    i64 n_end = (i64)tmpl_cp_count(end);
    if (length < n_end)
        return tmpl_fail(r, "expected length >= %lld, got %lld", (long long)n_end,
                         (long long)length);
    if (leeway < 0) return tmpl_fail(r, "expected leeway >= 0, got %lld", (long long)leeway);
    c->out = c->self;
    if (!tmpl_len(r, c->self, &n)) return false;
    if ((i64)n - leeway <= length) return true;
    if (c->self.kind != T_STR)
        return tmpl_fail(r, "truncate: str expected, not %s", tmpl_type_name(c->self));
    s = c->self.s->v;
    s.n = tmpl_cp_offset(s, 0, (size_t)(length - n_end));
    size_t space = tmpl_arg_truth(r, c, 1, false) ? SIZE_MAX : tmpl_rfind(s, VIEW(" "));
    if (space != SIZE_MAX) s.n = space;
    tmpl_put(r, &b, s);
    tmpl_put(r, &b, end);
    return give(r, c, &b, c->self.s->markup);
}

static bool f_wordcount(struct trun *r, struct tcall *c) {
    struct view s;
    bool markup, inside = false;
    i64 n = 0;
    if (!self_text(r, c, &s, &markup)) return false;
    for (size_t i = 0; i < s.n;) {
        bool word = tmpl_cp_class(tmpl_cp_next(s, &i)) & CP_WORD;
        n += word && !inside;
        inside = word;
    }
    c->out = tmpl_int(n);
    return true;
}

static bool escape(struct trun *r, struct tcall *c, bool again) {
    struct view s;
    struct tbuf b = {0};
    bool markup;
    if (!self_text(r, c, &s, &markup)) return false;
    if (markup && !again) return c->out = c->self, true;
    tmpl_put_escaped(r, &b, s);
    return give(r, c, &b, true);
}

static bool f_escape(struct trun *r, struct tcall *c) {
    return escape(r, c, false);
}
static bool f_forceescape(struct trun *r, struct tcall *c) {
    return escape(r, c, true);
}

static bool f_safe(struct trun *r, struct tcall *c) {
    struct view s;
    bool markup;
    if (!self_text(r, c, &s, &markup)) return false;
    c->out = tmpl_str(r, s);
    c->out.s->markup = true;
    return true;
}

static bool f_string(struct trun *r, struct tcall *c) {
    return tmpl_to_str(r, c->self, &c->out);
}

static bool f_xmlattr(struct trun *r, struct tcall *c) {
    struct tbuf b = {0};
    if (c->self.kind == T_UNDEF) return tmpl_fail_undef(r, c->self);
    if (c->self.kind != T_DICT) return tmpl_fail(r, "xmlattr: a mapping is expected");
    bool space = tmpl_arg_truth(r, c, 0, true);
    for (size_t i = 0; i < c->self.dict->n; i++) {
        struct tval key = c->self.dict->v[i].key, val = c->self.dict->v[i].val;
        if (val.kind == T_NONE || val.kind == T_UNDEF) continue;
        if (key.kind != T_STR) return tmpl_fail(r, "xmlattr: keys must be strings");
        for (size_t k = 0; k < key.s->v.n; k++)
            if (memchr(" \t\n\r\f\v/>=", key.s->v.p[k], 9))
                return tmpl_fail(r, "Invalid character in attribute name");
        if (b.n || space) tmpl_putc(r, &b, ' ');
        tmpl_put_escaped(r, &b, key.s->v);
        tmpl_putz(r, &b, "=\"");
        struct tval text;
        if (!tmpl_to_str(r, val, &text)) return false;
        if (text.s->markup)
            tmpl_put(r, &b, text.s->v);
        else
            tmpl_put_escaped(r, &b, text.s->v);
        tmpl_putc(r, &b, '"');
    }
    return give(r, c, &b, false);
}

static void put_quoted_url(struct trun *r, struct tbuf *b, struct view s, bool query) {
    char esc[4];
    for (size_t i = 0; i < s.n && !r->failed; i++) {
        u8 ch = (u8)s.p[i];
        bool plain = (ch >= '0' && ch <= '9') || ((ch | 0x20) >= 'a' && (ch | 0x20) <= 'z') ||
                     (ch && strchr("_.-~", ch)) || (ch == '/' && !query);
        snprintf(esc, sizeof esc, plain ? "%c" : query && ch == ' ' ? "+" : "%%%02X", ch);
        tmpl_putz(r, b, esc);
    }
}

static bool put_url_pair(struct trun *r, struct tbuf *b, struct tval pair) {
    struct tval l, text;
    if (!tmpl_to_list(r, pair, &l)) return false;
    if (l.list->n != 2) return tmpl_fail(r, "urlencode: pairs are expected");
    if (b->n) tmpl_putc(r, b, '&');
    for (size_t i = 0; i < 2; i++) {
        if (!tmpl_to_str(r, l.list->v[i], &text)) return false;
        put_quoted_url(r, b, text.s->v, true);
        if (i == 0) tmpl_putc(r, b, '=');
    }
    return true;
}

static bool f_urlencode(struct trun *r, struct tcall *c) {
    struct tbuf b = {0};
    struct tval v = c->self, text, item;
    struct tcursor cur;
    if (v.kind == T_DICT) v = (struct tval){.kind = T_VIEW, .sub = VIEW_ITEMS, .dict = v.dict};
    if (v.kind == T_STR || v.kind == T_NONE || v.kind == T_BOOL || v.kind == T_INT ||
        v.kind == T_FLOAT) {
        if (!tmpl_to_str(r, v, &text)) return false;
        put_quoted_url(r, &b, text.s->v, false);
        return give(r, c, &b, false);
    }
    if (!tmpl_cursor(r, v, &cur)) return false;
    for (;;) {
        if (!tmpl_next(r, &cur, &item)) return false;
        if (item.kind == T_ABSENT) return give(r, c, &b, false);
        if (!put_url_pair(r, &b, item)) return false;
    }
}

static bool f_abs(struct trun *r, struct tcall *c) {
    i64 i;
    if (c->self.kind == T_FLOAT) return c->out = tmpl_float(fabs(c->self.f)), true;
    if (!tmpl_is_int(c->self, &i))
        return tmpl_fail(r, "bad operand type for abs(): '%s'", tmpl_type_name(c->self));
    return tmpl_negate(r, i < 0, c->self, &c->out);
}

/* Text of a number without the underscores and white space that Python takes; false: too long. */
static bool clean_number(struct view s, char *out, size_t cap) {
    size_t n = 0;
    s = tmpl_strip(s, NULL, true, true);
    for (size_t i = 0; i < s.n; i++) {
        bool between = i > 0 && i + 1 < s.n && s.p[i - 1] != '_' && s.p[i + 1] != '_';
        if (s.p[i] == '_' && between) continue;
        if (n + 1 == cap || s.p[i] == '_' || s.p[i] == 0) return false;
        out[n++] = s.p[i];
    }
    out[n] = 0;
    return n > 0;
}

static bool parse_float(struct view s, double *out) {
    char text[512], *end;
    if (!clean_number(s, text, sizeof text)) return false;
    size_t sign = strspn(text, "+-");
    if (sign > 1 || strpbrk(text, "xXpP(")) return false; /* strtod knows more than Python */
    *out = strtod(text, &end);
    return *end == 0;
}

static bool parse_int(struct view s, i64 base, i64 *out, bool *overflow) {
    char text[512], *p = text;
    *overflow = false;
    if (!clean_number(s, text, sizeof text)) return false;
    bool minus = *p == '-';
    if (*p == '+' || *p == '-') p++;
    char mark = p[0] == '0' ? p[1] | 0x20 : 0;
    i64 marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (marked && (base == 0 || base == marked))
        p += 2, base = marked;
    else if (base == 0 && *p == '0' && strspn(p, "0") != strlen(p))
        return false;
    if (base == 0) base = 10;
    if (!*p) return false;
    for (*out = 0; *p; p++) {
        int d = *p >= '0' && *p <= '9' ? *p - '0'
                : (*p | 0x20) >= 'a'   ? (*p | 0x20) - 'a' + 10
                                       : 99;
        if (d >= base) return false;
        if (__builtin_mul_overflow(*out, base, out) ||
            (minus ? __builtin_sub_overflow(*out, d, out) : __builtin_add_overflow(*out, d, out)))
            *overflow = true;
    }
    return true;
}

static bool int_of_float(struct trun *r, double f, struct tcall *c, struct tval missing) {
    if (isnan(f) || isinf(f)) return c->out = missing, true;
    if (fabs(f) >= 0x1p63) return tmpl_fail_code(r, ERR_LIMIT, "int: does not fit into 64 bits");
    return c->out = tmpl_int((i64)f), true;
}

static bool f_int(struct trun *r, struct tcall *c) {
    struct tval missing = c->arg[0].kind == T_ABSENT ? tmpl_int(0) : c->arg[0];
    i64 i, base;
    double f;
    bool overflow;
    if (!tmpl_arg_int(r, c, 1, 10, &base)) return false;
    if (c->self.kind == T_UNDEF) return tmpl_fail_undef(r, c->self);
    if (tmpl_is_int(c->self, &i)) return c->out = tmpl_int(i), true;
    if (c->self.kind == T_FLOAT) {
        if (isinf(c->self.f)) return tmpl_fail(r, "cannot convert float infinity to integer");
        return int_of_float(r, c->self.f, c, missing);
    }
    c->out = missing;
    if (c->self.kind != T_STR) return true;
    bool known_base = base == 0 || (base >= 2 && base <= 36);
    if (known_base && parse_int(c->self.s->v, base, &i, &overflow)) {
        c->out = tmpl_int(i);
        return !overflow || tmpl_fail_code(r, ERR_LIMIT, "int: does not fit into 64 bits");
    }
    return !parse_float(c->self.s->v, &f) || int_of_float(r, f, c, missing);
}

static bool f_float(struct trun *r, struct tcall *c) {
    double f = 0;
    if (c->self.kind == T_UNDEF) return tmpl_fail_undef(r, c->self);
    bool ok = tmpl_is_num(c->self, &f) || (c->self.kind == T_STR && parse_float(c->self.s->v, &f));
    c->out = ok ? tmpl_float(f) : c->arg[0].kind == T_ABSENT ? tmpl_float(0) : c->arg[0];
    return true;
}

/* Python's round: correct in decimal, ties to even on the exact binary value, as printf does. */
static double round_decimal(double f, i64 prec) {
    char text[700];
    if (prec > 300 || !isfinite(f)) return f;
    if (prec >= 0) {
        snprintf(text, sizeof text, "%.*f", (int)prec, f);
        return strtod(text, NULL);
    }
    snprintf(text, sizeof text, "%.0f", fabs(f));
    i64 keep = (i64)strlen(text) + prec; /* digits that stay */
    if (keep < 0) return copysign(0, f);
    double unit = pow(10, (double)-prec);
    if (keep == 0) return copysign(fabs(f) > unit / 2 ? unit : 0, f);
    snprintf(text, sizeof text, "%.*e", (int)keep - 1, f);
    return strtod(text, NULL);
}

static bool round_int(struct trun *r, i64 i, i64 prec, struct tval *out) {
    i64 unit = 1;
    for (i64 k = prec; k < 0; k++)
        if (__builtin_mul_overflow(unit, 10, &unit)) return *out = tmpl_int(0), true;
    i64 rest = i % unit, down = i - rest;
    if (rest < 0) rest += unit, down -= unit; /* may not overflow: down >= i - unit */
    bool up = rest > unit / 2 || (unit > 1 && rest == unit / 2 && (down / unit) % 2 != 0);
    if (up && __builtin_add_overflow(down, unit, &down))
        return tmpl_fail_code(r, ERR_LIMIT, "round: does not fit into 64 bits");
    return *out = tmpl_int(down), true;
}

static bool f_round(struct trun *r, struct tcall *c) {
    struct view method = VIEW("common");
    i64 prec, i;
    double f;
    if (c->self.kind == T_UNDEF) return tmpl_fail_undef(r, c->self);
    if (!tmpl_arg_int(r, c, 0, 0, &prec)) return false;
    if (c->arg[1].kind != T_ABSENT && !tmpl_arg_str(r, c, 1, &method)) return false;
    bool ceils = view_is(method, "ceil");
    if (!ceils && !view_is(method, "floor") && !view_is(method, "common"))
        return tmpl_fail(r, "method must be common, ceil or floor");
    if (!tmpl_is_num(c->self, &f))
        return tmpl_fail(r, "type %s doesn't define __round__ method", tmpl_type_name(c->self));
    if (view_is(method, "common")) {
        if (tmpl_is_int(c->self, &i)) return round_int(r, i, prec, &c->out);
        return c->out = tmpl_float(round_decimal(f, prec)), true;
    }
    double unit = pow(10, (double)prec), scaled = f * unit;
    c->out = tmpl_float((ceils ? ceil(scaled) : floor(scaled)) / unit);
    return true;
}

static bool f_filesizeformat(struct trun *r, struct tcall *c) {
    static const char prefixes[] = "kMGTPEZY";
    double bytes = 0, unit;
    char text[64];
    bool binary = tmpl_arg_truth(r, c, 0, false);
    double base = binary ? 1024 : 1000;
    if (c->self.kind == T_UNDEF) return tmpl_fail_undef(r, c->self);
    if (!tmpl_is_num(c->self, &bytes) &&
        (c->self.kind != T_STR || !parse_float(c->self.s->v, &bytes)))
        return tmpl_fail(r, "filesizeformat: a number is expected");
    size_t i = 0;
    for (unit = base * base; i < 7 && bytes >= unit; i++) unit *= base;
    if (bytes == 1)
        snprintf(text, sizeof text, "1 Byte");
    else if (bytes < base)
        snprintf(text, sizeof text, "%.0f Bytes", trunc(bytes) + 0.0);
    else
        snprintf(text, sizeof text, "%.1f %c%sB", base * bytes / unit,
                 binary && i == 0 ? 'K' : prefixes[i], binary ? "i" : "");
    c->out = tmpl_str_copy(r, view_of(text));
    return true;
}

static bool f_format(struct trun *r, struct tcall *c) {
    struct tval text, args = {.kind = T_DICT};
    if (c->n_pos && c->kw && c->kw->n)
        return tmpl_fail(r, "can't handle positional and keyword arguments at the same time");
    if (!tmpl_to_str(r, c->self, &text)) return false;
    if (c->kw && c->kw->n) {
        args = tmpl_dict(r);
        *args.dict = *c->kw;
    } else {
        args = tmpl_tuple(r, c->pos, c->n_pos);
    }
    return tmpl_percent(r, text, args, &c->out);
}

static bool f_default(struct trun *r, struct tcall *c) {
    bool falsy = tmpl_arg_truth(r, c, 1, false) && !tmpl_truth(r, c->self);
    c->out = c->self;
    if (c->self.kind != T_UNDEF && !falsy) return true;
    c->out = c->arg[0].kind == T_ABSENT ? tmpl_strz(r, "") : c->arg[0];
    return true;
}

static bool f_striptags(struct trun *r, struct tcall *c) {
    struct view s;
    struct tbuf plain = {0}, b = {0};
    bool markup, space = false;
    if (!self_text(r, c, &s, &markup)) return false;
    for (size_t i = 0; i < s.n;) { /* comments, then tags */
        struct view rest = {s.p + i, s.n - i};
        bool comment = rest.n >= 4 && memcmp(rest.p, "<!--", 4) == 0;
        size_t end =
            rest.p[0] != '<' ? SIZE_MAX : tmpl_find(rest, comment ? VIEW("-->") : VIEW(">"));
        if (!tmpl_step(r, 1)) return false;
        if (end == SIZE_MAX)
            tmpl_put(r, &plain, (struct view){s.p + i++, 1});
        else
            i += end + (comment ? 3 : 1);
    }
    s = tmpl_strip((struct view){plain.p ? plain.p : "", plain.n}, NULL, true, true);
    for (size_t i = 0; i < s.n;) {
        u32 cp = tmpl_cp_next(s, &i);
        bool is_space = tmpl_cp_class(cp) & CP_SPACE;
        if (is_space && !space) tmpl_putc(r, &b, ' ');
        if (!is_space) tmpl_putc(r, &b, cp);
        space = is_space;
    }
    if (b.n && memchr(b.p, '&', b.n))
        return tmpl_fail_code(r, ERR_UNSUPPORTED, "striptags: entities are not supported");
    return give(r, c, &b, false);
}

static const struct tfunc filters[] = {
    {"abs", "", f_abs, 0},
    {"capitalize", "", f_capitalize, 0},
    {"center", "width?", f_center, 0},
    {"d", "default_value? boolean?", f_default, 0},
    {"default", "default_value? boolean?", f_default, 0},
    {"e", "", f_escape, 0},
    {"escape", "", f_escape, 0},
    {"filesizeformat", "binary?", f_filesizeformat, 0},
    {"float", "default?", f_float, 0},
    {"forceescape", "", f_forceescape, 0},
    {"format", "*", f_format, 0},
    {"indent", "width? first? blank?", f_indent, 0},
    {"int", "default? base?", f_int, 0},
    {"lower", "", f_lower, 0},
    {"pprint", "", NULL, 0},
    {"random", "", NULL, 0},
    {"replace", "old new count?", f_replace, 0},
    {"round", "precision? method?", f_round, 0},
    {"safe", "", f_safe, 0},
    {"string", "", f_string, 0},
    {"striptags", "", f_striptags, 0},
    {"title", "", f_title, 0},
    {"tojson", "ensure_ascii? indent? separators? sort_keys?", tmpl_f_tojson, 0},
    {"trim", "chars?", f_trim, 0},
    {"truncate", "length? killwords? end? leeway?", f_truncate, 0},
    {"upper", "", f_upper, 0},
    {"urlencode", "", f_urlencode, 0},
    {"urlize", "", NULL, 0},
    {"wordcount", "", f_wordcount, 0},
    {"wordwrap", "", NULL, 0},
    {"xmlattr", "autospace?", f_xmlattr, 0},
};

const struct tfunc *tmpl_find_func(const struct tfunc *table, size_t n, struct view name) {
    for (size_t i = 0; i < n; i++)
        if (view_is(name, table[i].name)) return &table[i];
    return NULL;
}

const struct tfunc *tmpl_filter(struct view name) {
    const struct tfunc *f = tmpl_find_func(filters, ARRAY_LEN(filters), name);
    return f ? f : tmpl_seq_filter(name);
}
