#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"

enum { LINK_EVERY_MS = 250, CUT_NOTICED_MS = 3000, INSTANCES_MAX = 256, LAYERS = 24 };

enum event_kind { EV_TICK, EV_MESSAGE, EV_UP, EV_DOWN, EV_LINKS, EV_RUNNER };
struct event {
    u64 at_ms, order; /* order: of equal times the first pushed comes first */
    enum event_kind kind;
    u32 node, from;
    u64 life; /* of the node when it was pushed; an event for an earlier life is dropped */
    u32 type;
    void *body; /* owned */
    size_t n;
    struct msg_runner fact;
    char instance[40];
};

struct runner {
    char instance[40];
    u64 place;
    u32 rank, n_ranks;
};

struct node {
    struct cluster *cluster; /* NULL while it is down */
    struct cluster_output out;
    char id[40], address[40];
    u64 life, skew_ms; /* its clock's origin is its own */
    u64 next_tick_ms;
    bool paused;
    bool tears; /* the power fails in the middle of its next save */
    struct str disk;
    struct runner runners[INSTANCES_MAX];
    u32 n_runners;
    u64 last_term;
    bool *dials, *up; /* [nodes] */
    u64 *cut_ms;      /* [nodes] since when messages to it are lost; 0: they are not */
};

struct wish {
    char id[40];
    u64 propose_id;
    enum sim_answer answer;
    bool automatic, deleting, deleted; /* deleting: asked for, maybe never answered */
    u32 node;
};

struct sim {
    struct sim_cfg cfg;
    u64 seed, draws, now_ms, order;
    struct node *nodes;
    struct event *heap;
    u32 n_heap, heap_cap;
    struct wish wishes[INSTANCES_MAX];
    u32 n_wishes;
    u64 n_sent, n_lives;
    bool broken;
};

u64 sim_random(struct sim *s, u64 below) {
    return random_at(s->seed, ++s->draws) % below;
}
u64 sim_now_ms(const struct sim *s) {
    return s->now_ms;
}
u64 sim_seed(const struct sim *s) {
    return s->seed;
}
u64 sim_n_sent(const struct sim *s) {
    return s->n_sent;
}

static bool chance(struct sim *s, u32 pct) {
    return pct && sim_random(s, 100) < pct;
}

static void broke(struct sim *s, const char *what, const char *who) {
    printf("sim: seed %llu, t=%llu ms: %s (%s)\n", (unsigned long long)s->seed,
           (unsigned long long)s->now_ms, what, who);
    s->broken = true;
}

/* A binary heap by (time, order). */
static bool before(const struct event *a, const struct event *b) {
    return a->at_ms != b->at_ms ? a->at_ms < b->at_ms : a->order < b->order;
}

static struct event *push(struct sim *s, u64 in_ms, enum event_kind kind, u32 node) {
    if (s->n_heap == s->heap_cap) {
        s->heap_cap = s->heap_cap ? s->heap_cap * 2 : 1024;
        s->heap = xrealloc(s->heap, s->heap_cap * sizeof *s->heap);
    }
    struct event e = {.at_ms = s->now_ms + in_ms,
                      .order = ++s->order,
                      .kind = kind,
                      .node = node,
                      .life = s->nodes[node].life};
    u32 i = s->n_heap++;
    while (i > 0 && before(&e, &s->heap[(i - 1) / 2])) {
        s->heap[i] = s->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    s->heap[i] = e;
    return &s->heap[i];
}

static struct event pop(struct sim *s) {
    struct event top = s->heap[0], last = s->heap[--s->n_heap];
    u32 i = 0;
    for (;;) {
        u32 k = 2 * i + 1;
        if (k >= s->n_heap) break;
        if (k + 1 < s->n_heap && before(&s->heap[k + 1], &s->heap[k])) k++;
        if (!before(&s->heap[k], &last)) break;
        s->heap[i] = s->heap[k];
        i = k;
    }
    s->heap[i] = last;
    return top;
}

static u32 by_address(const struct sim *s, const char *address) {
    for (u32 i = 0; i < s->cfg.nodes; i++)
        if (strcmp(s->nodes[i].address, address) == 0) return i;
    return UINT32_MAX;
}
static u32 by_id(const struct sim *s, const char *id) {
    for (u32 i = 0; i < s->cfg.nodes; i++)
        if (strcmp(s->nodes[i].id, id) == 0) return i;
    return UINT32_MAX;
}

static void deliver(struct sim *s, u32 from, const struct cluster_action *a) {
    u32 to = by_id(s, a->to);
    s->n_sent++;
    if (to == UINT32_MAX || !s->nodes[from].up[to]) return;
    u32 copies = 1 + chance(s, s->cfg.dup_pct);
    for (u32 i = 0; i < copies; i++) {
        if (chance(s, s->cfg.loss_pct)) continue;
        struct event *e = push(s, 1 + sim_random(s, MAX(s->cfg.delay_ms_max, 1)), EV_MESSAGE, to);
        e->from = from;
        e->type = a->type;
        e->n = a->n;
        e->body = xcalloc(1, a->n + 1);
        memcpy(e->body, a->body, a->n);
    }
}

static void report(struct sim *s, u32 node, u64 in_ms, const struct runner *r, u32 status) {
    struct event *e = push(s, in_ms, EV_RUNNER, node);
    memcpy(e->instance, r->instance, sizeof e->instance);
    e->fact = (struct msg_runner){.place = r->place,
                                  .rank = r->rank,
                                  .status = status,
                                  .port = 7000 + r->rank,
                                  .text = "",
                                  .isa = ""};
    if (status == RUNNER_FAILED) {
        e->fact.code = chance(s, 50) ? ERR_NET : ERR_IO;
        e->fact.text = "simulated failure";
    }
}

static struct runner *find_runner(struct node *n, const char *instance, u64 place) {
    for (u32 i = 0; i < n->n_runners; i++)
        if (n->runners[i].place == place && strcmp(n->runners[i].instance, instance) == 0)
            return &n->runners[i];
    return NULL;
}

static void start_runner(struct sim *s, u32 node, const struct cluster_action *a) {
    struct node *n = &s->nodes[node];
    if (find_runner(n, a->instance, a->place)) broke(s, "a runner was started twice", a->instance);
    ASSERT(n->n_runners < INSTANCES_MAX);
    struct runner *r = &n->runners[n->n_runners++];
    *r = (struct runner){.place = a->place, .rank = a->rank, .n_ranks = (u32)a->placement->ranks.n};
    str_copy(r->instance, sizeof r->instance, a->instance);
    u64 load_ms = 50 + sim_random(s, 500);
    if (chance(s, s->cfg.runner_fail_pct))
        report(s, node, load_ms, r, RUNNER_FAILED);
    else
        report(s, node, load_ms, r, r->n_ranks > 1 ? RUNNER_LOADED : RUNNER_READY);
}

/* The other ranks must be there with the same placement, or connecting fails. */
static void connect_runner(struct sim *s, u32 node, const struct cluster_action *a) {
    struct runner *r = find_runner(&s->nodes[node], a->instance, a->place);
    if (!r)
        broke(s, "a runner that does not exist was to be connected", a->instance);
    else if (a->n_peers != r->n_ranks - 1)
        broke(s, "not all ranks were named", a->instance);
    else
        report(s, node, 20 + sim_random(s, 50), r,
               chance(s, s->cfg.runner_fail_pct) ? RUNNER_FAILED : RUNNER_READY);
}

static void stop_runner(struct sim *s, u32 node, const struct cluster_action *a) {
    struct node *n = &s->nodes[node];
    struct runner *r = find_runner(n, a->instance, a->place);
    if (!r)
        broke(s, "a runner that does not exist was to be stopped", a->instance);
    else
        *r = n->runners[--n->n_runners];
}

static void take_answer(struct sim *s, const struct cluster_action *a) {
    for (u32 i = 0; i < s->n_wishes; i++) {
        struct wish *w = &s->wishes[i];
        if (a->propose_id == ((u64)1 << 40 | i)) w->deleted = a->answer.code == ERR_NONE;
        if (w->propose_id != a->propose_id) continue;
        w->answer = a->answer.code ? SIM_NO : SIM_YES;
        if (w->answer == SIM_YES) str_copy(w->id, sizeof w->id, a->instance);
    }
}

static void act(struct sim *s, u32 node, const struct cluster_action *a) {
    switch (a->what) {
    case DO_SEND: deliver(s, node, a); break;
    case DO_DIAL: {
        u32 to = by_address(s, a->address);
        if (to != UINT32_MAX) s->nodes[node].dials[to] = true;
        break;
    }
    case DO_HANGUP: break;
    case DO_START: start_runner(s, node, a); break;
    case DO_CONNECT: connect_runner(s, node, a); break;
    case DO_STOP: stop_runner(s, node, a); break;
    case DO_ANSWER: take_answer(s, a); break;
    case DO_LOG:
        if (getenv("SIM_TRACE"))
            printf("%8llu %2u %s\n", (unsigned long long)s->now_ms, node, a->text);
        break;
    }
}

static void step(struct sim *s, u32 node, const struct cluster_input *in) {
    struct node *n = &s->nodes[node];
    cluster_step(n->cluster, in, s->now_ms + n->skew_ms, &n->out);
    if (n->out.save &&
        n->tears) { /* nothing of this step got out, neither to the disk nor to others */
        sim_crash(s, node);
        return;
    }
    if (n->out.save) {
        str_clear(&n->disk);
        cluster_save(n->cluster, &n->disk);
    }
    for (u32 i = 0; i < n->out.n; i++) act(s, node, &n->out.v[i]);
    if (!n->cluster) return;
    u64 term = cluster_claim(n->cluster)->term;
    if (term < n->last_term) broke(s, "the term of the followed claim went back", n->id);
    n->last_term = term;
    u64 tick_ms = n->out.next_ms - n->skew_ms;
    if (n->next_tick_ms > s->now_ms && n->next_tick_ms <= tick_ms) return; /* one is due sooner */
    n->next_tick_ms = MAX(tick_ms, s->now_ms + 1);
    push(s, n->next_tick_ms - s->now_ms, EV_TICK, node);
}

void sim_start(struct sim *s, u32 node) {
    struct node *n = &s->nodes[node];
    bool worker = s->cfg.workers == 0 || node < s->cfg.workers;
    struct err e = {0};
    ASSERT(!n->cluster);
    n->life = ++s->n_lives;
    n->last_term = n->next_tick_ms = 0;
    n->paused = false;
    n->n_runners = 0;
    n->skew_ms = 1000 + sim_random(s, 1000000);
    struct cluster_cfg cfg = {.id = n->id,
                              .has_peers = s->cfg.nodes > 1,
                              .hello = {.protocol = 1,
                                        .build = "sim",
                                        .os = "sim",
                                        .cluster = "sim",
                                        .name = n->id,
                                        .boot = random_at(s->seed, ~n->life) | 1,
                                        .seniority = 1000 + s->now_ms / 1000,
                                        .is_worker = worker,
                                        .n_cores = 4,
                                        .mem_total_bytes = (u64)64 << 30}};
    n->cluster = cluster_new(&cfg, n->disk.p, n->disk.n, s->now_ms + n->skew_ms, &e);
    if (!n->cluster) {
        broke(s, e.msg, n->id);
        n->cluster = cluster_new(&cfg, NULL, 0, s->now_ms + n->skew_ms, NULL);
    }
    u64 mem = s->cfg.memory_bytes ? s->cfg.memory_bytes : (u64)32 << 30;
    step(s, node,
         &(struct cluster_input){.kind = CLUSTER_MACHINE,
                                 .machine = {.mem_available_bytes = mem, .mem_limit_bytes = mem}});
}

static void link_down(struct sim *s, u32 a, u32 b) {
    if (!s->nodes[a].up[b]) return;
    s->nodes[a].up[b] = s->nodes[b].up[a] = false;
    push(s, 1, EV_DOWN, a)->from = b;
    push(s, 1, EV_DOWN, b)->from = a;
}

void sim_crash(struct sim *s, u32 node) {
    struct node *n = &s->nodes[node];
    if (!n->cluster) return;
    cluster_free(n->cluster);
    n->cluster = NULL;
    n->tears = false;
    n->life = ++s->n_lives;
    for (u32 i = 0; i < s->cfg.nodes; i++) {
        link_down(s, node, i);
        if (!s->cfg.chain || i + 1 != node) n->dials[i] = false;
    }
}

void sim_crash_in_save(struct sim *s, u32 node) {
    s->nodes[node].tears = true;
}

bool sim_is_up(const struct sim *s, u32 node) {
    return s->nodes[node].cluster != NULL;
}
void sim_pause(struct sim *s, u32 node) {
    s->nodes[node].paused = true;
}
void sim_resume(struct sim *s, u32 node) {
    s->nodes[node].paused = s->nodes[node].tears = false;
}

void sim_cut(struct sim *s, u64 a, u64 b) {
    for (u32 i = 0; i < s->cfg.nodes; i++)
        for (u32 k = 0; k < s->cfg.nodes; k++)
            if (a >> i & 1 && b >> k & 1)
                s->nodes[i].cut_ms[k] = s->nodes[k].cut_ms[i] = MAX(s->now_ms, 1);
}
void sim_heal(struct sim *s) {
    for (u32 i = 0; i < s->cfg.nodes; i++)
        memset(s->nodes[i].cut_ms, 0, s->cfg.nodes * sizeof(u64));
}

/* Dialled links come up, cut ones break after a while. */
static void tend_links(struct sim *s) {
    for (u32 a = 0; a < s->cfg.nodes; a++) {
        for (u32 b = 0; b < a; b++) {
            struct node *x = &s->nodes[a], *y = &s->nodes[b];
            bool can = x->cluster && y->cluster && !x->paused && !y->paused && !x->cut_ms[b];
            if (x->up[b] && x->cut_ms[b] && s->now_ms - x->cut_ms[b] > CUT_NOTICED_MS)
                link_down(s, a, b);
            if (x->up[b] || !can || !(x->dials[b] || y->dials[a])) continue;
            x->up[b] = y->up[a] = true;
            push(s, 1, EV_UP, a)->from = b;
            push(s, 1, EV_UP, b)->from = a;
        }
    }
    push(s, LINK_EVERY_MS, EV_LINKS, 0)->life = 0;
}

static void handle(struct sim *s, struct event *e) {
    struct node *n = &s->nodes[e->node];
    struct node *peer = &s->nodes[e->from];
    struct cluster_input in = {.peer = peer->id, .address = peer->address};
    switch (e->kind) {
    case EV_LINKS: tend_links(s); return;
    case EV_TICK:
        in.kind = CLUSTER_TICK;
        if (e->at_ms == n->next_tick_ms) n->next_tick_ms = 0;
        break;
    case EV_UP: in.kind = CLUSTER_PEER_UP; break;
    case EV_DOWN: in.kind = CLUSTER_PEER_DOWN; break;
    case EV_MESSAGE:
        if (n->cut_ms[e->from]) return;
        in.kind = CLUSTER_MESSAGE;
        in.type = e->type;
        in.body = e->body;
        in.n = e->n;
        break;
    case EV_RUNNER:
        if (!find_runner(n, e->instance, e->fact.place)) return;
        in.kind = CLUSTER_RUNNER;
        e->fact.instance = e->instance;
        in.runner = &e->fact;
        break;
    }
    step(s, e->node, &in);
}

void sim_run_ms(struct sim *s, u64 ms) {
    u64 end = s->now_ms + ms;
    while (s->n_heap && s->heap[0].at_ms <= end) {
        struct event e = pop(s);
        struct node *n = &s->nodes[e.node];
        s->now_ms = MAX(s->now_ms, e.at_ms);
        bool current = e.kind == EV_LINKS || (n->cluster && n->life == e.life);
        if (current && n->paused && e.kind != EV_LINKS) { /* waits for the process to go on */
            struct event *again = push(s, 50, e.kind, e.node);
            e.at_ms = again->at_ms;
            e.order = again->order;
            if (e.kind == EV_TICK) n->next_tick_ms = e.at_ms;
            *again = e;
            continue;
        }
        if (current) handle(s, &e);
        free(e.body);
    }
    s->now_ms = end;
}

struct sim *sim_new(const struct sim_cfg *cfg, u64 seed) {
    struct sim *s = xcalloc(1, sizeof *s);
    s->cfg = *cfg;
    s->seed = seed;
    s->nodes = xcalloc(cfg->nodes, sizeof *s->nodes);
    for (u32 i = 0; i < cfg->nodes; i++) {
        struct node *n = &s->nodes[i];
        snprintf(n->id, sizeof n->id, "%08x%04u", (u32)random_at(seed, i + ((u64)1 << 40)), i);
        snprintf(n->address, sizeof n->address, "10.0.%u.%u:52416", i / 250, i % 250 + 1);
        n->dials = xcalloc(cfg->nodes, sizeof *n->dials);
        n->up = xcalloc(cfg->nodes, sizeof *n->up);
        n->cut_ms = xcalloc(cfg->nodes, sizeof *n->cut_ms);
        for (u32 k = 0; k < cfg->nodes; k++) n->dials[k] = cfg->chain ? k + 1 == i : k < i;
    }
    push(s, 1, EV_LINKS, 0);
    for (u32 i = 0; i < cfg->nodes; i++) sim_start(s, i);
    return s;
}

void sim_free(struct sim *s) {
    for (u32 i = 0; i < s->cfg.nodes; i++) {
        struct node *n = &s->nodes[i];
        cluster_free(n->cluster);
        cluster_output_deinit(&n->out);
        str_deinit(&n->disk);
        free(n->dials);
        free(n->up);
        free(n->cut_ms);
    }
    while (s->n_heap) free(s->heap[--s->n_heap].body);
    free(s->heap);
    free(s->nodes);
    free(s);
}

u32 sim_want(struct sim *s, u32 node, u32 min_nodes, bool automatic) {
    ASSERT(s->n_wishes < INSTANCES_MAX);
    u32 number = s->n_wishes++;
    struct wish *w = &s->wishes[number];
    u64 layers[LAYERS];
    u8 key[32] = {(u8)number};
    for (u32 i = 0; i < LAYERS; i++) layers[i] = (u64)100 << 20;
    *w = (struct wish){.propose_id = number * 2 + 1, .automatic = automatic, .node = node};
    snprintf(w->id, sizeof w->id, "%012llu-%03u", (unsigned long long)s->now_ms, number);
    if (!s->nodes[node].cluster) {
        w->answer = SIM_NO;
        return number;
    }
    struct msg_propose p = {.id = w->propose_id,
                            .kind = PROPOSE_WANT,
                            .wanted = {.id = w->id,
                                       .model = automatic ? "auto" : w->id,
                                       .min_nodes = min_nodes,
                                       .is_automatic = automatic,
                                       .first_node = s->nodes[node].id,
                                       .key = {key, sizeof key},
                                       .desc = {.arch = "sim",
                                                .n_layers = LAYERS,
                                                .n_ctx_train = 4096,
                                                .embed_bytes = (u64)100 << 20,
                                                .head_bytes = (u64)100 << 20,
                                                .kv_bytes_per_token_layer = 1024,
                                                .layer_bytes = {layers, LAYERS}}}};
    step(s, node, &(struct cluster_input){.kind = CLUSTER_PROPOSE, .propose = &p});
    return number;
}

void sim_unwant(struct sim *s, u32 node, u32 instance) {
    struct wish *w = &s->wishes[instance];
    struct msg_propose p = {
        .id = (u64)1 << 40 | instance, .kind = PROPOSE_UNWANT, .wanted.id = w->id};
    if (!s->nodes[node].cluster) return;
    w->deleting = true;
    step(s, node, &(struct cluster_input){.kind = CLUSTER_PROPOSE, .propose = &p});
}

enum sim_answer sim_answer(const struct sim *s, u32 instance) {
    return s->wishes[instance].answer;
}

static bool in_set(const struct sim *s, u64 set, u32 i) {
    bool member = s->cfg.nodes > 64 || set >> i & 1;
    return member && s->nodes[i].cluster && !s->nodes[i].paused;
}

u32 sim_masters(const struct sim *s, u64 nodes) {
    u32 n = 0;
    for (u32 i = 0; i < s->cfg.nodes; i++)
        n +=
            in_set(s, nodes, i) && strcmp(cluster_master(s->nodes[i].cluster), s->nodes[i].id) == 0;
    return n;
}

const char *sim_master(const struct sim *s, u32 node) {
    return cluster_master(s->nodes[node].cluster);
}

/* What a node shows of its instances, as one text. */
static void describe(const struct sim *s, u32 node, struct str *out) {
    const struct cluster *c = s->nodes[node].cluster;
    str_addf(out, "master %s;", cluster_master(c));
    for (u32 i = 0; i < cluster_n_instances(c); i++) {
        struct cluster_instance in;
        cluster_instance(c, i, &in);
        str_addf(out, " %s@%llx", in.wanted->id, (unsigned long long)in.placement->place);
    }
}

bool sim_agree(const struct sim *s, u64 nodes) {
    struct str first = {0}, other = {0};
    bool same = true;
    for (u32 i = 0; i < s->cfg.nodes && same; i++) {
        if (!in_set(s, nodes, i)) continue;
        str_clear(&other);
        describe(s, i, first.n ? &other : &first);
        same = other.n == 0 || strcmp(first.p, other.p) == 0;
        u32 master = by_id(s, cluster_master(s->nodes[i].cluster));
        same = same && master != UINT32_MAX && in_set(s, nodes, master);
    }
    str_deinit(&first);
    str_deinit(&other);
    return same;
}

u32 sim_n_instances(const struct sim *s, u32 node) {
    return cluster_n_instances(s->nodes[node].cluster);
}

u32 sim_ready(const struct sim *s, u32 node) {
    const struct cluster *c = s->nodes[node].cluster;
    u32 n = 0;
    for (u32 i = 0; i < cluster_n_instances(c); i++) {
        struct cluster_instance in;
        cluster_instance(c, i, &in);
        n += in.status == INSTANCE_READY;
    }
    return n;
}

u32 sim_n_members(const struct sim *s, u32 node, enum member_state state) {
    const struct cluster *c = s->nodes[node].cluster;
    u32 n = 0;
    for (u32 i = 0; i < cluster_n_members(c); i++) {
        struct cluster_member m;
        cluster_member(c, i, s->now_ms + s->nodes[node].skew_ms, &m);
        n += m.state == state;
    }
    return n;
}

bool sim_has(const struct sim *s, u32 node, u32 instance) {
    struct cluster_instance in;
    const struct node *n = &s->nodes[node];
    return cluster_find_instance(n->cluster, s->wishes[instance].id, &in);
}

static void check_wishes(struct sim *s, u32 node) {
    for (u32 i = 0; i < s->n_wishes; i++) {
        const struct wish *w = &s->wishes[i];
        if (w->deleted && sim_has(s, node, i)) broke(s, "a deleted instance is there", w->id);
        bool wanted = w->answer == SIM_YES && !w->deleting && !w->automatic;
        if (wanted && !sim_has(s, node, i)) broke(s, "a wanted instance was lost", w->id);
    }
}

/* Every runner has an order, every ordered rank of this node a runner. */
static void check_runners(struct sim *s, u32 node) {
    struct node *n = &s->nodes[node];
    u32 ordered = 0;
    for (u32 i = 0; i < cluster_n_instances(n->cluster); i++) {
        struct cluster_instance in;
        cluster_instance(n->cluster, i, &in);
        for (u32 r = 0; r < in.n_ranks; r++) {
            if (strcmp(in.ranks[r].node, n->id) != 0) continue;
            ordered++;
            if (!find_runner(n, in.wanted->id, in.placement->place))
                broke(s, "an ordered runner is missing", in.wanted->id);
        }
    }
    if (ordered != n->n_runners) broke(s, "a runner has no order", n->id);
}

bool sim_settled(struct sim *s, u64 nodes) {
    if (sim_masters(s, nodes) != 1)
        broke(s, "not one master", sim_masters(s, nodes) ? "several" : "none");
    if (!sim_agree(s, nodes)) broke(s, "the nodes disagree", "master or placements");
    for (u32 i = 0; i < s->cfg.nodes; i++) {
        if (!in_set(s, nodes, i)) continue;
        check_wishes(s, i);
        check_runners(s, i);
    }
    return !s->broken;
}
