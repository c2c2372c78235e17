/* model_impl.h - inside of model/: a shard as the forward passes of the families see it.
 *
 * Open data, filled once by model_load and then only read, but for the activations. An absent
 * optional tensor has cols == 0. With the cost table weights and activations are NULL. */
#pragma once

#include "base/arena.h"
#include "model/model.h"
#include "model/model_arch.h"
#include "model/slice.h"

/* Shapes are those of the whole model; a slice has fewer heads, n_ff and n_vocab (slice.h). */
struct layer {
    struct tensor attn_norm; /* [dim] */
    struct tensor wq, wk,
        wv; /* [n_heads * dk][dim], [n_kv_heads * dk][dim], [n_kv_heads * dv][dim] */
    struct tensor bq, bk, bv, bo; /* their biases and wo's; optional */
    struct tensor q_norm, k_norm; /* [dk], for every head alike; by family */
    struct tensor wo;             /* [dim][n_heads * dv] */
    struct tensor attn_post_norm; /* [dim]; by family */
    struct tensor ffn_norm;       /* [dim] */
    struct tensor gate, up, down; /* [n_ff][dim], [n_ff][dim], [dim][n_ff] */
    struct tensor ffn_post_norm;  /* [dim]; by family */
};

struct shard_weights {
    struct tensor embed;    /* [n_vocab][dim]; with the embedding, and with a tied head */
    struct tensor out_norm; /* [dim]; with the head */
    struct tensor output;   /* [n_vocab][dim]; with a head of its own */
    struct layer *layers;   /* [n_layers] of this shard */
    u32 n_layers;
    void *mem; /* all packed weights and decoded vectors */
    u64 mem_bytes;
    struct arena names;
};

/* Activations of one step, for max_tok tokens. */
struct act {
    float *x;         /* [n_tok][dim] hidden state, where the caller has none */
    float *xn, *y;    /* [n_tok][dim] normalized; what a block adds */
    float *q, *k, *v; /* [n_tok][heads * head_dim] */
    float *att;       /* [n_tok][att_cols]: columns without a head here stay zero */
    float *gate, *up; /* [n_tok][n_ff] */
    void *mem;
    u64 mem_bytes;
};

struct model {
    struct model_params p;
    struct shard_spec spec;
    struct slice slice;
    struct team *tp; /* NULL: a team of one */
    struct ops *ops;
    u32 max_tok;
    struct shard_weights w;
    struct act act;
    struct kv_span *spans; /* [max_spans + 1] of a step that is cut into pieces */
    u32 max_spans;
    struct rope rope, rope_local; /* of global and of sliding layers */
    double *inv_freq;             /* both ropes' */
};

/* Neighbouring tokens of a step that go through the layers together: all of them, or in a team some
 * (model_layers.c). */
enum { MODEL_PIECES = 2 };
struct piece {
    const struct model_step *step;
    struct kv_pool *kv;
    struct batch batch;    /* its tokens, counted from 0 */
    u32 first;             /* which token of the step the first one is */
    u32 out_first, n_out;  /* its part of step->out */
    u32 n;                 /* rows: its tokens; behind the last attention those that want logits */
    float *x, *y, *att;    /* its rows of the hidden state, of act.y and of act.att */
    float *step_x, *out_x; /* the hidden state of the step; where those rows go there at the end */
};

/* Half a layer, attention or feed-forward, around the sum of the team. */
struct half {
    void (*part)(struct model *m, u32 il, struct piece *t); /* y = what this rank's slice gives */
    void (*add)(struct model *m, u32 il, struct piece *t);  /* y is the sum of all: x += it */
};

static inline bool tensor_there(const struct tensor *t) {
    return t->cols != 0;
}

/* Finds and checks the shard's tensors: type, shape, data. Nothing else is set. Also refuses
 * tensors that the architecture has no use for, rather than computing something else than the file
 * means. ERR_FORMAT or ERR_UNSUPPORTED names the tensor. */
bool weights_find(struct shard_weights *w, const struct model_file *f, const struct model_params *p,
                  const struct shard_spec *spec, const struct slice *s, struct err *e);
/* The longest block among the shard's output projections, for slice_of. */
u32 weights_wo_block(const struct model_file *f, const struct shard_spec *spec);
/* Takes memory and packs, and drops each matrix of the file once it is packed, so that a load takes
 * little more than what is packed. With the cost table nothing is read. */
bool weights_pack(struct shard_weights *w, const struct model_file *f, struct ops *ops,
                  void (*progress)(void *ctx, u32 done, u32 total), void *ctx, struct err *e);
void weights_deinit(struct shard_weights *w);

/* Fills r and inv_freq[rope_dims / 2] for one kind of layer. Scaling applies where `scaled`;
 * factors (rope_freqs.weight, [rope_dims / 2]) may be NULL. */
void rope_init(struct rope *r, double *inv_freq, const struct model_params *p, float theta,
               bool scaled, const float *factors);

/* Is layer il (of the whole model) one with a sliding window? */
static inline bool layer_slides(const struct model_params *p, u32 il) {
    return p->sliding_window && (!p->sliding_pattern || (il + 1) % p->sliding_pattern);
}

/* The sliding window of a layer; 0: it sees everything. */
u32 model_window(const struct model *m, u32 il);
/* act.q, k, v = the projections of act.xn, with their biases where there are some. */
void model_qkv(struct model *m, const struct layer *l, u32 n);
/* act.gate, up = the projections of act.xn. */
void model_gate_up(struct model *m, const struct layer *l, u32 n);
/* How layer il attends. */
struct attn model_attn(const struct model *m, u32 il);
/* x = the rows of the step's tokens. */
bool model_embed(struct model *m, const struct model_step *s, float *x, struct err *e);
/* t->att = attention of act.q. In the last layer t is then reduced to the rows that want logits,
 * because nothing else reads what becomes of the others: n (if it is 0 nothing is done), x and att;
 * the rows of all pieces lie behind one another at the beginning of the step's x. */
void model_attend(struct model *m, u32 il, struct piece *t);
/* All layers: the halves are those of the family, attention first. */
bool model_layers(struct model *m, const struct model_step *s, struct kv_pool *kv, float *x,
                  const struct half halves[2], struct err *e);
/* Final norm, output matrix and soft-cap for the rows that the last layer left. */
bool model_logits(struct model *m, const struct model_step *s, float *x, float *logits,
                  struct err *e);

bool llama_forward(struct model *m, const struct model_step *s, struct kv_pool *kv, float *x,
                   float *logits, struct err *e);
bool gemma_forward(struct model *m, const struct model_step *s, struct kv_pool *kv, float *x,
                   float *logits, struct err *e);
