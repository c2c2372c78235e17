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

/* A shard on this machine: what the cluster ordered, its process, and what to tell about it. */
struct shard {
    struct arena mem; /* holds what follows and points into it */
    const char *instance, *model;
    u64 place;
    u32 rank, n_ranks, layer_first, layer_end, n_ctx;
    u64 memory_bytes;
    u8 key[32];
    u64 file_bytes;         /* of the file that the instance was planned with */
    struct child *child;    /* NULL before its model is there, and after its end */
    struct msg_runner fact; /* strings: isa and text below, instance above */
    char isa[32];
    struct err failure;
    bool dirty; /* fact has news for the cluster */
    struct msg_stats stats;
};

/* A model file that is being fetched, or was. */
struct download {
    char model[1024]; /* store name */
    bool running;
    struct store_progress now; /* without the strings */
    struct err failure;        /* code ERR_NONE unless it failed */
};

enum want_stage { WANT_FILE, WANT_DESCRIPTION, WANT_ANSWER };
/* Somebody wants an instance: file, then description, then the master's answer. */
struct want {
    u64 id;
    enum want_stage stage;
    char model[1024], path[1024];
    u32 min_nodes, n_ctx;
    bool automatic;      /* for requests; no callback */
    struct child *child; /* describes the file */
    u64 deadline_ms;     /* of the description */
    node_placed_fn placed;
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
    char instance[NODE_INSTANCE_ID_CAP], node[NODE_ID_CAP]; /* where it is, when sent */
    u64 place;
    u64 bad_place, bad_until_ms; /* failed it: not tried again before */
    u64 since_ms;                /* waiting since */
    u32 n_fails;                 /* attempts in a row that brought nothing */
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

    struct bus *bus;
    struct cluster *cluster;
    struct cluster_output out;
    u64 tick_ms, machine_ms, publish_ms;
    bool changed, save_failed;

    struct fetcher *fetcher;
    struct shard **shards;
    u32 n_shards, shards_cap;
    struct child **dying; /* hung up, not reaped yet */
    u32 n_dying, dying_cap;
    struct want **wants;
    u32 n_wants, wants_cap;
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

/* setup.c: the data folder. */
bool setup_open(struct node *n, struct err *e); /* lock and node id */
void setup_close(struct node *n);
/* Bytes of an earlier run; empty when there are none. */
void setup_read_state(struct node *n, struct str *out);
void setup_write_state(struct node *n);
/* A state that can't be read is kept beside for whoever wants to look. */
void setup_put_aside(struct node *n, const struct err *e);

/* member.c: between bus, machine and cluster. */
struct cluster *member_new(struct node *n, struct err *e);
void member_feed(struct node *n, const struct cluster_input *in);
void member_machine(struct node *n);
void member_read_bus(struct node *n);
void member_say_bye(struct node *n);

/* shards.c */
void node_shard_start(struct node *n, const struct cluster_action *a);
void node_shard_connect(struct node *n, const struct cluster_action *a);
void node_shard_stop(struct node *n, const char *instance, u64 place);
/* The model's file is there, or can't be had. */
void node_shard_file(struct node *n, const char *model, const struct store_model *m,
                     const struct err *failure);
void node_shard_fetching(struct node *n, const char *model, const struct store_progress *p);
void node_shard_read(struct node *n, struct shard *s);
struct shard *node_shard_find(struct node *n, const char *instance, u64 place);
/* Feeds the cluster what changed. */
void node_shard_report(struct node *n);
/* Hands a child over to be reaped in passing. */
void node_bury(struct node *n, struct child *c, u32 grace_ms);
void node_reap(struct node *n);

/* fetch.c: one thread that downloads, and what it tells. */
struct fetcher *fetch_start(const struct store *s, struct err *e);
/* Waits a second at most; a thread that hangs in a connect is left to the end of the process. */
void fetch_stop(struct fetcher *f);
int fetch_fd(const struct fetcher *f);
/* Looks for the model and has it fetched when it is not there. True: *m is complete, now. False
 * with e->code ERR_NONE: node_file_event comes later. False with a code: it can't be had. */
bool fetch_need(struct node *n, const char *model, struct store_model *m, struct err *e);
void fetch_read(struct node *n);

/* want.c */
void want_start(struct node *n, const struct node_place *p, bool automatic, node_placed_fn placed,
                void *ctx);
bool want_is_running(const struct node *n, const char *model);
void want_file(struct node *n, const char *model, const struct store_model *m,
               const struct err *failure);
void want_read(struct node *n, struct want *w);
void want_answer(struct node *n, u64 id, const char *instance, const struct err *answer);
void want_step(struct node *n, u64 now_ms);
void want_end_all(struct node *n, const struct err *e);

/* asks.c: requests of this node's users. */
void ask_new(struct node *n, u64 id, const char *model, const void *body, size_t body_n,
             const struct node_sink *sink, void *ctx);
void ask_cancel(struct node *n, u64 id);
/* Sends what can be sent, gives up what can't. After every change. */
void ask_step(struct node *n, u64 now_ms);
/* An answer from a runner, here or behind the bus. */
void ask_answer(struct node *n, const struct msg_relay *r);
/* The model could not be placed: its waiting requests learn why. */
void ask_no_instance(struct node *n, const char *model, const struct err *e);
void ask_peer_down(struct node *n, const char *node);
void ask_end_all(struct node *n, const struct err *e);

/* legs.c: requests in runners of this machine. */
void leg_take(struct node *n, const char *origin, const struct msg_relay *r);
void leg_frame(struct node *n, struct shard *s, const struct frame *f);
void leg_shard_gone(struct node *n, struct shard *s, const struct err *why);
void leg_peer_down(struct node *n, const char *node);
void leg_step(struct node *n);

/* state_json.c */
void state_json_publish(struct node *n);
