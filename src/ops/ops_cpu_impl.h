/* ops_cpu_impl.h - what the files of the CPU table share: its state and its two ways to go
 * parallel.
 *
 * Included by ops_cpu*.c only. */
#pragma once

#include "ops/ops_cpu.h"

/* OPS_CPU_PART_ROWS: rows of attention whose parts can wait to be merged; each thread has its
 * share. */
enum { OPS_CPU_ROPES = 4, OPS_CPU_PART_ROWS = POOL_MAX_THREADS * ATTEND_ROWS };

struct ops_cpu {
    struct ops base;
    const struct kernels *k;
    struct pool *pool;
    struct ops_cpu_dims dims;
    const struct batch *batch; /* what is at work: the step in progress, or a part of it */
    u32 n_tok, first;          /* tokens of the step; that part's first of them */
    u32 *pos;                  /* [max_tok] position of each token of the step */
    struct team *moving;       /* with whom sums are under way; NULL: none are */
    u32 n_moving;              /* so many */
    u8 *act;                   /* [max_tok][kernels_act_most(max_cols)] */
    struct {
        const struct rope *of; /* NULL: not made for this batch */
        float *cs;             /* [max_tok][n_rot] */
    } ropes[OPS_CPU_ROPES];
    float *parts;            /* [OPS_CPU_PART_ROWS][max_dv]: ops_cpu_attend.c */
    struct attend_sum *sums; /* [OPS_CPU_PART_ROWS] */
    void *mem;
    u64 mem_bytes;
};

struct ops_cpu *ops_cpu_of(struct ops *o);
/* Runs fn on all threads, or only here when the job is small. */
void ops_cpu_run(struct ops_cpu *o, void (*fn)(void *ctx, u32 i, u32 n), void *ctx, bool small);

/* ops_cpu_attend.c */
void ops_cpu_kv_store(struct ops *o, struct kv_pool *kv, u32 layer, const float *k, const float *v);
void ops_cpu_attend(struct ops *o, float *y, const float *q, const struct kv_pool *kv, u32 layer,
                    const struct attn *a);
