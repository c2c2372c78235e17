#include "base/file.h"
#include "base/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <signal.h>
#include <unistd.h>

static char folder[64];

static const char *in_folder(const char *name, char buf[256]) {
    snprintf(buf, 256, "%s/%s", folder, name);
    return buf;
}

static void written_bytes_come_back(void **state) {
    (void)state;
    char path[256];
    in_folder("a", path);
    struct err e = {0};
    assert_true(file_write(path, "one\0two", 7, 0600, &e));
    assert_true(file_write(path, "three", 5, 0640, &e));
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    struct str s = {0};
    str_addz(&s, "x");
    assert_true(file_read(path, 5, &s, &e));
    assert_string_equal(s.p, "xthree");
    assert_false(file_read(path, 4, &s, &e));
    assert_int_equal(e.code, ERR_LIMIT);
    assert_string_equal(s.p, "xthree");
    char big[200000] = {0};
    assert_true(file_write(in_folder("b", path), big, sizeof big, 0600, &e));
    assert_false(file_read(path, sizeof big - 1, &s, &e)); /* found out after several reads */
    assert_string_equal(s.p, "xthree");
    assert_int_equal(s.n, 6);
    in_folder("a", path);
    u64 size;
    assert_true(file_size(path, &size, &e));
    assert_int_equal(size, 5);
    str_deinit(&s);
}

static void missing_and_wrong_paths_are_named(void **state) {
    (void)state;
    char path[256];
    in_folder("missing/file", path);
    struct err e = {0};
    struct str s = {0};
    struct file_map m;
    assert_false(file_exists(path));
    assert_false(file_exists(folder));
    assert_false(file_read(path, 100, &s, &e));
    assert_int_equal(e.code, ERR_NOT_FOUND);
    assert_non_null(strstr(e.msg, path));
    assert_false(file_write(path, "x", 1, 0644, &e));
    assert_non_null(strstr(e.msg, "No such file"));
    assert_false(file_map_open(&m, path, &e));
    assert_int_equal(e.code, ERR_NOT_FOUND);
    assert_false(file_map_open(&m, folder, &e));
    assert_int_equal(e.code, ERR_IO);
    assert_null(m.data);
    str_deinit(&s);
}

/* A limit on the file size makes write fail halfway, as a full disk does. */
static void failed_write_leaves_the_old_file_and_no_other(void **state) {
    (void)state;
    char path[256], big[100000];
    in_folder("full/f", path);
    struct err e = {0};
    char sub[256];
    assert_true(file_make_dirs(in_folder("full", sub), &e));
    assert_true(file_write(path, "old", 3, 0644, &e));
    memset(big, 'n', sizeof big);
    struct rlimit was, small = {.rlim_cur = 1000};
    getrlimit(RLIMIT_FSIZE, &was);
    small.rlim_max = was.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    bool ok = file_write(path, big, sizeof big, 0644, &e);
    setrlimit(RLIMIT_FSIZE, &was);
    assert_false(ok);
    assert_int_equal(e.code, ERR_IO);
    assert_non_null(strstr(e.msg, "full/f"));
    struct str s = {0};
    assert_true(file_read(path, 100, &s, &e));
    assert_string_equal(s.p, "old");
    str_deinit(&s);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(sub), 0); /* fails when the temporary file is still there */
}

static void folders_are_made_all_the_way(void **state) {
    (void)state;
    char path[256], file[256];
    struct err e = {0};
    assert_true(file_make_dirs(in_folder("p/q//r/", path), &e));
    assert_true(file_make_dirs(path, &e));
    assert_true(file_write(in_folder("p/q/r/f", file), "1", 1, 0644, &e));
    assert_false(file_make_dirs(in_folder("p/q/r/f/g", path), &e));
    assert_non_null(strstr(e.msg, "p/q/r/f is there and is not a folder"));
}

static long faults(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_minflt;
}

/* Only whole pages inside the range go, and what went is read again. */
static void dropped_bytes_are_still_there(void **state) {
    (void)state;
    enum { PAGES = 40 };
    char path[256];
    struct err e = {0};
    struct file_map m;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n = PAGES * page - 100, sum = 0;
    u8 *all = malloc(n);
    assert_non_null(all);
    for (size_t i = 0; i < n; i++) all[i] = (u8)(i * 7 + i / page);
    assert_true(file_write(in_folder("d", path), all, n, 0644, &e));
    assert_true(file_map_open(&m, path, &e));
    for (size_t i = 0; i < n; i += page) sum += m.data[i];
    assert_true(sum > 0);
    file_map_drop(&m, 0, 0);
    file_map_drop(&m, 1, page); /* not one whole page */
    file_map_drop(&m, n, UINT64_MAX);
    file_map_drop(&m, 3, UINT64_MAX);
    long before = faults();
    assert_memory_equal(m.data, all, n);
#if defined(__linux__) && defined(__x86_64__) /* an emulator of other processors may keep them */
    assert_true(faults() > before);
#else
    (void)before;
#endif
    file_map_close(&m);
    file_map_drop(&m, 0, 1); /* closed: nothing to do */
    free(all);
}

static void map_shows_the_bytes(void **state) {
    (void)state;
    char path[256];
    struct err e = {0};
    struct file_map m;
    assert_true(file_write(in_folder("m", path), "mapped", 6, 0644, &e));
    assert_true(file_map_open(&m, path, &e));
    assert_int_equal(m.size_bytes, 6);
    assert_memory_equal(m.data, "mapped", 6);
    file_map_close(&m);
    assert_null(m.data);
    assert_true(file_write(path, "", 0, 0644, &e));
    assert_true(file_map_open(&m, path, &e));
    assert_non_null(m.data);
    assert_int_equal(m.size_bytes, 0);
    file_map_close(&m);
}

static int make_folder(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/skein-file-test-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    char cmd[128];
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", folder);
    return system(cmd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_bytes_come_back),
        cmocka_unit_test(missing_and_wrong_paths_are_named),
        cmocka_unit_test(failed_write_leaves_the_old_file_and_no_other),
        cmocka_unit_test(folders_are_made_all_the_way),
        cmocka_unit_test(dropped_bytes_are_still_there),
        cmocka_unit_test(map_shows_the_bytes),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
