/* kv.h - the memory of the KV cache: a pool of equal blocks, addressed by block number.
 *
 * A block holds KV_BLOCK_TOKENS consecutive positions of one sequence, in every layer of this
 * shard. Which block belongs to which sequence is the engine's business; here is only the layout.
 * Memory is [layer][block][kv_head], and per head first the keys as [dk][KV_BLOCK_TOKENS], then the
 * values as [KV_BLOCK_TOKENS][dv]. Keys are transposed so that 32 scores are vector lanes (no
 * horizontal sums); values are not, because there the head dimension is the vector. Layers come
 * first: a step walks layer by layer.
 *
 * KV_F16 keeps f16. KV_Q8 keeps signed bytes, with an f16 scale for each position and KV_GROUP
 * elements of a head behind the values: of the keys [groups of dk][KV_BLOCK_TOKENS], then of the
 * values likewise. The last group may be half full. That is 0.53 of the bytes of KV_F16. The struct
 * is data owned by one engine thread; kernels read and write the blocks. */
#pragma once

#include "base/base.h"
#include "base/err.h"

enum { KV_BLOCK_TOKENS = 32, KV_GROUP = 32 };
enum kv_type { KV_F16, KV_Q8, KV_TYPES };

struct kv_pool {
    enum kv_type type;
    u32 n_layers, n_blocks, n_kv_heads;
    u32 dk, dv; /* head dimensions, multiples of 16 */
    u8 *mem;
    u64 mem_bytes;
};

/* "f16" and "q8": names for people and options. kv_type_read: ERR_ARG lists them. */
const char *kv_type_name(enum kv_type type);
bool kv_type_read(const char *name, enum kv_type *type, struct err *e);

/* Bytes of one block over all layers; false on overflow. */
bool kv_block_bytes(enum kv_type type, u32 n_layers, u32 n_kv_heads, u32 dk, u32 dv, u64 *bytes);
/* Allocates the pool in one piece. ERR_ARG for dimensions that no kernel takes, ERR_MEMORY. */
bool kv_pool_init(struct kv_pool *p, enum kv_type type, u32 n_layers, u32 n_blocks, u32 n_kv_heads,
                  u32 dk, u32 dv, struct err *e);
void kv_pool_deinit(struct kv_pool *p);

/* Bytes of one head's part of a block. */
static inline u64 kv_head_bytes(enum kv_type type, u32 dk, u32 dv) {
    u64 groups = ((u64)dk + KV_GROUP - 1) / KV_GROUP + ((u64)dv + KV_GROUP - 1) / KV_GROUP;
    u64 each = (u64)dk + dv;
    return KV_BLOCK_TOKENS * (type == KV_Q8 ? each + groups * sizeof(u16) : each * sizeof(u16));
}
/* Where things are in it, in bytes: the keys at 0. */
static inline u64 kv_values_at(enum kv_type type, u32 dk) {
    return (u64)KV_BLOCK_TOKENS * dk * (type == KV_Q8 ? 1 : sizeof(u16));
}
static inline u64 kv_key_scales_at(u32 dk, u32 dv) {
    return (u64)KV_BLOCK_TOKENS * ((u64)dk + dv);
}
static inline u64 kv_value_scales_at(u32 dk, u32 dv) {
    return kv_key_scales_at(dk, dv) +
           ((u64)dk + KV_GROUP - 1) / KV_GROUP * KV_BLOCK_TOKENS * sizeof(u16);
}

/* Distance between two blocks of one layer, in bytes. */
static inline u64 kv_block_stride(const struct kv_pool *p) {
    return p->n_kv_heads * kv_head_bytes(p->type, p->dk, p->dv);
}
/* A head's part of block 0; that of block b is b strides on. */
static inline u8 *kv_head(const struct kv_pool *p, u32 layer, u32 head) {
    return p->mem + (u64)layer * p->n_blocks * kv_block_stride(p) +
           head * kv_head_bytes(p->type, p->dk, p->dv);
}
/* Copies one block in every layer (for a sequence that leaves a shared prefix inside a block). */
void kv_block_copy(struct kv_pool *p, u32 dst, u32 src);

/* KV_Q8: n elements (at most KV_GROUP) of one position as bytes, stride apart, with their scale.
 * What is too small for a scale in f16 becomes 0; what is too large, its largest. */
void kv_q8_store(i8 *dst, u64 stride, u16 *scale, const float *src, u32 n);
