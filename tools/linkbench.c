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

enum { BYTES = 16 << 10, FLOATS = BYTES / 4, ROUNDS = 4000, RING = 32 << 10, RUNS = 7 };

static struct { double us[8][RUNS]; /* results of the child that times */ } * shared;
static unsigned char *rings; /* one each way, bare */
static unsigned char mine[BYTES];
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
    static float x[FLOATS];
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
    pin(me);
    kernels_select(&k, NULL, NULL);
    int fd = raw_socket(me);
    struct ring out = ring_at(rings + me * ring_bytes(RING), RING),
                in = ring_at(rings + (1 - me) * ring_bytes(RING), RING);
    for (unsigned r = 0; r < RUNS; r++) {
        double us[8];
        unsigned n = 0;
        us[n++] = ping_memory(&out, &in, me);
        us[n++] = ping_tcp(me, fd);
        us[n++] = swap_tcp(fd);
        for (unsigned tcp = 0; tcp < 2; tcp++) {
            struct group *g = join(me, tcp);
            for (unsigned w = 0; w < 2; w++) {
                struct team *t = team_new(g, 0, 2, w ? TEAM_F16 : TEAM_F32, &k, false);
                us[n++] = sums(t);
                team_barrier(t, NULL);
                team_free(t);
            }
            usleep(20000); /* who leaves first is lost to the other */
            group_free(g);
        }
        for (unsigned i = 0; me == 0 && i < n; i++) shared->us[i][r] = us[i];
    }
    _exit(0);
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
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
    static const char *const NAMES[] = {"shared memory", "TCP"};
    double m[7];
    for (unsigned i = 0; i < 7; i++) {
        qsort(shared->us[i], RUNS, sizeof(double), by_size);
        m[i] = shared->us[i][RUNS / 2];
    }
    for (unsigned i = 0; i < 2; i++)
        printf("| %s | %.2f | %.2f (%.2f x) | %.2f (%.2f x) |\n", NAMES[i], m[i], m[3 + 2 * i],
               m[3 + 2 * i] / m[i], m[4 + 2 * i], m[4 + 2 * i] / m[i]);
    printf("\nTCP, bare, both ways at once: %.2f us\n", m[2]);
    return 0;
}
