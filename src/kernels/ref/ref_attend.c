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

/* Scores of one block: lanes outside [lo, hi) become -infinity, whatever lies in memory there. */
static void scores(const struct attend_args *a, const struct attend_row *r, u32 pos0, const u8 *b,
                   float s[T]) {
    for (u32 t = 0; t < T; t++) {
        if (pos0 + t < r->lo || pos0 + t >= r->hi) {
            s[t] = -INFINITY;
            continue;
        }
        s[t] = dot(a, r->q, b, t) * a->scale;
        if (a->softcap > 0) s[t] = ref_softcap1(s[t], a->softcap);
    }
}

/* Online softmax (Milakov and Gimelshein 2018), one KV block a step: the running sum and output are
 * rescaled when the maximum grows. Blocks begin at multiples of 32 positions of the sequence, so a
 * row's result depends on its own range only. */
static void attend_row(const struct attend_args *a, const struct attend_row *r,
                       struct attend_sum *out) {
    const u32 lo = MAX(r->lo, a->part * ATTEND_PART), hi = MIN(r->hi, (a->part + 1) * ATTEND_PART);
    float max = -INFINITY, sum = 0;
    for (u32 d = 0; d < a->dv; d++) r->out[d] = 0;
    for (u32 b = lo / T; b * T < hi; b++) {
        const u8 *kv = a->kv + a->blocks[b] * a->block_stride;
        float s[T], part[16], new_max = max;
        scores(a, r, b * T, kv, s);
        for (u32 t = 0; t < T; t++) new_max = s[t] > new_max ? s[t] : new_max;
        float fade = ref_exp(max - new_max);
        for (u32 t = 0; t < T; t++) s[t] = ref_exp(s[t] - new_max);
        for (u32 i = 0; i < 16; i++) part[i] = s[i] + s[i + 16];
        sum = fmaf(sum, fade, ref_fold_sum(part));
        u32 t0 = lo > b * T ? lo - b * T : 0, t1 = MIN(hi - b * T, (u32)T);
        for (u32 d = 0; d < a->dv; d++) {
            float o = fmaf(r->out[d], fade, 0);
            for (u32 t = t0; t < t1; t++) {
                float w = s[t];
                if (a->type == KV_Q8) w *= scale_of(kv, kv_value_scales_at(a->dk, a->dv), d, t);
                o = fmaf(w, value(a, kv, t, d), o);
            }
            r->out[d] = o;
        }
        max = new_max;
    }
    *out = (struct attend_sum){max, sum};
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
