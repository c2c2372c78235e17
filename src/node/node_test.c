/* Nodes with real processes: this program is also the runner that they start. It computes nothing:
 * token i of an answer is "ti ", so that a lost, repeated or changed token shows. Prompts say how
 * it should misbehave. */
#include "node/node.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/test.h"
#include "base/version.h"
#include "net/bus.h"
#include "wire/frame.h"
#include "wire/msg_cluster.h"

enum { LAYERS = 6, TOKEN_MS = 4, SLOW_MS = 1300, THINK_MS = 2000 };

struct fake {
    int fd;
    struct frame_in in;
    struct msg_load load;
    struct arena mem;
    struct {
        u64 id, next, end, die_at;
    } req[64];
    u32 n_req;
};

static void fake_send(struct fake *f, u32 type, const void *msg) {
    struct str o = {0};
    frame_add(&o, type, msg);
    for (size_t off = 0; off < o.n;) {
        ssize_t k = write(f->fd, o.p + off, o.n - off);
        if (k <= 0) exit(0);
        off += (size_t)k;
    }
    str_deinit(&o);
}

static void fake_fail(struct fake *f, enum err_code code, const char *text) {
    fake_send(f, MSG_FAILED, &(struct msg_failed){.code = code, .text = text});
    exit(1);
}

static void fake_describe(struct fake *f, const char *path) {
    static const u64 BYTES[LAYERS] = {1000, 1000, 1000, 1000, 1000, 1000};
    if (strstr(path, "broken")) fake_fail(f, ERR_FORMAT, "this is no model file");
    if (strstr(path, "crash")) raise(SIGKILL);
    if (strstr(path, "slow")) clock_sleep_ms(SLOW_MS);
    u64 size = 0;
    file_size(path, &size, NULL);
    fake_send(f, MSG_DESCRIBED,
              &(struct msg_described){.path = path,
                                      .arch = "fake",
                                      .name = "Fake",
                                      .quant = "F0",
                                      .n_layers = LAYERS,
                                      .n_ctx_train = 100,
                                      .file_bytes = size,
                                      .kv_bytes_per_token_layer = 8,
                                      .layer_bytes = {BYTES, LAYERS}});
}

/* Of two ranks the first says that its frames go over TCP, the second one that they go through a
 * fabric. */
static void fake_ready(struct fake *f) {
    struct msg_rank_link links[2] = {{CARRIER_FABRIC, 1, false, "verbs"}, {CARRIER_TCP, 4, 1, ""}};
    if (f->load.rank < 2) links[f->load.rank] = (struct msg_rank_link){0};
    fake_send(f, MSG_READY,
              &(struct msg_ready){.n_ctx = 100,
                                  .weights_bytes = 5000,
                                  .kv_bytes = 800,
                                  .isa = "fake",
                                  .links = {links, f->load.n_ranks == 2 ? 2 : 0}});
}

static void fake_load(struct fake *f) {
    if (strstr(f->load.path, "unloadable")) fake_fail(f, ERR_MEMORY, "needs 5 GiB, 3 are free");
    if (strstr(f->load.path, "unfit")) fake_fail(f, ERR_UNSUPPORTED, "computes no such thing");
    if (f->load.n_ranks > 1)
        fake_send(f, MSG_LISTENING, &(struct msg_listening){.port = 7000 + f->load.rank});
    fake_send(f, MSG_PROGRESS, &(struct msg_progress){3, 3});
    if (f->load.n_ranks == 1) fake_ready(f);
}

static void fake_generate(struct fake *f, const struct msg_generate *m) {
    const char *die = strstr(m->prompt, "die at ");
    if (strstr(m->prompt, "too long")) {
        fake_send(f, MSG_REQUEST_ERROR,
                  &(struct msg_request_error){m->id, ERR_CONTEXT, "101 tokens, 100 fit"});
        return;
    }
    if (strstr(m->prompt, "think")) clock_sleep_ms(THINK_MS);
    ASSERT(f->n_req < ARRAY_LEN(f->req));
    f->req[f->n_req].id = m->id;
    f->req[f->n_req].next = m->resume_ids.n;
    f->req[f->n_req].end = m->max_tokens;
    bool dies = die && (m->resume_ids.n == 0 || strstr(m->prompt, "always"));
    f->req[f->n_req++].die_at = dies ? strtoull(die + 7, NULL, 10) : 0;
    fake_send(f, MSG_STARTED, &(struct msg_started){.id = m->id, .n_prompt = 3});
}

/* One token for each request, as a decode step does. */
static void fake_step(struct fake *f) {
    for (u32 i = 0; i < f->n_req; i++) {
        char text[32];
        i32 id = (i32)f->req[i].next;
        if (f->req[i].die_at && f->req[i].next >= f->req[i].die_at) raise(SIGKILL);
        if (f->req[i].next < f->req[i].end) {
            snprintf(text, sizeof text, "t%d ", id);
            fake_send(f, MSG_TOKEN,
                      &(struct msg_token){.id = f->req[i].id, .text = text, .ids = {&id, 1}});
            f->req[i].next++;
            continue;
        }
        fake_send(f, MSG_DONE,
                  &(struct msg_done){.id = f->req[i].id,
                                     .finish = FINISH_LENGTH,
                                     .n_prompt = 3,
                                     .n_generated = (u32)f->req[i].next});
        f->req[i--] = f->req[--f->n_req];
    }
}

static void fake_frame(struct fake *f, const struct frame *fr) {
    struct arena a = {0};
    struct msg_describe d;
    struct msg_generate g;
    struct msg_cancel c;
    const struct wire_table *t = msg_table(fr->type);
    if (fr->type == MSG_DESCRIBE && wire_decode(t, fr->body, fr->n, &a, &d, NULL))
        fake_describe(f, d.path);
    if (fr->type == MSG_LOAD && wire_decode(t, fr->body, fr->n, &f->mem, &f->load, NULL))
        fake_load(f);
    if (fr->type == MSG_CONNECT) fake_ready(f);
    if (fr->type == MSG_GENERATE && wire_decode(t, fr->body, fr->n, &a, &g, NULL))
        fake_generate(f, &g);
    if (fr->type == MSG_CANCEL && wire_decode(t, fr->body, fr->n, &a, &c, NULL))
        for (u32 i = 0; i < f->n_req; i++)
            if (f->req[i].id == c.id) f->req[i--] = f->req[--f->n_req];
    arena_deinit(&a);
}

static int fake_runner(int fd) {
    struct fake f = {.fd = fd};
    char buf[4096];
    struct frame fr;
    for (;;) {
        ssize_t k = recv(fd, buf, sizeof buf, f.n_req ? MSG_DONTWAIT : 0);
        if (k == 0) break;
        if (k > 0) frame_in_add(&f.in, buf, (size_t)k);
        while (frame_in_next(&f.in, &fr, NULL) == 1) fake_frame(&f, &fr);
        if (f.n_req) clock_sleep_ms(TOKEN_MS);
        fake_step(&f);
    }
    frame_in_deinit(&f.in);
    arena_deinit(&f.mem);
    return 0;
}

/* A node on its own thread, with its own folder. */
struct host {
    char dir[64];
    struct store *store;
    bool no_worker;
    struct node *node;
    pthread_t thread;
};

static char self[1024], models[64];

static void *run_node(void *n) {
    node_run(n);
    return NULL;
}

static struct node_cfg cfg_of(struct host *h, const char *peer_address, const char **peers) {
    peers[0] = peer_address;
    return (struct node_cfg){.name = h->dir + 5,
                             .data_dir = h->dir,
                             .cluster = "test",
                             .listen_host = "127.0.0.1",
                             .no_measure = true,
                             .peers = peers,
                             .n_peers = peer_address ? 1 : 0,
                             .program = self,
                             .store = h->store,
                             .timeout_ms = 3000,
                             .no_worker = h->no_worker};
}

static void host_boot(struct host *h, const struct host *peer) {
    struct err e = {0};
    char address[32];
    const char *peers[1];
    snprintf(address, sizeof address, "127.0.0.1:%u", peer ? node_bus_port(peer->node) : 0);
    struct node_cfg cfg = cfg_of(h, peer ? address : NULL, peers);
    h->node = node_new(&cfg, &e);
    if (!h->node) fail_msg("%s", e.msg);
    assert_int_equal(pthread_create(&h->thread, NULL, run_node, h->node), 0);
}

static void host_halt(struct host *h) {
    u64 t0 = clock_ms();
    node_stop(h->node);
    pthread_join(h->thread, NULL);
    assert_true(clock_ms() - t0 < 10000);
    node_free(h->node);
    h->node = NULL;
}

static void host_start_with(struct host *h, const struct host *peer, bool no_worker) {
    struct err e = {0};
    *h = (struct host){.no_worker = no_worker};
    snprintf(h->dir, sizeof h->dir, "/tmp/skein-node-XXXXXX");
    assert_non_null(mkdtemp(h->dir));
    const char *dir = no_worker ? h->dir : models; /* who takes no shards has no models here */
    h->store = store_open(
        &(struct store_cfg){.models_dir = dir, .catalogue = models, .offline = true}, &e);
    if (!h->store) fail_msg("%s", e.msg);
    host_boot(h, peer);
}

static void host_start(struct host *h, const struct host *peer) {
    host_start_with(h, peer, false);
}

static void host_stop(struct host *h) {
    char path[128];
    static const char *const FILES[] = {"lock", "node_key", "cluster"};
    if (h->node) host_halt(h);
    store_close(h->store);
    for (size_t i = 0; i < ARRAY_LEN(FILES); i++) {
        snprintf(path, sizeof path, "%s/%s", h->dir, FILES[i]);
        unlink(path);
    }
    assert_int_equal(rmdir(h->dir), 0);
}

static json_t *state_of(struct host *h) {
    struct err e = {0};
    const struct snapshot_text *t = node_state(h->node);
    json_t *j = json_parse((struct view){t->p, t->n}, &e);
    node_state_done(h->node, t);
    if (!j) fail_msg("%s", e.msg);
    return j;
}

static json_t *instance_of(json_t *state) {
    return json_object_iter_value(json_object_iter(json_object_get(state, "instances")));
}
static bool has_status(json_t *state, const char *status) {
    const char *s = json_string_value(json_object_get(instance_of(state), "status"));
    return s && strcmp(s, status) == 0;
}
static bool is_ready(json_t *s) {
    return has_status(s, "ready");
}
static bool no_instance(json_t *s) {
    return json_object_size(json_object_get(s, "instances")) == 0;
}
static bool one_instance(json_t *s) {
    return json_object_size(json_object_get(s, "instances")) == 1;
}
static bool two_ready(json_t *s) {
    const char *id;
    json_t *i;
    u32 n = 0;
    json_object_foreach(json_object_get(s, "instances"), id, i) n +=
        strcmp(json_string_value(json_object_get(i, "status")), "ready") == 0;
    return n == 2;
}
static bool two_live(json_t *s) {
    size_t n = 0, i;
    json_t *node;
    json_array_foreach(json_object_get(s, "nodes"), i, node) n +=
        strcmp(json_string_value(json_object_get(node, "state")), "lost") != 0;
    return n == 2 && *json_string_value(json_object_get(s, "master"));
}
static bool one_runs(json_t *s) {
    return json_integer_value(json_object_get(json_object_get(s, "requests"), "running_here")) == 1;
}
static bool nothing_runs(json_t *s) {
    json_t *r = json_object_get(s, "requests");
    return json_integer_value(json_object_get(r, "open")) == 0 &&
           json_integer_value(json_object_get(r, "running_here")) == 0;
}

static void wait_until(struct host *h, bool (*is_so)(json_t *), const char *what) {
    for (u64 end = clock_ms() + 15000; clock_ms() < end; clock_sleep_ms(20)) {
        json_t *s = state_of(h);
        bool so = is_so(s);
        json_decref(s);
        if (so) return;
    }
    const struct snapshot_text *t = node_state(h->node);
    printf("%s\n", t->p);
    node_state_done(h->node, t);
    fail_msg("never: %s", what);
}
#define WAIT(h, is_so) wait_until(h, is_so, #is_so)

/* What a request's sink heard. */
struct answer {
    struct lock lock; /* the node's thread writes, the test reads */
    struct str text;
    u32 n_started, n_ends, n_generated, finish;
    struct err error;
};

static void on_started(void *ctx, const struct msg_started *m) {
    struct answer *a = ctx;
    (void)m;
    lock_take(&a->lock);
    a->n_started++;
    lock_give(&a->lock);
}
static void on_token(void *ctx, const struct msg_token *m) {
    struct answer *a = ctx;
    lock_take(&a->lock);
    str_addz(&a->text, m->text);
    lock_give(&a->lock);
}
static void on_done(void *ctx, const struct msg_done *m) {
    struct answer *a = ctx;
    lock_take(&a->lock);
    a->n_ends++;
    a->finish = m->finish;
    a->n_generated = m->n_generated;
    lock_give(&a->lock);
}
static void on_error(void *ctx, const struct err *e) {
    struct answer *a = ctx;
    lock_take(&a->lock);
    a->n_ends++;
    a->error = *e;
    lock_give(&a->lock);
}
static const struct node_sink SINK = {
    .started = on_started, .token = on_token, .done = on_done, .error = on_error};

static u64 ask(struct host *h, struct answer *a, const char *model, const char *prompt, u32 n) {
    *a = (struct answer){0};
    lock_init(&a->lock);
    return node_submit(h->node, model, &(struct msg_generate){.prompt = prompt, .max_tokens = n},
                       &SINK, a);
}

static size_t heard(struct answer *a, bool *ended) {
    lock_take(&a->lock);
    size_t n = a->text.n;
    *ended = a->n_ends > 0;
    lock_give(&a->lock);
    return n;
}

static void wait_end(struct answer *a) {
    bool ended = false;
    for (u64 end = clock_ms() + 20000; !ended && clock_ms() < end; clock_sleep_ms(5))
        heard(a, &ended);
    assert_true(ended);
}

static void wait_tokens(struct answer *a, size_t bytes) {
    bool ended = false;
    u64 end = clock_ms() + 15000;
    while (heard(a, &ended) < bytes && !ended && clock_ms() < end) clock_sleep_ms(2);
    assert_true(heard(a, &ended) >= bytes);
}

/* All n tokens, in order, once. */
static void expect_whole(struct answer *a, u32 n) {
    struct str want = {0};
    wait_end(a);
    if (a->error.code) fail_msg("%s", a->error.msg);
    for (u32 i = 0; i < n; i++) str_addf(&want, "t%u ", i);
    assert_string_equal(str_z(&a->text), str_z(&want));
    assert_int_equal(a->n_started, 1);
    assert_int_equal(a->n_ends, 1);
    assert_int_equal(a->n_generated, n);
    assert_int_equal(a->finish, FINISH_LENGTH);
    str_deinit(&want);
    str_deinit(&a->text);
}

static void expect_error(struct answer *a, enum err_code code, const char *part) {
    wait_end(a);
    assert_int_equal(a->error.code, code);
    if (!strstr(a->error.msg, part)) fail_msg("'%s' does not say '%s'", a->error.msg, part);
    assert_int_equal(a->n_ends, 1);
    str_deinit(&a->text);
}

struct placed {
    struct lock lock;
    bool called;
    char id[NODE_INSTANCE_ID_CAP];
    struct err e;
    const char *dir; /* of the node that was asked */
    bool was_saved;
};
/* Is the instance in the file that the node keeps of the cluster's state? */
static bool is_saved(const char *dir, const char *id) {
    char path[96];
    struct str bytes = {0};
    snprintf(path, sizeof path, "%s/cluster", dir);
    bool found = file_read(path, 1 << 20, &bytes, NULL) &&
                 memmem(str_z(&bytes), bytes.n, id, strlen(id)) != NULL;
    str_deinit(&bytes);
    return found;
}

static void on_placed(void *ctx, const char *id, const struct err *e) {
    struct placed *p = ctx;
    p->was_saved = id && is_saved(p->dir, id);
    lock_take(&p->lock);
    p->called = true;
    str_copy(p->id, sizeof p->id, id ? id : "");
    if (e) p->e = *e;
    lock_give(&p->lock);
}
static void place(struct host *h, struct placed *p, const char *model, u32 min_nodes) {
    *p = (struct placed){.dir = h->dir};
    lock_init(&p->lock);
    node_place(h->node, &(struct node_place){.model = model, .min_nodes = min_nodes}, on_placed, p);
    bool called = false;
    for (u64 end = clock_ms() + 20000; !called && clock_ms() < end; clock_sleep_ms(5)) {
        lock_take(&p->lock);
        called = p->called;
        lock_give(&p->lock);
    }
    assert_true(called);
}

/* What is answered is on the disk already: a crash right after it loses nothing. */
static void the_file_is_written_before_the_answer(void **state) {
    (void)state;
    struct host h;
    struct placed p;
    host_start(&h, NULL);
    place(&h, &p, "fake", 0);
    assert_int_equal(p.e.code, ERR_NONE);
    assert_true(p.was_saved);
    host_stop(&h);
}

static void one_node_answers(void **state) {
    (void)state;
    struct host h;
    struct answer a, b;
    struct err e = {0};
    host_start(&h, NULL);
    ask(&h, &a, "fake", "hello", 20);
    ask(&h, &b, "fake", "hello", 30);
    expect_whole(&a, 20);
    expect_whole(&b, 30);
    assert_true(node_health(h.node, &e));
    json_t *s = state_of(&h);
    assert_string_equal(json_string_value(json_object_get(s, "node_id")), node_id(h.node));
    assert_int_equal(json_object_size(json_object_get(s, "instances")), 1);
    assert_string_equal(json_string_value(json_object_get(instance_of(s), "meta")), "MlxRing");
    assert_non_null(json_object_get(instance_of(s), "MlxRingInstance"));
    json_t *node = json_array_get(json_object_get(s, "nodes"), 0);
    json_t *shard = json_array_get(json_object_get(node, "shards"), 0);
    assert_int_equal(json_integer_value(json_object_get(shard, "layer_end")), LAYERS);
    assert_int_equal(json_integer_value(json_object_get(node, "memory_instances")), 5800);
    assert_non_null(json_object_get(
        json_object_get(json_object_get(s, "nodeMemory"), node_id(h.node)), "ramTotal"));
    json_decref(s);
    host_stop(&h);
}

static void errors_reach_the_one_who_asked(void **state) {
    (void)state;
    struct host h;
    struct answer a;
    host_start(&h, NULL);
    ask(&h, &a, "nothing-of-the-kind", "hello", 5);
    expect_error(&a, ERR_NOT_FOUND, "nothing-of-the-kind");
    ask(&h, &a, "broken", "hello", 5);
    expect_error(&a, ERR_FORMAT, "this is no model file");
    ask(&h, &a, "crash", "hello", 5);
    expect_error(&a, ERR_NET, "was killed by signal 9 (out of memory?)");
    for (u32 i = 0; i < 2; i++) { /* each of them has it tried again, once */
        ask(&h, &a, "unfit", "hello", 5);
        expect_error(&a, ERR_BUSY, "computes no such thing");
    }
    ask(&h, &a, "fake", "too long", 5);
    expect_error(&a, ERR_CONTEXT, "101 tokens, 100 fit");
    ask(&h, &a, "fake", "hello", 5); /* and life goes on */
    expect_whole(&a, 5);
    host_stop(&h);
}

static void a_cancelled_request_stops(void **state) {
    (void)state;
    struct host h;
    struct answer a;
    host_start(&h, NULL);
    u64 id = ask(&h, &a, "fake", "hello", 100000);
    wait_tokens(&a, 20);
    node_cancel(h.node, id);
    expect_error(&a, ERR_CANCELLED, "cancelled");
    WAIT(&h, nothing_runs);
    host_stop(&h);
}

static void an_answer_survives_its_runner(void **state) {
    (void)state;
    struct host h;
    struct answer a;
    host_start(&h, NULL);
    ask(&h, &a, "fake", "die at 13", 40);
    expect_whole(&a, 40);
    host_stop(&h);
}

/* A request that kills every runner is given up before the instance is. */
static void a_deadly_request_ends_alone(void **state) {
    (void)state;
    struct host h;
    struct answer a, b;
    host_start(&h, NULL);
    ask(&h, &a, "fake", "always die at 2", 40);
    expect_error(&a, ERR_NET,
                 "given up after 5 attempts: runner of fake, rank 0 was killed by signal 9");
    ask(&h, &b, "fake", "hello", 10);
    expect_whole(&b, 10);
    host_stop(&h);
}

/* The first link that a shard of the instance shows. */
static void expect_link(json_t *state, u32 rank, u32 to, const char *carrier, bool encrypted) {
    json_t *shard = json_array_get(json_object_get(instance_of(state), "shards"), rank);
    json_t *links = json_object_get(shard, "links"), *l = json_array_get(links, 0);
    assert_int_equal(json_array_size(links), 1);
    assert_int_equal(json_integer_value(json_object_get(l, "rank")), to);
    assert_string_equal(json_string_value(json_object_get(l, "carrier")), carrier);
    assert_int_equal(json_is_true(json_object_get(l, "is_encrypted")), encrypted);
}

static void two_nodes_share_a_model(void **state) {
    (void)state;
    struct host h, g;
    struct answer a, b;
    struct placed p;
    host_start(&h, NULL);
    host_start(&g, &h);
    WAIT(&h, two_live);
    WAIT(&g, two_live);
    place(&g, &p, "fake", 3);
    assert_int_equal(p.e.code, ERR_BUSY);
    assert_non_null(strstr(p.e.msg, "needs 3 nodes, 2 are there"));
    place(&h, &p, "fake", 2);
    assert_int_equal(p.e.code, ERR_NONE);
    WAIT(&g, is_ready);
    json_t *s = state_of(&g); /* of the other node's rank, too */
    assert_int_equal(json_array_size(json_object_get(instance_of(s), "shards")), 2);
    expect_link(s, 0, 1, "TCP x4, encrypted", true);
    expect_link(s, 1, 0, "libfabric verbs", false);
    json_decref(s);
    ask(&h, &a, "fake", "hello", 25); /* rank 0 is here, and behind the bus */
    ask(&g, &b, "fake", "hello", 35);
    expect_whole(&a, 25);
    expect_whole(&b, 35);
    u64 id = ask(&g, &a, "fake", "hello", 100000);
    wait_tokens(&a, 20);
    node_cancel(g.node, id);
    expect_error(&a, ERR_CANCELLED, "cancelled");
    WAIT(&h, nothing_runs);
    node_delete_instance(g.node, p.id);
    WAIT(&h, no_instance);
    host_stop(&g);
    host_stop(&h);
}

/* Requests go on where there is another instance; the last one's end is theirs, or they would bring
 * back what somebody has just taken away. */
static void a_deleted_instance_takes_its_requests_along(void **state) {
    (void)state;
    struct host h;
    struct answer a, b, late;
    struct placed p, q;
    bool ended = false;
    host_start(&h, NULL);
    place(&h, &p, "fake", 1);
    WAIT(&h, is_ready);
    place(&h, &q, "fake", 1);
    WAIT(&h, two_ready);
    ask(&h, &a, "fake", "hello", 100000); /* one on each */
    ask(&h, &b, "fake", "hello", 100000);
    wait_tokens(&a, 5);
    wait_tokens(&b, 5);
    node_delete_instance(h.node, p.id);
    WAIT(&h, one_instance);
    wait_tokens(&a, heard(&a, &ended) + 100);
    wait_tokens(&b, heard(&b, &ended) + 100);
    node_delete_instance(h.node, q.id);
    expect_error(&a, ERR_CANCELLED, "was deleted");
    expect_error(&b, ERR_CANCELLED, "was deleted");
    WAIT(&h, no_instance);
    ask(&h, &late, "fake", "hello", 5); /* a new one brings it back */
    expect_whole(&late, 5);
    host_stop(&h);
}

/* A master that makes room takes an instance for idle that a request has just come to. Such a
 * request is placed anew, however long that takes; one that was there for a while is not. */
static void a_request_that_just_came_is_not_called_off(void **state) {
    (void)state;
    struct host h;
    struct answer a, b;
    struct placed p;
    host_start(&h, NULL);
    place(&h, &p, "slow", 1);
    WAIT(&h, is_ready);
    ask(&h, &a, "slow", "think", 5);
    WAIT(&h, one_runs);
    node_delete_instance(h.node, p.id);
    WAIT(&h, no_instance);
    expect_whole(&a, 5);
    json_t *s = state_of(&h);
    json_t *all = json_object_get(s, "instances");
    str_copy(p.id, sizeof p.id, json_object_iter_key(json_object_iter(all)));
    json_decref(s);
    ask(&h, &b, "slow", "think", 5);
    WAIT(&h, one_runs);
    clock_sleep_ms(1100);
    node_delete_instance(h.node, p.id);
    expect_error(&b, ERR_CANCELLED, "was deleted");
    host_stop(&h);
}

struct planned {
    struct lock lock; /* the node's thread writes, the test reads */
    u32 n;
};
static void on_planned(void *ctx, const char *json, const struct err *e) {
    struct planned *p = ctx;
    lock_take(&p->lock);
    p->n += json && !e;
    lock_give(&p->lock);
}
static u32 n_planned(struct planned *p) {
    lock_take(&p->lock);
    u32 n = p->n;
    lock_give(&p->lock);
    return n;
}

/* Plans have a thread of their own. While it has seconds of work a request is answered, and the
 * other node goes on hearing this one. */
static void plans_keep_nobody_waiting(void **state) {
    (void)state;
    enum { PLANS = 400, MACHINES = 50 };
    static struct node_extra machine[MACHINES];
    struct host h, g;
    struct answer a;
    struct placed p;
    static struct planned done;
    bool ended = false;
    lock_init(&done.lock);
    for (u32 i = 0; i < MACHINES; i++)
        machine[i] = (struct node_extra){"m", 1 << 30, 1e10 + i, 1e11, 1e-4, 1e8};
    host_start(&h, NULL);
    host_start(&g, &h);
    WAIT(&h, two_live);
    WAIT(&g, two_live);
    place(&h, &p, "fake", 1);
    WAIT(&h, is_ready);
    for (u32 i = 0; i < PLANS; i++)
        node_plan(
            h.node, NODE_PLAN_TABLE,
            &(struct node_place){.model = "fake", .extra = machine, .n_extra = MACHINES},
            on_planned, &done);
    for (u64 end = clock_ms() + 15000; !n_planned(&done) && clock_ms() < end; clock_sleep_ms(5)) {
    }
    assert_true(n_planned(&done) > 0);
    ask(&h, &a, "fake", "hello", 100);
    while (!ended) {
        json_t *s = state_of(&g);
        assert_true(two_live(s));
        json_decref(s);
        clock_sleep_ms(5);
        heard(&a, &ended);
    }
    u32 n = n_planned(&done);
    expect_whole(&a, 100);
    assert_true(n < PLANS); /* else this has shown nothing */
    host_stop(&g);
    host_stop(&h);
}

static void a_node_that_is_no_worker_serves_what_others_hold(void **state) {
    (void)state;
    struct host h, g;
    struct answer a;
    struct placed p;
    host_start(&h, NULL);
    host_start_with(&g, &h, true);
    WAIT(&h, two_live);
    WAIT(&g, two_live);
    ask(&g, &a, "nobody-has-it", "hello", 5);
    expect_error(&a, ERR_NOT_FOUND, "nobody-has-it");
    place(&g, &p, "broken", 0);
    assert_non_null(strstr(p.e.msg, "this is no model file"));
    ask(&g, &a, "fake", "hello", 5); /* neither here nor served yet: the other one has the file */
    expect_whole(&a, 5);
    WAIT(&g, is_ready);
    json_t *s = state_of(&g), *shards = json_object_get(instance_of(s), "shards");
    assert_int_equal(json_array_size(shards), 1);
    assert_string_equal(json_string_value(json_object_get(json_array_get(shards, 0), "node")),
                        node_id(h.node));
    json_decref(s);
    ask(&g, &a, "fake", "hello", 25);
    expect_whole(&a, 25);
    host_stop(&g);
    host_stop(&h);
}

static void an_answer_survives_a_node(void **state) {
    (void)state;
    struct host h, g;
    struct answer a;
    struct placed p;
    host_start(&h, NULL);
    host_start(&g, &h);
    WAIT(&g, two_live);
    place(&h, &p, "fake", 0); /* over both, rank 0 on h */
    WAIT(&g, is_ready);
    ask(&g, &a, "fake", "hello", 300);
    wait_tokens(&a, 100);
    host_halt(&h); /* the master, too */
    expect_whole(&a, 300);
    host_stop(&g);
    host_stop(&h);
}

static void a_stopping_node_answers_everybody(void **state) {
    (void)state;
    struct host h;
    struct answer a, b;
    host_start(&h, NULL);
    ask(&h, &a, "fake", "hello", 100000);
    wait_tokens(&a, 10);
    ask(&h, &b, "fake", "hello", 5);
    host_halt(&h);
    expect_error(&a, ERR_BUSY, "the node is stopping");
    wait_end(&b);
    str_deinit(&b.text);
    host_stop(&h);
}

static void too_many_requests_are_refused(void **state) {
    (void)state;
    struct host h;
    static struct answer a[NODE_REQUESTS_MAX + 1];
    host_start(&h, NULL);
    for (u32 i = 0; i <= NODE_REQUESTS_MAX; i++) ask(&h, &a[i], "unloadable", "hello", 5);
    expect_error(&a[NODE_REQUESTS_MAX], ERR_BUSY, "256 requests are open on this node");
    host_halt(&h);
    for (u32 i = 0; i < NODE_REQUESTS_MAX; i++) {
        wait_end(&a[i]);
        str_deinit(&a[i].text);
    }
    host_stop(&h);
}

static void one_process_owns_a_data_folder(void **state) {
    (void)state;
    struct host h;
    struct err e = {0};
    const char *peers[1];
    host_start(&h, NULL);
    struct node_cfg cfg = cfg_of(&h, NULL, peers);
    assert_null(node_new(&cfg, &e));
    assert_int_equal(e.code, ERR_BUSY);
    char who[160];
    snprintf(who, sizeof who, "another skein (process %d) uses the data folder %s", (int)getpid(),
             h.dir);
    assert_non_null(strstr(e.msg, who));
    host_stop(&h);
}

static void a_node_and_its_instances_come_back(void **state) {
    (void)state;
    struct host h;
    struct placed p;
    char id[NODE_ID_CAP];
    host_start(&h, NULL);
    str_copy(id, sizeof id, node_id(h.node));
    place(&h, &p, "fake", 0);
    WAIT(&h, is_ready);
    host_halt(&h);
    host_boot(&h, NULL);
    assert_string_equal(node_id(h.node), id);
    WAIT(&h, is_ready);
    host_halt(&h);
    char path[128]; /* a damaged state is put aside, the node starts without it */
    snprintf(path, sizeof path, "%s/cluster", h.dir);
    assert_true(file_write(path, "\xff\xff\xff", 3, 0644, NULL));
    host_boot(&h, NULL);
    assert_string_equal(node_id(h.node), id);
    WAIT(&h, no_instance);
    str_copy(path + strlen(path), 8, ".bad");
    assert_true(file_exists(path));
    unlink(path);
    host_stop(&h);
}

/* A peer of another version, played by this test: it learns why it is refused. */
static void another_version_is_told_so(void **state) {
    (void)state;
    struct host h;
    struct err e = {0};
    char address[32];
    host_start(&h, NULL);
    snprintf(address, sizeof address, "127.0.0.1:%u", node_bus_port(h.node));
    struct identity future;
    char says[100];
    assert_true(identity_make(&future, &e));
    snprintf(says, sizeof says, "%s speaks protocol 2 (9.9)", future.id);
    struct bus *b = bus_open(
        &(struct bus_cfg){.listen_host = "127.0.0.1", .name_space = "test", .identity = &future},
        &e);
    if (!b) fail_msg("%s", e.msg);
    assert_true(bus_connect(b, address, &e));
    struct msg_hello hello = {
        .protocol = SKEIN_PROTOCOL + 1, .build = "9.9", .cluster = "test", .boot = 3, .name = "f"};
    struct str body = {0};
    wire_encode(msg_table(MSG_HELLO), &hello, &body);
    bool refused = false;
    for (u64 end = clock_ms() + 10000; !refused && clock_ms() < end; clock_sleep_ms(5)) {
        struct bus_event ev;
        while (bus_recv(b, &ev)) {
            if (ev.kind == BUS_PEER_UP) bus_send(b, ev.peer, MSG_HELLO, body.p, body.n, NULL);
            if (ev.kind != BUS_MESSAGE || ev.type != MSG_REFUSED) continue;
            struct arena mem = {0};
            struct msg_reason r;
            assert_true(wire_decode(msg_table(MSG_REFUSED), ev.bytes, ev.n, &mem, &r, &e));
            assert_non_null(strstr(r.text, says));
            arena_deinit(&mem);
            refused = true;
        }
    }
    assert_true(refused);
    clock_sleep_ms(100);
    json_t *s = state_of(&h), *list = json_object_get(s, "refused");
    assert_int_equal(json_array_size(list), 1);
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 0), "id")),
                        future.id);
    json_decref(s);
    str_deinit(&body);
    bus_close(b);
    host_stop(&h);
}

static void put_key(struct host *h, const char *text, u32 mode) {
    char path[128];
    snprintf(path, sizeof path, "%s/node_key", h->dir);
    assert_true(file_write(path, text, strlen(text), mode, NULL));
}

static u32 mode_of(struct host *h, const char *name) {
    struct stat st;
    char path[128];
    snprintf(path, sizeof path, "%s/%s", h->dir, name);
    return stat(path, &st) == 0 ? st.st_mode & 0777 : 0;
}

/* The id is that of the key, which only its owner may read; an older random id is given up; a
 * damaged key is an error that names the file, never a new node by accident. */
static void who_a_node_is(void **state) {
    (void)state;
    struct host h;
    struct err e = {0};
    char path[128], id[NODE_ID_CAP];
    const char *peers[1];
    host_start(&h, NULL);
    str_copy(id, sizeof id, node_id(h.node));
    assert_int_equal(mode_of(&h, "node_key"), 0600);
    assert_int_equal(mode_of(&h, "cluster"), 0600); /* the keys of ranks are in it */
    host_halt(&h);
    struct str key = {0};
    snprintf(path, sizeof path, "%s/node_key", h.dir);
    assert_true(file_read(path, 4096, &key, NULL));
    put_key(&h, str_z(&key), 0644);
    snprintf(path, sizeof path, "%s/node_id", h.dir);
    assert_true(file_write(path, "00112233445566778899aabbccddeeff\n", 33, 0644, NULL));
    host_boot(&h, NULL);
    assert_string_equal(node_id(h.node), id);
    assert_int_equal(mode_of(&h, "node_key"), 0600);
    assert_false(file_exists(path));
    host_halt(&h);
    put_key(&h, "skein-node-key 1\nseed 12\n", 0600);
    struct node_cfg cfg = cfg_of(&h, NULL, peers);
    assert_null(node_new(&cfg, &e));
    assert_non_null(strstr(e.msg, "node_key is damaged (delete it to become a new node): line 2"));
    str_deinit(&key);
    host_stop(&h);
}

/* A data folder that was copied to another machine: the copy notices, and comes back as another
 * node, in the same cluster. */
static void a_copied_disk_becomes_another_node(void **state) {
    (void)state;
    struct host h, copy;
    struct str key = {0};
    char path[128], address[32];
    const char *peers[1];
    host_start(&h, NULL);
    snprintf(path, sizeof path, "%s/node_key", h.dir);
    assert_true(file_read(path, 4096, &key, NULL));
    host_start(&copy, NULL);
    host_halt(&copy);
    put_key(&copy, str_z(&key), 0600);
    snprintf(address, sizeof address, "127.0.0.1:%u", node_bus_port(h.node));
    struct node_cfg cfg = cfg_of(&copy, address, peers);
    cfg.machine = "another";
    copy.node = node_new(&cfg, NULL);
    assert_non_null(copy.node);
    assert_string_equal(node_id(copy.node), node_id(h.node));
    node_run(copy.node); /* ends by itself */
    assert_true(node_is_reborn(copy.node));
    node_free(copy.node);
    host_boot(&copy, &h);
    assert_true(strcmp(node_id(copy.node), node_id(h.node)) != 0);
    WAIT(&h, two_live);
    str_deinit(&key);
    host_stop(&copy);
    host_stop(&h);
}

static int make_models(void **state) {
    (void)state;
    static const char *const NAMES[] = {"fake", "broken", "crash", "unloadable", "slow", "unfit"};
    snprintf(models, sizeof models, "/tmp/skein-models-XXXXXX");
    if (!mkdtemp(models)) return -1;
    for (size_t i = 0; i < ARRAY_LEN(NAMES); i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s.gguf", models, NAMES[i]);
        if (!file_write(path, "GGUF....", 8, 0644, NULL)) return -1;
    }
    return 0;
}

static int drop_models(void **state) {
    (void)state;
    char cmd[128];
    snprintf(cmd, sizeof cmd, "rm -r %s", models);
    return system(cmd);
}

int main(int argc, char **argv) {
    if (argc > 3 && strcmp(argv[1], "runner") == 0)
        return fake_runner((int)strtol(argv[3], NULL, 10));
    if (!realpath(argv[0], self)) return 1;
    signal(SIGPIPE, SIG_IGN);
    if (!getenv("NODE_TEST_LOG")) log_set_level(LOG_ERROR, LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_file_is_written_before_the_answer),
        cmocka_unit_test(one_node_answers),
        cmocka_unit_test(errors_reach_the_one_who_asked),
        cmocka_unit_test(a_cancelled_request_stops),
        cmocka_unit_test(an_answer_survives_its_runner),
        cmocka_unit_test(a_deadly_request_ends_alone),
        cmocka_unit_test(two_nodes_share_a_model),
        cmocka_unit_test(a_deleted_instance_takes_its_requests_along),
        cmocka_unit_test(a_request_that_just_came_is_not_called_off),
        cmocka_unit_test(plans_keep_nobody_waiting),
        cmocka_unit_test(a_node_that_is_no_worker_serves_what_others_hold),
        cmocka_unit_test(an_answer_survives_a_node),
        cmocka_unit_test(a_stopping_node_answers_everybody),
        cmocka_unit_test(too_many_requests_are_refused),
        cmocka_unit_test(one_process_owns_a_data_folder),
        cmocka_unit_test(a_node_and_its_instances_come_back),
        cmocka_unit_test(another_version_is_told_so),
        cmocka_unit_test(who_a_node_is),
        cmocka_unit_test(a_copied_disk_becomes_another_node),
    };
    return cmocka_run_group_tests(tests, make_models, drop_models);
}
