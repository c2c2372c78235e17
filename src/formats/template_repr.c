/* str() and repr() of values, byte for byte as Python writes them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/template_builtin.h"

/* The fewest digits that read back as f; exponents from 1e16 and below 1e-4, as repr does. */
void tmpl_float_text(double f, char out[32]) {
    char digits[32];
    if (isnan(f) || isinf(f)) {
        snprintf(out, 32, "%s", isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    int prec = 1;
    for (; prec < 17; prec++) {
        snprintf(digits, sizeof digits, "%.*e", prec - 1, f);
        if (strtod(digits, NULL) == f) break;
    }
    snprintf(digits, sizeof digits, "%.*e", prec - 1, f);
    int exp = (int)strtol(strchr(digits, 'e') + 1, NULL, 10);
    if (exp < -4 || exp >= 16) {
        snprintf(out, 32, "%s", digits);
        return;
    }
    int decimals = prec - 1 - exp;
    snprintf(out, 32, "%.*f", decimals > 1 ? decimals : 1, f);
}

static void put_quoted(struct trun *r, struct tbuf *b, struct view s) {
    bool single = memchr(s.p, '\'', s.n) != NULL, dbl = memchr(s.p, '"', s.n) != NULL;
    u32 quote = single && !dbl ? '"' : '\'';
    char esc[16];
    tmpl_putc(r, b, quote);
    for (size_t i = 0; i < s.n && !r->failed;) {
        size_t from = i;
        u32 cp = tmpl_cp_next(s, &i);
        if (cp == quote || cp == '\\')
            snprintf(esc, sizeof esc, "\\%c", (int)cp);
        else if (cp == '\n')
            snprintf(esc, sizeof esc, "\\n");
        else if (cp == '\r')
            snprintf(esc, sizeof esc, "\\r");
        else if (cp == '\t')
            snprintf(esc, sizeof esc, "\\t");
        else if (cp == ' ' || tmpl_cp_class(cp) & CP_PRINTABLE) {
            tmpl_put(r, b, (struct view){s.p + from, i - from});
            continue;
        } else if (cp < 0x100)
            snprintf(esc, sizeof esc, "\\x%02x", cp);
        else if (cp < 0x10000)
            snprintf(esc, sizeof esc, "\\u%04x", cp);
        else
            snprintf(esc, sizeof esc, "\\U%08x", cp);
        tmpl_putz(r, b, esc);
    }
    tmpl_putc(r, b, quote);
}

static bool put_items(struct trun *r, struct tbuf *b, const struct tlist *l) {
    for (size_t i = 0; i < l->n; i++) {
        if (i) tmpl_putz(r, b, ", ");
        if (!tmpl_put_repr(r, b, l->v[i])) return false;
    }
    return true;
}

static bool put_dict(struct trun *r, struct tbuf *b, const struct tdict *d) {
    for (size_t i = 0; i < d->n; i++) {
        if (i) tmpl_putz(r, b, ", ");
        if (!tmpl_put_repr(r, b, d->v[i].key)) return false;
        tmpl_putz(r, b, ": ");
        if (!tmpl_put_repr(r, b, d->v[i].val)) return false;
    }
    return true;
}

static bool put_view(struct trun *r, struct tbuf *b, struct tval v) {
    struct tval items;
    if (!tmpl_to_list(r, v, &items)) return false;
    tmpl_putz(r, b, tmpl_type_name(v));
    tmpl_putz(r, b, "([");
    if (!put_items(r, b, items.list)) return false;
    tmpl_putz(r, b, "])");
    return true;
}

static bool put_container(struct trun *r, struct tbuf *b, struct tval v) {
    bool ok;
    switch (v.kind) {
    case T_LIST:
    case T_TUPLE:
        tmpl_putc(r, b, v.kind == T_LIST ? '[' : '(');
        ok = put_items(r, b, v.list);
        if (v.kind == T_TUPLE && v.list->n == 1) tmpl_putc(r, b, ',');
        tmpl_putc(r, b, v.kind == T_LIST ? ']' : ')');
        return ok;
    case T_VIEW: return put_view(r, b, v);
    default: /* T_DICT, T_NAMESPACE */
        tmpl_putz(r, b, v.kind == T_DICT ? "{" : "<Namespace {");
        ok = put_dict(r, b, v.dict);
        tmpl_putz(r, b, v.kind == T_DICT ? "}" : "}>");
        return ok;
    }
}

/* Things that Python writes with an address, which nobody can depend on, and loops and ranges. */
static bool put_object(struct trun *r, struct tbuf *b, struct tval v) {
    char text[96];
    size_t n = 0;
    switch (v.kind) {
    case T_RANGE:
        snprintf(text, sizeof text,
                 v.range->step == 1 ? "range(%lld, %lld)" : "range(%lld, %lld, %lld)",
                 (long long)v.range->start, (long long)v.range->stop, (long long)v.range->step);
        break;
    case T_LOOP:
        if (!tmpl_loop_length(r, v.loop, &n)) return false;
        snprintf(text, sizeof text, "<LoopContext %lld/%zu>", (long long)v.loop->index0 + 1, n);
        break;
    case T_MACRO:
        tmpl_putz(r, b, "<Macro ");
        put_quoted(r, b, v.macro->def->name);
        snprintf(text, sizeof text, ">");
        break;
    case T_ITER: snprintf(text, sizeof text, "<generator object %s>", v.iter->name); break;
    case T_METHOD:
        snprintf(text, sizeof text, "<built-in method %s of %s object>", v.method->func->name,
                 tmpl_type_name(v.method->self));
        break;
    case T_FUNC: snprintf(text, sizeof text, "<function %s>", v.func->name); break;
    default: snprintf(text, sizeof text, "<%s object>", tmpl_type_name(v)); break;
    }
    tmpl_putz(r, b, text);
    return true;
}

bool tmpl_put_repr(struct trun *r, struct tbuf *b, struct tval v) {
    char text[32];
    if (!tmpl_step(r, 1)) return false;
    switch (v.kind) {
    case T_UNDEF: return tmpl_putz(r, b, "Undefined"), true;
    case T_NONE: return tmpl_putz(r, b, "None"), true;
    case T_BOOL: return tmpl_putz(r, b, v.b ? "True" : "False"), true;
    case T_INT:
        snprintf(text, sizeof text, "%lld", (long long)v.i);
        return tmpl_putz(r, b, text), true;
    case T_FLOAT: tmpl_float_text(v.f, text); return tmpl_putz(r, b, text), true;
    case T_STR:
        if (v.s->markup) tmpl_putz(r, b, "Markup(");
        put_quoted(r, b, v.s->v);
        if (v.s->markup) tmpl_putz(r, b, ")");
        return true;
    case T_LIST:
    case T_TUPLE:
    case T_DICT:
    case T_VIEW:
    case T_NAMESPACE: {
        if (!tmpl_enter(r)) return false;
        bool ok = put_container(r, b, v);
        r->depth--;
        return ok;
    }
    default: return put_object(r, b, v);
    }
}

bool tmpl_put_str(struct trun *r, struct tbuf *b, struct tval v) {
    if (v.kind == T_UNDEF) return true;
    if (v.kind != T_STR) return tmpl_put_repr(r, b, v);
    tmpl_put(r, b, v.s->v);
    return !r->failed;
}

bool tmpl_to_str(struct trun *r, struct tval v, struct tval *out) {
    struct tbuf b = {0};
    *out = v;
    if (v.kind == T_STR) return true;
    if (!tmpl_put_str(r, &b, v)) return false;
    *out = tmpl_buf_str(r, &b);
    return true;
}

void tmpl_put_escaped(struct trun *r, struct tbuf *b, struct view s) {
    size_t from = 0;
    for (size_t i = 0; i < s.n && !r->failed; i++) {
        const char *esc = s.p[i] == '&'    ? "&amp;"
                          : s.p[i] == '<'  ? "&lt;"
                          : s.p[i] == '>'  ? "&gt;"
                          : s.p[i] == '\'' ? "&#39;"
                          : s.p[i] == '"'  ? "&#34;"
                                           : NULL;
        if (!esc) continue;
        tmpl_put(r, b, (struct view){s.p + from, i - from});
        tmpl_putz(r, b, esc);
        from = i + 1;
    }
    tmpl_put(r, b, (struct view){s.p + from, s.n - from});
}
