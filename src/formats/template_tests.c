/* Tests: what may stand behind `is`. */
#include <string.h>

#include "formats/template_builtin.h"

static bool answer(struct tcall *c, bool yes) {
    return c->out = tmpl_bool(yes), true;
}

/* The row's tag has a bit for each kind that passes. */
static bool t_kind(struct trun *r, struct tcall *c) {
    return !r->failed && answer(c, c->func->tag >> c->self.kind & 1);
}
static bool t_true(struct trun *r, struct tcall *c) {
    return !r->failed && answer(c, c->self.kind == T_BOOL && c->self.b);
}
static bool t_false(struct trun *r, struct tcall *c) {
    return !r->failed && answer(c, c->self.kind == T_BOOL && !c->self.b);
}
static bool t_escaped(struct trun *r, struct tcall *c) {
    return !r->failed && answer(c, c->self.kind == T_STR && c->self.s->markup);
}
static bool t_sameas(struct trun *r, struct tcall *c) {
    return !r->failed && answer(c, tmpl_same(c->self, c->arg[0]));
}

/* self % n == want */
static bool remainder_is(struct trun *r, struct tcall *c, struct tval n, i64 want) {
    struct tval rest;
    bool yes;
    if (!tmpl_binary(r, TOK_MOD, c->self, n, &rest)) return false;
    return tmpl_equal(r, rest, tmpl_int(want), &yes) && answer(c, yes);
}
static bool t_odd(struct trun *r, struct tcall *c) {
    return remainder_is(r, c, tmpl_int(2), 1);
}
static bool t_even(struct trun *r, struct tcall *c) {
    return remainder_is(r, c, tmpl_int(2), 0);
}
static bool t_divisibleby(struct trun *r, struct tcall *c) {
    return remainder_is(r, c, c->arg[0], 0);
}

/* str.islower and str.isupper: a cased letter, and none of the other case. */
bool tmpl_is_case(struct view s, u32 want, u32 other) {
    bool any = false;
    for (size_t i = 0; i < s.n;) {
        u32 k = tmpl_cp_class(tmpl_cp_next(s, &i));
        if (k & (other | CP_TITLE)) return false;
        any = any || k & want;
    }
    return any;
}
static bool is_case(struct trun *r, struct tcall *c, u32 want, u32 other) {
    struct tval text;
    return tmpl_to_str(r, c->self, &text) && answer(c, tmpl_is_case(text.s->v, want, other));
}
static bool t_lower(struct trun *r, struct tcall *c) {
    return is_case(r, c, CP_LOWER, CP_UPPER);
}
static bool t_upper(struct trun *r, struct tcall *c) {
    return is_case(r, c, CP_UPPER, CP_LOWER);
}

static bool compare(struct trun *r, struct tcall *c, enum cmp_op op) {
    bool yes;
    return tmpl_compare(r, op, c->self, c->arg[0], &yes) && answer(c, yes);
}
static bool t_eq(struct trun *r, struct tcall *c) {
    return compare(r, c, CMP_EQ);
}
static bool t_ne(struct trun *r, struct tcall *c) {
    return compare(r, c, CMP_NE);
}
static bool t_lt(struct trun *r, struct tcall *c) {
    return compare(r, c, CMP_LT);
}
static bool t_le(struct trun *r, struct tcall *c) {
    return compare(r, c, CMP_LE);
}
static bool t_gt(struct trun *r, struct tcall *c) {
    return compare(r, c, CMP_GT);
}
static bool t_ge(struct trun *r, struct tcall *c) {
    return compare(r, c, CMP_GE);
}
static bool t_in(struct trun *r, struct tcall *c) {
    return compare(r, c, CMP_IN);
}

static bool t_filter(struct trun *r, struct tcall *c) {
    return !r->failed && answer(c, c->self.kind == T_STR && tmpl_filter(c->self.s->v) != NULL);
}
static bool t_test(struct trun *r, struct tcall *c) {
    return !r->failed && answer(c, c->self.kind == T_STR && tmpl_test(c->self.s->v) != NULL);
}

#define KIND(k) (1u << (k))
enum {
    DEFINED = (KIND(T_JOINER + 1) - 1) & ~KIND(T_UNDEF),
    CALLABLE = KIND(T_MACRO) | KIND(T_FUNC) | KIND(T_METHOD) | KIND(T_JOINER) | KIND(T_UNDEF) |
               KIND(T_LOOP),
    SEQUENCE = KIND(T_STR) | KIND(T_LIST) | KIND(T_TUPLE) | KIND(T_DICT) | KIND(T_RANGE) |
               KIND(T_UNDEF), /* has a length and obj[i] */
    ITERABLE = SEQUENCE | KIND(T_VIEW) | KIND(T_ITER) | KIND(T_LOOP),
};

static const struct tfunc tests[] = {
    {"!=", "-", t_ne, 0},
    {"<", "-", t_lt, 0},
    {"<=", "-", t_le, 0},
    {"==", "-", t_eq, 0},
    {">", "-", t_gt, 0},
    {">=", "-", t_ge, 0},
    {"boolean", "", t_kind, KIND(T_BOOL)},
    {"callable", "", t_kind, CALLABLE},
    {"defined", "", t_kind, DEFINED},
    {"divisibleby", "num", t_divisibleby, 0},
    {"eq", "-", t_eq, 0},
    {"equalto", "-", t_eq, 0},
    {"escaped", "", t_escaped, 0},
    {"even", "", t_even, 0},
    {"false", "", t_false, 0},
    {"filter", "", t_filter, 0},
    {"float", "", t_kind, KIND(T_FLOAT)},
    {"ge", "-", t_ge, 0},
    {"greaterthan", "-", t_gt, 0},
    {"gt", "-", t_gt, 0},
    {"in", "seq", t_in, 0},
    {"integer", "", t_kind, KIND(T_INT)},
    {"iterable", "", t_kind, ITERABLE},
    {"le", "-", t_le, 0},
    {"lessthan", "-", t_lt, 0},
    {"lower", "", t_lower, 0},
    {"lt", "-", t_lt, 0},
    {"mapping", "", t_kind, KIND(T_DICT)},
    {"ne", "-", t_ne, 0},
    {"none", "", t_kind, KIND(T_NONE)},
    {"number", "", t_kind, KIND(T_INT) | KIND(T_FLOAT) | KIND(T_BOOL)},
    {"odd", "", t_odd, 0},
    {"sameas", "other", t_sameas, 0},
    {"sequence", "", t_kind, SEQUENCE},
    {"string", "", t_kind, KIND(T_STR)},
    {"test", "", t_test, 0},
    {"true", "", t_true, 0},
    {"undefined", "", t_kind, KIND(T_UNDEF)},
    {"upper", "", t_upper, 0},
};

const struct tfunc *tmpl_test(struct view name) {
    return tmpl_find_func(tests, ARRAY_LEN(tests), name);
}
