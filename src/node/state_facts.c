/* state_facts.c - hardware and links in the node's state, in skein's own names: what machines say
 * of themselves (wire/msg_facts.h). What one does not tell is left out. */
#include "base/json.h"
#include "base/netif.h"
#include "node/state_json.h"

static void put_known(struct str *o, const char *key, u64 v) {
    if (v) json_put_u64(o, key, v);
}
static void put_text(struct str *o, const char *key, const char *v) {
    if (*v) json_put_str(o, key, v);
}
static void put_watts(struct str *o, u32 mw) {
    if (mw) json_put_num(o, "power_w", (double)mw / 1000);
}

static void put_gpus(struct str *o, const struct wire_list *gpus) {
    const struct msg_gpu *g = gpus->v;
    state_json_open(o, "gpus", '[');
    for (u64 i = 0; i < gpus->n; i++) {
        state_json_open(o, NULL, '{');
        json_put_str(o, "name", g[i].name);
        json_put_str(o, "driver", g[i].driver);
        put_known(o, "memory", g[i].mem_total_bytes);
        put_known(o, "memory_available", g[i].mem_available_bytes);
        json_put_u64(o, "load_pct", g[i].load_pct);
        put_known(o, "temperature_c", g[i].temperature_c);
        put_watts(o, g[i].power_mw);
        str_addc(o, '}');
    }
    str_addc(o, ']');
}

static void put_interfaces(struct str *o, const struct wire_list *list) {
    const struct msg_iface *v = list->v;
    state_json_open(o, "interfaces", '[');
    for (u64 i = 0; i < list->n; i++) {
        state_json_open(o, NULL, '{');
        json_put_str(o, "name", v[i].name);
        json_put_str(o, "address", v[i].address);
        json_put_str(o, "kind", netif_kind_text(MIN(v[i].kind, (u32)NETIF_LOOPBACK)));
        put_known(o, "speed_mbit", v[i].speed_mbit);
        put_known(o, "mtu", v[i].mtu);
        str_addc(o, '}');
    }
    str_addc(o, ']');
}

void state_facts_put(struct str *o, const struct msg_facts *f) {
    put_text(o, "model", f->model);
    put_known(o, "cores_big", f->n_cores_big);
    put_known(o, "cache_l1_kib", f->cache_l1_kib);
    put_known(o, "cache_l2_kib", f->cache_l2_kib);
    put_known(o, "cache_l3_kib", f->cache_l3_kib);
    put_text(o, "isa", f->isa);
    put_text(o, "isas", f->isas);
    put_known(o, "read_bytes_per_s", f->read_bytes_s);
    put_known(o, "int8_ops_per_s", f->int8_ops_s);
    put_known(o, "f32_ops_per_s", f->float_ops_s);
    put_known(o, "disk", f->disk_total_bytes);
    put_known(o, "temperature_c", f->temperature_c);
    put_watts(o, f->power_mw);
    put_text(o, "power_source", f->power_source);
    if (f->boot) json_put_u64(o, "load_pct", f->load_pct);
    if (f->boot) json_put_bool(o, "is_throttled", f->is_throttled);
    put_text(o, "throttle", f->throttle);
    if (f->is_on_battery) json_put_bool(o, "is_on_battery", true);
    if (f->has_rdma) json_put_bool(o, "has_rdma", true);
    put_gpus(o, &f->gpus);
    put_interfaces(o, &f->interfaces);
}

static void put_link(struct str *o, const char *from, const struct msg_link *l) {
    state_json_open(o, NULL, '{');
    json_put_str(o, "from", from);
    json_put_str(o, "to", l->peer);
    json_put_str(o, "address", l->address);
    put_text(o, "interface", l->interface);
    json_put_str(o, "kind", netif_kind_text(MIN(l->kind, (u32)NETIF_LOOPBACK)));
    put_known(o, "speed_mbit", l->speed_mbit);
    put_known(o, "mtu", l->mtu);
    put_text(o, "problem", l->problem);
    if (l->rtt_p50_us) {
        json_put_bool(o, "jumbo", l->jumbo_passes);
        json_put_u64(o, "rtt_us", l->rtt_p50_us);
        json_put_u64(o, "rtt_p99_us", l->rtt_p99_us);
        put_known(o, "bandwidth_bytes_per_s", l->bandwidth_bytes_s);
        json_put_u64(o, "measured_at", l->measured_at);
    }
    str_addc(o, '}');
}

void state_facts_links(const struct node *n, struct str *o, u64 now_ms) {
    state_json_open(o, "links", '[');
    for (u32 i = 0; i < cluster_n_members(n->cluster); i++) {
        struct cluster_member m;
        cluster_member(n->cluster, i, now_ms, &m);
        const struct msg_link *l = m.facts->links.v;
        if (m.state > MEMBER_LIVE) continue;
        for (u64 k = 0; k < m.facts->links.n; k++) put_link(o, m.id, &l[k]);
    }
    str_addc(o, ']');
}
