/* nodes_table.h - a cluster's nodes and links as text, out of the JSON of /state. Pure. */
#pragma once

#include "base/json.h"

/* One line a node with its hardware below it, then whoever was refused, and why. Ids are cut to
 * what tells the nodes apart. */
void nodes_table(const json_t *state, struct str *out);
/* One line a direction between two live nodes; "" when there are no links. */
void nodes_links(const json_t *state, struct str *out);
