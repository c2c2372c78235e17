#include "base/cgroup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

enum { PATH_CAP = 1024, FILE_CAP = PATH_CAP + 64 };

/* A folder of one controller, and how many bytes of it are the mount. */
struct group {
    char dir[PATH_CAP];
    size_t n_mount;
};

/* Is the controller one of "cpu,cpuacct"? "" is in the empty list alone: version 2. */
static bool list_has(struct view list, const char *controller) {
    for (size_t at = 0; at <= list.n;) {
        const char *comma = memchr(list.p + at, ',', list.n - at);
        size_t end = comma ? (size_t)(comma - list.p) : list.n;
        if (view_is((struct view){list.p + at, end - at}, controller)) return true;
        at = end + 1;
    }
    return false;
}

/* This process's group below root/mount, of the line "N:LIST:/path" with the controller. */
static bool group_find(struct group *g, const char *root, const char *mount, const char *self,
                       const char *controller) {
    for (const char *line = self, *next; *line; line = next) {
        const char *end = line + strcspn(line, "\n");
        next = end + (*end == '\n');
        const char *list = memchr(line, ':', (size_t)(end - line));
        const char *path = list ? memchr(list + 1, ':', (size_t)(end - list - 1)) : NULL;
        if (!path || !list_has((struct view){list + 1, (size_t)(path - list - 1)}, controller))
            continue;
        snprintf(g->dir, sizeof g->dir, "%s%s", root, mount);
        g->n_mount = strlen(g->dir);
        snprintf(g->dir + g->n_mount, sizeof g->dir - g->n_mount, "%.*s", (int)(end - path - 1),
                 path + 1);
        return true;
    }
    return false;
}

/* To the group above; false behind the mount's root. */
static bool group_up(struct group *g) {
    char *slash = strrchr(g->dir, '/');
    if (!slash || (size_t)(slash - g->dir) < g->n_mount) return false;
    *slash = 0;
    return true;
}

static const char *read_line(const struct group *g, const char *file, char line[64]) {
    char path[FILE_CAP];
    snprintf(path, sizeof path, "%s/%s", g->dir, file);
    FILE *f = fopen(path, "re");
    line[0] = 0;
    if (f && !fgets(line, 64, f)) line[0] = 0;
    if (f) fclose(f);
    return line;
}

/* UINT64_MAX for "max", "-1", absence or nonsense. */
static u64 read_number(const struct group *g, const char *file) {
    char line[64];
    read_line(g, file, line);
    return line[0] >= '0' && line[0] <= '9' ? strtoull(line, NULL, 10) : UINT64_MAX;
}

/* Of a file with lines "key number"; 0 where there is none. */
static u64 read_stat(const struct group *g, const char *key) {
    char path[FILE_CAP], line[128];
    size_t n = strlen(key);
    u64 v = 0;
    snprintf(path, sizeof path, "%s/memory.stat", g->dir);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, key, n) == 0 && line[n] == ' ') v = strtoull(line + n, NULL, 10);
    if (f) fclose(f);
    return v;
}

static void tighten_memory(struct group *g, const char *limit_file, const char *used_file,
                           const char *cache_key, u64 *limit, u64 *used) {
    do {
        u64 v = read_number(g, limit_file);
        if (v >= *limit) continue;
        u64 u = read_number(g, used_file), cache = read_stat(g, cache_key); /* reclaimable */
        *limit = v;
        *used = u == UINT64_MAX ? 0 : u - MIN(u, cache);
    } while (group_up(g));
}

void cgroup_memory(const char *root, const char *self, u64 *limit_bytes, u64 *used_bytes) {
    struct group g;
    *limit_bytes = UINT64_MAX;
    *used_bytes = 0;
    if (group_find(&g, root, "", self, ""))
        tighten_memory(&g, "memory.max", "memory.current", "inactive_file", limit_bytes,
                       used_bytes);
    if (group_find(&g, root, "/memory", self, "memory"))
        tighten_memory(&g, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file",
                       limit_bytes, used_bytes);
}

/* "200000 100000" or "max 100000" in version 2, two files in version 1. */
static void read_quota(const struct group *g, bool v2, u64 *quota, u64 *period) {
    char line[64], *end;
    if (v2) {
        read_line(g, "cpu.max", line);
        *quota = strtoull(line, &end, 10);
        *period = end > line ? strtoull(end, NULL, 10) : 0;
    } else {
        *quota = read_number(g, "cpu.cfs_quota_us");
        *period = *quota == UINT64_MAX ? 0 : read_number(g, "cpu.cfs_period_us");
    }
}

static u32 tighten_cpus(struct group *g, bool v2, u32 most) {
    do {
        u64 quota, period;
        read_quota(g, v2, &quota, &period);
        if (period && period != UINT64_MAX)
            most = (u32)MIN((u64)most, MAX((quota + period - 1) / period, (u64)1));
    } while (group_up(g));
    return most;
}

u32 cgroup_cpus(const char *root, const char *self) {
    struct group g;
    u32 most = UINT32_MAX;
    if (group_find(&g, root, "", self, "")) most = tighten_cpus(&g, true, most);
    if (group_find(&g, root, "/cpu", self, "cpu")) most = tighten_cpus(&g, false, most);
    return most;
}
