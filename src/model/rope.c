#include <math.h>

#include "model/model_impl.h"

/* Scaling rules turn the frequency of a pair of elements, theta^(-2i/d), into another one, so all
 * of them are tables by the time the first token comes. */

/* Llama 3: wavelengths below ctx/high stay, those above ctx/low are stretched by the factor, in
 * between the two are blended. */
static double llama3_freq(const struct model_params *p, double freq) {
    double turns = p->rope_ctx_orig * freq / (2 * M_PI); /* of this pair over the old context */
    if (turns > p->rope_high_freq) return freq;
    if (turns < p->rope_low_freq) return freq / p->rope_factor;
    double keep = p->rope_high_freq > p->rope_low_freq
                      ? (turns - p->rope_low_freq) / (p->rope_high_freq - p->rope_low_freq)
                      : 1;
    return (1 - keep) * freq / p->rope_factor + keep * freq;
}

/* YaRN, "NTK by parts": the pair that turns `beta` times over the old context. */
static double yarn_pair(const struct model_params *p, double theta, double beta) {
    return p->rope_dims * log(p->rope_ctx_orig / (beta * 2 * M_PI)) / (2 * log(theta));
}

static double yarn_freq(const struct model_params *p, double theta, double freq, u32 i) {
    double low = MAX(floor(yarn_pair(p, theta, p->yarn_beta_fast)), 0.0);
    double high = MIN(ceil(yarn_pair(p, theta, p->yarn_beta_slow)), p->rope_dims - 1.0);
    double ramp = (i - low) / MAX(high - low, 0.001);
    double keep = (1 - MIN(MAX(ramp, 0.0), 1.0)) * p->yarn_ext_factor;
    return (1 - keep) * freq / p->rope_factor + keep * freq;
}

void rope_init(struct rope *r, double *inv_freq, const struct model_params *p, float theta,
               bool scaled, const float *factors) {
    enum rope_scaling rule = scaled ? p->rope_scaling : ROPE_NONE;
    for (u32 i = 0; i < p->rope_dims / 2; i++) {
        double freq = pow(theta, -2.0 * i / p->rope_dims);
        if (scaled && factors) freq /= factors[i];
        if (rule == ROPE_LINEAR) freq /= p->rope_factor;
        if (rule == ROPE_LLAMA3 && !factors) freq = llama3_freq(p, freq);
        if (rule == ROPE_YARN) freq = yarn_freq(p, theta, freq, i);
        inv_freq[i] = freq;
    }
    *r = (struct rope){.head_dim = p->head_dim_k,
                       .n_rot = p->rope_dims,
                       .layout = p->arch->rope_layout,
                       .inv_freq = inv_freq,
                       .mscale = scaled ? p->rope_mscale : 1};
}
