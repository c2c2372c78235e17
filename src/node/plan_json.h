/* plan_json.h - a plan as JSON, for `skein plan`: what each candidate needs and is expected to do.
 * Pure arithmetic over the plan; any thread. */
#pragma once

#include "base/str.h"
#include "cluster/plan.h"

const char *plan_sharding_name(u32 sharding); /* "Pipeline" */
/* What keeps a layout from being faster: "memory bandwidth of studio". */
const char *plan_limit(const struct plan *s, const struct place_plan *p, char buf[96]);
/* The whole answer. extra[n_extra]: machines that are not there, each tried alone. */
void plan_json(const struct plan *s, const struct msg_wanted *w, const struct place_node *extra,
               const struct place_link *extra_link, u32 n_extra, struct str *o);
/* GET /instance/previews (plans.c): for each sharding the layouts there are, or why there is none.
 */
void plans_previews(struct plan *s, const struct msg_wanted *w, struct str *o);
