/* template.h - an interpreter for the Jinja subset that published chat templates use.
 *
 * Compiled once per model, rendered per request. Output equals Python's jinja2 with the settings
 * that Hugging Face transformers uses (trim_blocks, lstrip_blocks, loop controls, its `tojson`,
 * `raise_exception`, `strftime_now`). What it does not know is an error with line and column.
 * A compiled template is immutable and shareable; rendering allocates in its own arena. Limits on
 * nesting, output and steps make hostile templates end with ERR_LIMIT. */
#pragma once

#include "base/base.h"
#include "base/err.h"
#include "base/str.h"

struct template;

struct template_limits {
    u32 max_depth;        /* nesting of blocks, expressions, calls and values; 0 = 256 */
    u64 max_output_bytes; /* 0 = 16 MiB */
    u64 max_steps;        /* node evaluations and items walked; 0 = 20 million */
    u64 max_memory_bytes; /* of all values made on the way; 0 = 256 MiB */
};

/* Copies the source (UTF-8, at most 4 MiB). NULL and *e (ERR_FORMAT, ERR_UNSUPPORTED or ERR_LIMIT,
 * "line L, column C: ..."; columns count code points). */
struct template *template_compile(struct view source, struct err *e);
void template_free(struct template *t);

/* Appends to *out, which may be left with part of the text on failure.
 * `vars_json`: a JSON object text whose members are the template's variables (messages, tools,
 * add_generation_prompt, bos_token, ...); key order of objects is kept, as in Python. transformers
 * always passes messages, tools, documents (null where there are none) and add_generation_prompt.
 * now_s: what strftime_now formats (Unix seconds; local offset utc_offset_s), so that the module
 * stays pure. limits may be NULL. A template's raise_exception gives ERR_ARG with its message;
 * other failures name line and column. */
bool template_render(const struct template *t, struct view vars_json, i64 now_s, i32 utc_offset_s,
                     const struct template_limits *limits, struct str *out, struct err *e);
/* True when the template's source mentions the variable: e.g. "tools", "enable_thinking". */
bool template_uses(const struct template *t, const char *var);
