/* Evaluation of expressions, and calls. */
#include <string.h>

#include "formats/template_builtin.h"

static bool splat_pos(struct trun *r, const struct tnode *n, struct tlist *pos) {
    struct tval v;
    struct tcursor cur;
    if (!tmpl_eval(r, n, &v) || !tmpl_cursor(r, v, &cur)) return false;
    for (;;) {
        if (!tmpl_next(r, &cur, &v)) return false;
        if (v.kind == T_ABSENT) return true;
        tmpl_push(r, pos, v);
    }
}

static bool add_kw(struct trun *r, struct tdict *kw, struct tval key, struct tval v) {
    if (key.kind != T_STR) return tmpl_fail(r, "keywords must be strings");
    if (tmpl_dict_get(r, kw, key, NULL))
        return tmpl_fail(r, "got multiple values for keyword argument '%.*s'", VIEW_FMT(key.s->v));
    tmpl_dict_append(r, kw, key, v);
    return true;
}

static bool splat_kw(struct trun *r, const struct tnode *n, struct tdict *kw) {
    struct tval v;
    if (!tmpl_eval(r, n, &v)) return false;
    if (v.kind != T_DICT)
        return tmpl_fail(r, "argument after ** must be a mapping, not %s", tmpl_type_name(v));
    for (size_t i = 0; i < v.dict->n; i++)
        if (!add_kw(r, kw, v.dict->v[i].key, v.dict->v[i].val)) return false;
    return true;
}

bool tmpl_eval_args(struct trun *r, const struct targs *a, struct tcall *c) {
    struct tlist pos = {0};
    struct tval v;
    for (const struct tnode *n = a->pos; n; n = n->next) {
        if (!tmpl_eval(r, n, &v)) return false;
        tmpl_push(r, &pos, v);
    }
    if (a->splat && !splat_pos(r, a->splat, &pos)) return false;
    c->pos = pos.v;
    c->n_pos = pos.n;
    if (!a->kw && !a->kw_splat) return true;
    struct tdict *kw = tmpl_dict(r).dict;
    for (const struct tnode *n = a->kw; n; n = n->next)
        if (!tmpl_eval(r, n, &v) || !add_kw(r, kw, tmpl_str(r, n->kw_name), v)) return false;
    if (a->kw_splat && !splat_kw(r, a->kw_splat, kw)) return false;
    c->kw = kw;
    return true;
}

/* Cuts the next parameter off a struct tfunc's list: its name without the "?". */
static bool next_param(const char **params, struct view *name, bool *optional) {
    const char *p = *params;
    if (!*p) return false;
    size_t n = strcspn(p, " ");
    *params = p[n] ? p + n + 1 : p + n;
    *optional = p[n - 1] == '?';
    *name = (struct view){p, n - *optional};
    return true;
}

static bool bind_args(struct trun *r, const struct tfunc *f, struct tcall *c) {
    const char *params = f->params;
    struct view name;
    bool optional;
    size_t i = 0, n_kw = 0;
    for (; next_param(&params, &name, &optional); i++) {
        struct tval *kw = NULL;
        if (c->kw && !view_is(name, "-")) kw = tmpl_dict_get(r, c->kw, tmpl_str(r, name), NULL);
        n_kw += kw != NULL;
        if (kw && i < c->n_pos)
            return tmpl_fail(r, "%s() got multiple values for argument '%.*s'", f->name,
                             VIEW_FMT(name));
        if (i < c->n_pos)
            c->arg[i] = c->pos[i];
        else if (kw)
            c->arg[i] = *kw;
        else if (optional)
            c->arg[i] = (struct tval){0};
        else
            return tmpl_fail(r, "%s() misses argument %zu", f->name, i + 1);
    }
    if (c->n_pos > i)
        return tmpl_fail(r, "%s() takes at most %zu arguments (%zu given)", f->name, i, c->n_pos);
    if (!c->kw || c->kw->n == n_kw) return true;
    for (size_t k = 0; k < c->kw->n; k++) {
        struct view key = c->kw->v[k].key.s->v;
        bool known = false;
        for (params = f->params; !known && next_param(&params, &name, &optional);)
            known = view_eq(name, key);
        if (!known)
            return tmpl_fail(r, "%s() got an unexpected keyword argument '%.*s'", f->name,
                             VIEW_FMT(key));
    }
    return true;
}

bool tmpl_call_func(struct trun *r, const struct tfunc *f, struct tcall *c) {
    /* Work on a long text costs what it takes to read it. */
    if (!tmpl_step(r, 1 + (c->self.kind == T_STR ? c->self.s->v.n / 256 : 0))) return false;
    if (strcmp(f->params, "*") != 0 && !bind_args(r, f, c)) return false;
    c->func = f;
    if (f->tag & FUNC_LAZY) {
        struct titer *it = tmpl_alloc(r, sizeof *it);
        *it = (struct titer){.call = tmpl_alloc(r, sizeof *c), .at = r->at, .name = f->name};
        *it->call = *c;
        c->out = (struct tval){.kind = T_ITER, .iter = it};
        return true;
    }
    return f->fn(r, c) && !r->failed;
}

bool tmpl_iter_fill(struct trun *r, struct titer *it) {
    const struct tnode *at = r->at;
    r->at = it->at;
    if (!it->call->func->fn(r, it->call) || r->failed) return false;
    r->at = at;
    it->items = it->call->out.list;
    return true;
}

/* What a method of Markup returns is Markup too. */
static void mark(struct tval v) {
    if (v.kind == T_STR) v.s->markup = true;
    for (size_t i = 0; (v.kind == T_LIST || v.kind == T_TUPLE) && i < v.list->n; i++)
        mark(v.list->v[i]);
}

bool tmpl_call(struct trun *r, struct tval callee, struct tcall *c) {
    switch (callee.kind) {
    case T_FUNC: return tmpl_call_func(r, callee.func, c);
    case T_METHOD:
        c->self = callee.method->self;
        if (!tmpl_call_func(r, callee.method->func, c)) return false;
        if (c->self.kind == T_STR && c->self.s->markup) mark(c->out);
        return true;
    case T_MACRO: return tmpl_call_macro(r, callee.macro, c);
    case T_LOOP: return tmpl_call_loop(r, callee.loop, c);
    case T_JOINER:
        c->out = callee.joiner->used ? callee.joiner->sep : tmpl_strz(r, "");
        callee.joiner->used = true;
        return true;
    case T_UNDEF: return tmpl_fail_undef(r, callee);
    default: return tmpl_fail(r, "'%s' object is not callable", tmpl_type_name(callee));
    }
}

bool tmpl_arg_int(struct trun *r, const struct tcall *c, int i, i64 missing, i64 *out) {
    struct tval v = c->arg[i];
    if (v.kind == T_ABSENT || v.kind == T_NONE) return *out = missing, true;
    if (tmpl_is_int(v, out)) return true;
    if (v.kind == T_UNDEF) return tmpl_fail_undef(r, v);
    return tmpl_fail(r, "'%s' object cannot be interpreted as an integer", tmpl_type_name(v));
}

bool tmpl_arg_str(struct trun *r, const struct tcall *c, int i, struct view *out) {
    if (c->arg[i].kind != T_STR)
        return tmpl_fail(r, "argument %d must be str, not %s", i + 1, tmpl_type_name(c->arg[i]));
    *out = c->arg[i].s->v;
    return true;
}

bool tmpl_arg_truth(struct trun *r, const struct tcall *c, int i, bool missing) {
    return c->arg[i].kind == T_ABSENT ? missing : tmpl_truth(r, c->arg[i]);
}

static bool eval_items(struct trun *r, const struct tnode *n, struct tval *out) {
    *out = tmpl_list(r);
    if (n->kind == N_TUPLE) out->kind = T_TUPLE;
    struct tval v;
    for (const struct tnode *i = n->items; i; i = i->next) {
        if (!tmpl_eval(r, i, &v)) return false;
        tmpl_push(r, out->list, v);
    }
    return true;
}

static bool eval_dict(struct trun *r, const struct tnode *n, struct tval *out) {
    *out = tmpl_dict(r);
    struct tval key, val;
    for (const struct tnode *i = n->items; i; i = i->next->next) {
        if (!tmpl_eval(r, i, &key) || !tmpl_eval(r, i->next, &val)) return false;
        r->at = i;
        if (!tmpl_dict_set(r, out->dict, key, val)) return false;
    }
    return true;
}

static bool eval_cond(struct trun *r, const struct tnode *n, struct tval *out) {
    struct tval test;
    if (!tmpl_eval(r, n->cond.test, &test)) return false;
    if (tmpl_truth(r, test)) return tmpl_eval(r, n->cond.then, out);
    if (n->cond.other) return tmpl_eval(r, n->cond.other, out);
    *out = tmpl_undef_hint(r, arena_printf(&r->arena,
                                           "the inline if-expression on line %u evaluated to false "
                                           "and no else section was defined.",
                                           n->line));
    return true;
}

/* All operands first: one of them may be part of another's text, which append lets grow. */
static bool eval_concat(struct trun *r, const struct tnode *n, struct tval *out) {
    struct tval items, text;
    if (!eval_items(r, n, &items) || !tmpl_to_str(r, items.list->v[0], out)) return false;
    *out = tmpl_append(r, *out, VIEW(""));
    for (size_t i = 1; i < items.list->n; i++) {
        if (!tmpl_to_str(r, items.list->v[i], &text)) return false;
        *out = tmpl_append(r, *out, text.s->v);
    }
    return true;
}

static bool eval_compare(struct trun *r, const struct tnode *n, struct tval *out) {
    struct tval a, b;
    bool yes = true;
    if (!tmpl_eval(r, n->cmp.first, &a)) return false;
    for (const struct tnode *i = n->cmp.rest; yes && i; i = i->next) {
        if (!tmpl_eval(r, i->bin.a, &b)) return false;
        r->at = i;
        if (!tmpl_compare(r, (enum cmp_op)i->bin.op, a, b, &yes)) return false;
        a = b;
    }
    *out = tmpl_bool(yes);
    return true;
}

static bool eval_item(struct trun *r, const struct tnode *n, struct tval *out) {
    struct tval obj, key, bounds[3] = {tmpl_none(), tmpl_none(), tmpl_none()};
    const struct tnode *k = n->bin.b;
    if (!tmpl_eval(r, n->bin.a, &obj)) return false;
    if (k->kind != N_SLICE) {
        if (!tmpl_eval(r, k, &key)) return false;
        r->at = n;
        return tmpl_item(r, obj, key, out);
    }
    if (k->slice.from && !tmpl_eval(r, k->slice.from, &bounds[0])) return false;
    if (k->slice.to && !tmpl_eval(r, k->slice.to, &bounds[1])) return false;
    if (k->slice.step && !tmpl_eval(r, k->slice.step, &bounds[2])) return false;
    r->at = n;
    return tmpl_slice(r, obj, bounds, out);
}

static bool eval_call(struct trun *r, const struct tnode *n, struct tval *out) {
    struct tval callee;
    struct tcall c = {0};
    if (!tmpl_eval(r, n->call.func, &callee)) return false;
    if (!tmpl_eval_args(r, &n->call.args, &c)) return false;
    r->at = n;
    if (!tmpl_call(r, callee, &c)) return false;
    *out = c.out;
    return true;
}

/* A filter or a test. A filter block's innermost filter has no operand: its text is `*out`. */
static bool eval_filter(struct trun *r, const struct tnode *n, struct tval *out) {
    struct tcall c = {0};
    if (n->filter.obj && !tmpl_eval(r, n->filter.obj, out)) return false;
    c.self = *out;
    if (!tmpl_eval_args(r, &n->filter.args, &c)) return false;
    r->at = n;
    if (!n->filter.func)
        return tmpl_fail(r, "No %s named '%.*s' found.", n->kind == N_TEST ? "test" : "filter",
                         VIEW_FMT(n->filter.name));
    if (!tmpl_call_func(r, n->filter.func, &c)) return false;
    *out = c.out;
    return true;
}

static bool eval_binary(struct trun *r, const struct tnode *n, struct tval *out) {
    struct tval a, b;
    if (!tmpl_eval(r, n->bin.a, &a)) return false;
    if (n->kind == N_AND || n->kind == N_OR) {
        if (tmpl_truth(r, a) == (n->kind == N_OR)) return *out = a, true;
        return tmpl_eval(r, n->bin.b, out);
    }
    if (n->kind == N_NOT) return *out = tmpl_bool(!tmpl_truth(r, a)), true;
    if (n->kind == N_BINARY && !tmpl_eval(r, n->bin.b, &b)) return false;
    r->at = n;
    if (n->kind == N_BINARY) return tmpl_binary(r, n->bin.op, a, b, out);
    return tmpl_negate(r, n->kind == N_NEG, a, out);
}

static bool eval_attr(struct trun *r, const struct tnode *n, struct tval *out) {
    struct tval obj;
    if (!tmpl_eval(r, n->attr.obj, &obj)) return false;
    r->at = n;
    return tmpl_attr(r, obj, n->attr.name, out);
}

static bool eval_node(struct trun *r, const struct tnode *n, struct tval *out) {
    switch (n->kind) {
    case N_CONST: return *out = n->value, true;
    case N_NAME: return *out = tmpl_lookup(r, n->name), true;
    case N_LIST:
    case N_TUPLE: return eval_items(r, n, out);
    case N_DICT: return eval_dict(r, n, out);
    case N_COND: return eval_cond(r, n, out);
    case N_CONCAT: return eval_concat(r, n, out);
    case N_COMPARE: return eval_compare(r, n, out);
    case N_ATTR: return eval_attr(r, n, out);
    case N_ITEM: return eval_item(r, n, out);
    case N_SLICE: return tmpl_fail(r, "unhashable type: 'slice'"); /* x[1:2, 3] */
    case N_CALL: return eval_call(r, n, out);
    case N_FILTER:
    case N_TEST: return eval_filter(r, n, out);
    default: return eval_binary(r, n, out);
    }
}

bool tmpl_eval(struct trun *r, const struct tnode *n, struct tval *out) {
    r->at = n;
    if (!tmpl_step(r, 1) || !tmpl_enter(r)) return false;
    bool ok = eval_node(r, n, out);
    r->depth--;
    return ok && !r->failed;
}
