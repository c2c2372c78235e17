/* store_disk.h - which model files lie in the models folders.
 *
 * Looks at names and sizes only. A split model (-00001-of-000NN.gguf) is one file of the list, and
 * only when all of its parts are there. Part of the model store; any thread. */
#pragma once

#include "base/arena.h"
#include "base/err.h"

struct store_file {
    const char *path; /* of a split model its first part */
    const char *name; /* file name, within path */
    const char *stem; /* without .gguf and without the part's number: what a stray file is called */
    u64 size_bytes;   /* all parts */
    u32 n_parts;
    bool ours; /* in the first folder, the one that is written to */
};

enum { STORE_DIRS_MAX = 16 };
struct store_dirs {
    const char *v[STORE_DIRS_MAX];
    u32 n;
};

/* Every complete *.gguf of the folders and of up to two levels of folders in them, sorted by stem.
 * Names that begin with a dot are not looked at; folders that can't be read count as empty. *n may
 * be 0. */
struct store_file *store_disk_scan(const struct store_dirs *dirs, struct arena *a, u32 *n);

/* One path: a single file, or any part of a split model. ERR_NOT_FOUND names the missing file. */
bool store_disk_file(const char *path, struct arena *a, struct store_file *out, struct err *e);
/* Path of part i (from 0) of a file that was found; in `a`. */
const char *store_disk_part(const struct store_file *f, u32 i, struct arena *a);
