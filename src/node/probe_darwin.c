/* Written from Apple's headers and man pages; not yet run on a Mac (README says so). */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"
#include "node/probe.h"

extern char **environ;

enum { HELPER_MS = 4000, OUTPUT_MAX = 256 << 10 };

static u64 number(const char *name) {
    u64 v = 0;
    size_t n = sizeof v;
    return sysctlbyname(name, &v, &n, NULL, 0) == 0 ? v : 0;
}

static void text_of(const char *name, char *out, size_t cap) {
    size_t n = cap;
    if (sysctlbyname(name, out, &n, NULL, 0) != 0) out[0] = 0;
    out[cap - 1] = 0;
}

/* What a program prints, for HELPER_MS at most. False when it is not there or fails. */
static bool output_of(char *const argv[], struct str *out) {
    int fd[2];
    pid_t pid;
    posix_spawn_file_actions_t acts;
    if (pipe(fd) != 0) return false;
    posix_spawn_file_actions_init(&acts);
    posix_spawn_file_actions_adddup2(&acts, fd[1], 1);
    posix_spawn_file_actions_addopen(&acts, 2, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addclose(&acts, fd[0]);
    posix_spawn_file_actions_addclose(&acts, fd[1]);
    bool ok = posix_spawnp(&pid, argv[0], &acts, NULL, argv, environ) == 0;
    posix_spawn_file_actions_destroy(&acts);
    close(fd[1]);
    u64 until = clock_ms() + HELPER_MS;
    char buf[8192];
    ssize_t k = 1;
    while (ok && k > 0 && out->n < OUTPUT_MAX && clock_ms() < until) {
        struct pollfd w = {fd[0], POLLIN, 0};
        if (poll(&w, 1, 200) <= 0) continue;
        k = read(fd[0], buf, sizeof buf);
        if (k > 0) str_add(out, buf, (size_t)k);
    }
    close(fd[0]);
    if (!ok) return false;
    int status = 0;
    if (k != 0) kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    return k == 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* macmon needs no rights; powermetrics is always there but root's. */
static void look_at_power(struct probe *p, u32 n_cores) {
    char *const macmon[] = {"macmon", "pipe", "-s", "1", "-i", "500", NULL};
    char *const metrics[] = {
        "powermetrics", "--samplers", "cpu_power,gpu_power,thermal", "-i", "500", "-n", "1", NULL};
    struct str out = {0};
    bool ok = output_of(macmon, &out) && probe_macmon(str_z(&out), n_cores, p);
    str_clear(&out);
    if (!ok && geteuid() == 0 && output_of(metrics, &out))
        probe_powermetrics(str_z(&out), n_cores, p);
    str_deinit(&out);
}

void probe_look(struct probe *p, struct probe_memory *m) {
    struct xsw_usage swap;
    size_t n = sizeof swap;
    u32 n_cores = (u32)number("hw.physicalcpu");
    (void)m;
    text_of("hw.model", p->model, sizeof p->model);
    text_of("kern.osversion", p->os_build, sizeof p->os_build);
    p->n_cores_big = (u32)number("hw.perflevel0.physicalcpu");
    p->cache_l1_kib = (u32)(number("hw.l1dcachesize") / 1024);
    p->cache_l2_kib = (u32)(number("hw.l2cachesize") / 1024);
    p->cache_l3_kib = (u32)(number("hw.l3cachesize") / 1024);
    if (sysctlbyname("vm.swapusage", &swap, &n, NULL, 0) == 0) {
        p->swap_total_bytes = swap.xsu_total;
        p->swap_available_bytes = swap.xsu_avail;
    }
    char *const rdma[] = {"rdma_ctl", "status", NULL};
    struct str out = {0};
    p->has_rdma = output_of(rdma, &out) && strstr(str_z(&out), "enabled") != NULL;
    str_deinit(&out);
    look_at_power(p, n_cores);
}

void probe_memory_deinit(struct probe_memory *m) {
    (void)m;
}
