#include "formats/gguf.h"

#include <string.h>

#include "formats/blocks.h"

/* Fuzz target: whatever parses must keep the promises of gguf.h. */

int LLVMFuzzerTestOneInput(const u8 *data, size_t n);

static volatile u64 sink; /* keeps the reads */

static void read_kv(const struct gguf *g, const struct gguf_kv *kv) {
    char key[GGUF_KEY_MAX + 1];
    memcpy(key, kv->key.p, kv->key.n);
    key[kv->key.n] = 0;
    ASSERT(gguf_find(g, key) == kv);
    u32 u;
    u64 u64v;
    float f;
    bool b;
    struct view s;
    i32 list[4];
    struct err e;
    sink += gguf_get_u32(g, key, &u, &e) + gguf_get_u64(g, key, &u64v, &e);
    sink += gguf_get_f32(g, key, &f, &e) + gguf_get_bool(g, key, &b, &e);
    sink += gguf_get_str(g, key, &s, &e) + gguf_get_i32s(g, key, list, 3, 4, &e);
    u64 n_seen = 0;
    if (kv->elem == GGUF_STR) {
        for (size_t at = 0; gguf_arr_next_str(kv, &at, &s); n_seen++)
            if (s.n) sink += (u8)s.p[0] + (u8)s.p[s.n - 1];
    } else {
        for (; n_seen < kv->n; n_seen++)
            sink += (u64)gguf_arr_i64(kv, n_seen) + (gguf_arr_f64(kv, n_seen) > 0);
    }
    ASSERT(n_seen == kv->n);
}

static void read_tensor(const struct gguf *g, const struct gguf_tensor *t, const u8 *data) {
    char name[GGUF_NAME_MAX + 1];
    memcpy(name, t->name.p, t->name.n);
    name[t->name.n] = 0;
    ASSERT(gguf_tensor(g, name) == t);
    sink += data[t->offset] + data[t->offset + t->size_bytes - 1];
    float block[256];
    if (blocks_can_decode(t->type))
        blocks_decode(t->type, block, data + t->offset, dtype_info(t->type)->block_elems);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t n) {
    struct err e = {0};
    struct gguf *g = gguf_parse(data, n, &e);
    if (!g) {
        ASSERT(e.code != ERR_NONE && utf8_valid(e.msg, strlen(e.msg)));
        return 0;
    }
    for (u64 i = 0; i < g->n_kv; i++) read_kv(g, &g->kv[i]);
    for (u64 i = 0; i < g->n_tensors; i++) read_tensor(g, &g->tensor[i], data);
    gguf_free(g);
    return 0;
}
