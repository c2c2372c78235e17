#include "kernels/ref/ref.h"

#include <math.h>

enum { T = KV_BLOCK_TOKENS };

/* Key element d of position t of a block, without its scale; likewise of values. */
static float key(const struct attend_args *a, const u8 *b, u32 d, u32 t) {
    return a->type == KV_Q8 ? (float)((const i8 *)b)[d * T + t]
                            : f16_to_f32(((const u16 *)(const void *)b)[d * T + t]);
}
static float value(const struct attend_args *a, const u8 *b, u32 t, u32 d) {
    b += kv_values_at(a->type, a->dk);
    return a->type == KV_Q8 ? (float)((const i8 *)b)[t * a->dv + d]
                            : f16_to_f32(((const u16 *)(const void *)b)[t * a->dv + d]);
}
static float scale_of(const u8 *b, u64 at, u32 d, u32 t) {
    return f16_to_f32(((const u16 *)(const void *)(b + at))[d / KV_GROUP * T + t]);
}

/* With scales, each group of a key is a chain of its own. */
static float dot(const struct attend_args *a, const float *q, const u8 *b, u32 t) {
    float sum = 0, part = 0;
    for (u32 d = 0; d < a->dk; d++) {
        part = fmaf(q[d], key(a, b, d, t), part);
        if (a->type != KV_Q8 || ((d + 1) % KV_GROUP && d + 1 < a->dk)) continue;
        sum = fmaf(part, scale_of(b, kv_key_scales_at(a->dk, a->dv), d, t), sum);
        part = 0;
    }
    return a->type == KV_Q8 ? sum : part;
}

/* Softmax over what the row sees of the part, then the values it weighs: each output is one chain
 * over the positions, the sum of the weights 16 interleaved ones. Parts begin at multiples of
 * ATTEND_PART positions of the sequence, so a row's result depends on its own range only. */
static void attend_row(const struct attend_args *a, const struct attend_row *r,
                       struct attend_sum *out) {
    const u32 from = a->part * ATTEND_PART;
    const u32 lo = MAX(r->lo, from), hi = MIN(r->hi, from + ATTEND_PART);
    float s[ATTEND_PART], part[16] = {0}, max = -INFINITY;
    for (u32 d = 0; d < a->dv; d++) r->out[d] = 0;
    for (u32 pos = lo; pos < hi; pos++) {
        float x = dot(a, r->q, a->kv + a->blocks[pos / T] * a->block_stride, pos % T) * a->scale;
        if (a->softcap > 0) x = ref_softcap1(x, a->softcap);
        max = x > max ? x : max;
        s[pos - from] = x;
    }
    for (u32 pos = lo; pos < hi; pos++) {
        const u8 *kv = a->kv + a->blocks[pos / T] * a->block_stride;
        float p = ref_exp(s[pos - from] - (max == -INFINITY ? 0 : max));
        part[pos % 16] += p;
        for (u32 d = 0; d < a->dv; d++) {
            float w = p;
            if (a->type == KV_Q8) w *= scale_of(kv, kv_value_scales_at(a->dk, a->dv), d, pos % T);
            r->out[d] = fmaf(w, value(a, kv, pos % T, d), r->out[d]);
        }
    }
    *out = (struct attend_sum){max, ref_fold_sum(part)};
}

void ref_attend(const struct attend_args *a) {
    for (u32 i = 0; i < a->n_rows; i++) attend_row(a, &a->rows[i], &a->sums[i]);
}

void ref_attend_merge(float *out, struct attend_sum *s, const float *part,
                      const struct attend_sum *add, u32 dv) {
    float max = add->max > s->max ? add->max : s->max;
    float fade = ref_exp(s->max - max), gain = ref_exp(add->max - max);
    s->sum = fmaf(s->sum, fade, add->sum * gain);
    for (u32 d = 0; d < dv; d++) out[d] = fmaf(out[d], fade, part[d] * gain);
    s->max = max;
}
