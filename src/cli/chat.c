#include "cli/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/random.h"
#include "cli/chat_input.h"
#include "cli/cli.h"
#include "cli/line.h"

static json_t *message(const char *role, const char *text) {
    struct str clean = {0};
    utf8_add_lossy(&clean, text, strlen(text));
    json_t *m = json_pack("{s:s, s:s}", "role", role, "content", str_z(&clean));
    str_deinit(&clean);
    return m;
}

/* Prints as it comes and keeps what was printed. */
static void show(void *ctx, const char *text) {
    str_addz(ctx, text);
    cli_print(text);
}

static double per_second(u32 n, u64 us) {
    return us ? n * 1e6 / (double)us : 0;
}

static void print_timings(const struct msg_done *d) {
    static const char *const WHY[] = {"?", "the model ended it", "length limit", "stopped"};
    fprintf(stderr,
            "prompt: %u tokens (%u cached), %.1f tokens/s; answer: %u tokens, %.1f tokens/s; %s\n",
            d->n_prompt, d->n_cached, per_second(d->n_prompt - d->n_cached, d->prefill_us),
            d->n_generated, per_second(d->n_generated ? d->n_generated - 1 : 0, d->decode_us),
            d->finish < ARRAY_LEN(WHY) ? WHY[d->finish] : WHY[0]);
}

/* messages NULL: `raw` as it is, without a template. */
static bool generate(struct session *s, const struct ask *ask, const json_t *messages,
                     const char *raw, struct str *answer, struct msg_done *done, struct err *e) {
    struct str vars = {0}, text = {0};
    utf8_add_lossy(&text, raw, strlen(raw)); /* a file of another encoding, say */
    struct msg_generate m = {
        .max_tokens = ask->max_tokens, .sampling = ask->sampling, .prompt = str_z(&text)};
    if (messages) {
        str_addz(&vars, "{\"messages\":");
        json_dump(messages, &vars);
        str_addc(&vars, '}');
        m.vars_json = str_z(&vars);
    }
    bool ok = session_generate(s, &m, show, answer, done, e);
    str_deinit(&vars);
    str_deinit(&text);
    if (answer->n && answer->p[answer->n - 1] != '\n') putchar('\n');
    fflush(stdout);
    if (ok && ask->verbose) print_timings(done);
    return ok;
}

int chat_once(struct session *s, const struct ask *ask, const char *prompt) {
    struct err e = {0};
    struct msg_done done = {0};
    struct str answer = {0};
    json_t *messages = ask->raw ? NULL : json_array();
    if (messages && ask->system) json_array_append_new(messages, message("system", ask->system));
    if (messages) json_array_append_new(messages, message("user", prompt));
    bool ok = generate(s, ask, messages, prompt, &answer, &done, &e);
    json_decref(messages);
    str_deinit(&answer);
    if (!ok) return opts_fail(&e);
    return done.finish == FINISH_CANCELLED ? 128 + 2 : EXIT_OK; /* as a program that SIGINT ended */
}

struct chat {
    struct session *s;
    struct ask ask;
    char *system;     /* ask.system, owned */
    json_t *messages; /* without the system message */
    bool leave;
};

static const char HELP[] =
    "  \"\"\"             begins and ends a message of several lines; so does \\ at a line's end\n"
    "  /clear          forget the conversation\n"
    "  /system TEXT    what the model should know beforehand; alone: show it\n"
    "  /set NAME N     temp, top-p, top-k, min-p, seed, max-tokens; alone: show them\n"
    "  /exit           leave (so does Ctrl-D); Ctrl-C stops an answer\n";

static void show_settings(const struct ask *a) {
    printf("temp %g, top-p %g, top-k %u, min-p %g, seed %llu, max-tokens %u\n",
           (double)a->sampling.temperature, (double)a->sampling.top_p, a->sampling.top_k,
           (double)a->sampling.min_p, (unsigned long long)a->sampling.seed, a->max_tokens);
}

/* "temp 0.2": through the same table as the command line, so names, limits and errors are the same.
 */
static void set(struct chat *c, const char *text) {
    struct msg_sampling *s = &c->ask.sampling;
    struct opt opts[] = {
        {"temp", OPT_F32, &s->temperature, .help = "", .max = 5},
        {"top-p", OPT_F32, &s->top_p, .help = "", .max = 1},
        {"top-k", OPT_U32, &s->top_k, .help = "", .max = 1e6},
        {"min-p", OPT_F32, &s->min_p, .help = "", .max = 1},
        {"seed", OPT_U64, &s->seed, .help = ""},
        {"max-tokens", OPT_U32, &c->ask.max_tokens, .help = ""},
    };
    const struct opts_cmd cmd = {"set", NULL, "", NULL, opts, ARRAY_LEN(opts), 0, 0};
    char option[32], value[48];
    size_t n = strcspn(text, " "), n_value;
    const char *from = text + n + strspn(text + n, " ");
    bool known = false;
    struct err e = {0};
    int n_args;
    if (!*text) {
        show_settings(&c->ask);
        return;
    }
    for (n_value = strlen(from); n_value && from[n_value - 1] == ' ';) n_value--;
    for (u32 i = 0; i < ARRAY_LEN(opts); i++)
        known |= strlen(opts[i].name) == n && memcmp(opts[i].name, text, n) == 0;
    if (!known || !n_value || n_value >= sizeof value) {
        printf("/set NAME N, such as /set temp 0.2; names are temp, top-p, top-k, min-p, seed, "
               "max-tokens\n");
        return;
    }
    snprintf(option, sizeof option, "--%.*s", (int)n, text);
    snprintf(value, sizeof value, "%.*s", (int)n_value, from);
    char *argv[] = {"set", option, value, NULL};
    if (opts_read(&cmd, 3, argv, &n_args, NULL, &e))
        show_settings(&c->ask);
    else
        printf("%s\n", e.msg);
}

static void clear(struct chat *c) {
    json_array_clear(c->messages);
    printf("(a new conversation)\n");
}

static void set_system(struct chat *c, const char *text) {
    if (!*text) {
        printf("%s\n", c->system ? c->system : "(no system text)");
        return;
    }
    free(c->system);
    c->system = xstrdup(text);
}

static void command(struct chat *c, struct view name, const char *rest) {
    if (view_is(name, "exit") || view_is(name, "bye") || view_is(name, "quit"))
        c->leave = true;
    else if (view_is(name, "clear"))
        clear(c);
    else if (view_is(name, "system"))
        set_system(c, rest);
    else if (view_is(name, "set"))
        set(c, rest);
    else if (view_is(name, "help") || view_is(name, "?"))
        fputs(HELP, stdout);
    else
        printf("/%.*s is no command: /help lists them\n", VIEW_FMT(name));
    fflush(stdout);
}

static void explain(struct chat *c, const struct err *e) {
    fflush(stdout);
    fprintf(stderr, "skein: %s\n", e->msg);
    if (e->code == ERR_CONTEXT && json_array_size(c->messages))
        fprintf(stderr, "skein: the conversation has grown too long: /clear begins a new one\n");
}

static void answer(struct chat *c, const char *text) {
    struct err e = {0};
    struct msg_done done;
    struct str said = {0};
    json_t *all = c->ask.raw ? NULL : json_array();
    if (all && c->system) json_array_append_new(all, message("system", c->system));
    json_t *user = message("user", text);
    if (all) {
        json_array_extend(all, c->messages);
        json_array_append(all, user);
    }
    bool ok = generate(c->s, &c->ask, all, text, &said, &done, &e);
    if (ok) {
        json_array_append(c->messages, user);
        json_array_append_new(c->messages, message("assistant", str_z(&said)));
        if (done.finish == FINISH_CANCELLED) printf("(stopped)\n");
    } else {
        explain(c, &e);
    }
    c->ask.sampling.seed++; /* another answer to the same question */
    json_decref(all);
    json_decref(user);
    str_deinit(&said);
}

int chat_loop(struct session *s, const struct ask *ask, const char *history_path) {
    struct chat c = {.s = s, .ask = *ask, .messages = json_array()};
    struct line *in = line_open(history_path);
    struct chat_input typed = {0};
    u32 n_idle_interrupts = 0;
    if (ask->system) c.system = xstrdup(ask->system);
    while (!c.leave && session_alive(s)) {
        struct view name;
        const char *text, *rest;
        enum line_result r = line_read(in, typed.open ? "... " : ">>> ", &text);
        if (r == LINE_END && !typed.open) break;
        if (r == LINE_INTERRUPTED) {
            bool typing = typed.open;
            cli_interrupts(true);
            chat_input_reset(&typed);
            n_idle_interrupts += !typing;
            if (n_idle_interrupts > 1) break;
            printf("\n(Ctrl-C again or Ctrl-D leaves)\n");
            continue;
        }
        n_idle_interrupts = 0;
        if (r == LINE_END)
            chat_input_end(&typed); /* of a pipe: what follows is its end once more */
        else if (!chat_input_add(&typed, text))
            continue;
        const char *whole = str_z(&typed.text);
        if (!whole[strspn(whole, " \t\n")]) continue;
        line_remember(in, whole);
        if (chat_input_command(whole, &name, &rest))
            command(&c, name, rest);
        else
            answer(&c, whole);
        cli_interrupts(true);
    }
    bool died = !session_alive(s);
    chat_input_deinit(&typed);
    line_close(in);
    json_decref(c.messages);
    free(c.system);
    return died ? EXIT_FAIL : EXIT_OK;
}
