#include "node/node.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/random.h"
#include "base/sock.h"
#include "base/sysinfo.h"
#include "node/node_parts.h"
#include "node/routes.h"
#include "node/self.h"

enum {
    COMMANDS_CAP = 1024,
    MACHINE_EVERY_MS = 1000,
    WATCH_EVERY_MS = 250,
    PUBLISH_LEAST_MS = 50, /* changes are gathered for so long before they are shown */
    PUBLISH_MOST_MS = 1000,
    STOP_GRACE_MS = 700,
    FIXED_FDS = 6,
};

/* What other threads ask for. */
struct command {
    enum {
        CMD_SUBMIT = 1,
        CMD_CANCEL,
        CMD_PLACE,
        CMD_DELETE,
        CMD_RELOAD,
        CMD_API,
        CMD_PEER,
        CMD_PLAN,
        CMD_AWAIT,
        CMD_DRAIN,
        CMD_UNDRAIN,
        CMD_FORGET
    } kind;
    u64 id;
    char *model; /* or instance; owned */
    struct str body;
    struct node_sink sink;
    void *ctx;
    struct arena mem; /* of place */
    struct node_place place;
    enum node_plan plan;
    struct waiting wait;
    node_placed_fn placed;
};

static void command_free(struct command *c) {
    free(c->model);
    str_deinit(&c->body);
    arena_deinit(&c->mem);
    free(c);
}

static struct command *command_new(int kind, const char *text, void *ctx) {
    struct command *c = xcalloc(1, sizeof *c);
    c->kind = kind;
    c->model = xstrdup(text ? text : "");
    c->ctx = ctx;
    return c;
}

/* Puts it into the queue, which the node's thread empties all the time. False: the node has
 * stopped. */
static bool push(struct node *n, struct command *c) {
    for (;;) {
        lock_take(&n->lock);
        bool stopped = n->stopped, ok = !stopped && queue_push(n->commands, c);
        lock_give(&n->lock);
        if (ok || stopped) return ok;
        clock_sleep_ms(1);
    }
}

static void push_or_drop(struct node *n, struct command *c) {
    if (!push(n, c)) command_free(c);
}

u64 node_submit(struct node *n, const char *model, const struct msg_generate *m,
                const struct node_sink *sink, void *ctx) {
    struct command *c = command_new(CMD_SUBMIT, model, ctx);
    struct err e = {0};
    wire_encode(msg_table(MSG_GENERATE), m, &c->body);
    c->sink = *sink;
    lock_take(&n->lock);
    u64 id = c->id = ++n->next_id;
    bool room = n->n_open < NODE_REQUESTS_MAX;
    if (room) n->n_open++;
    lock_give(&n->lock);
    if (room && push(n, c)) return id;
    if (room)
        err_set(&e, ERR_BUSY, "the node is stopping");
    else
        err_set(&e, ERR_BUSY, "%u requests are open on this node, the limit: try again later",
                NODE_REQUESTS_MAX);
    sink->error(ctx, &e);
    command_free(c);
    return id;
}

void node_cancel(struct node *n, u64 id) {
    struct command *c = command_new(CMD_CANCEL, NULL, NULL);
    c->id = id;
    push_or_drop(n, c);
}

static void push_place(struct node *n, struct command *c, const struct node_place *p,
                       node_placed_fn placed) {
    if (p) wish_copy(&c->mem, &c->place, p);
    c->placed = placed;
    if (push(n, c)) return;
    struct err e = {0};
    err_set(&e, ERR_BUSY, "the node is stopping");
    placed(c->ctx, NULL, &e);
    command_free(c);
}

void node_place(struct node *n, const struct node_place *p, node_placed_fn placed, void *ctx) {
    push_place(n, command_new(CMD_PLACE, p->model, ctx), p, placed);
}

void node_plan(struct node *n, enum node_plan what, const struct node_place *p, node_placed_fn done,
               void *ctx) {
    struct command *c = command_new(CMD_PLAN, p->model, ctx);
    c->plan = what;
    push_place(n, c, p, done);
}

void node_drain(struct node *n, const char *node, bool on, node_placed_fn done, void *ctx) {
    push_place(n, command_new(on ? CMD_DRAIN : CMD_UNDRAIN, node, ctx), NULL, done);
}

void node_forget(struct node *n, const char *node, node_placed_fn done, void *ctx) {
    push_place(n, command_new(CMD_FORGET, node, ctx), NULL, done);
}

void node_await(struct node *n, const char *model, u64 timeout_ms, bool (*is_gone)(void *ctx),
                node_awaited_fn done, void *ctx) {
    struct command *c = command_new(CMD_AWAIT, model, ctx);
    c->wait = (struct waiting){.is_gone = is_gone, .done = done, .ctx = ctx};
    c->wait.deadline_ms = timeout_ms ? clock_ms() + timeout_ms : UINT64_MAX;
    str_copy(c->wait.model, sizeof c->wait.model, model);
    if (push(n, c)) return;
    done(ctx, NODE_AWAIT_STOPPED, "the node is stopping", "");
    command_free(c);
}

void node_delete_instance(struct node *n, const char *id) {
    push_or_drop(n, command_new(CMD_DELETE, id, NULL));
}
void node_reload_instance(struct node *n, const char *id) {
    push_or_drop(n, command_new(CMD_RELOAD, id, NULL));
}

void node_add_peer(struct node *n, const char *address) {
    push_or_drop(n, command_new(CMD_PEER, address, NULL));
}

void node_set_api(struct node *n, u16 port) {
    struct command *c = command_new(CMD_API, NULL, NULL);
    c->id = port;
    push_or_drop(n, c);
}

static void propose(struct node *n, u32 kind, const char *instance) {
    struct msg_propose p = {
        .id = ++n->next_leg | (u64)1 << 63, .kind = kind, .wanted.id = instance};
    member_feed(n, &(struct cluster_input){.kind = CLUSTER_PROPOSE, .propose = &p});
}

/* A host alone gets the usual port. */
static bool dial_peer(struct node *n, const char *peer, struct err *e) {
    char host[SOCK_HOST_CAP], address[SOCK_ADDRESS_CAP];
    u16 port;
    return (sock_split(peer, NODE_BUS_PORT, host, &port, e) &&
            bus_connect(n->bus, sock_join(host, port, address), e)) ||
           err_wrap(e, "peer %s", peer);
}

static void carry_out(struct node *n, struct command *c) {
    struct err e = {0};
    switch (c->kind) {
    case CMD_SUBMIT:
        ask_new(n, c->id, c->model, str_z(&c->body), c->body.n, &c->sink, c->ctx);
        break;
    case CMD_CANCEL: ask_cancel(n, c->id); break;
    case CMD_PLACE: want_start(n, &c->place, false, c->placed, c->ctx); break;
    case CMD_PLAN: want_plan(n, c->plan, &c->place, c->placed, c->ctx); break;
    case CMD_DRAIN:
    case CMD_UNDRAIN: want_drain(n, c->model, c->kind == CMD_DRAIN, c->placed, c->ctx); break;
    case CMD_FORGET: member_forget(n, c->model, c->placed, c->ctx); break;
    case CMD_AWAIT: await_add(n, &c->wait); break;
    case CMD_DELETE: propose(n, PROPOSE_UNWANT, c->model); break;
    case CMD_RELOAD: propose(n, PROPOSE_RELOAD, c->model); break;
    case CMD_PEER:
        if (!dial_peer(n, c->model, &e)) log_warn("node", "%s", e.msg);
        break;
    case CMD_API:
        n->cfg.api_port = (u16)c->id;
        routes_set_api(n, n->cfg.api_port);
        member_feed(n, &(struct cluster_input){.kind = CLUSTER_HELLO, .number = (u32)c->id});
        break;
    }
    command_free(c);
    n->changed = true;
}

static void copy_cfg(struct node *n, const struct node_cfg *cfg) {
    struct arena *a = &n->mem;
    n->cfg = *cfg;
    n->cfg.data_dir = arena_strdup(a, cfg->data_dir);
    n->cfg.cluster = arena_strdup(a, cfg->cluster && *cfg->cluster ? cfg->cluster : "default");
    n->cfg.machine = cfg->machine ? arena_strdup(a, cfg->machine) : NULL;
    n->cfg.join_key = cfg->join_key ? arena_strdup(a, cfg->join_key) : NULL;
    n->cfg.listen_host = cfg->listen_host ? arena_strdup(a, cfg->listen_host) : NULL;
    n->cfg.cpu_mask = arena_strdup(a, cfg->cpu_mask ? cfg->cpu_mask : "");
    n->cfg.program = cfg->program ? arena_strdup(a, cfg->program) : NULL;
    const char **peers = arena_array(a, cfg->n_peers + 1, sizeof *peers);
    for (u32 i = 0; i < cfg->n_peers; i++) peers[i] = arena_strdup(a, cfg->peers[i]);
    n->cfg.peers = peers;
    const char **interfaces = arena_array(a, cfg->n_interfaces + 1, sizeof *interfaces);
    for (u32 i = 0; i < cfg->n_interfaces; i++) interfaces[i] = arena_strdup(a, cfg->interfaces[i]);
    n->cfg.interfaces = interfaces;
    struct str name = {0};
    char host[64];
    sysinfo_hostname(host, sizeof host);
    const char *shown = cfg->name && *cfg->name ? cfg->name : host;
    utf8_add_lossy(&name, shown, strlen(shown));
    for (u64 i = 0; i < name.n; i++) /* it is shown on terminals, in tables and logs */
        if ((u8)name.p[i] < ' ' || name.p[i] == 0x7f) name.p[i] = '?';
    str_copy(n->name, sizeof n->name, str_z(&name));
    n->name[strlen(n->name) - utf8_incomplete_tail(n->name, strlen(n->name))] = 0;
    str_deinit(&name);
}

static bool dial_peers(struct node *n, struct err *e) {
    for (u32 i = 0; i < n->cfg.n_peers; i++)
        if (!dial_peer(n, n->cfg.peers[i], e)) return false;
    return true;
}

/* A node that can't share its files fetches them from their origin, as do the others. */
static void share_files(struct node *n) {
    struct err e = {0};
    char token[SHARE_TOKEN_HEX];
    random_bytes(n->share_token, sizeof n->share_token);
    hex_encode(n->share_token, sizeof n->share_token, token);
    struct share_cfg cfg = {.host = n->cfg.listen_host, .token = token, .store = n->cfg.store};
    n->share = share_start(&cfg, &e);
    if (!n->share) log_warn("node", "model files are not shared: %s", e.msg);
}

static bool open_all(struct node *n, struct err *e) {
    if (!setup_open(n, e)) return false;
    if (pipe(n->stop_fd) != 0) return err_errno(e, ERR_IO, "pipe");
    for (int i = 0; i < 2; i++) {
        fcntl(n->stop_fd[i], F_SETFD, FD_CLOEXEC);
        fcntl(n->stop_fd[i], F_SETFL, O_NONBLOCK);
    }
    n->commands = queue_new(COMMANDS_CAP, e);
    struct bus_cfg bus = {.listen_host = n->cfg.listen_host,
                          .port = n->cfg.bus_port,
                          .n_more_ports = n->cfg.n_more_bus_ports,
                          .secret = n->cfg.join_key,
                          .name_space = n->cfg.cluster,
                          .identity = &n->identity,
                          .rank = routes_rank,
                          .rank_ctx = n,
                          .boot = n->boot,
                          .started = (u64)clock_wall_ms(),
                          .moved = n->moved,
                          .peer_timeout_ms = n->cfg.timeout_ms};
    n->bus = n->commands ? bus_open(&bus, e) : NULL;
    if (n->bus) share_files(n);
    n->routes = n->bus ? routes_new(n) : NULL;
    n->cluster = n->routes ? member_new(n, e) : NULL;
    n->fetcher = n->cluster ? fetch_start(n->cfg.store, n->share, n->id, e) : NULL;
    n->planner = n->fetcher ? plans_start(e) : NULL;
    n->self = n->planner ? self_start(n, e) : NULL;
    return n->self && dial_peers(n, e);
}

struct node *node_new(const struct node_cfg *cfg, struct err *e) {
    struct node *n = xcalloc(1, sizeof *n);
    lock_init(&n->lock);
    n->boot = random_u64() | 1;
    n->lock_fd = n->stop_fd[0] = n->stop_fd[1] = -1;
    n->events = events_new(n->boot);
    n->state = snapshot_new();
    n->health = snapshot_new();
    copy_cfg(n, cfg);
    if (!open_all(n, e)) {
        node_free(n);
        return NULL;
    }
    member_machine(n);
    state_json_publish(n);
    return n;
}

void node_free(struct node *n) {
    if (!n) return;
    self_stop(n->self);
    plans_stop(n->planner);
    if (fetch_stop(n->fetcher)) share_stop(n->share);
    struct command *c;
    while (n->commands && (c = queue_pop(n->commands))) command_free(c);
    routes_free(n->routes);
    bus_close(n->bus);
    cluster_free(n->cluster);
    cluster_output_deinit(&n->out);
    queue_free(n->commands);
    for (int i = 0; i < 2; i++)
        if (n->stop_fd[i] >= 0) close(n->stop_fd[i]);
    setup_close(n);
    if (n->events) events_close(n->events); /* of a node that never ran */
    events_free(n->events);
    snapshot_free(n->state);
    snapshot_free(n->health);
    free(n->shards);
    free(n->dying);
    free(n->wants);
    free(n->waits);
    free(n->asks);
    free(n->legs);
    free(n->downloads);
    free(n->peers_tried);
    lock_deinit(&n->lock);
    arena_deinit(&n->mem);
    free(n);
}

void node_stop(struct node *n) {
    int no = errno;
    while (write(n->stop_fd[1], "x", 1) < 0 && errno == EINTR) {
    }
    errno = no;
}

/* The descriptors of one turn: the fixed ones, then those of shards and descriptions. */
struct watched {
    struct pollfd *p;
    u32 n;
};

static void watch(struct watched *w, int fd, short events) {
    w->p[w->n++] = (struct pollfd){.fd = fd, .events = events};
}

static int wait_ms(const struct node *n, u64 now) {
    u64 next = MIN(n->tick_ms, n->machine_ms);
    if (n->changed) next = MIN(next, n->publish_ms + PUBLISH_LEAST_MS);
    int ms = next > now ? (int)(next - now) : 0, bus_ms = bus_timeout_ms(n->bus);
    if (bus_ms >= 0) ms = MIN(ms, bus_ms);
    return n->n_dying ? MIN(ms, 20) : ms;
}

/* Waits, then reads from whoever has something. Lists may change while it reads, so children are
 * looked up by their descriptors again. */
static void read_all(struct node *n, struct watched *w) {
    w->n = 0;
    w->p = xrealloc(w->p, (FIXED_FDS + n->n_shards + n->n_wants) * sizeof *w->p);
    watch(w, n->stop_fd[0], POLLIN);
    watch(w, queue_fd(n->commands), POLLIN);
    watch(w, bus_fd(n->bus), POLLIN);
    watch(w, fetch_fd(n->fetcher), POLLIN);
    watch(w, routes_fd(n->routes), POLLIN);
    watch(w, plans_fd(n->planner), POLLIN);
    for (u32 i = 0; i < n->n_shards; i++)
        if (n->shards[i]->child)
            watch(w, child_fd(n->shards[i]->child), child_events(n->shards[i]->child));
    for (u32 i = 0; i < n->n_wants; i++)
        if (n->wants[i]->child) watch(w, child_fd(n->wants[i]->child), POLLIN);
    poll(w->p, w->n, wait_ms(n, clock_ms()));
    for (u32 k = FIXED_FDS; k < w->n; k++) {
        if (!w->p[k].revents) continue;
        for (u32 i = 0; i < n->n_shards; i++) {
            struct shard *s = n->shards[i];
            if (!s->child || child_fd(s->child) != w->p[k].fd) continue;
            if (w->p[k].revents & POLLOUT) child_flush(s->child);
            node_shard_read(n, s);
            break;
        }
        for (u32 i = 0; i < n->n_wants; i++) {
            struct want *x = n->wants[i];
            if (!x->child || child_fd(x->child) != w->p[k].fd) continue;
            want_read(n, x);
            break;
        }
    }
}

static void turn(struct node *n, struct watched *w) {
    struct command *c;
    read_all(n, w);
    while ((c = queue_pop(n->commands))) carry_out(n, c);
    fetch_read(n);
    plans_read(n);
    routes_read(n);
    member_read_bus(n);
    node_shard_report(n);
    u64 now = clock_ms();
    if (now >= n->machine_ms) {
        n->machine_ms = now + MACHINE_EVERY_MS;
        member_machine(n);
        fetch_set_peers(n, now);
        events_look(n->events);
    }
    if (now >= n->watch_ms) {
        n->watch_ms = now + WATCH_EVERY_MS;
        node_shard_watch(n);
    }
    if (now >= n->tick_ms) member_feed(n, &(struct cluster_input){.kind = CLUSTER_TICK});
    routes_step(n, now);
    self_step(n, now);
    want_step(n, now);
    fetch_step(n);
    await_step(n, now);
    ask_step(n, now);
    leg_step(n);
    node_reap(n);
    bool late = now >= n->publish_ms + PUBLISH_MOST_MS;
    if (late || (n->changed && now >= n->publish_ms + PUBLISH_LEAST_MS)) {
        n->publish_ms = now;
        n->changed = false;
        state_json_publish(n);
    }
}

/* Everybody who waits gets a word, the other nodes too, and the children end. */
static void wind_up(struct node *n) {
    struct err e = {0};
    err_set(&e, ERR_BUSY, "the node is stopping");
    struct command *c;
    lock_take(&n->lock);
    n->stopped = true;
    lock_give(&n->lock);
    while ((c = queue_pop(n->commands))) carry_out(n, c);
    events_close(n->events);
    ask_end_all(n, &e);
    want_end_all(n, &e);
    await_end_all(n);
    while (n->n_shards) node_shard_stop(n, n->shards[0]->instance, n->shards[0]->place);
    member_say_bye(n);
    u64 deadline = clock_ms() + STOP_GRACE_MS;
    while (n->n_dying && clock_ms() < deadline) {
        node_reap(n);
        clock_sleep_ms(5);
    }
    while (n->n_dying) child_close(n->dying[--n->n_dying], 0);
}

void node_run(struct node *n) {
    struct watched w = {0};
    char byte;
    while (read(n->stop_fd[0], &byte, 1) != 1) turn(n, &w);
    free(w.p);
    log_info("node", "stopping node=%s", n->id);
    wind_up(n);
}

struct events *node_events(struct node *n) {
    return n->events;
}

const char *node_id(const struct node *n) {
    return n->id;
}
bool node_is_reborn(const struct node *n) {
    return n->reborn;
}
const char *node_name(const struct node *n) {
    return n->name;
}
u16 node_bus_port(const struct node *n) {
    return bus_port(n->bus);
}
bool node_is_open(const struct node *n) {
    return bus_is_open(n->bus);
}
const struct store *node_store(const struct node *n) {
    return n->cfg.store;
}

const struct snapshot_text *node_state(struct node *n) {
    return snapshot_get(n->state);
}
void node_state_done(struct node *n, const struct snapshot_text *t) {
    snapshot_let_go(n->state, t);
}

bool node_health(struct node *n, struct err *e) {
    const struct snapshot_text *t = snapshot_get(n->health);
    bool ok = t->n == 0 || err_set(e, ERR_BUSY, "%s", t->p);
    snapshot_let_go(n->health, t);
    return ok;
}
