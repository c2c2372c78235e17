#include "formats/gguf.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/arena.h"
#include "base/buf.h"

/* The least bytes an entry can take: they bound the counts by the file's size before anything is
 * allocated. Key of 1 byte + type + 1-byte value; name of 1 byte + n_dims + 1 dim + type + offset.
 */
enum { KV_BYTES_MIN = 8 + 1 + 4 + 1, TENSOR_BYTES_MIN = 8 + 1 + 4 + 8 + 4 + 8 };

static const struct {
    const char *name;
    u32 bytes; /* 0: variable */
} TYPES[GGUF_TYPE_N] = {
    [GGUF_U8] = {"u8", 1},   [GGUF_I8] = {"i8", 1},     [GGUF_U16] = {"u16", 2},
    [GGUF_I16] = {"i16", 2}, [GGUF_U32] = {"u32", 4},   [GGUF_I32] = {"i32", 4},
    [GGUF_F32] = {"f32", 4}, [GGUF_BOOL] = {"bool", 1}, [GGUF_STR] = {"string", 0},
    [GGUF_U64] = {"u64", 8}, [GGUF_ARR] = {"array", 0}, [GGUF_I64] = {"i64", 8},
    [GGUF_F64] = {"f64", 8},
};

const char *gguf_type_name(enum gguf_type t) {
    return (u32)t < GGUF_TYPE_N ? TYPES[t].name : "unknown";
}

u32 gguf_type_bytes(enum gguf_type t) {
    return (u32)t < GGUF_TYPE_N ? TYPES[t].bytes : 0;
}

/* What a file that is no GGUF seems to be, for the error message: people pass the wrong file. */
static const char *looks_like(const char *p, size_t n) {
    if (n == 0) return "the file is empty";
    if (n >= 4 && memcmp(p, "PK\3\4", 4) == 0)
        return "it looks like a zip archive (a PyTorch checkpoint?)";
    if (n >= 4 &&
        (memcmp(p, "lmgg", 4) == 0 || memcmp(p, "fmgg", 4) == 0 || memcmp(p, "tjgg", 4) == 0))
        return "it is a GGML file from before GGUF; convert it again";
    if (n >= 9 && memcmp(p + 4, "\0\0\0\0{", 5) == 0) /* u64 length below 4 GiB, JSON */
        return "it looks like a safetensors file";
    if (n >= 15 && memcmp(p, "version https:/", 15) == 0)
        return "it looks like a Git LFS pointer: the model itself was not downloaded";
    size_t i = 0;
    while (i < n && (p[i] == ' ' || (p[i] >= '\t' && p[i] <= '\r'))) i++;
    p += i;
    n -= i;
    if ((n >= 9 && strncasecmp(p, "<!doctype", 9) == 0) ||
        (n >= 5 && strncasecmp(p, "<html", 5) == 0))
        return "it looks like a web page: the download got an HTML page instead of the model";
    if (n && *p == '{') return "it looks like JSON";
    return "it does not begin with the bytes \"GGUF\"";
}

/* The part of a name that messages show; a hostile one is up to 64 KiB long. */
static struct view shown(struct view name) {
    if (name.n > 120) {
        name.n = 120;
        name.n -= utf8_incomplete_tail(name.p, name.n);
    }
    return name;
}

static bool ends_inside(const struct rd *r, struct err *e, const char *what) {
    return err_set(e, ERR_FORMAT, "the file ends inside %s: it is truncated or damaged (%zu bytes)",
                   what, r->n);
}

/* A key or a name: u64 length, bytes. It is printed in messages, so it must be printable. */
static bool read_name(struct rd *r, u64 n_max, const char *what, struct view *out, struct err *e) {
    size_t at = r->off;
    u64 n = rd_u64(r);
    if (!r->bad && n == 0) return err_set(e, ERR_FORMAT, "empty %s at byte %zu", what, at);
    if (!r->bad && n > n_max)
        return err_set(e, ERR_LIMIT, "%s at byte %zu is %llu bytes long, the limit is %llu", what,
                       at, (unsigned long long)n, (unsigned long long)n_max);
    const char *p = rd_bytes(r, n);
    if (!p) return ends_inside(r, e, what);
    *out = (struct view){p, (size_t)n};
    bool clean = utf8_valid(p, out->n);
    for (size_t i = 0; i < out->n; i++) clean = clean && (u8)p[i] >= 0x20 && p[i] != 0x7F;
    return clean || err_set(e, ERR_FORMAT, "%s at byte %zu is not printable UTF-8", what, at);
}

/* Passes over n strings, each a u64 length and its bytes. */
static bool skip_strings(struct rd *r, u64 n) {
    for (u64 i = 0; i < n; i++)
        if (!rd_bytes(r, rd_u64(r))) return false;
    return true;
}

/* The values behind a key whose type, element type and count are known. */
static bool read_values(struct rd *r, struct gguf_kv *kv, struct err *e) {
    u64 bytes;
    kv->data = r->p + r->off;
    size_t at = r->off;
    bool inside = kv->elem == GGUF_STR
                      ? skip_strings(r, kv->n)
                      : size_mul(kv->n, TYPES[kv->elem].bytes, &bytes) && rd_bytes(r, bytes);
    if (!inside)
        return err_set(
            e, ERR_FORMAT,
            "metadata key %.*s: %llu value(s) of type %s at byte %zu reach beyond the end of "
            "the file (%zu bytes): it is truncated or damaged",
            VIEW_FMT(shown(kv->key)), (unsigned long long)kv->n, TYPES[kv->elem].name, at, r->n);
    kv->size_bytes = r->off - at;
    for (u64 i = 0; kv->elem == GGUF_BOOL && i < kv->n; i++)
        if (kv->data[i] > 1)
            return err_set(e, ERR_FORMAT, "metadata key %.*s: boolean of value %u at byte %zu",
                           VIEW_FMT(shown(kv->key)), kv->data[i], at + i);
    return true;
}

static bool read_kv(struct rd *r, struct gguf_kv *kv, struct err *e) {
    if (!read_name(r, GGUF_KEY_MAX, "metadata key", &kv->key, e)) return false;
    size_t at = r->off;
    u32 type = rd_u32(r), elem = type;
    kv->n = 1;
    if (type == GGUF_ARR) {
        elem = rd_u32(r);
        kv->n = rd_u64(r);
    }
    if (r->bad) return ends_inside(r, e, "the type of a metadata value");
    if (type >= GGUF_TYPE_N || elem >= GGUF_TYPE_N)
        return err_set(e, ERR_FORMAT, "metadata key %.*s: unknown value type %u at byte %zu",
                       VIEW_FMT(shown(kv->key)), elem, at);
    if (elem == GGUF_ARR)
        return err_set(e, ERR_UNSUPPORTED,
                       "metadata key %.*s: an array of arrays, at byte %zu, is not supported",
                       VIEW_FMT(shown(kv->key)), at);
    kv->type = (enum gguf_type)type;
    kv->elem = (enum gguf_type)elem;
    return read_values(r, kv, e);
}

/* Shape and type: fills dims, type, size_bytes. `at` is the entry's place. */
static bool read_shape(struct rd *r, struct gguf_tensor *t, size_t at, struct err *e) {
    struct view name = shown(t->name);
    t->n_dims = rd_u32(r);
    if (!r->bad && (t->n_dims < 1 || t->n_dims > 4))
        return err_set(e, ERR_FORMAT, "tensor %.*s at byte %zu: %u dimensions, 1 to 4 are possible",
                       VIEW_FMT(name), at, t->n_dims);
    u64 n_rows = 1;
    for (u32 i = 0; i < 4; i++) {
        t->dims[i] = i < t->n_dims ? rd_u64(r) : 1;
        if (!r->bad && t->dims[i] == 0)
            return err_set(e, ERR_FORMAT, "tensor %.*s at byte %zu: dimension %u is zero",
                           VIEW_FMT(name), at, i);
        if (i > 0 && !size_mul(n_rows, t->dims[i], &n_rows)) goto too_large;
    }
    u32 type = rd_u32(r);
    if (r->bad) return ends_inside(r, e, "the tensor directory");
    char buf[24];
    const struct dtype_info *d = dtype_info(type);
    if (d->block_elems == 0)
        return err_set(e, ERR_UNSUPPORTED, "tensor %.*s: block format %s is not supported",
                       VIEW_FMT(name), dtype_name(type, buf));
    if (t->dims[0] % d->block_elems != 0)
        return err_set(e, ERR_FORMAT,
                       "tensor %.*s at byte %zu: rows of %llu elements do not divide into "
                       "%s blocks of %u",
                       VIEW_FMT(name), at, (unsigned long long)t->dims[0], d->name, d->block_elems);
    t->type = (enum dtype)type;
    u64 row_bytes, n_elems;
    if (!size_mul(t->dims[0], n_rows, &n_elems) || n_elems > INT64_MAX) goto too_large;
    if (!dtype_row_bytes(type, t->dims[0], &row_bytes)) goto too_large;
    if (size_mul(row_bytes, n_rows, &t->size_bytes)) return true;

too_large:
    return err_set(e, ERR_LIMIT, "tensor %.*s at byte %zu: the product of its dimensions overflows",
                   VIEW_FMT(name), at);
}

/* One directory entry; its offset is still relative to the data section. */
static bool read_tensor(struct rd *r, struct gguf_tensor *t, u64 alignment, struct err *e) {
    size_t at = r->off;
    if (!read_name(r, GGUF_NAME_MAX, "tensor name", &t->name, e)) return false;
    if (!read_shape(r, t, at, e)) return false;
    t->offset = rd_u64(r);
    if (r->bad) return ends_inside(r, e, "the tensor directory");
    if (t->offset % alignment != 0)
        return err_set(e, ERR_FORMAT,
                       "tensor %.*s at byte %zu: offset %llu is no multiple of the alignment %llu",
                       VIEW_FMT(shown(t->name)), at, (unsigned long long)t->offset,
                       (unsigned long long)alignment);
    return true;
}

/* Makes the offset absolute once the start of the data section is known. */
static bool place_tensor(const struct gguf *g, struct gguf_tensor *t, struct err *e) {
    u64 begin, end;
    if (size_add(g->data_offset, t->offset, &begin) && size_add(begin, t->size_bytes, &end) &&
        end <= g->size_bytes) {
        t->offset = begin;
        return true;
    }
    return err_set(
        e, ERR_FORMAT,
        "tensor %.*s: its %llu bytes at data offset %llu reach beyond the end of the file "
        "(%llu bytes, data begins at %llu): it is truncated or damaged",
        VIEW_FMT(shown(t->name)), (unsigned long long)t->size_bytes, (unsigned long long)t->offset,
        (unsigned long long)g->size_bytes, (unsigned long long)g->data_offset);
}

static int view_cmp(struct view a, struct view b) {
    int c = memcmp(a.p, b.p, MIN(a.n, b.n));
    return c ? c : a.n < b.n ? -1 : a.n > b.n;
}

static int name_ptr_cmp(const void *a, const void *b) {
    return view_cmp(**(const struct view *const *)a, **(const struct view *const *)b);
}

/* Names at stride `size` from `first`, sorted. False with *e when two are equal. */
static bool index_names(const struct view **index, const void *first, size_t size, u64 n,
                        const char *what, struct err *e) {
    for (u64 i = 0; i < n; i++) index[i] = (const void *)((const char *)first + i * size);
    if (n) qsort(index, n, sizeof *index, name_ptr_cmp);
    for (u64 i = 1; i < n; i++)
        if (view_eq(*index[i - 1], *index[i]))
            return err_set(e, ERR_FORMAT, "%s %.*s occurs twice", what, VIEW_FMT(shown(*index[i])));
    return true;
}

static const void *index_find(const struct view *const *index, u64 n, const char *name) {
    struct view key = view_of(name);
    for (u64 lo = 0, hi = n; lo < hi;) {
        u64 mid = lo + (hi - lo) / 2;
        int c = view_cmp(key, *index[mid]);
        if (c == 0) return index[mid];
        if (c < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}

const struct gguf_kv *gguf_find(const struct gguf *g, const char *key) {
    return index_find(g->by_key, g->n_kv, key);
}

const struct gguf_tensor *gguf_tensor(const struct gguf *g, const char *name) {
    return index_find(g->by_name, g->n_tensors, name);
}

/* Magic, version and counts. */
static bool read_head(struct rd *r, struct gguf *g, struct err *e) {
    if (r->n < 4 || memcmp(r->p, "GGUF", 4) != 0)
        return err_set(e, ERR_FORMAT, "not a GGUF file: %s", looks_like((const char *)r->p, r->n));
    rd_u32(r);
    g->version = rd_u32(r);
    g->n_tensors = rd_u64(r);
    g->n_kv = rd_u64(r);
    /* before the check of r->bad: a file cut right behind its version still gets this message */
    if (r->n >= 8 && g->version != 2 && g->version != 3) {
        bool swapped = (g->version & 0xFFFF) == 0 && g->version != 0;
        return err_set(e, ERR_UNSUPPORTED,
                       swapped ? "big-endian GGUF files are not supported"
                               : "GGUF version %u is not supported, 2 and 3 are",
                       g->version);
    }
    if (r->bad) return ends_inside(r, e, "the GGUF header");
    if (g->n_kv > GGUF_KV_MAX || g->n_kv > rd_left(r) / KV_BYTES_MIN)
        return err_set(e, ERR_LIMIT,
                       "%llu metadata entries at byte 16: the limit is %u, and they must fit "
                       "the file's %zu bytes",
                       (unsigned long long)g->n_kv, GGUF_KV_MAX, r->n);
    if (g->n_tensors > GGUF_TENSORS_MAX || g->n_tensors > rd_left(r) / TENSOR_BYTES_MIN)
        return err_set(e, ERR_LIMIT,
                       "%llu tensors at byte 8: the limit is %u, and they must fit the "
                       "file's %zu bytes",
                       (unsigned long long)g->n_tensors, GGUF_TENSORS_MAX, r->n);
    return true;
}

static bool read_alignment(struct gguf *g, struct err *e) {
    u32 a = GGUF_ALIGN_DEFAULT;
    if (!gguf_get_u32(g, "general.alignment", &a, e)) return false;
    if (a < GGUF_ALIGN_MIN || a > GGUF_ALIGN_MAX || (a & (a - 1)))
        return err_set(e, ERR_FORMAT,
                       "metadata key general.alignment: %u is no power of two from %u to %u", a,
                       GGUF_ALIGN_MIN, GGUF_ALIGN_MAX);
    g->alignment = a;
    return true;
}

struct gguf *gguf_parse(const void *data, size_t size_bytes, struct err *e) {
    struct rd r = rd_of(data, size_bytes);
    struct gguf *g = xcalloc(1, sizeof *g);
    g->size_bytes = size_bytes;
    if (!read_head(&r, g, e)) goto fail;

    struct gguf_kv *kv = xcalloc(g->n_kv, sizeof *kv);
    struct gguf_tensor *tensor = xcalloc(g->n_tensors, sizeof *tensor);
    g->kv = kv;
    g->tensor = tensor;
    g->by_key = xcalloc(g->n_kv, sizeof *g->by_key);
    g->by_name = xcalloc(g->n_tensors, sizeof *g->by_name);

    for (u64 i = 0; i < g->n_kv; i++)
        if (!read_kv(&r, &kv[i], e)) goto fail;
    if (!index_names(g->by_key, kv, sizeof *kv, g->n_kv, "metadata key", e)) goto fail;
    if (!read_alignment(g, e)) goto fail;

    for (u64 i = 0; i < g->n_tensors; i++)
        if (!read_tensor(&r, &tensor[i], g->alignment, e)) goto fail;
    if (!index_names(g->by_name, tensor, sizeof *tensor, g->n_tensors, "tensor", e)) goto fail;
    g->data_offset = align_up(r.off, g->alignment);
    for (u64 i = 0; i < g->n_tensors; i++)
        if (!place_tensor(g, &tensor[i], e)) goto fail;
    return g;

fail:
    gguf_free(g);
    return NULL;
}

void gguf_free(struct gguf *g) {
    if (!g) return;
    free((void *)g->kv);
    free((void *)g->tensor);
    free(g->by_key);
    free(g->by_name);
    free(g);
}
