/* cluster.h - the cluster as a pure function: who is there, who leads, what is wanted, where it
 * runs.
 *
 * One struct cluster is one node's view. cluster_step feeds it one thing that happened and says
 * what must be done about it; there is no I/O, no clock and no randomness in here, so a test can
 * run a thousand nodes in virtual time and replay any of it. The step belongs to the thread that
 * owns the struct (in the daemon: node_run's).
 *
 * What each part promises:
 *  - members.c: every node says hello (version, hardware) and beats once a second; silent for
 *    timeout_ms means lost. Incompatible versions are refused, and both sides say so.
 *  - facts.c: what a node measured of itself and its links is known to everyone.
 *  - elect.c: among nodes that see each other there is one master. A node that comes back never
 *    deposes it.
 *  - state.c: what is wanted is kept by every node and merges from anyone, deletions too; where it
 *    runs is the master's order.
 *  - orders.c: the master places what is wanted over live workers, again when a shard is lost.
 *  - moves.c: drained nodes give their work away, returned ones are used again; nothing pauses.
 *  - shards.c: each node starts, connects and stops the runners that the orders give it. */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "cluster/event.h"
#include "wire/msg.h"
#include "wire/msg_cluster.h"
#include "wire/msg_state.h"

enum {
    CLUSTER_BEAT_MS = 1000,
    CLUSTER_LOOK_MS = 200,      /* all timers are looked at this often */
    CLUSTER_SETTLE_MS = 3000,   /* after a start: time for known peers to show up */
    CLUSTER_FORGET_MS = 600000, /* a lost node disappears from the list */
    CLUSTER_PROPOSE_MS = 15000, /* a proposal without an answer fails */
    CLUSTER_TRIES_MAX = 6,      /* of a placement, failures in a row */
    CLUSTER_NODES_MAX = 1024,
    CLUSTER_INSTANCES_MAX = 256,
    CLUSTER_MERGED_MAX = 1024,      /* instances when parts of a cluster meet that had more each */
    CLUSTER_SEEN_MAX = 256,         /* masters' sessions that took instances */
    CLUSTER_GONE_MAX = 1024,        /* deleted ids remembered one by one */
    CLUSTER_EVENTS_MAX = 512,       /* of one step */
    CLUSTER_FACTS_LEAST_MS = 3000,  /* facts that change are told this often at most */
    CLUSTER_FACTS_MOST_MS = 60000,  /* and again after so long; both grow beyond 100 nodes */
    CLUSTER_FACTS_LISTS_MAX = 1024, /* links, GPUs or interfaces that are kept of a node */
    CLUSTER_ID_CAP = 65
};

struct cluster;

struct cluster_cfg {
    const char *id;
    struct msg_hello hello; /* of this node; routes and wants_hello are filled in here */
    u32 timeout_ms;
    bool has_peers;    /* others are expected: wait CLUSTER_SETTLE_MS before leading alone */
    bool force_master; /* lead whenever it is there, once it knows the orders of who led before */
};

enum cluster_kind {
    CLUSTER_TICK = 1,  /* at the latest when out->next_ms has come */
    CLUSTER_PEER_UP,   /* peer, address: the bus has a link */
    CLUSTER_PEER_DOWN, /* peer: it broke; number 1: and the peer's process has ended */
    CLUSTER_MESSAGE,   /* peer, type, body: a HELLO..REFUSED other than RELAY */
    CLUSTER_MACHINE,   /* machine: what this node has now */
    CLUSTER_RUNNER,    /* runner: a local runner changed */
    CLUSTER_PROPOSE,   /* propose: this node's user wants something; answered by DO_ANSWER */
    CLUSTER_HELLO,     /* the api_port (number) or the addresses (when not NULL) changed */
    CLUSTER_FACTS,     /* facts: what this node measured; boot and seq are filled in here */
    CLUSTER_FORGET,    /* peer: a lost node won't come back; the others are told. Nothing happens
                          to one that is here or connected */
};
struct cluster_machine {
    u64 mem_available_bytes, mem_limit_bytes, disk_available_bytes;
    u64 wall_ahead_ms; /* Unix time minus now_ms, told to the others; 0: not known */
};
struct cluster_input {
    enum cluster_kind kind;
    const char *peer, *address;
    u32 type;
    const void *body;
    size_t n;
    struct cluster_machine machine;
    const struct msg_runner *runner;
    const struct msg_propose *propose;
    const struct msg_facts *facts;
    u32 number;
    const struct wire_list *addresses; /* struct msg_string: all that this node has */
};

enum cluster_do {
    DO_SEND = 1, /* to, type, body */
    DO_DIAL,     /* address: a node that a peer told of */
    DO_HANGUP,   /* address: a node that was forgotten */
    DO_START,    /* wanted, rank, place: start the runner; report its life by CLUSTER_RUNNER */
    DO_CONNECT,  /* instance, place, peers[n_peers]: all ranks are loaded */
    DO_STOP,     /* instance, place: end that runner; no report is expected */
    DO_ANSWER,   /* propose_id, answer (ERR_NONE: done), instance */
    DO_LOG,      /* level, text: a state change, worth a line */
};
/* Pointers live until the next step with the same output. */
struct cluster_action {
    enum cluster_do what;
    const char *to, *address, *instance, *text;
    u32 type, level; /* level: enum log_level */
    const void *body;
    size_t n;
    u64 place, propose_id;
    const struct msg_wanted *wanted;
    const struct msg_placement *placement;
    u32 rank;
    const struct msg_peer *peers;
    u32 n_peers;
    const struct err *answer; /* a kilobyte, and most actions are none */
};
struct cluster_output {
    struct arena mem;
    struct cluster_event *events;
    u32 n_events, events_cap;
    bool events_lost; /* there were more than CLUSTER_EVENTS_MAX: look at the whole state */
    struct cluster_action *v;
    u32 n, cap;
    bool save;    /* put cluster_save's bytes on disk before doing the rest */
    bool changed; /* what cluster_view shows is different */
    u64 next_ms;  /* when to tick at the latest */
};

/* Copies cfg. `saved` is what cluster_save gave in an earlier run, n 0 for none; bytes that can't
 * be decoded are an error (ERR_FORMAT) so that the caller can put them aside. */
struct cluster *cluster_new(const struct cluster_cfg *cfg, const void *saved, size_t n, u64 now_ms,
                            struct err *e);
void cluster_free(struct cluster *c);
void cluster_step(struct cluster *c, const struct cluster_input *in, u64 now_ms,
                  struct cluster_output *out);
void cluster_output_deinit(struct cluster_output *out);
/* Appends the bytes for the disk. */
void cluster_save(const struct cluster *c, struct str *out);

enum member_state { MEMBER_SELF, MEMBER_LIVE, MEMBER_LOST, MEMBER_REFUSED, MEMBER_UNKNOWN };

/* What is shown of a node. Borrowed from the cluster until its next step. */
struct cluster_member {
    const char *id, *address; /* address: bus, as this node reaches it; "" of itself */
    enum member_state state;
    const char *refused;                   /* why, with both versions */
    const struct msg_hello *hello;         /* never NULL; zero of a node that was never heard */
    const struct msg_heartbeat *heartbeat; /* never NULL */
    const struct msg_facts *facts;         /* never NULL; zero until they came */
    u64 seen_ms_ago;
    bool is_drained;
    bool is_stopped; /* lost because it said goodbye */
};
u32 cluster_n_members(const struct cluster *c); /* itself is number 0 */
void cluster_member(const struct cluster *c, u32 i, u64 now_ms, struct cluster_member *out);
/* The master that this node follows: "" when there is none. */
const char *cluster_master(const struct cluster *c);
const struct msg_claim *cluster_claim(const struct cluster *c);
const struct msg_claim *cluster_session(const struct cluster *c); /* whose orders it has */
u64 cluster_term(const struct cluster *c);
u64 cluster_index(const struct cluster *c); /* orders of the present session that were applied */

enum instance_status {
    INSTANCE_WAITING, /* not placed: text says why */
    INSTANCE_FETCHING,
    INSTANCE_LOADING,
    INSTANCE_READY,
    INSTANCE_FAILED,  /* given up: text says why */
    INSTANCE_WARMING, /* all ranks have their layers, and connect or take memory */
};
struct cluster_instance {
    const struct msg_wanted *wanted;
    const struct msg_placement *placement; /* never NULL */
    const struct msg_rank *ranks;
    u32 n_ranks;
    enum instance_status status;
    const char *text; /* "" when there is nothing to say */
};
u32 cluster_n_instances(const struct cluster *c);
void cluster_instance(const struct cluster *c, u32 i, struct cluster_instance *out);
/* False when no such instance is wanted. */
bool cluster_find_instance(const struct cluster *c, const char *id, struct cluster_instance *out);
/* Somebody did not want it any more, and it was taken away; not so one that is merely unknown. */
bool cluster_was_deleted(const struct cluster *c, const char *id);
/* The latest word of rank's node about its runner of this placement; NULL before there is any, and
 * when the node is lost. */
const struct msg_runner *cluster_runner(const struct cluster *c, const struct cluster_instance *i,
                                        u32 rank);
