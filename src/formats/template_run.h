/* template_run.h - how a template is executed: evaluation, built-in functions, scopes, loops.
 *
 * Built-ins are table rows (struct tfunc): filters, tests, methods of values, global functions.
 * A row's `params` names its parameters in order, "?" behind the optional ones, "-" for one that
 * has no keyword; "*" alone means that the function reads call->pos and call->kw itself. */
#pragma once

#include "formats/template_ast.h"
#include "formats/template_value.h"

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
    u32 kinds;   /* a test that only asks for the kind: 1 << enum tval_kind, or-ed; a filter:
                    FUNC_LAZY; some methods: what tells them apart from their neighbours */
};
/* As a generator in Python: fn gives a list, but runs only when somebody wants the first item. */
enum { FUNC_LAZY = 1u << 31 };
struct tmethod {
    struct tval self;
    const struct tfunc *func;
};

struct tscope { /* variables set since a block was entered */
    struct tscope *up;
    struct tvar {
        u32 name;
        struct tval v;
    } *var;
    u32 n, cap;
};

struct tmacro {
    const struct tmacro_def *def;
    struct tscope *scope; /* where it was defined */
};

struct tloop {
    const struct tnode *node;
    const struct tnode *test; /* the loop's `if`, NULL when there is none (left) */
    struct tscope *outer;     /* the scope around the loop */
    struct tcursor src;
    struct tval whole;    /* what is iterated, for its length */
    bool have_after;
    struct tval before, current, after, last_changed;
    i64 index0;
    i64 length; /* -1: not known yet */
    i64 depth0;
};

struct tcycler {
    struct tlist *items;
    size_t pos;
};
struct tjoiner {
    struct tval sep;
    bool used;
};

/* ---- template_eval.c ---- */

MUST_CHECK bool tmpl_eval(struct trun *r, const struct tnode *n, struct tval *out);
/* Runs a built-in: binds the arguments to its parameters first. */
MUST_CHECK bool tmpl_call_func(struct trun *r, const struct tfunc *f, struct tcall *c);
/* Calls whatever can be called. */
MUST_CHECK bool tmpl_call(struct trun *r, struct tval callee, struct tcall *c);
MUST_CHECK bool tmpl_eval_args(struct trun *r, const struct targs *a, struct tcall *c);

/* ---- template_exec.c ---- */

MUST_CHECK bool tmpl_exec(struct trun *r, const struct tnode *body);
MUST_CHECK bool tmpl_call_macro(struct trun *r, const struct tmacro *m, struct tcall *c);
/* loop(items) in a recursive loop. */
MUST_CHECK bool tmpl_call_loop(struct trun *r, struct tloop *l, struct tcall *c);
struct tval tmpl_lookup(struct trun *r, u32 name);

/* ---- template_loop.c: what `loop` knows ---- */

/* Prepares l for `node` over iterable `items`. */
MUST_CHECK bool tmpl_loop_init(struct trun *r, struct tloop *l, const struct tnode *node,
                               struct tval items);
/* The next item that passes the loop's `if`; *out T_ABSENT at the end. */
MUST_CHECK bool tmpl_loop_next(struct trun *r, struct tloop *l, struct tval *out);
/* Reads the rest of the source when its length can't be known otherwise. */
MUST_CHECK bool tmpl_loop_length(struct trun *r, struct tloop *l, size_t *n);
/* loop.NAME; T_ABSENT when there is none. */
MUST_CHECK bool tmpl_loop_attr(struct trun *r, struct tval loop, struct view name,
                               struct tval *out);
/* Binds an item to a for target. */
MUST_CHECK bool tmpl_assign(struct trun *r, const struct tnode *target, struct tval v);

/* ---- template_arith.c: operators and access ---- */

MUST_CHECK bool tmpl_binary(struct trun *r, enum ttok_kind op, struct tval a, struct tval b,
                            struct tval *out);
MUST_CHECK bool tmpl_negate(struct trun *r, bool minus, struct tval a, struct tval *out);
MUST_CHECK bool tmpl_compare(struct trun *r, enum cmp_op op, struct tval a, struct tval b,
                             bool *yes);

/* ---- template_access.c ---- */

/* obj.name: attributes first, then items. obj[key]: the other way round. */
MUST_CHECK bool tmpl_attr(struct trun *r, struct tval obj, struct tval name, struct tval *out);
MUST_CHECK bool tmpl_item(struct trun *r, struct tval obj, struct tval key, struct tval *out);
/* Bounds are T_NONE where left out. */
MUST_CHECK bool tmpl_slice(struct trun *r, struct tval obj, const struct tval bounds[3],
                           struct tval *out);

/* ---- template_format.c ---- */

/* text % args and text.format(...). */
MUST_CHECK bool tmpl_percent(struct trun *r, struct tval text, struct tval args, struct tval *out);
MUST_CHECK bool tmpl_format(struct trun *r, struct tval text, struct tcall *c);

/* ---- template_json.c ---- */

/* Values of a JSON object text, by variable name, into r->globals. The strings borrow from what
 * *keep holds: release it with tmpl_json_free after rendering. */
MUST_CHECK bool tmpl_json_load(struct trun *r, struct view json, void **keep);
void tmpl_json_free(void *keep);
bool tmpl_f_tojson(struct trun *r, struct tcall *c);

/* ---- template_filters.c ---- */

/* Appends bytes [from, to) of s in another case; the rest of s is context. */
void tmpl_put_case(struct trun *r, struct tbuf *b, struct view s, size_t from, size_t to,
                   enum tmpl_case how);
/* Appends s with up to `count` (-1: all) places of `from` replaced. */
MUST_CHECK bool tmpl_replace(struct trun *r, struct tbuf *b, struct view s, struct view from,
                             struct view to, i64 count);

/* ---- template_seq.c ---- */

/* Sorts items in place and stably, as Python's sorted(). keys[i] belongs to item i; NULL: the
 * items themselves. False when two can't be compared. */
MUST_CHECK bool tmpl_sort(struct trun *r, struct tlist *items, const struct tlist *keys,
                          bool reverse);

/* ---- tables ---- */

const struct tfunc *tmpl_filter(struct view name); /* NULL: no such name */
const struct tfunc *tmpl_test(struct view name);
const struct tfunc *tmpl_seq_filter(struct view name);  /* the half in template_seq.c */
/* NULL: no such method. A row without fn is one that Python has and skein refuses. */
const struct tfunc *tmpl_method(struct tval self, struct view name);
/* Sets range, dict, namespace and so on. */
void tmpl_set_globals(struct trun *r);
const struct tfunc *tmpl_find_func(const struct tfunc *table, size_t n, struct view name);

/* Parts that filters and methods share. */
bool tmpl_is_case(struct view s, u32 want, u32 other); /* str.islower, str.isupper */
void tmpl_reverse(struct tlist *l);

/* ---- helpers of built-ins (template_eval.c) ---- */

/* Argument i as an integer, `missing` where absent or None. */
MUST_CHECK bool tmpl_arg_int(struct trun *r, const struct tcall *c, int i, i64 missing, i64 *out);
/* Argument i as a string; TypeError otherwise. */
MUST_CHECK bool tmpl_arg_str(struct trun *r, const struct tcall *c, int i, struct view *out);
bool tmpl_arg_truth(struct trun *r, const struct tcall *c, int i, bool missing);
