#include "engine/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/random.h"

struct cand {
    float logit;
    u32 id;
};

struct sampler {
    u32 n_vocab;
    struct cand *cand; /* [n_vocab] */
    u32 *count;        /* [n_vocab], all zero between calls */
    float *raw;        /* [n_vocab], the model's logits when they are reported */
};

struct sampler *sampler_new(u32 n_vocab) {
    ASSERT(n_vocab > 0);
    struct sampler *s = xcalloc(1, sizeof *s);
    s->n_vocab = n_vocab;
    s->cand = xcalloc(n_vocab, sizeof *s->cand);
    s->count = xcalloc(n_vocab, sizeof *s->count);
    s->raw = xcalloc(n_vocab, sizeof *s->raw);
    return s;
}

void sampler_free(struct sampler *s) {
    if (!s) return;
    free(s->cand);
    free(s->count);
    free(s->raw);
    free(s);
}

/* Keskar et al., "CTRL" (2019): divide positive logits, multiply negative ones, once per distinct
 * token. */
static void penalize_repetition(struct sampler *s, const struct sampling *p, float *logits,
                                const u32 *ids, u32 n) {
    u32 last_n = p->repetition_last_n ? p->repetition_last_n : 64;
    u32 from = n > last_n ? n - last_n : 0;
    for (u32 i = from; i < n; i++) {
        float *l = &logits[ids[i]];
        if (s->count[ids[i]]++ == 0)
            *l = *l > 0 ? *l / p->repetition_penalty : *l * p->repetition_penalty;
    }
    for (u32 i = from; i < n; i++) s->count[ids[i]] = 0;
}

/* OpenAI's definition: logit -= count * frequency + (count > 0) * presence, over generated tokens.
 */
static void penalize_counts(struct sampler *s, const struct sampling *p, float *logits,
                            const u32 *ids, u32 n) {
    for (u32 i = 0; i < n; i++) {
        if (s->count[ids[i]]++ == 0) logits[ids[i]] -= p->presence_penalty;
        logits[ids[i]] -= p->frequency_penalty;
    }
    for (u32 i = 0; i < n; i++) s->count[ids[i]] = 0;
}

static bool likelier(struct cand a, struct cand b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

static void sift_down(struct cand *h, u32 n, u32 i) {
    struct cand x = h[i];
    for (u32 k; (k = 2 * i + 1) < n; i = k) {
        if (k + 1 < n && likelier(h[k + 1], h[k])) k++;
        if (!likelier(h[k], x)) break;
        h[i] = h[k];
    }
    h[i] = x;
}

static void heap_make(struct cand *h, u32 n) {
    for (u32 i = n / 2; i-- > 0;) sift_down(h, n, i);
}

/* Moves the likeliest of h[0..*n) to h[*n - 1] and shrinks the heap by it. */
static struct cand heap_take(struct cand *h, u32 *n) {
    struct cand top = h[0];
    h[0] = h[--*n];
    if (*n) sift_down(h, *n, 0);
    h[*n] = top;
    return top;
}

static void fill(struct sampler *s, const float *logits) {
    for (u32 i = 0; i < s->n_vocab; i++)
        s->cand[i] = (struct cand){isnan(logits[i]) ? -INFINITY : logits[i], i};
}

/* False when there is no number to choose. */
static bool largest(const float *logits, u32 n, u32 *at) {
    u32 best = 0;
    float v = -INFINITY;
    for (u32 i = 0; i < n; i++)
        if (logits[i] > v) v = logits[i], best = i;
    *at = best;
    return isfinite(v);
}

static double sum_exp(const float *logits, u32 n, float max) {
    double sum = 0;
    for (u32 i = 0; i < n; i++)
        if (!isnan(logits[i])) sum += exp((double)logits[i] - max);
    return sum;
}

/* Candidate i in order of likelihood; the heap is sorted only so far. */
static struct cand ranked(struct sampler *s, u32 *heap, u32 i) {
    while (s->n_vocab - *heap <= i) heap_take(s->cand, heap);
    return s->cand[s->n_vocab - 1 - i];
}

static void report(struct sampler *s, const struct sampling *p, struct sampled *out,
                   double log_norm) {
    u32 heap = s->n_vocab, want = MIN(MIN(p->n_top, (u32)SAMPLER_TOP_MAX), s->n_vocab);
    fill(s, s->raw);
    heap_make(s->cand, heap);
    for (out->n_top = 0; out->n_top < want; out->n_top++) {
        struct cand c = ranked(s, &heap, out->n_top);
        out->top[out->n_top] = (struct sampled_top){c.id, (float)(c.logit - log_norm)};
    }
}

/* How many candidates top-k, top-p and min-p leave, the likeliest at the end of cand. Top-p counts
 * what top-k has left; each rule keeps at least one. */
static u32 filter(struct sampler *s, const struct sampling *p, const float *logits, float max) {
    u32 n = s->n_vocab, heap = n, k = p->top_k ? MIN(p->top_k, n) : n, keep = 0;
    bool by_p = p->top_p > 0 && p->top_p < 1;
    if (k == n && !by_p && p->min_p <= 0) return n;
    heap_make(s->cand, heap);
    double norm = 0, cum = 0;
    if (by_p && k == n)
        norm = sum_exp(logits, n, max);
    else if (by_p)
        for (u32 i = 0; i < k; i++) norm += exp((double)ranked(s, &heap, i).logit - max);
    float least = p->min_p > 0 ? max + logf(p->min_p) : -INFINITY;
    while (keep < k) {
        float logit = ranked(s, &heap, keep).logit;
        if (keep && (logit < least || logit == -INFINITY || (by_p && cum >= p->top_p * norm)))
            break;
        cum += exp((double)logit - max);
        keep++;
    }
    return keep;
}

/* One draw from the last `keep` candidates at the temperature; u in [0, 1). */
static u32 draw(const struct sampler *s, u32 keep, float temperature, float max, double u) {
    const struct cand *c = s->cand + (s->n_vocab - keep);
    double sum = 0, cum = 0;
    for (u32 i = keep; i-- > 0;) sum += exp(((double)c[i].logit - max) / temperature);
    u32 choice = c[keep - 1].id;
    for (u32 i = keep; i-- > 0;) {
        double w = exp(((double)c[i].logit - max) / temperature);
        if (w == 0) continue;
        choice = c[i].id;
        cum += w;
        if (u * sum < cum) break;
    }
    return choice;
}

bool sampler_pick(struct sampler *s, const struct sampling *p, float *logits, const u32 *history,
                  u32 n_history, u32 n_prompt, struct sampled *out, struct err *e) {
    *out = (struct sampled){0};
    u32 best;
    if (!largest(logits, s->n_vocab, &best))
        return err_set(e, ERR_INTERNAL, "the logits hold no finite number");
    double log_norm = 0;
    if (p->logprobs) {
        log_norm = logits[best] + log(sum_exp(logits, s->n_vocab, logits[best]));
        memcpy(s->raw, logits, s->n_vocab * sizeof *logits);
        report(s, p, out, log_norm);
    }
    if (p->repetition_penalty > 0 && p->repetition_penalty != 1)
        penalize_repetition(s, p, logits, history, n_history);
    if (p->presence_penalty != 0 || p->frequency_penalty != 0) {
        u32 from = MIN(n_prompt, n_history);
        penalize_counts(s, p, logits, history + from, n_history - from);
    }
    for (u32 i = 0; i < p->n_bias; i++)
        if (p->bias[i].token < s->n_vocab) logits[p->bias[i].token] += p->bias[i].bias;
    if (!largest(logits, s->n_vocab, &best))
        return err_set(e, ERR_ARG, "logit_bias leaves no token to choose");
    out->token = best;
    if (p->temperature > 0) {
        float max = logits[best];
        fill(s, logits);
        u32 keep = filter(s, p, logits, max);
        out->token = draw(s, keep, p->temperature, max, random_unit(p->seed, n_history));
    }
    if (p->logprobs) out->logprob = (float)(s->raw[out->token] - log_norm);
    return true;
}
