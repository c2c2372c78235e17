/* shards.c - this node's own runners: what the orders give it is started, what they don't is
 * stopped, and when all ranks of a placement are loaded, each is told where the others are. */
#include <stdlib.h>
#include <string.h>

#include "cluster/parts.h"

static void local_free(struct local *l) {
    arena_deinit(&l->mem);
    free(l);
}

void shards_deinit(struct cluster *c) {
    for (u32 i = 0; i < c->n_locals; i++) local_free(c->locals[i]);
    free(c->locals);
}

static struct local *find_local(const struct cluster *c, const char *instance, u64 place) {
    for (u32 i = 0; i < c->n_locals; i++) {
        struct local *l = c->locals[i];
        if (l->place == place && same(l->fact.instance, instance)) return l;
    }
    return NULL;
}

const struct msg_runner *shards_fact(const struct cluster *c, const char *node,
                                     const char *instance, u64 place) {
    if (same(node, c->id)) {
        const struct local *l = find_local(c, instance, place);
        return l ? &l->fact : NULL;
    }
    const struct member *m = members_find(c, node);
    if (!m || !members_live(c, m, c->last_ms)) return NULL; /* what it said last is no longer so */
    const struct msg_runner *f = m->beat.runners.v;
    for (u64 i = 0; i < m->beat.runners.n; i++)
        if (f[i].place == place && same(f[i].instance, instance)) return &f[i];
    return NULL;
}

void shards_report(struct cluster *c, const struct msg_runner *r) {
    struct local *l = find_local(c, r->instance, r->place);
    if (!l) return; /* stopped since */
    /* Progress waits for the next regular beat. */
    if (l->fact.status != r->status || l->fact.port != r->port) c->beat_now = true;
    struct msg_runner f = *r;
    f.rank = l->fact.rank;
    bool told = l->fact.status == RUNNER_CONNECTING; /* where the others are; it may not know yet */
    if (told && f.status == RUNNER_LOADED) f.status = RUNNER_CONNECTING;
    if (!core_copy(&MSG_RUNNER_TABLE, &l->mem, &l->fact, &f)) { /* some text is not UTF-8 */
        f.text = f.isa = "";
        core_copy(&MSG_RUNNER_TABLE, &l->mem, &l->fact, &f);
    }
    c->changed = c->look = true;
}

/* The placement that serves, or the one that will take over, as if it were the only one. */
static struct msg_placement duty_of(const struct entry *en, bool next) {
    struct msg_placement p = en->p;
    if (next) {
        p.place = p.next_place;
        p.n_ctx = p.next_ctx;
        p.ranks = p.next_ranks;
    }
    return p;
}

/* Has this node a rank in p? */
static bool my_rank(const struct cluster *c, const struct msg_placement *p, u32 *rank) {
    const struct msg_rank *r = p->ranks.v;
    for (u64 i = 0; p->place && i < p->ranks.n; i++) {
        if (!same(r[i].node, c->id)) continue;
        *rank = (u32)i;
        return true;
    }
    return false;
}

static bool is_ordered(const struct cluster *c, const struct local *l) {
    u32 rank;
    const struct entry *en = state_find(c, l->fact.instance);
    if (!en || !l->place) return false;
    struct msg_placement p = duty_of(en, l->place == en->p.next_place);
    return p.place == l->place && my_rank(c, &p, &rank);
}

static void stop_surplus(struct cluster *c, struct cluster_output *out) {
    for (u32 i = 0; i < c->n_locals; i++) {
        struct local *l = c->locals[i];
        if (is_ordered(c, l)) continue;
        struct cluster_action *a = core_do(out, DO_STOP);
        a->instance = arena_strdup(&out->mem, l->fact.instance);
        a->place = l->place;
        local_free(l);
        c->locals[i--] = c->locals[--c->n_locals];
        c->beat_now = c->changed = c->look = true;
    }
}

static void start(struct cluster *c, const struct entry *en, const struct msg_placement *p,
                  u32 rank, struct cluster_output *out) {
    struct local *l = xcalloc(1, sizeof *l);
    l->place = p->place;
    struct msg_runner f = {
        .instance = en->w.id, .place = p->place, .rank = rank, .status = RUNNER_LOADING};
    core_copy(&MSG_RUNNER_TABLE, &l->mem, &l->fact, &f);
    LIST_GROW(c->locals, c->n_locals, c->locals_cap);
    c->locals[c->n_locals++] = l;
    struct cluster_action *a = core_do(out, DO_START);
    a->instance = en->w.id;
    struct msg_placement *copy = arena_alloc(&out->mem, sizeof *copy);
    *copy = *p; /* what it points to is the entry's */
    a->place = p->place;
    a->wanted = &en->w;
    a->placement = copy;
    a->rank = rank;
    c->beat_now = c->changed = c->look = true;
}

/* "10.0.0.7:52416" and "[fe80::1%2]:52416" without port and brackets. */
static const char *host_of(const char *address, struct arena *a) {
    const char *colon = strrchr(address, ':');
    size_t n = colon ? (size_t)(colon - address) : strlen(address);
    if (n >= 2 && address[0] == '[' && address[n - 1] == ']')
        return arena_printf(a, "%.*s", (int)n - 2, address + 1);
    return arena_printf(a, "%.*s", (int)n, address);
}

/* All ranks are loaded: tells the local one where the others are, once. */
static void connect_when_loaded(struct cluster *c, const struct msg_placement *p, struct local *l,
                                u64 now_ms, struct cluster_output *out) {
    const struct msg_rank *r = p->ranks.v;
    u32 n = (u32)p->ranks.n, k = 0;
    if (n < 2 || l->fact.status != RUNNER_LOADED) return;
    struct msg_peer *peers = arena_array(&out->mem, n, sizeof *peers);
    for (u32 i = 0; i < n; i++) {
        if (i == l->fact.rank) continue;
        const struct member *m = members_find(c, r[i].node);
        const struct msg_runner *f = shards_fact(c, r[i].node, l->fact.instance, p->place);
        if (!m || !members_live(c, m, now_ms) || !*m->address || !f) return;
        if (f->status < RUNNER_LOADED || f->status == RUNNER_FAILED || !f->port) return;
        peers[k++] =
            (struct msg_peer){.rank = i, .host = host_of(m->address, &out->mem), .port = f->port};
    }
    struct cluster_action *a = core_do(out, DO_CONNECT);
    a->instance = l->fact.instance;
    a->place = l->place;
    a->peers = peers;
    a->n_peers = k;
    l->fact.status = RUNNER_CONNECTING;
    c->beat_now = c->changed = c->look = true;
}

void shards_step(struct cluster *c, u64 now_ms, struct cluster_output *out) {
    stop_surplus(c, out);
    for (u32 i = 0; i < 2 * c->n_entries; i++) {
        const struct entry *en = c->entries[i / 2];
        struct msg_placement p = duty_of(en, i % 2);
        u32 rank;
        if (!my_rank(c, &p, &rank)) continue;
        struct local *l = find_local(c, en->w.id, p.place);
        if (!l)
            start(c, en, &p, rank, out);
        else
            connect_when_loaded(c, &p, l, now_ms, out);
    }
}
