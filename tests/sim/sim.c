#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "sim_impl.h"

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

void sim_broke(struct sim *s, const char *what, const char *who) {
    if (!s->broken || getenv("SIM_TRACE"))
        printf("sim: seed %llu, t=%llu ms, %u nodes: %s (%s)\n", (unsigned long long)s->seed,
               (unsigned long long)s->now_ms, s->cfg.nodes, what, who);
    s->broken = true;
}

u64 sim_local_ms(const struct sim *s, const struct node *n) {
    return n->origin_ms + s->now_ms * n->rate_ppm / 1000000;
}
/* The first moment at which n's clock shows local_ms. */
static u64 global_ms(const struct node *n, u64 local_ms) {
    if (local_ms <= n->origin_ms) return 0;
    return ((local_ms - n->origin_ms) * 1000000 + n->rate_ppm - 1) / n->rate_ppm;
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

static void let_go(struct parcel *p) {
    if (p && --p->n_refs == 0) free(p);
}

/* The number is in the id's and the address's last digits. */
u32 sim_by_id(const struct sim *s, const char *id) {
    u32 i = strlen(id) == 12 ? (u32)strtoul(id + 8, NULL, 10) : UINT32_MAX;
    return i < s->cfg.nodes && strcmp(s->nodes[i].id, id) == 0 ? i : UINT32_MAX;
}
static u32 by_address(const struct sim *s, const char *address) {
    u32 hi, lo;
    if (sscanf(address, "10.0.%u.%u:", &hi, &lo) != 2) return UINT32_MAX;
    u32 i = hi * 250 + lo - 1;
    return i < s->cfg.nodes && strcmp(s->nodes[i].address, address) == 0 ? i : UINT32_MAX;
}

/* `last` is the parcel of the same step's action before: what goes to several is kept once. */
static void deliver(struct sim *s, u32 from, const struct cluster_action *a, const void **last_body,
                    struct parcel **last) {
    u32 to = sim_by_id(s, a->to);
    s->n_sent++;
    s->nodes[from].n_sent++;
    s->nodes[from].n_sent_bytes += a->n;
    if (a->n > MESSAGE_MAX) sim_broke(s, "a message is too large", s->nodes[from].id);
    if (to == UINT32_MAX || !s->nodes[from].up[to]) return;
    u32 copies = 1 + chance(s, s->cfg.dup_pct);
    for (u32 i = 0; i < copies; i++) {
        if (chance(s, s->cfg.loss_pct)) continue;
        if (*last_body != a->body || !*last || (*last)->type != a->type) {
            let_go(*last);
            *last = xcalloc(1, sizeof **last + a->n + 1);
            (*last)->n_refs = 1;
            (*last)->type = a->type;
            (*last)->n = a->n;
            memcpy((*last)->body, a->body, a->n);
            *last_body = a->body;
        }
        struct event *e = push(s, 1 + sim_random(s, MAX(s->cfg.delay_ms_max, 1)), EV_MESSAGE, to);
        e->from = from;
        e->parcel = *last;
        (*last)->n_refs++;
    }
}

static void report(struct sim *s, u32 node, u64 in_ms, const struct runner *r, u32 status) {
    struct parcel *p = xcalloc(1, sizeof *p);
    p->n_refs = 1;
    push(s, in_ms, EV_RUNNER, node)->parcel = p;
    memcpy(p->instance, r->instance, sizeof p->instance);
    p->fact = (struct msg_runner){.place = r->place,
                                  .rank = r->rank,
                                  .status = status,
                                  .port = 7000 + r->rank,
                                  .text = "",
                                  .isa = ""};
    if (status == RUNNER_FAILED) {
        p->fact.code = chance(s, 50) ? ERR_NET : ERR_IO;
        p->fact.text = "simulated failure";
    }
}

struct runner *sim_find_runner(struct node *n, const char *instance, u64 place) {
    for (u32 i = 0; i < n->n_runners; i++)
        if (n->runners[i].place == place && strcmp(n->runners[i].instance, instance) == 0)
            return &n->runners[i];
    return NULL;
}

static void start_runner(struct sim *s, u32 node, const struct cluster_action *a) {
    struct node *n = &s->nodes[node];
    const struct msg_rank *ranks = a->placement->ranks.v;
    if (sim_find_runner(n, a->instance, a->place))
        sim_broke(s, "a runner was started twice", a->instance);
    if (n->n_runners == n->runners_cap) {
        n->runners_cap = n->runners_cap ? n->runners_cap * 2 : 8;
        n->runners = xrealloc(n->runners, n->runners_cap * sizeof *n->runners);
    }
    struct runner *r = &n->runners[n->n_runners++];
    *r = (struct runner){.place = a->place,
                         .rank = a->rank,
                         .n_ranks = (u32)a->placement->ranks.n,
                         .memory_bytes = ranks[a->rank].memory_bytes};
    str_copy(r->instance, sizeof r->instance, a->instance);
    if (strcmp(ranks[a->rank].node, n->id) != 0)
        sim_broke(s, "a runner was started for another node's rank", n->id);
    u64 load_ms = 50 + sim_random(s, 500);
    if (chance(s, s->cfg.runner_fail_pct))
        report(s, node, load_ms, r, RUNNER_FAILED);
    else
        report(s, node, load_ms, r, r->n_ranks > 1 ? RUNNER_LOADED : RUNNER_READY);
}

/* The other ranks must be there with the same placement, or connecting fails. */
static void connect_runner(struct sim *s, u32 node, const struct cluster_action *a) {
    struct runner *r = sim_find_runner(&s->nodes[node], a->instance, a->place);
    if (!r)
        sim_broke(s, "a runner that does not exist was to be connected", a->instance);
    else if (a->n_peers != r->n_ranks - 1)
        sim_broke(s, "not all ranks were named", a->instance);
    else
        report(s, node, 20 + sim_random(s, 50), r,
               chance(s, s->cfg.runner_fail_pct) ? RUNNER_FAILED : RUNNER_READY);
}

static void stop_runner(struct sim *s, u32 node, const struct cluster_action *a) {
    struct node *n = &s->nodes[node];
    struct runner *r = sim_find_runner(n, a->instance, a->place);
    if (!r)
        sim_broke(s, "a runner that does not exist was to be stopped", a->instance);
    else
        *r = n->runners[--n->n_runners];
}

static void take_answer(struct sim *s, const struct cluster_action *a) {
    u64 i = a->propose_id;
    if (i >> 40 == 1) {
        s->wishes[i & 0xffffff].deleted |= a->answer->code == ERR_NONE;
    } else if (i >> 40 == 0) {
        struct wish *w = &s->wishes[i / 2];
        w->answer = a->answer->code ? SIM_NO : SIM_YES;
        if (w->answer == SIM_YES) str_copy(w->id, sizeof w->id, a->instance);
    }
}

static void act(struct sim *s, u32 node, const struct cluster_action *a) {
    switch (a->what) {
    case DO_SEND: break; /* step */
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

static void save(struct sim *s, struct node *n) {
    str_clear(&n->disk);
    cluster_save(n->cluster, &n->disk);
    n->saved_term = cluster_term(n->cluster);
    if (n->disk.n > DISK_MAX) sim_broke(s, "the file is too large", n->id);
    struct cluster_instance in;
    for (u32 i = 0; i < s->n_wishes; i++)
        n->saved[i] = cluster_find_instance(n->cluster, s->wishes[i].id, &in);
}

static void step(struct sim *s, u32 node, const struct cluster_input *in) {
    struct node *n = &s->nodes[node];
    const void *last_body = NULL;
    struct parcel *last = NULL;
    cluster_step(n->cluster, in, sim_local_ms(s, n), &n->out);
    if (n->out.save && n->tears != TEAR_BEFORE) save(s, n);
    if (n->out.save && n->tears) { /* nothing of this step got out to others */
        sim_crash(s, node);
        return;
    }
    for (u32 i = 0; i < n->out.n; i++) {
        if (n->out.v[i].what == DO_SEND)
            deliver(s, node, &n->out.v[i], &last_body, &last);
        else
            act(s, node, &n->out.v[i]);
    }
    let_go(last);
    sim_check_node(s, node);
    u64 tick_ms = global_ms(n, n->out.next_ms);
    if (n->next_tick_ms > s->now_ms && n->next_tick_ms <= tick_ms) return; /* one is due sooner */
    n->next_tick_ms = MAX(tick_ms, s->now_ms + 1);
    push(s, n->next_tick_ms - s->now_ms, EV_TICK, node);
}

/* What is free: all of it but what loaded runners take. */
static void look_at_machine(struct sim *s, u32 node) {
    struct node *n = &s->nodes[node];
    u64 mem = s->cfg.memory_bytes ? s->cfg.memory_bytes : (u64)64 << 30, used = 0;
    for (u32 i = 0; i < n->n_runners; i++)
        used += n->runners[i].loaded ? n->runners[i].memory_bytes : 0;
    struct cluster_machine m = {.mem_available_bytes = mem > used ? mem - used : 0,
                                .mem_limit_bytes = mem};
    push(s, MACHINE_EVERY_MS, EV_MACHINE, node);
    step(s, node, &(struct cluster_input){.kind = CLUSTER_MACHINE, .machine = m});
}

void sim_start(struct sim *s, u32 node) {
    struct node *n = &s->nodes[node];
    bool worker = s->cfg.workers == 0 || node < s->cfg.workers;
    struct err e = {0};
    ASSERT(!n->cluster);
    n->life = ++s->n_lives;
    n->last_term = n->next_tick_ms = n->last_index = n->last_session_term = 0;
    n->last_session[0] = n->last_master[0] = 0;
    n->paused = false;
    n->n_runners = 0;
    n->origin_ms = 1000 + sim_random(s, 1000000);
    n->rate_ppm = 1000000;
    n->wall_s = 0;
    if (s->cfg.clock_skew) { /* crystals that are 2 % off, wall clocks that are anywhere */
        n->rate_ppm += (u32)sim_random(s, 40001) - 20000;
        n->wall_s = (i64)sim_random(s, 4000000) - 2000000;
    }
    struct cluster_cfg cfg = {
        .id = n->id,
        .has_peers = s->cfg.nodes > 1,
        .force_master = s->cfg.force_master == node + 1,
        .hello = {.protocol = 1,
                  .build = "sim",
                  .os = "sim",
                  .cluster = "sim",
                  .name = n->id,
                  .boot = random_at(s->seed, ~n->life) | 1,
                  .seniority = (u64)(1700000000 + (i64)(s->now_ms / 1000) + n->wall_s),
                  .is_worker = worker,
                  .n_cores = 4,
                  .mem_total_bytes = (u64)64 << 30}};
    n->cluster = cluster_new(&cfg, n->disk.p, n->disk.n, sim_local_ms(s, n), &e);
    if (!n->cluster) {
        sim_broke(s, e.msg, n->id);
        n->cluster = cluster_new(&cfg, NULL, 0, sim_local_ms(s, n), NULL);
    }
    if (cluster_term(n->cluster) < n->saved_term)
        sim_broke(s, "the term went back with a restart", n->id);
    look_at_machine(s, node);
}

static void link_down(struct sim *s, u32 a, u32 b) {
    if (!s->nodes[a].up[b]) return;
    s->nodes[a].up[b] = s->nodes[b].up[a] = false;
    push(s, 1, EV_DOWN, a)->from = b;
    push(s, 1, EV_DOWN, b)->from = a;
}

/* Was a started with b's address? */
static bool is_told(const struct sim *s, u32 a, u32 b) {
    return s->cfg.chain ? b + 1 == a : b < a;
}

void sim_crash(struct sim *s, u32 node) {
    struct node *n = &s->nodes[node];
    if (!n->cluster) return;
    cluster_free(n->cluster);
    n->cluster = NULL;
    n->tears = TEAR_NOTHING;
    n->n_runners = 0;
    n->life = ++s->n_lives;
    for (u32 i = 0; i < s->cfg.nodes; i++) {
        link_down(s, node, i);
        n->dials[i] = is_told(s, node, i); /* those of its command line stay */
    }
}

void sim_crash_in_save(struct sim *s, u32 node) {
    s->nodes[node].tears = chance(s, 50) ? TEAR_BEFORE : TEAR_AFTER;
}

bool sim_is_up(const struct sim *s, u32 node) {
    return s->nodes[node].cluster != NULL;
}
void sim_pause(struct sim *s, u32 node) {
    s->nodes[node].paused = true;
}
void sim_resume(struct sim *s, u32 node) {
    if (s->nodes[node].paused) s->nodes[node].resumed_ms = s->now_ms;
    s->nodes[node].paused = false;
    s->nodes[node].tears = TEAR_NOTHING;
}

static void cut_link(struct sim *s, u32 a, u32 b) {
    s->nodes[a].cut_ms[b] = s->nodes[b].cut_ms[a] = MAX(s->now_ms, 1);
}
void sim_cut(struct sim *s, u64 a, u64 b) {
    for (u32 i = 0; i < MIN(s->cfg.nodes, 64); i++)
        for (u32 k = 0; k < MIN(s->cfg.nodes, 64); k++)
            if (a >> i & 1 && b >> k & 1) cut_link(s, i, k);
}
void sim_split(struct sim *s, u32 parts) {
    for (u32 i = 0; i < s->cfg.nodes; i++) s->nodes[i].part = (u32)sim_random(s, parts);
    for (u32 i = 0; i < s->cfg.nodes; i++)
        for (u32 k = 0; k < i; k++)
            if (s->nodes[i].part != s->nodes[k].part) cut_link(s, i, k);
}
void sim_heal(struct sim *s) {
    for (u32 i = 0; i < s->cfg.nodes; i++) {
        memset(s->nodes[i].cut_ms, 0, s->cfg.nodes * sizeof(u64));
        s->nodes[i].part = 0;
    }
}
void sim_calm(struct sim *s) {
    s->cfg.loss_pct = s->cfg.dup_pct = s->cfg.runner_fail_pct = 0;
}

/* Has it still to read that links broke? A link that is up may not come before that. */
static bool is_behind(const struct sim *s, const struct node *n) {
    return n->paused || s->now_ms <= n->resumed_ms + 2 * PAUSED_MS;
}

/* Dialled links come up, cut ones break after a while. */
static void tend_links(struct sim *s) {
    for (u32 a = 0; a < s->cfg.nodes; a++) {
        for (u32 b = 0; b < a; b++) {
            struct node *x = &s->nodes[a], *y = &s->nodes[b];
            if (x->up[b] && x->cut_ms[b] && s->now_ms - x->cut_ms[b] > CUT_NOTICED_MS)
                link_down(s, a, b);
            if (x->up[b] || !(x->dials[b] || y->dials[a])) continue;
            if (!x->cluster || !y->cluster || x->cut_ms[b]) continue;
            if (is_behind(s, x) || is_behind(s, y)) continue;
            x->up[b] = y->up[a] = true;
            push(s, 1, EV_UP, a)->from = b;
            push(s, 1, EV_UP, b)->from = a;
        }
    }
    push(s, LINK_EVERY_MS, EV_LINKS, 0)->life = 0;
    sim_check_all(s);
}

static void take_report(struct sim *s, u32 node, struct parcel *p) {
    struct runner *r = sim_find_runner(&s->nodes[node], p->instance, p->fact.place);
    if (!r) return;
    r->loaded = p->fact.status != RUNNER_FAILED;
    p->fact.instance = p->instance;
    step(s, node, &(struct cluster_input){.kind = CLUSTER_RUNNER, .runner = &p->fact});
}

static void handle(struct sim *s, struct event *e) {
    struct node *n = &s->nodes[e->node];
    struct node *peer = &s->nodes[e->from];
    struct cluster_input in = {.peer = peer->id, .address = peer->address};
    switch (e->kind) {
    case EV_LINKS: tend_links(s); return;
    case EV_MACHINE: look_at_machine(s, e->node); return;
    case EV_RUNNER: take_report(s, e->node, e->parcel); return;
    case EV_TICK:
        if (e->at_ms != n->next_tick_ms) return; /* a sooner one was asked for since */
        in.kind = CLUSTER_TICK;
        n->next_tick_ms = 0;
        break;
    case EV_UP: in.kind = CLUSTER_PEER_UP; break;
    case EV_DOWN: in.kind = CLUSTER_PEER_DOWN; break;
    case EV_MESSAGE:
        if (n->cut_ms[e->from]) return;
        in.kind = CLUSTER_MESSAGE;
        in.type = e->parcel->type;
        in.body = e->parcel->body;
        in.n = e->parcel->n;
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
            struct event *again = push(s, PAUSED_MS, e.kind, e.node);
            e.at_ms = again->at_ms;
            e.order = again->order;
            if (e.kind == EV_TICK) n->next_tick_ms = e.at_ms;
            *again = e;
            continue;
        }
        if (current) handle(s, &e);
        let_go(e.parcel);
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
        for (u32 k = 0; k < cfg->nodes; k++) n->dials[k] = is_told(s, i, k);
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
        free(n->runners);
        free(n->dials);
        free(n->up);
        free(n->cut_ms);
    }
    while (s->n_heap) let_go(s->heap[--s->n_heap].parcel);
    free(s->heap);
    free(s->nodes);
    free(s);
}

u32 sim_want(struct sim *s, u32 node, u32 min_nodes, bool automatic) {
    ASSERT(s->n_wishes < WISHES_MAX);
    u32 number = s->n_wishes++;
    struct wish *w = &s->wishes[number];
    u64 layers[LAYERS];
    u8 key[32] = {(u8)number};
    for (u32 i = 0; i < LAYERS; i++) layers[i] = (u64)100 << 20;
    *w = (struct wish){.propose_id = number * 2 + 1, .automatic = automatic, .node = node};
    snprintf(w->id, sizeof w->id, "%012llu-%04u", (unsigned long long)s->now_ms, number);
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

void sim_drain(struct sim *s, u32 node, u32 target, bool on) {
    struct msg_propose p = {.id = (u64)2 << 40,
                            .kind = on ? PROPOSE_DRAIN : PROPOSE_UNDRAIN,
                            .node = s->nodes[target].id};
    if (!s->nodes[node].cluster) return;
    step(s, node, &(struct cluster_input){.kind = CLUSTER_PROPOSE, .propose = &p});
}

enum sim_answer sim_answer(const struct sim *s, u32 instance) {
    return s->wishes[instance].answer;
}
