#include "base/test.h"

#include <dirent.h>

#include "base/file.h"
#include "base/log.h"
#include "base/random.h"
#include "comm/group_internal.h"
#include "comm/group_cases.h"

static const char *const PROVIDERS[] = {"tcp", "shm"};

/* Sets the provider; skips the test in a build without libfabric, or where it does not have it. */
static void with(const char *provider) {
    struct err e = {0};
    if (!group_fabric_check(provider, &e)) {
        print_message("%s\n", e.msg);
        skip();
    }
    fabric = provider;
}

static void without(void) {
    fabric = NULL;
    encrypted = false;
}

static void on_fabric(struct group *g) {
    for (u32 r = 0; r < group_size(g); r++) {
        if (r == group_rank(g)) continue;
        struct group_link l = group_link(g, r);
        CHECK(g->ranks[r].on_fabric && l.carrier == GROUP_CARRIER_FABRIC && l.n_streams == 1);
        CHECK(strncmp(l.provider, fabric, strlen(fabric)) == 0 && l.is_encrypted == encrypted);
    }
}

static void fabric_exchange(struct group *g) {
    on_fabric(g);
    exchange(g);
    for (u32 r = 0; r < group_size(g); r++) {
        const struct fabric_pair *f = &g->ranks[r].fab;
        if (r == group_rank(g)) continue;
        CHECK(f->sent > 100 && f->arrived > 100); /* 12 MB in messages of 32 KiB */
        CHECK(!g->ranks[r].lane[0].seal_out.ctx == !encrypted);
    }
}

static void frames_in_order(void **state) {
    (void)state;
    for (u32 i = 0; i < ARRAY_LEN(PROVIDERS); i++) {
        with(PROVIDERS[i]);
        for (u32 n = 2; n <= RANKS; n++) run_ranks(n, fabric_exchange);
        run_ranks(2, flood);
        encrypted = true;
        run_ranks(3, fabric_exchange);
        run_ranks(2, flood);
        without();
    }
}

/* Small sums, one after the other, as a step has them; nothing may be allocated. */
static void many_small(struct group *g) {
    struct err e;
    struct group_msg m;
    u8 body[9000];
    u32 other = 1 - group_rank(g);
    for (u32 i = 0; i < 2000; i++) {
        size_t n = i % 2 ? 9000 : 40;
        memset(body, (int)(i + group_rank(g)), n);
        struct iovec iov = {body, n};
        CHECK(group_send(g, other, 5, &iov, 1, &e));
        CHECK(group_recv(g, (int)other, 5000, &m, &e));
        CHECK(m.n == n && m.body[n - 1] == (u8)(i + other));
    }
    CHECK(barrier(g, &e));
}

/* One side sends all the time and hears nothing: empty messages make room. */
static void one_way(struct group *g) {
    struct err e;
    struct group_msg m;
    u8 body[20000] = {0};
    struct iovec iov = {body, sizeof body};
    for (u32 i = 0; i < 500; i++) {
        if (group_rank(g) == 0) {
            memset(body, (int)i, sizeof body);
            CHECK(group_send(g, 1, i, &iov, 1, &e));
        } else {
            CHECK(group_recv(g, 0, 5000, &m, &e));
            CHECK(m.type == i && m.n == sizeof body && m.body[19999] == (u8)i);
        }
    }
    CHECK(barrier(g, &e));
}

static void messages_of_all_shapes(void **state) {
    (void)state;
    for (u32 i = 0; i < ARRAY_LEN(PROVIDERS); i++) {
        with(PROVIDERS[i]);
        run_ranks(2, many_small);
        run_ranks(2, one_way);
        run_ranks(2, polls);
        run_ranks(2, busy);
        without();
    }
}

static void lost_ranks(void **state) {
    (void)state;
    for (u32 i = 0; i < ARRAY_LEN(PROVIDERS); i++) {
        with(PROVIDERS[i]);
        lost_rank(SIGKILL, 900);
        lost_rank(SIGSTOP, 1100);
        without();
    }
}

struct asker {
    u32 rank;
    const char *wish;
    struct err e;
    struct group *g;
    bool over_fabric;
};

static void *ask(void *ctx) {
    struct asker *a = ctx;
    struct group_peer peer = {1 - a->rank, "127.0.0.1", L.port[1 - a->rank], 0};
    struct group_cfg cfg = {.rank = a->rank,
                            .n_ranks = 2,
                            .listen_fd = L.fd[a->rank],
                            .peers = &peer,
                            .key = key,
                            .timeout_ms = 5000,
                            .no_shm = true,
                            .fabric = a->wish};
    a->g = group_connect(&cfg, &a->e);
    if (!a->g) return NULL;
    a->over_fabric = a->g->ranks[1 - a->rank].on_fabric;
    CHECK(barrier(a->g, NULL));
    return NULL;
}

static void two_wishes(const char *w0, const char *w1, struct asker a[2]) {
    pthread_t t;
    listen_all(2);
    a[0] = (struct asker){.rank = 0, .wish = w0};
    a[1] = (struct asker){.rank = 1, .wish = w1};
    assert_int_equal(pthread_create(&t, NULL, ask, &a[1]), 0);
    ask(&a[0]);
    pthread_join(t, NULL);
    for (u32 i = 0; i < 2; i++) group_free(a[i].g);
    close_all(2);
}

static void both_sides_must_agree(void **state) {
    (void)state;
    struct asker a[2];
    two_wishes("auto", "off", a); /* works in every build, with hardware or not */
    assert_true(a[0].g && a[1].g && !a[0].over_fabric && !a[1].over_fabric);
    with("tcp");
    without();
    two_wishes("tcp", "off", a);
    assert_true(!a[0].g && !a[1].g);
    assert_non_null(strstr(a[0].e.msg, "rank 1 (127.0.0.1:"));
    assert_non_null(strstr(a[0].e.msg, "no fabric where this one has libfabric's tcp"));
    assert_true(a[1].e.code == ERR_ARG || a[1].e.code == ERR_NET); /* whichever it sees first */
    two_wishes("no-such", NULL, a);
    assert_int_equal(a[0].e.code, ERR_UNSUPPORTED);
    assert_non_null(strstr(a[0].e.msg, "no provider 'no-such' here; it has "));
}

/* What a stranger sends to the endpoint, or a rank in the name of another one, is not heard. */
static void strangers_are_not_heard(void **state) {
    (void)state;
    struct group_rank ranks[3] = {
        {.n_lanes = 1}, {.rank = 1, .n_lanes = 1, .on_fabric = true}, {.rank = 2}};
    struct group g = {.rank = 0, .n_ranks = 3, .ranks = ranks};
    struct fabric_head h = {.from = 1, .n = 6};
    u8 msg[FABRIC_HEAD_BYTES + 6] = {0};
    ranks[1].stage = calloc(1, GROUP_STAGE_BYTES);
    for (u32 r = 0; r < 3; r++) random_bytes(ranks[r].fab.token_in, FABRIC_TOKEN_BYTES);
    memcpy(msg + FABRIC_HEAD_BYTES, (u8[]){2, 0, 0, 0, 9, 0}, 6); /* an empty frame of type 9 */
    for (u32 as = 0; as < 5; as++) {
        const u8 zeros[FABRIC_TOKEN_BYTES] = {0};
        memcpy(h.token, as < 3 ? ranks[as].fab.token_in : zeros, sizeof h.token);
        h.from = as == 4 ? 77 : 1;
        fabric_put_head(&h, msg);
        group_fabric_take(&g, msg, as == 1 ? sizeof msg - 1 : sizeof msg);
        assert_true(!ranks[1].ready && !ranks[1].fab.greeted && !ranks[1].ended);
    }
    memcpy(h.token, ranks[1].fab.token_in, sizeof h.token);
    h.from = 1;
    fabric_put_head(&h, msg);
    u8 second[sizeof msg];
    h.seq = 1;
    memcpy(second, msg, sizeof msg);
    fabric_put_head(&h, second);
    second[FABRIC_HEAD_BYTES + 4] = 10;
    assert_true(group_fabric_take(&g, second, sizeof second) && !ranks[1].ready); /* overtook */
    assert_true(group_fabric_take(&g, msg, sizeof msg));
    assert_true(ranks[1].ready && ranks[1].ready->type == 9 && ranks[1].ready->next->type == 10);
    assert_int_equal(ranks[1].fab.arrived, 2);
    for (u32 bad = 0; bad < 3; bad++) {
        h.seq = bad == 1 ? 2 + FABRIC_WINDOW : 2;
        h.arrived = bad == 2;
        fabric_put_head(&h, msg);
        if (bad == 0) h.seq = 1, fabric_put_head(&h, msg); /* again */
        assert_false(group_fabric_take(&g, msg, sizeof msg));
        assert_true(ranks[1].ended);
        assert_non_null(strstr(ranks[1].why, bad == 2 ? "never sent" : "twice, or more"));
        ranks[1].ended = false;
    }
    group_bufs_free(ranks[1].ready);
    group_bufs_free(ranks[1].spare);
    free(ranks[1].stage);
}

/* A buffer that could not be sent at once is not given to anybody else. */
static void a_buffer_has_one_owner(void **state) {
    (void)state;
    struct err e = {0};
    with("tcp");
    without();
    struct ofi *o = ofi_open("tcp", "127.0.0.1", 1, 1, 2, &e);
    if (!o) fail_msg("%s", e.msg);
    u8 *first = ofi_send_buf(o), *second = ofi_send_buf(o);
    assert_true(first && second && first != second);
    assert_null(ofi_send_buf(o));
    ofi_drop_buf(o, first);
    assert_ptr_equal(ofi_send_buf(o), first);
    ofi_close(o);
}

/* Calls what(name) for each region in shared memory that the shm provider made for a process. */
static u32 each_region(pid_t pid, void (*what)(const char *name)) {
    char begin[32];
    u32 n = 0;
    snprintf(begin, sizeof begin, "%d:", (int)pid);
    DIR *d = opendir("/dev/shm");
    for (struct dirent *f; d && (f = readdir(d));) {
        if (strncmp(f->d_name, begin, strlen(begin)) != 0) continue;
        what(f->d_name);
        n++;
    }
    if (d) closedir(d);
    return n;
}

/* The same once more, under the name that comes after it. */
static void copy_region(const char *name) {
    char path[300], next[300];
    struct str bytes = {0};
    const char *last = strrchr(name, ':');
    snprintf(path, sizeof path, "/dev/shm/%s", name);
    snprintf(next, sizeof next, "/dev/shm/%.*s:%ld", (int)(last - name), name,
             strtol(last + 1, NULL, 10) + 1);
    assert_true(file_read(path, 64 << 20, &bytes, NULL));
    assert_true(file_write(next, bytes.p, bytes.n, 0600, NULL));
    str_deinit(&bytes);
}

/* A process that was killed has left its region, and a later one has got its number. */
static void a_number_that_was_used_before(void **state) {
    (void)state;
    struct err e = {0};
    with("shm");
    without();
    struct ofi *o = ofi_open("shm", NULL, 1, 1, 2, &e);
    if (!o) fail_msg("%s", e.msg);
    u32 n = each_region(getpid(), copy_region);
    ofi_close(o);
    if (!n) skip(); /* its names are others here */
    o = ofi_open("shm", NULL, 1, 1, 2, &e);
    if (!o) fail_msg("%s", e.msg);
    ofi_close(o);
    assert_int_equal(each_region(getpid(), copy_region), 0);
}

/* Gives rank 0 its own offer back, and never greets. */
static void *answer_like_an_echo(void *ctx) {
    struct group *g = ctx;
    struct group_msg m;
    enum { TYPE_OFFER = GROUP_TYPE_RESERVED + 0x30 };
    CHECK(group_recv_type(g, 0, TYPE_OFFER, FABRIC_OFFER_BYTES, &m, NULL));
    struct iovec iov = {(u8 *)(uintptr_t)m.body, m.n};
    CHECK(group_send_frame(g, 0, TYPE_OFFER, &iov, 1, NULL));
    return NULL;
}

static bool after_a_while(void *ctx) {
    return clock_ms() > *(u64 *)ctx;
}

static void greeting_can_be_called_off(void **state) {
    (void)state;
    struct asker a[2];
    struct err e = {0};
    pthread_t t;
    with("tcp");
    without();
    listen_all(2);
    a[0] = (struct asker){.rank = 0};
    a[1] = (struct asker){.rank = 1};
    assert_int_equal(pthread_create(&t, NULL, ask, &a[1]), 0);
    ask(&a[0]);
    pthread_join(t, NULL);
    assert_true(a[0].g && a[1].g);
    assert_int_equal(pthread_create(&t, NULL, answer_like_an_echo, a[1].g), 0);
    u64 t0 = clock_ms(), end_ms = t0 + 300;
    struct group_cfg cfg = {.fabric = "tcp", .give_up = after_a_while, .ctx = &end_ms};
    assert_false(group_fabric_meet(a[0].g, &cfg, &e));
    assert_int_equal(e.code, ERR_CANCELLED);
    assert_true(clock_ms() - t0 < 5000);
    pthread_join(t, NULL);
    for (u32 i = 0; i < 2; i++) group_free(a[i].g);
    close_all(2);
}

static void providers_within_a_machine(void **state) {
    (void)state;
    assert_true(fabric_is_local("shm") && fabric_is_local("sm2") && fabric_is_local("shm;ofi_x"));
    assert_true(!fabric_is_local("tcp;ofi_rxm") && !fabric_is_local("shmem") &&
                !fabric_is_local(""));
}

static void offers(void **state) {
    (void)state;
    struct fabric_offer f = {.wish = FABRIC_NAMED, .provider = "tcp;ofi_rxm", .host = "here"}, back;
    struct err e = {0};
    u8 bytes[FABRIC_OFFER_BYTES];
    f.address_n = 16;
    random_bytes(f.token, sizeof f.token);
    random_bytes(f.address, 16);
    fabric_put_offer(&f, bytes);
    assert_true(fabric_parse_offer(&back, bytes, sizeof bytes, &e));
    assert_memory_equal(&f, &back, sizeof f);
    assert_false(fabric_parse_offer(&back, bytes, sizeof bytes - 1, &e));
    bytes[0] = FABRIC_WISHES;
    assert_false(fabric_parse_offer(&back, bytes, sizeof bytes, &e));
    memset(f.provider, 'x', sizeof f.provider);
    fabric_put_offer(&f, bytes);
    assert_false(fabric_parse_offer(&back, bytes, sizeof bytes, &e));
}

/* A message goes at once, not announced first: that takes three times as long. Libfabric does not
 * tell, so this looks at what it reads, which the user's own word goes before. */
static void messages_go_at_once(void **state) {
    (void)state;
    struct err e = {0};
    if (!ofi_check("tcp", &e)) skip();
    const char *bytes = getenv("FI_OFI_RXM_BUFFER_SIZE");
    assert_true(bytes && strtoul(bytes, NULL, 10) >= OFI_MSG_BYTES);
    char ours[32];
    snprintf(ours, sizeof ours, "%s", bytes);
    setenv("FI_OFI_RXM_BUFFER_SIZE", "65536", 1);
    assert_true(ofi_check("tcp", &e));
    assert_string_equal(getenv("FI_OFI_RXM_BUFFER_SIZE"), "65536");
    setenv("FI_OFI_RXM_BUFFER_SIZE", ours, 1);
}

int main(void) {
    log_set_level(LOG_WARN, LOG_WARN);
    unsetenv("FI_OFI_RXM_BUFFER_SIZE"); /* before libfabric is loaded */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lost_ranks), /* first: it forks, and libfabric has threads */
        cmocka_unit_test(frames_in_order),
        cmocka_unit_test(messages_of_all_shapes),
        cmocka_unit_test(both_sides_must_agree),
        cmocka_unit_test(strangers_are_not_heard),
        cmocka_unit_test(a_buffer_has_one_owner),
        cmocka_unit_test(a_number_that_was_used_before),
        cmocka_unit_test(greeting_can_be_called_off),
        cmocka_unit_test(providers_within_a_machine),
        cmocka_unit_test(offers),
        cmocka_unit_test(messages_go_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
