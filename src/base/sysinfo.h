/* sysinfo.h - what this machine is: processors and memory. Cheap reads; any thread.
 *
 * Linux reads /proc and the limits of the cgroup (base/cgroup.h); macOS reads sysctl and host
 * statistics. */
#pragma once

#include "base/base.h"

struct sysinfo_mem {
    u64 total_bytes;     /* RAM, or the cgroup's limit where that is lower */
    u64 available_bytes; /* what can be taken without swapping, within the cgroup's limit */
};
void sysinfo_mem(struct sysinfo_mem *m);
/* Resident bytes of this process; 0 where unknown. */
u64 sysinfo_rss_bytes(void);
/* The most that was resident at once, since the start or the last reset; 0 where unknown. Only
 * Linux can reset it. */
u64 sysinfo_peak_rss_bytes(void);
void sysinfo_peak_rss_reset(void);
/* Logical processors this process may use, within its quota. */
u32 sysinfo_n_cpus(void);
/* Processors' worth of time that its control group gets, rounded up (a container's limit);
 * UINT32_MAX where there is no limit. More threads than that wait for each other's turn. */
u32 sysinfo_cpu_quota(void);
void sysinfo_cpu_name(char *out, size_t cap);
/* "Linux 6.1.0 (Debian GNU/Linux 12)"; "macOS 15.1". */
void sysinfo_os(char *out, size_t cap);
/* Tells this machine or installation from others, as the system does (machine-id, hardware UUID).
 * "" where it has none. */
void sysinfo_machine(char *out, size_t cap);
void sysinfo_hostname(char *out, size_t cap);
