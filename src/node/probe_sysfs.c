/* What Linux tells under /sys and /proc. Each file may be missing (virtual machines have few of
 * them) or unreadable (energy counters are root's alone); then its fact is simply not known. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/str.h"
#include "node/probe.h"

enum { PATH_CAP = 600, CPUS_MAX = 1024, KELVIN_TOO_HOT = 150000 };

/* First line of a file; false when it can't be read. */
static bool read_line(const char *path, char *out, size_t cap) {
    struct str s = {0};
    bool ok = file_read(path, 65536, &s, NULL);
    snprintf(out, cap, "%.*s", (int)strcspn(str_z(&s), "\n"), str_z(&s));
    str_deinit(&s);
    return ok;
}

static bool read_u64(const char *path, u64 *out) {
    char line[64], *end;
    if (!read_line(path, line, sizeof line) || line[0] < '0' || line[0] > '9') return false;
    *out = strtoull(line, &end, 10);
    return true;
}

/* The entries of a folder whose name begins with `prefix`, one after the other. */
struct walk {
    DIR *d;
    const char *dir, *prefix;
    char path[PATH_CAP];
    const char *name; /* into path */
};
static bool walk_next(struct walk *w) {
    if (!w->d && !(w->d = opendir(w->dir))) return false;
    for (struct dirent *e; (e = readdir(w->d));) {
        if (e->d_name[0] == '.' || strncmp(e->d_name, w->prefix, strlen(w->prefix)) != 0) continue;
        int n = snprintf(w->path, sizeof w->path, "%s/%s", w->dir, e->d_name);
        if (n < 0 || n >= (int)sizeof w->path) continue;
        w->name = w->path + strlen(w->dir) + 1;
        return true;
    }
    closedir(w->d);
    w->d = NULL;
    return false;
}

static const char *join(char out[PATH_CAP], const char *a, const char *b) {
    int n = snprintf(out, PATH_CAP, "%s/%s", a, b);
    if (n < 0 || n >= PATH_CAP) out[0] = 0;
    return out;
}

static u64 number_in(const char *dir, const char *file) {
    char path[PATH_CAP];
    u64 v = 0;
    return read_u64(join(path, dir, file), &v) ? v : 0;
}

static void text_in(const char *dir, const char *file, char *out, size_t cap) {
    char path[PATH_CAP];
    if (!read_line(join(path, dir, file), out, cap)) out[0] = 0;
}

/* "0-3,8" has 5. */
static u32 list_count(const char *s) {
    u32 n = 0;
    while (*s >= '0' && *s <= '9') {
        char *end;
        unsigned long lo = strtoul(s, &end, 10), hi = lo;
        if (*end == '-') hi = strtoul(end + 1, &end, 10);
        if (hi < lo || hi - lo >= CPUS_MAX) return n;
        n += (u32)(hi - lo) + 1;
        s = *end == ',' ? end + 1 : "";
    }
    return n;
}

/* Cores of the fastest kind. Arm says a capacity, Intel lists them, others differ in their clock's
 * limit; a tenth of difference is one of binning, not of kind. */
static u32 count_big(const char *sys) {
    char dir[PATH_CAP], path[PATH_CAP], line[256];
    if (read_line(join(path, sys, "devices/cpu_core/cpus"), line, sizeof line) && list_count(line))
        return list_count(line);
    static const char *const MEASURES[] = {"cpu_capacity", "cpufreq/cpuinfo_max_freq"};
    join(dir, sys, "devices/system/cpu");
    for (size_t k = 0; k < ARRAY_LEN(MEASURES); k++) {
        u64 v[CPUS_MAX], most = 0;
        u32 n = 0, big = 0;
        struct walk w = {.dir = dir, .prefix = "cpu"};
        while (walk_next(&w))
            if (w.name[3] >= '0' && w.name[3] <= '9' && n < CPUS_MAX) {
                v[n] = number_in(w.path, MEASURES[k]);
                most = MAX(most, v[n]);
                n++;
            }
        for (u32 i = 0; i < n; i++) big += v[i] * 10 >= most * 9;
        if (most) return big;
    }
    return 0;
}

static u32 size_kib(const char *text) {
    char *end;
    unsigned long v = strtoul(text, &end, 10);
    return (u32)(*end == 'M' ? v * 1024 : *end == 'K' ? v : v / 1024);
}

void probe_sysfs_cpus(const char *sys, struct probe *p) {
    char dir[PATH_CAP];
    p->n_cores_big = count_big(sys);
    join(dir, sys, "devices/system/cpu/cpu0/cache");
    struct walk w = {.dir = dir, .prefix = "index"};
    while (walk_next(&w)) {
        char type[32], size[32];
        u64 level = number_in(w.path, "level");
        text_in(w.path, "type", type, sizeof type);
        text_in(w.path, "size", size, sizeof size);
        if (strcmp(type, "Instruction") == 0) continue;
        if (level == 1) p->cache_l1_kib = size_kib(size);
        if (level == 2) p->cache_l2_kib = size_kib(size);
        if (level == 3) p->cache_l3_kib = size_kib(size);
    }
}

static bool is_cpu_sensor(const char *name) {
    static const char *const NAMES[] = {"coretemp", "k10temp", "zenpower",     "cpu",
                                        "x86_pkg",  "soc",     "scpi_sensors", "apple"};
    for (size_t i = 0; i < ARRAY_LEN(NAMES); i++)
        if (strncmp(name, NAMES[i], strlen(NAMES[i])) == 0) return true;
    return false;
}

/* The hottest of a sensor folder, in thousandths of a degree; 0 when there is none. */
static u64 hottest(const char *dir) {
    u64 most = 0, v;
    struct walk w = {.dir = dir, .prefix = "temp"};
    while (walk_next(&w)) {
        size_t n = strlen(w.name);
        bool is_value =
            strcmp(w.name, "temp") == 0 || (n > 6 && strcmp(w.name + n - 6, "_input") == 0);
        if (is_value && read_u64(w.path, &v) && v < KELVIN_TOO_HOT) most = MAX(most, v);
    }
    return most;
}

/* Of the processor where a sensor says that it is its own, else the hottest thermal zone. */
void probe_sysfs_temperature(const char *sys, struct probe *p) {
    static const struct {
        const char *dir, *prefix, *name;
    } PLACES[] = {{"class/hwmon", "hwmon", "name"}, {"class/thermal", "thermal_zone", "type"}};
    u64 cpu = 0, any = 0;
    for (size_t i = 0; i < ARRAY_LEN(PLACES); i++) {
        char dir[PATH_CAP], name[64];
        struct walk w = {.dir = join(dir, sys, PLACES[i].dir), .prefix = PLACES[i].prefix};
        while (walk_next(&w)) {
            u64 t = hottest(w.path);
            text_in(w.path, PLACES[i].name, name, sizeof name);
            if (is_cpu_sensor(name)) cpu = MAX(cpu, t);
            if (i == 1) any = MAX(any, t);
        }
    }
    p->temperature_c = (u32)((cpu ? cpu : any) + 500) / 1000;
}

/* Energy since some start in microjoules, of the whole platform where that is counted ("psys"),
 * else of all packages. *range: where a counter wraps. */
static bool rapl_energy(const char *sys, u64 *uj, u64 *range) {
    char dir[PATH_CAP], name[64];
    u64 packages = 0, psys = 0, v;
    bool found = false, has_psys = false;
    struct walk w = {.dir = join(dir, sys, "class/powercap"), .prefix = "intel-rapl:"};
    *range = 0;
    while (walk_next(&w)) {
        char path[PATH_CAP];
        if (strchr(w.name + strlen(w.prefix), ':')) continue; /* a part of a package */
        text_in(w.path, "name", name, sizeof name);
        if (!read_u64(join(path, w.path, "energy_uj"), &v)) continue;
        *range = MAX(*range, number_in(w.path, "max_energy_range_uj"));
        found = true;
        if (strcmp(name, "psys") == 0) {
            psys = v;
            has_psys = true;
        } else {
            packages += v;
        }
    }
    *uj = has_psys ? psys : packages;
    return found;
}

/* Microwatts of all sensors that measure power; average before instantaneous. GPUs' have their own
 * folder and are counted there. */
static u64 hwmon_power(const char *sys) {
    char dir[PATH_CAP], name[64];
    u64 sum = 0;
    struct walk w = {.dir = join(dir, sys, "class/hwmon"), .prefix = "hwmon"};
    while (walk_next(&w)) {
        text_in(w.path, "name", name, sizeof name);
        if (strcmp(name, "amdgpu") == 0 || strcmp(name, "nvme") == 0 || strcmp(name, "i915") == 0 ||
            strcmp(name, "xe") == 0)
            continue;
        u64 v = number_in(w.path, "power1_average");
        sum += v ? v : number_in(w.path, "power1_input");
    }
    return sum;
}

void probe_sysfs_power(const char *sys, struct probe *p, struct probe_memory *m, u64 now_us) {
    u64 uj, range;
    if (rapl_energy(sys, &uj, &range)) {
        u64 before = m->energy_uj, us = now_us - m->at_us;
        bool had = m->has_energy && us > 0;
        m->has_energy = true;
        m->energy_uj = uj;
        m->at_us = now_us;
        u64 used = uj >= before ? uj - before : range > before ? range - before + uj : 0;
        str_copy(p->power_source, sizeof p->power_source, "rapl");
        if (had) p->power_mw = (u32)MIN(used * 1000 / us, (u64)UINT32_MAX); /* uJ/us is W */
        return;
    }
    u64 uw = hwmon_power(sys);
    if (!uw) return;
    p->power_mw = (u32)(uw / 1000);
    str_copy(p->power_source, sizeof p->power_source, "hwmon");
}

/* A Raspberry Pi's firmware: bit 0 under-voltage, 1 clock capped, 2 throttled, 3 soft limit of the
 * temperature, all at present. */
static const char *firmware_throttle(const char *sys) {
    char path[PATH_CAP], line[32];
    if (!read_line(join(path, sys, "devices/platform/soc/soc:firmware/get_throttled"), line,
                   sizeof line))
        return "";
    unsigned long bits = strtoul(line, NULL, 16);
    return bits & 1 ? "undervoltage" : bits & 0xE ? "temperature" : "";
}

static u64 throttle_events(const char *sys, bool *found) {
    char dir[PATH_CAP], path[PATH_CAP];
    u64 sum = 0, v;
    struct walk w = {.dir = join(dir, sys, "devices/system/cpu"), .prefix = "cpu"};
    while (walk_next(&w)) {
        if (!read_u64(join(path, w.path, "thermal_throttle/package_throttle_count"), &v)) continue;
        *found = true;
        sum += v;
    }
    return sum;
}

/* A processor's cooling device above its lowest step slows the processor. */
static bool is_cooled(const char *sys) {
    char dir[PATH_CAP], type[64];
    bool yes = false;
    struct walk w = {.dir = join(dir, sys, "class/thermal"), .prefix = "cooling_device"};
    while (walk_next(&w)) {
        text_in(w.path, "type", type, sizeof type);
        bool cpu = strcmp(type, "Processor") == 0 || strncmp(type, "cpufreq", 7) == 0 ||
                   strncmp(type, "thermal-cpufreq", 15) == 0;
        yes = yes || (cpu && number_in(w.path, "cur_state") > 0);
    }
    return yes;
}

void probe_sysfs_throttle(const char *sys, struct probe *p, struct probe_memory *m) {
    bool found = false;
    u64 events = throttle_events(sys, &found);
    bool more = found && m->has_throttle && events > m->throttle_count;
    m->has_throttle = found;
    m->throttle_count = events;
    const char *why = firmware_throttle(sys);
    if (!*why && (more || is_cooled(sys))) why = "temperature";
    str_copy(p->throttle, sizeof p->throttle, why);
}

/* On battery when one is being emptied; what flows out of it is what the whole machine takes. */
void probe_sysfs_supply(const char *sys, struct probe *p) {
    char dir[PATH_CAP], type[32], status[32];
    struct walk w = {.dir = join(dir, sys, "class/power_supply"), .prefix = ""};
    while (walk_next(&w)) {
        text_in(w.path, "type", type, sizeof type);
        text_in(w.path, "status", status, sizeof status);
        if (strcmp(type, "Battery") != 0 || strcmp(status, "Discharging") != 0) continue;
        char scope[32];
        text_in(w.path, "scope", scope, sizeof scope);
        if (strcmp(scope, "Device") == 0) continue; /* a mouse's */
        p->is_on_battery = true;
        u64 uw = number_in(w.path, "power_now");
        if (!uw) uw = number_in(w.path, "current_now") * number_in(w.path, "voltage_now") / 1000000;
        if (!uw) continue;
        p->power_mw = (u32)(uw / 1000);
        str_copy(p->power_source, sizeof p->power_source, "battery");
    }
}

static void gpu_sensors(const char *device, struct probe_gpu *g) {
    char dir[PATH_CAP];
    struct walk w = {.dir = join(dir, device, "hwmon"), .prefix = "hwmon"};
    while (walk_next(&w)) {
        u64 uw = number_in(w.path, "power1_average");
        if (!uw) uw = number_in(w.path, "power1_input");
        g->temperature_c = (u32)((number_in(w.path, "temp1_input") + 500) / 1000);
        g->power_mw = (u32)(uw / 1000);
    }
}

static void gpu_name(const char *device, struct probe_gpu *g) {
    char vendor[16], product[16], path[PATH_CAP], target[PATH_CAP];
    text_in(device, "product_name", g->name, sizeof g->name); /* some boards have one */
    text_in(device, "vendor", vendor, sizeof vendor);
    text_in(device, "device", product, sizeof product);
    ssize_t n = readlink(join(path, device, "driver"), target, sizeof target - 1);
    target[n > 0 ? n : 0] = 0;
    const char *slash = strrchr(target, '/');
    snprintf(g->driver, sizeof g->driver, "%.23s", slash ? slash + 1 : "");
    const char *maker = strcmp(vendor, "0x1002") == 0   ? "AMD"
                        : strcmp(vendor, "0x8086") == 0 ? "Intel"
                        : strcmp(vendor, "0x10de") == 0 ? "NVIDIA"
                                                        : "";
    if (!g->name[0] && *maker) snprintf(g->name, sizeof g->name, "%s GPU %s", maker, product);
    if (!g->name[0]) snprintf(g->name, sizeof g->name, "%.60s GPU", g->driver);
}

/* NVIDIA's own driver tells through its library (probe_nvml.c). Displays without a GPU behind them
 * (virtual machines', BMCs') are left out. */
void probe_sysfs_gpus(const char *sys, struct probe *p) {
    static const char *const DISPLAYS[] = {"",       "nvidia",    "simpledrm", "simple-framebuffer",
                                           "bochs",  "bochs-drm", "ast",       "mgag200",
                                           "cirrus", "vkms",      "efifb",     "virtio_gpu"};
    char dir[PATH_CAP], device[PATH_CAP];
    struct walk w = {.dir = join(dir, sys, "class/drm"), .prefix = "card"};
    while (walk_next(&w)) {
        struct probe_gpu g = {0};
        bool display = strchr(w.name, '-') != NULL; /* "card0-HDMI-A-1": a connector */
        if (!display) gpu_name(join(device, w.path, "device"), &g);
        for (size_t i = 0; i < ARRAY_LEN(DISPLAYS); i++)
            display = display || strcmp(g.driver, DISPLAYS[i]) == 0;
        if (display || p->n_gpus == PROBE_GPUS_MAX) continue;
        g.mem_total_bytes = number_in(device, "mem_info_vram_total");
        u64 used = number_in(device, "mem_info_vram_used");
        g.mem_available_bytes = g.mem_total_bytes > used ? g.mem_total_bytes - used : 0;
        g.load_pct = (u32)MIN(number_in(device, "gpu_busy_percent"), 100u);
        gpu_sensors(device, &g);
        p->gpus[p->n_gpus++] = g;
    }
}

void probe_sysfs_model(const char *sys, const char *proc, struct probe *p) {
    char path[PATH_CAP], vendor[48];
    struct str s = {0};
    if (file_read(join(path, proc, "device-tree/model"), 4096, &s, NULL) && s.n) {
        str_copy(p->model, sizeof p->model, str_z(&s)); /* ends in a NUL, without a newline */
        str_deinit(&s);
        return;
    }
    str_deinit(&s);
    text_in(join(path, sys, "class/dmi/id"), "sys_vendor", vendor, sizeof vendor);
    char product[64], dir[PATH_CAP];
    text_in(join(dir, sys, "class/dmi/id"), "product_name", product, sizeof product);
    if (*vendor && *product) snprintf(p->model, sizeof p->model, "%.40s %.50s", vendor, product);
}

bool probe_sysfs_rdma(const char *sys) {
    char dir[PATH_CAP], ports[PATH_CAP], state[32];
    bool active = false;
    struct walk w = {.dir = join(dir, sys, "class/infiniband"), .prefix = ""};
    while (walk_next(&w)) {
        struct walk k = {.dir = join(ports, w.path, "ports"), .prefix = ""};
        while (walk_next(&k)) {
            text_in(k.path, "state", state, sizeof state); /* "4: ACTIVE" */
            active = active || strstr(state, "ACTIVE") != NULL;
        }
    }
    return active;
}

/* "cpu  user nice system idle iowait irq softirq steal ..." in ticks. */
void probe_proc_load(const char *stat, struct probe *p, struct probe_memory *m) {
    if (strncmp(stat, "cpu ", 4) != 0) return;
    u64 v[8] = {0}, total = 0;
    char *at = (char *)(uintptr_t)stat + 4;
    for (u32 i = 0; i < 8; i++) {
        v[i] = strtoull(at, &at, 10);
        total += v[i];
    }
    u64 busy = total - v[3] - v[4], d_total = total - m->total, d_busy = busy - m->busy;
    if (m->has_load && total > m->total && busy >= m->busy)
        p->load_pct = (u32)MIN((d_busy * 100 + d_total / 2) / d_total, 100u);
    m->has_load = true;
    m->total = total;
    m->busy = busy;
}

static u64 meminfo(const char *text, const char *key) {
    const char *at = strstr(text, key);
    return at ? strtoull(at + strlen(key), NULL, 10) * 1024 : 0;
}

void probe_proc_swap(const char *text, struct probe *p) {
    p->swap_total_bytes = meminfo(text, "SwapTotal:");
    p->swap_available_bytes = MIN(meminfo(text, "SwapFree:"), p->swap_total_bytes);
}
