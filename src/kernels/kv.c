#include "kernels/kv.h"

#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "kernels/mem.h"

static const char *const NAMES[KV_TYPES] = {[KV_F16] = "f16", [KV_Q8] = "q8"};

const char *kv_type_name(enum kv_type type) {
    return NAMES[type];
}

bool kv_type_read(const char *name, enum kv_type *type, struct err *e) {
    for (u32 i = 0; i < KV_TYPES; i++)
        if (strcmp(name, NAMES[i]) == 0) {
            *type = (enum kv_type)i;
            return true;
        }
    return err_set(e, ERR_ARG, "a KV cache of type \"%.40s\": there are f16 and q8", name);
}

bool kv_block_bytes(enum kv_type type, u32 n_layers, u32 n_kv_heads, u32 dk, u32 dv, u64 *bytes) {
    u64 n = kv_head_bytes(type, dk, dv); /* at most 2^39 */
    return size_mul(n, n_kv_heads, &n) && size_mul(n, n_layers, bytes);
}

bool kv_pool_init(struct kv_pool *p, enum kv_type type, u32 n_layers, u32 n_blocks, u32 n_kv_heads,
                  u32 dk, u32 dv, struct err *e) {
    u64 bytes;
    memset(p, 0, sizeof *p);
    if (!dk || !dv || dk % 16 || dv % 16)
        return err_set(e, ERR_UNSUPPORTED,
                       "attention heads of %u and %u elements: only multiples of 16 are supported",
                       dk, dv);
    if (!kv_block_bytes(type, n_layers, n_kv_heads, dk, dv, &bytes) ||
        !size_mul(bytes, n_blocks, &bytes))
        return err_set(e, ERR_LIMIT, "the size of the KV cache does not fit in 64 bits");
    u8 *mem = mem_map(bytes, "the KV cache", e);
    if (!mem) return false;
    *p = (struct kv_pool){.type = type,
                          .n_layers = n_layers,
                          .n_blocks = n_blocks,
                          .n_kv_heads = n_kv_heads,
                          .dk = dk,
                          .dv = dv,
                          .mem = mem,
                          .mem_bytes = bytes};
    return true;
}

void kv_pool_deinit(struct kv_pool *p) {
    mem_unmap(p->mem, p->mem_bytes);
    memset(p, 0, sizeof *p);
}

void kv_block_copy(struct kv_pool *p, u32 dst, u32 src) {
    u64 n = kv_block_stride(p);
    ASSERT(dst < p->n_blocks && src < p->n_blocks && dst != src);
    for (u32 l = 0; l < p->n_layers; l++) {
        u8 *base = kv_head(p, l, 0);
        memcpy(base + dst * n, base + src * n, n);
    }
}

void kv_q8_store(i8 *dst, u64 stride, u16 *scale, const float *src, u32 n) {
    float max = 0;
    for (u32 i = 0; i < n; i++) max = fabsf(src[i]) > max ? fabsf(src[i]) : max;
    float d = max / 127;
    *scale = f32_to_f16(d > 65504 ? 65504 : d);
    d = f16_to_f32(*scale); /* as it will be read */
    float inv = d > 0 ? 1 / d : 0;
    for (u32 i = 0; i < n; i++) {
        float x = src[i] * inv; /* the scale was rounded: a little over 127 is possible */
        x = x > 127 ? 127 : x < -127 ? -127 : x;
        dst[i * stride] = (i8)(i32)(x + (x < 0 ? -0.5f : 0.5f));
    }
}
