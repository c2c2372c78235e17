/* The small modules of base/ that other code leans on: random, hash, JSON, YAML, queue, snapshot,
 * arena, paths. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/id.h"
#include "base/json.h"
#include "base/log.h"
#include "base/paths.h"
#include "base/queue.h"
#include "base/random.h"
#include "base/snapshot.h"
#include "base/sysinfo.h"
#include "base/test.h"
#include "base/yaml.h"

/* Known answers of Philox4x32-10 for counter and key zero: 6627e8d5 e169c58d bc57ac4c 9b00dbd8. */
static void random_at_is_philox(void **state) {
    (void)state;
    assert_true(random_at(0, 0) == 0xe169c58d6627e8d5ull);
    assert_true(random_at(1, 0) != random_at(0, 0) && random_at(0, 1) != random_at(0, 0));
    double sum = 0;
    for (u64 i = 0; i < 10000; i++) {
        double u = random_unit(42, i);
        assert_true(u >= 0 && u < 1);
        sum += u;
    }
    assert_true(sum > 4900 && sum < 5100);
}

static void sha256_known_answers(void **state) {
    (void)state;
    u8 d[32];
    char hex[65];
    sha256_of("abc", 3, d);
    hex_encode(d, 32, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    struct sha256 s;
    sha256_init(&s);
    sha256_add(&s, "a", 1);
    sha256_add(&s, "bc", 2);
    u8 d2[32];
    sha256_end(&s, d2);
    assert_true(hash_equal(d, d2, 32));
    u8 back[32];
    assert_true(hex_decode(hex, back, 32));
    assert_memory_equal(back, d, 32);
    hex[3] = 'g';
    assert_false(hex_decode(hex, back, 32));
}

static void json_writer_escapes(void **state) {
    (void)state;
    struct str s = {0};
    str_addc(&s, '{');
    json_put_view(&s, "a\"b", (struct view){"x\n\x01\xFF\xE4\xB8\xAD\\", 8});
    json_put_int(&s, "n", -5);
    json_put_num(&s, "inf", 1.0 / 0.0);
    json_put_bool(&s, "t", true);
    json_key(&s, "l");
    str_addc(&s, '[');
    json_comma(&s);
    json_add_str(&s, VIEW("1"));
    json_comma(&s);
    json_add_str(&s, VIEW("2"));
    str_addz(&s, "]}");
    assert_string_equal(s.p, "{\"a\\\"b\":\"x\\n\\u0001\xEF\xBF\xBD\xE4\xB8\xAD\\\\\",\"n\":-5,"
                             "\"inf\":null,\"t\":true,\"l\":[\"1\",\"2\"]}");
    struct err e = {0};
    json_t *j = json_parse(str_view(&s), &e);
    assert_non_null(j);
    json_decref(j);
    str_deinit(&s);
}

static void json_reader_is_strict(void **state) {
    (void)state;
    static const char *const BAD[] = {"",        "{",     "{\"a\":1,\"a\":2}", "{\"a\":1} x",
                                      "{'a':1}", "[NaN]", "\"\xFF\"",          "\"\\ud800\""};
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++) {
        struct err e = {0};
        assert_null(json_parse(view_of(BAD[i]), &e));
        assert_int_equal(e.code, ERR_FORMAT);
        assert_non_null(strstr(e.msg, "line "));
    }
}

static void yaml_reads_what_catalogues_use(void **state) {
    (void)state;
    struct arena a = {0};
    struct err e = {0};
    struct yaml *y = yaml_parse(VIEW("id: x\nsize: 98_362_432\naliases: [a, \"b c\"]\nsources:\n  "
                                     "- kind: url\n    url: http://h/p\n"),
                                &a, &e);
    assert_non_null(y);
    assert_string_equal(yaml_text(y, "id"), "x");
    u64 v;
    assert_true(yaml_u64(y, "size", &v, &e) && v == 98362432);
    const struct yaml *l = yaml_get(y, "aliases");
    assert_int_equal(l->kind, YAML_SEQ);
    assert_string_equal(l->first->next->text, "b c");
    assert_true(l->first->next->quoted);
    assert_string_equal(yaml_text(yaml_get(y, "sources")->first, "url"), "http://h/p");
    assert_int_equal(yaml_get(y, "sources")->line, 5);
    arena_deinit(&a);
}

static void yaml_refuses_tricks(void **state) {
    (void)state;
    struct str deep = {0};
    for (int i = 0; i < 100; i++) str_addc(&deep, '[');
    const char *BAD[] = {"",     "a: &x 1\nb: *x\n", "a: 1\na: 2\n", "a: [1\n", "? [1]\n: 2\n",
                         deep.p, "a:\tb: c: d"};
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++) {
        struct arena a = {0};
        struct err e = {0};
        assert_null(yaml_parse(view_of(BAD[i]), &a, &e));
        assert_true(strlen(e.msg) > 0);
        arena_deinit(&a);
    }
    struct arena a = {0};
    struct err e = {0};
    u64 v;
    struct yaml *y = yaml_parse(VIEW("n: 12x\nm: 99999999999999999999\n"), &a, &e);
    assert_false(yaml_u64(y, "n", &v, &e));
    assert_int_equal(e.code, ERR_FORMAT);
    e = (struct err){0};
    assert_false(yaml_u64(y, "m", &v, &e));
    assert_int_equal(e.code, ERR_FORMAT);
    arena_deinit(&a);
    str_deinit(&deep);
}

static void *produce(void *ctx) {
    for (uintptr_t i = 1; i <= 1000; i++)
        while (!queue_push(ctx, (void *)i)) clock_sleep_ms(1);
    return NULL;
}

static void queue_passes_everything_in_order(void **state) {
    (void)state;
    struct queue *q = queue_new(8, NULL);
    pthread_t t[2];
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&t[i], NULL, produce, q), 0);
    uintptr_t sum = 0;
    for (u32 n = 0; n < 2000;) {
        void *p = queue_pop(q);
        if (!p) continue;
        sum += (uintptr_t)p;
        n++;
    }
    for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
    assert_int_equal(sum, 2 * 500500);
    assert_null(queue_pop(q));
    for (uintptr_t i = 1; i <= 8; i++) assert_true(queue_push(q, (void *)i));
    assert_false(queue_push(q, q));
    for (uintptr_t i = 1; i <= 8; i++) assert_ptr_equal(queue_pop(q), (void *)i);
    queue_free(q);
}

static void snapshot_keeps_old_versions_alive(void **state) {
    (void)state;
    struct snapshot *s = snapshot_new();
    snapshot_set(s, VIEW("one"));
    const struct snapshot_text *a = snapshot_get(s);
    snapshot_set(s, VIEW("two"));
    const struct snapshot_text *b = snapshot_get(s);
    assert_string_equal(a->p, "one");
    assert_string_equal(b->p, "two");
    snapshot_let_go(s, a);
    snapshot_let_go(s, b);
    snapshot_free(s);
}

static void arena_grows_and_aligns(void **state) {
    (void)state;
    struct arena a = {0};
    for (size_t n = 0; n < 3000; n += 7) {
        u8 *p = arena_alloc(&a, n);
        assert_int_equal((uintptr_t)p % 16, 0);
        for (size_t i = 0; i < n; i++) assert_int_equal(p[i], 0);
        memset(p, 0xAB, n);
    }
    assert_string_equal(arena_printf(&a, "%d-%s", 5, "x"), "5-x");
    arena_deinit(&a);
    assert_null(a.head);
}

static void paths_follow_the_environment(void **state) {
    (void)state;
    struct paths p;
    unsetenv("SKEIN_MODELS_DIR");
    setenv("SKEIN_HOME", "/tmp/x/", 1);
    assert_true(paths_init(&p, NULL, NULL));
    assert_string_equal(p.models, "/tmp/x/models");
    unsetenv("SKEIN_HOME");
    setenv("HOME", "/home/u", 1);
    setenv("XDG_DATA_HOME", "relative is ignored", 1);
    unsetenv("XDG_STATE_HOME");
    assert_true(paths_init(&p, NULL, NULL));
#ifdef __linux__
    assert_string_equal(p.models, "/home/u/.local/share/skein/models");
    assert_string_equal(p.state, "/home/u/.local/state/skein");
#endif
    setenv("EXO_LOG_LEVEL", "DEBUG", 1);
    assert_string_equal(paths_env("LOG_LEVEL"), "DEBUG");
    setenv("SKEIN_LOG_LEVEL", "warn", 1);
    assert_string_equal(paths_env("LOG_LEVEL"), "warn");
    enum log_level l;
    assert_true(log_parse_level("WARNING", &l, NULL) && l == LOG_WARN);
    struct err e = {0};
    assert_false(log_parse_level("loud", &l, &e));
    unsetenv("HOME");
    assert_false(paths_init(&p, NULL, &e));
    setenv("HOME", "/", 1);
}

static void uuids_are_of_version_7(void **state) {
    (void)state;
    char a[ID_UUID_CAP], b[ID_UUID_CAP];
    id_uuid(a);
    clock_sleep_ms(2);
    id_uuid(b);
    assert_int_equal(strlen(a), 36);
    assert_true(a[14] == '7' && strchr("89ab", a[19]) && a[8] == '-' && a[13] == '-' &&
                a[23] == '-');
    assert_true(strcmp(a, b) < 0); /* sorted by age */
}

static void machine_facts_are_plausible(void **state) {
    (void)state;
    struct sysinfo_mem m;
    sysinfo_mem(&m);
    assert_true(m.total_bytes > 64u << 20 && m.available_bytes <= m.total_bytes);
    assert_true(sysinfo_n_cpus() >= 1 && sysinfo_rss_bytes() > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_at_is_philox),
        cmocka_unit_test(sha256_known_answers),
        cmocka_unit_test(json_writer_escapes),
        cmocka_unit_test(json_reader_is_strict),
        cmocka_unit_test(yaml_reads_what_catalogues_use),
        cmocka_unit_test(yaml_refuses_tricks),
        cmocka_unit_test(queue_passes_everything_in_order),
        cmocka_unit_test(snapshot_keeps_old_versions_alive),
        cmocka_unit_test(arena_grows_and_aligns),
        cmocka_unit_test(paths_follow_the_environment),
        cmocka_unit_test(uuids_are_of_version_7),
        cmocka_unit_test(machine_facts_are_plausible),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
