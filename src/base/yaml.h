/* yaml.h - a small bounded tree over libyaml, for files people write: catalogue and inventory.
 *
 * Mappings, sequences and scalars (as text; typing is the reader's). No aliases, anchors, tags or
 * merge keys: each is an error with line and column. Limits: 256 KiB, 32 levels, 10,000 nodes. The
 * tree lives in the caller's arena. Pure. */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

enum yaml_kind { YAML_SCALAR, YAML_SEQ, YAML_MAP };

struct yaml {
    enum yaml_kind kind;
    u32 line;         /* from 1 */
    const char *key;  /* inside a mapping */
    const char *text; /* scalars */
    bool quoted;
    struct yaml *first, *next; /* children; siblings */
};

/* NULL and ERR_FORMAT or ERR_LIMIT "line L, column C: ..." on failure. Duplicate keys are refused.
 */
struct yaml *yaml_parse(struct view text, struct arena *a, struct err *e);
/* Child of a mapping; NULL when missing or y is no mapping. */
const struct yaml *yaml_get(const struct yaml *y, const char *key);
/* Text of a scalar child, or NULL. */
const char *yaml_text(const struct yaml *y, const char *key);
/* An unsigned number with digits and underscores; false when missing; *e only when it is no number.
 */
bool yaml_u64(const struct yaml *y, const char *key, u64 *out, struct err *e);
