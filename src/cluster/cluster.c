#include "cluster/cluster.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/parts.h"

enum { SAVE_SOON_MS = 1000, DEFER_MS = 50 };

struct cluster_action *core_do(struct cluster_output *out, enum cluster_do what) {
    LIST_GROW(out->v, out->n, out->cap);
    struct cluster_action *a = &out->v[out->n++];
    *a = (struct cluster_action){.what = what};
    return a;
}

void core_send(struct cluster_output *out, const char *to, u32 type, const void *msg) {
    core_send_bytes(out, to, type, core_encode(out, type, msg));
}

struct core_bytes core_encode(struct cluster_output *out, u32 type, const void *msg) {
    struct str body = {0};
    wire_encode(msg_table(type), msg, &body);
    struct core_bytes b = {arena_memdup(&out->mem, str_z(&body), body.n), body.n};
    str_deinit(&body);
    return b;
}

void core_send_bytes(struct cluster_output *out, const char *to, u32 type, struct core_bytes b) {
    struct cluster_action *a = core_do(out, DO_SEND);
    a->to = arena_strdup(&out->mem, to);
    a->type = type;
    a->body = b.p;
    a->n = b.n;
}

void core_log(struct cluster_output *out, enum log_level level, const char *fmt, ...) {
    char line[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    struct cluster_action *a = core_do(out, DO_LOG);
    a->level = level;
    a->text = arena_strdup(&out->mem, line);
}

bool core_copy(const struct wire_table *t, struct arena *mem, void *dst, const void *src) {
    struct str bytes = {0};
    struct arena fresh = {0};
    wire_encode(t, src, &bytes);
    bool ok = wire_decode(t, str_z(&bytes), bytes.n, &fresh, dst, NULL);
    if (!ok) {
        arena_reset(&fresh);
        ASSERT(wire_decode(t, "", 0, &fresh, dst, NULL));
    }
    str_deinit(&bytes);
    arena_deinit(mem);
    *mem = fresh;
    return ok;
}

struct cluster *cluster_new(const struct cluster_cfg *cfg, const void *saved, size_t n, u64 now_ms,
                            struct err *e) {
    struct cluster *c = xcalloc(1, sizeof *c);
    ASSERT(str_copy(c->id, sizeof c->id, cfg->id));
    c->timeout_ms = cfg->timeout_ms ? cfg->timeout_ms : 5 * CLUSTER_BEAT_MS;
    c->force = cfg->force_master;
    c->start_ms = c->last_ms = c->beat_ms = now_ms;
    c->claim.master = c->claim_master;
    c->session.master = c->session_master;
    members_init(c, &cfg->hello);
    if (n && !state_load(c, saved, n, now_ms, e)) {
        cluster_free(c);
        return NULL;
    }
    if (cfg->has_peers || c->n_members > 1) c->quiet_ms = now_ms + CLUSTER_SETTLE_MS;
    c->state_dirty = c->look = true;
    return c;
}

void cluster_free(struct cluster *c) {
    if (!c) return;
    events_deinit(c);
    orders_deinit(c);
    shards_deinit(c);
    state_deinit(c);
    members_deinit(c);
    free(c);
}

static void take_propose(struct cluster *c, const struct cluster_input *in, u64 now_ms,
                         struct cluster_output *out) {
    struct arena mem = {0};
    struct err e;
    struct msg_propose p;
    struct msg_proposed d;
    if (in->type == MSG_PROPOSE &&
        wire_decode(msg_table(MSG_PROPOSE), in->body, in->n, &mem, &p, &e))
        orders_handle(c, in->peer, &p, now_ms, out);
    else if (in->type == MSG_PROPOSED &&
             wire_decode(msg_table(MSG_PROPOSED), in->body, in->n, &mem, &d, &e))
        orders_proposed(c, &d, out);
    else
        core_log(out, LOG_WARN, "bad message from=%s: %s", in->peer, e.msg);
    arena_deinit(&mem);
}

static void take_message(struct cluster *c, const struct cluster_input *in, u64 now_ms,
                         struct cluster_output *out) {
    if (same(in->peer, c->id)) return;
    struct member *m = c->from = members_add(c, in->peer, "", now_ms);
    if (!m) return;
    if (in->type == MSG_HELLO)
        members_hello(c, m, in, now_ms, out);
    else if (in->type == MSG_BYE || in->type == MSG_REFUSED)
        members_reason(c, m, in, out);
    else if (m->refused || !m->hello.boot)
        return; /* a stranger, until it says hello */
    else if (in->type == MSG_STATE)
        state_merge(c, in, now_ms, out);
    else if (in->type == MSG_FACTS)
        facts_take(c, m, in, out);
    else if (in->type == MSG_FORGET)
        members_forgotten(c, in, now_ms, out);
    else if (in->type == MSG_PROPOSE || in->type == MSG_PROPOSED)
        take_propose(c, in, now_ms, out);
}

static void take(struct cluster *c, const struct cluster_input *in, u64 now_ms,
                 struct cluster_output *out) {
    struct member *self = c->members[0];
    switch (in->kind) {
    case CLUSTER_TICK: break;
    case CLUSTER_PEER_UP: members_peer_up(c, in, now_ms, out); break;
    case CLUSTER_PEER_DOWN: members_peer_down(c, in, now_ms); break;
    case CLUSTER_MESSAGE:
        if (in->type != MSG_HEARTBEAT)
            take_message(c, in, now_ms, out);
        else if (!same(in->peer, c->id))
            members_beat(c, in, now_ms, out);
        break;
    case CLUSTER_MACHINE:
        self->beat.mem_available_bytes = in->machine.mem_available_bytes;
        self->beat.mem_limit_bytes = in->machine.mem_limit_bytes;
        self->beat.disk_available_bytes = in->machine.disk_available_bytes;
        c->wall_ahead_ms = in->machine.wall_ahead_ms;
        break;
    case CLUSTER_RUNNER: shards_report(c, in->runner); break;
    case CLUSTER_PROPOSE: orders_propose(c, in->propose, now_ms); break;
    case CLUSTER_HELLO: members_set_hello(c, in, out); break;
    case CLUSTER_FACTS: facts_set(c, in->facts); break;
    case CLUSTER_FORGET: members_forget(c, in->peer, now_ms, out); break;
    }
}

static u64 look_ms(const struct cluster *c) {
    return c->full_ms + (c->deferred ? DEFER_MS : CLUSTER_LOOK_MS);
}
static u64 next_ms(const struct cluster *c) {
    return MIN(members_next_ms(c), look_ms(c));
}

/* Whoever asked gets the orders first: what the answer speaks of is then there to be looked at. */
static void put_answers_last(struct cluster_output *out) {
    for (u32 i = 0, n = out->n; n > 0; n--) {
        struct cluster_action a = out->v[i];
        if (a.what != DO_SEND || a.type != MSG_PROPOSED) {
            i++;
            continue;
        }
        memmove(out->v + i, out->v + i + 1, (out->n - i - 1) * sizeof *out->v);
        out->v[out->n - 1] = a;
    }
}

void cluster_step(struct cluster *c, const struct cluster_input *in, u64 now_ms,
                  struct cluster_output *out) {
    arena_reset(&out->mem);
    out->n = out->n_events = 0;
    out->events_lost = false;
    if (now_ms > c->last_ms + c->timeout_ms) elect_woke(c, now_ms, out);
    c->last_ms = now_ms;

    c->routine = false;
    take(c, in, now_ms, out);
    /* In a large cluster most of what comes is another heartbeat that says what the last one said;
     * the next tick is soon enough for it. */
    if (c->routine && now_ms < look_ms(c)) {
        out->save = out->changed = false;
        out->next_ms = next_ms(c);
        return;
    }
    c->full_ms = now_ms;
    c->deferred = false;
    members_step(c, now_ms, out);
    elect_step(c, now_ms, out);
    orders_step(c, now_ms, out);
    shards_step(c, now_ms, out);
    events_step(c, out);
    state_refresh_digest(c);
    facts_step(c, now_ms, out);
    members_send_beats(c, now_ms, out);
    put_answers_last(out);

    if (c->save_soon && now_ms >= c->saved_ms + SAVE_SOON_MS) c->save = true;
    if (c->save) {
        c->saved_ms = now_ms;
        c->save_soon = false;
    }
    out->save = c->save;
    out->changed = c->changed || in->kind == CLUSTER_MACHINE;
    out->next_ms = next_ms(c);
    c->save = c->changed = false;
}

void cluster_output_deinit(struct cluster_output *out) {
    arena_deinit(&out->mem);
    free(out->v);
    free(out->events);
    *out = (struct cluster_output){0};
}

void cluster_member(const struct cluster *c, u32 i, u64 now_ms, struct cluster_member *out) {
    ASSERT(i < c->n_members);
    const struct member *m = c->members[i];
    *out = (struct cluster_member){.id = m->id,
                                   .address = m->address,
                                   .refused = m->refused,
                                   .hello = &m->hello,
                                   .heartbeat = &m->beat,
                                   .facts = &m->facts};
    out->is_drained = state_is_drained(c, m->id);
    out->seen_ms_ago = i == 0 ? 0 : now_ms - (m->seen_ms ? m->seen_ms : m->kept_ms);
    out->state = i == 0                        ? MEMBER_SELF
                 : m->refused                  ? MEMBER_REFUSED
                 : members_live(c, m, now_ms)  ? MEMBER_LIVE
                 : m->hello.boot || m->counted ? MEMBER_LOST
                                               : MEMBER_UNKNOWN;
    out->is_stopped = m->left && out->state == MEMBER_LOST;
}

u32 cluster_n_members(const struct cluster *c) {
    return c->n_members;
}
const char *cluster_master(const struct cluster *c) {
    return c->claim_master;
}
const struct msg_claim *cluster_claim(const struct cluster *c) {
    return &c->claim;
}
const struct msg_claim *cluster_session(const struct cluster *c) {
    return &c->session;
}
u64 cluster_term(const struct cluster *c) {
    return c->term;
}
u64 cluster_index(const struct cluster *c) {
    return c->index;
}
u32 cluster_n_instances(const struct cluster *c) {
    return c->n_entries;
}

const struct msg_runner *cluster_runner(const struct cluster *c, const struct cluster_instance *i,
                                        u32 rank) {
    if (!i->placement->place || rank >= i->n_ranks) return NULL;
    return shards_fact(c, i->ranks[rank].node, i->wanted->id, i->placement->place);
}

/* The instance is as far as the rank that is furthest behind. */
static void judge(const struct cluster *c, struct cluster_instance *i) {
    i->status = INSTANCE_READY;
    for (u32 r = 0; r < i->n_ranks; r++) {
        const struct msg_runner *f = cluster_runner(c, i, r);
        u32 st = f ? f->status : RUNNER_NONE;
        if (st == RUNNER_FAILED) i->text = f->text;
        if (st == RUNNER_FETCHING)
            i->status = INSTANCE_FETCHING;
        else if (st == RUNNER_CONNECTING || st == RUNNER_WARMING)
            i->status = i->status == INSTANCE_READY ? INSTANCE_WARMING : i->status;
        else if (st != RUNNER_READY && i->status != INSTANCE_FETCHING)
            i->status = INSTANCE_LOADING;
    }
}

void cluster_instance(const struct cluster *c, u32 k, struct cluster_instance *i) {
    ASSERT(k < c->n_entries);
    const struct entry *en = c->entries[k];
    *i = (struct cluster_instance){.wanted = &en->w,
                                   .placement = &en->p,
                                   .ranks = en->p.ranks.v,
                                   .n_ranks = (u32)en->p.ranks.n};
    i->text = en->p.reason ? en->p.reason : "";
    if (en->p.gave_up)
        i->status = INSTANCE_FAILED;
    else if (!en->p.place)
        i->status = INSTANCE_WAITING;
    else
        judge(c, i);
}

bool cluster_find_instance(const struct cluster *c, const char *id, struct cluster_instance *out) {
    for (u32 k = 0; k < c->n_entries; k++) {
        if (!same(c->entries[k]->w.id, id)) continue;
        cluster_instance(c, k, out);
        return true;
    }
    return false;
}

bool cluster_was_deleted(const struct cluster *c, const char *id) {
    return state_is_gone(c, id);
}
