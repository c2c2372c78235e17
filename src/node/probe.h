/* probe.h - what this machine is made of and how it is doing: cores, caches, GPUs, temperature,
 * power, throttling.
 *
 * probe_start has a thread look every few seconds, because some of these reads block (a driver that
 * wakes up, a helper program on macOS); the node's thread takes the latest finding with probe_take.
 * What a machine does not tell is zero or "". Everything below the thread's functions is for its
 * files and their tests: it reads under given roots, so that tests show it recorded trees. */
#pragma once

#include "base/err.h"

enum { PROBE_GPUS_MAX = 16 };

struct probe_gpu {
    char name[96], driver[24];
    u64 mem_total_bytes, mem_available_bytes;
    u32 load_pct, temperature_c, power_mw;
};
struct probe {
    u64 seq; /* of the look, from 1; 0: none yet */
    char model[96], os_build[64];
    u32 n_cores_big, cache_l1_kib, cache_l2_kib, cache_l3_kib; /* L1d and L2 of one core */
    u64 swap_total_bytes, swap_available_bytes;
    u32 temperature_c, power_mw;
    char power_source[16]; /* "rapl", "hwmon", "battery", "nvml", "powermetrics", "macmon" */
    char throttle[24];     /* "temperature", "power", "undervoltage"; "": it runs freely */
    bool is_on_battery, has_rdma;
    u32 load_pct, load_big_pct, load_small_pct;
    struct probe_gpu gpus[PROBE_GPUS_MAX];
    u32 n_gpus;
};

struct prober;
/* every_ms 0: five seconds. NULL and *e when there is no thread to be had. */
struct prober *probe_start(u32 every_ms, struct err *e);
/* Waits a second at most; a thread that hangs in a driver is left to the end of the process. */
void probe_stop(struct prober *p);
/* False when nothing is newer than out->seq. */
bool probe_take(struct prober *p, struct probe *out);

/* Counters of the last look, from which rates are made. */
struct probe_memory {
    u64 at_us, busy, total, energy_uj, throttle_count;
    bool has_energy, has_load, has_throttle;
    void *nvml;
    bool tried_nvml;
};
/* One look at this machine (probe_linux.c, probe_darwin.c). May block. */
void probe_look(struct probe *p, struct probe_memory *m);
void probe_memory_deinit(struct probe_memory *m);

/* probe_sysfs.c: Linux's files. sys: "/sys". */
void probe_sysfs_cpus(const char *sys, struct probe *p);
void probe_sysfs_temperature(const char *sys, struct probe *p);
void probe_sysfs_power(const char *sys, struct probe *p, struct probe_memory *m, u64 now_us);
void probe_sysfs_throttle(const char *sys, struct probe *p, struct probe_memory *m);
void probe_sysfs_supply(const char *sys, struct probe *p);
void probe_sysfs_gpus(const char *sys, struct probe *p);
void probe_sysfs_model(const char *sys, const char *proc, struct probe *p);
bool probe_sysfs_rdma(const char *sys);
/* /proc/stat and /proc/meminfo, as text. */
void probe_proc_load(const char *stat, struct probe *p, struct probe_memory *m);
void probe_proc_swap(const char *meminfo, struct probe *p);

/* probe_nvml.c: NVIDIA's library, opened when it is there. path NULL: the usual names. NULL: no
 * driver, or no GPU. */
void *probe_nvml_open(const char *path);
void probe_nvml_close(void *nvml);
/* Appends GPUs; adds up their power where nothing else tells any. */
void probe_nvml_look(void *nvml, struct probe *p);

/* probe_mac.c: output of Apple's `powermetrics` and of `macmon pipe`. False when nothing of use is
 * in it. Pure. */
bool probe_powermetrics(const char *text, u32 n_cores, struct probe *p);
bool probe_macmon(const char *json, u32 n_cores, struct probe *p);
