/* Tiny models whose layers are shared by ranks: what a team computes is what one process computes,
 * but for the order of additions. Ranks are threads with connections between them. */
#include "comm/team.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/test.h"
#include "formats/toymodel.h"
#include "model/testbed.h"

enum { N_TOK = 40, MAX_TOK = 64, MAX_VOCAB = 512, RANKS = 6 };

/* cmocka's asserts belong to the main thread. */
#define CHECK(c, e)                                                               \
    do {                                                                          \
        if (!(c)) {                                                               \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #c, (e)->msg); \
            abort();                                                              \
        }                                                                         \
    } while (0)

static const struct toymodel_spec SPECS[] = {
    {.family = "llama", .n_layers = 3, .n_heads = 9, .n_kv_heads = 3, .dim = 144},
    {.family = "llama", .n_layers = 2, .type = DTYPE_Q4_0, .rope = TOYMODEL_ROPE_LLAMA3},
    {.family = "mistral", .n_layers = 2, .type = DTYPE_Q8_0, .n_heads = 8, .head_dim = 16},
    {.family = "qwen2", .n_layers = 3, .type = DTYPE_Q4_1, .rope = TOYMODEL_ROPE_YARN},
    /* Heads of 64 elements under blocks of 256: slices end inside a block. */
    {.family = "qwen3", .n_layers = 2, .type = DTYPE_Q6_K, .tied = true},
    {.family = "llama", .n_layers = 2, .type = DTYPE_Q4_K, .n_heads = 8, .head_dim = 64},
    {.family = "gemma2", .n_layers = 4, .type = DTYPE_Q5_0, .sliding_window = 12},
    {.family = "gemma3", .n_layers = 7, .type = DTYPE_BF16, .sliding_window = 12},
};

/* Shares in parts of a whole: even, uneven, with an idle rank, more ranks than KV heads. */
static const struct shares {
    u32 n, part[RANKS];
} SHARES[] = {
    {2, {1, 1}}, {3, {5, 1, 3}}, {4, {1, 1, 1, 1}}, {3, {2, 0, 1}}, {6, {1, 2, 1, 3, 1, 1}}};

static void cut(const struct shares *s, u32 rank, u32 n, u32 *first, u32 *end) {
    u32 all = 0, before = 0;
    for (u32 i = 0; i < s->n; i++) {
        all += s->part[i];
        before += i < rank ? s->part[i] : 0;
    }
    *first = n * before / all;
    *end = n * (before + s->part[rank]) / all;
}

static struct shard_slice slice_for(const struct shares *s, u32 rank,
                                    const struct model_params *p) {
    struct shard_slice c;
    cut(s, rank, p->n_heads, &c.head_first, &c.head_end);
    cut(s, rank, p->n_ff, &c.ff_first, &c.ff_end);
    cut(s, rank, p->n_vocab, &c.vocab_first, &c.vocab_end);
    return c;
}

struct path {
    char z[64];
};

static struct path toy_file(const struct toymodel_spec *spec) {
    struct path p = {"/tmp/skein-team-XXXXXX"};
    struct toymodel toy;
    struct str bytes = {0};
    struct err e = {0};
    int fd = mkstemp(p.z);
    assert_true(fd >= 0);
    close(fd);
    if (!toymodel_init(&toy, spec, &e)) fail_msg("%s", e.msg);
    toymodel_build(&toy, &bytes);
    if (!file_write(p.z, bytes.p, bytes.n, 0600, &e)) fail_msg("%s", e.msg);
    str_deinit(&bytes);
    toymodel_deinit(&toy);
    return p;
}

struct listeners {
    int fd[RANKS];
    u16 port[RANKS];
};

struct member {
    pthread_t t;
    u32 rank;
    const struct listeners *l;
    const char *path;
    const struct shares *shares;
    enum team_wire wire;
    struct group *g; /* who leaves is lost to the others: freed when all are through */
    u64 weights_bytes, file_bytes;
    float logits[2][N_TOK * MAX_VOCAB]; /* of one step, and token by token */
};

static struct group *join(const struct member *m, struct err *e) {
    static const u8 KEY[GROUP_KEY_BYTES] = "a key for the test of teams";
    struct group_peer peers[RANKS];
    u32 k = 0;
    for (u32 r = 0; r < m->shares->n; r++)
        if (r != m->rank) peers[k++] = (struct group_peer){r, "127.0.0.1", m->l->port[r]};
    struct group_cfg cfg = {.rank = m->rank,
                            .n_ranks = m->shares->n,
                            .listen_fd = m->l->fd[m->rank],
                            .peers = peers,
                            .key = KEY,
                            .silence_ms = 20000};
    return group_connect(&cfg, e);
}

static void fill_ids(u32 *ids, u32 n_vocab) {
    for (u32 i = 0; i < N_TOK; i++) ids[i] = i * 2654435761u / 7 % n_vocab;
}

static void compute(struct testbed *b, float *logits0, float *logits1, struct err *e) {
    u32 ids[N_TOK];
    fill_ids(ids, b->p.n_vocab);
    struct testbed_part part = {.n = N_TOK};
    CHECK(testbed_step(b, &part, 1, ids, NULL, 0, NULL, logits0, e), e);
    for (u32 i = 0; i < N_TOK; i++) {
        part = (struct testbed_part){.seq = 1, .pos0 = i, .n = 1};
        CHECK(testbed_step(b, &part, 1, ids + i, NULL, 0, NULL, logits1 + (size_t)i * b->p.n_vocab,
                           e),
              e);
    }
}

static void *member_main(void *ctx) {
    struct member *m = ctx;
    struct err e = {0};
    struct model_file *f = model_file_open(m->path, &e);
    struct model_params p;
    CHECK(f && model_params_read(f, &p, &e), &e);
    struct testbed b;
    struct testbed_opts o = {.slice = slice_for(m->shares, m->rank, &p),
                             .tp_rank = m->rank,
                             .tp_ranks = m->shares->n,
                             .n_threads = 1,
                             .max_tok = MAX_TOK,
                             .n_ctx = 2 * MAX_TOK};
    CHECK(testbed_open(&b, m->path, &o, &e), &e);
    struct group *g = join(m, &e);
    CHECK(g, &e);
    struct team *t = team_new(g, 0, m->shares->n, m->wire, &b.k, true);
    model_set_team(b.m, t);
    compute(&b, m->logits[0], m->logits[1], &e);
    m->weights_bytes = model_weights_bytes(b.m);
    m->file_bytes = shard_file_bytes(f, &p, &b.spec);
    team_free(t);
    m->g = g;
    testbed_close(&b);
    model_file_close(f);
    return NULL;
}

static void run(struct member *m, const char *path, const struct shares *s, enum team_wire wire) {
    struct listeners l = {.port = {0}};
    for (u32 r = 0; r < s->n; r++)
        assert_true((l.fd[r] = group_listen("127.0.0.1", &l.port[r], NULL)) >= 0);
    for (u32 r = 0; r < s->n; r++) {
        m[r] = (struct member){.rank = r, .l = &l, .path = path, .shares = s, .wire = wire};
        assert_int_equal(pthread_create(&m[r].t, NULL, member_main, &m[r]), 0);
    }
    for (u32 r = 0; r < s->n; r++) pthread_join(m[r].t, NULL);
    for (u32 r = 0; r < s->n; r++) {
        group_free(m[r].g);
        close(l.fd[r]);
    }
}

static double distance(const float *a, const float *b, u64 n) {
    double diff = 0, norm = 0;
    for (u64 i = 0; i < n; i++) {
        diff += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        norm += (double)b[i] * b[i];
    }
    return sqrt(diff / norm);
}

static struct member members[RANKS];

/* Each way of sharing, in wire type `wire`, against one process. */
static void compare(const struct toymodel_spec *spec, const struct shares *s, enum team_wire wire,
                    double most) {
    static float one[2][N_TOK * MAX_VOCAB];
    struct path file = toy_file(spec);
    struct testbed b;
    struct err e = {0};
    struct testbed_opts o = {.n_threads = 1, .max_tok = MAX_TOK, .n_ctx = 2 * MAX_TOK};
    if (!testbed_open(&b, file.z, &o, &e)) fail_msg("%s", e.msg);
    compute(&b, one[0], one[1], &e);
    run(members, file.z, s, wire);
    u64 n = (u64)N_TOK * b.p.n_vocab, file_bytes = 0;
    for (u32 i = 0; i < 2; i++) {
        double d = distance(members[0].logits[i], one[i], n);
        if (!(d <= most))
            fail_msg("%s, %u ranks, %s: %g", spec->family, s->n, team_wire_name(wire), d);
    }
    for (u32 r = 0; r < s->n; r++) {
        file_bytes += members[r].file_bytes;
        if (s->n > 1) assert_true(members[r].weights_bytes < model_weights_bytes(b.m));
    }
    /* Norms and some KV heads are on several ranks, nothing else is. */
    u64 all = shard_file_bytes(b.f, &b.p, &b.spec);
    assert_true(file_bytes >= all && file_bytes < 2 * all);
    testbed_close(&b);
    unlink(file.z);
}

static void teams_equal_one(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(SPECS); i++)
        for (size_t k = i % 2; k < ARRAY_LEN(SHARES);
             k += 2) /* half of all pairs, each at least twice */
            compare(&SPECS[i], &SHARES[k], TEAM_F32, 1e-3);
}

static void wire_types(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(SPECS); i += 2) {
        compare(&SPECS[i], &SHARES[1], TEAM_F16, 4e-3);
        compare(&SPECS[i], &SHARES[2], TEAM_Q8, 6e-2);
    }
}

static void bad_slices(void **state) {
    (void)state;
    struct path file = toy_file(&SPECS[1]);
    struct testbed b;
    struct err e = {0};
    struct testbed_opts o = {.tp_ranks = 2, .max_tok = MAX_TOK, .n_ctx = MAX_TOK};
    assert_false(testbed_open(&b, file.z, &o, &e));
    assert_non_null(strstr(e.msg, "rank 0 of 2 that share layers has no slice"));
    testbed_close(&b);
    o.slice = (struct shard_slice){.head_first = 3, .head_end = 5};
    assert_false(testbed_open(&b, file.z, &o, &e));
    assert_non_null(strstr(e.msg, "query heads 3 to 5: the model has 4"));
    testbed_close(&b);
    unlink(file.z);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(teams_equal_one),
        cmocka_unit_test(wire_types),
        cmocka_unit_test(bad_slices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
