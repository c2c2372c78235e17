/* ref.h - the parts of the reference set: plain C, one element at a time.
 *
 * What every other set is checked against, bit by bit: the order of additions here is the contract
 * (kernels.h). Any thread. */
#pragma once

#include "kernels/kernels.h"

/* ref_matmul.c */
extern const struct matmul_kernel REF_MATMUL[];
extern const u32 REF_N_MATMUL;
void ref_act_q(void *dst, const float *x, u64 cols, enum act_kind kind);

/* ref_vector.c */
float ref_exp(float x);
float ref_softcap1(float x, float cap);
/* x in 16 interleaved partial sums, folded 8, 4, 2, 1. */
float ref_fold_sum(const float part[16]);
void ref_rms_norm(float *y, const float *x, const float *w, u64 n, float eps);
void ref_add(float *y, const float *x, u64 n);
void ref_scale(float *x, float s, u64 n);
void ref_softcap(float *x, float cap, u64 n);
void ref_softmax(float *x, u64 n);
void ref_silu_mul(float *y, const float *gate, const float *up, u64 n);
void ref_gelu_mul(float *y, const float *gate, const float *up, u64 n);
void ref_rope(float *x, const float *cs, u32 n_rot, enum rope_layout layout);
void ref_to_f16(u16 *dst, const float *src, u64 n);
void ref_from_f16(float *dst, const u16 *src, u64 n);

/* ref_attend.c */
void ref_attend(const struct attend_args *a);
void ref_attend_merge(float *out, struct attend_sum *s, const float *part,
                      const struct attend_sum *add, u32 dv);
