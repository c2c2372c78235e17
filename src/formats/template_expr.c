/* Parser of expressions. Precedence, loosest first: if-else, or, and, not, comparisons and `in`,
 * + -, ~, * / // %, **, unary + -, then what follows a value: . [] () | is. As in jinja2, a unary
 * sign binds tighter than ** and than filters (-1|abs is -(1)|abs). */
#include <string.h>

#include "formats/template_ast.h"
#include "formats/template_builtin.h"

enum { PARSE_DEPTH_MAX = 200 };

static bool parse_unary(struct tparser *p, bool with_filters, struct tnode **out);
static bool parse_primary(struct tparser *p, bool with_ns, struct tnode **out);

static bool enter(struct tparser *p) {
    if (p->depth >= PARSE_DEPTH_MAX)
        return tmpl_parse_fail(p, p->tok, ERR_LIMIT, "nested deeper than %d levels",
                               PARSE_DEPTH_MAX);
    p->depth++;
    return true;
}

static bool skip(struct tparser *p, enum ttok_kind kind) {
    if (p->tok->kind != kind) return false;
    p->tok++;
    return true;
}

struct list { /* builds a chain of nodes */
    struct tnode *first, **last;
    size_t n;
};

static void list_add(struct list *l, struct tnode *n) {
    *(l->n ? l->last : &l->first) = n;
    l->last = &n->next;
    l->n++;
}

static struct tnode *binary(struct tparser *p, enum tnode_kind kind, const struct ttok *at,
                            struct tnode *a, struct tnode *b) {
    struct tnode *n = tmpl_node(p, kind, at);
    n->bin.a = a;
    n->bin.b = b;
    n->bin.op = at->kind;
    return n;
}

static bool parse_arg(struct tparser *p, struct targs *args, struct list *pos, struct list *kw) {
    const struct ttok *at = p->tok;
    struct tnode *n;
    bool bad;
    if (skip(p, TOK_MUL)) {
        bad = args->splat || args->kw_splat;
        if (!tmpl_parse_expr(p, true, &args->splat)) return false;
    } else if (skip(p, TOK_POW)) {
        bad = args->kw_splat != NULL;
        if (!tmpl_parse_expr(p, true, &args->kw_splat)) return false;
    } else if (at->kind == TOK_NAME && at[1].kind == TOK_ASSIGN) {
        bad = args->kw_splat != NULL;
        p->tok += 2;
        if (!tmpl_parse_expr(p, true, &n)) return false;
        n->kw_name = at->text;
        list_add(kw, n);
    } else {
        bad = args->splat || args->kw_splat || kw->n;
        if (!tmpl_parse_expr(p, true, &n)) return false;
        list_add(pos, n);
    }
    return !bad ||
           tmpl_parse_fail(p, at, ERR_FORMAT, "invalid syntax for function call expression");
}

static bool parse_args(struct tparser *p, struct targs *args) {
    struct list pos = {0}, kw = {0};
    *args = (struct targs){0};
    if (!tmpl_expect(p, TOK_LPAREN, "(")) return false;
    for (bool first = true; p->tok->kind != TOK_RPAREN; first = false) {
        if (!first && !tmpl_expect(p, TOK_COMMA, ",")) return false;
        if (p->tok->kind == TOK_RPAREN) break;
        if (!parse_arg(p, args, &pos, &kw)) return false;
    }
    args->pos = pos.first;
    args->kw = kw.first;
    return tmpl_expect(p, TOK_RPAREN, ")");
}

static bool parse_call(struct tparser *p, struct tnode **n) {
    struct tnode *call = tmpl_node(p, N_CALL, p->tok);
    call->call.func = *n;
    *n = call;
    return parse_args(p, &call->call.args);
}

static bool parse_slice(struct tparser *p, const struct ttok *at, struct tnode *from,
                        struct tnode **out) {
    struct tnode *n = *out = tmpl_node(p, N_SLICE, at);
    n->slice.from = from;
    enum ttok_kind k = p->tok->kind;
    if (k != TOK_COLON && k != TOK_RBRACKET && k != TOK_COMMA &&
        !tmpl_parse_expr(p, true, &n->slice.to))
        return false;
    if (!skip(p, TOK_COLON)) return true;
    k = p->tok->kind;
    return k == TOK_RBRACKET || k == TOK_COMMA || tmpl_parse_expr(p, true, &n->slice.step);
}

static bool parse_subscribed(struct tparser *p, struct tnode **out) {
    const struct ttok *at = p->tok;
    if (skip(p, TOK_COLON)) return parse_slice(p, at, NULL, out);
    if (!tmpl_parse_expr(p, true, out)) return false;
    return !skip(p, TOK_COLON) || parse_slice(p, at, *out, out);
}

static bool parse_brackets(struct tparser *p, struct tnode **n) {
    const struct ttok *at = p->tok++;
    struct list l = {0};
    struct tnode *arg;
    while (p->tok->kind != TOK_RBRACKET) {
        if (l.n && !tmpl_expect(p, TOK_COMMA, ",")) return false;
        if (!parse_subscribed(p, &arg)) return false;
        list_add(&l, arg);
    }
    p->tok++;
    if (l.n != 1) { /* x[a, b] asks for a tuple */
        arg = tmpl_node(p, N_TUPLE, at);
        arg->items = l.first;
        l.first = arg;
    }
    *n = binary(p, N_ITEM, at, *n, l.first);
    return true;
}

static bool parse_dot(struct tparser *p, struct tnode **n) {
    const struct ttok *at = p->tok++, *name = p->tok++;
    struct tnode *key;
    if (name->kind == TOK_NAME) {
        struct tnode *attr = tmpl_node(p, N_ATTR, at);
        attr->attr.obj = *n;
        attr->attr.name = tmpl_const_str(p->t, name->text);
        *n = attr;
        return true;
    }
    if (name->kind != TOK_INT)
        return tmpl_parse_fail(p, name, ERR_FORMAT, "expected name or number");
    key = tmpl_node(p, N_CONST, name);
    key->value = tmpl_int(name->i);
    *n = binary(p, N_ITEM, at, *n, key);
    return true;
}

static bool parse_postfix(struct tparser *p, struct tnode **n) {
    bool ok = true;
    while (ok) {
        if (p->tok->kind == TOK_DOT)
            ok = parse_dot(p, n);
        else if (p->tok->kind == TOK_LBRACKET)
            ok = parse_brackets(p, n);
        else if (p->tok->kind == TOK_LPAREN)
            ok = parse_call(p, n);
        else
            break;
    }
    return ok;
}

/* A name that may have dots, looked up in filters or tests. */
static bool parse_func(struct tparser *p, struct tnode *n, bool is_test) {
    const struct ttok *at = p->tok, *last = at;
    do {
        last = p->tok;
        if (!tmpl_expect(p, TOK_NAME, "name")) return false;
    } while (skip(p, TOK_DOT));
    n->filter.name = (struct view){at->text.p, (size_t)(last->text.p + last->text.n - at->text.p)};
    n->filter.func = is_test ? tmpl_test(n->filter.name) : tmpl_filter(n->filter.name);
    if (n->filter.func && !n->filter.func->fn)
        return tmpl_parse_fail(p, at, ERR_UNSUPPORTED, "the filter '%.*s' is not supported",
                               VIEW_FMT(n->filter.name));
    if (n->filter.func || p->soft) return true;
    return tmpl_parse_fail(p, at, ERR_FORMAT, "No %s named '%.*s'.", is_test ? "test" : "filter",
                           VIEW_FMT(n->filter.name));
}

bool tmpl_parse_filters(struct tparser *p, struct tnode *obj, bool first, struct tnode **out) {
    *out = obj;
    while (first || skip(p, TOK_PIPE)) {
        first = false;
        struct tnode *n = tmpl_node(p, N_FILTER, p->tok);
        n->filter.obj = *out;
        if (!parse_func(p, n, false)) return false;
        if (p->tok->kind == TOK_LPAREN && !parse_args(p, &n->filter.args)) return false;
        *out = n;
    }
    return true;
}

/* `is divisibleby 3`: one argument without parentheses. */
static bool starts_test_arg(const struct ttok *t) {
    if (t->kind == TOK_NAME)
        return !tmpl_is_name(t, "else") && !tmpl_is_name(t, "or") && !tmpl_is_name(t, "and");
    return t->kind == TOK_STRING || t->kind == TOK_INT || t->kind == TOK_FLOAT ||
           t->kind == TOK_LBRACKET || t->kind == TOK_LBRACE;
}

static bool parse_test(struct tparser *p, struct tnode **out) {
    const struct ttok *at = p->tok++;
    bool negated = tmpl_skip_name(p, "not");
    struct tnode *n = tmpl_node(p, N_TEST, at), *arg;
    n->filter.obj = *out;
    if (!parse_func(p, n, true)) return false;
    if (p->tok->kind == TOK_LPAREN) {
        if (!parse_args(p, &n->filter.args)) return false;
    } else if (starts_test_arg(p->tok)) {
        if (tmpl_is_name(p->tok, "is"))
            return tmpl_parse_fail(p, p->tok, ERR_FORMAT,
                                   "You cannot chain multiple tests with is");
        if (!parse_primary(p, false, &arg) || !parse_postfix(p, &arg)) return false;
        n->filter.args.pos = arg;
    }
    *out = negated ? binary(p, N_NOT, at, n, NULL) : n;
    return true;
}

static bool parse_list(struct tparser *p, struct tnode **out) {
    struct list l = {0};
    struct tnode *n, *list = *out = tmpl_node(p, N_LIST, p->tok++);
    while (p->tok->kind != TOK_RBRACKET) {
        if (l.n && !tmpl_expect(p, TOK_COMMA, ",")) return false;
        if (p->tok->kind == TOK_RBRACKET) break;
        if (!tmpl_parse_expr(p, true, &n)) return false;
        list_add(&l, n);
    }
    list->items = l.first;
    return tmpl_expect(p, TOK_RBRACKET, "]");
}

static bool parse_dict(struct tparser *p, struct tnode **out) {
    struct list l = {0};
    struct tnode *key, *value, *dict = *out = tmpl_node(p, N_DICT, p->tok++);
    while (p->tok->kind != TOK_RBRACE) {
        if (l.n && !tmpl_expect(p, TOK_COMMA, ",")) return false;
        if (p->tok->kind == TOK_RBRACE) break;
        if (!tmpl_parse_expr(p, true, &key) || !tmpl_expect(p, TOK_COLON, ":") ||
            !tmpl_parse_expr(p, true, &value))
            return false;
        list_add(&l, key);
        list_add(&l, value);
    }
    dict->items = l.first;
    return tmpl_expect(p, TOK_RBRACE, "}");
}

static bool parse_parens(struct tparser *p, struct tnode **out) {
    const struct ttok *at = p->tok++;
    if (p->tok->kind == TOK_RPAREN)
        *out = tmpl_node(p, N_TUPLE, at);
    else if (!tmpl_parse_tuple(p, true, out))
        return false;
    return tmpl_expect(p, TOK_RPAREN, ")");
}

static bool parse_string(struct tparser *p, struct tnode **out) {
    struct str s = {0};
    *out = tmpl_node(p, N_CONST, p->tok);
    for (; p->tok->kind == TOK_STRING; p->tok++) str_addv(&s, p->tok->text);
    char *copy = arena_memdup(&p->t->arena, str_z(&s), s.n);
    (*out)->value = tmpl_const_str(p->t, (struct view){copy, s.n});
    str_deinit(&s);
    return true;
}

/* true, None and their kin, or a variable. */
static bool parse_name(struct tparser *p, bool with_ns, struct tnode **out) {
    const struct ttok *at = p->tok++;
    struct tnode *n = *out = tmpl_node(p, N_CONST, at);
    bool is_true = tmpl_is_name(at, "true") || tmpl_is_name(at, "True");
    n->value = tmpl_bool(is_true);
    if (is_true || tmpl_is_name(at, "false") || tmpl_is_name(at, "False")) return true;
    n->value = tmpl_none();
    if (tmpl_is_name(at, "none") || tmpl_is_name(at, "None")) return true;
    u32 name = tmpl_intern(p->t, at->text);
    if (with_ns && skip(p, TOK_DOT)) {
        n->kind = N_NS_ATTR;
        n->ns_attr.ns = name;
        n->ns_attr.name = tmpl_const_str(p->t, p->tok->text);
        return tmpl_expect(p, TOK_NAME, "name");
    }
    n->kind = N_NAME;
    n->name = name;
    struct tmacro_def *m = p->macro;
    if (m && name == p->t->name_caller) m->uses_caller = true;
    if (m && name == p->t->name_varargs) m->uses_varargs = true;
    if (m && name == p->t->name_kwargs) m->uses_kwargs = true;
    return true;
}

static bool parse_primary(struct tparser *p, bool with_ns, struct tnode **out) {
    const struct ttok *at = p->tok;
    bool ok = false;
    if (!enter(p)) return false;
    switch (at->kind) {
    case TOK_NAME: ok = parse_name(p, with_ns, out); break;
    case TOK_STRING: ok = parse_string(p, out); break;
    case TOK_INT:
    case TOK_FLOAT:
        p->tok++;
        *out = tmpl_node(p, N_CONST, at);
        (*out)->value = at->kind == TOK_INT ? tmpl_int(at->i) : tmpl_float(at->f);
        ok = true;
        break;
    case TOK_LPAREN: ok = parse_parens(p, out); break;
    case TOK_LBRACKET: ok = parse_list(p, out); break;
    case TOK_LBRACE: ok = parse_dict(p, out); break;
    default:
        tmpl_parse_fail(p, at, ERR_FORMAT, "unexpected '%s'", tmpl_describe(at, (char[64]){0}));
    }
    p->depth--;
    return ok;
}

static bool parse_unary(struct tparser *p, bool with_filters, struct tnode **out) {
    const struct ttok *at = p->tok;
    if (skip(p, TOK_SUB) || skip(p, TOK_ADD)) {
        struct tnode *a;
        if (!enter(p) || !parse_unary(p, false, &a)) return false;
        p->depth--;
        *out = binary(p, at->kind == TOK_SUB ? N_NEG : N_POS, at, a, NULL);
    } else if (!parse_primary(p, false, out)) {
        return false;
    }
    if (!parse_postfix(p, out)) return false;
    for (bool ok = true; with_filters;) {
        if (p->tok->kind == TOK_PIPE)
            ok = tmpl_parse_filters(p, *out, false, out);
        else if (tmpl_is_name(p->tok, "is"))
            ok = parse_test(p, out);
        else if (p->tok->kind == TOK_LPAREN)
            ok = parse_call(p, out);
        else
            break;
        if (!ok) return false;
    }
    return true;
}

enum { LEVEL_ADD, LEVEL_CONCAT, LEVEL_MUL, LEVEL_POW, LEVEL_UNARY };

static int level_of(enum ttok_kind k) {
    switch (k) {
    case TOK_ADD:
    case TOK_SUB: return LEVEL_ADD;
    case TOK_TILDE: return LEVEL_CONCAT;
    case TOK_MUL:
    case TOK_DIV:
    case TOK_FLOORDIV:
    case TOK_MOD: return LEVEL_MUL;
    case TOK_POW: return LEVEL_POW;
    default: return -1;
    }
}

/* Left-associative operators of `level` and tighter; ** too, as jinja2 has it. */
static bool parse_binary(struct tparser *p, int level, struct tnode **out) {
    if (level == LEVEL_UNARY) return parse_unary(p, true, out);
    if (!parse_binary(p, level + 1, out)) return false;
    struct list concat = {0};
    while (level_of(p->tok->kind) == level) {
        const struct ttok *at = p->tok++;
        struct tnode *b;
        if (!parse_binary(p, level + 1, &b)) return false;
        if (level != LEVEL_CONCAT) {
            *out = binary(p, N_BINARY, at, *out, b);
            continue;
        }
        if (concat.n == 0) { /* a ~ b ~ c is one node */
            struct tnode *n = tmpl_node(p, N_CONCAT, at);
            list_add(&concat, *out);
            n->items = *out;
            *out = n;
        }
        list_add(&concat, b);
    }
    return true;
}

static bool compare_op(struct tparser *p, enum cmp_op *op) {
    static const u8 toks[] = {TOK_EQ, TOK_NE, TOK_LT, TOK_LE, TOK_GT, TOK_GE};
    for (size_t i = 0; i < ARRAY_LEN(toks); i++)
        if (skip(p, toks[i])) return *op = (enum cmp_op)i, true; /* enum cmp_op's order */
    if (tmpl_skip_name(p, "in")) return *op = CMP_IN, true;
    if (!tmpl_is_name(p->tok, "not") || !tmpl_is_name(p->tok + 1, "in")) return false;
    p->tok += 2;
    return *op = CMP_NOT_IN, true;
}

static bool parse_compare(struct tparser *p, struct tnode **out) {
    struct list l = {0};
    const struct ttok *at = p->tok;
    enum cmp_op op;
    struct tnode *n;
    if (!parse_binary(p, LEVEL_ADD, out)) return false;
    while (at = p->tok, compare_op(p, &op)) {
        if (!parse_binary(p, LEVEL_ADD, &n)) return false;
        n = binary(p, N_BINARY, at, n, NULL);
        n->bin.op = (enum ttok_kind)op;
        list_add(&l, n);
    }
    if (l.n == 0) return true;
    n = tmpl_node(p, N_COMPARE, at);
    n->cmp.first = *out;
    n->cmp.rest = l.first;
    *out = n;
    return true;
}

static bool parse_not(struct tparser *p, struct tnode **out) {
    const struct ttok *at = p->tok;
    if (!tmpl_skip_name(p, "not")) return parse_compare(p, out);
    struct tnode *a;
    if (!enter(p) || !parse_not(p, &a)) return false;
    p->depth--;
    *out = binary(p, N_NOT, at, a, NULL);
    return true;
}

static bool parse_and(struct tparser *p, struct tnode **out) {
    const struct ttok *at;
    struct tnode *b;
    if (!parse_not(p, out)) return false;
    while (at = p->tok, tmpl_skip_name(p, "and")) {
        if (!parse_not(p, &b)) return false;
        *out = binary(p, N_AND, at, *out, b);
    }
    return true;
}

static bool parse_or(struct tparser *p, struct tnode **out) {
    const struct ttok *at;
    struct tnode *b;
    if (!parse_and(p, out)) return false;
    while (at = p->tok, tmpl_skip_name(p, "or")) {
        if (!parse_and(p, &b)) return false;
        *out = binary(p, N_OR, at, *out, b);
    }
    return true;
}

static bool parse_cond(struct tparser *p, struct tnode **out) {
    const struct ttok *at;
    if (!parse_or(p, out)) return false;
    while (at = p->tok, tmpl_skip_name(p, "if")) {
        struct tnode *n = tmpl_node(p, N_COND, at);
        n->cond.then = *out;
        if (!parse_or(p, &n->cond.test)) return false;
        if (tmpl_skip_name(p, "else") && !tmpl_parse_expr(p, true, &n->cond.other)) return false;
        *out = n;
    }
    return true;
}

bool tmpl_parse_expr(struct tparser *p, bool with_cond, struct tnode **out) {
    if (!enter(p)) return false;
    bool ok = with_cond ? parse_cond(p, out) : parse_or(p, out);
    p->depth--;
    return ok;
}

static bool tuple_ends(const struct tparser *p) {
    enum ttok_kind k = p->tok->kind;
    return k == TOK_VAR_END || k == TOK_BLOCK_END || k == TOK_RPAREN;
}

typedef bool item_parser(struct tparser *p, bool flag, struct tnode **out);

static bool parse_items(struct tparser *p, item_parser *item, bool flag, struct tnode **out) {
    const struct ttok *at = p->tok;
    struct list l = {0};
    struct tnode *n;
    bool comma = false;
    do {
        if (tuple_ends(p)) break;
        if (!item(p, flag, &n)) return false;
        list_add(&l, n);
    } while (skip(p, TOK_COMMA) && (comma = true));
    if (l.n == 0)
        return tmpl_parse_fail(p, at, ERR_FORMAT, "Expected an expression, got '%s'",
                               tmpl_describe(at, (char[64]){0}));
    *out = l.first;
    if (!comma) return true;
    *out = tmpl_node(p, N_TUPLE, at);
    (*out)->items = l.first;
    return true;
}

bool tmpl_parse_tuple(struct tparser *p, bool with_cond, struct tnode **out) {
    return parse_items(p, tmpl_parse_expr, with_cond, out);
}

static bool check_target(struct tparser *p, const struct ttok *at, const struct tnode *n) {
    static const char *const names[] = {
        [N_CONST] = "const",  [N_LIST] = "list",    [N_DICT] = "dict",     [N_CALL] = "call",
        [N_ATTR] = "getattr", [N_ITEM] = "getitem", [N_FILTER] = "filter",
    };
    if (n->kind == N_NAME || n->kind == N_NS_ATTR) return true;
    if (n->kind != N_TUPLE) {
        const char *name = n->kind < ARRAY_LEN(names) ? names[n->kind] : NULL;
        return tmpl_parse_fail(p, at, ERR_FORMAT, "can't assign to '%s'",
                               name ? name : "expression");
    }
    for (const struct tnode *i = n->items; i; i = i->next)
        if (!check_target(p, at, i)) return false;
    return true;
}

bool tmpl_parse_target(struct tparser *p, bool with_ns, struct tnode **out) {
    const struct ttok *at = p->tok;
    return parse_items(p, parse_primary, with_ns, out) && check_target(p, at, *out);
}
