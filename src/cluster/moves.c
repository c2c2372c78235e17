/* moves.c - an instance goes elsewhere without a pause: the next placement loads while the present
 * one serves, and takes over when all its ranks are ready. Requests under way go on there.
 *
 * Two reasons to move. A drained node gets no new work and gives away what it has as soon as there
 * is room for it elsewhere; until then it serves. A node that was lost and came back is used again
 * for the instances that had to leave it: when it has stayed for a while (twice as long after each
 * further loss, so that one that comes and goes is left alone), the instance has nothing to do, and
 * the planner, asked again, would use it. One instance moves at a time. */
#include <stdio.h>
#include <string.h>

#include "cluster/parts.h"

enum {
    BACK_MS = 60000,       /* a returned node must have stayed for so long */
    BACK_DOUBLED_MAX = 6,  /* that often at most: an hour */
    IDLE_MS = 10000,       /* and the instance must have been idle for so long */
    RETRY_MS = 3000,       /* there was no room */
    FAILED_MS = 30000,     /* the next placement failed; doubled with each further failure */
    FAILED_DOUBLED_MAX = 5 /* that often at most */
};

bool moves_uses(const struct wire_list *ranks, const char *node) {
    const struct msg_rank *r = ranks->v;
    for (u64 i = 0; i < ranks->n; i++)
        if (same(r[i].node, node)) return true;
    return false;
}

static void set(struct cluster *c, struct entry *en, const struct msg_placement *p) {
    state_place(c, en, p);
    c->index++;
    state_touch(c);
}

void moves_promote(struct cluster *c, struct entry *en, bool whole) {
    struct msg_placement p = en->p;
    p.place = p.next_place;
    p.n_ctx = p.next_ctx;
    p.ranks = p.next_ranks;
    p.next_place = 0;
    p.next_ranks = (struct wire_list){0};
    if (whole) p.lost = (struct wire_list){0};
    p.reason = "";
    en->ready_ms = 0;
    set(c, en, &p);
}

static void cancel(struct cluster *c, struct entry *en, const char *reason) {
    struct msg_placement p = en->p;
    p.next_place = 0;
    p.next_ranks = (struct wire_list){0};
    p.reason = reason;
    set(c, en, &p);
}

/* How many of the next ranks are ready; UINT32_MAX when one can't be any more. */
static u32 n_ready(const struct cluster *c, const struct entry *en, u64 now_ms) {
    const struct msg_rank *r = en->p.next_ranks.v;
    u32 ready = 0;
    for (u64 i = 0; i < en->p.next_ranks.n; i++) {
        const struct member *m = members_find(c, r[i].node);
        const struct msg_runner *f = shards_fact(c, r[i].node, en->w.id, en->p.next_place);
        if (!m || !members_live(c, m, now_ms) || (f && f->status == RUNNER_FAILED))
            return UINT32_MAX;
        ready += f && f->status == RUNNER_READY;
    }
    return ready;
}

bool moves_can_promote(const struct cluster *c, const struct entry *en, u64 now_ms) {
    return en->p.next_place && n_ready(c, en, now_ms) != UINT32_MAX;
}

static void watch_next(struct cluster *c, struct entry *en, u64 now_ms,
                       struct cluster_output *out) {
    u32 ready = n_ready(c, en, now_ms);
    if (ready == UINT32_MAX) {
        en->move_ms = now_ms + ((u64)FAILED_MS << MIN(en->n_move_fails, FAILED_DOUBLED_MAX));
        en->n_move_fails++;
        core_log(out, LOG_WARN, "move failed instance=%s model=%s: it stays where it is", en->w.id,
                 en->w.model);
        cancel(c, en, "");
    } else if (ready == en->p.next_ranks.n) {
        en->n_move_fails = 0;
        core_log(out, LOG_INFO, "instance moved instance=%s model=%s", en->w.id, en->w.model);
        moves_promote(c, en, true);
    }
}

static const struct member *drained_rank(const struct cluster *c, const struct entry *en) {
    const struct msg_rank *r = en->p.ranks.v;
    for (u64 i = 0; i < en->p.ranks.n; i++)
        if (state_is_drained(c, r[i].node)) return members_find(c, r[i].node);
    return NULL;
}

static void leave_drained(struct cluster *c, struct entry *en, const struct member *m, u64 now_ms,
                          struct cluster_output *out) {
    struct err e = {0};
    const char *name = m->hello.name && *m->hello.name ? m->hello.name : m->id;
    if (orders_move(c, en, now_ms, out, &e)) {
        core_log(out, LOG_INFO, "instance moves instance=%s model=%s off=%s", en->w.id, en->w.model,
                 name);
        set(c, en, &en->p);
        return;
    }
    char why[1200];
    snprintf(why, sizeof why, "stays on the drained node %s: %s", name, e.msg);
    en->move_ms = now_ms + RETRY_MS;
    if (en->p.reason && same(en->p.reason, why)) return;
    struct msg_placement p = en->p;
    p.reason = why;
    set(c, en, &p);
}

/* Is a node back that it had to leave, for long enough? */
static bool is_back(const struct cluster *c, const struct entry *en, u64 now_ms) {
    const struct msg_string *lost = en->p.lost.v;
    u64 stay_ms = (u64)BACK_MS << MIN(en->n_losses ? en->n_losses - 1 : 0, BACK_DOUBLED_MAX);
    for (u64 i = 0; i < en->p.lost.n; i++) {
        const struct member *m = members_find(c, lost[i].s);
        if (m && members_live(c, m, now_ms) && !state_is_drained(c, m->id) &&
            now_ms - m->live_ms >= stay_ms)
            return true;
    }
    return false;
}

static void use_again(struct cluster *c, struct entry *en, u64 now_ms, struct cluster_output *out) {
    const struct msg_string *lost = en->p.lost.v;
    bool better = orders_move(c, en, now_ms, out, NULL), uses = false;
    lost = en->p.lost.v; /* it was copied */
    for (u64 i = 0; better && i < en->p.lost.n; i++)
        uses = uses ||
               (moves_uses(&en->p.next_ranks, lost[i].s) && !moves_uses(&en->p.ranks, lost[i].s));
    struct msg_placement p = en->p;
    if (uses) {
        core_log(out, LOG_INFO, "instance moves instance=%s model=%s: a lost node is back",
                 en->w.id, en->w.model);
    } else { /* no room beside it, or no gain: it stays, for good */
        p.next_place = 0;
        p.next_ranks = p.lost = (struct wire_list){0};
    }
    set(c, en, &p);
}

void moves_step(struct cluster *c, struct entry *en, u64 now_ms, struct cluster_output *out) {
    if (en->p.next_place) watch_next(c, en, now_ms, out);
    if (en->p.next_place || now_ms < en->move_ms || !en->ready_ms) return;
    for (u32 i = 0; i < c->n_entries; i++)
        if (c->entries[i]->p.next_place) return;
    const struct member *m = drained_rank(c, en);
    if (!m && en->p.reason && *en->p.reason) cancel(c, en, ""); /* undrained */
    if (m)
        leave_drained(c, en, m, now_ms, out);
    else if (en->p.lost.n && now_ms - MAX(en->used_ms, en->ready_ms) >= IDLE_MS &&
             is_back(c, en, now_ms))
        use_again(c, en, now_ms, out);
}
