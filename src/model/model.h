/* model.h - one shard of one model: which layers, which weights, and its forward pass.
 *
 * A shard is data: a layer range and a slice of each layer. The forward pass of each
 * architecture family is one file (llama.c, gemma.c) over the ops table; it does not know whether
 * it runs alone. Rank 0 embeds, the last rank computes logits; a model on one machine is both. One
 * thread drives a model. Weights stay until model_free; nothing is allocated in model_forward. */
#pragma once

#include "base/err.h"
#include "model/model_file.h"
#include "ops/ops.h"

enum rope_scaling { ROPE_NONE, ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN };

/* Hyper-parameters, read and checked from a file's metadata: no zero dimension, every product of
 * two of them far from overflow, head counts that divide, finite floats. */
struct model_params {
    const struct arch *arch; /* model_arch.h: name, defaults, forward */
    char arch_name[32], name[128], quant[16];
    u32 n_layers, dim, n_heads, n_kv_heads, head_dim_k, head_dim_v, n_ff, n_vocab, n_ctx_train;
    u64 n_params;
    float rms_eps;
    u32 rope_dims;                      /* elements of a head that are rotated */
    float rope_theta, rope_theta_local; /* of global and of sliding layers */
    enum rope_scaling rope_scaling;     /* of global layers; sliding ones are never scaled */
    float rope_factor;
    float rope_mscale;                   /* of cosine and sine; 1 where nothing says so */
    float rope_low_freq, rope_high_freq; /* llama3, where the file has no rope_freqs tensor */
    float yarn_ext_factor, yarn_beta_fast, yarn_beta_slow;
    u32 rope_ctx_orig;
    u32 sliding_window;                /* 0: none */
    u32 sliding_pattern;               /* every n-th layer is global; 0: all layers slide */
    float attn_softcap, logit_softcap; /* 0: none */
    float attn_scale;                  /* of q . k */
    float embed_scale;                 /* 0: none */
    bool tied_embedding;               /* the output matrix is the embedding */
};

/* Reads and checks the metadata. ERR_UNSUPPORTED names what skein can't compute, such
 * as an unknown architecture (and lists the known). */
bool model_params_read(const struct model_file *f, struct model_params *p, struct err *e);

/* Bytes that a shard reads: weights by layer, for planning. layer_bytes has n_layers entries. */
void model_weight_bytes(const struct model_file *f, const struct model_params *p, u64 *embed,
                        u64 *layer_bytes, u64 *head);

/* The sliding window of layer il of the whole model; 0: it sees everything. */
u32 model_layer_window(const struct model_params *p, u32 il);

/* A rank's share of each of its layers, [first, end): query heads, elements of the feed-forward's
 * hidden vector, rows of the embedding and output matrices. All zero: the whole. The shares of a
 * team must add up; any may be empty, none need be equal. */
struct shard_slice {
    u32 head_first, head_end;
    u32 ff_first, ff_end;
    u32 vocab_first, vocab_end;
};

struct shard_spec {
    u32 layer_first, layer_end; /* [first, end) */
    bool has_embed, has_head;
    u32 tp_rank, tp_ranks; /* 0 of 1: it has its layers alone */
    struct shard_slice slice;
};
/* KV heads that a shard's pool must have, and rows of the vocabulary that it has (its logits). */
u32 shard_kv_heads(const struct model_params *p, const struct shard_spec *spec);
u32 shard_vocab_rows(const struct model_params *p, const struct shard_spec *spec);
/* Bytes of the file that a shard reads. Overflow is excluded by the file's size. */
u64 shard_file_bytes(const struct model_file *f, const struct model_params *p,
                     const struct shard_spec *spec);

struct model;
/* Packs the shard's weights through `ops` (progress after each layer; may be NULL). Checks that
 * every tensor is there with the shape the parameters say. max_tok: tokens of the largest step;
 * activations are taken here. Borrows f and ops until model_free. */
struct model *model_load(const struct model_file *f, const struct model_params *p,
                         const struct shard_spec *spec, struct ops *ops, u32 max_tok,
                         void (*progress)(void *ctx, u32 done, u32 total), void *ctx,
                         struct err *e);
/* The same without a byte of weights or activations: for the cost table (ops_cost.h), with which
 * model_forward takes NULL for x and logits and a KV pool without memory. */
struct model *model_outline(const struct model_file *f, const struct model_params *p,
                            const struct shard_spec *spec, struct ops *ops, struct err *e);
void model_free(struct model *m); /* NULL is allowed */
/* Whom the shard sums with: before the first model_forward of a shard with tp_ranks > 1. Borrowed.
 */
void model_set_team(struct model *m, struct team *tp);
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
    const u32 *ids; /* [n_tok] token ids, each < n_vocab; read where the shard has the embedding */
    const u32 *out; /* [n_out] ascending rows of the batch that want logits; read with the head */
    u32 n_out;
};
/* x: [n_tok][dim] f32: read when the shard has no embedding, written with the hidden state when it
 * has no head (may be NULL when the shard has both). logits: [n_out][n_vocab] f32, with the head;
 * on all but the first rank of a team it has only room for the shard's own rows, and they are
 * scratch. KV of this shard's layers, in kv (n_layers = the shard's, layer 0 = layer_first), is
 * extended. False when a rank of the group failed. */
bool model_forward(struct model *m, const struct model_step *s, struct kv_pool *kv, float *x,
                   float *logits, struct err *e);
