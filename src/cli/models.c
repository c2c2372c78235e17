#include <stdio.h>

#include "base/arena.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/column.h"

static void add_aliases(struct str *out, const char *const *names) {
    for (u32 i = 0; names[i]; i++) str_addf(out, "%s%s", i ? ", " : "", names[i]);
}

static const char *where(const struct store_model *m, char buf[64]) {
    char part[32];
    if (m->path[0]) return "here";
    if (m->partial_bytes)
        snprintf(buf, 64, "%s fetched", size_text(m->partial_bytes, part));
    else
        snprintf(buf, 64, "-");
    return buf;
}

static void print_table(const struct store *s, const struct store_model *v, u32 n, bool all) {
    u32 shown = 0;
    printf("%-28s %-10s %-8s %10s  %-16s %s\n", "MODEL", "ARCH", "FORMAT", "SIZE", "ON DISK",
           "ALSO CALLED");
    for (u32 i = 0; i < n; i++) {
        char size[32], disk[64], id[COLUMN_CAP];
        struct str names = {0};
        if (!all && !v[i].path[0] && !v[i].partial_bytes) continue;
        add_aliases(&names, store_aliases(s, v[i].id));
        printf("%s %-10s %-8s %10s  %-16s %s\n", column_text(v[i].id, 28, UINT32_MAX, id),
               v[i].arch[0] ? v[i].arch : "-",
               v[i].quant[0] ? v[i].quant : "-", size_text(v[i].size_bytes, size),
               where(&v[i], disk), str_z(&names));
        str_deinit(&names);
        shown++;
    }
    if (!shown) printf("(none; `skein models` without --local lists what can be fetched)\n");
    printf("\nModels folder: %s\n", store_dir(s));
}

static void print_json(const struct store *s, const struct store_model *v, u32 n, bool all) {
    struct str out = {0};
    str_addc(&out, '[');
    for (u32 i = 0; i < n; i++) {
        const struct store_model *m = &v[i];
        if (!all && !m->path[0] && !m->partial_bytes) continue;
        json_comma(&out);
        str_addc(&out, '{');
        json_put_str(&out, "id", m->id);
        json_put_str(&out, "title", m->title);
        json_key(&out, "aliases");
        str_addc(&out, '[');
        for (const char *const *a = store_aliases(s, m->id); *a; a++) {
            json_comma(&out);
            json_add_str(&out, view_of(*a));
        }
        str_addc(&out, ']');
        json_put_str(&out, "arch", m->arch);
        json_put_str(&out, "quant", m->quant);
        json_put_str(&out, "licence", m->licence);
        json_put_u64(&out, "size_bytes", m->size_bytes);
        json_put_u64(&out, "partial_bytes", m->partial_bytes);
        json_put_u64(&out, "n_params", m->n_params);
        json_put_u64(&out, "context_length", m->n_ctx);
        json_put_str(&out, "path", m->path[0] ? m->path : NULL);
        str_addc(&out, '}');
    }
    printf("%s]\n", str_z(&out));
    str_deinit(&out);
}

static const char TEXT[] =
    "The catalogue's models, and every .gguf file of the models folders (a model's name is then "
    "its\n"
    "file name). SKEIN_MODELS_DIR is the folder that downloads go to; SKEIN_MODELS_DIRS\n"
    "(colon-separated) are further ones that are only read. Own catalogue entries go to\n"
    "~/.config/skein/models/*.yaml.\n"
    "\n"
    "Examples:\n"
    "  skein models\n"
    "  skein models --local --json";

int cmd_models(int argc, char **argv) {
    bool local = false, json = false;
    struct opt opts[] = {
        {"local", OPT_FLAG, &local, "only those on this machine", .letter = 'l'},
        {"json", OPT_FLAG, &json, .help = "as JSON"},
    };
    const struct opts_cmd cmd = {
        "models", NULL, "list the models that can be had and those on this machine",
        TEXT,     opts, ARRAY_LEN(opts),
        0,        0};
    int n, code;
    struct err e = {0};
    if (!opts_parse(&cmd, argc, argv, &n, &code)) return code;
    struct store *s = cli_store(true, &e);
    if (!s) return opts_fail(&e);
    struct arena a = {0};
    u32 n_models;
    struct store_model *v = store_list(s, &a, &n_models);
    (json ? print_json : print_table)(s, v, n_models, !local);
    arena_deinit(&a);
    store_close(s);
    return EXIT_OK;
}
