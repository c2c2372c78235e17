#include "kernels/cores.h"

#include <pthread.h>
#include <sys/qos.h>
#include <sys/sysctl.h>

static u32 number(const char *name) {
    int v = 0;
    size_t n = sizeof v;
    return sysctlbyname(name, &v, &n, NULL, 0) == 0 && v > 0 ? (u32)v : 0;
}

/* hw.perflevel0 are the fast cores; numbers are ours, since macOS gives none. */
void cores_read(struct cores *c) {
    u32 all = MIN(number("hw.logicalcpu"), (u32)CORES_MAX);
    u32 real = number("hw.physicalcpu"), fast = number("hw.perflevel0.physicalcpu");
    c->n = all;
    for (u32 i = 0; i < all; i++)
        c->core[i] = (struct core){.cpu = (u16)i,
                                   .second = real && i >= real ? (u16)(i / real) : 0,
                                   .speed = !fast || i < fast ? 2 : 1};
    cores_sort(c);
}

void cores_describe(struct cores *c, const char *root) {
    (void)root;
    cores_sort(c);
}

/* The class of work that a person waits for runs on fast cores first. */
void cores_bind(const struct cores *c, u32 n) {
    (void)c;
    (void)n;
    pthread_set_qos_class_self_np(QOS_CLASS_USER_INITIATED, 0);
}

void cores_unbind(const struct cores *c) {
    (void)c;
}
