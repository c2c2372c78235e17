/* model.h - one shard of one model: which layers, which weights, and its forward pass.
 *
 * A shard is data: a layer range and, later, a slice of each layer. The forward pass of each
 * architecture family is one file (llama.c, gemma3.c) over the ops table; it does not know whether it
 * runs alone. Rank 0 embeds, the last rank computes logits; a model on one machine is both.
 * One thread drives a model. Weights stay until model_free; nothing is allocated in model_forward. */
#pragma once

#include "base/err.h"
#include "model/model_file.h"
#include "ops/ops.h"

enum rope_scaling { ROPE_NONE, ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN };

/* Hyper-parameters, read and checked from a file's metadata. */
struct model_params {
    const struct arch *arch; /* model_arch.h: name, tensor rules, forward */
    char arch_name[32], name[128], quant[16];
    u32 n_layers, dim, n_heads, n_kv_heads, head_dim_k, head_dim_v, n_ff, n_vocab, n_ctx_train;
    u64 n_params;
    float rms_eps;
    /* RoPE: theta per layer kind; the layout is the architecture's */
    bool rope_neox; /* pairs (i, i + d/2) instead of (2i, 2i + 1) */
    u32 rope_dims;
    float rope_theta, rope_theta_local;
    enum rope_scaling rope_scaling;
    float rope_factor, rope_attn_factor, yarn_ext_factor, yarn_beta_fast, yarn_beta_slow;
    u32 rope_ctx_orig;
    u32 sliding_window;         /* 0: none */
    u32 sliding_pattern;        /* every n-th layer is global; 0: all layers alike */
    float attn_softcap, logit_softcap, attn_scale, embed_scale; /* 0: none / default */
    bool qk_norm, attn_bias, post_norms, tied_embedding;
};

/* Reads and checks the metadata. ERR_UNSUPPORTED names an unknown architecture and lists the known. */
bool model_params_read(const struct model_file *f, struct model_params *p, struct err *e);

/* Bytes that a shard reads: weights by layer, for planning. layer_bytes has n_layers entries. */
void model_weight_bytes(const struct model_file *f, const struct model_params *p, u64 *embed, u64 *layer_bytes,
                        u64 *head);

struct shard_spec {
    u32 layer_first, layer_end; /* [first, end) */
    bool has_embed, has_head;
    u32 tp_rank, tp_ranks; /* 0 of 1 until tensor sharding */
    struct group *tp;      /* may be NULL when tp_ranks is 1 */
};

struct model;
/* Packs the shard's weights through `ops` (progress after each layer; may be NULL). Checks that every
 * tensor is there with the shape the parameters say. max_tok: tokens of the largest step; activations are taken here.
 * Borrows f and ops until model_free. */
struct model *model_load(const struct model_file *f, const struct model_params *p, const struct shard_spec *spec,
                         struct ops *ops, u32 max_tok, void (*progress)(void *ctx, u32 done, u32 total), void *ctx,
                         struct err *e);
void model_free(struct model *m);
const struct model_params *model_params(const struct model *m);
/* Bytes taken by packed weights, and by activations for max_tok tokens. */
u64 model_weights_bytes(const struct model *m);
u64 model_scratch_bytes(const struct model *m);
/* Dimensions for ops_cpu_new, before the model is loaded. */
struct ops_cpu_dims;
void model_ops_dims(const struct model_params *p, u32 max_tok, struct ops_cpu_dims *d);

/* One step of a shard. */
struct model_step {
    const struct batch *batch;
    const u32 *ids;  /* [n_tok] token ids, each < n_vocab; read where the shard has the embedding */
    const u32 *out;  /* [n_out] ascending rows of the batch that want logits; read where it has the head */
    u32 n_out;
};
/* x: [n_tok][dim] f32: read when the shard has no embedding, written with the hidden state when it has no head
 * (may be NULL when the shard has both). logits: [n_out][n_vocab] f32, with the head. KV of this shard's layers, in
 * kv (n_layers = the shard's, layer 0 = layer_first), is extended. False when a rank of the group failed. */
bool model_forward(struct model *m, const struct model_step *s, struct kv_pool *kv, float *x, float *logits,
                   struct err *e);
