#include "model/model_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

/* What "PREFIX-00002-of-00003.gguf" says. */
struct split_name {
    size_t prefix_n; /* bytes of PREFIX */
    u32 no, count;   /* 2, 3 */
};

enum { SPLIT_TAIL = 20 }; /* strlen("-00002-of-00003.gguf") */

static bool read_digits(const char *p, u32 *out) {
    *out = 0;
    for (int i = 0; i < 5; i++) {
        if (p[i] < '0' || p[i] > '9') return false;
        *out = *out * 10 + (u32)(p[i] - '0');
    }
    return true;
}

static bool parse_split_name(const char *path, struct split_name *s) {
    size_t n = strlen(path);
    if (n <= SPLIT_TAIL) return false;
    const char *tail = path + n - SPLIT_TAIL;
    s->prefix_n = n - SPLIT_TAIL;
    return tail[0] == '-' && memcmp(tail + 6, "-of-", 4) == 0 &&
           memcmp(tail + 15, ".gguf", 5) == 0 && read_digits(tail + 1, &s->no) &&
           read_digits(tail + 10, &s->count);
}

static bool open_part(struct model_part *p, const char *path, struct err *e) {
    p->path = xstrdup(path);
    if (!file_map_open(&p->map, path, e)) return false;
    p->g = gguf_parse(p->map.data, p->map.size_bytes, e);
    return p->g || err_wrap(e, "%s", path);
}

static void close_part(struct model_part *p) {
    gguf_free(p->g);
    file_map_close(&p->map);
    free(p->path);
    *p = (struct model_part){0};
}

/* split.no counts from 0, names count from 1. A single file has neither key. */
static bool read_split_keys(const struct model_part *p, u32 *no, u32 *count, struct err *e) {
    *no = 0;
    *count = 1;
    if (!gguf_get_u32(p->g, "split.no", no, e) || !gguf_get_u32(p->g, "split.count", count, e))
        return err_wrap(e, "%s", p->path);
    if (*count <= 1) *count = 1;
    if (*no >= *count || *count > MODEL_PARTS_MAX)
        return err_set(e, ERR_FORMAT,
                       "%s: split.no %u of split.count %u (at most %u parts are possible)", p->path,
                       *no, *count, MODEL_PARTS_MAX);
    return true;
}

static bool check_part(const struct model_part *p, u32 no, u32 count, struct err *e) {
    u32 key_no, key_count;
    if (!read_split_keys(p, &key_no, &key_count, e)) return false;
    if (key_no == no && key_count == count) return true;
    return err_set(e, ERR_FORMAT, "%s: named as part %u of %u, but its metadata says part %u of %u",
                   p->path, no + 1, count, key_no + 1, key_count);
}

/* Opens the parts other than `given` and puts that one, which it takes, into its place. */
static bool open_parts(struct model_file *f, struct model_part *given, struct err *e) {
    struct split_name name;
    u32 no, count;
    bool named = parse_split_name(given->path, &name) && name.count > 1;
    f->n_parts = 1;
    f->part = xcalloc(1, sizeof *f->part);
    f->part[0] = *given;
    if (!read_split_keys(given, &no, &count, e)) return false;
    if (!named && count == 1) return true;
    if (!named)
        return err_set(
            e, ERR_FORMAT,
            "%s is part %u of %u: its name must be ...-%05u-of-%05u.gguf, so that the other "
            "parts can be found",
            given->path, no + 1, count, no + 1, count);
    if (name.no < 1) return err_set(e, ERR_FORMAT, "%s: parts count from 00001", given->path);
    if (!check_part(given, name.no - 1, name.count, e)) return false;

    free(f->part);
    f->n_parts = count;
    f->part = xcalloc(count, sizeof *f->part);
    f->part[no] = *given;
    for (u32 i = 0; i < count; i++) {
        if (i == no) continue;
        struct str path = {0};
        str_add(&path, given->path, name.prefix_n);
        str_addf(&path, "-%05u-of-%05u.gguf", i + 1, count);
        bool ok = open_part(&f->part[i], path.p, e) && check_part(&f->part[i], i, count, e);
        str_deinit(&path);
        if (!ok) return err_wrap(e, "part %u of %u", i + 1, count);
    }
    return true;
}

/* Names are unique across parts, and there are as many tensors as part 1 promises. */
static bool check_tensors(struct model_file *f, struct err *e) {
    for (u32 i = 0; i < f->n_parts; i++) {
        const struct gguf *g = f->part[i].g;
        f->n_tensors += g->n_tensors;
        f->size_bytes += f->part[i].map.size_bytes;
        for (u64 t = 0; i > 0 && t < g->n_tensors; t++) {
            char name[GGUF_NAME_MAX + 1];
            snprintf(name, sizeof name, "%.*s", VIEW_FMT(g->tensor[t].name));
            for (u32 j = 0; j < i; j++)
                if (gguf_tensor(f->part[j].g, name))
                    return err_set(e, ERR_FORMAT, "tensor %s is in %s and in %s", name,
                                   f->part[j].path, f->part[i].path);
        }
    }
    u64 promised = f->n_tensors;
    if (!gguf_get_u64(f->meta, "split.tensors.count", &promised, e))
        return err_wrap(e, "%s", f->part[0].path);
    return promised == f->n_tensors ||
           err_set(e, ERR_FORMAT,
                   "%s: the %u parts hold %llu tensors, split.tensors.count says %llu",
                   f->part[0].path, f->n_parts, (unsigned long long)f->n_tensors,
                   (unsigned long long)promised);
}

struct model_file *model_file_open(const char *path, struct err *e) {
    struct model_part given = {0};
    if (!open_part(&given, path, e)) {
        close_part(&given);
        return NULL;
    }
    struct model_file *f = xcalloc(1, sizeof *f);
    if (open_parts(f, &given, e)) {
        f->meta = f->part[0].g;
        if (check_tensors(f, e)) return f;
    }
    model_file_close(f);
    return NULL;
}

void model_file_close(struct model_file *f) {
    if (!f) return;
    for (u32 i = 0; i < f->n_parts; i++) close_part(&f->part[i]);
    free(f->part);
    free(f);
}

bool model_file_tensor(const struct model_file *f, const char *name, struct model_tensor *out) {
    for (u32 i = 0; i < f->n_parts; i++) {
        const struct gguf_tensor *t = gguf_tensor(f->part[i].g, name);
        if (!t) continue;
        *out = (struct model_tensor){.info = t, .data = f->part[i].map.data + t->offset};
        return true;
    }
    return false;
}

void model_file_drop(const struct model_file *f, const void *data, u64 bytes) {
    for (u32 i = 0; i < f->n_parts; i++) {
        const struct file_map *m = &f->part[i].map;
        u64 at = (uintptr_t)data - (uintptr_t)m->data; /* wraps for what lies before */
        if (at < m->size_bytes) file_map_drop(m, at, bytes);
    }
}

u64 model_file_n_params(const struct model_file *f) {
    u64 n = 0;
    for (u32 i = 0; i < f->n_parts; i++) {
        const struct gguf *g = f->part[i].g;
        for (u64 t = 0; t < g->n_tensors; t++) {
            const u64 *d = g->tensor[t].dims;
            n +=
                d[0] * d[1] * d[2] * d[3]; /* the product was checked; files are below 2^63 bytes */
        }
    }
    return n;
}

bool model_file_is_extra(struct view name) {
    return view_starts(name, "v.") || view_starts(name, "mm.") || view_starts(name, "a.");
}
