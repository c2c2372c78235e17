/* doctor_state.c - what the running node's /state tells. Pure. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "cli/daemon.h"
#include "cli/doctor.h"

static bool truth(const json_t *o, const char *key) {
    return json_is_true(json_object_get(o, key));
}

#define COPY(dst, o, key) str_copy((dst), sizeof(dst), daemon_text((o), (key)))

static void read_node(struct doctor_facts *f, const json_t *n) {
    const char *id = daemon_text(n, "id");
    if (strcmp(id, f->id) == 0) {
        f->protocol = (u32)daemon_u64(n, "protocol");
        f->api_port = (u32)daemon_u64(n, "api_port");
        f->bus_port = (u32)daemon_u64(n, "bus_port");
        return;
    }
    struct doctor_peer *p = doctor_peer(f, id, daemon_text(n, "address"));
    if (!p) return;
    COPY(p->address, n, "address");
    COPY(p->name, n, "name");
    COPY(p->state, n, "state");
    p->is_stopped = truth(n, "is_stopped");
    COPY(p->build, n, "build");
    COPY(p->os, n, "os");
    COPY(p->follows, n, "follows");
    p->is_throttled = truth(n, "is_throttled");
    p->on_battery = truth(n, "is_on_battery");
    const json_t *skew = json_object_get(n, "clock_skew_ms");
    p->has_skew = json_is_integer(skew);
    p->skew_ms = p->has_skew ? json_integer_value(skew) : 0;
}

static void read_link(struct doctor_facts *f, const json_t *l) {
    const char *from = daemon_text(l, "from"), *to = daemon_text(l, "to");
    bool out = strcmp(from, f->id) == 0, back = strcmp(to, f->id) == 0;
    struct doctor_peer *p = NULL;
    for (u32 i = 0; i < f->n_peers && out != back; i++)
        if (strcmp(f->peers[i].id, out ? to : from) == 0) p = &f->peers[i];
    if (!p) return;
    bool measured = daemon_u64(l, "rtt_us") > 0;
    if (back) {
        p->is_measured_back = measured;
        COPY(p->problem_back, l, "problem");
        return;
    }
    p->is_measured = measured;
    COPY(p->problem, l, "problem");
    COPY(p->interface, l, "interface");
    for (u32 k = NETIF_UNKNOWN; k <= NETIF_LOOPBACK; k++)
        if (strcmp(daemon_text(l, "kind"), netif_kind_text((enum netif_kind)k)) == 0) p->kind = k;
    p->speed_mbit = (u32)daemon_u64(l, "speed_mbit");
    p->jumbo_passes = truth(l, "jumbo");
    p->bandwidth_bytes_s = daemon_u64(l, "bandwidth_bytes_per_s");
}

static void read_instance(struct doctor_facts *f, const char *id, const json_t *v) {
    if (f->n_instances == DOCTOR_INSTANCES_MAX) return;
    struct doctor_instance *x = &f->instances[f->n_instances++];
    *x = (struct doctor_instance){0};
    str_copy(x->id, sizeof x->id, id);
    COPY(x->model, v, "model");
    COPY(x->status, v, "status");
    COPY(x->text, v, "reason");
    COPY(x->sharding, v, "sharding");
    size_t i;
    json_t *s;
    json_array_foreach(json_object_get(v, "shards"), i, s) {
        if (i < ARRAY_LEN(x->nodes)) COPY(x->nodes[i], s, "node");
        x->n_ranks++;
    }
}

void doctor_read_state(struct doctor_facts *f, const char *json, size_t n) {
    json_t *s = json_parse((struct view){json, n}, NULL), *v;
    const char *key;
    size_t i;
    if (!json_is_object(s)) {
        json_decref(s);
        return;
    }
    f->has_node = true;
    COPY(f->id, s, "node_id");
    COPY(f->name, s, "name");
    COPY(f->cluster, s, "cluster");
    COPY(f->version, s, "version");
    COPY(f->master, s, "master");
    COPY(f->discovery_error, s, "discovery");
    f->is_open = truth(s, "cluster_is_open");
    json_array_foreach(json_object_get(s, "nodes"), i, v) read_node(f, v);
    json_array_foreach(json_object_get(s, "refused"), i, v) {
        struct doctor_peer *p = doctor_peer(f, daemon_text(v, "id"), daemon_text(v, "address"));
        if (p) COPY(p->refused, v, "reason");
    }
    json_array_foreach(json_object_get(s, "links"), i, v) read_link(f, v);
    json_object_foreach(json_object_get(s, "instances"), key, v) read_instance(f, key, v);
    json_decref(s);
}
