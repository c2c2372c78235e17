/* member.c - binds the pure cluster to this machine: bus events and facts go in, actions are
 * carried out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/json.h"
#include "base/sysinfo.h"
#include "base/version.h"
#include "node/node_parts.h"
#include "node/routes.h"
#include "node/self.h"

struct cluster *member_new(struct node *n, struct err *e) {
    char cpu[128];
    struct sysinfo_mem mem;
    sysinfo_cpu_name(cpu, sizeof cpu);
    sysinfo_os(n->os, sizeof n->os);
    sysinfo_mem(&mem);
    struct cluster_cfg cfg = {
        .id = n->id,
        .timeout_ms = n->cfg.timeout_ms ? n->cfg.timeout_ms : NODE_TIMEOUT_MS,
        .has_peers = n->cfg.n_peers > 0,
        .force_master = n->cfg.force_master,
        .hello = {.protocol = SKEIN_PROTOCOL,
                  .build = version_text(),
                  .os = n->os,
                  .cluster = n->cfg.cluster,
                  .name = n->name,
                  .boot = n->boot,
                  .addresses = *routes_addresses(n->routes),
                  .seniority = (u64)(clock_wall_ms() / 1000),
                  .is_worker = !n->cfg.no_worker,
                  .api_port = n->cfg.api_port,
                  .bus_port = bus_port(n->bus),
                  .n_cores = n->cfg.n_threads ? n->cfg.n_threads : sysinfo_n_cpus(),
                  .cpu = cpu,
                  .device = "cpu",
                  .mem_total_bytes = mem.total_bytes,
                  .share_port = n->share ? share_port(n->share) : 0,
                  .share_token = {n->share_token, sizeof n->share_token}},
    };
    struct str saved = {0};
    setup_read_state(n, &saved);
    struct err why = {0};
    struct cluster *c = cluster_new(&cfg, saved.p, saved.n, clock_ms(), &why);
    if (!c) {
        setup_put_aside(n, &why);
        c = cluster_new(&cfg, NULL, 0, clock_ms(), e);
    }
    str_deinit(&saved);
    return c;
}

static void dial(struct node *n, const char *address) {
    struct err e = {0};
    if (!bus_connect(n->bus, address, &e))
        log_warn("bus", "dial failed address=%s: %s", address, e.msg);
}

/* A lost message is the cluster's business: it repeats what matters. */
static void send_message(struct node *n, const struct cluster_action *a) {
    struct err e = {0};
    if (!bus_send(n->bus, a->to, a->type, a->body, a->n, &e))
        log_debug("bus", "send failed to=%s type=%s: %s", a->to, msg_name(a->type), e.msg);
}

static void carry_out(struct node *n, const struct cluster_action *a) {
    switch (a->what) {
    case DO_SEND: send_message(n, a); break;
    case DO_DIAL: dial(n, a->address); break;
    case DO_HANGUP:
        if (!routes_given(n, a->address)) bus_hangup(n->bus, a->address);
        break;
    case DO_START: node_shard_start(n, a); break;
    case DO_CONNECT: node_shard_connect(n, a); break;
    case DO_STOP: node_shard_stop(n, a->instance, a->place); break;
    case DO_ANSWER:
        want_answer(n, a->propose_id, a->instance, a->answer->code ? a->answer : NULL);
        break;
    case DO_LOG: log_line((enum log_level)a->level, "cluster", "%s", a->text); break;
    }
}

static void put_known(struct str *o, const char *key, const char *value) {
    if (*value) json_put_str(o, key, value);
}

static void tell_events(struct node *n) {
    const struct cluster_output *out = &n->out;
    for (u32 i = 0; i < out->n_events; i++) {
        const struct cluster_event *ev = &out->events[i];
        struct str *o = events_begin(n->events, cluster_event_name(ev->kind));
        json_put_u64(o, "term", ev->term);
        json_put_u64(o, "index", ev->index);
        if (ev->kind == EVENT_MASTER)
            json_put_str(o, "node", ev->node); /* "": nobody is */
        else
            put_known(o, "node", ev->node);
        put_known(o, "name", ev->name);
        put_known(o, "instance_id", ev->instance);
        put_known(o, "model", ev->model);
        put_known(o, "text", ev->text);
        events_end(n->events);
    }
    if (!out->events_lost) return;
    struct str *o = events_begin(n->events, "reset");
    json_put_str(o, "text", "too much changed at once: GET /state has all there is");
    events_end(n->events);
}

/* What the actions themselves bring about (a shard that can't start) waits in the tables for the
 * next turn of the loop, so that a step is never entered twice. */
void member_feed(struct node *n, const struct cluster_input *in) {
    cluster_step(n->cluster, in, clock_ms(), &n->out);
    if (n->out.save) setup_write_state(n);
    tell_events(n);
    for (u32 i = 0; i < n->out.n; i++) carry_out(n, &n->out.v[i]);
    n->changed = n->changed || n->out.changed;
    n->tick_ms = n->out.next_ms;
}

void member_machine(struct node *n) {
    struct sysinfo_mem mem;
    struct statvfs fs;
    sysinfo_mem(&mem);
    u64 limit = mem.total_bytes - mem.total_bytes / 10; /* a tenth stays with the system */
    u64 available = self_available(n->self, mem.available_bytes);
    available -= available / 16;
    if (n->cfg.memory_max_bytes) limit = MIN(limit, n->cfg.memory_max_bytes);
    struct cluster_input in = {.kind = CLUSTER_MACHINE,
                               .machine = {.mem_available_bytes = available,
                                           .mem_limit_bytes = limit,
                                           .wall_ahead_ms = (u64)clock_wall_ms() - clock_ms()}};
    if (statvfs(store_dir(n->cfg.store), &fs) == 0)
        in.machine.disk_available_bytes = (u64)fs.f_bavail * fs.f_frsize;
    member_feed(n, &in);
}

/* An address that turned out to be an API port: the bus usually listens one above. Tried once. */
static void try_next_port(struct node *n, const char *address) {
    const char *colon = strrchr(address, ':');
    unsigned long port = colon ? strtoul(colon + 1, NULL, 10) : 0;
    if (port == 0 || port >= 65535) return;
    for (u32 i = 0; i < n->n_peers_tried; i++)
        if (strcmp(n->peers_tried[i], address) == 0) return;
    n->peers_tried = xrealloc(n->peers_tried, (n->n_peers_tried + 1) * sizeof *n->peers_tried);
    str_copy(n->peers_tried[n->n_peers_tried++], sizeof *n->peers_tried, address);
    char next[256];
    snprintf(next, sizeof next, "%.*s:%lu", (int)(colon - address), address, port + 1);
    log_warn("bus", "peer is an API port address=%s: the bus is probably port %lu, trying it",
             address, port + 1);
    bus_hangup(n->bus, address);
    dial(n, next);
}

bool node_send_relay(struct node *n, const char *to, const struct msg_relay *r, struct err *e) {
    struct str bytes = {0};
    wire_encode(msg_table(MSG_RELAY), r, &bytes);
    bool ok = bus_send(n->bus, to, MSG_RELAY, bytes.p, bytes.n, e);
    str_deinit(&bytes);
    return ok;
}

static void take_relay(struct node *n, const struct bus_event *ev) {
    struct arena mem = {0};
    struct msg_relay r;
    struct err e = {0};
    if (!wire_decode(msg_table(MSG_RELAY), ev->bytes, ev->n, &mem, &r, &e))
        log_warn("bus", "bad relay from=%s: %s", ev->peer, e.msg);
    else if (r.type == MSG_GENERATE || r.type == MSG_CANCEL)
        leg_take(n, ev->peer, &r);
    else if (r.type == MSG_DESCRIBE || r.type == MSG_DESCRIBED || r.type == MSG_FAILED)
        want_relay(n, ev->peer, &r);
    else
        ask_answer(n, &r);
    arena_deinit(&mem);
}

/* The key is on two machines, and this is the junior: its node id is the other's. */
static void take_twin(struct node *n, const struct bus_event *ev) {
    struct err e = {0};
    log_warn(
        "node",
        "copied key node=%s: another machine has it too (learned at %s) and was first, so this "
        "one becomes another node",
        n->id, ev->address);
    if (!setup_new_key(n, &e)) {
        log_error("node", "no new key, this node stays out of the cluster: %s", e.msg);
        return;
    }
    log_warn("node", "new key node=%s: starting again under this id", n->identity.id);
    n->reborn = true;
    node_stop(n);
}

static void take_event(struct node *n, const struct bus_event *ev) {
    struct cluster_input in = {.peer = ev->peer, .address = ev->address};
    switch (ev->kind) {
    case BUS_MESSAGE:
        if (ev->type == MSG_RELAY) {
            take_relay(n, ev);
            return;
        }
        in.kind = CLUSTER_MESSAGE;
        in.type = ev->type;
        in.body = ev->bytes;
        in.n = ev->n;
        break;
    case BUS_PEER_UP:
        log_info("bus", "peer up node=%s address=%s", ev->peer, ev->address);
        in.kind = CLUSTER_PEER_UP;
        break;
    case BUS_PEER_DOWN:
        log_info("bus", "peer down node=%s: %s", ev->peer, ev->text);
        in.kind = CLUSTER_PEER_DOWN;
        leg_peer_down(n, ev->peer);
        ask_peer_down(n, ev->peer);
        want_peer_down(n, ev->peer);
        break;
    case BUS_PEER_GONE:
        log_info("bus", "peer gone node=%s: %s", ev->peer, ev->text);
        in.kind = CLUSTER_PEER_DOWN;
        in.number = 1;
        break;
    case BUS_TWIN: take_twin(n, ev); return;
    case BUS_DIAL_FAILED:
        log_line(routes_failed(n, ev) ? LOG_DEBUG : LOG_WARN, "bus", "dial failed address=%s: %s",
                 ev->address, ev->text);
        if (ev->reason == BUS_HTTP_PORT) try_next_port(n, ev->address);
        return;
    }
    member_feed(n, &in);
}

void member_read_bus(struct node *n) {
    struct bus_event ev;
    while (bus_recv(n->bus, &ev)) take_event(n, &ev);
}

void member_forget(struct node *n, const char *node, node_placed_fn done, void *ctx) {
    struct arena mem = {0};
    struct err e = {0};
    bool ok = wish_node(n, &mem, &node, &e);
    if (ok) member_feed(n, &(struct cluster_input){.kind = CLUSTER_FORGET, .peer = node});
    for (u32 i = 0; ok && i < cluster_n_members(n->cluster); i++) {
        struct cluster_member m;
        cluster_member(n->cluster, i, clock_ms(), &m);
        if (strcmp(m.id, node) == 0)
            ok = err_set(&e, ERR_ARG, "node %s is connected: only a lost one can be forgotten",
                         m.hello->name ? m.hello->name : m.id);
    }
    if (ok) state_json_publish(n);
    done(ctx, ok ? node : NULL, &e);
    arena_deinit(&mem);
}

void member_say_bye(struct node *n) {
    struct str body = {0};
    struct msg_reason r = {.protocol = SKEIN_PROTOCOL, .build = version_text(), .text = "stopped"};
    wire_encode(msg_table(MSG_BYE), &r, &body);
    for (u32 i = 1; i < cluster_n_members(n->cluster); i++) {
        struct cluster_member m;
        cluster_member(n->cluster, i, clock_ms(), &m);
        if (m.state == MEMBER_LIVE) bus_send(n->bus, m.id, MSG_BYE, str_z(&body), body.n, NULL);
    }
    str_deinit(&body);
}
