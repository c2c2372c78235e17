#include "node/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "base/arena.h"
#include "base/clock.h"
#include "base/paths.h"
#include "base/str.h"

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* macOS: SO_NOSIGPIPE does it */
#endif

enum { CHILD_FD = 3, READ_BYTES = 64 << 10 };

struct child {
    pid_t pid; /* 0 once reaped */
    int fd;    /* -1 once closed */
    char label[160];
    struct frame_in in;
    struct str out;
    size_t out_off; /* sent bytes of out */
    u64 kill_at_ms; /* after child_hangup */
    u64 stopped_at_ms;
    bool killed_stopped; /* by child_kill_stopped */
};

/* Runs between fork and exec: async-signal-safe calls only. own: it is this program, which may have
 * been replaced by another version since it was started. */
NORETURN static void run_program(const char *program, bool own, int fd, pid_t parent) {
    if (fd == CHILD_FD)
        fcntl(fd, F_SETFD, 0);
    else if (dup2(fd, CHILD_FD) < 0)
        _exit(127);
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127); /* it died before the line above */
    close_range(CHILD_FD + 1, ~0U, 0);
#else
    (void)parent;
    long max = sysconf(_SC_OPEN_MAX);
    for (int i = CHILD_FD + 1; i < (max > 0 && max < 4096 ? max : 4096); i++) close(i);
#endif
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_DFL);
    char *const argv[] = {(char *)program, "runner", "--fd", "3", NULL};
    execv(program, argv);
#ifdef __linux__
    if (own) execv("/proc/self/exe", argv);
#else
    (void)own;
#endif
    _exit(127);
}

struct child *child_spawn(const char *program, const char *label, struct err *e) {
    char self[4096];
    bool own = !program;
    if (own) {
        if (!paths_self(self, sizeof self, e)) return NULL;
        program = self;
    }
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) {
        err_errno(e, ERR_IO, "can't open the channel of a runner");
        return NULL;
    }
    for (int i = 0; i < 2; i++) fcntl(pair[i], F_SETFD, FD_CLOEXEC);
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
#ifdef SO_NOSIGPIPE
    setsockopt(pair[0], SOL_SOCKET, SO_NOSIGPIPE, &(int){1}, sizeof(int));
#endif
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) run_program(program, own, pair[1], parent);
    int no = errno;
    close(pair[1]);
    if (pid < 0) {
        close(pair[0]);
        errno = no;
        err_errno(e, ERR_IO, "can't start %s", label);
        return NULL;
    }
    struct child *c = xcalloc(1, sizeof *c);
    c->pid = pid;
    c->fd = pair[0];
    str_copy(c->label, sizeof c->label, label);
    return c;
}

static void close_channel(struct child *c) {
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
}

/* Waits for the process; after grace_ms it is killed. False when it had been reaped before. */
static bool reap(struct child *c, u32 grace_ms, int *status) {
    if (c->pid == 0) return false;
    u64 deadline = clock_ms() + grace_ms;
    for (;;) {
        pid_t r = waitpid(c->pid, status, WNOHANG);
        if (r == c->pid) break;
        if (r < 0 && errno != EINTR) {
            *status = 0;
            break;
        }
        if (clock_ms() >= deadline) {
            kill(c->pid, SIGKILL);
            deadline = UINT64_MAX;
        }
        clock_sleep_ms(2);
    }
    c->pid = 0;
    return true;
}

void child_close(struct child *c, u32 grace_ms) {
    if (!c) return;
    int status;
    close_channel(c);
    reap(c, grace_ms, &status);
    frame_in_deinit(&c->in);
    str_deinit(&c->out);
    free(c);
}

void child_hangup(struct child *c, u32 grace_ms) {
    close_channel(c);
    c->kill_at_ms = clock_ms() + grace_ms;
}

bool child_gone(struct child *c) {
    if (c->pid == 0) return true;
    pid_t r = waitpid(c->pid, NULL, WNOHANG);
    if (r == c->pid || (r < 0 && errno != EINTR))
        c->pid = 0;
    else if (clock_ms() >= c->kill_at_ms)
        kill(c->pid, SIGKILL);
    return c->pid == 0;
}

int child_pid(const struct child *c) {
    return (int)c->pid;
}
int child_fd(const struct child *c) {
    return c->fd;
}
short child_events(const struct child *c) {
    return (short)(POLLIN | (c->out.n > c->out_off ? POLLOUT : 0));
}

void child_flush(struct child *c) {
    while (c->fd >= 0 && c->out_off < c->out.n) {
        ssize_t k = send(c->fd, c->out.p + c->out_off, c->out.n - c->out_off, MSG_NOSIGNAL);
        if (k > 0)
            c->out_off += (size_t)k;
        else if (errno != EINTR)
            break; /* full: POLLOUT comes; broken: child_recv tells */
    }
    if (c->out_off == c->out.n) {
        str_clear(&c->out);
        c->out_off = 0;
    }
}

void child_send(struct child *c, u32 type, const void *msg) {
    frame_add(&c->out, type, msg);
    child_flush(c);
}

void child_send_bytes(struct child *c, u32 type, const void *body, size_t n) {
    frame_add_bytes(&c->out, type, body, n);
    child_flush(c);
}

u64 child_stopped_ms(struct child *c) {
    siginfo_t si = {0};
    /* Without WEXITED: an end is left for reap. */
    if (c->pid == 0 || waitid(P_PID, (id_t)c->pid, &si, WSTOPPED | WCONTINUED | WNOHANG) != 0 ||
        si.si_pid == 0)
        return c->stopped_at_ms ? MAX(clock_ms() - c->stopped_at_ms, (u64)1) : 0;
    c->stopped_at_ms = si.si_code == CLD_STOPPED ? clock_ms() : 0;
    return c->stopped_at_ms ? 1 : 0;
}

void child_kill_stopped(struct child *c) {
    c->killed_stopped = true;
    if (c->pid > 0) kill(c->pid, SIGKILL);
}

/* Why the process ended, as a sentence. */
static int ended(struct child *c, struct err *e) {
    int status;
    close_channel(c);
    if (!reap(c, 1000, &status))
        err_set(e, ERR_NET, "%s is gone", c->label);
    else if (c->killed_stopped)
        err_set(e, ERR_NET, "%s stood still (stopped by a signal) and was ended", c->label);
    else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        err_set(e, ERR_NET, "%s was killed by signal 9 (out of memory?)", c->label);
    else if (WIFSIGNALED(status))
        err_set(e, ERR_NET, "%s was killed by signal %d (%s)", c->label, WTERMSIG(status),
                strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status) == 127)
        err_set(e, ERR_IO, "%s could not be started", c->label);
    else
        err_set(e, ERR_NET, "%s ended with status %d", c->label, WEXITSTATUS(status));
    return -1;
}

int child_recv(struct child *c, struct frame *out, struct err *e) {
    for (;;) {
        int r = frame_in_next(&c->in, out, e);
        if (r > 0) return 1;
        if (r < 0) {
            if (c->pid > 0) kill(c->pid, SIGKILL);
            int status;
            close_channel(c);
            reap(c, 0, &status);
            err_wrap(e, "%s", c->label);
            return -1;
        }
        if (c->fd < 0) return ended(c, e);
        char buf[READ_BYTES];
        ssize_t k = recv(c->fd, buf, sizeof buf, 0);
        if (k > 0)
            frame_in_add(&c->in, buf, (size_t)k);
        else if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return 0;
        else if (k == 0 || errno != EINTR)
            return ended(c, e);
    }
}

int child_wait(struct child *c, int timeout_ms, int wake_fd, struct frame *out, struct err *e) {
    u64 deadline = clock_ms() + (u64)MAX(timeout_ms, 0);
    for (;;) {
        int r = child_recv(c, out, e);
        if (r != 0) return r;
        u64 now = clock_ms();
        if (timeout_ms >= 0 && now >= deadline) return 0;
        struct pollfd p[2] = {{.fd = c->fd, .events = child_events(c)},
                              {.fd = wake_fd, .events = POLLIN}};
        int wait_ms = timeout_ms < 0 ? -1 : (int)MIN(deadline - now, (u64)INT32_MAX);
        if (poll(p, wake_fd >= 0 ? 2 : 1, wait_ms) < 0 && errno != EINTR) {
            err_errno(e, ERR_IO, "can't wait for %s", c->label);
            return -1;
        }
        if (p[0].revents & POLLOUT) child_flush(c);
        if (wake_fd >= 0 && (p[1].revents & POLLIN)) return 0;
    }
}
