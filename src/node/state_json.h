/* state_json.h - shared by the files that write the node's state as JSON. On the node's thread.
 */
#pragma once

#include "node/node_parts.h"

/* A comma if need be, the key unless it is NULL, and an opening bracket. */
void state_json_open(struct str *o, const char *key, char bracket);
/* What is known of a rank's runner; never NULL. */
const struct msg_runner *state_json_fact(const struct node *n, const struct cluster_instance *i,
                                         u32 rank);

/* state_facts.c: members of a node's object; "links": [...] between all live nodes. */
void state_facts_put(struct str *o, const struct msg_facts *f);
void state_facts_links(const struct node *n, struct str *o, u64 now_ms);

/* "MlxRingInstance": {...} of one instance. n NULL: of one that is only planned; any thread. */
void state_exo_instance(const struct node *n, struct str *o, const struct cluster_instance *i);
/* exo's ModelCard of what is wanted. */
void state_exo_card(struct str *o, const char *key, const struct msg_wanted *w);
/* runners, downloads, topology, and the camelCase maps by node id. */
void state_exo_maps(const struct node *n, struct str *o);
