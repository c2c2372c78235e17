/* shards.c - the runner processes of this machine, from the cluster's order to their end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "node/node_parts.h"
#include "node/self.h"

enum {
    STOP_GRACE_MS = 250,
    FROZEN_MS = 1000, /* a runner that a signal has stopped for so long is replaced */
};

struct shard *node_shard_find(struct node *n, const char *instance, u64 place) {
    for (u32 i = 0; i < n->n_shards; i++) {
        struct shard *s = n->shards[i];
        if (s->place == place && strcmp(s->instance, instance) == 0) return s;
    }
    return NULL;
}

void node_bury(struct node *n, struct child *c, u32 grace_ms) {
    if (!c) return;
    child_hangup(c, grace_ms);
    NODE_GROW(n->dying, n->n_dying, n->dying_cap);
    n->dying[n->n_dying++] = c;
}

static void set_status(struct shard *s, enum runner_status status) {
    s->fact.status = status;
    s->dirty = true;
}

static void fail(struct node *n, struct shard *s, const struct err *why) {
    if (s->fact.status == RUNNER_FAILED) return;
    struct str text = {0};
    utf8_add_lossy(&text, why->msg,
                   strlen(why->msg)); /* a cut message may end inside a character */
    s->failure.code = why->code;
    str_copy(s->failure.msg, sizeof s->failure.msg, str_z(&text));
    str_deinit(&text);
    bool wanted = why->code == ERR_CANCELLED; /* another rank of it was stopped */
    log_line(wanted ? LOG_INFO : LOG_ERROR, "node", "runner %s instance=%s rank=%u: %s",
             wanted ? "ended" : "failed", s->instance, s->rank, why->msg);
    s->fact.code = (u32)why->code;
    s->fact.text = s->failure.msg;
    set_status(s, RUNNER_FAILED);
    node_bury(n, s->child, STOP_GRACE_MS);
    s->child = NULL;
    leg_shard_gone(n, s, why);
}

/* The instance's key mixed with the placement, so that ranks of two placements never talk. */
static void shard_key(struct shard *s, const struct wire_blob *key) {
    hmac_sha256(key->p, key->n, &s->place, sizeof s->place, s->key);
}

static void spawn(struct node *n, struct shard *s, const char *path) {
    char label[160];
    struct err e = {0};
    snprintf(label, sizeof label, "runner of %s, rank %u", s->model, s->rank);
    s->child = child_spawn(n->cfg.program, label, &e);
    if (!s->child) {
        fail(n, s, &e);
        return;
    }
    struct msg_load load = {.instance_id = s->instance,
                            .path = path,
                            .rank = s->rank,
                            .n_ranks = s->n_ranks,
                            .layer_first = s->layer_first,
                            .layer_end = s->layer_end,
                            .n_ctx = s->n_ctx,
                            .n_seq_max = n->cfg.n_seq_max,
                            .kv_type = s->kv_type,
                            .sum_wire = n->cfg.sum_wire,
                            .encrypt = n->cfg.encrypt_data,
                            .act_bits = s->act_bits,
                            .fabric = n->cfg.fabric,
                            .memory_max_bytes = s->memory_bytes,
                            .tp_first = s->tp_first,
                            .tp_ranks = s->tp_ranks,
                            .slice = s->slice,
                            .force = s->force,
                            .n_threads = n->cfg.n_threads,
                            .cpu_mask = n->cfg.cpu_mask,
                            .key = {s->key, sizeof s->key},
                            .listen_host = n->cfg.listen_host};
    s->fact.pid = (u32)child_pid(s->child);
    s->fact.done = 0;
    s->fact.total = s->layer_end - s->layer_first;
    set_status(s, RUNNER_LOADING);
    log_info("node", "runner started instance=%s model=%s rank=%u layers=%u-%u pid=%u", s->instance,
             s->model, s->rank, s->layer_first, s->layer_end - 1, s->fact.pid);
    child_send(s->child, MSG_LOAD, &load);
}

/* Rows [first, end) of n, as this rank has them; all of them when it holds its layers alone. */
static void rows_of(const struct msg_shape *d, u32 n_vocab, const struct msg_slice *s, u64 split,
                    u64 row[2], u64 *n) {
    u32 group = d->n_kv_heads ? MAX(d->n_heads / d->n_kv_heads, 1u) : 1;
    row[0] = 0;
    row[1] = *n = 1;
    if (split == FILE_SPLIT_HEADS)
        row[0] = s->head_first, row[1] = s->head_end, *n = d->n_heads;
    else if (split == FILE_SPLIT_KV)
        row[0] = s->head_first / group, row[1] = (s->head_end + group - 1) / group,
        *n = d->n_kv_heads;
    else if (split == FILE_SPLIT_FF)
        row[0] = s->ff_first, row[1] = s->ff_end, *n = d->n_ff;
    else if (split == FILE_SPLIT_VOCAB)
        row[0] = s->vocab_first, row[1] = s->vocab_end, *n = n_vocab;
    if (row[1] > row[0] && row[1] <= *n) return;
    row[0] = 0;
    row[1] = *n = 1;
}

/* Which parts of the file hold what this rank computes with. */
static void take_parts(struct shard *s, const struct msg_model *d, const struct msg_rank *r) {
    const u64 *v = d->file_parts.v;
    u32 n = (u32)(d->file_parts.n / 3);
    s->parts = arena_array(&s->mem, n + 1, sizeof *s->parts);
    for (u32 i = 0; i < n; i++, v += 3) {
        u64 owner = (u32)v[0], row[2], n_rows;
        bool mine = owner == FILE_PART_ALL || (owner == FILE_PART_EMBED && r->layer_first == 0) ||
                    (owner == FILE_PART_HEAD && r->layer_end == d->n_layers) ||
                    (owner >= FILE_PART_LAYER0 + (u64)r->layer_first &&
                     owner < FILE_PART_LAYER0 + (u64)r->layer_end);
        if (!mine) continue;
        rows_of(&d->shape, d->n_vocab, &r->slice, r->tp_ranks > 1 ? v[0] >> 32 : FILE_SPLIT_NONE,
                row, &n_rows);
        s->parts[s->n_parts++] = (struct store_part){
            v[1] + v[2] / n_rows * row[0], v[2] - v[2] / n_rows * (n_rows - row[1] + row[0])};
    }
}

/* Starts the runner when its part of the file is here; else that is being fetched. */
static void start_with_file(struct node *n, struct shard *s) {
    struct store_model m;
    struct err e = {0};
    bool there = fetch_need(n, s->model, s->parts, s->n_parts, s->file_bytes, &m, &e);
    if (there && s->file_bytes && m.size_bytes && m.size_bytes != s->file_bytes)
        err_set(&e, ERR_FORMAT,
                "%s has %llu bytes here, the instance was planned for a file of %llu", m.path,
                (unsigned long long)m.size_bytes, (unsigned long long)s->file_bytes);
    if (there) self_yield(n);
    if (e.code)
        fail(n, s, &e);
    else if (there && !n->n_dying)
        spawn(n, s, m.path);
    else
        set_status(s, there ? RUNNER_LOADING : RUNNER_FETCHING);
    s->waits = there && !e.code && !s->child;
}

/* A runner that starts beside one that ends would find its memory taken. */
static void spawn_waiting(struct node *n) {
    for (u32 i = 0; i < n->n_shards && !n->n_dying; i++)
        if (n->shards[i]->waits) start_with_file(n, n->shards[i]);
}

void node_reap(struct node *n) {
    for (u32 i = 0; i < n->n_dying; i++) {
        if (!child_gone(n->dying[i])) continue;
        child_close(n->dying[i], 0);
        n->dying[i--] = n->dying[--n->n_dying];
    }
    spawn_waiting(n);
}

void node_shard_start(struct node *n, const struct cluster_action *a) {
    struct shard *s = xcalloc(1, sizeof *s);
    const struct msg_rank *ranks = a->placement->ranks.v, *r = &ranks[a->rank];
    s->instance = arena_strdup(&s->mem, a->instance);
    s->model = arena_strdup(&s->mem, a->wanted->model);
    s->place = a->place;
    s->rank = a->rank;
    s->n_ranks = (u32)a->placement->ranks.n;
    s->layer_first = r->layer_first;
    s->layer_end = r->layer_end;
    s->n_ctx = a->placement->n_ctx;
    s->kv_type = a->wanted->kv_type;
    s->act_bits = a->wanted->act_bits;
    s->memory_bytes = r->memory_bytes;
    s->tp_first = r->tp_first;
    s->tp_ranks = r->tp_ranks;
    s->slice = r->slice;
    s->force = a->wanted->wish.force;
    s->file_bytes = a->wanted->desc.file_bytes;
    shard_key(s, &a->wanted->key);
    s->fact = (struct msg_runner){.instance = s->instance,
                                  .place = s->place,
                                  .rank = s->rank,
                                  .status = RUNNER_FETCHING,
                                  .isa = s->isa,
                                  .text = ""};
    NODE_GROW(n->shards, n->n_shards, n->shards_cap);
    n->shards[n->n_shards++] = s;

    take_parts(s, &a->wanted->desc, r);
    start_with_file(n, s);
}

void node_shard_file(struct node *n, const char *model, const struct err *failure) {
    for (u32 i = 0; i < n->n_shards; i++) {
        struct shard *s = n->shards[i];
        if (s->child || s->fact.status != RUNNER_FETCHING || strcmp(s->model, model) != 0) continue;
        if (failure)
            fail(n, s, failure);
        else
            start_with_file(n, s);
    }
}

void node_shard_fetching(struct node *n, const char *model, const struct store_progress *p) {
    for (u32 i = 0; i < n->n_shards; i++) {
        struct shard *s = n->shards[i];
        if (s->fact.status != RUNNER_FETCHING || strcmp(s->model, model) != 0) continue;
        s->fact.done = p->done;
        s->fact.total = p->total;
        s->dirty = true;
    }
}

void node_shard_connect(struct node *n, const struct cluster_action *a) {
    struct shard *s = node_shard_find(n, a->instance, a->place);
    if (!s || !s->child) return;
    struct arena mem = {0};
    struct msg_peer *peers = arena_array(&mem, a->n_peers + 1, sizeof *peers);
    for (u32 i = 0; i < a->n_peers; i++) {
        peers[i] = a->peers[i];
        peers[i].streams = self_streams(n, peers[i].host);
    }
    struct msg_connect m = {.peers = {peers, a->n_peers}};
    s->fact.status = RUNNER_CONNECTING; /* the cluster knows */
    child_send(s->child, MSG_CONNECT, &m);
    arena_deinit(&mem);
}

void node_shard_stop(struct node *n, const char *instance, u64 place) {
    struct shard *s = node_shard_find(n, instance, place);
    if (!s) return;
    struct err e = {0};
    err_set(&e, ERR_BUSY, "its instance was stopped");
    leg_shard_gone(n, s, &e);
    log_info("node", "runner stopped instance=%s rank=%u", s->instance, s->rank);
    node_bury(n, s->child, STOP_GRACE_MS);
    for (u32 i = 0; i < n->n_shards; i++)
        if (n->shards[i] == s) n->shards[i] = n->shards[--n->n_shards];
    arena_deinit(&s->mem);
    free(s);
}

static void keep_links(struct shard *s, const struct wire_list *links) {
    const struct msg_rank_link *v = links->v;
    u32 n = (u32)MIN(links->n, (u64)s->n_ranks);
    struct msg_rank_link *own = arena_array(&s->mem, n + 1, sizeof *own);
    for (u32 i = 0; i < n; i++) {
        own[i] = v[i];
        own[i].provider = arena_strdup(&s->mem, v[i].provider);
    }
    s->fact.links = (struct wire_list){own, n};
}

static void take_ready(struct shard *s, const struct msg_ready *m) {
    s->fact.n_ctx = m->n_ctx;
    s->fact.weights_bytes = m->weights_bytes;
    s->fact.kv_bytes = m->kv_bytes;
    s->fact.scratch_bytes = m->scratch_bytes;
    s->fact.kv_tokens = m->kv_tokens;
    s->fact.n_threads = m->n_threads;
    str_copy(s->isa, sizeof s->isa, m->isa);
    keep_links(s, &m->links);
    s->fact.done = s->fact.total;
    set_status(s, RUNNER_READY);
    char w[32], kv[32];
    log_info("node", "runner ready instance=%s rank=%u weights=\"%s\" kv=\"%s\" ctx=%u isa=%s",
             s->instance, s->rank, size_text(m->weights_bytes, w), size_text(m->kv_bytes, kv),
             m->n_ctx, m->isa);
}

static void take_progress(struct shard *s, const struct msg_progress *m) {
    s->fact.done = m->done;
    s->fact.total = m->total;
    s->dirty = true;
    if (m->done < m->total) return;
    if (s->fact.status == RUNNER_CONNECTING)
        s->fact.status = RUNNER_WARMING; /* it is connected, and takes memory */
    else if (s->fact.status == RUNNER_LOADING)
        s->fact.status = s->n_ranks > 1 ? RUNNER_LOADED : RUNNER_WARMING;
}

/* Messages about the shard itself; the others belong to requests. */
static void take_frame(struct node *n, struct shard *s, const struct frame *f) {
    struct arena mem = {0};
    union {
        struct msg_listening listening;
        struct msg_progress progress;
        struct msg_ready ready;
        struct msg_failed failed;
        struct msg_stats stats;
    } m;
    struct err e = {0};
    const struct wire_table *t = msg_table(f->type);
    bool own = f->type == MSG_LISTENING || f->type == MSG_PROGRESS || f->type == MSG_READY ||
               f->type == MSG_FAILED || f->type == MSG_STATS;
    if (!own) {
        leg_frame(n, s, f);
        return;
    }
    ASSERT(t->size_bytes <= sizeof m);
    if (!wire_decode(t, f->body, f->n, &mem, &m, &e)) {
        fail(n, s, &e);
    } else if (f->type == MSG_LISTENING) {
        s->fact.port = m.listening.port;
        s->dirty = true;
    } else if (f->type == MSG_PROGRESS)
        take_progress(s, &m.progress);
    else if (f->type == MSG_READY)
        take_ready(s, &m.ready);
    else if (f->type == MSG_STATS) {
        s->stats = m.stats;
        n->changed = true;
    } else {
        err_set(&e, MIN(m.failed.code, (u32)ERR_N - 1), "%s", m.failed.text);
        fail(n, s, &e);
    }
    arena_deinit(&mem);
}

void node_shard_read(struct node *n, struct shard *s) {
    struct frame f;
    struct err e = {0};
    int got = 0;
    while (s->child && (got = child_recv(s->child, &f, &e)) == 1) take_frame(n, s, &f);
    if (s->child && got < 0) fail(n, s, &e);
}

/* Ranks of a group notice each other's silence (comm/group_pulse.c); a runner alone has only its
 * node. */
void node_shard_watch(struct node *n) {
    for (u32 i = 0; i < n->n_shards; i++) {
        struct child *c = n->shards[i]->child;
        if (c && child_stopped_ms(c) >= FROZEN_MS) child_kill_stopped(c);
    }
}

/* The master unloads what is idle when memory is short. */
static void note_activity(struct node *n) {
    for (u32 i = 0; i < n->n_shards; i++) {
        struct shard *s = n->shards[i];
        u32 active = 0;
        for (u32 k = 0; k < n->n_legs; k++) active += n->legs[k]->shard == s;
        if (active == s->fact.n_active) continue;
        if (active > s->fact.n_active) s->fact.n_served += active - s->fact.n_active;
        s->fact.n_active = active;
        s->dirty = true;
    }
}

void node_shard_report(struct node *n) {
    note_activity(n);
    for (u32 i = 0; i < n->n_shards; i++) {
        if (!n->shards[i]->dirty) continue;
        n->shards[i]->dirty = false;
        struct msg_runner fact = n->shards[i]->fact;
        member_feed(n, &(struct cluster_input){.kind = CLUSTER_RUNNER, .runner = &fact});
        i = (u32)-1; /* the step may have started and stopped some */
    }
}
