/* plan_table.h - a plan's JSON (node/plan_json.h) as text. Pure. */
#pragma once

#include "base/json.h"

void plan_table(const json_t *plan, struct str *out);
