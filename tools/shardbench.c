/* shardbench - how much faster several ranks are than one, what the machine itself gives two
 * processors at that moment, and what a sum between two costs.
 *
 * Ranks are real runners, one compute thread each, pinned to one processor each, on this machine.
 * All layouts are loaded at once and take turns, so that a machine that gets slower does so for
 * all. Linux only: it pins. bench/shards runs it. */

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/team.h"
#include "kernels/kernels.h"
#include "kernels/peak.h"
#include "model/model.h"
#include "runner/runner.h"
#include "tools/linkbench.h"
#include "wire/frame.h"
#include "wire/msg.h"

enum { RANKS = 2, REQUESTS_MAX = 16, PAIRS_MAX = 15, LAYOUTS = 4 };

struct rank {
    int fd;
    pid_t pid;
    struct frame_in in;
};
struct layout {
    const char *name;
    u32 n_ranks, tp; /* tp 1: ranks share layers; 0: they are stages */
    u32 n_threads; /* of each rank; rank r has processor r, and the next one for a second thread */
    struct rank rank[RANKS];
};
struct options {
    const char *path;
    u32 pp, tg, requests, pairs, wire;
};

static void die(const char *what) {
    fprintf(stderr, "shardbench: %s\n", what);
    exit(1);
}

static void pin(u32 cpu, u32 n) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (u32 i = 0; i < n; i++) CPU_SET(cpu + i, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) die("can't pin to a processor");
}

static void start(struct rank *k, u32 cpu, u32 n_cpus) {
    int sv[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sv) != 0) die("socketpair");
    *k = (struct rank){.fd = sv[0], .pid = fork()};
    if (k->pid == 0) {
        close(sv[0]);
        pin(cpu, n_cpus);
        _exit(runner_main(sv[1]));
    }
    close(sv[1]);
}

static void say(struct rank *k, u32 type, const void *msg) {
    struct str out = {0};
    frame_add(&out, type, msg);
    if (write(k->fd, out.p, out.n) != (ssize_t)out.n) die("a runner is gone");
    str_deinit(&out);
}

static u32 hear(struct rank *k, struct frame *f) {
    char buf[65536];
    for (;;) {
        if (frame_in_next(&k->in, f, NULL) == 1) {
            if (f->type != MSG_FAILED) return f->type;
            die("a runner failed; its log says why");
        }
        ssize_t n = read(k->fd, buf, sizeof buf);
        if (n <= 0) die("a runner is gone");
        frame_in_add(&k->in, buf, (size_t)n);
    }
}

static void hear_type(struct rank *k, u32 type, struct frame *f) {
    while (hear(k, f) != type) {
    }
}

/* Layers of the first of two stages, so that both decode about as many weights: the last one has
 * the output matrix, too. */
static u32 even_cut(const struct model_params *p) {
    double attn = 2.0 * p->dim * (p->n_heads + p->n_kv_heads) * p->head_dim_k;
    double layer = attn + 3.0 * p->dim * p->n_ff, head = (double)p->n_vocab * p->dim;
    u32 cut = (u32)((p->n_layers + head / layer) / 2 + 0.5);
    return MAX(MIN(cut, p->n_layers - 1), 1u);
}

static void load(struct layout *l, u32 r, const struct options *o, const struct model_params *p) {
    static const u8 KEY[32] = "shardbench";
    u32 n = l->n_ranks, unit = 256, cut = even_cut(p);
    struct msg_load m = {.instance_id = l->name,
                         .path = o->path,
                         .rank = r,
                         .n_ranks = n,
                         .layer_first = r == 0 || l->tp ? 0 : cut,
                         .layer_end = r + 1 == n || l->tp ? p->n_layers : cut,
                         .n_ctx = 2048,
                         .n_seq_max = REQUESTS_MAX,
                         .n_threads = l->n_threads,
                         .memory_max_bytes = 6ull << 30,
                         .key = {KEY, 32},
                         .sum_wire = o->wire,
                         .listen_host = "127.0.0.1"};
    if (l->tp && n > 1) {
        m.tp_ranks = n;
        m.slice = (struct msg_slice){p->n_heads * r / n,
                                     p->n_heads * (r + 1) / n,
                                     p->n_ff * r / n / unit * unit,
                                     r + 1 == n ? p->n_ff : p->n_ff * (r + 1) / n / unit * unit,
                                     p->n_vocab * r / n,
                                     p->n_vocab * (r + 1) / n};
    }
    say(&l->rank[r], MSG_LOAD, &m);
}

static void start_layout(struct layout *l, const struct options *o, const struct model_params *p) {
    struct frame f;
    u32 port[RANKS];
    for (u32 r = 0; r < l->n_ranks; r++) {
        start(&l->rank[r], r, l->n_threads);
        load(l, r, o, p);
    }
    for (u32 r = 0; r < l->n_ranks && l->n_ranks > 1; r++) {
        struct arena a = {0};
        struct msg_listening m;
        hear_type(&l->rank[r], MSG_LISTENING, &f);
        if (!wire_decode(msg_table(f.type), f.body, f.n, &a, &m, NULL)) die("malformed message");
        port[r] = m.port;
        arena_deinit(&a);
    }
    for (u32 r = 0; r < l->n_ranks && l->n_ranks > 1; r++) {
        struct msg_peer peer = {1 - r, "127.0.0.1", port[1 - r], 0};
        struct msg_connect m = {{&peer, 1}};
        say(&l->rank[r], MSG_CONNECT, &m);
    }
    for (u32 r = 0; r < l->n_ranks; r++) hear_type(&l->rank[r], MSG_READY, &f);
}

/* n requests at once; tokens of the prompts a second, and generated tokens a second while all of
 * them decode: from the last one's first token until one is done, with what comes in that step. */
static void run(struct layout *l, u32 n, u32 pp, u32 tg, double *prefill, double *decode) {
    enum { STEP_US = 2000 }; /* tokens of one step come within */
    static i32 ids[4096];
    struct rank *k = &l->rank[0];
    u32 open = n, waiting = n, generated = 0;
    u64 t0 = clock_us(), began = 0, last = 0, done = 0;
    bool first[REQUESTS_MAX] = {0};
    struct frame f;
    for (u32 i = 0; i < n; i++) {
        for (u32 t = 0; t < pp; t++) ids[t] = (i32)(3 + (t * 2654435761u + i * 97) % 1000);
        struct msg_generate m = {
            .id = i, .prompt_ids = {ids, pp}, .max_tokens = tg, .ignore_eos = 1};
        say(k, MSG_GENERATE, &m);
    }
    while (open) {
        u32 type = hear(k, &f);
        u64 now = clock_us();
        struct arena a = {0};
        struct msg_token t;
        if (type == MSG_REQUEST_ERROR) die("a request failed");
        if (type == MSG_DONE) {
            open--;
            if (!done) done = now;
        }
        if (type == MSG_TOKEN && wire_decode(msg_table(type), f.body, f.n, &a, &t, NULL)) {
            if (!first[t.id]) {
                first[t.id] = true;
                if (--waiting == 0) began = now;
            } else if (!waiting && (!done || now - done < STEP_US)) {
                generated += (u32)t.ids.n;
                last = now;
            }
        }
        arena_deinit(&a);
    }
    *prefill = n * pp * 1e6 / (double)(began - t0);
    *decode = generated * 1e6 / (double)(last - began);
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, u32 n) {
    qsort(v, n, sizeof *v, by_size);
    return v[n / 2];
}

/* Ratios of pairs: b over a, as median (smallest to largest). */
static void tell(const char *what, const double *a, double *b, u32 n) {
    double ratio[PAIRS_MAX], first[PAIRS_MAX];
    memcpy(first, a, n * sizeof *a); /* asked for again, and median sorts */
    for (u32 i = 0; i < n; i++) ratio[i] = b[i] / a[i];
    double m = median(ratio, n), ma = median(first, n), mb = median(b, n);
    printf("| %s | %.1f | %.1f | %.2f (%.2f to %.2f) |\n", what, ma, mb, m, ratio[0], ratio[n - 1]);
    fflush(stdout);
}

/* What one and two threads get of this machine: nothing that two ranks do can gain more. */
struct machine {
    double reads[2][PAIRS_MAX], int8[2][PAIRS_MAX]; /* GB/s, Gop/s */
};

static void look(struct machine *m, u32 i) {
    struct kernels k;
    struct err e;
    if (!kernels_select(&k, NULL, &e)) die(e.msg);
    for (u32 n = 1; n <= 2; n++) {
        struct peak peak;
        struct pool *pool = pool_new(n, true, &e);
        if (!pool || !peak_measure(pool, k.set, &peak, &e)) die(e.msg);
        pool_free(pool);
        m->reads[n - 1][i] = peak.read_bytes_s / 1e9;
        m->int8[n - 1][i] = peak.int8_ops_s / 1e9;
    }
}

/* Every layout in turn, from the other end each second time. */
static void measure(struct layout *l, const struct options *o) {
    static double prefill[LAYOUTS][PAIRS_MAX], decode[LAYOUTS][PAIRS_MAX], many[LAYOUTS][PAIRS_MAX],
        half[PAIRS_MAX];
    static struct machine m;
    double unused;
    for (u32 i = 0; i < o->pairs; i++) {
        look(&m, i);
        for (u32 k = 0; k < LAYOUTS; k++) {
            u32 at = i % 2 ? LAYOUTS - 1 - k : k;
            run(&l[at], 1, o->pp, o->tg, &prefill[at][i], &decode[at][i]);
            run(&l[at], o->requests, 16, o->tg, &unused, &many[at][i]);
            if (at == 0) run(&l[at], MAX(o->requests / 2, 1u), 16, o->tg, &unused, &half[i]);
        }
        half[i] *= 2;
    }
    tell("the machine, one thread and two: reads, GB/s", m.reads[0], m.reads[1], o->pairs);
    tell("the machine, one thread and two: byte products, Gop/s", m.int8[0], m.int8[1], o->pairs);
    if (o->requests % 2 == 0) { /* both stages are at work all the time */
        char text[64];
        snprintf(text, sizeof text, "2 stages at most: steps of %u, twice", o->requests / 2);
        tell(text, many[0], half, o->pairs);
    }
    for (u32 k = 1; k < LAYOUTS; k++) {
        char text[64];
        snprintf(text, sizeof text, "%s: prefill of %u", l[k].name, o->pp);
        tell(text, prefill[0], prefill[k], o->pairs);
        snprintf(text, sizeof text, "%s: decode", l[k].name);
        tell(text, decode[0], decode[k], o->pairs);
        snprintf(text, sizeof text, "%s: decode, %u requests", l[k].name, o->requests);
        tell(text, many[0], many[k], o->pairs);
    }
}

static u32 number(const char *text, u32 most) {
    char *end;
    unsigned long v = strtoul(text, &end, 10);
    if (*end || v == 0 || v > most) die("expected a number within its limits");
    return (u32)v;
}

static void stop(struct layout *l) {
    for (u32 r = 0; r < l->n_ranks; r++) {
        kill(l->rank[r].pid, SIGTERM);
        waitpid(l->rank[r].pid, NULL, 0);
    }
}

int main(int argc, char **argv) {
    struct options o = {.pp = 256, .tg = 32, .requests = 8, .pairs = 5};
    if (argc == 2 && strcmp(argv[1], "links") == 0) return linkbench();
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
        if (*name != '-') {
            o.path = name;
            continue;
        }
        i++;
        enum team_wire w;
        if (strcmp(name, "--pp") == 0)
            o.pp = number(value, 1024);
        else if (strcmp(name, "--tg") == 0)
            o.tg = number(value, 512);
        else if (strcmp(name, "--requests") == 0)
            o.requests = number(value, REQUESTS_MAX);
        else if (strcmp(name, "--pairs") == 0)
            o.pairs = number(value, PAIRS_MAX);
        else if (strcmp(name, "--wire") == 0 && team_wire_parse(value, &w))
            o.wire = w;
        else
            die("usage: shardbench links | [--pp N] [--tg N] [--requests N] [--pairs N] "
                "[--wire f16|f32|q8] MODEL.gguf");
    }
    struct model_params p;
    struct err e = {0};
    struct model_file *f = o.path ? model_file_open(o.path, &e) : NULL;
    if (!f || !model_params_read(f, &p, &e)) die(o.path ? e.msg : "which model?");
    model_file_close(f);
    struct layout l[LAYOUTS] = {
        {.name = "one", .n_ranks = 1, .n_threads = 1},
        {.name = "1 rank of 2 threads", .n_ranks = 1, .n_threads = 2},
        {.name = "2 ranks share layers", .n_ranks = 2, .tp = 1, .n_threads = 1},
        {.name = "2 stages", .n_ranks = 2, .n_threads = 1}};
    for (u32 i = 0; i < LAYOUTS; i++) start_layout(&l[i], &o, &p);
    measure(l, &o);
    for (u32 i = 0; i < LAYOUTS; i++) stop(&l[i]);
    return 0;
}
