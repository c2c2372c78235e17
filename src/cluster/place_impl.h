/* place_impl.h - inside of place*.c. */
#pragma once

#include "cluster/place.h"

/* What is computed in a step. */
struct place_load {
    double n_tok, n_seq, n_out; /* rows of matrices, sequences, rows of logits */
    double pos;                 /* positions that a token sees */
};

/* A rank's part of its layers, each between 0 and 1. */
struct place_part {
    double attn, heads, kv, ff, vocab; /* matrices of attention; query heads; KV heads; ... */
};

/* What follows from the nodes of a stage alone; of the one that was asked about last. */
struct place_known {
    u32 n, *nodes;
    u32 *crowd;              /* [n] how many of them are on the machine of each */
    double delay_s, bytes_s; /* of the worst link between any two */
};

/* A question with its layers laid out. */
struct place_work {
    const struct place_ask *q;
    struct arena *mem;
    u32 n_layers;
    struct msg_layer_cost *cost; /* [n_layers] */
    u32 *kind;                   /* [n_layers] layers of one number cost the same */
    u32 n_kinds;
    u64 *bytes; /* [n_layers + 1] weights of the layers before */
    u64 kv_layer_bytes;
    u64 head_ops;
    bool can_slice;
    u32 stages_max; /* place_dp looks for no more */
    struct place_known *known;
};
void place_work_init(struct place_work *w, const struct place_ask *q, struct arena *mem);

/* place_cost.c */
extern const struct place_part PLACE_WHOLE;
struct place_part place_part_of(const struct place_work *w, const struct place_rank *r);
/* Seconds of layer il in a stage of n ranks; what each has is parts[n]. share[0..2], where not
 * NULL, gets memory, compute and network added. */
double place_layer_s(const struct place_work *w, const u32 *nodes, u32 n,
                     const struct place_part *parts, const struct place_load *load, u32 il,
                     double *share);
/* The same of layers [0, 1), [0, 2), ... in before[n_layers + 1], and of [first, end). */
void place_layers_before(const struct place_work *w, const u32 *nodes, u32 n,
                         const struct place_part *parts, const struct place_load *load,
                         double *before);
double place_layers_s(const struct place_work *w, const u32 *nodes, u32 n,
                      const struct place_part *parts, const struct place_load *load, u32 first,
                      u32 end, double *share);
/* The first rank tells the others of the step, and the rows of the embedding, which lie on one rank
 * each, are added up. */
double place_embed_s(const struct place_work *w, const u32 *nodes, u32 n,
                     const struct place_load *load);
double place_head_s(const struct place_work *w, const u32 *nodes, u32 n,
                    const struct place_part *parts, const struct place_load *load, double *share);
/* The hidden states from one stage to the next. */
double place_pass_s(const struct place_work *w, const u32 *from, u32 n_from, const u32 *to,
                    u32 n_to, const struct place_load *load);
/* The sampled tokens back to the first rank. */
double place_return_s(const struct place_work *w, u32 from, u32 to);
struct place_times place_price(const struct place_work *w, const struct place_rank *ranks, u32 n,
                               double pos);
struct place_load place_decode_load(const struct place_ask *q, double n_seq, double pos);
/* A step of prefill where there are so many stages. */
struct place_load place_prefill_load(const struct place_ask *q, u32 n_stages);
/* Smaller is better. */
double place_score(const struct place_ask *q, const struct place_times *t);
/* Embedding and output matrix; one that is both counts once. */
u64 place_vocab_bytes(const struct place_work *w, bool has_embed, bool has_head);
u64 place_weights_bytes(const struct place_work *w, const struct place_rank *r, bool has_embed,
                        bool has_head);
u64 place_kv_bytes(const struct place_work *w, const struct place_rank *r);
void place_fill_bytes(const struct place_work *w, struct place_rank *r);

/* place_share.c: slices of `n_layers` layers (the heaviest such range counts) for a group of n
 * ranks; out[n]. False when there are too few heads or blocks, or too little memory. */
bool place_slices(const struct place_work *w, const u32 *nodes, u32 n, u32 n_layers, bool is_first,
                  bool is_last, const struct place_load *load, struct msg_slice *out);
/* n_units to n ranks in proportion to speed: each at least one and at most cap[i], the largest
 * out[i] / speed[i] as small as it can be. False when the caps leave no room. */
bool place_share_out(u64 n_units, const double *speed, const u64 *cap, u32 n, u64 *out);

/* place_group.c: nodes that may become a stage. */
struct place_group {
    u32 n;
    bool tried; /* several: slices by speed alone */
    struct place_set *free_set;
    const u32 *nodes;
    struct place_load load;
    double head_s;           /* whole head, of a single node */
    double *before;          /* single node: [n_layers + 1] seconds of the layers before */
    struct place_set **sets; /* several: [(n_layers + 1) * 4], by number of layers and ends */
};
struct place_set {
    bool ok;
    struct msg_slice *slices; /* [n] */
    double *before;           /* [n_layers + 1] */
    double embed_s, head_s;
};
void place_group_init(struct place_work *w, struct place_group *g, const u32 *nodes, u32 n,
                      const struct place_load *load);
/* Seconds of layers [first, end) with embedding and head where they belong; infinity when they
 * don't fit. */
double place_group_s(struct place_work *w, struct place_group *g, u32 first, u32 end);
const struct msg_slice *place_group_slices(struct place_work *w, struct place_group *g, u32 first,
                                           u32 end);

/* place_dp.c */
struct place_stage {
    u32 group, layer_first, layer_end;
};
enum place_aim { AIM_SUM, AIM_MAX };
/* The best way to lay the layers over groups in this order, the first of which is used, for each
 * number of stages: value[k - 1] of k stages (infinity: there is no way), stages[(k - 1) * n ..]
 * which. pass: [n][n] seconds between groups; back: [n] from a group to the first. No stage may
 * take longer than most_s. */
void place_dp(struct place_work *w, struct place_group *const *order, const double *pass,
              const double *back, u32 n, enum place_aim aim, double most_s,
              struct place_stage *stages, double *value);

/* place_order.c: calls fn with orders of 0..n-1 that are worth a look: all of them up to
 * exact_max, else about n_starts. cost: [n][n] of passing. */
typedef void place_order_fn(void *ctx, const u32 *order, u32 n);
void place_orders(const double *cost, const double *speed, u32 n, u32 exact_max, u32 n_starts,
                  struct arena *mem, place_order_fn *fn, void *ctx);
/* The partitions of the nodes as more and more of the closest are joined: label[n] of each node,
 * numbered from 0. Without the first (all apart). At most max calls. */
typedef void place_partition_fn(void *ctx, const u32 *label, u32 n_groups);
void place_partitions(const double *cost, u32 n, u32 max, struct arena *mem, place_partition_fn *fn,
                      void *ctx);

/* place_search.c: best has room for [SHARDING_HYBRID + 1][n_nodes + 1], by kind and number of
 * nodes; what is found goes there, where it is better. */
void place_find(struct place_work *w, u32 sharding, struct place_plan *best);
