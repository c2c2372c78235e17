#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "cli/daemon.h"

enum { POLL_MS = 200 };

/* The newest state of the model's instance in `text`. 1: ready, -1: failed (*e), 0: neither yet. */
static int look(const struct daemon *d, const char *model, char text[160], struct err *e) {
    json_t *state = daemon_call(d, "/state", NULL, e), *inst;
    const char *id;
    int result = state ? 0 : -1;
    json_object_foreach(json_object_get(state, "instances"), id, inst) {
        const char *status = daemon_text(inst, "status");
        if (strcmp(daemon_text(inst, "model"), model) != 0) continue;
        snprintf(text, 160, "%.40s %.100s", status, daemon_text(inst, "reason"));
        if (strcmp(status, "ready") == 0) result = 1;
        if (strcmp(status, "failed") != 0) continue;
        err_set(e, ERR_NET, "%s could not be placed: %s", model, daemon_text(inst, "reason"));
        result = -1;
    }
    json_decref(state);
    return result;
}

static bool await_ready(const struct daemon *d, const char *model, u32 timeout_s, struct err *e) {
    char text[160] = "", told[160] = "";
    u64 until = clock_ms() + (u64)timeout_s * 1000;
    for (int got; (got = look(d, model, text, e)) != 1;) {
        if (got < 0) return false;
        if (cli_interrupts(false))
            return err_set(e, ERR_CANCELLED, "stopped; the cluster goes on placing %s", model);
        if (clock_ms() > until)
            return err_set(e, ERR_BUSY, "%s is not ready after %u s: %s", model, timeout_s, text);
        if (strcmp(text, told) != 0) fprintf(stderr, "%s: %s\n", model, text);
        str_copy(told, sizeof told, text);
        clock_sleep_ms(POLL_MS);
    }
    return true;
}

/* The id under which the node knows the model, when its answer tells; else what was asked for. */
static const char *placed_model(const json_t *reply, const char *asked) {
    const char *id = daemon_text(json_object_get(reply, "model_card"), "modelId");
    return *id ? id : asked;
}

int cmd_place(int argc, char **argv) {
    struct daemon d = daemon_default();
    u32 min_nodes = 0, timeout_s = 600;
    struct opt opts[] = {
        DAEMON_OPTS(&d),
        {"min-nodes", OPT_U32, &min_nodes,
         "spread it over at least so many nodes; 0: all that help", .value = "N", .max = 10000},
        {"timeout", OPT_U32, &timeout_s, "how long to wait until it is ready (600)",
         .value = "SECONDS", .max = 86400},
    };
    const struct opts_cmd cmd = {"place",
                                 "MODEL",
                                 "load a model onto a running cluster",
                                 "A request for a model that is not loaded places it too; this "
                                 "does it beforehand and waits until it is\n"
                                 "ready.\n\nExample:\n  skein place smollm2 --min-nodes 2",
                                 opts,
                                 ARRAY_LEN(opts),
                                 1,
                                 1};
    int n, code;
    struct err e = {0};
    if (!opts_parse(&cmd, argc, argv, &n, &code)) return code;
    if (cli_catch_interrupts(&e) < 0) return opts_fail(&e);
    json_t *ask = json_pack("{s:s, s:s, s:I}", "model_id", argv[0], "sharding", "Pipeline",
                            "min_nodes", (json_int_t)MAX(min_nodes, 1u));
    if (!min_nodes) json_object_del(ask, "min_nodes");
    struct str body = {0};
    json_dump(ask, &body);
    json_t *reply = daemon_call(&d, "/place_instance", str_z(&body), &e);
    bool ok = reply && await_ready(&d, placed_model(reply, argv[0]), timeout_s, &e);
    if (ok) printf("%s is ready\n", placed_model(reply, argv[0]));
    json_decref(reply);
    json_decref(ask);
    str_deinit(&body);
    return ok ? EXIT_OK : opts_fail(&e);
}
