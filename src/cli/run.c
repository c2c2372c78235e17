#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/paths.h"
#include "base/random.h"
#include "cli/chat.h"
#include "cli/cli.h"
#include "cli/progress.h"
#include "kernels/pool.h"

struct run {
    const char *model;
    struct session_cfg session;
    struct ask ask;
    bool offline, chat;
};

static bool find_model(struct run *r, struct store_model *m, struct err *e) {
    struct store *s = cli_store(r->offline, e);
    struct progress p = {.what = r->model};
    if (!s) return false;
    bool ok = store_resolve(s, r->model, m, e);
    p.what = m->id;
    if (ok && !m->path[0]) {
        char size[32];
        fprintf(stderr, "%s is not on this machine yet: fetching it (%s)\n", m->id,
                size_text(m->size_bytes, size));
        ok = store_fetch(s, r->model, progress_show, &p, m, e);
        progress_end(&p);
    }
    store_close(s);
    return ok;
}

static const char *history_file(char path[1100]) {
    struct paths p;
    if (!paths_init(&p, NULL, NULL) || !file_make_dirs(p.state, NULL)) return NULL;
    return paths_join(path, 1100, p.state, "chat_history") ? path : NULL;
}

static void greet(const struct session *s, const struct store_model *m) {
    char mem[32];
    fprintf(stderr,
            "%s: %u layers, context of %u tokens, %s, %u threads (%s). /help lists the commands.\n",
            m->id, s->ready.model.n_layers, s->ready.n_ctx,
            size_text(s->ready.weights_bytes + s->ready.kv_bytes + s->ready.scratch_bytes, mem),
            s->ready.n_threads, s->ready.isa);
}

static int answer(struct run *r, const struct store_model *m, struct str *prompt, int wake_fd) {
    struct session s;
    struct err e = {0};
    char history[1100];
    r->session.path = m->path;
    r->session.label = m->id;
    r->session.show_loading = true;
    if (!session_open(&s, &r->session, wake_fd, &e)) return opts_fail(&e);
    if (!r->ask.raw && !s.ready.model.has_template) {
        fprintf(
            stderr,
            "%s has no chat template, it is a base model: it continues the text (--raw says so)\n",
            m->id);
        r->ask.raw = true;
    }
    bool chat = prompt->n == 0, tty = isatty(STDIN_FILENO);
    if (chat && tty) greet(&s, m);
    int code = chat ? chat_loop(&s, &r->ask, tty ? history_file(history) : NULL)
                    : chat_once(&s, &r->ask, str_z(prompt));
    session_close(&s);
    return code;
}

static int run(struct run *r, int n, char **words) {
    struct err e = {0};
    struct store_model m = {0};
    struct str prompt = {0};
    int wake_fd = cli_catch_interrupts(&e);
    bool asks = n > 0 || (!r->chat && !isatty(STDIN_FILENO)); /* else it is a chat */
    bool ok = wake_fd >= 0 && (!asks || cli_prompt(n, words, &prompt, &e)) &&
              (prompt.n || r->chat || isatty(STDIN_FILENO) ||
               err_set(&e, ERR_ARG, "the prompt is empty")) &&
              find_model(r, &m, &e);
    int code = ok ? answer(r, &m, &prompt, wake_fd) : opts_fail(&e);
    str_deinit(&prompt);
    return code;
}

static const char TEXT[] =
    "Answers on this machine alone, without a node. MODEL is a name from `skein models` or the "
    "path of a\n"
    ".gguf file; a model that is not here yet is fetched first. Without PROMPT it is a chat: /help "
    "there\n"
    "lists its commands. Text on standard input is the prompt when there is no other; \"-\" among "
    "the words\n"
    "of PROMPT puts it there. Ctrl-C stops an answer, a second one ends the program.\n\n"
    "Examples:\n"
    "  skein run smollm2 \"Why is the sky blue?\"\n"
    "  skein run ./model.gguf --temp 0 -n 100 \"The capital of France is\" --raw\n"
    "  git diff | skein run smollm2 \"Summarize this change:\" -\n"
    "  skein run smollm2 --system \"Answer in French.\"";

int cmd_run(int argc, char **argv) {
    struct run r = {.chat = strcmp(argv[0], "chat") == 0,
                    .session.cpu_mask = "",
                    .session.kv_type = "f16",
                    .session.act_bits = 16,
                    .ask.sampling = {.temperature = 0.7f,
                                     .top_p = 0.95f,
                                     .top_k = 40,
                                     .min_p = 0.05f,
                                     .seed = random_u64()}};
    struct opt opts[] = {
        {"model", OPT_STR, &r.model, "instead of the first argument", .letter = 'm',
         .value = "MODEL"},
        {"system", OPT_STR, &r.ask.system, "what the model should know beforehand", .letter = 's',
         .value = "TEXT"},
        {"max-tokens", OPT_U32, &r.ask.max_tokens, "longest answer; 0: up to the context's end",
         .letter = 'n', .value = "N"},
        {"temp", OPT_F32, &r.ask.sampling.temperature,
         "0: always the likeliest token (default 0.7)", .value = "T", .max = 5},
        {"top-p", OPT_F32, &r.ask.sampling.top_p,
         "smallest set of tokens with this probability (0.95)", .value = "P", .max = 1},
        {"top-k", OPT_U32, &r.ask.sampling.top_k, "so many likeliest tokens; 0: all (40)",
         .value = "K", .max = 1e6},
        {"min-p", OPT_F32, &r.ask.sampling.min_p,
         "at least this share of the likeliest's probability (0.05)", .value = "P", .max = 1},
        {"repeat-penalty", OPT_F32, &r.ask.sampling.repetition_penalty, "above 1: less repetition",
         .value = "R", .max = 10},
        {"seed", OPT_U64, &r.ask.sampling.seed,
         "the same seed gives the same answer (default: random)", .value = "N"},
        {"ctx", OPT_U32, &r.session.n_ctx, "context in tokens; 0: the model's, as memory allows",
         .letter = 'c', .word = "ctx-size", .value = "N", .env = "CTX"},
        {"threads", OPT_U32, &r.session.n_threads, "0: one a core", .letter = 't', .value = "N",
         .max = POOL_MAX_THREADS, .env = "THREADS"},
        {"kv-type", OPT_STR, &r.session.kv_type, "KV cache: f16, or q8 for half the memory (f16)",
         .value = "TYPE", .env = "KV_TYPE"},
        {"activations", OPT_U32, &r.session.act_bits,
         "bits beside quantized weights: 16, or 8, faster and less exact (16)", .value = "BITS",
         .env = "ACTIVATIONS"},
        {"cpu-mask", OPT_STR, &r.session.cpu_mask,
         "at most these: ref avx2 avx512 vnni amx; ref neon dotprod i8mm", .value = "SET",
         .env = "CPU_MASK"},
        {"raw", OPT_FLAG, &r.ask.raw, .help = "continue the text as is, without chat template"},
        {"offline", OPT_FLAG, &r.offline, "never fetch anything", .env = "OFFLINE"},
        {"verbose", OPT_FLAG, &r.ask.verbose, "tokens per second, on standard error",
         .letter = 'v'},
        {"gpu-layers", OPT_IGNORE, NULL, "accepted; this build computes on the CPU", .word = "ngl",
         .value = "N"},
        {"n-gpu-layers", OPT_IGNORE, NULL, NULL, .value = "N"},
        {"port", OPT_IGNORE, NULL, NULL, .value = "PORT"},
        {"host", OPT_IGNORE, NULL, NULL, .value = "HOST"},
    };
    const struct opts_cmd cmd = {argv[0][0] == 'c' ? "chat" : "run",
                                 "MODEL [PROMPT...]",
                                 "ask a model on this machine, or chat with it",
                                 TEXT,
                                 opts,
                                 ARRAY_LEN(opts),
                                 0,
                                 -1};
    int n, code;
    if (!opts_parse(&cmd, argc, argv, &n, &code)) return code;
    bool named = r.model != NULL;
    if (!named && n == 0) {
        fprintf(stderr, "skein %s: which model? `skein models` lists them: skein run smollm2\n",
                cmd.name);
        return EXIT_USAGE;
    }
    if (!named) r.model = argv[0];
    return run(&r, n - !named, argv + !named);
}
