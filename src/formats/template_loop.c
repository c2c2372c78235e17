/* The state of a running for loop, which templates see as `loop`. Items are pulled one at a time,
 * as Python's generators do it: a loop's `if` may depend on what the body did before. */
#include "formats/template_builtin.h"

bool tmpl_loop_init(struct trun *r, struct tloop *l, const struct tnode *node, struct tval items) {
    *l = (struct tloop){.node = node,
                        .test = node->loop.test,
                        .outer = r->scope,
                        .whole = items,
                        .index0 = -1,
                        .length = -1};
    return tmpl_cursor(r, items, &l->src);
}

/* Whether an item passes the loop's `if`. One that was unpacked for it goes on as a tuple. */
static bool passes(struct trun *r, struct tloop *l, struct tval *item, bool *yes) {
    struct tscope test = {.up = l->outer}, *inner = r->scope;
    const struct tnode *target = l->node->loop.target;
    struct tval v = tmpl_bool(true);
    r->scope = &test;
    bool ok = tmpl_assign(r, target, *item) && tmpl_eval(r, l->test, &v) &&
              (target->kind != N_TUPLE || tmpl_eval(r, target, item));
    r->scope = inner;
    *yes = ok && tmpl_truth(r, v);
    return ok;
}

static bool pull(struct trun *r, struct tloop *l, struct tval *out) {
    bool yes;
    for (;;) {
        if (!tmpl_next(r, &l->src, out)) return false;
        if (out->kind == T_ABSENT || !l->test) return true;
        if (!passes(r, l, out, &yes)) return false;
        if (yes) return true;
    }
}

static bool peek(struct trun *r, struct tloop *l, struct tval *out) {
    if (!l->have_after && !pull(r, l, &l->after)) return false;
    l->have_after = l->after.kind != T_ABSENT;
    *out = l->after;
    return true;
}

bool tmpl_loop_next(struct trun *r, struct tloop *l, struct tval *out) {
    if (!peek(r, l, out)) return false;
    l->have_after = false;
    if (out->kind == T_ABSENT) return true;
    l->index0++;
    l->before = l->current;
    l->current = *out;
    return true;
}

bool tmpl_loop_length(struct trun *r, struct tloop *l, size_t *n) {
    struct tval item;
    if (l->length >= 0) return *n = (size_t)l->length, true;
    if (!l->test && l->whole.kind != T_ITER) {
        if (!tmpl_len(r, l->whole, n)) return false;
        l->length = (i64)*n;
        return true;
    }
    struct tval rest = tmpl_list(r);
    for (;;) {
        if (!pull(r, l, &item)) return false;
        if (item.kind == T_ABSENT) break;
        tmpl_push(r, rest.list, item);
    }
    l->length = (i64)rest.list->n + l->index0 + 1 + l->have_after;
    *n = (size_t)l->length;
    l->test = NULL; /* what was read goes on as a plain list; its items have passed */
    return tmpl_cursor(r, rest, &l->src);
}

static bool f_cycle(struct trun *r, struct tcall *c) {
    if (c->n_pos == 0) return tmpl_fail(r, "no items for cycling given");
    c->out = c->pos[(size_t)c->self.loop->index0 % c->n_pos];
    return true;
}

static bool f_changed(struct trun *r, struct tcall *c) {
    struct tloop *l = c->self.loop;
    struct tval now = tmpl_tuple(r, c->pos, c->n_pos);
    bool same;
    if (!tmpl_equal(r, l->last_changed, now, &same)) return false;
    l->last_changed = now;
    c->out = tmpl_bool(!same);
    return true;
}

static struct tval neighbour(struct trun *r, struct tval v, bool there, const char *hint) {
    return there ? v : tmpl_undef_hint(r, hint);
}

bool tmpl_loop_attr(struct trun *r, struct tval loop, struct view name, struct tval *out) {
    static const struct tfunc funcs[] = {{"cycle", "*", f_cycle, 0},
                                         {"changed", "*", f_changed, 0}};
    struct tloop *l = loop.loop;
    struct tval next;
    size_t n = 0;
    *out = (struct tval){0};
    if (view_is(name, "index")) return *out = tmpl_int(l->index0 + 1), true;
    if (view_is(name, "index0")) return *out = tmpl_int(l->index0), true;
    if (view_is(name, "first")) return *out = tmpl_bool(l->index0 == 0), true;
    if (view_is(name, "depth")) return *out = tmpl_int(l->depth0 + 1), true;
    if (view_is(name, "depth0")) return *out = tmpl_int(l->depth0), true;
    if (view_is(name, "previtem")) {
        *out = neighbour(r, l->before, l->index0 > 0, "there is no previous item");
        return true;
    }
    if (view_is(name, "last") || view_is(name, "nextitem")) {
        if (!peek(r, l, &next)) return false;
        bool there = next.kind != T_ABSENT;
        *out = view_is(name, "last") ? tmpl_bool(!there)
                                     : neighbour(r, next, there, "there is no next item");
        return true;
    }
    bool rev = view_is(name, "revindex"), rev0 = view_is(name, "revindex0");
    if (rev || rev0 || view_is(name, "length")) {
        if (!tmpl_loop_length(r, l, &n)) return false;
        *out = tmpl_int((i64)n - (rev || rev0 ? l->index0 + rev0 : 0));
        return true;
    }
    const struct tfunc *f = tmpl_find_func(funcs, ARRAY_LEN(funcs), name);
    if (!f) return true;
    struct tmethod *m = tmpl_alloc(r, sizeof *m);
    *m = (struct tmethod){loop, f};
    *out = (struct tval){.kind = T_METHOD, .method = m};
    return true;
}
