/* node_place.h - instances: asking for one, or what one would be like, and waiting for it. Part of
 * node.h, whose rules about threads hold here too. */
#pragma once

#include "base/err.h"
#include "wire/msg_cluster.h"

struct node;

/* A machine that is not there: what would it bring? */
struct node_extra {
    const char *name;
    u64 memory_bytes;
    double read_bytes_s, ops_s;   /* memory bandwidth; matrix operations a second */
    double delay_s, link_bytes_s; /* its links, one way */
};

struct node_place {
    const char *model;
    u32 min_nodes;                  /* 0, 1: as few or as many as is best; k: at least k nodes */
    u32 n_ctx;                      /* 0: the node's default */
    u32 kv_type;                    /* 0: the node's default; 1: f16, 2: q8 */
    u32 act_bits;                   /* 0: the node's default; 8, 16: as in msg_load */
    const char *instance_id;        /* NULL: a new one */
    struct msg_wish wish;           /* nodes by id, name or the beginning of an id */
    const struct node_extra *extra; /* of node_plan */
    u32 n_extra;
};
/* The last and only call: the instance's id (or JSON, of node_plan), or NULL and why not. On the
 * node's thread; borrowed for the call. */
typedef void (*node_placed_fn)(void *ctx, const char *text, const struct err *e);

/* Wants an instance: fetches the file if need be, describes it, has the master place it. `placed`
 * is called when the shards are assigned (they load after that; /state tells). Copies *p. Any
 * thread. */
void node_place(struct node *n, const struct node_place *p, node_placed_fn placed, void *ctx);

enum node_plan {
    NODE_PLAN_NONE,
    NODE_PLAN_PREVIEWS,  /* exo's previews: for each sharding and number of nodes an instance */
    NODE_PLAN_PLACEMENT, /* the instance that node_place would make */
    NODE_PLAN_TABLE,     /* everything: `skein plan` */
};
/* What placement would do with *p now, as JSON. Nothing is placed; of a model that is not here the
 * file's beginning is fetched. Any thread. */
void node_plan(struct node *n, enum node_plan what, const struct node_place *p, node_placed_fn done,
               void *ctx);

/* How a wait for an instance ends; `instance` is its entry of /state. */
enum node_await { NODE_AWAIT_READY, NODE_AWAIT_FAILED, NODE_AWAIT_TIMEOUT, NODE_AWAIT_STOPPED };
typedef void (*node_awaited_fn)(void *ctx, enum node_await how, const char *text,
                                const char *instance_id);
/* Waits until an instance of the model (or the one of that id) is ready, all ranks of it, or has
 * failed; timeout_ms 0: for ever. is_gone is asked now and then, and ends the wait too (how is
 * NODE_AWAIT_STOPPED). One call of `done`, on the node's thread. Any thread. */
void node_await(struct node *n, const char *model, u64 timeout_ms, bool (*is_gone)(void *ctx),
                node_awaited_fn done, void *ctx);

/* A drained node gets no new work, and what runs there moves when it can; on false: as before.
 * `node` by id or name. done gets the node's id. Any thread. */
void node_drain(struct node *n, const char *node, bool on, node_placed_fn done, void *ctx);
/* A node that is lost and won't come back leaves the list, everybody's; one that is connected
 * stays, ERR_ARG. Otherwise as above. */
void node_forget(struct node *n, const char *node, node_placed_fn done, void *ctx);
