#include "node/store.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/file.h"
#include "base/paths.h"
#include "base/similar.h"
#include "net/http_download.h"
#include "node/store_internal.h"

struct store_cfg store_cfg_env(void) {
    const char *offline = paths_env("OFFLINE");
    return (struct store_cfg){
        .models_dir = paths_env("MODELS_DIR"),
        .extra_dirs = paths_env("MODELS_DIRS"),
        .more_dirs = getenv("EXO_MODELS_READ_ONLY_DIRS"),
        .catalogue = paths_env("CATALOGUE"),
        .offline = offline && strcmp(offline, "0") != 0 && strcasecmp(offline, "false") != 0,
    };
}

static bool add_dirs(struct store *s, const char *colon_list, struct err *e) {
    for (const char *p = colon_list ? colon_list : ""; *p;) {
        size_t n = strcspn(p, ":");
        if (n && s->dirs.n == STORE_DIRS_MAX)
            return err_set(e, ERR_LIMIT, "more than %d models folders", (int)STORE_DIRS_MAX);
        if (n) s->dirs.v[s->dirs.n++] = arena_memdup(&s->arena, p, n);
        p += n + (p[n] == ':');
    }
    return true;
}

/* The catalogue that came with this program: beside a build tree's binary, or in the prefix it was
 * installed to. */
static bool read_own_catalogue(struct catalogue *c, struct err *e) {
    static const char *const PLACES[] = {"../models", "../../models", "../share/skein/models"};
    char self[1024], dir[1100];
    if (!paths_self(self, sizeof self, e)) return false;
    char *slash = strrchr(self, '/');
    if (slash) *slash = 0;
    for (u32 i = 0; i < ARRAY_LEN(PLACES) && c->n == 0; i++)
        if (paths_join(dir, sizeof dir, self, PLACES[i]) && !catalogue_read_dir(c, dir, e))
            return false;
    return true;
}

static bool read_catalogue(struct store *s, const char *dir, const struct paths *p, struct err *e) {
    char own[1024];
    if (dir && *dir) return catalogue_read_dir(&s->catalogue, dir, e);
    if (!read_own_catalogue(&s->catalogue, e)) return false;
    return !paths_join(own, sizeof own, p->config, "models") ||
           catalogue_read_dir(&s->catalogue, own, e);
}

struct store *store_open(const struct store_cfg *cfg, struct err *e) {
    struct paths p;
    if (!paths_init(&p, NULL, e)) return NULL;
    struct store *s = xcalloc(1, sizeof *s);
    const char *dir = cfg->models_dir && *cfg->models_dir ? cfg->models_dir : p.models;
    s->offline = cfg->offline;
    s->dirs.v[s->dirs.n++] = arena_strdup(&s->arena, dir);
    if (add_dirs(s, cfg->extra_dirs, e) && add_dirs(s, cfg->more_dirs, e) &&
        file_make_dirs(dir, e) && read_catalogue(s, cfg->catalogue, &p, e))
        return s;
    err_wrap(e, "models");
    store_close(s);
    return NULL;
}

void store_close(struct store *s) {
    if (!s) return;
    catalogue_deinit(&s->catalogue);
    arena_deinit(&s->arena);
    free(s);
}

const char *store_dir(const struct store *s) {
    return s->dirs.v[0];
}

bool store_path(const struct store *s, char out[1024], const char *prefix, const char *file,
                const char *suffix, struct err *e) {
    char name[300];
    snprintf(name, sizeof name, "%s%s%s", prefix, file, suffix);
    return paths_join(out, 1024, s->dirs.v[0], name) ||
           err_set(e, ERR_LIMIT, "the models folder's path is too long: %.200s", s->dirs.v[0]);
}

static bool is_file_of(const struct catalogue_entry *m, const struct store_file *f) {
    return f->n_parts == 1 && strcmp(f->name, m->file) == 0 && f->size_bytes == m->size_bytes;
}

static u64 partial_bytes(const struct store *s, const char *file) {
    char path[1024];
    u64 http = 0, pypi = 0;
    if (store_path(s, path, "", file, STORE_PART, NULL)) http = http_download_have(path);
    if (store_path(s, path, "", file, STORE_PYPI_PART, NULL)) file_size(path, &pypi, NULL);
    return MAX(http, pypi);
}

static struct store_model of_entry(const struct store *s, const struct catalogue_entry *m,
                                   const struct store_file *v, u32 n) {
    struct store_model out = {.size_bytes = m->size_bytes,
                              .n_params = m->n_params,
                              .n_ctx = m->n_ctx,
                              .n_sources = m->n_sources,
                              .catalogued = true};
    str_copy(out.id, sizeof out.id, m->id);
    str_copy(out.title, sizeof out.title, m->title);
    str_copy(out.arch, sizeof out.arch, m->arch);
    str_copy(out.quant, sizeof out.quant, m->quant);
    str_copy(out.licence, sizeof out.licence, m->licence);
    str_copy(out.file, sizeof out.file, m->file);
    str_copy(out.sha256, sizeof out.sha256, m->sha256);
    for (u32 i = 0; i < n && !out.path[0]; i++)
        if (is_file_of(m, &v[i])) str_copy(out.path, sizeof out.path, v[i].path);
    if (!out.path[0]) out.partial_bytes = partial_bytes(s, m->file);
    return out;
}

static struct store_model of_file(const struct store_file *f) {
    struct store_model out = {.size_bytes = f->size_bytes};
    str_copy(out.id, sizeof out.id, f->stem);
    str_copy(out.title, sizeof out.title, f->stem);
    str_copy(out.file, sizeof out.file, f->name);
    str_copy(out.path, sizeof out.path, f->path);
    return out;
}

/* A file that no entry claims, and the first of its name. */
static bool is_stray(const struct store *s, const struct store_file *v, u32 i) {
    for (u32 k = 0; k < s->catalogue.n; k++)
        if (is_file_of(&s->catalogue.v[k], &v[i])) return false;
    return i == 0 || strcmp(v[i - 1].stem, v[i].stem) != 0;
}

struct store_model *store_list(const struct store *s, struct arena *a, u32 *n) {
    struct arena scratch = {0};
    u32 n_files, n_out = 0;
    struct store_file *v = store_disk_scan(&s->dirs, &scratch, &n_files);
    struct store_model *out = arena_array(a, s->catalogue.n + n_files + 1, sizeof *out);
    for (u32 i = 0; i < s->catalogue.n; i++)
        out[n_out++] = of_entry(s, &s->catalogue.v[i], v, n_files);
    for (u32 i = 0; i < n_files; i++)
        if (is_stray(s, v, i)) out[n_out++] = of_file(&v[i]);
    arena_deinit(&scratch);
    *n = n_out;
    return out;
}

const char *const *store_aliases(const struct store *s, const char *id) {
    static const char *const NONE[] = {NULL};
    const struct catalogue_entry *m = catalogue_find(&s->catalogue, id);
    return m ? m->aliases : NONE;
}

bool store_is_path(const char *name) {
    size_t n = strlen(name);
    return strchr(name, '/') || (n > 5 && strcasecmp(name + n - 5, ".gguf") == 0);
}

/* A file named by its path; one that the catalogue knows keeps its id. */
static bool resolve_path(const struct store *s, const char *name, struct arena *a,
                         struct store_model *out, struct err *e) {
    struct store_file f;
    char real[PATH_MAX];
    if (!realpath(name, real)) {
        if (errno == ENOENT) return err_set(e, ERR_NOT_FOUND, "there is no file %s", name);
        return err_errno(e, ERR_IO, "%s", name);
    }
    if (!store_disk_file(real, a, &f, e)) return false;
    if (strlen(f.path) >= sizeof out->path)
        return err_set(e, ERR_LIMIT, "the path is too long: %.200s", f.path);
    *out = of_file(&f);
    for (u32 i = 0; i < s->catalogue.n; i++)
        if (is_file_of(&s->catalogue.v[i], &f)) *out = of_entry(s, &s->catalogue.v[i], &f, 1);
    return true;
}

static bool not_found(const struct store *s, const char *name, const struct store_file *v, u32 n,
                      struct err *e) {
    struct similar g = similar_to(name);
    for (u32 i = 0; i < s->catalogue.n; i++) {
        similar_offer(&g, s->catalogue.v[i].id);
        for (const char *const *a = s->catalogue.v[i].aliases; *a; a++) similar_offer(&g, *a);
    }
    for (u32 i = 0; i < n; i++) similar_offer(&g, v[i].stem);
    if (g.best)
        return err_set(e, ERR_NOT_FOUND,
                       "there is no model \"%.100s\": did you mean %s? (`skein models` lists all)",
                       name, g.best);
    if (!s->catalogue.n)
        return err_set(
            e, ERR_NOT_FOUND,
            "there is no model \"%.100s\", and no catalogue was found: SKEIN_CATALOGUE can name "
            "its folder (the source tree's models/); a .gguf file in a models folder goes by its "
            "name",
            name);
    return err_set(
        e, ERR_NOT_FOUND,
        "there is no model \"%.100s\": `skein models` lists those that can be fetched; any other "
        ".gguf file in a models folder goes by its name, and `skein run` takes its path",
        name);
}

static bool resolve(const struct store *s, const char *name, bool paths, struct arena *a,
                    struct store_model *out, struct err *e) {
    u32 n;
    struct store_file *v = store_disk_scan(&s->dirs, a, &n);
    const struct catalogue_entry *m = catalogue_find(&s->catalogue, name);
    if (m) {
        *out = of_entry(s, m, v, n);
        return true;
    }
    for (u32 i = 0; i < n; i++) {
        if (strcasecmp(v[i].stem, name) != 0 && strcmp(v[i].name, name) != 0) continue;
        *out = of_file(&v[i]);
        return true;
    }
    if (paths && store_is_path(name)) return resolve_path(s, name, a, out, e);
    return not_found(s, name, v, n, e);
}

static bool resolve_any(const struct store *s, const char *name, bool paths,
                        struct store_model *out, struct err *e) {
    struct arena scratch = {0};
    bool ok = *name ? resolve(s, name, paths, &scratch, out, e)
                    : err_set(e, ERR_ARG, "the model's name is empty");
    arena_deinit(&scratch);
    return ok;
}

bool store_resolve(const struct store *s, const char *name, struct store_model *out,
                   struct err *e) {
    return resolve_any(s, name, true, out, e);
}

bool store_resolve_name(const struct store *s, const char *name, struct store_model *out,
                        struct err *e) {
    return resolve_any(s, name, false, out, e);
}

static bool unlink_counted(const char *path, u64 *freed, struct err *e) {
    u64 size = 0;
    file_size(path, &size, NULL);
    if (unlink(path) != 0) return errno == ENOENT || err_errno(e, ERR_IO, "deleting %s", path);
    *freed += size;
    return true;
}

static bool remove_partials(const struct store *s, const char *file, u64 *freed, struct err *e) {
    char path[1024];
    if (!store_path(s, path, "", file, STORE_PYPI_PART, e) || !unlink_counted(path, freed, e))
        return false;
    if (!store_path(s, path, "", file, STORE_PART, e) || !unlink_counted(path, freed, e))
        return false;
    http_download_forget(path);
    return true;
}

/* Deletes the parts of the first file found under our own folder whose path is m's. */
static bool remove_files(const struct store *s, const struct store_model *m, struct arena *a,
                         u64 *freed, struct err *e) {
    u32 n;
    struct store_file *v = store_disk_scan(&s->dirs, a, &n);
    for (u32 i = 0; i < n; i++) {
        if (strcmp(v[i].path, m->path) != 0 || !v[i].ours) continue;
        for (u32 k = 0; k < v[i].n_parts; k++)
            if (!unlink_counted(store_disk_part(&v[i], k, a), freed, e)) return false;
        return true;
    }
    return err_set(e, ERR_ARG,
                   "%s lies outside the models folder %s: delete it yourself if it is not needed",
                   m->path, s->dirs.v[0]);
}

bool store_remove(const struct store *s, const char *name, u64 *freed_bytes, struct err *e) {
    struct store_model m;
    struct arena scratch = {0};
    struct err why = {0};
    u64 freed = 0;
    if (!store_resolve(s, name, &m, &why)) {
        /* What there is of a file that other nodes have has no other name. */
        bool part = store_elsewhere(name, 0, &m) && partial_bytes(s, m.file);
        if (part && remove_partials(s, m.file, &freed, e)) {
            if (freed_bytes) *freed_bytes = freed;
            return true;
        }
        if (!part && e) *e = why;
        return false;
    }
    bool ok = !m.catalogued || remove_partials(s, m.file, &freed, e);
    if (ok && m.path[0])
        ok = remove_files(s, &m, &scratch, &freed, e);
    else if (ok && !freed)
        ok = err_set(e, ERR_NOT_FOUND, "%s is not on this machine", m.id);
    arena_deinit(&scratch);
    if (freed_bytes) *freed_bytes = freed;
    return ok;
}
