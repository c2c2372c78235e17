/* gguf.h - a read-only view of one GGUF file (v2 and v3, little-endian).
 *
 * Parsing touches the header, the metadata and the tensor directory, never the weights. Every
 * pointer handed out points into the caller's bytes. Every offset, count, product and type is
 * checked, so a tensor's [offset, offset + size_bytes) lies inside the file. Keys and tensor names
 * are unique, not empty, valid UTF-8 and free of control characters, so they can be printed. A
 * const struct gguf is safe to share between threads. Format: the GGUF specification in the ggml
 * repository (docs/gguf.md). */
#pragma once

#include "base/base.h"
#include "base/dtype.h"
#include "base/err.h"
#include "base/str.h"

/* The ids that stand in the file. */
enum gguf_type {
    GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32, GGUF_BOOL,
    GGUF_STR, GGUF_ARR, GGUF_U64, GGUF_I64, GGUF_F64, GGUF_TYPE_N
};

enum {
    GGUF_KV_MAX = 1 << 16,      /* metadata entries; published files have about 50 */
    GGUF_TENSORS_MAX = 1 << 20, /* published files have a few thousand at most */
    GGUF_KEY_MAX = 65535,       /* bytes, from the specification */
    GGUF_NAME_MAX = 255,        /* bytes of a tensor's name; the specification says 64 */
    GGUF_ALIGN_DEFAULT = 32,
    GGUF_ALIGN_MIN = 8, /* so that a tensor of F32 or F64 is aligned in memory */
    GGUF_ALIGN_MAX = 1 << 16,
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

    const struct view **by_key;  /* [n_kv]: kv[].key, sorted */
    const struct view **by_name; /* [n_tensors]: tensor[].name, sorted */
};

/* Borrows data, which must outlive the view. NULL and *e (ERR_FORMAT, ERR_LIMIT,
 * ERR_UNSUPPORTED for a block format skein does not know, big-endian or v1) on failure. */
struct gguf *gguf_parse(const void *data, size_t size_bytes, struct err *e);
void gguf_free(struct gguf *g); /* NULL is allowed */

/* NULL where there is none. A binary search: cheap in a hostile file too, where a hash table can be
 * made to degrade. */
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
/* An integer array of n_least..n_most entries into out[n_most]; entries that the file does not have
 * become 0 (rope.dimension_sections has 3 entries from one tool and 4 from another). */
bool gguf_get_i32s(const struct gguf *g, const char *key, i32 *out, u32 n_least, u32 n_most,
                   struct err *e);

/* Bytes of one value of a fixed-size type; 0 for strings, arrays and unknown types. */
u32 gguf_type_bytes(enum gguf_type t);
/* Element i of a numeric or boolean array (or 0 of a scalar), converted; that i < kv->n and the
 * type are right is the caller's duty (ASSERT). u64 values above INT64_MAX saturate. */
double gguf_arr_f64(const struct gguf_kv *kv, u64 i);
i64 gguf_arr_i64(const struct gguf_kv *kv, u64 i);
/* Walks the strings of a string array (or the one of a string): start with *at = 0; false at the
 * end. */
bool gguf_arr_next_str(const struct gguf_kv *kv, size_t *at, struct view *out);

const char *gguf_type_name(enum gguf_type t);
