/* event.h - what became different in a cluster, as data: struct cluster_output has a list of them.
 */
#pragma once

#include "base/base.h"

/* What became different, for people who watch: bounded, and no part of any decision. */
enum cluster_event_kind {
    EVENT_NODE_JOINED = 1, /* node: for the first time in this run */
    EVENT_NODE_LOST,
    EVENT_NODE_RETURNED,
    EVENT_NODE_REFUSED,   /* text: why */
    EVENT_NODE_FORGOTTEN, /* lost for CLUSTER_FORGET_MS */
    EVENT_NODE_DRAINED,
    EVENT_NODE_UNDRAINED,
    EVENT_MASTER,          /* node: who is followed now, "" when nobody is */
    EVENT_INSTANCE_WANTED, /* instance, model: of all of these */
    EVENT_INSTANCE_PLACED, /* text: on which nodes */
    EVENT_INSTANCE_READY,
    EVENT_INSTANCE_UNPLACED, /* text: why */
    EVENT_INSTANCE_FAILED,   /* given up; text: why */
    EVENT_INSTANCE_DELETED,
};
struct cluster_event {
    enum cluster_event_kind kind;
    const char *node, *name, *instance, *model, *text; /* never NULL; live as an action's */
    u64 term, index;                                   /* of the followed claim at that time */
};
/* The name as it is shown: "node_joined". */
const char *cluster_event_name(enum cluster_event_kind kind);
