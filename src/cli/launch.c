#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "cli/daemon.h"
#include "cli/place_opts.h"

enum { POLL_MS = 200, APPEAR_MS = 5000 };

enum look { LOOK_FAILED, LOOK_ABSENT, LOOK_COMING, LOOK_READY };

/* Where instance `id` stands, in `text`; *e when it failed or the node does not answer. */
static enum look look(const struct daemon *d, const char *id, char text[160], struct err *e) {
    json_t *state = daemon_call(d, "/state", NULL, e);
    const json_t *inst = json_object_get(json_object_get(state, "instances"), id);
    const char *status = daemon_text(inst, "status");
    enum look result = !state ? LOOK_FAILED : !inst ? LOOK_ABSENT : LOOK_COMING;
    if (!state && cli_interrupts(false)) err_set(e, ERR_CANCELLED, "stopped"); /* reached or not */
    if (inst)
        snprintf(text, 160, "%.40s: %.30s%s%.80s", daemon_text(inst, "model"), status,
                 *daemon_text(inst, "reason") ? ": " : "", daemon_text(inst, "reason"));
    if (strcmp(status, "ready") == 0) result = LOOK_READY;
    if (strcmp(status, "failed") == 0) {
        err_set(e, ERR_NET, "%s", text);
        result = LOOK_FAILED;
    }
    json_decref(state);
    return result;
}

static bool await_ready(const struct daemon *d, const char *id, u32 timeout_s, struct err *e) {
    char text[160] = "", told[160] = "";
    u64 start = clock_ms(), until = start + (u64)timeout_s * 1000;
    bool seen = false;
    for (enum look l; (l = look(d, id, text, e)) != LOOK_READY; clock_sleep_ms(POLL_MS)) {
        if (l == LOOK_FAILED) return false;
        seen |= l == LOOK_COMING;
        /* The state that a node shows may be a moment older than its answer. */
        if (l == LOOK_ABSENT && (seen || clock_ms() - start > APPEAR_MS))
            return err_set(e, ERR_NET,
                           "the cluster no longer has the instance: somebody deleted it");
        if (cli_interrupts(false)) return err_set(e, ERR_CANCELLED, "stopped");
        if (clock_ms() > until)
            return err_set(e, ERR_BUSY, "not ready after %u s: %s", timeout_s, text);
        if (strcmp(text, told) != 0) fprintf(stderr, "%s\n", text);
        str_copy(told, sizeof told, text);
    }
    return true;
}

static const char TEXT[] =
    "Places a model over the cluster's nodes, as fast as it can be by what was measured of nodes "
    "and\n"
    "links, and waits until it is ready. A request for a model that is not loaded places it too.\n"
    "`skein plan MODEL` shows beforehand what would be done, and what it would bring.\n"
    "\n"
    "Examples:\n"
    "  skein launch smollm2 --min-nodes 2\n"
    "  skein launch llama-3.1-8b --sharding tensor --nodes studio,mini\n"
    "  skein launch smollm2 --layers studio=0-19,mini=20-29\n"
    "  skein launch smollm2 --replicas 2";

static bool launch(const struct daemon *d, const struct place_opts *o, const char *model,
                   u32 replicas, u32 timeout_s, struct err *e) {
    json_t *ask = place_opts_body(o, model), *id;
    struct str body = {0};
    if (replicas > 1) json_object_set_new(ask, "replicas", json_integer(replicas));
    json_dump(ask, &body);
    json_t *reply = daemon_call(d, "/place_instance", str_z(&body), e);
    bool ok = reply != NULL;
    size_t i;
    json_array_foreach(json_object_get(reply, "instance_ids"), i, id) {
        ok = ok && await_ready(d, json_string_value(id), timeout_s, e);
        if (ok) printf("%s is ready: instance %s\n", model, json_string_value(id));
    }
    if (!ok && e->code == ERR_CANCELLED)
        err_set(e, ERR_CANCELLED, "stopped; the cluster goes on loading it");
    json_decref(reply);
    json_decref(ask);
    str_deinit(&body);
    return ok;
}

int cmd_launch(int argc, char **argv) {
    struct daemon d = daemon_default();
    struct place_opts o = {.min_nodes = 0};
    u32 timeout_s = 600, replicas = 1;
    struct opt opts[] = {
        DAEMON_OPTS(&d),
        PLACE_OPTS(&o),
        {"replicas", OPT_U32, &replicas, "so many copies; requests go to the least busy (1)",
         .value = "N", .min = 1, .max = 64},
        {"timeout", OPT_U32, &timeout_s, "how long to wait until it is ready (600)",
         .value = "SECONDS", .min = 1, .max = 86400},
    };
    const struct opts_cmd cmd = {"launch", "MODEL", "load a model onto a running cluster",
                                 TEXT,     opts,    ARRAY_LEN(opts),
                                 1,        1};
    char model[CLI_PATH_MAX];
    int n, code;
    struct err e = {0};
    if (!opts_parse(&cmd, argc, argv, &n, &code)) return code;
    if (cli_catch_interrupts(&e) < 0) return opts_fail(&e);
    if (!cli_node_model(argv[0], model, &e)) return opts_fail(&e);
    d.stops_at_ctrl_c = true;
    d.timeout_ms = timeout_s * 1000; /* the node may have to fetch the model before it answers */
    return launch(&d, &o, model, replicas, timeout_s, &e) ? EXIT_OK : opts_fail(&e);
}
