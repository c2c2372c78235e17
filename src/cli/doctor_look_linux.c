#include <dirent.h>
#include <dlfcn.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sysinfo.h>
#include <sys/timex.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/doctor.h"

enum { TEXT_MAX = 1 << 16 };

/* A small file's text without its newline, or "". */
static const char *line_of(const char *path, char out[256]) {
    struct str s = {0};
    *out = 0;
    if (file_read(path, 4096, &s, NULL)) str_copy(out, 256, str_z(&s));
    out[strcspn(out, "\n")] = 0;
    str_deinit(&s);
    return out;
}

static u64 number_of(const char *path) {
    char text[256];
    return strtoull(line_of(path, text), NULL, 10);
}

static void look_at_processor(struct doctor_machine *m) {
    char text[256], path[160];
    const char *cpu = "/sys/devices/system/cpu/cpu0";
    snprintf(path, sizeof path, "%s/cpufreq/scaling_governor", cpu);
    str_copy(m->governor, sizeof m->governor, line_of(path, text));
    snprintf(path, sizeof path, "%s/cpufreq/cpuinfo_max_freq", cpu);
    u64 most = number_of(path);
    snprintf(path, sizeof path, "%s/cpufreq/scaling_max_freq", cpu);
    u64 now = number_of(path);
    if (most && now) m->speed_pct = (u32)(now * 100 / most);
    snprintf(path, sizeof path, "%s/thermal_throttle/package_throttle_count", cpu);
    m->n_throttles = number_of(path);
    /* The driver that sets clocks by itself calls its normal state "powersave". */
    line_of("/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", text);
    if (strstr(text, "intel_pstate") || strstr(text, "amd-pstate-epp")) m->governor[0] = 0;
}

static void look_at_supplies(struct doctor_machine *m) {
    DIR *d = opendir("/sys/class/power_supply");
    bool battery = false, mains = false;
    for (struct dirent *x; d && (x = readdir(d));) {
        char path[400], text[256];
        if (*x->d_name == '.') continue;
        snprintf(path, sizeof path, "/sys/class/power_supply/%.200s/status", x->d_name);
        if (strcmp(line_of(path, text), "Discharging") == 0) battery = true;
        snprintf(path, sizeof path, "/sys/class/power_supply/%.200s/online", x->d_name);
        if (number_of(path)) mains = true;
    }
    if (d) closedir(d);
    m->on_battery = battery && !mains;
}

/* "0x10de" and the like, of the PCI devices whose class is a display's (03) or an accelerator's. */
static void add_gpu(struct doctor_machine *m, const char *device) {
    char path[400], text[256], link[400];
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%.200s/class", device);
    unsigned long class = strtoul(line_of(path, text), NULL, 16) >> 16;
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%.200s/vendor", device);
    unsigned long vendor = strtoul(line_of(path, text), NULL, 16);
    bool nvidia = vendor == 0x10de, amd = vendor == 0x1002,
         display = class == 0x03 || class == 0x12;
    if (!display || !(nvidia || amd) || m->n_gpus == ARRAY_LEN(m->gpus)) return;
    struct doctor_gpu *g = &m->gpus[m->n_gpus++];
    *g = (struct doctor_gpu){0};
    snprintf(g->name, sizeof g->name, "a GPU of %s (%.20s)", nvidia ? "NVIDIA" : "AMD", device);
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%.200s/driver", device);
    ssize_t n = readlink(path, link, sizeof link - 1);
    link[n > 0 ? n : 0] = 0;
    const char *slash = strrchr(link, '/');
    str_copy(g->driver, sizeof g->driver, slash ? slash + 1 : "");
    void *lib = dlopen(nvidia ? "libnvidia-ml.so.1" : "libhsa-runtime64.so.1", RTLD_LAZY);
    /* It initializes only when library and kernel driver are of one version. */
    int (*init)(void) = NULL;
    if (lib && nvidia) *(void **)&init = dlsym(lib, "nvmlInit_v2");
    g->has_library = lib && (!nvidia || (init && init() == 0));
    g->is_unusable = !*g->driver || strcmp(g->driver, "nouveau") == 0 ||
                     strcmp(g->driver, "vfio-pci") == 0 || (nvidia && !g->has_library);
}

static void look_at_gpus(struct doctor_machine *m) {
    DIR *d = opendir("/sys/bus/pci/devices");
    for (struct dirent *x; d && (x = readdir(d));)
        if (*x->d_name != '.') add_gpu(m, x->d_name);
    if (d) closedir(d);
}

static void look_at_rdma(struct doctor_machine *m) {
    DIR *d = opendir("/sys/class/infiniband");
    for (struct dirent *x; d && !*m->rdma_device && (x = readdir(d));) {
        char path[400], text[256];
        if (*x->d_name == '.') continue;
        str_copy(m->rdma_device, sizeof m->rdma_device, x->d_name);
        snprintf(path, sizeof path, "/sys/class/infiniband/%.200s/ports/1/state", x->d_name);
        str_copy(m->rdma_state, sizeof m->rdma_state, line_of(path, text)); /* "4: ACTIVE" */
    }
    if (d) closedir(d);
}

static void look_at_firewall(struct doctor_machine *m, u32 bus_port) {
    char *text = malloc(TEXT_MAX);
    if (!text) return;
    if (doctor_run("ufw status", text, TEXT_MAX) &&
        doctor_parse_ufw(text, bus_port, &m->firewall_knows)) {
        str_copy(m->firewall, sizeof m->firewall, "ufw");
    } else if (doctor_run("PATH=$PATH:/usr/sbin:/sbin nft list ruleset", text, TEXT_MAX) &&
               doctor_parse_nft(text, bus_port, &m->firewall_knows)) {
        bool firewalld = strstr(text, "table inet firewalld") != NULL;
        str_copy(m->firewall, sizeof m->firewall, firewalld ? "firewalld" : "nftables");
    }
    free(text);
}

u32 doctor_unconfirmed(int fd) {
    int n = 0;
    return ioctl(fd, SIOCOUTQ, &n) == 0 && n > 0 ? (u32)n : 0;
}

void doctor_look_system(struct doctor_machine *m, u32 bus_port) {
    struct sysinfo s;
    struct timex t = {0};
    if (sysinfo(&s) == 0) {
        m->swap_total_bytes = (u64)s.totalswap * s.mem_unit;
        m->swap_free_bytes = (u64)s.freeswap * s.mem_unit;
    }
    /* Virtual machines are often kept in time by their host: then the kernel does not know. */
    int state = adjtimex(&t);
    m->clock_unsynced =
        state == TIME_ERROR && (t.status & STA_UNSYNC) && access("/dev/ptp0", F_OK) != 0;
    look_at_processor(m);
    look_at_supplies(m);
    look_at_gpus(m);
    look_at_rdma(m);
    look_at_firewall(m, bus_port);
}
