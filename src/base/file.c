#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"

/* errno after a failed open or stat, as an error. */
static bool path_error(struct err *e, const char *doing, const char *path) {
    enum err_code code = errno == ENOENT || errno == ENOTDIR ? ERR_NOT_FOUND : ERR_IO;
    return err_errno(e, code, "%s %s", doing, path);
}

bool file_exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

bool file_size(const char *path, u64 *size_bytes, struct err *e) {
    struct stat st;
    if (stat(path, &st) != 0) return path_error(e, "looking at", path);
    if (!S_ISREG(st.st_mode)) return err_set(e, ERR_IO, "%s is not a regular file", path);
    *size_bytes = (u64)st.st_size;
    return true;
}

bool file_read(const char *path, u64 max_bytes, struct str *out, struct err *e) {
    size_t before = out->n;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return path_error(e, "opening", path);
    for (;;) {
        char chunk[65536];
        ssize_t n = read(fd, chunk, sizeof chunk);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            path_error(e, "reading", path);
            goto fail;
        }
        if (n == 0) break;
        if ((u64)n > max_bytes - (out->n - before)) {
            err_set(e, ERR_LIMIT, "%s is larger than the limit of %llu bytes", path,
                    (unsigned long long)max_bytes);
            goto fail;
        }
        str_add(out, chunk, (size_t)n);
    }
    close(fd);
    return true;

fail:
    close(fd);
    out->n = before;
    if (out->p) out->p[before] = 0;
    return false;
}

static bool write_all(int fd, const char *p, size_t n) {
    while (n > 0) {
        ssize_t k = write(fd, p, n);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return false;
        p += k;
        n -= (size_t)k;
    }
    return true;
}

/* The folder entry of a rename is on disk only after a sync of the folder. A file system that
 * cannot do it is no reason to fail: the file itself is complete. */
static void sync_folder_of(const char *path) {
    char *folder = xstrdup(path), *slash = strrchr(folder, '/');
    if (slash) slash[slash == folder] = 0; /* "/x" is in "/" */
    int fd = open(slash ? folder : ".", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    free(folder);
}

bool file_write(const char *path, const void *data, size_t n, u32 mode, struct err *e) {
    struct str temp = {0};
    str_addf(&temp, "%s.XXXXXX", path);
    int fd = mkstemp(temp.p);
    if (fd < 0) {
        path_error(e, "creating", path);
        str_deinit(&temp);
        return false;
    }
    bool ok = fchmod(fd, (mode_t)mode) == 0 && write_all(fd, data, n) && fsync(fd) == 0;
    if (!ok) err_errno(e, ERR_IO, "writing %zu bytes to %s", n, path);
    if (close(fd) != 0 && ok) ok = err_errno(e, ERR_IO, "writing %zu bytes to %s", n, path);
    if (ok && rename(temp.p, path) != 0)
        ok = err_errno(e, ERR_IO, "renaming %s to %s", temp.p, path);
    if (ok)
        sync_folder_of(path);
    else
        unlink(temp.p);
    str_deinit(&temp);
    return ok;
}

bool file_make_dirs(const char *path, struct err *e) {
    char *p = xstrdup(path);
    bool ok = true;
    for (char *at = p; ok && *at; at++) {
        if (at[1] != '/' && at[1] != 0) continue;
        char end = at[1];
        at[1] = 0;
        struct stat st;
        if (mkdir(p, 0755) != 0 && errno != EEXIST && errno != EISDIR && errno != EROFS)
            ok = path_error(e, "making folder", p);
        else if (stat(p, &st) != 0)
            ok = path_error(e, "making folder", p);
        else if (!S_ISDIR(st.st_mode))
            ok = err_set(e, ERR_IO, "%s is there and is not a folder", p);
        at[1] = end;
    }
    free(p);
    return ok;
}

bool file_map_open(struct file_map *m, const char *path, struct err *e) {
    *m = (struct file_map){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return path_error(e, "opening", path);
    struct stat st;
    if (fstat(fd, &st) != 0) {
        path_error(e, "looking at", path);
        goto fail;
    }
    if (!S_ISREG(st.st_mode)) {
        err_set(e, ERR_IO, "%s is not a regular file", path);
        goto fail;
    }
    m->data = (const u8 *)""; /* mmap refuses a length of 0 */
    m->size_bytes = (size_t)st.st_size;
    if (m->size_bytes > 0) {
        void *p = mmap(NULL, m->size_bytes, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED) {
            err_errno(e, ERR_IO, "mapping %s (%zu bytes)", path, m->size_bytes);
            goto fail;
        }
        m->data = p;
    }
    close(fd);
    return true;

fail:
    close(fd);
    *m = (struct file_map){0};
    return false;
}

void file_map_drop(const struct file_map *m, u64 at, u64 bytes) {
    u64 page = (u64)sysconf(_SC_PAGESIZE);
    if (at >= m->size_bytes) return;
    bytes = MIN(bytes, m->size_bytes - at);
    u64 first = align_up(at, page), end = (at + bytes) / page * page;
    if (first < end) madvise((void *)(m->data + first), end - first, MADV_DONTNEED);
}

void file_map_close(struct file_map *m) {
    if (m->size_bytes > 0) munmap((void *)m->data, m->size_bytes);
    *m = (struct file_map){0};
}
