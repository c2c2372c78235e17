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
#include "comm/ofi.h"
#include "comm/team.h"

/* Short runs that take turns: a machine that gets slower for a moment does so for few of them, and
 * for what is compared alike. */
enum { BYTES = 16 << 10, FLOATS = BYTES / 4, ROUNDS = 400, RING = 32 << 10, RUNS = 101 };
enum { BARE, SWAP, SUM_F32, SUM_F16, KINDS };

/* What carries frames between two ranks. */
static const struct way {
    const char *name, *fabric; /* libfabric's provider */
    bool no_shm;
} WAYS[] = {{"shared memory", NULL, false},
            {"TCP", NULL, true},
            {"libfabric, tcp", "tcp", true},
            {"libfabric, shm", "shm", true}};
enum { MEMORY, TCP, N_WAYS = ARRAY_LEN(WAYS) };

static struct {
    double us[N_WAYS][KINDS][RUNS];
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

/* The next message; waits for it, if need be, and passes on what is on its way. */
static void ofi_take(struct ofi *o) {
    struct ofi_event ev;
    for (;;) {
        if (!ofi_poll(o, &ev)) continue;
        if (ev.kind == OFI_FAILED) _exit(1);
        if (ev.kind != OFI_RECEIVED) continue;
        memcpy(mine, ev.buf, MIN(ev.n, sizeof mine));
        ofi_repost(o, ev.buf);
        return;
    }
}

static void ofi_give(struct ofi *o, unsigned to) {
    char why[OFI_WHY_CAP];
    struct ofi_event ev;
    u8 *buf;
    int k;
    while (!(buf = ofi_send_buf(o))) ofi_poll(o, &ev); /* only what was sent can come of it */
    memcpy(buf, mine, BYTES);
    while ((k = ofi_send(o, to, buf, BYTES, why)) == 0) ofi_poll(o, &ev);
    if (k < 0) _exit(1);
}

static double ping_ofi(unsigned me, struct ofi *o) {
    u64 t0 = clock_us();
    for (unsigned i = 0; i < ROUNDS; i++)
        for (unsigned half = 0; half < 2; half++)
            if (half == me)
                ofi_give(o, 1 - me);
            else
                ofi_take(o);
    return (double)(clock_us() - t0) / ROUNDS / 2;
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

static struct group *join(unsigned me, const struct way *w) {
    static const u8 KEY[GROUP_KEY_BYTES] = "linkbench";
    struct group_peer peer = {1 - me, "127.0.0.1", port[1 - me], 0};
    struct group_cfg cfg = {.rank = me,
                            .n_ranks = 2,
                            .listen_fd = listen_fd[me],
                            .peers = &peer,
                            .key = KEY,
                            .no_shm = w->no_shm,
                            .fabric = w->fabric};
    struct err e = {0};
    struct group *g = group_connect(&cfg, &e);
    if (!g) fprintf(stderr, "%s\n", e.msg), _exit(1);
    return g;
}

/* The bare endpoint: addresses go through the team. */
static struct ofi *open_ofi(const char *provider, unsigned me, struct team *t) {
    struct {
        u8 address[OFI_ADDRESS_BYTES];
        size_t n;
    } all[2] = {0}, own = {0};
    struct err e = {0};
    struct ofi *o = ofi_open(provider, "127.0.0.1", 2, 8, 8, &e);
    if (!o) fprintf(stderr, "%s\n", e.msg), _exit(1);
    const void *address = ofi_address(o, &own.n);
    memcpy(own.address, address, own.n);
    if (!team_all_gather(t, &own, sizeof own, all, &e) ||
        !ofi_add_peer(o, 1 - me, all[1 - me].address, all[1 - me].n, &e))
        fprintf(stderr, "%s\n", e.msg), _exit(1);
    return o;
}

/* Of one way; nothing of another one is there meanwhile. */
static void time_way(unsigned me, unsigned w, const struct kernels *k, int fd) {
    struct ring out = ring_at(rings + me * ring_bytes(RING), RING),
                in = ring_at(rings + (1 - me) * ring_bytes(RING), RING);
    struct group *g = join(me, &WAYS[w]);
    struct team *t[2] = {team_new(g, 0, 2, TEAM_F32, k, false),
                         team_new(g, 0, 2, TEAM_F16, k, false)};
    struct ofi *o = WAYS[w].fabric ? open_ofi(WAYS[w].fabric, me, t[0]) : NULL;
    for (unsigned r = 0; r < RUNS; r++)
        for (unsigned n = 0; n < KINDS; n++) {
            if (n == SWAP && w != TCP) continue;
            team_barrier(t[0], NULL);
            double us = n >= SUM_F32  ? sums(t[n - SUM_F32])
                        : n == SWAP   ? swap_tcp(fd)
                        : o           ? ping_ofi(me, o)
                        : w == MEMORY ? ping_memory(&out, &in, me)
                                      : ping_tcp(me, fd);
            if (me == 0) shared->us[w][n][r] = us;
        }
    team_barrier(t[0], NULL);
    usleep(20000); /* who leaves first is lost to the other */
    for (unsigned i = 0; i < 2; i++) team_free(t[i]);
    ofi_close(o);
    group_free(g);
}

static void run(unsigned me) {
    struct kernels k;
    pin(me);
    kernels_select(&k, NULL, NULL);
    int fd = raw_socket(me);
    for (unsigned w = 0; w < N_WAYS; w++)
        if (group_fabric_check(WAYS[w].fabric, NULL)) time_way(me, w, &k, fd);
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

static void tell(unsigned w) {
    double(*us)[RUNS] = shared->us[w];
    printf("| %s | %.2f |", WAYS[w].name, median(us[BARE]));
    for (unsigned k = SUM_F32; k <= SUM_F16; k++) {
        double ratio[RUNS];
        for (unsigned r = 0; r < RUNS; r++) ratio[r] = us[k][r] / us[BARE][r];
        printf(" %.2f (%.2f x) |", median(us[k]), median(ratio));
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
    for (unsigned w = 0; w < N_WAYS; w++)
        if (shared->us[w][BARE][0] > 0) tell(w);
    printf("\nTCP, bare, both ways at once: %.2f us\n", median(shared->us[TCP][SWAP]));
    return 0;
}
