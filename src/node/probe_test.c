/* Recorded trees and texts: what a laptop, a hybrid desktop, a Raspberry Pi, a GPU server and two
 * Macs say of themselves. */
#include "node/probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"
#include "base/test.h"

static char root[64];

static int make_root(void **state) {
    (void)state;
    snprintf(root, sizeof root, "/tmp/skein-probe-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}
static int drop_root(void **state) {
    (void)state;
    char cmd[100];
    snprintf(cmd, sizeof cmd, "rm -rf %s", root);
    return system(cmd);
}

static void put(const char *path, const char *text) {
    char file[400], dir[400];
    snprintf(file, sizeof file, "%s/%s", root, path);
    str_copy(dir, sizeof dir, file);
    *strrchr(dir, '/') = 0;
    assert_true(file_make_dirs(dir, NULL));
    assert_true(file_write(file, text, strlen(text), 0644, NULL));
}
static void put_link(const char *path, const char *target) {
    char file[400];
    snprintf(file, sizeof file, "%s/%s", root, path);
    assert_int_equal(symlink(target, file), 0);
}

static void nothing_there_is_nothing_known(void **state) {
    (void)state;
    struct probe p = {0}, zero = {0};
    struct probe_memory m = {0};
    probe_sysfs_cpus(root, &p);
    probe_sysfs_temperature(root, &p);
    probe_sysfs_power(root, &p, &m, 1000000);
    probe_sysfs_throttle(root, &p, &m);
    probe_sysfs_supply(root, &p);
    probe_sysfs_gpus(root, &p);
    probe_sysfs_model(root, root, &p);
    assert_false(probe_sysfs_rdma(root));
    assert_memory_equal(&p, &zero, sizeof p);
}

static void cores_of_two_kinds(void **state) {
    (void)state;
    struct probe p = {0};
    /* Arm: capacities, of a phone-like board with 2 + 4. */
    for (u32 i = 0; i < 6; i++) {
        char path[100];
        snprintf(path, sizeof path, "devices/system/cpu/cpu%u/cpu_capacity", i);
        put(path, i < 2 ? "1024\n" : "485\n");
    }
    put("devices/system/cpu/cpufreq/x", ""); /* no cpu, though its name begins so */
    probe_sysfs_cpus(root, &p);
    assert_int_equal(p.n_cores_big, 2);
    /* Intel names its performance cores. */
    put("devices/cpu_core/cpus", "0-7,16\n");
    probe_sysfs_cpus(root, &p);
    assert_int_equal(p.n_cores_big, 9);
}

static void cores_by_their_clock(void **state) {
    (void)state;
    struct probe p = {0};
    static const char *const KHZ[] = {"4700000", "4600000", "3400000"};
    for (u32 i = 0; i < 3; i++) {
        char path[100];
        snprintf(path, sizeof path, "devices/system/cpu/cpu%u/cpufreq/cpuinfo_max_freq", i);
        put(path, KHZ[i]);
    }
    static const struct {
        const char *type, *level, *size;
    } CACHES[] = {{"Data", "1", "48K"},
                  {"Instruction", "1", "32K"},
                  {"Unified", "2", "2048K"},
                  {"Unified", "3", "36M"}};
    for (u32 i = 0; i < 4; i++) {
        char path[100];
        snprintf(path, sizeof path, "devices/system/cpu/cpu0/cache/index%u/type", i);
        put(path, CACHES[i].type);
        snprintf(path, sizeof path, "devices/system/cpu/cpu0/cache/index%u/level", i);
        put(path, CACHES[i].level);
        snprintf(path, sizeof path, "devices/system/cpu/cpu0/cache/index%u/size", i);
        put(path, CACHES[i].size);
    }
    probe_sysfs_cpus(root, &p);
    assert_int_equal(p.n_cores_big, 2);
    assert_int_equal(p.cache_l1_kib, 48);
    assert_int_equal(p.cache_l2_kib, 2048);
    assert_int_equal(p.cache_l3_kib, 36 * 1024);
}

static void temperature_is_the_processors(void **state) {
    (void)state;
    struct probe p = {0};
    put("class/thermal/thermal_zone0/type", "acpitz\n");
    put("class/thermal/thermal_zone0/temp", "71600\n");
    put("class/thermal/thermal_zone1/type", "iwlwifi_1\n");
    put("class/thermal/thermal_zone1/temp", "-274000\n");
    probe_sysfs_temperature(root, &p);
    assert_int_equal(p.temperature_c, 72); /* nothing better is known */
    put("class/hwmon/hwmon0/name", "nvme\n");
    put("class/hwmon/hwmon0/temp1_input", "80000\n");
    put("class/hwmon/hwmon3/name", "coretemp\n");
    put("class/hwmon/hwmon3/temp1_input", "55000\n");
    put("class/hwmon/hwmon3/temp2_input", "57400\n");
    put("class/hwmon/hwmon3/temp2_crit", "100000\n");
    probe_sysfs_temperature(root, &p);
    assert_int_equal(p.temperature_c, 57);
}

static void power_from_energy_counters(void **state) {
    (void)state;
    struct probe p = {0};
    struct probe_memory m = {0};
    put("class/powercap/intel-rapl:0/name", "package-0\n");
    put("class/powercap/intel-rapl:0/energy_uj", "1000000\n");
    put("class/powercap/intel-rapl:0/max_energy_range_uj", "262143328850\n");
    put("class/powercap/intel-rapl:0:0/name", "core\n");
    put("class/powercap/intel-rapl:0:0/energy_uj", "900000\n");
    probe_sysfs_power(root, &p, &m, 10000000);
    assert_int_equal(p.power_mw, 0); /* one look makes no rate */
    put("class/powercap/intel-rapl:0/energy_uj", "31000000\n");
    probe_sysfs_power(root, &p, &m, 12000000);
    assert_int_equal(p.power_mw, 15000); /* 30 J in 2 s */
    assert_string_equal(p.power_source, "rapl");
    put("class/powercap/intel-rapl:0/energy_uj", "262143000000\n");
    probe_sysfs_power(root, &p, &m, 13000000);
    put("class/powercap/intel-rapl:0/energy_uj", "4671150\n"); /* wrapped */
    probe_sysfs_power(root, &p, &m, 14000000);
    assert_int_equal(p.power_mw, 5000);
    put("class/powercap/intel-rapl:1/name", "psys\n"); /* the whole machine counts before */
    put("class/powercap/intel-rapl:1/energy_uj", "5000000\n");
    probe_sysfs_power(root, &p, &m, 15000000);
    put("class/powercap/intel-rapl:1/energy_uj", "47000000\n");
    probe_sysfs_power(root, &p, &m, 16000000);
    assert_int_equal(p.power_mw, 42000);
}

static void power_from_sensors_and_batteries(void **state) {
    (void)state;
    struct probe p = {0};
    struct probe_memory m = {0};
    put("class/hwmon/hwmon0/name", "ina3221\n");
    put("class/hwmon/hwmon0/power1_input", "7250000\n");
    put("class/hwmon/hwmon1/name", "amdgpu\n"); /* counted with its GPU */
    put("class/hwmon/hwmon1/power1_average", "99000000\n");
    probe_sysfs_power(root, &p, &m, 1);
    assert_int_equal(p.power_mw, 7250);
    assert_string_equal(p.power_source, "hwmon");
    put("class/power_supply/AC/type", "Mains\n");
    put("class/power_supply/hidpp_battery_0/type", "Battery\n");
    put("class/power_supply/hidpp_battery_0/scope", "Device\n");
    put("class/power_supply/hidpp_battery_0/status", "Discharging\n");
    probe_sysfs_supply(root, &p);
    assert_false(p.is_on_battery);
    put("class/power_supply/BAT0/type", "Battery\n");
    put("class/power_supply/BAT0/status", "Discharging\n");
    put("class/power_supply/BAT0/current_now", "1000000\n");
    put("class/power_supply/BAT0/voltage_now", "12500000\n");
    probe_sysfs_supply(root, &p);
    assert_true(p.is_on_battery);
    assert_int_equal(p.power_mw, 12500);
    assert_string_equal(p.power_source, "battery");
}

static void throttling_is_seen_by_three_signs(void **state) {
    (void)state;
    struct probe p = {0};
    struct probe_memory m = {0};
    put("devices/system/cpu/cpu0/thermal_throttle/package_throttle_count", "7\n");
    put("class/thermal/cooling_device0/type", "Processor\n");
    put("class/thermal/cooling_device0/cur_state", "0\n");
    put("class/thermal/cooling_device1/type", "Fan\n");
    put("class/thermal/cooling_device1/cur_state", "1\n");
    probe_sysfs_throttle(root, &p, &m);
    assert_string_equal(p.throttle, ""); /* what was before the first look is past */
    put("devices/system/cpu/cpu0/thermal_throttle/package_throttle_count", "9\n");
    probe_sysfs_throttle(root, &p, &m);
    assert_string_equal(p.throttle, "temperature");
    probe_sysfs_throttle(root, &p, &m);
    assert_string_equal(p.throttle, "");
    put("class/thermal/cooling_device0/cur_state", "2\n");
    probe_sysfs_throttle(root, &p, &m);
    assert_string_equal(p.throttle, "temperature");
    put("devices/platform/soc/soc:firmware/get_throttled", "50005\n"); /* a Pi, weak supply */
    probe_sysfs_throttle(root, &p, &m);
    assert_string_equal(p.throttle, "undervoltage");
    put("devices/platform/soc/soc:firmware/get_throttled", "e0000\n"); /* it was, it isn't now */
    put("class/thermal/cooling_device0/cur_state", "0\n");
    probe_sysfs_throttle(root, &p, &m);
    assert_string_equal(p.throttle, "");
}

static void gpus_of_the_kernels_drivers(void **state) {
    (void)state;
    struct probe p = {0};
    put("class/drm/card0/device/vendor", "0x1234\n");
    put_link("class/drm/card0/device/driver", "../../bus/pci/drivers/bochs-drm");
    put("class/drm/card1/device/vendor", "0x1002\n");
    put("class/drm/card1/device/device", "0x744c\n");
    put_link("class/drm/card1/device/driver", "../../bus/pci/drivers/amdgpu");
    put("class/drm/card1/device/mem_info_vram_total", "25753026560\n");
    put("class/drm/card1/device/mem_info_vram_used", "753026560\n");
    put("class/drm/card1/device/gpu_busy_percent", "37\n");
    put("class/drm/card1/device/hwmon/hwmon4/temp1_input", "48000\n");
    put("class/drm/card1/device/hwmon/hwmon4/power1_average", "81000000\n");
    put("class/drm/card1-DP-1/status", "connected\n");
    put("class/drm/card2/device/vendor", "0x10de\n");
    put_link("class/drm/card2/device/driver", "../../bus/pci/drivers/nvidia");
    probe_sysfs_gpus(root, &p);
    assert_int_equal(p.n_gpus, 1);
    assert_string_equal(p.gpus[0].name, "AMD GPU 0x744c");
    assert_string_equal(p.gpus[0].driver, "amdgpu");
    assert_int_equal(p.gpus[0].mem_total_bytes, 25753026560);
    assert_int_equal(p.gpus[0].mem_available_bytes, 25000000000);
    assert_int_equal(p.gpus[0].load_pct, 37);
    assert_int_equal(p.gpus[0].temperature_c, 48);
    assert_int_equal(p.gpus[0].power_mw, 81000);
}

static void names_of_machines_and_rdma(void **state) {
    (void)state;
    struct probe p = {0};
    put("class/dmi/id/sys_vendor", "LENOVO\n");
    put("class/dmi/id/product_name", "21HMCTO1WW\n");
    probe_sysfs_model(root, root, &p);
    assert_string_equal(p.model, "LENOVO 21HMCTO1WW");
    put("device-tree/model", "Raspberry Pi 5 Model B Rev 1.0");
    probe_sysfs_model(root, root, &p);
    assert_string_equal(p.model, "Raspberry Pi 5 Model B Rev 1.0");
    put("class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n");
    assert_false(probe_sysfs_rdma(root));
    put("class/infiniband/mlx5_1/ports/1/state", "4: ACTIVE\n");
    assert_true(probe_sysfs_rdma(root));
}

static void load_and_swap(void **state) {
    (void)state;
    struct probe p = {0};
    struct probe_memory m = {0};
    probe_proc_load("cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 1 2 3\n", &p, &m);
    assert_int_equal(p.load_pct, 0);
    probe_proc_load("cpu  175 0 100 825 0 0 0 0 0 0\n", &p, &m);
    assert_int_equal(p.load_pct, 75);
    probe_proc_load("cpu  1 0 1 1 0 0 0 0\n", &p, &m); /* counters that went back */
    probe_proc_load("nonsense", &p, &m);
    assert_int_equal(p.load_pct, 75);
    probe_proc_swap("MemTotal: 1 kB\nSwapTotal:       2048 kB\nSwapFree:        1024 kB\n", &p);
    assert_int_equal(p.swap_total_bytes, 2 << 20);
    assert_int_equal(p.swap_available_bytes, 1 << 20);
}

static void powermetrics_of_an_m4_pro(void **state) {
    (void)state;
    struct probe p = {.n_cores_big = 10};
    assert_true(probe_powermetrics(
        "Machine model: Mac16,11\n\n*** Sampled system activity (Fri Aug 22 09:00:00 2025 -0400) "
        "(502.31ms elapsed) ***\n\n**** Processor usage ****\n\n"
        "E-Cluster Online: 100%\nE-Cluster HW active frequency: 1332 MHz\n"
        "E-Cluster HW active residency:  85.06% (1020 MHz:  12% 1400 MHz: 30%)\n"
        "P0-Cluster HW active residency:  99.91% (4510 MHz: 60%)\n"
        "P1-Cluster HW active residency:  49.71% (4510 MHz: 58%)\n\n"
        "CPU Power: 32104 mW\nGPU Power: 21 mW\nANE Power: 0 mW\n"
        "Combined Power (CPU + GPU + ANE): 32125 mW\n\n**** GPU usage ****\n\n"
        "GPU HW active frequency: 338 MHz\nGPU HW active residency:   3.60% (338 MHz: 3.6%)\n"
        "GPU Power: 22 mW\n\n**** Thermal pressure ****\n\nCurrent pressure level: Nominal\n",
        14, &p));
    assert_int_equal(p.power_mw, 32125);
    assert_string_equal(p.power_source, "powermetrics");
    assert_int_equal(p.load_big_pct, 75);
    assert_int_equal(p.load_small_pct, 85);
    assert_int_equal(p.load_pct, (75 * 10 + 85 * 4) / 14);
    assert_int_equal(p.n_gpus, 1);
    assert_int_equal(p.gpus[0].power_mw, 21);
    assert_int_equal(p.gpus[0].load_pct, 4);
    assert_string_equal(p.throttle, "");
    assert_true(probe_powermetrics("Current pressure level: Heavy\n", 14, &p));
    assert_string_equal(p.throttle, "temperature");
    struct probe q = {0};
    assert_true(probe_powermetrics("CPU Power: 42.5 W\nGPU Power: 1 W\n", 8, &q)); /* older */
    assert_int_equal(q.power_mw, 43500);
    assert_false(probe_powermetrics("GPU Power: 9999999 W\n", 8, &q)); /* no machine's */
    assert_false(probe_powermetrics("powermetrics must be invoked as the superuser\n", 8, &q));
}

static void macmon_pipe(void **state) {
    (void)state;
    struct probe p = {.n_cores_big = 4};
    assert_true(probe_macmon(
        "{\"timestamp\":\"2025-02-24T20:38:15.427569+00:00\",\"temp\":{\"cpu_temp_avg\":43.73614,"
        "\"gpu_temp_avg\":36.95167},\"memory\":{\"ram_total\":25769803776,\"ram_usage\":"
        "20985479168,"
        "\"swap_total\":4294967296,\"swap_usage\":2602434560},\"ecpu_usage\":[1181,0.082656614],"
        "\"pcpu_usage\":[1974,0.515181795],\"gpu_usage\":[461,0.021497859],\"cpu_power\":0."
        "20486385,"
        "\"gpu_power\":0.017451683,\"ane_power\":0.0,\"all_power\":0.22231553,"
        "\"sys_power\":5.876533,\"ram_power\":0.11635789}\n{\"cut",
        8, &p));
    assert_int_equal(p.temperature_c, 44);
    assert_int_equal(p.power_mw, 5876);
    assert_string_equal(p.power_source, "macmon");
    assert_int_equal(p.load_big_pct, 52);
    assert_int_equal(p.load_small_pct, 8);
    assert_int_equal(p.load_pct, 30);
    assert_int_equal(p.gpus[0].power_mw, 17);
    assert_int_equal(p.gpus[0].load_pct, 2);
    assert_int_equal(p.gpus[0].temperature_c, 37);
    assert_int_equal(p.swap_available_bytes, 4294967296 - 2602434560);
    assert_false(probe_macmon("[]", 8, &p));
    assert_false(probe_macmon("", 8, &p));
    assert_true(probe_macmon("{\"temp\":{\"cpu_temp_avg\":1e300},\"all_power\":\"x\"}", 8, &p));
}

/* Compiled here, so that it is opened as the real one is. */
static const char FAKE_NVML[] =
    "#include <string.h>\n"
    "int nvmlInit_v2(void) { return 0; }\nint nvmlShutdown(void) { return 0; }\n"
    "int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }\n"
    "int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) { *h = (char *)0 + i + 1; return 0; "
    "}\n"
    "int nvmlDeviceGetName(void *h, char *s, unsigned n) { strncpy(s, \"NVIDIA GB10\", n); return "
    "h == (void *)2 ? 999 : 0; }\n"
    "int nvmlDeviceGetMemoryInfo(void *h, unsigned long long *m) { m[0] = 24ULL << 30; m[1] = "
    "20ULL "
    "<< 30; m[2] = 4ULL << 30; return h == (void *)2 ? 3 : 0; }\n"
    "int nvmlDeviceGetTemperature(void *h, int s, unsigned *t) { *t = 61; return h ? s : 1; }\n"
    "int nvmlDeviceGetPowerUsage(void *h, unsigned *p) { *p = 70000; return h ? 0 : 1; }\n"
    "int nvmlDeviceGetUtilizationRates(void *h, unsigned *u) { u[0] = 88; u[1] = 9; return h ? 0 : "
    "1; }\n"
    "int nvmlDeviceGetCurrentClocksThrottleReasons(void *h, unsigned long long *r) { *r = h == "
    "(void *)1 ? 0x4 : 0x1; return 0; }\n";

static void gpus_of_nvidias_library(void **state) {
    (void)state;
    char cmd[600], path[200];
    struct probe p = {0};
    assert_null(probe_nvml_open("/nowhere/libnvidia-ml.so.1"));
    put("nvml.c", FAKE_NVML);
    snprintf(path, sizeof path, "%s/libnvidia-ml.so.1", root);
    snprintf(cmd, sizeof cmd, "cc -shared -fPIC -w -o %s %s/nvml.c 2>/dev/null", path, root);
    void *nvml = system(cmd) == 0 ? probe_nvml_open(path) : NULL;
    if (!nvml) skip(); /* no compiler for the processor that this runs on (emulation) */
    probe_nvml_look(nvml, &p);
    probe_nvml_close(nvml);
    assert_int_equal(p.n_gpus, 2);
    assert_string_equal(p.gpus[0].name, "NVIDIA GB10");
    assert_int_equal(p.gpus[0].mem_total_bytes, 24ULL << 30);
    assert_int_equal(p.gpus[0].mem_available_bytes, 20ULL << 30);
    assert_int_equal(p.gpus[0].temperature_c, 61);
    assert_int_equal(p.gpus[0].load_pct, 88);
    assert_string_equal(p.gpus[1].name, "NVIDIA GPU");
    assert_int_equal(p.gpus[1].mem_total_bytes, 0);
    assert_int_equal(p.power_mw, 140000);
    assert_string_equal(p.power_source, "nvml");
    assert_string_equal(p.throttle, "power");
}

static void a_thread_looks_at_this_machine(void **state) {
    (void)state;
    struct err e = {0};
    struct probe p = {0};
    struct prober *t = probe_start(50, &e);
    assert_non_null(t);
    for (u64 until = clock_ms() + 20000; p.seq < 2 && clock_ms() < until;) {
        probe_take(t, &p);
        clock_sleep_ms(5);
    }
    assert_true(p.seq >= 2);
    assert_true(p.load_pct <= 100 && p.os_build[0]);
    probe_stop(t);
}

int main(void) {
#define WITH_ROOT(fn) cmocka_unit_test_setup_teardown(fn, make_root, drop_root)
    const struct CMUnitTest tests[] = {
        WITH_ROOT(nothing_there_is_nothing_known),
        WITH_ROOT(cores_of_two_kinds),
        WITH_ROOT(cores_by_their_clock),
        WITH_ROOT(temperature_is_the_processors),
        WITH_ROOT(power_from_energy_counters),
        WITH_ROOT(power_from_sensors_and_batteries),
        WITH_ROOT(throttling_is_seen_by_three_signs),
        WITH_ROOT(gpus_of_the_kernels_drivers),
        WITH_ROOT(names_of_machines_and_rdma),
        cmocka_unit_test(load_and_swap),
        cmocka_unit_test(powermetrics_of_an_m4_pro),
        cmocka_unit_test(macmon_pipe),
        WITH_ROOT(gpus_of_nvidias_library),
        cmocka_unit_test(a_thread_looks_at_this_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
