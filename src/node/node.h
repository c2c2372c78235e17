/* node.h - the process that owns one machine: its place in the cluster, its runners, its requests.
 *
 * node_run is the node's thread: it owns the bus, the runner processes and every table, and it
 * calls the sinks. The functions marked "any thread" only put a command into a queue or read a
 * snapshot, so the HTTP server may call them from its own thread and from inside a sink. Nothing
 * here reads a model file: that happens in runners. */
#pragma once

#include "base/err.h"
#include "base/snapshot.h"
#include "node/events.h"
#include "node/node_place.h"
#include "node/store.h"
#include "wire/msg.h"

enum {
    NODE_API_PORT = 52415,
    NODE_BUS_PORT = 52416,
    NODE_TIMEOUT_MS = 5000,   /* a node that is silent for so long is lost */
    NODE_REQUESTS_MAX = 256,  /* open requests; beyond it ERR_BUSY */
    NODE_ID_CAP = 33,         /* 32 hex digits and NUL */
    NODE_INSTANCE_ID_CAP = 37 /* a UUID and NUL */
};

struct node_cfg {
    const char *name;        /* shown to people; NULL: the host's name */
    const char *data_dir;    /* node key, wanted instances, lock; made if missing */
    const char *cluster;     /* namespace: clusters of different names never mix; NULL: "default" */
    const char *join_key;    /* NULL: the cluster is open to whoever knows its name */
    const char *listen_host; /* of the bus and of rank-to-rank sockets; NULL: all addresses */
    u16 bus_port;            /* 0: any free one */
    u16 n_more_bus_ports;    /* bus_cfg.n_more_ports */
    u16 api_port;            /* announced to the others; set it later with node_set_api */
    const char *const *peers; /* "host[:port]" of other nodes' buses */
    u32 n_peers;
    const char *machine; /* what tells this machine from others; NULL: the system's word */
    bool discover;       /* by multicast DNS, besides the peers */
    const char *const *interfaces; /* names: announce and dial over these alone; none: all */
    u32 n_interfaces;
    u32 timeout_ms;            /* 0: NODE_TIMEOUT_MS */
    bool force_master;         /* lead whenever it is there */
    bool no_worker;            /* take no shards: coordinator and API only */
    bool no_measure;           /* neither this machine's speed nor its links */
    u32 again_ms;              /* until the speed is measured again; 0: half a minute */
    u32 n_threads;             /* per runner; 0: all allowed cores */
    u32 n_seq_max;             /* requests that a runner works on at once; 0: 16 */
    const char *cpu_mask;      /* "" or NULL: what the machine has */
    u32 n_ctx;                 /* default context of instances; 0: the model's, up to 8192 */
    u32 kv_type;               /* default of their KV caches: 0 f16, 1 q8 */
    u32 sum_wire;              /* of runners, as in msg_load; rank 0's counts */
    u32 n_streams;             /* connections between two ranks; 0: as the path was measured */
    const char *fabric;        /* between ranks, as in group_cfg; borrowed; NULL: off */
    bool encrypt_data;         /* between ranks; all nodes alike */
    u32 act_bits;              /* default of their activations: 0 or 16, 8 */
    u64 memory_max_bytes;      /* what instances may take here; 0: what is available */
    const char *program;       /* started as `program runner`; NULL: this program */
    const struct store *store; /* borrowed, must outlive the node */
};

struct node;

/* Takes the data folder's lock, opens the bus, starts dialling peers. Copies cfg's strings. NULL
 * and *e: another process holds the folder, the port is in use, the disk is full. */
struct node *node_new(const struct node_cfg *cfg, struct err *e);
/* Blocks until node_stop. Runners are gone and every sink has had its last call when it returns. */
void node_run(struct node *n);
/* Any thread, and signal handlers. */
void node_stop(struct node *n);
void node_free(struct node *n);

/* Constant after node_new. Any thread, borrowed. */
const char *node_id(const struct node *n);
/* After node_run: another machine turned out to have this node's key (a copied data folder), so a
 * new one was made. A node made from the same folder is another node, and can join. */
bool node_is_reborn(const struct node *n);
const char *node_name(const struct node *n);
u16 node_bus_port(const struct node *n);
bool node_is_open(const struct node *n); /* no join key */
const struct store *node_store(const struct node *n);
/* The port the API got, announced to the other nodes. Any thread. */
void node_set_api(struct node *n, u16 port);

/* Dials "host[:port]" too, as if it had been in cfg.peers. Any thread. */
void node_add_peer(struct node *n, const char *address);

/* Called on the node's thread; must not block. A request gets `started` at most once, any number of
 * tokens, then exactly one of `done` and `error`, after which ctx is not used again. Arguments are
 * borrowed for the call. */
struct node_sink {
    void (*started)(void *ctx, const struct msg_started *m);
    void (*token)(void *ctx, const struct msg_token *m);
    void (*done)(void *ctx, const struct msg_done *m);
    void (*error)(void *ctx, const struct err *e);
    /* What the request waits for ("downloading 41%", "loading 12/30 layers"); may be NULL. */
    void (*waiting)(void *ctx, const char *text);
};

/* Asks `model` (id, alias or path) to generate. Copies everything; m->id and m->origin are ignored.
 * An instance of the model is placed first when there is none. Returns the request's id; errors,
 * also a full queue, come through the sink (maybe before this returns). Any thread. */
u64 node_submit(struct node *n, const char *model, const struct msg_generate *m,
                const struct node_sink *sink, void *ctx);
/* The asker went away: generation stops within a token. The sink still gets its last call, unless
 * it has had it; unknown ids are ignored. Any thread. */
void node_cancel(struct node *n, u64 id);

/* Nobody wants it any more; its runners end. Its open requests go on in another instance of the
 * model; without one they get an error. The outcome is seen in node_state. Any thread. */
void node_delete_instance(struct node *n, const char *instance_id);
/* Starts it again from the beginning, its failure count cleared. Any thread. */
void node_reload_instance(struct node *n, const char *instance_id);

/* The cluster as JSON text, at most a second old (fresher after changes): nodes[], master,
 * instances{}, runners{}, downloads{}, refused[], and the camelCase maps of exo's /state. Let it go
 * with node_state_done. Any thread. */
const struct snapshot_text *node_state(struct node *n);
void node_state_done(struct node *n, const struct snapshot_text *t);
/* Where what changes can be listened to (node/events.h). Any thread. */
struct events *node_events(struct node *n);
/* True when this node can serve or route requests; else ERR_BUSY says what is missing.
 * Any thread. */
bool node_health(struct node *n, struct err *e);
