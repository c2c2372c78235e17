/* store_swarm.c - chunks of one file from the machines that have them, and from its origin what
 * nobody has.
 *
 * Each node asks the others for their maps (share.h). A chunk that a peer has is fetched there and
 * held against the peer's hash of it. One that several nodes still need is fetched from the origin
 * by the one of the smallest id; the others wait for it. So about one copy leaves the origin,
 * however many nodes start at once, and nobody is in charge. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "net/download_state.h"
#include "net/http_client.h"
#include "net/http_download.h"
#include "node/share.h"
#include "node/store_internal.h"

enum {
    PEERS_MAX = 32,
    BATCH = 8,      /* chunks between two looks at the maps */
    GREET_MS = 700, /* nodes that start together get to know of each other */
    PAUSE_MS = 300, /* between two looks when there is nothing to do but wait */
    PATIENCE_MS =
        300000, /* a peer that needs a chunk and brings none for so long is not waited for */
    HASHING_MS = 30000, /* a peer that has the only copy hashes it first, chunk by chunk */
    GONE_MS = 5000,     /* nor one that does not answer */
};

struct peer {
    struct store_peer who;
    struct str body; /* its map's bytes; empty: it does not answer */
    struct share_map map;
    bool is_bad; /* sent bytes that are not those of its hash */
};

struct swarm {
    struct fetch *f;
    const struct store_help *help;
    const u8 *need; /* [n_chunks] */
    u32 n_chunks;
    struct peer peers[PEERS_MAX];
    u32 n_peers, turn;
    struct download_state have;
    u8 *want; /* [n_chunks] of the batch */
    bool no_origin;
    struct err origin_err;
    u64 moved_ms; /* when something last arrived anywhere */
    u64 seen;     /* chunks on all peers then */
};

static bool is_missing(const struct swarm *w, u32 i) {
    return w->need[i] && w->have.done[i] != download_state_len(&w->have, i);
}

/* What is on disk; the state file is the truth. */
static bool read_have(struct swarm *w, struct err *e) {
    char state[1100];
    snprintf(state, sizeof state, "%s.state", w->f->part);
    download_state_deinit(&w->have);
    if (download_state_load(&w->have, state) && w->have.size_bytes == w->f->m->size_bytes &&
        access(w->f->part, R_OK) == 0)
        return true;
    download_state_deinit(&w->have);
    return download_state_init(&w->have, w->f->m->size_bytes, "") ||
           err_set(e, ERR_LIMIT, "%s is too large", w->f->m->id);
}

static void ask_map(struct swarm *w, struct peer *p) {
    char url[400], auth[100];
    struct http_client_res res = {0};
    snprintf(url, sizeof url, "%s/%s/map", p->who.url, w->f->m->sha256);
    snprintf(auth, sizeof auth, "Authorization: Bearer %s", p->who.token);
    const char *const headers[] = {auth, NULL};
    struct http_client_req q = {
        .url = url, .headers = headers, .connect_timeout_ms = 1000, .total_timeout_ms = 5000};
    str_clear(&p->body);
    if (http_client_fetch(&q, &res, NULL) && res.status == 200 &&
        share_map_parse(res.body.p, res.body.n, w->f->m->size_bytes, &p->map)) {
        str_add(&p->body, res.body.p, res.body.n); /* the map points into the body */
        share_map_parse(p->body.p, p->body.n, w->f->m->size_bytes, &p->map);
    }
    http_client_res_deinit(&res);
}

/* The live peers and their maps; who is known already keeps its mark. */
static void ask_peers(struct swarm *w) {
    struct store_peer now[PEERS_MAX];
    struct peer next[PEERS_MAX] = {0};
    u32 n = w->help && w->help->peers ? w->help->peers(w->help->ctx, now, PEERS_MAX) : 0;
    u64 seen = 0;
    for (u32 i = 0; i < n; i++) {
        next[i].who = now[i];
        for (u32 k = 0; k < w->n_peers; k++)
            if (strcmp(w->peers[k].who.id, now[i].id) == 0) next[i].is_bad = w->peers[k].is_bad;
        ask_map(w, &next[i]);
        for (u32 c = 0; next[i].body.n && c < w->n_chunks; c++)
            seen += share_map_flags(&next[i].map, c) & SHARE_HAS;
    }
    for (u32 k = 0; k < w->n_peers; k++) str_deinit(&w->peers[k].body);
    memcpy(w->peers, next, sizeof next);
    w->n_peers = n;
    if (seen != w->seen) w->moved_ms = clock_ms();
    w->seen = seen;
}

static bool has(const struct peer *p, u32 chunk) {
    return p->body.n && !p->is_bad && (share_map_flags(&p->map, chunk) & SHARE_HAS);
}

/* Missing chunks that p has, up to a batch, into w->want. */
static u32 offered(struct swarm *w, const struct peer *p) {
    u32 n = 0;
    memset(w->want, 0, w->n_chunks);
    for (u32 i = 0; i < w->n_chunks && n < BATCH; i++)
        if (is_missing(w, i) && has(p, i)) w->want[i] = 1, n++;
    return n;
}

/* Missing chunks that are this node's to bring: nobody has them, and no peer of a smaller id is
 * about to. */
static u32 own_turn(struct swarm *w) {
    bool patient = clock_ms() - w->moved_ms < PATIENCE_MS;
    u32 n = 0;
    memset(w->want, 0, w->n_chunks);
    for (u32 i = 0; i < w->n_chunks && n < BATCH; i++) {
        bool mine = is_missing(w, i);
        for (u32 k = 0; mine && k < w->n_peers; k++) {
            const struct peer *p = &w->peers[k];
            bool first = p->body.n && (share_map_flags(&p->map, i) & SHARE_NEEDS) &&
                         strcmp(p->who.id, w->help->self) < 0;
            mine = !has(p, i) && !(first && patient);
        }
        if (mine) w->want[i] = 1, n++;
    }
    return n;
}

static bool chunk_is(struct swarm *w, u32 i, const u8 *hash) {
    struct sha256 h;
    u8 digest[SHARE_HASH_BYTES];
    u64 off = (u64)i * w->have.chunk_bytes, n = download_state_len(&w->have, i);
    u8 *bytes = malloc(n);
    int fd = open(w->f->part, O_RDONLY | O_CLOEXEC);
    bool ok = bytes && fd >= 0 && pread(fd, bytes, n, (off_t)off) == (ssize_t)n;
    sha256_init(&h);
    if (ok) sha256_add(&h, bytes, n);
    sha256_end(&h, digest);
    if (fd >= 0) close(fd);
    free(bytes);
    return ok && hash_equal(digest, hash, sizeof digest);
}

static bool peer_progress(void *ctx, u64 done, u64 total, double rate) {
    (void)total;
    return store_tell(ctx, STORE_DOWNLOADING, done, rate, NULL);
}

/* w->want from p; what does not fit its hash is thrown away, and p is not asked again. False only
 * for what ends the fetch. */
static bool from_peer(struct swarm *w, struct peer *p, struct err *e) {
    char url[400], label[200], state[1100];
    struct err why = {0};
    snprintf(url, sizeof url, "%s/%s", p->who.url, w->f->m->sha256);
    snprintf(label, sizeof label, "node %.8s", p->who.id);
    snprintf(state, sizeof state, "%s.state", w->f->part);
    struct http_download d = {.url = url,
                              .part_path = w->f->part,
                              .size_bytes = w->f->m->size_bytes,
                              .want = w->want,
                              .n_want = w->n_chunks,
                              .is_hashed = true,
                              .n_connections = 2,
                              .connect_timeout_ms = 2000,
                              .idle_timeout_ms = 10000,
                              .bearer = p->who.token,
                              .progress = peer_progress,
                              .ctx = w->f};
    w->f->label = label;
    bool ok = http_download_run(&d, &why);
    w->f->label = NULL;
    if (!read_have(w, e)) return false;
    for (u32 i = 0; i < w->n_chunks; i++) {
        if (!w->want[i] || is_missing(w, i)) continue;
        w->moved_ms = clock_ms();
        if (chunk_is(w, i, share_map_hash(&p->map, i))) continue;
        log_warn("store", "chunk refused model=%s chunk=%u node=%s reason=\"not its hash\"",
                 w->f->m->id, i, p->who.id);
        p->is_bad = true;
        w->have.done[i] = 0;
        if (!download_state_save(&w->have, state, e)) return false;
    }
    if (ok) return true;
    if (store_is_final(why.code)) {
        *e = why;
        return false;
    }
    log_info("store", "peer skipped model=%s node=%s: %s", w->f->m->id, p->who.id, why.msg);
    p->is_bad = why.code != ERR_NET; /* a network may come back */
    str_clear(&p->body);
    return true;
}

/* w->want from the first URL that gives it. False only for what ends the fetch. */
static bool from_origin(struct swarm *w, struct err *e) {
    struct err why = {0};
    err_set(&why, ERR_UNSUPPORTED, "no source of %s gives parts of it", w->f->m->id);
    for (u32 i = 0; i < w->f->m->n_sources; i++) {
        const struct catalogue_source *src = &w->f->m->sources[i];
        if (!src->url) continue;
        why = (struct err){0};
        w->f->label = src->label;
        if (store_from_url(w->f, src, w->want, w->n_chunks, &why)) {
            w->moved_ms = clock_ms();
            return read_have(w, e);
        }
        if (!store_is_final(why.code)) continue;
        *e = why;
        return false;
    }
    w->no_origin = true;
    w->origin_err = why;
    return true;
}

static bool somebody_can(const struct swarm *w) {
    for (u32 k = 0; k < w->n_peers; k++)
        for (u32 i = 0; w->peers[k].body.n && i < w->n_chunks; i++) {
            bool brings = share_map_flags(&w->peers[k].map, i) &&
                          strcmp(w->peers[k].who.id, w->help->self) < 0;
            if (is_missing(w, i) && (has(&w->peers[k], i) || brings)) return true;
        }
    return false;
}

/* Of a file that only peers have: is there one that may still bring it? */
static bool is_worth_waiting(const struct swarm *w) {
    u64 since = clock_ms() - w->moved_ms;
    for (u32 k = 0; k < w->n_peers; k++)
        if (w->peers[k].body.n && !w->peers[k].is_bad) return since < HASHING_MS;
    return since < GONE_MS;
}

/* One look around and what follows from it. *done when nothing is missing. */
static bool round_of(struct swarm *w, bool *done, struct err *e) {
    if (!store_tell(w->f, STORE_DOWNLOADING, download_state_have(&w->have), 0, NULL))
        return store_cancelled(w->f, e);
    *done = true;
    for (u32 i = 0; *done && i < w->n_chunks; i++) *done = !is_missing(w, i);
    if (*done) return true;
    ask_peers(w);
    for (u32 k = 0; k < w->n_peers; k++) {
        struct peer *p = &w->peers[(w->turn + k) % w->n_peers];
        if (!offered(w, p)) continue;
        w->turn++;
        return from_peer(w, p, e);
    }
    if (w->f->by_id) {
        clock_sleep_ms(PAUSE_MS);
        return is_worth_waiting(w) ||
               err_set(e, ERR_NET, "no node that has %s can be reached", w->f->m->file);
    }
    if (!w->no_origin && own_turn(w)) return from_origin(w, e);
    if (w->no_origin && (!somebody_can(w) || clock_ms() - w->moved_ms > PATIENCE_MS)) {
        *e = w->origin_err;
        return false;
    }
    clock_sleep_ms(PAUSE_MS);
    return true;
}

bool store_swarm(struct fetch *f, const struct store_help *help, const u8 *need, u32 n_chunks,
                 struct err *e) {
    struct swarm *w = xcalloc(1, sizeof *w);
    *w = (struct swarm){.f = f, .help = help, .need = need, .n_chunks = n_chunks};
    w->want = xcalloc(n_chunks ? n_chunks : 1, 1);
    w->moved_ms = clock_ms();
    bool ok = read_have(w, e), done = false;
    for (u32 i = 0; ok && i < n_chunks; i++) {
        f->total += need[i] ? download_state_len(&w->have, i) : 0;
        f->beside += need[i] ? 0 : w->have.done[i];
    }
    if (help && help->share && help->peers(help->ctx, (struct store_peer[1]){0}, 1)) {
        share_need(help->share, f->m->sha256, need, n_chunks);
        clock_sleep_ms(GREET_MS);
    }
    while (ok && !done) ok = round_of(w, &done, e);
    for (u32 k = 0; k < w->n_peers; k++) str_deinit(&w->peers[k].body);
    download_state_deinit(&w->have);
    free(w->want);
    free(w);
    f->label = NULL;
    return ok;
}
