/* Filters on sequences and mappings. Those that are generators in jinja2 are FUNC_LAZY here. */
#include <string.h>

#include "formats/template_builtin.h"

static bool part_number(struct view part, i64 *i) {
    *i = 0;
    for (size_t k = 0; k < part.n; k++) {
        if (part.p[k] < '0' || part.p[k] > '9') return false;
        if (__builtin_mul_overflow(*i, 10, i) || __builtin_add_overflow(*i, part.p[k] - '0', i))
            return false;
    }
    return part.n > 0;
}

/* item[part] for each part of path; T_ABSENT or None: the item itself. `missing` stands in for
 * undefined unless absent. */
static bool get_path(struct trun *r, struct tval item, struct tval path, struct tval missing,
                     struct tval *out) {
    *out = item;
    if (path.kind == T_ABSENT || path.kind == T_NONE) return true;
    if (path.kind != T_STR) {
        if (!tmpl_item(r, item, path, out)) return false;
        if (out->kind == T_UNDEF && missing.kind != T_ABSENT) *out = missing;
        return true;
    }
    struct view rest = path.s->v;
    for (bool more = true; more;) {
        size_t dot = tmpl_find(rest, VIEW("."));
        struct view part = {rest.p, dot == SIZE_MAX ? rest.n : dot};
        i64 i;
        struct tval key = part_number(part, &i) ? tmpl_int(i) : tmpl_str(r, part);
        if (!tmpl_item(r, *out, key, out)) return false;
        if (out->kind == T_UNDEF && missing.kind != T_ABSENT) *out = missing;
        more = dot != SIZE_MAX;
        if (more) rest = (struct view){rest.p + dot + 1, rest.n - dot - 1};
    }
    return true;
}

/* get_path, and lower case unless case_sensitive: what things are sorted and compared by. */
static bool get_key(struct trun *r, struct tval item, struct tval path, struct tval missing,
                    bool case_sensitive, struct tval *out) {
    if (!get_path(r, item, path, missing, out)) return false;
    if (case_sensitive || out->kind != T_STR) return true;
    struct tbuf b = {0};
    tmpl_put_case(r, &b, out->s->v, 0, out->s->v.n, CASE_LOWER);
    *out = tmpl_buf_str(r, &b);
    return true;
}

static bool get_keys(struct trun *r, const struct tlist *items, struct tval path,
                     struct tval missing, bool case_sensitive, struct tlist *keys) {
    struct tval key;
    for (size_t i = 0; i < items->n; i++) {
        if (!get_key(r, items->v[i], path, missing, case_sensitive, &key)) return false;
        tmpl_push(r, keys, key);
    }
    return true;
}

struct sorted { /* an item with its key and the place it came from */
    struct tval item, key;
};

/* Merge sort of a[0..n) with `tmp` as room. An element of the right half goes first only if it is
 * strictly before the left one, which keeps equal ones in order in both directions. */
static bool merge_sort(struct trun *r, struct sorted *a, struct sorted *tmp, size_t n,
                       bool reverse) {
    if (n < 2) return true;
    size_t half = n / 2, i = 0, j = half;
    if (!merge_sort(r, a, tmp, half, reverse)) return false;
    if (!merge_sort(r, a + half, tmp, n - half, reverse)) return false;
    for (size_t k = 0; k < n; k++) {
        bool right = i == half;
        if (!right && j < n) {
            struct tval x = reverse ? a[i].key : a[j].key, y = reverse ? a[j].key : a[i].key;
            if (!tmpl_step(r, 1) || !tmpl_less(r, x, y, "<", &right)) return false;
        }
        tmp[k] = right ? a[j++] : a[i++];
    }
    memcpy(a, tmp, n * sizeof *a);
    return true;
}

bool tmpl_sort(struct trun *r, struct tlist *items, const struct tlist *keys, bool reverse) {
    size_t n = items->n;
    struct sorted *a = tmpl_alloc(r, 2 * n * sizeof *a);
    for (size_t i = 0; i < n; i++)
        a[i] = (struct sorted){items->v[i], keys ? keys->v[i] : items->v[i]};
    if (!merge_sort(r, a, a + n, n, reverse)) return false;
    for (size_t i = 0; i < n; i++) items->v[i] = a[i].item;
    return true;
}

/* Keys are lists, one value for each path of attribute="a,b": lists compare element by element,
 * and equal elements need no order. */
static bool sort_keys(struct trun *r, const struct tlist *items, struct tval attr, bool sensitive,
                      struct tlist *keys) {
    struct tval v, path = attr;
    for (size_t i = 0; i < items->n; i++) {
        struct tval key = tmpl_list(r);
        struct view rest = attr.kind == T_STR ? attr.s->v : VIEW("");
        for (bool more = true; more;) {
            size_t comma = tmpl_find(rest, VIEW(","));
            more = comma != SIZE_MAX;
            if (attr.kind == T_STR)
                path = tmpl_str(r, (struct view){rest.p, more ? comma : rest.n});
            if (!get_key(r, items->v[i], path, (struct tval){0}, sensitive, &v)) return false;
            tmpl_push(r, key.list, v);
            if (more) rest = (struct view){rest.p + comma + 1, rest.n - comma - 1};
        }
        tmpl_push(r, keys, key);
    }
    return true;
}

static bool f_sort(struct trun *r, struct tcall *c) {
    struct tlist keys = {0};
    bool reverse = tmpl_arg_truth(r, c, 0, false), sensitive = tmpl_arg_truth(r, c, 1, false);
    return tmpl_to_list(r, c->self, &c->out) &&
           sort_keys(r, c->out.list, c->arg[2], sensitive, &keys) &&
           tmpl_sort(r, c->out.list, &keys, reverse);
}

static bool f_dictsort(struct trun *r, struct tcall *c) {
    struct tlist keys = {0};
    struct view by = VIEW("key");
    if (c->self.kind == T_UNDEF) return tmpl_fail_undef(r, c->self);
    if (c->self.kind != T_DICT) return tmpl_fail(r, "dictsort: a mapping is expected");
    bool sensitive = tmpl_arg_truth(r, c, 0, false), reverse = tmpl_arg_truth(r, c, 2, false);
    if (c->arg[1].kind != T_ABSENT && !tmpl_arg_str(r, c, 1, &by)) return false;
    if (!view_is(by, "key") && !view_is(by, "value"))
        return tmpl_fail(r, "You can only sort by either \"key\" or \"value\"");
    struct tval items = {.kind = T_VIEW, .sub = VIEW_ITEMS, .dict = c->self.dict};
    return tmpl_to_list(r, items, &c->out) &&
           get_keys(r, c->out.list, tmpl_int(view_is(by, "value")), (struct tval){0}, sensitive,
                    &keys) &&
           tmpl_sort(r, c->out.list, &keys, reverse);
}

static bool f_unique(struct trun *r, struct tcall *c) {
    struct tval items, key, out = tmpl_list(r);
    struct tdict *seen = tmpl_dict(r).dict;
    bool sensitive = tmpl_arg_truth(r, c, 0, false), fail;
    if (!tmpl_to_list(r, c->self, &items)) return false;
    for (size_t i = 0; i < items.list->n; i++) {
        if (!get_key(r, items.list->v[i], c->arg[1], (struct tval){0}, sensitive, &key))
            return false;
        if (tmpl_dict_get(r, seen, key, &fail)) continue;
        if (fail || !tmpl_dict_set(r, seen, key, tmpl_none())) return false;
        tmpl_push(r, out.list, items.list->v[i]);
    }
    c->out = out;
    return true;
}

static bool min_max(struct trun *r, struct tcall *c, const char *op) {
    struct tval items, best, key;
    bool sensitive = tmpl_arg_truth(r, c, 0, false), better;
    if (!tmpl_to_list(r, c->self, &items)) return false;
    c->out = tmpl_undef_hint(r, "No aggregated item, sequence was empty.");
    for (size_t i = 0; i < items.list->n; i++) {
        if (!get_key(r, items.list->v[i], c->arg[1], (struct tval){0}, sensitive, &key))
            return false;
        better = i == 0;
        if (i && !tmpl_less(r, key, best, op, &better)) return false;
        if (!better) continue;
        best = key;
        c->out = items.list->v[i];
    }
    return true;
}

static bool f_min(struct trun *r, struct tcall *c) {
    return min_max(r, c, "<");
}
static bool f_max(struct trun *r, struct tcall *c) {
    return min_max(r, c, ">");
}

static bool f_groupby(struct trun *r, struct tcall *c) {
    struct tval items, keys = tmpl_list(r), sorted_keys, group = {0}, label;
    struct tval missing = c->arg[1].kind == T_NONE ? (struct tval){0} : c->arg[1];
    bool sensitive = tmpl_arg_truth(r, c, 2, false), same = false;
    if (!tmpl_to_list(r, c->self, &items)) return false;
    if (!get_keys(r, items.list, c->arg[0], missing, sensitive, keys.list)) return false;
    sorted_keys = tmpl_tuple(r, keys.list->v, keys.list->n);
    if (!tmpl_sort(r, items.list, keys.list, false)) return false;
    if (!tmpl_sort(r, sorted_keys.list, NULL, false)) return false;
    c->out = tmpl_list(r);
    for (size_t i = 0; i < items.list->n; i++) {
        const struct tval *k = &sorted_keys.list->v[i];
        if (i && !tmpl_equal(r, k[-1], k[0], &same)) return false;
        if (!same || i == 0) {
            group = tmpl_list(r);
            if (!get_path(r, items.list->v[i], c->arg[0], missing, &label)) return false;
            struct tval pair = tmpl_tuple(r, (struct tval[]){label, group}, 2);
            pair.sub = 1;
            tmpl_push(r, c->out.list, pair);
        }
        tmpl_push(r, group.list, items.list->v[i]);
    }
    return true;
}

static bool f_first(struct trun *r, struct tcall *c) {
    struct tcursor cur;
    if (!tmpl_cursor(r, c->self, &cur) || !tmpl_next(r, &cur, &c->out)) return false;
    if (c->out.kind == T_ABSENT) c->out = tmpl_undef_hint(r, "No first item, sequence was empty.");
    return true;
}

static bool f_last(struct trun *r, struct tcall *c) {
    struct tval items;
    if (c->self.kind == T_ITER)
        return tmpl_fail(r, "'%s' object is not reversible", tmpl_type_name(c->self));
    if (!tmpl_to_list(r, c->self, &items)) return false;
    size_t n = items.list->n;
    c->out = n ? items.list->v[n - 1] : tmpl_undef_hint(r, "No last item, sequence was empty.");
    return true;
}

static bool f_list(struct trun *r, struct tcall *c) {
    return tmpl_to_list(r, c->self, &c->out);
}

static bool f_length(struct trun *r, struct tcall *c) {
    size_t n;
    if (!tmpl_len(r, c->self, &n)) return false;
    return c->out = tmpl_int((i64)n), true;
}

static bool f_items(struct trun *r, struct tcall *c) {
    struct tval view = {.kind = T_VIEW, .sub = VIEW_ITEMS, .dict = c->self.dict}, items;
    if (c->self.kind == T_UNDEF)
        items = tmpl_list(r);
    else if (c->self.kind != T_DICT)
        return tmpl_fail(r, "Can only get item pairs from a mapping.");
    else if (!tmpl_to_list(r, view, &items))
        return false;
    c->out = items;
    return true;
}

void tmpl_reverse(struct tlist *l) {
    for (size_t i = 0, j = l->n; i + 1 < j; i++) {
        struct tval v = l->v[i];
        l->v[i] = l->v[--j];
        l->v[j] = v;
    }
}

static bool f_reverse(struct trun *r, struct tcall *c) {
    const struct tval back[3] = {tmpl_none(), tmpl_none(), tmpl_int(-1)};
    struct tval items;
    if (c->self.kind == T_STR) return tmpl_slice(r, c->self, back, &c->out);
    if (!tmpl_to_list(r, c->self, &items)) return false;
    tmpl_reverse(items.list);
    c->out = c->self.kind == T_ITER ? items : tmpl_iter(r, items, "reversed");
    return true;
}

static bool f_attr(struct trun *r, struct tcall *c) {
    struct view name;
    if (!tmpl_arg_str(r, c, 0, &name)) return false;
    if (!tmpl_attr(r, c->self, c->arg[0], &c->out)) return false;
    /* unlike obj.name, no item of a dict */
    if (c->self.kind == T_DICT && c->out.kind != T_METHOD)
        c->out = tmpl_undef(r, c->self, c->arg[0]);
    return true;
}

static bool f_join(struct trun *r, struct tcall *c) {
    struct tcursor cur;
    struct tval item, sep;
    struct tbuf b = {0};
    if (!tmpl_cursor(r, c->self, &cur)) return false;
    if (!tmpl_to_str(r, c->arg[0].kind ? c->arg[0] : tmpl_strz(r, ""), &sep)) return false;
    for (bool first = true;; first = false) {
        if (!tmpl_next(r, &cur, &item)) return false;
        if (item.kind == T_ABSENT) break;
        if (!first) tmpl_put(r, &b, sep.s->v);
        if (!get_path(r, item, c->arg[1], (struct tval){0}, &item)) return false;
        if (!tmpl_put_str(r, &b, item)) return false;
    }
    c->out = tmpl_buf_str(r, &b);
    return true;
}

static bool f_sum(struct trun *r, struct tcall *c) {
    struct tcursor cur;
    struct tval item;
    c->out = c->arg[1].kind == T_ABSENT ? tmpl_int(0) : c->arg[1];
    if (c->out.kind == T_STR)
        return tmpl_fail(r, "sum() can't sum strings [use ''.join(seq) instead]");
    if (!tmpl_cursor(r, c->self, &cur)) return false;
    for (;;) {
        if (!tmpl_next(r, &cur, &item)) return false;
        if (item.kind == T_ABSENT) return true;
        if (!get_path(r, item, c->arg[0], (struct tval){0}, &item)) return false;
        if (!tmpl_binary(r, TOK_ADD, c->out, item, &c->out)) return false;
    }
}

static bool fills(const struct tcall *c) {
    return c->arg[1].kind != T_ABSENT && c->arg[1].kind != T_NONE;
}

static bool f_batch(struct trun *r, struct tcall *c) {
    struct tval items, out = tmpl_list(r), row = tmpl_list(r);
    i64 size;
    if (!tmpl_to_list(r, c->self, &items) || !tmpl_arg_int(r, c, 0, 0, &size)) return false;
    for (size_t i = 0; i < items.list->n; i++) {
        if ((i64)row.list->n == size) {
            tmpl_push(r, out.list, row);
            row = tmpl_list(r);
        }
        tmpl_push(r, row.list, items.list->v[i]);
    }
    if (row.list->n) tmpl_push(r, out.list, row);
    while (row.list->n && fills(c) && (i64)row.list->n < size) {
        if (!tmpl_step(r, 1)) return false;
        tmpl_push(r, row.list, c->arg[1]);
    }
    c->out = out;
    return true;
}

static bool f_slice(struct trun *r, struct tcall *c) {
    struct tval items, out = tmpl_list(r);
    i64 n;
    if (!tmpl_to_list(r, c->self, &items) || !tmpl_arg_int(r, c, 0, 0, &n)) return false;
    if (n == 0) return tmpl_fail(r, "integer division or modulo by zero");
    size_t at = 0, size = n > 0 ? items.list->n / (size_t)n : 0;
    size_t extra = n > 0 ? items.list->n % (size_t)n : 0;
    for (i64 k = 0; k < n; k++) {
        struct tval row = tmpl_list(r);
        size_t want = size + ((size_t)k < extra);
        if (!tmpl_step(r, 1 + want)) return false;
        for (size_t i = 0; i < want; i++) tmpl_push(r, row.list, items.list->v[at++]);
        if (fills(c) && (size_t)k >= extra) tmpl_push(r, row.list, c->arg[1]);
        tmpl_push(r, out.list, row);
    }
    c->out = out;
    return true;
}

/* Calls filter or test `f` on v with the arguments from `skip` on. */
static bool apply(struct trun *r, const struct tfunc *f, const struct tcall *c, size_t skip,
                  struct tval v, struct tval *out) {
    struct tcall inner = {.self = v, .pos = c->pos + skip, .n_pos = c->n_pos - skip, .kw = c->kw};
    if (!tmpl_call_func(r, f, &inner)) return false;
    *out = inner.out;
    return true;
}

static bool find_by_name(struct trun *r, struct tval name, bool test, const struct tfunc **f) {
    *f = name.kind != T_STR ? NULL : test ? tmpl_test(name.s->v) : tmpl_filter(name.s->v);
    if (*f && (*f)->fn) return true;
    struct tval text;
    if (!tmpl_to_str(r, name, &text)) return false;
    if (*f)
        return tmpl_fail_code(r, ERR_UNSUPPORTED, "the filter '%s' is not supported", (*f)->name);
    return tmpl_fail(r, "No %s named '%.*s'.", test ? "test" : "filter", VIEW_FMT(text.s->v));
}

static bool map_args(struct trun *r, const struct tcall *c, struct tval *attr,
                     struct tval *missing) {
    *attr = *missing = (struct tval){0};
    for (size_t i = 0; c->kw && i < c->kw->n; i++) {
        struct view key = c->kw->v[i].key.s->v;
        if (view_is(key, "attribute"))
            *attr = c->kw->v[i].val;
        else if (view_is(key, "default"))
            *missing = c->kw->v[i].val;
        else
            return tmpl_fail(r, "Unexpected keyword argument '%.*s'", VIEW_FMT(key));
    }
    if (missing->kind == T_NONE) *missing = (struct tval){0};
    return true;
}

static bool f_map(struct trun *r, struct tcall *c) {
    struct tval items, out = tmpl_list(r), attr = {0}, missing = {0}, v;
    const struct tfunc *f = NULL;
    c->out = out;
    if (!tmpl_truth(r, c->self)) return true;
    bool by_attr = c->n_pos == 0 && c->kw && tmpl_dict_getz(r, c->kw, "attribute");
    if (by_attr && !map_args(r, c, &attr, &missing)) return false;
    if (!by_attr && c->n_pos == 0) return tmpl_fail(r, "map requires a filter argument");
    if (!tmpl_to_list(r, c->self, &items)) return false;
    if (!by_attr && items.list->n && !find_by_name(r, c->pos[0], false, &f)) return false;
    for (size_t i = 0; i < items.list->n; i++) {
        bool ok = by_attr ? get_path(r, items.list->v[i], attr, missing, &v)
                          : apply(r, f, c, 1, items.list->v[i], &v);
        if (!ok) return false;
        tmpl_push(r, out.list, v);
    }
    return true;
}

/* select and reject (keep = false); the attr forms test item[first argument]. */
static bool filter_items(struct trun *r, struct tcall *c, bool keep, bool by_attr) {
    struct tval items, out = tmpl_list(r), attr = {0}, v;
    const struct tfunc *f = NULL;
    c->out = out;
    if (!tmpl_truth(r, c->self)) return true;
    if (by_attr && c->n_pos == 0) return tmpl_fail(r, "Missing parameter for attribute name");
    if (by_attr) attr = c->pos[0];
    if (!tmpl_to_list(r, c->self, &items)) return false;
    bool has_test = c->n_pos > by_attr;
    if (has_test && items.list->n && !find_by_name(r, c->pos[by_attr], true, &f)) return false;
    for (size_t i = 0; i < items.list->n; i++) {
        if (!get_path(r, items.list->v[i], attr, (struct tval){0}, &v)) return false;
        if (has_test && !apply(r, f, c, 1 + by_attr, v, &v)) return false;
        if (tmpl_truth(r, v) == keep) tmpl_push(r, out.list, items.list->v[i]);
    }
    return true;
}

static bool f_select(struct trun *r, struct tcall *c) {
    return filter_items(r, c, true, false);
}
static bool f_reject(struct trun *r, struct tcall *c) {
    return filter_items(r, c, false, false);
}
static bool f_selectattr(struct trun *r, struct tcall *c) {
    return filter_items(r, c, true, true);
}
static bool f_rejectattr(struct trun *r, struct tcall *c) {
    return filter_items(r, c, false, true);
}

static const struct tfunc filters[] = {
    {"attr", "name", f_attr, 0},
    {"batch", "linecount fill_with?", f_batch, FUNC_LAZY},
    {"count", "", f_length, 0},
    {"dictsort", "case_sensitive? by? reverse?", f_dictsort, 0},
    {"first", "", f_first, 0},
    {"groupby", "attribute default? case_sensitive?", f_groupby, 0},
    {"items", "", f_items, FUNC_LAZY},
    {"join", "d? attribute?", f_join, 0},
    {"last", "", f_last, 0},
    {"length", "", f_length, 0},
    {"list", "", f_list, 0},
    {"map", "*", f_map, FUNC_LAZY},
    {"max", "case_sensitive? attribute?", f_max, 0},
    {"min", "case_sensitive? attribute?", f_min, 0},
    {"reject", "*", f_reject, FUNC_LAZY},
    {"rejectattr", "*", f_rejectattr, FUNC_LAZY},
    {"reverse", "", f_reverse, 0},
    {"select", "*", f_select, FUNC_LAZY},
    {"selectattr", "*", f_selectattr, FUNC_LAZY},
    {"slice", "slices fill_with?", f_slice, FUNC_LAZY},
    {"sort", "reverse? case_sensitive? attribute?", f_sort, 0},
    {"sum", "attribute? start?", f_sum, 0},
    {"unique", "case_sensitive? attribute?", f_unique, FUNC_LAZY},
};

const struct tfunc *tmpl_seq_filter(struct view name) {
    return tmpl_find_func(filters, ARRAY_LEN(filters), name);
}
