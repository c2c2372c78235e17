/* Global functions: jinja2's own and the two that transformers adds. */
#include "formats/template_builtin.h"

enum { RANGE_MAX = 100000 }; /* jinja2's sandbox has the same */

static bool g_range(struct trun *r, struct tcall *c) {
    struct trange g = {.step = 1};
    i64 arg[3] = {0, 0, 1};
    for (int i = 0; i < 3; i++)
        if (!tmpl_arg_int(r, c, i, arg[i], &arg[i])) return false;
    bool one = c->arg[1].kind == T_ABSENT;
    g.start = one ? 0 : arg[0];
    g.stop = one ? arg[0] : arg[1];
    g.step = arg[2];
    if (g.step == 0) return tmpl_fail(r, "range() arg 3 must not be zero");
    bool some = g.step > 0 ? g.start < g.stop : g.start > g.stop;
    u64 span = g.step > 0 ? (u64)g.stop - (u64)g.start : (u64)g.start - (u64)g.stop;
    u64 step = g.step > 0 ? (u64)g.step : 0 - (u64)g.step, n = some ? (span - 1) / step + 1 : 0;
    if (n > RANGE_MAX)
        return tmpl_fail(r, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).",
                         RANGE_MAX);
    g.n = n;
    c->out = (struct tval){.kind = T_RANGE, .range = tmpl_alloc(r, sizeof g)};
    *c->out.range = g;
    return true;
}

/* What dict() and namespace() take: a mapping or pairs, and keywords. */
static bool fill_dict(struct trun *r, struct tcall *c, struct tdict *d) {
    struct tcursor cur;
    struct tval v, pair;
    if (c->n_pos > 1) return tmpl_fail(r, "dict expected at most 1 argument, got %zu", c->n_pos);
    if (c->n_pos == 1) {
        v = c->pos[0];
        if (v.kind == T_DICT) v.kind = T_VIEW, v.sub = VIEW_ITEMS;
        if (!tmpl_cursor(r, v, &cur)) return false;
        for (;;) {
            if (!tmpl_next(r, &cur, &v)) return false;
            if (v.kind == T_ABSENT) break;
            if (!tmpl_to_list(r, v, &pair)) return false;
            if (pair.list->n != 2)
                return tmpl_fail(r,
                                 "dictionary update sequence element has length %zu; 2 is "
                                 "required",
                                 pair.list->n);
            if (!tmpl_dict_set(r, d, pair.list->v[0], pair.list->v[1])) return false;
        }
    }
    for (size_t i = 0; c->kw && i < c->kw->n; i++)
        if (!tmpl_dict_set(r, d, c->kw->v[i].key, c->kw->v[i].val)) return false;
    return true;
}

static bool g_dict(struct trun *r, struct tcall *c) {
    c->out = tmpl_dict(r);
    return fill_dict(r, c, c->out.dict);
}

static bool g_namespace(struct trun *r, struct tcall *c) {
    c->out = tmpl_dict(r);
    c->out.kind = T_NAMESPACE;
    if (!fill_dict(r, c, c->out.dict)) return false;
    for (size_t i = 0; i < c->out.dict->n; i++) {
        struct tval key = c->out.dict->v[i].key;
        if (key.kind == T_STR && key.s->v.n && key.s->v.p[0] == '_')
            return tmpl_fail(r, "a namespace attribute may not begin with an underscore");
    }
    return true;
}

static bool g_cycler(struct trun *r, struct tcall *c) {
    if (c->n_pos == 0) return tmpl_fail(r, "at least one item has to be provided");
    struct tcycler *cy = tmpl_alloc(r, sizeof *cy);
    cy->items = tmpl_tuple(r, c->pos, c->n_pos).list;
    c->out = (struct tval){.kind = T_CYCLER, .cycler = cy};
    return true;
}

static bool g_joiner(struct trun *r, struct tcall *c) {
    struct tjoiner *j = tmpl_alloc(r, sizeof *j);
    j->sep = c->arg[0].kind == T_ABSENT ? tmpl_strz(r, ", ") : c->arg[0];
    c->out = (struct tval){.kind = T_JOINER, .joiner = j};
    return true;
}

/* The template's own refusal: its message alone, without a place. */
static bool g_raise_exception(struct trun *r, struct tcall *c) {
    struct tbuf b = {0};
    if (!tmpl_put_str(r, &b, c->arg[0])) return false;
    r->at = NULL;
    return tmpl_fail_code(r, ERR_ARG, "%.*s", (int)MIN(b.n, (size_t)1000), b.p ? b.p : "");
}

static bool g_strftime_now(struct trun *r, struct tcall *c) {
    struct view format;
    struct tbuf b = {0};
    if (!tmpl_arg_str(r, c, 0, &format)) return false;
    tmpl_put_time(r, &b, format, r->now_s + r->utc_offset_s);
    c->out = tmpl_buf_str(r, &b);
    return true;
}

void tmpl_set_globals(struct trun *r) {
    static const struct tfunc funcs[] = {
        {"range", "- -? -?", g_range, 0},
        {"dict", "*", g_dict, 0},
        {"namespace", "*", g_namespace, 0},
        {"cycler", "*", g_cycler, 0},
        {"joiner", "sep?", g_joiner, 0},
        {"raise_exception", "message", g_raise_exception, 0},
        {"strftime_now", "format", g_strftime_now, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(funcs); i++) {
        u32 name;
        if (tmpl_find_name(r->t, view_of(funcs[i].name), &name))
            r->globals[name] = (struct tval){.kind = T_FUNC, .func = &funcs[i]};
    }
}
