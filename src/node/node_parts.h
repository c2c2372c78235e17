/* node_parts.h - what the files of the node offer each other. All of it runs on the node's thread.
 */
#pragma once

#include "node/node_impl.h"

/* setup.c: the data folder. */
bool setup_open(struct node *n, struct err *e); /* lock, key and node id */
/* Another identity from the next start on. */
bool setup_new_key(struct node *n, struct err *e);
void setup_close(struct node *n);
/* Bytes of an earlier run; empty when there are none. */
void setup_read_state(struct node *n, struct str *out);
void setup_write_state(struct node *n);
/* A state that can't be read is kept beside for whoever wants to look. */
void setup_put_aside(struct node *n, const struct err *e);

/* member.c: between bus, machine and cluster. */
struct cluster *member_new(struct node *n, struct err *e);
bool node_send_relay(struct node *n, const char *to, const struct msg_relay *r, struct err *e);
void member_feed(struct node *n, const struct cluster_input *in);
void member_machine(struct node *n);
void member_read_bus(struct node *n);
void member_say_bye(struct node *n);
/* node_forget: `done` is called at once. */
void member_forget(struct node *n, const char *node, node_placed_fn done, void *ctx);

/* shards.c */
void node_shard_start(struct node *n, const struct cluster_action *a);
void node_shard_connect(struct node *n, const struct cluster_action *a);
void node_shard_stop(struct node *n, const char *instance, u64 place);
/* More of the model's file is there, or it can't be had. */
void node_shard_file(struct node *n, const char *model, const struct err *failure);
void node_shard_fetching(struct node *n, const char *model, const struct store_progress *p);
void node_shard_read(struct node *n, struct shard *s);
struct shard *node_shard_find(struct node *n, const char *instance, u64 place);
/* Feeds the cluster what changed. */
void node_shard_watch(struct node *n); /* about once a second */
void node_shard_report(struct node *n);
/* Hands a child over to be reaped in passing. */
void node_bury(struct node *n, struct child *c, u32 grace_ms);
void node_reap(struct node *n);

/* fetch.c: the threads that download, and what they tell. */
enum { FETCH_HEAD_BYTES = 16 << 20 }; /* a file's beginning, which a thread of its own fetches */
struct fetcher *fetch_start(const struct store *s, struct share *share, const char *self,
                            struct err *e);
/* Waits a second at most. False: the thread hangs in a connect and is left, with what it uses, to
 * the end of the process. */
bool fetch_stop(struct fetcher *f);
int fetch_fd(const struct fetcher *f);
/* From whom files may come: the live members that share theirs. */
void fetch_set_peers(struct node *n, u64 now_ms);
/* Looks for the model, or these parts of it (n_parts 0: all), and has them fetched when they are
 * not there. True: they are in m->path, now; which may be a file with holes elsewhere. False with
 * e->code ERR_NONE: node_shard_file and want_file are called later. False with a code: it can't be
 * had. A name that is unknown here is looked for on the other nodes, as a file of `elsewhere`
 * bytes, unless that is 0. */
bool fetch_need(struct node *n, const char *model, const struct store_part *parts, u32 n_parts,
                u64 elsewhere, struct store_model *m, struct err *e);
void fetch_read(struct node *n);
/* Stops the downloads that nobody wants any more. Each turn. */
void fetch_step(struct node *n);

/* want.c */
void want_start(struct node *n, const struct node_place *p, bool automatic, node_placed_fn placed,
                void *ctx);
/* What it would be like, instead. */
void want_plan(struct node *n, enum node_plan what, const struct node_place *p, node_placed_fn done,
               void *ctx);
void want_drain(struct node *n, const char *node, bool on, node_placed_fn done, void *ctx);
/* After e, that this node knows no such model: is there another one to ask? */
bool want_may_ask(const struct node *n, const char *model, const struct err *e);
bool want_is_running(const struct node *n, const char *model);
void want_file(struct node *n, const char *model, const struct err *failure);
void want_read(struct node *n, struct want *w);
void want_answer(struct node *n, u64 id, const char *instance, const struct err *answer);
/* The end of one that only asks; it may have ended before. */
void want_planned(struct node *n, u64 id, const char *json, const struct err *e);
void want_step(struct node *n, u64 now_ms);
/* MSG_DESCRIBE of a node that takes no shards itself, and the answers to it. */
void want_relay(struct node *n, const char *from, const struct msg_relay *r);
void want_peer_down(struct node *n, const char *node);
void want_end_all(struct node *n, const struct err *e);

/* wishes.c */
/* A deep copy, in a. */
void wish_copy(struct arena *a, struct node_place *dst, const struct node_place *src);
/* Names and beginnings of ids become ids. ERR_NOT_FOUND lists the nodes, ERR_ARG: two are meant. */
bool wish_node(const struct node *n, struct arena *a, const char **text, struct err *e);
bool wish_resolve(const struct node *n, struct arena *a, struct msg_wish *w, struct err *e);

/* awaits.c */
void await_add(struct node *n, const struct waiting *w);
void await_step(struct node *n, u64 now_ms);
void await_end_all(struct node *n);

/* plans.c: one thread that computes what placement would do. */
struct planner *plans_start(struct err *e);
/* Waits for the plan that is being computed. */
void plans_stop(struct planner *p);
int plans_fd(const struct planner *p);
/* JSON of what it would do with w comes to want_planned, later. False: it can't be asked, see *e.
 */
bool plans_ask(struct node *n, const struct msg_wanted *w, const struct want *why, struct err *e);
void plans_read(struct node *n);

/* asks.c: requests of this node's users. */
/* The name under which the cluster knows a model: an id of the catalogue means the same on every
 * node (aliases become it), another file only its path. False when this machine does not know it.
 */
bool node_model_key(struct node *n, const char *name, char out[1024], struct err *e);
void ask_new(struct node *n, u64 id, const char *model, const void *body, size_t body_n,
             const struct node_sink *sink, void *ctx);
void ask_cancel(struct node *n, u64 id);
/* Sends what can be sent, gives up what can't. After every change. */
void ask_step(struct node *n, u64 now_ms);
/* For a placement. since_ms may be a moment later than now_ms, the time of the present turn. */
bool ask_waits_too_long(u64 now_ms, u64 since_ms);
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
