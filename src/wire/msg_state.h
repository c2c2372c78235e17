/* msg_state.h - the state that all nodes hold, as it travels and as it lies on disk, and the
 * proposals that change it. As msg_cluster.h. */
#pragma once

#include "wire/msg_cluster.h"

/* The instances that a session took, up to a number, have been seen here. One of those that is not
 * in the sender's list was deleted, however long ago. */
struct msg_seen {
    u64 session;
    u32 upto;
    u64 term;
};
/* A node that gets no new work. The higher version counts. */
struct msg_drain {
    const char *node;
    u64 version;
    u32 is_drained; /* bool */
};

/* MSG_STATE: all of it; small. Wanted entries and the ids of deleted ones merge from anyone.
 * Placements count only when they come from the master that the receiver follows, and are newer. */
struct msg_state {
    struct msg_claim session;    /* the master whose orders the placements are */
    u64 index;                   /* orders given in this session */
    struct wire_list wanted;     /* struct msg_wanted, by id */
    struct wire_list gone;       /* struct msg_string: deleted instances, oldest first */
    struct wire_list placements; /* struct msg_placement, by instance */
    struct wire_list seen;       /* struct msg_seen */
    struct wire_list drains;     /* struct msg_drain, by node */
};

/* What a node keeps on disk between runs. */
struct msg_saved {
    u64 term;
    struct wire_list wanted, gone;
    struct wire_list routes; /* struct msg_route: members it knew */
    struct wire_list seen, drains;
};

enum propose_kind {
    PROPOSE_WANT = 1,
    PROPOSE_UNWANT,
    PROPOSE_RELOAD,
    PROPOSE_DRAIN, /* node, by id or name: no new work; what runs there moves when it can */
    PROPOSE_UNDRAIN
};
/* MSG_PROPOSE: to the master, repeated until MSG_PROPOSED answers. */
struct msg_propose {
    u64 id; /* the asking node's number for it */
    u32 kind;
    struct msg_wanted wanted; /* only wanted.id for UNWANT and RELOAD */
    const char *node;         /* of DRAIN and UNDRAIN */
};
struct msg_proposed {
    u64 id;
    u32 code; /* enum err_code; 0: done */
    const char *text, *instance;
};
