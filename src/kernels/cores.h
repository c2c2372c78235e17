/* cores.h - the processors that this process may use, those that computing threads want first.
 *
 * Fast cores come before slow ones (P before E on hybrids, big before LITTLE), and of a core that
 * runs several threads at once, one before any core's second. On Linux the facts come from sysfs;
 * macOS says nothing about single cores and places threads by their quality of service. */
#pragma once

#include "base/base.h"

enum { CORES_MAX = 1024 };

struct core {
    u16 cpu;    /* the system's number */
    u16 second; /* 0: the first of its core's hardware threads, 1: its second, ... */
    u32 speed;  /* compares with other cores of this machine only */
};
struct cores {
    u32 n; /* 0: the system does not say */
    struct core core[CORES_MAX];
};

void cores_read(struct cores *c);
/* Real cores among them: threads beyond these share one. At least 1. */
u32 cores_physical(const struct cores *c);
/* Keeps the calling thread, one of n that compute together, on processors at least as fast as the
 * n-th: n threads on a machine with n fast cores stay off the slow ones. Among these the system
 * moves threads as it likes: it sees other programs, we don't. unbind: back to all of c's. */
void cores_bind(const struct cores *c, u32 n);
void cores_unbind(const struct cores *c);

/* The order above. Pure. */
void cores_sort(struct cores *c);
/* Linux's lists of processors ("0-3,8,10-11\n"): is cpu named, and which one is named first
 * (UINT32_MAX: the list is empty or no list)? Pure. */
bool cores_list_has(const char *list, u32 cpu);
u32 cores_list_first(const char *list);
/* What the files of a Linux system under `root` ("/sys/devices") say about c's processors. */
void cores_describe(struct cores *c, const char *root);
