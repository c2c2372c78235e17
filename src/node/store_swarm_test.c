/* Three stores, an origin and liars, over loopback. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/test.h"
#include "net/http_client.h"
#include "net/http_server.h"
#include "node/share.h"
#include "node/store_internal.h"

enum { CHUNK = 8 << 20, SIZE = 5 * CHUNK + 12345, N_CHUNKS = 6, NODES = 3 };
#define TOKEN "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static u8 *file; /* [SIZE] */
static char sha[65], root[64];
static struct http_server *origin;
static atomic_ullong origin_bytes;
static atomic_bool origin_is_dead;

struct member {
    char id[8], models[96];
    struct store *store;
    struct share *share;
    char url[128];
    const char *name; /* NULL: "big" */
    const struct store_part *parts;
    u32 n_parts;
    bool ok;
    struct err err;
    struct store_model out;
    pthread_t thread;
};
static struct member m[NODES];
static struct http_server *liar;

static void answer_range(const struct http_req *r, struct http_answer *a, const u8 *bytes) {
    const char *range = http_req_header(r, "Range");
    unsigned long long first, last;
    char text[96];
    if (!range || sscanf(range, "bytes=%llu-%llu", &first, &last) != 2 || last < first ||
        first >= SIZE) {
        (void)!http_answer_whole(a, 416, "text/plain", "no", 2);
        return;
    }
    last = MIN(last, (unsigned long long)SIZE - 1);
    snprintf(text, sizeof text, "bytes %llu-%llu/%d", first, last, (int)SIZE);
    http_answer_header(a, "Content-Range", text);
    (void)!http_answer_whole(a, 206, "application/octet-stream", bytes + first, last - first + 1);
}

static void on_origin(const struct http_req *r, struct http_answer *a, void *ctx) {
    unsigned long long first, last;
    const char *range = http_req_header(r, "Range");
    (void)ctx;
    if (atomic_load(&origin_is_dead)) {
        (void)!http_answer_whole(a, 404, "text/plain", "gone", 4);
        return;
    }
    if (range && sscanf(range, "bytes=%llu-%llu", &first, &last) == 2)
        atomic_fetch_add(&origin_bytes, MIN(last, (unsigned long long)SIZE - 1) - first + 1);
    answer_range(r, a, file);
}

/* A node whose map shows everything, with the hashes of the right bytes or not, and whose bytes are
 * others. */
static void on_liar(const struct http_req *r, struct http_answer *a, void *ctx) {
    static u8 wrong[CHUNK];
    (void)ctx;
    if (strstr(r->path, "/named/")) {
        struct store_named named = {.size_bytes = 17};
        struct str o = {0};
        memset(named.id, 'a', 64);
        store_named_text(&named, &o);
        (void)!http_answer_whole(a, 200, "text/plain", o.p, o.n);
        str_deinit(&o);
        return;
    }
    if (!strstr(r->path, "/map")) {
        unsigned long long first = 0, last = 0;
        char text[96];
        sscanf(http_req_header(r, "Range"), "bytes=%llu-%llu", &first, &last);
        snprintf(text, sizeof text, "bytes %llu-%llu/%d", first, last, (int)SIZE);
        http_answer_header(a, "Content-Range", text);
        (void)!http_answer_whole(a, 206, "application/octet-stream", wrong,
                                 MIN(last - first + 1, (unsigned long long)CHUNK));
        return;
    }
    u8 map[12 + 16 + N_CHUNKS * 33] = "skein-map 1\n";
    u8 *p = map + 12;
    for (u32 i = 0; i < 4; i++)
        p[i] = (u8)((u32)SIZE >> (8 * i)), p[8 + i] = (u8)(CHUNK >> (8 * i));
    p[12] = N_CHUNKS;
    for (u32 i = 0; i < N_CHUNKS; i++) {
        p[16 + i * 33] = SHARE_HAS;
        sha256_of(file + (size_t)i * CHUNK, MIN((size_t)CHUNK, SIZE - (size_t)i * CHUNK),
                  p + 16 + i * 33 + 1);
    }
    (void)!http_answer_whole(a, 200, "application/octet-stream", map, sizeof map);
}

static u32 list_peers(void *ctx, struct store_peer *v, u32 cap) {
    struct member *self = ctx;
    u32 n = 0;
    for (u32 i = 0; i < NODES; i++) {
        if (&m[i] == self || !m[i].share || n == cap) continue;
        str_copy(v[n].id, sizeof v[n].id, m[i].id);
        snprintf(v[n].url, sizeof v[n].url, "http://127.0.0.1:%u", share_port(m[i].share));
        str_copy(v[n].token, sizeof v[n].token, TOKEN);
        n++;
    }
    if (liar && n < cap) {
        str_copy(v[n].id, sizeof v[n].id, "zz");
        str_copy(v[n].url, sizeof v[n].url, http_server_url(liar));
        str_copy(v[n++].token, sizeof v[0].token, TOKEN);
    }
    return n;
}

static int begin(void **state) {
    struct err e = {0};
    u8 digest[32];
    char dir[128], path[160], yaml[700];
    (void)state;
    snprintf(root, sizeof root, "/tmp/skein-swarm-test-XXXXXX");
    assert_non_null(mkdtemp(root));
    file = malloc(SIZE);
    u64 x = 88172645463325252u;
    for (u32 i = 0; i < SIZE; i++) {
        if (i % 8 == 0) x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        file[i] = (u8)(x >> (8 * (i % 8)));
    }
    sha256_of(file, SIZE, digest);
    hex_encode(digest, 32, sha);
    origin = http_server_start(&(struct http_server_cfg){.handler = on_origin}, &e);
    assert_non_null(origin);
    snprintf(yaml, sizeof yaml,
             "id: big\ntitle: Big\nlicence: none\narch: llama\nquant: F16\nparams: 1\n"
             "context: 10\nfile: big.gguf\nsize: %d\nsha256: %s\n"
             "sources:\n  - url: %s/big.gguf\n",
             (int)SIZE, sha, http_server_url(origin));
    snprintf(dir, sizeof dir, "%s/catalogue", root);
    assert_true(file_make_dirs(dir, &e));
    snprintf(path, sizeof path, "%s/big.yaml", dir);
    assert_true(file_write(path, yaml, strlen(yaml), 0644, &e));
    atomic_store(&origin_bytes, 0);
    atomic_store(&origin_is_dead, false);
    for (u32 i = 0; i < NODES; i++) {
        m[i] = (struct member){0};
        snprintf(m[i].id, sizeof m[i].id, "n%u", i);
        snprintf(m[i].models, sizeof m[i].models, "%s/%u", root, i);
        struct store_cfg cfg = {.models_dir = m[i].models, .catalogue = dir};
        m[i].store = store_open(&cfg, &e);
        if (!m[i].store) fail_msg("%s", e.msg);
        struct share_cfg sc = {.host = "127.0.0.1", .token = TOKEN, .store = m[i].store};
        m[i].share = share_start(&sc, &e);
        if (!m[i].share) fail_msg("%s", e.msg);
    }
    return 0;
}

static int end(void **state) {
    char cmd[128];
    (void)state;
    if (liar) http_server_stop(liar);
    liar = NULL;
    for (u32 i = 0; i < NODES; i++) {
        share_stop(m[i].share);
        store_close(m[i].store);
    }
    http_server_stop(origin);
    free(file);
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", root);
    return system(cmd);
}

static void *fetch_main(void *ctx) {
    struct member *k = ctx;
    struct store_help help = {.share = k->share, .self = k->id, .peers = list_peers, .ctx = k};
    k->ok = store_fetch_parts(k->store, k->name ? k->name : "big", &help, k->parts, k->n_parts,
                              NULL, NULL, &k->out, &k->err);
    return NULL;
}

static void fetch(u32 first, u32 end_) {
    for (u32 i = first; i < end_; i++)
        assert_int_equal(pthread_create(&m[i].thread, NULL, fetch_main, &m[i]), 0);
    for (u32 i = first; i < end_; i++) {
        pthread_join(m[i].thread, NULL);
        if (!m[i].ok) fail_msg("node %u: %s", i, m[i].err.msg);
    }
}

static void check_bytes(const struct member *k, u64 offset, u64 n) {
    u8 *got = malloc(n);
    FILE *f = fopen(k->out.path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, (long)offset, SEEK_SET), 0);
    assert_int_equal(fread(got, 1, n, f), n);
    assert_memory_equal(got, file + offset, n);
    fclose(f);
    free(got);
}

static void three_nodes_take_one_copy_from_the_origin(void **state) {
    (void)state;
    static const struct store_part A[] = {{0, 100}, {CHUNK + 5, CHUNK}},
                                   B[] = {{0, 100}, {3 * (u64)CHUNK, 2 * CHUNK + 1}};
    m[0].parts = A, m[0].n_parts = 2;
    m[1].parts = B, m[1].n_parts = 2;
    fetch(0, NODES);
    check_bytes(&m[0], 0, 3 * (u64)CHUNK);
    check_bytes(&m[1], 0, CHUNK);
    check_bytes(&m[1], 3 * (u64)CHUNK, SIZE - 3 * (u64)CHUNK);
    check_bytes(&m[2], 0, SIZE);
    assert_non_null(strstr(m[0].out.path, ".part"));
    assert_non_null(strstr(m[2].out.path, "big.gguf"));
    assert_null(strstr(m[2].out.path, ".part"));
    print_message("origin sent %.2f copies\n", (double)atomic_load(&origin_bytes) / SIZE);
    assert_true(atomic_load(&origin_bytes) < SIZE + SIZE / 4);
    u64 sent = 0;
    for (u32 i = 0; i < NODES; i++) sent += share_sent_bytes(m[i].share);
    assert_true(sent > SIZE / 2);
    /* What is missing comes from the peer, though the origin is dead now. */
    atomic_store(&origin_is_dead, true);
    m[0].n_parts = 0;
    fetch(0, 1);
    check_bytes(&m[0], 0, SIZE);
    assert_null(strstr(m[0].out.path, ".part"));
}

static void wrong_bytes_are_refused(void **state) {
    struct err e = {0};
    (void)state;
    liar = http_server_start(&(struct http_server_cfg){.handler = on_liar}, &e);
    assert_non_null(liar);
    fetch(0, 1);
    check_bytes(&m[0], 0, SIZE);
    assert_true(atomic_load(&origin_bytes) >= SIZE);
}

static void put_own(const struct member *k) {
    char path[160];
    struct err e = {0};
    snprintf(path, sizeof path, "%s/own.gguf", k->models);
    if (!file_write(path, file, SIZE, 0644, &e)) fail_msg("%s", e.msg);
}

static void a_file_without_an_entry_comes_from_its_node(void **state) {
    (void)state;
    static const struct store_part A[] = {{0, 100}, {CHUNK + 5, 100}},
                                   B[] = {{0, CHUNK}, {SIZE - 1, 1}};
    struct store_model model;
    struct err e = {0};
    char path[1024];
    u64 freed = 0;
    put_own(&m[1]);
    for (u32 i = 0; i < NODES; i++) m[i].name = "own";
    m[2].parts = A, m[2].n_parts = 2;
    fetch(2, 3);
    assert_non_null(strstr(m[2].out.path, "own.gguf.part"));
    check_bytes(&m[2], 0, 2 * (u64)CHUNK);
    assert_true(share_sent_bytes(m[1].share) <= 2 * (u64)CHUNK);
    /* That is known without the other node, of these parts alone. */
    assert_true(store_elsewhere("own", SIZE, &model));
    assert_true(store_has_parts(m[2].store, &model, A, 2, path));
    assert_string_equal(path, m[2].out.path);
    assert_false(store_has_parts(m[2].store, &model, B, 2, path));
    fetch(0, 1);
    check_bytes(&m[0], 0, SIZE);
    assert_non_null(strstr(m[0].out.path, "/own.gguf"));
    assert_null(strstr(m[0].out.path, ".part"));
    /* Another file of that name and size: nothing of the old one stays. */
    m[0].name = "big", unlink(m[0].out.path);
    file[7] ^= 1;
    put_own(&m[1]);
    m[2].parts = B;
    fetch(2, 3);
    check_bytes(&m[2], 0, CHUNK);
    check_bytes(&m[2], SIZE - 100, 100);
    assert_false(store_has_parts(m[2].store, &model, A, 2, path));
    assert_true(store_remove(m[2].store, "own", &freed, &e));
    assert_true(freed > 0 && access(m[2].out.path, F_OK) != 0);
    assert_false(store_remove(m[2].store, "own", &freed, &e));
    assert_int_equal(e.code, ERR_NOT_FOUND);
}

static void an_entry_of_one_node_is_enough(void **state) {
    (void)state;
    struct err e = {0};
    char other[96];
    snprintf(other, sizeof other, "%s/other", root);
    fetch(1, 2);
    u64 from_origin = atomic_load(&origin_bytes);
    struct store *has_no_entry =
        store_open(&(struct store_cfg){.models_dir = other, .catalogue = other}, &e);
    if (!has_no_entry) fail_msg("%s", e.msg);
    struct store *own = m[0].store;
    m[0].store = has_no_entry;
    fetch(0, 1);
    m[0].store = own;
    check_bytes(&m[0], 0, SIZE);
    assert_non_null(strstr(m[0].out.path, "/other/big.gguf"));
    assert_true(atomic_load(&origin_bytes) == from_origin);
    store_close(has_no_entry);
}

static void a_file_that_nobody_brings_is_an_error(void **state) {
    (void)state;
    struct err e = {0};
    struct store_model out;
    struct store_help help = {.share = m[0].share, .self = "n0", .peers = list_peers, .ctx = &m[0]};
    assert_false(store_fetch_parts(m[0].store, "own", &help, NULL, 0, NULL, NULL, &out, &e));
    assert_int_equal(e.code, ERR_NOT_FOUND);
    liar = http_server_start(&(struct http_server_cfg){.handler = on_liar}, &e);
    assert_non_null(liar);
    static const char *const BAD[] = {"../own", ".own", "a/own", "own.gguf", "a\nb"};
    for (u32 i = 0; i < ARRAY_LEN(BAD); i++) {
        assert_false(store_fetch_parts(m[0].store, BAD[i], &help, NULL, 0, NULL, NULL, &out, &e));
        assert_int_equal(e.code, ERR_NOT_FOUND);
    }
    assert_false(store_fetch_parts(m[0].store, "own", &help, NULL, 0, NULL, NULL, &out, &e));
    assert_int_equal(e.code, ERR_NET); /* it says it has one, and has none */
    assert_non_null(strstr(e.msg, "no node that has own.gguf"));
}

static void what_is_said_of_a_file_is_checked(void **state) {
    (void)state;
    struct store_named named = {.size_bytes = 123456789}, got;
    struct str text = {0};
    memset(named.id, '7', 64);
    store_named_text(&named, &text);
    assert_true(store_named_parse(str_view(&text), &got));
    assert_true(got.size_bytes == 123456789 && strcmp(got.id, named.id) == 0);
    for (size_t n = 0; n < text.n; n++)
        assert_false(store_named_parse((struct view){text.p, n}, &got));
    str_addc(&text, '\n');
    assert_false(store_named_parse(str_view(&text), &got));
    text.n--;
    text.p[20] = 'G';
    assert_false(store_named_parse(str_view(&text), &got));
    str_deinit(&text);
}

static int status_of(const char *path, const char *token, const char *range) {
    struct http_client_res res = {0};
    char url[256], auth[128], range_header[64];
    struct err e = {0};
    snprintf(url, sizeof url, "http://127.0.0.1:%u%s", share_port(m[2].share), path);
    snprintf(auth, sizeof auth, "Authorization: Bearer %s", token);
    snprintf(range_header, sizeof range_header, "Range: %s", range);
    const char *const headers[] = {auth, range_header, NULL};
    struct http_client_req q = {.url = url, .headers = headers};
    assert_true(http_client_fetch(&q, &res, &e));
    int status = res.status;
    http_client_res_deinit(&res);
    return status;
}

static void strangers_and_nonsense_are_refused(void **state) {
    char path[80], map[90];
    (void)state;
    snprintf(path, sizeof path, "/%s", sha);
    snprintf(map, sizeof map, "/%s/map", sha);
    assert_int_equal(status_of(map, "no", "bytes=0-1"), 401);
    assert_int_equal(status_of(map, TOKEN, "bytes=0-1"), 200);
    assert_int_equal(status_of(path, TOKEN, "bytes=0-1"), 416); /* not here */
    assert_int_equal(status_of(path, TOKEN, "bytes=0-"), 400);
    assert_int_equal(status_of(path, TOKEN, "bytes=5-1"), 416);
    assert_int_equal(status_of(path, TOKEN, "bytes=0-99999999999999999999999"), 400);
    assert_int_equal(status_of("/../../etc/passwd", TOKEN, "bytes=0-1"), 404);
    assert_int_equal(status_of("/", TOKEN, "bytes=0-1"), 404);
    static const char *const NAMED[] = {"/named/", "/named/6", "/named/zz", "/named/2f657463",
                                        "/named/626967"}; /* "/etc", and one of the catalogue */
    for (u32 i = 0; i < ARRAY_LEN(NAMED); i++)
        assert_int_equal(status_of(NAMED[i], TOKEN, "bytes=0-1"), 404);
    assert_int_equal(status_of("/named/6f776e", "no", "bytes=0-1"), 401);
}

static void maps_are_checked(void **state) {
    struct share_map map;
    u8 bytes[12 + 16 + N_CHUNKS * 33] = "skein-map 1\n";
    (void)state;
    assert_false(share_map_parse(bytes, sizeof bytes, SIZE, &map)); /* of size 0 */
    for (u32 i = 0; i < 4; i++) {
        bytes[12 + i] = (u8)((u32)SIZE >> (8 * i));
        bytes[20 + i] = (u8)(CHUNK >> (8 * i));
    }
    bytes[24] = N_CHUNKS;
    assert_true(share_map_parse(bytes, sizeof bytes, SIZE, &map));
    assert_false(share_map_parse(bytes, sizeof bytes, SIZE + 1, &map));
    for (size_t n = 0; n < sizeof bytes; n++) assert_false(share_map_parse(bytes, n, SIZE, &map));
    bytes[24] = N_CHUNKS + 1;
    assert_false(share_map_parse(bytes, sizeof bytes, SIZE, &map));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(three_nodes_take_one_copy_from_the_origin, begin, end),
        cmocka_unit_test_setup_teardown(wrong_bytes_are_refused, begin, end),
        cmocka_unit_test_setup_teardown(a_file_without_an_entry_comes_from_its_node, begin, end),
        cmocka_unit_test_setup_teardown(an_entry_of_one_node_is_enough, begin, end),
        cmocka_unit_test_setup_teardown(a_file_that_nobody_brings_is_an_error, begin, end),
        cmocka_unit_test(what_is_said_of_a_file_is_checked),
        cmocka_unit_test_setup_teardown(strangers_and_nonsense_are_refused, begin, end),
        cmocka_unit_test(maps_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
