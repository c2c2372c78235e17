/* gguf.h - a read-only view of one GGUF file (v2 and v3, little-endian).
 *
 * Parsing touches the header, the metadata and the tensor directory, never the weights. Every
 * pointer handed out points into the caller's bytes. Every offset, count, product and type is
 * checked, so a tensor's [offset, offset + size_bytes) lies inside the file. A const struct gguf is
 * safe to share between threads. Format: the GGUF specification in the ggml repository. */
#pragma once

#include "base/base.h"
#include "base/dtype.h"
#include "base/err.h"
#include "base/str.h"

enum gguf_type {
    GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32, GGUF_BOOL,
    GGUF_STR, GGUF_ARR, GGUF_U64, GGUF_I64, GGUF_F64, GGUF_TYPE_N
};

struct gguf_kv {
    struct view key;
    enum gguf_type type; /* GGUF_ARR for arrays */
    enum gguf_type elem; /* element type of an array; = type otherwise */
    u64 n;               /* elements of an array; 1 otherwise */
    const u8 *data;      /* first value byte (a string's: its u64 length); unaligned */
    size_t size_bytes;   /* bytes of all values */
};

struct gguf_tensor {
    struct view name;
    u32 n_dims;
    u64 dims[4];    /* dims[0] is the contiguous one (columns); unused ones are 1 */
    enum dtype type;
    u64 offset;     /* from the start of the file */
    u64 size_bytes;
};

struct gguf {
    u32 version;
    u64 alignment;
    u64 n_kv, n_tensors;
    const struct gguf_kv *kv;         /* in file order; [n_kv] */
    const struct gguf_tensor *tensor; /* in file order; [n_tensors] */
    u64 data_offset;                  /* where tensor data begins */
    u64 size_bytes;                   /* of the file */
};

/* Borrows data, which must outlive the view. NULL and *e (ERR_FORMAT, ERR_LIMIT,
 * ERR_UNSUPPORTED for a block format skein does not know, big-endian or v1) on failure. */
struct gguf *gguf_parse(const void *data, size_t size_bytes, struct err *e);
void gguf_free(struct gguf *g);

/* NULL where there is none. Hashed: any number of look-ups is cheap. */
const struct gguf_kv *gguf_find(const struct gguf *g, const char *key);
const struct gguf_tensor *gguf_tensor(const struct gguf *g, const char *name);

/* Typed look-ups. A missing key leaves *out untouched and returns true; a key of the wrong type is
 * an error that names key, expected and found type (all integer types convert where the value
 * fits; F32/F64 and integers convert to f32). Use gguf_find to require presence. */
bool gguf_get_u32(const struct gguf *g, const char *key, u32 *out, struct err *e);
bool gguf_get_u64(const struct gguf *g, const char *key, u64 *out, struct err *e);
bool gguf_get_f32(const struct gguf *g, const char *key, float *out, struct err *e);
bool gguf_get_bool(const struct gguf *g, const char *key, bool *out, struct err *e);
bool gguf_get_str(const struct gguf *g, const char *key, struct view *out, struct err *e);

/* Element i of a numeric array converted; i < kv->n is the caller's duty (ASSERT). */
double gguf_arr_f64(const struct gguf_kv *kv, u64 i);
i64 gguf_arr_i64(const struct gguf_kv *kv, u64 i);
/* Walks the strings of a string array: start with *at = 0; false at the end. */
bool gguf_arr_next_str(const struct gguf_kv *kv, size_t *at, struct view *out);

const char *gguf_type_name(enum gguf_type t);
