#include "cli/place_opts.h"

#include <stdio.h>

#include "cli/daemon.h"

static void set_text(json_t *o, const char *key, const char *s) {
    if (s) json_object_set_new(o, key, json_string(s));
}
static void set_number(json_t *o, const char *key, u32 n) {
    if (n) json_object_set_new(o, key, json_integer(n));
}
static void set_list(json_t *o, const char *key, const struct opt_list *l) {
    if (!l->n) return;
    json_t *v = json_array();
    for (u32 i = 0; i < l->n; i++) json_array_append_new(v, json_string(l->v[i]));
    json_object_set_new(o, key, v);
}

json_t *place_opts_body(const struct place_opts *o, const char *model) {
    json_t *j = json_object();
    set_text(j, "model_id", model);
    set_text(j, "sharding", o->sharding);
    set_text(j, "goal", o->goal);
    set_text(j, "kv_type", o->kv_type);
    set_text(j, "layers", o->layers);
    set_number(j, "min_nodes", o->min_nodes);
    set_number(j, "n_ctx", o->n_ctx);
    set_number(j, "batch", o->batch);
    set_list(j, "nodes", &o->nodes);
    set_list(j, "exclude", &o->exclude);
    if (o->force) json_object_set_new(j, "force", json_true());
    return j;
}

void place_opts_param(struct str *out, const char *key, const char *value) {
    str_addf(out, "%c%s=", out->n ? '&' : '?', key);
    daemon_escape(out, value);
}

void place_opts_query(const struct place_opts *o, const char *model, struct str *out) {
    const struct {
        const char *key, *value;
    } text[] = {{"model_id", model},
                {"sharding", o->sharding},
                {"goal", o->goal},
                {"kv_type", o->kv_type},
                {"layers", o->layers}};
    const struct {
        const char *key;
        u32 n;
    } number[] = {{"min_nodes", o->min_nodes}, {"n_ctx", o->n_ctx}, {"batch", o->batch}};
    for (size_t i = 0; i < ARRAY_LEN(text); i++)
        if (text[i].value) place_opts_param(out, text[i].key, text[i].value);
    for (size_t i = 0; i < ARRAY_LEN(number); i++) {
        char buf[16];
        snprintf(buf, sizeof buf, "%u", number[i].n);
        if (number[i].n) place_opts_param(out, number[i].key, buf);
    }
    for (u32 i = 0; i < o->nodes.n; i++) place_opts_param(out, "nodes", o->nodes.v[i]);
    for (u32 i = 0; i < o->exclude.n; i++) place_opts_param(out, "exclude", o->exclude.v[i]);
    if (o->force) place_opts_param(out, "force", "1");
}
