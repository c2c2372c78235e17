/* step.h - one step of the pipeline as data: what rank 0 decides and every rank computes.
 *
 * A step names the tokens, which sequence (slot) and positions they are, and the KV blocks these
 * sequences own. It travels in front of the activations from rank to rank; the last rank samples
 * for the spans that want it and sends a step_result to rank 0. Storage is taken once for the
 * limits agreed at start; encoding appends to a string that keeps its memory. Decoding checks every
 * number against the limits. */
#pragma once

#include "base/err.h"
#include "base/str.h"
#include "engine/sampler.h"
#include "ops/ops.h"

struct step_limits {
    u32 max_tok;  /* tokens in one step */
    u32 n_slots;  /* sequences at once */
    u32 n_ctx;    /* positions of one sequence */
    u32 n_blocks; /* KV blocks of every rank */
    u32 n_vocab;
};

/* First step of a sequence in its slot: what the last rank needs to sample for it. */
struct step_begin {
    u32 slot, n_prompt;
    struct sampling sampling; /* bias points into the step's bias store */
};

struct step {
    u64 id;
    u32 n_tok, n_spans, n_out, n_begin;
    u32 *ids;                   /* [max_tok] */
    struct kv_span *spans;      /* [n_slots]; blocks point into `blocks` */
    u32 *out;                   /* [n_slots] row of the batch that wants logits, ascending */
    u32 *out_slot;              /* [n_slots] and the slot it belongs to */
    struct step_begin *begin;   /* [n_slots] */
    u32 *blocks;                /* [n_slots][blocks of n_ctx] */
    struct sampling_bias *bias; /* [n_slots][SAMPLER_BIAS_MAX], for decoded steps */
};

void step_init(struct step *s, const struct step_limits *l);
void step_deinit(struct step *s);
u32 step_blocks_of(u32 n_positions); /* KV blocks that hold so many */
u64 step_bytes(const struct step_limits *l);

void step_encode(const struct step *s, struct str *out);
/* *used: bytes of the step; activations follow. s keeps its storage. */
bool step_decode(struct step *s, const struct step_limits *l, const void *p, size_t n, size_t *used,
                 struct err *e);

struct step_result {
    u64 id;
    u32 n;                  /* = n_out of the step */
    u32 *slot;              /* [n_slots] */
    struct sampled *sample; /* [n_slots] */
};
void step_result_init(struct step_result *r, const struct step_limits *l);
void step_result_deinit(struct step_result *r);
void step_result_encode(const struct step_result *r, struct str *out);
bool step_result_decode(struct step_result *r, const struct step_limits *l, const void *p, size_t n,
                        struct err *e);
