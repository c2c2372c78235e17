/* template_ast.h - tokens and syntax tree of a compiled template, and the parser that makes them.
 *
 * Everything lives in the template's arena and is immutable once compiled. Variable names are
 * interned: a name is its index in struct template's table. Grammar and precedence are jinja2's. */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"
#include "formats/template_value.h"

enum ttok_kind {
    TOK_EOF, TOK_DATA, TOK_VAR_BEGIN, TOK_VAR_END, TOK_BLOCK_BEGIN, TOK_BLOCK_END,
    TOK_NAME, TOK_STRING, TOK_INT, TOK_FLOAT,
    TOK_ADD, TOK_SUB, TOK_MUL, TOK_DIV, TOK_FLOORDIV, TOK_MOD, TOK_POW, TOK_TILDE,
    TOK_LBRACKET, TOK_RBRACKET, TOK_LPAREN, TOK_RPAREN, TOK_LBRACE, TOK_RBRACE,
    TOK_EQ, TOK_NE, TOK_GT, TOK_GE, TOK_LT, TOK_LE, TOK_ASSIGN,
    TOK_DOT, TOK_COLON, TOK_PIPE, TOK_COMMA, TOK_SEMICOLON,
};

struct ttok {
    enum ttok_kind kind;
    u32 line, col;
    struct view text; /* DATA and NAME as in the source; STRING with escapes resolved */
    i64 i;
    double f;
};

enum tnode_kind {
    /* expressions */
    N_CONST, N_NAME, N_LIST, N_TUPLE, N_DICT, N_COND, N_AND, N_OR, N_NOT, N_NEG, N_POS,
    N_BINARY, N_CONCAT, N_COMPARE, N_ATTR, N_ITEM, N_SLICE, N_CALL, N_FILTER, N_TEST,
    /* statements */
    N_TEXT, N_OUTPUT, N_IF, N_FOR, N_SET, N_SET_BLOCK, N_MACRO, N_CALL_BLOCK, N_FILTER_BLOCK,
    N_WITH, N_GENERATION, N_BREAK, N_CONTINUE,
    N_NS_ATTR, /* a.b as a target of set */
};

enum cmp_op { CMP_EQ, CMP_NE, CMP_LT, CMP_LE, CMP_GT, CMP_GE, CMP_IN, CMP_NOT_IN };

struct targs { /* of a call: f(pos, name=kw, *splat, **kw_splat) */
    struct tnode *pos; /* list */
    struct tnode *kw;  /* list; each one's kw_name is set */
    struct tnode *splat, *kw_splat;
};

struct tmacro_def {
    struct view name;
    struct tnode *params;   /* list of N_NAME */
    struct tnode *defaults; /* list, for the last params */
    u32 n_params, n_defaults;
    bool uses_caller, uses_varargs, uses_kwargs, explicit_caller;
    struct tnode *body;
};

struct tnode {
    enum tnode_kind kind;
    u32 line, col;
    struct tnode *next;  /* in the list this node is part of */
    struct view kw_name; /* of a keyword argument */
    union {
        struct tval value;   /* N_CONST */
        struct tstr str;     /* N_TEXT */
        u32 name;            /* N_NAME */
        struct tnode *expr;  /* N_OUTPUT */
        struct tnode *items; /* N_LIST, N_TUPLE, N_CONCAT; N_DICT: key, value, key, ... */

        /* N_COND; N_IF, where then and other are bodies */
        struct { struct tnode *test, *then, *other; bool other_is_elif; } cond;
        /* N_BINARY, N_AND, N_OR, N_ITEM (a[b]); N_NOT, N_NEG, N_POS: a alone */
        struct { struct tnode *a, *b; enum ttok_kind op; } bin;
        /* N_COMPARE: rest is a list of N_BINARY, operand in a, op an enum cmp_op */
        struct { struct tnode *first, *rest; } cmp;
        /* N_SLICE: each may be NULL */
        struct { struct tnode *from, *to, *step; } slice;
        struct { struct tnode *obj; struct tval name; } attr; /* N_ATTR */
        struct { u32 ns; struct tval name; } ns_attr;         /* N_NS_ATTR */
        struct { struct tnode *func; struct targs args; } call; /* N_CALL */
        /* N_FILTER, N_TEST. func NULL: unknown, an error if it is ever run. obj NULL: works on the
         * text of a filter or set block. */
        struct {
            struct tnode *obj;
            const struct tfunc *func;
            struct view name;
            struct targs args;
        } filter;

        /* N_FOR */
        struct { struct tnode *target, *iter, *test, *body, *other; bool recursive; } loop;
        struct { struct tnode *target, *value; } set; /* N_SET, and an item of N_WITH */
        struct { struct tnode *target, *filter, *body; } set_block; /* ... and N_FILTER_BLOCK */
        struct { u32 name; struct tmacro_def *def; } macro;         /* N_MACRO, N_GENERATION */
        struct { struct tnode *call; struct tmacro_def *def; } call_block; /* N_CALL_BLOCK */
        struct { struct tnode *items, *body; } with;                       /* N_WITH */
    };
};

struct template {
    struct arena arena;
    struct tnode *body;
    struct view *names; /* [n_names] of variables */
    u32 *name_index;    /* [2 * cap_names], name + 1 */
    u32 n_names, cap_names;
    u32 name_loop, name_caller, name_varargs, name_kwargs;
};

struct tparser {
    struct template *t;
    struct err *e;
    struct ttok *tok; /* current; the list ends with TOK_EOF */
    u32 depth;
    u32 soft;                 /* inside an if: unknown filters fail when run, as in jinja2 */
    u32 loops;                /* for break and continue */
    struct tmacro_def *macro; /* innermost one being parsed */
};

/* template_lex.c: all tokens of source, TOK_EOF at the end. NULL and *e on failure. The source
 * must be valid UTF-8; its bytes must outlive the tokens. */
struct ttok *tmpl_lex(struct arena *a, struct view source, struct err *e);

/* template_parse.c: statements, and what both parsers share. */
MUST_CHECK bool tmpl_parse(struct tparser *p, struct tnode **body);
/* How messages name a token: its text, or "end of template". */
const char *tmpl_describe(const struct ttok *t, char buf[64]);
/* "line L, column C: ..." of the token. Always false. */
bool tmpl_parse_fail(struct tparser *p, const struct ttok *at, enum err_code code, const char *fmt,
                     ...) PRINTF_LIKE(4, 5);
bool tmpl_expect(struct tparser *p, enum ttok_kind kind, const char *what);
bool tmpl_is_name(const struct ttok *t, const char *name);
bool tmpl_skip_name(struct tparser *p, const char *name);
struct tnode *tmpl_node(struct tparser *p, enum tnode_kind kind, const struct ttok *at);
u32 tmpl_intern(struct template *t, struct view name);
bool tmpl_find_name(const struct template *t, struct view name, u32 *id);
/* A string value in the template's arena; its length is counted, so that rendering only reads. */
struct tval tmpl_const_str(struct template *t, struct view borrowed);

/* template_expr.c: expressions. */
MUST_CHECK bool tmpl_parse_expr(struct tparser *p, bool with_cond, struct tnode **out);
/* a, b, c without parentheses. */
MUST_CHECK bool tmpl_parse_tuple(struct tparser *p, bool with_cond, struct tnode **out);
/* The | filters behind `obj` (NULL: the block's text); first: the | of the first is missing. */
MUST_CHECK bool tmpl_parse_filters(struct tparser *p, struct tnode *obj, bool first,
                                   struct tnode **out);
/* What may stand left of = or `in`. */
MUST_CHECK bool tmpl_parse_target(struct tparser *p, bool with_ns, struct tnode **out);
