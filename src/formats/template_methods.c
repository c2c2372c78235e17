/* Methods of strings, lists, tuples, dicts and the rest. jinja2's sandbox refuses those that change
 * a value; append, extend, insert and pop of lists work here nevertheless, because published
 * GGUF files carry templates that call them. */
#include <string.h>

#include "formats/template_builtin.h"

static struct view self(const struct tcall *c) {
    return c->self.s->v;
}

static bool give_str(struct trun *r, struct tcall *c, struct view v) {
    c->out = tmpl_str(r, v);
    return true;
}
static bool give_buf(struct trun *r, struct tcall *c, struct tbuf *b) {
    c->out = tmpl_buf_str(r, b);
    return !r->failed;
}
static bool give_bool(struct tcall *c, bool yes) {
    return c->out = tmpl_bool(yes), true;
}
static bool give_int(struct tcall *c, i64 i) {
    return c->out = tmpl_int(i), true;
}
static bool given(const struct tcall *c, int i) {
    return c->arg[i].kind != T_ABSENT && c->arg[i].kind != T_NONE;
}

static bool s_upper(struct trun *r, struct tcall *c) {
    struct tbuf b = {0};
    tmpl_put_case(r, &b, self(c), 0, self(c).n, CASE_UPPER);
    return give_buf(r, c, &b);
}

static bool s_lower(struct trun *r, struct tcall *c) {
    struct tbuf b = {0};
    tmpl_put_case(r, &b, self(c), 0, self(c).n, CASE_LOWER);
    return give_buf(r, c, &b);
}

static bool s_capitalize(struct trun *r, struct tcall *c) {
    struct tbuf b = {0};
    size_t second = tmpl_cp_offset(self(c), 0, 1);
    tmpl_put_case(r, &b, self(c), 0, second, CASE_TITLE);
    tmpl_put_case(r, &b, self(c), second, self(c).n, CASE_LOWER);
    return give_buf(r, c, &b);
}

static bool s_title(struct trun *r, struct tcall *c) {
    struct view s = self(c);
    struct tbuf b = {0};
    bool inside = false;
    for (size_t i = 0, at; at = i, i < s.n;) {
        u32 k = tmpl_cp_class(tmpl_cp_next(s, &i));
        tmpl_put_case(r, &b, s, at, i, inside ? CASE_LOWER : CASE_TITLE);
        inside = k & CP_CASED;
    }
    return give_buf(r, c, &b);
}

static bool s_swapcase(struct trun *r, struct tcall *c) {
    struct view s = self(c);
    struct tbuf b = {0};
    for (size_t i = 0, at; at = i, i < s.n;) {
        u32 k = tmpl_cp_class(tmpl_cp_next(s, &i));
        if (k & CP_UPPER)
            tmpl_put_case(r, &b, s, at, i, CASE_LOWER);
        else if (k & CP_LOWER)
            tmpl_put_case(r, &b, s, at, i, CASE_UPPER);
        else
            tmpl_put(r, &b, (struct view){s.p + at, i - at});
    }
    return give_buf(r, c, &b);
}

/* True when s is not empty and each code point has one of the class bits. */
static bool all_of(struct tcall *c, u32 bits) {
    struct view s = self(c);
    bool yes = s.n > 0;
    for (size_t i = 0; yes && i < s.n;) yes = tmpl_cp_class(tmpl_cp_next(s, &i)) & bits;
    return give_bool(c, yes);
}

/* The row's tag has the class bits. */
static bool s_class(struct trun *r, struct tcall *c) {
    return !r->failed && all_of(c, c->func->tag);
}

static bool s_isprintable(struct trun *r, struct tcall *c) {
    return !r->failed && (self(c).n ? all_of(c, CP_PRINTABLE) : give_bool(c, true));
}

static bool s_isascii(struct trun *r, struct tcall *c) {
    return !r->failed && give_bool(c, tmpl_str_len(c->self) == self(c).n);
}

static bool s_isidentifier(struct trun *r, struct tcall *c) {
    struct view s = self(c);
    bool yes = s.n > 0;
    for (size_t i = 0; yes && i < s.n;) {
        u32 want = i ? CP_ID_CONTINUE : CP_ID_START;
        yes = tmpl_cp_class(tmpl_cp_next(s, &i)) & want;
    }
    return !r->failed && give_bool(c, yes);
}

static bool s_islower(struct trun *r, struct tcall *c) {
    return !r->failed && give_bool(c, tmpl_is_case(self(c), CP_LOWER, CP_UPPER));
}
static bool s_isupper(struct trun *r, struct tcall *c) {
    return !r->failed && give_bool(c, tmpl_is_case(self(c), CP_UPPER, CP_LOWER));
}

static bool s_istitle(struct trun *r, struct tcall *c) {
    struct view s = self(c);
    bool any = false, inside = false;
    for (size_t i = 0; i < s.n;) {
        u32 k = tmpl_cp_class(tmpl_cp_next(s, &i));
        bool big = k & (CP_UPPER | CP_TITLE), small = k & CP_LOWER;
        if ((big && inside) || (small && !inside)) return give_bool(c, false);
        inside = big || small;
        any = any || inside;
    }
    return !r->failed && give_bool(c, any);
}

/* Arguments i and i + 1 as a code point range of s: *sub is what lies between, *before the number
 * of code points in front of it. False in *ok when start lies behind the end. */
static bool range_args(struct trun *r, struct tcall *c, int i, struct view *sub, i64 *before,
                       bool *ok) {
    i64 n = (i64)tmpl_str_len(c->self), from, to;
    if (!tmpl_arg_int(r, c, i, 0, &from) || !tmpl_arg_int(r, c, i + 1, n, &to)) return false;
    if (from < 0) from = from < -n ? 0 : from + n;
    if (to < 0) to = to < -n ? 0 : to + n;
    to = MIN(to, n);
    *ok = from <= to;
    if (!*ok) return true;
    struct view s = self(c);
    bool ascii = (size_t)n == s.n;
    size_t a = ascii ? (size_t)from : tmpl_cp_offset(s, 0, (size_t)from);
    size_t b = ascii ? (size_t)to : tmpl_cp_offset(s, a, (size_t)(to - from));
    *sub = (struct view){s.p + a, b - a};
    *before = from;
    return true;
}

static bool search(struct trun *r, struct tcall *c, bool last, bool must) {
    struct view sub, needle;
    i64 before;
    bool ok;
    if (!tmpl_arg_str(r, c, 0, &needle) || !range_args(r, c, 1, &sub, &before, &ok)) return false;
    size_t at = !ok ? SIZE_MAX : last ? tmpl_rfind(sub, needle) : tmpl_find(sub, needle);
    if (at != SIZE_MAX) return give_int(c, before + (i64)tmpl_cp_count((struct view){sub.p, at}));
    return must ? tmpl_fail(r, "substring not found") : give_int(c, -1);
}
static bool s_find(struct trun *r, struct tcall *c) {
    return search(r, c, false, false);
}
static bool s_rfind(struct trun *r, struct tcall *c) {
    return search(r, c, true, false);
}
static bool s_index(struct trun *r, struct tcall *c) {
    return search(r, c, false, true);
}
static bool s_rindex(struct trun *r, struct tcall *c) {
    return search(r, c, true, true);
}

static bool s_count(struct trun *r, struct tcall *c) {
    struct view sub, needle;
    i64 before, n = 0;
    bool ok;
    if (!tmpl_arg_str(r, c, 0, &needle) || !range_args(r, c, 1, &sub, &before, &ok)) return false;
    if (!ok) return give_int(c, 0);
    if (needle.n == 0) return give_int(c, (i64)tmpl_cp_count(sub) + 1);
    for (size_t at; (at = tmpl_find(sub, needle)) != SIZE_MAX; n++) {
        sub.p += at + needle.n;
        sub.n -= at + needle.n;
    }
    return give_int(c, n);
}

static bool has_end(struct view s, struct view part, bool tail) {
    if (part.n > s.n) return false;
    return memcmp(tail ? s.p + s.n - part.n : s.p, part.p, part.n) == 0;
}

/* startswith and endswith: one string or a tuple of them. */
static bool ends(struct trun *r, struct tcall *c, bool tail) {
    struct view sub;
    i64 before;
    bool ok;
    struct tval a = c->arg[0];
    const struct tval *parts = a.kind == T_TUPLE ? a.list->v : &a;
    size_t n = a.kind == T_TUPLE ? a.list->n : 1;
    if (!range_args(r, c, 1, &sub, &before, &ok)) return false;
    for (size_t i = 0; i < n; i++) {
        if (parts[i].kind != T_STR)
            return tmpl_fail(r, "%s first arg must be str or a tuple of str, not %s",
                             tail ? "endswith" : "startswith", tmpl_type_name(parts[i]));
        if (ok && has_end(sub, parts[i].s->v, tail)) return give_bool(c, true);
    }
    return give_bool(c, false);
}
static bool s_startswith(struct trun *r, struct tcall *c) {
    return ends(r, c, false);
}
static bool s_endswith(struct trun *r, struct tcall *c) {
    return ends(r, c, true);
}

static bool strip(struct trun *r, struct tcall *c, bool left, bool right) {
    struct view chars;
    if (given(c, 0) && !tmpl_arg_str(r, c, 0, &chars)) return false;
    return give_str(r, c, tmpl_strip(self(c), given(c, 0) ? &chars : NULL, left, right));
}
static bool s_strip(struct trun *r, struct tcall *c) {
    return strip(r, c, true, true);
}
static bool s_lstrip(struct trun *r, struct tcall *c) {
    return strip(r, c, true, false);
}
static bool s_rstrip(struct trun *r, struct tcall *c) {
    return strip(r, c, false, true);
}

static bool s_removeprefix(struct trun *r, struct tcall *c) {
    struct view s = self(c), part;
    if (!tmpl_arg_str(r, c, 0, &part)) return false;
    size_t n = has_end(s, part, false) ? part.n : 0;
    return give_str(r, c, (struct view){s.p + n, s.n - n});
}

static bool s_removesuffix(struct trun *r, struct tcall *c) {
    struct view s = self(c), part;
    if (!tmpl_arg_str(r, c, 0, &part)) return false;
    return give_str(r, c, (struct view){s.p, s.n - (has_end(s, part, true) ? part.n : 0)});
}

/* Splits at white space from one side; what is left after `max` cuts stays whole. */
static void split_space(struct trun *r, struct view s, i64 max, bool right, struct tlist *out) {
    for (s = tmpl_strip(s, NULL, !right, right); s.n > 0 && !r->failed; max--) {
        size_t at = right ? s.n : 0, cut = at;
        while (max != 0 && (right ? at > 0 : at < s.n)) {
            u32 cp = right ? tmpl_cp_prev(s, &at) : tmpl_cp_next(s, &at);
            if (tmpl_cp_class(cp) & CP_SPACE) break;
            cut = at;
        }
        if (max == 0) cut = right ? 0 : s.n;
        struct view head = {s.p, cut}, tail = {s.p + cut, s.n - cut};
        tmpl_push(r, out, tmpl_str(r, right ? tail : head));
        s = tmpl_strip(right ? head : tail, NULL, !right, right);
    }
}

static void split_at(struct trun *r, struct view s, struct view sep, i64 max, bool right,
                     struct tlist *out) {
    for (; !r->failed; max--) {
        size_t at = max == 0 ? SIZE_MAX : right ? tmpl_rfind(s, sep) : tmpl_find(s, sep);
        if (at == SIZE_MAX) break;
        struct view head = {s.p, at}, tail = {s.p + at + sep.n, s.n - at - sep.n};
        tmpl_push(r, out, tmpl_str(r, right ? tail : head));
        s = right ? head : tail;
    }
    tmpl_push(r, out, tmpl_str(r, s));
}

static bool split(struct trun *r, struct tcall *c, bool right) {
    struct view sep;
    i64 max;
    c->out = tmpl_list(r);
    if (!tmpl_arg_int(r, c, 1, -1, &max)) return false;
    if (!given(c, 0)) {
        split_space(r, self(c), max, right, c->out.list);
    } else {
        if (!tmpl_arg_str(r, c, 0, &sep)) return false;
        if (sep.n == 0) return tmpl_fail(r, "empty separator");
        split_at(r, self(c), sep, max, right, c->out.list);
    }
    if (right) tmpl_reverse(c->out.list);
    return tmpl_step(r, c->out.list->n);
}
static bool s_split(struct trun *r, struct tcall *c) {
    return split(r, c, false);
}
static bool s_rsplit(struct trun *r, struct tcall *c) {
    return split(r, c, true);
}

static bool partition(struct trun *r, struct tcall *c, bool right) {
    struct view s = self(c), sep;
    if (!tmpl_arg_str(r, c, 0, &sep)) return false;
    if (sep.n == 0) return tmpl_fail(r, "empty separator");
    size_t at = right ? tmpl_rfind(s, sep) : tmpl_find(s, sep);
    struct view part[3] = {s, VIEW(""), VIEW("")};
    if (at != SIZE_MAX) {
        part[0].n = at;
        part[1] = sep;
        part[2] = (struct view){s.p + at + sep.n, s.n - at - sep.n};
    } else if (right) {
        part[2] = s;
        part[0] = VIEW("");
    }
    c->out = tmpl_tuple(r, NULL, 0);
    for (size_t i = 0; i < 3; i++) tmpl_push(r, c->out.list, tmpl_str(r, part[i]));
    return true;
}
static bool s_partition(struct trun *r, struct tcall *c) {
    return partition(r, c, false);
}
static bool s_rpartition(struct trun *r, struct tcall *c) {
    return partition(r, c, true);
}

static bool s_splitlines(struct trun *r, struct tcall *c) {
    struct view s = self(c), line;
    bool keep = tmpl_arg_truth(r, c, 0, false);
    c->out = tmpl_list(r);
    while (tmpl_next_line(&s, keep, &line) && !r->failed)
        tmpl_push(r, c->out.list, tmpl_str(r, line));
    return tmpl_step(r, c->out.list->n);
}

static bool s_join(struct trun *r, struct tcall *c) {
    struct tcursor cur;
    struct tval item;
    struct tbuf b = {0};
    if (!tmpl_cursor(r, c->arg[0], &cur)) return false;
    for (size_t i = 0;; i++) {
        if (!tmpl_next(r, &cur, &item)) return false;
        if (item.kind == T_ABSENT) return give_buf(r, c, &b);
        if (item.kind != T_STR)
            return tmpl_fail(r, "sequence item %zu: expected str instance, %s found", i,
                             tmpl_type_name(item));
        if (i) tmpl_put(r, &b, self(c));
        if (c->self.s->markup && !item.s->markup)
            tmpl_put_escaped(r, &b, item.s->v);
        else
            tmpl_put(r, &b, item.s->v);
    }
}

static bool s_replace(struct trun *r, struct tcall *c) {
    struct view from, to;
    struct tbuf b = {0}, esc = {0};
    i64 count;
    if (!tmpl_arg_str(r, c, 0, &from) || !tmpl_arg_str(r, c, 1, &to)) return false;
    if (!tmpl_arg_int(r, c, 2, -1, &count)) return false;
    if (c->self.s->markup && !c->arg[1].s->markup) {
        tmpl_put_escaped(r, &esc, to);
        to = (struct view){esc.p ? esc.p : "", esc.n};
    }
    return tmpl_replace(r, &b, self(c), from, to, count) && give_buf(r, c, &b);
}

/* Pads self to width with `left` of the padding in front. */
static bool pad(struct trun *r, struct tcall *c, bool at_left, bool at_right) {
    struct tbuf b = {0};
    i64 width;
    size_t at = 0;
    if (!tmpl_arg_int(r, c, 0, 0, &width)) return false;
    if (c->arg[1].kind != T_ABSENT && (c->arg[1].kind != T_STR || tmpl_str_len(c->arg[1]) != 1))
        return tmpl_fail(r, "The fill character must be exactly one character long");
    u32 fill = c->arg[1].kind == T_STR ? tmpl_cp_next(c->arg[1].s->v, &at) : ' ';
    i64 n = (i64)tmpl_str_len(c->self), extra = width > n ? width - n : 0;
    i64 left = !at_left ? 0 : at_right ? extra / 2 + (extra & width & 1) : extra;
    tmpl_put_fill(r, &b, fill, (size_t)left);
    tmpl_put(r, &b, self(c));
    tmpl_put_fill(r, &b, fill, (size_t)(extra - left));
    return give_buf(r, c, &b);
}
static bool s_center(struct trun *r, struct tcall *c) {
    return pad(r, c, true, true);
}
static bool s_ljust(struct trun *r, struct tcall *c) {
    return pad(r, c, false, true);
}
static bool s_rjust(struct trun *r, struct tcall *c) {
    return pad(r, c, true, false);
}

static bool s_zfill(struct trun *r, struct tcall *c) {
    struct view s = self(c);
    struct tbuf b = {0};
    i64 width, n = (i64)tmpl_str_len(c->self);
    if (!tmpl_arg_int(r, c, 0, 0, &width)) return false;
    size_t sign = s.n && (s.p[0] == '-' || s.p[0] == '+');
    tmpl_put(r, &b, (struct view){s.p, sign});
    tmpl_put_fill(r, &b, '0', width > n ? (size_t)(width - n) : 0);
    tmpl_put(r, &b, (struct view){s.p + sign, s.n - sign});
    return give_buf(r, c, &b);
}

static bool s_format(struct trun *r, struct tcall *c) {
    return tmpl_format(r, c->self, c);
}

static bool s_format_map(struct trun *r, struct tcall *c) {
    if (c->n_pos != 1 || c->kw || c->pos[0].kind != T_DICT)
        return tmpl_fail(r, "format_map() takes exactly one argument, a mapping");
    struct tcall inner = {.kw = c->pos[0].dict};
    if (!tmpl_format(r, c->self, &inner)) return false;
    c->out = inner.out;
    return true;
}

static bool l_count(struct trun *r, struct tcall *c) {
    struct tcursor cur;
    struct tval item;
    bool eq;
    if (!tmpl_cursor(r, c->self, &cur)) return false;
    for (i64 n = 0;; n += eq) {
        if (!tmpl_next(r, &cur, &item)) return false;
        if (item.kind == T_ABSENT) return give_int(c, n);
        if (!tmpl_equal(r, item, c->arg[0], &eq)) return false;
    }
}

static bool l_index(struct trun *r, struct tcall *c) {
    struct tval items;
    i64 from, to, n;
    bool eq;
    if (!tmpl_to_list(r, c->self, &items)) return false;
    n = (i64)items.list->n;
    if (!tmpl_arg_int(r, c, 1, 0, &from) || !tmpl_arg_int(r, c, 2, n, &to)) return false;
    if (from < 0) from = from < -n ? 0 : from + n;
    if (to < 0) to = to < -n ? 0 : to + n;
    for (i64 i = from; i < MIN(n, to); i++) {
        if (!tmpl_equal(r, items.list->v[i], c->arg[0], &eq)) return false;
        if (eq) return give_int(c, i);
    }
    return tmpl_fail(r, "the value is not in the %s", tmpl_type_name(c->self));
}

static bool l_copy(struct trun *r, struct tcall *c) {
    return tmpl_to_list(r, c->self, &c->out);
}

static bool l_insert_at(struct trun *r, struct tcall *c, i64 at, struct tval v) {
    struct tlist *l = c->self.list;
    i64 n = (i64)l->n;
    at = at < 0 ? MAX((i64)0, at < -n ? 0 : at + n) : MIN(at, n);
    tmpl_push(r, l, v);
    memmove(&l->v[at + 1], &l->v[at], (size_t)(n - at) * sizeof *l->v);
    l->v[at] = v;
    c->out = tmpl_none();
    return tmpl_step(r, 1 + (u64)(n - at) / 16);
}

static bool l_append(struct trun *r, struct tcall *c) {
    return l_insert_at(r, c, INT64_MAX, c->arg[0]);
}

static bool l_insert(struct trun *r, struct tcall *c) {
    i64 at;
    return tmpl_arg_int(r, c, 0, 0, &at) && l_insert_at(r, c, at, c->arg[1]);
}

static bool l_extend(struct trun *r, struct tcall *c) {
    struct tval items;
    if (!tmpl_to_list(r, c->arg[0], &items)) return false;
    for (size_t i = 0; i < items.list->n; i++) tmpl_push(r, c->self.list, items.list->v[i]);
    c->out = tmpl_none();
    return true;
}

static bool l_pop(struct trun *r, struct tcall *c) {
    struct tlist *l = c->self.list;
    i64 at, n = (i64)l->n;
    if (!tmpl_arg_int(r, c, 0, -1, &at)) return false;
    if (n == 0) return tmpl_fail(r, "pop from empty list");
    if (at < 0) at += n;
    if (at < 0 || at >= n) return tmpl_fail(r, "pop index out of range");
    c->out = l->v[at];
    memmove(&l->v[at], &l->v[at + 1], (size_t)(n - at - 1) * sizeof *l->v);
    l->n--;
    return tmpl_step(r, 1 + (u64)(n - at) / 16);
}

static bool d_get(struct trun *r, struct tcall *c) {
    bool fail;
    struct tval *v = tmpl_dict_get(r, c->self.dict, c->arg[0], &fail);
    c->out = v ? *v : c->arg[1].kind == T_ABSENT ? tmpl_none() : c->arg[1];
    return !fail;
}

/* items, keys and values: the row's tag is the view. */
static bool d_view(struct trun *r, struct tcall *c) {
    c->out = (struct tval){.kind = T_VIEW, .sub = (u8)c->func->tag, .dict = c->self.dict};
    return !r->failed;
}

static bool d_copy(struct trun *r, struct tcall *c) {
    c->out = tmpl_dict(r);
    for (size_t i = 0; i < c->self.dict->n; i++)
        tmpl_dict_append(r, c->out.dict, c->self.dict->v[i].key, c->self.dict->v[i].val);
    return tmpl_step(r, c->self.dict->n);
}

/* dict.fromkeys(keys, value=None), of the global `dict`. */
static bool d_fromkeys(struct trun *r, struct tcall *c) {
    struct tcursor cur;
    struct tval key, v = c->arg[1].kind == T_ABSENT ? tmpl_none() : c->arg[1];
    c->out = tmpl_dict(r);
    if (!tmpl_cursor(r, c->arg[0], &cur)) return false;
    for (;;) {
        if (!tmpl_next(r, &cur, &key)) return false;
        if (key.kind == T_ABSENT) return true;
        if (!tmpl_dict_set(r, c->out.dict, key, v)) return false;
    }
}

static bool c_next(struct trun *r, struct tcall *c) {
    struct tcycler *cy = c->self.cycler;
    c->out = cy->items->v[cy->pos];
    cy->pos = (cy->pos + 1) % cy->items->n;
    return !r->failed;
}

static bool c_reset(struct trun *r, struct tcall *c) {
    c->self.cycler->pos = 0;
    c->out = tmpl_none();
    return !r->failed;
}

static const struct tfunc str_methods[] = {
    {"capitalize", "", s_capitalize, 0},
    {"casefold", "", NULL, 0},
    {"center", "- -?", s_center, 0},
    {"count", "- -? -?", s_count, 0},
    {"encode", "", NULL, 0},
    {"endswith", "- -? -?", s_endswith, 0},
    {"expandtabs", "", NULL, 0},
    {"find", "- -? -?", s_find, 0},
    {"format", "*", s_format, 0},
    {"format_map", "*", s_format_map, 0},
    {"index", "- -? -?", s_index, 0},
    {"isalnum", "", s_class, CP_ALNUM},
    {"isalpha", "", s_class, CP_ALPHA},
    {"isascii", "", s_isascii, 0},
    {"isdecimal", "", s_class, CP_DECIMAL},
    {"isdigit", "", s_class, CP_DIGIT},
    {"isidentifier", "", s_isidentifier, 0},
    {"islower", "", s_islower, 0},
    {"isnumeric", "", s_class, CP_NUMERIC},
    {"isprintable", "", s_isprintable, 0},
    {"isspace", "", s_class, CP_SPACE},
    {"istitle", "", s_istitle, 0},
    {"isupper", "", s_isupper, 0},
    {"join", "-", s_join, 0},
    {"ljust", "- -?", s_ljust, 0},
    {"lower", "", s_lower, 0},
    {"lstrip", "-?", s_lstrip, 0},
    {"maketrans", "", NULL, 0},
    {"partition", "-", s_partition, 0},
    {"removeprefix", "-", s_removeprefix, 0},
    {"removesuffix", "-", s_removesuffix, 0},
    {"replace", "- - -?", s_replace, 0},
    {"rfind", "- -? -?", s_rfind, 0},
    {"rindex", "- -? -?", s_rindex, 0},
    {"rjust", "- -?", s_rjust, 0},
    {"rpartition", "-", s_rpartition, 0},
    {"rsplit", "sep? maxsplit?", s_rsplit, 0},
    {"rstrip", "-?", s_rstrip, 0},
    {"split", "sep? maxsplit?", s_split, 0},
    {"splitlines", "keepends?", s_splitlines, 0},
    {"startswith", "- -? -?", s_startswith, 0},
    {"strip", "-?", s_strip, 0},
    {"swapcase", "", s_swapcase, 0},
    {"title", "", s_title, 0},
    {"translate", "", NULL, 0},
    {"upper", "", s_upper, 0},
    {"zfill", "-", s_zfill, 0},
};
static const struct tfunc list_methods[] = {
    {"append", "-", l_append, 0},   {"clear", "unsafe", NULL, 0}, {"copy", "", l_copy, 0},
    {"count", "-", l_count, 0},     {"extend", "-", l_extend, 0}, {"index", "- -? -?", l_index, 0},
    {"insert", "- -", l_insert, 0}, {"pop", "-?", l_pop, 0},      {"remove", "unsafe", NULL, 0},
    {"reverse", "unsafe", NULL, 0}, {"sort", "unsafe", NULL, 0},
};
static const struct tfunc tuple_methods[] = {
    {"count", "-", l_count, 0},
    {"index", "- -? -?", l_index, 0},
};
static const struct tfunc dict_methods[] = {
    {"clear", "unsafe", NULL, 0},        {"copy", "", d_copy, 0},
    {"fromkeys", "- -?", d_fromkeys, 0}, {"get", "- -?", d_get, 0},
    {"items", "", d_view, VIEW_ITEMS},   {"keys", "", d_view, VIEW_KEYS},
    {"pop", "unsafe", NULL, 0},          {"popitem", "unsafe", NULL, 0},
    {"setdefault", "unsafe", NULL, 0},   {"update", "unsafe", NULL, 0},
    {"values", "", d_view, VIEW_VALUES},
};
static const struct tfunc view_methods[] = {
    {"isdisjoint", "", NULL, 0},
    {"mapping", "", NULL, 0},
};
static const struct tfunc number_methods[] = {
    {"as_integer_ratio", "", NULL, 0}, {"bit_count", "", NULL, 0},   {"bit_length", "", NULL, 0},
    {"conjugate", "", NULL, 0},        {"denominator", "", NULL, 0}, {"from_bytes", "", NULL, 0},
    {"fromhex", "", NULL, 0},          {"hex", "", NULL, 0},         {"imag", "", NULL, 0},
    {"is_integer", "", NULL, 0},       {"numerator", "", NULL, 0},   {"real", "", NULL, 0},
    {"to_bytes", "", NULL, 0},
};
static const struct tfunc cycler_methods[] = {{"next", "", c_next, 0}, {"reset", "", c_reset, 0}};
static const struct tfunc dict_type_methods[] = {{"fromkeys", "- -?", d_fromkeys, 0}};

const struct tfunc *tmpl_method(struct tval v, struct view name) {
    static const struct {
        const struct tfunc *table;
        size_t n;
    } tables[] = {
        [T_BOOL] = {number_methods, ARRAY_LEN(number_methods)},
        [T_INT] = {number_methods, ARRAY_LEN(number_methods)},
        [T_FLOAT] = {number_methods, ARRAY_LEN(number_methods)},
        [T_STR] = {str_methods, ARRAY_LEN(str_methods)},
        [T_LIST] = {list_methods, ARRAY_LEN(list_methods)},
        [T_TUPLE] = {tuple_methods, ARRAY_LEN(tuple_methods)},
        [T_DICT] = {dict_methods, ARRAY_LEN(dict_methods)},
        [T_VIEW] = {view_methods, ARRAY_LEN(view_methods)},
        [T_RANGE] = {tuple_methods, ARRAY_LEN(tuple_methods)},
        [T_FUNC] = {dict_type_methods, ARRAY_LEN(dict_type_methods)},
        [T_CYCLER] = {cycler_methods, ARRAY_LEN(cycler_methods)},
        [T_JOINER] = {NULL, 0},
    };
    if (v.kind == T_FUNC && strcmp(v.func->name, "dict") != 0) return NULL;
    return tmpl_find_func(tables[v.kind].table, tables[v.kind].n, name);
}
