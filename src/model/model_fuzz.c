#include "model/model.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "formats/toymodel.h"
#include "ops/ops_cost.h"

/* Fuzz target: a toy model's metadata and tensor directory with bytes changed. What is accepted
 * must hold together: a step of it is run on the cost table. Input: a family, then (offset, byte)
 * pairs. */

int LLVMFuzzerTestOneInput(const u8 *data, size_t n);

static const struct toymodel_spec SPECS[] = {
    {.family = "llama", .rope = TOYMODEL_ROPE_LLAMA3},
    {.family = "qwen2", .rope = TOYMODEL_ROPE_YARN, .type = DTYPE_Q8_0},
    {.family = "qwen3", .tied = true},
    {.family = "gemma2", .sliding_window = 8, .logit_softcap = 5},
    {.family = "gemma3", .sliding_window = 8, .sliding_pattern = 2},
};
static struct str files[ARRAY_LEN(SPECS)];

static const struct str *toy_file(u8 which) {
    u8 i = which % ARRAY_LEN(SPECS);
    struct toymodel m;
    if (files[i].n) return &files[i];
    ASSERT(toymodel_init(&m, &SPECS[i], NULL));
    toymodel_build(&m, &files[i]);
    toymodel_deinit(&m);
    return &files[i];
}

static void cost_a_step(const struct model_file *f, const struct model_params *p) {
    static struct kernels k;
    struct err e = {0};
    if (!k.set) ASSERT(kernels_select(&k, NULL, NULL));
    struct ops *o = ops_cost_new(&k, 1);
    struct shard_spec spec = {.layer_end = p->n_layers, .has_embed = true, .has_head = true};
    struct model *m = model_outline(f, p, &spec, o, &e);
    struct kv_pool kv = {.n_kv_heads = p->n_kv_heads, .dk = p->head_dim_k, .dv = p->head_dim_v};
    struct kv_span span = {.n = 3};
    struct batch batch = {.n_tok = 3, .spans = &span, .n_spans = 1};
    struct model_step s = {.batch = &batch, .n_out = 1};
    u64 embed, head, *layers = calloc(p->n_layers, sizeof *layers);
    model_weight_bytes(f, p, &embed, layers, &head);
    if (m)
        ASSERT(model_forward(m, &s, &kv, NULL, NULL, &e));
    else
        ASSERT(e.code != ERR_NONE);
    free(layers);
    model_free(m);
    ops_free(o);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t n) {
    struct rd r = rd_of(data, n);
    const struct str *base = toy_file(rd_u8(&r));
    u8 *bytes = malloc(base->n);
    struct err e = {0};
    struct model_params p;
    if (!bytes) return 0;
    memcpy(bytes, base->p, base->n);
    while (rd_left(&r) >= 3) {
        size_t at = rd_u16(&r);
        bytes[at % base->n] = rd_u8(&r);
    }
    struct model_part part = {.map = {bytes, base->n}, .g = gguf_parse(bytes, base->n, &e)};
    if (part.g) {
        struct model_file f = {.n_parts = 1,
                               .part = &part,
                               .meta = part.g,
                               .n_tensors = part.g->n_tensors,
                               .size_bytes = base->n};
        if (model_params_read(&f, &p, &e))
            cost_a_step(&f, &p);
        else
            ASSERT(e.code != ERR_NONE && utf8_valid(e.msg, strlen(e.msg)));
    }
    gguf_free(part.g);
    free(bytes);
    return 0;
}
