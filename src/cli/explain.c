/* skein explain: the forward pass of each rank on the cost table, operation by operation. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "cli/cli.h"
#include "cluster/place.h"
#include "model/model.h"
#include "ops/ops_trace.h"
#include "runner/runner.h"

enum { RANKS_MAX = 64 };

static const char TEXT[] =
    "Runs the model's forward pass without computing: each operation with its shapes, the bytes "
    "it\n"
    "reads, its arithmetic, and the messages it sends, for each rank of a split. These are the "
    "sums\n"
    "that `skein plan` predicts from. Layers that are alike are shown once; --all shows each.\n"
    "\n"
    "Examples:\n"
    "  skein explain smollm2\n"
    "  skein explain smollm2 --tensor 2\n"
    "  skein explain smollm2 --pipeline 2 --tensor 2 --tokens 512";

struct look {
    u32 n_tok, context, tensor, pipeline;
    bool all, json;
};

/* What one rank was told to do so far. */
struct told {
    struct str *out;
    bool json, show;
    struct ops_cost layer, sum;
};

static void add_cost(struct ops_cost *to, const struct ops_cost *c) {
    to->weight_bytes += c->weight_bytes;
    to->kv_bytes += c->kv_bytes;
    to->act_bytes += c->act_bytes;
    to->int_ops += c->int_ops;
    to->float_ops += c->float_ops;
    to->messages += c->messages;
    to->message_bytes += c->message_bytes;
}

static void json_cost(struct str *o, const struct ops_cost *c) {
    json_put_u64(o, "weight_bytes", c->weight_bytes);
    json_put_u64(o, "kv_bytes", c->kv_bytes);
    json_put_u64(o, "activation_bytes", c->act_bytes);
    json_put_u64(o, "operations", c->int_ops + c->float_ops);
    json_put_u64(o, "messages", c->messages);
    json_put_u64(o, "message_bytes", c->message_bytes);
}

static void on_row(void *ctx, const struct ops_trace_row *r) {
    struct told *t = ctx;
    struct str *o = t->out;
    char shape[64], type[24], bytes[32], msg[48] = "";
    add_cost(&t->layer, &r->cost);
    add_cost(&t->sum, &r->cost);
    u64 moved = r->cost.weight_bytes + r->cost.kv_bytes + r->cost.act_bytes;
    if (!t->show || !moved) return; /* the sums of a group of one are nothing */
    if (t->json) {
        json_comma(o);
        str_addc(o, '{');
        json_put_str(o, "op", r->op);
        json_put_str(o, "weight", r->weight);
        json_put_u64(o, "n", r->n);
        json_put_u64(o, "rows", r->rows);
        json_put_u64(o, "cols", r->cols);
        json_cost(o, &r->cost);
        str_addc(o, '}');
        return;
    }
    snprintf(shape, sizeof shape, "%llu x %llu x %llu", (unsigned long long)r->n,
             (unsigned long long)r->rows, (unsigned long long)r->cols);
    if (r->cost.messages)
        snprintf(msg, sizeof msg, "%llu of %s", (unsigned long long)r->cost.messages,
                 size_text(r->cost.message_bytes / r->cost.messages, bytes));
    str_addf(o, "    %-12s %-28s %-6s %-22s %10s %12.3f  %s\n", r->op, r->weight,
             *r->weight ? dtype_name(r->type, type) : "", shape, size_text(moved, bytes),
             (double)(r->cost.int_ops + r->cost.float_ops) / 1e6, msg);
}

static void add_sum(struct told *t, const char *what, const struct ops_cost *c, u32 times) {
    char w[32], kv[32], m[32];
    str_addf(t->out, "    %s: weights %s, KV %s, %.3f Mop, %llu messages of %s in all\n", what,
             size_text(c->weight_bytes * times, w), size_text(c->kv_bytes * times, kv),
             (double)(c->int_ops + c->float_ops) * times / 1e6,
             (unsigned long long)c->messages * times, size_text(c->message_bytes * times, m));
}

/* One piece of a rank: embedding and head come with the first and the last of its layers. */
static bool piece(const struct model_file *f, const struct model_params *p, const struct look *l,
                  const struct shard_spec *spec, struct told *t, struct err *e) {
    struct kernels k;
    struct kv_pool kv = {.n_layers = spec->layer_end - spec->layer_first,
                         .n_kv_heads = shard_kv_heads(p, spec),
                         .dk = p->head_dim_k,
                         .dv = p->head_dim_v};
    u32 out_row = l->n_tok - 1;
    struct kv_span span = {.n = l->n_tok, .pos0 = l->context};
    struct batch batch = {.n_tok = l->n_tok, .spans = &span, .n_spans = 1};
    struct model_step step = {.batch = &batch, .out = &out_row, .n_out = 1};
    if (!kernels_select(&k, "", e)) return false;
    struct ops *o = ops_trace_new(&k, spec->tp_ranks, on_row, t);
    struct model *m = model_outline(f, p, spec, o, e);
    bool ok = m && model_forward(m, &step, &kv, NULL, NULL, e);
    model_free(m);
    ops_free(o);
    return ok;
}

/* Layer il costs what the one before did. */
static bool is_alike(const struct msg_described *d, u32 il, const struct model_params *p,
                     u32 first) {
    return il > first && d->layer_bytes.v[il] == d->layer_bytes.v[il - 1] &&
           model_layer_window(p, il) == model_layer_window(p, il - 1);
}

static bool layers(const struct model_file *f, const struct model_params *p,
                   const struct msg_described *d, const struct look *l, struct shard_spec spec,
                   struct told *t, struct err *e) {
    u32 first = spec.layer_first, end = spec.layer_end;
    bool has_head = spec.has_head;
    for (u32 il = first, n; il < end; il += n) {
        n = 1;
        while (!l->all && il + n < end && is_alike(d, il + n, p, il)) n++;
        for (u32 i = 0; i < n; i++) {
            t->layer = (struct ops_cost){0};
            t->show = i == 0;
            spec.layer_first = il + i;
            spec.layer_end = il + i + 1;
            spec.has_embed = false;
            spec.has_head = false;
            if (t->show && !t->json)
                str_addf(t->out, n > 1 ? "  layers %u-%u, each:\n" : "  layer %u:\n", il,
                         il + n - 1);
            if (!piece(f, p, l, &spec, t, e)) return false;
        }
        if (!t->json) add_sum(t, n > 1 ? "all of them" : "the layer", &t->layer, n);
    }
    if (!has_head) return true;
    spec.layer_first = spec.layer_end = end;
    spec.has_head = t->show = true;
    if (!t->json) str_addz(t->out, "  head:\n");
    return piece(f, p, l, &spec, t, e);
}

static bool rank(const struct model_file *f, const struct model_params *p,
                 const struct msg_described *d, const struct look *l, const struct place_rank *r,
                 u32 n_ranks, u32 number, struct str *out, struct err *e) {
    struct told t = {.out = out, .json = l->json, .show = true};
    const struct msg_slice *c = &r->slice;
    struct shard_spec spec = {.layer_first = r->layer_first,
                              .layer_end = r->layer_end,
                              .has_embed = r->layer_first == 0,
                              .has_head = r->tp_first + r->tp_ranks == n_ranks,
                              .tp_rank = number - r->tp_first,
                              .tp_ranks = r->tp_ranks,
                              .slice = {c->head_first, c->head_end, c->ff_first, c->ff_end,
                                        c->vocab_first, c->vocab_end}};
    if (l->json) {
        json_comma(out);
        str_addc(out, '{');
        json_put_u64(out, "rank", number);
        json_put_u64(out, "layer_first", r->layer_first);
        json_put_u64(out, "layer_end", r->layer_end);
        json_put_u64(out, "tp_first", r->tp_first);
        json_put_u64(out, "tp_ranks", r->tp_ranks);
        json_key(out, "operations_list");
        str_addc(out, '[');
    } else {
        str_addf(out, "rank %u: layers %u-%u", number, r->layer_first, r->layer_end - 1);
        if (r->tp_ranks > 1)
            str_addf(out, ", query heads %u-%u, feed-forward %u-%u, vocabulary rows %u-%u",
                     c->head_first, c->head_end - 1, c->ff_first, c->ff_end - 1, c->vocab_first,
                     c->vocab_end - 1);
        str_addf(out, "\n    %-12s %-28s %-6s %-22s %10s %12s  %s\n", "operation", "weight", "type",
                 "n x rows x cols", "bytes", "Mop", "messages");
    }
    struct shard_spec head = spec;
    head.layer_end = head.layer_first;
    head.has_head = false;
    if (spec.has_embed && !l->json) str_addz(out, "  embedding:\n");
    if (spec.has_embed && !piece(f, p, l, &head, &t, e)) return false;
    if (!layers(f, p, d, l, spec, &t, e)) return false;
    if (l->json) {
        str_addc(out, ']');
        json_cost(out, &t.sum);
        str_addc(out, '}');
    } else {
        add_sum(&t, "rank in all", &t.sum, 1);
        if (r->tp_first + r->tp_ranks < n_ranks) {
            char bytes[32];
            str_addf(out, "    then sends %s of hidden states to the next stage\n",
                     size_text((u64)l->n_tok * p->dim * 3, bytes));
        }
        str_addc(out, '\n');
    }
    return true;
}

/* Equal machines: stages of equally many layers, each of `tensor` ranks. */
static bool lay_out(const struct msg_model *m, const struct look *l, struct place_rank *r,
                    struct arena *a, struct err *e) {
    u32 n = l->tensor * l->pipeline;
    struct place_node *nodes = arena_array(a, n, sizeof *nodes);
    struct place_link *links = arena_array(a, (size_t)n * n, sizeof *links);
    struct place_ask q = {.model = m,
                          .nodes = nodes,
                          .n_nodes = n,
                          .links = links,
                          .n_ctx = 2,
                          .n_prompt = 1,
                          .n_batch = 1,
                          .force = true};
    if (l->pipeline > m->n_layers)
        return err_set(e, ERR_ARG, "--pipeline %u: the model has %u layers", l->pipeline,
                       m->n_layers);
    for (u32 i = 0; i < n; i++) {
        u32 stage = i / l->tensor;
        nodes[i] = (struct place_node){
            .name = "a rank", .read_bytes_s = 1e10, .ops_s = 1e11, .machine = i};
        r[i] = (struct place_rank){.node = i,
                                   .layer_first = m->n_layers * stage / l->pipeline,
                                   .layer_end = m->n_layers * (stage + 1) / l->pipeline};
    }
    for (u32 i = 0; i < n * n; i++) links[i] = (struct place_link){1e-4, 1e8};
    return place_check(&q, r, n, a, e);
}

static bool explain(const char *path, const struct look *l, struct str *out, struct err *e) {
    struct arena a = {0};
    struct msg_described d;
    struct model_params p;
    struct place_rank r[RANKS_MAX];
    struct model_file *f = model_file_open(path, e);
    bool ok = f && model_params_read(f, &p, e) &&
              runner_describe(f, &(struct msg_describe){.path = path}, &a, &d, e);
    struct msg_model m = {.n_layers = d.n_layers,
                          .n_vocab = d.n_vocab,
                          .dim = d.dim,
                          .layer_bytes = d.layer_bytes,
                          .shape = d.shape};
    u32 n = l->tensor * l->pipeline;
    ok = ok && lay_out(&m, l, r, &a, e);
    if (ok && l->json) str_addz(out, "[");
    if (ok && !l->json)
        str_addf(out, "%s %s, %u token%s at position %u\n\n", p.name, p.quant, l->n_tok,
                 l->n_tok == 1 ? "" : "s", l->context);
    for (u32 i = 0; ok && i < n; i++) ok = rank(f, &p, &d, l, &r[i], n, i, out, e);
    if (ok && l->json) str_addz(out, "]\n");
    model_file_close(f);
    arena_deinit(&a);
    return ok;
}

int cmd_explain(int argc, char **argv) {
    struct look l = {.n_tok = 1, .tensor = 1, .pipeline = 1};
    struct opt opts[] = {
        {"tensor", OPT_U32, &l.tensor, "ranks that share each layer (1)", .value = "N", .min = 1,
         .max = RANKS_MAX},
        {"pipeline", OPT_U32, &l.pipeline, "stages, one after the other (1)", .value = "N",
         .min = 1, .max = RANKS_MAX},
        {"tokens", OPT_U32, &l.n_tok, "tokens in the step: 1 is decoding (1)", .letter = 'n',
         .value = "N", .min = 1, .max = 512},
        {"context", OPT_U32, &l.context, "positions before them (0)", .value = "N", .max = 1 << 24},
        {"all", OPT_FLAG, &l.all, .help = "every layer, though they are alike"},
        {"json", OPT_FLAG, &l.json, .help = "as JSON"},
    };
    const struct opts_cmd cmd = {"explain", "MODEL", "show a forward pass, operation by operation",
                                 TEXT,      opts,    ARRAY_LEN(opts),
                                 1,         1};
    int n, code;
    struct err e = {0};
    char path[CLI_PATH_MAX];
    struct str out = {0};
    if (!opts_parse(&cmd, argc, argv, &n, &code)) return code;
    bool ok = l.tensor * l.pipeline <= RANKS_MAX ||
              err_set(&e, ERR_ARG, "%u ranks: at most %d", l.tensor * l.pipeline, (int)RANKS_MAX);
    ok = ok && cli_model_path(argv[0], path, &e) && explain(path, &l, &out, &e);
    if (ok) fputs(str_z(&out), stdout);
    str_deinit(&out);
    return ok ? EXIT_OK : opts_fail(&e);
}
