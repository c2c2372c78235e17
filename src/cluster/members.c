#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "cluster/parts.h"

enum {
    SUSPECT_MS = 1500, /* a link that broke and is not back by then: the node is lost */
    REPEAT_MS = 900,   /* a hello or a state goes to one peer this often at most */
    /* So that n nodes that start at once don't cost n^3 messages: */
    SMALL = 16,             /* nodes up to which news are told and looked at at once */
    NEWS_MS = 2,            /* per node beyond: the pause between two heartbeats because of news */
    GOSSIP_MS = 100,        /* between two rounds of telling routes, */
    ROUTE_HOSTS = 4,        /* addresses told of another node */
    GOSSIP_ROUTES = 2048,   /* of so many in all; */
    GOSSIP_TIMES = 3,       /* to one peer so often, and then, as long as nothing changes, */
    GOSSIP_SLOW_MS = 30000, /* seldom: maybe it can't reach whom this node reaches */
    STATE_MS = 100,         /* between two states that are sent because digests differ */
};

static void index_add(struct cluster *c, struct member *m);
static void index_all(struct cluster *c) {
    while (c->hash_cap < 2 * c->n_members + 2) c->hash_cap = c->hash_cap ? c->hash_cap * 2 : 16;
    c->by_hash = xrealloc(c->by_hash, c->hash_cap * sizeof *c->by_hash);
    memset(c->by_hash, 0, c->hash_cap * sizeof *c->by_hash);
    for (u32 i = 0; i < c->n_members; i++) index_add(c, c->members[i]);
}

/* m is in the list already. */
static void index_add(struct cluster *c, struct member *m) {
    if (c->hash_cap < 2 * c->n_members) {
        index_all(c); /* with it */
        return;
    }
    u32 i = (u32)m->hash & (c->hash_cap - 1);
    while (c->by_hash[i]) i = (i + 1) & (c->hash_cap - 1);
    c->by_hash[i] = m;
}

void members_init(struct cluster *c, const struct msg_hello *hello) {
    LIST_GROW(c->members, c->n_members, c->members_cap);
    struct member *m = c->members[c->n_members++] = xcalloc(1, sizeof *m);
    memcpy(m->id, c->id, sizeof m->id);
    m->hash = c->roster = hash_bytes(m->id, strlen(m->id));
    m->address = xstrdup("");
    index_add(c, m);
    m->counted = m->was_live = true;
    core_copy(msg_table(MSG_HELLO), &m->hello_mem, &m->hello, hello);
    m->hello.routes = (struct wire_list){0};
    ASSERT(m->hello.boot != 0);
    core_copy(msg_table(MSG_HEARTBEAT), &m->beat_mem, &m->beat,
              &(struct msg_heartbeat){.boot = m->hello.boot});
    facts_forget(m);
}

static void member_free(struct member *m) {
    arena_deinit(&m->hello_mem);
    arena_deinit(&m->beat_mem);
    arena_deinit(&m->facts_mem);
    free(m->refused);
    free(m->address);
    free(m);
}

void members_deinit(struct cluster *c) {
    for (u32 i = 0; i < c->n_members; i++) member_free(c->members[i]);
    free(c->members);
    free(c->by_hash);
}

struct member *members_find(const struct cluster *c, const char *id) {
    u64 hash = hash_bytes(id, strlen(id));
    for (u32 i = (u32)hash & (c->hash_cap - 1); c->by_hash[i]; i = (i + 1) & (c->hash_cap - 1))
        if (c->by_hash[i]->hash == hash && same(c->by_hash[i]->id, id)) return c->by_hash[i];
    return NULL;
}

static void take_out(struct cluster *c, u32 i, struct cluster_output *out) {
    struct member *m = c->members[i];
    if (m->was_live) c->roster -= m->hash;
    c->save_soon = c->save_soon || m->counted;
    c->changed = true;
    if (out && m->was_seen) core_event_node(c, out, EVENT_NODE_FORGOTTEN, m, "");
    bool shared = false; /* a machine may have come back as another node */
    for (u32 k = 1; k < c->n_members; k++)
        shared = shared || (k != i && same(c->members[k]->address, m->address));
    if (out && *m->address && !shared)
        core_do(out, DO_HANGUP)->address = arena_strdup(&out->mem, m->address);
    member_free(m);
    c->members[i] = c->members[--c->n_members];
    index_all(c);
}

/* Ids that came and went (somebody's data folder is new at every start) make room for those that
 * are here. */
static bool make_room(struct cluster *c) {
    u32 oldest = 0;
    for (u32 i = 1; i < c->n_members; i++) {
        const struct member *m = c->members[i];
        if (m->up || m->was_live) continue;
        if (!oldest || m->kept_ms < c->members[oldest]->kept_ms) oldest = i;
    }
    if (oldest) take_out(c, oldest, NULL);
    return oldest != 0;
}

struct member *members_add(struct cluster *c, const char *id, const char *address, u64 now_ms) {
    struct member *m = members_find(c, id);
    if (!m) {
        if (!*id || strlen(id) >= sizeof m->id) return NULL;
        if (c->n_members >= CLUSTER_NODES_MAX && !make_room(c)) return NULL;
        LIST_GROW(c->members, c->n_members, c->members_cap);
        m = c->members[c->n_members++] = xcalloc(1, sizeof *m);
        str_copy(m->id, sizeof m->id, id);
        m->hash = hash_bytes(id, strlen(id));
        m->address = xstrdup("");
        index_add(c, m);
        core_copy(msg_table(MSG_HELLO), &m->hello_mem, &m->hello, &(struct msg_hello){0});
        core_copy(msg_table(MSG_HEARTBEAT), &m->beat_mem, &m->beat, &(struct msg_heartbeat){0});
        facts_forget(m);
        m->kept_ms = now_ms;
        c->changed = true;
    }
    if (*address && !same(m->address, address) && m != c->members[0]) {
        free(m->address);
        m->address = xstrdup(address);
        m->dialled = false;
        c->save_soon = c->save_soon || m->counted;
        c->look_ms = 0;
    }
    return m;
}

bool members_live(const struct cluster *c, const struct member *m, u64 now_ms) {
    if (m == c->members[0]) return true;
    return m->beat.boot && !m->refused && m->seen_ms && now_ms - m->seen_ms < c->timeout_ms;
}

u32 members_n_live(const struct cluster *c, u64 now_ms) {
    u32 n = 0;
    for (u32 i = 0; i < c->n_members; i++) n += members_live(c, c->members[i], now_ms);
    return n;
}

u32 members_n_counted(const struct cluster *c) {
    u32 n = 0;
    for (u32 i = 0; i < c->n_members; i++) n += c->members[i]->counted && !c->members[i]->refused;
    return n;
}

static void send_hello(struct cluster *c, struct member *to, bool wants, u64 now_ms,
                       struct cluster_output *out) {
    struct msg_hello h = c->members[0]->hello;
    h.wants_hello = wants;
    core_send(out, to->id, MSG_HELLO, &h);
    to->hello_sent_ms = now_ms;
}

/* Is it time to tell m of the nodes in sight, because it sees others? */
static bool is_curious(const struct cluster *c, struct member *m, u64 now_ms) {
    if (!m->was_live || !m->up || m->beat.roster == c->roster) return false;
    if (m->told_roster != c->roster || m->told_theirs != m->beat.roster) m->n_told = 0;
    u64 pause = m->n_told == 0 ? 0 : m->n_told < GOSSIP_TIMES ? REPEAT_MS : GOSSIP_SLOW_MS;
    return now_ms - m->hello_sent_ms >= pause;
}

/* The receiver may reach it only by another of its addresses than this node does. */
static struct msg_route route_to(const struct member *m) {
    struct wire_list hosts = m->hello.addresses;
    hosts.n = MIN(hosts.n, (u64)ROUTE_HOSTS);
    return (struct msg_route){m->id, m->address, hosts, m->hello.bus_port};
}

/* One reachable peer is enough to learn of all: nodes compare in their heartbeats whom they see and
 * send a hello with all routes where that differs; in turn, and not to everybody at once. */
static void gossip(struct cluster *c, u64 now_ms, struct cluster_output *out) {
    if (now_ms < c->gossip_ms) return;
    if (c->n_members > SMALL) c->gossip_ms = now_ms + GOSSIP_MS;
    struct arena tmp = {0};
    struct core_bytes hello = {0};
    u32 n_routes = 0;
    for (u32 k = 1, spent = 0; k < c->n_members && spent < GOSSIP_ROUTES; k++) {
        c->gossip_at = c->gossip_at + 1 < c->n_members ? c->gossip_at + 1 : 1;
        struct member *m = c->members[c->gossip_at];
        if (!is_curious(c, m, now_ms)) continue;
        if (!hello.p) {
            struct msg_hello h = c->members[0]->hello;
            struct msg_route *routes = arena_array(&tmp, c->n_members, sizeof *routes);
            for (u32 i = 1; i < c->n_members; i++)
                if (*c->members[i]->address && c->members[i]->was_live)
                    routes[n_routes++] = route_to(c->members[i]);
            h.routes = (struct wire_list){routes, n_routes};
            hello = core_encode(out, MSG_HELLO, &h);
        }
        core_send_bytes(out, m->id, MSG_HELLO, hello);
        m->hello_sent_ms = now_ms;
        m->told_roster = c->roster;
        m->told_theirs = m->beat.roster;
        m->n_told++;
        spent += n_routes;
    }
    arena_deinit(&tmp);
}

void members_set_hello(struct cluster *c, const struct cluster_input *in,
                       struct cluster_output *out) {
    struct member *self = c->members[0];
    struct msg_hello h = self->hello;
    h.api_port = in->number;
    if (in->addresses) h.addresses = *in->addresses;
    core_copy(msg_table(MSG_HELLO), &self->hello_mem, &self->hello, &h);
    for (u32 i = 1; i < c->n_members; i++)
        if (c->members[i]->up) send_hello(c, c->members[i], false, c->last_ms, out);
    c->changed = true;
}

/* Among many nodes the news of one wait a little, and are looked at together with those of others.
 */
static void members_defer(struct cluster *c) {
    if (c->n_members <= SMALL || c->routine) return;
    c->routine = c->deferred = true;
}

void members_peer_up(struct cluster *c, const struct cluster_input *in, u64 now_ms,
                     struct cluster_output *out) {
    struct member *m = same(in->peer, c->id) ? NULL : members_add(c, in->peer, in->address, now_ms);
    if (!m) return;
    c->from = m;
    m->up = m->dialled = true;
    members_defer(c);
    m->facts_sent = 0; /* whatever went over the last link may have been lost with it */
    send_hello(c, m, true, now_ms, out);
}

void members_peer_down(struct cluster *c, const struct cluster_input *in, u64 now_ms) {
    struct member *m = members_find(c, in->peer);
    if (!m || m == c->members[0]) return;
    if (in->number && m->up) return; /* another process of it is here already */
    c->from = m;
    c->look_ms = 0;             /* to dial */
    m->up = m->dialled = false; /* whoever dialled before: both try from now on */
    if (in->number) m->seen_ms = 0;
    if (!m->seen_ms || c->timeout_ms <= SUSPECT_MS) return;
    u64 seen = now_ms + SUSPECT_MS > c->timeout_ms ? now_ms + SUSPECT_MS - c->timeout_ms : 1;
    m->seen_ms = MIN(m->seen_ms, seen);
}

/* The part of a hello that every protocol version can read. */
struct hello_head {
    u32 protocol;
    const char *build, *os;
};
static const struct wire_field HEAD_FIELDS[] = {
    {1, WIRE_U32, offsetof(struct hello_head, protocol), NULL},
    {2, WIRE_STR, offsetof(struct hello_head, build), NULL},
    {3, WIRE_STR, offsetof(struct hello_head, os), NULL},
};
static const struct wire_table HEAD = {"hello", sizeof(struct hello_head), 3, HEAD_FIELDS};

static void refuse(struct cluster *c, struct member *m, bool tell, const char *why,
                   struct cluster_output *out) {
    if (!m->refused || !same(m->refused, why)) {
        free(m->refused);
        m->refused = xstrdup(why);
        c->changed = true;
        core_event_node(c, out, EVENT_NODE_REFUSED, m, why);
        core_log(out, LOG_WARN, "peer refused node=%s address=%s: %s", m->id, m->address, why);
    }
    const struct msg_hello *own = &c->members[0]->hello;
    if (tell)
        core_send(
            out, m->id, MSG_REFUSED,
            &(struct msg_reason){.protocol = own->protocol, .build = own->build, .text = why});
}

/* What stands against talking to it, or NULL. */
static const char *objection(const struct cluster *c, const struct member *m, const void *body,
                             size_t n, struct msg_hello *hello, struct arena *mem) {
    const struct msg_hello *own = &c->members[0]->hello;
    struct hello_head head;
    struct err e;
    if (!wire_decode(&HEAD, body, n, mem, &head, &e))
        return arena_printf(mem, "its hello can't be read: %s", e.msg);
    if (head.protocol != own->protocol)
        return arena_printf(
            mem,
            "%s speaks protocol %u (%s), %s speaks protocol %u (%s): install the same "
            "version of skein on both",
            m->id, head.protocol, head.build, c->id, own->protocol, own->build);
    if (!wire_decode(msg_table(MSG_HELLO), body, n, mem, hello, &e))
        return arena_printf(mem, "its hello can't be read: %s", e.msg);
    if (!same(hello->cluster, own->cluster))
        return arena_printf(mem, "it belongs to the cluster '%s', this node to '%s'",
                            hello->cluster, own->cluster);
    return hello->boot ? NULL : "its hello names no process";
}

void members_hello(struct cluster *c, struct member *m, const struct cluster_input *in, u64 now_ms,
                   struct cluster_output *out) {
    struct arena mem = {0};
    struct msg_hello h = {0};
    const char *why = objection(c, m, in->body, in->n, &h, &mem);
    if (why) {
        refuse(c, m, true, why, out);
        arena_deinit(&mem);
        return;
    }
    free(m->refused);
    m->refused = NULL;
    if (h.boot != m->hello.boot) { /* another process: what the last one said no longer counts */
        core_copy(msg_table(MSG_HEARTBEAT), &m->beat_mem, &m->beat, &(struct msg_heartbeat){0});
        facts_forget(m);
    }
    bool is_new = h.boot != m->hello.boot;
    arena_deinit(&m->hello_mem);
    m->hello_mem = mem;
    m->hello = h;
    c->changed = true;
    for (u64 i = 0; i < h.routes.n; i++) {
        const struct msg_route *r = &((const struct msg_route *)h.routes.v)[i];
        struct member *t = members_find(c, r->node);
        if (!t) t = members_add(c, r->node, r->address, now_ms);
        if (!t || t->hello.boot || t->hello.addresses.n || !r->hosts.n) continue;
        core_copy(msg_table(MSG_HELLO), &t->hello_mem, &t->hello,
                  &(struct msg_hello){.addresses = r->hosts, .bus_port = r->bus_port});
    }
    m->hello.routes = (struct wire_list){0}; /* read above, and many */
    if (h.wants_hello) send_hello(c, m, false, now_ms, out);
    if (is_new) m->beat_now = c->beat_some = true;
    members_defer(c);
}

/* Does b say anything that b's sender has not said before, apart from measurements? */
static bool is_news(const struct msg_heartbeat *a, const struct msg_heartbeat *b) {
    const struct msg_claim *j = &a->claim, *k = &b->claim;
    if (j->term != k->term || j->is_established != k->is_established ||
        j->seniority != k->seniority || !same(j->master, k->master))
        return true;
    if (a->hears_master != b->hears_master || a->runners.n != b->runners.n) return true;
    const struct msg_runner *r = a->runners.v, *s = b->runners.v;
    for (u64 i = 0; i < a->runners.n; i++)
        if (r[i].place != s[i].place || r[i].status != s[i].status || r[i].port != s[i].port)
            return true;
    return false;
}

/* Everybody sees that digests differ; if all of many nodes spoke up, that would be too much. */
static bool may_send_state(struct cluster *c, const struct member *m, u64 now_ms) {
    if (now_ms - m->state_sent_ms < REPEAT_MS) return false;
    if (c->n_members <= SMALL || elect_is_master(c)) return true;
    if (now_ms < c->state_quota_ms) return false;
    c->state_quota_ms = now_ms + STATE_MS;
    return true;
}

void members_beat(struct cluster *c, const struct cluster_input *in, u64 now_ms,
                  struct cluster_output *out) {
    struct member *m = members_add(c, in->peer, "", now_ms);
    if (!m || m->refused) return;
    c->from = m;
    struct arena mem = {0};
    struct msg_heartbeat b;
    struct err e;
    if (!wire_decode(msg_table(MSG_HEARTBEAT), in->body, in->n, &mem, &b, &e)) {
        core_log(out, LOG_WARN, "bad heartbeat from=%s: %s", in->peer, e.msg);
        arena_deinit(&mem);
        return;
    }
    if (!b.boot || b.boot != m->hello.boot) { /* its hello was lost, or it started again */
        if (now_ms - m->hello_sent_ms >= REPEAT_MS) send_hello(c, m, true, now_ms, out);
        arena_deinit(&mem);
        return;
    }
    if (b.seq <= m->beat.seq) { /* overtaken by a newer one */
        arena_deinit(&mem);
        return;
    }
    bool news = !m->was_live || is_news(&m->beat, &b);
    c->look = c->look || news;
    c->routine = !news && b.term <= c->term;
    members_defer(c);
    arena_deinit(&m->beat_mem);
    m->beat_mem = mem;
    m->beat = b;
    m->seen_ms = m->kept_ms = now_ms;
    m->left = false;
    c->changed = c->changed || news;
    c->term = MAX(c->term, b.term);
    state_refresh_digest(c);
    if (b.digest != c->digest && may_send_state(c, m, now_ms)) {
        state_send(c, m->id, out);
        m->state_sent_ms = now_ms;
    }
}

void members_reason(struct cluster *c, struct member *m, const struct cluster_input *in,
                    struct cluster_output *out) {
    struct arena mem = {0};
    struct msg_reason r;
    if (wire_decode(msg_table(in->type), in->body, in->n, &mem, &r, NULL)) {
        if (in->type == MSG_REFUSED)
            refuse(c, m, false, r.text, out);
        else
            m->seen_ms = 0, m->left = true; /* goodbye */
    }
    arena_deinit(&mem);
}

static bool drop_lost(struct cluster *c, const char *id, u64 now_ms, struct cluster_output *out) {
    for (u32 i = 1; i < c->n_members; i++) {
        struct member *m = c->members[i];
        if (!same(m->id, id) || m->up || m->was_live || members_live(c, m, now_ms)) continue;
        core_log(out, LOG_INFO, "node forgotten node=%s name=%s", m->id,
                 m->hello.name ? m->hello.name : "");
        take_out(c, i, out);
        return true;
    }
    return false;
}

void members_forget(struct cluster *c, const char *id, u64 now_ms, struct cluster_output *out) {
    if (!drop_lost(c, id, now_ms, out)) return;
    struct msg_reason r = {
        .protocol = c->members[0]->hello.protocol, .build = c->members[0]->hello.build, .text = id};
    for (u32 i = 1; i < c->n_members; i++)
        if (members_live(c, c->members[i], now_ms))
            core_send(out, c->members[i]->id, MSG_FORGET, &r);
}

void members_forgotten(struct cluster *c, const struct cluster_input *in, u64 now_ms,
                       struct cluster_output *out) {
    struct arena mem = {0};
    struct msg_reason r;
    if (wire_decode(msg_table(MSG_FORGET), in->body, in->n, &mem, &r, NULL))
        drop_lost(c, r.text, now_ms, out);
    arena_deinit(&mem);
}

static void note_life(struct cluster *c, struct member *m, u64 now_ms, struct cluster_output *out) {
    bool live = members_live(c, m, now_ms);
    if (live == m->was_live) return;
    m->was_live = live;
    if (live) m->live_ms = now_ms;
    c->roster += live ? m->hash : -m->hash;
    c->changed = c->beat_now = c->look = true;
    core_event_node(
        c, out, live ? (m->was_seen ? EVENT_NODE_RETURNED : EVENT_NODE_JOINED) : EVENT_NODE_LOST, m,
        !live && m->left ? "it was stopped" : "");
    m->was_seen = true;
    if (!live) {
        core_log(out, m->left ? LOG_INFO : LOG_WARN, "node %s node=%s name=%s",
                 m->left ? "stopped" : "lost", m->id, m->hello.name);
        return;
    }
    core_log(out, LOG_INFO, "node joined node=%s name=%s address=%s worker=%u build=%s", m->id,
             m->hello.name, m->address, m->hello.is_worker, m->hello.build);
    if (!m->counted) m->counted = c->save_soon = true;
}

void members_step(struct cluster *c, u64 now_ms, struct cluster_output *out) {
    struct member *from = c->from;
    if (from && from != c->members[0]) note_life(c, from, now_ms, out);
    c->from = NULL;
    gossip(c, now_ms, out);
    if (now_ms < c->look_ms) return;
    c->look_ms = now_ms + CLUSTER_LOOK_MS;
    for (u32 i = 1; i < c->n_members; i++) {
        struct member *m = c->members[i];
        note_life(c, m, now_ms, out);
        if (m->up && !m->hello.boot && !m->refused && now_ms - m->hello_sent_ms >= REPEAT_MS)
            send_hello(c, m, true, now_ms, out); /* one of the two hellos was lost */
        if (!m->up && !m->dialled && *m->address && !m->refused) {
            core_do(out, DO_DIAL)->address = arena_strdup(&out->mem, m->address);
            m->dialled = true;
        }
        if (m->was_live || now_ms - m->kept_ms < CLUSTER_FORGET_MS || m->up) continue;
        take_out(c, i--, out);
    }
}

/* When news may be told to all. */
static u64 news_ms(const struct cluster *c) {
    u64 pause = c->n_members <= SMALL ? 0 : MIN(c->n_members * NEWS_MS, CLUSTER_BEAT_MS);
    return c->beaten_ms + pause;
}

u64 members_next_ms(const struct cluster *c) {
    return c->beat_now ? MIN(c->beat_ms, MAX(news_ms(c), c->last_ms + 1)) : c->beat_ms;
}

static void make_beat(struct cluster *c, u64 now_ms) {
    struct member *self = c->members[0];
    struct msg_heartbeat b = self->beat;
    struct arena tmp = {0};
    struct msg_runner *facts = arena_array(&tmp, c->n_locals, sizeof *facts);
    for (u32 i = 0; i < c->n_locals; i++) facts[i] = c->locals[i]->fact;
    const struct member *master = members_find(c, c->claim_master);
    b.seq++;
    b.term = c->term;
    b.claim = c->claim;
    b.hears_master = master && members_live(c, master, now_ms);
    b.digest = c->digest;
    b.roster = c->roster;
    b.wall_ms = c->wall_ahead_ms ? now_ms + c->wall_ahead_ms : 0;
    b.runners = (struct wire_list){facts, c->n_locals};
    core_copy(msg_table(MSG_HEARTBEAT), &self->beat_mem, &self->beat, &b);
    arena_deinit(&tmp);
}

void members_send_beats(struct cluster *c, u64 now_ms, struct cluster_output *out) {
    bool due = now_ms >= c->beat_ms, all = due || (c->beat_now && now_ms >= news_ms(c));
    struct core_bytes beat = {0}, state = {0};
    if (!all && !c->spread && !c->beat_some) return;
    if (all) c->beaten_ms = now_ms;
    if (due) c->beat_ms = now_ms + CLUSTER_BEAT_MS;
    for (u32 i = 1; i < c->n_members; i++) {
        struct member *m = c->members[i];
        if (!m->up || m->refused || !m->hello.boot) continue;
        if (all || m->beat_now) {
            if (!beat.p) {
                make_beat(c, now_ms);
                beat = core_encode(out, MSG_HEARTBEAT, &c->members[0]->beat);
            }
            core_send_bytes(out, m->id, MSG_HEARTBEAT, beat);
            m->beat_now = false;
        }
        if (c->spread) {
            if (!state.p) state = state_bytes(c, out);
            core_send_bytes(out, m->id, MSG_STATE, state);
            m->state_sent_ms = now_ms;
        }
    }
    if (all && !beat.p) make_beat(c, now_ms);
    c->beat_now = c->beat_now && !all;
    c->spread = c->beat_some = false;
}
