/* elect.c - one master among nodes that see each other.
 *
 * A claim is (established, term, seniority, id), compared in that order. Whoever has no master and
 * is the most senior of the live nodes claims the next term. The claim is established when others
 * are there and more than half of the nodes it has known are in sight, at once or later. So after a
 * partition the part that kept the majority keeps its master (the minority's claim is not
 * established, however high its term), a newcomer that led itself for a while deposes nobody, and a
 * master that comes back from the dead finds a higher term. Terms never go back at any node: a
 * master that beats a claim of a higher term claims again above it, and only then is followed by
 * those who saw the higher one. Who was told to lead (--force-master) waits until it has the
 * present master's orders and then claims as that one's successor: no old message can do that. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "cluster/parts.h"

enum {
    CONFIRM_MS =
        300, /* between losing a master and claiming: others' beats tell who else is there */
    FALLBACK_MS = 5000, /* the better candidate does nothing: claim anyway */
    JOINED_MS = 500,    /* a quiet start ends early when somebody is there and nobody leads */
    OUTBID_MS = 3000,   /* somebody has seen a higher term: whose it is will show by then */
    FORCE_MS = 2000,    /* the forced one leads after having had the orders for so long */
    STABLE_MS = 3000,   /* with a majority for so long, a claim becomes an established one */
};

int claim_cmp(const struct msg_claim *a, const struct msg_claim *b) {
    if (a->is_established != b->is_established) return a->is_established ? 1 : -1;
    if (a->term != b->term) return a->term > b->term ? 1 : -1;
    if (a->seniority != b->seniority) return a->seniority < b->seniority ? 1 : -1;
    return strcmp(b->master, a->master);
}

bool elect_is_master(const struct cluster *c) {
    return same(c->claim_master, c->id);
}

static void set_claim(struct cluster *c, const struct msg_claim *k) {
    char master[CLUSTER_ID_CAP];
    str_copy(master, sizeof master, k->master); /* k may be c->claim itself */
    c->claim = *k;
    memcpy(c->claim_master, master, sizeof master);
    c->claim.master = c->claim_master;
    c->changed = c->beat_now = true;
}

static bool has_majority(const struct cluster *c, u64 now_ms) {
    u32 live = members_n_live(c, now_ms);
    return live > 1 && live * 2 > members_n_counted(c);
}

/* Leads from now on, or leads on under a higher term. The placements at hand become its own orders.
 */
static void lead(struct cluster *c, bool established, u64 now_ms, struct cluster_output *out) {
    const struct member *self = c->members[0];
    struct msg_claim k = {.master = c->id,
                          .term = ++c->term,
                          .seniority = self->hello.seniority,
                          .is_established = established,
                          .is_forced = c->force};
    set_claim(c, &k);
    c->session = c->claim;
    memcpy(c->session_master, c->id, sizeof c->session_master);
    c->session.master = c->session_master;
    u64 born[2] = {self->hello.boot, c->term};
    c->born_in = hash_bytes(born, sizeof born) | 1;
    c->n_born = 0;
    c->index++;
    c->orphan_ms = c->stable_ms = c->outbid_ms = 0;
    c->save = true;
    state_touch(c);
    core_log(out, LOG_INFO, "master self=%s term=%llu established=%u live=%u known=%u", c->id,
             (unsigned long long)k.term, k.is_established, members_n_live(c, now_ms),
             members_n_counted(c));
}

static void follow(struct cluster *c, const struct msg_claim *k, struct cluster_output *out) {
    c->orphan_ms = 0;
    bool news = !same(c->claim_master, k->master);
    if (!news && c->claim.term == k->term && c->claim.is_established == k->is_established) return;
    c->follow_ms = 0;
    if (k->term > c->term) c->save = true;
    c->term = MAX(c->term, k->term);
    if (news)
        core_log(out, LOG_INFO, "master node=%s term=%llu%s", k->master,
                 (unsigned long long)k->term, elect_is_master(c) ? " (this node steps down)" : "");
    set_claim(c, k);
}

static void forget_master(struct cluster *c, u64 now_ms) {
    if (*c->claim_master) {
        c->claim_master[0] = 0;
        c->changed = c->beat_now = true;
    }
    if (!c->orphan_ms) c->orphan_ms = MAX(now_ms, 1);
}

/* A claim that m's last beat vouches for: its own, or that of a master which m hears and this node
 * doesn't (a broken link between the two). */
static bool vouches(const struct cluster *c, const struct member *m, u64 now_ms) {
    const struct msg_claim *k = &m->beat.claim;
    if (!*k->master || same(k->master, c->id)) return false;
    if (same(k->master, m->id)) return true;
    if (!m->beat.hears_master) return false;
    const struct member *master = members_find(c, k->master);
    return !master || (!members_live(c, master, now_ms) && !master->refused);
}

/* More senior than everybody in sight? */
static bool is_candidate(const struct cluster *c, u64 now_ms) {
    const struct member *self = c->members[0];
    for (u32 i = 1; i < c->n_members; i++) {
        const struct member *m = c->members[i];
        if (!members_live(c, m, now_ms)) continue;
        if (m->hello.seniority < self->hello.seniority) return false;
        if (m->hello.seniority == self->hello.seniority && strcmp(m->id, self->id) < 0)
            return false;
    }
    return true;
}

static void run_for_it(struct cluster *c, u64 now_ms, struct cluster_output *out) {
    u64 orphan_ms = now_ms - c->orphan_ms;
    if (now_ms < c->woke_ms + CLUSTER_SETTLE_MS && c->woke_ms) return;
    bool alone = members_n_live(c, now_ms) == 1;
    if (now_ms < c->quiet_ms && (alone || orphan_ms < JOINED_MS)) return;
    u64 wait_ms = is_candidate(c, now_ms) ? (alone ? 0 : CONFIRM_MS) : FALLBACK_MS;
    if (orphan_ms >= wait_ms) lead(c, has_majority(c, now_ms), now_ms, out);
}

/* Does somebody in sight follow another one's higher established claim already? Its own word is on
 * the way. */
static bool is_succeeded(const struct cluster *c, u64 now_ms) {
    for (u32 i = 1; i < c->n_members; i++) {
        const struct member *m = c->members[i];
        const struct msg_claim *k = &m->beat.claim;
        if (k->is_established && k->term > c->claim.term && *k->master && !same(k->master, c->id) &&
            members_live(c, m, now_ms))
            return true;
    }
    return false;
}

/* The present master looks after its claim: it becomes an established one after a while with a
 * majority, and rises above higher terms that others have seen. If its claim is not established,
 * the higher term may well be that of a better one, which shows soon. */
static void keep_leading(struct cluster *c, u64 now_ms, struct cluster_output *out) {
    bool established = c->claim.is_established;
    if (established || !has_majority(c, now_ms))
        c->stable_ms = 0;
    else if (!c->stable_ms)
        c->stable_ms = now_ms;
    if (c->term == c->claim.term)
        c->outbid_ms = 0;
    else if (!c->outbid_ms)
        c->outbid_ms = now_ms;
    bool stable = c->stable_ms && now_ms - c->stable_ms >= STABLE_MS;
    bool sure = established && !is_succeeded(c, now_ms);
    bool outbid = c->outbid_ms && (sure || now_ms - c->outbid_ms >= OUTBID_MS);
    if (stable || outbid) lead(c, established || stable, now_ms, out);
}

/* --force-master: follows first, like everybody, until it has the orders of who leads, so that what
 * runs goes on; then it claims the next term, if more than half of the nodes are in sight. A master
 * that was forced too stays. */
static void take_over(struct cluster *c, u64 now_ms, struct cluster_output *out) {
    bool knows = same(c->session_master, c->claim_master) && c->session.term == c->claim.term;
    if (!knows || c->claim.is_forced || !has_majority(c, now_ms))
        c->follow_ms = 0;
    else if (!c->follow_ms)
        c->follow_ms = now_ms;
    else if (now_ms - c->follow_ms >= FORCE_MS)
        lead(c, true, now_ms, out);
}

void elect_step(struct cluster *c, u64 now_ms, struct cluster_output *out) {
    const struct msg_claim *best = elect_is_master(c) ? &c->claim : NULL;
    bool stale = false; /* somebody leads under a term that is over; it will notice */
    for (u32 i = 1; i < c->n_members; i++) {
        const struct member *m = c->members[i];
        if (!members_live(c, m, now_ms) || !vouches(c, m, now_ms)) continue;
        const struct msg_claim *k = &m->beat.claim;
        if (k->term < c->claim.term)
            stale = true;
        else if (!best || claim_cmp(k, best) > 0)
            best = k;
    }
    if (best == &c->claim) {
        c->follow_ms = 0;
        keep_leading(c, now_ms, out);
    } else if (best) {
        follow(c, best, out);
        if (c->force) take_over(c, now_ms, out);
    } else {
        c->follow_ms = 0;
        forget_master(c, now_ms);
        if (!stale || now_ms - c->orphan_ms >= FALLBACK_MS) run_for_it(c, now_ms, out);
    }
}

void elect_woke(struct cluster *c, u64 now_ms, struct cluster_output *out) {
    core_log(out, LOG_WARN, "this process was stopped for %llu ms",
             (unsigned long long)(now_ms - c->last_ms));
    if (members_n_counted(c) == 1) return;
    c->woke_ms = now_ms;
    c->orphan_ms = 0;
    forget_master(c, now_ms);
}
