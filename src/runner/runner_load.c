#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/crowd.h"
#include "base/log.h"
#include "base/sysinfo.h"
#include "ops/act24.h"
#include "ops/ops_cpu.h"
#include "runner/runner.h"
#include "runner/runner_impl.h"

static struct view template_source(const struct model_file *f) {
    struct view v = {0};
    gguf_get_str(f->meta, "tokenizer.chat_template", &v, NULL);
    return v;
}

static u64 kv_bytes_per_token_layer(const struct model_params *p, u32 n_kv_heads,
                                    enum kv_type type) {
    u64 block = 0;
    kv_block_bytes(type, 1, n_kv_heads, p->head_dim_k, p->head_dim_v, &block);
    return block / KV_BLOCK_TOKENS;
}

static void describe_params(const struct model_file *f, const struct model_params *p,
                            enum kv_type type, struct arena *a, struct msg_described *d) {
    u64 *layer = arena_array(a, p->n_layers, sizeof *layer);
    model_weight_bytes(f, p, &d->embed_bytes, layer, &d->head_bytes);
    d->tied_bytes = p->tied_embedding ? d->embed_bytes : 0;
    d->layer_bytes = (struct wire_u64s){layer, p->n_layers};
    d->arch = arena_strdup(a, p->arch_name);
    d->name = arena_strdup(a, p->name);
    d->quant = arena_strdup(a, p->quant);
    d->n_layers = p->n_layers;
    d->n_ctx_train = p->n_ctx_train;
    d->n_vocab = p->n_vocab;
    d->dim = p->dim;
    d->n_heads = p->n_heads;
    d->n_kv_heads = p->n_kv_heads;
    d->n_params = p->n_params;
    d->file_bytes = f->size_bytes;
    d->kv_bytes_per_token_layer = kv_bytes_per_token_layer(p, p->n_kv_heads, type);
    d->has_template = template_source(f).n > 0;
}

enum { PART_GAP = 1 << 20, PARTS_MAX = 16384 };

static u64 part_owner(const struct gguf_tensor *t, u32 n_layers) {
    static const struct {
        const char *name;
        enum file_split split;
    } SPLIT[] = {{"attn_q.weight", FILE_SPLIT_HEADS},
                 {"attn_k.weight", FILE_SPLIT_KV},
                 {"attn_v.weight", FILE_SPLIT_KV},
                 {"ffn_gate.weight", FILE_SPLIT_FF},
                 {"ffn_up.weight", FILE_SPLIT_FF}};
    char name[64];
    u32 layer;
    int at = 0;
    snprintf(name, sizeof name, "%.*s", (int)MIN(t->name.n, sizeof name - 1), t->name.p);
    if (sscanf(name, "blk.%u.%n", &layer, &at) == 1 && at && layer < n_layers) {
        u64 split = FILE_SPLIT_NONE;
        for (u32 i = 0; i < ARRAY_LEN(SPLIT); i++)
            if (strcmp(name + at, SPLIT[i].name) == 0) split = SPLIT[i].split;
        return split << 32 | (FILE_PART_LAYER0 + layer);
    }
    if (strcmp(name, "output.weight") == 0) return (u64)FILE_SPLIT_VOCAB << 32 | FILE_PART_HEAD;
    if (strncmp(name, "token_embd.", 11) == 0) return FILE_PART_EMBED;
    if (strncmp(name, "output", 6) == 0) return FILE_PART_HEAD;
    return FILE_PART_ALL;
}

static void add_part(u64 *v, u32 *n, u64 owner, u64 offset, u64 bytes) {
    u64 *last = *n ? v + 3 * (*n - 1) : NULL;
    if (last && owner >> 32 == FILE_SPLIT_NONE && last[0] == owner && offset >= last[1] &&
        offset - last[1] <= last[2] + PART_GAP) {
        last[2] = MAX(last[2], offset - last[1] + bytes);
        return;
    }
    v[3 * *n] = owner;
    v[3 * *n + 1] = offset;
    v[3 * *n + 2] = bytes;
    ++*n;
}

/* Which bytes of the file who needs; nothing where that can't be told in a moderate list. */
static void describe_parts(const struct model_file *f, const struct model_params *p,
                           struct arena *a, struct msg_described *d) {
    const struct gguf *g = f->meta;
    if (f->n_parts != 1 || g->n_tensors > PARTS_MAX) return;
    u64 *v = arena_array(a, 3 * (2 * g->n_tensors + 1), sizeof *v);
    u32 n = 0;
    add_part(v, &n, FILE_PART_ALL, 0, g->data_offset);
    for (u64 i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensor[i];
        u64 owner = part_owner(t, p->n_layers);
        add_part(v, &n, owner, t->offset, t->size_bytes);
        if (owner == FILE_PART_EMBED && p->tied_embedding)
            add_part(v, &n, (u64)FILE_SPLIT_VOCAB << 32 | FILE_PART_HEAD, t->offset, t->size_bytes);
    }
    d->file_parts = (struct wire_u64s){v, 3 * (u64)n};
}

bool runner_describe(const struct model_file *f, const struct msg_describe *m, struct arena *a,
                     struct msg_described *d, struct err *e) {
    struct model_params p;
    if (!model_params_read(f, &p, e)) return err_wrap(e, "%s", m->path);
    *d = (struct msg_described){.path = m->path};
    describe_params(f, &p, m->kv_type < KV_TYPES ? (enum kv_type)m->kv_type : KV_F16, a, d);
    describe_parts(f, &p, a, d);
    return runner_shape(f, &p, d->layer_bytes.v, a, &d->shape, e) || err_wrap(e, "%s", m->path);
}

static void on_progress(void *ctx, u32 done, u32 total) {
    struct runner *r = ctx;
    struct msg_progress m = {done, total};
    runner_send(r, MSG_PROGRESS, &m);
    runner_flush(r);
}

/* 0 and 1 ranks both mean that the shard has its layers alone. */
static void set_spec(struct runner *r) {
    struct msg_load *l = &r->load;
    const struct msg_slice *s = &l->slice;
    if (l->tp_ranks <= 1) {
        l->tp_ranks = 1;
        l->tp_first = l->rank;
    }
    r->spec = (struct shard_spec){.layer_first = l->layer_first,
                                  .layer_end = l->layer_end,
                                  .has_embed = l->tp_first == 0,
                                  .has_head = l->tp_first + l->tp_ranks == l->n_ranks,
                                  .tp_rank = l->rank - l->tp_first,
                                  .tp_ranks = l->tp_ranks,
                                  .slice = {s->head_first, s->head_end, s->ff_first, s->ff_end,
                                            s->vocab_first, s->vocab_end}};
}

static bool check_request(struct runner *r, struct err *e) {
    const struct msg_load *l = &r->load;
    if (l->n_ranks == 0 || l->rank >= l->n_ranks || l->n_ranks > GROUP_RANKS_MAX)
        return err_set(e, ERR_ARG, "rank %u of %u: at most %d ranks, counted from 0", l->rank,
                       l->n_ranks, (int)GROUP_RANKS_MAX);
    if (l->layer_first >= l->layer_end || l->layer_end > r->params.n_layers)
        return err_set(e, ERR_ARG, "layers %u to %u of a model with %u", l->layer_first,
                       l->layer_end, r->params.n_layers);
    if (l->n_ranks > 1 && l->key.n != GROUP_KEY_BYTES)
        return err_set(e, ERR_ARG, "the instance key must have %d bytes", (int)GROUP_KEY_BYTES);
    if (l->kv_type >= KV_TYPES)
        return err_set(e, ERR_UNSUPPORTED, "a KV cache of type %u: this skein knows %u types",
                       l->kv_type, (u32)KV_TYPES);
    if (l->act_bits && !ops_cpu_act_bits(l->act_bits, e)) return false;
    if (l->sum_wire >= TEAM_WIRES)
        return err_set(e, ERR_UNSUPPORTED, "sums of type %u: this skein knows %u types",
                       l->sum_wire, (u32)TEAM_WIRES);
    if (l->tp_ranks > l->n_ranks || l->rank < l->tp_first || l->rank - l->tp_first >= l->tp_ranks ||
        l->tp_first > l->n_ranks - l->tp_ranks)
        return err_set(e, ERR_ARG, "rank %u of %u is to share its layers with %u ranks from %u on",
                       l->rank, l->n_ranks, l->tp_ranks, l->tp_first);
    if (l->n_seq_max > RUNNER_SLOTS_MAX)
        return err_set(e, ERR_ARG, "%u sequences at once: at most %d", l->n_seq_max,
                       (int)RUNNER_SLOTS_MAX);
    if (r->params.n_ctx_train && l->n_ctx > r->params.n_ctx_train)
        return err_set(e, ERR_ARG, "a context of %u tokens: the model was trained for %u", l->n_ctx,
                       r->params.n_ctx_train);
    return true;
}

static u64 memory_budget(const struct runner *r) {
    struct sysinfo_mem m;
    sysinfo_mem(&m);
    u64 can = m.available_bytes - m.available_bytes / 16; /* leaves the system some air */
    if (r->load.force && r->load.memory_max_bytes) return r->load.memory_max_bytes;
    return r->load.memory_max_bytes ? MIN(r->load.memory_max_bytes, can) : can;
}

static u64 kv_bytes_per_token(const struct runner *r) {
    return kv_bytes_per_token_layer(&r->params, shard_kv_heads(&r->params, &r->spec),
                                    (enum kv_type)r->load.kv_type) *
           (r->load.layer_end - r->load.layer_first);
}

static u64 scratch_bytes(const struct runner *r) {
    struct ops_cpu_dims d;
    model_ops_dims(&r->params, RUNNER_MAX_TOK, &d);
    u64 slots = r->load.n_seq_max ? r->load.n_seq_max : RUNNER_SLOTS;
    u64 bytes = ops_cpu_bytes(&r->kernels, &d);
    bytes += slots * runner_logits_cols(r) * sizeof(float);
    if (r->load.n_ranks > 1)
        bytes += (u64)RUNNER_MAX_TOK * r->params.dim * (sizeof(float) + sizeof(u16));
    return bytes;
}

/* Before anything large is read: does the shard fit at all, with the smallest useful context? */
static bool check_memory(const struct runner *r, struct err *e) {
    u32 n_ctx = r->load.n_ctx ? r->load.n_ctx : RUNNER_CTX_MIN;
    u64 weights = shard_file_bytes(r->file, &r->params, &r->spec),
        kv = n_ctx * kv_bytes_per_token(r), scratch = scratch_bytes(r);
    u64 budget = memory_budget(r), need = weights + kv + scratch;
    if (need <= budget) return true;
    char a[32], b[32], c[32], d[32];
    return err_set(e, ERR_MEMORY,
                   "%s, layers %u to %u, needs %s (weights %s, %u tokens of KV cache %s), and %s "
                   "are free here: "
                   "take a smaller quantization%s, or add a node",
                   r->params.name, r->load.layer_first, r->load.layer_end - 1, size_text(need, a),
                   size_text(weights, b), n_ctx, size_text(kv, c), size_text(budget, d),
                   r->load.n_ctx > RUNNER_CTX_MIN ? ", a smaller context" : "");
}

/* A template that does not compile takes only chat away: raw prompts still work. */
static bool load_text_side(struct runner *r, struct err *e) {
    r->tok = tokenizer_new(r->file->meta, e);
    if (!r->tok) return err_wrap(e, "tokenizer of %s", r->load.path);
    if (*tokenizer_warning(r->tok))
        log_warn("runner", "tokenizer warning=\"%s\"", tokenizer_warning(r->tok));
    r->tok_scratch = tokenizer_scratch_new(r->tok);
    struct view src = template_source(r->file);
    if (src.n == 0) {
        err_set(&r->tmpl_err, ERR_UNSUPPORTED,
                "%s has no chat template: it is a base model, `skein run` continues text with it",
                r->params.name);
    } else if (src.n > RUNNER_TEMPLATE_MAX) {
        err_set(&r->tmpl_err, ERR_LIMIT, "the chat template has %zu bytes, the limit is %d", src.n,
                (int)RUNNER_TEMPLATE_MAX);
    } else if (!(r->tmpl = template_compile(src, &r->tmpl_err))) {
        err_wrap(&r->tmpl_err, "chat template of %s", r->params.name);
        log_warn("runner", "template refused reason=\"%s\"", r->tmpl_err.msg);
    }
    return true;
}

static bool load_weights(struct runner *r, struct err *e) {
    struct ops_cpu_dims d;
    model_ops_dims(&r->params, RUNNER_MAX_TOK, &d);
    d.act_bits = r->load.act_bits;
    r->n_cpus = pool_cpus(); /* before some are ruled out */
    r->pool = pool_new(r->load.n_threads, true, e);
    if (!r->pool) return false;
    r->n_threads = pool_threads(r->pool);
    r->crowd = crowd_join(NULL);
    r->ops = ops_cpu_new(&r->kernels, r->pool, &d, e);
    if (!r->ops) return false;
    r->model = model_load(r->file, &r->params, &r->spec, r->ops, RUNNER_MAX_TOK, on_progress, r, e);
    return r->model != NULL;
}

/* How much context and KV this rank can offer; the group takes the least of all. */
static bool offer_kv(const struct runner *r, u32 *n_ctx, u32 *n_blocks, struct err *e) {
    u32 slots = r->load.n_seq_max ? r->load.n_seq_max : RUNNER_SLOTS;
    u32 trained = r->params.n_ctx_train ? r->params.n_ctx_train : RUNNER_CTX_DEFAULT;
    u32 want = r->load.n_ctx ? r->load.n_ctx : MIN(trained, (u32)RUNNER_CTX_DEFAULT);
    /* Of what we may take, not of what is free. */
    u64 taken = model_weights_bytes(r->model) + model_scratch_bytes(r->model) + scratch_bytes(r);
    u64 budget = memory_budget(r), per_block = kv_bytes_per_token(r) * KV_BLOCK_TOKENS;
    if (r->load.memory_max_bytes)
        budget = MIN(budget, r->load.memory_max_bytes - MIN(r->load.memory_max_bytes, taken));
    u64 fit = budget / per_block, one = step_blocks_of(want);
    /* Room for all sequences at full length. Of memory that nobody set aside for this shard, no
     * more than half, unless a single sequence needs that. */
    u64 may = r->load.memory_max_bytes ? fit : MAX(fit / 2, MIN(one, fit));
    u64 blocks = MIN(MIN(one * slots, may), (u64)UINT32_MAX / KV_BLOCK_TOKENS);
    if (blocks < one && r->load.n_ctx) {
        char a[32], b[32];
        return err_set(e, ERR_MEMORY,
                       "a context of %u tokens needs %s of KV cache for these layers, %s are free: "
                       "ask for %llu tokens or fewer",
                       want, size_text(one * per_block, a), size_text(budget, b),
                       (unsigned long long)fit * KV_BLOCK_TOKENS);
    }
    if (blocks * KV_BLOCK_TOKENS < MIN(want, (u32)RUNNER_CTX_MIN))
        return err_set(e, ERR_MEMORY,
                       "memory is left for a context of %llu tokens only: end other programs, "
                       "take a smaller quantization, or add a node",
                       (unsigned long long)blocks * KV_BLOCK_TOKENS);
    *n_ctx = (u32)MIN((u64)want, blocks * KV_BLOCK_TOKENS);
    *n_blocks = (u32)blocks;
    return true;
}

static bool set_up_kv(struct runner *r, struct err *e) {
    u32 n_ctx = 0, n_blocks = 0, slots = r->load.n_seq_max ? r->load.n_seq_max : RUNNER_SLOTS;
    return offer_kv(r, &n_ctx, &n_blocks, e) && runner_agree(r, n_ctx, slots, n_blocks, e);
}

bool runner_load(struct runner *r, struct err *e) {
    r->file = model_file_open(r->load.path, e);
    if (!r->file) return false;
    if (!model_params_read(r->file, &r->params, e)) return err_wrap(e, "%s", r->load.path);
    set_spec(r);
    if (!check_request(r, e) || !kernels_select(&r->kernels, r->load.cpu_mask, e) ||
        !check_memory(r, e))
        return false;
    if (r->load.n_ranks > 1) { /* opened early: the others may dial while this rank still loads */
        u16 port = 0;
        r->listen_fd = group_listen(r->load.listen_host, &port, e);
        if (r->listen_fd < 0) return false;
        struct msg_listening m = {port};
        runner_send(r, MSG_LISTENING, &m);
        runner_flush(r);
    }
    if (runner_is_first(r) && !load_text_side(r, e)) return false;
    if (!load_weights(r, e)) return err_wrap(e, "loading %s", r->load.path);
    return r->load.n_ranks > 1 || set_up_kv(r, e);
}

/* The node hung up, or says that this shard is not wanted any more: looked at without taking it,
 * for the loop does that. */
bool runner_is_called_off(void *ctx) {
    const struct runner *r = ctx;
    u8 head[FRAME_HEAD_BYTES];
    ssize_t n = recv(r->fd, head, sizeof head, MSG_PEEK | MSG_DONTWAIT);
    u16 type;
    if (n <= 0) return n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
    memcpy(&type, head + 4, sizeof type);
    return n == FRAME_HEAD_BYTES && type == MSG_SHUTDOWN;
}

bool runner_connect(struct runner *r, const struct msg_connect *m, struct err *e) {
    if (!r->model || r->group || r->load.n_ranks == 1)
        return err_set(e, ERR_INTERNAL, "connect out of turn");
    struct group_peer peer[GROUP_RANKS_MAX];
    if (m->peers.n != r->load.n_ranks - 1)
        return err_set(e, ERR_INTERNAL, "%llu peers for %u ranks", (unsigned long long)m->peers.n,
                       r->load.n_ranks);
    for (u32 i = 0; i < m->peers.n; i++) {
        const struct msg_peer *p = (const struct msg_peer *)m->peers.v + i;
        peer[i] = (struct group_peer){p->rank, p->host, (u16)p->port, p->streams};
    }
    struct group_cfg cfg = {.rank = r->load.rank,
                            .n_ranks = r->load.n_ranks,
                            .listen_fd = r->listen_fd,
                            .peers = peer,
                            .key = r->load.key.p,
                            .timeout_ms = 120000,
                            .encrypt = r->load.encrypt != 0,
                            .fabric = r->load.fabric,
                            .give_up = runner_is_called_off,
                            .ctx = r};
    r->group = group_connect(&cfg, e);
    if (!r->group) return false;
    on_progress(r, r->load.layer_end - r->load.layer_first,
                r->load.layer_end - r->load.layer_first);
    return set_up_kv(r, e);
}

static struct wire_list list_links(const struct runner *r, struct arena *a) {
    static const u32 CARRIER[] = {[GROUP_CARRIER_TCP] = CARRIER_TCP,
                                  [GROUP_CARRIER_SHM] = CARRIER_SHM,
                                  [GROUP_CARRIER_FABRIC] = CARRIER_FABRIC};
    u32 n = r->group ? r->load.n_ranks : 0;
    struct msg_rank_link *v = arena_array(a, n + 1, sizeof *v);
    for (u32 i = 0; i < n; i++) {
        if (i == r->load.rank) continue;
        struct group_link l = group_link(r->group, i);
        v[i] = (struct msg_rank_link){CARRIER[l.carrier], l.n_streams, l.is_encrypted, l.provider};
    }
    return (struct wire_list){v, n};
}

void runner_ready(struct runner *r) {
    struct arena a = {0};
    struct msg_ready m = {.n_ctx = r->lim.n_ctx,
                          .n_seq_max = r->lim.n_slots,
                          .weights_bytes = model_weights_bytes(r->model),
                          .kv_bytes = r->kv.mem_bytes,
                          .scratch_bytes = model_scratch_bytes(r->model) + scratch_bytes(r),
                          .kv_tokens = (u64)r->lim.n_blocks * KV_BLOCK_TOKENS,
                          .n_threads = pool_threads(r->pool),
                          .isa = r->kernels.set,
                          .pid = (u32)getpid()};
    m.model.path = r->load.path;
    describe_params(r->file, &r->params, r->kv.type, &a, &m.model);
    m.links = list_links(r, &a);
    runner_send(r, MSG_READY, &m);
    arena_deinit(&a);
    model_file_close(
        r->file); /* everything is packed or copied: the page cache may have its memory back */
    r->file = NULL;
    r->ready = true;
    log_info("runner", "ready model=\"%s\" layers=%u-%u isa=%s threads=%u ctx=%u", r->params.name,
             r->load.layer_first, r->load.layer_end - 1, r->kernels.set, pool_threads(r->pool),
             r->lim.n_ctx);
    /* In llama.cpp's words, which people look for. */
    log_info("runner", "offloaded 0/%u layers: this build computes on the CPU",
             r->load.layer_end - r->load.layer_first);
}

void runner_unload(struct runner *r) {
    runner_drop_requests(r);
    sched_free(r->sched);
    step_deinit(&r->step);
    step_result_deinit(&r->result);
    sampler_free(r->sampler);
    if (r->slot)
        for (u32 i = 0; i < r->lim.n_slots; i++) {
            free(r->slot[i].history);
            free(r->slot[i].bias);
        }
    free(r->slot);
    free(r->x);
    free(r->wire);
    free(r->logits);
    team_free(r->team);
    if (r->leaves)
        group_leave(r->group);
    else
        group_free(r->group);
    if (r->listen_fd >= 0) close(r->listen_fd);
    kv_pool_deinit(&r->kv);
    model_free(r->model);
    ops_free(r->ops);
    pool_free(r->pool);
    crowd_free(r->crowd);
    tokenizer_scratch_free(r->tok_scratch);
    tokenizer_free(r->tok);
    template_free(r->tmpl);
    model_file_close(r->file);
}
