/* router.h - which of several ready replicas of a model takes a request.
 *
 * The one with the least work, unless another one has lately seen the beginning of the same
 * conversation (its keys and values may still be there) and has hardly more to do. What was seen is
 * remembered by hashes of the prompt's first bytes, at a few lengths: a turn that adds to a
 * conversation matches its predecessor at all lengths but the longest.
 *
 * Pure; one struct router belongs to the node's thread. */
#pragma once

#include "base/base.h"

enum {
    ROUTER_CUTS = 8,   /* lengths at which a prompt is hashed: 128 bytes, four times as much, ... */
    ROUTER_SEEN = 512, /* prefixes remembered, the oldest goes first */
    ROUTER_SLACK =
        2, /* requests that a replica may have more than another and still keep its own */
};

/* Hashes of the beginnings of one prompt, shortest first; only whole lengths, so a short prompt has
 * none. */
struct router_key {
    u64 hash[ROUTER_CUTS];
    u32 n;
};
struct router_key router_key(const char *model, const char *prompt, size_t n);

struct router {
    struct {
        u64 hash, place; /* place: of the replica's placement; 0: free */
    } seen[ROUTER_SEEN];
    u32 next;
};
struct router_replica {
    u64 place;
    u32 load; /* requests under way */
};
/* Index of the replica to use; n_replicas > 0. */
u32 router_pick(const struct router *r, const struct router_key *k,
                const struct router_replica *replicas, u32 n_replicas);
/* The request went to `place`. */
void router_sent(struct router *r, const struct router_key *k, u64 place);
