/* state.c - what is wanted, what was deleted, and where it runs.
 *
 * Wanted entries and deletions merge from anyone: a deletion beats its entry, a higher reload count
 * beats a lower one. Two things say that an instance was deleted: its id among the last
 * CLUSTER_GONE_MAX deleted ones, and, however long ago that was, its number: the master numbers
 * what it takes, every node knows up to which number of which session it has seen all, and what is
 * below and not in the list was deleted (an observed-remove set without tombstones: Bieniusa et al.
 * 2012). So nothing that is wanted is lost and nothing deleted comes back, whatever messages got
 * lost. Placements are one master's orders: they are taken as a whole from the session that this
 * node follows, when they are newer. Nodes compare digests in their heartbeats and send all of it
 * where the digests differ. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "cluster/parts.h"

enum { LAYERS_MAX = 1024, KINDS_MAX = 64 }; /* keeps the search for a placement short */

static void entry_free(struct entry *en) {
    arena_deinit(&en->wanted_mem);
    arena_deinit(&en->freed_mem);
    arena_deinit(&en->placement_mem);
    free(en);
}

void state_deinit(struct cluster *c) {
    for (u32 i = 0; i < c->n_entries; i++) entry_free(c->entries[i]);
    free(c->entries);
    free(c->gone);
    free(c->seen);
    free(c->drains);
}

/* Index of the first entry whose id is not below `id`. */
static u32 entry_at(const struct cluster *c, const char *id) {
    u32 i = 0;
    while (i < c->n_entries && strcmp(c->entries[i]->w.id, id) < 0) i++;
    return i;
}

struct entry *state_find(const struct cluster *c, const char *id) {
    u32 i = entry_at(c, id);
    return i < c->n_entries && same(c->entries[i]->w.id, id) ? c->entries[i] : NULL;
}

static u32 gone_at(const struct cluster *c, const char *id) {
    u32 i = 0;
    while (i < c->n_gone && strcmp(c->gone[i], id) < 0) i++;
    return i;
}

bool state_is_gone(const struct cluster *c, const char *id) {
    u32 i = gone_at(c, id);
    return i < c->n_gone && same(c->gone[i], id);
}

void state_touch(struct cluster *c) {
    c->state_dirty = c->spread = c->changed = c->look = true;
}

/* Each layer is of a kind that is there; sums of any of the numbers stay far from overflow. */
static bool is_shape_sound(const struct msg_model *d) {
    const struct msg_shape *s = &d->shape;
    const struct msg_layer_cost *k = s->kinds.v;
    if (s->kinds.n > KINDS_MAX || (s->layer_kind.n && s->layer_kind.n != d->n_layers)) return false;
    for (u64 i = 0; i < s->layer_kind.n; i++)
        if (s->layer_kind.v[i] >= s->kinds.n) return false;
    for (u64 i = 0; i < s->kinds.n; i++)
        if ((k[i].attn_bytes | k[i].ffn_bytes | k[i].fixed_bytes) >> 48) return false;
    return true;
}

/* A wanted entry that placement could not work with never gets in. */
static bool is_sound(const struct msg_wanted *w) {
    const struct msg_model *d = &w->desc;
    u64 sum = 0, kv;
    if (!*w->id || strlen(w->id) >= CLUSTER_ID_CAP || w->key.n != 32) return false;
    if (!is_shape_sound(d)) return false;
    if (d->n_layers == 0 || d->n_layers > LAYERS_MAX || d->layer_bytes.n != d->n_layers)
        return false;
    for (u32 i = 0; i < d->n_layers; i++)
        if (!size_add(sum, d->layer_bytes.v[i], &sum)) return false;
    if (!size_add(sum, d->embed_bytes, &sum) || !size_add(sum, d->head_bytes, &sum)) return false;
    if (d->tied_bytes > MIN(d->embed_bytes, d->head_bytes)) return false;
    if (!size_mul(d->kv_bytes_per_token_layer, (u64)1 << 32, &kv)) return false;
    return size_mul(kv, d->n_layers, &kv) && sum < (u64)1 << 60;
}

struct entry *state_want(struct cluster *c, const struct msg_wanted *w) {
    if (state_is_gone(c, w->id) || !is_sound(w)) return NULL;
    struct entry *en = state_find(c, w->id);
    if (en) {
        bool older = w->born_in > en->w.born_in; /* numbered twice: all take the larger */
        if (w->reloads <= en->w.reloads && !older) return en;
        en->w.reloads = MAX(en->w.reloads, w->reloads);
        if (older) {
            en->w.born_in = w->born_in;
            en->w.born_no = w->born_no;
        }
        c->state_dirty = c->save = c->changed = c->look = true;
        return en;
    }
    if (c->n_entries >= CLUSTER_MERGED_MAX) return NULL;
    en = xcalloc(1, sizeof *en);
    struct msg_placement none = {.instance = w->id};
    if (!core_copy(&MSG_WANTED_TABLE, &en->wanted_mem, &en->w, w) ||
        !core_copy(&MSG_PLACEMENT_TABLE, &en->placement_mem, &en->p, &none)) {
        entry_free(en);
        return NULL;
    }
    LIST_GROW(c->entries, c->n_entries, c->entries_cap);
    u32 i = entry_at(c, w->id);
    memmove(c->entries + i + 1, c->entries + i, (c->n_entries++ - i) * sizeof(struct entry *));
    c->entries[i] = en;
    c->state_dirty = c->save = c->changed = c->look = true;
    return en;
}

void state_drop(struct cluster *c, struct entry *en) {
    u32 i = entry_at(c, en->w.id);
    ASSERT(i < c->n_entries && c->entries[i] == en);
    memmove(c->entries + i, c->entries + i + 1, (--c->n_entries - i) * sizeof(struct entry *));
    entry_free(en);
    c->state_dirty = c->changed = c->look = true;
}

void state_unwant(struct cluster *c, const char *id) {
    if (state_is_gone(c, id) || !*id || strlen(id) >= CLUSTER_ID_CAP) return;
    if (!c->gone) c->gone = xcalloc(CLUSTER_GONE_MAX, sizeof *c->gone);
    u32 g = gone_at(c, id);
    char own[CLUSTER_ID_CAP]; /* id may live in the entry */
    str_copy(own, sizeof own, id);
    struct entry *en = state_find(c, own);
    if (en) state_drop(c, en);
    if (c->n_gone == CLUSTER_GONE_MAX) { /* the smallest id is the oldest */
        if (g == 0) {
            c->save = c->save || en;
            return;
        }
        memmove(c->gone, c->gone + 1, --c->n_gone * sizeof *c->gone);
        g--;
    }
    memmove(c->gone + g + 1, c->gone + g, (c->n_gone++ - g) * sizeof *c->gone);
    memcpy(c->gone[g], own, sizeof own);
    c->state_dirty = c->save = c->changed = c->look = true;
}

void state_place(struct cluster *c, struct entry *en, const struct msg_placement *p) {
    struct msg_placement q = *p; /* p may be en->p, or hold parts of it */
    if (!core_copy(&MSG_PLACEMENT_TABLE, &en->placement_mem, &en->p, &q)) {
        struct msg_placement none = {.instance = en->w.id};
        ASSERT(core_copy(&MSG_PLACEMENT_TABLE, &en->placement_mem, &en->p, &none));
    }
    en->restored = false;
    c->state_dirty = c->changed = c->look = true;
}

static u32 seen_upto(const struct msg_seen *v, u64 n, u64 session) {
    for (u64 i = 0; i < n; i++)
        if (v[i].session == session) return v[i].upto;
    return 0;
}
/* Has whoever has this list seen it? */
static bool has_seen(const struct msg_seen *v, u64 n, const struct msg_wanted *w) {
    return w->born_no && w->born_no <= seen_upto(v, n, w->born_in);
}

/* Beyond CLUSTER_SEEN_MAX the lowest terms are forgotten. */
static void see(struct cluster *c, const struct msg_seen *s) {
    u32 i = 0, low = 0;
    if (!s->session || !s->upto) return;
    if (!c->seen) c->seen = xcalloc(CLUSTER_SEEN_MAX + 1, sizeof *c->seen);
    while (i < c->n_seen && c->seen[i].session < s->session) i++;
    if (i < c->n_seen && c->seen[i].session == s->session) {
        if (s->upto <= c->seen[i].upto) return;
        c->seen[i].upto = s->upto;
    } else {
        memmove(c->seen + i + 1, c->seen + i, (c->n_seen++ - i) * sizeof *c->seen);
        c->seen[i] = *s;
    }
    if (c->n_seen > CLUSTER_SEEN_MAX) {
        for (i = 1; i < c->n_seen; i++)
            if (c->seen[i].term < c->seen[low].term) low = i;
        memmove(c->seen + low, c->seen + low + 1, (--c->n_seen - low) * sizeof *c->seen);
    }
    c->state_dirty = c->save = true;
}

void state_bear(struct cluster *c, struct entry *en) {
    if (en->w.is_automatic || en->w.born_no) return;
    en->w.born_in = c->born_in;
    en->w.born_no = ++c->n_born;
    see(c, &(struct msg_seen){.session = c->born_in, .upto = c->n_born, .term = c->claim.term});
    state_touch(c);
}

static u32 drain_at(const struct cluster *c, const char *node) {
    u32 i = 0;
    while (i < c->n_drains && strcmp(c->drains[i].node, node) < 0) i++;
    return i;
}
static const struct drain *find_drain(const struct cluster *c, const char *node) {
    u32 i = drain_at(c, node);
    return i < c->n_drains && same(c->drains[i].node, node) ? &c->drains[i] : NULL;
}
bool state_is_drained(const struct cluster *c, const char *node) {
    const struct drain *d = find_drain(c, node);
    return d && d->d.is_drained;
}

/* The higher version counts; of equals the one that drains. */
static bool take_drain(struct cluster *c, const struct msg_drain *d) {
    u32 i = drain_at(c, d->node);
    if (!*d->node || strlen(d->node) >= CLUSTER_ID_CAP) return false;
    if (i == c->n_drains || !same(c->drains[i].node, d->node)) {
        if (c->n_drains >= CLUSTER_NODES_MAX) return false;
        LIST_GROW(c->drains, c->n_drains, c->drains_cap);
        memmove(c->drains + i + 1, c->drains + i, (c->n_drains++ - i) * sizeof *c->drains);
        c->drains[i] = (struct drain){0};
        str_copy(c->drains[i].node, sizeof c->drains[i].node, d->node);
    }
    struct msg_drain *has = &c->drains[i].d;
    if (d->version < has->version ||
        (d->version == has->version && (has->is_drained || !d->is_drained)))
        return false;
    *has = *d;
    has->node = NULL;
    c->state_dirty = c->save = c->changed = c->look = true;
    return true;
}

bool state_drain(struct cluster *c, const char *node, bool on) {
    const struct drain *d = find_drain(c, node);
    if (on == (d && d->d.is_drained)) return false;
    struct msg_drain next = {.node = node, .version = d ? d->d.version + 1 : 1, .is_drained = on};
    return take_drain(c, &next);
}

/* Shallow: the lists live in tmp, what they point to in the cluster. */
static struct msg_state describe(const struct cluster *c, struct arena *tmp) {
    struct msg_state s = {.session = c->session, .index = c->index};
    struct msg_wanted *w = arena_array(tmp, c->n_entries, sizeof *w);
    struct msg_placement *p = arena_array(tmp, c->n_entries, sizeof *p);
    struct msg_string *g = arena_array(tmp, c->n_gone, sizeof *g);
    for (u32 i = 0; i < c->n_entries; i++) {
        w[i] = c->entries[i]->w;
        p[i] = c->entries[i]->p;
    }
    for (u32 i = 0; i < c->n_gone; i++) g[i].s = c->gone[i];
    s.wanted = (struct wire_list){w, c->n_entries};
    s.placements = (struct wire_list){p, c->n_entries};
    s.gone = (struct wire_list){g, c->n_gone};
    struct msg_drain *d = arena_array(tmp, c->n_drains, sizeof *d);
    for (u32 i = 0; i < c->n_drains; i++) {
        d[i] = c->drains[i].d;
        d[i].node = c->drains[i].node;
    }
    s.drains = (struct wire_list){d, c->n_drains};
    s.seen = (struct wire_list){c->seen, c->n_seen};
    return s;
}

void state_send(const struct cluster *c, const char *to, struct cluster_output *out) {
    core_send_bytes(out, to, MSG_STATE, state_bytes(c, out));
}

struct core_bytes state_bytes(const struct cluster *c, struct cluster_output *out) {
    struct arena tmp = {0};
    struct msg_state s = describe(c, &tmp);
    struct core_bytes b = core_encode(out, MSG_STATE, &s);
    arena_deinit(&tmp);
    return b;
}

void state_refresh_digest(struct cluster *c) {
    if (!c->state_dirty) return;
    struct arena tmp = {0};
    struct str bytes = {0};
    struct msg_state s = describe(c, &tmp);
    wire_encode(msg_table(MSG_STATE), &s, &bytes);
    c->digest = hash_bytes(str_z(&bytes), bytes.n);
    c->state_dirty = false;
    str_deinit(&bytes);
    arena_deinit(&tmp);
}

static const struct msg_placement *placement_of(const struct msg_state *s, const char *id) {
    const struct msg_placement *p = s->placements.v;
    for (u64 i = 0; i < s->placements.n; i++)
        if (same(p[i].instance, id)) return &p[i];
    return NULL;
}

/* Ranks in order, no holes, all on live nodes. */
static bool is_whole(const struct cluster *c, const struct msg_placement *p, u32 n_layers,
                     u64 now_ms) {
    const struct msg_rank *r = p->ranks.v;
    u32 at = 0;
    for (u64 i = 0; i < p->ranks.n; at = r[i++].layer_end) {
        const struct member *m = members_find(c, r[i].node);
        if (!m || !members_live(c, m, now_ms)) return false;
        bool shares = i && r[i].layer_first == r[i - 1].layer_first && r[i].layer_end == at;
        if (!shares && (r[i].layer_first != at || r[i].layer_end <= at)) return false;
    }
    return p->place && at == n_layers;
}

/* Does the sender know of w? An instance of another part of a cluster that was cut goes on until
 * the master has heard of it and takes it over where it is. */
static bool is_settled(const struct msg_state *s, const struct msg_wanted *w) {
    const struct msg_string *gone = s->gone.v;
    if (has_seen(s->seen.v, s->seen.n, w)) return true;
    for (u64 i = 0; i < s->gone.n; i++)
        if (same(gone[i].s, w->id)) return true;
    return false;
}

static void take_placements(struct cluster *c, const struct msg_state *s) {
    if (!same(c->session_master, s->session.master))
        str_copy(c->session_master, sizeof c->session_master, s->session.master);
    c->session = s->session;
    c->session.master = c->session_master;
    c->index = s->index;
    for (u32 i = 0; i < c->n_entries; i++) {
        struct entry *en = c->entries[i];
        const struct msg_placement *p = placement_of(s, en->w.id);
        if (!p && !is_settled(s, &en->w)) continue;
        state_place(c, en, p ? p : &(struct msg_placement){.instance = en->w.id});
    }
    c->state_dirty = c->changed = c->look = true;
}

/* Are the placements of s orders for this node, which it does not know yet? */
static bool is_news(const struct cluster *c, const struct msg_state *s) {
    const struct msg_claim *k = &s->session;
    if (elect_is_master(c) || !same(k->master, c->claim_master) || k->term != c->claim.term)
        return false;
    bool known = same(c->session_master, k->master) && c->session.term == k->term;
    return !known || s->index > c->index;
}

/* What the sender has seen and does not list any more was deleted there. */
static void drop_unlisted(struct cluster *c, const struct msg_state *s) {
    const struct msg_wanted *w = s->wanted.v;
    for (u32 i = 0; i < c->n_entries; i++) {
        const struct entry *en = c->entries[i];
        if (!has_seen(s->seen.v, s->seen.n, &en->w)) continue;
        bool listed = false;
        for (u64 k = 0; k < s->wanted.n && !listed; k++) listed = same(w[k].id, en->w.id);
        if (listed) continue;
        state_unwant(c, en->w.id);
        i--;
    }
}

void state_merge(struct cluster *c, const struct cluster_input *in, u64 now_ms,
                 struct cluster_output *out) {
    struct arena mem = {0};
    struct msg_state s;
    struct err e;
    if (!wire_decode(msg_table(MSG_STATE), in->body, in->n, &mem, &s, &e)) {
        core_log(out, LOG_WARN, "bad state from=%s: %s", in->peer, e.msg);
        arena_deinit(&mem);
        return;
    }
    bool was_saved = c->save;
    c->save = false;
    const struct msg_string *gone = s.gone.v;
    const struct msg_wanted *w = s.wanted.v;
    const struct msg_drain *d = s.drains.v;
    for (u64 i = 0; i < s.gone.n; i++) state_unwant(c, gone[i].s);
    drop_unlisted(c, &s);
    for (u64 i = 0; i < s.drains.n; i++) take_drain(c, &d[i]);
    for (u64 i = 0; i < s.wanted.n; i++) {
        bool is_new = !state_find(c, w[i].id);
        if (is_new && has_seen(c->seen, c->n_seen, &w[i])) continue; /* it was deleted here */
        struct entry *en = state_want(c, &w[i]);
        /* An instance that another part of the cluster made and runs goes on where it is. */
        const struct msg_placement *p = placement_of(&s, w[i].id);
        if (en && is_new && p && elect_is_master(c) && is_whole(c, p, w[i].desc.n_layers, now_ms) &&
            orders_fits(c, p))
            state_place(c, en, p);
    }
    for (u64 i = 0; i < s.seen.n; i++) see(c, &((const struct msg_seen *)s.seen.v)[i]);
    if (is_news(c, &s)) take_placements(c, &s);
    bool is_other = c->save; /* what is wanted, that is; placements are not saved */
    c->save = c->save || was_saved;
    if (elect_is_master(c) && is_other) {
        c->index++;
        state_touch(c);
    }
    arena_deinit(&mem);
}

/* A file that lost its end would still decode, and say that what is missing was deleted. */
static const u8 MAGIC[8] = "\xffskein1"; /* no message begins with 255 */

void cluster_save(const struct cluster *c, struct str *out) {
    struct arena tmp = {0};
    struct msg_state s = describe(c, &tmp);
    struct msg_route *routes = arena_array(&tmp, c->n_members, sizeof *routes);
    struct msg_saved saved = {.term = c->term,
                              .gone = s.gone,
                              .wanted.v = s.wanted.v,
                              .routes.v = routes,
                              .seen = s.seen,
                              .drains = s.drains};
    struct msg_wanted *w = s.wanted.v;
    for (u64 i = 0; i < s.wanted.n; i++) /* what a request made is made again by the next one */
        if (!w[i].is_automatic) w[saved.wanted.n++] = w[i];
    for (u32 i = 1; i < c->n_members; i++) {
        const struct member *m = c->members[i];
        if (m->counted && *m->address)
            routes[saved.routes.n++] = (struct msg_route){.node = m->id, .address = m->address};
    }
    struct str body = {0};
    wire_encode(&MSG_SAVED_TABLE, &saved, &body);
    u64 sum = hash_bytes(str_z(&body), body.n);
    str_add(out, MAGIC, sizeof MAGIC);
    str_add(out, &sum, sizeof sum);
    str_add(out, body.p, body.n);
    str_deinit(&body);
    arena_deinit(&tmp);
}

bool state_load(struct cluster *c, const void *bytes, size_t n, u64 now_ms, struct err *e) {
    struct arena mem = {0};
    struct msg_saved s;
    const u8 *p = bytes;
    size_t head = sizeof MAGIC + sizeof(u64);
    if (n >= head && memcmp(p, MAGIC, sizeof MAGIC) == 0) {
        u64 sum;
        memcpy(&sum, p + sizeof MAGIC, sizeof sum);
        if (sum != hash_bytes(p + head, n - head))
            return err_set(e, ERR_FORMAT, "the checksum of the cluster's state is wrong");
        p += head;
        n -= head;
    } else if (n && p[0] == MAGIC[0]) {
        return err_set(e, ERR_FORMAT, "the cluster's state is cut off");
    }
    bool ok = wire_decode(&MSG_SAVED_TABLE, p, n, &mem, &s, e);
    if (ok) {
        const struct msg_string *gone = s.gone.v;
        const struct msg_wanted *w = s.wanted.v;
        const struct msg_route *r = s.routes.v;
        c->term = s.term;
        for (u64 i = 0; i < s.gone.n; i++) state_unwant(c, gone[i].s);
        for (u64 i = 0; i < s.wanted.n; i++) {
            struct entry *en = state_want(c, &w[i]);
            if (en) en->restored = true;
        }
        for (u64 i = 0; i < s.seen.n; i++) see(c, &((const struct msg_seen *)s.seen.v)[i]);
        for (u64 i = 0; i < s.drains.n; i++)
            take_drain(c, &((const struct msg_drain *)s.drains.v)[i]);
        for (u64 i = 0; i < s.routes.n; i++) {
            struct member *m =
                same(r[i].node, c->id) ? NULL : members_add(c, r[i].node, r[i].address, now_ms);
            if (m) m->counted = true;
        }
    }
    arena_deinit(&mem);
    return ok;
}
