#include "formats/gguf_writer.h"

#include "base/buf.h"

static u64 alignment_of(const struct gguf_writer *w) {
    return w->alignment ? w->alignment : GGUF_ALIGN_DEFAULT;
}

static void pad(struct str *s, u64 alignment) {
    while (s->n % alignment) str_addc(s, 0);
}

void gguf_writer_deinit(struct gguf_writer *w) {
    str_deinit(&w->kv);
    str_deinit(&w->dir);
    str_deinit(&w->data);
    *w = (struct gguf_writer){0};
}

void gguf_writer_add_str(struct str *out, struct view v) {
    wr_u64(out, v.n);
    str_addv(out, v);
}

void gguf_writer_scalar(struct gguf_writer *w, const char *key, enum gguf_type type,
                        const void *bytes, size_t n_bytes) {
    gguf_writer_add_str(&w->kv, view_of(key));
    wr_u32(&w->kv, type);
    str_add(&w->kv, bytes, n_bytes);
    w->n_kv++;
}

void gguf_writer_array(struct gguf_writer *w, const char *key, enum gguf_type elem, u64 n,
                       const void *bytes, size_t n_bytes) {
    gguf_writer_add_str(&w->kv, view_of(key));
    wr_u32(&w->kv, GGUF_ARR);
    wr_u32(&w->kv, elem);
    wr_u64(&w->kv, n);
    str_add(&w->kv, bytes, n_bytes);
    w->n_kv++;
}

void gguf_writer_u32(struct gguf_writer *w, const char *key, u32 v) {
    gguf_writer_scalar(w, key, GGUF_U32, &v, sizeof v);
}

void gguf_writer_u64(struct gguf_writer *w, const char *key, u64 v) {
    gguf_writer_scalar(w, key, GGUF_U64, &v, sizeof v);
}

void gguf_writer_f32(struct gguf_writer *w, const char *key, float v) {
    gguf_writer_scalar(w, key, GGUF_F32, &v, sizeof v);
}

void gguf_writer_bool(struct gguf_writer *w, const char *key, bool v) {
    u8 b = v;
    gguf_writer_scalar(w, key, GGUF_BOOL, &b, sizeof b);
}

void gguf_writer_str(struct gguf_writer *w, const char *key, const char *v) {
    struct str s = {0};
    gguf_writer_add_str(&s, view_of(v));
    gguf_writer_scalar(w, key, GGUF_STR, s.p, s.n);
    str_deinit(&s);
}

u64 gguf_writer_tensor(struct gguf_writer *w, const char *name, enum dtype type, u32 n_dims,
                       const u64 *dims, const void *data) {
    u64 size_bytes;
    ASSERT(n_dims >= 1 && n_dims <= 4 && dtype_row_bytes(type, dims[0], &size_bytes));
    gguf_writer_add_str(&w->dir, view_of(name));
    wr_u32(&w->dir, n_dims);
    for (u32 i = 0; i < n_dims; i++) {
        wr_u64(&w->dir, dims[i]);
        if (i > 0) ASSERT(size_mul(size_bytes, dims[i], &size_bytes));
    }
    wr_u32(&w->dir, type);
    wr_u64(&w->dir, w->data_bytes);
    w->data_bytes += align_up(size_bytes, alignment_of(w));
    if (data) {
        str_add(&w->data, data, size_bytes);
        pad(&w->data, alignment_of(w));
    }
    w->n_tensors++;
    return size_bytes;
}

void gguf_writer_head(const struct gguf_writer *w, struct str *out) {
    ASSERT(out->n == 0);
    str_addz(out, "GGUF");
    wr_u32(out, w->version ? w->version : 3);
    wr_u64(out, w->n_tensors);
    wr_u64(out, w->n_kv);
    str_addv(out, str_view(&w->kv));
    str_addv(out, str_view(&w->dir));
    pad(out, alignment_of(w));
}

void gguf_writer_finish(const struct gguf_writer *w, struct str *out) {
    gguf_writer_head(w, out);
    str_addv(out, str_view(&w->data));
}
