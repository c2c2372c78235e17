/* template_builtin.h - built-in functions: filters, tests, methods of values, global functions.
 *
 * They are table rows (struct tfunc). A row's `params` names its parameters in order, "?" behind
 * the optional ones, "-" for one that has no keyword; "*" alone means that the function reads
 * call->pos and call->kw itself. */
#pragma once

#include "formats/template_run.h"

enum { CALL_ARGS_MAX = 4 };

struct tcall {
    struct tval self;               /* what a filter, test or method works on */
    struct tval arg[CALL_ARGS_MAX]; /* by parameter; T_ABSENT where not given */
    const struct tval *pos;         /* as they were passed */
    size_t n_pos;
    const struct tdict *kw; /* NULL: none */
    const struct tfunc *func;
    struct tval out;
};
typedef bool tmpl_fn(struct trun *r, struct tcall *c);

struct tfunc {
    const char *name;
    const char *params;
    tmpl_fn *fn; /* NULL: known to jinja2, refused here */
    u32 tag;     /* FUNC_LAZY, or what fn wants to know about its row */
};
/* As a generator in Python: fn gives a list, but runs only when somebody wants the first item. */
enum { FUNC_LAZY = 1u << 31 };

struct tmethod { /* a function bound to a value */
    struct tval self;
    const struct tfunc *func;
};

struct tcycler {
    struct tlist *items;
    size_t pos;
};
struct tjoiner {
    struct tval sep;
    bool used;
};

/* Runs a built-in: binds the arguments to its parameters first. */
MUST_CHECK bool tmpl_call_func(struct trun *r, const struct tfunc *f, struct tcall *c);

/* text % args and text.format(...). */
MUST_CHECK bool tmpl_percent(struct trun *r, struct tval text, struct tval args, struct tval *out);
MUST_CHECK bool tmpl_format(struct trun *r, struct tval text, struct tcall *c);

/* Appends the time, seconds since 1970 of a clock without zone, as strftime has it. */
void tmpl_put_time(struct trun *r, struct tbuf *b, struct view format, i64 unix_s);

/* Values of a JSON object text, by variable name, into r->globals. The strings borrow from what
 * *keep holds: release it with tmpl_json_free after rendering. */
MUST_CHECK bool tmpl_json_load(struct trun *r, struct view json, void **keep);
void tmpl_json_free(void *keep);
bool tmpl_f_tojson(struct trun *r, struct tcall *c);

/* Appends bytes [from, to) of s in another case; the rest of s is context. */
void tmpl_put_case(struct trun *r, struct tbuf *b, struct view s, size_t from, size_t to,
                   enum tmpl_case how);
/* Appends s with up to `count` (-1: all) places of `from` replaced. */
MUST_CHECK bool tmpl_replace(struct trun *r, struct tbuf *b, struct view s, struct view from,
                             struct view to, i64 count);

/* Sorts items in place and stably, as Python's sorted(). keys[i] belongs to item i; NULL: the
 * items themselves. False when two can't be compared. */
MUST_CHECK bool tmpl_sort(struct trun *r, struct tlist *items, const struct tlist *keys,
                          bool reverse);

const struct tfunc *tmpl_filter(struct view name); /* NULL: no such name */
const struct tfunc *tmpl_test(struct view name);
const struct tfunc *tmpl_seq_filter(struct view name); /* the half in template_seq.c */
/* NULL: no such method. A row without fn is one that Python has and skein refuses. */
const struct tfunc *tmpl_method(struct tval self, struct view name);
/* Sets range, dict, namespace and so on. */
void tmpl_set_globals(struct trun *r);
const struct tfunc *tmpl_find_func(const struct tfunc *table, size_t n, struct view name);

/* Parts that filters and methods share. */
bool tmpl_is_case(struct view s, u32 want, u32 other); /* str.islower, str.isupper */
void tmpl_reverse(struct tlist *l);

/* Argument i as an integer, `missing` where absent or None. */
MUST_CHECK bool tmpl_arg_int(struct trun *r, const struct tcall *c, int i, i64 missing, i64 *out);
/* Argument i as a string; TypeError otherwise. */
MUST_CHECK bool tmpl_arg_str(struct trun *r, const struct tcall *c, int i, struct view *out);
bool tmpl_arg_truth(struct trun *r, const struct tcall *c, int i, bool missing);
