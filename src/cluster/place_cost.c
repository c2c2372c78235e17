/* place_cost.c - what a layout costs: a roofline of each rank, and the links between them. */
#include <math.h>
#include <string.h>

#include "cluster/place_impl.h"

/* Per operation, where nobody measured how the threads of a rank meet. Per sum and message: system
 * calls on both sides. Where the receiver has waited for long, it sleeps and must wake up. */
static const double CALL_S = 1.5e-6, MESSAGE_S = 8e-6, WAKE_S = 50e-6;
/* What a sum takes of a processor, an element: to convert what is sent; to send it to one rank and
 * to add what that one sends. Between two ranks both were measured together (bench/README.md,
 * "Plans against what comes out"); how they share it is an estimate. */
static const double CONVERT_S = 0.4e-9, SWAP_S = 1.2e-9;
enum {
    SUM_BYTES = 2,       /* of an element of a sum: f16 */
    SUM_PIECES_TOK = 64, /* so many tokens go through a layer in two pieces: model/model_layers.c */
    PASS_BYTES = 3,      /* of the hidden state between stages */
    OPS_PER_BYTE = 4,    /* of a model that nobody priced: two operations a 4-bit weight */
    CALLS_OF_LAYER = 15  /* likewise */
};

const struct place_part PLACE_WHOLE = {1, 1, 1, 1, 1};

void place_work_init(struct place_work *w, const struct place_ask *q, struct arena *mem) {
    const struct msg_model *d = q->model;
    const struct msg_layer_cost *kinds = d->shape.kinds.v;
    bool priced = d->shape.kinds.n && d->shape.layer_kind.n == d->n_layers;
    *w = (struct place_work){.q = q, .mem = mem, .n_layers = d->n_layers, .stages_max = q->n_nodes};
    w->cost = arena_array(mem, d->n_layers, sizeof *w->cost);
    w->known = arena_alloc(mem, sizeof *w->known);
    w->known->nodes = arena_array(mem, q->n_nodes, sizeof *w->known->nodes);
    w->known->crowd = arena_array(mem, q->n_nodes, sizeof *w->known->crowd);
    w->kind = arena_array(mem, d->n_layers, sizeof *w->kind);
    w->n_kinds = priced ? (u32)d->shape.kinds.n : d->n_layers;
    w->bytes = arena_array(mem, d->n_layers + 1, sizeof *w->bytes);
    w->kv_layer_bytes = d->kv_bytes_per_token_layer * q->kv_tokens;
    w->head_ops = d->shape.head_ops ? d->shape.head_ops : d->head_bytes * OPS_PER_BYTE;
    w->can_slice = priced && d->shape.n_heads && d->shape.n_kv_heads && d->shape.n_ff &&
                   d->shape.n_heads % d->shape.n_kv_heads == 0;
    for (u32 i = 0; i < d->n_layers; i++) {
        u64 b = d->layer_bytes.v[i];
        w->bytes[i + 1] = w->bytes[i] + b;
        w->kind[i] = priced ? (u32)d->shape.layer_kind.v[i] : i;
        w->cost[i] = priced ? kinds[d->shape.layer_kind.v[i]]
                            : (struct msg_layer_cost){.attn_bytes = b / 3,
                                                      .ffn_bytes = b - b / 3,
                                                      .attn_ops = b / 3 * OPS_PER_BYTE,
                                                      .ffn_ops = (b - b / 3) * OPS_PER_BYTE,
                                                      .n_sums = 2,
                                                      .n_calls = CALLS_OF_LAYER};
    }
}

static u32 kv_heads_of(const struct msg_shape *s, const struct msg_slice *c) {
    u32 per = s->n_heads / s->n_kv_heads;
    return (c->head_end + per - 1) / per - c->head_first / per;
}

struct place_part place_part_of(const struct place_work *w, const struct place_rank *r) {
    const struct msg_shape *s = &w->q->model->shape;
    const struct msg_slice *c = &r->slice;
    if (r->tp_ranks < 2 || !w->can_slice) return PLACE_WHOLE;
    double heads = c->head_end - c->head_first, kv = kv_heads_of(s, c);
    return (struct place_part){.attn = (heads + kv) / (s->n_heads + s->n_kv_heads),
                               .heads = heads / s->n_heads,
                               .kv = kv / s->n_kv_heads,
                               .ff = (double)(c->ff_end - c->ff_first) / s->n_ff,
                               .vocab = (double)(c->vocab_end - c->vocab_first) /
                                        MAX(w->q->model->n_vocab, 1u)};
}

/* As fmax, which is a call. */
static double larger(double a, double b) {
    return a > b ? a : b;
}

/* Delay and bandwidth of the worst pair between two groups. */
static void worst_link(const struct place_work *w, const u32 *a, u32 na, const u32 *b, u32 nb,
                       double *delay, double *bytes_s) {
    *delay = 0;
    *bytes_s = INFINITY;
    for (u32 i = 0; i < na; i++)
        for (u32 j = 0; j < nb; j++) {
            if (a[i] == b[j]) continue;
            const struct place_link *l = &w->q->links[(size_t)a[i] * w->q->n_nodes + b[j]];
            *delay = larger(*delay, l->delay_s);
            if (l->bytes_s < *bytes_s) *bytes_s = l->bytes_s;
        }
}

static const struct place_known *know(const struct place_work *w, const u32 *nodes, u32 n) {
    struct place_known *k = w->known;
    if (k->n == n && memcmp(k->nodes, nodes, n * sizeof *nodes) == 0) return k;
    ASSERT(n <= w->q->n_nodes);
    k->n = n;
    memcpy(k->nodes, nodes, n * sizeof *nodes);
    worst_link(w, nodes, n, nodes, n, &k->delay_s, &k->bytes_s);
    const struct place_node *of = w->q->nodes;
    for (u32 i = 0; i < n; i++) {
        k->crowd[i] = 0;
        for (u32 j = 0; j < n; j++) k->crowd[i] += of[nodes[j]].machine == of[nodes[i]].machine;
    }
    return k;
}

/* What a rank does in a part of a layer. */
struct piece {
    double bytes, ops;  /* of matrices: packed, and for one token */
    double more_rows;   /* than such a part of the whole: of the matrix whose columns are shared */
    double kv_bytes;    /* read while attention computes */
    double other_bytes; /* norms, activations */
    double attend_ops;
};

/* Seconds of a product with n tokens. Between what was measured it grows evenly. */
static double product_s(const struct place_node *k, const struct place_rate *r,
                        const struct piece *p, double n) {
    if (r->few_ops_s <= 0) return larger(p->bytes / k->read_bytes_s, n * p->ops / k->ops_s);
    double one = p->bytes / r->read_bytes_s + p->more_rows * r->row_one_s,
           few = MSG_RATE_FEW * (p->ops / r->few_ops_s + p->more_rows * r->row_many_s),
           many = MSG_RATE_MANY * (p->ops / r->ops_s + p->more_rows * r->row_many_s);
    if (n <= MSG_RATE_FEW) return one + (few - one) * larger(n - 1, 0) / (MSG_RATE_FEW - 1);
    if (n >= MSG_RATE_MANY) return many * n / MSG_RATE_MANY;
    return few + (many - few) * (n - MSG_RATE_FEW) / (MSG_RATE_MANY - MSG_RATE_FEW);
}

/* alone: each token attends for itself, and all keys and values come from memory. */
static double attend_rate(const struct place_node *k, bool alone) {
    if (alone && k->attend_one_ops_s > 0) return k->attend_one_ops_s;
    return k->attend_ops_s > 0 ? k->attend_ops_s : k->ops_s;
}

/* A team computes many tokens in two halves, one behind the other: model/model_layers.c. */
static bool in_halves(u32 n_ranks, double n_tok) {
    return n_ranks > 1 && n_tok >= SUM_PIECES_TOK;
}

/* The slowest of n ranks, of which those on one machine divide it; `share` gets its time as
 * memory's or as compute's. */
static double slowest(const struct place_work *w, const u32 *nodes, u32 n, const struct piece *p,
                      double n_tok, bool head, bool alone, double *share) {
    double worst = 0;
    bool worst_mem = true;
    const u32 *crowd = n > 1 ? know(w, nodes, n)->crowd : NULL;
    for (u32 i = 0; i < n; i++) {
        const struct place_node *k = &w->q->nodes[nodes[i]];
        double c = crowd ? crowd[i] : 1;
        double attend = p[i].attend_ops / attend_rate(k, alone);
        double other = p[i].other_bytes / k->read_bytes_s +
                       larger(p[i].kv_bytes / k->read_bytes_s, attend);
        double pieces = !head && in_halves(n, n_tok) ? 2 : 1;
        double t = other + pieces * product_s(k, head ? &k->head : &k->layers, &p[i],
                                              n_tok / pieces);
        if (t * c < worst) continue;
        worst = t * c;
        worst_mem = p[i].bytes / k->read_bytes_s >= n_tok * p[i].ops / k->ops_s;
    }
    if (share) share[worst_mem ? 0 : 1] += worst;
    return worst;
}

/* The threads of a rank meet for each operation; the slowest rank's count. */
static double calls_s(const struct place_work *w, const u32 *nodes, u32 n, double n_calls) {
    double worst = 0;
    for (u32 i = 0; i < n; i++) {
        double s = w->q->nodes[nodes[i]].call_s;
        worst = larger(worst, s > 0 ? s : CALL_S);
    }
    return n_calls * worst;
}

/* Of two pieces each one's sum travels while the other's half layer is computed, `half` seconds for
 * both. What is waited for: the link, where both sums take it for longer than that; or a piece that
 * is computed and summed before the other one is through. */
static double waited_s(double delay, double travels, double half) {
    return fmax(0, fmax(travels - half, delay + (travels - half) / 2));
}

/* Everybody's part to everybody at once, or in segments that are summed and then spread: two ways,
 * and both are behind the other piece. Nothing hides the processor's own part. half: seconds of the
 * half layer before it; 0: nothing is computed meanwhile. */
static double sum_s(const struct place_work *w, const u32 *nodes, u32 n, double n_tok,
                    double half) {
    if (n < 2) return 0;
    double elements = n_tok * w->q->model->dim, delay = know(w, nodes, n)->delay_s;
    double travels = (n - 1) * elements * SUM_BYTES / know(w, nodes, n)->bytes_s;
    double each = travels / n, calls = (n - 1) * MESSAGE_S;
    double whole = elements * (CONVERT_S + (n - 1) * SWAP_S);
    double parts = elements * ((n + 1.0) / n * CONVERT_S + 2 * (n - 1.0) / n * SWAP_S);
    if (n_tok < SUM_PIECES_TOK || half <= 0)
        return fmin(delay + travels + calls + whole, 2 * (delay + each + calls) + parts);
    return fmin(waited_s(delay, travels, half) + 2 * calls + whole,
                waited_s(2 * delay, 2 * each, half) + 4 * calls + parts);
}

/* Of the last layer the tokens that want no logits end with query, key and value, which are so much
 * of attention's matrices. */
static double qkv_share(const struct place_work *w) {
    const struct msg_shape *s = &w->q->model->shape;
    return (s->n_heads + 2.0 * s->n_kv_heads) / (2.0 * s->n_heads + 2.0 * s->n_kv_heads);
}

static bool ends_early(const struct place_work *w, const struct place_load *load, u32 il) {
    return w->can_slice && il + 1 == w->n_layers && load->n_out < load->n_tok;
}

/* Seconds of that, n_out being few. */
static double last_layer_s(const struct place_work *w, const u32 *nodes, u32 n,
                           const struct place_part *parts, const struct place_load *load,
                           double *share) {
    enum { FEW = 64 };
    const struct msg_layer_cost *c = &w->cost[w->n_layers - 1];
    struct piece few[FEW], *v = n <= FEW ? few : arena_array(w->mem, n, sizeof *v);
    double of = qkv_share(w), calls = calls_s(w, nodes, n, c->n_calls / 3.0);
    for (u32 i = 0; i < n; i++)
        v[i] = (struct piece){.bytes = (double)c->attn_bytes * parts[i].attn * of,
                              .ops = (double)c->attn_ops * parts[i].attn * of,
                              .other_bytes =
                                  load->n_tok * (double)MIN(c->act_whole_bytes, c->act_bytes) / 2};
    if (share) share[1] += calls;
    return calls + slowest(w, nodes, n, v, load->n_tok, false, false, share);
}

double place_layer_s(const struct place_work *w, const u32 *nodes, u32 n,
                     const struct place_part *parts, const struct place_load *load, u32 il,
                     double *share) {
    enum { FEW = 64 };
    if (ends_early(w, load, il)) return last_layer_s(w, nodes, n, parts, load, share);
    struct piece few[2 * FEW];
    struct piece *attn = n <= FEW ? few : arena_array(w->mem, 2 * (size_t)n, sizeof *attn);
    struct piece *ffn = attn + n;
    const struct msg_layer_cost *c = &w->cost[il];
    double seen = c->window ? fmin(load->pos, c->window) : load->pos;
    double kv = seen * load->n_seq * (double)w->q->model->kv_bytes_per_token_layer;
    double dim = w->q->model->dim;
    double whole = load->n_tok * (double)MIN(c->act_whole_bytes, c->act_bytes); /* a peer says so */
    double act = load->n_tok * (double)c->act_bytes - whole;
    for (u32 i = 0; i < n; i++) {
        const struct place_part *p = &parts[i];
        attn[i] =
            (struct piece){.bytes = (double)c->attn_bytes * p->attn,
                           .ops = (double)c->attn_ops * p->attn,
                           .more_rows = dim * (1 - p->attn),
                           .kv_bytes = kv * p->kv,
                           .other_bytes = (double)c->fixed_bytes + act * p->ff + whole,
                           .attend_ops = load->n_tok * seen * (double)c->attend_ops * p->heads};
        ffn[i] = (struct piece){.bytes = (double)c->ffn_bytes * p->ff,
                                .ops = (double)c->ffn_ops * p->ff,
                                .more_rows = dim * (1 - p->ff)};
    }
    double calls = calls_s(w, nodes, n, c->n_calls * (in_halves(n, load->n_tok) ? 2.0 : 1.0));
    bool alone = load->n_tok <= load->n_seq; /* no two tokens of a sequence */
    double attn_s = slowest(w, nodes, n, attn, load->n_tok, false, alone, share);
    double ffn_s = slowest(w, nodes, n, ffn, load->n_tok, false, alone, share);
    double net = c->n_sums / 2.0 *
                 (sum_s(w, nodes, n, load->n_tok, attn_s) + sum_s(w, nodes, n, load->n_tok, ffn_s));
    if (share) {
        share[1] += calls;
        share[2] += net;
    }
    return attn_s + ffn_s + calls + net;
}

void place_layers_before(const struct place_work *w, const u32 *nodes, u32 n,
                         const struct place_part *parts, const struct place_load *load,
                         double *before) {
    double *of_kind = arena_array(w->mem, w->n_kinds, sizeof *of_kind);
    before[0] = 0;
    for (u32 i = 0; i < w->n_layers; i++) {
        double last = 0, *t = ends_early(w, load, i) ? &last : &of_kind[w->kind[i]];
        if (*t == 0) *t = place_layer_s(w, nodes, n, parts, load, i, NULL);
        before[i + 1] = before[i] + *t;
    }
}

double place_layers_s(const struct place_work *w, const u32 *nodes, u32 n,
                      const struct place_part *parts, const struct place_load *load, u32 first,
                      u32 end, double *share) {
    double sum = 0;
    for (u32 i = first, run; i < end; i += run) {
        double own[3] = {0};
        for (run = 1; i + run < end && w->kind[i + run] == w->kind[i] &&
                      !ends_early(w, load, i + run);
             run++) {
        }
        sum += run * place_layer_s(w, nodes, n, parts, load, i, own);
        for (u32 k = 0; share && k < 3; k++) share[k] += run * own[k];
    }
    return sum;
}

double place_head_s(const struct place_work *w, const u32 *nodes, u32 n,
                    const struct place_part *parts, const struct place_load *load, double *share) {
    enum { FEW = 64 };
    struct piece few[FEW], *p = n <= FEW ? few : arena_array(w->mem, n, sizeof *p);
    double net = 0;
    if (load->n_out <= 0) return 0;
    for (u32 i = 0; i < n; i++)
        p[i] = (struct piece){.bytes = (double)w->q->model->head_bytes * parts[i].vocab,
                              .ops = (double)w->head_ops * parts[i].vocab};
    if (n > 1) { /* the logits gather on the first */
        const struct place_known *k = know(w, nodes, n);
        double bytes = load->n_out * w->q->model->n_vocab * (double)sizeof(float) * (n - 1) / n;
        net = k->delay_s + bytes / k->bytes_s + MESSAGE_S;
    }
    double calls = calls_s(w, nodes, n, 1);
    if (share) {
        share[1] += calls;
        share[2] += net;
    }
    return slowest(w, nodes, n, p, load->n_out, true, true, share) + calls + net;
}

double place_embed_s(const struct place_work *w, const u32 *nodes, u32 n,
                     const struct place_load *load) {
    if (n < 2) return 0;
    double delay = know(w, nodes, n)->delay_s;
    return delay + WAKE_S + (n - 1) * MESSAGE_S + sum_s(w, nodes, n, load->n_tok, 0);
}

double place_pass_s(const struct place_work *w, const u32 *from, u32 n_from, const u32 *to,
                    u32 n_to, const struct place_load *load) {
    double delay, bytes_s;
    worst_link(w, from, MIN(n_from, 1u), to, n_to, &delay, &bytes_s);
    double bytes = load->n_tok * w->q->model->dim * PASS_BYTES * n_to;
    return delay + WAKE_S + bytes / bytes_s + n_to * MESSAGE_S;
}

double place_return_s(const struct place_work *w, u32 from, u32 to) {
    if (from == to) return 0;
    return w->q->links[(size_t)from * w->q->n_nodes + to].delay_s + WAKE_S + MESSAGE_S;
}

struct place_load place_decode_load(const struct place_ask *q, double n_seq, double pos) {
    (void)q;
    return (struct place_load){.n_tok = n_seq, .n_seq = n_seq, .n_out = n_seq, .pos = pos};
}

struct place_load place_prefill_load(const struct place_ask *q, u32 n_stages) {
    double n = MIN(q->n_prompt, (u32)(n_stages > 1 ? PLACE_PIECE_TOK : PLACE_CHUNK_TOK));
    return (struct place_load){.n_tok = n, .n_seq = 1, .pos = q->n_prompt / 2.0};
}

/* One step through all stages: the sum, the longest stage, and which rank begins it. */
struct walk {
    double sum, longest;
    u32 slowest;
};

static struct walk walk(const struct place_work *w, const struct place_rank *r, u32 n,
                        const struct place_load *load, double *share) {
    struct walk out = {0};
    struct arena tmp = {0};
    u32 *nodes = arena_array(&tmp, n, sizeof *nodes);
    struct place_part *parts = arena_array(&tmp, n, sizeof *parts);
    double *busy = arena_array(&tmp, n, sizeof *busy); /* by stage's first rank */
    for (u32 i = 0; i < n; i++) {
        nodes[i] = r[i].node;
        parts[i] = place_part_of(w, &r[i]);
    }
    for (u32 i = 0, k; i < n; i += k) {
        k = MIN(MAX(r[i].tp_ranks, 1u), n - i);
        double pass = 0, t = place_layers_s(w, nodes + i, k, parts + i, load, r[i].layer_first,
                                            r[i].layer_end, share);
        if (i == 0) {
            double embed = place_embed_s(w, nodes, k, load);
            if (share) share[2] += embed;
            t += embed;
        }
        if (i + k == n)
            t += place_head_s(w, nodes + i, k, parts + i, load, share);
        else
            pass = place_pass_s(w, nodes + i, k, nodes + i + k, MAX(r[i + k].tp_ranks, 1u), load);
        if (share) share[2] += pass;
        busy[i] = t;
        for (u32 j = 0; j < i; j++) /* an earlier stage on the same machine takes turns with it */
            if (w->q->nodes[nodes[j]].machine == w->q->nodes[nodes[i]].machine) t += busy[j];
        if (t > out.longest || pass > out.longest) {
            out.longest = fmax(t, pass);
            out.slowest = i;
        }
        out.sum += busy[i] + pass;
    }
    arena_deinit(&tmp);
    return out;
}

static u32 count_stages(const struct place_rank *r, u32 n) {
    u32 k = 0;
    for (u32 i = 0; i < n; i++) k += r[i].tp_ranks < 2 || r[i].tp_first == i;
    return k;
}

/* The logits of a prompt's last token. */
static double head_once_s(const struct place_work *w, const struct place_rank *ranks, u32 n) {
    u32 k = MIN(MAX(ranks[n - 1].tp_ranks, 1u), n);
    struct place_load one = place_decode_load(w->q, 1, 0);
    struct arena tmp = {0};
    u32 *nodes = arena_array(&tmp, k, sizeof *nodes);
    struct place_part *parts = arena_array(&tmp, k, sizeof *parts);
    for (u32 i = 0; i < k; i++) {
        nodes[i] = ranks[n - k + i].node;
        parts[i] = place_part_of(w, &ranks[n - k + i]);
    }
    double s = place_head_s(w, nodes, k, parts, &one, NULL);
    arena_deinit(&tmp);
    return s;
}

struct place_times place_price(const struct place_work *w, const struct place_rank *ranks, u32 n,
                               double pos) {
    const struct place_ask *q = w->q;
    double share[3] = {0};
    struct place_times t = {0};
    u32 n_stages = count_stages(ranks, n);
    struct place_load one = place_decode_load(q, 1, pos), chunk = place_prefill_load(q, n_stages);
    u32 last = n - MAX(ranks[n - 1].tp_ranks, 1u);
    double back = place_return_s(w, ranks[last].node, ranks[0].node);
    struct walk alone = walk(w, ranks, n, &one, share);
    t.token_s = alone.sum + back;
    t.even_s = n_stages * alone.longest;
    t.memory_s = share[0];
    t.compute_s = share[1];
    t.network_s = share[2] + back;

    /* A chunk after the other; a piece is begun when the first of the n_stages before it is back.
     */
    u32 n_chunks = (u32)ceil(q->n_prompt / fmax(chunk.n_tok, 1));
    struct walk pre = walk(w, ranks, n, &chunk, NULL);
    double each = n_stages > 1 ? fmax(pre.longest, (pre.sum + back) / n_stages) : pre.sum;
    t.first_s = pre.sum + (MAX(n_chunks, 1u) - 1) * each + head_once_s(w, ranks, n) + back;

    /* The requests go round in as many parts as there are stages. */
    u32 m = MIN(n_stages, MAX(q->n_batch, 1u));
    struct place_load part = place_decode_load(q, ceil((double)MAX(q->n_batch, 1u) / m), pos);
    struct walk many = walk(w, ranks, n, &part, NULL);
    t.rate = MAX(q->n_batch, 1u) / fmax(many.sum + back, m * many.longest);
    t.slowest = many.slowest;
    return t;
}

struct place_times place_predict(const struct place_ask *q, const struct place_rank *ranks, u32 n,
                                 u32 pos) {
    struct arena tmp = {0};
    struct place_work w;
    place_work_init(&w, q, &tmp);
    struct place_times t = place_price(&w, ranks, n, pos);
    arena_deinit(&tmp);
    return t;
}

double place_score(const struct place_ask *q, const struct place_times *t) {
    return q->goal == GOAL_THROUGHPUT ? 1 / t->rate
           : q->goal == GOAL_TTFT     ? t->first_s
                                      : t->token_s + q->balance * t->even_s;
}

u64 place_vocab_bytes(const struct place_work *w, bool has_embed, bool has_head) {
    const struct msg_model *m = w->q->model;
    return (has_embed ? m->embed_bytes : 0) + (has_head ? m->head_bytes : 0) -
           (has_embed && has_head ? m->tied_bytes : 0);
}

u64 place_weights_bytes(const struct place_work *w, const struct place_rank *r, bool has_embed,
                        bool has_head) {
    struct place_part p = place_part_of(w, r);
    bool whole = r->tp_ranks < 2;
    double sum = 0;
    u64 bytes = w->bytes[r->layer_end] - w->bytes[r->layer_first];
    for (u32 il = r->layer_first; il < r->layer_end && !whole; il++) {
        const struct msg_layer_cost *c = &w->cost[il];
        double all = (double)MAX(c->attn_bytes + c->ffn_bytes + c->fixed_bytes, 1u);
        double mine =
            (double)c->attn_bytes * p.attn + (double)c->ffn_bytes * p.ff + (double)c->fixed_bytes;
        sum += (double)(w->bytes[il + 1] - w->bytes[il]) * mine / all;
    }
    if (!whole) bytes = (u64)ceil(sum);
    u64 rows = place_vocab_bytes(w, has_embed, has_head);
    bytes += whole ? rows : (u64)ceil((double)rows * p.vocab);
    return bytes;
}

u64 place_kv_bytes(const struct place_work *w, const struct place_rank *r) {
    u64 kv = (r->layer_end - r->layer_first) * w->kv_layer_bytes;
    return r->tp_ranks < 2 ? kv : (u64)ceil((double)kv * place_part_of(w, r).kv);
}

void place_fill_bytes(const struct place_work *w, struct place_rank *r) {
    r->weights_bytes = place_weights_bytes(w, r, r->layer_first == 0, r->layer_end == w->n_layers);
    r->kv_bytes = place_kv_bytes(w, r);
    r->need_bytes = r->weights_bytes + r->kv_bytes + w->q->scratch_bytes;
}
