/* sim_check.c - what the simulated nodes think, and whether that is as it must be. */
#include <stdio.h>
#include <string.h>

#include "sim_impl.h"

static bool in_set(const struct sim *s, u64 set, u32 i) {
    bool member = s->cfg.nodes > 64 || set >> i & 1;
    return member && s->nodes[i].cluster && !s->nodes[i].paused;
}

u32 sim_masters(const struct sim *s, u64 nodes) {
    u32 n = 0;
    for (u32 i = 0; i < s->cfg.nodes; i++)
        n +=
            in_set(s, nodes, i) && strcmp(cluster_master(s->nodes[i].cluster), s->nodes[i].id) == 0;
    return n;
}

const char *sim_master(const struct sim *s, u32 node) {
    return cluster_master(s->nodes[node].cluster);
}

/* What a node shows of its instances, as one text. */
static void describe(const struct sim *s, u32 node, struct str *out) {
    const struct cluster *c = s->nodes[node].cluster;
    str_addf(out, "master %s;", cluster_master(c));
    for (u32 i = 0; i < cluster_n_instances(c); i++) {
        struct cluster_instance in;
        cluster_instance(c, i, &in);
        str_addf(out, " %s@%llx", in.wanted->id, (unsigned long long)in.placement->place);
    }
}

bool sim_agree(const struct sim *s, u64 nodes) {
    struct str first = {0}, other = {0};
    bool same = true;
    for (u32 i = 0; i < s->cfg.nodes && same; i++) {
        if (!in_set(s, nodes, i)) continue;
        str_clear(&other);
        describe(s, i, first.n ? &other : &first);
        same = other.n == 0 || strcmp(first.p, other.p) == 0;
        u32 master = sim_by_id(s, cluster_master(s->nodes[i].cluster));
        same = same && master != UINT32_MAX && in_set(s, nodes, master);
    }
    str_deinit(&first);
    str_deinit(&other);
    return same;
}

u32 sim_n_instances(const struct sim *s, u32 node) {
    return cluster_n_instances(s->nodes[node].cluster);
}

u32 sim_ready(const struct sim *s, u32 node) {
    const struct cluster *c = s->nodes[node].cluster;
    u32 n = 0;
    for (u32 i = 0; i < cluster_n_instances(c); i++) {
        struct cluster_instance in;
        cluster_instance(c, i, &in);
        n += in.status == INSTANCE_READY;
    }
    return n;
}

u32 sim_n_members(const struct sim *s, u32 node, enum member_state state) {
    const struct cluster *c = s->nodes[node].cluster;
    u32 n = 0;
    for (u32 i = 0; i < cluster_n_members(c); i++) {
        struct cluster_member m;
        cluster_member(c, i, sim_local_ms(s, &s->nodes[node]), &m);
        n += m.state == state;
    }
    return n;
}

static bool is_master(const struct sim *s, u32 i) {
    const struct node *n = &s->nodes[i];
    return n->cluster && !n->paused && strcmp(cluster_master(n->cluster), n->id) == 0;
}

bool sim_parts_have_masters(const struct sim *s) {
    for (u32 i = 0; i < s->cfg.nodes; i++) {
        const struct node *n = &s->nodes[i];
        if (!n->cluster) continue;
        u32 k = sim_by_id(s, cluster_master(n->cluster));
        if (k == UINT32_MAX || s->nodes[k].part != n->part || !is_master(s, k)) return false;
        for (k = 0; k < i; k++) { /* all of the part follow the same one */
            const struct node *m = &s->nodes[k];
            if (m->cluster && m->part == n->part &&
                strcmp(cluster_master(m->cluster), cluster_master(n->cluster)) != 0)
                return false;
        }
    }
    return true;
}

u32 sim_n_live(const struct sim *s, u32 node) {
    return s->nodes[node].cluster ? 1 + sim_n_members(s, node, MEMBER_LIVE) : 0;
}

struct sim_traffic sim_traffic(const struct sim *s) {
    struct sim_traffic t = {0};
    for (u32 i = 0; i < s->cfg.nodes; i++) {
        t.messages += s->nodes[i].n_sent;
        t.bytes += s->nodes[i].n_sent_bytes;
    }
    return t;
}

bool sim_has(const struct sim *s, u32 node, u32 instance) {
    struct cluster_instance in;
    const struct node *n = &s->nodes[node];
    return cluster_find_instance(n->cluster, s->wishes[instance].id, &in);
}

static bool is_one(const struct msg_claim *k, const char *master, u64 term) {
    return k->term == term && strcmp(k->master, master) == 0;
}

/* Runners have orders, orders fit the memory, and come from the master that is followed, in order.
 */
void sim_check_node(struct sim *s, u32 node) {
    struct node *n = &s->nodes[node];
    const struct cluster *c = n->cluster;
    const struct msg_claim *claim = cluster_claim(c), *session = cluster_session(c);
    u64 index = cluster_index(c);
    if (claim->term < n->last_term) sim_broke(s, "the term of the followed claim went back", n->id);
    if (is_one(session, n->last_session, n->last_session_term)) {
        if (index < n->last_index) sim_broke(s, "orders were taken out of order", n->id);
    } else if (!is_one(session, claim->master, claim->term) &&
               !is_one(session, n->last_master, n->last_term)) {
        /* The master may have changed after the orders came, in the same step. */
        sim_broke(s, "orders were taken from somebody who is not followed", n->id);
    }
    str_copy(n->last_session, sizeof n->last_session, session->master);
    str_copy(n->last_master, sizeof n->last_master, claim->master);
    n->last_session_term = session->term;
    n->last_term = claim->term;
    n->last_index = index;
    u64 used = 0;
    struct cluster_instance in;
    for (u32 i = 0; i < n->n_runners; i++) {
        const struct runner *r = &n->runners[i];
        used += r->memory_bytes;
        if (!cluster_find_instance(c, r->instance, &in) ||
            (in.placement->place != r->place && in.placement->next_place != r->place))
            sim_broke(s, "a runner has no order", r->instance);
    }
    u64 mem = s->cfg.memory_bytes ? s->cfg.memory_bytes : (u64)64 << 30;
    if (used > mem) sim_broke(s, "more was placed than there is memory", n->id);
}

static bool sees(const struct sim *s, u32 a, u32 b) {
    const struct node *n = &s->nodes[a];
    struct cluster_member m;
    for (u32 i = 1; i < cluster_n_members(n->cluster); i++) {
        cluster_member(n->cluster, i, sim_local_ms(s, n), &m);
        if (strcmp(m.id, s->nodes[b].id) == 0) return m.state == MEMBER_LIVE;
    }
    return false;
}

static void check_rivals(struct sim *s) {
    u32 first = UINT32_MAX;
    bool rivals = false;
    for (u32 i = 0; i < s->cfg.nodes && !rivals; i++) {
        if (!is_master(s, i)) continue;
        if (first == UINT32_MAX) first = i;
        for (u32 k = first; k < i && !rivals; k++)
            rivals = is_master(s, k) && !s->nodes[i].cut_ms[k] && s->nodes[i].up[k] &&
                     sees(s, i, k) && sees(s, k, i);
    }
    if (!rivals)
        s->rivals_ms = 0;
    else if (!s->rivals_ms)
        s->rivals_ms = s->now_ms;
    else if (s->now_ms - s->rivals_ms > RIVALS_MS_MAX)
        sim_broke(s, "two masters see each other", s->nodes[first].id);
}

/* What was agreed to is somewhere, if only on the disk of a node that is down. */
static void check_kept(struct sim *s) {
    for (u32 w = 0; w < s->n_wishes; w++) {
        const struct wish *wish = &s->wishes[w];
        if (wish->answer != SIM_YES || wish->deleting || wish->automatic) continue;
        bool kept = false;
        for (u32 i = 0; i < s->cfg.nodes && !kept; i++)
            kept = s->nodes[i].saved[w] || (s->nodes[i].cluster && sim_has(s, i, w));
        if (!kept) sim_broke(s, "nobody has it any more", wish->id);
    }
}

void sim_check_all(struct sim *s) {
    check_rivals(s);
    check_kept(s);
}

u64 sim_place(const struct sim *s, u32 node, u32 instance) {
    struct cluster_instance in;
    const struct node *n = &s->nodes[node];
    bool found = cluster_find_instance(n->cluster, s->wishes[instance].id, &in);
    return found ? in.placement->place : 0;
}

bool sim_runs(const struct sim *s, u32 node, u32 instance) {
    const struct node *n = &s->nodes[node];
    for (u32 i = 0; i < n->n_runners; i++)
        if (strcmp(n->runners[i].instance, s->wishes[instance].id) == 0) return true;
    return false;
}

static void check_wishes(struct sim *s, u32 node) {
    for (u32 i = 0; i < s->n_wishes; i++) {
        const struct wish *w = &s->wishes[i];
        if (w->deleted && sim_has(s, node, i)) sim_broke(s, "a deleted instance is there", w->id);
        bool wanted = w->answer == SIM_YES && !w->deleting && !w->automatic;
        if (wanted && !sim_has(s, node, i)) sim_broke(s, "a wanted instance was lost", w->id);
    }
}

/* Every runner has an order, every ordered rank of this node a runner. */
static void check_runners(struct sim *s, u32 node) {
    struct node *n = &s->nodes[node];
    u32 ordered = 0;
    for (u32 i = 0; i < cluster_n_instances(n->cluster); i++) {
        struct cluster_instance in;
        cluster_instance(n->cluster, i, &in);
        for (u32 r = 0; r < in.n_ranks; r++) {
            if (strcmp(in.ranks[r].node, n->id) != 0) continue;
            ordered++;
            if (!sim_find_runner(n, in.wanted->id, in.placement->place))
                sim_broke(s, "an ordered runner is missing", in.wanted->id);
        }
        const struct msg_rank *next = in.placement->next_ranks.v;
        for (u64 r = 0; in.placement->next_place && r < in.placement->next_ranks.n; r++)
            ordered += strcmp(next[r].node, n->id) == 0;
    }
    if (ordered != n->n_runners) sim_broke(s, "a runner has no order", n->id);
}

bool sim_settled(struct sim *s, u64 nodes) {
    u32 n_masters = sim_masters(s, nodes);
    if (n_masters != 1) sim_broke(s, "not one master", n_masters ? "several" : "none");
    if (!sim_agree(s, nodes)) sim_broke(s, "the nodes disagree", "master or placements");
    for (u32 i = 0; i < s->cfg.nodes; i++) {
        if (!in_set(s, nodes, i)) continue;
        check_wishes(s, i);
        check_runners(s, i);
    }
    return !s->broken;
}

bool sim_broken(const struct sim *s) {
    return s->broken;
}
