/* linkem - a cable between two TAP devices: delay, jitter, loss, reordering, duplicates, rate.
 *
 * For kernels without netem, and for changes while a test runs: words for the control socket are
 * those of linkem_line.h. Frames carry their virtio_net_hdr from one end to the other, so checksum
 * and segmentation offload work and a 64 KiB super-frame costs one read and one write. One thread,
 * epoll and timerfd; timers fire late, so the last stretch before a frame is due is spun. */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "base/str.h"
#include "tools/linkem_line.h"

static const char USAGE[] =
    "usage: linkem [OPTIONS] [NETNS:]TAP [NETNS:]TAP     a cable between two new TAP devices\n"
    "       linkem ctl SOCKET WORDS                      change a running one\n"
    "\n"
    "  --both WORDS   how both directions behave; --ab, --ba: one of them\n"
    "  --control PATH a socket that takes \"both WORDS\", \"ab WORDS\", \"ba WORDS\" or \"stats\"\n"
    "  --mtu N        of the devices [1500]; up to 9000 and beyond\n"
    "  --spin US      spin so long before a frame is due, since timers fire late [150]\n"
    "  --no-offload   no super-frames: each read and write is one frame of the wire\n"
    "  --seed N       of loss, jitter and so on [random]\n"
    "  --with-parent  end when the process that started this one ends\n"
    "\n"
    "WORDS: delay=200us jitter=50us loss=5 dup=1 reorder=2 reorder-by=1ms rate=125M queue=1M\n"
    "mtu=1500 carrier=0 reset. Percentages are of frames, rate and queue are bytes, times without\n"
    "unit microseconds. With jitter alone frames keep their order. rate counts Ethernet frames\n"
    "without preamble, checksum and gap. mtu drops longer frames, as a switch does.\n"
    "\n"
    "What it reaches on two virtual cores (bench/linkem measures it): 20 to 30 us more than what "
    "is\n"
    "set, in the median (50 us gives 80, 200 gives 235, 1000 gives 1027); with super-frames 1 "
    "Gbit/s\n"
    "to 0.9 and 10 Gbit/s to 6 to 8; one frame at a time 2.5 Gbit/s, 6 with an MTU of 9000.\n";

struct end {
    const char *name;
    int fd;
};

struct cable {
    struct end ends[2];
    struct line lines[2]; /* [0] from end 0 to end 1 */
    const char *control;
    u32 mtu;
    u64 spin_ns, seed;
    bool no_offload, with_parent, offloads, carrier;
    int epoll, timer, signals, listener;
    u8 frame[LINE_FRAME_MAX];
};

/* Sets MTU and "up" through any socket of the device's namespace. */
static bool bring_up(const char *name, u32 mtu, struct err *e) {
    struct ifreq r = {0};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return err_errno(e, ERR_IO, "socket");
    str_copy(r.ifr_name, sizeof r.ifr_name, name);
    r.ifr_mtu = (int)mtu;
    bool ok = ioctl(fd, SIOCSIFMTU, &r) == 0;
    ok = ok && ioctl(fd, SIOCGIFFLAGS, &r) == 0;
    r.ifr_flags |= IFF_UP;
    ok = ok && ioctl(fd, SIOCSIFFLAGS, &r) == 0;
    if (!ok) err_errno(e, ERR_IO, "bringing %s up with MTU %u", name, mtu);
    close(fd);
    return ok;
}

static bool enter(const char *netns, int *home, struct err *e) {
    char path[300];
    snprintf(path, sizeof path, "/run/netns/%s", netns);
    *home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool ok = fd >= 0 && *home >= 0 && setns(fd, CLONE_NEWNET) == 0;
    if (!ok) err_errno(e, ERR_IO, "network namespace %s", netns);
    if (fd >= 0) close(fd);
    return ok;
}

/* A device belongs to the namespace in which it was made, whoever holds its descriptor. */
static bool end_open(struct end *end, const char *spec, u32 mtu, struct err *e) {
    char netns[256] = "";
    const char *colon = strchr(spec, ':');
    int home = -1;
    end->name = colon ? colon + 1 : spec;
    if (colon) snprintf(netns, sizeof netns, "%.*s", (int)(colon - spec), spec);
    if (!*end->name || strlen(end->name) >= IFNAMSIZ)
        return err_set(e, ERR_ARG, "\"%s\": expected [NETNS:]NAME, the name of 1..15 characters",
                       spec);
    if (*netns && !enter(netns, &home, e)) return false;
    struct ifreq r = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
    str_copy(r.ifr_name, sizeof r.ifr_name, end->name);
    end->fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    bool ok = end->fd >= 0 && ioctl(end->fd, TUNSETIFF, &r) == 0;
    if (!ok) err_errno(e, ERR_IO, "TAP device %s (root and /dev/net/tun are needed)", spec);
    ok = ok && bring_up(end->name, mtu, e);
    if (home >= 0) {
        if (setns(home, CLONE_NEWNET) != 0 && ok) ok = err_errno(e, ERR_IO, "going back");
        close(home);
    }
    return ok;
}

/* Offload and carrier follow what the lines are set to. */
static bool apply(struct cable *c, struct err *e) {
    bool offload = !c->no_offload && !line_wants_single_frames(&c->lines[0].cfg) &&
                   !line_wants_single_frames(&c->lines[1].cfg);
    int carrier = c->lines[0].cfg.carrier && c->lines[1].cfg.carrier;
    unsigned long flags = offload ? TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 : 0;
    for (int i = 0; i < 2; i++) {
        if (offload != c->offloads && ioctl(c->ends[i].fd, TUNSETOFFLOAD, flags) != 0)
            return err_errno(e, ERR_IO, "offload of %s", c->ends[i].name);
        if (carrier != c->carrier && ioctl(c->ends[i].fd, TUNSETCARRIER, &carrier) != 0)
            return err_errno(e, ERR_IO, "carrier of %s", c->ends[i].name);
    }
    c->offloads = offload;
    c->carrier = carrier;
    return true;
}

static void add_stats(const struct line *l, const char *name, struct str *out) {
    char words[256];
    const struct line_stats *s = &l->stats;
    line_text(&l->cfg, words, sizeof words);
    str_addf(out, "%s %s frames=%llu bytes=%llu waiting=%u", name, words,
             (unsigned long long)s->frames, (unsigned long long)s->bytes, l->n);
    str_addf(out, " lost=%llu duplicated=%llu reordered=%llu over-mtu=%llu over-queue=%llu",
             (unsigned long long)s->lost, (unsigned long long)s->duplicated,
             (unsigned long long)s->reordered, (unsigned long long)s->over_mtu,
             (unsigned long long)s->over_queue);
    str_addf(out, " late-mean-us=%.1f late-max-us=%.1f\n",
             s->frames ? (double)s->late_ns_sum / (double)s->frames / 1e3 : 0,
             (double)s->late_ns_max / 1e3);
}

static bool change(struct cable *c, const char *which, const char *words, struct err *e) {
    bool ab = strcmp(which, "ab") == 0, ba = strcmp(which, "ba") == 0;
    if (!ab && !ba && strcmp(which, "both") != 0)
        return err_set(e, ERR_ARG, "\"%s\": expected ab, ba or both, or stats", which);
    return (ba || line_set(&c->lines[0].cfg, words, e)) &&
           (ab || line_set(&c->lines[1].cfg, words, e)) && apply(c, e);
}

/* One request a connection: a message in, a message out. Frames don't wait for a slow asker. */
static void answer(struct cable *c, int fd) {
    char text[512];
    struct err e = {0};
    struct str out = {0};
    ssize_t n = recv(fd, text, sizeof text - 1, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    text[n > 0 ? n : 0] = 0;
    size_t word = strcspn(text, " \n");
    bool more = text[word] != 0;
    text[word] = 0;
    if (strcmp(text, "stats") == 0) {
        add_stats(&c->lines[0], "ab", &out);
        add_stats(&c->lines[1], "ba", &out);
    } else if (change(c, text, more ? text + word + 1 : "", &e)) {
        str_addz(&out, "ok\n");
    } else {
        str_addf(&out, "error: %s\n", e.msg);
    }
    if (n > 0 && send(fd, out.p, out.n, MSG_NOSIGNAL) < 0)
        fprintf(stderr, "linkem: nobody reads\n");
    str_deinit(&out);
    close(fd);
}

static bool control_address(struct sockaddr_un *a, const char *path, struct err *e) {
    a->sun_family = AF_UNIX;
    return str_copy(a->sun_path, sizeof a->sun_path, path) ||
           err_set(e, ERR_ARG, "control socket %s: the path is too long", path);
}

static bool control_open(struct cable *c, struct err *e) {
    struct sockaddr_un a = {0};
    c->listener = -1;
    if (!c->control) return true;
    if (!control_address(&a, c->control, e)) return false;
    unlink(c->control);
    c->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    return (c->listener >= 0 && bind(c->listener, (struct sockaddr *)&a, sizeof a) == 0 &&
            listen(c->listener, 8) == 0) ||
           err_errno(e, ERR_IO, "control socket %s", c->control);
}

static bool watch(struct cable *c, int fd, struct err *e) {
    struct epoll_event ev = {.events = EPOLLIN, .data.fd = fd};
    return fd < 0 || epoll_ctl(c->epoll, EPOLL_CTL_ADD, fd, &ev) == 0 ||
           err_errno(e, ERR_IO, "epoll");
}

static bool events_open(struct cable *c, struct err *e) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    c->signals = signalfd(-1, &set, SFD_CLOEXEC);
    c->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    c->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (c->epoll < 0 || c->timer < 0 || c->signals < 0) return err_errno(e, ERR_IO, "epoll");
    return watch(c, c->ends[0].fd, e) && watch(c, c->ends[1].fd, e) && watch(c, c->timer, e) &&
           watch(c, c->signals, e) && watch(c, c->listener, e);
}

/* Frames that wait at an end, a batch of them so that the other end gets its turn. */
static void take_in(struct cable *c, int from) {
    for (int i = 0; i < 64; i++) {
        ssize_t n = read(c->ends[from].fd, c->frame, sizeof c->frame);
        if (n <= 0) return;
        line_accept(&c->lines[from], c->frame, (u32)n, clock_ns());
    }
}

/* What is due, and when the next frame is. */
static u64 give_out(struct cable *c) {
    for (int i = 0; i < 2; i++) {
        struct line *l = &c->lines[i];
        for (struct line_frame *f; (f = line_take(l, clock_ns())); line_release(l, f)) {
            /* A device that is down says EIO: the frame is lost, as on an unplugged cable. */
            if (l->cfg.carrier && write(c->ends[!i].fd, f->bytes, f->n) < 0) l->stats.lost++;
        }
    }
    return MIN(line_next_ns(&c->lines[0]), line_next_ns(&c->lines[1]));
}

static void set_timer(struct cable *c, u64 at_ns) {
    struct itimerspec t = {0};
    t.it_value.tv_sec = (time_t)(at_ns / 1000000000);
    t.it_value.tv_nsec = (long)(at_ns % 1000000000);
    timerfd_settime(c->timer, TFD_TIMER_ABSTIME, &t, NULL);
}

static void serve(struct cable *c, int fd) {
    u64 ticks;
    if (fd == c->timer) {
        (void)!read(fd, &ticks, sizeof ticks);
    } else if (fd == c->listener) {
        int asker = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
        if (!watch(c, asker, NULL)) close(asker);
    } else if (fd == c->ends[0].fd || fd == c->ends[1].fd) {
        take_in(c, fd == c->ends[1].fd);
    } else {
        answer(c, fd);
    }
}

static void run(struct cable *c) {
    u64 armed = 0;
    for (;;) {
        u64 next = give_out(c), now = clock_ns();
        bool spin = next <= now + c->spin_ns;
        if (!spin && next != UINT64_MAX && armed != next) {
            set_timer(c, next - c->spin_ns);
            armed = next;
        }
        struct epoll_event ev[8];
        int n = epoll_wait(c->epoll, ev, ARRAY_LEN(ev), spin ? 0 : -1);
        for (int i = 0; i < n; i++) {
            int fd = ev[i].data.fd;
            if (fd == c->signals) return;
            if (fd == c->timer) armed = 0;
            serve(c, fd);
        }
    }
}

static int ctl(int argc, char **argv) {
    struct sockaddr_un a = {0};
    struct str words = {0};
    struct err e = {0};
    char reply[2048];
    if (argc < 4) return fputs(USAGE, stderr), 2;
    for (int i = 3; i < argc; i++) str_addf(&words, "%s%s", i > 3 ? " " : "", argv[i]);
    if (!control_address(&a, argv[2], &e)) return fprintf(stderr, "linkem: %s\n", e.msg), 1;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    bool ok = connect(fd, (struct sockaddr *)&a, sizeof a) == 0 &&
              send(fd, words.p, words.n, MSG_NOSIGNAL) == (ssize_t)words.n;
    ssize_t n = ok ? recv(fd, reply, sizeof reply - 1, 0) : -1;
    str_deinit(&words);
    if (n <= 0) return fprintf(stderr, "linkem: %s: %s\n", argv[2], strerror(errno)), 1;
    reply[n] = 0;
    fputs(reply, stdout);
    return strncmp(reply, "error", 5) == 0;
}

static bool number(const char *name, const char *text, u64 most, u64 *out, struct err *e) {
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return (!errno && !*end && *text >= '0' && *text <= '9' && *out <= most) ||
           err_set(e, ERR_ARG, "%s %s: expected a number up to %llu", name, text,
                   (unsigned long long)most);
}

/* One option at argv[*i]; advances past its value. */
static bool option(struct cable *c, int argc, char **argv, int *i, struct err *e) {
    const char *name = argv[*i], *value = *i + 1 < argc ? argv[*i + 1] : NULL;
    u64 v;
    if (strcmp(name, "--no-offload") == 0) return c->no_offload = true;
    if (strcmp(name, "--with-parent") == 0) return c->with_parent = true;
    if (!value) return err_set(e, ERR_ARG, "%s: no such option, or its value is missing", name);
    ++*i;
    bool both = strcmp(name, "--both") == 0;
    if (both || strcmp(name, "--ab") == 0)
        return line_set(&c->lines[0].cfg, value, e) &&
               (!both || line_set(&c->lines[1].cfg, value, e));
    if (strcmp(name, "--ba") == 0) return line_set(&c->lines[1].cfg, value, e);
    if (strcmp(name, "--control") == 0) return (c->control = value), true;
    if (strcmp(name, "--mtu") == 0)
        return number(name, value, 65521, &v, e) && (c->mtu = (u32)v, true);
    if (strcmp(name, "--spin") == 0)
        return number(name, value, 100000, &v, e) && (c->spin_ns = v * 1000, true);
    if (strcmp(name, "--seed") == 0) return number(name, value, UINT64_MAX, &c->seed, e);
    return err_set(e, ERR_ARG, "%s: no such option", name);
}

static bool start(struct cable *c, int argc, char **argv, struct err *e) {
    const char *specs[2];
    int n = 0;
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--", 2) == 0) {
            if (!option(c, argc, argv, &i, e)) return false;
        } else if (n < 2) {
            specs[n++] = argv[i];
        } else {
            n = 3;
        }
    }
    if (n != 2) return err_set(e, ERR_ARG, "expected two devices: linkem --help");
    if (c->with_parent) prctl(PR_SET_PDEATHSIG, SIGTERM);
    c->lines[0].seed = c->seed;
    c->lines[1].seed = c->seed + 1;
    return end_open(&c->ends[0], specs[0], c->mtu, e) &&
           end_open(&c->ends[1], specs[1], c->mtu, e) && apply(c, e) && control_open(c, e) &&
           events_open(c, e);
}

int main(int argc, char **argv) {
    static struct cable c = {.mtu = 1500, .spin_ns = 150000, .carrier = true};
    struct err e = {0};
    if (argc > 1 && strcmp(argv[1], "ctl") == 0) return ctl(argc, argv);
    if (argc > 1 && strcmp(argv[1], "--help") == 0) return fputs(USAGE, stdout), 0;
    c.seed = random_u64();
    line_init(&c.lines[0], 0);
    line_init(&c.lines[1], 0);
    if (!start(&c, argc, argv, &e)) {
        fprintf(stderr, "linkem: %s\n", e.msg);
        return e.code == ERR_ARG ? 2 : 1;
    }
    printf("linkem: %s and %s are connected, seed %llu\n", c.ends[0].name, c.ends[1].name,
           (unsigned long long)c.seed);
    fflush(stdout);
    run(&c);
    if (c.control) unlink(c.control);
    line_deinit(&c.lines[0]);
    line_deinit(&c.lines[1]);
    return 0;
}
