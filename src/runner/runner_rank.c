#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/crowd.h"
#include "base/noalloc.h"
#include "ops/act24.h"
#include "runner/runner_impl.h"

struct caps {
    u32 n_ctx, n_slots, n_blocks, n_vocab, dim, n_layers, sum_wire; /* rank 0's wire type counts */
    struct stage_part part;
};
/* What rank 0 answers. */
struct agreed {
    struct caps least;
    struct stages stages;
};

static void set_up_stage(struct runner *r, const struct caps *c) {
    const struct model_params *p = &r->params;
    u64 cols = runner_logits_cols(r);
    if (r->load.n_ranks > 1) {
        r->x = xcalloc((size_t)RUNNER_MAX_TOK * p->dim, sizeof *r->x);
        r->wire = xcalloc(1, act24_bytes(RUNNER_MAX_TOK, p->dim));
        r->team = team_new(r->group, r->load.tp_first, r->load.tp_ranks,
                           (enum team_wire)c->sum_wire, &r->kernels, r->load.check_sums);
        model_set_team(r->model, r->team);
    }
    if (runner_is_first(r)) {
        struct sched_cfg cfg = {r->lim, r->stages.n};
        r->sched = sched_new(&cfg);
    }
    if (cols) r->logits = xcalloc((size_t)c->n_slots * cols, sizeof *r->logits);
    if (!runner_samples(r)) return;
    r->sampler = sampler_new(p->n_vocab);
    r->slot = xcalloc(c->n_slots, sizeof *r->slot);
    for (u32 i = 0; i < c->n_slots; i++) {
        r->slot[i].history = xcalloc(c->n_ctx, sizeof(u32));
        r->slot[i].bias = xcalloc(SAMPLER_BIAS_MAX, sizeof(struct sampling_bias));
    }
}

static bool take_limits(struct runner *r, const struct agreed *a, struct err *e) {
    const struct caps *c = &a->least;
    const struct model_params *p = &r->params;
    u32 n_layers = r->load.layer_end - r->load.layer_first;
    r->lim = (struct step_limits){RUNNER_MAX_TOK, c->n_slots, c->n_ctx, c->n_blocks, p->n_vocab};
    r->stages = a->stages;
    r->stage = stages_find(&r->stages, r->load.rank);
    if (!kv_pool_init(&r->kv, (enum kv_type)r->load.kv_type, n_layers, c->n_blocks,
                      shard_kv_heads(p, &r->spec), p->head_dim_k, p->head_dim_v, e))
        return false;
    step_init(&r->step, &r->lim);
    step_result_init(&r->result, &r->lim);
    set_up_stage(r, c);
    runner_ready(r);
    return true;
}

static bool send_bytes(struct runner *r, u32 to, u32 type, const void *p, size_t n, struct err *e) {
    struct iovec iov = {(void *)(uintptr_t)p, n};
    return group_send(r->group, to, type, &iov, 1, e);
}

static bool recv_bytes(struct runner *r, u32 from, u32 type, void *p, size_t n, struct err *e) {
    struct group_msg m;
    enum { AGREE_MS = 120000, ASK_MS = 200 };
    struct err why = {0};
    for (u32 ms = 0; !group_recv(r->group, (int)from, ASK_MS, &m, &why); ms += ASK_MS) {
        if (why.code == ERR_BUSY && runner_is_called_off(r))
            return err_set(e, ERR_CANCELLED, "called off before all ranks were ready");
        if (why.code == ERR_BUSY && ms < AGREE_MS) continue;
        if (e) *e = why;
        return false;
    }
    if (m.type != type || m.n != n)
        return err_set(e, ERR_FORMAT, "rank %u: unexpected frame %u", from, m.type);
    memcpy(p, m.body, n);
    return true;
}

/* Rank 0: what all can hold, and how they stand. */
static bool agree(struct runner *r, const struct caps *mine, struct agreed *a, struct err *e) {
    struct stage_part part[GROUP_RANKS_MAX] = {mine->part};
    struct caps c;
    a->least = *mine;
    for (u32 k = 1; k < r->load.n_ranks; k++) {
        if (!recv_bytes(r, k, RANK_CAPS, &c, sizeof c, e)) return false;
        if (c.n_vocab != mine->n_vocab || c.dim != mine->dim || c.n_layers != mine->n_layers)
            return err_set(
                e, ERR_FORMAT,
                "rank %u has another model file: %u layers of %u, vocabulary %u; here %u of %u, %u",
                k, c.n_layers, c.dim, c.n_vocab, mine->n_layers, mine->dim, mine->n_vocab);
        a->least.n_ctx = MIN(a->least.n_ctx, c.n_ctx);
        a->least.n_blocks = MIN(a->least.n_blocks, c.n_blocks);
        a->least.n_slots = MIN(a->least.n_slots, c.n_slots);
        part[k] = c.part;
    }
    return stages_of(&r->params, part, r->load.n_ranks, &a->stages, e);
}

/* From rank 0, which is as trustworthy as its network. */
static bool check_agreed(const struct runner *r, const struct caps *mine, const struct agreed *a,
                         struct err *e) {
    const struct caps *c = &a->least;
    const struct stages *s = &a->stages;
    if (c->n_ctx > mine->n_ctx || c->n_blocks > mine->n_blocks || c->n_slots > RUNNER_SLOTS_MAX ||
        c->n_blocks < step_blocks_of(c->n_ctx))
        return err_set(e, ERR_FORMAT, "rank 0 asks for more than this rank offered");
    bool ok = c->sum_wire < TEAM_WIRES && s->n >= 1 && s->n <= r->load.n_ranks &&
              s->first[0] == 0 && s->first[s->n] == r->load.n_ranks;
    for (u32 i = 0; ok && i < s->n; i++) ok = s->first[i] < s->first[i + 1];
    u32 mine_at = ok ? stages_find(s, r->load.rank) : 0;
    ok = ok && s->first[mine_at] == r->load.tp_first && stages_size(s, mine_at) == r->load.tp_ranks;
    return ok || err_set(e, ERR_FORMAT, "rank 0 has another picture of the stages");
}

/* Every rank tells rank 0 what it can hold; rank 0 takes the least of all and tells everybody. */
bool runner_agree(struct runner *r, u32 n_ctx, u32 n_slots, u32 n_blocks, struct err *e) {
    const struct model_params *p = &r->params;
    struct caps mine = {n_ctx,
                        n_slots,
                        n_blocks,
                        p->n_vocab,
                        p->dim,
                        p->n_layers,
                        r->load.sum_wire,
                        .part = {r->load.tp_first, r->load.tp_ranks, r->load.layer_first,
                                 r->load.layer_end, r->spec.slice}};
    struct agreed a;
    if (!runner_is_first(r)) {
        return send_bytes(r, 0, RANK_CAPS, &mine, sizeof mine, e) &&
               recv_bytes(r, 0, RANK_AGREE, &a, sizeof a, e) && check_agreed(r, &mine, &a, e) &&
               take_limits(r, &a, e);
    }
    if (!agree(r, &mine, &a, e)) return false;
    for (u32 k = 1; k < r->load.n_ranks; k++)
        if (!send_bytes(r, k, RANK_AGREE, &a, sizeof a, e)) return false;
    return take_limits(r, &a, e);
}

static bool forward(struct runner *r, const struct step *s, struct err *e) {
    struct batch b = {.n_tok = s->n_tok, .spans = s->spans, .n_spans = s->n_spans};
    struct model_step m = {.batch = &b, .ids = s->ids, .out = s->out, .n_out = s->n_out};
    /* Of the processors, as many as are left for each runner that computes at the moment. */
    u32 share = r->n_cpus / crowd_enter(r->crowd, clock_ms());
    pool_limit(r->pool, MIN(r->n_threads, share));
    bool ok = model_forward(r->model, &m, &r->kv, r->x, r->logits, e);
    crowd_leave(r->crowd);
    return ok;
}

/* First rank of the last stage: remembers the tokens by slot, samples where it is wanted. A
 * sequence for which nothing can be sampled gets SAMPLED_NONE: that is its own error, not the
 * shard's. */
static void sample(struct runner *r, const struct step *s) {
    for (u32 i = 0; i < s->n_begin; i++) {
        struct slot_state *t = &r->slot[s->begin[i].slot];
        t->n_prompt = s->begin[i].n_prompt;
        t->sampling = s->begin[i].sampling;
        memcpy(t->bias, t->sampling.bias, t->sampling.n_bias * sizeof *t->bias);
        t->sampling.bias = t->bias;
    }
    r->result.id = s->id;
    r->result.n = s->n_out;
    u32 k = 0;
    for (u32 i = 0; i < s->n_spans; i++) {
        const struct kv_span *p = &s->spans[i];
        struct slot_state *t = &r->slot[p->slot];
        memcpy(t->history + p->pos0, s->ids + p->first, p->n * sizeof *t->history);
        if (k == s->n_out || s->out[k] != p->first + p->n - 1) continue;
        r->result.slot[k] = p->slot;
        struct sampled *out = &r->result.sample[k];
        float *logits = r->logits + (size_t)k * r->lim.n_vocab;
        if (!sampler_pick(r->sampler, &t->sampling, logits, t->history, p->pos0 + p->n, t->n_prompt,
                          out, NULL))
            *out = (struct sampled){.token = SAMPLED_NONE};
        k++;
    }
}

/* The activations follow the step's bytes at the next multiple of 4. All ranks of this stage hold
 * the same ones; each sends them to its share of the next stage. */
static bool pass_on(struct runner *r, const struct step *s, struct err *e) {
    str_clear(&r->scratch);
    step_encode(s, &r->scratch);
    static const char ZERO[4] = {0};
    u64 n = act24_bytes(s->n_tok, r->params.dim);
    act24_pack(r->wire, r->x, s->n_tok, r->params.dim);
    struct iovec iov[] = {
        {r->scratch.p, r->scratch.n}, {(void *)ZERO, -r->scratch.n & 3}, {r->wire, n}};
    for (u32 to = r->stages.first[r->stage + 1]; to < r->stages.first[r->stage + 2]; to++) {
        if (stages_source(&r->stages, to) != r->load.rank) continue;
        if (!group_send(r->group, to, RANK_STEP, iov, 3, e)) return false;
    }
    return true;
}

static bool return_result(struct runner *r, struct err *e) {
    if (runner_is_first(r)) {
        runner_take_result(r, &r->result);
        return true;
    }
    str_clear(&r->scratch);
    step_result_encode(&r->result, &r->scratch);
    struct iovec iov = {r->scratch.p, r->scratch.n};
    return group_send(r->group, 0, RANK_RESULT, &iov, 1, e);
}

static bool compute(struct runner *r, const struct step *s, struct err *e) {
    if (!forward(r, s, e)) return false;
    if (!r->spec.has_head) return pass_on(r, s, e);
    if (!runner_samples(r)) return true;
    noalloc_begin();
    sample(r, s);
    noalloc_end();
    return return_result(r, e);
}

/* Rank 0 tells those that share its layers what the step is. */
static bool tell_team(struct runner *r, const struct step *s, struct err *e) {
    if (!r->team) return true;
    str_clear(&r->scratch);
    step_encode(s, &r->scratch);
    for (u32 to = 1; to < r->load.tp_ranks; to++)
        if (!send_bytes(r, to, RANK_STEP, r->scratch.p, r->scratch.n, e)) return false;
    return true;
}

bool runner_start_step(struct runner *r, bool *busy, struct err *e) {
    noalloc_begin();
    *busy = sched_next(r->sched, &r->step);
    noalloc_end();
    return !*busy || (tell_team(r, &r->step, e) && compute(r, &r->step, e));
}

static bool on_step(struct runner *r, const struct group_msg *m, struct err *e) {
    size_t used;
    u32 source = r->stage ? stages_source(&r->stages, r->load.rank) : 0;
    if (runner_is_first(r) || m->from != source)
        return err_set(e, ERR_FORMAT, "a step from rank %u", m->from);
    if (!step_decode(&r->step, &r->lim, m->body, m->n, &used, e)) return false;
    if (r->stage) used = align_up(used, 4);
    u64 act = r->stage ? act24_bytes(r->step.n_tok, r->params.dim) : 0;
    if (m->n < used || m->n - used != act)
        return err_set(e, ERR_FORMAT, "the activations of step %llu have a wrong size",
                       (unsigned long long)r->step.id);
    if (r->stage) act24_unpack(r->x, m->body + used, r->step.n_tok, r->params.dim);
    return compute(r, &r->step, e);
}

bool runner_rank_frame(struct runner *r, const struct group_msg *m, struct err *e) {
    if (r->ready && m->type == RANK_STEP) return on_step(r, m, e);
    if (r->ready && m->type == RANK_RESULT && runner_is_first(r)) {
        if (!step_result_decode(&r->result, &r->lim, m->body, m->n, e)) return false;
        runner_take_result(r, &r->result);
        return true;
    }
    return err_set(e, ERR_FORMAT, "rank %u sent frame %u out of turn", m->from, m->type);
}
