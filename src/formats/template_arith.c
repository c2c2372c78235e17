/* Operators, with Python's rules for mixed types, floor division and the like. */
#include <math.h>
#include <string.h>

#include "formats/template_builtin.h"

static const char *op_text(enum ttok_kind op) {
    static const char *const text[] = {
        [TOK_ADD] = "+", [TOK_SUB] = "-",       [TOK_MUL] = "*",           [TOK_DIV] = "/",
        [TOK_MOD] = "%", [TOK_FLOORDIV] = "//", [TOK_POW] = "** or pow()",
    };
    return text[op];
}

static bool bad_types(struct trun *r, enum ttok_kind op, struct tval a, struct tval b) {
    return tmpl_fail(r, "unsupported operand type(s) for %s: '%s' and '%s'", op_text(op),
                     tmpl_type_name(a), tmpl_type_name(b));
}

static bool int_pow(i64 a, i64 n, i64 *out) {
    i64 result = 1;
    bool overflow = false; /* of the base; it matters only if it is still needed */
    while (n > 0) {
        if (n & 1 && (overflow || __builtin_mul_overflow(result, a, &result))) return false;
        overflow = overflow || __builtin_mul_overflow(a, a, &a);
        n >>= 1;
    }
    *out = result;
    return true;
}

static bool float_op(struct trun *r, enum ttok_kind op, double a, double b, double *out) {
    double mod;
    if ((op == TOK_DIV || op == TOK_FLOORDIV || op == TOK_MOD) && b == 0)
        return tmpl_fail(r, op == TOK_MOD ? "float modulo" : "float division by zero");
    switch (op) {
    case TOK_ADD: return *out = a + b, true;
    case TOK_SUB: return *out = a - b, true;
    case TOK_MUL: return *out = a * b, true;
    case TOK_DIV: return *out = a / b, true;
    case TOK_POW:
        if (a == 0 && b < 0) return tmpl_fail(r, "0.0 cannot be raised to a negative power");
        if (a < 0 && isfinite(b) && b != floor(b))
            return tmpl_fail_code(r, ERR_UNSUPPORTED, "complex numbers are not supported");
        *out = pow(a, b);
        return !isinf(*out) || isinf(a) || isinf(b) ||
               tmpl_fail(r, "Numerical result out of range");
    default: break;
    }
    mod = fmod(a, b);
    double div = (a - mod) / b;
    if (mod != 0 && (b < 0) != (mod < 0)) {
        mod += b;
        div -= 1;
    } else if (mod == 0) {
        mod = copysign(0, b);
    }
    double whole = floor(div);
    if (div - whole > 0.5) whole += 1;
    if (div == 0) whole = copysign(0, a / b);
    *out = op == TOK_MOD ? mod : whole;
    return true;
}

static bool int_op(struct trun *r, enum ttok_kind op, i64 a, i64 b, struct tval *out) {
    i64 x = 0;
    double f;
    bool over = false;
    if ((op == TOK_DIV || op == TOK_FLOORDIV || op == TOK_MOD) && b == 0)
        return tmpl_fail(r, op == TOK_DIV   ? "division by zero"
                            : op == TOK_MOD ? "integer modulo by zero"
                                            : "integer division or modulo by zero");
    switch (op) {
    case TOK_ADD: over = __builtin_add_overflow(a, b, &x); break;
    case TOK_SUB: over = __builtin_sub_overflow(a, b, &x); break;
    case TOK_MUL: over = __builtin_mul_overflow(a, b, &x); break;
    case TOK_FLOORDIV:
        over = a == INT64_MIN && b == -1;
        if (!over) x = a / b - (a % b != 0 && (a < 0) != (b < 0));
        break;
    case TOK_MOD:
        x = b == -1 ? 0 : a % b;
        if (x != 0 && (x < 0) != (b < 0)) x += b;
        break;
    case TOK_POW:
        if (b >= 0) {
            over = !int_pow(a, b, &x);
            break;
        } /* fall through */
    default:
        if (!float_op(r, op, (double)a, (double)b, &f)) return false;
        return *out = tmpl_float(f), true;
    }
    if (over)
        return tmpl_fail_code(r, ERR_LIMIT, "the result of %s does not fit into 64 bits",
                              op == TOK_POW ? "**" : op_text(op));
    return *out = tmpl_int(x), true;
}

/* The text of one side of +, escaped when only the other one is markup. */
static struct view side(struct trun *r, struct tval s, bool markup) {
    struct tbuf b = {0};
    if (!markup || s.s->markup) return s.s->v;
    tmpl_put_escaped(r, &b, s.s->v);
    return (struct view){b.p ? b.p : "", b.n};
}

static bool add_str(struct trun *r, struct tval a, struct tval b, struct tval *out) {
    bool markup = a.s->markup || b.s->markup;
    struct tval left = markup && !a.s->markup ? tmpl_str(r, side(r, a, true)) : a;
    *out = tmpl_append(r, left, side(r, b, markup));
    out->s->markup = markup;
    return !r->failed;
}

static bool add_seq(struct trun *r, struct tval a, struct tval b, struct tval *out) {
    if (!tmpl_step(r, a.list->n + b.list->n)) return false;
    *out = tmpl_tuple(r, a.list->v, a.list->n);
    out->kind = a.kind;
    for (size_t i = 0; i < b.list->n; i++) tmpl_push(r, out->list, b.list->v[i]);
    return true;
}

static bool repeat(struct trun *r, struct tval s, i64 n, struct tval *out) {
    u64 size = s.kind == T_STR ? s.s->v.n : s.list->n * sizeof(struct tval), total;
    u64 times = n < 0 || size == 0 ? 0 : (u64)n;
    if (!size_mul(size, times, &total)) total = UINT64_MAX;
    if (!tmpl_room(r, total) || !tmpl_step(r, times)) return false;
    if (s.kind == T_STR) {
        struct tbuf b = {0};
        for (u64 i = 0; i < times; i++) tmpl_put(r, &b, s.s->v);
        *out = tmpl_buf_str(r, &b);
        out->s->markup = s.s->markup;
        return true;
    }
    *out = tmpl_list(r);
    out->kind = s.kind;
    for (u64 i = 0; i < times; i++)
        for (size_t k = 0; k < s.list->n; k++) tmpl_push(r, out->list, s.list->v[k]);
    return !r->failed;
}

static bool is_seq(struct tval v) {
    return v.kind == T_STR || v.kind == T_LIST || v.kind == T_TUPLE;
}

static bool add_other(struct trun *r, struct tval a, struct tval b, struct tval *out) {
    if (a.kind == T_STR && b.kind == T_STR) return add_str(r, a, b, out);
    if (a.kind == b.kind && is_seq(a)) return add_seq(r, a, b, out);
    if (is_seq(a))
        return tmpl_fail(r, "can only concatenate %s (not \"%s\") to %s", tmpl_type_name(a),
                         tmpl_type_name(b), tmpl_type_name(a));
    return bad_types(r, TOK_ADD, a, b);
}

bool tmpl_binary(struct trun *r, enum ttok_kind op, struct tval a, struct tval b,
                 struct tval *out) {
    i64 x, y;
    double f, g;
    if (a.kind == T_STR && op == TOK_MOD) return tmpl_percent(r, a, b, out);
    if (a.kind == T_UNDEF || b.kind == T_UNDEF)
        return tmpl_fail_undef(r, a.kind == T_UNDEF ? a : b);
    if (tmpl_is_int(a, &x) && tmpl_is_int(b, &y)) return int_op(r, op, x, y, out);
    if (tmpl_is_num(a, &f) && tmpl_is_num(b, &g)) {
        if (!float_op(r, op, f, g, &f)) return false;
        return *out = tmpl_float(f), true;
    }
    if (op == TOK_MUL && is_seq(a) && tmpl_is_int(b, &y)) return repeat(r, a, y, out);
    if (op == TOK_MUL && is_seq(b) && tmpl_is_int(a, &x)) return repeat(r, b, x, out);
    if (op == TOK_ADD) return add_other(r, a, b, out);
    return bad_types(r, op, a, b);
}

bool tmpl_negate(struct trun *r, bool minus, struct tval a, struct tval *out) {
    i64 i;
    if (a.kind == T_UNDEF) return tmpl_fail_undef(r, a);
    if (a.kind == T_FLOAT) return *out = tmpl_float(minus ? -a.f : a.f), true;
    if (!tmpl_is_int(a, &i))
        return tmpl_fail(r, "bad operand type for unary %c: '%s'", minus ? '-' : '+',
                         tmpl_type_name(a));
    if (minus && __builtin_sub_overflow((i64)0, i, &i))
        return tmpl_fail_code(r, ERR_LIMIT, "the result of - does not fit into 64 bits");
    return *out = tmpl_int(i), true;
}

bool tmpl_compare(struct trun *r, enum cmp_op op, struct tval a, struct tval b, bool *yes) {
    static const char *const text[] = {
        [CMP_LT] = "<", [CMP_LE] = "<=", [CMP_GT] = ">", [CMP_GE] = ">="};
    bool ok;
    switch (op) {
    case CMP_EQ:
    case CMP_NE: ok = tmpl_equal(r, a, b, yes); break;
    case CMP_IN:
    case CMP_NOT_IN: ok = tmpl_contains(r, b, a, yes); break;
    default: return tmpl_less(r, a, b, text[op], yes);
    }
    if (op == CMP_NE || op == CMP_NOT_IN) *yes = !*yes;
    return ok;
}
