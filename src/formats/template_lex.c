/* From source text to tokens: jinja2's lexer with trim_blocks and lstrip_blocks on. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/template_ast.h"

enum { BRACKETS_MAX = 256 };

struct lexer {
    struct arena *a;
    struct err *e;
    struct view s; /* newlines made \n, the last one dropped */
    size_t pos;
    size_t mark; /* line and col are those of this byte */
    u32 line, col;
    bool line_starting; /* the last tag took its newline with it */
    char brackets[BRACKETS_MAX];
    u32 n_brackets;
    struct ttok *tok;
    size_t n, cap;
};

/* Moves the line and column count to byte `to`, which never lies before the last one asked for. */
static void count_to(struct lexer *l, size_t to) {
    for (; l->mark < to; l->mark++) {
        if (l->s.p[l->mark] == '\n')
            l->line++, l->col = 1;
        else if (((u8)l->s.p[l->mark] & 0xC0) != 0x80)
            l->col++;
    }
}

static bool lex_fail(struct lexer *l, size_t at, const char *fmt, ...) PRINTF_LIKE(3, 4);
static bool lex_fail(struct lexer *l, size_t at, const char *fmt, ...) {
    char msg[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    count_to(l, at);
    return err_set(l->e, ERR_FORMAT, "line %u, column %u: %s", l->line, l->col, msg);
}

static struct ttok *emit(struct lexer *l, enum ttok_kind kind, size_t from, size_t to) {
    if (l->n == l->cap) {
        l->cap = MAX((size_t)64, l->cap * 2);
        struct ttok *p = arena_array(l->a, l->cap, sizeof *p);
        if (l->n) memcpy(p, l->tok, l->n * sizeof *p);
        l->tok = p;
    }
    count_to(l, from);
    struct ttok *t = &l->tok[l->n++];
    *t = (struct ttok){.kind = kind, .line = l->line, .col = l->col};
    t->text = (struct view){l->s.p + from, to - from};
    return t;
}

static bool at_text(const struct lexer *l, size_t at, const char *z) {
    size_t n = strlen(z);
    return at <= l->s.n && l->s.n - at >= n && memcmp(l->s.p + at, z, n) == 0;
}

static size_t skip_space(const struct lexer *l, size_t at) {
    while (at < l->s.n) {
        size_t next = at;
        if (!(tmpl_cp_class(tmpl_cp_next(l->s, &next)) & CP_SPACE)) break;
        at = next;
    }
    return at;
}

/* The end of a tag at byte `at`: `%}` with its signs. 0 when it is not there, else the byte behind
 * it. A minus takes the white space that follows, otherwise `trim` takes one newline. */
static size_t tag_end(const struct lexer *l, size_t at, const char *end, bool plus, bool trim) {
    if (at_text(l, at, end)) {
        at += 2;
        return trim && at_text(l, at, "\n") ? at + 1 : at;
    }
    if (at >= l->s.n || !at_text(l, at + 1, end)) return 0;
    if (l->s.p[at] == '-') return skip_space(l, at + 3);
    return plus && l->s.p[at] == '+' ? at + 3 : 0;
}

static void tag_done(struct lexer *l, size_t end) {
    l->pos = end;
    l->line_starting = l->s.p[end - 1] == '\n';
}

/* Emits the text before a tag, stripped as its opening sign says. */
static void emit_text(struct lexer *l, size_t from, size_t to, char sign, bool is_var) {
    struct view text = {l->s.p + from, to - from};
    if (sign == '-') {
        text = tmpl_strip(text, NULL, false, true);
    } else if (sign != '+' && !is_var) {
        size_t line = tmpl_rfind(text, VIEW("\n"));
        line = line == SIZE_MAX ? 0 : line + 1;
        struct view rest = {text.p + line, text.n - line};
        if ((line > 0 || l->line_starting) && tmpl_strip(rest, NULL, true, false).n == 0)
            text.n = line;
    }
    if (text.n) emit(l, TOK_DATA, from, from + text.n);
}

/* `at` stands behind {% and its sign: the byte behind `%}` of a raw tag, or 0. */
static size_t raw_begin(const struct lexer *l, size_t at) {
    at = skip_space(l, at);
    if (!at_text(l, at, "raw")) return 0;
    return tag_end(l, skip_space(l, at + 3), "%}", false, false);
}

static bool lex_raw(struct lexer *l, size_t begin) {
    for (size_t at = l->pos; at < l->s.n; at++) {
        if (!at_text(l, at, "{%")) continue;
        size_t tag = at + 2;
        char sign = tag < l->s.n && (l->s.p[tag] == '-' || l->s.p[tag] == '+') ? l->s.p[tag] : 0;
        tag = skip_space(l, tag + (sign != 0));
        if (!at_text(l, tag, "endraw")) continue;
        size_t end = tag_end(l, skip_space(l, tag + 6), "%}", true, true);
        if (!end) continue;
        emit_text(l, l->pos, at, sign, false);
        return tag_done(l, end), true;
    }
    return lex_fail(l, begin, "Missing end of raw directive");
}

static bool lex_comment(struct lexer *l, size_t begin) {
    for (size_t at = l->pos; at < l->s.n; at++) {
        size_t end = tag_end(l, at, "#}", true, true);
        if (end) return tag_done(l, end), true;
    }
    return lex_fail(l, begin, "Missing end of comment tag");
}

static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* n digits of base 8 or 16 at *p, as many as are there. Returns how many. */
static int escape_digits(const char **p, const char *end, int n, int base, u32 *cp) {
    int k = 0;
    for (*cp = 0; k < n && *p < end; k++, ++*p) {
        int d = hex_value(**p);
        if (d < 0 || d >= base) break;
        *cp = *cp * (u32)base + (u32)d;
    }
    return k;
}

static void put_cp(char **out, u32 cp) {
    *out += utf8_encode(cp, *out);
}

/* What follows a backslash. Python decodes the literal with its unicode-escape codec, after
 * non-ASCII characters have become escapes themselves; hence the odd case of \ before one. */
static const char *escape(const char *p, const char *end, char **out) {
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    const char *known = strchr(from, *p);
    u32 cp;
    if (*p == '\n') return p + 1;
    if (known && *p) {
        *(*out)++ = to[known - from];
        return p + 1;
    }
    if (*p >= '0' && *p <= '7') {
        escape_digits(&p, end, 3, 8, &cp);
        put_cp(out, cp);
        return p;
    }
    if (*p == 'x' || *p == 'u' || *p == 'U') {
        int n = *p == 'x' ? 2 : *p == 'u' ? 4 : 8;
        p++;
        if (escape_digits(&p, end, n, 16, &cp) < n) return NULL;
        if (cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000)) return NULL;
        put_cp(out, cp);
        return p;
    }
    if (*p == 'N') return NULL;
    *(*out)++ = '\\';
    if ((u8)*p < 0x80) return *(*out)++ = *p, p + 1;
    int n = utf8_decode(p, (size_t)(end - p), &cp);
    *out += snprintf(*out, 12, cp < 0x100 ? "x%02x" : cp < 0x10000 ? "u%04x" : "U%08x", cp);
    return p + n;
}

static bool lex_string(struct lexer *l) {
    size_t from = l->pos, at = from + 1;
    char quote = l->s.p[from];
    bool escaped = false;
    for (; at < l->s.n && l->s.p[at] != quote; at++)
        if (l->s.p[at] == '\\') escaped = true, at++;
    if (at >= l->s.n)
        return lex_fail(l, from, "unexpected char '%c': the string has no end", quote);
    struct ttok *t = emit(l, TOK_STRING, from + 1, at);
    l->pos = at + 1;
    if (!escaped) return true;
    const char *p = t->text.p, *end = p + t->text.n;
    char *buf = arena_alloc(l->a, t->text.n * 4 + 16), *out = buf;
    while (p < end) {
        if (*p != '\\') {
            *out++ = *p++;
            continue;
        }
        const char *next = escape(p + 1, end, &out);
        if (!next) return lex_fail(l, (size_t)(p - l->s.p), "bad or unsupported \\%c escape", p[1]);
        p = next;
    }
    t->text = (struct view){buf, (size_t)(out - buf)};
    return true;
}

static bool is_digit(const struct lexer *l, size_t at, int base) {
    int d = at < l->s.n ? hex_value(l->s.p[at]) : -1;
    return d >= 0 && d < base;
}

/* Digits with single underscores between them; returns the byte behind, or `at` for none. */
static size_t digits(const struct lexer *l, size_t at, int base) {
    if (!is_digit(l, at, base)) return at;
    while (is_digit(l, at, base) || (at_text(l, at, "_") && is_digit(l, at + 1, base))) at++;
    return at;
}

/* The byte behind a float at l->pos, or 0: digits with a fraction, an exponent or both. */
static size_t float_end(const struct lexer *l) {
    if (l->pos > 0 && l->s.p[l->pos - 1] == '.') return 0; /* a.0.1 */
    size_t at = digits(l, l->pos, 10), whole = at;
    if (at_text(l, at, ".") && is_digit(l, at + 1, 10)) at = digits(l, at + 1, 10);
    if (at_text(l, at, "e") || at_text(l, at, "E")) {
        size_t exp = at + 1;
        if (at_text(l, exp, "+") || at_text(l, exp, "-")) exp++;
        if (is_digit(l, exp, 10)) return digits(l, exp, 10);
    }
    return at > whole ? at : 0;
}

static size_t int_end(const struct lexer *l, int *base) {
    size_t at = l->pos;
    *base = 10;
    if (l->s.p[at] == '0' && at + 1 < l->s.n) {
        char c = l->s.p[at + 1] | 0x20;
        *base = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 10;
        if (*base != 10) {
            size_t from = at + 2 + at_text(l, at + 2, "_"), end = digits(l, from, *base);
            if (end > from) return end;
            *base = 10;
        }
    }
    if (l->s.p[at] != '0') return digits(l, at, 10);
    while (at_text(l, at, "0") || at_text(l, at, "_0")) at++; /* 0 and 00, but no 07 */
    return at;
}

static bool lex_number(struct lexer *l) {
    size_t from = l->pos, end = float_end(l);
    int base = 10;
    bool is_float = end != 0;
    if (!is_float) end = int_end(l, &base);
    char text[320];
    size_t n = 0;
    for (size_t i = from + (base != 10 ? 2 : 0); i < end; i++) {
        if (l->s.p[i] == '_') continue;
        if (n + 1 == sizeof text) return lex_fail(l, from, "the number is too long");
        text[n++] = l->s.p[i];
    }
    text[n] = 0;
    struct ttok *t = emit(l, is_float ? TOK_FLOAT : TOK_INT, from, end);
    l->pos = end;
    if (is_float) t->f = strtod(text, NULL);
    for (size_t i = 0; !is_float && i < n; i++)
        if (__builtin_mul_overflow(t->i, base, &t->i) ||
            __builtin_add_overflow(t->i, hex_value(text[i]), &t->i))
            return lex_fail(l, from, "the integer does not fit into 64 bits");
    return true;
}

static bool lex_name(struct lexer *l) {
    size_t from = l->pos, at = from;
    bool valid = true;
    while (at < l->s.n) {
        size_t next = at;
        u32 k = tmpl_cp_class(tmpl_cp_next(l->s, &next));
        if (!(k & CP_WORD)) break;
        valid = valid && k & (at == from ? CP_ID_START : CP_ID_CONTINUE);
        at = next;
    }
    if (!valid) return lex_fail(l, from, "Invalid character in identifier");
    emit(l, TOK_NAME, from, at);
    l->pos = at;
    return true;
}

static bool lex_operator(struct lexer *l) {
    static const struct {
        char text[3];
        u8 kind;
    } ops[] = {
        {"//", TOK_FLOORDIV}, {"**", TOK_POW},      {"==", TOK_EQ},    {"!=", TOK_NE},
        {">=", TOK_GE},       {"<=", TOK_LE},       {"+", TOK_ADD},    {"-", TOK_SUB},
        {"/", TOK_DIV},       {"*", TOK_MUL},       {"%", TOK_MOD},    {"~", TOK_TILDE},
        {"[", TOK_LBRACKET},  {"]", TOK_RBRACKET},  {"(", TOK_LPAREN}, {")", TOK_RPAREN},
        {"{", TOK_LBRACE},    {"}", TOK_RBRACE},    {">", TOK_GT},     {"<", TOK_LT},
        {"=", TOK_ASSIGN},    {".", TOK_DOT},       {":", TOK_COLON},  {"|", TOK_PIPE},
        {",", TOK_COMMA},     {";", TOK_SEMICOLON},
    };
    size_t k = 0, at = l->pos;
    while (k < ARRAY_LEN(ops) && !at_text(l, at, ops[k].text)) k++;
    if (k == ARRAY_LEN(ops)) {
        size_t next = at;
        tmpl_cp_next(l->s, &next);
        return lex_fail(l, at, "unexpected char '%.*s'", (int)(next - at), l->s.p + at);
    }
    char c = ops[k].text[0];
    if (c == '[' || c == '(' || c == '{') {
        if (l->n_brackets == BRACKETS_MAX)
            return lex_fail(l, at, "more than %d brackets are open", BRACKETS_MAX);
        l->brackets[l->n_brackets++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ']' || c == ')' || c == '}') {
        if (l->n_brackets == 0) return lex_fail(l, at, "unexpected '%c'", c);
        char want = l->brackets[--l->n_brackets];
        if (c != want) return lex_fail(l, at, "unexpected '%c', expected '%c'", c, want);
    }
    l->pos += strlen(ops[k].text);
    emit(l, ops[k].kind, at, l->pos);
    return true;
}

/* Everything up to the end of the tag, or to the end of the source (the parser complains). */
static bool lex_tag(struct lexer *l, bool is_var) {
    while (l->pos < l->s.n) {
        size_t end = l->n_brackets ? 0
                     : is_var      ? tag_end(l, l->pos, "}}", false, false)
                                   : tag_end(l, l->pos, "%}", true, true);
        if (end) {
            emit(l, is_var ? TOK_VAR_END : TOK_BLOCK_END, l->pos, end);
            return tag_done(l, end), true;
        }
        size_t next = skip_space(l, l->pos);
        if (next > l->pos) {
            l->pos = next;
            continue;
        }
        char c = l->s.p[l->pos];
        bool word = tmpl_cp_class(tmpl_cp_next(l->s, &next)) & CP_WORD;
        bool ok = c >= '0' && c <= '9'    ? lex_number(l)
                  : word                  ? lex_name(l)
                  : c == '"' || c == '\'' ? lex_string(l)
                                          : lex_operator(l);
        if (!ok) return false;
    }
    return true;
}

static bool lex_root(struct lexer *l) {
    size_t tag = l->pos;
    while (tag < l->s.n && !at_text(l, tag, "{%") && !at_text(l, tag, "{{") &&
           !at_text(l, tag, "{#"))
        tag++;
    if (tag >= l->s.n) {
        if (l->pos < l->s.n) emit(l, TOK_DATA, l->pos, l->s.n);
        l->pos = l->s.n;
        return true;
    }
    char kind = l->s.p[tag + 1];
    char sign = tag + 2 < l->s.n ? l->s.p[tag + 2] : 0;
    if (sign != '-' && sign != '+') sign = 0;
    size_t inside = tag + 2 + (sign != 0), raw = kind == '%' ? raw_begin(l, inside) : 0;
    emit_text(l, l->pos, tag, sign, kind == '{');
    l->pos = raw ? raw : inside;
    if (raw) {
        l->line_starting = l->s.p[raw - 1] == '\n';
        return lex_raw(l, tag);
    }
    if (kind == '#') return lex_comment(l, tag);
    emit(l, kind == '{' ? TOK_VAR_BEGIN : TOK_BLOCK_BEGIN, tag, inside);
    return lex_tag(l, kind == '{');
}

struct ttok *tmpl_lex(struct arena *a, struct view source, struct err *e) {
    struct lexer l = {.a = a, .e = e, .line = 1, .col = 1, .line_starting = true};
    char *p = arena_alloc(a, source.n + 1);
    size_t n = 0;
    for (size_t i = 0; i < source.n; i++) {
        bool crlf = source.p[i] == '\r' && i + 1 < source.n && source.p[i + 1] == '\n';
        if (!crlf) p[n++] = source.p[i] == '\r' ? '\n' : source.p[i];
    }
    if (n && p[n - 1] == '\n') n--;
    l.s = (struct view){p, n};
    while (l.pos < l.s.n)
        if (!lex_root(&l)) return NULL;
    emit(&l, TOK_EOF, l.s.n, l.s.n);
    return l.tok;
}
