#include "cli/background.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/paths.h"

static int ready_fd = -1;

static int wait_until_ready(int fd, pid_t child) {
    char byte;
    ssize_t n;
    int status;
    do n = read(fd, &byte, 1);
    while (n < 0 && errno == EINTR);
    close(fd);
    if (n == 1) return 0;
    if (waitpid(child, &status, 0) != child) return 1; /* it ended before it was ready */
    return WIFEXITED(status) && WEXITSTATUS(status) ? WEXITSTATUS(status) : 1;
}

bool background_start(int *code, struct err *e) {
    int fd[2];
    *code = 1;
    fflush(NULL);
    if (pipe(fd) != 0) return err_errno(e, ERR_IO, "pipe");
    pid_t child = fork();
    if (child < 0) return err_errno(e, ERR_IO, "can't start a process");
    if (child > 0) {
        close(fd[1]);
        *code = wait_until_ready(fd[0], child);
        return false;
    }
    close(fd[0]);
    fcntl(fd[1], F_SETFD, FD_CLOEXEC);
    ready_fd = fd[1];
    setsid();
    return true;
}

void background_ready(void) {
    if (ready_fd < 0) return;
    fflush(NULL);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = 0; null >= 0 && i < 3; i++) dup2(null, i);
    if (null > 2) close(null);
    while (write(ready_fd, "1", 1) < 0 && errno == EINTR) {
    }
    close(ready_fd);
    ready_fd = -1;
}

int background_pid(const char *data_dir, struct err *e) {
    char path[1024], text[24] = "";
    if (!paths_join(path, sizeof path, data_dir, "lock")) {
        err_set(e, ERR_ARG, "the data folder's path is too long: %s", data_dir);
        return 0;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        if (errno != ENOENT && errno != ENOTDIR) err_errno(e, ERR_IO, "can't open %s", path);
        return 0;
    }
    bool held = flock(fd, LOCK_SH | LOCK_NB) != 0;
    ssize_t n = held ? read(fd, text, sizeof text - 1) : 0;
    close(fd);
    long pid = n > 0 ? strtol(text, NULL, 10) : 0;
    if (held && pid <= 1) err_set(e, ERR_IO, "%s is held by a process that it does not name", path);
    return pid > 1 && pid < 1 << 30 ? (int)pid : 0;
}

bool background_write_pid(const char *path, struct err *e) {
    char text[24];
    int n = snprintf(text, sizeof text, "%d\n", (int)getpid());
    return file_write(path, text, (size_t)n, 0644, e);
}
