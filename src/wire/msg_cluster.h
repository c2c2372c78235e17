/* msg_cluster.h - the messages between node processes: who is there, who leads, what is wanted,
 * where it runs, and requests on their way to the node that owns rank 0.
 *
 * As msg.h: plain structs, one table each, zero means "not there". Ids are text: a node's 32 hex
 * digits, an instance's UUID. */
#pragma once

#include "wire/msg.h"
#include "wire/msg_facts.h"
#include "wire/wire.h"

struct msg_string {
    const char *s;
};

/* A way to reach a node: told to everyone, so that one reachable peer is enough to learn of all. */
struct msg_route {
    const char *node, *address; /* address: as the sender reaches it */
    struct wire_list hosts;     /* struct msg_string: what the node says of itself, a few */
    u32 bus_port;
};

/* MSG_HELLO: what does not change while a process runs. Sent when a link comes up, and again when
 * it was asked for. The first three tags keep their meaning in every protocol version, so that two
 * versions can tell each other why they don't talk. */
struct msg_hello {
    u32 protocol;
    const char *build, *os;
    const char *cluster; /* namespace */
    const char *name;
    u64 boot;      /* random, new at every start */
    u64 seniority; /* Unix second of the start; smaller is more senior */
    u32 is_worker;
    u32 api_port, bus_port;
    u32 n_cores;
    const char *cpu, *isa, *device; /* "cpu" until there are others */
    u64 mem_total_bytes;
    struct wire_list routes; /* struct msg_route: nodes the sender has a link to */
    u32 wants_hello;         /* bool: answer with yours */
    /* struct msg_string: numeric addresses of its interfaces, best first; link-local IPv6 ones
     * without a scope, which only the receiver can know */
    struct wire_list addresses;
    u32 share_port;               /* TCP: model files for the other nodes (node/share.h); 0: none */
    struct wire_blob share_token; /* 32 bytes: who has it may; never shown */
};

/* Who leads, by whose word. Ordered by claim_cmp (cluster/elect.h). */
struct msg_claim {
    const char *master; /* "" when there is none */
    u64 term;
    u64 seniority;
    u32 is_established; /* bool: claimed with more than half of the known nodes in sight */
    u32 is_forced;      /* bool: its user said --force-master */
};

/* A shard's process as its node sees it. */
enum runner_status {
    RUNNER_NONE,
    RUNNER_FETCHING, /* the model file is on its way: done/total in bytes */
    RUNNER_LOADING,  /* done/total in layers */
    RUNNER_LOADED,   /* waits for the other ranks; port is known */
    RUNNER_CONNECTING,
    RUNNER_READY,
    RUNNER_FAILED,  /* code and text say why */
    RUNNER_WARMING, /* all its layers are there, the first answer is not possible yet */
};
struct msg_runner {
    const char *instance;
    u64 place; /* which placement of the instance it belongs to */
    u32 rank;
    u32 status; /* enum runner_status */
    u32 port;   /* where the other ranks reach it */
    u64 done, total;
    u64 weights_bytes, kv_bytes, scratch_bytes, kv_tokens;
    u32 n_ctx, n_threads, pid;
    const char *isa;
    u32 code; /* enum err_code */
    const char *text;
    u32 n_active; /* requests under way */
    u64 n_served; /* requests ever taken: grows, so that short ones are noticed too */
    struct wire_list links; /* struct msg_rank_link, one a rank, when it is ready */
};

/* MSG_HEARTBEAT: what changes. Each second to every peer, and at once when something did. */
struct msg_heartbeat {
    u64 boot;
    u64 seq;                /* grows; one that was overtaken is dropped */
    u64 term;               /* highest ever seen */
    struct msg_claim claim; /* the master the sender follows */
    u32 hears_master;       /* bool: directly, or it is the master */
    u64 digest;             /* of the state below: peers with another one get MSG_STATE */
    u64 mem_available_bytes, mem_limit_bytes, disk_available_bytes;
    struct wire_list runners; /* struct msg_runner */
    u64 wall_ms;              /* the sender's clock, for people: nothing is decided by it */
    u64 roster;               /* of the nodes in sight: peers with another one get routes */
};

/* The model as placement needs to know it: from MSG_DESCRIBED of one node's runner. */
struct msg_model {
    const char *arch, *title, *quant;
    u32 n_layers, n_ctx_train, n_vocab, dim;
    u64 file_bytes, embed_bytes, head_bytes, kv_bytes_per_token_layer;
    u64 tied_bytes;               /* of embedding and head, what a rank with both keeps once */
    struct wire_u64s layer_bytes; /* [n_layers] */
    struct msg_shape shape;
    struct wire_u64s file_parts; /* as in msg_described */
};

/* An instance that somebody wants. Never changes but for `reloads`, which only grows. */
struct msg_wanted {
    const char *id;
    const char *model; /* name that every node's store resolves */
    u32 min_nodes;     /* 0: as many as are there */
    u32 n_ctx;
    u32 is_automatic;       /* bool: made by a request; forgotten when the whole cluster stops */
    const char *first_node; /* preferred for rank 0: where it was asked for */
    struct wire_blob key;   /* 32 bytes, for rank-to-rank connections */
    struct msg_model desc;
    u32 reloads;
    u64 born_in; /* the session whose master took it, 0: an automatic one; and the how manieth */
    u32 born_no; /* of that session, from 1: struct msg_seen */
    struct msg_wish wish;
    u32 kv_type;  /* of the KV cache, as in msg_load */
    u32 act_bits; /* as in msg_load */
};

struct msg_rank {
    const char *node;
    u32 layer_first, layer_end;
    u64 weights_bytes, memory_bytes; /* memory: what the runner may take in all */
    u32 tp_first, tp_ranks;          /* as in msg_load */
    struct msg_slice slice;
};

/* Where an instance is, by the master's order. */
struct msg_placement {
    const char *instance;
    u64 place; /* new for every placement; 0: there is none at present */
    u32 n_ctx;
    struct wire_list ranks; /* struct msg_rank, in order */
    u32 reloads;            /* of the wanted entry when it was placed */
    u32 tries;              /* failures in a row */
    u32 gave_up;            /* bool: not tried again until the cluster changes or a reload */
    const char *reason;     /* why it is not placed, or why the last one failed */
    struct wire_list avoid; /* struct msg_string: nodes that failed it for reasons of their own */
    u64 next_place; /* where it moves to; takes over when all its ranks are ready. 0: none */
    u32 next_ctx;
    struct wire_list next_ranks; /* struct msg_rank */
    struct wire_list lost;       /* struct msg_string: nodes it had to leave, used again later */
};

/* MSG_RELAY: a message between an asking node and the runner of rank 0 on another node. `request`
 * is the asking node's number; body is an encoded message of `type`. */
struct msg_relay {
    const char *instance;
    u64 place;
    u64 request;
    u32 attempt; /* counts the times the request was sent, so that late answers are recognised */
    u32 seq;     /* of answers, from 0: a gap means that a link lost some */
    u32 type;
    struct wire_blob body;
};

/* MSG_REFUSED and MSG_BYE; MSG_FORGET, with the id of a node that won't come back as text. */
struct msg_reason {
    u32 protocol;
    const char *build, *text;
};

/* The table of a message between nodes, or NULL. msg_table() falls back to it. */
const struct wire_table *msg_cluster_table(u32 type);
/* Of what is not sent as a message of its own. */
extern const struct wire_table MSG_SAVED_TABLE, MSG_WANTED_TABLE, MSG_PLACEMENT_TABLE,
    MSG_RUNNER_TABLE;
/* What placement takes from a description; borrows its strings and lists. */
struct msg_model msg_model_of(const struct msg_described *d);
