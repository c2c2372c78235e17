#include "tools/linkbench.h"

#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/shm.h"
#include "base/sock.h"
#include "comm/team.h"

/* Short runs that take turns: a machine that gets slower for a moment does so for few of them, and
 * for what is compared alike. */
enum { BYTES = 16 << 10, FLOATS = BYTES / 4, ROUNDS = 400, RING = 32 << 10, RUNS = 101 };
enum { MEMORY, TCP, TCP_SWAP, SUMS, KINDS = SUMS + 4 };

static struct {
    double us[KINDS][RUNS];
} * shared;                  /* results of the child that times */
static unsigned char *rings; /* one each way, bare */
/* As a model's buffers lie. Copies of some processors take ten times as long where they go a few
 * bytes further into a page than they come from. */
static _Alignas(4096) unsigned char mine[BYTES];
static _Alignas(4096) float x[FLOATS];
static int listen_fd[2];
static u16 port[2];

static void pin(unsigned cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
}

/* Half a round trip, in microseconds: one copy in, one out. */
static double ping_memory(struct ring *out, struct ring *in, unsigned me) {
    u64 t0 = clock_us();
    for (unsigned i = 0; i < ROUNDS; i++)
        for (unsigned half = 0; half < 2; half++) {
            if (half == me) {
                ring_write(out, mine, BYTES);
                ring_publish(out);
                continue;
            }
            while (ring_ready(in) < BYTES) {
            }
            ring_read(in, mine, BYTES);
        }
    return (double)(clock_us() - t0) / ROUNDS / 2;
}

static void move(int fd, bool in) {
    for (size_t at = 0; at < BYTES;) {
        ssize_t n = in ? recv(fd, mine + at, BYTES - at, MSG_DONTWAIT)
                       : send(fd, mine + at, BYTES - at, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0) at += (size_t)n;
    }
}

static double ping_tcp(unsigned me, int fd) {
    u64 t0 = clock_us();
    for (unsigned i = 0; i < ROUNDS; i++) {
        move(fd, me == 1);
        move(fd, me == 0);
    }
    return (double)(clock_us() - t0) / ROUNDS / 2;
}

/* Both at once, as the ranks of a sum do: what a sum can reach. */
static double swap_tcp(int fd) {
    u64 t0 = clock_us();
    for (unsigned i = 0; i < ROUNDS; i++) {
        move(fd, false);
        move(fd, true);
    }
    return (double)(clock_us() - t0) / ROUNDS;
}

static double sums(struct team *t) {
    u64 t0 = clock_us();
    for (unsigned i = 0; i < ROUNDS; i++) {
        for (unsigned k = 0; k < FLOATS; k += 512) x[k] = (float)i; /* and so they stay small */
        if (!team_sum(t, x, FLOATS, NULL)) _exit(1);
    }
    return (double)(clock_us() - t0) / ROUNDS;
}

static int raw_socket(unsigned me) {
    struct sockaddr_storage a;
    socklen_t n;
    int on = 1, fd = -1;
    if (me == 0) {
        while (fd < 0) fd = accept(listen_fd[0], NULL, NULL);
    } else {
        sock_resolve("127.0.0.1", port[0], &a, &n, NULL);
        fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&a, n) != 0) _exit(1);
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static struct group *join(unsigned me, bool tcp) {
    static const u8 KEY[GROUP_KEY_BYTES] = "linkbench";
    struct group_peer peer = {1 - me, "127.0.0.1", port[1 - me], 0};
    struct group_cfg cfg = {.rank = me,
                            .n_ranks = 2,
                            .listen_fd = listen_fd[me],
                            .peers = &peer,
                            .key = KEY,
                            .no_shm = tcp};
    struct err e = {0};
    struct group *g = group_connect(&cfg, &e);
    if (!g) fprintf(stderr, "%s\n", e.msg), _exit(1);
    return g;
}

static void run(unsigned me) {
    struct kernels k;
    struct group *g[2];
    struct team *t[4];
    pin(me);
    kernels_select(&k, NULL, NULL);
    int fd = raw_socket(me);
    struct ring out = ring_at(rings + me * ring_bytes(RING), RING),
                in = ring_at(rings + (1 - me) * ring_bytes(RING), RING);
    for (unsigned i = 0; i < 2; i++) {
        g[i] = join(me, i == 1);
        t[2 * i] = team_new(g[i], 0, 2, TEAM_F32, &k, false);
        t[2 * i + 1] = team_new(g[i], 0, 2, TEAM_F16, &k, false);
    }
    for (unsigned r = 0; r < RUNS; r++)
        for (unsigned n = 0; n < KINDS; n++) {
            team_barrier(t[0], NULL);
            double us = n == MEMORY     ? ping_memory(&out, &in, me)
                        : n == TCP      ? ping_tcp(me, fd)
                        : n == TCP_SWAP ? swap_tcp(fd)
                                        : sums(t[n - SUMS]);
            if (me == 0) shared->us[n][r] = us;
        }
    team_barrier(t[0], NULL);
    usleep(20000); /* who leaves first is lost to the other */
    for (unsigned i = 0; i < 4; i++) team_free(t[i]);
    for (unsigned i = 0; i < 2; i++) group_free(g[i]);
    _exit(0);
}

static int by_size(const void *a, const void *b) {
    double p = *(const double *)a, q = *(const double *)b;
    return (p > q) - (p < q);
}

static double median(const double *v) {
    double sorted[RUNS];
    memcpy(sorted, v, sizeof sorted);
    qsort(sorted, RUNS, sizeof *sorted, by_size);
    return sorted[RUNS / 2];
}

static void tell(const char *name, unsigned bare, unsigned first_sum) {
    printf("| %s | %.2f |", name, median(shared->us[bare]));
    for (unsigned w = first_sum; w < first_sum + 2; w++) {
        double ratio[RUNS];
        for (unsigned r = 0; r < RUNS; r++) ratio[r] = shared->us[w][r] / shared->us[bare][r];
        printf(" %.2f (%.2f x) |", median(shared->us[w]), median(ratio));
    }
    printf("\n");
}

int linkbench(void) {
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    rings =
        mmap(NULL, 2 * ring_bytes(RING), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pid[2];
    int status = 0;
    for (unsigned i = 0; i < 2; i++) {
        port[i] = 0;
        if ((listen_fd[i] = group_listen("127.0.0.1", &port[i], NULL)) < 0) return 1;
    }
    for (unsigned i = 0; i < 2; i++)
        if ((pid[i] = fork()) == 0) run(i);
    for (unsigned i = 0; i < 2; i++) {
        int st;
        waitpid(pid[i], &st, 0);
        status |= st;
    }
    if (status) return 1;
    tell("shared memory", MEMORY, SUMS);
    tell("TCP", TCP, SUMS + 2);
    printf("\nTCP, bare, both ways at once: %.2f us\n", median(shared->us[TCP_SWAP]));
    return 0;
}
