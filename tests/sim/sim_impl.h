/* sim_impl.h - the inside of the simulation, shared by sim.c and sim_check.c. */
#pragma once

#include "base/str.h"
#include "sim.h"

enum {
    LINK_EVERY_MS = 250,
    CUT_NOTICED_MS = 3000,
    MACHINE_EVERY_MS = 1000,
    PAUSED_MS = 50, /* what waits for a paused node is looked at again */
    WISHES_MAX = 2048,
    LAYERS = 24,
    /* Bounds that hold at every step. */
    MESSAGE_MAX = 8 << 20,
    DISK_MAX = 8 << 20,
    RIVALS_MS_MAX = 20000, /* two masters that see each other */
};

enum event_kind { EV_TICK, EV_MESSAGE, EV_UP, EV_DOWN, EV_LINKS, EV_RUNNER, EV_MACHINE };

/* A message under way, or a runner's report; the copies of a message share it. */
struct parcel {
    u32 n_refs;
    u32 type;
    size_t n;
    struct msg_runner fact;
    char instance[40];
    u8 body[];
};
struct event {
    u64 at_ms, order; /* order: of equal times the first pushed comes first */
    enum event_kind kind;
    u32 node, from;
    u64 life; /* of the node when it was pushed; an event for an earlier life is dropped */
    struct parcel *parcel;
};

struct runner {
    char instance[40];
    u64 place;
    u32 rank, n_ranks;
    u64 memory_bytes;
    bool loaded;
};

struct node {
    struct cluster *cluster; /* NULL while it is down */
    struct cluster_output out;
    char id[40], address[40];
    u64 life;
    u64 origin_ms; /* its monotonic clock: origin + rate * time */
    u32 rate_ppm;  /* 1,000,000 is right */
    i64 wall_s;    /* how wrong its wall clock is */
    u64 next_tick_ms;
    bool paused;
    u64 resumed_ms;
    enum { TEAR_NOTHING, TEAR_BEFORE, TEAR_AFTER } tears; /* the power fails in its next save */
    struct str disk;
    u64 saved_term;       /* on it */
    u8 saved[WISHES_MAX]; /* is the wish on the disk? */
    struct runner *runners;
    u32 n_runners, runners_cap;
    u64 last_term, last_index;
    char last_session[CLUSTER_ID_CAP], last_master[CLUSTER_ID_CAP];
    u64 last_session_term;
    u32 part;         /* of the network, as sim_split made them */
    bool *dials, *up; /* [nodes] */
    u64 *cut_ms;      /* [nodes] since when messages to it are lost; 0: they are not */
    u64 n_sent, n_sent_bytes;
};

struct wish {
    char id[40];
    u64 propose_id;
    enum sim_answer answer;
    bool automatic, deleting, deleted; /* deleting: asked for, maybe never answered */
    u32 node;
};

struct sim {
    struct sim_cfg cfg;
    u64 seed, draws, now_ms, order;
    struct node *nodes;
    struct event *heap;
    u32 n_heap, heap_cap;
    struct wish wishes[WISHES_MAX];
    u32 n_wishes;
    u64 n_sent, n_lives;
    u64 rivals_ms; /* since when two masters see each other; 0: they don't */
    bool broken;
};

u64 sim_local_ms(const struct sim *s, const struct node *n); /* now, by its clock */
struct runner *sim_find_runner(struct node *n, const char *instance, u64 place);
void sim_broke(struct sim *s, const char *what, const char *who);
/* Index in the simulation, or UINT32_MAX. */
u32 sim_by_id(const struct sim *s, const char *id);
/* After a step of that node. */
void sim_check_node(struct sim *s, u32 node);
/* Every LINK_EVERY_MS. */
void sim_check_all(struct sim *s);
