/* cgroup.h - what Linux's control groups leave to this process. Reads small files; any thread.
 *
 * Containers and services get their limits this way: version 2, version 1, or some controllers of
 * each. Of the group and those above it the tightest limit counts. root is where they are mounted
 * ("/sys/fs/cgroup"), self the text of /proc/self/cgroup; in a container its paths may be those of
 * the host, and then the mount's root is the group. */
#pragma once

#include "base/base.h"

/* *limit_bytes UINT64_MAX: none. *used_bytes: what the limited group uses and can't give back. */
void cgroup_memory(const char *root, const char *self, u64 *limit_bytes, u64 *used_bytes);
/* Processors' worth of time in each period, rounded up; UINT32_MAX: no limit. */
u32 cgroup_cpus(const char *root, const char *self);
