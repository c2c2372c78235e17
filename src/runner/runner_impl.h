/* runner_impl.h - what the runner's files share. One struct, one thread. */
#pragma once

#include "base/err.h"
#include "comm/group.h"
#include "engine/sched.h"
#include "engine/stops.h"
#include "formats/template.h"
#include "formats/tokenizer.h"
#include "kernels/pool.h"
#include "comm/team.h"
#include "model/model.h"
#include "ops/ops_cpu.h"
#include "wire/frame.h"
#include "runner/stages.h"
#include "wire/msg.h"

enum {
    RUNNER_MAX_TOK = 512, /* tokens of one step */
    RUNNER_SLOTS = 16,    /* sequences at once, unless asked otherwise */
    RUNNER_SLOTS_MAX = 256,
    RUNNER_CTX_DEFAULT = 8192,
    RUNNER_CTX_MIN = 256,          /* less is of no use to anybody */
    RUNNER_TEMPLATE_MAX = 1 << 20, /* bytes of a template's source */
};

/* Frames between ranks. */
enum { RANK_CAPS = 1, RANK_AGREE, RANK_STEP, RANK_RESULT };

/* What the rank that samples keeps of the sequence in a slot. */
struct slot_state {
    u32 *history; /* [n_ctx] ids by position */
    u32 n_prompt;
    struct sampling sampling;
    struct sampling_bias *bias; /* [SAMPLER_BIAS_MAX] */
};

/* One request on rank 0. */
struct request {
    u64 id;
    struct seq *seq;
    struct detok detok;
    struct stops stops;
    u32 n_max;       /* generated tokens at most */
    u32 n_generated; /* resumed ones included */
    bool ignore_eos;
    u64 t_arrived_us, t_first_us;
    struct request *next;
};

struct runner {
    int fd;
    struct frame_in in;
    struct str out;       /* bytes for the node, written at once */
    struct str scratch;   /* encodings between ranks */
    bool closing, leaves; /* leaves: the end is wanted, here or by another rank */
    /* the shard */
    struct msg_load load; /* strings live in load_arena */
    struct arena load_arena;
    struct model_file *file;
    struct model_params params;
    struct kernels kernels;
    struct pool *pool;
    u32 n_threads, n_cpus; /* of the pool, of this process */
    struct crowd *crowd;   /* the other runners on this machine */
    struct ops *ops;
    struct model *model;
    struct kv_pool kv;
    struct shard_spec spec;
    struct group *group; /* NULL for a group of one */
    struct team *team;   /* of the ranks that share these layers; NULL for one alone */
    struct stages stages;
    u32 stage; /* this rank's */
    int listen_fd;
    struct step_limits lim;
    bool ready;
    float *x;      /* [max_tok][dim], NULL for a shard of its own */
    u8 *wire;      /* act24 of a step */
    float *logits; /* [n_slots][n_vocab] where it is sampled; own rows of all with the head */
    struct sampler *sampler;
    struct slot_state *slot; /* [n_slots] where it is sampled */
    struct step_result result;
    struct step step; /* being computed on this rank */
    /* rank 0 */
    struct tokenizer *tok;
    struct tokenizer_scratch *tok_scratch;
    struct template *tmpl;
    struct err tmpl_err; /* why there is none */
    struct sched *sched;
    struct request *requests;
    u64 n_generated, last_stats_us;
};

/* Takes requests, and decides what a step is. */
static inline bool runner_is_first(const struct runner *r) {
    return r->load.rank == 0;
}
/* The first rank of the last stage: it has all logits. */
static inline bool runner_samples(const struct runner *r) {
    return r->spec.has_head && r->spec.tp_rank == 0;
}

/* Columns of the logits that this rank has room for. */
static inline u64 runner_logits_cols(const struct runner *r) {
    if (!r->spec.has_head) return 0;
    return r->spec.tp_rank ? shard_vocab_rows(&r->params, &r->spec) : r->params.n_vocab;
}

/* runner.c: messages to the node. */
void runner_send(struct runner *r, u32 type, const void *msg);
void runner_flush(
    struct runner *r); /* each turn of the loop flushes; long work does it in between */
void runner_send_error(struct runner *r, u64 id, const struct err *e);

/* runner_shape.c: layer_bytes as model_weight_bytes gives them; lists live in a. */
bool runner_shape(const struct model_file *f, const struct model_params *p, const u64 *layer_bytes,
                  struct arena *a, struct msg_shape *s, struct err *e);

/* runner_load.c */
bool runner_load(struct runner *r, struct err *e); /* r->load is set */
bool runner_connect(struct runner *r, const struct msg_connect *m, struct err *e);
/* Has the node called this shard off? Of struct runner *. */
bool runner_is_called_off(void *ctx);
void runner_ready(struct runner *r);
void runner_unload(struct runner *r);

/* runner_rank.c: computing steps. */
bool runner_agree(struct runner *r, u32 n_ctx, u32 n_slots, u32 n_blocks, struct err *e);
/* Rank 0: starts the next step if there is one; *busy tells. */
bool runner_start_step(struct runner *r, bool *busy, struct err *e);
/* Handles one frame of another rank. */
bool runner_rank_frame(struct runner *r, const struct group_msg *m, struct err *e);

/* runner_request.c: rank 0's requests. */
void runner_generate(struct runner *r, const struct msg_generate *m);
void runner_cancel(struct runner *r, u64 id);
void runner_tokenize(struct runner *r, const struct msg_tokenize *m);
void runner_take_result(struct runner *r, const struct step_result *res);
void runner_drop_requests(struct runner *r);
