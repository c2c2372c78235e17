#include "cli/line.h"

#include <histedit.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "cli/cli.h"

enum { HISTORY_LINES = 1000 };

struct line {
    EditLine *el; /* NULL: plain reading */
    History *history;
    char *history_path;
    const char *prompt;
    char *buf; /* getline's */
    size_t cap;
};

static char *give_prompt(EditLine *el) {
    struct line *l;
    el_get(el, EL_CLIENTDATA, &l);
    return (char *)(uintptr_t)l->prompt;
}

static void start_editing(struct line *l) {
    HistEvent ev;
    setlocale(LC_CTYPE, ""); /* UTF-8 keys */
    l->el = el_init("skein", stdin, stdout, stderr);
    if (!l->el) return;
    l->history = history_init();
    el_set(l->el, EL_CLIENTDATA, l);
    el_set(l->el, EL_PROMPT, give_prompt);
    el_set(l->el, EL_EDITOR, "emacs");
    el_set(l->el, EL_SIGNAL, 0); /* Ctrl-C is ours */
    el_set(l->el, EL_BIND, "^R", "em-inc-search-prev", NULL);
    history(l->history, &ev, H_SETSIZE, HISTORY_LINES);
    history(l->history, &ev, H_SETUNIQUE, 1);
    el_set(l->el, EL_HIST, history, l->history);
    if (l->history_path) history(l->history, &ev, H_LOAD, l->history_path);
}

struct line *line_open(const char *history_path) {
    struct line *l = xcalloc(1, sizeof *l);
    if (history_path) l->history_path = xstrdup(history_path);
    if (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)) start_editing(l);
    return l;
}

void line_close(struct line *l) {
    HistEvent ev;
    if (l->el) {
        if (l->history_path) {
            mode_t before = umask(077); /* what was asked is nobody else's business */
            history(l->history, &ev, H_SAVE, l->history_path);
            umask(before);
        }
        history_end(l->history);
        el_end(l->el);
    }
    free(l->history_path);
    free(l->buf);
    free(l);
}

static enum line_result nothing_read(const struct line *l) {
    bool interrupted = cli_interrupts(false) > 0;
    if (l->el)
        el_reset(l->el);
    else
        clearerr(stdin);
    if (!interrupted && l->el) putchar('\n'); /* Ctrl-D leaves the cursor behind the prompt */
    return interrupted ? LINE_INTERRUPTED : LINE_END;
}

enum line_result line_read(struct line *l, const char *prompt, const char **text) {
    int n;
    l->prompt = prompt;
    if (l->el) {
        const char *s = el_gets(l->el, &n);
        if (!s || n <= 0) return nothing_read(l);
        size_t len = strcspn(s, "\r\n");
        if (len + 1 > l->cap) l->buf = xrealloc(l->buf, l->cap = len + 1);
        memcpy(l->buf, s, len);
        l->buf[len] = 0;
    } else {
        ssize_t k = getline(&l->buf, &l->cap, stdin);
        if (k < 0) return nothing_read(l);
        l->buf[strcspn(l->buf, "\r\n")] = 0;
    }
    *text = l->buf;
    return LINE_OK;
}

void line_remember(struct line *l, const char *text) {
    HistEvent ev;
    if (l->el && !strchr(text, '\n')) history(l->history, &ev, H_ENTER, text);
}
