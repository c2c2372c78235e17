/* sampler.h - from logits to the next token.
 *
 * Order: repetition, presence and frequency penalties, logit bias; then top-k, top-p and min-p on
 * the probabilities at temperature 1; then temperature; then one draw. Filters before temperature,
 * as llama.cpp and mlx-lm do. The draw is random_unit(seed, position), so an answer depends on its
 * own seed and text alone, and a resumed answer goes on as it would have. Ties go to the lower id.
 *
 * Scratch is per sampler, sized by the vocabulary at creation; sampling allocates nothing. One
 * thread. */
#pragma once

#include "base/base.h"
#include "base/err.h"

enum { SAMPLER_BIAS_MAX = 1024, SAMPLER_TOP_MAX = 21 };
#define SAMPLED_NONE UINT32_MAX /* token of a step_result whose sampling failed */

struct sampling_bias {
    u32 token;
    float bias;
};

/* Zero switches a rule off. */
struct sampling {
    float temperature; /* 0: greedy */
    u32 top_k;
    float top_p, min_p;
    float repetition_penalty; /* 1 is off too */
    u32 repetition_last_n;    /* 0: 64 */
    float presence_penalty, frequency_penalty;
    u64 seed;
    u32 n_bias;
    const struct sampling_bias *bias;
    u32 n_top; /* likeliest tokens to report, at most SAMPLER_TOP_MAX; logprob of the choice when
                  logprobs */
    bool logprobs;
};

struct sampled_top {
    u32 token;
    float logprob;
};
struct sampled {
    u32 token;
    float logprob; /* log-softmax of the model's own logits, before any rule */
    u32 n_top;
    struct sampled_top top[SAMPLER_TOP_MAX]; /* likeliest first */
};

struct sampler;
struct sampler *sampler_new(u32 n_vocab);
void sampler_free(struct sampler *s);

/* logits: [n_vocab], changed in place. history: the sequence's n_history ids so far, of which those
 * from n_prompt on were generated. position: of the token to come (= n_history). False
 * (ERR_INTERNAL) when the logits hold no finite number. */
bool sampler_pick(struct sampler *s, const struct sampling *p, float *logits, const u32 *history,
                  u32 n_history, u32 n_prompt, struct sampled *out, struct err *e);
