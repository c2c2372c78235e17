/* plan.h - from what the cluster knows to a question for placement (place.h), and from its answer
 * to orders. Pure. plan_ask and plan_keep belong to the thread that steps the cluster, the master's
 * for orders and any node's for a preview; what was kept may be planned on any thread
 * (node/plans.c). */
#pragma once

#include "cluster/cluster.h"
#include "cluster/place.h"

enum {
    PLAN_RANKS_MAX = 64, /* what a group of runners takes */
    PLAN_BATCH_MAX = 1024
};

extern const double PLAN_BALANCE; /* place_ask.balance of every plan */

struct plan {
    struct place_ask q; /* q.n_ctx is settled: what was asked for, or what fits */
    const char **ids;   /* [q.n_nodes] node ids */
    u32 n_meant;        /* live workers that the wish leaves, used or not */
    u32 n_drained;      /* of these, those that are not used because they are drained */
};

/* The workers that w may use now, without those in p's avoid list (p may be NULL), each with what
 * is free, measured and already there. Everything lives in a or in c, until its next step. ERR_BUSY
 * names a node that w's wish wants and that is not there; ERR_LIMIT: absurd sizes. */
bool plan_ask(const struct cluster *c, const struct msg_wanted *w, const struct msg_placement *p,
              u64 now_ms, struct arena *a, struct plan *out, struct err *e);
/* Everything that s points to, but for the model, becomes a copy in a: it outlives the cluster's
 * next step, and another thread may have it. */
void plan_keep(struct plan *s, struct arena *a);
/* What finds no room may be for want of n drained ones: a word about them goes before e, which may
 * be NULL. Other refusals stay as they are. */
void plan_blame_drained(u32 n, struct err *e);
/* The best layout, or the one by hand; where no context was asked for, the largest of the usual
 * ones that fits, which goes to s->q.n_ctx. */
bool plan_best(struct plan *s, const struct msg_wanted *w, struct arena *a, struct place_plan *best,
               struct err *e);
/* As plan_best, for one context: sets q.n_ctx and what follows from it. */
bool plan_set_ctx(struct plan *s, const struct msg_wanted *w, u32 n_ctx, struct err *e);
/* The wish's ranks, checked and filled in. */
bool plan_by_hand(const struct plan *s, const struct msg_wanted *w, struct arena *a,
                  struct place_plan *out, struct err *e);
/* The ranks as orders; memory_bytes leaves room for more contexts of KV where there is some. */
struct msg_rank *plan_ranks(const struct plan *s, const struct place_plan *p, struct arena *a);
/* The same question over fewer nodes; and over one more, with that link to all others. */
void plan_subset(const struct plan *s, const bool *keep, struct arena *a, struct plan *out);
void plan_add(struct plan *s, const struct place_node *node, const char *id, struct place_link link,
              struct arena *a);
