#include "base/cgroup.h"
#include "base/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/str.h"

/* A mount as Linux would show it. */
static char root[] = "/tmp/skein-cgroup-XXXXXX";

static void put(const char *path, const char *text) {
    struct str p = {0}, dir = {0};
    str_addf(&p, "%s/%s", root, path);
    str_add(&dir, p.p, (size_t)(strrchr(p.p, '/') - p.p));
    assert_true(file_make_dirs(str_z(&dir), NULL));
    assert_true(file_write(p.p, text, strlen(text), 0644, NULL));
    str_deinit(&p);
    str_deinit(&dir);
}

static int set_up(void **state) {
    (void)state;
    memcpy(root, "/tmp/skein-cgroup-XXXXXX", sizeof root);
    return mkdtemp(root) ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", root);
    return system(command);
}

static void no_group_is_no_limit(void **state) {
    (void)state;
    u64 limit, used;
    static const char *const SELF[] = {"", "0::/\n", "0::/a/b\n1:cpu:/x", "nonsense\n::\n1:cpu",
                                       "4:memory,cpu:/\n"};
    for (u32 i = 0; i < ARRAY_LEN(SELF); i++) {
        assert_int_equal(cgroup_cpus(root, SELF[i]), UINT32_MAX);
        cgroup_memory(root, SELF[i], &limit, &used);
        assert_true(limit == UINT64_MAX && used == 0);
    }
}

static void the_tightest_level_of_v2_counts(void **state) {
    (void)state;
    u64 limit, used;
    put("cpu.max", "max 100000\n");
    put("a/cpu.max", "250000 100000\n");
    put("a/b/cpu.max", "800000 100000\n");
    assert_int_equal(cgroup_cpus(root, "0::/a/b\n"), 3); /* two and a half */
    assert_int_equal(cgroup_cpus(root, "0::/a\n"), 3);
    assert_int_equal(cgroup_cpus(root, "0::/\n"), UINT32_MAX);
    put("a/b/cpu.max", "1000 100000\n");
    assert_int_equal(cgroup_cpus(root, "1:name=systemd:/\n0::/a/b"), 1);
    /* A path of the host: the mount's root is the container. */
    put("cpu.max", "400000 100000\n");
    assert_int_equal(cgroup_cpus(root, "0::/docker/0123\n"), 4);
    put("a/memory.max", "1000000\n");
    put("a/memory.current", "600000\n");
    put("a/memory.stat", "anon 5\ninactive_file 100000\n");
    put("a/b/memory.max", "max\n");
    cgroup_memory(root, "0::/a/b\n", &limit, &used);
    assert_true(limit == 1000000 && used == 500000);
}

static void so_does_that_of_v1(void **state) {
    (void)state;
    u64 limit, used;
    put("cpu/cpu.cfs_quota_us", "-1\n");
    put("cpu/cpu.cfs_period_us", "100000\n");
    put("cpu/a/cpu.cfs_quota_us", "150000\n");
    put("cpu/a/cpu.cfs_period_us", "100000\n");
    assert_int_equal(cgroup_cpus(root, "3:cpuset:/\n2:cpu,cpuacct:/a\n0::/\n"), 2);
    assert_int_equal(cgroup_cpus(root, "2:cpuacct,cpu:/a\n"), 2);
    assert_int_equal(cgroup_cpus(root, "2:cpuacct:/a\n1:cpu:/\n"), UINT32_MAX);
    put("memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("memory/a/b/memory.limit_in_bytes", "2000\n");
    put("memory/a/b/memory.usage_in_bytes", "1500\n");
    put("memory/a/b/memory.stat", "total_inactive_file 5000\n");
    cgroup_memory(root, "4:memory:/a/b\n0::/\n", &limit, &used);
    assert_true(limit == 2000 && used == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(no_group_is_no_limit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_tightest_level_of_v2_counts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(so_does_that_of_v1, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
