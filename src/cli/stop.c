#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "cli/daemon.h"

enum { POLL_MS = 50, GONE_MS = 10000 };

static const char TEXT[] =
    "Takes an instance away, or all instances of a model: their runners end and their memory is\n"
    "free again. Requests under way go on in another instance of the model, or end with an error;\n"
    "the next request brings the model back.\n"
    "\n"
    "Examples:\n"
    "  skein stop smollm2-135m-instruct\n"
    "  skein stop 0199a1b2";

static bool fits(const char *id, const json_t *inst, const char *what) {
    size_t n = strlen(what);
    const char *model = daemon_text(inst, "model");
    return strcmp(model, what) == 0 || strcmp(id, what) == 0 ||
           (n >= 4 && strncmp(id, what, n) == 0);
}

/* Of a model all instances are meant; of ids one, and those that were made in the same minute begin
 * alike. */
static bool is_one(const json_t *insts, const char *what, struct err *e) {
    const char *id;
    json_t *inst;
    u32 n = 0;
    json_object_foreach((json_t *)(uintptr_t)insts, id, inst) {
        if (strcmp(daemon_text(inst, "model"), what) == 0 || strcmp(id, what) == 0) return true;
        n += fits(id, inst, what);
    }
    return n < 2 || err_set(e, ERR_ARG,
                            "the ids of %u instances begin with %.60s: say more of the one that is "
                            "meant, `skein ps` lists them",
                            n, what);
}

/* The id behind an alias, as the node's list of models has it; `what` itself where there is none.
 */
static const char *id_of(const struct daemon *d, const char *what, json_t **reply) {
    char path[600];
    snprintf(path, sizeof path, "/models/%.500s", what);
    *reply = daemon_call(d, path, NULL, NULL);
    const char *id = daemon_text(*reply, "id");
    return *id ? id : what;
}

/* Until the node lists it no more, so that what is asked next finds its memory free. Not longer
 * than a while: a cluster without a master takes nothing away before it has one. */
static bool await_gone(const struct daemon *d, const char *id) {
    for (u64 until = clock_ms() + GONE_MS; clock_ms() < until; clock_sleep_ms(POLL_MS)) {
        json_t *state = daemon_call(d, "/state", NULL, NULL);
        bool there = !state || json_object_get(json_object_get(state, "instances"), id);
        json_decref(state);
        if (!there) return true;
    }
    return false;
}

static int stop_all(const struct daemon *d, const json_t *state, const char *what, struct err *e) {
    json_t *insts = json_object_get(state, "instances"), *inst;
    const char *id;
    int n = 0;
    json_object_foreach(insts, id, inst) {
        char path[128];
        if (!fits(id, inst, what)) continue;
        snprintf(path, sizeof path, "/instance/%.60s", id);
        json_t *r = daemon_method(d, "DELETE", path, NULL, e);
        if (!r) return -1;
        json_decref(r);
        printf("%s %s: instance %s\n", daemon_text(inst, "model"),
               await_gone(d, id) ? "stopped" : "is being stopped", id);
        n++;
    }
    return n;
}

int cmd_stop(int argc, char **argv) {
    struct daemon d = daemon_default();
    struct opt opts[] = {DAEMON_OPTS(&d)};
    const struct opts_cmd cmd = {"stop",
                                 "MODEL|INSTANCE",
                                 "unload a model from a running cluster",
                                 TEXT,
                                 opts,
                                 ARRAY_LEN(opts),
                                 1,
                                 1};
    char name[CLI_PATH_MAX];
    int n, code;
    struct err e = {0};
    if (!opts_parse(&cmd, argc, argv, &n, &code)) return code;
    json_t *state = daemon_call(&d, "/state", NULL, &e), *model = NULL;
    if (!state) return opts_fail(&e);
    bool one = is_one(json_object_get(state, "instances"), argv[0], &e);
    int stopped = one ? stop_all(&d, state, argv[0], &e) : -1;
    if (stopped == 0 && !cli_node_model(argv[0], name, &e)) stopped = -1;
    if (stopped == 0) stopped = stop_all(&d, state, id_of(&d, name, &model), &e);
    if (stopped == 0)
        err_set(&e, ERR_NOT_FOUND,
                "there is no instance or loaded model %.200s: `skein ps` lists them", argv[0]);
    json_decref(state);
    json_decref(model);
    return stopped > 0 ? EXIT_OK : opts_fail(&e);
}
