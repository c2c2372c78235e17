/* state_json.c - what the node shows: one JSON object with skein's own lists and, beside them, the
 * maps that programs written for exo read (state_exo.c). No prompt and no answer is in it. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/version.h"
#include "node/node_parts.h"
#include "node/plan_json.h"
#include "node/routes.h"
#include "node/state_json.h"

static const char *const MEMBER_WORD[] = {
    [MEMBER_SELF] = "self",       [MEMBER_LIVE] = "live",       [MEMBER_LOST] = "lost",
    [MEMBER_REFUSED] = "refused", [MEMBER_UNKNOWN] = "unknown",
};
static const char *const INSTANCE_WORD[] = {
    [INSTANCE_WAITING] = "waiting", [INSTANCE_FETCHING] = "downloading",
    [INSTANCE_LOADING] = "loading", [INSTANCE_READY] = "ready",
    [INSTANCE_FAILED] = "failed",   [INSTANCE_WARMING] = "warming up",
};
static const char *const RUNNER_WORD[] = {
    [RUNNER_NONE] = "idle",     [RUNNER_FETCHING] = "downloading",  [RUNNER_LOADING] = "loading",
    [RUNNER_LOADED] = "loaded", [RUNNER_CONNECTING] = "connecting", [RUNNER_READY] = "ready",
    [RUNNER_FAILED] = "failed", [RUNNER_WARMING] = "warming up",
};

void state_json_open(struct str *o, const char *key, char bracket) {
    if (key)
        json_key(o, key);
    else
        json_comma(o);
    str_addc(o, bracket);
}

const struct msg_runner *state_json_fact(const struct node *n, const struct cluster_instance *i,
                                         u32 rank) {
    static const struct msg_runner NONE = {.instance = "", .isa = "", .text = ""};
    const struct msg_runner *f = cluster_runner(n->cluster, i, rank);
    return f ? f : &NONE;
}

/* "shared memory", "TCP x4, encrypted", "libfabric verbs;ofi_rxm". */
static void link_text(const struct msg_rank_link *l, struct str *o) {
    switch ((enum msg_carrier)l->carrier) {
    case CARRIER_SHM: str_addz(o, "shared memory"); break;
    case CARRIER_TCP: str_addz(o, "TCP"); break;
    case CARRIER_FABRIC: str_addf(o, "libfabric %s", l->provider); break;
    case CARRIER_NONE: break;
    }
    if (l->n_streams > 1) str_addf(o, " x%u", l->n_streams);
    if (l->is_encrypted) str_addz(o, ", encrypted");
}

/* What carries the frames to the other ranks, as the runner says. */
static void put_carriers(struct str *o, const struct wire_list *links) {
    const struct msg_rank_link *l = links->v;
    struct str text = {0};
    state_json_open(o, "links", '[');
    for (u32 i = 0; i < links->n; i++) {
        if (l[i].carrier == CARRIER_NONE) continue;
        str_clear(&text);
        link_text(&l[i], &text);
        state_json_open(o, NULL, '{');
        json_put_u64(o, "rank", i);
        json_put_str(o, "carrier", str_z(&text));
        json_put_bool(o, "is_encrypted", l[i].is_encrypted);
        str_addc(o, '}');
    }
    str_addc(o, ']');
    str_deinit(&text);
}

static void put_shard(const struct node *n, struct str *o, const struct cluster_instance *i,
                      u32 rank) {
    const struct msg_rank *r = &i->ranks[rank];
    const struct msg_runner *f = state_json_fact(n, i, rank);
    state_json_open(o, NULL, '{');
    json_put_str(o, "instance", i->wanted->id);
    json_put_str(o, "model", i->wanted->model);
    json_put_str(o, "node", r->node);
    json_put_u64(o, "rank", rank);
    json_put_u64(o, "n_ranks", i->n_ranks);
    json_put_u64(o, "layer_first", r->layer_first);
    json_put_u64(o, "layer_end", r->layer_end);
    json_put_u64(o, "tp_first", r->tp_first);
    json_put_u64(o, "tp_ranks", MAX(r->tp_ranks, 1u));
    if (r->tp_ranks > 1) {
        const struct msg_shape *h = &i->wanted->desc.shape;
        json_put_u64(o, "head_first", r->slice.head_first);
        json_put_u64(o, "head_end", r->slice.head_end);
        json_put_u64(o, "n_heads", h->n_heads);
        json_put_u64(o, "ff_first", r->slice.ff_first);
        json_put_u64(o, "ff_end", r->slice.ff_end);
        json_put_u64(o, "n_ff", h->n_ff);
    }
    json_put_u64(o, "n_layers", i->wanted->desc.n_layers);
    json_put_str(o, "status", RUNNER_WORD[MIN(f->status, (u32)RUNNER_WARMING)]);
    json_put_u64(o, "done", f->done);
    json_put_u64(o, "total", f->total);
    json_put_u64(o, "weights_bytes", f->weights_bytes ? f->weights_bytes : r->weights_bytes);
    json_put_u64(o, "kv_bytes", f->kv_bytes);
    json_put_u64(o, "scratch_bytes", f->scratch_bytes);
    json_put_u64(o, "n_threads", f->n_threads);
    json_put_u64(o, "pid", f->pid);
    json_put_str(o, "isa", f->isa);
    if (f->links.n) put_carriers(o, &f->links);
    if (*f->text) json_put_str(o, "error", f->text);
    str_addc(o, '}');
}

/* The shards of one node, or of one instance (node NULL). Returns the bytes they take. */
static u64 put_shards(const struct node *n, struct str *o, const char *node, const char *instance) {
    u64 bytes = 0;
    state_json_open(o, "shards", '[');
    for (u32 k = 0; k < cluster_n_instances(n->cluster); k++) {
        struct cluster_instance i;
        cluster_instance(n->cluster, k, &i);
        if (instance && strcmp(i.wanted->id, instance) != 0) continue;
        for (u32 r = 0; r < i.n_ranks; r++) {
            if (node && strcmp(i.ranks[r].node, node) != 0) continue;
            const struct msg_runner *f = state_json_fact(n, &i, r);
            bytes += f->weights_bytes + f->kv_bytes + f->scratch_bytes;
            put_shard(n, o, &i, r);
        }
    }
    str_addc(o, ']');
    return bytes;
}

/* The way that messages take, and over what. */
static void put_route(const struct node *n, struct str *o, const char *id) {
    struct bus_path p;
    u32 n_netifs;
    if (!bus_path(n->bus, id, &p)) return;
    const struct netif *v = routes_netifs(n->routes, &n_netifs),
                       *i = netif_toward(v, n_netifs, p.host);
    json_put_u64(o, "rtt_us", p.rtt_us);
    state_json_open(o, "route", '{');
    json_put_str(o, "address", p.address);
    json_put_str(o, "host", p.host);
    json_put_str(o, "interface", i ? i->name : NULL);
    json_put_str(o, "kind", netif_kind_text(i ? i->kind : NETIF_UNKNOWN));
    json_put_u64(o, "rtt_us", p.rtt_us);
    json_put_bool(o, "is_dialled", p.is_dialled);
    str_addc(o, '}');
}

static void put_node(const struct node *n, struct str *o, const struct cluster_member *m) {
    const struct msg_hello *h = m->hello;
    state_json_open(o, NULL, '{');
    json_put_str(o, "id", m->id);
    json_put_str(o, "name", h->name);
    json_put_str(o, "state", MEMBER_WORD[m->state]);
    json_put_bool(o, "is_master", strcmp(m->id, cluster_master(n->cluster)) == 0);
    json_put_bool(o, "is_worker", h->is_worker);
    json_put_str(o, "role", h->is_worker ? "worker" : "coordinator");
    if (m->is_drained) json_put_bool(o, "is_drained", true);
    if (m->is_stopped) json_put_bool(o, "is_stopped", true);
    state_json_open(o, "capabilities", '{');
    json_put_u64(o, "memory", h->mem_total_bytes);
    json_put_str(o, "device", h->device);
    str_addc(o, '}');
    json_put_str(o, "device", h->device);
    json_put_u64(o, "memory", h->mem_total_bytes);
    u64 avail = MIN(m->heartbeat->mem_available_bytes, h->mem_total_bytes);
    json_put_u64(o, "memory_used", m->heartbeat->boot ? h->mem_total_bytes - avail : 0);
    json_put_u64(o, "disk_available", m->heartbeat->disk_available_bytes);
    u64 taken = put_shards(n, o, m->id, NULL), limit = m->heartbeat->mem_limit_bytes;
    json_put_u64(o, "memory_instances", taken);
    /* What models may still take: the machine has it, and its user allows it (--memory). */
    json_put_u64(o, "memory_available", MIN(avail, limit > taken ? limit - taken : 0));
    json_put_u64(o, "cores", h->n_cores);
    json_put_str(o, "cpu", h->cpu);
    json_put_str(o, "os", h->os);
    json_put_str(o, "build", h->build);
    json_put_u64(o, "protocol", h->protocol);
    json_put_str(o, "address", m->address);
    const struct msg_string *hosts = h->addresses.v;
    state_json_open(o, "addresses", '[');
    for (u64 i = 0; i < h->addresses.n; i++) json_comma(o), json_add_str(o, view_of(hosts[i].s));
    str_addc(o, ']');
    json_put_u64(o, "api_port", h->api_port);
    json_put_u64(o, "bus_port", h->bus_port);
    const char *master =
        m->state == MEMBER_SELF ? cluster_master(n->cluster) : m->heartbeat->claim.master;
    json_put_str(o, "follows", master ? master : "");
    json_put_u64(o, "seen_ms_ago", m->seen_ms_ago);
    /* What its clock showed when its last heartbeat came, against ours at that moment. */
    if (m->state == MEMBER_LIVE && m->heartbeat->wall_ms)
        json_put_int(o, "clock_skew_ms",
                     (i64)m->heartbeat->wall_ms - (clock_wall_ms() - (i64)m->seen_ms_ago));
    if (m->state == MEMBER_LIVE) put_route(n, o, m->id);
    if (m->refused) json_put_str(o, "refused", m->refused);
    state_facts_put(o, m->facts);
    str_addc(o, '}');
}

static void put_nodes(const struct node *n, struct str *o, u64 now) {
    struct cluster_member m;
    state_json_open(o, "nodes", '[');
    for (u32 i = 0; i < cluster_n_members(n->cluster); i++) {
        cluster_member(n->cluster, i, now, &m);
        if (m.state != MEMBER_REFUSED && m.state != MEMBER_UNKNOWN) put_node(n, o, &m);
    }
    str_addc(o, ']');
    state_json_open(o, "refused", '[');
    for (u32 i = 0; i < cluster_n_members(n->cluster); i++) {
        cluster_member(n->cluster, i, now, &m);
        if (m.state != MEMBER_REFUSED) continue;
        state_json_open(o, NULL, '{');
        json_put_str(o, "id", m.id);
        json_put_str(o, "address", m.address);
        json_put_str(o, "reason", m.refused);
        str_addc(o, '}');
    }
    struct routes_refused f;
    for (u32 i = 0; routes_refused(n->routes, i, &f); i++) {
        state_json_open(o, NULL, '{');
        json_put_str(o, "id", f.node);
        json_put_str(o, "address", f.address);
        json_put_str(o, "reason", f.reason);
        str_addc(o, '}');
    }
    str_addc(o, ']');
}

static const char *sharding_of(const struct cluster_instance *i) {
    u32 kind = SHARDING_PIPELINE;
    for (u32 r = 0; r < i->n_ranks; r++)
        if (i->ranks[r].tp_ranks > 1)
            kind = i->ranks[r].tp_ranks == i->n_ranks ? SHARDING_TENSOR : SHARDING_HYBRID;
    return plan_sharding_name(kind);
}

static void put_instances(const struct node *n, struct str *o) {
    state_json_open(o, "instances", '{');
    for (u32 k = 0; k < cluster_n_instances(n->cluster); k++) {
        struct cluster_instance i;
        cluster_instance(n->cluster, k, &i);
        state_json_open(o, i.wanted->id, '{');
        state_exo_instance(n, o, &i);
        state_exo_card(o, "model_card", i.wanted);
        json_put_str(o, "meta", "MlxRing");
        json_put_str(o, "instance_id", i.wanted->id);
        json_put_str(o, "model", i.wanted->model);
        json_put_str(o, "title", i.wanted->desc.title);
        json_put_str(o, "arch", i.wanted->desc.arch);
        json_put_str(o, "quantization", i.wanted->desc.quant);
        json_put_str(o, "sharding", sharding_of(&i));
        json_put_str(o, "status", INSTANCE_WORD[i.status]);
        if (*i.text) json_put_str(o, "reason", i.text);
        json_put_u64(o, "tries", i.placement->tries);
        json_put_u64(o, "n_ctx", i.placement->n_ctx);
        json_put_bool(o, "automatic", i.wanted->is_automatic);
        json_put_u64(o, "memory_instances", put_shards(n, o, NULL, i.wanted->id));
        str_addc(o, '}');
    }
    str_addc(o, '}');
}

static void put_requests(const struct node *n, struct str *o) {
    u32 waiting = 0;
    for (u32 i = 0; i < n->n_asks; i++) waiting += n->asks[i]->state == ASK_WAITING;
    state_json_open(o, "requests", '{');
    json_put_u64(o, "open", n->n_asks);
    json_put_u64(o, "waiting", waiting);
    json_put_u64(o, "running_here", n->n_legs);
    str_addc(o, '}');
}

static void publish_health(struct node *n, u64 now) {
    bool worker = false;
    for (u32 i = 0; i < cluster_n_members(n->cluster); i++) {
        struct cluster_member m;
        cluster_member(n->cluster, i, now, &m);
        worker = worker || (m.state <= MEMBER_LIVE && m.hello->is_worker);
    }
    const char *why = !*cluster_master(n->cluster) ? "no master is elected yet"
                      : !worker                    ? "no worker node is there"
                                                   : "";
    snapshot_set(n->health, view_of(why));
}

void state_json_publish(struct node *n) {
    u64 now = clock_ms();
    struct str o = {0};
    str_addc(&o, '{');
    json_put_str(&o, "node_id", n->id);
    json_put_str(&o, "name", n->name);
    json_put_str(&o, "cluster", n->cfg.cluster);
    json_put_bool(&o, "cluster_is_open", bus_is_open(n->bus));
    json_put_str(&o, "version", version_text());
    json_put_str(&o, "discovery", routes_discovery_error(n->routes));
    json_put_str(&o, "master", cluster_master(n->cluster));
    json_put_u64(&o, "term", cluster_term(n->cluster));
    put_nodes(n, &o, now);
    state_facts_links(n, &o, now);
    put_instances(n, &o);
    put_requests(n, &o);
    state_exo_maps(n, &o);
    str_addc(&o, '}');
    snapshot_set(n->state, str_view(&o));
    str_deinit(&o);
    publish_health(n, now);
}
