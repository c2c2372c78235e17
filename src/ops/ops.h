/* ops.h - what a model can ask for: about fifteen operations behind one table.
 *
 * The forward pass of a model is plain C that calls these on tensors of its shard. The table
 * decides what a call means: ops_cpu.h computes, ops_cost.h adds up bytes, operations and messages
 * without any weights or activations (pointers may then be NULL), a GPU or remote table would
 * record.
 *
 * Activations are f32, row-major, packed: [n_tok][dim]. A table is used by one thread, the owner of
 * the shard; it spreads work over its pool itself. Calls allocate nothing. Shapes that don't fit
 * the weights are our mistake (ASSERT): weights were checked against the model's metadata at load.
 */
#pragma once

#include "base/base.h"
#include "base/dtype.h"
#include "base/err.h"
#include "kernels/kernels.h"
#include "kernels/kv.h"
#include "ops/ops_types.h"

struct team; /* comm/team.h: the ranks that hold slices of the same layers */

struct ops;
struct ops_table {
    const char *name; /* "cpu", "cost" */
    bool (*begin)(struct ops *o, const struct batch *b, struct err *e);
    void (*part)(struct ops *o, const struct batch *b, u32 first);
    void (*embed)(struct ops *o, float *y, const struct tensor *w, const u32 *ids, u32 n);
    void (*norm)(struct ops *o, float *y, const float *x, const struct tensor *w, u64 n, u64 dim,
                 float eps);
    void (*matmuls)(struct ops *o, float *const *y, const struct tensor *const *w, u32 n_mat,
                    const float *x, u32 n);
    void (*bias)(struct ops *o, float *y, const struct tensor *b, u32 n);
    void (*rope)(struct ops *o, float *x, const struct rope *r, u32 n_heads);
    void (*kv_store)(struct ops *o, struct kv_pool *kv, u32 layer, const float *k, const float *v);
    void (*attend)(struct ops *o, float *y, const float *q, const struct kv_pool *kv, u32 layer,
                   const struct attn *a);
    void (*gate)(struct ops *o, float *y, const float *g, const float *up, u64 n,
                 enum gate_act act);
    void (*add)(struct ops *o, float *y, const float *x, u64 n);
    void (*scale)(struct ops *o, float *x, float s, u64 n);
    void (*softcap)(struct ops *o, float *x, float cap, u64 n);
    void (*gather)(struct ops *o, float *y, const float *x, const u32 *idx, u32 n, u64 dim);
    void (*cut)(struct ops *o, float *x, u32 n, u32 dim);
    bool (*sum_send)(struct ops *o, struct team *tp, float *x, u64 n, struct err *e);
    bool (*sum_take)(struct ops *o, struct team *tp, float *x, u64 n, struct err *e);
    bool (*sum)(struct ops *o, struct team *tp, float *x, u64 n, struct err *e);
    bool (*gather_rows)(struct ops *o, struct team *tp, float *x, u32 n, u64 cols, u64 room,
                        struct err *e);
    bool (*matrix_bytes)(struct ops *o, enum dtype type, u64 rows, u64 cols, u64 *bytes);
    bool (*load_matrix)(struct ops *o, struct tensor *t, void *mem, struct err *e);
    void (*free)(struct ops *o);
};

/* First member of every implementation. */
struct ops {
    const struct ops_table *t;
};

/* Bytes that load_matrix needs for such a matrix (a multiple of 64, so that sizes add up). False
 * where the table has no kernel for the type, cols don't divide into its blocks, or on overflow. */
static inline bool ops_matrix_bytes(struct ops *o, enum dtype type, u64 rows, u64 cols,
                                    u64 *bytes) {
    return o->t->matrix_bytes(o, type, rows, cols, bytes);
}
/* t has type, rows, cols, data, name and, where it is a slice, its place. Packs data, in parallel,
 * into mem (64-byte aligned, ops_matrix_bytes long, borrowed for the life of t) and sets packed and
 * k. data is not needed afterwards. ERR_UNSUPPORTED names the tensor. mem == t->data is not
 * allowed. */
static inline bool ops_load_matrix(struct ops *o, struct tensor *t, void *mem, struct err *e) {
    return o->t->load_matrix(o, t, mem, e);
}
/* Decodes a vector's data (any float or block type) to mem[cols] and sets vec. */
bool ops_load_vector(struct tensor *t, float *mem, struct err *e);

/* Names the batch that rope, kv_store and attend work on. b is borrowed until the next begin.
 * ERR_LIMIT when the batch is larger than the table was made for. */
static inline bool ops_begin(struct ops *o, const struct batch *b, struct err *e) {
    return o->t->begin(o, b, e);
}
/* From here on rope, kv_store and attend work on some of the tokens of that batch: b has them, the
 * first being token `first` there, and counts them from 0. Borrowed likewise. */
static inline void ops_part(struct ops *o, const struct batch *b, u32 first) {
    o->t->part(o, b, first);
}
/* y[i] = row ids[i] of w, which begins with row w->row_first; zeros for rows that w has not. */
static inline void ops_embed(struct ops *o, float *y, const struct tensor *w, const u32 *ids,
                             u32 n) {
    o->t->embed(o, y, w, ids, n);
}
/* RMS norm of n rows of dim elements, times w's vector (w == NULL: none): also per head, with
 * n = tokens * heads and dim = head_dim. y may be x. GGUF files have Gemma's +1 in the weights. */
static inline void ops_norm(struct ops *o, float *y, const float *x, const struct tensor *w, u64 n,
                            u64 dim, float eps) {
    o->t->norm(o, y, x, w, n, dim, eps);
}
/* y[n][w->rows] = x[n][w->cols] times w transposed. y and x don't overlap. Without columns y
 * becomes zeros, without rows nothing is done: a rank may have an empty slice. */
static inline void ops_matmul(struct ops *o, float *y, const struct tensor *w, const float *x,
                              u32 n) {
    o->t->matmuls(o, &y, &w, 1, x, n);
}
/* The same for up to OPS_MATMULS matrices of equal cols: x is converted once and the threads meet
 * once (query, key and value; gate and up). */
enum { OPS_MATMULS = 4 };
static inline void ops_matmuls(struct ops *o, float *const *y, const struct tensor *const *w,
                               u32 n_mat, const float *x, u32 n) {
    o->t->matmuls(o, y, w, n_mat, x, n);
}
/* y[n][b->cols] += b. */
static inline void ops_bias(struct ops *o, float *y, const struct tensor *b, u32 n) {
    o->t->bias(o, y, b, n);
}
/* Rotates x[n_tok][n_heads][head_dim] in place, at the positions of the current batch. */
static inline void ops_rope(struct ops *o, float *x, const struct rope *r, u32 n_heads) {
    o->t->rope(o, x, r, n_heads);
}
/* Writes k[n_tok][kv_heads][dk] and v[n_tok][kv_heads][dv] of the batch into the blocks. */
static inline void ops_kv_store(struct ops *o, struct kv_pool *kv, u32 layer, const float *k,
                                const float *v) {
    o->t->kv_store(o, kv, layer, k, v);
}
/* y[n_tok][n_heads][dv] = attention of q[n_tok][n_heads][dk] over all stored positions up to each
 * token's own, those of this batch included (store first). */
static inline void ops_attend(struct ops *o, float *y, const float *q, const struct kv_pool *kv,
                              u32 layer, const struct attn *a) {
    o->t->attend(o, y, q, kv, layer, a);
}
/* y = act(g) * up, n elements. y may be g or up. */
static inline void ops_gate(struct ops *o, float *y, const float *g, const float *up, u64 n,
                            enum gate_act act) {
    o->t->gate(o, y, g, up, n, act);
}
static inline void ops_add(struct ops *o, float *y, const float *x, u64 n) {
    o->t->add(o, y, x, n);
}
static inline void ops_scale(struct ops *o, float *x, float s, u64 n) {
    o->t->scale(o, x, s, n);
}
/* x = cap * tanh(x / cap). */
static inline void ops_softcap(struct ops *o, float *x, float cap, u64 n) {
    o->t->softcap(o, x, cap, n);
}
/* y[i] = row idx[i] of x, n rows of dim elements: the tokens that want logits. idx ascends, and y
 * may be x. */
static inline void ops_gather(struct ops *o, float *y, const float *x, const u32 *idx, u32 n,
                              u64 dim) {
    o->t->gather(o, y, x, idx, n, dim);
}
/* The end of a layer, where a pipeline may be cut: rounds x[n][dim] to what travels between stages
 * (act24.h), cut here or not, so that an answer does not depend on how layers are dealt. */
static inline void ops_cut(struct ops *o, float *x, u32 n, u32 dim) {
    o->t->cut(o, x, n, dim);
}
/* x[n] becomes the sum over the team of everybody's x, added in rank order, so every rank holds the
 * same bits (comm/team.h), in two halves: the parts travel while what is called between them is
 * computed, and x stays as it is until then. As many takes as sends, in the same order. tp == NULL:
 * a team of one, and nothing is done. These and the two below are the operations that can fail
 * while a step runs (a peer is gone). */
static inline bool ops_sum_send(struct ops *o, struct team *tp, float *x, u64 n, struct err *e) {
    return o->t->sum_send(o, tp, x, n, e);
}
static inline bool ops_sum_take(struct ops *o, struct team *tp, float *x, u64 n, struct err *e) {
    return o->t->sum_take(o, tp, x, n, e);
}
/* Adds x[n] of all ranks, exactly: parts travel as f32 whatever the team's wire type is. */
static inline bool ops_sum(struct ops *o, struct team *tp, float *x, u64 n, struct err *e) {
    return o->t->sum(o, tp, x, n, e);
}
/* x[n][cols] of each rank become x[n][room] on the team's first, see team_gather_rows. */
static inline bool ops_gather_rows(struct ops *o, struct team *tp, float *x, u32 n, u64 cols,
                                   u64 room, struct err *e) {
    return o->t->gather_rows(o, tp, x, n, cols, room, e);
}
static inline void ops_free(struct ops *o) {
    if (o) o->t->free(o);
}
