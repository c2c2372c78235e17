#include "runner/runner.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/sysinfo.h"
#include "kernels/rate.h"
#include "runner/runner_impl.h"
#include "wire/msg_facts.h"

enum {
    STATS_EVERY_US = 1000000,
};
/* Where measuring found rounds as far apart as this, other programs took processors away. */
static const double CONTENDED_SPREAD = 1.25;

/* The node reads all the time and never waits for a runner, so blocking writes can't lock up. */
void runner_flush(struct runner *r) {
    size_t off = 0;
    while (off < r->out.n && !r->closing) {
        ssize_t k = send(r->fd, r->out.p + off, r->out.n - off, MSG_NOSIGNAL);
        if (k > 0)
            off += (size_t)k;
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            poll(&(struct pollfd){r->fd, POLLOUT, 0}, 1, -1);
        else if (errno != EINTR)
            r->closing = true; /* the node is gone */
    }
    str_clear(&r->out);
}

void runner_send(struct runner *r, u32 type, const void *msg) {
    frame_add(&r->out, type, msg);
}

void runner_send_error(struct runner *r, u64 id, const struct err *e) {
    struct msg_request_error m = {.id = id, .code = e->code, .text = e->msg};
    runner_send(r, MSG_REQUEST_ERROR, &m);
}

static void send_failed(struct runner *r, const struct err *e) {
    bool wanted = e->code == ERR_CANCELLED;
    log_line(wanted ? LOG_INFO : LOG_ERROR, "runner", "%s code=%s reason=\"%s\"",
             wanted ? "ends" : "failed", err_name(e->code), e->msg);
    struct msg_failed m = {.code = e->code, .text = e->msg};
    runner_send(r, MSG_FAILED, &m);
    runner_flush(r);
}

static void send_stats(struct runner *r) {
    u64 now = clock_us();
    if (!r->sched || now - r->last_stats_us < STATS_EVERY_US) return;
    r->last_stats_us = now;
    struct msg_stats m = {.n_running = sched_n_running(r->sched),
                          .n_waiting = sched_n_waiting(r->sched),
                          .kv_tokens_used = sched_blocks_used(r->sched) * KV_BLOCK_TOKENS,
                          .kv_tokens = (u64)r->lim.n_blocks * KV_BLOCK_TOKENS,
                          .n_generated = r->n_generated,
                          .rss_bytes = sysinfo_rss_bytes()};
    runner_send(r, MSG_STATS, &m);
}

static bool on_describe(struct runner *r, const struct msg_describe *m, struct err *e) {
    struct arena a = {0};
    struct msg_described d;
    struct model_file *f = model_file_open(m->path, e);
    bool ok = f && runner_describe(f, m, &a, &d, e);
    if (ok) runner_send(r, MSG_DESCRIBED, &d);
    model_file_close(f);
    arena_deinit(&a);
    return ok;
}

_Static_assert((int)RATE_COLS == (int)MSG_RATE_COLS &&
                   (int)RATE_NARROW_COLS == (int)MSG_RATE_NARROW_COLS,
               "the columns that rates are of");
_Static_assert((int)RATE_FEW_TOK == (int)MSG_RATE_FEW && (int)RATE_MANY_TOK == (int)MSG_RATE_MANY,
               "the tokens that rates are of");

/* v: [RATE_TYPES_MAX] */
static struct wire_list list_rates(const struct rate *r, struct msg_rate *v) {
    for (u32 i = 0; i < r->n_types; i++) {
        const struct rate_type *t = &r->types[i];
        v[i] = (struct msg_rate){.type = t->type,
                                 .one_ops_s = (u64)t->one_ops_s,
                                 .narrow_ops_s = (u64)t->narrow_ops_s,
                                 .few_ops_s = (u64)t->few_ops_s,
                                 .many_ops_s = (u64)t->many_ops_s,
                                 .many8_ops_s = (u64)t->many8_ops_s,
                                 .narrow_many_ops_s = (u64)t->narrow_many_ops_s};
    }
    return (struct wire_list){v, r->n_types};
}

static bool on_measure(struct runner *r, const struct msg_measure *m, struct err *e) {
    struct kernels k = {0};
    struct rate rate;
    u32 n_known, n_usable;
    const char *const *sets = kernels_sets(&n_known, &n_usable);
    u64 bytes = MAX(MIN((u64)RATE_MEM_BYTES, m->mem_bytes), (u64)8 << 20);
    struct pool *pool = kernels_select(&k, m->cpu_mask, e) ? pool_new(m->n_threads, true, e) : NULL;
    if (!pool) return false;
    struct str isas = {0};
    for (u32 i = 0; i < n_usable; i++) str_addf(&isas, "%s%s", i ? " " : "", sets[i]);
    bool ok = rate_measure(pool, &k, bytes, &rate, e);
    struct msg_rate rates[RATE_TYPES_MAX];
    struct msg_measured d = {.isa = k.set, .isas = str_z(&isas), .n_threads = pool_threads(pool)};
    if (ok) {
        d.read_bytes_s = (u64)rate.read_bytes_s;
        d.int8_ops_s = (u64)rate_find(&rate, DTYPE_Q4_0)->many_ops_s;
        d.float_ops_s = (u64)rate_find(&rate, DTYPE_F32)->many_ops_s;
        d.call_ns = (u32)MIN(rate.call_s * 1e9 + 0.5, 1e9);
        d.rates = list_rates(&rate, rates);
        d.attend_ops_s = (u64)rate.attend_ops_s;
        d.attend_one_ops_s = (u64)rate.attend_one_ops_s;
        d.is_contended = rate.spread > CONTENDED_SPREAD;
        runner_send(r, MSG_MEASURED, &d);
    }
    str_deinit(&isas);
    pool_free(pool);
    return ok;
}

/* The load message outlives the frame it came in. */
static bool on_load(struct runner *r, const struct frame *f, struct err *e) {
    if (r->model) return err_set(e, ERR_INTERNAL, "this runner has a shard already");
    if (!wire_decode(msg_table(MSG_LOAD), f->body, f->n, &r->load_arena, &r->load, e)) return false;
    char name[64];
    snprintf(name, sizeof name, "runner %.8s/%u", r->load.instance_id, r->load.rank);
    log_set_process(name);
    return runner_load(r, e);
}

/* False ends the runner: the shard can't go on. */
static bool on_frame(struct runner *r, const struct frame *f, struct err *e) {
    if (f->type == MSG_LOAD) return on_load(r, f, e);
    if (f->type == MSG_SHUTDOWN) return r->closing = true;
    const struct wire_table *t = msg_table(f->type);
    union {
        struct msg_describe describe;
        struct msg_connect connect;
        struct msg_generate generate;
        struct msg_cancel cancel;
        struct msg_tokenize tokenize;
        struct msg_measure measure;
    } m;
    if (!t || t->size_bytes > sizeof m)
        return err_set(e, ERR_INTERNAL, "a runner does not take message %s", msg_name(f->type));
    struct arena a = {0};
    bool ok = wire_decode(t, f->body, f->n, &a, &m, e);
    if (ok) switch (f->type) {
        case MSG_DESCRIBE: ok = on_describe(r, &m.describe, e); break;
        case MSG_MEASURE: ok = on_measure(r, &m.measure, e); break;
        case MSG_CONNECT: ok = runner_connect(r, &m.connect, e); break;
        case MSG_GENERATE: runner_generate(r, &m.generate); break;
        case MSG_CANCEL: runner_cancel(r, m.cancel.id); break;
        case MSG_TOKENIZE: runner_tokenize(r, &m.tokenize); break;
        default:
            ok = err_set(e, ERR_INTERNAL, "a runner does not take message %s", msg_name(f->type));
        }
    arena_deinit(&a);
    return ok;
}

/* Reads what the node has sent, without waiting, and handles every whole frame. */
static bool read_node(struct runner *r, struct err *e) {
    char buf[65536];
    for (;;) {
        ssize_t k = recv(r->fd, buf, sizeof buf, MSG_DONTWAIT);
        if (k == 0) r->closing = true;
        if (k < 0 && errno == EINTR) continue;
        if (k < 0 && errno != EAGAIN && errno != EWOULDBLOCK) r->closing = true;
        if (k <= 0) break;
        frame_in_add(&r->in, buf, (size_t)k);
    }
    struct frame f;
    int got = 0;
    while (!r->closing && (got = frame_in_next(&r->in, &f, e)) == 1)
        if (!on_frame(r, &f, e)) return false;
    return got >= 0;
}

/* One turn: waits for work unless a step can be started at once. */
static bool turn(struct runner *r, bool busy, struct err *e) {
    struct pollfd node = {r->fd, POLLIN, 0};
    bool has_msg = false;
    int wait_ms = busy ? 0 : -1;
    runner_flush(r);
    if (r->group) {
        if (!group_poll(r->group, &node, 1, wait_ms, &has_msg, e)) return false;
    } else if (poll(&node, 1, wait_ms) < 0 && errno != EINTR) {
        return err_errno(e, ERR_IO, "poll");
    }
    if (node.revents && !read_node(r, e)) return false;
    if (has_msg) {
        struct group_msg m;
        if (!group_recv(r->group, GROUP_ANY, 0, &m, e)) return false;
        if (!runner_rank_frame(r, &m, e)) return false;
    }
    return true;
}

int runner_main(int fd) {
    struct runner *r = xcalloc(1, sizeof *r);
    r->fd = fd;
    r->listen_fd = -1;
    signal(SIGPIPE, SIG_IGN);
    signal(SIGINT, SIG_IGN); /* Ctrl-C is the parent's */
    struct err e = {0};
    bool ok = true, busy = false;
    while (ok && !r->closing) {
        ok = turn(r, busy, &e);
        if (ok && r->ready && runner_is_first(r) && !r->closing) {
            ok = runner_start_step(r, &busy, &e);
            send_stats(r);
        }
    }
    if (!ok) send_failed(r, &e);
    r->leaves = ok || e.code == ERR_CANCELLED;
    runner_unload(r);
    frame_in_deinit(&r->in);
    str_deinit(&r->out);
    str_deinit(&r->scratch);
    arena_deinit(&r->load_arena);
    free(r);
    close(fd);
    return ok ? 0 : 1;
}
