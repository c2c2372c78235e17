/* place_instance.c - an instance that a client hands in, as the layout it stands for. */
#include <stdlib.h>
#include <string.h>

#include "api/place_request.h"
#include "base/json.h"

/* A member by either of its names. */
static json_t *member(const json_t *o, const char *camel, const char *snake) {
    json_t *v = json_object_get(o, camel);
    return v ? v : json_object_get(o, snake);
}

static bool is_id(const char *s) {
    size_t n = s ? strlen(s) : 0;
    if (n == 0 || n > 36) return false;
    for (size_t i = 0; i < n; i++)
        if (!((s[i] >= '0' && s[i] <= '9') || (s[i] >= 'a' && s[i] <= 'f') || s[i] == '-'))
            return false;
    return true;
}

/* The part behind the tags: {"instance": {"MlxRingInstance": {...}}}, or less of it. */
static const json_t *unwrap(const json_t *root, struct fault *f) {
    const json_t *in = json_object_get(root, "instance");
    const json_t *o = json_is_object(in) ? in : root;
    const json_t *ring = json_object_get(o, "MlxRingInstance");
    if (json_is_object(ring)) return ring;
    if (json_object_get(o, "MlxJacclInstance")) {
        fault_unsupported(f, "instance",
                          "MlxJacclInstance is exo's name for RDMA between Macs: take a preview "
                          "whose instance_meta is \"MlxRing\"");
        return NULL;
    }
    if (json_is_object(member(o, "shardAssignments", "shard_assignments"))) return o;
    fault_set(f, ERR_ARG, "instance",
              "the body must be an instance, as a preview or GET /instance/ID shows it, or "
              "{\"instance\": ...}");
    return NULL;
}

static bool number(const json_t *o, const char *camel, const char *snake, u32 *out) {
    const json_t *v = member(o, camel, snake);
    i64 n = json_is_integer(v) ? (i64)json_integer_value(v) : -1;
    *out = n >= 0 && n <= INT32_MAX ? (u32)n : 0;
    return n >= 0 && n <= INT32_MAX;
}

static bool read_slice(const json_t *o, struct msg_slice *s) {
    return number(o, "headFirst", "head_first", &s->head_first) &&
           number(o, "headEnd", "head_end", &s->head_end) &&
           number(o, "ffFirst", "ff_first", &s->ff_first) &&
           number(o, "ffEnd", "ff_end", &s->ff_end) &&
           number(o, "vocabFirst", "vocab_first", &s->vocab_first) &&
           number(o, "vocabEnd", "vocab_end", &s->vocab_end);
}

/* One shard: {"PipelineShardMetadata": {...}} or what is inside. */
static bool read_shard(const json_t *shard, const char *node, u32 n, struct msg_rank *ranks,
                       struct fault *f) {
    static const char *const TAGS[] = {"PipelineShardMetadata", "TensorShardMetadata"};
    const json_t *in = shard;
    struct msg_rank r = {.node = node};
    u32 rank;
    for (size_t i = 0; i < ARRAY_LEN(TAGS); i++)
        if (json_object_get(shard, TAGS[i])) in = json_object_get(shard, TAGS[i]);
    if (!number(in, "deviceRank", "device_rank", &rank) || rank >= n || ranks[rank].node)
        return fault_set(f, ERR_ARG, "instance",
                         "the shard of node %.60s: deviceRank must count from 0 to %u, each once",
                         node, n - 1);
    if (!number(in, "startLayer", "start_layer", &r.layer_first) ||
        !number(in, "endLayer", "end_layer", &r.layer_end))
        return fault_set(f, ERR_ARG, "instance",
                         "the shard of node %.60s: startLayer and endLayer must be whole numbers",
                         node);
    const json_t *slice = json_object_get(in, "slice");
    if (slice && !read_slice(slice, &r.slice))
        return fault_set(f, ERR_ARG, "instance", "the shard of node %.60s: its slice is not whole",
                         node);
    ranks[rank] = r;
    return true;
}

static bool read_ranks(struct place_request *r, const json_t *assign, struct fault *f) {
    json_t *runners = member(assign, "runnerToShard", "runner_to_shard");
    json_t *nodes = member(assign, "nodeToRunner", "node_to_runner"), *v;
    size_t n = json_object_size(nodes);
    const char *node;
    if (n == 0 || json_object_size(runners) != n)
        return fault_set(f, ERR_ARG, "instance",
                         "nodeToRunner and runnerToShard must name the same runners, at least one");
    if (n > PLACE_REQUEST_RANKS_MAX)
        return fault_set(f, ERR_LIMIT, "instance", "%zu ranks: at most %d", n,
                         (int)PLACE_REQUEST_RANKS_MAX);
    struct msg_rank *ranks = arena_array(&r->mem, n, sizeof *ranks);
    json_object_foreach(nodes, node, v) {
        const json_t *shard =
            json_object_get(runners, json_is_string(v) ? json_string_value(v) : "");
        if (!json_is_object(shard))
            return fault_set(f, ERR_ARG, "instance", "node %.60s has no shard", node);
        if (!read_shard(shard, arena_strdup(&r->mem, node), (u32)n, ranks, f)) return false;
    }
    r->p.wish.ranks = (struct wire_list){ranks, n};
    return true;
}

/* What there is to say beside the shards; inside the instance it counts more. */
static bool read_terms(struct place_request *r, const json_t *in, const json_t *root,
                       struct fault *f) {
    static const char *const NAMES[][2] = {{"nCtx", "n_ctx"},
                                           {"batch", "batch"},
                                           {"force", "force"},
                                           {"kvType", "kv_type"},
                                           {"activations", "activations"}};
    for (size_t i = 0; i < ARRAY_LEN(NAMES); i++) {
        const json_t *v = member(in, NAMES[i][0], NAMES[i][1]);
        if (!v) v = member(root, NAMES[i][0], NAMES[i][1]);
        if (v && !json_is_null(v) && !place_request_field(r, NAMES[i][1], v, f)) return false;
    }
    return true;
}

bool place_request_instance(struct place_request *r, struct view body, struct fault *f) {
    *r = (struct place_request){.p = {.model = NULL}};
    *f = (struct fault){0};
    json_t *root = json_parse(body, &f->e);
    const json_t *in = root ? unwrap(root, f) : NULL;
    const json_t *assign = member(in, "shardAssignments", "shard_assignments");
    const char *model = json_string_value(member(assign, "modelId", "model_id"));
    const json_t *named = member(in, "instanceId", "instance_id");
    const char *id = json_string_value(named);
    bool ok = in != NULL;
    if (ok && (!model || !*model))
        ok = fault_set(f, ERR_ARG, "instance", "shardAssignments.modelId must name a model");
    if (ok && named && !json_is_null(named) && !is_id(id))
        ok = fault_set(f, ERR_ARG, "instance", "instanceId must be a UUID");
    if (ok) {
        r->p.model = arena_strdup(&r->mem, model);
        r->p.instance_id = id ? arena_strdup(&r->mem, id) : NULL;
        ok = read_terms(r, in, root, f) && read_ranks(r, assign, f);
    }
    json_decref(root);
    return ok;
}
