#include "cli/inventory.h"

#include <string.h>

#include "base/test.h"

static struct arena mem;

static struct inventory parse(const char *text) {
    struct inventory inv;
    struct err e = {0};
    if (!inventory_parse(view_of(text), &mem, &inv, &e)) fail_msg("%s", e.msg);
    return inv;
}

static void shapes(void **state) {
    (void)state;
    struct inventory i = parse("cluster: home\n"
                               "nodes:\n"
                               "  - host: studio-1\n"
                               "    chip: M3 Ultra\n"
                               "    gpu_cores: 80\n"
                               "    memory: 512GB\n"
                               "    bandwidth: 819 GB/s\n"
                               "    address: 192.168.1.20\n"
                               "  - hostname: mini\n"
                               "    ip: [10.0.0.3, \"[fd00::3]:7\"]\n"
                               "    port: 99\n"
                               "    memory_gb: 64\n"
                               "    role: coordinator\n"
                               "  - spark.local:52416\n");
    assert_string_equal(i.name_space, "home");
    assert_int_equal(i.n, 3);
    assert_string_equal(i.v[0].name, "studio-1");
    assert_string_equal(i.v[0].chip, "M3 Ultra");
    assert_int_equal(i.v[0].gpu_cores, 80);
    assert_true(i.v[0].memory_bytes == (u64)512 << 30);
    assert_true(i.v[0].bandwidth_bytes_s == 819000000000);
    assert_string_equal(i.v[0].addresses[0], "192.168.1.20");
    assert_int_equal(i.v[1].n_addresses, 2);
    assert_string_equal(i.v[1].addresses[0], "10.0.0.3:99");
    assert_string_equal(i.v[1].addresses[1], "[fd00::3]:7");
    assert_true(i.v[1].memory_bytes == (u64)64 << 30 && i.v[1].is_coordinator);
    assert_string_equal(i.v[2].name, "spark.local:52416");
    assert_int_equal(i.remarks.n, 0);
    inventory_deinit(&i);

    i = parse("cluster:\n  name: lab\n  devices:\n    mac-1:\n      ip: 10.0.0.1\n"
              "      gpuCores: 40\n      memry: 8\n      color: red\n    mac-2: {}\n");
    assert_string_equal(i.name_space, "lab");
    assert_string_equal(i.v[0].name, "mac-1");
    assert_int_equal(i.v[0].gpu_cores, 40);
    assert_string_equal(i.v[1].addresses[0], "mac-2"); /* its name is its address */
    assert_string_equal(str_z(&i.remarks),
                        "line 7: field memry means nothing here (did you mean memory?)\n"
                        "line 8: field color means nothing here\n");
    inventory_deinit(&i);
    i = parse("- 10.0.0.1\n- 10.0.0.2\n");
    assert_int_equal(i.n, 2);
    assert_null(i.name_space);
    inventory_deinit(&i);
}

static void mistakes(void **state) {
    (void)state;
    static const char *const ROWS[][2] = {
        {"", "line 1, column 1: the file is empty"},
        {"a: 1\n", "line 1: no list of nodes"},
        {"nodes: 5\n", "line 1: no list of nodes"},
        {"nodes: []\n", "line 1: the list of nodes is empty"},
        {"nodes:\n  - chip: M1\n", "line 2: a node: it has neither host nor address"},
        {"nodes:\n  - host: a\n    memory: lots\n", "line 3: memory \"lots\": expected a size"},
        {"nodes:\n  - host: a\n    port: 0\n", "line 3: port \"0\": expected 1..65535"},
        {"nodes:\n  - host: a\n    role: king\n", "line 3: role \"king\": expected worker"},
        {"nodes:\n  - host: a\n    ip: \"a b\"\n", "line 3: address \"a b\": expected HOST"},
        {"nodes:\n  - host: a\n  - host: A\n", "line 3: A is listed in line 2 already"},
        {"nodes:\n  - [1, 2]\n", "line 2: a node: expected fields"},
        {"nodes:\n  - host: [x]\n", "line 2: host: expected a text"},
        {"nodes: [\n", "line 2, column 1"},
    };
    for (u32 i = 0; i < ARRAY_LEN(ROWS); i++) {
        struct inventory inv;
        struct err e = {0};
        assert_false(inventory_parse(view_of(ROWS[i][0]), &mem, &inv, &e));
        if (!strstr(e.msg, ROWS[i][1])) fail_msg("\"%s\" is not in \"%s\"", ROWS[i][1], e.msg);
    }
}

static void comparisons(void **state) {
    (void)state;
    u64 v;
    assert_true(inventory_size("0.5 TB", 1, true, &v) && v == (u64)512 << 30);
    assert_true(inventory_size("64GiB", 1, false, &v) && v == (u64)64 << 30);
    assert_true(inventory_size("64", 1 << 30, true, &v) && v == (u64)64 << 30);
    assert_true(inventory_size("400 GB/s", 1, false, &v) && v == 400000000000);
    assert_true(inventory_size("10Gbps", 1, false, &v) && v == 10000000000);
    assert_false(inventory_size("-1", 1, false, &v));
    assert_false(inventory_size("1 XB", 1, false, &v));
    assert_false(inventory_size("1e300", 1, false, &v));
    assert_true(inventory_memory_fits((u64)512 << 30, (u64)503 << 30));
    assert_false(inventory_memory_fits((u64)512 << 30, (u64)256 << 30));
    assert_true(inventory_chip_fits("M3 Ultra", "Apple M3 Ultra"));
    assert_false(inventory_chip_fits("M3 Ultra", "Apple M3 Max"));
    assert_true(inventory_same_host("Studio-1", "studio-1.local"));
    assert_false(inventory_same_host("studio-1", "studio-10"));
    assert_false(inventory_same_host("10.0.0.1", "10.0.0.2"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes),
        cmocka_unit_test(mistakes),
        cmocka_unit_test(comparisons),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    arena_deinit(&mem);
    return rc;
}
