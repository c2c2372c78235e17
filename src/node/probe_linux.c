#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "node/probe.h"

/* A virtual machine may hide its caches from sysfs; the C library asks the processor itself. */
static void caches_from_libc(struct probe *p) {
#if defined(_SC_LEVEL1_DCACHE_SIZE)
    long l1 = sysconf(_SC_LEVEL1_DCACHE_SIZE), l2 = sysconf(_SC_LEVEL2_CACHE_SIZE),
         l3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (!p->cache_l1_kib && l1 > 0) p->cache_l1_kib = (u32)(l1 / 1024);
    if (!p->cache_l2_kib && l2 > 0) p->cache_l2_kib = (u32)(l2 / 1024);
    if (!p->cache_l3_kib && l3 > 0) p->cache_l3_kib = (u32)(l3 / 1024);
#else
    (void)p;
#endif
}

void probe_look(struct probe *p, struct probe_memory *m) {
    static const char SYS[] = "/sys", PROC[] = "/proc";
    struct str text = {0};
    struct utsname u;
    if (!m->tried_nvml) m->nvml = probe_nvml_open(NULL);
    m->tried_nvml = true;
    probe_sysfs_model(SYS, PROC, p);
    if (uname(&u) == 0) snprintf(p->os_build, sizeof p->os_build, "%.63s", u.release);
    probe_sysfs_cpus(SYS, p);
    caches_from_libc(p);
    probe_sysfs_temperature(SYS, p);
    probe_sysfs_supply(SYS, p);
    if (!*p->power_source) probe_sysfs_power(SYS, p, m, clock_us());
    probe_sysfs_throttle(SYS, p, m);
    probe_sysfs_gpus(SYS, p);
    probe_nvml_look(m->nvml, p);
    p->has_rdma = probe_sysfs_rdma(SYS);
    if (file_read("/proc/stat", 1 << 20, &text, NULL)) probe_proc_load(str_z(&text), p, m);
    str_clear(&text);
    if (file_read("/proc/meminfo", 1 << 16, &text, NULL)) probe_proc_swap(str_z(&text), p);
    str_deinit(&text);
}

void probe_memory_deinit(struct probe_memory *m) {
    probe_nvml_close(m->nvml);
    m->nvml = NULL;
}
