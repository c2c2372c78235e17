/* JSON in (the variables of a rendering, through jansson) and out (the tojson filter). */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/template_builtin.h"

static bool from_json(struct trun *r, json_t *j, struct tval *out);

static bool list_from_json(struct trun *r, json_t *j, struct tval *out) {
    struct tval v;
    size_t i;
    json_t *item;
    *out = tmpl_list(r);
    json_array_foreach(j, i, item) {
        if (!from_json(r, item, &v)) return false;
        tmpl_push(r, out->list, v);
    }
    return true;
}

static bool dict_from_json(struct trun *r, json_t *j, struct tval *out) {
    struct tval v;
    const char *key;
    json_t *item;
    *out = tmpl_dict(r);
    json_object_foreach(j, key, item) {
        if (!from_json(r, item, &v)) return false;
        tmpl_dict_append(r, out->dict, tmpl_strz(r, key), v);
    }
    return true;
}

static bool from_json(struct trun *r, json_t *j, struct tval *out) {
    if (r->failed || !tmpl_enter(r)) return false;
    bool ok = true;
    switch (json_typeof(j)) {
    case JSON_OBJECT: ok = dict_from_json(r, j, out); break;
    case JSON_ARRAY: ok = list_from_json(r, j, out); break;
    case JSON_STRING:
        *out = tmpl_str(r, (struct view){json_string_value(j), json_string_length(j)});
        break;
    case JSON_INTEGER: *out = tmpl_int(json_integer_value(j)); break;
    case JSON_REAL: *out = tmpl_float(json_real_value(j)); break;
    case JSON_TRUE:
    case JSON_FALSE: *out = tmpl_bool(json_is_true(j)); break;
    case JSON_NULL: *out = tmpl_none(); break;
    }
    r->depth--;
    return ok && !r->failed;
}

bool tmpl_json_load(struct trun *r, struct view json, void **keep) {
    json_error_t je;
    const char *key;
    json_t *item, *root = json_loadb(json.p, json.n, JSON_ALLOW_NUL, &je);
    *keep = root;
    if (!root)
        return err_set(r->e, ERR_FORMAT, "template variables: line %d, column %d: %s", je.line,
                       je.column, je.text);
    if (!json_is_object(root))
        return err_set(r->e, ERR_FORMAT, "template variables: no JSON object");
    json_object_foreach(root, key, item) {
        u32 name;
        if (!tmpl_find_name(r->t, view_of(key), &name)) continue;
        if (!from_json(r, item, &r->globals[name]))
            return err_wrap(r->e, "template variable '%s'", key);
    }
    return true;
}

void tmpl_json_free(void *keep) {
    json_decref(keep);
}

struct dump { /* json.dumps and its options */
    struct trun *r;
    struct tbuf b;
    struct view item_sep, key_sep, indent;
    bool pretty, ascii, sort;
};

static bool dump(struct dump *d, struct tval v, size_t level);

static void dump_str(struct dump *d, struct view s) {
    static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
    struct trun *r = d->r;
    char esc[16];
    tmpl_putc(r, &d->b, '"');
    for (size_t i = 0; i < s.n && !r->failed;) {
        size_t at = i;
        u32 cp = tmpl_cp_next(s, &i);
        const char *known = cp && cp < 0x80 ? strchr(from, (int)cp) : NULL;
        if (known)
            snprintf(esc, sizeof esc, "\\%c", to[known - from]);
        else if (cp < 0x20 || (d->ascii && cp >= 0x7F && cp < 0x10000))
            snprintf(esc, sizeof esc, "\\u%04x", cp);
        else if (d->ascii && cp >= 0x10000)
            snprintf(esc, sizeof esc, "\\u%04x\\u%04x", 0xD7C0 + (cp >> 10), 0xDC00 + (cp & 0x3FF));
        else {
            tmpl_put(r, &d->b, (struct view){s.p + at, i - at});
            continue;
        }
        tmpl_putz(r, &d->b, esc);
    }
    tmpl_putc(r, &d->b, '"');
}

static void new_line(struct dump *d, size_t level) {
    if (!d->pretty) return;
    tmpl_putc(d->r, &d->b, '\n');
    for (size_t i = 0; i < level && !d->r->failed; i++) tmpl_put(d->r, &d->b, d->indent);
}

static bool dump_list(struct dump *d, const struct tlist *l, size_t level) {
    if (l->n == 0) return tmpl_putz(d->r, &d->b, "[]"), true;
    tmpl_putc(d->r, &d->b, '[');
    for (size_t i = 0; i < l->n; i++) {
        if (i) tmpl_put(d->r, &d->b, d->item_sep);
        new_line(d, level + 1);
        if (!dump(d, l->v[i], level + 1)) return false;
    }
    new_line(d, level);
    tmpl_putc(d->r, &d->b, ']');
    return true;
}

static bool dump_scalar(struct dump *d, struct tval v) {
    char text[32];
    if (v.kind == T_NONE) return tmpl_putz(d->r, &d->b, "null"), true;
    if (v.kind == T_BOOL) return tmpl_putz(d->r, &d->b, v.b ? "true" : "false"), true;
    if (v.kind == T_FLOAT && !isfinite(v.f)) {
        tmpl_putz(d->r, &d->b, isnan(v.f) ? "NaN" : v.f < 0 ? "-Infinity" : "Infinity");
        return true;
    }
    if (v.kind == T_FLOAT)
        tmpl_float_text(v.f, text);
    else
        snprintf(text, sizeof text, "%lld", (long long)v.i);
    return tmpl_putz(d->r, &d->b, text), true;
}

static bool dump_key(struct dump *d, struct tval key) {
    if (key.kind == T_STR) return dump_str(d, key.s->v), true;
    if (key.kind != T_NONE && key.kind != T_BOOL && key.kind != T_INT && key.kind != T_FLOAT)
        return tmpl_fail(d->r, "keys must be str, int, float, bool or None, not %s",
                         tmpl_type_name(key));
    tmpl_putc(d->r, &d->b, '"');
    if (!dump_scalar(d, key)) return false;
    tmpl_putc(d->r, &d->b, '"');
    return true;
}

static bool dump_dict(struct dump *d, const struct tdict *dict, size_t level) {
    struct tval order = tmpl_list(d->r);
    if (dict->n == 0) return tmpl_putz(d->r, &d->b, "{}"), true;
    for (size_t i = 0; i < dict->n; i++) tmpl_push(d->r, order.list, dict->v[i].key);
    if (d->sort && !tmpl_sort(d->r, order.list, NULL, false)) return false;
    tmpl_putc(d->r, &d->b, '{');
    for (size_t i = 0; i < dict->n; i++) {
        struct tval key = order.list->v[i];
        const struct tval *v = tmpl_dict_get(d->r, dict, key, NULL);
        if (i) tmpl_put(d->r, &d->b, d->item_sep);
        new_line(d, level + 1);
        if (!v || !dump_key(d, key)) return false;
        tmpl_put(d->r, &d->b, d->key_sep);
        if (!dump(d, *v, level + 1)) return false;
    }
    new_line(d, level);
    tmpl_putc(d->r, &d->b, '}');
    return true;
}

static bool dump(struct dump *d, struct tval v, size_t level) {
    struct trun *r = d->r;
    bool ok;
    if (!tmpl_step(r, 1)) return false;
    switch (v.kind) {
    case T_NONE:
    case T_BOOL:
    case T_INT:
    case T_FLOAT: return dump_scalar(d, v);
    case T_STR: return dump_str(d, v.s->v), true;
    case T_LIST:
    case T_TUPLE:
    case T_DICT:
        if (!tmpl_enter(r)) return false;
        ok = v.kind == T_DICT ? dump_dict(d, v.dict, level) : dump_list(d, v.list, level);
        r->depth--;
        return ok;
    default: return tmpl_fail(r, "Object of type %s is not JSON serializable", tmpl_type_name(v));
    }
}

static bool separators(struct trun *r, struct tval v, struct dump *d) {
    struct tval l;
    if (v.kind == T_ABSENT || v.kind == T_NONE) return true;
    if (!tmpl_to_list(r, v, &l)) return false;
    if (l.list->n != 2 || l.list->v[0].kind != T_STR || l.list->v[1].kind != T_STR)
        return tmpl_fail(r, "tojson: separators must be two strings");
    d->item_sep = l.list->v[0].s->v;
    d->key_sep = l.list->v[1].s->v;
    return true;
}

/* tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False): transformers' own,
 * which escapes no HTML. */
bool tmpl_f_tojson(struct trun *r, struct tcall *c) {
    struct dump d = {.r = r, .item_sep = VIEW(", "), .key_sep = VIEW(": ")};
    struct tval indent = c->arg[1];
    i64 width;
    d.ascii = tmpl_arg_truth(r, c, 0, false);
    d.pretty = indent.kind != T_ABSENT && indent.kind != T_NONE;
    d.sort = tmpl_arg_truth(r, c, 3, false);
    if (d.pretty) d.item_sep = VIEW(",");
    if (d.pretty && indent.kind == T_STR)
        d.indent = indent.s->v;
    else if (d.pretty) {
        struct tbuf spaces = {0};
        if (!tmpl_arg_int(r, c, 1, 0, &width)) return false;
        tmpl_put_fill(r, &spaces, ' ', width > 0 ? (size_t)width : 0);
        d.indent = (struct view){spaces.p ? spaces.p : "", spaces.n};
    }
    if (!separators(r, c->arg[2], &d) || !dump(&d, c->self, 0)) return false;
    c->out = tmpl_buf_str(r, &d.b);
    return true;
}
