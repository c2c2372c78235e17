#include "node/self.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/file.h"
#include "base/json.h"
#include "base/netif.h"
#include "base/paths.h"
#include "base/random.h"
#include "base/sock.h"
#include "base/sysinfo.h"
#include "base/version.h"
#include "net/link.h"
#include "node/node_parts.h"
#include "node/routes.h"

enum {
    STEP_MS = 1000,
    PORT_ABOVE_BUS = 100, /* known to firewalls, and out of the way of a second node here */
    MEASURE_MS = 20000,
    RATES_FILE_MAX = 65536,
    AGAIN_MS = 30000, /* after a measurement that failed, or that none before has confirmed */
    MEASURE_TRIES = 5,
    MEASURE_MEM_BYTES = 1 << 30, /* at most, and an eighth of what there is */
};

struct self {
    struct prober *prober;
    struct probe probe;
    struct probe told; /* values that were told, so that small changes are not */
    struct link_meter *meter;
    u8 token[LINK_TOKEN_BYTES];
    struct link_result *links;
    u32 n_links, links_cap;
    char fingerprint[400];
    struct arena rates_mem;
    struct msg_measured rates;    /* read_bytes_s 0: not measured (yet) */
    struct child *child;          /* measures */
    u64 child_bytes, mem_bytes;   /* memory that it may take, and that was available before */
    u64 child_until_ms, again_ms; /* again_ms: when it is measured again; 0: not */
    u32 n_tries;
    bool confirmed; /* by a second measurement */
    bool disturbed; /* this node worked beside it: good for now, not for the file */
    u64 step_ms, disk_total_bytes;
};

u64 self_steady(u64 told, u64 now, u64 abs, u32 pct) {
    u64 apart = told > now ? told - now : now - told;
    if (!told != !now) return now;
    return apart <= MAX(abs, told / 100 * pct) ? told : now;
}

static bool rates_path(const struct node *n, char path[1024]) {
    return paths_join(path, 1024, n->cfg.data_dir, "measured.json");
}

/* After a measurement that failed, or that none has confirmed: a few times, then it is left. */
static void measure_later(const struct node *n, struct self *s) {
    u32 again_ms = n->cfg.again_ms ? n->cfg.again_ms : AGAIN_MS;
    s->again_ms = s->n_tries < MEASURE_TRIES ? clock_ms() + again_ms : 0;
}

static void failed(const struct node *n, struct self *s, const char *why) {
    bool measured = s->rates.read_bytes_s;
    log_warn("node", "speed not measured%s, %s: %s", measured ? " again" : "",
             measured ? "the figures before count" : "cores count instead", why);
    measure_later(n, s);
}

static void read_rates(struct node *n, struct self *s) {
    char cpu[128], path[1024];
    struct sysinfo_mem mem;
    struct str text = {0};
    sysinfo_cpu_name(cpu, sizeof cpu);
    sysinfo_mem(&mem);
    u32 threads = n->cfg.n_threads ? n->cfg.n_threads : sysinfo_n_cpus();
    snprintf(s->fingerprint, sizeof s->fingerprint, "%s, %u threads, %llu MiB, %s, skein %.60s",
             cpu, threads, (unsigned long long)(mem.total_bytes >> 20),
             *n->cfg.cpu_mask ? n->cfg.cpu_mask : "all sets", version_text());
    if (rates_path(n, path) && file_exists(path) && file_read(path, RATES_FILE_MAX, &text, NULL))
        self_rates_read(str_view(&text), s->fingerprint, &s->rates_mem, &s->rates, &s->confirmed);
    if (s->rates.read_bytes_s && !s->confirmed) {
        s->n_tries = 1;
        measure_later(n, s);
    }
    str_deinit(&text);
}

static void start_measuring(struct node *n, struct self *s) {
    struct err e = {0};
    struct sysinfo_mem mem;
    sysinfo_mem(&mem);
    s->mem_bytes = mem.available_bytes;
    s->child_bytes = MIN((u64)MEASURE_MEM_BYTES, mem.available_bytes / 8);
    s->again_ms = 0;
    s->disturbed = false;
    s->n_tries++;
    s->child = child_spawn(n->cfg.program, "runner that measures this machine", &e);
    if (!s->child) {
        failed(n, s, e.msg);
        return;
    }
    s->child_until_ms = clock_ms() + MEASURE_MS;
    child_send(s->child, MSG_MEASURE,
               &(struct msg_measure){.n_threads = n->cfg.n_threads,
                                     .cpu_mask = n->cfg.cpu_mask,
                                     .mem_bytes = s->child_bytes});
}

struct self *self_start(struct node *n, struct err *e) {
    struct self *s = xcalloc(1, sizeof *s);
    u32 port = bus_port(n->bus) + PORT_ABOVE_BUS;
    struct link_cfg cfg = {.listen_host = n->cfg.listen_host,
                           .port = port <= UINT16_MAX ? (u16)port : 0,
                           .seed = (u32)random_u64()};
    struct err why = {0};
    s->prober = probe_start(0, e);
    if (!s->prober) {
        free(s);
        return NULL;
    }
    random_bytes(s->token, sizeof s->token);
    memcpy(cfg.token, s->token, sizeof cfg.token);
    s->meter = n->cfg.no_measure ? NULL : link_start(&cfg, &why);
    if (!s->meter && !n->cfg.no_measure) log_warn("node", "links not measured: %s", why.msg);
    read_rates(n, s);
    if (!s->rates.read_bytes_s && !n->cfg.no_measure && !n->cfg.no_worker) start_measuring(n, s);
    if (s->meter) link_set_busy(s->meter, s->child != NULL);
    return s;
}

void self_stop(struct self *s) {
    if (!s) return;
    child_close(s->child, 0);
    link_stop(s->meter);
    probe_stop(s->prober);
    arena_deinit(&s->rates_mem);
    free(s->links);
    free(s);
}

const struct probe *self_probe(const struct self *s) {
    return &s->probe;
}

u64 self_available_with(u64 available_bytes, u64 lent, u64 before) {
    return MAX(available_bytes, MIN(available_bytes + lent, before));
}

u64 self_available(const struct self *s, u64 available_bytes) {
    if (!s || !s->child || !s->rates.read_bytes_s) return available_bytes;
    return self_available_with(available_bytes, s->child_bytes, s->mem_bytes);
}

static void keep_rates(struct node *n, struct self *s) {
    char path[1024];
    struct str text = {0};
    struct err e = {0};
    self_rates_write(&text, s->fingerprint, &s->rates, s->confirmed);
    if (!rates_path(n, path) || !file_write(path, text.p, text.n, 0644, &e))
        log_warn("node", "the measurement of this machine was not kept: %s", e.msg);
    str_deinit(&text);
}

static void take_rates(struct node *n, struct self *s, const struct frame *f) {
    struct err e = {0};
    struct msg_measured m, old = s->rates;
    if (f->type != MSG_MEASURED ||
        !wire_decode(msg_table(MSG_MEASURED), f->body, f->n, &s->rates_mem, &m, &e)) {
        failed(n, s, f->type == MSG_MEASURED ? e.msg : "no answer");
        return;
    }
    bool contended = m.is_contended || s->disturbed;
    s->confirmed = !contended && self_rates_agree(&m, &old);
    log_info("node", "measured read_gb_s=%.1f int8_gop_s=%.1f f32_gop_s=%.1f isa=%s threads=%u%s",
             (double)m.read_bytes_s / 1e9, (double)m.int8_ops_s / 1e9, (double)m.float_ops_s / 1e9,
             m.isa, m.n_threads,
             contended       ? " beside other work"
             : !s->confirmed ? " to be confirmed"
                             : "");
    self_rates_better(&m, &old);
    s->rates = m;
    if (!contended) keep_rates(n, s);
    if (!s->confirmed) measure_later(n, s);
}

void self_yield(struct node *n) {
    struct self *s = n->self;
    if (!s || !s->child || !s->rates.read_bytes_s) return;
    s->n_tries--;
    measure_later(n, s);
    node_bury(n, s->child, 0);
    s->child = NULL;
}

static void read_child(struct node *n, struct self *s, u64 now_ms) {
    struct frame f;
    struct err e = {0};
    bool busy = n->n_shards || n->n_wants || n->n_asks;
    bool may = !n->cfg.no_measure && !n->cfg.no_worker;
    if (!s->child && s->again_ms && now_ms >= s->again_ms && !busy && may) start_measuring(n, s);
    if (busy) self_yield(n);
    if (!s->child) return;
    s->disturbed = s->disturbed || busy;
    int got = child_recv(s->child, &f, &e);
    if (got == 0 && now_ms < s->child_until_ms) return;
    if (got == 1)
        take_rates(n, s, &f);
    else
        failed(n, s, got == 0 ? "it took too long" : e.msg);
    node_bury(n, s->child, 200);
    s->child = NULL;
}

static struct link_result *link_of(struct self *s, const char *id) {
    for (u32 i = 0; i < s->n_links; i++)
        if (strcmp(s->links[i].id, id) == 0) return &s->links[i];
    return NULL;
}

static void tell_link(struct node *n, const struct link_result *r) {
    log_info("node", "link measured node=%s interface=%s rtt_us=%u/%u bandwidth=%.1f MB/s mtu=%u",
             r->id, r->interface, r->rtt_p50_us, r->rtt_p99_us, (double)r->bandwidth_bytes_s / 1e6,
             r->mtu);
    struct str *o = events_begin(n->events, "link_measured");
    json_put_str(o, "node", n->id);
    json_put_str(o, "to", r->id);
    json_put_u64(o, "rtt_us", r->rtt_p50_us);
    json_put_u64(o, "bandwidth_bytes_per_s", r->bandwidth_bytes_s);
    events_end(n->events);
}

static void take_links(struct node *n, struct self *s) {
    struct link_result r;
    while (s->meter && link_take(s->meter, &r)) {
        struct link_result *l = link_of(s, r.id);
        if (!l) {
            NODE_GROW(s->links, s->n_links, s->links_cap);
            l = &s->links[s->n_links++];
        } else if (!r.rtt_p50_us && l->rtt_p50_us && strcmp(l->host, r.host) == 0) {
            log_debug("node", "link refresh failed node=%s: %s", r.id, r.problem);
            continue; /* what was measured before still says more */
        }
        if (*r.problem && strcmp(l->problem, r.problem) != 0)
            log_warn("node", "link has a problem node=%s: %s", r.id, r.problem);
        *l = r;
        if (!*r.problem) tell_link(n, &r);
    }
}

u32 self_streams_of(u32 rtt_us, u64 bytes_s) {
    enum { MANY = 4 };
    bool fast = bytes_s > 5 * 1000 * 1000 * 1000ULL / 8; /* where clouds limit a single flow */
    /* what Linux sends ahead at most */
    bool is_long = (double)bytes_s * rtt_us / 1e6 > 4 << 20;
    return fast || is_long ? MANY : 1;
}

u32 self_streams(const struct node *n, const char *host) {
    const struct self *s = n->self;
    if (n->cfg.n_streams) return n->cfg.n_streams;
    for (u32 i = 0; s && i < s->n_links; i++) {
        const struct link_result *l = &s->links[i];
        if (strcmp(l->host, host) == 0 && l->kind != NETIF_LOOPBACK)
            return self_streams_of(l->rtt_p50_us, l->bandwidth_bytes_s);
    }
    return 1;
}

/* Whom to measure: live members that told where. Links of others are forgotten. */
static void set_peers(struct node *n, struct self *s, u64 now_ms) {
    if (s->meter) link_set_computing(s->meter, n->n_legs || n->n_asks || n->n_wants);
    if (s->meter) link_set_busy(s->meter, s->child != NULL);
    if (s->child) return; /* both at once would make both worse: links come second */
    struct link_peer *v = xcalloc(LINK_PEERS_MAX, sizeof *v);
    u32 k = 0, kept = 0;
    for (u32 i = 1; s->meter && i < cluster_n_members(n->cluster) && k < LINK_PEERS_MAX; i++) {
        struct cluster_member m;
        u16 port;
        cluster_member(n->cluster, i, now_ms, &m);
        const struct msg_facts *f = m.facts;
        if (m.state != MEMBER_LIVE || !f->link_port || f->link_port > 65535 ||
            f->link_token.n != LINK_TOKEN_BYTES ||
            !sock_split(m.address, 1, v[k].host, &port, NULL))
            continue;
        str_copy(v[k].id, sizeof v[k].id, m.id);
        v[k].port = (u16)f->link_port;
        memcpy(v[k].token, f->link_token.p, LINK_TOKEN_BYTES);
        k++;
    }
    for (u32 i = 0; i < s->n_links; i++) {
        bool there = false;
        for (u32 j = 0; j < k; j++) there = there || strcmp(v[j].id, s->links[i].id) == 0;
        if (there) s->links[kept++] = s->links[i];
    }
    s->n_links = kept;
    if (s->meter) link_set_peers(s->meter, v, k);
    free(v);
}

static struct wire_list list_links(const struct self *s, struct arena *a) {
    struct msg_link *v = arena_array(a, s->n_links + 1, sizeof *v);
    for (u32 i = 0; i < s->n_links; i++) {
        const struct link_result *r = &s->links[i];
        bool rdma = r->kind == NETIF_THUNDERBOLT && s->probe.has_rdma; /* rdma_ctl says so */
        v[i] = (struct msg_link){.peer = r->id,
                                 .address = r->host,
                                 .interface = r->interface,
                                 .kind = rdma ? LINK_RDMA : r->kind,
                                 .speed_mbit = r->speed_mbit,
                                 .mtu = r->mtu,
                                 .jumbo_passes = r->jumbo_passes,
                                 .rtt_p50_us = r->rtt_p50_us,
                                 .rtt_p99_us = r->rtt_p99_us,
                                 .bandwidth_bytes_s = r->bandwidth_bytes_s,
                                 .measured_at = (u64)r->at_unix_s,
                                 .problem = r->problem};
    }
    return (struct wire_list){v, s->n_links};
}

static struct wire_list list_interfaces(const struct node *n, struct arena *a) {
    u32 k, total = 0, at = 0;
    const struct netif *v = routes_netifs(n->routes, &k);
    for (u32 i = 0; i < k; i++) total += v[i].n_addrs;
    struct msg_iface *out = arena_array(a, total + 1, sizeof *out);
    for (u32 i = 0; i < k; i++)
        for (u32 j = 0; v[i].is_up && j < v[i].n_addrs; j++)
            out[at++] = (struct msg_iface){.name = v[i].name,
                                           .address = v[i].addrs[j].host,
                                           .kind = v[i].kind,
                                           .speed_mbit = v[i].speed_mbit,
                                           .mtu = v[i].mtu};
    return (struct wire_list){out, at};
}

/* What moves all the time is told when it moved by enough to matter. */
static void steady(struct self *s) {
    struct probe *t = &s->told;
    const struct probe *p = &s->probe;
    struct probe next = *p;
    next.temperature_c = (u32)self_steady(t->temperature_c, p->temperature_c, 2, 0);
    next.power_mw = (u32)self_steady(t->power_mw, p->power_mw, 1000, 10);
    next.load_pct = (u32)self_steady(t->load_pct, p->load_pct, 10, 0);
    next.load_big_pct = (u32)self_steady(t->load_big_pct, p->load_big_pct, 10, 0);
    next.load_small_pct = (u32)self_steady(t->load_small_pct, p->load_small_pct, 10, 0);
    next.swap_available_bytes =
        self_steady(t->swap_available_bytes, p->swap_available_bytes, 256 << 20, 5);
    for (u32 i = 0; i < p->n_gpus && i < t->n_gpus; i++) {
        const struct probe_gpu *old = &t->gpus[i], *g = &p->gpus[i];
        struct probe_gpu *to = &next.gpus[i];
        to->mem_available_bytes =
            self_steady(old->mem_available_bytes, g->mem_available_bytes, 128 << 20, 2);
        to->load_pct = (u32)self_steady(old->load_pct, g->load_pct, 10, 0);
        to->temperature_c = (u32)self_steady(old->temperature_c, g->temperature_c, 2, 0);
        to->power_mw = (u32)self_steady(old->power_mw, g->power_mw, 2000, 10);
    }
    *t = next;
}

static struct wire_list list_gpus(const struct probe *p, struct arena *a) {
    struct msg_gpu *v = arena_array(a, p->n_gpus + 1, sizeof *v);
    for (u32 i = 0; i < p->n_gpus; i++)
        v[i] = (struct msg_gpu){.name = p->gpus[i].name,
                                .driver = p->gpus[i].driver,
                                .mem_total_bytes = p->gpus[i].mem_total_bytes,
                                .mem_available_bytes = p->gpus[i].mem_available_bytes,
                                .load_pct = p->gpus[i].load_pct,
                                .temperature_c = p->gpus[i].temperature_c,
                                .power_mw = p->gpus[i].power_mw};
    return (struct wire_list){v, p->n_gpus};
}

static void tell(struct node *n, struct self *s) {
    struct arena a = {0};
    struct sysinfo_mem mem;
    const struct probe *p = &s->told;
    sysinfo_mem(&mem);
    struct msg_facts f = {.n_cores = sysinfo_n_cpus(),
                          .n_cores_big = p->n_cores_big,
                          .cache_l1_kib = p->cache_l1_kib,
                          .cache_l2_kib = p->cache_l2_kib,
                          .cache_l3_kib = p->cache_l3_kib,
                          .mem_total_bytes = mem.total_bytes,
                          .disk_total_bytes = s->disk_total_bytes,
                          .read_bytes_s = s->rates.read_bytes_s,
                          .int8_ops_s = s->rates.int8_ops_s,
                          .float_ops_s = s->rates.float_ops_s,
                          .isa = s->rates.isa,
                          .isas = s->rates.isas,
                          .call_ns = s->rates.call_ns,
                          .rates = s->rates.rates,
                          .attend_ops_s = s->rates.attend_ops_s,
                          .attend_one_ops_s = s->rates.attend_one_ops_s,
                          .temperature_c = p->temperature_c,
                          .power_mw = p->power_mw,
                          .power_source = p->power_source,
                          .is_throttled = *p->throttle != 0,
                          .throttle = p->throttle,
                          .is_on_battery = p->is_on_battery,
                          .load_pct = p->load_pct,
                          .load_big_pct = p->load_big_pct,
                          .load_small_pct = p->load_small_pct,
                          .swap_total_bytes = p->swap_total_bytes,
                          .swap_available_bytes = p->swap_available_bytes,
                          .model = p->model,
                          .os_build = p->os_build,
                          .has_rdma = p->has_rdma,
                          .gpus = list_gpus(p, &a),
                          .links = list_links(s, &a),
                          .interfaces = list_interfaces(n, &a)};
    if (s->meter) {
        f.link_port = link_port(s->meter);
        f.link_token = (struct wire_blob){s->token, sizeof s->token};
    }
    member_feed(n, &(struct cluster_input){.kind = CLUSTER_FACTS, .facts = &f});
    arena_deinit(&a);
}

void self_step(struct node *n, u64 now_ms) {
    struct self *s = n->self;
    struct statvfs fs;
    read_child(n, s, now_ms);
    if (now_ms < s->step_ms) return;
    s->step_ms = now_ms + STEP_MS;
    if (statvfs(store_dir(n->cfg.store), &fs) == 0)
        s->disk_total_bytes = (u64)fs.f_blocks * fs.f_frsize;
    bool probed = probe_take(s->prober, &s->probe);
    take_links(n, s);
    set_peers(n, s, now_ms);
    if (probed) steady(s);
    if (s->probe.seq) tell(n, s);
}
