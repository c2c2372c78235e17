#include "formats/template.h"

#include <stdlib.h>
#include <string.h>

#include "formats/template_builtin.h"

enum { SOURCE_MAX = 4 << 20 };

struct template *template_compile(struct view source, struct err *e) {
    if (source.n > SOURCE_MAX) {
        err_set(e, ERR_LIMIT, "the template has %zu bytes, more than %d", source.n, SOURCE_MAX);
        return NULL;
    }
    if (!utf8_valid(source.p, source.n)) {
        err_set(e, ERR_FORMAT, "the template is not valid UTF-8");
        return NULL;
    }
    struct template *t = xcalloc(1, sizeof *t);
    struct tparser p = {.t = t, .e = e};
    t->name_loop = tmpl_intern(t, VIEW("loop"));
    t->name_caller = tmpl_intern(t, VIEW("caller"));
    t->name_varargs = tmpl_intern(t, VIEW("varargs"));
    t->name_kwargs = tmpl_intern(t, VIEW("kwargs"));
    p.tok = tmpl_lex(&t->arena, source, e);
    if (p.tok && tmpl_parse(&p, &t->body)) return t;
    template_free(t);
    return NULL;
}

void template_free(struct template *t) {
    if (!t) return;
    arena_deinit(&t->arena);
    free(t);
}

bool template_render(const struct template *t, struct view vars_json, i64 now_s, i32 utc_offset_s,
                     const struct template_limits *limits, struct str *out, struct err *e) {
    const struct template_limits none = {0}, *l = limits ? limits : &none;
    struct trun r = {
        .t = t,
        .e = e,
        .depth_max = l->max_depth ? l->max_depth : 256,
        .output_max = l->max_output_bytes ? l->max_output_bytes : 16 << 20,
        .steps_left = l->max_steps ? l->max_steps : 20000000,
        .memory_max = l->max_memory_bytes ? l->max_memory_bytes : 256 << 20,
        .now_s = now_s,
        .utc_offset_s = utc_offset_s,
    };
    struct tbuf text = {0};
    void *json = NULL;
    r.globals = arena_array(&r.arena, t->n_names, sizeof *r.globals);
    r.scope = arena_alloc(&r.arena, sizeof *r.scope);
    r.out = &text;
    tmpl_set_globals(&r);
    bool ok = tmpl_json_load(&r, vars_json, &json) && tmpl_exec(&r, t->body) && !r.failed;
    str_add(out, text.p, text.n);
    tmpl_json_free(json);
    arena_deinit(&r.arena);
    return ok;
}

bool template_uses(const struct template *t, const char *var) {
    u32 name;
    return tmpl_find_name(t, view_of(var), &name);
}
