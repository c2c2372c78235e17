#include "cli/progress.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"
#include "cli/cli.h"

enum { BAR_MAX = 40, LINE_MAX = 256, REDRAW_MS = 100, PRINT_MS = 3000 };

static const char *phase_text(const struct store_progress *p) {
    switch (p->phase) {
    case STORE_CONNECTING: return "connecting";
    case STORE_DOWNLOADING: return p->bytes_per_s > 0 ? "downloading" : "connecting";
    case STORE_UNPACKING: return "unpacking";
    case STORE_CHECKING: return "checking sha256";
    case STORE_WAITING: return "waiting";
    }
    return "";
}

static void time_text(double s, char *out, size_t cap) {
    if (s < 100)
        snprintf(out, cap, "%.0f s left", s);
    else if (s < 6000)
        snprintf(out, cap, "%.0f min left", s / 60);
    else
        snprintf(out, cap, "%.1f h left", s / 3600);
}

void progress_text(const struct store_progress *p, u32 columns, char *out, size_t cap) {
    char tail[120], done[32], total[32], rate[32], left[32], bar[BAR_MAX + 1];
    double share = p->total ? (double)MIN(p->done, p->total) / (double)p->total : 0;
    int n = snprintf(tail, sizeof tail, "%s of %s", size_text(p->done, done),
                     size_text(p->total, total));
    if (p->bytes_per_s > 0 && p->phase == STORE_DOWNLOADING) {
        time_text((double)(p->total - MIN(p->done, p->total)) / p->bytes_per_s, left, sizeof left);
        snprintf(tail + n, sizeof tail - (size_t)n, "  %s/s  %s",
                 size_text((u64)p->bytes_per_s, rate), left);
    } else {
        snprintf(tail + n, sizeof tail - (size_t)n, "  %s", phase_text(p));
    }
    u32 used = (u32)strlen(tail) + 10, room = columns > used ? MIN(columns - used, BAR_MAX) : 0;
    u32 full = (u32)(share * room);
    for (u32 i = 0; i < room; i++) bar[i] = i < full ? '=' : i == full ? '>' : ' ';
    bar[room] = 0;
    if (room < 4)
        snprintf(out, cap, "%3.0f%%  %s", share * 100, tail);
    else
        snprintf(out, cap, "%3.0f%% [%s] %s", share * 100, bar, tail);
}

static u32 columns_of_terminal(void) {
    struct winsize w;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 20 ? w.ws_col - 1 : 79;
}

void progress_end(struct progress *s) {
    if (s->width) fprintf(stderr, "\r%*s\r", (int)s->width, "");
    s->width = 0;
}

static void draw(struct progress *s, const struct store_progress *p, u64 now) {
    char line[LINE_MAX];
    if (s->width && p->phase == s->phase && now - s->shown_ms < REDRAW_MS) return;
    progress_text(p, columns_of_terminal(), line, sizeof line);
    u32 n = (u32)strlen(line);
    fprintf(stderr, "\r%s%*s", line, s->width > n ? (int)(s->width - n) : 0, "");
    s->width = n;
    s->phase = p->phase;
    s->shown_ms = now;
}

static void print(struct progress *s, const struct store_progress *p, u64 now) {
    char done[32], total[32], rate[32];
    if (s->shown_ms && p->phase == s->phase && now - s->shown_ms < PRINT_MS) return;
    if (p->phase == STORE_CONNECTING)
        fprintf(stderr, "%s: trying %s", s->what, p->source);
    else
        fprintf(stderr, "%s: %s: %s of %s", s->what, phase_text(p), size_text(p->done, done),
                size_text(p->total, total));
    if (p->bytes_per_s > 0) fprintf(stderr, ", %s/s", size_text((u64)p->bytes_per_s, rate));
    fprintf(stderr, "\n");
    s->phase = p->phase;
    s->shown_ms = now;
}

bool progress_show(const struct store_progress *p, void *ctx) {
    struct progress *s = ctx;
    if (p->note) {
        progress_end(s);
        fprintf(stderr, "%s\n", p->note);
    } else if (!s->quiet) {
        (isatty(STDERR_FILENO) ? draw : print)(s, p, clock_ms());
    }
    return cli_interrupts(false) == 0;
}
