#include "kernels/cores.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/test.h"

static void lists(void **state) {
    (void)state;
    static const char LIST[] = "0-3,8,10-11\n";
    for (u32 cpu = 0; cpu < 14; cpu++)
        assert_true(cores_list_has(LIST, cpu) == (cpu <= 3 || cpu == 8 || cpu == 10 || cpu == 11));
    assert_int_equal(cores_list_first(LIST), 0);
    assert_int_equal(cores_list_first("7,15\n"), 7);
    static const char *const BAD[] = {"", "\n", "x", "-3", ",1", "5-2"};
    for (u32 i = 0; i < ARRAY_LEN(BAD); i++)
        assert_true(!cores_list_has(BAD[i], 1) && cores_list_first(BAD[i]) == UINT32_MAX);
}

#if defined(__linux__)
/* A file of a pretended /sys/devices; folders are made on the way. */
static void put(const char *root, const char *name, u32 cpu, const char *text) {
    char tail[128], path[512];
    snprintf(tail, sizeof tail, name, cpu);
    snprintf(path, sizeof path, "%s/%s", root, tail);
    for (char *p = path + strlen(root) + 1; (p = strchr(p, '/')); *p++ = '/') {
        *p = 0;
        mkdir(path, 0700);
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void expect(const char *root, u32 n, u32 real, const u16 *order) {
    struct cores c = {.n = n};
    for (u32 i = 0; i < n; i++) c.core[i].cpu = (u16)i;
    cores_describe(&c, root);
    for (u32 i = 0; i < n; i++) assert_int_equal(c.core[i].cpu, order[i]);
    assert_int_equal(cores_physical(&c), real);
}

#define SIBLINGS "system/cpu/cpu%u/topology/thread_siblings_list"

/* What an i5-1240P, an RK3588, an AMD with two threads a core and a virtual machine say, shortened.
 */
static void machines(void **state) {
    (void)state;
    char root[4][64];
    for (u32 i = 0; i < 4; i++) {
        snprintf(root[i], sizeof root[i], "/tmp/skein-cores-test-XXXXXX");
        assert_non_null(mkdtemp(root[i]));
    }
    static const char *const HYBRID[] = {"0-1\n", "0-1\n", "2-3\n", "2-3\n", "4\n", "5\n"};
    put(root[0], "cpu_core/cpus", 0, "0-3\n");
    put(root[0], "cpu_atom/cpus", 0, "4-5\n");
    for (u32 i = 0; i < 6; i++) {
        put(root[0], SIBLINGS, i, HYBRID[i]);
        put(root[0], "system/cpu/cpu%u/cpufreq/cpuinfo_max_freq", i,
            i < 4 ? "4400000\n" : "3300000\n");
    }
    expect(root[0], 6, 4, (const u16[]){0, 2, 4, 5, 1, 3});

    for (u32 i = 0; i < 8; i++)
        put(root[1], "system/cpu/cpu%u/cpu_capacity", i, i < 4 ? "414\n" : "1024\n");
    expect(root[1], 8, 8, (const u16[]){4, 5, 6, 7, 0, 1, 2, 3});

    static const char *const SMT[] = {"0,2\n", "1,3\n", "0,2\n",
                                      "1,3\n"}; /* one core is favoured */
    for (u32 i = 0; i < 4; i++) {
        put(root[2], SIBLINGS, i, SMT[i]);
        put(root[2], "system/cpu/cpu%u/cpufreq/cpuinfo_max_freq", i,
            i % 2 ? "4850000\n" : "4700000\n");
    }
    expect(root[2], 4, 2, (const u16[]){0, 1, 2, 3});

    expect(root[3], 3, 3, (const u16[]){0, 1, 2}); /* nothing is known */
    for (u32 i = 0; i < 4; i++) {
        char cmd[512];
        snprintf(cmd, sizeof cmd, "rm -rf %s", root[i]);
        assert_int_equal(system(cmd), 0);
    }
}
#else
static void machines(void **state) {
    (void)state;
    skip();
}
#endif

static void this_machine(void **state) {
    (void)state;
    struct cores c;
    cores_read(&c);
    assert_true(cores_physical(&c) >= 1 && cores_physical(&c) <= MAX(c.n, 1u));
    for (u32 i = 1; i < c.n; i++) assert_true(c.core[i - 1].second <= c.core[i].second);
}

/* Bound threads compute on some of the allowed processors, and unbound ones on all again. */
static void binding_is_undone(void **state) {
    (void)state;
    struct cores before, bound, after;
    cores_read(&before);
    cores_bind(&before, 1);
    cores_read(&bound);
    cores_unbind(&before);
    cores_read(&after);
    assert_true(bound.n >= (before.n > 0) && bound.n <= before.n);
    assert_int_equal(after.n, before.n);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists),
        cmocka_unit_test(machines),
        cmocka_unit_test(this_machine),
        cmocka_unit_test(binding_is_undone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
