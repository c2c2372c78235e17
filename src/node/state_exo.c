/* state_exo.c - the parts of the state that programs written for exo read: the same facts in its
 * names and shapes (externally tagged unions, camelCase, memory as {"inBytes": n}). What skein
 * doesn't measure yet is left out or empty. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "node/state_json.h"

static void put_mem(struct str *o, const char *key, u64 bytes) {
    state_json_open(o, key, '{');
    json_put_u64(o, "inBytes", bytes);
    str_addc(o, '}');
}

static const char *runner_id(const struct cluster_instance *i, u32 rank, char buf[64]) {
    snprintf(buf, 64, "%.36s-%u", i->wanted->id, rank);
    return buf;
}

static void put_card(struct str *o, const char *key, const struct msg_wanted *w) {
    state_json_open(o, key, '{');
    json_put_str(o, "modelId", w->model);
    put_mem(o, "storageSize", w->desc.file_bytes);
    json_put_u64(o, "nLayers", w->desc.n_layers);
    json_put_u64(o, "hiddenSize", w->desc.dim);
    json_put_bool(o, "supportsTensor", false);
    json_put_str(o, "family", w->desc.arch);
    json_put_str(o, "quantization", w->desc.quant);
    json_put_u64(o, "contextLength", w->desc.n_ctx_train);
    str_addc(o, '}');
}

static void put_shard(struct str *o, const struct cluster_instance *i, u32 rank) {
    char id[64];
    state_json_open(o, runner_id(i, rank, id), '{');
    state_json_open(o, "PipelineShardMetadata", '{');
    put_card(o, "modelCard", i->wanted);
    json_put_u64(o, "deviceRank", rank);
    json_put_u64(o, "worldSize", i->n_ranks);
    json_put_bool(o, "immediateException", false);
    json_put_null(o, "shouldTimeout");
    json_put_u64(o, "startLayer", i->ranks[rank].layer_first);
    json_put_u64(o, "endLayer", i->ranks[rank].layer_end);
    json_put_u64(o, "nLayers", i->wanted->desc.n_layers);
    str_addz(o, "}}");
}

void state_exo_instance(const struct node *n, struct str *o, const struct cluster_instance *i) {
    char id[64];
    state_json_open(o, "MlxRingInstance", '{');
    json_put_str(o, "instanceId", i->wanted->id);
    state_json_open(o, "shardAssignments", '{');
    json_put_str(o, "modelId", i->wanted->model);
    state_json_open(o, "runnerToShard", '{');
    for (u32 r = 0; r < i->n_ranks; r++) put_shard(o, i, r);
    str_addc(o, '}');
    state_json_open(o, "nodeToRunner", '{');
    for (u32 r = 0; r < i->n_ranks; r++) json_put_str(o, i->ranks[r].node, runner_id(i, r, id));
    str_addz(o, "}}");
    state_json_open(o, "hostsByNode", '{');
    str_addc(o, '}');
    json_put_u64(o, "ephemeralPort", i->n_ranks ? state_json_fact(n, i, 0)->port : 0);
    str_addc(o, '}');
}

static void put_runner(struct str *o, const char *id, const struct msg_runner *f) {
    state_json_open(o, id, '{');
    switch (f->status) {
    case RUNNER_LOADING:
        state_json_open(o, "RunnerLoading", '{');
        json_put_u64(o, "layersLoaded", f->done);
        json_put_u64(o, "totalLayers", f->total);
        break;
    case RUNNER_LOADED: state_json_open(o, "RunnerLoaded", '{'); break;
    case RUNNER_CONNECTING: state_json_open(o, "RunnerConnecting", '{'); break;
    case RUNNER_READY:
        state_json_open(o, "RunnerReady", '{');
        json_put_null(o, "prefillServerPort");
        break;
    case RUNNER_FAILED:
        state_json_open(o, "RunnerFailed", '{');
        json_put_str(o, "errorMessage", f->text);
        state_json_open(o, "diagnostics", '[');
        str_addc(o, ']');
        break;
    default: state_json_open(o, "RunnerIdle", '{');
    }
    str_addz(o, "}}");
}

static void put_runners(const struct node *n, struct str *o) {
    char id[64];
    state_json_open(o, "runners", '{');
    for (u32 k = 0; k < cluster_n_instances(n->cluster); k++) {
        struct cluster_instance i;
        cluster_instance(n->cluster, k, &i);
        for (u32 r = 0; r < i.n_ranks; r++)
            if (cluster_runner(n->cluster, &i, r))
                put_runner(o, runner_id(&i, r, id), state_json_fact(n, &i, r));
    }
    str_addc(o, '}');
}

static void put_progress(struct str *o, const struct store_progress *p) {
    double eta_ms =
        p->bytes_per_s > 0 ? (double)(p->total - MIN(p->done, p->total)) / p->bytes_per_s * 1e3 : 0;
    state_json_open(o, "downloadProgress", '{');
    put_mem(o, "total", p->total);
    put_mem(o, "downloaded", p->done);
    put_mem(o, "downloadedThisSession", p->done);
    json_put_u64(o, "completedFiles", 0);
    json_put_u64(o, "totalFiles", 1);
    json_put_num(o, "speed", p->bytes_per_s);
    json_put_u64(o, "etaMs", (u64)eta_ms);
    state_json_open(o, "files", '{');
    str_addz(o, "}}");
}

static void put_download(const struct node *n, struct str *o, const struct download *d) {
    const char *tag = d->running        ? "DownloadOngoing"
                      : d->failure.code ? "DownloadFailed"
                                        : "DownloadCompleted";
    state_json_open(o, NULL, '{');
    state_json_open(o, tag, '{');
    json_put_str(o, "nodeId", n->id);
    json_put_str(o, "modelId", d->model);
    json_put_str(o, "modelDirectory", store_dir(n->cfg.store));
    if (d->running)
        put_progress(o, &d->now);
    else if (d->failure.code)
        json_put_str(o, "errorMessage", d->failure.msg);
    else
        put_mem(o, "total", d->now.total);
    str_addz(o, "}}");
}

static void put_downloads(const struct node *n, struct str *o) {
    state_json_open(o, "downloads", '{');
    state_json_open(o, n->id, '[');
    for (u32 i = 0; i < n->n_downloads; i++) put_download(n, o, &n->downloads[i]);
    str_addz(o, "]}");
}

/* This node's links to the live others, as addresses in the notation that exo uses. */
static void put_topology(const struct node *n, struct str *o, u64 now) {
    struct cluster_member m;
    state_json_open(o, "topology", '{');
    state_json_open(o, "nodes", '[');
    for (u32 i = 0; i < cluster_n_members(n->cluster); i++) {
        cluster_member(n->cluster, i, now, &m);
        if (m.state > MEMBER_LIVE) continue;
        json_comma(o);
        json_add_str(o, view_of(m.id));
    }
    str_addc(o, ']');
    state_json_open(o, "connections", '{');
    state_json_open(o, n->id, '{');
    for (u32 i = 1; i < cluster_n_members(n->cluster); i++) {
        cluster_member(n->cluster, i, now, &m);
        const char *colon = strrchr(m.address, ':');
        if (m.state != MEMBER_LIVE || !colon) continue;
        bool six = m.address[0] == '[';
        int host_n = (int)(colon - m.address) - (six ? 2 : 0);
        char text[400];
        state_json_open(o, m.id, '[');
        state_json_open(o, NULL, '{');
        state_json_open(o, "sinkMultiaddr", '{');
        snprintf(text, sizeof text, "/%s/%.*s/tcp/%s", six ? "ip6" : "ip4", host_n, m.address + six,
                 colon + 1);
        json_put_str(o, "address", text);
        json_put_str(o, "address_type", six ? "ip6" : "ip4");
        json_put_view(o, "ip_address", (struct view){m.address + six, (size_t)host_n});
        json_put_u64(o, "port", m.hello->bus_port);
        str_addz(o, "}}]");
    }
    str_addz(o, "}}}");
}

enum map_kind { MAP_SEEN, MAP_IDENTITY, MAP_MEMORY, MAP_DISK, MAP_BACKENDS };

static void put_entry(struct str *o, enum map_kind kind, const struct cluster_member *m) {
    char iso[32];
    const struct msg_hello *h = m->hello;
    switch (kind) {
    case MAP_SEEN:
        json_put_str(o, m->id, clock_iso8601((clock_wall_ms() - (i64)m->seen_ms_ago) / 1000, iso));
        return;
    case MAP_BACKENDS:
        state_json_open(o, m->id, '[');
        json_add_str(o, VIEW("MlxCpu"));
        str_addc(o, ']');
        return;
    case MAP_IDENTITY:
        state_json_open(o, m->id, '{');
        json_put_str(o, "modelId", "");
        json_put_str(o, "chipId", h->cpu);
        json_put_str(o, "friendlyName", h->name);
        json_put_str(o, "osVersion", h->os);
        json_put_str(o, "osBuildVersion", "");
        break;
    case MAP_MEMORY:
        state_json_open(o, m->id, '{');
        put_mem(o, "ramTotal", h->mem_total_bytes);
        put_mem(o, "ramAvailable", m->heartbeat->mem_available_bytes);
        put_mem(o, "swapTotal", 0);
        put_mem(o, "swapAvailable", 0);
        break;
    case MAP_DISK:
        state_json_open(o, m->id, '{');
        put_mem(o, "available", m->heartbeat->disk_available_bytes);
        break;
    }
    str_addc(o, '}');
}

static void put_map(const struct node *n, struct str *o, const char *key, enum map_kind kind,
                    u64 now) {
    state_json_open(o, key, '{');
    for (u32 i = 0; i < cluster_n_members(n->cluster); i++) {
        struct cluster_member m;
        cluster_member(n->cluster, i, now, &m);
        if (m.state <= MEMBER_LIVE) put_entry(o, kind, &m);
    }
    str_addc(o, '}');
}

void state_exo_maps(const struct node *n, struct str *o) {
    u64 now = clock_ms();
    put_runners(n, o);
    put_downloads(n, o);
    put_topology(n, o, now);
    put_map(n, o, "lastSeen", MAP_SEEN, now);
    put_map(n, o, "nodeIdentities", MAP_IDENTITY, now);
    put_map(n, o, "nodeMemory", MAP_MEMORY, now);
    put_map(n, o, "nodeDisk", MAP_DISK, now);
    put_map(n, o, "nodeBackends", MAP_BACKENDS, now);
    static const char *const EMPTY[] = {"tasks",           "nodeSystem",    "nodeNetwork",
                                        "nodeThunderbolt", "instanceLinks", "prefillServerPorts",
                                        "customModelCards"};
    for (size_t i = 0; i < ARRAY_LEN(EMPTY); i++) {
        state_json_open(o, EMPTY[i], '{');
        str_addc(o, '}');
    }
    json_put_u64(o, "lastEventAppliedIdx", cluster_index(n->cluster));
}
