/* orders.c - the master's work: it takes proposals, places what is wanted over live workers, and
 * places it again when a node is lost or a shard fails.
 *
 * A lost node costs no try: what is left is used at once. A shard that failed is tried again after
 * a growing pause, without the node that failed it for reasons of its own (a missing or different
 * file, too little memory), and CLUSTER_TRIES_MAX failures in a row end in "gave up", until the set
 * of workers changes or somebody asks for a reload. Half a minute of readiness forgives everything.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "cluster/parts.h"
#include "cluster/plan.h"

enum {
    BACKOFF_MS = 500,
    BACKOFF_MAX_MS = 15000,
    RETRY_MS = 3000,  /* a placement that did not fit is looked at again: memory changes */
    WORKED_MS = 2000, /* ready for so long, a failure is the first of a new row */
    FORGIVE_MS = 30000,
    UNLOAD_MS = 2000, /* idle for so long, one that requests made makes room for others */
    HURRY_MS = 15000, /* that room may take so long to show */
    HURRY_EVERY_MS = 300,
    FREED_MS = 1700,  /* runners that were stopped end, and their nodes measure their memory anew */
    SHOWN_MS = 60000, /* an instance that requests made and that was given up */
    LOST_MAX = 16,    /* nodes an instance had to leave that are remembered */
};

/* Live workers with their boot numbers: changes when one comes, goes or restarts. */
static u64 workers_hash(const struct cluster *c, u64 now_ms) {
    u64 sum = 1; /* order does not matter, so add */
    for (u32 i = 0; i < c->n_members; i++) {
        const struct member *m = c->members[i];
        if (m->hello.is_worker && members_live(c, m, now_ms))
            sum += m->hash ^ (m->hello.boot + state_is_drained(c, m->id));
    }
    return sum;
}

static bool avoids(const struct msg_placement *p, const char *node) {
    const struct msg_string *a = p->avoid.v;
    for (u64 i = 0; i < p->avoid.n; i++)
        if (same(a[i].s, node)) return true;
    return false;
}

/* What a node can give now: not more than its limit less what was ordered there, nor than what is
 * available less what was ordered and is not loaded yet. (Loaded weights are mapped files and still
 * count as available.) */
static void add_ordered(const struct cluster *c, const struct member *m, const struct entry *en,
                        u64 place, const struct wire_list *ranks, u64 *ordered, u64 *pending) {
    const struct msg_rank *r = ranks->v;
    for (u64 k = 0; k < ranks->n; k++) {
        if (!same(r[k].node, m->id)) continue;
        const struct msg_runner *f = shards_fact(c, m->id, en->w.id, place);
        *ordered += r[k].memory_bytes;
        if (!f || f->status < RUNNER_LOADED) *pending += r[k].memory_bytes;
    }
}

/* What lost its placement a moment ago is placed again at once, and its runners' weights are about
 * to be free where they were. */
static u64 about_to_be_free(const struct cluster *c, const struct member *m,
                            const struct entry *en) {
    const struct msg_rank *r = en->freed.v;
    u64 sum = 0;
    for (u64 i = 0; i < en->freed.n && c->last_ms < en->freed_ms; i++)
        if (same(r[i].node, m->id)) sum += r[i].weights_bytes;
    return sum;
}

u64 orders_budget(const struct cluster *c, const struct member *m) {
    u64 ordered = 0, pending = 0, freed = 0;
    for (u32 i = 0; i < c->n_entries; i++) {
        const struct entry *en = c->entries[i];
        freed += about_to_be_free(c, m, en);
        if (en->leaving) {
            u64 loaded = 0, loading = 0;
            add_ordered(c, m, en, en->p.place, &en->p.ranks, &loaded, &loading);
            freed += loaded - loading;
            continue;
        }
        if (en->p.place) add_ordered(c, m, en, en->p.place, &en->p.ranks, &ordered, &pending);
        if (en->p.next_place)
            add_ordered(c, m, en, en->p.next_place, &en->p.next_ranks, &ordered, &pending);
    }
    u64 limit = m->beat.mem_limit_bytes, avail = m->beat.mem_available_bytes + freed;
    return MIN(limit > ordered ? limit - ordered : 0, avail > pending ? avail - pending : 0);
}

static bool on_drained(const struct cluster *c, const struct entry *en) {
    const struct msg_rank *r = en->p.ranks.v;
    for (u64 i = 0; en->p.place && i < en->p.ranks.n; i++)
        if (state_is_drained(c, r[i].node)) return true;
    return false;
}

static bool try_wish(const struct cluster *c, const struct msg_wanted *w, const struct entry *en,
                     u64 now_ms, struct arena *tmp, struct plan *s, struct place_plan *best,
                     struct err *e) {
    return plan_ask(c, w, &en->p, now_ms, tmp, s, e) && plan_best(s, w, tmp, best, e);
}

/* A layout by hand holds as long as its nodes are there; a number of nodes, and a sharding, as long
 * as there are so many. When one is lost after it has run, or is to be left, the others take over
 * as they can: better elsewhere than not at all. */
static bool find(const struct cluster *c, const struct entry *en, u64 now_ms, struct arena *tmp,
                 struct plan *s, struct place_plan *best, struct err *e) {
    const struct msg_wanted *w = &en->w;
    if (try_wish(c, w, en, now_ms, tmp, s, best, e)) return true;
    bool named = w->wish.ranks.n || w->wish.nodes.n;
    bool left = en->p.lost.n || en->p.tries || on_drained(c, en);
    if (!(named || left) || !en->workers || !e || e->code != ERR_BUSY) return false;
    struct msg_wanted *any = (struct msg_wanted *)arena_memdup(tmp, w, sizeof *w);
    any->wish.ranks = any->wish.nodes = (struct wire_list){0};
    any->min_nodes = 0;
    if (try_wish(c, any, en, now_ms, tmp, s, best, e)) return true;
    any->wish.sharding = SHARDING_AUTO;
    return e->code == ERR_BUSY && try_wish(c, any, en, now_ms, tmp, s, best, e);
}

static bool plan(struct cluster *c, struct entry *en, bool next, u64 now_ms,
                 struct cluster_output *out, struct err *e) {
    struct arena tmp = {0};
    struct plan s;
    struct place_plan best;
    struct msg_placement p = en->p;
    bool ok = find(c, en, now_ms, &tmp, &s, &best, e);
    if (!ok) plan_blame_drained(s.n_drained, e);
    struct wire_list ranks = {ok ? plan_ranks(&s, &best, &tmp) : NULL, ok ? best.n_ranks : 0};
    u64 seed[3] = {c->members[0]->hello.boot, ++c->n_places, c->term};
    if (ok && next) {
        p.next_place = hash_bytes(seed, sizeof seed) | 1;
        p.next_ctx = s.q.n_ctx;
        p.next_ranks = ranks;
        state_place(c, en, &p);
    } else if (ok) {
        p.place = hash_bytes(seed, sizeof seed) | 1;
        p.ranks = ranks;
        p.n_ctx = s.q.n_ctx;
        p.reloads = en->w.reloads;
        p.reason = "";
        p.gave_up = 0;
        state_place(c, en, &p);
        core_log(out, LOG_INFO, "instance placed instance=%s model=%s ranks=%u ctx=%u try=%u",
                 en->w.id, en->w.model, best.n_ranks, p.n_ctx, p.tries);
    }
    arena_deinit(&tmp);
    return ok;
}

static bool place(struct cluster *c, struct entry *en, u64 now_ms, struct cluster_output *out,
                  struct err *e) {
    return plan(c, en, false, now_ms, out, e);
}

/* Would it fit, as things are? */
static bool could_place(const struct cluster *c, const struct entry *en, u64 now_ms) {
    struct arena tmp = {0};
    struct plan s;
    struct place_plan best;
    struct err e = {0};
    bool ok = find(c, en, now_ms, &tmp, &s, &best, &e);
    arena_deinit(&tmp);
    return ok;
}

bool orders_move(struct cluster *c, struct entry *en, u64 now_ms, struct cluster_output *out,
                 struct err *e) {
    return plan(c, en, true, now_ms, out, e);
}

bool orders_fits(const struct cluster *c, const struct msg_placement *p) {
    const struct msg_rank *r = p->ranks.v;
    for (u64 i = 0; i < p->ranks.n; i++) {
        const struct member *m = members_find(c, r[i].node);
        u64 ordered = 0, pending = 0; /* it is loaded there: what is available does not count */
        for (u32 k = 0; k < c->n_entries; k++) {
            const struct entry *en = c->entries[k];
            if (en->p.place) add_ordered(c, m, en, en->p.place, &en->p.ranks, &ordered, &pending);
            if (en->p.next_place)
                add_ordered(c, m, en, en->p.next_place, &en->p.next_ranks, &ordered, &pending);
        }
        if (!size_add(ordered, r[i].memory_bytes, &ordered) || ordered > m->beat.mem_limit_bytes)
            return false;
    }
    return true;
}

static void order(struct cluster *c) {
    c->index++;
    state_touch(c);
}

/* Of ranks that had been ready; others had not taken their memory yet. */
static void note_freed(const struct cluster *c, struct entry *en) {
    const struct msg_rank *from = en->p.ranks.v;
    arena_reset(&en->freed_mem);
    struct msg_rank *to = arena_array(&en->freed_mem, en->p.ranks.n + 1, sizeof *to);
    u64 n = 0;
    for (u64 i = 0; i < en->p.ranks.n; i++) {
        const struct msg_runner *f = shards_fact(c, from[i].node, en->w.id, en->p.place);
        if (!f || !f->weights_bytes) continue;
        to[n++] = (struct msg_rank){.node = arena_strdup(&en->freed_mem, from[i].node),
                                    .weights_bytes = f->weights_bytes};
    }
    en->freed = (struct wire_list){to, n};
    en->freed_ms = c->last_ms + FREED_MS;
}

/* Takes the placement away; the reason is shown until there is another one. */
static void unplace(struct cluster *c, struct entry *en, const char *reason, u32 tries,
                    bool gave_up, const char *avoid, struct cluster_output *out) {
    struct msg_placement p = en->p;
    struct arena tmp = {0};
    note_freed(c, en);
    struct msg_string *list = arena_array(&tmp, p.avoid.n + 1, sizeof *list);
    if (p.avoid.n) memcpy(list, p.avoid.v, p.avoid.n * sizeof *list);
    if (avoid) {
        list[p.avoid.n].s = avoid;
        p.avoid.n++;
    }
    p.avoid.v = list;
    p.place = p.next_place = 0;
    p.ranks = p.next_ranks = (struct wire_list){0};
    p.reason = reason;
    p.tries = tries;
    p.gave_up = gave_up;
    state_place(c, en, &p);
    en->ready_ms = 0;
    order(c);
    core_log(out, gave_up ? LOG_ERROR : LOG_WARN, "instance %s instance=%s model=%s tries=%u: %s",
             gave_up ? "given up" : "unplaced", en->w.id, en->w.model, tries, en->p.reason);
    arena_deinit(&tmp);
}

static void forgive(struct cluster *c, struct entry *en) {
    struct msg_placement p = en->p;
    p.tries = p.gave_up = 0;
    p.avoid = (struct wire_list){0};
    p.reloads = en->w.reloads;
    state_place(c, en, &p);
    order(c);
}

static const char *name_of(const struct cluster *c, const char *node) {
    const struct member *m = members_find(c, node);
    return m && m->hello.name && *m->hello.name ? m->hello.name : node;
}

/* Is there a live worker besides `node` that has not failed this instance yet? */
static bool another_worker(const struct cluster *c, const struct entry *en, const char *node,
                           u64 now_ms) {
    for (u32 i = 0; i < c->n_members; i++) {
        const struct member *m = c->members[i];
        if (m->hello.is_worker && members_live(c, m, now_ms) && !same(m->id, node) &&
            !avoids(&en->p, m->id))
            return true;
    }
    return false;
}

/* Reasons that trying again does not change: the file is not there, or no model of ours. */
static bool is_permanent(u32 code) {
    return code == ERR_NOT_FOUND || code == ERR_FORMAT || code == ERR_UNSUPPORTED;
}

static void shard_failed(struct cluster *c, struct entry *en, const struct msg_rank *r,
                         const struct msg_runner *f, u64 now_ms, struct cluster_output *out) {
    char why[1200];
    bool worked = en->ready_ms && now_ms - en->ready_ms >= WORKED_MS;
    u32 tries = worked ? 1 : en->p.tries + 1;
    /* What worked is started again at once: answers wait for it. */
    u64 pause = worked ? 0 : MIN((u64)BACKOFF_MS << MIN(tries - 1, 10), (u64)BACKOFF_MAX_MS);
    bool its_own = f->code != ERR_NET && f->code != ERR_BUSY && f->code != ERR_NONE &&
                   f->code != ERR_CANCELLED; /* another rank was stopped */
    snprintf(why, sizeof why, "%s: %s", name_of(c, r->node), f->text);
    en->retry_ms = now_ms + pause;
    bool hopeless = is_permanent(f->code) && !another_worker(c, en, r->node, now_ms);
    unplace(c, en, why, tries, hopeless || tries >= CLUSTER_TRIES_MAX, its_own ? r->node : NULL,
            out);
}

/* So that it is used again when it is back. */
static void note_lost(struct cluster *c, struct entry *en, const char *node) {
    struct arena tmp = {0};
    struct msg_placement p = en->p;
    struct msg_string *list = arena_array(&tmp, p.lost.n + 1, sizeof *list);
    const struct msg_string *old = p.lost.v;
    u64 n = 0;
    for (u64 i = p.lost.n < LOST_MAX ? 0 : 1; i < p.lost.n; i++)
        if (!same(old[i].s, node)) list[n++] = old[i];
    list[n++].s = arena_strdup(&tmp, node);
    p.lost = (struct wire_list){list, n};
    state_place(c, en, &p);
    en->n_losses++;
    arena_deinit(&tmp);
}

/* True when a node of the placement is lost; it is over then. */
static bool has_lost_node(struct cluster *c, struct entry *en, u64 now_ms,
                          struct cluster_output *out) {
    const struct msg_rank *r = en->p.ranks.v;
    for (u64 i = 0; i < en->p.ranks.n; i++) {
        const struct member *m = members_find(c, r[i].node);
        if (m && members_live(c, m, now_ms)) continue;
        char why[200];
        snprintf(why, sizeof why, "node %s was lost", name_of(c, r[i].node));
        note_lost(c, en, r[i].node);
        if (moves_can_promote(c, en, now_ms))
            moves_promote(c, en, false);
        else
            unplace(c, en, why, en->p.tries, false, NULL, out);
        return true;
    }
    return false;
}

/* Watches a placement; takes it away when it can't work any more. That a node was lost explains
 * what the other ranks report of it, so it comes first. */
static void watch(struct cluster *c, struct entry *en, u64 now_ms, struct cluster_output *out) {
    if (has_lost_node(c, en, now_ms, out)) return;
    const struct msg_rank *r = en->p.ranks.v;
    u64 n_ready = 0;
    for (u64 i = 0; i < en->p.ranks.n; i++) {
        const struct msg_runner *f = shards_fact(c, r[i].node, en->w.id, en->p.place);
        if (f && f->status == RUNNER_FAILED) {
            shard_failed(c, en, &r[i], f, now_ms, out);
            return;
        }
        n_ready += f && f->status == RUNNER_READY;
        if (f && (f->n_active || f->n_served != en->n_served) && i == 0) {
            en->n_served = f->n_served;
            en->used_ms = now_ms;
        }
    }
    if (n_ready < en->p.ranks.n) {
        en->ready_ms = 0;
        return;
    }
    if (!en->ready_ms) {
        en->ready_ms = now_ms;
        core_log(out, LOG_INFO, "instance ready instance=%s model=%s ranks=%llu", en->w.id,
                 en->w.model, (unsigned long long)n_ready);
    }
    if (now_ms - en->ready_ms >= FORGIVE_MS && (en->p.tries || en->p.avoid.n)) forgive(c, en);
}

/* Without the nodes that failed it there is no way: they get another chance. */
static void stop_avoiding(struct cluster *c, struct entry *en) {
    struct msg_placement p = en->p;
    p.avoid = (struct wire_list){0};
    state_place(c, en, &p);
    order(c);
}

/* The one of those that requests made which was idle for longest. */
static struct entry *idlest(const struct cluster *c, const struct entry *but, u64 now_ms) {
    struct entry *best = NULL;
    for (u32 i = 0; i < c->n_entries; i++) {
        struct entry *en = c->entries[i];
        u64 used_ms = MAX(en->used_ms, en->ready_ms);
        if (en == but || !en->w.is_automatic || !en->ready_ms || en->leaving || en->p.next_place ||
            now_ms - used_ms < UNLOAD_MS)
            continue;
        if (!best || used_ms < MAX(best->used_ms, best->ready_ms)) best = en;
    }
    return best;
}

/* Memory is short: instances that requests made and that are idle go, as few as make en fit, those
 * that were idle for longest first. The next request for one of them brings it back. False when it
 * would not help. en's own placement follows when their memory is seen to be free. */
static bool make_room(struct cluster *c, struct entry *en, u64 now_ms, struct cluster_output *out) {
    struct entry *leaving;
    bool fits = false;
    while (!fits && (leaving = idlest(c, en, now_ms))) {
        leaving->leaving = true;
        fits = could_place(c, en, now_ms);
    }
    for (u32 i = 0; i < c->n_entries; i++) {
        struct entry *old = c->entries[i];
        if (!old->leaving) continue;
        old->leaving = false;
        if (!fits) continue;
        core_log(out, LOG_INFO, "instance unloaded instance=%s model=%s: idle, %s needs its memory",
                 old->w.id, old->w.model, en->w.model);
        state_unwant(c, old->w.id);
        order(c);
        i--;
    }
    if (fits) {
        en->hurry_ms = now_ms + HURRY_MS;
        en->retry_ms = now_ms + HURRY_EVERY_MS;
    }
    return fits;
}

static void explain(struct cluster *c, struct entry *en, const char *reason) {
    struct msg_placement p = en->p;
    p.reason = reason;
    state_place(c, en, &p);
    order(c);
}

static void try_place(struct cluster *c, struct entry *en, u64 now_ms, struct cluster_output *out) {
    struct err e = {0};
    u64 workers = workers_hash(c, now_ms);
    if (workers != en->workers) {
        if (en->p.gave_up || en->p.avoid.n) forgive(c, en);
        en->retry_ms = MIN(en->retry_ms, now_ms);
        en->workers = workers;
    }
    if (en->p.gave_up || now_ms < en->retry_ms) return;
    if (place(c, en, now_ms, out, &e)) {
        order(c);
        return;
    }
    if (e.code == ERR_MEMORY && now_ms < en->freed_ms) { /* its own runners make room */
        en->retry_ms = now_ms + HURRY_EVERY_MS;
        return;
    }
    if (e.code == ERR_MEMORY && make_room(c, en, now_ms, out)) return;
    en->retry_ms = now_ms + (now_ms < en->hurry_ms ? (u64)HURRY_EVERY_MS : (u64)RETRY_MS);
    if (now_ms < en->hurry_ms) return;
    if (en->p.avoid.n) { /* why it failed there says more than that nobody else is left */
        en->retry_ms = now_ms + BACKOFF_MAX_MS;
        stop_avoiding(c, en);
        return;
    }
    if (en->p.reason && same(en->p.reason, e.msg)) return;
    explain(c, en, e.msg);
    core_log(out, LOG_WARN, "instance waits instance=%s model=%s: %s", en->w.id, en->w.model,
             e.msg);
}

/* After a full restart the nodes that were there before get time to come back. */
static bool is_settling(const struct cluster *c, u64 now_ms) {
    return now_ms < c->start_ms + CLUSTER_SETTLE_MS &&
           members_n_live(c, now_ms) < members_n_counted(c);
}

/* Two parts of a cluster that made the same instance for their requests need only one when they
 * meet. */
static void drop_twins(struct cluster *c, struct cluster_output *out) {
    for (u32 i = 1; i < c->n_entries; i++) {
        const struct entry *b = c->entries[i];
        for (u32 k = 0; k < i && b->w.is_automatic; k++) {
            const struct entry *a = c->entries[k];
            if (!a->w.is_automatic || a->p.gave_up || !same(a->w.model, b->w.model)) continue;
            core_log(out, LOG_INFO, "instance dropped instance=%s model=%s twin=%s", b->w.id,
                     b->w.model, a->w.id);
            state_unwant(c, b->w.id);
            order(c);
            i--;
            break;
        }
    }
}

static void retry_proposals(struct cluster *c, u64 now_ms, struct cluster_output *out);

void orders_step(struct cluster *c, u64 now_ms, struct cluster_output *out) {
    retry_proposals(c, now_ms, out);
    if (!elect_is_master(c)) return;
    drop_twins(c, out);
    for (u32 i = 0; i < c->n_entries; i++) {
        struct entry *en = c->entries[i];
        if (en->restored && is_settling(c, now_ms)) continue;
        state_bear(c, en); /* the master that took it died before it could tell */
        if (en->w.is_automatic && en->p.gave_up && now_ms >= en->retry_ms + SHOWN_MS) {
            state_unwant(c, en->w.id); /* its requests have had their error */
            order(c);
            i--;
            continue;
        }
        if (en->w.reloads > en->p.reloads) {
            if (en->p.place) unplace(c, en, "reloading", 0, false, NULL, out);
            en->retry_ms = 0;
            forgive(c, en);
        }
        if (en->p.place) watch(c, en, now_ms, out);
        if (en->p.place) moves_step(c, en, now_ms, out);
        if (!en->p.place) try_place(c, en, now_ms, out);
    }
}

/* Requests share one instance of a model. One that was given up makes place for the new try. */
static const char *same_automatic(struct cluster *c, const struct msg_wanted *w) {
    for (u32 i = 0; i < c->n_entries; i++) {
        const struct entry *en = c->entries[i];
        if (!en->w.is_automatic || !same(en->w.model, w->model)) continue;
        if (!en->p.gave_up) return en->w.id;
        state_unwant(c, en->w.id);
        order(c);
        i--;
    }
    return NULL;
}

static bool same_layout(const struct wire_list *a, const struct wire_list *b) {
    const struct msg_rank *x = a->v, *y = b->v;
    if (a->n != b->n) return false;
    for (u64 i = 0; i < a->n; i++)
        if (!same(x[i].node, y[i].node) || x[i].layer_first != y[i].layer_first ||
            x[i].layer_end != y[i].layer_end || memcmp(&x[i].slice, &y[i].slice, sizeof x->slice))
            return false;
    return true;
}

/* Ids may come from clients: the proposal came twice, the client repeats itself, or it wants
 * something else under the id of what there is. */
static bool is_repeated(const struct msg_wanted *old, const struct msg_wanted *w, struct err *e) {
    bool twice = old->key.n == w->key.n && (!w->key.n || !memcmp(old->key.p, w->key.p, w->key.n));
    bool alike = same(old->model, w->model) && old->n_ctx == w->n_ctx &&
                 old->kv_type == w->kv_type && old->act_bits == w->act_bits &&
                 old->wish.n_batch == w->wish.n_batch &&
                 same_layout(&old->wish.ranks, &w->wish.ranks);
    if (twice || alike) return true;
    return err_set(e, ERR_ARG,
                   "there is another instance %s already: delete it first, or leave "
                   "its id out",
                   w->id);
}

/* A new instance is wanted only if it can be placed now: who asks learns at once. */
static bool want(struct cluster *c, const struct msg_wanted *w, const char **instance, u64 now_ms,
                 struct cluster_output *out, struct err *e) {
    *instance = w->id;
    const struct entry *old = state_find(c, w->id);
    if (old) return is_repeated(&old->w, w, e);
    if (state_is_gone(c, w->id))
        return err_set(e, ERR_NOT_FOUND,
                       "instance %s was deleted, and its id is not used again: leave the id out",
                       w->id);
    const char *twin = w->is_automatic ? same_automatic(c, w) : NULL;
    if (twin) {
        *instance = twin;
        return true;
    }
    if (c->n_entries >= CLUSTER_INSTANCES_MAX)
        return err_set(e, ERR_LIMIT, "there are %u instances already, the limit", c->n_entries);
    struct entry *en = state_want(c, w);
    if (!en) return err_set(e, ERR_FORMAT, "the description of model %s makes no sense", w->model);
    bool ok = place(c, en, now_ms, out, e);
    if (!ok && e->code == ERR_MEMORY && make_room(c, en, now_ms, out)) {
        explain(c, en, "waits for idle models to be unloaded");
    } else if (!ok) {
        err_wrap(e, "model %s can't be placed", w->model);
        state_drop(c, en);
        return false;
    }
    en->workers = workers_hash(c, now_ms);
    state_bear(c, en);
    order(c);
    return true;
}

/* A node by its id, or by its name if that is nobody else's too. */
static const struct member *named(const struct cluster *c, const char *text, struct err *e) {
    const struct member *found = members_find(c, text);
    u32 n = 0;
    for (u32 i = 0; !found && i < c->n_members; i++)
        n += c->members[i]->hello.name && same(c->members[i]->hello.name, text);
    for (u32 i = 0; n == 1 && !found && i < c->n_members; i++)
        if (same(c->members[i]->hello.name, text)) found = c->members[i];
    if (n > 1)
        err_set(e, ERR_ARG, "%u nodes are called %s: say the id of one (skein nodes --json)", n,
                text);
    else if (!found)
        err_set(e, ERR_NOT_FOUND, "no node %s is known: skein nodes lists them", text);
    return found;
}

static bool drain(struct cluster *c, const struct msg_propose *p, const char **node,
                  struct cluster_output *out, struct err *e) {
    bool on = p->kind == PROPOSE_DRAIN;
    const struct member *m = named(c, p->node, e);
    *node = p->node;
    if (!m) return false;
    *node = m->id;
    if (!state_drain(c, m->id, on)) return true;
    core_log(out, LOG_INFO, "node %s node=%s name=%s", on ? "drained" : "undrained", m->id,
             m->hello.name);
    order(c);
    for (u32 i = 0; i < c->n_entries; i++) c->entries[i]->move_ms = 0;
    return true;
}

static bool carry_out(struct cluster *c, const struct msg_propose *p, const char **instance,
                      u64 now_ms, struct cluster_output *out, struct err *e) {
    struct entry *en = state_find(c, p->wanted.id);
    if (p->kind == PROPOSE_DRAIN || p->kind == PROPOSE_UNDRAIN)
        return drain(c, p, instance, out, e);
    if (p->kind == PROPOSE_WANT) return want(c, &p->wanted, instance, now_ms, out, e);
    *instance = p->wanted.id;
    if (p->kind == PROPOSE_UNWANT && state_is_gone(c, p->wanted.id)) return true;
    if (!en) return err_set(e, ERR_NOT_FOUND, "no instance %s", p->wanted.id);
    if (p->kind == PROPOSE_UNWANT) {
        core_log(out, LOG_INFO, "instance deleted instance=%s model=%s", en->w.id, en->w.model);
        state_unwant(c, p->wanted.id);
    } else if (p->kind == PROPOSE_RELOAD) {
        en->w.reloads++;
        c->save = true;
    } else {
        return err_set(e, ERR_UNSUPPORTED, "proposals of kind %u are not known here", p->kind);
    }
    order(c);
    return true;
}

void orders_handle(struct cluster *c, const char *from, const struct msg_propose *p, u64 now_ms,
                   struct cluster_output *out) {
    if (!elect_is_master(c)) return; /* the asker repeats it to the right one */
    struct err e = {0};
    const char *instance = "";
    struct msg_proposed d = {.id = p->id};
    if (!carry_out(c, p, &instance, now_ms, out, &e)) {
        d.code = e.code;
        d.text = e.msg;
    }
    d.instance = instance;
    if (same(from, c->id))
        orders_proposed(c, &d, out);
    else
        core_send(out, from, MSG_PROPOSED, &d);
}

static void drop_pending(struct cluster *c, u32 i) {
    str_deinit(&c->pending[i].body);
    c->pending[i] = c->pending[--c->n_pending];
}

/* What the master agreed to is kept here too at once: it survives should the master die right now.
 */
static void remember(struct cluster *c, const struct pending *p, const char *instance) {
    struct arena mem = {0};
    struct msg_propose m;
    ASSERT(wire_decode(msg_table(MSG_PROPOSE), p->body.p, p->body.n, &mem, &m, NULL));
    if (m.kind == PROPOSE_WANT && same(m.wanted.id, instance)) state_want(c, &m.wanted);
    if (m.kind == PROPOSE_UNWANT) state_unwant(c, m.wanted.id);
    arena_deinit(&mem);
}

void orders_proposed(struct cluster *c, const struct msg_proposed *d, struct cluster_output *out) {
    for (u32 i = 0; i < c->n_pending; i++) {
        if (c->pending[i].id != d->id) continue;
        if (!d->code) remember(c, &c->pending[i], d->instance);
        drop_pending(c, i);
        struct cluster_action *a = core_do(out, DO_ANSWER);
        a->propose_id = d->id;
        a->instance = arena_strdup(&out->mem, d->instance);
        struct err *e = arena_alloc(&out->mem, sizeof *e);
        if (d->code) err_set(e, MIN(d->code, (u32)ERR_N - 1), "%s", d->text);
        a->answer = e;
        return;
    }
}

void orders_propose(struct cluster *c, const struct msg_propose *p, u64 now_ms) {
    LIST_GROW(c->pending, c->n_pending, c->pending_cap);
    struct pending *n = &c->pending[c->n_pending++];
    *n = (struct pending){.id = p->id, .deadline_ms = now_ms + CLUSTER_PROPOSE_MS};
    wire_encode(msg_table(MSG_PROPOSE), p, &n->body);
}

static void hand_over(struct cluster *c, struct pending *p, u64 now_ms,
                      struct cluster_output *out) {
    struct arena mem = {0};
    struct msg_propose m;
    if (!elect_is_master(c)) {
        struct cluster_action *a = core_do(out, DO_SEND);
        a->to = arena_strdup(&out->mem, c->claim_master);
        a->type = MSG_PROPOSE;
        a->body = arena_memdup(&out->mem, p->body.p, p->body.n);
        a->n = p->body.n;
        p->sent_ms = now_ms;
    } else if (wire_decode(msg_table(MSG_PROPOSE), p->body.p, p->body.n, &mem, &m, NULL)) {
        orders_handle(c, c->id, &m, now_ms, out);
    } else {
        orders_proposed(
            c,
            &(struct msg_proposed){.id = p->id,
                                   .code = ERR_FORMAT,
                                   .instance = "",
                                   .text = "the proposal holds a text that is not UTF-8"},
            out);
    }
    arena_deinit(&mem);
}

static void retry_proposals(struct cluster *c, u64 now_ms, struct cluster_output *out) {
    for (u32 i = c->n_pending; i-- > 0;) {
        struct pending *p = &c->pending[i];
        bool due = !p->sent_ms || now_ms - p->sent_ms >= CLUSTER_BEAT_MS;
        if (now_ms >= p->deadline_ms) {
            orders_proposed(
                c,
                &(struct msg_proposed){.id = p->id,
                                       .code = ERR_BUSY,
                                       .instance = "",
                                       .text = "no master answered: the cluster is not whole"},
                out);
        } else if (due && *c->claim_master) {
            hand_over(c, p, now_ms, out);
        }
    }
}

void orders_deinit(struct cluster *c) {
    while (c->n_pending) drop_pending(c, c->n_pending - 1);
    free(c->pending);
}
