/* model_arch.h - the architecture families as data: names, defaults, which tensors a layer has.
 *
 * One row per value of general.architecture. What the row says and what the file says becomes
 * struct model_params; the forward pass of a family is one function over a struct model
 * (model_impl.h). Constant data, any thread. */
#pragma once

#include "base/err.h"
#include "kernels/kernels.h"

struct model;
struct model_step;
struct kv_pool;

struct arch {
    const char *name;
    enum rope_layout rope_layout;
    bool qk_norm, post_norms; /* norms of query and key heads; norms behind attention and FFN */
    bool qkv_bias;            /* the biases must be there (elsewhere they may be) */
    bool embed_scaled;        /* a token's row is multiplied by sqrt(dim) */
    /* What holds where the file has no key of that name. */
    u32 sliding_window, sliding_pattern;
    float rope_theta_local; /* 0: as rope_theta */
    float attn_softcap, logit_softcap;
    /* The published 27B models, known by their number of layers, scale scores by
     * 1 / sqrt(dim / n_heads), not by 1 / sqrt(head_dim), and their files don't say so. 0: none. */
    u32 n_layers_27b;
    /* See model_forward. x is never NULL where a real table computes. */
    bool (*forward)(struct model *m, const struct model_step *s, struct kv_pool *kv, float *x,
                    float *logits, struct err *e);
};

/* NULL where skein doesn't know the architecture. */
const struct arch *model_arch_find(const char *name);
/* "llama, qwen2, ...": static storage. */
const char *model_arch_known(void);
