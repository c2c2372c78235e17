#include "formats/template_value.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "formats/template_ast.h"
#include "formats/template_builtin.h"

enum { DICT_LINEAR = 8 }; /* up to so many entries a dict is searched without an index */

bool tmpl_fail_code(struct trun *r, enum err_code code, const char *fmt, ...) {
    if (r->failed) return false;
    r->failed = true;
    char msg[900];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    size_t n = strlen(msg);
    msg[n - utf8_incomplete_tail(msg, n)] = 0;
    if (!r->at) return err_set(r->e, code, "%s", msg);
    return err_set(r->e, code, "line %u, column %u: %s", r->at->line, r->at->col, msg);
}

bool tmpl_fail(struct trun *r, const char *fmt, ...) {
    char msg[900];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    return tmpl_fail_code(r, ERR_FORMAT, "%s", msg);
}

bool tmpl_step(struct trun *r, u64 n) {
    if (r->failed) return false;
    if (n > r->steps_left) return tmpl_fail_code(r, ERR_LIMIT, "the template takes too many steps");
    r->steps_left -= n;
    return true;
}

bool tmpl_room(struct trun *r, u64 n) {
    if (r->failed) return false;
    if (n <= r->memory_max && r->arena.used_bytes <= r->memory_max - n) return true;
    return tmpl_fail_code(r, ERR_LIMIT, "the template needs more than %llu bytes of memory",
                          (unsigned long long)r->memory_max);
}

void *tmpl_alloc(struct trun *r, size_t n) {
    if (!r->failed && !tmpl_room(r, n)) r->failed = true;
    return arena_alloc(&r->arena, n);
}

bool tmpl_enter(struct trun *r) {
    if (r->depth >= r->depth_max)
        return tmpl_fail_code(r, ERR_LIMIT, "nested deeper than %u levels", r->depth_max);
    r->depth++;
    return true;
}

struct tval tmpl_str(struct trun *r, struct view borrowed) {
    struct tstr *s = tmpl_alloc(r, sizeof *s);
    *s = (struct tstr){.v = borrowed, .n_cp = SIZE_MAX};
    return (struct tval){.kind = T_STR, .s = s};
}

struct tval tmpl_strz(struct trun *r, const char *literal) {
    return tmpl_str(r, view_of(literal));
}

struct tval tmpl_str_copy(struct trun *r, struct view v) {
    char *p = tmpl_alloc(r, v.n + 1);
    if (v.n) memcpy(p, v.p, v.n);
    return tmpl_str(r, (struct view){p, v.n});
}

struct tval tmpl_list(struct trun *r) {
    return (struct tval){.kind = T_LIST, .list = tmpl_alloc(r, sizeof(struct tlist))};
}

void tmpl_push(struct trun *r, struct tlist *l, struct tval v) {
    if (l->n == l->cap) {
        size_t cap = MAX((size_t)4, l->cap * 2);
        struct tval *p = tmpl_alloc(r, cap * sizeof *p);
        if (l->n) memcpy(p, l->v, l->n * sizeof *p);
        l->v = p;
        l->cap = cap;
    }
    l->v[l->n++] = v;
}

struct tval tmpl_tuple(struct trun *r, const struct tval *v, size_t n) {
    struct tval t = tmpl_list(r);
    t.kind = T_TUPLE;
    for (size_t i = 0; i < n; i++) tmpl_push(r, t.list, v[i]);
    return t;
}

struct tval tmpl_dict(struct trun *r) {
    return (struct tval){.kind = T_DICT, .dict = tmpl_alloc(r, sizeof(struct tdict))};
}

struct tval tmpl_iter(struct trun *r, struct tval items, const char *name) {
    struct titer *it = tmpl_alloc(r, sizeof *it);
    *it = (struct titer){.items = items.list, .name = name};
    return (struct tval){.kind = T_ITER, .iter = it};
}

struct tval tmpl_undef(struct trun *r, struct tval obj, struct tval name) {
    struct tundef *u = tmpl_alloc(r, sizeof *u);
    if (obj.kind == T_NONE)
        u->obj_type = "None";
    else if (obj.kind == T_NAMESPACE || obj.kind == T_LOOP || obj.kind == T_MACRO)
        u->obj_type = tmpl_type_name(obj);
    else if (obj.kind != T_ABSENT)
        u->obj_type = arena_printf(&r->arena, "%s object", tmpl_type_name(obj));
    u->name = name;
    return (struct tval){.kind = T_UNDEF, .undef = u};
}

struct tval tmpl_undef_hint(struct trun *r, const char *hint) {
    struct tundef *u = tmpl_alloc(r, sizeof *u);
    u->hint = hint;
    return (struct tval){.kind = T_UNDEF, .undef = u};
}

bool tmpl_fail_undef(struct trun *r, struct tval v) {
    const struct tundef *u = v.undef;
    if (u->hint) return tmpl_fail(r, "%s", u->hint);
    struct tbuf b = {0};
    if (!tmpl_put_repr(r, &b, u->name)) return false;
    if (!u->obj_type) return tmpl_fail(r, "%.*s is undefined", (int)b.n, b.p);
    if (u->name.kind == T_STR)
        return tmpl_fail(r, "'%s' has no attribute %.*s", u->obj_type, (int)b.n, b.p);
    return tmpl_fail(r, "%s has no element %.*s", u->obj_type, (int)b.n, b.p);
}

static void index_put(struct tdict *d, u64 h, u32 entry) {
    size_t at = h & (d->index_cap - 1);
    while (d->index[at]) at = (at + 1) & (d->index_cap - 1);
    d->index[at] = entry + 1;
}

static bool index_build(struct trun *r, struct tdict *d) {
    d->index_cap = 32;
    while (d->index_cap < d->cap * 2) d->index_cap *= 2;
    d->index = tmpl_alloc(r, d->index_cap * sizeof *d->index);
    for (size_t i = 0; i < d->n; i++) {
        u64 h;
        if (!tmpl_hash(r, d->v[i].key, &h)) return false;
        index_put(d, h, (u32)i);
    }
    return true;
}

/* Finds key: *at is its entry, or d->n. */
static bool dict_find(struct trun *r, const struct tdict *d, struct tval key, size_t *at) {
    u64 h;
    bool eq = false;
    *at = d->n;
    if (!tmpl_hash(r, key, &h)) return false;
    if (!d->index) {
        for (size_t i = 0; i < d->n; i++) {
            if (!tmpl_equal(r, d->v[i].key, key, &eq)) return false;
            if (eq) return *at = i, true;
        }
        return true;
    }
    for (size_t i = h & (d->index_cap - 1); d->index[i]; i = (i + 1) & (d->index_cap - 1)) {
        size_t entry = d->index[i] - 1;
        if (!tmpl_equal(r, d->v[entry].key, key, &eq)) return false;
        if (eq) return *at = entry, true;
    }
    return true;
}

struct tval *tmpl_dict_get(struct trun *r, const struct tdict *d, struct tval key, bool *fail) {
    size_t at;
    bool ok = dict_find(r, d, key, &at);
    if (fail) *fail = !ok;
    return ok && at < d->n ? &d->v[at].val : NULL;
}

struct tval *tmpl_dict_getz(struct trun *r, const struct tdict *d, const char *key) {
    return tmpl_dict_get(r, d, tmpl_strz(r, key), NULL);
}

void tmpl_dict_append(struct trun *r, struct tdict *d, struct tval key, struct tval val) {
    if (d->n == d->cap) {
        size_t cap = MAX((size_t)4, d->cap * 2);
        struct tpair *p = tmpl_alloc(r, cap * sizeof *p);
        if (d->n) memcpy(p, d->v, d->n * sizeof *p);
        d->v = p;
        d->cap = cap;
        d->index = NULL;
    }
    d->v[d->n++] = (struct tpair){key, val};
    if (d->n <= DICT_LINEAR) return;
    u64 h;
    if (!d->index)
        (void)!index_build(r, d);
    else if (tmpl_hash(r, key, &h))
        index_put(d, h, (u32)(d->n - 1));
}

bool tmpl_dict_set(struct trun *r, struct tdict *d, struct tval key, struct tval val) {
    size_t at;
    if (!dict_find(r, d, key, &at)) return false;
    if (at < d->n)
        d->v[at].val = val;
    else
        tmpl_dict_append(r, d, key, val);
    return true;
}

void tmpl_put(struct trun *r, struct tbuf *b, struct view v) {
    if (r->failed || v.n == 0) return;
    if (v.n > b->cap - b->n) {
        if (!tmpl_room(r, b->n + v.n)) return;
        size_t cap = MAX(MAX(b->cap * 2, b->n + v.n), (size_t)64);
        char *p = tmpl_alloc(r, cap);
        if (b->n) memcpy(p, b->p, b->n);
        b->p = p;
        b->cap = cap;
    }
    memcpy(b->p + b->n, v.p, v.n);
    b->n += v.n;
}

void tmpl_putz(struct trun *r, struct tbuf *b, const char *z) {
    tmpl_put(r, b, view_of(z));
}

void tmpl_putc(struct trun *r, struct tbuf *b, u32 cp) {
    char c[4];
    int n = utf8_encode(cp, c);
    tmpl_put(r, b, (struct view){c, (size_t)n});
}

void tmpl_put_fill(struct trun *r, struct tbuf *b, u32 cp, size_t n) {
    if (!tmpl_room(r, n)) return;
    for (size_t i = 0; i < n && !r->failed; i++) tmpl_putc(r, b, cp);
}

struct tval tmpl_append(struct trun *r, struct tval left, struct view right) {
    struct view l = left.s->v;
    struct tbuf *b = left.s->grown;
    bool newest = b && b->p == l.p && b->n == l.n; /* nothing was put behind it yet */
    if (!newest) {
        size_t cap = MAX(l.n + right.n, (size_t)64);
        b = tmpl_alloc(r, sizeof *b);
        if (tmpl_room(r, cap)) *b = (struct tbuf){.p = tmpl_alloc(r, cap), .cap = cap};
        tmpl_put(r, b, l);
    }
    tmpl_put(r, b, right);
    struct tval v = tmpl_str(r, (struct view){b->p ? b->p : "", b->n});
    v.s->grown = b;
    return v;
}

struct tval tmpl_buf_str(struct trun *r, struct tbuf *b) {
    struct tval v = tmpl_str(r, (struct view){b->p ? b->p : "", b->n});
    *b = (struct tbuf){0};
    return v;
}

const char *tmpl_type_name(struct tval v) {
    static const char *const names[] = {
        [T_ABSENT] = "missing",
        [T_UNDEF] = "Undefined",
        [T_NONE] = "NoneType",
        [T_BOOL] = "bool",
        [T_INT] = "int",
        [T_FLOAT] = "float",
        [T_STR] = "str",
        [T_LIST] = "list",
        [T_TUPLE] = "tuple",
        [T_DICT] = "dict",
        [T_RANGE] = "range",
        [T_ITER] = "generator",
        [T_NAMESPACE] = "Namespace",
        [T_LOOP] = "LoopContext",
        [T_MACRO] = "Macro",
        [T_FUNC] = "function",
        [T_METHOD] = "builtin_function_or_method",
        [T_CYCLER] = "Cycler",
        [T_JOINER] = "Joiner",
    };
    static const char *const views[] = {"dict_keys", "dict_values", "dict_items"};
    if (v.kind == T_STR && v.s->markup) return "Markup";
    return v.kind == T_VIEW ? views[v.sub] : names[v.kind];
}

size_t tmpl_str_len(struct tval s) {
    if (s.s->n_cp == SIZE_MAX) s.s->n_cp = tmpl_cp_count(s.s->v);
    return s.s->n_cp;
}

bool tmpl_truth(struct trun *r, struct tval v) {
    size_t n = 0;
    switch (v.kind) {
    case T_UNDEF:
    case T_NONE: return false;
    case T_BOOL: return v.b;
    case T_INT: return v.i != 0;
    case T_FLOAT: return v.f != 0;
    case T_STR: return v.s->v.n > 0;
    case T_LIST:
    case T_TUPLE:
    case T_DICT:
    case T_VIEW:
    case T_RANGE:
    case T_LOOP: return tmpl_len(r, v, &n) && n > 0;
    default: return true;
    }
}

bool tmpl_is_int(struct tval v, i64 *i) {
    if (v.kind != T_INT && v.kind != T_BOOL) return false;
    *i = v.kind == T_INT ? v.i : v.b;
    return true;
}

bool tmpl_is_num(struct tval v, double *f) {
    i64 i;
    if (v.kind == T_FLOAT)
        *f = v.f;
    else if (tmpl_is_int(v, &i))
        *f = (double)i;
    else
        return false;
    return true;
}

bool tmpl_len(struct trun *r, struct tval v, size_t *n) {
    switch (v.kind) {
    case T_UNDEF: return *n = 0, true;
    case T_STR: return *n = tmpl_str_len(v), true;
    case T_LIST:
    case T_TUPLE: return *n = v.list->n, true;
    case T_DICT:
    case T_VIEW: return *n = v.dict->n, true;
    case T_RANGE: return *n = v.range->n, true;
    case T_LOOP: return tmpl_loop_length(r, v.loop, n);
    default: return tmpl_fail(r, "object of type '%s' has no len()", tmpl_type_name(v));
    }
}

bool tmpl_same(struct tval a, struct tval b) {
    if (a.kind != b.kind) return false;
    switch (a.kind) {
    case T_NONE: return true;
    case T_BOOL: return a.b == b.b;
    case T_INT: return a.i == b.i;
    case T_FLOAT: return a.f == b.f;
    case T_STR: return view_eq(a.s->v, b.s->v);
    default: return a.p == b.p;
    }
}

static bool equal_seq(struct trun *r, const struct tlist *a, const struct tlist *b, bool *eq) {
    *eq = a->n == b->n;
    for (size_t i = 0; *eq && i < a->n && i < b->n; i++)
        if (!tmpl_equal(r, a->v[i], b->v[i], eq)) return false;
    return true;
}

static bool equal_dict(struct trun *r, const struct tdict *a, const struct tdict *b, bool *eq) {
    *eq = a->n == b->n;
    for (size_t i = 0; *eq && i < a->n; i++) {
        size_t at;
        if (!dict_find(r, b, a->v[i].key, &at)) return false;
        if (at == b->n)
            *eq = false;
        else if (!tmpl_equal(r, a->v[i].val, b->v[at].val, eq))
            return false;
    }
    return true;
}

static bool equal_range(const struct trange *a, const struct trange *b) {
    if (a->n != b->n) return false;
    return a->n == 0 || (a->start == b->start && (a->n == 1 || a->step == b->step));
}

/* int against float without rounding: 2^53 + 1 is not 2^53. */
static int cmp_int_float(i64 i, double f) {
    if (f >= 0x1p63) return -1;
    if (f < -0x1p63) return 1;
    double whole = trunc(f);
    i64 w = (i64)whole;
    if (i != w) return i < w ? -1 : 1;
    return f > whole ? -1 : f < whole;
}

/* Both numbers: -1, 0, 1, or 2 when a NaN makes them unordered. */
static int cmp_num(struct tval a, struct tval b) {
    i64 x = 0, y = 0;
    bool xi = tmpl_is_int(a, &x), yi = tmpl_is_int(b, &y);
    if (xi && yi) return x < y ? -1 : x > y;
    if (!xi && !yi) return isnan(a.f) || isnan(b.f) ? 2 : a.f < b.f ? -1 : a.f > b.f;
    if (isnan(xi ? b.f : a.f)) return 2;
    return xi ? cmp_int_float(x, b.f) : -cmp_int_float(y, a.f);
}

static bool is_num(struct tval v) {
    return v.kind == T_INT || v.kind == T_FLOAT || v.kind == T_BOOL;
}

bool tmpl_equal(struct trun *r, struct tval a, struct tval b, bool *eq) {
    if (!tmpl_step(r, 1)) return false;
    if (is_num(a) && is_num(b)) return *eq = cmp_num(a, b) == 0, true;
    *eq = false;
    if (a.kind != b.kind) return true;
    if (a.kind != T_STR && a.p == b.p) return *eq = true, true;
    bool ok = true;
    switch (a.kind) {
    case T_UNDEF:
    case T_NONE: *eq = true; break;
    case T_STR: *eq = view_eq(a.s->v, b.s->v); return tmpl_step(r, *eq ? a.s->v.n / 256 : 0);
    case T_RANGE: *eq = equal_range(a.range, b.range); break;
    case T_LIST:
    case T_TUPLE:
    case T_DICT:
        if (!tmpl_enter(r)) return false;
        ok =
            a.kind == T_DICT ? equal_dict(r, a.dict, b.dict, eq) : equal_seq(r, a.list, b.list, eq);
        r->depth--;
        break;
    default: break;
    }
    return ok;
}

static u64 mix(u64 h, u64 x) {
    return (h ^ x) * 0x9E3779B97F4A7C15u ^ (h >> 29);
}

static u64 hash_bytes(struct view v) {
    u64 h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < v.n; i++) h = (h ^ (u8)v.p[i]) * 0x100000001B3u;
    return h ^ h >> 32;
}

bool tmpl_hash(struct trun *r, struct tval v, u64 *h) {
    i64 i;
    if (!tmpl_step(r, v.kind == T_STR ? v.s->v.n / 256 : 1)) return false;
    switch (v.kind) {
    case T_STR: *h = hash_bytes(v.s->v); return true;
    case T_FLOAT: /* equal numbers hash alike */
        if (v.f == trunc(v.f) && fabs(v.f) < 0x1p63)
            *h = mix(1, (u64)(i64)v.f);
        else
            memcpy(h, &v.f, sizeof *h);
        return true;
    case T_LIST:
    case T_DICT: return tmpl_fail(r, "unhashable type: '%s'", tmpl_type_name(v));
    case T_TUPLE:
        if (!tmpl_enter(r)) return false;
        *h = 2;
        for (size_t k = 0; k < v.list->n; k++) {
            u64 item;
            if (!tmpl_hash(r, v.list->v[k], &item)) return false;
            *h = mix(*h, item);
        }
        r->depth--;
        return true;
    case T_UNDEF:
    case T_NONE: *h = v.kind; return true;
    default: *h = tmpl_is_int(v, &i) ? mix(1, (u64)i) : mix(3, (u64)(uintptr_t)v.p); return true;
    }
}

static bool less_seq(struct trun *r, struct tval a, struct tval b, const char *op, bool *lt) {
    bool eq;
    size_t n = MIN(a.list->n, b.list->n);
    for (size_t i = 0; i < n; i++) {
        if (!tmpl_equal(r, a.list->v[i], b.list->v[i], &eq)) return false;
        if (!eq) return tmpl_less(r, a.list->v[i], b.list->v[i], op, lt);
    }
    bool or_equal = op[1] == '=';
    *lt = op[0] == '<' ? a.list->n < b.list->n + or_equal : b.list->n < a.list->n + or_equal;
    return true;
}

bool tmpl_less(struct trun *r, struct tval a, struct tval b, const char *op, bool *lt) {
    bool greater = op[0] == '>', or_equal = op[1] == '=';
    int c;
    if (a.kind == T_UNDEF || b.kind == T_UNDEF)
        return tmpl_fail_undef(r, a.kind == T_UNDEF ? a : b);
    if (is_num(a) && is_num(b)) {
        c = cmp_num(a, b);
        if (c == 2) return *lt = false, true;
    } else if (a.kind == T_STR && b.kind == T_STR) {
        size_t n = MIN(a.s->v.n, b.s->v.n);
        if (!tmpl_step(r, 1 + n / 256)) return false;
        c = n ? memcmp(a.s->v.p, b.s->v.p, n) : 0; /* UTF-8 sorts as its code points do */
        if (c == 0) c = a.s->v.n < b.s->v.n ? -1 : a.s->v.n > b.s->v.n;
    } else if (a.kind == b.kind && (a.kind == T_LIST || a.kind == T_TUPLE)) {
        if (!tmpl_enter(r)) return false;
        bool ok = less_seq(r, a, b, op, lt);
        r->depth--;
        return ok;
    } else {
        return tmpl_fail(r, "'%s' not supported between instances of '%s' and '%s'", op,
                         tmpl_type_name(a), tmpl_type_name(b));
    }
    *lt = (c == 0 && or_equal) || (greater ? c > 0 : c < 0);
    return true;
}

bool tmpl_contains(struct trun *r, struct tval seq, struct tval v, bool *in) {
    bool fail;
    *in = false;
    if (seq.kind == T_STR) {
        if (v.kind == T_UNDEF)
            return tmpl_fail(r, "'in <string>' requires string as left operand, not Undefined");
        if (v.kind != T_STR)
            return tmpl_fail(r, "'in <string>' requires string as left operand, not %s",
                             tmpl_type_name(v));
        *in = tmpl_find(seq.s->v, v.s->v) != SIZE_MAX;
        return tmpl_step(r, 1 + seq.s->v.n / 256);
    }
    if (seq.kind == T_DICT || (seq.kind == T_VIEW && seq.sub == VIEW_KEYS)) {
        *in = tmpl_dict_get(r, seq.dict, v, &fail) != NULL;
        return !fail;
    }
    struct tcursor c;
    struct tval item;
    if (!tmpl_cursor(r, seq, &c)) return false;
    while (!*in) {
        if (!tmpl_next(r, &c, &item)) return false;
        if (item.kind == T_ABSENT) return true;
        if (!tmpl_equal(r, item, v, in)) return false;
    }
    return true;
}

bool tmpl_cursor(struct trun *r, struct tval v, struct tcursor *c) {
    switch (v.kind) {
    case T_UNDEF:
    case T_STR:
    case T_LIST:
    case T_TUPLE:
    case T_DICT:
    case T_VIEW:
    case T_RANGE:
    case T_ITER: *c = (struct tcursor){.seq = v}; return true;
    default: return tmpl_fail(r, "'%s' object is not iterable", tmpl_type_name(v));
    }
}

static struct tval dict_item(struct trun *r, struct tval v, size_t i) {
    const struct tpair *p = &v.dict->v[i];
    if (v.kind == T_VIEW && v.sub == VIEW_VALUES) return p->val;
    if (v.kind == T_VIEW && v.sub == VIEW_ITEMS)
        return tmpl_tuple(r, (struct tval[]){p->key, p->val}, 2);
    return p->key;
}

bool tmpl_next(struct trun *r, struct tcursor *c, struct tval *out) {
    struct tval v = c->seq;
    *out = (struct tval){0};
    if (!tmpl_step(r, 1)) return false;
    switch (v.kind) {
    case T_STR:
        if (c->i < v.s->v.n) {
            size_t from = c->i;
            tmpl_cp_next(v.s->v, &c->i);
            *out = tmpl_str(r, (struct view){v.s->v.p + from, c->i - from});
        }
        return true;
    case T_LIST:
    case T_TUPLE:
        if (c->i < v.list->n) *out = v.list->v[c->i++];
        return true;
    case T_DICT:
    case T_VIEW:
        if (c->i < v.dict->n) *out = dict_item(r, v, c->i++);
        return true;
    case T_RANGE:
        if (c->i < v.range->n) *out = tmpl_int(v.range->start + (i64)c->i++ * v.range->step);
        return true;
    case T_ITER:
        if (!v.iter->items && !tmpl_iter_fill(r, v.iter)) return false;
        if (v.iter->pos < v.iter->items->n) *out = v.iter->items->v[v.iter->pos++];
        return true;
    default: return true; /* T_UNDEF: empty */
    }
}

bool tmpl_to_list(struct trun *r, struct tval v, struct tval *list) {
    struct tcursor c;
    struct tval item;
    *list = tmpl_list(r);
    if (!tmpl_cursor(r, v, &c)) return false;
    for (;;) {
        if (!tmpl_next(r, &c, &item)) return false;
        if (item.kind == T_ABSENT) return true;
        tmpl_push(r, list->list, item);
    }
}
