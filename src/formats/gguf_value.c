#include "formats/gguf.h"

#include <math.h>
#include <string.h>

/* Typed access to metadata values; the file's structure was checked by gguf_parse. Values are
 * unaligned in the file, hence the memcpy. */

enum kind { KIND_INT, KIND_FLOAT, KIND_OTHER };

static enum kind kind_of(enum gguf_type t) {
    switch (t) {
    case GGUF_U8:
    case GGUF_I8:
    case GGUF_U16:
    case GGUF_I16:
    case GGUF_U32:
    case GGUF_I32:
    case GGUF_U64:
    case GGUF_I64: return KIND_INT;
    case GGUF_F32:
    case GGUF_F64: return KIND_FLOAT;
    default: return KIND_OTHER;
    }
}

/* Integer or boolean p. A u64 above INT64_MAX becomes negative; *big says so. */
static i64 load_int(enum gguf_type t, const u8 *p, bool *big) {
    u64 u = 0;
    u32 n = gguf_type_bytes(t);
    memcpy(&u, p, n); /* little-endian host: the low bytes */
    *big = t == GGUF_U64 && u > INT64_MAX;
    switch (t) {
    case GGUF_I8: return (i8)u;
    case GGUF_I16: return (i16)u;
    case GGUF_I32: return (i32)u;
    default: return (i64)u;
    }
}

static double load_float(enum gguf_type t, const u8 *p) {
    float f;
    double d;
    if (t == GGUF_F64) {
        memcpy(&d, p, sizeof d);
        return d;
    }
    memcpy(&f, p, sizeof f);
    return f;
}

double gguf_arr_f64(const struct gguf_kv *kv, u64 i) {
    ASSERT(i < kv->n && gguf_type_bytes(kv->elem));
    const u8 *p = kv->data + i * gguf_type_bytes(kv->elem);
    if (kind_of(kv->elem) == KIND_FLOAT) return load_float(kv->elem, p);
    bool big;
    i64 v = load_int(kv->elem, p, &big);
    return big ? (double)(u64)v : (double)v;
}

i64 gguf_arr_i64(const struct gguf_kv *kv, u64 i) {
    ASSERT(i < kv->n && gguf_type_bytes(kv->elem));
    const u8 *p = kv->data + i * gguf_type_bytes(kv->elem);
    if (kind_of(kv->elem) == KIND_FLOAT) {
        double d = load_float(kv->elem, p); /* a double outside i64 has no defined conversion */
        return isnan(d) ? 0 : d >= 0x1p63 ? INT64_MAX : d < -0x1p63 ? INT64_MIN : (i64)d;
    }
    bool big;
    i64 v = load_int(kv->elem, p, &big);
    return big ? INT64_MAX : v;
}

bool gguf_arr_next_str(const struct gguf_kv *kv, size_t *at, struct view *out) {
    ASSERT(kv->elem == GGUF_STR);
    if (*at >= kv->size_bytes) return false;
    u64 n;
    memcpy(&n, kv->data + *at, sizeof n);
    *out = (struct view){(const char *)kv->data + *at + sizeof n, (size_t)n};
    *at += sizeof n + (size_t)n;
    return true;
}

static bool wrong_type(const struct gguf_kv *kv, const char *key, const char *expected,
                       struct err *e) {
    bool array = kv->type == GGUF_ARR;
    return err_set(e, ERR_FORMAT, "metadata key %s: expected %s, found %s%s", key, expected,
                   array ? "an array of " : "", gguf_type_name(kv->elem));
}

static bool get_unsigned(const struct gguf *g, const char *key, u64 limit, u64 *out,
                         struct err *e) {
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv) return true;
    if (kind_of(kv->type) != KIND_INT) return wrong_type(kv, key, "an integer", e);
    bool big;
    i64 v = load_int(kv->type, kv->data, &big);
    if (v < 0 && !big)
        return err_set(e, ERR_FORMAT, "metadata key %s: %lld is negative", key, (long long)v);
    if ((u64)v > limit)
        return err_set(e, ERR_FORMAT, "metadata key %s: %llu is above %llu", key,
                       (unsigned long long)v, (unsigned long long)limit);
    *out = (u64)v;
    return true;
}

bool gguf_get_u64(const struct gguf *g, const char *key, u64 *out, struct err *e) {
    return get_unsigned(g, key, UINT64_MAX, out, e);
}

bool gguf_get_u32(const struct gguf *g, const char *key, u32 *out, struct err *e) {
    u64 v = *out;
    if (!get_unsigned(g, key, UINT32_MAX, &v, e)) return false;
    *out = (u32)v;
    return true;
}

bool gguf_get_f32(const struct gguf *g, const char *key, float *out, struct err *e) {
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv) return true;
    if (kind_of(kv->type) == KIND_OTHER) return wrong_type(kv, key, "a number", e);
    double v = gguf_arr_f64(kv, 0);
    if (isfinite(v) && fabs(v) > 3.4028234663852886e38) /* FLT_MAX */
        return err_set(e, ERR_FORMAT, "metadata key %s: %g does not fit a 32-bit float", key, v);
    *out = (float)v;
    return true;
}

bool gguf_get_bool(const struct gguf *g, const char *key, bool *out, struct err *e) {
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv) return true;
    if (kv->type != GGUF_BOOL) return wrong_type(kv, key, "a bool", e);
    *out = kv->data[0] != 0;
    return true;
}

bool gguf_get_str(const struct gguf *g, const char *key, struct view *out, struct err *e) {
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv) return true;
    if (kv->type != GGUF_STR) return wrong_type(kv, key, "a string", e);
    size_t at = 0;
    ASSERT(gguf_arr_next_str(kv, &at, out));
    return true;
}

bool gguf_get_i32s(const struct gguf *g, const char *key, i32 *out, u32 n_least, u32 n_most,
                   struct err *e) {
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv) return true;
    if (kv->type != GGUF_ARR || kind_of(kv->elem) != KIND_INT)
        return wrong_type(kv, key, "an array of integers", e);
    if (kv->n < n_least || kv->n > n_most)
        return err_set(e, ERR_FORMAT, "metadata key %s: expected %u to %u entries, found %llu", key,
                       n_least, n_most, (unsigned long long)kv->n);
    for (u32 i = 0; i < n_most; i++) {
        i64 v = i < kv->n ? gguf_arr_i64(kv, i) : 0;
        if (v < INT32_MIN || v > INT32_MAX)
            return err_set(e, ERR_FORMAT, "metadata key %s: entry %u, %lld, does not fit 32 bits",
                           key, i, (long long)v);
        out[i] = (i32)v;
    }
    return true;
}
