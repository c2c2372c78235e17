/* kv.h - the memory of the KV cache: a pool of equal blocks, addressed by block number.
 *
 * A block holds KV_BLOCK_TOKENS consecutive positions of one sequence, in every layer of this
 * shard. Which block belongs to which sequence is the engine's business; here is only the layout.
 * Memory is [layer][block][kv_head], and per head first the keys as [dk][KV_BLOCK_TOKENS], then the
 * values as [KV_BLOCK_TOKENS][dv], both f16. Keys are transposed so that 32 scores are vector lanes
 * (one cache line per element of q, no horizontal sums); values are not, because there the head
 * dimension is the vector. Layers come first: a step walks layer by layer.
 * The struct is data owned by one engine thread; kernels read and write what k and v point to. */
#pragma once

#include "base/base.h"
#include "base/err.h"

enum { KV_BLOCK_TOKENS = 32 };

struct kv_pool {
    u32 n_layers, n_blocks, n_kv_heads;
    u32 dk, dv; /* head dimensions, multiples of 16 */
    u16 *mem;
    u64 mem_bytes;
};

/* Bytes of one block over all layers; false on overflow. */
bool kv_block_bytes(u32 n_layers, u32 n_kv_heads, u32 dk, u32 dv, u64 *bytes);
/* Allocates the pool in one piece. ERR_ARG for dimensions that no kernel takes, ERR_MEMORY. */
bool kv_pool_init(struct kv_pool *p, u32 n_layers, u32 n_blocks, u32 n_kv_heads, u32 dk, u32 dv,
                  struct err *e);
void kv_pool_deinit(struct kv_pool *p);

/* Distance between two blocks of one layer, in u16. */
static inline u64 kv_block_stride(const struct kv_pool *p) {
    return (u64)p->n_kv_heads * KV_BLOCK_TOKENS * (p->dk + p->dv);
}
/* Keys of block 0; block b is b strides on, the values are dk * KV_BLOCK_TOKENS on. */
static inline u16 *kv_keys(const struct kv_pool *p, u32 layer, u32 kv_head) {
    return p->mem + (u64)layer * p->n_blocks * kv_block_stride(p) +
           (u64)kv_head * KV_BLOCK_TOKENS * (p->dk + p->dv);
}
static inline u16 *kv_values(const struct kv_pool *p, u32 layer, u32 kv_head) {
    return kv_keys(p, layer, kv_head) + (u64)p->dk * KV_BLOCK_TOKENS;
}
/* Copies one block in every layer (for a sequence that leaves a shared prefix inside a block). */
void kv_block_copy(struct kv_pool *p, u32 dst, u32 src);
