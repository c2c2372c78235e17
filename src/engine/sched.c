#include "engine/sched.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

enum {
    FLIGHT_MAX = 64,
    PIECE_TOK = 64, /* of a prompt in one step of a pipeline */
};

struct flight {
    u64 id;
    u32 n;
    struct seq **seq; /* [n_slots] */
};

struct sched {
    struct step_limits lim;
    u32 n_stages;
    struct seq *waiting; /* in order */
    struct seq *running; /* in order of admission */
    struct seq **slot;   /* [n_slots] */
    u32 *free_block;     /* [n_blocks] a stack */
    u32 n_free;
    struct flight flight[FLIGHT_MAX]; /* a ring */
    u32 flight_head, n_flight;
    u64 next_step, next_order;
    u32 n_running, n_waiting;
};

struct sched *sched_new(const struct sched_cfg *cfg) {
    struct sched *s = xcalloc(1, sizeof *s);
    s->lim = cfg->limits;
    s->n_stages = MIN(MAX(cfg->n_stages, 1u), (u32)FLIGHT_MAX);
    ASSERT(s->lim.n_blocks >= step_blocks_of(s->lim.n_ctx) && s->lim.n_slots > 0);
    s->slot = xcalloc(s->lim.n_slots, sizeof *s->slot);
    s->free_block = xcalloc(s->lim.n_blocks, sizeof *s->free_block);
    for (u32 i = 0; i < s->lim.n_blocks; i++) s->free_block[i] = s->lim.n_blocks - 1 - i;
    s->n_free = s->lim.n_blocks;
    for (u32 i = 0; i < FLIGHT_MAX; i++)
        s->flight[i].seq = xcalloc(s->lim.n_slots, sizeof(struct seq *));
    s->next_step = 1;
    return s;
}

static void seq_free(struct seq *q) {
    free(q->tok);
    free(q->blocks);
    free((void *)q->sampling.bias);
    free(q);
}

void sched_free(struct sched *s) {
    if (!s) return;
    for (int pass = 0; pass < 2; pass++)
        for (struct seq *q = pass ? s->waiting : s->running, *next; q; q = next) {
            next = q->next;
            seq_free(q);
        }
    for (u32 i = 0; i < FLIGHT_MAX; i++) free(s->flight[i].seq);
    free(s->slot);
    free(s->free_block);
    free(s);
}

static void list_remove(struct seq **list, struct seq *q) {
    while (*list != q) list = &(*list)->next;
    *list = q->next;
    q->next = NULL;
}

/* By order of arrival: a preempted sequence comes before younger ones. */
static void list_insert(struct seq **list, struct seq *q) {
    while (*list && (*list)->order < q->order) list = &(*list)->next;
    q->next = *list;
    *list = q;
}

struct seq *sched_add(struct sched *s, u64 id, void *owner, const u32 *ids, u32 n_tok, u32 n_prompt,
                      const struct sampling *sampling) {
    ASSERT(n_tok >= 1 && n_tok <= s->lim.n_ctx && n_prompt <= n_tok);
    struct seq *q = xcalloc(1, sizeof *q);
    q->id = id;
    q->owner = owner;
    q->tok = xcalloc(s->lim.n_ctx, sizeof *q->tok);
    memcpy(q->tok, ids, n_tok * sizeof *ids);
    q->n_tok = n_tok;
    q->n_prompt = n_prompt;
    q->slot = -1;
    q->order = s->next_order++;
    q->sampling = *sampling;
    q->blocks = xcalloc(step_blocks_of(s->lim.n_ctx), sizeof *q->blocks);
    struct sampling_bias *bias = xcalloc(sampling->n_bias, sizeof *bias);
    if (sampling->n_bias) memcpy(bias, sampling->bias, sampling->n_bias * sizeof *bias);
    q->sampling.bias = bias;
    list_insert(&s->waiting, q);
    s->n_waiting++;
    return q;
}

/* Takes slot and blocks away; the sequence is in no list afterwards. */
static void evict(struct sched *s, struct seq *q) {
    ASSERT(q->slot >= 0 && q->n_flight == 0);
    while (q->n_blocks) s->free_block[s->n_free++] = q->blocks[--q->n_blocks];
    s->slot[q->slot] = NULL;
    q->slot = -1;
    q->n_done = 0;
    q->begun = false;
    list_remove(&s->running, q);
    s->n_running--;
}

void sched_end(struct sched *s, struct seq *q) {
    if (q->n_flight) { /* a step still writes its blocks: sched_done ends it */
        q->dead = true;
        return;
    }
    if (q->slot >= 0)
        evict(s, q);
    else {
        list_remove(&s->waiting, q);
        s->n_waiting--;
    }
    seq_free(q);
}

/* Gives q blocks for `n` positions, if need be those of the youngest sequence that no step holds.
 * False when they can't be had now. */
static bool take_blocks(struct sched *s, struct seq *q, u32 n) {
    u32 need = step_blocks_of(n);
    while (need - MIN(need, q->n_blocks) > s->n_free) {
        struct seq *victim = NULL;
        for (struct seq *v = s->running; v; v = v->next)
            if (v->order > q->order && v->n_flight == 0) victim = v; /* the last is the youngest */
        if (!victim) return false;
        evict(s, victim);
        list_insert(&s->waiting, victim);
        s->n_waiting++;
    }
    while (q->n_blocks < need) q->blocks[q->n_blocks++] = s->free_block[--s->n_free];
    return true;
}

static void admit(struct sched *s) {
    u64 promised = 0; /* blocks that running sequences still need for the tokens they have */
    for (struct seq *q = s->running; q; q = q->next)
        promised += step_blocks_of(q->n_tok) - MIN(q->n_blocks, step_blocks_of(q->n_tok));
    while (s->waiting && s->n_running < s->lim.n_slots) {
        struct seq *q = s->waiting;
        promised += step_blocks_of(MIN(q->n_tok + 1, s->lim.n_ctx));
        if (promised > s->n_free) return;
        u32 slot = 0;
        while (s->slot[slot]) slot++;
        s->waiting = q->next;
        s->n_waiting--;
        q->slot = (i32)slot;
        s->slot[slot] = q;
        list_insert(&s->running, q);
        s->n_running++;
    }
}

static void add_span(struct sched *s, struct step *out, struct seq *q, u32 n) {
    struct kv_span *p = &out->spans[out->n_spans];
    u32 *blocks = out->blocks + (size_t)out->n_spans * step_blocks_of(s->lim.n_ctx);
    out->n_spans++;
    p->first = out->n_tok;
    p->n = n;
    p->pos0 = q->n_done;
    p->slot = (u32)q->slot;
    p->n_blocks = step_blocks_of(q->n_done + n);
    memcpy(blocks, q->blocks, p->n_blocks * sizeof *blocks);
    p->blocks = blocks;
    memcpy(out->ids + out->n_tok, q->tok + q->n_done, n * sizeof *out->ids);
    out->n_tok += n;
    q->n_done += n;
    if (!q->begun) {
        out->begin[out->n_begin++] = (struct step_begin){(u32)q->slot, q->n_prompt, q->sampling};
        q->begun = true;
    }
    if (q->n_done == q->n_tok) {
        out->out[out->n_out] = out->n_tok - 1;
        out->out_slot[out->n_out++] = (u32)q->slot;
    }
    q->n_flight++;
    struct flight *f = &s->flight[(s->flight_head + s->n_flight) % FLIGHT_MAX];
    f->seq[f->n++] = q;
}

bool sched_next(struct sched *s, struct step *out) {
    out->n_tok = out->n_spans = out->n_out = out->n_begin = 0;
    if (s->n_flight >= s->n_stages) return false;
    admit(s);
    struct flight *f = &s->flight[(s->flight_head + s->n_flight) % FLIGHT_MAX];
    f->n = 0;
    f->id = out->id = s->next_step;
    u32 share = (s->n_running + s->n_stages - 1) / s->n_stages; /* decoding sequences of one step */
    /* Through several stages a prompt flows in pieces: while one computes a piece, the one before
     * computes the next. */
    u32 budget = s->n_stages > 1 ? MIN(s->lim.max_tok, (u32)PIECE_TOK) : s->lim.max_tok;
    for (int prefill = 0; prefill < 2; prefill++)
        for (struct seq *q = s->running; q; q = q->next) { /* take_blocks evicts only behind q */
            u32 left = q->n_tok - q->n_done;
            if (q->dead || left == 0 || (left > 1) != prefill) continue;
            if (!prefill && out->n_spans >= share) continue;
            u32 n = MIN(left, budget - MIN(budget, out->n_tok));
            if (n == 0 || !take_blocks(s, q, q->n_done + n)) continue;
            add_span(s, out, q, n);
        }
    if (out->n_spans == 0) return false;
    s->next_step++;
    s->n_flight++;
    return true;
}

struct seq *sched_slot(struct sched *s, u32 slot) {
    struct seq *q = slot < s->lim.n_slots ? s->slot[slot] : NULL;
    return q && !q->dead ? q : NULL;
}

void sched_push(struct sched *s, struct seq *q, u32 token) {
    ASSERT(q->n_tok < s->lim.n_ctx && q->slot >= 0);
    q->tok[q->n_tok++] = token;
}

void sched_done(struct sched *s, u64 id) {
    struct flight *f = &s->flight[s->flight_head];
    ASSERT(s->n_flight > 0 && f->id == id);
    s->flight_head = (s->flight_head + 1) % FLIGHT_MAX;
    s->n_flight--;
    for (u32 i = 0; i < f->n; i++) {
        struct seq *q = f->seq[i];
        if (--q->n_flight == 0 && q->dead) sched_end(s, q);
    }
}

u32 sched_n_running(const struct sched *s) {
    return s->n_running;
}
u32 sched_n_waiting(const struct sched *s) {
    return s->n_waiting;
}
u32 sched_n_flight(const struct sched *s) {
    return s->n_flight;
}
u64 sched_blocks_used(const struct sched *s) {
    return s->lim.n_blocks - s->n_free;
}
