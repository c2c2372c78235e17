/* fetch.c - two threads that download models, and how the node's thread hears of it.
 *
 * One takes what shards need, one download at a time; the other the beginnings of files, which tell
 * what a model is: whoever asks for a model learns whether it can be placed, however long another
 * one takes to come. The node pushes jobs into a queue of each and gets events through one of both;
 * a job is its thread's until the event of its end hands it back. A download that nobody wants any
 * more is stopped; what came of it stays on the disk for the next time. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/sock.h"
#include "node/node_parts.h"

enum { FETCH_PEERS_MAX = 32, QUEUE_CAP = 1024, EVENT_EVERY_MS = 250, STOP_MS = 1000 };

struct job {
    char model[1024]; /* "" ends the thread */
    bool stop;        /* under the fetcher's lock: set by the node's thread, read by the other */
    u32 n_parts;
    struct store_part parts[];
};
struct event {
    enum { EVENT_PROGRESS = 1, EVENT_DONE, EVENT_NOTE, EVENT_ENDED } kind;
    char model[1024];
    struct store_progress progress; /* without strings */
    char note[300];
    struct store_model found;
    struct err failure; /* code ERR_NONE: found is valid */
    struct job *job;    /* that ended, to be freed with the event; else NULL */
};

struct fetcher;
enum { OF_SHARDS, OF_HEADS, N_WORKERS };

struct worker {
    struct fetcher *f;
    pthread_t thread;
    struct queue *jobs;
    /* of its own thread: */
    struct job *job;
    u64 told_ms;
};

struct fetcher {
    const struct store *store;
    struct worker worker[N_WORKERS];
    u32 n_started;
    struct queue *events;
    /* Guards what follows: set by the node's thread, read by the fetching ones. */
    struct lock lock;
    bool stop;
    struct store_peer peers[FETCH_PEERS_MAX];
    u32 n_peers;
    struct store_help help; /* constant */
};

/* *ends: of the thread, not of its job alone. */
static bool is_stopping(struct worker *w, bool *ends) {
    struct fetcher *f = w->f;
    lock_take(&f->lock);
    *ends = f->stop;
    bool stop = f->stop || w->job->stop;
    lock_give(&f->lock);
    return stop;
}

static struct event *event_new(const struct worker *w, int kind) {
    struct event *ev = xcalloc(1, sizeof *ev);
    ev->kind = kind;
    str_copy(ev->model, sizeof ev->model, w->job->model);
    return ev;
}

static void event_free(struct event *ev) {
    if (ev) free(ev->job);
    free(ev);
}

static bool on_progress(const struct store_progress *p, void *ctx) {
    struct worker *w = ctx;
    bool ends;
    u64 now = clock_ms();
    if (p->note || now - w->told_ms >= EVENT_EVERY_MS) {
        struct event *ev = event_new(w, p->note ? EVENT_NOTE : EVENT_PROGRESS);
        ev->progress = *p;
        if (p->note) str_copy(ev->note, sizeof ev->note, p->note);
        ev->progress.source = ev->progress.note = NULL;
        if (!queue_push(w->f->events, ev)) free(ev); /* the next one will do */
        w->told_ms = now;
    }
    return !is_stopping(w, &ends);
}

static u32 list_peers(void *ctx, struct store_peer *v, u32 cap) {
    struct fetcher *f = ctx;
    lock_take(&f->lock);
    u32 n = MIN(f->n_peers, cap);
    memcpy(v, f->peers, n * sizeof *v);
    lock_give(&f->lock);
    return n;
}

static void *fetch_thread(void *arg) {
    struct worker *w = arg;
    struct fetcher *f = w->f;
    for (;;) {
        struct job *j;
        while (!(j = queue_pop(w->jobs)))
            poll(&(struct pollfd){queue_fd(w->jobs), POLLIN, 0}, 1, -1);
        w->job = j;
        bool last, stop = is_stopping(w, &last);
        last |= !*j->model;
        struct event *ev = event_new(w, last ? EVENT_ENDED : EVENT_DONE);
        ev->job = j;
        if (stop)
            err_set(&ev->failure, ERR_CANCELLED, "stopped before it began");
        else if (!last && store_fetch_parts(f->store, j->model, &f->help, j->parts, j->n_parts,
                                            on_progress, w, &ev->found, &ev->failure))
            ev->failure.code = ERR_NONE;
        while (!queue_push(f->events, ev)) clock_sleep_ms(10);
        if (last) return NULL;
    }
}

static bool start_worker(struct fetcher *f, struct worker *w, struct err *e) {
    w->f = f;
    w->jobs = queue_new(QUEUE_CAP, e);
    int no = w->jobs ? pthread_create(&w->thread, NULL, fetch_thread, w) : 0;
    if (no) err_set(e, ERR_IO, "can't start a download thread: %s", strerror(no));
    if (!w->jobs || no) return false;
    f->n_started++;
    return true;
}

struct fetcher *fetch_start(const struct store *s, struct share *share, const char *self,
                            struct err *e) {
    struct fetcher *f = xcalloc(1, sizeof *f);
    f->store = s;
    f->help = (struct store_help){.share = share, .self = self, .peers = list_peers, .ctx = f};
    lock_init(&f->lock);
    f->events = queue_new(QUEUE_CAP, e);
    bool ok = f->events != NULL;
    for (u32 i = 0; ok && i < N_WORKERS; i++) ok = start_worker(f, &f->worker[i], e);
    if (ok) return f;
    fetch_stop(f);
    return NULL;
}

bool fetch_stop(struct fetcher *f) {
    if (!f) return true;
    lock_take(&f->lock);
    f->stop = true;
    lock_give(&f->lock);
    for (u32 i = 0; i < f->n_started; i++) {
        struct job *j = xcalloc(1, sizeof *j);
        /* full: the thread sees stop after its present job */
        if (!queue_push(f->worker[i].jobs, j)) free(j);
    }
    u64 deadline = clock_ms() + STOP_MS;
    u32 n_ended = 0;
    while (n_ended < f->n_started && clock_ms() < deadline) {
        struct event *ev = queue_pop(f->events);
        if (ev)
            n_ended += ev->kind == EVENT_ENDED;
        else
            poll(&(struct pollfd){queue_fd(f->events), POLLIN, 0}, 1, 50);
        event_free(ev);
    }
    /* One that hangs in the network: the process is about to end. */
    if (n_ended < f->n_started) return false;
    struct event *ev;
    void *left;
    for (u32 i = 0; i < N_WORKERS; i++) {
        if (i < f->n_started) pthread_join(f->worker[i].thread, NULL);
        while (f->worker[i].jobs && (left = queue_pop(f->worker[i].jobs))) free(left);
        queue_free(f->worker[i].jobs);
    }
    while (f->events && (ev = queue_pop(f->events))) event_free(ev);
    queue_free(f->events);
    lock_deinit(&f->lock);
    free(f);
    return true;
}

int fetch_fd(const struct fetcher *f) {
    return queue_fd(f->events);
}

static struct download *download_of(struct node *n, const char *model, bool make) {
    for (u32 i = 0; i < n->n_downloads; i++)
        if (strcmp(n->downloads[i].model, model) == 0) return &n->downloads[i];
    if (!make) return NULL;
    NODE_GROW(n->downloads, n->n_downloads, n->downloads_cap);
    struct download *d = &n->downloads[n->n_downloads++];
    *d = (struct download){0};
    str_copy(d->model, sizeof d->model, model);
    return d;
}

static void tell(struct node *n, const char *type, const struct download *d) {
    struct str *o = events_begin(n->events, type);
    json_put_str(o, "node", n->id);
    json_put_str(o, "model", d->model);
    json_put_u64(o, "done", d->now.done);
    json_put_u64(o, "total", d->now.total);
    if (d->failure.code) json_put_str(o, "text", d->failure.msg);
    events_end(n->events);
}

void fetch_set_peers(struct node *n, u64 now_ms) {
    struct fetcher *f = n->fetcher;
    lock_take(&f->lock);
    f->n_peers = 0;
    for (u32 i = 1; i < cluster_n_members(n->cluster) && f->n_peers < FETCH_PEERS_MAX; i++) {
        struct cluster_member m;
        struct store_peer *p = &f->peers[f->n_peers];
        char host[SOCK_HOST_CAP];
        u16 port;
        cluster_member(n->cluster, i, now_ms, &m);
        if (m.state != MEMBER_LIVE || !m.hello->share_port || m.hello->share_token.n != 32 ||
            !sock_split(m.address, 1, host, &port, NULL))
            continue;
        str_copy(p->id, sizeof p->id, m.id);
        hex_encode(m.hello->share_token.p, 32, p->token);
        snprintf(p->url, sizeof p->url, strchr(host, ':') ? "http://[%s]:%u" : "http://%s:%u", host,
                 m.hello->share_port);
        f->n_peers++;
    }
    lock_give(&f->lock);
}

static void set_stop(struct fetcher *f, struct job *j, bool on) {
    lock_take(&f->lock);
    j->stop = on;
    lock_give(&f->lock);
}

bool fetch_need(struct node *n, const char *model, const struct store_part *parts, u32 n_parts,
                u64 elsewhere, struct store_model *m, struct err *e) {
    char path[1024];
    e->code = ERR_NONE;
    if (!store_resolve(n->cfg.store, model, m, e)) {
        /* Another node may have a file of that name: the fetching thread asks them. */
        if (e->code != ERR_NOT_FOUND || !elsewhere || !store_elsewhere(model, elsewhere, m))
            return false;
        *e = (struct err){0};
    }
    bool there = *m->path || store_has_parts(n->cfg.store, m, parts, n_parts, path);
    if (there && !*m->path) str_copy(m->path, sizeof m->path, path);
    if (there) return true;
    struct download *d = download_of(n, model, true);
    if (d->job) {
        set_stop(n->fetcher, d->job, false); /* if it was too late, its end has it begin again */
        return false;
    }
    struct job *j = xcalloc(1, sizeof *j + n_parts * sizeof *parts);
    str_copy(j->model, sizeof j->model, model);
    if (n_parts) memcpy(j->parts, parts, n_parts * sizeof *parts);
    fetch_set_peers(n, clock_ms());
    j->n_parts = n_parts;
    bool head = n_parts == 1 && parts->offset == 0 && parts->bytes <= FETCH_HEAD_BYTES;
    if (!queue_push(n->fetcher->worker[head ? OF_HEADS : OF_SHARDS].jobs, j)) {
        free(j);
        return err_set(e, ERR_BUSY, "too many downloads are waiting");
    }
    d->job = j;
    n->changed = true;
    d->now = (struct store_progress){.done = m->partial_bytes, .total = m->size_bytes};
    d->failure = (struct err){0};
    tell(n, "download_started", d);
    log_info("node", "download started model=%s bytes=%llu", model,
             (unsigned long long)m->size_bytes);
    return false;
}

static void take_done(struct node *n, struct download *d, const struct event *ev) {
    bool stopped = ev->failure.code == ERR_CANCELLED;
    d->job = NULL;
    d->failure = ev->failure;
    char model[1024]; /* what follows may move the list */
    memcpy(model, d->model, sizeof model);
    if (stopped)
        log_info("node", "download stopped model=%s: nobody wants it any more", model);
    else if (ev->failure.code)
        log_error("node", "download failed model=%s: %s", model, ev->failure.msg);
    else {
        d->now.done = d->now.total = ev->found.size_bytes;
        log_info("node", "download done model=%s path=%s", model, ev->found.path);
    }
    tell(n,
         stopped            ? "download_stopped"
         : ev->failure.code ? "download_failed"
                            : "download_done",
         d);
    const struct err *failure = ev->failure.code && !stopped ? &ev->failure : NULL;
    node_shard_file(n, model, failure); /* who came to want it meanwhile has it begin again */
    want_file(n, model, failure);
}

void fetch_read(struct node *n) {
    struct event *ev;
    while ((ev = queue_pop(n->fetcher->events))) {
        struct download *d = download_of(n, ev->model, false);
        if (d && ev->kind == EVENT_DONE)
            take_done(n, d, ev);
        else if (d && ev->kind == EVENT_NOTE)
            log_info("node", "download model=%s: %s", ev->model, ev->note);
        else if (d && ev->kind == EVENT_PROGRESS) {
            d->now = ev->progress;
            node_shard_fetching(n, ev->model, &ev->progress);
        }
        n->changed = true;
        event_free(ev);
    }
}

static bool is_wanted(const struct node *n, const char *model) {
    for (u32 i = 0; i < n->n_shards; i++)
        if (n->shards[i]->fact.status == RUNNER_FETCHING && !strcmp(n->shards[i]->model, model))
            return true;
    for (u32 i = 0; i < n->n_wants; i++)
        if (n->wants[i]->stage == WANT_FILE && !strcmp(n->wants[i]->model, model)) return true;
    return false;
}

void fetch_step(struct node *n) {
    for (u32 i = 0; i < n->n_downloads; i++) {
        struct download *d = &n->downloads[i];
        if (d->job && !is_wanted(n, d->model)) set_stop(n->fetcher, d->job, true);
    }
}
