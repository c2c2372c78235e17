/* Text formatting: "%05.1f" % x, "{:>8}".format(x), and the specs both share. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/template_builtin.h"

enum { WIDTH_MAX = 1 << 20, PREC_MAX = 350, NUM_TEXT = 800 };

struct spec {
    u32 fill, align; /* align 0: the type's own; '=' pads between sign and digits */
    char sign;       /* '-', '+' or ' ' */
    bool alt, zero;
    u32 group;       /* ',' or '_' between thousands, or 0 */
    i64 width, prec; /* prec -1: none */
    u32 type;        /* 0: none given */
};

static bool one_of(u32 c, const char *set) {
    return c && c < 0x80 && strchr(set, (int)c);
}

struct num_text {
    const char *prefix; /* "-", "+", " " or "" */
    char base[3];       /* "0x" */
    char digits[NUM_TEXT];
};

static void append(struct num_text *t, const char *tail) {
    size_t n = strlen(t->digits);
    snprintf(t->digits + n, NUM_TEXT - n, "%s", tail);
}

static void int_digits(i64 i, u32 type, bool alt, struct num_text *t) {
    u64 u = i < 0 ? 0 - (u64)i : (u64)i;
    u32 base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
    const char *set = type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
    char rev[65];
    int n = 0;
    do rev[n++] = set[u % base];
    while (u /= base);
    for (int k = 0; k < n; k++) t->digits[k] = rev[n - 1 - k];
    t->digits[n] = 0;
    if (alt && base != 10) snprintf(t->base, sizeof t->base, "0%c", (char)type);
}

/* format(x, '.3') without a type: like g, but never without a decimal point, and scientific one
 * digit earlier. */
static void general(double a, i64 prec, struct num_text *t) {
    prec = MAX((i64)1, prec);
    snprintf(t->digits, NUM_TEXT, "%.*e", (int)prec - 1, a);
    int exp = (int)strtol(strchr(t->digits, 'e') + 1, NULL, 10);
    if (exp >= -4 && exp < prec - 1) {
        snprintf(t->digits, NUM_TEXT, "%.*g", (int)prec, a);
        if (!strchr(t->digits, '.')) append(t, ".0");
        return;
    }
    char *e = strchr(t->digits, 'e'), *p = e; /* drop zeros behind the point */
    if (!memchr(t->digits, '.', (size_t)(e - t->digits))) return;
    while (p[-1] == '0') p--;
    if (p[-1] == '.') p--;
    memmove(p, e, strlen(e) + 1);
}

static void float_digits(double f, const struct spec *s, struct num_text *t) {
    char fmt[8] = {'%', s->alt ? '#' : '.', s->alt ? '.' : '*', s->alt ? '*' : 0};
    u32 type = s->type == 'n' ? 'g' : s->type == '%' ? 'f' : s->type;
    double a = fabs(f) * (s->type == '%' ? 100 : 1);
    bool upper = type == 'F' || type == 'E' || type == 'G';
    if (isnan(f)) {
        snprintf(t->digits, NUM_TEXT, upper ? "NAN" : "nan");
    } else if (isinf(f)) {
        snprintf(t->digits, NUM_TEXT, upper ? "INF" : "inf");
    } else if (type == 0 && s->prec < 0) {
        tmpl_float_text(a, t->digits);
    } else if (type == 0) {
        general(a, s->prec, t);
    } else {
        fmt[strlen(fmt)] = (char)type;
        snprintf(t->digits, NUM_TEXT, fmt, (int)(s->prec < 0 ? 6 : s->prec), a);
    }
    if (s->type == '%') append(t, "%");
}

static void set_sign(bool negative, char sign, struct num_text *t) {
    t->prefix = negative ? "-" : sign == '+' ? "+" : sign == ' ' ? " " : "";
}

/* Puts separators between the integer digits, after padding them with zeros to `width`. */
static void group_digits(struct num_text *t, u32 sep, i64 width, u32 type) {
    char out[NUM_TEXT];
    size_t whole =
        strspn(t->digits, type == 'x' || type == 'X' ? "0123456789abcdefABCDEF" : "0123456789");
    size_t every = type == 'x' || type == 'X' || type == 'o' || type == 'b' ? 4 : 3;
    size_t rest = strlen(t->digits) - whole, n = NUM_TEXT - 1, count = 0;
    i64 want = MIN(width - (i64)rest, (i64)NUM_TEXT / 2);
    memcpy(out + n - rest, t->digits + whole, rest);
    size_t end = n -= rest;
    while (whole > 0 || (i64)(end - n) < want) {
        if (count && count % every == 0) out[--n] = (char)sep;
        out[--n] = whole > 0 ? t->digits[--whole] : '0';
        count++;
        if (n < 4) break;
    }
    memmove(t->digits, out + n, NUM_TEXT - 1 - n);
    t->digits[NUM_TEXT - 1 - n] = 0;
}

static bool pad(struct trun *r, struct tbuf *b, const struct spec *s, u32 align, struct view sign,
                struct view text) {
    size_t have = tmpl_cp_count(sign) + tmpl_cp_count(text);
    size_t fill = (i64)have < s->width ? (size_t)s->width - have : 0;
    size_t left = align == '>' ? fill : align == '^' ? fill / 2 : 0;
    u32 c = s->fill ? s->fill : ' ';
    tmpl_put_fill(r, b, c, left);
    tmpl_put(r, b, sign);
    if (align == '=') tmpl_put_fill(r, b, c, fill);
    tmpl_put(r, b, text);
    if (align == '<' || align == '^') tmpl_put_fill(r, b, c, fill - left);
    return !r->failed;
}

static bool put_number(struct trun *r, struct tbuf *b, const struct spec *s, struct num_text *t) {
    char sign[8];
    u32 align = s->align ? s->align : '>';
    snprintf(sign, sizeof sign, "%s%s", t->prefix, t->base);
    if (s->group)
        group_digits(t, s->group, align == '=' && s->fill == '0' ? s->width - (i64)strlen(sign) : 0,
                     s->type);
    return pad(r, b, s, align, view_of(sign), view_of(t->digits));
}

static bool parse_number(struct view v, size_t *at, i64 *out) {
    size_t from = *at;
    i64 n = 0;
    while (*at < v.n && v.p[*at] >= '0' && v.p[*at] <= '9' && n < WIDTH_MAX * 10)
        n = n * 10 + (v.p[(*at)++] - '0');
    if (*at > from) *out = n;
    return *at > from;
}

static bool is_align(u32 c) {
    return c == '<' || c == '>' || c == '=' || c == '^';
}

static bool parse_spec(struct trun *r, struct view v, struct spec *s) {
    size_t at = 0, next = 0;
    *s = (struct spec){.sign = '-', .prec = -1};
    u32 first = v.n ? tmpl_cp_next(v, &next) : 0;
    if (next < v.n && is_align((u8)v.p[next])) {
        s->fill = first;
        s->align = (u8)v.p[next];
        at = next + 1;
    } else if (is_align(first)) {
        s->align = first;
        at = 1;
    }
    if (at < v.n && one_of((u8)v.p[at], "+- ")) s->sign = v.p[at++];
    if (at < v.n && v.p[at] == '#') s->alt = true, at++;
    if (at < v.n && v.p[at] == '0') {
        s->zero = true;
        at++;
        if (!s->fill) s->fill = '0';
        if (!s->align) s->align = '=';
    }
    parse_number(v, &at, &s->width);
    if (at < v.n && (v.p[at] == ',' || v.p[at] == '_')) s->group = (u8)v.p[at++];
    if (at < v.n && v.p[at] == '.') {
        at++;
        if (!parse_number(v, &at, &s->prec))
            return tmpl_fail(r, "Format specifier missing precision");
    }
    if (at < v.n) s->type = tmpl_cp_next(v, &at);
    if (at < v.n) return tmpl_fail(r, "Invalid format specifier");
    if (s->width > WIDTH_MAX || s->prec > WIDTH_MAX)
        return tmpl_fail_code(r, ERR_LIMIT, "format width or precision over %d", WIDTH_MAX);
    return true;
}

static bool format_str(struct trun *r, struct tbuf *b, struct spec *s, struct view text) {
    if (s->type != 0 && s->type != 's')
        return tmpl_fail(r, "Unknown format code '%c' for object of type 'str'", (char)s->type);
    if (s->sign != '-') return tmpl_fail(r, "Sign not allowed in string format specifier");
    if (s->align == '=' && !s->zero)
        return tmpl_fail(r, "'=' alignment not allowed in string format specifier");
    if (s->group) return tmpl_fail(r, "Cannot specify '%c' with 's'.", (char)s->group);
    if (s->prec >= 0) text.n = tmpl_cp_offset(text, 0, (size_t)s->prec);
    return pad(r, b, s, s->align && s->align != '=' ? s->align : '<', VIEW(""), text);
}

static bool format_int(struct trun *r, struct tbuf *b, struct spec *s, i64 i) {
    struct num_text t = {.prefix = ""};
    if (s->type == 'c') {
        char c[4];
        if (i < 0 || i > 0x10FFFF || (i >= 0xD800 && i < 0xE000))
            return tmpl_fail(r, "%%c arg not in range(0x110000)");
        return pad(r, b, s, s->align ? s->align : '<', VIEW(""),
                   (struct view){c, (size_t)utf8_encode((u32)i, c)});
    }
    if (s->prec >= 0) return tmpl_fail(r, "Precision not allowed in integer format specifier");
    int_digits(i, s->type, s->alt, &t);
    set_sign(i < 0, s->sign, &t);
    return put_number(r, b, s, &t);
}

/* format(v, spec) */
static bool format_value(struct trun *r, struct tbuf *b, struct tval v, struct view spec) {
    struct spec s;
    i64 i;
    double f;
    if (spec.n == 0) return tmpl_put_str(r, b, v);
    if (v.kind != T_STR && !tmpl_is_num(v, &f))
        return tmpl_fail(r, "unsupported format string passed to %s.__format__", tmpl_type_name(v));
    if (!parse_spec(r, spec, &s)) return false;
    if (v.kind == T_STR) return format_str(r, b, &s, v.s->v);
    if (tmpl_is_int(v, &i) && (s.type == 0 || one_of(s.type, "bcdoxXn")))
        return format_int(r, b, &s, i);
    if (s.type && !one_of(s.type, "eEfFgGn%"))
        return tmpl_fail(r, "Unknown format code '%c' for object of type '%s'",
                         s.type > 0x7F ? '?' : (char)s.type, tmpl_type_name(v));
    if (s.prec > PREC_MAX)
        return tmpl_fail_code(r, ERR_LIMIT, "a float precision over %d", PREC_MAX);
    struct num_text t = {.prefix = ""};
    if (!tmpl_is_num(v, &f)) return false;
    float_digits(f, &s, &t);
    set_sign(signbit(f), s.sign, &t);
    return put_number(r, b, &s, &t);
}

struct formatter {
    struct trun *r;
    struct tcall *c;
    bool markup;
    i64 auto_index; /* -1: fields are numbered by hand */
};

static bool format_text(struct formatter *f, struct tbuf *b, struct view text, int depth);

static bool first_value(struct formatter *f, struct view name, struct tval *out) {
    struct trun *r = f->r;
    size_t at = 0;
    i64 i = 0;
    bool number = parse_number(name, &at, &i) && at == name.n;
    if (name.n == 0 && f->auto_index >= 0) {
        i = f->auto_index++;
        number = true;
    } else if (name.n == 0 || (number && f->auto_index > 0)) {
        return tmpl_fail(r, "cannot switch between manual and automatic field numbering");
    } else if (number) {
        f->auto_index = -1;
    }
    if (number && i < (i64)f->c->n_pos) return *out = f->c->pos[i], true;
    if (number) return tmpl_fail(r, "Replacement index %lld out of range", (long long)i);
    struct tval *v = f->c->kw ? tmpl_dict_get(r, f->c->kw, tmpl_str(r, name), NULL) : NULL;
    if (!v) return tmpl_fail(r, "format() misses the argument '%.*s'", VIEW_FMT(name));
    return *out = *v, true;
}

/* name.attr[key]... */
static bool field_value(struct formatter *f, struct view field, struct tval *out) {
    struct trun *r = f->r;
    size_t at = 0, from;
    while (at < field.n && field.p[at] != '.' && field.p[at] != '[') at++;
    if (!first_value(f, (struct view){field.p, at}, out)) return false;
    while (at < field.n) {
        bool item = field.p[at] == '[', ok;
        struct tval key;
        i64 i;
        from = ++at;
        while (at < field.n &&
               (item ? field.p[at] != ']' : field.p[at] != '.' && field.p[at] != '['))
            at++;
        struct view name = {field.p + from, at - from};
        if (name.n == 0) return tmpl_fail(r, "Empty attribute in format string");
        if (item && at++ == field.n) return tmpl_fail(r, "Missing ']' in format string");
        size_t end = 0;
        key =
            item && parse_number(name, &end, &i) && end == name.n ? tmpl_int(i) : tmpl_str(r, name);
        ok = item ? tmpl_item(r, *out, key, out) : tmpl_attr(r, *out, key, out);
        if (!ok) return false;
        if (item && at < field.n && field.p[at] != '.' && field.p[at] != '[')
            return tmpl_fail(r, "Only '.' or '[' may follow ']' in format field specifier");
    }
    return true;
}

/* What stands between { and }: field, !conversion, :spec. */
static bool format_field(struct formatter *f, struct tbuf *b, struct view body, int depth) {
    struct trun *r = f->r;
    struct tbuf spec = {0}, text = {0};
    struct tval v;
    size_t at = 0;
    int brackets = 0;
    while (at < body.n && (brackets || (body.p[at] != '!' && body.p[at] != ':'))) {
        brackets += body.p[at] == '[' ? 1 : body.p[at] == ']' ? -1 : 0;
        at++;
    }
    if (!field_value(f, (struct view){body.p, at}, &v)) return false;
    if (at < body.n && body.p[at] == '!') {
        char conv = at + 1 < body.n ? body.p[at + 1] : 0;
        struct tbuf s = {0};
        if (conv != 's' && conv != 'r') return tmpl_fail(r, "Unknown conversion specifier");
        if (!(conv == 's' ? tmpl_put_str(r, &s, v) : tmpl_put_repr(r, &s, v))) return false;
        v = tmpl_buf_str(r, &s);
        at += 2;
        if (at < body.n && body.p[at] != ':')
            return tmpl_fail(r, "expected ':' after conversion specifier");
    }
    if (at < body.n &&
        !format_text(f, &spec, (struct view){body.p + at + 1, body.n - at - 1}, depth + 1))
        return false;
    if (!format_value(r, &text, v, (struct view){spec.p ? spec.p : "", spec.n})) return false;
    struct view done = {text.p ? text.p : "", text.n};
    if (f->markup && !(v.kind == T_STR && v.s->markup))
        tmpl_put_escaped(r, b, done);
    else
        tmpl_put(r, b, done);
    return true;
}

static bool format_text(struct formatter *f, struct tbuf *b, struct view text, int depth) {
    struct trun *r = f->r;
    if (depth > 2) return tmpl_fail(r, "Max string recursion exceeded");
    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];
        bool twice = i + 1 < text.n && text.p[i + 1] == c;
        if ((c == '{' || c == '}') && twice && depth == 1) {
            tmpl_put(r, b, (struct view){text.p + i++, 1});
        } else if (c == '}') {
            return tmpl_fail(r, "Single '}' encountered in format string");
        } else if (c == '{') {
            size_t from = ++i;
            int open = 1;
            for (; i < text.n; i++) {
                open += text.p[i] == '{' ? 1 : text.p[i] == '}' ? -1 : 0;
                if (open == 0) break;
            }
            if (open) return tmpl_fail(r, "expected '}' before end of string");
            if (!format_field(f, b, (struct view){text.p + from, i - from}, depth)) return false;
        } else {
            tmpl_put(r, b, (struct view){text.p + i, 1});
        }
        if (!tmpl_step(r, 1)) return false;
    }
    return true;
}

bool tmpl_format(struct trun *r, struct tval text, struct tcall *c) {
    struct formatter f = {.r = r, .c = c, .markup = text.s->markup};
    struct tbuf b = {0};
    if (!format_text(&f, &b, text.s->v, 1)) return false;
    c->out = tmpl_buf_str(r, &b);
    return true;
}

struct percent {
    struct trun *r;
    struct view s;
    size_t at;
    struct tval args;
    size_t used, n_args; /* of a tuple; a single value counts as one */
    bool markup;
};

static bool next_arg(struct percent *p, struct tval *out) {
    if (p->used == p->n_args) return tmpl_fail(p->r, "not enough arguments for format string");
    *out = p->args.kind == T_TUPLE ? p->args.list->v[p->used] : p->args;
    p->used++;
    return true;
}

static bool mapping_key(struct percent *p, struct tval *out) {
    size_t from = ++p->at;
    for (int open = 1; p->at < p->s.n; p->at++) {
        open += p->s.p[p->at] == '(' ? 1 : p->s.p[p->at] == ')' ? -1 : 0;
        if (open == 0) break;
    }
    if (p->at == p->s.n) return tmpl_fail(p->r, "incomplete format key");
    if (p->args.kind != T_DICT) return tmpl_fail(p->r, "format requires a mapping");
    struct tval key = tmpl_str(p->r, (struct view){p->s.p + from, p->at++ - from});
    struct tval *v = tmpl_dict_get(p->r, p->args.dict, key, NULL);
    if (!v) return tmpl_fail(p->r, "KeyError: '%.*s'", VIEW_FMT(key.s->v));
    return *out = *v, true;
}

/* A width or precision: digits or *. */
static bool percent_number(struct percent *p, i64 *out) {
    struct tval v;
    if (p->at < p->s.n && p->s.p[p->at] == '*') {
        p->at++;
        if (!next_arg(p, &v)) return false;
        if (!tmpl_is_int(v, out)) return tmpl_fail(p->r, "* wants int");
    } else {
        parse_number(p->s, &p->at, out);
    }
    if (*out > WIDTH_MAX || *out < -WIDTH_MAX)
        return tmpl_fail_code(p->r, ERR_LIMIT, "format width or precision over %d", WIDTH_MAX);
    return true;
}

static bool percent_spec(struct percent *p, struct spec *s) {
    for (; p->at < p->s.n; p->at++) {
        char c = p->s.p[p->at];
        if (c == '-')
            s->align = '<';
        else if (c == '+')
            s->sign = '+';
        else if (c == ' ')
            s->sign = s->sign == '+' ? '+' : ' ';
        else if (c == '#')
            s->alt = true;
        else if (c == '0')
            s->zero = true;
        else
            break;
    }
    if (!percent_number(p, &s->width)) return false;
    if (s->width < 0) s->align = '<', s->width = -s->width;
    if (p->at < p->s.n && p->s.p[p->at] == '.') {
        p->at++;
        s->prec = 0;
        if (!percent_number(p, &s->prec)) return false;
        s->prec = MAX((i64)0, s->prec);
    }
    while (p->at < p->s.n && one_of((u8)p->s.p[p->at], "hlL")) p->at++;
    if (p->at == p->s.n) return tmpl_fail(p->r, "incomplete format");
    s->type = (u8)p->s.p[p->at++];
    return true;
}

static bool percent_int(struct percent *p, struct tbuf *b, struct spec *s, struct tval v) {
    struct num_text t = {.prefix = ""};
    i64 i = 0;
    bool decimal = s->type == 'd' || s->type == 'i' || s->type == 'u';
    if (v.kind == T_UNDEF) return tmpl_fail_undef(p->r, v);
    bool whole = decimal && v.kind == T_FLOAT && isfinite(v.f);
    if (!whole && !tmpl_is_int(v, &i))
        return tmpl_fail(p->r, "%%%c format: %s is required, not %s", (char)s->type,
                         decimal ? "a real number" : "an integer", tmpl_type_name(v));
    if (whole)
        snprintf(t.digits, NUM_TEXT, "%.0f", trunc(fabs(v.f)));
    else
        int_digits(i, s->type, s->alt, &t);
    size_t have = strlen(t.digits), want = (size_t)MAX((i64)0, MIN(s->prec, (i64)PREC_MAX));
    if (have < want) { /* a precision pads with zeros */
        memmove(t.digits + want - have, t.digits, have + 1);
        memset(t.digits, '0', want - have);
    }
    set_sign(whole ? v.f <= -1 : i < 0, s->sign, &t);
    return put_number(p->r, b, s, &t);
}

static bool percent_text(struct percent *p, struct tbuf *b, struct spec *s, struct tval v) {
    struct tbuf text = {0};
    i64 i;
    if (s->type == 'c' && tmpl_is_int(v, &i)) return format_int(p->r, b, s, i);
    if (s->type == 'c' && (v.kind != T_STR || tmpl_str_len(v) != 1))
        return tmpl_fail(p->r, "%%c requires int or char");
    bool safe = v.kind == T_STR && v.s->markup;
    if (!(s->type == 'r' || s->type == 'a' ? tmpl_put_repr(p->r, &text, v)
                                           : tmpl_put_str(p->r, &text, v)))
        return false;
    struct view t = {text.p ? text.p : "", text.n};
    if (p->markup && !safe) {
        struct tbuf esc = {0};
        tmpl_put_escaped(p->r, &esc, t);
        t = (struct view){esc.p ? esc.p : "", esc.n};
    }
    if (s->prec >= 0) t.n = tmpl_cp_offset(t, 0, (size_t)s->prec);
    return pad(p->r, b, s, s->align ? s->align : '>', VIEW(""), t);
}

static bool percent_one(struct percent *p, struct tbuf *b) {
    struct spec s = {.sign = '-', .prec = -1};
    struct tval v = {0};
    double f;
    if (p->at < p->s.n && p->s.p[p->at] == '(' && !mapping_key(p, &v)) return false;
    if (!percent_spec(p, &s)) return false;
    if (s.type == '%') return tmpl_putc(p->r, b, '%'), true;
    if (v.kind == T_ABSENT && !next_arg(p, &v)) return false;
    if (one_of(s.type, "srca")) return percent_text(p, b, &s, v);
    if (s.zero && !s.align) s.fill = '0', s.align = '=';
    if (one_of(s.type, "diuxXo")) return percent_int(p, b, &s, v);
    if (!one_of(s.type, "eEfFgG"))
        return tmpl_fail(p->r, "unsupported format character 0x%x", s.type);
    if (v.kind == T_UNDEF) return tmpl_fail_undef(p->r, v);
    if (!tmpl_is_num(v, &f))
        return tmpl_fail(p->r, "must be real number, not %s", tmpl_type_name(v));
    if (s.prec > PREC_MAX)
        return tmpl_fail_code(p->r, ERR_LIMIT, "a float precision over %d", PREC_MAX);
    struct num_text t = {.prefix = ""};
    float_digits(f, &s, &t);
    set_sign(signbit(f), s.sign, &t);
    return put_number(p->r, b, &s, &t);
}

bool tmpl_percent(struct trun *r, struct tval text, struct tval args, struct tval *out) {
    struct percent p = {.r = r, .s = text.s->v, .args = args, .markup = text.s->markup};
    struct tbuf b = {0};
    p.n_args = args.kind == T_TUPLE ? args.list->n : 1;
    while (p.at < p.s.n) {
        const char *next = memchr(p.s.p + p.at, '%', p.s.n - p.at);
        size_t end = next ? (size_t)(next - p.s.p) : p.s.n;
        tmpl_put(r, &b, (struct view){p.s.p + p.at, end - p.at});
        p.at = end + 1;
        if (next && (!tmpl_step(r, 1) || !percent_one(&p, &b))) return false;
    }
    bool mapping =
        args.kind == T_DICT || args.kind == T_LIST || args.kind == T_RANGE || args.kind == T_UNDEF;
    if (p.used < p.n_args && !mapping)
        return tmpl_fail(r, "not all arguments converted during string formatting");
    *out = tmpl_buf_str(r, &b);
    out->s->markup = text.s->markup;
    return true;
}
