#include "cli/opts.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/arena.h"
#include "base/log.h"
#include "base/paths.h"
#include "base/similar.h"
#include "base/str.h"

enum { OLD_WORD_MAX = 3 }; /* -ngl is written with one dash, --listen with two */
enum { HELP_COLUMNS = 100 };

static struct arena pieces; /* of OPT_LIST values; never freed */

/* Every command has these besides its own. */
static const char *log_level_text;
static struct opt common[] = {
    {"log-level", OPT_STR, &log_level_text, "error, warn, info or debug", .value = "LEVEL",
     .env = "LOG_LEVEL"},
};

static struct opt *nth_opt(const struct opts_cmd *cmd, u32 i) {
    return i < cmd->n_opts ? &cmd->opts[i] : &common[i - cmd->n_opts];
}

static u32 n_opts(const struct opts_cmd *cmd) {
    return cmd->n_opts + (u32)ARRAY_LEN(common);
}

static struct opt *find_word(const struct opts_cmd *cmd, struct view name) {
    for (u32 i = 0; i < n_opts(cmd); i++) {
        struct opt *o = nth_opt(cmd, i);
        if ((o->name[1] && view_is(name, o->name)) || (o->word && view_is(name, o->word))) return o;
    }
    return NULL;
}

static struct opt *find_letter(const struct opts_cmd *cmd, char c) {
    for (u32 i = 0; i < n_opts(cmd); i++) {
        struct opt *o = nth_opt(cmd, i);
        if (o->letter == c || (!o->name[1] && o->name[0] == c)) return o;
    }
    return NULL;
}

static bool unknown(const struct opts_cmd *cmd, const char *arg, struct err *e) {
    struct similar near = similar_to(arg + strspn(arg, "-"));
    for (u32 i = 0; i < n_opts(cmd); i++)
        if (nth_opt(cmd, i)->help && nth_opt(cmd, i)->name[1])
            similar_offer(&near, nth_opt(cmd, i)->name);
    if (near.best)
        return err_set(e, ERR_ARG, "unknown option %s: did you mean --%s?", arg, near.best);
    return err_set(e, ERR_ARG, "unknown option %s: `skein help %s` lists the options", arg,
                   cmd->name);
}

/* `from` is what the user wrote it as, for the error: "--temp" or "SKEIN_PORT". */
static bool set_number(const struct opt *o, const char *text, const char *from, struct err *e) {
    bool whole = o->kind != OPT_F32, any = o->min == 0 && o->max == 0;
    char *end = NULL;
    errno = 0;
    u64 u = 0;
    double d = 0;
    if (whole)
        u = strtoull(text, &end, 10), d = (double)u;
    else
        d = strtod(text, &end);
    if (end == text || *end || text[0] == ' ' || (whole && text[0] == '-') || !isfinite(d))
        return err_set(e, ERR_ARG, "%s %s: not a %snumber", from, text, whole ? "whole " : "");
    u64 most = o->kind == OPT_U32 ? UINT32_MAX : UINT64_MAX;
    double top = o->kind == OPT_U32 ? 4294967295.0 : HUGE_VAL;
    if (errno == ERANGE || d > top || (!any && (d < o->min || d > o->max)))
        return whole ? err_set(e, ERR_ARG, "%s %s: must be from %llu to %llu", from, text,
                               (unsigned long long)o->min,
                               (unsigned long long)(any ? most : (u64)o->max))
                     : err_set(e, ERR_ARG, "%s %s: must be from %.9g to %.9g", from, text,
                               any ? 0 : o->min, any ? (double)most : o->max);
    if (o->kind == OPT_U32)
        *(u32 *)o->out = (u32)u;
    else if (o->kind == OPT_U64)
        *(u64 *)o->out = u;
    else
        *(float *)o->out = (float)d;
    return true;
}

static bool add_to_list(struct opt_list *l, const char *text, const char *from, struct err *e) {
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, ",");
        if (n && l->n == OPT_LIST_MAX)
            return err_set(e, ERR_LIMIT, "%s: at most %d values", from, (int)OPT_LIST_MAX);
        if (n) l->v[l->n++] = arena_memdup(&pieces, p, n);
        p += n + (p[n] == ',');
    }
    return true;
}

/* On the command line an empty list is a mistake (an empty variable): true, and *e. The environment
 * may have one. */
static bool refuse_empty(const struct opt *o, const char *text, const char *from, struct err *e) {
    if (o->kind != OPT_LIST || text[strspn(text, ",")]) return false;
    return !err_set(e, ERR_ARG, "%s \"%s\": at least one value, %s", from, text,
                    o->value ? o->value : "VALUE,...");
}

static bool set_flag(const struct opt *o, const char *text, const char *from, struct err *e) {
    static const char *const WORDS[] = {"0", "1", "false", "true", "no", "yes", "off", "on"};
    for (u32 i = 0; i < ARRAY_LEN(WORDS); i++) {
        if (strcasecmp(text, WORDS[i]) != 0) continue;
        *(bool *)o->out = i & 1;
        return true;
    }
    return err_set(e, ERR_ARG, "%s=%s: must be true or false", from, text);
}

static bool set_value(const struct opt *o, const char *text, const char *from, struct err *e) {
    switch (o->kind) {
    case OPT_FLAG: return set_flag(o, text, from, e);
    case OPT_STR: *(const char **)o->out = text; return true;
    case OPT_LIST: return add_to_list(o->out, text, from, e);
    case OPT_IGNORE: return true;
    default: return set_number(o, text, from, e);
    }
}

static bool read_env(struct opt *o, const char *(*getenv_fn)(const char *), struct err *e) {
    const char *v = o->env ? getenv_fn(o->env) : NULL;
    if (!v) return true;
    char from[64];
    snprintf(from, sizeof from, "SKEIN_%s", o->env);
    return set_value(o, v, from, e);
}

struct walk {
    const struct opts_cmd *cmd;
    int argc;
    char **argv;
    int i; /* the word being read */
    bool given[128];
};

static void mark(struct walk *w, const struct opt *o) {
    for (u32 i = 0; i < n_opts(w->cmd) && i < ARRAY_LEN(w->given); i++)
        if (nth_opt(w->cmd, i) == o) w->given[i] = true;
}

/* The value behind an option: `inline_value` when it was written with it, else the next word. */
static bool take(struct walk *w, const struct opt *o, const char *inline_value, struct err *e) {
    const char *from = w->argv[w->i];
    char name[80];
    mark(w, o);
    if (o->kind == OPT_FLAG && !inline_value) {
        *(bool *)o->out = true;
        return true;
    }
    if (inline_value) {
        snprintf(name, sizeof name, "%s%s", o->name[1] ? "--" : "-", o->name);
        return !refuse_empty(o, inline_value, name, e) && set_value(o, inline_value, name, e);
    }
    if (w->i + 1 >= w->argc)
        return err_set(e, ERR_ARG, "%s needs a value: %s", from, o->value ? o->value : "VALUE");
    const char *text = w->argv[++w->i];
    return !refuse_empty(o, text, from, e) && set_value(o, text, from, e);
}

/* --name, --name=value, --no-name, and -word. */
static bool long_option(struct walk *w, const char *arg, struct err *e) {
    const char *body = arg + strspn(arg, "-"), *eq = strchr(body, '=');
    struct view name = {body, eq ? (size_t)(eq - body) : strlen(body)};
    struct opt *o = find_word(w->cmd, name);
    if (o) return take(w, o, eq ? eq + 1 : NULL, e);
    if (view_starts(name, "no-") && !eq) {
        o = find_word(w->cmd, (struct view){name.p + 3, name.n - 3});
        if (o && o->kind == OPT_FLAG) {
            mark(w, o);
            *(bool *)o->out = false;
            return true;
        }
    }
    return unknown(w->cmd, arg, e);
}

/* -n 5, -n5, -vq. */
static bool short_options(struct walk *w, const char *arg, struct err *e) {
    for (const char *c = arg + 1; *c; c++) {
        struct opt *o = find_letter(w->cmd, *c);
        if (!o) return unknown(w->cmd, arg, e);
        if (o->kind != OPT_FLAG) return take(w, o, c[1] ? c + 1 + (c[1] == '=') : NULL, e);
        if (!take(w, o, NULL, e)) return false;
    }
    return true;
}

static bool is_word(const struct opts_cmd *cmd, const char *arg) {
    size_t n = strcspn(arg + 1, "=");
    return n > 1 && find_word(cmd, (struct view){arg + 1, n});
}

static bool too_many_or_few(const struct opts_cmd *cmd, int n, char **argv, struct err *e) {
    if (n < cmd->args_min)
        return !err_set(e, ERR_ARG, "%s is missing: skein %s %s",
                        n ? "an argument" : "what to work on", cmd->name,
                        cmd->args ? cmd->args : "");
    if (cmd->args_max >= 0 && n > cmd->args_max)
        return !err_set(e, ERR_ARG, "\"%s\" is one argument too many: skein %s %s",
                        argv[cmd->args_max], cmd->name, cmd->args ? cmd->args : "");
    return false;
}

bool opts_read(const struct opts_cmd *cmd, int argc, char **argv, int *n_args,
               const char *(*getenv_fn)(const char *), struct err *e) {
    struct walk w = {.cmd = cmd, .argc = argc, .argv = argv, .i = 1};
    int n = 0;
    bool only_args = false;
    log_level_text = NULL;
    for (; w.i < argc; w.i++) {
        char *arg = argv[w.i];
        if (only_args || arg[0] != '-' || !arg[1]) { /* "-" alone is a file name: standard input */
            argv[n++] = arg;
        } else if (strcmp(arg, "--") == 0) {
            only_args = true;
        } else if (strcmp(arg, "--help") == 0 ||
                   (strcmp(arg, "-h") == 0 && !find_letter(cmd, 'h'))) {
            e->code = ERR_NONE;
            return false;
        } else {
            bool is_long = arg[1] == '-' || is_word(cmd, arg);
            if (!(is_long ? long_option(&w, arg, e) : short_options(&w, arg, e))) return false;
        }
    }
    for (u32 i = 0; getenv_fn && i < n_opts(cmd); i++)
        if (!w.given[i] && !read_env(nth_opt(cmd, i), getenv_fn, e)) return false;
    *n_args = n;
    return !too_many_or_few(cmd, n, argv, e);
}

static void print_opt(const struct opt *o) {
    char left[64];
    const char *value = o->kind == OPT_FLAG ? "" : o->value ? o->value : "VALUE";
    if (!o->name[1])
        snprintf(left, sizeof left, "-%s %s", o->name, value);
    else if (o->letter)
        snprintf(left, sizeof left, "-%c, --%s %s", o->letter, o->name, value);
    else if (o->word && strlen(o->word) > OLD_WORD_MAX)
        snprintf(left, sizeof left, "    --%s, --%s %s", o->name, o->word, value);
    else if (o->word)
        snprintf(left, sizeof left, "-%s, --%s %s", o->word, o->name, value);
    else
        snprintf(left, sizeof left, "    --%s %s", o->name, value);
    int n = printf("  %-28s %s", left, o->help);
    if (o->env && (size_t)n + strlen(o->env) + sizeof " [SKEIN_]" - 1 > HELP_COLUMNS)
        printf("\n%30s", "");
    if (o->env) printf(" [SKEIN_%s]", o->env);
    printf("\n");
}

static void print_help(const struct opts_cmd *cmd) {
    printf("skein %s: %s\n\nUsage: skein %s [OPTIONS]%s%s\n", cmd->name, cmd->summary, cmd->name,
           cmd->args ? " " : "", cmd->args ? cmd->args : "");
    if (cmd->text) printf("\n%s\n", cmd->text);
    printf("\nOptions:\n");
    for (u32 i = 0; i < n_opts(cmd); i++)
        if (nth_opt(cmd, i)->help) print_opt(nth_opt(cmd, i));
    printf("  %-28s this page\n", "-h, --help");
}

bool opts_parse(const struct opts_cmd *cmd, int argc, char **argv, int *n_args, int *exit_code) {
    struct err e = {0};
    enum log_level level;
    ASSERT(n_opts(cmd) <= ARRAY_LEN(((struct walk *)0)->given));
    if (opts_read(cmd, argc, argv, n_args, paths_env, &e)) {
        if (!log_level_text) return true;
        if (log_parse_level(log_level_text, &level, &e)) {
            log_set_level(level, level);
            setenv("SKEIN_LOG_LEVEL", log_level_text, 1); /* for runners */
            return true;
        }
    }
    if (e.code == ERR_NONE) {
        print_help(cmd);
        *exit_code = EXIT_OK;
    } else {
        fprintf(stderr, "skein %s: %s\n", cmd->name, e.msg);
        *exit_code = EXIT_USAGE;
    }
    return false;
}

int opts_fail(const struct err *e) {
    fprintf(stderr, "skein: %s\n", e->msg);
    return e->code == ERR_ARG ? EXIT_USAGE : EXIT_FAIL;
}
