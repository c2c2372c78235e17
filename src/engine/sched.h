/* sched.h - which tokens of which sequences the next step computes: continuous batching.
 *
 * Owned by rank 0. Pure: no I/O, no clock. A sequence waits, is admitted to a slot with KV blocks,
 * has its tokens computed in chunks (prefill), then one by one as they are sampled (decode). Every
 * step takes all decoding sequences that are free, then fills up with prefill in order of arrival.
 * With n_stages > 1 up to n_stages steps are under way at once: a sequence may be in several while
 * its prompt flows through, and decoding sequences are dealt over the steps so that every stage has
 * work.
 *
 * When blocks run out, the sequence that was admitted last gives up its blocks and waits again; its
 * tokens are computed anew later. Nothing is lost, and the oldest sequence always gets on. */
#pragma once

#include "base/err.h"
#include "engine/step.h"

struct sched_cfg {
    struct step_limits limits;
    u32 n_stages; /* ranks of the pipeline */
};

struct sched;
struct sched *sched_new(const struct sched_cfg *cfg);
void sched_free(struct sched *s);

/* A sequence; the caller reads it between calls. */
struct seq {
    u64 id;       /* the caller's */
    void *owner;  /* the caller's */
    u32 *tok;     /* [n_ctx] prompt and generated ids */
    u32 n_tok;    /* known */
    u32 n_prompt; /* of them, the prompt */
    u32 n_done;   /* computed, or in a step under way */
    u32 n_flight; /* steps under way that hold it */
    i32 slot;     /* -1 while it waits */
    bool dead;    /* ended, still in a step */
    bool begun;   /* the last rank knows its sampling */
    u64 order;    /* of arrival */
    struct sampling sampling;
    u32 *blocks; /* [blocks of n_ctx] */
    u32 n_blocks;
    struct seq *next; /* in the waiting list or the running list */
};

/* Adds a sequence whose first n_prompt of n_tok ids are the prompt, the rest a resumed answer.
 * Copies ids and bias. 1 <= n_tok <= n_ctx and the blocks for n_ctx exist (ASSERT: the caller has
 * checked). */
struct seq *sched_add(struct sched *s, u64 id, void *owner, const u32 *ids, u32 n_tok, u32 n_prompt,
                      const struct sampling *sampling);
/* The sequence has ended or is not wanted: its slot and blocks are free again as soon as no step
 * holds it. The pointer is dead after this. */
void sched_end(struct sched *s, struct seq *q);

/* Fills *out with the next step. False when nothing can be done before a result comes. */
bool sched_next(struct sched *s, struct step *out);
/* The sequence that sampled in `slot`; NULL when it has ended meanwhile. */
struct seq *sched_slot(struct sched *s, u32 slot);
/* A sampled token of a sequence: it is computed by a next step, unless the caller ends the
 * sequence. */
void sched_push(struct sched *s, struct seq *q, u32 token);
/* Step `id` has come back (steps come back in order): called after its samples went through
 * sched_slot and sched_push or sched_end. */
void sched_done(struct sched *s, u64 id);

u32 sched_n_running(const struct sched *s);
u32 sched_n_waiting(const struct sched *s);
u32 sched_n_flight(const struct sched *s);
u64 sched_blocks_used(const struct sched *s);
