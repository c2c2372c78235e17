#include "base/clock.h"

#include <errno.h>
#include <string.h>
#include <time.h>

u64 clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (u64)t.tv_sec * 1000000000u + (u64)t.tv_nsec;
}

u64 clock_us(void) {
    return clock_ns() / 1000;
}
u64 clock_ms(void) {
    return clock_ns() / 1000000;
}

i64 clock_wall_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (i64)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

i32 clock_utc_offset_s(void) {
    time_t now = time(NULL);
    struct tm l;
    return localtime_r(&now, &l) ? (i32)l.tm_gmtoff : 0;
}

void clock_sleep_ms(u32 ms) {
    struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
    while (nanosleep(&t, &t) && errno == EINTR) {
    }
}

const char *clock_iso8601(i64 unix_s, char buf[32]) {
    time_t t = (time_t)unix_s;
    struct tm u;
    memset(&u, 0, sizeof u);
    gmtime_r(&t, &u);
    strftime(buf, 32, "%Y-%m-%dT%H:%M:%SZ", &u);
    return buf;
}
