/* toymodel.h - complete GGUF models with random weights, of every family and block format.
 *
 * For tests and benchmarks: the metadata and tensors are those that the converters of llama.cpp
 * write for the family, the tokenizer is small but valid, and the weights follow from the seed
 * alone, so that any part of any tensor can be made by itself. Pure; a struct toymodel is immutable
 * after toymodel_init and may be shared. */
#pragma once

#include "base/base.h"
#include "base/err.h"
#include "formats/gguf_writer.h"

enum toymodel_rope {
    TOYMODEL_ROPE_NONE,
    TOYMODEL_ROPE_LINEAR,
    TOYMODEL_ROPE_LLAMA3,
    TOYMODEL_ROPE_YARN
};

/* Zero (or NULL) takes the default in brackets. */
struct toymodel_spec {
    const char *family; /* llama, mistral, qwen2, qwen3, gemma2, gemma3 [llama] */
    enum dtype type;    /* of every matrix; vectors are F32 [F32] */
    /* The mix of Q4_K or Q5_K with Q6_K that llama.cpp's quantizer makes of a plain transformer and
     * calls Q4_K_M or Q5_K_M: Q6_K are the output matrix (tied: the embedding) and, of some layers,
     * attn_v and ffn_down. */
    bool mixed;
    u32 n_layers;       /* [2] */
    u32 dim;            /* [64, or 256 where the block is that long] */
    u32 n_heads;        /* [4] */
    u32 n_kv_heads;     /* [half of n_heads] */
    u32 head_dim;       /* [dim / n_heads] */
    u32 n_ff;           /* [2 * dim] */
    u32 n_vocab;        /* [384] */
    u32 n_ctx;          /* [512] */
    u64 seed;
    bool tied; /* no output.weight; always so for gemma */
    enum toymodel_rope rope;
    float rope_factor;   /* [4] */
    float rope_theta;    /* [10000 for llama and gemma2, 1000000 for the others] */
    u32 sliding_window;  /* gemma only; tokens [not written] */
    u32 sliding_pattern; /* gemma only; every n-th layer is global [not written] */
    float logit_softcap; /* gemma only; gemma2: also of scores [not written: readers know] */
};

enum toymodel_fill { TOYMODEL_MATRIX, TOYMODEL_NORM, TOYMODEL_BIAS, TOYMODEL_ROPE_FREQS };

struct toymodel_tensor {
    char name[64];
    enum dtype type;
    u32 n_dims;
    u64 dims[2]; /* dims[0] is the row's length; dims[1] is 1 for vectors */
    u64 row_bytes;
    enum toymodel_fill fill;
    float scale; /* standard deviation of a matrix's elements; mean of a norm's */
    u64 key;     /* of its random numbers */
};

struct toymodel_family;
struct toymodel {
    struct toymodel_spec spec; /* defaults filled in */
    const struct toymodel_family *family;
    u32 n_tensors;
    struct toymodel_tensor *tensor; /* [n_tensors] */
};

/* ERR_ARG names the field that does not go with the others. The families' names are in the message
 * when it is the family. *m is empty on failure. */
bool toymodel_init(struct toymodel *m, const struct toymodel_spec *spec, struct err *e);
void toymodel_deinit(struct toymodel *m);

/* All metadata, tokenizer included. */
void toymodel_metadata(const struct toymodel *m, struct gguf_writer *w);
/* Encodes n_rows rows of tensor i from row_first into out[n_rows * row_bytes]. */
void toymodel_rows(const struct toymodel *m, u32 i, u64 row_first, u64 n_rows, void *out);
/* Appends the whole file. */
void toymodel_build(const struct toymodel *m, struct str *out);
