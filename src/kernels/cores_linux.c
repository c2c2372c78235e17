#include "kernels/cores.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* A file's first bytes as a string; "" where there is none. */
static const char *read_text(char buf[512], const char *root, const char *fmt, u32 cpu) {
    char path[512], tail[128];
    snprintf(tail, sizeof tail, fmt, cpu);
    snprintf(path, sizeof path, "%s/%s", root, tail);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, buf, 511);
    if (fd >= 0) close(fd);
    buf[n > 0 ? n : 0] = 0;
    return buf;
}

/* arm64 kernels know each core's capacity. Elsewhere Intel's hybrids list their efficient cores,
 * which may well have a high clock, and the rest differ by their highest clock if at all: by steps
 * of 10 %, since favoured cores of one kind differ by less. */
static u32 speed_of(const char *root, u32 cpu, const char *atoms) {
    char buf[512];
    u32 capacity =
        (u32)strtoul(read_text(buf, root, "system/cpu/cpu%u/cpu_capacity", cpu), NULL, 10);
    if (capacity) return capacity;
    if (cores_list_has(atoms, cpu)) return 1;
    u32 khz = (u32)strtoul(read_text(buf, root, "system/cpu/cpu%u/cpufreq/cpuinfo_max_freq", cpu),
                           NULL, 10);
    u32 steps = 2;
    for (u64 at = 1000000; khz && at < khz; at += at / 10) steps++;
    return steps;
}

void cores_describe(struct cores *c, const char *root) {
    char atoms[512], siblings[512];
    read_text(atoms, root, "cpu_atom/cpus", 0);
    for (u32 i = 0; i < c->n; i++) {
        struct core *core = &c->core[i];
        core->speed = speed_of(root, core->cpu, atoms);
        read_text(siblings, root, "system/cpu/cpu%u/topology/thread_siblings_list", core->cpu);
        core->second = 0; /* among those that this process may use */
        for (u32 k = 0; k < c->n; k++)
            core->second += c->core[k].cpu < core->cpu && cores_list_has(siblings, c->core[k].cpu);
    }
    cores_sort(c);
}

void cores_read(struct cores *c) {
    cpu_set_t set;
    c->n = 0;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        for (u32 cpu = 0; cpu < CPU_SETSIZE && c->n < CORES_MAX; cpu++)
            if (CPU_ISSET(cpu, &set)) c->core[c->n++] = (struct core){.cpu = (u16)cpu};
    cores_describe(c, "/sys/devices");
}

static void bind_to(const struct cores *c, u32 speed, u32 second) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (u32 k = 0; k < c->n; k++)
        if (c->core[k].speed >= speed && c->core[k].second <= second) CPU_SET(c->core[k].cpu, &set);
    if (CPU_COUNT(&set)) pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

void cores_bind(const struct cores *c, u32 n) {
    u32 speed = UINT32_MAX, second = 0;
    if (n > c->n) return;
    for (u32 k = 0; k < n; k++) {
        speed = MIN(speed, c->core[k].speed);
        second = MAX(second, (u32)c->core[k].second);
    }
    bind_to(c, speed, second);
}

void cores_unbind(const struct cores *c) {
    bind_to(c, 0, UINT32_MAX);
}
