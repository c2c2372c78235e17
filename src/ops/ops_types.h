/* ops_types.h - what operations work on: weights, batches, and how to rotate and attend. Open data.
 */
#pragma once

#include "base/base.h"
#include "base/dtype.h"
#include "kernels/kernels.h"

/* A weight. A matrix is [rows][cols] and multiplies vectors of cols elements; `k` and `packed` are
 * set by ops_load_matrix. A vector (norm, bias) has rows == 1 and its values decoded in `vec`. */
struct tensor {
    enum dtype type; /* in the file */
    u64 rows, cols;
    /* Where this is a slice of a larger matrix: its first row there (embed looks ids up by it), its
     * first column, and how long rows are in `data`. file_cols == cols: whole rows. */
    u64 row_first, col_first, file_cols;
    const void *data; /* the file's bytes; NULL once nobody needs them */
    void *packed;     /* matrix: what the kernels read. Owned by whoever gave the memory */
    const struct matmul_kernel *k;
    const float *vec; /* vector: [cols]. Owned likewise */
    const char *name; /* for messages */
};

/* Consecutive tokens of one sequence within a batch. blocks[i] is the pool's block for positions
 * i*KV_BLOCK_TOKENS and up; there are enough for position pos0 + n - 1. */
struct kv_span {
    u32 first, n; /* tokens first..first+n-1 of the batch */
    u32 pos0;     /* position of token `first` in its sequence */
    u32 slot;     /* which sequence: for recurrent state; not used by attention */
    const u32 *blocks;
    u32 n_blocks;
};

/* One step. Spans cover the tokens 0..n_tok-1 in order, without gaps. */
struct batch {
    u32 n_tok;
    const struct kv_span *spans;
    u32 n_spans;
};

/* Rotary embedding as the model's scaling rules give it. All of linear, llama3 and YaRN scaling
 * ends up in inv_freq and mscale, computed at load: the angle of pair i at position p is p *
 * inv_freq[i], cosine and sine are multiplied by mscale (1 unless YaRN). */
struct rope {
    u32 head_dim, n_rot; /* the first n_rot (even) elements of a head are rotated */
    enum rope_layout layout;
    const double *inv_freq; /* [n_rot / 2] */
    double mscale;
};

struct attn {
    u32 n_heads;   /* query heads of this rank; 0: y stays as it is */
    float scale;   /* usually 1 / sqrt(head_dim) */
    float softcap; /* 0: none */
    u32 window;    /* a token sees the last `window` positions, itself included; 0: all */
    /* A slice of heads may begin and end inside the query heads that share a KV head. */
    u32 group; /* query heads of a KV head in the model; 0: n_heads / the pool's KV heads */
    u32 shift; /* how many of the first KV head's query heads come before this rank's */
    /* y's rows may be wider than the heads: their length (0: n_heads * dv) and where heads begin.
     */
    u64 y_cols, y_first;
};

enum gate_act { GATE_SILU, GATE_GELU };
