/* obj.name, obj[key] and obj[a:b:c], as jinja2's sandbox finds them. */
#include <string.h>

#include "formats/template_builtin.h"

static struct tval method_value(struct trun *r, struct tval self, const struct tfunc *f) {
    struct tmethod *m = tmpl_alloc(r, sizeof *m);
    *m = (struct tmethod){self, f};
    return (struct tval){.kind = T_METHOD, .method = m};
}

static struct tval macro_attr(struct trun *r, const struct tmacro_def *def, struct view name) {
    if (view_is(name, "name")) return tmpl_str(r, def->name);
    if (view_is(name, "catch_kwargs")) return tmpl_bool(def->uses_kwargs);
    if (view_is(name, "catch_varargs")) return tmpl_bool(def->uses_varargs);
    if (view_is(name, "caller")) return tmpl_bool(def->uses_caller);
    if (!view_is(name, "arguments")) return (struct tval){0};
    struct tval names = tmpl_tuple(r, NULL, 0);
    for (const struct tnode *p = def->params; p; p = p->next)
        tmpl_push(r, names.list, tmpl_str(r, r->t->names[p->name]));
    return names;
}

static struct tval range_attr(const struct trange *g, struct view name) {
    if (view_is(name, "start")) return tmpl_int(g->start);
    if (view_is(name, "stop")) return tmpl_int(g->stop);
    if (view_is(name, "step")) return tmpl_int(g->step);
    return (struct tval){0};
}

/* Python's getattr: *out T_ABSENT when there is no such attribute. */
static bool raw_attr(struct trun *r, struct tval obj, struct tval key, struct tval *out) {
    struct view name = key.s->v;
    *out = (struct tval){0};
    if (obj.kind == T_UNDEF) return tmpl_fail_undef(r, obj);
    if (obj.kind == T_LOOP) return tmpl_loop_attr(r, obj, name, out);
    if (obj.kind == T_NAMESPACE) {
        struct tval *v = tmpl_dict_get(r, obj.dict, key, NULL);
        if (v) *out = *v;
        return true;
    }
    if (obj.kind == T_TUPLE && obj.sub && view_is(name, "grouper"))
        return *out = obj.list->v[0], true;
    if (obj.kind == T_TUPLE && obj.sub && view_is(name, "list")) return *out = obj.list->v[1], true;
    if (obj.kind == T_MACRO) *out = macro_attr(r, obj.macro->def, name);
    if (obj.kind == T_RANGE) *out = range_attr(obj.range, name);
    if (obj.kind == T_CYCLER && view_is(name, "current"))
        *out = obj.cycler->items->v[obj.cycler->pos];
    if (out->kind != T_ABSENT) return true;
    const struct tfunc *f = tmpl_method(obj, name);
    if (!f) return true;
    if (f->fn) return *out = method_value(r, obj, f), true;
    if (strcmp(f->params, "unsafe") != 0)
        return tmpl_fail_code(r, ERR_UNSUPPORTED, "the method '%s' of '%s' is not supported",
                              f->name, tmpl_type_name(obj));
    *out = tmpl_undef_hint(r, arena_printf(&r->arena,
                                           "access to attribute '%s' of '%s' object is unsafe.",
                                           f->name, tmpl_type_name(obj)));
    return true;
}

static struct tval str_at(struct trun *r, struct tval s, i64 i) {
    struct view v = s.s->v;
    bool ascii = tmpl_str_len(s) == v.n;
    size_t from = ascii ? (size_t)i : tmpl_cp_offset(v, 0, (size_t)i);
    size_t to = ascii ? from + 1 : tmpl_cp_offset(v, from, 1);
    struct tval out = tmpl_str(r, (struct view){v.p + from, to - from});
    out.s->markup = s.s->markup;
    return out;
}

/* Element i, which lies in the sequence. */
static struct tval seq_at(struct trun *r, struct tval obj, i64 i) {
    if (obj.kind == T_STR) return str_at(r, obj, i);
    if (obj.kind == T_RANGE) return tmpl_int(obj.range->start + i * obj.range->step);
    return obj.list->v[i];
}

static bool is_indexed(struct tval v) {
    return v.kind == T_STR || v.kind == T_LIST || v.kind == T_TUPLE || v.kind == T_RANGE;
}

/* Python's obj[key]: *out T_ABSENT where that raises TypeError or LookupError. */
static bool raw_item(struct trun *r, struct tval obj, struct tval key, struct tval *out) {
    size_t n;
    i64 i;
    *out = (struct tval){0};
    if (obj.kind == T_UNDEF) return tmpl_fail_undef(r, obj);
    if (obj.kind == T_DICT) {
        if (key.kind == T_LIST || key.kind == T_DICT) return true; /* unhashable */
        bool fail;
        struct tval *v = tmpl_dict_get(r, obj.dict, key, &fail);
        if (v) *out = *v;
        return !fail;
    }
    if (!is_indexed(obj) || !tmpl_is_int(key, &i)) return true;
    if (!tmpl_len(r, obj, &n) || !tmpl_step(r, obj.kind == T_STR ? n / 256 : 0)) return false;
    if (i < 0) i += (i64)n;
    if (i >= 0 && i < (i64)n) *out = seq_at(r, obj, i);
    return true;
}

bool tmpl_attr(struct trun *r, struct tval obj, struct tval name, struct tval *out) {
    if (!raw_attr(r, obj, name, out)) return false;
    if (out->kind == T_ABSENT && !raw_item(r, obj, name, out)) return false;
    if (out->kind == T_ABSENT) *out = tmpl_undef(r, obj, name);
    return true;
}

bool tmpl_item(struct trun *r, struct tval obj, struct tval key, struct tval *out) {
    if (!raw_item(r, obj, key, out)) return false;
    if (out->kind == T_ABSENT && key.kind == T_STR && !raw_attr(r, obj, key, out)) return false;
    if (out->kind == T_ABSENT) *out = tmpl_undef(r, obj, key);
    return true;
}

static bool bound(struct trun *r, struct tval v, i64 missing, i64 n, i64 low, i64 high, i64 *out) {
    if (v.kind == T_NONE) return *out = missing, true;
    if (!tmpl_is_int(v, out))
        return tmpl_fail(r, "slice indices must be integers or None or have an __index__ method");
    if (*out < 0) *out = *out < -n ? low : *out + n;
    *out = MAX(low, MIN(*out, high));
    return true;
}

struct slice {
    i64 from, to, step, count;
};

/* A slice of n elements, clamped as Python's slice.indices does it. */
static bool slice_of(struct trun *r, const struct tval b[3], i64 n, struct slice *s) {
    *s = (struct slice){.step = 1};
    if (b[2].kind != T_NONE && !tmpl_is_int(b[2], &s->step))
        return tmpl_fail(r, "slice indices must be integers or None or have an __index__ method");
    if (s->step == 0) return tmpl_fail(r, "slice step cannot be zero");
    s->step = MAX(-INT64_MAX, s->step);
    bool down = s->step < 0;
    i64 low = down ? -1 : 0, high = down ? n - 1 : n;
    if (!bound(r, b[0], down ? high : low, n, low, high, &s->from)) return false;
    if (!bound(r, b[1], down ? low : high, n, low, high, &s->to)) return false;
    i64 span = down ? s->from - s->to : s->to - s->from;
    s->count = span <= 0 ? 0 : (span - 1) / (down ? -s->step : s->step) + 1;
    return true;
}

static bool slice_str(struct trun *r, struct tval str, const struct slice *s, struct tval *out) {
    struct view v = str.s->v;
    bool ascii = tmpl_str_len(str) == v.n;
    if (!tmpl_step(r, v.n / 256 + (s->step == 1 ? 0 : (u64)s->count))) return false;
    if (s->step == 1) {
        size_t a = ascii ? (size_t)s->from : tmpl_cp_offset(v, 0, (size_t)s->from);
        size_t n = ascii ? (size_t)s->count : tmpl_cp_offset(v, a, (size_t)s->count) - a;
        *out = tmpl_str(r, (struct view){v.p + a, n});
    } else {
        struct tbuf b = {0};
        size_t at = s->count ? tmpl_cp_offset(v, 0, (size_t)s->from) : 0;
        for (i64 k = 0; k < s->count; k++) {
            size_t next = at;
            tmpl_putc(r, &b, tmpl_cp_next(v, &next));
            if (k + 1 == s->count) break;
            for (i64 m = 0; m > s->step; m--) tmpl_cp_prev(v, &at);
            if (s->step > 0) at = tmpl_cp_offset(v, at, (size_t)s->step);
        }
        *out = tmpl_buf_str(r, &b);
    }
    out->s->markup = str.s->markup;
    return true;
}

static bool slice_range(struct trun *r, const struct trange *g, const struct slice *s,
                        struct tval *out) {
    struct trange *cut = tmpl_alloc(r, sizeof *cut);
    i64 from, to;
    cut->n = (size_t)s->count;
    bool over = __builtin_mul_overflow(s->from, g->step, &from) ||
                __builtin_add_overflow(g->start, from, &cut->start) ||
                __builtin_mul_overflow(s->to, g->step, &to) ||
                __builtin_add_overflow(g->start, to, &cut->stop) ||
                __builtin_mul_overflow(s->step, g->step, &cut->step);
    *out = (struct tval){.kind = T_RANGE, .range = cut};
    return !over || tmpl_fail_code(r, ERR_LIMIT, "the slice of a range does not fit into 64 bits");
}

bool tmpl_slice(struct trun *r, struct tval obj, const struct tval bounds[3], struct tval *out) {
    size_t n;
    struct slice s;
    if (obj.kind == T_UNDEF) return tmpl_fail_undef(r, obj);
    if (obj.kind == T_DICT) return tmpl_fail(r, "unhashable type: 'slice'");
    if (!is_indexed(obj))
        return tmpl_fail(r, "'%s' object is not subscriptable", tmpl_type_name(obj));
    if (!tmpl_len(r, obj, &n) || !slice_of(r, bounds, (i64)n, &s)) return false;
    if (obj.kind == T_STR) return slice_str(r, obj, &s, out);
    if (obj.kind == T_RANGE) return slice_range(r, obj.range, &s, out);
    if (!tmpl_step(r, (u64)s.count)) return false;
    *out = obj.kind == T_TUPLE ? tmpl_tuple(r, NULL, 0) : tmpl_list(r);
    for (i64 i = 0; i < s.count; i++) tmpl_push(r, out->list, obj.list->v[s.from + i * s.step]);
    return true;
}
