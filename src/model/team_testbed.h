/* team_testbed.h - what tests of sharded models share: one model dealt to ranks, which are threads
 * with connections between them, against the same model in one process.
 *
 * Only included by tests. */
#pragma once

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/test.h"
#include "comm/team.h"
#include "model/team_layout.h"
#include "model/testbed.h"
#include "ops/act24.h"

/* Rows that want logits of the step that has not only such. */
enum { TEAM_SOME = 4 };

/* cmocka's asserts belong to the main thread. */
#define CHECK(c, e) ((c) ? (void)0 : team_abort(__FILE__, __LINE__, #c, (e)->msg))
static inline void team_abort(const char *file, int line, const char *what, const char *why) {
    fprintf(stderr, "%s:%d: %s: %s\n", file, line, what, why);
    abort();
}

struct team_job {
    const char *path;
    const struct layout *layout;
    enum team_wire wire;
    u32 n_tok; /* computed in one step as sequence 0, then one by one as sequence 1, then in part */
    int fd[TEAM_RANKS];
    u16 port[TEAM_RANKS];
};

struct member {
    pthread_t t;
    u32 rank, stage, first; /* first rank of its stage */
    const struct team_job *job;
    struct testbed b;
    struct group *g; /* who leaves is lost to the others: freed when all are through */
    struct team *team;
    float *x, *logits; /* [2][n_tok][n_vocab], then [TEAM_SOME][n_vocab] */
    void *wire;
    u64 file_bytes;
};

static inline struct group *join(const struct member *m, struct err *e) {
    static const u8 KEY[GROUP_KEY_BYTES] = "a key for the test of teams";
    struct group_peer peers[TEAM_RANKS];
    struct group_cfg cfg = {.rank = m->rank,
                            .n_ranks = layout_ranks(m->job->layout),
                            .listen_fd = m->job->fd[m->rank],
                            .peers = peers,
                            .key = KEY,
                            .silence_ms = 20000};
    for (u32 r = 0, k = 0; r < cfg.n_ranks; r++)
        if (r != m->rank) peers[k++] = (struct group_peer){r, "127.0.0.1", m->job->port[r], 0};
    return group_connect(&cfg, e);
}

/* Sequences in one step, from the stage before and to the next; out as testbed_step has it. */
static inline void pipeline_step(struct member *m, const struct testbed_part *part, u32 n_parts,
                                 const u32 *ids, const u32 *out, float *logits, struct err *e) {
    const struct layout *l = m->job->layout;
    u32 dim = m->b.p.dim, i = m->rank - m->first, n_tok = 0;
    for (u32 k = 0; k < n_parts; k++) n_tok += part[k].n;
    if (m->stage > 0) {
        u32 n = l->stage[m->stage - 1].n;
        struct group_msg got;
        CHECK(group_recv(m->g, (int)(m->first - n + i % n), -1, &got, e), e);
        act24_unpack(m->x, got.body, n_tok, dim);
    }
    CHECK(testbed_step(&m->b, part, n_parts, ids, out, TEAM_SOME, m->x, logits, e), e);
    if (m->stage + 1 == l->n_stages) return;
    act24_pack(m->wire, m->x, n_tok, dim);
    struct iovec iov = {m->wire, act24_bytes(n_tok, dim)};
    u32 n = l->stage[m->stage].n;
    for (u32 k = i; k < l->stage[m->stage + 1].n; k += n)
        CHECK(group_send(m->g, m->first + n + k, 1, &iov, 1, e), e);
}

/* Two prompts in one step, the first a quarter of it; the rows that want logits. */
static inline void team_some(u32 n, u32 out[TEAM_SOME]) {
    const u32 rows[TEAM_SOME] = {1, n / 4 - 1, n / 4, n - 1};
    memcpy(out, rows, sizeof rows);
}

/* Whatever is computed with it, a token's logits are the same bits. For sums in f32: the other wire
 * types round by neighbours. */
static inline bool team_same_bits(const struct member *m) {
    u32 n = m->job->n_tok, out[TEAM_SOME];
    u64 row = m->b.p.n_vocab, bytes = row * sizeof *m->logits;
    team_some(n, out);
    bool same = memcmp(m->logits, m->logits + n * row, n * bytes) == 0;
    for (u32 i = 0; i < TEAM_SOME; i++) {
        u32 at = out[i] < n / 4 ? out[i] : out[i] - n / 4;
        same &= memcmp(m->logits + (2 * n + i) * row, m->logits + at * row, bytes) == 0;
    }
    return same;
}

static inline void team_compute(struct member *m, struct err *e) {
    u32 ids[256], n = m->job->n_tok;
    u64 row = m->b.p.n_vocab;
    for (u32 i = 0; i < n; i++) ids[i] = i * 2654435761u / 7 % m->b.p.n_vocab;
    m->logits = xcalloc((2 * n + TEAM_SOME) * row, sizeof *m->logits);
    struct testbed_part part = {.n = n};
    pipeline_step(m, &part, 1, ids, NULL, m->logits, e);
    for (u32 i = 0; i < n; i++) {
        part = (struct testbed_part){.seq = 1, .pos0 = i, .n = 1};
        pipeline_step(m, &part, 1, ids + i, NULL, m->logits + (n + i) * row, e);
    }
    u32 out[TEAM_SOME], both[256];
    struct testbed_part two[] = {{.seq = 2, .n = n / 4}, {.seq = 3, .n = n - n / 4}};
    for (u32 i = 0; i < n; i++) both[i] = ids[i < n / 4 ? i : i - n / 4];
    team_some(n, out);
    pipeline_step(m, two, 2, both, out, m->logits + 2 * n * row, e);
}

static inline void *member_main(void *ctx) {
    struct member *m = ctx;
    const struct layout *l = m->job->layout;
    struct err e = {0};
    struct model_file *f = model_file_open(m->job->path, &e);
    struct model_params p;
    static const u32 EVEN[TEAM_STAGES] = {2, 1, 1, 1};
    CHECK(f && model_params_read(f, &p, &e), &e);
    u32 n = l->stage[m->stage].n, n_tok = m->job->n_tok;
    struct testbed_opts o = {.tp_rank = m->rank - m->first, .tp_ranks = n, .n_threads = 1};
    o.slice = layout_slice(l, m->stage, m->rank - m->first, &p);
    o.max_tok = n_tok;
    o.n_ctx = 2 * n_tok;
    cut(EVEN, l->n_stages, m->stage, p.n_layers, &o.layer_first, &o.layer_end);
    CHECK(testbed_open(&m->b, m->job->path, &o, &e), &e);
    m->file_bytes = shard_file_bytes(f, &p, &m->b.spec);
    model_file_close(f);
    m->x = xcalloc((size_t)n_tok * p.dim, sizeof *m->x);
    m->wire = xcalloc(1, act24_bytes(n_tok, p.dim));
    m->g = join(m, &e);
    CHECK(m->g, &e);
    m->team = team_new(m->g, m->first, n, m->job->wire, &m->b.k, true);
    model_set_team(m->b.m, m->team);
    team_compute(m, &e);
    return NULL;
}

static inline double distance(const float *a, const float *b, u64 n) {
    double diff = 0, norm = 0;
    for (u64 i = 0; i < n; i++) {
        double d = (double)a[i] - b[i];
        diff += d * d;
        norm += (double)b[i] * b[i];
    }
    return sqrt(diff / norm);
}

static inline void member_free(struct member *m) {
    team_free(m->team);
    group_free(m->g);
    testbed_close(&m->b);
    free(m->x), free(m->wire), free(m->logits);
}

/* Relative L2 distance of the layout's logits from those of one process, of whichever way is
 * further off. *copies: bytes of the file that the ranks read together, as a multiple of it. */
static inline double team_distance(const char *path, const struct layout *l, enum team_wire wire,
                                   u32 n_tok, double *copies) {
    static struct layout whole = {1, {{1, {1}}}};
    struct member m[TEAM_RANKS] = {{.rank = 0}};
    struct team_job job = {.path = path, .layout = l, .wire = wire, .n_tok = n_tok}, alone = job;
    u32 n = layout_ranks(l), last = n - l->stage[l->n_stages - 1].n;
    for (u32 r = 0; r < n; r++)
        assert_true((job.fd[r] = group_listen("127.0.0.1", &job.port[r], NULL)) >= 0);
    for (u32 stage = 0, r = 0; stage < l->n_stages; r += l->stage[stage++].n)
        for (u32 i = 0; i < l->stage[stage].n; i++)
            m[r + i] = (struct member){.rank = r + i, .stage = stage, .first = r, .job = &job};
    for (u32 r = 0; r < n; r++) assert_false(pthread_create(&m[r].t, NULL, member_main, &m[r]));
    for (u32 r = 0; r < n; r++) pthread_join(m[r].t, NULL);
    alone.layout = &whole;
    struct member one = {.job = &alone};
    member_main(&one);
    u64 row = one.b.p.n_vocab;
    double a = distance(m[last].logits, one.logits, n_tok * row);
    double b = distance(m[last].logits + n_tok * row, one.logits + n_tok * row, n_tok * row);
    assert_true(wire != TEAM_F32 || team_same_bits(&m[last]));
    *copies = 0;
    for (u32 r = 0; r < n; r++) {
        *copies += (double)m[r].file_bytes / (double)one.file_bytes;
        member_free(&m[r]);
        close(job.fd[r]);
    }
    member_free(&one);
    return a > b || isnan(a) ? a : b;
}
