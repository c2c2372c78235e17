#include "net/bus_test.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/random.h"
#include "net/http_server.h"

static void both_ways(void **state) {
    (void)state;
    static struct end x[2];
    struct err e = {0};
    meet(x, "a secret");
    assert_string_equal(x[0].peer, x[1].id);
    assert_string_equal(x[1].peer, x[0].id);
    assert_string_equal(x[0].peer_address, x[1].address);
    assert_string_equal(x[1].peer_address, x[0].address); /* learned, not told */
    assert_false(bus_is_open(x[0].bus));
    x[1].echo = true;
    for (u32 i = 0; i < 1000; i++) {
        assert_true(bus_send(x[0].bus, x[1].id, i, &i, sizeof i, &e));
    }
    assert_true(run(x, 2, &x[0].n_messages, 1000, 5000));
    for (u32 i = 0; i < 1000; i++) assert_int_equal(x[0].types[i], i);
    assert_true(bus_send(x[1].bus, x[0].id, 7, NULL, 0, &e));
    assert_true(run(x, 2, &x[0].n_messages, 1001, 5000));
    assert_int_equal(x[0].n_last, 0);
    run(x, 2, NULL, 0, 1200);
    assert_true(bus_rtt_us(x[0].bus, x[1].id) > 0);
    assert_false(bus_send(x[0].bus, "gamma", 1, "", 0, &e));
    assert_int_equal(e.code, ERR_NET);
    assert_int_equal(bus_n_bad(x[0].bus) + bus_n_bad(x[1].bus), 0);
    end_close(&x[0]);
    assert_true(run(x + 1, 1, &x[1].n_down, 1, 5000));
    assert_string_equal(x[1].text, "it has left");
    end_close(&x[1]);
}

/* Both dial each other, one of them twice: still one peer on each side. */
static void dialled_more_than_once(void **state) {
    (void)state;
    static struct end x[2];
    char other[64];
    end_open(&x[0], "alpha", "s", "test", 0);
    end_open(&x[1], "beta", "s", "test", 0);
    snprintf(other, sizeof other, "localhost:%u", bus_port(x[1].bus));
    assert_true(bus_connect(x[0].bus, x[1].address, NULL));
    assert_true(bus_connect(x[0].bus, x[1].address, NULL));
    assert_true(bus_connect(x[0].bus, other, NULL));
    assert_true(bus_connect(x[1].bus, x[0].address, NULL));
    run(x, 2, NULL, 0, 2500);
    assert_true(x[0].n_up && x[1].n_up); /* told again when another path is the better one */
    assert_int_equal(x[0].n_down + x[1].n_down, 0);
    /* Without the one that was used, another path carries on. */
    x[1].echo = true;
    bus_hangup(x[0].bus, x[1].address);
    run(x, 2, NULL, 0, 500);
    assert_int_equal(x[0].n_down + x[1].n_down, 0);
    assert_true(bus_send(x[0].bus, x[1].id, 5, "hi", 2, NULL));
    assert_true(run(x, 2, &x[0].n_messages, 1, 5000));
    end_close(&x[0]);
    end_close(&x[1]);
}

/* A socket of our own that speaks to x. Own keys, or the cluster's. */
static void *raw_client(void *ctx, const struct end *x, const char *secret, bool own_keys) {
    char endpoint[80];
    struct bus_key server, mine;
    assert_true(bus_key_derive(&server, secret, "test", NULL));
    mine = server;
    if (own_keys) assert_true(bus_key_derive(&mine, NULL, "a stranger", NULL));
    void *s = zmq_socket(ctx, ZMQ_DEALER);
    int zero = 0, wait_ms = 300;
    zmq_setsockopt(s, ZMQ_LINGER, &zero, sizeof zero);
    zmq_setsockopt(s, ZMQ_RCVTIMEO, &wait_ms, sizeof wait_ms);
    zmq_setsockopt(s, ZMQ_CURVE_SERVERKEY, server.public, 32);
    zmq_setsockopt(s, ZMQ_CURVE_PUBLICKEY, mine.public, 32);
    zmq_setsockopt(s, ZMQ_CURVE_SECRETKEY, mine.secret, 32);
    snprintf(endpoint, sizeof endpoint, "tcp://%s", x->address);
    assert_int_equal(zmq_connect(s, endpoint), 0);
    return s;
}

static void raw_send(void *s, const struct bus_frame *f) {
    struct str out = {0};
    bus_frame_write(f, &out);
    assert_true(zmq_send(s, out.p, out.n, 0) >= 0);
    str_deinit(&out);
}

/* Gives the bus time, at most 5 s, to have counted n bad frames. */
static void run_until_bad(struct end *x, u64 n) {
    for (int i = 0; i < 50 && bus_n_bad(x->bus) < n; i++) run(x, 1, NULL, 0, 100);
    assert_int_equal(bus_n_bad(x->bus), n);
}

static struct bus_frame raw_hello(const struct identity *i) {
    struct bus_frame f = {.kind = BUS_FRAME_HELLO, .greeting = {.boot = 5, .port = 9}};
    memcpy(f.greeting.public, i->public, sizeof f.greeting.public);
    return f;
}

/* Greets as `hello` says, and signs the answer with the key of `as`. */
static void raw_prove(struct end *x, void *s, const struct bus_frame *hello,
                      const struct identity *as) {
    u8 buf[512];
    struct bus_frame back = {0}, proof = {.kind = BUS_FRAME_PROOF};
    struct bus signer = {.identity = *as};
    assert_true(bus_key_derive(&signer.key, "s", "test", NULL));
    raw_send(s, hello);
    for (int i = 0; i < 20 && back.kind != BUS_FRAME_WELCOME; i++) {
        run(x, 1, NULL, 0, 100);
        int n = zmq_recv(s, buf, sizeof buf, 0);
        if (n > 0) assert_true(bus_frame_parse(&back, buf, (size_t)n));
    }
    assert_int_equal(back.kind, BUS_FRAME_WELCOME);
    assert_true(bus_greet_verify(&signer, false, &hello->greeting, &back.greeting, back.signature));
    bus_greet_sign(&signer, true, &hello->greeting, &back.greeting, proof.signature);
    raw_send(s, &proof);
}

/* Whoever knows the cluster's public key, but not the secret one, stays outside. A member that
 * sends nonsense, or does not greet, is told so and harms nobody. */
static void raw_clients(void **state) {
    (void)state;
    static struct end x[1];
    u8 buf[256];
    struct identity raw = identity_named("raw"), beta = identity_named("beta");
    struct bus_frame f = raw_hello(&raw), back;
    void *ctx = zmq_ctx_new();
    end_open(&x[0], "alpha", "s", "test", 0);
    void *s = raw_client(ctx, &x[0], "s", true);
    raw_send(s, &f);
    run(x, 1, NULL, 0, 700);
    assert_int_equal(x[0].n_up, 0);
    zmq_close(s);

    s = raw_client(ctx, &x[0], "s", false);
    raw_send(s, &(struct bus_frame){.kind = BUS_FRAME_DATA, .total = 1, .bytes = buf, .n = 1});
    int n = -1;
    for (int i = 0; i < 10 && n < 0; i++) { /* waits 300 ms itself */
        run(x, 1, NULL, 0, 200);
        n = zmq_recv(s, buf, sizeof buf, 0);
    }
    assert_true(n > 0 && bus_frame_parse(&back, buf, (size_t)n));
    assert_int_equal(back.kind, BUS_FRAME_BYE);
    assert_true(zmq_send(s, "nonsense", 8, 0) >= 0);
    assert_true(zmq_send(s, "", 0, ZMQ_SNDMORE) >= 0);
    assert_true(zmq_send(s, "two parts", 9, 0) >= 0);
    run_until_bad(&x[0], 2);
    /* It claims to be beta, whose key it does not have. */
    f = raw_hello(&beta);
    raw_prove(x, s, &f, &raw);
    run_until_bad(&x[0], 3);
    assert_int_equal(x[0].n_up, 0);
    /* Data before the proof is nobody's. */
    f = raw_hello(&raw);
    raw_send(s, &f);
    raw_send(s, &(struct bus_frame){.kind = BUS_FRAME_DATA, .total = 1, .bytes = buf, .n = 1});
    raw_prove(x, s, &f, &raw);
    assert_true(run(x, 1, &x[0].n_up, 1, 5000));
    assert_string_equal(x[0].peer, raw.id);
    assert_int_equal(x[0].n_messages, 0);
    /* Two fragments that do not fit together. */
    raw_send(s,
             &(struct bus_frame){
                 .kind = BUS_FRAME_DATA, .id = 1, .total = 9, .offset = 5, .bytes = buf, .n = 4});
    run_until_bad(&x[0], 4);
    assert_true(zmq_send(s, "\xb5\x63\x01later", 8, 0) >= 0); /* a build of another age */
    run_until_bad(&x[0], 5);
    zmq_close(s);
    zmq_ctx_term(ctx);
    assert_true(run(x, 1, &x[0].n_down, 1, 5000));
    end_close(&x[0]);
}

/* 16 MiB arrives whole; short messages sent afterwards do not wait for it. */
static void big_messages(void **state) {
    (void)state;
    static struct end x[2];
    struct err e = {0};
    meet(x, NULL);
    assert_true(bus_is_open(x[0].bus));
    u8 *big = malloc(BUS_MESSAGE_MAX);
    for (size_t i = 0; i < BUS_MESSAGE_MAX; i += 8) {
        u64 v = random_at(3, i);
        memcpy(big + i, &v, 8);
    }
    for (int way = 0; way < 2; way++) {
        struct end *from = &x[way], *to = &x[!way];
        to->n_messages = 0;
        assert_true(bus_send(from->bus, to->id, 100, big, BUS_MESSAGE_MAX, &e));
        assert_true(bus_send(from->bus, to->id, 1, "short", 5, &e));
        assert_true(run(x, 2, &to->n_messages, 2, 10000));
        assert_int_equal(to->types[0], 1);
        assert_int_equal(to->types[1], 100);
        assert_int_equal(to->n_last, BUS_MESSAGE_MAX);
        assert_memory_equal(to->last, big, BUS_MESSAGE_MAX);
    }
    assert_false(bus_send(x[0].bus, x[1].id, 1, big, BUS_MESSAGE_MAX + 1, &e));
    assert_int_equal(e.code, ERR_LIMIT);
    /* A peer that does not take them: the queue is bounded. */
    int n = 0;
    while (n < 100 && bus_send(x[0].bus, x[1].id, 1, big, BUS_MESSAGE_MAX, &e)) n++;
    assert_true(n < 10);
    assert_int_equal(e.code, ERR_BUSY);
    free(big);
    end_close(&x[0]);
    end_close(&x[1]);
}

static void wrong_secret(void **state) {
    (void)state;
    static struct end x[2];
    end_open(&x[0], "alpha", "right", "test", 0);
    end_open(&x[1], "beta", "wrong", "test", 0);
    assert_true(bus_connect(x[0].bus, x[1].address, NULL));
    assert_true(run(x, 2, &x[0].n_failed, 1, 5000));
    assert_int_equal(x[0].reason, BUS_WRONG_SECRET);
    run(x, 2, NULL, 0, 2500); /* tried again, told once */
    assert_int_equal(x[0].n_failed, 1);
    assert_int_equal(x[0].n_up + x[1].n_up, 0);
    end_close(&x[1]);
    /* The right one comes to that address: found by itself. */
    u16 port;
    char host[SOCK_HOST_CAP], address[64];
    str_copy(address, sizeof address, x[1].address);
    assert_true(sock_split(address, 0, host, &port, NULL));
    end_open(&x[1], "beta", "right", "test", port);
    assert_true(run(x, 2, &x[0].n_up, 1, 10000));
    end_close(&x[0]);
    end_close(&x[1]);
    /* The namespace alone separates open clusters, too. */
    end_open(&x[0], "alpha", "", "one", 0);
    end_open(&x[1], "beta", "", "two", 0);
    assert_true(bus_connect(x[0].bus, x[1].address, NULL));
    assert_true(run(x, 2, &x[0].n_failed, 1, 5000));
    assert_int_equal(x[0].reason, BUS_WRONG_SECRET);
    end_close(&x[0]);
    end_close(&x[1]);
}

static void not_found(const struct http_req *r, struct http_answer *a, void *ctx) {
    (void)r, (void)ctx;
    assert_true(http_answer_whole(a, 404, "text/plain", "no", 2));
}

static void other_ends(void **state) {
    (void)state;
    static struct end x[1];
    char address[64];
    u16 port = 0;
    struct err e = {0};
    /* an HTTP server */
    struct http_server_cfg cfg = {.handler = not_found};
    struct http_server *s = http_server_start(&cfg, &e);
    assert_non_null(s);
    end_open(&x[0], "alpha", "", "test", 0);
    snprintf(address, sizeof address, "127.0.0.1:%u", http_server_port(s));
    assert_true(bus_connect(x[0].bus, address, NULL));
    assert_true(run(x, 1, &x[0].n_failed, 1, 4000));
    assert_int_equal(x[0].reason, BUS_HTTP_PORT);
    http_server_stop(s);
    bus_hangup(x[0].bus, address);
    /* something that accepts and says nothing */
    int fd = sock_listen("127.0.0.1", &port, &e);
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
    assert_true(bus_connect(x[0].bus, address, NULL));
    assert_true(run(x, 1, &x[0].n_failed, 2, 5000));
    assert_int_equal(x[0].reason, BUS_NOT_SKEIN);
    bus_hangup(x[0].bus, address);
    close(fd);
    /* nobody */
    assert_true(bus_connect(x[0].bus, address, NULL));
    assert_true(run(x, 1, &x[0].n_failed, 3, 6000));
    assert_int_equal(x[0].reason, BUS_NOBODY);
    /* ourselves */
    assert_true(bus_connect(x[0].bus, x[0].address, NULL));
    assert_true(run(x, 1, &x[0].n_failed, 4, 4000));
    assert_int_equal(x[0].reason, BUS_SELF);
    assert_int_equal(x[0].n_up, 0);
    assert_false(bus_connect(x[0].bus, "no port", &e));
    assert_int_equal(e.code, ERR_ARG);
    end_close(&x[0]);
}

/* A peer that vanishes without a word, and comes back at the same address as another process. */
static void peer_restarts(void **state) {
    (void)state;
    static struct end x[3];
    struct err e = {0};
    meet(x, "s");
    /* x[2] plays the new process of beta: same id, another boot. */
    u16 port = bus_port(x[1].bus);
    x[1].echo = false;
    end_close(&x[1]);
    assert_true(run(x, 1, &x[0].n_down, 1, 5000));
    assert_false(bus_send(x[0].bus, x[1].id, 1, "", 0, &e));
    end_open(&x[2], "beta", "s", "test", port);
    assert_true(run(x, 3, &x[0].n_up, 2, 5000));
    assert_true(bus_send(x[0].bus, x[1].id, 9, "again", 5, &e));
    assert_true(run(x, 3, &x[2].n_messages, 1, 5000));
    assert_int_equal(x[0].n_down, 1);
    end_close(&x[0]);
    end_close(&x[2]);
}

/* A peer that stands still (its owner does not call) is down after the timeout, and up again later.
 */
static void silent_peer(void **state) {
    (void)state;
    static struct end x[2];
    meet(x, "s");
    assert_true(run(x, 1, &x[0].n_down, 1, 3000));
    assert_string_equal(x[0].text, "it is silent");
    assert_true(run(x, 2, &x[0].n_up, 2, 5000));
    x[1].n_messages = 0;
    assert_true(bus_send(x[0].bus, x[1].id, 1, "x", 1, NULL));
    assert_true(run(x, 2, &x[1].n_messages, 1, 5000));
    end_close(&x[0]);
    end_close(&x[1]);
}

static void opening(void **state) {
    (void)state;
    static struct end x[1];
    struct err e = {0};
    char text[32];
    end_open(&x[0], "alpha", "", "test", 0);
    struct identity who = identity_named("beta");
    struct bus_cfg cfg = {.listen_host = "127.0.0.1", .port = bus_port(x[0].bus), .identity = &who};
    assert_null(bus_open(&cfg, &e));
    assert_int_equal(e.code, ERR_IO);
    snprintf(text, sizeof text, "port %u on 127.0.0.1", cfg.port);
    assert_non_null(strstr(e.msg, text));
    cfg.port = 0;
    end_close(&x[0]);
}

/* A port that an outgoing connection has: the next one is as good, if the caller says so. */
static void passing_connection(void **state) {
    (void)state;
    struct err e = {0};
    struct identity who = identity_named("alpha");
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, n), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    struct bus_cfg cfg = {
        .listen_host = "127.0.0.1", .port = ntohs(a.sin_port), .identity = &who};
    assert_null(bus_open(&cfg, &e));
    assert_int_equal(e.code, ERR_IO);
    cfg.n_more_ports = 20;
    struct bus *b = bus_open(&cfg, &e);
    if (!b) fail_msg("%s", e.msg);
    assert_in_range(bus_port(b), cfg.port + 1, cfg.port + 20);
    bus_close(b);
    /* A program that listens there is told of. */
    assert_int_equal(listen(fd, 1), 0);
    assert_null(bus_open(&cfg, &e));
    assert_non_null(strstr(e.msg, "another program"));
    close(fd);
}

/* Runner processes are started while a bus is open: it must not leak into them. */
static void closes_on_exec(void **state) {
    (void)state;
    static struct end x[1];
    bool before[256];
    for (int fd = 0; fd < 256; fd++) before[fd] = fcntl(fd, F_GETFD) >= 0;
    end_open(&x[0], "alpha", "", "test", 0);
    bus_connect(x[0].bus, "127.0.0.1:1", NULL);
    for (int fd = 0; fd < 256; fd++) {
        int flags = before[fd] ? FD_CLOEXEC : fcntl(fd, F_GETFD);
        assert_true(flags < 0 || flags & FD_CLOEXEC);
    }
    end_close(&x[0]);
}

static void frames(void **state) {
    (void)state;
    struct bus_frame f = {.kind = BUS_FRAME_DATA,
                          .type = 1,
                          .id = 2,
                          .total = 10,
                          .offset = 4,
                          .bytes = (const u8 *)"abc",
                          .n = 3},
                     g;
    struct str s = {0};
    bus_frame_write(&f, &s);
    assert_true(bus_frame_parse(&g, s.p, s.n));
    assert_int_equal(g.offset, 4);
    assert_int_equal(g.n, 3);
    for (size_t n = 0; n < 20; n++) assert_false(bus_frame_parse(&g, s.p, n));
    /* Outside of the message, or of any message. */
    f.offset = 8;
    str_clear(&s);
    bus_frame_write(&f, &s);
    assert_false(bus_frame_parse(&g, s.p, s.n));
    f.offset = 0;
    f.total = BUS_MESSAGE_MAX + 1;
    str_clear(&s);
    bus_frame_write(&f, &s);
    assert_false(bus_frame_parse(&g, s.p, s.n));

    struct bus_assembly a = {0};
    struct view v;
    f = (struct bus_frame){
        .kind = BUS_FRAME_DATA, .id = 1, .total = 6, .bytes = (u8 *)"abc", .n = 3};
    assert_int_equal(bus_assembly_add(&a, &f, &v), 0);
    g = f;
    g.id = 9, g.total = 3; /* a short one in between */
    assert_int_equal(bus_assembly_add(&a, &g, &v), 1);
    f.offset = 3;
    assert_int_equal(bus_assembly_add(&a, &f, &v), 1);
    assert_true(view_is(v, "abcabc"));
    assert_int_equal(bus_assembly_add(&a, &f, &v), -1); /* the tail again */
    f.offset = 0;
    assert_int_equal(bus_assembly_add(&a, &f, &v), 0);
    f.offset = 3, f.id = 2; /* the tail of another */
    assert_int_equal(bus_assembly_add(&a, &f, &v), -1);
    bus_assembly_reset(&a);
    str_deinit(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames),         cmocka_unit_test(both_ways),
        cmocka_unit_test(big_messages),   cmocka_unit_test(dialled_more_than_once),
        cmocka_unit_test(wrong_secret),   cmocka_unit_test(other_ends),
        cmocka_unit_test(peer_restarts),  cmocka_unit_test(silent_peer),
        cmocka_unit_test(raw_clients),    cmocka_unit_test(opening),
        cmocka_unit_test(passing_connection), cmocka_unit_test(closes_on_exec),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
