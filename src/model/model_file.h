/* model_file.h - the file, or the parts of a split file, of one GGUF model: mapped and checked.
 *
 * A split model is a set of files named NAME-00001-of-000NN.gguf. Opening any part opens them all;
 * the metadata that counts is part 1's. Weights are mapped read-only and stay on disk until they
 * are touched. Nobody may shorten the files while they are open (a read behind the new end kills
 * the process, which is why only runners open models). Immutable once open: any thread may read. */
#pragma once

#include "base/err.h"
#include "base/file.h"
#include "formats/gguf.h"

enum { MODEL_PARTS_MAX = 1024 };

struct model_part {
    char *path;
    struct file_map map;
    struct gguf *g;
};

struct model_file {
    u32 n_parts;
    struct model_part *part; /* [n_parts], in order */
    const struct gguf *meta; /* part[0].g */
    u64 n_tensors;           /* of all parts */
    u64 size_bytes;          /* of all parts */
};

struct model_tensor {
    const struct gguf_tensor *info;
    const u8 *data; /* [info->size_bytes], aligned to GGUF_ALIGN_MIN at least */
};

/* NULL and *e on failure: ERR_NOT_FOUND names a file or part that is missing, ERR_FORMAT what is no
 * GGUF, truncated, or not the set that the names and split.* keys promise. */
struct model_file *model_file_open(const char *path, struct err *e);
void model_file_close(struct model_file *f); /* NULL is allowed */

/* Looks in all parts; names are unique among them. False where there is none. */
bool model_file_tensor(const struct model_file *f, const char *name, struct model_tensor *out);
/* The bytes at data, of one tensor, have been read: file_map_drop. */
void model_file_drop(const struct model_file *f, const void *data, u64 bytes);
/* Number of elements of all tensors: the "parameters" of the model. */
u64 model_file_n_params(const struct model_file *f);

/* True for tensors that belong to a vision or audio tower ("v.", "mm.", "a.") packed into the same
 * file: a text model leaves them alone. */
bool model_file_is_extra(struct view name);
