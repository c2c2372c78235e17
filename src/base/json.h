/* json.h - reading JSON through jansson with our limits, and a small writer for the hot paths.
 *
 * json_parse is strict: UTF-8, no duplicate keys, no trailing bytes, bounded depth (jansson's
 * 2048); errors carry line and column. What it returns is a json_t reference owned by the caller.
 * The writer appends to a struct str and needs no DOM; the caller keeps the brackets balanced. */
#pragma once

#include <jansson.h>

#include "base/err.h"
#include "base/str.h"

/* NULL and ERR_FORMAT "JSON, line L, column C: ..." on failure. Any JSON value; NUL escapes are
 * refused. */
json_t *json_parse(struct view text, struct err *e);
/* Compact text of a value, appended. */
void json_dump(const json_t *j, struct str *out);

/* One string literal with quotes; ill-formed UTF-8 becomes U+FFFD. */
void json_add_str(struct str *out, struct view s);
/* ["key": ] with a comma before it unless the last byte is an opening bracket. */
void json_key(struct str *out, const char *key);
/* A comma unless the last byte is an opening bracket: before an array's element. */
void json_comma(struct str *out);
void json_put_str(struct str *out, const char *key, const char *value); /* NULL writes null */
void json_put_view(struct str *out, const char *key, struct view value);
void json_put_int(struct str *out, const char *key, i64 value);
void json_put_u64(struct str *out, const char *key, u64 value);
/* Shortest of up to 9 digits; null for NaN and infinities, which JSON lacks. */
void json_put_num(struct str *out, const char *key, double value);
void json_put_bool(struct str *out, const char *key, bool value);
void json_put_null(struct str *out, const char *key);
