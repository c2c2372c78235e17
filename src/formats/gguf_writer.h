/* gguf_writer.h - builds a GGUF v3 file in memory, or its head when the weights are streamed.
 *
 * Pure. The caller adds metadata and tensors in the order in which they shall stand in the file.
 * Either every tensor comes with its bytes and gguf_writer_finish gives the whole file, or all come
 * without (data NULL), gguf_writer_head gives everything before the data section, and the caller
 * writes the tensors behind it in order, each padded with zeros to the alignment. Nothing is
 * validated: tests write hostile files with it. Zeroed is valid and empty; one thread. */
#pragma once

#include "base/base.h"
#include "base/dtype.h"
#include "base/str.h"
#include "formats/gguf.h"

struct gguf_writer {
    u32 version;   /* 0 writes 3 */
    u32 alignment; /* 0 is 32; another one is also written as general.alignment by the caller */
    u64 n_kv, n_tensors;
    u64 data_bytes;           /* padded bytes of the tensors so far */
    struct str kv, dir, data; /* the three parts of the file */
};

void gguf_writer_deinit(struct gguf_writer *w);

void gguf_writer_u32(struct gguf_writer *w, const char *key, u32 v);
void gguf_writer_u64(struct gguf_writer *w, const char *key, u64 v);
void gguf_writer_f32(struct gguf_writer *w, const char *key, float v);
void gguf_writer_bool(struct gguf_writer *w, const char *key, bool v);
void gguf_writer_str(struct gguf_writer *w, const char *key, const char *v);
/* `bytes` are the encoded values: of one scalar, or of n array elements. */
void gguf_writer_scalar(struct gguf_writer *w, const char *key, enum gguf_type type,
                        const void *bytes, size_t n_bytes);
void gguf_writer_array(struct gguf_writer *w, const char *key, enum gguf_type elem, u64 n,
                       const void *bytes, size_t n_bytes);
/* One string as it stands in string arrays. */
void gguf_writer_add_str(struct str *out, struct view v);

/* dims[0] is the contiguous dimension. The size follows from the type, which must be a decodable
 * one (ASSERT). data: size_bytes of it, or NULL when streaming. Returns size_bytes. */
u64 gguf_writer_tensor(struct gguf_writer *w, const char *name, enum dtype type, u32 n_dims,
                       const u64 *dims, const void *data);

/* Appends everything before the data section, padded to the alignment. */
void gguf_writer_head(const struct gguf_writer *w, struct str *out);
/* Appends the whole file. */
void gguf_writer_finish(const struct gguf_writer *w, struct str *out);
