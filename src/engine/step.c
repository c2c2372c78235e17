#include "engine/step.h"

#include <stdlib.h>

#include "base/arena.h"
#include "base/buf.h"

u32 step_blocks_of(u32 n_positions) {
    return (n_positions + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
}

u64 step_bytes(const struct step_limits *l) {
    return (u64)l->max_tok * sizeof(u32) +
           (u64)l->n_slots * (sizeof(struct kv_span) + 2 * sizeof(u32) + sizeof(struct step_begin) +
                              (u64)step_blocks_of(l->n_ctx) * sizeof(u32) +
                              SAMPLER_BIAS_MAX * sizeof(struct sampling_bias));
}

void step_init(struct step *s, const struct step_limits *l) {
    *s = (struct step){0};
    s->ids = xcalloc(l->max_tok, sizeof *s->ids);
    s->spans = xcalloc(l->n_slots, sizeof *s->spans);
    s->out = xcalloc(l->n_slots, sizeof *s->out);
    s->out_slot = xcalloc(l->n_slots, sizeof *s->out_slot);
    s->begin = xcalloc(l->n_slots, sizeof *s->begin);
    s->blocks = xcalloc((size_t)l->n_slots * step_blocks_of(l->n_ctx), sizeof *s->blocks);
    s->bias = xcalloc((size_t)l->n_slots * SAMPLER_BIAS_MAX, sizeof *s->bias);
}

void step_deinit(struct step *s) {
    free(s->ids);
    free(s->spans);
    free(s->out);
    free(s->out_slot);
    free(s->begin);
    free(s->blocks);
    free(s->bias);
    *s = (struct step){0};
}

static void put_sampling(struct str *out, const struct sampling *p) {
    wr_f32(out, p->temperature);
    wr_f32(out, p->top_p);
    wr_f32(out, p->min_p);
    wr_f32(out, p->repetition_penalty);
    wr_f32(out, p->presence_penalty);
    wr_f32(out, p->frequency_penalty);
    wr_u64(out, p->seed);
    wr_varint(out, p->top_k);
    wr_varint(out, p->repetition_last_n);
    wr_varint(out, p->n_top);
    wr_u8(out, p->logprobs);
    wr_varint(out, p->n_bias);
    for (u32 i = 0; i < p->n_bias; i++) {
        wr_varint(out, p->bias[i].token);
        wr_f32(out, p->bias[i].bias);
    }
}

void step_encode(const struct step *s, struct str *out) {
    wr_u64(out, s->id);
    wr_varint(out, s->n_begin);
    for (u32 i = 0; i < s->n_begin; i++) {
        wr_varint(out, s->begin[i].slot);
        wr_varint(out, s->begin[i].n_prompt);
        put_sampling(out, &s->begin[i].sampling);
    }
    wr_varint(out, s->n_spans);
    u32 k = 0;
    for (u32 i = 0; i < s->n_spans; i++) {
        const struct kv_span *p = &s->spans[i];
        bool want = k < s->n_out && s->out[k] == p->first + p->n - 1;
        k += want;
        wr_varint(out, p->slot);
        wr_varint(out, p->pos0);
        wr_varint(out, (u64)p->n << 1 | want);
        for (u32 t = 0; t < p->n; t++) wr_varint(out, s->ids[p->first + t]);
        for (u32 b = 0; b < step_blocks_of(p->pos0 + p->n); b++) wr_varint(out, p->blocks[b]);
    }
}

/* A number below `limit`; anything else marks the reader bad. */
static u32 below(struct rd *r, u64 limit) {
    u64 v = rd_varint(r);
    if (v >= limit) r->bad = true;
    return r->bad ? 0 : (u32)v;
}

static void get_sampling(struct rd *r, const struct step_limits *l, struct sampling *p,
                         struct sampling_bias *store) {
    p->temperature = rd_f32(r);
    p->top_p = rd_f32(r);
    p->min_p = rd_f32(r);
    p->repetition_penalty = rd_f32(r);
    p->presence_penalty = rd_f32(r);
    p->frequency_penalty = rd_f32(r);
    p->seed = rd_u64(r);
    p->top_k = below(r, UINT32_MAX);
    p->repetition_last_n = below(r, UINT32_MAX);
    p->n_top = below(r, SAMPLER_TOP_MAX + 1);
    p->logprobs = rd_u8(r) != 0;
    p->n_bias = below(r, SAMPLER_BIAS_MAX + 1);
    p->bias = store;
    for (u32 i = 0; i < p->n_bias; i++) {
        store[i].token = below(r, l->n_vocab);
        store[i].bias = rd_f32(r);
    }
}

static void get_span(struct step *s, const struct step_limits *l, struct rd *r, u32 i) {
    struct kv_span *p = &s->spans[i];
    p->first = s->n_tok;
    p->slot = below(r, l->n_slots);
    p->pos0 = below(r, l->n_ctx);
    u32 n_want = below(r, ((u64)l->max_tok - s->n_tok + 1) << 1);
    p->n = n_want >> 1;
    if (p->n == 0 || p->n > l->n_ctx - p->pos0) r->bad = true;
    if (r->bad) return;
    for (u32 t = 0; t < p->n; t++) s->ids[s->n_tok++] = below(r, l->n_vocab);
    p->n_blocks = step_blocks_of(p->pos0 + p->n);
    u32 *b = s->blocks + (size_t)i * step_blocks_of(l->n_ctx);
    p->blocks = b;
    for (u32 k = 0; k < p->n_blocks; k++) b[k] = below(r, l->n_blocks);
    if (!(n_want & 1)) return;
    s->out[s->n_out] = s->n_tok - 1;
    s->out_slot[s->n_out++] = p->slot;
}

bool step_decode(struct step *s, const struct step_limits *l, const void *data, size_t n,
                 size_t *used, struct err *e) {
    struct rd r = rd_of(data, n);
    s->n_tok = s->n_spans = s->n_out = 0;
    s->id = rd_u64(&r);
    s->n_begin = below(&r, (u64)l->n_slots + 1);
    for (u32 i = 0; i < s->n_begin && !r.bad; i++) {
        s->begin[i].slot = below(&r, l->n_slots);
        s->begin[i].n_prompt = below(&r, (u64)l->n_ctx + 1);
        get_sampling(&r, l, &s->begin[i].sampling, s->bias + (size_t)i * SAMPLER_BIAS_MAX);
    }
    u32 n_spans = below(&r, (u64)l->n_slots + 1);
    for (; s->n_spans < n_spans && !r.bad; s->n_spans++) get_span(s, l, &r, s->n_spans);
    if (r.bad || n_spans == 0)
        return err_set(e, ERR_FORMAT, "step %llu from another rank is malformed",
                       (unsigned long long)s->id);
    *used = r.off;
    return true;
}

void step_result_init(struct step_result *r, const struct step_limits *l) {
    *r = (struct step_result){0};
    r->slot = xcalloc(l->n_slots, sizeof *r->slot);
    r->sample = xcalloc(l->n_slots, sizeof *r->sample);
}

void step_result_deinit(struct step_result *r) {
    free(r->slot);
    free(r->sample);
    *r = (struct step_result){0};
}

void step_result_encode(const struct step_result *r, struct str *out) {
    wr_u64(out, r->id);
    wr_varint(out, r->n);
    for (u32 i = 0; i < r->n; i++) {
        const struct sampled *t = &r->sample[i];
        wr_varint(out, r->slot[i]);
        wr_varint(out, (u32)(t->token + 1)); /* SAMPLED_NONE travels as 0 */
        wr_f32(out, t->logprob);
        wr_varint(out, t->n_top);
        for (u32 k = 0; k < t->n_top; k++) {
            wr_varint(out, t->top[k].token);
            wr_f32(out, t->top[k].logprob);
        }
    }
}

bool step_result_decode(struct step_result *res, const struct step_limits *l, const void *p,
                        size_t n, struct err *e) {
    struct rd r = rd_of(p, n);
    res->id = rd_u64(&r);
    res->n = below(&r, (u64)l->n_slots + 1);
    for (u32 i = 0; i < res->n && !r.bad; i++) {
        struct sampled *t = &res->sample[i];
        res->slot[i] = below(&r, l->n_slots);
        t->token = below(&r, (u64)l->n_vocab + 1) - 1;
        t->logprob = rd_f32(&r);
        t->n_top = below(&r, SAMPLER_TOP_MAX + 1);
        for (u32 k = 0; k < t->n_top; k++) {
            t->top[k].token = below(&r, l->n_vocab);
            t->top[k].logprob = rd_f32(&r);
        }
    }
    if (r.bad || rd_left(&r)) return err_set(e, ERR_FORMAT, "the result of a step is malformed");
    return true;
}
