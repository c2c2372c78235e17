/* Execution of statements: scopes, assignment, loops, macros. A loop's iterations, macros, call,
 * filter, with and set blocks have their own scope, an `if` has none: as in jinja2, what a loop
 * body sets is gone in the next iteration. Names are looked up when they are used. jinja2 decides
 * while compiling, which differs in one corner: where a block sets a name that the variables have
 * too, the loops and macros inside it that stand before the set see it undefined there; here they
 * see the variable. */
#include <string.h>

#include "formats/template_builtin.h"

enum jump { JUMP_NONE, JUMP_BREAK, JUMP_CONTINUE };

static struct tscope *scope_new(struct trun *r, struct tscope *up) {
    struct tscope *s = tmpl_alloc(r, sizeof *s);
    s->up = up;
    return s;
}

static void scope_set(struct trun *r, struct tscope *s, u32 name, struct tval v) {
    for (u32 i = 0; i < s->n; i++)
        if (s->var[i].name == name) {
            s->var[i].v = v;
            return;
        }
    if (s->n == s->cap) {
        s->cap = MAX(4u, s->cap * 2);
        struct tvar *var = tmpl_alloc(r, s->cap * sizeof *var);
        if (s->n) memcpy(var, s->var, s->n * sizeof *var);
        s->var = var;
    }
    s->var[s->n++] = (struct tvar){name, v};
}

struct tval tmpl_lookup(struct trun *r, u32 name) {
    for (const struct tscope *s = r->scope; s; s = s->up)
        for (u32 i = 0; i < s->n; i++)
            if (s->var[i].name == name) return s->var[i].v;
    if (r->globals[name].kind != T_ABSENT) return r->globals[name];
    return tmpl_undef(r, (struct tval){0}, tmpl_str(r, r->t->names[name]));
}

static bool assign_tuple(struct trun *r, const struct tnode *target, struct tval v) {
    struct tval list;
    size_t want = 0, i = 0;
    for (const struct tnode *t = target->items; t; t = t->next) want++;
    if (v.kind == T_UNDEF)
        list = tmpl_list(r);
    else if (!tmpl_to_list(r, v, &list))
        return false;
    if (list.list->n < want)
        return tmpl_fail(r, "not enough values to unpack (expected %zu, got %zu)", want,
                         list.list->n);
    if (list.list->n > want) return tmpl_fail(r, "too many values to unpack (expected %zu)", want);
    for (const struct tnode *t = target->items; t; t = t->next)
        if (!tmpl_assign(r, t, list.list->v[i++])) return false;
    return true;
}

bool tmpl_assign(struct trun *r, const struct tnode *target, struct tval v) {
    if (target->kind == N_NAME) {
        scope_set(r, r->scope, target->name, v);
        return true;
    }
    r->at = target;
    if (target->kind == N_TUPLE) return assign_tuple(r, target, v);
    struct tval ns = tmpl_lookup(r, target->ns_attr.ns);
    if (ns.kind != T_NAMESPACE)
        return tmpl_fail(r, "cannot assign attribute on non-namespace object");
    if (target->ns_attr.name.s->v.p[0] == '_')
        return tmpl_fail(r, "a namespace attribute may not begin with an underscore");
    return tmpl_dict_set(r, ns.dict, target->ns_attr.name, v);
}

/* Executes body in `scope`, its output as a string in *out. */
static bool capture(struct trun *r, const struct tnode *body, struct tscope *scope,
                    struct tval *out) {
    struct tbuf b = {0}, *outer_out = r->out;
    struct tscope *outer_scope = r->scope;
    r->out = &b;
    r->scope = scope;
    bool ok = tmpl_exec(r, body);
    r->out = outer_out;
    r->scope = outer_scope;
    *out = tmpl_buf_str(r, &b);
    return ok;
}

static bool exec_output(struct trun *r, const struct tnode *n) {
    struct tval v;
    return tmpl_eval(r, n->expr, &v) && tmpl_put_str(r, r->out, v);
}

static bool exec_block(struct trun *r, const struct tnode *n) {
    struct tval v;
    if (!capture(r, n->set_block.body, scope_new(r, r->scope), &v)) return false;
    if (r->jump != JUMP_NONE) return true; /* the loop is left before the block is complete */
    if (n->set_block.filter && !tmpl_eval(r, n->set_block.filter, &v)) return false;
    return n->kind == N_SET_BLOCK ? tmpl_assign(r, n->set_block.target, v)
                                  : tmpl_put_str(r, r->out, v);
}

static bool exec_for(struct trun *r, const struct tnode *n, struct tval items, i64 depth0) {
    struct tloop *l = tmpl_alloc(r, sizeof *l);
    struct tscope *outer = r->scope, *inner = scope_new(r, outer);
    struct tval item, self = {.kind = T_LOOP, .loop = l};
    bool ok = true, completed = false; /* a body, up to its end: else is for when none was */
    r->at = n->loop.iter;
    if (!tmpl_loop_init(r, l, n, items)) return false;
    l->depth0 = depth0;
    for (;;) {
        if (!tmpl_loop_next(r, l, &item)) return false;
        if (item.kind == T_ABSENT) break;
        inner->n = 0;
        r->scope = inner;
        scope_set(r, inner, r->t->name_loop, self);
        ok = tmpl_assign(r, n->loop.target, item) && tmpl_exec(r, n->loop.body);
        r->scope = outer;
        if (!ok) return false;
        bool stop = r->jump == JUMP_BREAK;
        completed = completed || r->jump == JUMP_NONE;
        r->jump = JUMP_NONE;
        if (stop) break;
    }
    if (completed || !n->loop.other) return true;
    r->scope = scope_new(r, outer);
    ok = tmpl_exec(r, n->loop.other);
    r->scope = outer;
    return ok;
}

bool tmpl_call_loop(struct trun *r, struct tloop *l, struct tcall *c) {
    struct tbuf b = {0}, *outer_out = r->out;
    struct tscope *outer_scope = r->scope;
    if (!l->node->loop.recursive)
        return tmpl_fail(r, "The loop must have the 'recursive' marker to be called recursively.");
    if (c->n_pos != 1 || c->kw) return tmpl_fail(r, "loop() takes one argument");
    if (!tmpl_enter(r)) return false;
    r->out = &b;
    r->scope = l->outer;
    bool ok = exec_for(r, l->node, c->pos[0], l->depth0 + 1);
    r->out = outer_out;
    r->scope = outer_scope;
    r->depth--;
    c->out = tmpl_buf_str(r, &b);
    return ok;
}

static struct tval macro_value(struct trun *r, const struct tmacro_def *def) {
    struct tmacro *m = tmpl_alloc(r, sizeof *m);
    *m = (struct tmacro){.def = def, .scope = r->scope};
    return (struct tval){.kind = T_MACRO, .macro = m};
}

/* Removes key from kw. */
static bool kw_pop(struct tdict *kw, struct view key, struct tval *out) {
    for (size_t i = 0; i < kw->n; i++) {
        if (!view_eq(kw->v[i].key.s->v, key)) continue;
        *out = kw->v[i].val;
        memmove(&kw->v[i], &kw->v[i + 1], (kw->n - i - 1) * sizeof *kw->v);
        kw->n--;
        kw->index = NULL;
        return true;
    }
    return false;
}

/* Parameters that were passed get their value, the others stand as undefined until their defaults
 * are evaluated, first to last, so that a default may use the parameters before it. */
static bool bind_params(struct trun *r, const struct tmacro_def *def, struct tcall *c,
                        struct tdict *kw, struct tscope *s) {
    const struct tnode *value = def->defaults;
    u64 missing = 0;
    size_t i = 0, required = def->n_params - def->n_defaults;
    struct tval v;
    for (const struct tnode *p = def->params; p; p = p->next, i++) {
        struct view name = r->t->names[p->name];
        if (i < c->n_pos)
            v = c->pos[i];
        else if (!kw_pop(kw, name, &v)) {
            missing |= (u64)1 << i;
            v = tmpl_undef_hint(
                r, arena_printf(&r->arena, "parameter '%.*s' was not provided", VIEW_FMT(name)));
        }
        scope_set(r, s, p->name, v);
    }
    i = 0;
    for (const struct tnode *p = def->params; p; p = p->next, i++) {
        if (i < required) continue;
        if (missing >> i & 1) {
            if (!tmpl_eval(r, value, &v)) return false;
            scope_set(r, s, p->name, v);
        }
        value = value->next;
    }
    return true;
}

static bool bind_specials(struct trun *r, const struct tmacro_def *def, struct tcall *c,
                          struct tdict *kw, struct tscope *s) {
    struct tval v;
    bool caller = def->uses_caller && !def->explicit_caller;
    if (caller) {
        if (!kw_pop(kw, VIEW("caller"), &v)) v = tmpl_undef_hint(r, "No caller defined");
        scope_set(r, s, r->t->name_caller, v);
    }
    if (def->uses_kwargs)
        scope_set(r, s, r->t->name_kwargs, (struct tval){.kind = T_DICT, .dict = kw});
    else if (kw->n)
        return tmpl_fail(r, "macro '%.*s' takes no keyword argument '%.*s'", VIEW_FMT(def->name),
                         VIEW_FMT(kw->v[0].key.s->v));
    size_t extra = c->n_pos > def->n_params ? c->n_pos - def->n_params : 0;
    if (def->uses_varargs)
        scope_set(r, s, r->t->name_varargs, tmpl_tuple(r, c->pos + c->n_pos - extra, extra));
    else if (extra)
        return tmpl_fail(r, "macro '%.*s' takes not more than %u argument(s)", VIEW_FMT(def->name),
                         def->n_params);
    return true;
}

bool tmpl_call_macro(struct trun *r, const struct tmacro *m, struct tcall *c) {
    struct tscope *s = scope_new(r, m->scope), *outer = r->scope;
    struct tdict *kw = tmpl_dict(r).dict;
    for (size_t i = 0; c->kw && i < c->kw->n; i++)
        tmpl_dict_append(r, kw, c->kw->v[i].key, c->kw->v[i].val);
    r->scope = s;
    bool ok = bind_params(r, m->def, c, kw, s) && bind_specials(r, m->def, c, kw, s);
    r->scope = outer;
    return ok && capture(r, m->def->body, s, &c->out);
}

static bool exec_call_block(struct trun *r, const struct tnode *n) {
    const struct tnode *call = n->call_block.call;
    struct tval callee, caller = macro_value(r, n->call_block.def);
    struct tcall c = {0};
    struct tdict *kw = tmpl_dict(r).dict;
    if (!tmpl_eval(r, call->call.func, &callee)) return false;
    if (!tmpl_eval_args(r, &call->call.args, &c)) return false;
    for (size_t i = 0; c.kw && i < c.kw->n; i++)
        tmpl_dict_append(r, kw, c.kw->v[i].key, c.kw->v[i].val);
    r->at = n;
    if (!tmpl_dict_set(r, kw, tmpl_strz(r, "caller"), caller)) return false;
    c.kw = kw;
    return tmpl_call(r, callee, &c) && tmpl_put_str(r, r->out, c.out);
}

static bool exec_if(struct trun *r, const struct tnode *n) {
    struct tval v;
    for (;;) {
        if (!tmpl_eval(r, n->cond.test, &v)) return false;
        if (tmpl_truth(r, v)) return tmpl_exec(r, n->cond.then);
        if (!n->cond.other) return true;
        if (!n->cond.other_is_elif) return tmpl_exec(r, n->cond.other);
        n = n->cond.other;
    }
}

static bool exec_with(struct trun *r, const struct tnode *n) {
    struct tscope *outer = r->scope, *s = scope_new(r, outer);
    struct tval v;
    for (const struct tnode *i = n->with.items; i; i = i->next) {
        if (!tmpl_eval(r, i->set.value, &v)) return false;
        r->scope = s;
        bool ok = tmpl_assign(r, i->set.target, v);
        r->scope = outer;
        if (!ok) return false;
    }
    r->scope = s;
    bool ok = tmpl_exec(r, n->with.body);
    r->scope = outer;
    return ok;
}

static bool exec_node(struct trun *r, const struct tnode *n) {
    struct tval v;
    struct tcall c = {0};
    switch (n->kind) {
    case N_TEXT: return tmpl_put(r, r->out, n->str.v), true;
    case N_OUTPUT: return exec_output(r, n);
    case N_IF: return exec_if(r, n);
    case N_FOR: return tmpl_eval(r, n->loop.iter, &v) && exec_for(r, n, v, 0);
    case N_SET: return tmpl_eval(r, n->set.value, &v) && tmpl_assign(r, n->set.target, v);
    case N_SET_BLOCK:
    case N_FILTER_BLOCK: return exec_block(r, n);
    case N_MACRO: scope_set(r, r->scope, n->macro.name, macro_value(r, n->macro.def)); return true;
    case N_CALL_BLOCK: return exec_call_block(r, n);
    case N_WITH: return exec_with(r, n);
    case N_GENERATION:
        v = macro_value(r, n->macro.def);
        return tmpl_call_macro(r, v.macro, &c) && tmpl_put_str(r, r->out, c.out);
    case N_BREAK: return r->jump = JUMP_BREAK, true;
    case N_CONTINUE: return r->jump = JUMP_CONTINUE, true;
    default: return tmpl_fail_code(r, ERR_INTERNAL, "no such statement");
    }
}

bool tmpl_exec(struct trun *r, const struct tnode *body) {
    if (!tmpl_enter(r)) return false;
    bool ok = true;
    for (const struct tnode *n = body; ok && n && r->jump == JUMP_NONE; n = n->next) {
        r->at = n;
        ok = tmpl_step(r, 1) && exec_node(r, n) && !r->failed;
        if (ok && r->out->n > r->output_max)
            ok = tmpl_fail_code(r, ERR_LIMIT, "the template writes more than %llu bytes",
                                (unsigned long long)r->output_max);
    }
    r->depth--;
    return ok;
}
