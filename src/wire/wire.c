#include "wire/wire.h"

#include <string.h>

#include "base/buf.h"

/* Protobuf wire types. */
enum { PB_VARINT = 0, PB_LEN = 2, PB_32 = 5, PB_64 = 1 };

static u64 zigzag(i64 v) {
    return (u64)v << 1 ^ (u64)(v >> 63);
}
static i64 unzigzag(u64 v) {
    return (i64)(v >> 1) ^ -(i64)(v & 1);
}

static void put_key(struct str *out, u32 tag, u32 type) {
    wr_varint(out, (u64)tag << 3 | type);
}

static void put_bytes(struct str *out, u32 tag, const void *p, size_t n) {
    put_key(out, tag, PB_LEN);
    wr_varint(out, n);
    str_add(out, p, n);
}

static void put_sub(struct str *out, u32 tag, const struct wire_table *t, const void *msg) {
    struct str body = {0};
    wire_encode(t, msg, &body);
    put_bytes(out, tag, body.p, body.n);
    str_deinit(&body);
}

static void put_varints(struct str *out, u32 tag, const void *v, u64 n, bool is_signed) {
    if (n == 0) return;
    struct str body = {0};
    for (u64 i = 0; i < n; i++)
        wr_varint(&body, is_signed ? zigzag(((const i32 *)v)[i]) : ((const u64 *)v)[i]);
    put_bytes(out, tag, body.p, body.n);
    str_deinit(&body);
}

static void put_number(struct str *out, u32 tag, u64 v) {
    if (v == 0) return;
    put_key(out, tag, PB_VARINT);
    wr_varint(out, v);
}

static void put_field(struct str *out, const struct wire_field *f, const void *at) {
    switch (f->kind) {
    case WIRE_U32: put_number(out, f->tag, *(const u32 *)at); break;
    case WIRE_U64: put_number(out, f->tag, *(const u64 *)at); break;
    case WIRE_I32: put_number(out, f->tag, zigzag(*(const i32 *)at)); break;
    case WIRE_I64: put_number(out, f->tag, zigzag(*(const i64 *)at)); break;
    case WIRE_F32: {
        u32 bits; /* by bits, so that -0 and NaN travel too */
        memcpy(&bits, at, sizeof bits);
        if (bits == 0) break;
        put_key(out, f->tag, PB_32);
        wr_u32(out, bits);
        break;
    }
    case WIRE_STR: {
        const char *s = *(const char *const *)at;
        if (s && *s) put_bytes(out, f->tag, s, strlen(s));
        break;
    }
    case WIRE_BLOB: {
        const struct wire_blob *b = at;
        if (b->n) put_bytes(out, f->tag, b->p, b->n);
        break;
    }
    case WIRE_I32S:
        put_varints(out, f->tag, ((const struct wire_i32s *)at)->v,
                    ((const struct wire_i32s *)at)->n, true);
        break;
    case WIRE_U64S:
        put_varints(out, f->tag, ((const struct wire_u64s *)at)->v,
                    ((const struct wire_u64s *)at)->n, false);
        break;
    case WIRE_SUB: put_sub(out, f->tag, f->sub, at); break;
    case WIRE_LIST: {
        const struct wire_list *l = at;
        for (u64 i = 0; i < l->n; i++)
            put_sub(out, f->tag, f->sub, (const u8 *)l->v + i * f->sub->size_bytes);
        break;
    }
    }
}

void wire_encode(const struct wire_table *t, const void *msg, struct str *out) {
    for (u32 i = 0; i < t->n_fields; i++)
        put_field(out, &t->fields[i], (const u8 *)msg + t->fields[i].offset);
}

struct decoder {
    struct arena *a;
    struct err *e;
};

static bool bad(struct decoder *d, const struct wire_table *t, u32 tag, const char *what) {
    return err_set(d->e, ERR_FORMAT, "message %s, field %u: %s", t->name, tag, what);
}

/* Reads one value of wire type `type` into a number or a run of bytes. */
static bool take_value(struct rd *r, u32 type, u64 *number, struct rd *bytes) {
    switch (type) {
    case PB_VARINT: *number = rd_varint(r); break;
    case PB_32: *number = rd_u32(r); break;
    case PB_64: *number = rd_u64(r); break;
    case PB_LEN: {
        u64 n = rd_varint(r);
        const void *p = rd_bytes(r, n);
        *bytes = rd_of(p, p ? n : 0);
        break;
    }
    default: return false;
    }
    return !r->bad;
}

static u32 wire_type_of(enum wire_kind k) {
    if (k == WIRE_F32) return PB_32;
    return k >= WIRE_STR ? PB_LEN : PB_VARINT;
}

/* Room for n elements and one more: an empty list still has a valid pointer. n is bounded by the
 * bytes that are there, one at least for each element. */
static bool get_numbers(struct decoder *d, const struct wire_table *t, const struct wire_field *f,
                        struct rd *b, void *at) {
    size_t n = 0;
    for (size_t i = 0; i < b->n; i++) n += !(b->p[i] & 0x80);
    i32 *i32s = f->kind == WIRE_I32S ? arena_array(d->a, n + 1, sizeof *i32s) : NULL;
    u64 *u64s = f->kind == WIRE_U64S ? arena_array(d->a, n + 1, sizeof *u64s) : NULL;
    size_t k = 0;
    while (rd_left(b)) {
        u64 v = rd_varint(b);
        if (b->bad || k >= n) return bad(d, t, f->tag, "a number is cut off");
        if (i32s) {
            i64 s = unzigzag(v);
            if (s < INT32_MIN || s > INT32_MAX)
                return bad(d, t, f->tag, "a number is out of range");
            i32s[k++] = (i32)s;
        } else {
            u64s[k++] = v;
        }
    }
    if (i32s)
        *(struct wire_i32s *)at = (struct wire_i32s){i32s, n};
    else
        *(struct wire_u64s *)at = (struct wire_u64s){u64s, n};
    return true;
}

static bool decode(struct decoder *d, const struct wire_table *t, struct rd r, void *msg);

static bool get_field(struct decoder *d, const struct wire_table *t, const struct wire_field *f,
                      u64 v, struct rd *b, void *at) {
    switch (f->kind) {
    case WIRE_U32:
        if (v > UINT32_MAX) return bad(d, t, f->tag, "a number is out of range");
        *(u32 *)at = (u32)v;
        return true;
    case WIRE_U64: *(u64 *)at = v; return true;
    case WIRE_I32: {
        i64 s = unzigzag(v);
        if (s < INT32_MIN || s > INT32_MAX) return bad(d, t, f->tag, "a number is out of range");
        *(i32 *)at = (i32)s;
        return true;
    }
    case WIRE_I64: *(i64 *)at = unzigzag(v); return true;
    case WIRE_F32: {
        u32 bits = (u32)v;
        memcpy(at, &bits, sizeof bits);
        return true;
    }
    case WIRE_STR:
        if (memchr(b->p, 0, b->n) || !utf8_valid((const char *)b->p, b->n))
            return bad(d, t, f->tag, "text that is not UTF-8");
        *(const char **)at = arena_memdup(d->a, b->p, b->n);
        return true;
    case WIRE_BLOB:
        *(struct wire_blob *)at = (struct wire_blob){(u8 *)arena_memdup(d->a, b->p, b->n), b->n};
        return true;
    case WIRE_I32S:
    case WIRE_U64S: return get_numbers(d, t, f, b, at);
    case WIRE_SUB: return decode(d, f->sub, *b, at);
    case WIRE_LIST: {
        struct wire_list *l = at;
        return decode(d, f->sub, *b, (u8 *)l->v + l->n++ * f->sub->size_bytes);
    }
    }
    return false;
}

/* Strings are never NULL and lists have their storage before the first field is read: one pass
 * counts the elements of each list, so that no list is grown. */
static bool prepare(struct decoder *d, const struct wire_table *t, struct rd r, void *msg) {
    memset(msg, 0, t->size_bytes);
    for (u32 i = 0; i < t->n_fields; i++) {
        const struct wire_field *f = &t->fields[i];
        void *at = (u8 *)msg + f->offset;
        if (f->kind == WIRE_STR) *(const char **)at = "";
        if (f->kind == WIRE_SUB && !prepare(d, f->sub, rd_of("", 0), at)) return false;
        if (f->kind != WIRE_LIST) continue;
        struct rd scan = r;
        u64 n = 0;
        while (rd_left(&scan)) {
            u64 key = rd_varint(&scan), v;
            struct rd b;
            if (scan.bad || !take_value(&scan, key & 7, &v, &b)) break; /* decode() reports it */
            n += key >> 3 == f->tag && (key & 7) == PB_LEN;
        }
        ((struct wire_list *)at)->v = arena_array(d->a, n + 1, f->sub->size_bytes);
    }
    return true;
}

static bool decode(struct decoder *d, const struct wire_table *t, struct rd r, void *msg) {
    if (!prepare(d, t, r, msg)) return false;
    while (rd_left(&r)) {
        u64 key = rd_varint(&r), v = 0;
        struct rd b = {0};
        if (r.bad || key >> 3 == 0 || key >> 3 > UINT32_MAX) return bad(d, t, 0, "not a field key");
        u32 tag = (u32)(key >> 3), type = key & 7;
        if (!take_value(&r, type, &v, &b))
            return bad(d, t, tag, "the value is cut off or of an unknown kind");
        for (u32 i = 0; i < t->n_fields; i++) {
            const struct wire_field *f = &t->fields[i];
            if (f->tag != tag) continue;
            if (type != wire_type_of(f->kind))
                return bad(d, t, tag, "the value is of the wrong kind");
            if (!get_field(d, t, f, v, &b, (u8 *)msg + f->offset)) return false;
            break;
        }
    }
    return r.bad ? bad(d, t, 0, "the message is cut off") : true;
}

bool wire_decode(const struct wire_table *t, const void *data, size_t n, struct arena *a, void *msg,
                 struct err *e) {
    struct decoder d = {a, e};
    return decode(&d, t, rd_of(data, n), msg);
}
