/* bench_cluster.h - how fast a running cluster answers, over its HTTP API: `skein bench` with
 * --host, --max-nodes or --sharding.
 *
 * The model is placed on 1, 2, ... nodes in turn (exactly so many, as the cluster's preview has it
 * for that number), asked, and taken away again. Main thread; blocks. */
#pragma once

#include "base/str.h"
#include "cli/bench.h"
#include "cli/daemon.h"

struct bench_cluster {
    struct daemon daemon;
    const char *model, *sharding; /* "pipeline", "tensor" or "both" */
    u32 max_nodes, repeat;
    const char *kv_type;
    bool progress; /* says on stderr what it does */
};
/* Appends elements of a JSON array to `json`, lines to `table`. False as soon as something fails:
 * no node answers, the cluster has the model already, a placement is refused. Numbers of nodes
 * for which the cluster has no proposal are left out, unless nothing remains. */
bool bench_cluster_run(const struct bench_cluster *b, const struct bench_case *cases, u32 n,
                       struct str *json, struct str *table, struct err *e);

/* What the end of an event stream says. */
struct bench_reply {
    double prompt_tps, generation_tps;
    u32 prompt_tokens, generation_tokens;
};
/* ERR_NET with the server's words for an error in the stream, and for a stream without figures. */
bool bench_reply_read(struct view events, struct bench_reply *out, struct err *e);
/* n words of which most tokenizers make n tokens; `salt` makes the first differ. */
void bench_prompt(struct str *out, u32 n, u32 salt);
/* The instance that a reply of GET /instance/previews proposes on exactly n nodes; of "tensor" one
 * that shares every layer among all. Borrowed; NULL, and in *e the cluster's reason, if none. */
json_t *bench_preview(const json_t *reply, const char *sharding, u32 n, struct err *e);
