#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/lock.h"

enum { LOG_LINE_MAX = 2048, LOG_FILE_MAX = 16 << 20 };

/* Guarded by `lock`: fd and process name. Levels are set once at start, before threads. */
static struct lock lock = LOCK_INIT;
static int file_fd = -1;
static char process[64];
static enum log_level stderr_level = LOG_INFO, file_level = LOG_INFO;

static const char *const NAMES[LOG_LEVEL_N] = {"error", "warn", "info", "debug"};

void log_set_level(enum log_level on_stderr, enum log_level on_file) {
    stderr_level = on_stderr;
    file_level = on_file;
}

bool log_parse_level(const char *text, enum log_level *out, struct err *e) {
    for (int i = 0; i < LOG_LEVEL_N; i++)
        if (strcasecmp(text, NAMES[i]) == 0) return *out = (enum log_level)i, true;
    if (strcasecmp(text, "warning") == 0) return *out = LOG_WARN, true;
    return err_set(e, ERR_ARG, "log level '%s': use error, warn, info or debug", text);
}

bool log_open_file(const char *path, struct err *e) {
    struct stat st;
    if (stat(path, &st) == 0 && st.st_size > LOG_FILE_MAX) {
        char old[4096];
        snprintf(old, sizeof old, "%s.1", path);
        if (rename(path, old) != 0) return err_errno(e, ERR_IO, "log file %s: rotating", path);
    }
    return log_join_file(path, e);
}

bool log_join_file(const char *path, struct err *e) {
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) return err_errno(e, ERR_IO, "log file %s", path);
    log_close_file();
    lock_take(&lock);
    file_fd = fd;
    lock_give(&lock);
    return true;
}

void log_close_file(void) {
    lock_take(&lock);
    if (file_fd >= 0) close(file_fd);
    file_fd = -1;
    lock_give(&lock);
}

void log_set_process(const char *name) {
    lock_take(&lock);
    snprintf(process, sizeof process, "%s ", name);
    lock_give(&lock);
}

bool log_enabled(enum log_level level) {
    return level <= stderr_level || level <= file_level;
}

/* A log that can't be written must not stop the work: short writes are dropped. */
static void put(int fd, const char *p, size_t n) {
    while (n) {
        ssize_t k = write(fd, p, n);
        if (k <= 0) {
            if (k < 0 && errno == EINTR) continue;
            return;
        }
        p += k;
        n -= (size_t)k;
    }
}

void log_line(enum log_level level, const char *module, const char *fmt, ...) {
    if (!log_enabled(level)) return;
    int saved_errno = errno;
    char line[LOG_LINE_MAX];
    i64 now = clock_wall_ms();
    time_t s = (time_t)(now / 1000);
    struct tm t;
    localtime_r(&s, &t);
    size_t n = strftime(line, sizeof line, "%Y-%m-%d %H:%M:%S", &t);
    lock_take(&lock);
    n += (size_t)snprintf(line + n, sizeof line - n, ".%03d %-5s %s%s: ", (int)(now % 1000),
                          NAMES[level], process, module);
    va_list ap;
    va_start(ap, fmt);
    int k = vsnprintf(line + n, sizeof line - n - 1, fmt, ap);
    va_end(ap);
    if (k > 0) n = MIN(n + (size_t)k, sizeof line - 2);
    for (size_t i = 0; i < n; i++)
        if (line[i] == '\n' || line[i] == '\r')
            line[i] = ' '; /* one event, one line: no forged lines */
    line[n++] = '\n';
    if (level <= stderr_level) put(STDERR_FILENO, line, n);
    if (file_fd >= 0 && level <= file_level) put(file_fd, line, n);
    lock_give(&lock);
    errno = saved_errno;
}
