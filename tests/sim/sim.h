/* sim.h - many struct cluster in one process: simulated clock, network, disks and runners.
 *
 * Everything follows from the seed: message loss, delay, duplication and order, link breaks, how
 * long a runner loads and whether it fails. One thread. Nodes are numbered; sets of nodes are bit
 * masks, so a scenario that names sets has at most 64 of them.
 *
 * After every step of every node the invariants hold that sim_check_node checks (terms never go
 * back, orders come in order and from the followed master, nobody runs what it was not ordered to,
 * memory is enough, messages and files are bounded), every 250 ms those of sim_check_all (no two
 * masters that see each other for long, what is wanted is kept somewhere); sim_settled checks those
 * that hold only when the network has been quiet. The first that is broken prints seed and time. */
#pragma once

#include "base/base.h"
#include "cluster/cluster.h"

struct sim_cfg {
    u32 nodes;
    u32 loss_pct, dup_pct;
    u32 delay_ms_max;    /* 1..max, so messages overtake each other */
    u32 runner_fail_pct; /* a shard fails instead of getting ready */
    u32 workers;         /* the first k nodes; 0: all */
    bool chain;          /* node i is told of node i-1 only, not everybody of everybody */
    u64 memory_bytes;    /* of each node; 0: plenty */
    bool clock_skew;     /* clocks run 2 % too fast or slow, wall clocks are anywhere */
    u32 force_master;    /* node + 1 that was told to lead; 0: none */
};

struct sim;

struct sim *sim_new(const struct sim_cfg *cfg, u64 seed);
void sim_free(struct sim *s);
void sim_run_ms(struct sim *s, u64 ms);
u64 sim_now_ms(const struct sim *s);
u64 sim_random(struct sim *s, u64 below);
u64 sim_seed(const struct sim *s);

/* Messages between the two sets are lost until sim_heal; both sides notice some seconds later. */
void sim_cut(struct sim *s, u64 a, u64 b);
/* Every node into one of so many parts, by chance. */
void sim_split(struct sim *s, u32 parts);
void sim_heal(struct sim *s);
/* In each part of sim_split: one master, followed by all who are up. */
bool sim_parts_have_masters(const struct sim *s);
/* No more losses, duplicates and failing runners. */
void sim_calm(struct sim *s);
/* Without goodbye: now, or just before or just after its next save has become the file. */
void sim_crash(struct sim *s, u32 node);
void sim_crash_in_save(struct sim *s, u32 node);
void sim_start(struct sim *s, u32 node);
bool sim_is_up(const struct sim *s, u32 node);
/* SIGSTOP: it does nothing, and what is sent to it waits. */
void sim_pause(struct sim *s, u32 node);
/* Also takes back a sim_crash_in_save that has not happened. */
void sim_resume(struct sim *s, u32 node);

/* Asks at a node for an instance (min_nodes 0: any number), or for the end of one. Numbers count
 * the instances ever asked for. */
u32 sim_want(struct sim *s, u32 node, u32 min_nodes, bool automatic);
void sim_unwant(struct sim *s, u32 node, u32 instance);
void sim_drain(struct sim *s, u32 node, u32 target, bool on);
enum sim_answer { SIM_OPEN, SIM_YES, SIM_NO };
enum sim_answer sim_answer(const struct sim *s, u32 instance);

u32 sim_masters(const struct sim *s, u64 nodes); /* nodes that think they lead */
bool sim_agree(const struct sim *s, u64 nodes);  /* on one master among them, and on the state */
u32 sim_ready(const struct sim *s, u32 node);    /* instances ready in this node's view */
u32 sim_n_instances(const struct sim *s, u32 node);
u32 sim_n_members(const struct sim *s, u32 node, enum member_state state);
bool sim_has(const struct sim *s, u32 node, u32 instance);
/* 0: it is not placed, or not known there. */
u64 sim_place(const struct sim *s, u32 node, u32 instance);
bool sim_runs(const struct sim *s, u32 node, u32 instance); /* a rank of it */
const char *sim_master(const struct sim *s, u32 node);
u64 sim_n_sent(const struct sim *s);
u32 sim_n_live(const struct sim *s, u32 node); /* in its view, with itself; 0: it is down */
struct sim_traffic {
    u64 messages, bytes;
};
struct sim_traffic sim_traffic(const struct sim *s); /* so far */

/* What must be so when these nodes have seen only each other for a while: one master, the same
 * state everywhere, nothing wanted missing, nothing deleted there, no runner without an order.
 * Prints what is not. */
bool sim_settled(struct sim *s, u64 nodes);
/* Was any invariant broken so far? */
bool sim_broken(const struct sim *s);
