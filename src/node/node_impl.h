/* node_impl.h - the inside of struct node, shared by the files of this folder that run on its
 * thread. */
#pragma once

#include "base/arena.h"
#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/queue.h"
#include "cluster/cluster.h"
#include "net/bus.h"
#include "node/child.h"
#include "node/node.h"
#include "node/router.h"
#include "node/share.h"

/* A shard on this machine: what the cluster ordered, its process, and what to tell about it. */
struct shard {
    struct arena mem; /* holds what follows and points into it */
    const char *instance, *model;
    u64 place;
    u32 rank, n_ranks, layer_first, layer_end, n_ctx, kv_type, act_bits;
    u64 memory_bytes;
    u32 tp_first, tp_ranks; /* as in msg_load */
    struct msg_slice slice;
    bool force;
    u8 key[32];
    bool waits;               /* for runners that end, with their memory */
    u64 file_bytes;           /* of the file that the instance was planned with */
    struct store_part *parts; /* [n_parts] of the file that it needs; 0: all of it */
    u32 n_parts;
    struct child *child;    /* NULL before its model is there, and after its end */
    struct msg_runner fact; /* strings: isa and text below, instance above; links in mem */
    char isa[32];
    struct err failure;
    bool dirty; /* fact has news for the cluster */
    struct msg_stats stats;
};

/* A model file that is being fetched, or was. */
struct download {
    char model[1024]; /* store name */
    struct job *job;  /* of the fetching thread; NULL: none is under way */
    struct store_progress now; /* without the strings */
    struct err failure;        /* code ERR_NONE unless it failed; ERR_CANCELLED: it was stopped */
};

enum want_stage { WANT_FILE, WANT_DESCRIPTION, WANT_ANSWER, WANT_ANOTHER_ID, WANT_PLAN };
/* Somebody wants an instance: file, then description, then the master's answer. */
struct want {
    u64 id;
    enum want_stage stage;
    char model[1024], path[1024];
    struct arena mem;
    struct node_place p;        /* lives in mem; names of nodes become ids */
    enum node_plan plan;        /* not NONE: only asked what it would be like */
    u32 kv_type, act_bits;      /* as in msg_load */
    bool asks_ctx;              /* p.n_ctx is a wish, not the default of this node */
    bool automatic;             /* for requests; no callback */
    bool needs_whole;           /* the file's beginning did not say enough */
    struct child *child;        /* describes the file */
    char helper[NODE_ID_CAP];   /* the worker that describes it for a node that is none; "" */
    char (*tried)[NODE_ID_CAP]; /* [n_tried] helpers so far, the present one last; in mem */
    u32 n_tried;
    char origin[NODE_ID_CAP]; /* the node for which this one only describes it; "" */
    u64 origin_id;
    u64 deadline_ms; /* of the description */
    struct str proposal; /* to the master, kept where the asker gave the instance's id */
    node_placed_fn placed;
    void *ctx;
};

/* Somebody waits until an instance is ready. */
struct waiting {
    char model[1024]; /* or its id */
    u64 deadline_ms;
    bool seen; /* it was there */
    bool (*is_gone)(void *ctx);
    node_awaited_fn done;
    void *ctx;
};

enum ask_state { ASK_WAITING, ASK_SENT };
/* A request that this node accepted and will see through. */
struct ask {
    u64 id;
    char model[1024];
    struct arena mem;
    struct msg_generate m; /* resume_ids grows below */
    i32 *ids;              /* [n_ids, ids_cap] tokens so far */
    u64 n_ids, ids_cap;
    struct node_sink sink;
    void *ctx;
    enum ask_state state;
    bool started;
    u32 attempt, seq;
    char instance[NODE_INSTANCE_ID_CAP], node[NODE_ID_CAP]; /* where it is or was sent last */
    u64 place;
    u64 there_ms; /* since when instance is the one that it was sent to, or waits for */
    u64 bad_place, bad_until_ms; /* failed it: not tried again before */
    u64 since_ms;                /* waiting since */
    u32 n_fails, points;         /* attempts in a row that brought nothing, and what they weigh */
    struct err last;             /* why the last attempt ended */
    bool doomed;                 /* ends with `last` at the next look */
    char told[200];              /* last `waiting` text */
};

/* A request in a runner of this machine, whoever asked. */
struct leg {
    u64 id; /* what the runner knows it by */
    struct shard *shard;
    char origin[NODE_ID_CAP];
    u64 request; /* the origin's number */
    u32 attempt, seq;
    bool broken; /* an answer could not be sent: the origin is still to be told */
};

struct node {
    struct arena mem; /* strings of the configuration */
    struct node_cfg cfg;
    char id[NODE_ID_CAP], name[64], os[96];
    int lock_fd, stop_fd[2];
    struct queue *commands;
    struct lock lock; /* guards the next three: counterpart is any thread that submits */
    u64 next_id;
    u32 n_open;
    bool stopped; /* nobody reads the queue any more */
    struct snapshot *state, *health;

    u64 boot; /* random, new at every start */
    struct identity identity;
    bool moved;  /* its key was made on another machine */
    bool reborn; /* it has a new key: to be started again */
    struct bus *bus;
    struct routes *routes;
    struct self *self;
    struct events *events;
    struct cluster *cluster;
    struct cluster_output out;
    u64 tick_ms, machine_ms, publish_ms, watch_ms;
    bool changed, save_failed;

    struct fetcher *fetcher;
    struct planner *planner;
    struct share *share; /* NULL: files are not shared */
    u8 share_token[32];
    struct shard **shards;
    u32 n_shards, shards_cap;
    struct child **dying; /* hung up, not reaped yet */
    u32 n_dying, dying_cap;
    struct want **wants;
    u32 n_wants, wants_cap;
    struct router router; /* of asks */
    struct waiting *waits;
    u32 n_waits, waits_cap;
    struct ask **asks;
    u32 n_asks, asks_cap;
    struct leg **legs;
    u32 n_legs, legs_cap;
    u64 next_leg;
    struct download *downloads;
    u32 n_downloads, downloads_cap;
    char (*peers_tried)[256]; /* addresses that were an HTTP port, and port+1 is dialled */
    u32 n_peers_tried;
};

#define NODE_GROW(v, n, cap)                                  \
    do {                                                      \
        if ((n) == (cap)) {                                   \
            (cap) = (cap) ? (cap)*2 : 8;                      \
            (v) = xrealloc((v), (size_t)(cap) * sizeof *(v)); \
        }                                                     \
    } while (0)
