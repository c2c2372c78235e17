#include "kernels/ref/ref.h"

#include <math.h>

#include "kernels/kv.h"

enum { T = KV_BLOCK_TOKENS };

/* Scores of one block: lanes outside [lo, hi) become -infinity, whatever lies in memory there. */
static void scores(const struct attend_args *a, const struct attend_row *r, u32 pos0, const u16 *k,
                   float s[T]) {
    for (u32 t = 0; t < T; t++) {
        if (pos0 + t < r->lo || pos0 + t >= r->hi) {
            s[t] = -INFINITY;
            continue;
        }
        float dot = 0;
        for (u32 d = 0; d < a->dk; d++) dot = fmaf(r->q[d], f16_to_f32(k[d * T + t]), dot);
        s[t] = dot * a->scale;
        if (a->softcap > 0) s[t] = ref_softcap1(s[t], a->softcap);
    }
}

/* Online softmax (Milakov and Gimelshein 2018), one KV block a step: the running sum and output are
 * rescaled when the maximum grows. Blocks begin at multiples of 32 positions of the sequence, so a
 * row's result depends on its own range only. */
static void attend_row(const struct attend_args *a, const struct attend_row *r) {
    float max = -INFINITY, sum = 0;
    for (u32 d = 0; d < a->dv; d++) r->out[d] = 0;
    for (u32 b = r->lo / T; b <= (r->hi - 1) / T; b++) {
        const u16 *k = a->k + a->blocks[b] * a->block_stride;
        const u16 *v = a->v + a->blocks[b] * a->block_stride;
        float s[T], part[16], new_max = max;
        scores(a, r, b * T, k, s);
        for (u32 t = 0; t < T; t++) new_max = s[t] > new_max ? s[t] : new_max;
        float fade = ref_exp(max - new_max);
        for (u32 t = 0; t < T; t++) s[t] = ref_exp(s[t] - new_max);
        for (u32 i = 0; i < 16; i++) part[i] = s[i] + s[i + 16];
        sum = fmaf(sum, fade, ref_fold_sum(part));
        u32 t0 = r->lo > b * T ? r->lo - b * T : 0, t1 = MIN(r->hi - b * T, (u32)T);
        for (u32 d = 0; d < a->dv; d++) {
            float o = fmaf(r->out[d], fade, 0);
            for (u32 t = t0; t < t1; t++) o = fmaf(s[t], f16_to_f32(v[t * a->dv + d]), o);
            r->out[d] = o;
        }
        max = new_max;
    }
    for (u32 d = 0; d < a->dv; d++) r->out[d] *= 1.0f / sum;
}

void ref_attend(const struct attend_args *a) {
    for (u32 i = 0; i < a->n_rows; i++) attend_row(a, &a->rows[i]);
}
