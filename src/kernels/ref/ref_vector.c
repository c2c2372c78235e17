#include "kernels/ref/ref.h"

#include <math.h>
#include <string.h>

/* e^x by 2^n * e^r, |r| <= ln2 / 2, with the polynomial of Cephes' expf (relative error below
 * 2^-23). Below -87 the result is 0, above 88 it stays at e^88; NaN gives 0. */
float ref_exp(float x) {
    if (!(x >= -87.0f)) return 0;
    x = x < 88.0f ? x : 88.0f;
    float n = (x * 0x1.715476p0f + 0x1.8p23f) - 0x1.8p23f;
    float r = fmaf(n, -0x1.63p-1f, x);
    r = fmaf(n, 2.12194440e-4f, r);
    float p = 1.9875691500e-4f;
    p = fmaf(p, r, 1.3981999507e-3f);
    p = fmaf(p, r, 8.3334519073e-3f);
    p = fmaf(p, r, 4.1665795894e-2f);
    p = fmaf(p, r, 1.6666665459e-1f);
    p = fmaf(p, r, 5.0000001201e-1f);
    p = fmaf(p, r * r, r) + 1.0f;
    u32 bits = (u32)((i32)n + 127) << 23;
    float two_n;
    memcpy(&two_n, &bits, 4);
    return p * two_n;
}

float ref_fold_sum(const float part[16]) {
    float s[16];
    memcpy(s, part, sizeof s);
    for (int half = 8; half; half /= 2)
        for (int i = 0; i < half; i++) s[i] += s[i + half];
    return s[0];
}

void ref_rms_norm(float *y, const float *x, const float *w, u64 n, float eps) {
    float part[16] = {0};
    for (u64 i = 0; i < n; i++) part[i % 16] = fmaf(x[i], x[i], part[i % 16]);
    float r = 1.0f / sqrtf(ref_fold_sum(part) / (float)n + eps);
    for (u64 i = 0; i < n; i++) y[i] = w ? x[i] * r * w[i] : x[i] * r;
}

void ref_add(float *y, const float *x, u64 n) {
    for (u64 i = 0; i < n; i++) y[i] += x[i];
}

void ref_scale(float *x, float s, u64 n) {
    for (u64 i = 0; i < n; i++) x[i] *= s;
}

/* cap * tanh(x / cap), tanh(z) = 1 - 2 / (e^2z + 1). */
float ref_softcap1(float x, float cap) {
    return cap * (1.0f - 2.0f / (ref_exp(x * (2.0f / cap)) + 1.0f));
}

void ref_softcap(float *x, float cap, u64 n) {
    for (u64 i = 0; i < n; i++) x[i] = ref_softcap1(x[i], cap);
}

void ref_softmax(float *x, u64 n) {
    float max = -INFINITY, part[16] = {0};
    for (u64 i = 0; i < n; i++) max = x[i] > max ? x[i] : max;
    for (u64 i = 0; i < n; i++) {
        x[i] = ref_exp(x[i] - max);
        part[i % 16] += x[i];
    }
    ref_scale(x, 1.0f / ref_fold_sum(part), n);
}

void ref_silu_mul(float *y, const float *gate, const float *up, u64 n) {
    for (u64 i = 0; i < n; i++) y[i] = gate[i] / (1.0f + ref_exp(-gate[i])) * up[i];
}

/* x/2 (1 + tanh z) with z = sqrt(2/pi) (x + 0.044715 x^3) is x / (1 + e^-2z). */
void ref_gelu_mul(float *y, const float *gate, const float *up, u64 n) {
    for (u64 i = 0; i < n; i++) {
        float x = gate[i], z2 = x * fmaf(x * x, 0.0713548163f, 1.59576912f);
        y[i] = x / (1.0f + ref_exp(-z2)) * up[i];
    }
}

void ref_rope(float *x, const float *cs, u32 n_rot, enum rope_layout layout) {
    u32 half = n_rot / 2, step = layout == ROPE_NEOX ? 1 : 2, pair = layout == ROPE_NEOX ? half : 1;
    for (u32 i = 0; i < half; i++) {
        float c = cs[i], s = cs[half + i], a = x[i * step], b = x[i * step + pair];
        x[i * step] = fmaf(a, c, -(b * s));
        x[i * step + pair] = fmaf(b, c, a * s);
    }
}

void ref_to_f16(u16 *dst, const float *src, u64 n) {
    for (u64 i = 0; i < n; i++) {
        float f = src[i];
        f = f > 65504.0f ? 65504.0f : f < -65504.0f ? -65504.0f : f;
        dst[i] = f32_to_f16(f);
    }
}

void ref_from_f16(float *dst, const u16 *src, u64 n) {
    for (u64 i = 0; i < n; i++) dst[i] = f16_to_f32(src[i]);
}
