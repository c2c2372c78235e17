/* template_text.h - code points as Python's str sees them, for the template interpreter.
 *
 * Classes and case mappings come from tables (template_unicode_tab.c, written by
 * tools/make_unicode_tab.py). Texts here are valid UTF-8: sources and JSON are checked on entry
 * and every operation keeps it so. Pure functions over constant data, any thread. */
#pragma once

#include "base/base.h"
#include "base/str.h"

enum { /* bits of tmpl_cp_class: what Python's str methods ask */
    CP_SPACE = 1 << 0,
    CP_ALPHA = 1 << 1,
    CP_DECIMAL = 1 << 2,
    CP_DIGIT = 1 << 3,
    CP_NUMERIC = 1 << 4,
    CP_UPPER = 1 << 5,
    CP_LOWER = 1 << 6,
    CP_TITLE = 1 << 7,
    CP_CASED = 1 << 8,
    CP_IGNORABLE = 1 << 9, /* case-ignorable: skipped when looking for a final sigma */
    CP_PRINTABLE = 1 << 10,
    CP_ID_START = 1 << 11,
    CP_ID_CONTINUE = 1 << 12,
    CP_WORD = 1 << 13, /* \w of Python's re */
    CP_ALNUM = CP_ALPHA | CP_DECIMAL | CP_DIGIT | CP_NUMERIC,
};

/* The table's shape. */
struct tmpl_case_range {
    u32 first, last, step;
    i32 delta;
};
struct tmpl_case_special {
    u32 cp, to[3]; /* 0-terminated when shorter */
};
extern const u16 tmpl_cp_classes[];
extern const u32 tmpl_cp_runs[];
extern const size_t tmpl_n_cp_runs;
extern const struct tmpl_case_range tmpl_upper_ranges[], tmpl_lower_ranges[], tmpl_title_ranges[];
extern const size_t tmpl_n_upper_ranges, tmpl_n_lower_ranges, tmpl_n_title_ranges;
extern const struct tmpl_case_special tmpl_upper_specials[], tmpl_lower_specials[],
    tmpl_title_specials[];
extern const size_t tmpl_n_upper_specials, tmpl_n_lower_specials, tmpl_n_title_specials;

u32 tmpl_cp_class(u32 cp);

enum tmpl_case { CASE_UPPER, CASE_LOWER, CASE_TITLE };
/* The full mapping of one code point: 1..3 code points. Knows nothing of context. */
int tmpl_case_map(u32 cp, enum tmpl_case c, u32 to[3]);
/* True when the sigma at byte `at` of s ends a word, so that its lower case is U+03C2. */
bool tmpl_sigma_is_final(struct view s, size_t at);

/* Decodes the code point at s.p[*at] and moves *at behind it. *at < s.n is the caller's duty. */
u32 tmpl_cp_next(struct view s, size_t *at);
/* Moves *at before the preceding code point and returns it. *at > 0 is the caller's duty. */
u32 tmpl_cp_prev(struct view s, size_t *at);
size_t tmpl_cp_count(struct view s);
/* Byte offset of code point i, counted from byte `from`; s.n when there are fewer. */
size_t tmpl_cp_offset(struct view s, size_t from, size_t i);

/* First or last place of needle, SIZE_MAX when it is not there. */
size_t tmpl_find(struct view s, struct view needle);
size_t tmpl_rfind(struct view s, struct view needle);
/* Strips white space (chars == NULL) or the code points in *chars at the chosen ends. */
struct view tmpl_strip(struct view s, const struct view *chars, bool left, bool right);
/* Cuts the first line off *s into *line, without its end unless keep_end. False when *s is empty.
 * Ends are those of str.splitlines. */
bool tmpl_next_line(struct view *s, bool keep_end, struct view *line);
