/* template_run.h - how a template is executed: the state of one rendering, scopes, macros, loops.
 *
 * Memory and steps are counted. Going over a limit sets run->failed and *run->e once; allocation
 * still succeeds (each single one is bounded), and the next tmpl_step ends the rendering. */
#pragma once

#include "formats/template_ast.h"
#include "formats/template_value.h"

struct tcall; /* template_builtin.h: a call and its arguments */

struct trun {
    const struct template *t;
    struct arena arena;
    struct err *e;
    bool failed;
    u8 jump; /* enum jump: a break or continue on its way to the loop */
    u64 steps_left, memory_max, output_max;
    u32 depth, depth_max;
    struct tbuf *out;         /* where output goes now */
    struct tscope *scope;     /* innermost */
    struct tval *globals;     /* [t->n_names], T_ABSENT where not set */
    const struct tnode *at;   /* blamed for a run-time error */
    i64 now_s;
    i32 utc_offset_s;
};

/* Spends n steps. False when the rendering has failed, now or earlier. */
MUST_CHECK bool tmpl_step(struct trun *r, u64 n);
/* False and ERR_LIMIT when n more bytes would pass the memory limit: ask before big requests. */
MUST_CHECK bool tmpl_room(struct trun *r, u64 n);
void *tmpl_alloc(struct trun *r, size_t n);
/* Enters one level of nesting; pair with r->depth--. Nothing to leave when it fails. */
MUST_CHECK bool tmpl_enter(struct trun *r);
/* "line L, column C: ..." of r->at, ERR_FORMAT. Always false. The first error stays. */
bool tmpl_fail(struct trun *r, const char *fmt, ...) PRINTF_LIKE(2, 3);
bool tmpl_fail_code(struct trun *r, enum err_code code, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* Fails with the message of an undefined value. */
bool tmpl_fail_undef(struct trun *r, struct tval v);

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

MUST_CHECK bool tmpl_eval(struct trun *r, const struct tnode *n, struct tval *out);
/* Calls whatever can be called. */
MUST_CHECK bool tmpl_call(struct trun *r, struct tval callee, struct tcall *c);
MUST_CHECK bool tmpl_eval_args(struct trun *r, const struct targs *a, struct tcall *c);

MUST_CHECK bool tmpl_exec(struct trun *r, const struct tnode *body);
MUST_CHECK bool tmpl_call_macro(struct trun *r, const struct tmacro *m, struct tcall *c);
/* loop(items) in a recursive loop. */
MUST_CHECK bool tmpl_call_loop(struct trun *r, struct tloop *l, struct tcall *c);
struct tval tmpl_lookup(struct trun *r, u32 name);

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

MUST_CHECK bool tmpl_binary(struct trun *r, enum ttok_kind op, struct tval a, struct tval b,
                            struct tval *out);
MUST_CHECK bool tmpl_negate(struct trun *r, bool minus, struct tval a, struct tval *out);
MUST_CHECK bool tmpl_compare(struct trun *r, enum cmp_op op, struct tval a, struct tval b,
                             bool *yes);

/* obj.name: attributes first, then items. obj[key]: the other way round. */
MUST_CHECK bool tmpl_attr(struct trun *r, struct tval obj, struct tval name, struct tval *out);
MUST_CHECK bool tmpl_item(struct trun *r, struct tval obj, struct tval key, struct tval *out);
/* Bounds are T_NONE where left out. */
MUST_CHECK bool tmpl_slice(struct trun *r, struct tval obj, const struct tval bounds[3],
                           struct tval *out);
