/* file.h - whole files: read, write so that a crash leaves the old or the new one, map.
 *
 * Everything here blocks on the disk. Errors name the path and carry the system's reason; a path
 * that is not there is ERR_NOT_FOUND, everything else ERR_IO unless said. Any thread; a struct
 * file_map belongs to its holder and may be read by any thread. */
#pragma once

#include "base/base.h"
#include "base/err.h"
#include "base/str.h"

/* True for a regular file (symbolic links are followed). */
bool file_exists(const char *path);
/* Fails for what is not a regular file. */
bool file_size(const char *path, u64 *size_bytes, struct err *e);
/* Appends the file's bytes to out; more than max_bytes of them is ERR_LIMIT (and *out is as
 * before). Works for files of unknown size, such as those in /proc. */
bool file_read(const char *path, u64 max_bytes, struct str *out, struct err *e);

/* Writes to a temporary file beside `path`, syncs it and renames it to `path`. On failure (a full
 * disk, say) what was at `path` stays and the temporary file is gone. mode: permission bits, such
 * as 0644; the umask is not applied. */
bool file_write(const char *path, const void *data, size_t n, u32 mode, struct err *e);
/* Makes the folder and those above it (mode 0755 under the umask); one that exists is fine. */
bool file_make_dirs(const char *path, struct err *e);

/* A file mapped for reading. Zeroed is valid and closed. The caller knows that nobody shortens the
 * file while it is mapped: a read behind its new end kills the process (SIGBUS). */
struct file_map {
    const u8 *data; /* never NULL when open; page-aligned unless the file is empty */
    size_t size_bytes;
};
bool file_map_open(struct file_map *m, const char *path, struct err *e);
void file_map_close(struct file_map *m);
/* bytes at data + at have been read: their pages stop counting as this process's memory, but stay
 * readable and in the page cache. */
void file_map_drop(const struct file_map *m, u64 at, u64 bytes);
