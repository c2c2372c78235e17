/* template_value.h - the values a template computes with.
 *
 * A struct tval is 16 bytes and copied freely; what it points to lives in the rendering's arena
 * (or in the compiled template or the parsed JSON, which outlive it) and is never freed earlier.
 * Semantics are those of the Python objects that jinja2 would hold. Names inside the template
 * module begin with tmpl_. All of this belongs to the one thread that renders. */
#pragma once

#include "base/arena.h"
#include "base/base.h"
#include "base/err.h"
#include "base/str.h"
#include "formats/template_text.h"

enum tval_kind {
    T_ABSENT, /* no value: an argument that was not given */
    T_UNDEF,
    T_NONE,
    T_BOOL,
    T_INT, /* 64 bits; overflow is an error where Python would grow */
    T_FLOAT,
    T_STR,
    T_LIST,
    T_TUPLE, /* sub 1: an item of groupby, with .grouper and .list */
    T_DICT,
    T_VIEW, /* of a dict; sub is enum view_sub */
    T_RANGE,
    T_ITER, /* an iterator: what is read from it is gone */
    T_NAMESPACE,
    T_LOOP,
    T_MACRO,
    T_FUNC,   /* a global function */
    T_METHOD, /* a function bound to a value */
    T_CYCLER,
    T_JOINER,
};
enum view_sub { VIEW_KEYS, VIEW_VALUES, VIEW_ITEMS };

struct tval {
    u8 kind, sub;
    union {
        bool b;
        i64 i;
        double f;
        struct tstr *s;
        struct tundef *undef;
        struct tlist *list;   /* T_LIST, T_TUPLE */
        struct tdict *dict;   /* T_DICT, T_VIEW, T_NAMESPACE */
        struct trange *range;
        struct titer *iter;
        struct tloop *loop; /* template_run.h and template_builtin.h have these */
        struct tmacro *macro;
        const struct tfunc *func;
        struct tmethod *method;
        struct tcycler *cycler;
        struct tjoiner *joiner;
        const void *p; /* identity of whatever it is */
    };
};

struct tstr {
    struct view v;  /* valid UTF-8, borrowed or in the arena, not NUL-terminated */
    size_t n_cp;    /* code points; SIZE_MAX: not counted yet */
    bool markup;    /* came through |safe or |escape: + and join escape the other side */
    struct tbuf *grown; /* where + put it; NULL: elsewhere */
};
struct tlist {
    struct tval *v;
    size_t n, cap;
};
struct tpair {
    struct tval key, val;
};
struct tdict { /* insertion order, as Python's */
    struct tpair *v;
    size_t n, cap;
    u32 *index; /* open addressing, entry + 1; NULL while n is small */
    size_t index_cap;
};
struct trange {
    i64 start, stop, step;
    size_t n;
};
struct titer {
    struct tlist *items; /* NULL: `call` has still to make them */
    size_t pos;
    struct tcall *call;       /* of the filter, when it works lazily */
    const struct tnode *at;   /* where */
    const char *name;         /* for its repr */
};
struct tundef { /* the message is made when somebody needs it */
    const char *hint;     /* the whole message, or NULL */
    const char *obj_type; /* "dict object", or NULL for a plain name */
    struct tval name;
};

struct tbuf { /* a growing string in the arena */
    char *p;
    size_t n, cap;
};

struct trun; /* template_run.h: one rendering */

static inline struct tval tmpl_none(void) { return (struct tval){.kind = T_NONE}; }
static inline struct tval tmpl_bool(bool b) { return (struct tval){.kind = T_BOOL, .b = b}; }
static inline struct tval tmpl_int(i64 i) { return (struct tval){.kind = T_INT, .i = i}; }
static inline struct tval tmpl_float(double f) { return (struct tval){.kind = T_FLOAT, .f = f}; }
struct tval tmpl_str(struct trun *r, struct view borrowed);
struct tval tmpl_strz(struct trun *r, const char *literal);
struct tval tmpl_str_copy(struct trun *r, struct view v);
struct tval tmpl_list(struct trun *r); /* a new empty one */
struct tval tmpl_tuple(struct trun *r, const struct tval *v, size_t n); /* copies v */
struct tval tmpl_dict(struct trun *r);
/* An iterator over `items`, called `name` in its repr. */
struct tval tmpl_iter(struct trun *r, struct tval items, const char *name);
/* Makes the items of an iterator that has none yet. */
MUST_CHECK bool tmpl_iter_fill(struct trun *r, struct titer *it);
/* obj T_ABSENT: a name that is not there; else what `obj` has no attribute or element of. */
struct tval tmpl_undef(struct trun *r, struct tval obj, struct tval name);
struct tval tmpl_undef_hint(struct trun *r, const char *hint);

void tmpl_push(struct trun *r, struct tlist *l, struct tval v);
/* Pointer to the value under key, or NULL. *fail when the key is unhashable (may be NULL for
 * string keys). */
struct tval *tmpl_dict_get(struct trun *r, const struct tdict *d, struct tval key, bool *fail);
struct tval *tmpl_dict_getz(struct trun *r, const struct tdict *d, const char *key);
MUST_CHECK bool tmpl_dict_set(struct trun *r, struct tdict *d, struct tval key, struct tval val);
/* For keys known to be new. */
void tmpl_dict_append(struct trun *r, struct tdict *d, struct tval key, struct tval val);

void tmpl_put(struct trun *r, struct tbuf *b, struct view v);
void tmpl_putz(struct trun *r, struct tbuf *b, const char *z);
void tmpl_putc(struct trun *r, struct tbuf *b, u32 cp);
void tmpl_put_fill(struct trun *r, struct tbuf *b, u32 cp, size_t n);
/* left followed by right. A string that is appended to again and again grows in place, so that
 * templates which collect their output in a variable take linear time and memory. */
struct tval tmpl_append(struct trun *r, struct tval left, struct view right);
/* The finished string; b is spent. */
struct tval tmpl_buf_str(struct trun *r, struct tbuf *b);

const char *tmpl_type_name(struct tval v); /* Python's: "str", "NoneType" */
size_t tmpl_str_len(struct tval s); /* code points */
bool tmpl_truth(struct trun *r, struct tval v);
/* bool and int give *i. */
bool tmpl_is_int(struct tval v, i64 *i);
bool tmpl_is_num(struct tval v, double *f);
/* False and TypeError when v has no length. */
MUST_CHECK bool tmpl_len(struct trun *r, struct tval v, size_t *n);
/* These three walk containers: false on a limit, on unhashable or unordered things. */
MUST_CHECK bool tmpl_equal(struct trun *r, struct tval a, struct tval b, bool *eq);
MUST_CHECK bool tmpl_hash(struct trun *r, struct tval v, u64 *h);
MUST_CHECK bool tmpl_less(struct trun *r, struct tval a, struct tval b, const char *op, bool *lt);
MUST_CHECK bool tmpl_contains(struct trun *r, struct tval seq, struct tval v, bool *in);
/* Python's `is`, as far as it can be told. */
bool tmpl_same(struct tval a, struct tval b);

/* Walks any iterable, a list's live length included. */
struct tcursor {
    struct tval seq;
    size_t i;
};
/* TypeError when v can't be iterated. */
MUST_CHECK bool tmpl_cursor(struct trun *r, struct tval v, struct tcursor *c);
/* *out T_ABSENT at the end. False on failure. */
MUST_CHECK bool tmpl_next(struct trun *r, struct tcursor *c, struct tval *out);
/* A new list of everything that v yields. */
MUST_CHECK bool tmpl_to_list(struct trun *r, struct tval v, struct tval *list);

/* str(v) and repr(v), appended. */
MUST_CHECK bool tmpl_put_str(struct trun *r, struct tbuf *b, struct tval v);
MUST_CHECK bool tmpl_put_repr(struct trun *r, struct tbuf *b, struct tval v);
/* str(v) as a value; a string is returned as it is. */
MUST_CHECK bool tmpl_to_str(struct trun *r, struct tval v, struct tval *out);
/* Python's repr of a float. */
void tmpl_float_text(double f, char out[32]);
/* Appends s with & < > ' " escaped. */
void tmpl_put_escaped(struct trun *r, struct tbuf *b, struct view s);
