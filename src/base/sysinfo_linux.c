#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/err.h"
#include "base/paths.h"
#include "base/str.h"
#include "base/sysinfo.h"

/* First value of a line "key<spaces>: number" in a /proc file, or fallback. */
static u64 proc_number(const char *path, const char *key, u64 fallback) {
    FILE *f = fopen(path, "re");
    if (!f) return fallback;
    char line[512];
    size_t n = strlen(key);
    u64 v = fallback;
    while (fgets(line, sizeof line, f)) {
        if (strncmp(line, key, n) != 0) continue;
        v = strtoull(line + n + strspn(line + n, " \t:"), NULL, 10);
        break;
    }
    fclose(f);
    return v;
}

/* /proc/self/cgroup; "" where there is none. */
static const char *own_groups(char text[4096]) {
    int fd = open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, 4095);
    if (fd >= 0) close(fd);
    text[MAX(n, 0)] = 0;
    return text;
}

void sysinfo_mem(struct sysinfo_mem *m) {
    m->total_bytes = proc_number("/proc/meminfo", "MemTotal", 0) * 1024;
    m->available_bytes = proc_number("/proc/meminfo", "MemAvailable", 0) * 1024;
    char groups[4096];
    u64 limit, used;
    cgroup_memory("/sys/fs/cgroup", own_groups(groups), &limit, &used);
    if (limit < m->total_bytes) {
        m->total_bytes = limit;
        m->available_bytes = MIN(m->available_bytes, limit > used ? limit - used : 0);
    }
}

u64 sysinfo_rss_bytes(void) {
    return proc_number("/proc/self/status", "VmRSS", 0) * 1024;
}

u64 sysinfo_peak_rss_bytes(void) {
    return proc_number("/proc/self/status", "VmHWM", 0) * 1024;
}

void sysinfo_peak_rss_reset(void) {
    FILE *f = fopen("/proc/self/clear_refs", "we");
    if (!f) return; /* a kernel without it: the peak stays that of the process */
    fputs("5", f);
    fclose(f);
}

u32 sysinfo_cpu_quota(void) {
    char groups[4096];
    return cgroup_cpus("/sys/fs/cgroup", own_groups(groups));
}

u32 sysinfo_n_cpus(void) {
    cpu_set_t set;
    u32 quota = sysinfo_cpu_quota();
    if (sched_getaffinity(0, sizeof set, &set) == 0) return MIN((u32)CPU_COUNT(&set), quota);
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return MIN(n > 0 ? (u32)n : 1, quota);
}

/* Value behind "key<sep>" in a text file, without quotes and newline. */
static bool text_value(const char *path, const char *key, char sep, char *out, size_t cap) {
    FILE *f = fopen(path, "re");
    if (!f) return false;
    char line[512];
    bool found = false;
    while (!found && fgets(line, sizeof line, f)) {
        if (strncmp(line, key, strlen(key)) != 0) continue;
        char *v = strchr(line, sep);
        if (!v) continue;
        v += 1 + strspn(v + 1, " \t\"");
        v[strcspn(v, "\"\n")] = 0;
        str_copy(out, cap, v);
        found = true;
    }
    fclose(f);
    return found;
}

void sysinfo_cpu_name(char *out, size_t cap) {
    if (text_value("/proc/cpuinfo", "model name", ':', out, cap)) return; /* x86 */
    if (text_value("/proc/cpuinfo", "Model", ':', out, cap)) return;      /* Raspberry Pi */
    FILE *f = fopen("/proc/device-tree/model", "re");
    size_t n = f ? fread(out, 1, cap - 1, f) : 0;
    if (f) fclose(f);
    out[n] = 0;
    if (!n) str_copy(out, cap, "unknown processor");
}

void sysinfo_os(char *out, size_t cap) {
    struct utsname u;
    char name[128] = "";
    if (uname(&u) != 0) {
        str_copy(out, cap, "Linux");
        return;
    }
    text_value("/etc/os-release", "PRETTY_NAME", '=', name, sizeof name);
    snprintf(out, cap, name[0] ? "%s %s (%s)" : "%s %s", u.sysname, u.release, name);
}

void sysinfo_machine(char *out, size_t cap) {
    static const char *const FILES[] = {"/etc/machine-id", "/var/lib/dbus/machine-id"};
    out[0] = 0;
    for (size_t i = 0; i < ARRAY_LEN(FILES) && !out[0]; i++) {
        FILE *f = fopen(FILES[i], "re");
        if (!f) continue;
        if (!fgets(out, (int)cap, f)) out[0] = 0;
        out[strcspn(out, "\n")] = 0;
        fclose(f);
    }
}

void sysinfo_hostname(char *out, size_t cap) {
    if (gethostname(out, cap) != 0 || !out[0]) str_copy(out, cap, "localhost");
    out[cap - 1] = 0;
}

bool paths_self(char *out, size_t cap, struct err *e) {
    ssize_t n = readlink("/proc/self/exe", out, cap - 1);
    if (n <= 0) return err_errno(e, ERR_IO, "reading /proc/self/exe");
    out[n] = 0;
    return true;
}
