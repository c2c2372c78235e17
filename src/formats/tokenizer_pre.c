#define PCRE2_CODE_UNIT_WIDTH 8
#include "formats/tokenizer_pre.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

/* Offsets at which pieces end, ascending. */
struct cuts {
    u32 *p;
    size_t n, cap;
};

struct tokenizer_pre_scratch {
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
    struct cuts cuts, next;
    struct str shadow;
};

enum { JIT_STACK_MIN = 64 << 10, JIT_STACK_MAX = 64 << 20 };

/* An end that would make an empty piece is dropped. */
static void cuts_add(struct cuts *c, size_t end) {
    if (end == (c->n ? c->p[c->n - 1] : 0)) return;
    if (c->n == c->cap) {
        c->cap = c->cap ? c->cap * 2 : 256;
        c->p = xrealloc(c->p, c->cap * sizeof *c->p);
    }
    c->p[c->n++] = (u32)end;
}

/* Whether the list of names, separated by spaces, has this one. */
static bool names_have(const char *names, struct view name) {
    while (*names) {
        size_t n = strcspn(names, " ");
        if (n == name.n && memcmp(names, name.p, n) == 0) return true;
        names += n + strspn(names + n, " ");
    }
    return false;
}

bool tokenizer_pre_init(struct tokenizer_pre *p, struct view name, struct err *e) {
    for (size_t i = 0; i < tokenizer_pre_tab_n && !p->row; i++)
        if (names_have(tokenizer_pre_tab[i].names, name)) p->row = &tokenizer_pre_tab[i];
    if (!p->row)
        return err_set(e, ERR_UNSUPPORTED,
                       "tokenizer.ggml.pre \"%.*s\" is a pre-tokenizer that "
                       "skein does not know",
                       (int)MIN(name.n, 60), name.p ? name.p : "");
    for (; p->n_steps < TOKENIZER_PRE_STEPS_MAX && p->row->step[p->n_steps]; p->n_steps++) {
        PCRE2_SPTR regex = (PCRE2_SPTR)p->row->step[p->n_steps];
        u32 options = PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY;
        int code;
        PCRE2_SIZE at;
        pcre2_code *c = pcre2_compile(regex, PCRE2_ZERO_TERMINATED, options, &code, &at, NULL);
        if (!c)
            return err_set(e, ERR_INTERNAL,
                           "PCRE2 refuses step %u of pre-tokenizer \"%.*s\" at "
                           "offset %zu (error %d)",
                           p->n_steps + 1, VIEW_FMT(name), at, code);
        pcre2_jit_compile(c, PCRE2_JIT_COMPLETE); /* where it can't, matching is slower */
        p->code[p->n_steps] = c;
    }
    return true;
}

void tokenizer_pre_deinit(struct tokenizer_pre *p) {
    for (u32 i = 0; i < p->n_steps; i++) pcre2_code_free(p->code[i]);
    *p = (struct tokenizer_pre){0};
}

struct tokenizer_pre_scratch *tokenizer_pre_scratch_new(void) {
    struct tokenizer_pre_scratch *s = xcalloc(1, sizeof *s);
    s->match = pcre2_match_data_create(1, NULL); /* the whole match is all we look at */
    s->context = pcre2_match_context_create(NULL);
    s->stack = pcre2_jit_stack_create(JIT_STACK_MIN, JIT_STACK_MAX, NULL);
    ASSERT(s->match && s->context);
    if (s->stack) pcre2_jit_stack_assign(s->context, NULL, s->stack);
    return s;
}

void tokenizer_pre_scratch_free(struct tokenizer_pre_scratch *s) {
    if (!s) return;
    pcre2_match_data_free(s->match);
    pcre2_match_context_free(s->context);
    pcre2_jit_stack_free(s->stack);
    free(s->cuts.p);
    free(s->next.p);
    str_deinit(&s->shadow);
    free(s);
}

static u32 stand_in(u32 cp) {
    const struct tokenizer_stand_in *tab = tokenizer_stand_in_tab;
    size_t lo = 0, hi = tokenizer_stand_in_tab_n;
    if (cp < tab[0].first || cp > tab[hi - 1].last) return cp;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (tab[mid].last < cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    return tab[lo].first <= cp ? tab[lo].as : cp;
}

/* text with the stand-ins, or text itself when it has none. Same length either way. */
static struct view shadow_of(struct tokenizer_pre_scratch *s, struct view text) {
    str_clear(&s->shadow);
    for (size_t i = 0; i < text.n;) {
        u32 cp;
        int len = (u8)text.p[i] < 0xE0 ? 1 : utf8_decode(text.p + i, text.n - i, &cp);
        ASSERT(len > 0);
        u32 as = len > 2 ? stand_in(cp) : cp;
        if (len > 2 && as != cp) {
            if (s->shadow.n == 0) str_addv(&s->shadow, text);
            utf8_encode(as, s->shadow.p + i);
        }
        i += (size_t)len;
    }
    return s->shadow.n ? str_view(&s->shadow) : text;
}

/* Cuts a run of digits [start, end) of text into threes, counted from its end. */
static void cut_threes(struct cuts *out, struct view text, size_t start, size_t end, bool before) {
    size_t n = 0;
    for (size_t i = start; i < end; i++) n += ((u8)text.p[i] & 0xC0) != 0x80;
    for (size_t i = start; i < end; i++) {
        if (((u8)text.p[i] & 0xC0) == 0x80) continue;
        if (n % 3 == 0 && (before || i > start)) cuts_add(out, i);
        n--;
    }
    if (!before) cuts_add(out, end);
}

/* One match at or behind `from` in the piece [start, end) of text: 1 found, 0 none, -1 error. */
static int match(const pcre2_code *code, struct tokenizer_pre_scratch *s, struct view text,
                 size_t start, size_t end, size_t from, struct err *e) {
    u32 options = PCRE2_NO_UTF_CHECK; /* without it each call validates the rest of the text */
    PCRE2_SPTR p = (PCRE2_SPTR)text.p + start;
    size_t n = end - start;
    int rc = pcre2_match(code, p, n, from - start, options, s->match, s->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
        options |= PCRE2_NO_JIT;
        rc = pcre2_match(code, p, n, from - start, options, s->match, s->context);
    }
    if (rc >= 0) return 1;
    if (rc == PCRE2_ERROR_NOMATCH) return 0;
    err_set(e, ERR_LIMIT, "the pre-tokenizer gave up on %zu bytes of text (PCRE2 error %d)", n, rc);
    return -1;
}

/* Cuts the piece [start, end). */
static bool cut_piece(const struct tokenizer_pre *p, u32 step, struct tokenizer_pre_scratch *s,
                      struct view text, size_t start, size_t end, struct err *e) {
    const u32 both = TOKENIZER_PRE_THREES_BEFORE | TOKENIZER_PRE_THREES_AFTER;
    u32 threes = step == 0 ? p->row->flags & both : 0;
    size_t at = start;
    while (at < end) {
        int found = match(p->code[step], s, text, start, end, at, e);
        if (found < 0) return false;
        if (found == 0) break;
        const PCRE2_SIZE *o = pcre2_get_ovector_pointer(s->match);
        size_t from = start + o[0], to = start + o[1];
        if (threes) {
            cut_threes(&s->next, text, from, to, threes == TOKENIZER_PRE_THREES_BEFORE);
        } else {
            cuts_add(&s->next, from);
            cuts_add(&s->next, to);
        }
        at = to > at ? to : at + 1; /* no pattern of the table matches nothing */
    }
    cuts_add(&s->next, end);
    return true;
}

bool tokenizer_pre_split(const struct tokenizer_pre *p, struct tokenizer_pre_scratch *s,
                         struct view text, const u32 **ends, size_t *n, struct err *e) {
    struct view seen = shadow_of(s, text);
    s->cuts.n = 0;
    cuts_add(&s->cuts, text.n);
    for (u32 step = 0; step < p->n_steps; step++) {
        s->next.n = 0;
        for (size_t i = 0, start = 0; i < s->cuts.n; start = s->cuts.p[i++])
            if (!cut_piece(p, step, s, seen, start, s->cuts.p[i], e)) return false;
        struct cuts done = s->next;
        s->next = s->cuts;
        s->cuts = done;
    }
    *ends = s->cuts.p;
    *n = s->cuts.n;
    return true;
}
