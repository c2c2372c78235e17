#include "base/yaml.h"

#include <stdlib.h>
#include <string.h>
#include <yaml.h>

enum { YAML_MAX_BYTES = 256 << 10, YAML_MAX_DEPTH = 32, YAML_MAX_NODES = 10000 };

struct reader {
    yaml_parser_t p;
    struct arena *a;
    struct err *e;
    u32 n_nodes;
};

static bool fail(struct reader *r, enum err_code code, const yaml_mark_t *m, const char *what) {
    return err_set(r->e, code, "line %zu, column %zu: %s", m->line + 1, m->column + 1, what);
}

static bool next(struct reader *r, yaml_event_t *ev) {
    if (yaml_parser_parse(&r->p, ev)) return true;
    return fail(r, ERR_FORMAT, &r->p.problem_mark, r->p.problem ? r->p.problem : "not YAML");
}

static struct yaml *read_node(struct reader *r, yaml_event_t *ev, u32 depth);

/* Children up to the end event; in a mapping each is preceded by its key. */
static bool read_children(struct reader *r, struct yaml *y, u32 depth) {
    struct yaml **tail = &y->first;
    yaml_event_type_t end = y->kind == YAML_MAP ? YAML_MAPPING_END_EVENT : YAML_SEQUENCE_END_EVENT;
    for (;;) {
        yaml_event_t ev;
        if (!next(r, &ev)) return false;
        if (ev.type == end) {
            yaml_event_delete(&ev);
            return true;
        }
        const char *key = NULL;
        if (y->kind == YAML_MAP) {
            bool ok = ev.type == YAML_SCALAR_EVENT && !ev.data.scalar.anchor;
            if (!ok)
                fail(r, ERR_FORMAT, &ev.start_mark, "a mapping's key must be plain text");
            else {
                key = arena_memdup(r->a, ev.data.scalar.value, ev.data.scalar.length);
                ok = !yaml_get(y, key);
                if (!ok) fail(r, ERR_FORMAT, &ev.start_mark, "this key stands here twice");
            }
            yaml_event_delete(&ev);
            if (!ok || !next(r, &ev)) return false;
        }
        struct yaml *c = read_node(r, &ev, depth + 1);
        if (!c) return false;
        c->key = key;
        *tail = c;
        tail = &c->next;
    }
}

/* Takes ev. */
static struct yaml *read_node(struct reader *r, yaml_event_t *ev, u32 depth) {
    struct yaml *y = arena_alloc(r->a, sizeof *y);
    y->line = (u32)ev->start_mark.line + 1;
    bool ok = true;
    if (depth > YAML_MAX_DEPTH || ++r->n_nodes > YAML_MAX_NODES) {
        ok = fail(r, ERR_LIMIT, &ev->start_mark, "nested too deeply or too many values");
    } else if (ev->type == YAML_SCALAR_EVENT && !ev->data.scalar.anchor) {
        y->text = arena_memdup(r->a, ev->data.scalar.value, ev->data.scalar.length);
        y->quoted = ev->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    } else if (ev->type == YAML_SEQUENCE_START_EVENT && !ev->data.sequence_start.anchor) {
        y->kind = YAML_SEQ;
    } else if (ev->type == YAML_MAPPING_START_EVENT && !ev->data.mapping_start.anchor) {
        y->kind = YAML_MAP;
    } else {
        ok = fail(r, ERR_FORMAT, &ev->start_mark, "anchors and aliases are not used here");
    }
    yaml_event_delete(ev);
    if (ok && y->kind != YAML_SCALAR) ok = read_children(r, y, depth);
    return ok ? y : NULL;
}

struct yaml *yaml_parse(struct view text, struct arena *a, struct err *e) {
    if (text.n > YAML_MAX_BYTES) {
        err_set(e, ERR_LIMIT, "%zu bytes of YAML, the limit is %d", text.n, (int)YAML_MAX_BYTES);
        return NULL;
    }
    struct reader r = {.a = a, .e = e};
    if (!yaml_parser_initialize(&r.p)) return NULL;
    yaml_parser_set_input_string(&r.p, (const unsigned char *)text.p, text.n);
    struct yaml *root = NULL;
    for (;;) {
        yaml_event_t ev;
        if (!next(&r, &ev)) break;
        yaml_event_type_t t = ev.type;
        if (t == YAML_STREAM_START_EVENT || t == YAML_DOCUMENT_START_EVENT) {
            yaml_event_delete(&ev);
            continue;
        }
        if (t == YAML_STREAM_END_EVENT) fail(&r, ERR_FORMAT, &ev.start_mark, "the file is empty");
        if (t == YAML_STREAM_END_EVENT)
            yaml_event_delete(&ev);
        else
            root = read_node(&r, &ev, 0);
        break;
    }
    yaml_parser_delete(&r.p);
    return root;
}

const struct yaml *yaml_get(const struct yaml *y, const char *key) {
    if (!y || y->kind != YAML_MAP) return NULL;
    for (const struct yaml *c = y->first; c; c = c->next)
        if (strcmp(c->key, key) == 0) return c;
    return NULL;
}

const char *yaml_text(const struct yaml *y, const char *key) {
    const struct yaml *c = yaml_get(y, key);
    return c && c->kind == YAML_SCALAR ? c->text : NULL;
}

bool yaml_u64(const struct yaml *y, const char *key, u64 *out, struct err *e) {
    const struct yaml *c = yaml_get(y, key);
    if (!c) return false;
    u64 v = 0;
    bool any = false;
    for (const char *s = c->kind == YAML_SCALAR ? c->text : "x"; *s; s++) {
        if (*s == '_') continue;
        if (*s < '0' || *s > '9' || !size_mul(v, 10, &v) || !size_add(v, (u64)(*s - '0'), &v))
            return err_set(e, ERR_FORMAT, "line %u: %s must be a whole number", c->line, key);
        any = true;
    }
    if (!any) return err_set(e, ERR_FORMAT, "line %u: %s must be a whole number", c->line, key);
    *out = v;
    return true;
}
