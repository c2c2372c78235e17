#include <stdlib.h>
#include <string.h>

#include "cluster/core.h"

enum {
    SUSPECT_MS = 1500, /* a link that broke and is not back by then: the node is lost */
    REPEAT_MS = 900,   /* a hello or a state goes to one peer this often at most */
};

void members_init(struct cluster *c, const struct msg_hello *hello) {
    LIST_GROW(c->members, c->n_members, c->members_cap);
    struct member *m = c->members[c->n_members++] = xcalloc(1, sizeof *m);
    memcpy(m->id, c->id, sizeof m->id);
    m->counted = true;
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
    free(m);
}

void members_deinit(struct cluster *c) {
    for (u32 i = 0; i < c->n_members; i++) member_free(c->members[i]);
    free(c->members);
}

struct member *members_find(const struct cluster *c, const char *id) {
    for (u32 i = 0; i < c->n_members; i++)
        if (same(c->members[i]->id, id)) return c->members[i];
    return NULL;
}

struct member *members_add(struct cluster *c, const char *id, const char *address, u64 now_ms) {
    struct member *m = members_find(c, id);
    if (!m) {
        if (c->n_members >= CLUSTER_NODES_MAX || !*id || strlen(id) >= sizeof m->id) return NULL;
        LIST_GROW(c->members, c->n_members, c->members_cap);
        m = c->members[c->n_members++] = xcalloc(1, sizeof *m);
        str_copy(m->id, sizeof m->id, id);
        core_copy(msg_table(MSG_HELLO), &m->hello_mem, &m->hello, &(struct msg_hello){0});
        core_copy(msg_table(MSG_HEARTBEAT), &m->beat_mem, &m->beat, &(struct msg_heartbeat){0});
        facts_forget(m);
        m->kept_ms = now_ms;
        c->changed = true;
    }
    if (*address && !same(m->address, address) && m != c->members[0]) {
        str_copy(m->address, sizeof m->address, address);
        m->dialled = false;
        c->save = c->save || m->counted;
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
    struct arena tmp = {0};
    struct msg_hello h = c->members[0]->hello;
    struct msg_route *routes = arena_array(&tmp, c->n_members, sizeof *routes);
    h.wants_hello = wants;
    h.routes.v = routes;
    for (u32 i = 1; i < c->n_members; i++) {
        const struct member *m = c->members[i];
        if (m != to && *m->address && members_live(c, m, now_ms))
            routes[h.routes.n++] = (struct msg_route){m->id, m->address};
    }
    core_send(out, to->id, MSG_HELLO, &h);
    to->hello_sent_ms = now_ms;
    arena_deinit(&tmp);
}

void members_set_api(struct cluster *c, u32 port, struct cluster_output *out) {
    c->members[0]->hello.api_port = port;
    for (u32 i = 1; i < c->n_members; i++)
        if (c->members[i]->up) send_hello(c, c->members[i], false, c->last_ms, out);
    c->changed = true;
}

void members_peer_up(struct cluster *c, const struct cluster_input *in, u64 now_ms,
                     struct cluster_output *out) {
    struct member *m = same(in->peer, c->id) ? NULL : members_add(c, in->peer, in->address, now_ms);
    if (!m) return;
    m->up = m->dialled = true;
    m->facts_sent = 0; /* whatever went over the last link may have been lost with it */
    send_hello(c, m, true, now_ms, out);
}

void members_peer_down(struct cluster *c, const struct cluster_input *in, u64 now_ms) {
    struct member *m = members_find(c, in->peer);
    if (!m || m == c->members[0]) return;
    m->up = m->dialled = false; /* whoever dialled before: both try from now on */
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
    arena_deinit(&m->hello_mem);
    m->hello_mem = mem;
    m->hello = h;
    c->changed = true;
    for (u64 i = 0; i < h.routes.n; i++) {
        const struct msg_route *r = &((const struct msg_route *)h.routes.v)[i];
        if (!members_find(c, r->node)) members_add(c, r->node, r->address, now_ms);
    }
    if (h.wants_hello) send_hello(c, m, false, now_ms, out);
    c->beat_now = true;
}

void members_beat(struct cluster *c, const struct cluster_input *in, u64 now_ms,
                  struct cluster_output *out) {
    struct member *m = members_add(c, in->peer, "", now_ms);
    if (!m || m->refused) return;
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
    if (m->beat.runners.n || b.runners.n) c->look = true;
    arena_deinit(&m->beat_mem);
    m->beat_mem = mem;
    m->beat = b;
    m->seen_ms = m->kept_ms = now_ms;
    c->changed = true;
    c->term = MAX(c->term, b.term);
    state_refresh_digest(c);
    if (b.digest != c->digest && now_ms - m->state_sent_ms >= REPEAT_MS) {
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
            m->seen_ms = 0; /* goodbye */
    }
    arena_deinit(&mem);
}

static void note_life(struct cluster *c, struct member *m, u64 now_ms, struct cluster_output *out) {
    bool live = members_live(c, m, now_ms);
    if (live == m->was_live) return;
    m->was_live = live;
    c->changed = c->beat_now = c->look = true;
    core_event_node(
        c, out, live ? (m->was_seen ? EVENT_NODE_RETURNED : EVENT_NODE_JOINED) : EVENT_NODE_LOST, m,
        "");
    m->was_seen = true;
    if (!live) {
        core_log(out, LOG_WARN, "node lost node=%s name=%s", m->id, m->hello.name);
        return;
    }
    core_log(out, LOG_INFO, "node joined node=%s name=%s address=%s worker=%u build=%s", m->id,
             m->hello.name, m->address, m->hello.is_worker, m->hello.build);
    if (!m->counted) m->counted = c->save = true;
    for (u32 i = 1; i < c->n_members; i++) /* the others may not know it yet */
        if (c->members[i] != m && c->members[i]->up)
            send_hello(c, c->members[i], false, now_ms, out);
}

void members_step(struct cluster *c, u64 now_ms, struct cluster_output *out) {
    for (u32 i = 1; i < c->n_members; i++) {
        struct member *m = c->members[i];
        note_life(c, m, now_ms, out);
        if (!m->up && !m->dialled && *m->address && !m->refused) {
            core_do(out, DO_DIAL)->address = arena_strdup(&out->mem, m->address);
            m->dialled = true;
        }
        if (m->was_live || now_ms - m->kept_ms < CLUSTER_FORGET_MS || m->up) continue;
        c->save = c->save || m->counted;
        c->changed = true;
        if (m->was_seen) core_event_node(c, out, EVENT_NODE_FORGOTTEN, m, "");
        core_do(out, DO_HANGUP)->address = arena_strdup(&out->mem, m->address);
        member_free(m);
        c->members[i--] = c->members[--c->n_members];
    }
}

void members_send_beats(struct cluster *c, u64 now_ms, struct cluster_output *out) {
    bool due = now_ms >= c->beat_ms;
    if (!due && !c->beat_now && !c->spread) return;
    if (due) c->beat_ms = now_ms + CLUSTER_BEAT_MS;
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
    b.runners = (struct wire_list){facts, c->n_locals};
    core_copy(msg_table(MSG_HEARTBEAT), &self->beat_mem, &self->beat, &b);
    for (u32 i = 1; i < c->n_members; i++) {
        struct member *m = c->members[i];
        if (!m->up || m->refused || !m->hello.boot) continue;
        if (due || c->beat_now) core_send(out, m->id, MSG_HEARTBEAT, &self->beat);
        if (c->spread) {
            state_send(c, m->id, out);
            m->state_sent_ms = now_ms;
        }
    }
    c->beat_now = c->spread = false;
    arena_deinit(&tmp);
}
