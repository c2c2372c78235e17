/* column.h - names in tables: what a text takes of a terminal's line, which is neither its bytes
 * nor its characters. Pure. */
#pragma once

#include "base/str.h"

enum { COLUMN_CAP = 512 };

/* The text in `width` columns, spaces behind it; a longer one is as long as it is, up to `most`
 * columns, and cut between characters. A wide character (Chinese, Japanese, Korean, emoji) takes
 * two columns, a mark that joins the one before it none, all else one. Returns buf. */
const char *column_text(const char *s, u32 width, u32 most, char buf[COLUMN_CAP]);
