#include "cli/bench_cluster.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/version.h"
#include "cli/cli.h"
#include "net/http_client.h"

enum { POLL_MS = 100, PLACE_MS = 600000, ANSWER_MS = 3600000, EVENTS_MAX_BYTES = 256 << 20 };

static const char STATS[] = "\n: generation_stats ";

bool bench_reply_read(struct view events, struct bench_reply *out, struct err *e) {
    const char *at = memmem(events.p, events.n, STATS, sizeof STATS - 1);
    const char *bad = memmem(events.p, events.n, "data: {\"error\"", 14);
    if (bad || !at) {
        size_t left = bad ? events.n - (size_t)(bad + 6 - events.p) : 0;
        const char *end = bad ? memchr(bad, '\n', left + 6) : NULL;
        struct view line = {bad ? bad + 6 : "", end ? (size_t)(end - bad) - 6 : left};
        json_t *j = line.n ? json_parse(line, NULL) : NULL;
        const char *text = daemon_text(json_object_get(j, "error"), "message");
        err_set(e, ERR_NET, "%s", *text ? text : "the answer ended without figures");
        json_decref(j);
        return false;
    }
    at += sizeof STATS - 1;
    size_t left = events.n - (size_t)(at - events.p);
    const char *end = memchr(at, '\n', left);
    json_t *j = json_parse((struct view){at, end ? (size_t)(end - at) : left}, e);
    if (!j) return err_wrap(e, "the figures of an answer");
    *out = (struct bench_reply){.prompt_tps = json_number_value(json_object_get(j, "prompt_tps")),
                                .generation_tps =
                                    json_number_value(json_object_get(j, "generation_tps")),
                                .prompt_tokens = (u32)daemon_u64(j, "prompt_tokens"),
                                .generation_tokens = (u32)daemon_u64(j, "generation_tokens")};
    json_decref(j);
    return true;
}

void bench_prompt(struct str *out, u32 n, u32 salt) {
    for (u32 i = 0; i < n; i++) {
        if (i) str_addc(out, ' ');
        str_addc(out, (char)('a' + (i ? 0 : salt % 26)));
    }
}

/* Ctrl-C ends what is under way, so that the instance can still be taken away. */
static bool interrupted(struct err *e) {
    if (cli_interrupts(false)) err_set(e, ERR_CANCELLED, "stopped");
    return cli_interrupts(false) > 0;
}

static bool take_bytes(void *ctx, const char *p, size_t n) {
    struct str *events = ctx;
    if (events->n + n > EVENTS_MAX_BYTES) return false;
    str_add(events, p, n);
    return !cli_interrupts(false);
}

/* One request of `words` words, answered in tg tokens whatever the model says. */
static bool ask(const struct bench_cluster *b, u32 words, u32 tg, u32 salt, struct bench_reply *out,
                struct err *e) {
    char url[512];
    struct daemon_headers headers;
    struct str prompt = {0}, body = {0};
    struct err why = {0};
    bench_prompt(&prompt, words, salt);
    json_t *q = json_pack("{s:s, s:b, s:b, s:i, s:i, s:[{s:s, s:s}]}", "model", b->model, "stream",
                          1, "ignore_eos", 1, "max_tokens", (int)tg, "temperature", 0, "messages",
                          "role", "user", "content", str_z(&prompt));
    json_dump(q, &body);
    struct http_client_req req = {
        .url = daemon_url(&b->daemon, "/v1/chat/completions", url),
        .headers = daemon_headers(&b->daemon, "Content-Type: application/json", NULL, &headers),
        .body = body.p,
        .n_body = body.n,
        .idle_timeout_ms = ANSWER_MS};
    struct http_client_res res = {0};
    struct str events = {0};
    bool ok = http_client_stream(&req, take_bytes, &events, &res, &why);
    if (interrupted(e))
        ok = false;
    else if (!ok)
        daemon_absent(&b->daemon, &why, e);
    else if (res.status / 100 != 2)
        ok = daemon_error(res.status, str_z(&res.body), e);
    else
        ok = bench_reply_read(str_view(&events), out, e);
    http_client_res_deinit(&res);
    str_deinit(&events);
    json_decref(q);
    str_deinit(&prompt);
    str_deinit(&body);
    return ok;
}

/* Nodes that are there; UINT32_MAX on failure. */
static u32 count_nodes(const struct bench_cluster *b, struct err *e) {
    json_t *state = daemon_call(&b->daemon, "/state", NULL, e);
    u32 n = state ? (u32)json_array_size(json_object_get(state, "nodes")) : UINT32_MAX;
    json_decref(state);
    return n;
}

/* Refuses a model that was placed before: requests would go to either instance. */
static bool is_alone(const json_t *state, const char *id, struct err *e) {
    json_t *instances = json_object_get(state, "instances"), *inst;
    const char *model = daemon_text(json_object_get(instances, id), "model"), *other;
    json_object_foreach(instances, other, inst) {
        if (strcmp(other, id) != 0 && strcmp(daemon_text(inst, "model"), model) == 0)
            return err_set(e, ERR_BUSY,
                           "%s is placed already, as instance %s: `skein stop` it first", model,
                           other);
    }
    return true;
}

/* Waits until the instance is ready; on how many nodes it is, and the bytes it takes there. */
static bool await_ready(const struct bench_cluster *b, const char *id, u32 *n_nodes, u64 *memory,
                        struct err *e) {
    for (u64 until = clock_ms() + PLACE_MS;; clock_sleep_ms(POLL_MS)) {
        json_t *state = daemon_call(&b->daemon, "/state", NULL, e);
        const json_t *inst = json_object_get(json_object_get(state, "instances"), id);
        const char *status = daemon_text(inst, "status");
        bool there = state != NULL && is_alone(state, id, e), ready = strcmp(status, "ready") == 0;
        bool failed = strcmp(status, "failed") == 0;
        if (failed) err_set(e, ERR_NET, "%s failed: %s", b->model, daemon_text(inst, "reason"));
        *n_nodes = (u32)json_array_size(json_object_get(inst, "shards"));
        *memory = daemon_u64(inst, "memory_instances");
        json_decref(state);
        if (!there || failed || interrupted(e)) return false;
        if (ready) return true;
        if (clock_ms() > until)
            return err_set(e, ERR_BUSY, "%s is not ready after %d s", b->model, PLACE_MS / 1000);
    }
}

static void take_away(const struct bench_cluster *b, const char *id) {
    char url[512], path[128];
    snprintf(path, sizeof path, "/instance/%.90s", id);
    struct daemon_headers headers;
    struct http_client_req q = {.method = "DELETE",
                                .url = daemon_url(&b->daemon, path, url),
                                .headers = daemon_headers(&b->daemon, NULL, NULL, &headers)};
    struct http_client_res r = {0};
    http_client_fetch(&q, &r, NULL);
    http_client_res_deinit(&r);
    for (u32 i = 0; i < 100; i++, clock_sleep_ms(POLL_MS)) { /* until its memory is free again */
        json_t *state = daemon_call(&b->daemon, "/state", NULL, NULL);
        bool gone = !json_object_get(json_object_get(state, "instances"), id);
        json_decref(state);
        if (gone) return;
    }
}

static void put_rates(struct str *o, const char *name, const double *v, u32 n, bool measured) {
    struct bench_stats s = bench_stats(v, n);
    const char *const suffix[] = {"", "_min", "_max"};
    const double value[] = {s.median, s.min, s.max};
    for (u32 i = 0; i < 3; i++) {
        char key[64];
        snprintf(key, sizeof key, "%s%s", name, suffix[i]);
        if (measured)
            json_put_num(o, key, value[i]);
        else
            json_put_null(o, key);
    }
}

/* Warms up with a request that also tells how many tokens the chat template adds to the words. */
static bool run_case(const struct bench_cluster *b, const struct bench_case *c, u32 n_nodes,
                     u64 memory, struct str *json, struct str *table, struct err *e) {
    double pp[BENCH_REPEAT_MAX], tg[BENCH_REPEAT_MAX];
    struct bench_reply r;
    u32 words = MAX(c->pp, 1u), n_tg = MAX(c->tg, 1u);
    if (!ask(b, words, MIN(n_tg, 4u), 0, &r, e)) return false;
    u32 added = r.prompt_tokens - MIN(r.prompt_tokens, words);
    words = words > added ? words - added : 1;
    for (u32 i = 0; i < b->repeat; i++) {
        if (!ask(b, words, n_tg, i + 1, &r, e)) return false;
        pp[i] = r.prompt_tps;
        tg[i] = r.generation_tps;
    }
    struct bench_stats p = bench_stats(pp, b->repeat), g = bench_stats(tg, b->repeat);
    str_addf(table, "%5u %-8s %6u %6u  %8.1f / %7.1f / %7.1f  ", n_nodes, b->sharding,
             r.prompt_tokens, r.generation_tokens, p.min, p.median, p.max);
    if (r.generation_tokens > 1)
        str_addf(table, "%8.1f / %7.1f / %7.1f\n", g.min, g.median, g.max);
    else /* the first token is the prompt's */
        str_addf(table, "%8s / %7s / %7s\n", "-", "-", "-");
    json_comma(json);
    str_addz(json, "\n{");
    json_put_str(json, "model", b->model);
    json_put_str(json, "version", version_text());
    json_put_u64(json, "num_nodes", n_nodes);
    json_put_str(json, "sharding", b->sharding);
    json_put_str(json, "kv_type", b->kv_type);
    json_put_u64(json, "pp_tokens", r.prompt_tokens);
    json_put_u64(json, "tg_tokens", r.generation_tokens);
    json_put_u64(json, "repeat", b->repeat);
    put_rates(json, "prompt_tps", pp, b->repeat, true);
    put_rates(json, "generation_tps", tg, b->repeat, r.generation_tokens > 1);
    json_put_u64(json, "peak_memory", memory);
    str_addc(json, '}');
    return true;
}

/* Are all layers on every node? An exo "Tensor" preview may also be of stages that are teams. */
static bool shares_all(const json_t *preview) {
    const json_t *ring =
        json_object_get(json_object_get(preview, "instance"), "MlxRingInstance");
    json_t *shards =
        json_object_get(json_object_get(ring, "shardAssignments"), "runnerToShard");
    const char *id;
    json_t *tagged;
    json_object_foreach(shards, id, tagged) {
        const json_t *s = json_object_get(tagged, "TensorShardMetadata");
        if (!s || daemon_u64(s, "startLayer") != 0 ||
            daemon_u64(s, "endLayer") != daemon_u64(s, "nLayers"))
            return false;
    }
    return true;
}

json_t *bench_preview(const json_t *reply, const char *sharding, u32 n, struct err *e) {
    const char *label = strcmp(sharding, "tensor") == 0 ? "Tensor" : "Pipeline", *why = "";
    json_t *list = json_object_get(reply, "previews"), *p;
    size_t i;
    json_array_foreach(list, i, p) {
        bool ring = strcmp(daemon_text(p, "instance_meta"), "MlxRing") == 0;
        if (!ring || strcmp(daemon_text(p, "sharding"), label) != 0) continue;
        if (*daemon_text(p, "error")) why = daemon_text(p, "error");
        if (json_object_size(json_object_get(p, "memory_delta_by_node")) != n) continue;
        if (strcmp(label, "Pipeline") == 0 || shares_all(p)) return json_object_get(p, "instance");
    }
    err_set(e, ERR_NOT_FOUND, "%s on %u node%s: %s", sharding, n, n == 1 ? "" : "s",
            *why ? why : "the cluster proposes no such placement");
    return NULL;
}

/* Places the model on exactly n nodes, as the cluster proposes it for so many. *possible is false
 * when it has no such proposal; *e says why. */
static bool place_on(const struct bench_cluster *b, u32 n, char id[64], bool *possible,
                     struct err *e) {
    struct str path = {0}, body = {0};
    struct daemon d = b->daemon;
    d.timeout_ms = PLACE_MS; /* the model may have to be fetched */
    str_addz(&path, "/instance/previews?model_id=");
    daemon_escape(&path, b->model);
    str_addf(&path, "&kv_type=%s", b->kv_type);
    json_t *reply = daemon_call(&d, str_z(&path), NULL, e), *placed = NULL;
    str_deinit(&path);
    *possible = reply == NULL;
    json_t *instance = reply ? bench_preview(reply, b->sharding, n, e) : NULL;
    if (instance) {
        *possible = true;
        json_dump(instance, &body);
        placed = daemon_call(&d, "/instance", str_z(&body), e);
    }
    str_copy(id, 64, daemon_text(placed, "instance_id"));
    str_deinit(&body);
    json_decref(reply);
    json_decref(placed);
    return placed != NULL || (*possible && err_wrap(e, "%u node%s", n, n == 1 ? "" : "s"));
}

static bool run_on(const struct bench_cluster *b, u32 n, const struct bench_case *cases,
                   u32 n_cases, bool *possible, struct str *json, struct str *table,
                   struct err *e) {
    char id[64];
    u32 n_nodes = 0;
    u64 memory = 0;
    if (!place_on(b, n, id, possible, e)) return false;
    bool ok = await_ready(b, id, &n_nodes, &memory, e);
    for (u32 i = 0; ok && i < n_cases; i++) {
        if (b->progress)
            fprintf(stderr, "%u nodes, %s, pp %u, tg %u\n", n_nodes, b->sharding, cases[i].pp,
                    cases[i].tg);
        ok = run_case(b, &cases[i], n_nodes, memory, json, table, e);
    }
    take_away(b, id);
    return ok;
}

/* A kind of sharding on 1, 2, ... nodes. What can't be is left out. */
static bool run_kind(const struct bench_cluster *b, const struct bench_case *cases, u32 n,
                     u32 there, struct str *json, struct str *table, u32 *n_done, struct err *e) {
    u32 first = strcmp(b->sharding, "tensor") == 0 ? 2 : 1; /* slices need two nodes */
    for (u32 k = first; k <= MIN(MAX(b->max_nodes, first), there); k++) {
        bool possible;
        if (run_on(b, k, cases, n, &possible, json, table, e))
            ++*n_done;
        else if (possible)
            return false;
        else
            fprintf(stderr, "left out: %s\n", e->msg);
    }
    return true;
}

bool bench_cluster_run(const struct bench_cluster *b, const struct bench_case *cases, u32 n,
                       struct str *json, struct str *table, struct err *e) {
    static const char *const KINDS[] = {"pipeline", "tensor"};
    u32 there = count_nodes(b, e), n_done = 0;
    if (there == UINT32_MAX) return false;
    str_addf(table, "%s\n\n%5s %-8s %6s %6s  %29s  %29s\n", b->model, "nodes", "sharding", "pp",
             "tg", "prefill t/s, min/median/max", "generation, min/median/max");
    if (there < 2 && strcmp(b->sharding, "tensor") == 0)
        return err_set(e, ERR_ARG, "tensor sharding is measured on 2 nodes or more: %u %s there",
                       there, there == 1 ? "is" : "are");
    for (u32 i = 0; i < ARRAY_LEN(KINDS); i++) {
        struct bench_cluster one = *b;
        one.sharding = KINDS[i];
        if (strcmp(b->sharding, "both") != 0 && strcmp(b->sharding, KINDS[i]) != 0) continue;
        if (!run_kind(&one, cases, n, there, json, table, &n_done, e)) return false;
    }
    return n_done > 0;
}
