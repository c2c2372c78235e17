/* facts.c - what nodes say of their hardware and links: each node's own word, kept by everybody.
 *
 * Facts are no part of the agreed state: nothing is lost with them, so they are simply told again:
 * to a peer whose link came up, when they changed (at most every CLUSTER_FACTS_LEAST_MS), and every
 * CLUSTER_FACTS_MOST_MS. Of one process (`boot`) the newest `seq` counts. */
#include <string.h>

#include "cluster/parts.h"

static const struct msg_facts NOTHING = {
    .power_source = "", .model = "", .os_build = "", .isa = "", .isas = "", .throttle = ""};

void facts_forget(struct member *m) {
    arena_deinit(&m->facts_mem);
    m->facts = NOTHING;
    m->facts_sent = 0;
}

static bool equal(const struct msg_facts *a, const struct msg_facts *b) {
    struct str x = {0}, y = {0};
    wire_encode(msg_table(MSG_FACTS), a, &x);
    wire_encode(msg_table(MSG_FACTS), b, &y);
    bool same_bytes = x.n == y.n && memcmp(str_z(&x), str_z(&y), x.n) == 0;
    str_deinit(&x);
    str_deinit(&y);
    return same_bytes;
}

void facts_set(struct cluster *c, const struct msg_facts *f) {
    struct member *self = c->members[0];
    struct msg_facts next = *f;
    next.boot = self->hello.boot;
    next.seq = self->facts.seq;
    if (equal(&next, &self->facts)) return;
    next.seq++;
    core_copy(msg_table(MSG_FACTS), &self->facts_mem, &self->facts, &next);
    self->facts.boot = next.boot; /* also when a text in it was not UTF-8 and it came out empty */
    self->facts.seq = next.seq;
    c->changed = true;
}

void facts_take(struct cluster *c, struct member *m, const struct cluster_input *in,
                struct cluster_output *out) {
    struct arena mem = {0};
    struct msg_facts f;
    struct err e;
    bool ok = wire_decode(msg_table(MSG_FACTS), in->body, in->n, &mem, &f, &e);
    if (!ok) core_log(out, LOG_WARN, "bad facts from=%s: %s", m->id, e.msg);
    bool newer = ok && f.boot == m->hello.boot && f.seq > m->facts.seq;
    u64 most = MAX(f.links.n, MAX(f.gpus.n, f.interfaces.n));
    if (!newer || most > CLUSTER_FACTS_LISTS_MAX) {
        arena_deinit(&mem);
        return;
    }
    arena_deinit(&m->facts_mem);
    m->facts_mem = mem;
    m->facts = f;
    c->changed = true;
}

/* Everybody tells everybody: in a large cluster more rarely. */
static bool is_due(const struct cluster *c, const struct member *m, u64 now_ms) {
    u64 ago = now_ms - m->facts_sent_ms;
    u64 least = MAX((u64)CLUSTER_FACTS_LEAST_MS, (u64)c->n_members * 30);
    u64 most = MAX((u64)CLUSTER_FACTS_MOST_MS, (u64)c->n_members * 600);
    if (!m->up || m->refused || !m->hello.boot) return false;
    if (!m->facts_sent || ago >= most) return true;
    return m->facts_sent != c->members[0]->facts.seq && ago >= least;
}

void facts_step(struct cluster *c, u64 now_ms, struct cluster_output *out) {
    const struct msg_facts *own = &c->members[0]->facts;
    const void *body = NULL; /* the same bytes for all */
    size_t n = 0;
    if (!own->seq) return;
    for (u32 i = 1; i < c->n_members; i++) {
        struct member *m = c->members[i];
        if (!is_due(c, m, now_ms)) continue;
        if (!body) {
            struct str bytes = {0};
            wire_encode(msg_table(MSG_FACTS), own, &bytes);
            body = arena_memdup(&out->mem, str_z(&bytes), n = bytes.n);
            str_deinit(&bytes);
        }
        struct cluster_action *a = core_do(out, DO_SEND);
        a->to = arena_strdup(&out->mem, m->id);
        a->type = MSG_FACTS;
        a->body = body;
        a->n = n;
        m->facts_sent = own->seq;
        m->facts_sent_ms = now_ms;
    }
}
