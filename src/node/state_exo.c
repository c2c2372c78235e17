/* state_exo.c - the parts of the state that programs written for exo read: the same facts in its
 * names and shapes (externally tagged unions, camelCase, memory as {"inBytes": n}). What a
 * machine does not tell is 0 or empty. Tasks, which would hold prompts, are never shown. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/sock.h"
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

void state_exo_card(struct str *o, const char *key, const struct msg_wanted *w) {
    state_json_open(o, key, '{');
    json_put_str(o, "modelId", w->model);
    put_mem(o, "storageSize", w->desc.file_bytes);
    json_put_u64(o, "nLayers", w->desc.n_layers);
    json_put_u64(o, "hiddenSize", w->desc.dim);
    json_put_u64(o, "numKeyValueHeads", w->desc.shape.n_kv_heads);
    json_put_bool(o, "supportsTensor", w->desc.shape.n_heads > 0);
    json_put_str(o, "family", w->desc.arch);
    json_put_str(o, "quantization", w->desc.quant);
    json_put_u64(o, "contextLength", w->desc.n_ctx_train);
    str_addc(o, '}');
}

/* exo cuts tensors evenly and says no more than rank and world size; here "slice" tells which part.
 */
static void put_slice(struct str *o, const struct msg_rank *r) {
    state_json_open(o, "slice", '{');
    json_put_u64(o, "tpFirst", r->tp_first);
    json_put_u64(o, "tpRanks", r->tp_ranks);
    json_put_u64(o, "headFirst", r->slice.head_first);
    json_put_u64(o, "headEnd", r->slice.head_end);
    json_put_u64(o, "ffFirst", r->slice.ff_first);
    json_put_u64(o, "ffEnd", r->slice.ff_end);
    json_put_u64(o, "vocabFirst", r->slice.vocab_first);
    json_put_u64(o, "vocabEnd", r->slice.vocab_end);
    str_addc(o, '}');
}

static void put_shard(struct str *o, const struct cluster_instance *i, u32 rank) {
    char id[64];
    const struct msg_rank *r = &i->ranks[rank];
    bool tensor = r->tp_ranks > 1;
    state_json_open(o, runner_id(i, rank, id), '{');
    state_json_open(o, tensor ? "TensorShardMetadata" : "PipelineShardMetadata", '{');
    state_exo_card(o, "modelCard", i->wanted);
    json_put_u64(o, "deviceRank", rank);
    json_put_u64(o, "worldSize", i->n_ranks);
    json_put_bool(o, "immediateException", false);
    json_put_null(o, "shouldTimeout");
    json_put_u64(o, "startLayer", r->layer_first);
    json_put_u64(o, "endLayer", r->layer_end);
    json_put_u64(o, "nLayers", i->wanted->desc.n_layers);
    if (tensor) put_slice(o, r);
    str_addz(o, "}}");
}

/* What else was asked for, so that an instance that is handed in again is the same one. */
static void put_terms(struct str *o, const struct msg_wanted *w) {
    /* A node's default may be more than the model has: handed in, it would be refused. */
    u32 most = w->desc.n_ctx_train ? w->desc.n_ctx_train : UINT32_MAX;
    if (w->n_ctx) json_put_u64(o, "nCtx", MIN(w->n_ctx, most));
    if (w->wish.n_batch) json_put_u64(o, "batch", w->wish.n_batch);
    if (w->wish.force) json_put_bool(o, "force", true);
    json_put_str(o, "kvType", w->kv_type ? "q8" : "f16");
    if (w->act_bits) json_put_u64(o, "activations", w->act_bits);
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
    json_put_u64(o, "ephemeralPort", n && i->n_ranks ? state_json_fact(n, i, 0)->port : 0);
    put_terms(o, i->wanted);
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
    case RUNNER_WARMING: state_json_open(o, "RunnerWarmingUp", '{'); break;
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

/* What exo's clients look into for the model's name. */
static void put_shard_of(struct str *o, const char *model, u64 bytes) {
    state_json_open(o, "shardMetadata", '{');
    state_json_open(o, "PipelineShardMetadata", '{');
    state_json_open(o, "modelCard", '{');
    json_put_str(o, "modelId", model);
    put_mem(o, "storageSize", bytes);
    str_addc(o, '}');
    json_put_u64(o, "deviceRank", 0);
    json_put_u64(o, "worldSize", 1);
    str_addz(o, "}}");
}

static void put_progress(struct str *o, u64 done, u64 total, double bytes_per_s) {
    double eta_ms = bytes_per_s > 0 ? (double)(total - MIN(done, total)) / bytes_per_s * 1e3 : 0;
    state_json_open(o, "downloadProgress", '{');
    put_mem(o, "total", total);
    put_mem(o, "downloaded", done);
    put_mem(o, "downloadedThisSession", done);
    json_put_u64(o, "completedFiles", 0);
    json_put_u64(o, "totalFiles", 1);
    json_put_num(o, "speed", bytes_per_s);
    json_put_u64(o, "etaMs", (u64)eta_ms);
    state_json_open(o, "files", '{');
    str_addz(o, "}}");
}

static void open_download(struct str *o, const char *tag, const char *node, const char *model,
                          u64 bytes) {
    state_json_open(o, NULL, '{');
    state_json_open(o, tag, '{');
    json_put_str(o, "nodeId", node);
    json_put_str(o, "modelId", model);
    put_shard_of(o, model, bytes);
}

static void put_download(const struct node *n, struct str *o, const struct download *d) {
    bool stopped = d->failure.code == ERR_CANCELLED;
    const char *tag = d->job            ? "DownloadOngoing"
                      : stopped         ? "DownloadPending"
                      : d->failure.code ? "DownloadFailed"
                                        : "DownloadCompleted";
    open_download(o, tag, n->id, d->model, d->now.total);
    json_put_str(o, "modelDirectory", store_dir(n->cfg.store));
    if (d->job)
        put_progress(o, d->now.done, d->now.total, d->now.bytes_per_s);
    else if (d->failure.code && !stopped)
        json_put_str(o, "errorMessage", d->failure.msg);
    else
        put_mem(o, "total", d->now.total);
    if (!d->job && stopped) put_mem(o, "downloaded", d->now.done);
    str_addz(o, "}}");
}

/* Another node's downloads, as far as its shards wait for them. */
static void put_fetching(const struct node *n, struct str *o, const char *node) {
    for (u32 k = 0; k < cluster_n_instances(n->cluster); k++) {
        struct cluster_instance i;
        cluster_instance(n->cluster, k, &i);
        for (u32 r = 0; r < i.n_ranks; r++) {
            const struct msg_runner *f = state_json_fact(n, &i, r);
            if (strcmp(i.ranks[r].node, node) != 0 || f->status != RUNNER_FETCHING) continue;
            open_download(o, "DownloadOngoing", node, i.wanted->model, f->total);
            json_put_str(o, "modelDirectory", "");
            put_progress(o, f->done, f->total, 0);
            str_addz(o, "}}");
            break;
        }
    }
}

static void put_downloads(const struct node *n, struct str *o, u64 now) {
    state_json_open(o, "downloads", '{');
    state_json_open(o, n->id, '[');
    for (u32 i = 0; i < n->n_downloads; i++) put_download(n, o, &n->downloads[i]);
    str_addc(o, ']');
    for (u32 i = 1; i < cluster_n_members(n->cluster); i++) {
        struct cluster_member m;
        cluster_member(n->cluster, i, now, &m);
        if (m.state != MEMBER_LIVE) continue;
        state_json_open(o, m.id, '[');
        put_fetching(n, o, m.id);
        str_addc(o, ']');
    }
    str_addc(o, '}');
}

/* host is without brackets; a link-local one keeps its scope. */
static void put_address(struct str *o, struct view host, u32 port) {
    char text[400];
    const char *kind = memchr(host.p, ':', host.n) ? "ip6" : "ip4";
    state_json_open(o, NULL, '{');
    state_json_open(o, "sinkMultiaddr", '{');
    snprintf(text, sizeof text, "/%s/%.*s/tcp/%u", kind, VIEW_FMT(host), port);
    json_put_str(o, "address", text);
    json_put_str(o, "address_type", kind);
    json_put_view(o, "ip_address", host);
    json_put_u64(o, "port", port);
    str_addz(o, "}}");
}

static const struct msg_link *link_to(const struct msg_facts *f, const char *peer) {
    const struct msg_link *l = f->links.v;
    for (u64 i = 0; i < f->links.n; i++)
        if (strcmp(l[i].peer, peer) == 0) return &l[i];
    return NULL;
}

/* One edge: over IP, and beside it over RDMA where both ends have that on this link. */
static void put_edge(struct str *o, const struct cluster_member *from,
                     const struct cluster_member *to) {
    const struct msg_link *l = link_to(from->facts, to->id), *back = link_to(to->facts, from->id);
    char host[SOCK_HOST_CAP];
    u16 port;
    if (from->state == MEMBER_SELF ? !sock_split(to->address, 1, host, &port, NULL) : !l) return;
    struct view at = view_of(from->state == MEMBER_SELF ? host : l->address);
    state_json_open(o, to->id, '[');
    put_address(o, at, to->hello->bus_port);
    if (l && back && l->kind == LINK_RDMA && back->kind == LINK_RDMA) {
        state_json_open(o, NULL, '{');
        json_put_str(o, "sourceRdmaIface", l->interface);
        json_put_str(o, "sinkRdmaIface", back->interface);
        str_addc(o, '}');
    }
    str_addc(o, ']');
}

/* Every live node's links to the live others, in the notation that exo uses: this node's as it
 * dials them, the others' as they have told. */
static void put_topology(const struct node *n, struct str *o, u64 now) {
    struct cluster_member m, to;
    u32 k = cluster_n_members(n->cluster);
    state_json_open(o, "topology", '{');
    state_json_open(o, "nodes", '[');
    for (u32 i = 0; i < k; i++) {
        cluster_member(n->cluster, i, now, &m);
        if (m.state > MEMBER_LIVE) continue;
        json_comma(o);
        json_add_str(o, view_of(m.id));
    }
    str_addc(o, ']');
    state_json_open(o, "connections", '{');
    for (u32 i = 0; i < k; i++) {
        cluster_member(n->cluster, i, now, &m);
        if (m.state > MEMBER_LIVE) continue;
        state_json_open(o, m.id, '{');
        for (u32 j = 0; j < k; j++) {
            cluster_member(n->cluster, j, now, &to);
            if (j != i && to.state <= MEMBER_LIVE) put_edge(o, &m, &to);
        }
        str_addc(o, '}');
    }
    str_addz(o, "}}");
}

enum map_kind {
    MAP_SEEN,
    MAP_IDENTITY,
    MAP_MEMORY,
    MAP_DISK,
    MAP_SYSTEM,
    MAP_NETWORK,
    MAP_THUNDERBOLT,
    MAP_BRIDGE,
    MAP_RDMA,
    MAP_BACKENDS
};

/* exo knows fewer kinds of interfaces than there are. */
static const char *interface_type(u32 kind) {
    return kind == LINK_WIFI                            ? "wifi"
           : kind == LINK_ETHERNET || kind == LINK_RDMA ? "ethernet"
           : kind == LINK_THUNDERBOLT                   ? "thunderbolt"
                                                        : "unknown";
}

static void put_network(struct str *o, const struct msg_facts *f, bool thunderbolt) {
    const struct msg_iface *v = f->interfaces.v;
    state_json_open(o, "interfaces", '[');
    for (u64 i = 0; i < f->interfaces.n; i++) {
        if (thunderbolt && v[i].kind != LINK_THUNDERBOLT) continue;
        state_json_open(o, NULL, '{');
        json_put_str(o, thunderbolt ? "rdmaInterface" : "name", v[i].name);
        if (thunderbolt) {
            json_put_str(o, "domainUuid", "");
            json_put_u64(o, "linkSpeed", v[i].speed_mbit);
        } else {
            json_put_str(o, "ipAddress", v[i].address);
            json_put_str(o, "interfaceType", interface_type(v[i].kind));
        }
        str_addc(o, '}');
    }
    str_addc(o, ']');
}

static bool has_thunderbolt_bridge(const struct msg_facts *f) {
    const struct msg_iface *v = f->interfaces.v;
    for (u64 i = 0; i < f->interfaces.n; i++)
        if (v[i].kind == LINK_THUNDERBOLT && strncmp(v[i].name, "bridge", 6) == 0) return true;
    return false;
}

static void put_system(struct str *o, const struct msg_facts *f) {
    const struct msg_gpu *g = f->gpus.v;
    u32 gpu = 0;
    for (u64 i = 0; i < f->gpus.n; i++) gpu = MAX(gpu, g[i].load_pct);
    bool two_kinds = f->load_big_pct || f->load_small_pct;
    json_put_num(o, "gpuUsage", gpu / 100.0);
    json_put_num(o, "temp", f->temperature_c);
    json_put_num(o, "sysPower", f->power_mw / 1000.0);
    json_put_num(o, "pcpuUsage", (two_kinds ? f->load_big_pct : f->load_pct) / 100.0);
    json_put_num(o, "ecpuUsage", f->load_small_pct / 100.0);
}

static void put_identity(struct str *o, const struct cluster_member *m) {
    json_put_str(o, "modelId", m->facts->model);
    json_put_str(o, "chipId", m->hello->cpu);
    json_put_str(o, "friendlyName", m->hello->name);
    json_put_str(o, "osVersion", m->hello->os);
    json_put_str(o, "osBuildVersion", m->facts->os_build);
}

static void put_entry(struct str *o, enum map_kind kind, const struct cluster_member *m) {
    char iso[32];
    const struct msg_facts *f = m->facts;
    if (kind == MAP_SEEN) {
        json_put_str(o, m->id, clock_iso8601((clock_wall_ms() - (i64)m->seen_ms_ago) / 1000, iso));
        return;
    }
    if (kind == MAP_BACKENDS) {
        state_json_open(o, m->id, '[');
        json_add_str(o, VIEW("MlxCpu"));
        str_addc(o, ']');
        return;
    }
    state_json_open(o, m->id, '{');
    if (kind == MAP_IDENTITY) put_identity(o, m);
    if (kind == MAP_SYSTEM) put_system(o, f);
    if (kind == MAP_NETWORK || kind == MAP_THUNDERBOLT) put_network(o, f, kind == MAP_THUNDERBOLT);
    if (kind == MAP_RDMA) json_put_bool(o, "enabled", f->has_rdma);
    if (kind == MAP_BRIDGE) {
        bool there = has_thunderbolt_bridge(f);
        json_put_bool(o, "enabled", there);
        json_put_bool(o, "exists", there);
        if (there)
            json_put_str(o, "serviceName", "Thunderbolt Bridge");
        else
            json_put_null(o, "serviceName");
    }
    if (kind == MAP_MEMORY) {
        put_mem(o, "ramTotal", m->hello->mem_total_bytes);
        put_mem(o, "ramAvailable", m->heartbeat->mem_available_bytes);
        put_mem(o, "swapTotal", f->swap_total_bytes);
        put_mem(o, "swapAvailable", f->swap_available_bytes);
    }
    if (kind == MAP_DISK) {
        put_mem(o, "total", f->disk_total_bytes);
        put_mem(o, "available", m->heartbeat->disk_available_bytes);
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
    put_downloads(n, o, now);
    put_topology(n, o, now);
    put_map(n, o, "lastSeen", MAP_SEEN, now);
    put_map(n, o, "nodeIdentities", MAP_IDENTITY, now);
    put_map(n, o, "nodeMemory", MAP_MEMORY, now);
    put_map(n, o, "nodeDisk", MAP_DISK, now);
    put_map(n, o, "nodeSystem", MAP_SYSTEM, now);
    put_map(n, o, "nodeNetwork", MAP_NETWORK, now);
    put_map(n, o, "nodeThunderbolt", MAP_THUNDERBOLT, now);
    put_map(n, o, "nodeThunderboltBridge", MAP_BRIDGE, now);
    put_map(n, o, "nodeRdmaCtl", MAP_RDMA, now);
    put_map(n, o, "nodeBackends", MAP_BACKENDS, now);
    state_json_open(o, "thunderboltBridgeCycles", '[');
    str_addc(o, ']');
    static const char *const EMPTY[] = {"tasks", "instanceLinks", "prefillServerPorts",
                                        "customModelCards"};
    for (size_t i = 0; i < ARRAY_LEN(EMPTY); i++) {
        state_json_open(o, EMPTY[i], '{');
        str_addc(o, '}');
    }
    json_put_u64(o, "lastEventAppliedIdx", cluster_index(n->cluster));
}
