/* place_opts.h - what `skein launch` and `skein plan` ask of a placement, as options, as the body
 * of a request, and as a query. */
#pragma once

#include "base/json.h"
#include "cli/opts.h"

struct place_opts {
    u32 min_nodes, n_ctx, batch;
    const char *sharding, *goal, *kv_type, *layers; /* NULL: not said */
    struct opt_list nodes, exclude;
    bool force;
};

#define PLACE_OPTS(o)                                                                            \
    {"sharding", OPT_STR, &(o)->sharding,                                                        \
     "auto, pipeline (layers), tensor (slices of each layer), hybrid", .value = "HOW"},          \
        {"goal", OPT_STR, &(o)->goal, "what to be good at: latency, throughput, ttft",           \
         .value = "GOAL"},                                                                       \
        {"min-nodes",  OPT_U32,    &(o)->min_nodes, "use at least so many nodes",                \
         .value = "N", .max = 1024},                                                             \
        {"nodes", OPT_LIST, &(o)->nodes, "use only these nodes", .value = "NODE,..."},           \
        {"exclude", OPT_LIST, &(o)->exclude, "leave these nodes out", .value = "NODE,..."},      \
        {"layers", OPT_STR, &(o)->layers,                                                        \
         "by hand; nodes with the same range share its layers: a=0-11,b=12-29",                  \
         .value = "NODE=A-B,..."},                                                               \
        {"ctx",         OPT_U32,      &(o)->n_ctx,     "tokens of context",                      \
         .letter = 'c', .value = "N", .max = INT32_MAX},                                         \
        {"kv-type", OPT_STR, &(o)->kv_type, "of the KV cache: f16, q8", .value = "TYPE"},        \
        {"batch",      OPT_U32,    &(o)->batch, "requests at once that there is to be room for", \
         .value = "N", .max = 1024},                                                             \
    {                                                                                            \
        "force", OPT_FLAG, &(o)->force, .help = "place it even where memory is short"            \
    }

/* {"model_id": ...}; owned by the caller. */
json_t *place_opts_body(const struct place_opts *o, const char *model);
/* "?model_id=...&..." */
void place_opts_query(const struct place_opts *o, const char *model, struct str *out);
/* "&key=value" with what must be escaped escaped. */
void place_opts_param(struct str *out, const char *key, const char *value);
