#include "node/store_disk.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/paths.h"

enum {
    LEVELS = 2,
    FILES_MAX = 4096, /* more in one models folder is a mistake, such as pointing at / */
    ENTRIES_MAX = 65536,
    PARTS_MAX = 9999,
    PART_SUFFIX = 15, /* "-00001-of-00002" */
};

/* The part's number and the count in "name-00001-of-00002.gguf"; false for any other name. */
static bool split_name(const char *name, size_t n_stem, u32 *part, u32 *n_parts) {
    if (n_stem <= PART_SUFFIX) return false;
    const char *p = name + n_stem - PART_SUFFIX;
    u32 v[2] = {0};
    if (p[0] != '-' || strncmp(p + 6, "-of-", 4) != 0) return false;
    for (u32 i = 0; i < 10; i++) {
        char c = i < 5 ? p[1 + i] : p[10 + i - 5];
        if (c < '0' || c > '9') return false;
        v[i / 5] = v[i / 5] * 10 + (u32)(c - '0');
    }
    *part = v[0];
    *n_parts = v[1];
    return v[0] >= 1 && v[0] <= v[1] && v[1] <= PARTS_MAX;
}

const char *store_disk_part(const struct store_file *f, u32 i, struct arena *a) {
    if (f->n_parts == 1) return f->path;
    int dir = (int)(f->name - f->path);
    return arena_printf(a, "%.*s%s-%05u-of-%05u.gguf", dir, f->path, f->stem, i + 1, f->n_parts);
}

bool store_disk_file(const char *path, struct arena *a, struct store_file *out, struct err *e) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t n = strlen(name), n_stem = n > 5 && strcmp(name + n - 5, ".gguf") == 0 ? n - 5 : n;
    u32 part = 1, n_parts = 1;
    bool split = n_stem < n && split_name(name, n_stem, &part, &n_parts);
    char *own = arena_strdup(a, path);
    *out = (struct store_file){.path = own, .name = own + (name - path), .n_parts = n_parts};
    out->stem = arena_memdup(a, name, split ? n_stem - PART_SUFFIX : n_stem);
    out->path = store_disk_part(out, 0, a);
    out->name = out->path + (name - path);
    for (u32 i = 0; i < n_parts; i++) {
        u64 size;
        if (!file_size(store_disk_part(out, i, a), &size, e)) return false;
        out->size_bytes += size;
    }
    return true;
}

struct scan {
    struct arena *a;
    struct store_file *v;
    u32 n, cap, n_entries;
    bool ours;
};

static void scan_dir(struct scan *s, const char *dir, u32 depth);

static void scan_entry(struct scan *s, const char *path, const char *name, u32 depth) {
    struct stat st;
    size_t n = strlen(name);
    u32 part, n_parts;
    if (stat(path, &st) != 0) return;
    if (S_ISDIR(st.st_mode)) {
        if (depth < LEVELS) scan_dir(s, path, depth + 1);
        return;
    }
    if (!S_ISREG(st.st_mode) || !st.st_size || n <= 5 || strcmp(name + n - 5, ".gguf") != 0 ||
        s->n == FILES_MAX)
        return;
    if (split_name(name, n - 5, &part, &n_parts) && part != 1) return; /* part 1 stands for all */
    struct store_file f;
    if (!store_disk_file(path, s->a, &f, NULL)) return;
    f.ours = s->ours;
    if (s->n == s->cap) s->v = xrealloc(s->v, (s->cap = s->cap * 2 + 16) * sizeof *s->v);
    s->v[s->n++] = f;
}

static void scan_dir(struct scan *s, const char *dir, u32 depth) {
    DIR *d = opendir(dir);
    if (!d) return;
    for (struct dirent *f; (f = readdir(d)) && s->n_entries < ENTRIES_MAX;) {
        char path[1024];
        s->n_entries++;
        if (f->d_name[0] != '.' && paths_join(path, sizeof path, dir, f->d_name))
            scan_entry(s, path, f->d_name, depth);
    }
    closedir(d);
}

static int by_stem(const void *a, const void *b) {
    const struct store_file *x = a, *y = b;
    int c = strcmp(x->stem, y->stem);
    return c ? c : strcmp(x->path, y->path);
}

struct store_file *store_disk_scan(const struct store_dirs *dirs, struct arena *a, u32 *n) {
    struct scan s = {.a = a};
    for (u32 i = 0; i < dirs->n; i++) {
        s.ours = i == 0;
        scan_dir(&s, dirs->v[i], 0);
    }
    *n = s.n;
    struct store_file *out = arena_array(a, s.n + 1, sizeof *out);
    if (s.n) memcpy(out, s.v, s.n * sizeof *out);
    free(s.v);
    qsort(out, s.n, sizeof *out, by_stem);
    return out;
}
