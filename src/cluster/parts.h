/* parts.h - what the files of this folder offer each other, each for the promise that cluster.h
 * states. */
#pragma once

#include "cluster/core.h"

/* members.c */
void members_init(struct cluster *c, const struct msg_hello *hello);
void members_deinit(struct cluster *c);
struct member *members_find(const struct cluster *c, const char *id);
struct member *members_add(struct cluster *c, const char *id, const char *address, u64 now_ms);
bool members_live(const struct cluster *c, const struct member *m, u64 now_ms);
void members_peer_up(struct cluster *c, const struct cluster_input *in, u64 now_ms,
                     struct cluster_output *out);
void members_peer_down(struct cluster *c, const struct cluster_input *in, u64 now_ms);
void members_hello(struct cluster *c, struct member *m, const struct cluster_input *in, u64 now_ms,
                   struct cluster_output *out);
void members_set_hello(struct cluster *c, const struct cluster_input *in,
                       struct cluster_output *out);
void members_beat(struct cluster *c, const struct cluster_input *in, u64 now_ms,
                  struct cluster_output *out);
void members_reason(struct cluster *c, struct member *m, const struct cluster_input *in,
                    struct cluster_output *out);
/* By the word of this node's user, or of another's. */
void members_forget(struct cluster *c, const char *id, u64 now_ms, struct cluster_output *out);
void members_forgotten(struct cluster *c, const struct cluster_input *in, u64 now_ms,
                       struct cluster_output *out);
/* Notices who was lost, forgets, dials; beats when it is time. */
void members_step(struct cluster *c, u64 now_ms, struct cluster_output *out);
/* When members_send_beats wants to run next. */
u64 members_next_ms(const struct cluster *c);
void members_send_beats(struct cluster *c, u64 now_ms, struct cluster_output *out);
u32 members_n_live(const struct cluster *c, u64 now_ms); /* with this node */
u32 members_n_counted(const struct cluster *c);

/* facts.c */
void facts_set(struct cluster *c, const struct msg_facts *f);
void facts_take(struct cluster *c, struct member *m, const struct cluster_input *in,
                struct cluster_output *out);
void facts_forget(struct member *m);
/* Tells those who have not heard the latest, when it is time. */
void facts_step(struct cluster *c, u64 now_ms, struct cluster_output *out);

/* elect.c */
int claim_cmp(const struct msg_claim *a, const struct msg_claim *b);
bool elect_is_master(const struct cluster *c);
void elect_step(struct cluster *c, u64 now_ms, struct cluster_output *out);
/* This process was stopped for longer than a timeout: whatever it led is somebody else's by now. */
void elect_woke(struct cluster *c, u64 now_ms, struct cluster_output *out);

/* state.c */
void state_deinit(struct cluster *c);
struct entry *state_find(const struct cluster *c, const char *id);
bool state_is_gone(const struct cluster *c, const char *id);
/* NULL when it is gone, there are too many, or its texts are not UTF-8. */
struct entry *state_want(struct cluster *c, const struct msg_wanted *w);
/* The master's: gives en a number that lets its deletion be told from its being unknown. */
void state_bear(struct cluster *c, struct entry *en);
/* Takes it out without a trace: it never was. */
void state_drop(struct cluster *c, struct entry *en);
void state_unwant(struct cluster *c, const char *id);
bool state_is_drained(const struct cluster *c, const char *node);
/* False when it is so already. */
bool state_drain(struct cluster *c, const char *node, bool on);
void state_place(struct cluster *c, struct entry *en, const struct msg_placement *p);
void state_touch(struct cluster *c); /* something in it changed */
void state_merge(struct cluster *c, const struct cluster_input *in, u64 now_ms,
                 struct cluster_output *out);
void state_send(const struct cluster *c, const char *to, struct cluster_output *out);
struct core_bytes state_bytes(const struct cluster *c, struct cluster_output *out);
void state_refresh_digest(struct cluster *c);
bool state_load(struct cluster *c, const void *saved, size_t n, u64 now_ms, struct err *e);

/* orders.c */
void orders_step(struct cluster *c, u64 now_ms, struct cluster_output *out);
void orders_propose(struct cluster *c, const struct msg_propose *p, u64 now_ms);
void orders_proposed(struct cluster *c, const struct msg_proposed *p, struct cluster_output *out);
void orders_handle(struct cluster *c, const char *from, const struct msg_propose *p, u64 now_ms,
                   struct cluster_output *out);
void orders_deinit(struct cluster *c);
/* What a node can give now. */
u64 orders_budget(const struct cluster *c, const struct member *m);

/* events.c */
void events_step(struct cluster *c, struct cluster_output *out);
void events_deinit(struct cluster *c);

/* Plans where en could go without the drained nodes and beside where it is, as its next placement.
 * Without telling the others. */
bool orders_move(struct cluster *c, struct entry *en, u64 now_ms, struct cluster_output *out,
                 struct err *e);
/* Is there memory for a placement that came from somebody else? */
bool orders_fits(const struct cluster *c, const struct msg_placement *p);

/* moves.c */
bool moves_uses(const struct wire_list *ranks, const char *node);
/* The next placement takes over; whole: it no longer misses any node. */
void moves_promote(struct cluster *c, struct entry *en, bool whole);
bool moves_can_promote(const struct cluster *c, const struct entry *en, u64 now_ms);
/* Of the master, for each placed instance. */
void moves_step(struct cluster *c, struct entry *en, u64 now_ms, struct cluster_output *out);

/* shards.c */
void shards_deinit(struct cluster *c);
void shards_report(struct cluster *c, const struct msg_runner *r);
void shards_step(struct cluster *c, u64 now_ms, struct cluster_output *out);
/* What a node says of its runner of (instance, place), or NULL. */
const struct msg_runner *shards_fact(const struct cluster *c, const char *node,
                                     const char *instance, u64 place);
