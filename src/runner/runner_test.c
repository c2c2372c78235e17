/* Real runners, forked, on tiny random-weight models that build/mkmodel writes: one rank, and
 * stages and teams of ranks that must say what one says. */
#include "runner/runner.h"

#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/test.h"
#include "comm/team.h"
#include "wire/frame.h"
#include "wire/msg.h"

enum { N_LAYERS = 4, N_HEADS = 4, N_FF = 128, N_VOCAB = 384, MAX_RANKS = 6, WAIT_MS = 60000 };
static char model_path[256];
static u32 n_ctx = 128;

static void make_model(const char *family, const char *type) {
    const char *build = getenv("SKEIN_BUILD");
    char cmd[600];
    if (!build) build = "build";
    snprintf(model_path, sizeof model_path, "%s/runner_test.gguf", build);
    snprintf(cmd, sizeof cmd,
             "%s/mkmodel --arch %s --type %s --layers %d --dim 64 --heads %d --kv-heads 2 "
             "--head-dim 16 --ffn %d --vocab %d --ctx 16384 --seed 3 %s >/dev/null",
             build, family, type, N_LAYERS, N_HEADS, N_FF, N_VOCAB, model_path);
    if (system(cmd) == 0) return;
    fprintf(stderr, "can't run: %s\n", cmd);
    exit(1);
}

struct rank {
    int fd;
    pid_t pid;
    struct frame_in in;
    struct str out;
};

static void start(struct rank *k) {
    int sv[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
    *k = (struct rank){.fd = sv[0], .pid = fork()};
    if (k->pid == 0) {
        for (int fd = 3; fd < 64; fd++)
            if (fd != sv[1]) close(fd);
        _exit(runner_main(sv[1]));
    }
    close(sv[1]);
}

static void say(struct rank *k, u32 type, const void *msg) {
    frame_add(&k->out, type, msg);
    assert_int_equal(write(k->fd, k->out.p, k->out.n), (ssize_t)k->out.n);
    str_clear(&k->out);
}

/* Next frame; 0 when the runner has closed the channel. */
static u32 hear(struct rank *k, struct frame *f) {
    for (u64 until = clock_ms() + WAIT_MS; clock_ms() < until;) {
        int got = frame_in_next(&k->in, f, NULL);
        assert_true(got >= 0);
        if (got) return f->type;
        char buf[65536];
        if (poll(&(struct pollfd){k->fd, POLLIN, 0}, 1, 1000) <= 0) continue;
        ssize_t n = read(k->fd, buf, sizeof buf);
        if (n <= 0) return 0;
        frame_in_add(&k->in, buf, (size_t)n);
    }
    fail_msg("no answer in time");
    return 0;
}

static void hear_type(struct rank *k, u32 type, struct frame *f) {
    u32 t;
    do t = hear(k, f);
    while (t == MSG_PROGRESS || t == MSG_STATS);
    if (t == MSG_FAILED) {
        struct arena a = {0};
        struct msg_failed m;
        wire_decode(msg_table(t), f->body, f->n, &a, &m, NULL);
        fail_msg("runner failed: %s", m.text);
    }
    assert_int_equal(t, type);
}

static int stop(struct rank *k) {
    int st;
    close(k->fd);
    waitpid(k->pid, &st, 0);
    frame_in_deinit(&k->in);
    str_deinit(&k->out);
    return WIFEXITED(st) ? WEXITSTATUS(st) : -1;
}

static u8 KEY[32] = "an instance key of 32 bytes.....";

/* Stages, each with ranks that share its layers in parts of a whole. */
struct layout {
    u32 n_stages;
    struct {
        u32 layer_end, n, part[MAX_RANKS];
    } stage[MAX_RANKS];
};
static const struct layout ALONE = {1, {{4, 1, {1}}}}, TWO = {2, {{1, 1, {1}}, {4, 1, {1}}}},
                           THREE = {3, {{2, 1, {1}}, {3, 1, {1}}, {4, 1, {1}}}};

static u32 layout_ranks(const struct layout *l) {
    u32 n = 0;
    for (u32 i = 0; i < l->n_stages; i++) n += l->stage[i].n;
    return n;
}

static void cut(const u32 *part, u32 n_parts, u32 i, u32 n, u32 *first, u32 *end) {
    u32 all = 0, before = 0;
    for (u32 k = 0; k < n_parts; k++) {
        all += part[k];
        before += k < i ? part[k] : 0;
    }
    *first = n * before / all;
    *end = n * (before + part[i]) / all;
}

static void load(struct rank *k, const struct layout *l, u32 stage, u32 first, u32 i) {
    u32 n = l->stage[stage].n;
    const u32 *part = l->stage[stage].part;
    struct msg_load m = {.instance_id = "test",
                         .path = model_path,
                         .rank = first + i,
                         .n_ranks = layout_ranks(l),
                         .layer_first = stage ? l->stage[stage - 1].layer_end : 0,
                         .layer_end = l->stage[stage].layer_end,
                         .n_ctx = n_ctx,
                         .n_seq_max = 4,
                         .n_threads = 1,
                         .key = {KEY, 32},
                         .tp_first = n > 1 ? first : 0,
                         .tp_ranks = n > 1 ? n : 0,
                         .sum_wire = TEAM_F32,
                         .check_sums = 1,
                         .listen_host = "127.0.0.1"};
    if (n > 1) {
        cut(part, n, i, N_HEADS, &m.slice.head_first, &m.slice.head_end);
        cut(part, n, i, N_FF, &m.slice.ff_first, &m.slice.ff_end);
        cut(part, n, i, N_VOCAB, &m.slice.vocab_first, &m.slice.vocab_end);
    }
    say(k, MSG_LOAD, &m);
}

static u32 port_of(const struct frame *f) {
    struct arena a = {0};
    struct msg_listening m;
    assert_true(wire_decode(msg_table(MSG_LISTENING), f->body, f->n, &a, &m, NULL));
    arena_deinit(&a);
    return m.port;
}

static void connect_to(struct rank *k, u32 n, const u32 *port) {
    for (u32 i = 0; i < n && n > 1; i++) {
        struct msg_peer peer[MAX_RANKS];
        u32 p = 0;
        for (u32 j = 0; j < n; j++)
            if (j != i) peer[p++] = (struct msg_peer){j, "127.0.0.1", port[j], 0};
        struct msg_connect m = {{peer, p}};
        say(&k[i], MSG_CONNECT, &m);
    }
}

static void connect_all(struct rank *k, u32 n) {
    u32 port[MAX_RANKS] = {0};
    struct frame f;
    for (u32 i = 0; i < n && n > 1; i++) {
        hear_type(&k[i], MSG_LISTENING, &f);
        port[i] = port_of(&f);
    }
    connect_to(k, n, port);
}

static void start_group(struct rank *k, const struct layout *l) {
    struct frame f;
    u32 n = layout_ranks(l);
    for (u32 i = 0; i < n; i++) start(&k[i]);
    for (u32 stage = 0, first = 0; stage < l->n_stages; first += l->stage[stage++].n)
        for (u32 i = 0; i < l->stage[stage].n; i++) load(&k[first + i], l, stage, first, i);
    connect_all(k, n);
    for (u32 i = 0; i < n; i++) hear_type(&k[i], MSG_READY, &f);
}

/* Whole answers of compare_layouts. */
static u32 n_equal, n_compared;

struct answer {
    struct str text;
    i32 ids[128];
    float logprob[128];
    u32 n_ids, finish, n_prompt;
    bool error;
    char message[512];
};

/* Collects the answers of requests 1..n. */
static void collect(struct rank *k, struct answer *out, u32 n) {
    struct frame f;
    for (u32 open = n; open;) {
        u32 type = hear(k, &f);
        struct arena a = {0};
        if (type == MSG_TOKEN) {
            struct msg_token m;
            assert_true(wire_decode(msg_table(type), f.body, f.n, &a, &m, NULL));
            struct answer *o = &out[m.id - 1];
            str_addz(&o->text, m.text);
            const struct msg_logprobs *lp = m.logprobs.v;
            for (u64 i = 0; i < m.ids.n; i++) {
                if (m.logprobs.n == m.ids.n) o->logprob[o->n_ids] = lp[i].chosen.logprob;
                o->ids[o->n_ids++] = m.ids.v[i];
            }
        } else if (type == MSG_DONE) {
            struct msg_done m;
            assert_true(wire_decode(msg_table(type), f.body, f.n, &a, &m, NULL));
            out[m.id - 1].finish = m.finish;
            out[m.id - 1].n_prompt = m.n_prompt;
            open--;
        } else if (type == MSG_REQUEST_ERROR) {
            struct msg_request_error m;
            assert_true(wire_decode(msg_table(type), f.body, f.n, &a, &m, NULL));
            out[m.id - 1].error = true;
            snprintf(out[m.id - 1].message, sizeof out[m.id - 1].message, "%s", m.text);
            open--;
        }
        assert_true(type != 0 && type != MSG_FAILED);
        arena_deinit(&a);
    }
}

static void ask(struct rank *k, u64 id, const char *prompt, u32 max_tokens,
                const struct msg_sampling *s) {
    struct msg_generate m = {.id = id, .prompt = prompt, .max_tokens = max_tokens, .ignore_eos = 1};
    if (s) m.sampling = *s;
    say(k, MSG_GENERATE, &m);
}

static void answers_free(struct answer *a, u32 n) {
    for (u32 i = 0; i < n; i++) str_deinit(&a[i].text);
}

static const char *const PROMPTS[] = {
    "hello there", "The quick brown fox jumps over the lazy dog, then sleeps.", "1 2 3", "x"};

static void ask_all(struct rank *k, struct answer out[4]) {
    for (u32 i = 0; i < 4; i++) {
        struct msg_sampling s = {
            .temperature = i & 1 ? 0.9f : 0, .top_p = 0.95f, .seed = i, .logprobs = 1};
        ask(k, i + 1, PROMPTS[i], 24, &s);
    }
    collect(k, out, 4);
}

static void same_answer(const struct answer *a, const struct answer *b) {
    assert_int_equal(a->n_ids, b->n_ids);
    assert_memory_equal(a->ids, b->ids, a->n_ids * sizeof(i32));
    assert_string_equal(str_z(&a->text), str_z(&b->text));
}

/* Equal but for the order of additions: until a near-tie makes another token come, each is as
 * likely as it was. */
static void near_answer(const struct answer *a, const struct answer *b) {
    assert_int_equal(a->n_ids, b->n_ids);
    for (u32 i = 0; i < a->n_ids; i++) {
        if (a->ids[i] != b->ids[i]) return;
        assert_true(fabsf(a->logprob[i] - b->logprob[i]) < 3e-3f);
    }
}

/* The answers of every layout are those of one rank. */
static void compare_layouts(const struct layout *const *l, u32 n_layouts,
                            void (*compare)(const struct answer *a, const struct answer *b)) {
    struct answer one[4] = {0};
    struct rank k[MAX_RANKS];
    start_group(k, &ALONE);
    ask_all(&k[0], one);
    assert_int_equal(stop(&k[0]), 0);
    for (u32 i = 0; i < 4; i++) assert_int_equal(one[i].n_ids, 24);
    n_compared += 4 * n_layouts;
    for (; n_layouts--; l++) {
        struct answer many[4] = {0};
        start_group(k, *l);
        ask_all(&k[0], many);
        for (u32 i = 0; i < 4; i++) {
            compare(&many[i], &one[i]);
            n_equal += many[i].n_ids == one[i].n_ids && !memcmp(many[i].ids, one[i].ids, 24 * 4);
        }
        answers_free(many, 4);
        for (u32 i = 0; i < layout_ranks(*l); i++) stop(&k[i]);
    }
    answers_free(one, 4);
}

static void stages_agree_with_one(void **state) {
    (void)state;
    static const struct layout *const L[] = {&TWO, &THREE};
    compare_layouts(L, ARRAY_LEN(L), same_answer);
}

static void teams_and_hybrids_agree_with_one(void **state) {
    (void)state;
    n_equal = n_compared = 0;
    static const struct layout TEAM2 = {1, {{4, 2, {1, 1}}}}, TEAM3 = {1, {{4, 3, {2, 5, 1}}}},
                               TEAM4 = {1, {{4, 4, {1, 1, 1, 1}}}},
                               HYBRID = {2, {{3, 2, {1, 1}}, {4, 2, {3, 1}}}},
                               MIXED = {3, {{1, 1, {1}}, {3, 3, {1, 1, 1}}, {4, 2, {1, 1}}}};
    static const struct layout *const L[] = {&TEAM2, &TEAM3, &TEAM4, &HYBRID, &MIXED};
    static const char *const FAMILIES[] = {"llama", "qwen2", "qwen3", "gemma2", "gemma3"};
    for (u32 i = 0; i < ARRAY_LEN(FAMILIES); i++) {
        make_model(FAMILIES[i], i % 2 ? "Q8_0" : "F32");
        const struct layout *some[] = {L[i], L[(i + 1) % ARRAY_LEN(L)]};
        compare_layouts(some, 2, near_answer);
    }
    if (n_equal * 2 < n_compared) fail_msg("%u of %u answers equal", n_equal, n_compared);
    make_model("llama", "F32");
}

/* A shard whose peers never come ends when its node says so, or when the node is gone. */
static void waiting_for_ranks_can_be_called_off(void **state) {
    (void)state;
    for (int hang_up = 0; hang_up < 2; hang_up++) {
        struct rank k;
        struct frame f;
        start(&k);
        load(&k, &TWO, 0, 0, 0);
        hear_type(&k, MSG_LISTENING, &f);
        struct msg_peer peer = {1, "127.0.0.1", 9, 0}; /* rank 1 dials; nobody does */
        struct msg_connect m = {{&peer, 1}};
        say(&k, MSG_CONNECT, &m);
        clock_sleep_ms(300);
        u64 t = clock_ms();
        if (hang_up)
            shutdown(k.fd, SHUT_WR);
        else
            say(&k, MSG_SHUTDOWN, NULL);
        while (hear(&k, &f)) {
        }
        assert_true(clock_ms() - t < 20000); /* not the two minutes it would wait */
        stop(&k);
    }
}

static bool is_all(const struct frame *f) {
    struct arena a = {0};
    struct msg_progress m;
    assert_true(wire_decode(msg_table(MSG_PROGRESS), f->body, f->n, &a, &m, NULL));
    arena_deinit(&a);
    return m.done == m.total;
}

/* RunnerWarmingUp: between the connections and the first answer. */
static void ranks_that_are_connected_say_so(void **state) {
    (void)state;
    struct rank k[2];
    struct frame f;
    u32 port[2] = {0};
    for (u32 i = 0; i < 2; i++) start(&k[i]);
    for (u32 i = 0; i < 2; i++) load(&k[i], &TWO, i, i, 0);
    for (u32 i = 0; i < 2; i++)
        for (bool loaded = false; !port[i] || !loaded;) {
            u32 type = hear(&k[i], &f);
            if (type == MSG_LISTENING) port[i] = port_of(&f);
            if (type == MSG_PROGRESS) loaded = is_all(&f);
        }
    connect_to(k, 2, port);
    for (u32 i = 0; i < 2; i++) {
        assert_int_equal(hear(&k[i], &f), MSG_PROGRESS);
        assert_true(is_all(&f));
        assert_int_equal(hear(&k[i], &f), MSG_READY);
    }
    for (u32 i = 0; i < 2; i++) stop(&k[i]);
}

static void shards_that_make_no_model(void **state) {
    (void)state;
    struct rank k[2];
    struct frame f;
    struct layout bad = {1, {{4, 2, {1, 1}}}};
    start(&k[0]);
    start(&k[1]);
    load(&k[0], &bad, 0, 0, 0);
    bad.stage[0].part[0] = 3; /* the second one believes in another cut */
    load(&k[1], &bad, 0, 0, 1);
    connect_all(k, 2);
    u32 type;
    while ((type = hear(&k[0], &f)) != MSG_FAILED) assert_true(type == MSG_PROGRESS);
    struct arena a = {0};
    struct msg_failed m;
    assert_true(wire_decode(msg_table(MSG_FAILED), f.body, f.n, &a, &m, NULL));
    assert_non_null(strstr(m.text, "rank 1 has query heads 3 to 4, the ranks before it end at 2"));
    arena_deinit(&a);
    stop(&k[0]);
    stop(&k[1]);
}

/* An answer does not depend on who else is served, and goes on exactly where it was cut. */
static void alone_together_and_resumed(void **state) {
    (void)state;
    struct rank k;
    start_group(&k, &ALONE);
    struct answer all[4] = {0};
    ask_all(&k, all);
    for (u32 i = 0; i < 4; i++) {
        struct answer alone = {0}, rest = {0};
        struct msg_sampling s = {.temperature = i & 1 ? 0.9f : 0, .top_p = 0.95f, .seed = i};
        ask(&k, 1, PROMPTS[i], 24, &s);
        collect(&k, &alone, 1);
        assert_memory_equal(alone.ids, all[i].ids, 24 * sizeof(i32));
        struct msg_generate m = {.id = 1,
                                 .prompt = PROMPTS[i],
                                 .max_tokens = 24,
                                 .ignore_eos = 1,
                                 .sampling = s,
                                 .resume_ids = {alone.ids, 10}};
        say(&k, MSG_GENERATE, &m);
        collect(&k, &rest, 1);
        assert_int_equal(rest.n_ids, 14);
        assert_memory_equal(rest.ids, alone.ids + 10, 14 * sizeof(i32));
        answers_free(&alone, 1);
        answers_free(&rest, 1);
    }
    answers_free(all, 4);
    stop(&k);
}

static void bad_requests_leave_the_runner_alive(void **state) {
    (void)state;
    struct rank k;
    start_group(&k, &ALONE);
    struct answer a[1] = {0};
    char big[2000];
    memset(big, 'a', sizeof big - 1);
    for (size_t i = 0; i < sizeof big - 1; i += 2) big[i] = (char)('a' + i % 23);
    big[sizeof big - 1] = 0;
    ask(&k, 1, big, 5, NULL);
    collect(&k, a, 1);
    assert_true(a[0].error);
    assert_non_null(strstr(a[0].message, "context window is 128"));
    struct str huge = {0};
    while (huge.n < 1 << 20) str_addz(&huge, big);
    ask(&k, 1, str_z(&huge), 5, NULL);
    a[0] = (struct answer){0};
    collect(&k, a, 1);
    assert_true(a[0].error);
    assert_non_null(strstr(a[0].message, "has at least ")); /* it was not even split into tokens */
    str_deinit(&huge);
    struct msg_generate m = {.id = 1, .prompt = "x", .sampling.temperature = 0};
    struct msg_bias bias = {1 << 30, 1};
    m.sampling.logit_bias = (struct wire_list){&bias, 1};
    say(&k, MSG_GENERATE, &m);
    a[0] = (struct answer){0};
    collect(&k, a, 1);
    assert_true(a[0].error);
    m = (struct msg_generate){.id = 1};
    say(&k, MSG_GENERATE, &m);
    a[0] = (struct answer){0};
    collect(&k, a, 1);
    assert_non_null(strstr(a[0].message, "empty"));
    m = (struct msg_generate){
        .id = 1, .prompt = big, .truncate = 1, .max_tokens = 4, .ignore_eos = 1};
    say(&k, MSG_GENERATE, &m);
    a[0] = (struct answer){0};
    collect(&k, a, 1);
    assert_false(a[0].error);
    assert_int_equal(a[0].n_prompt, 124);
    answers_free(a, 1);
    assert_int_equal(stop(&k), 0);
}

static void cancel_stops_within_a_token(void **state) {
    (void)state;
    struct rank k;
    n_ctx = 16384; /* many times longer than the word takes */
    start_group(&k, &ALONE);
    n_ctx = 128;
    struct frame f;
    ask(&k, 7, "go on for ever", 0, NULL);
    hear_type(&k, MSG_STARTED, &f);
    hear_type(&k, MSG_TOKEN, &f);
    struct msg_cancel c = {7};
    say(&k, MSG_CANCEL, &c);
    u32 type;
    while ((type = hear(&k, &f)) == MSG_TOKEN || type == MSG_STATS) {
    }
    assert_int_equal(type, MSG_DONE);
    struct arena a = {0};
    struct msg_done d;
    assert_true(wire_decode(msg_table(MSG_DONE), f.body, f.n, &a, &d, NULL));
    assert_int_equal(d.finish, FINISH_CANCELLED);
    arena_deinit(&a);
    stop(&k);
}

static void a_lost_rank_is_named_at_once(void **state) {
    (void)state;
    struct rank k[2];
    start_group(k, &TWO);
    ask(&k[0], 1, "hello", 0, NULL);
    kill(k[1].pid, 9);
    u64 t = clock_ms();
    struct frame f;
    u32 type;
    while ((type = hear(&k[0], &f)) != MSG_FAILED) assert_true(type != 0);
    assert_true(clock_ms() - t < 10000); /* two, on a machine that does nothing else */
    struct arena a = {0};
    struct msg_failed m;
    assert_true(wire_decode(msg_table(MSG_FAILED), f.body, f.n, &a, &m, NULL));
    assert_non_null(strstr(m.text, "rank 1"));
    arena_deinit(&a);
    assert_int_equal(stop(&k[0]), 1);
    stop(&k[1]);
}

static void a_file_that_is_no_model(void **state) {
    (void)state;
    struct rank k;
    start(&k);
    char path[] = "/tmp/skein-runner-test-XXXXXX";
    int fd = mkstemp(path);
    assert_int_equal(write(fd, "not a model", 11), 11);
    close(fd);
    struct msg_load m = {.instance_id = "t", .path = path, .n_ranks = 1, .layer_end = 1};
    say(&k, MSG_LOAD, &m);
    struct frame f;
    assert_int_equal(hear(&k, &f), MSG_FAILED);
    assert_int_equal(stop(&k), 1);
    unlink(path);
}

static struct msg_ready ready_within(u64 memory_max) {
    struct rank k;
    struct frame f;
    struct arena a = {0};
    struct msg_ready m;
    start(&k);
    struct msg_load l = {.instance_id = "t",
                         .path = model_path,
                         .n_ranks = 1,
                         .layer_end = ALONE.stage[0].layer_end,
                         .n_ctx = 64,
                         .n_seq_max = 8,
                         .n_threads = 1,
                         .memory_max_bytes = memory_max};
    say(&k, MSG_LOAD, &l);
    hear_type(&k, MSG_READY, &f);
    assert_true(wire_decode(msg_table(MSG_READY), f.body, f.n, &a, &m, NULL));
    arena_deinit(&a);
    stop(&k);
    return m;
}

/* Contexts take what is left of the memory that was set aside, not more. */
static void it_takes_no_more_than_it_was_given(void **state) {
    (void)state;
    struct msg_ready all = ready_within(0);
    assert_int_equal(all.kv_tokens, 8 * 64);
    u64 max = all.weights_bytes + all.scratch_bytes + all.kv_bytes / 2;
    struct msg_ready some = ready_within(max);
    assert_true(some.weights_bytes + some.scratch_bytes + some.kv_bytes <= max);
    assert_true(some.kv_tokens >= 64);
}

static void it_measures_the_machine(void **state) {
    (void)state;
    struct rank k;
    struct frame f;
    struct arena a = {0};
    struct msg_measured m;
    start(&k);
    say(&k, MSG_MEASURE,
        &(struct msg_measure){.n_threads = 2, .cpu_mask = "ref", .mem_bytes = 64 << 20});
    assert_int_equal(hear(&k, &f), MSG_MEASURED);
    assert_true(wire_decode(msg_table(MSG_MEASURED), f.body, f.n, &a, &m, NULL));
    assert_string_equal(m.isa, "ref");
    assert_true(strncmp(m.isas, "ref", 3) == 0);
    assert_int_equal(m.n_threads, 2);
    assert_true(m.read_bytes_s > 1000000 && m.int8_ops_s > 1000000 && m.float_ops_s > 1000000);
    arena_deinit(&a);
    say(&k, MSG_MEASURE, &(struct msg_measure){.cpu_mask = "abacus"});
    assert_int_equal(hear(&k, &f), MSG_FAILED);
    assert_int_equal(stop(&k), 1);
}

int main(void) {
    make_model("llama", "F32");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_agree_with_one),
        cmocka_unit_test(teams_and_hybrids_agree_with_one),
        cmocka_unit_test(shards_that_make_no_model),
        cmocka_unit_test(waiting_for_ranks_can_be_called_off),
        cmocka_unit_test(ranks_that_are_connected_say_so),
        cmocka_unit_test(alone_together_and_resumed),
        cmocka_unit_test(bad_requests_leave_the_runner_alive),
        cmocka_unit_test(cancel_stops_within_a_token),
        cmocka_unit_test(a_lost_rank_is_named_at_once),
        cmocka_unit_test(a_file_that_is_no_model),
        cmocka_unit_test(it_takes_no_more_than_it_was_given),
        cmocka_unit_test(it_measures_the_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
