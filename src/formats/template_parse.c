/* Parser of statements, and what both parsers share. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "formats/template_ast.h"

enum { BLOCK_DEPTH_MAX = 100, MACRO_PARAMS_MAX = 64 }; /* 64: a bit each when they are bound */

static bool parse_body(struct tparser *p, const char *const *ends, struct tnode **out);

bool tmpl_parse_fail(struct tparser *p, const struct ttok *at, enum err_code code, const char *fmt,
                     ...) {
    char msg[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    size_t n = strlen(msg);
    msg[n - utf8_incomplete_tail(msg, n)] = 0;
    return err_set(p->e, code, "line %u, column %u: %s", at->line, at->col, msg);
}

const char *tmpl_describe(const struct ttok *t, char buf[64]) {
    static const char *const names[] = {
        [TOK_EOF] = "end of template",
        [TOK_DATA] = "template data / text",
        [TOK_VAR_BEGIN] = "begin of print statement",
        [TOK_VAR_END] = "end of print statement",
        [TOK_BLOCK_BEGIN] = "begin of statement block",
        [TOK_BLOCK_END] = "end of statement block",
        [TOK_STRING] = "string",
    };
    if (t->kind < ARRAY_LEN(names) && names[t->kind]) return names[t->kind];
    int n = t->text.n < 60 ? (int)t->text.n : 60;
    snprintf(buf, 64, "%.*s", n - (int)utf8_incomplete_tail(t->text.p, (size_t)n), t->text.p);
    return buf;
}

bool tmpl_expect(struct tparser *p, enum ttok_kind kind, const char *what) {
    if (p->tok->kind == kind) return p->tok++, true;
    if (p->tok->kind == TOK_EOF)
        return tmpl_parse_fail(p, p->tok, ERR_FORMAT, "unexpected end of template, expected '%s'",
                               what);
    return tmpl_parse_fail(p, p->tok, ERR_FORMAT, "expected token '%s', got '%s'", what,
                           tmpl_describe(p->tok, (char[64]){0}));
}

bool tmpl_is_name(const struct ttok *t, const char *name) {
    return t->kind == TOK_NAME && view_is(t->text, name);
}

bool tmpl_skip_name(struct tparser *p, const char *name) {
    if (!tmpl_is_name(p->tok, name)) return false;
    p->tok++;
    return true;
}

struct tnode *tmpl_node(struct tparser *p, enum tnode_kind kind, const struct ttok *at) {
    struct tnode *n = arena_alloc(&p->t->arena, sizeof *n);
    n->kind = kind;
    n->line = at->line;
    n->col = at->col;
    return n;
}

/* The slot of name in the hash index (FNV-1a, linear probing): its own or a free one. */
static u32 *name_slot(const struct template *t, struct view name) {
    u32 h = 2166136261u, mask = t->cap_names * 2 - 1;
    for (size_t i = 0; i < name.n; i++) h = (h ^ (u8)name.p[i]) * 16777619u;
    h ^= h >> 15;
    while (t->name_index[h & mask] && !view_eq(t->names[t->name_index[h & mask] - 1], name)) h++;
    return &t->name_index[h & mask];
}

static void grow_names(struct template *t) {
    struct view *old = t->names;
    t->cap_names = MAX(32u, t->cap_names * 2);
    t->names = arena_array(&t->arena, t->cap_names, sizeof *t->names);
    t->name_index = arena_array(&t->arena, t->cap_names * 2, sizeof *t->name_index);
    for (u32 i = 0; i < t->n_names; i++) {
        t->names[i] = old[i];
        *name_slot(t, old[i]) = i + 1;
    }
}

u32 tmpl_intern(struct template *t, struct view name) {
    if (t->n_names == t->cap_names) grow_names(t);
    u32 *slot = name_slot(t, name);
    if (*slot) return *slot - 1;
    t->names[t->n_names] = name;
    *slot = ++t->n_names;
    return t->n_names - 1;
}

bool tmpl_find_name(const struct template *t, struct view name, u32 *id) {
    u32 slot = *name_slot(t, name);
    *id = slot - 1;
    return slot != 0;
}

struct tval tmpl_const_str(struct template *t, struct view borrowed) {
    struct tstr *s = arena_alloc(&t->arena, sizeof *s);
    *s = (struct tstr){.v = borrowed, .n_cp = tmpl_cp_count(borrowed)};
    return (struct tval){.kind = T_STR, .s = s};
}

static bool ends_here(const struct tparser *p, const char *const *ends) {
    for (; ends && *ends; ends++)
        if (tmpl_is_name(p->tok, *ends)) return true;
    return false;
}

/* The rest of a tag, a body, and the closing tag's name, one of ends: left as current token. */
static bool parse_block(struct tparser *p, const char *const *ends, struct tnode **body) {
    if (p->tok->kind == TOK_COLON) p->tok++;
    return tmpl_expect(p, TOK_BLOCK_END, "end of statement block") && parse_body(p, ends, body);
}

/* As parse_block for the one closing tag `end`, which is read. */
static bool parse_block_to(struct tparser *p, const char *end, struct tnode **body) {
    if (!parse_block(p, (const char *const[]){end, NULL}, body)) return false;
    p->tok++;
    return true;
}

static bool parse_if_chain(struct tparser *p, const struct ttok *at, struct tnode **out) {
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    struct tnode **tail = out;
    for (;;) {
        struct tnode *n = *tail = tmpl_node(p, N_IF, at);
        if (!tmpl_parse_tuple(p, false, &n->cond.test)) return false;
        if (!parse_block(p, ends, &n->cond.then)) return false;
        tail = &n->cond.other;
        at = p->tok++;
        if (tmpl_is_name(at, "else")) return parse_block_to(p, "endif", tail);
        if (tmpl_is_name(at, "endif")) return true;
        n->cond.other_is_elif = true;
    }
}

static bool parse_if(struct tparser *p, const struct ttok *at, struct tnode **out) {
    p->soft++;
    bool ok = parse_if_chain(p, at, out);
    p->soft--;
    return ok;
}

static bool binds(const struct tnode *target, u32 name) {
    if (target->kind == N_NAME) return target->name == name;
    if (target->kind != N_TUPLE) return false;
    for (const struct tnode *i = target->items; i; i = i->next)
        if (binds(i, name)) return true;
    return false;
}

static bool parse_for(struct tparser *p, const struct ttok *at, struct tnode **out) {
    static const char *const ends[] = {"endfor", "else", NULL};
    struct tnode *n = *out = tmpl_node(p, N_FOR, at);
    if (!tmpl_parse_target(p, false, &n->loop.target)) return false;
    if (binds(n->loop.target, p->t->name_loop))
        return tmpl_parse_fail(p, at, ERR_FORMAT,
                               "Can't assign to special loop variable in for-loop target");
    if (!tmpl_skip_name(p, "in"))
        return tmpl_parse_fail(p, p->tok, ERR_FORMAT, "expected token 'in', got '%s'",
                               tmpl_describe(p->tok, (char[64]){0}));
    if (!tmpl_parse_tuple(p, false, &n->loop.iter)) return false;
    if (tmpl_skip_name(p, "if") && !tmpl_parse_expr(p, true, &n->loop.test)) return false;
    n->loop.recursive = tmpl_skip_name(p, "recursive");
    p->loops++;
    bool ok = parse_block(p, ends, &n->loop.body);
    p->loops--;
    if (!ok) return false;
    bool has_else = tmpl_is_name(p->tok++, "else");
    return !has_else || parse_block_to(p, "endfor", &n->loop.other);
}

static bool parse_set(struct tparser *p, const struct ttok *at, struct tnode **out) {
    struct tnode *target, *n = *out = tmpl_node(p, N_SET, at);
    if (!tmpl_parse_target(p, true, &target)) return false;
    if (p->tok->kind == TOK_ASSIGN) {
        p->tok++;
        n->set.target = target;
        return tmpl_parse_tuple(p, true, &n->set.value);
    }
    n->kind = N_SET_BLOCK;
    n->set_block.target = target;
    return tmpl_parse_filters(p, NULL, false, &n->set_block.filter) &&
           parse_block_to(p, "endset", &n->set_block.body);
}

static bool parse_param(struct tparser *p, struct tmacro_def *def, struct tnode **param,
                        struct tnode **value) {
    const struct ttok *at = p->tok;
    *value = NULL;
    if (!tmpl_expect(p, TOK_NAME, "name")) return false;
    *param = tmpl_node(p, N_NAME, at);
    (*param)->name = tmpl_intern(p->t, at->text);
    if ((*param)->name == p->t->name_caller) def->explicit_caller = true;
    if (p->tok->kind != TOK_ASSIGN)
        return def->n_defaults == 0 ||
               tmpl_parse_fail(p, at, ERR_FORMAT, "non-default argument follows default argument");
    p->tok++;
    return tmpl_parse_expr(p, true, value);
}

static bool parse_signature(struct tparser *p, struct tmacro_def *def) {
    struct tnode **param = &def->params, **value = &def->defaults;
    if (!tmpl_expect(p, TOK_LPAREN, "(")) return false;
    while (p->tok->kind != TOK_RPAREN) {
        if (def->n_params && !tmpl_expect(p, TOK_COMMA, ",")) return false;
        if (!parse_param(p, def, param, value)) return false;
        param = &(*param)->next;
        if (++def->n_params > MACRO_PARAMS_MAX)
            return tmpl_parse_fail(p, p->tok, ERR_LIMIT, "more than %d parameters",
                                   MACRO_PARAMS_MAX);
        if (*value) {
            value = &(*value)->next;
            def->n_defaults++;
        }
    }
    p->tok++;
    return true;
}

/* A body that becomes a function: macro or call block. */
static bool parse_macro_body(struct tparser *p, struct tmacro_def *def, const char *end) {
    struct tmacro_def *outer = p->macro;
    u32 loops = p->loops;
    p->macro = def;
    p->loops = 0;
    bool ok = parse_block_to(p, end, &def->body);
    p->macro = outer;
    p->loops = loops;
    if (outer) { /* what an inner body mentions, the outer one mentions too */
        outer->uses_caller |= def->uses_caller;
        outer->uses_varargs |= def->uses_varargs;
        outer->uses_kwargs |= def->uses_kwargs;
    }
    return ok;
}

static bool parse_macro(struct tparser *p, const struct ttok *at, struct tnode **out) {
    struct tnode *n = *out = tmpl_node(p, N_MACRO, at);
    struct tmacro_def *def = n->macro.def = arena_alloc(&p->t->arena, sizeof *def);
    def->name = p->tok->text;
    if (!tmpl_expect(p, TOK_NAME, "name")) return false;
    n->macro.name = tmpl_intern(p->t, def->name);
    if (!parse_signature(p, def) || !parse_macro_body(p, def, "endmacro")) return false;
    if (def->uses_caller && def->explicit_caller && def->n_defaults == 0)
        return tmpl_parse_fail(p, at, ERR_FORMAT,
                               "the special \"caller\" argument must be omitted or have a default");
    return true;
}

static bool parse_call_block(struct tparser *p, const struct ttok *at, struct tnode **out) {
    struct tnode *n = *out = tmpl_node(p, N_CALL_BLOCK, at);
    struct tmacro_def *def = n->call_block.def = arena_alloc(&p->t->arena, sizeof *def);
    def->name = VIEW("caller");
    if (p->tok->kind == TOK_LPAREN && !parse_signature(p, def)) return false;
    if (!tmpl_parse_expr(p, true, &n->call_block.call)) return false;
    if (n->call_block.call->kind != N_CALL)
        return tmpl_parse_fail(p, at, ERR_FORMAT, "expected call");
    return parse_macro_body(p, def, "endcall");
}

static bool parse_filter_block(struct tparser *p, const struct ttok *at, struct tnode **out) {
    struct tnode *n = *out = tmpl_node(p, N_FILTER_BLOCK, at);
    return tmpl_parse_filters(p, NULL, true, &n->set_block.filter) &&
           parse_block_to(p, "endfilter", &n->set_block.body);
}

static bool parse_with(struct tparser *p, const struct ttok *at, struct tnode **out) {
    struct tnode *n = *out = tmpl_node(p, N_WITH, at), **item = &n->with.items;
    while (p->tok->kind != TOK_BLOCK_END) {
        if (n->with.items && !tmpl_expect(p, TOK_COMMA, ",")) return false;
        *item = tmpl_node(p, N_SET, p->tok);
        if (!tmpl_parse_target(p, false, &(*item)->set.target)) return false;
        if (!tmpl_expect(p, TOK_ASSIGN, "=")) return false;
        if (!tmpl_parse_expr(p, true, &(*item)->set.value)) return false;
        item = &(*item)->next;
    }
    return parse_block_to(p, "endwith", &n->with.body);
}

/* transformers' {% generation %} marks what the assistant said; the text itself is unchanged. It
 * is a call block there, and so a function's body here. */
static bool parse_generation(struct tparser *p, const struct ttok *at, struct tnode **out) {
    struct tnode *n = *out = tmpl_node(p, N_GENERATION, at);
    n->macro.def = arena_alloc(&p->t->arena, sizeof *n->macro.def);
    return parse_macro_body(p, n->macro.def, "endgeneration");
}

static bool parse_print(struct tparser *p, const struct ttok *at, struct tnode **out) {
    struct tnode *scope = *out = tmpl_node(p, N_IF, at), **item = &scope->cond.then;
    scope->cond.test = tmpl_node(p, N_CONST, at);
    scope->cond.test->value = tmpl_bool(true);
    while (p->tok->kind != TOK_BLOCK_END) {
        if (scope->cond.then && !tmpl_expect(p, TOK_COMMA, ",")) return false;
        *item = tmpl_node(p, N_OUTPUT, p->tok);
        if (!tmpl_parse_expr(p, true, &(*item)->expr)) return false;
        item = &(*item)->next;
    }
    return true;
}

static bool parse_jump(struct tparser *p, const struct ttok *at, struct tnode **out) {
    *out = tmpl_node(p, view_is(at->text, "break") ? N_BREAK : N_CONTINUE, at);
    return p->loops > 0 ||
           tmpl_parse_fail(p, at, ERR_FORMAT, "'%.*s' outside loop", VIEW_FMT(at->text));
}

static bool parse_statement(struct tparser *p, const char *const *ends, struct tnode **out) {
    static const struct {
        const char *name;
        bool (*parse)(struct tparser *p, const struct ttok *at, struct tnode **out);
    } tags[] = {
        {"if", parse_if},           {"for", parse_for},
        {"set", parse_set},         {"macro", parse_macro},
        {"call", parse_call_block}, {"filter", parse_filter_block},
        {"with", parse_with},       {"generation", parse_generation},
        {"print", parse_print},     {"break", parse_jump},
        {"continue", parse_jump},   {"include", NULL},
        {"import", NULL},           {"from", NULL},
        {"extends", NULL},          {"block", NULL},
        {"autoescape", NULL},
    };
    const struct ttok *at = p->tok;
    if (!tmpl_expect(p, TOK_NAME, "tag name")) return false;
    for (size_t i = 0; i < ARRAY_LEN(tags); i++) {
        if (!view_is(at->text, tags[i].name)) continue;
        if (tags[i].parse) return tags[i].parse(p, at, out);
        return tmpl_parse_fail(p, at, ERR_UNSUPPORTED, "the tag '%s' is not supported",
                               tags[i].name);
    }
    struct str want = {0};
    for (; ends && *ends; ends++) str_addf(&want, "%s'%s'", want.n ? " or " : "", *ends);
    tmpl_parse_fail(p, at, ERR_FORMAT, "Encountered unknown tag '%.*s'%s%s", VIEW_FMT(at->text),
                    want.n ? ", looking for " : "", str_z(&want));
    str_deinit(&want);
    return false;
}

/* One piece of a body. *end: it was the opening of a closing tag. */
static bool parse_piece(struct tparser *p, const char *const *ends, struct tnode **out, bool *end) {
    const struct ttok *at = p->tok++;
    if (at->kind == TOK_DATA) {
        *out = tmpl_node(p, N_TEXT, at);
        (*out)->str = *tmpl_const_str(p->t, at->text).s;
        return true;
    }
    if (at->kind == TOK_VAR_BEGIN) {
        *out = tmpl_node(p, N_OUTPUT, at);
        return tmpl_parse_tuple(p, true, &(*out)->expr) &&
               tmpl_expect(p, TOK_VAR_END, "end of print statement");
    }
    ASSERT(at->kind == TOK_BLOCK_BEGIN); /* the lexer ends every tag or the text */
    if (ends_here(p, ends)) return *end = true, true;
    return parse_statement(p, ends, out) && tmpl_expect(p, TOK_BLOCK_END, "end of statement block");
}

/* Up to a closing tag's name, one of ends, or to the end of the template when ends is NULL. */
static bool parse_body(struct tparser *p, const char *const *ends, struct tnode **out) {
    struct tnode **tail = out;
    bool end = false;
    *out = NULL;
    if (p->depth >= BLOCK_DEPTH_MAX)
        return tmpl_parse_fail(p, p->tok, ERR_LIMIT, "nested deeper than %d tags", BLOCK_DEPTH_MAX);
    p->depth++;
    while (p->tok->kind != TOK_EOF) {
        if (!parse_piece(p, ends, tail, &end)) return false;
        if (end) break;
        while (*tail) tail = &(*tail)->next;
    }
    p->depth--;
    if (end || !ends) return true;
    return tmpl_parse_fail(p, p->tok, ERR_FORMAT, "Unexpected end of template, looking for '%s'",
                           *ends);
}

bool tmpl_parse(struct tparser *p, struct tnode **body) {
    return parse_body(p, NULL, body);
}
