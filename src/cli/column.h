/* column.h - names in tables: what a text takes of a terminal's line, which is neither its bytes
 * nor its characters. Pure. */
#pragma once

#include "base/str.h"

enum { COLUMN_CAP = 512 };

/* Columns of the text: two for a wide character (Chinese, Japanese, Korean, emoji), none for a mark
 * that joins the one before it, one for all else. */
u32 column_width(const char *s);

/* The text in `width` columns, spaces behind it; a longer one is as long as it is, up to `most`
 * columns, and cut between characters. Returns buf. */
const char *column_text(const char *s, u32 width, u32 most, char buf[COLUMN_CAP]);
