#include "kernels/kv.h"

#include <string.h>

#include "kernels/mem.h"

bool kv_block_bytes(u32 n_layers, u32 n_kv_heads, u32 dk, u32 dv, u64 *bytes) {
    u64 n = (u64)dk + dv;
    return size_mul(n, KV_BLOCK_TOKENS * sizeof(u16), &n) && size_mul(n, n_kv_heads, &n) &&
           size_mul(n, n_layers, bytes);
}

bool kv_pool_init(struct kv_pool *p, u32 n_layers, u32 n_blocks, u32 n_kv_heads, u32 dk, u32 dv,
                  struct err *e) {
    u64 bytes;
    memset(p, 0, sizeof *p);
    if (!dk || !dv || dk % 16 || dv % 16)
        return err_set(e, ERR_UNSUPPORTED,
                       "attention heads of %u and %u elements: only multiples of 16 are supported",
                       dk, dv);
    if (!kv_block_bytes(n_layers, n_kv_heads, dk, dv, &bytes) || !size_mul(bytes, n_blocks, &bytes))
        return err_set(e, ERR_LIMIT, "the size of the KV cache does not fit in 64 bits");
    u16 *mem = mem_map(bytes, "the KV cache", e);
    if (!mem) return false;
    *p = (struct kv_pool){.n_layers = n_layers,
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
        u16 *base = kv_keys(p, l, 0);
        memcpy(base + dst * n, base + src * n, n * sizeof(u16));
    }
}
