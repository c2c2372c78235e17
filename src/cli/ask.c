#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "cli/daemon.h"
#include "net/http_client.h"

/* One streamed answer as it comes in. */
struct reply {
    struct http_sse sse;
    struct err *e; /* what the node said instead of an answer */
    u64 start_us, first_us, last_us;
    u64 n_prompt, n_answer;
    bool done, in_line; /* [DONE] came; the cursor stands behind text */
};

static bool take_event(void *ctx, const char *data, size_t n) {
    struct reply *r = ctx;
    struct err e = {0};
    if (n == 6 && memcmp(data, "[DONE]", 6) == 0) return r->done = true;
    json_t *j = json_parse((struct view){data, n}, &e), *usage = json_object_get(j, "usage"),
           *error = json_object_get(j, "error");
    const char *text = daemon_text(
        json_object_get(json_array_get(json_object_get(j, "choices"), 0), "delta"), "content");
    if (*text) {
        r->last_us = clock_us();
        if (!r->first_us) r->first_us = r->last_us;
        r->in_line = text[strlen(text) - 1] != '\n';
        cli_print(text);
    }
    if (json_is_object(usage)) {
        r->n_prompt = daemon_u64(usage, "prompt_tokens");
        r->n_answer = daemon_u64(usage, "completion_tokens");
    }
    bool ok = j && !error;
    if (error)
        err_set(r->e, ERR_NET, "%s", daemon_text(error, "message"));
    else if (!j)
        *r->e = e;
    json_decref(j);
    return ok;
}

static bool take_bytes(void *ctx, const char *p, size_t n) {
    struct reply *r = ctx;
    return cli_interrupts(false) == 0 &&
           (n == 0 || http_sse_feed(&r->sse, p, n, take_event, r, r->e));
}

static void print_timings(const struct reply *r) {
    double s = (double)(r->last_us - r->first_us) / 1e6;
    fprintf(stderr, "%llu tokens in, %llu out", (unsigned long long)r->n_prompt,
            (unsigned long long)r->n_answer);
    if (r->first_us)
        fprintf(stderr, "; first after %.2f s", (double)(r->first_us - r->start_us) / 1e6);
    if (r->n_answer > 1 && s > 0)
        fprintf(stderr, ", then %.1f tokens/s", (double)(r->n_answer - 1) / s);
    fprintf(stderr, "\n");
}

static bool exchange(const struct daemon *d, const char *body, struct reply *r, struct err *e) {
    char url[512];
    struct daemon_headers headers;
    struct http_client_req q = {.url = daemon_url(d, "/v1/chat/completions", url),
                                .headers = daemon_headers(d, "Content-Type: application/json",
                                                          "Accept: text/event-stream", &headers),
                                .body = body,
                                .n_body = strlen(body)};
    struct http_client_res res = {0};
    struct err why = {0}, said = {0};
    r->e = &said;
    r->start_us = clock_us();
    bool ok = http_client_stream(&q, take_bytes, r, &res, &why);
    if (r->in_line) putchar('\n');
    fflush(stdout);
    if (said.code)
        ok = err_set(e, said.code, "%s", said.msg);
    else if (!ok && cli_interrupts(false))
        err_set(e, ERR_CANCELLED, "stopped");
    else if (!ok && r->first_us)
        err_set(e, ERR_NET, "the answer broke off: %s", why.msg);
    else if (!ok)
        daemon_absent(d, &why, e);
    else if (res.status / 100 != 2)
        ok = daemon_error(res.status, str_z(&res.body), e);
    else if (!r->done)
        ok = err_set(e, ERR_NET, "the answer broke off before its end");
    http_client_res_deinit(&res);
    http_sse_deinit(&r->sse);
    return ok;
}

/* The request's text; members that were not asked for are left to the node. */
static void build(struct str *out, const char *model, const char *system, const char *prompt,
                  float temp, u32 max_tokens, const u64 *seed) {
    json_t *q = json_pack("{s:s, s:b, s:{s:b}, s:[]}", "model", model, "stream", 1,
                          "stream_options", "include_usage", 1, "messages");
    json_t *messages = json_object_get(q, "messages");
    if (system)
        json_array_append_new(messages,
                              json_pack("{s:s, s:s}", "role", "system", "content", system));
    json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "user", "content", prompt));
    if (temp >= 0) json_object_set_new(q, "temperature", json_real((double)temp));
    if (max_tokens) json_object_set_new(q, "max_tokens", json_integer(max_tokens));
    if (*seed) json_object_set_new(q, "seed", json_integer((json_int_t)*seed));
    json_dump(q, out);
    json_decref(q);
}

static const char TEXT[] =
    "Sends one question to a node's HTTP API and prints the answer as it comes. The cluster loads\n"
    "the model first when it has to. Text on standard input is the question when there is no\n"
    "other; \"-\" among the words of PROMPT puts it there.\n"
    "\n"
    "Examples:\n"
    "  skein ask \"Why is the sky blue?\"\n"
    "  git diff | skein ask \"Summarize this change:\" -\n"
    "  skein ask --port 52425 -m smollm2 -v Hello";

int cmd_ask(int argc, char **argv) {
    struct daemon d = daemon_default();
    const char *model = "default", *system = NULL;
    float temp = -1;
    u32 max_tokens = 0;
    u64 seed = 0;
    bool verbose = false;
    char name[CLI_PATH_MAX];
    struct opt opts[] = {
        DAEMON_OPTS(&d),
        {"model", OPT_STR, &model, "which model (default)", .letter = 'm', .value = "MODEL"},
        {"system", OPT_STR, &system, "what the model should know beforehand", .letter = 's',
         .value = "TEXT"},
        {"max-tokens", OPT_U32, &max_tokens, "longest answer", .letter = 'n', .value = "N"},
        {"temp", OPT_F32, &temp, "0: always the likeliest token", .value = "T", .max = 2},
        {"seed", OPT_U64, &seed, "the same seed gives the same answer", .value = "N", .max = 9e18},
        {"verbose", OPT_FLAG, &verbose, "tokens per second, on standard error", .letter = 'v'},
    };
    const struct opts_cmd cmd = {
        "ask", "[PROMPT...]", "ask a running node", TEXT, opts, ARRAY_LEN(opts), 0, -1};
    int n, code;
    struct err e = {0};
    struct str prompt = {0}, body = {0};
    struct reply r = {0};
    if (!opts_parse(&cmd, argc, argv, &n, &code)) return code;
    if (cli_catch_interrupts(&e) < 0) return opts_fail(&e);
    if (n == 0 && isatty(STDIN_FILENO))
        err_set(&e, ERR_ARG, "what is the question? skein ask \"Why is the sky blue?\"");
    else if (cli_prompt(n, argv, &prompt, &e) && !utf8_valid(str_z(&prompt), prompt.n))
        err_set(&e, ERR_ARG, "the question is no valid UTF-8");
    else if (!e.code && prompt.n == 0)
        err_set(&e, ERR_ARG, "the question is empty");
    if (!e.code && cli_node_model(model, name, &e))
        build(&body, name, system, str_z(&prompt), temp, max_tokens, &seed);
    bool ok = !e.code && exchange(&d, str_z(&body), &r, &e);
    if (ok && verbose) print_timings(&r);
    str_deinit(&prompt);
    str_deinit(&body);
    return ok ? EXIT_OK : opts_fail(&e);
}
