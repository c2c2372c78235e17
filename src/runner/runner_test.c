/* Real runners, forked, on tiny random-weight models that build/mkmodel writes: one rank, and two
 * and three ranks over TCP that must say exactly what one says. */
#include "runner/runner.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/test.h"
#include "wire/frame.h"
#include "wire/msg.h"

enum { N_LAYERS = 4, MAX_RANKS = 3, WAIT_MS = 60000 };
static char model_path[256];
static u32 n_ctx = 128;

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

static void load(struct rank *k, u32 rank, u32 n_ranks, u32 first, u32 end) {
    struct msg_load m = {.instance_id = "test",
                         .path = model_path,
                         .rank = rank,
                         .n_ranks = n_ranks,
                         .layer_first = first,
                         .layer_end = end,
                         .n_ctx = n_ctx,
                         .n_seq_max = 4,
                         .n_threads = 1,
                         .key = {KEY, 32},
                         .listen_host = "127.0.0.1"};
    say(k, MSG_LOAD, &m);
}

static void start_group(struct rank *k, u32 n) {
    static const u32 CUT[MAX_RANKS + 1][MAX_RANKS + 1] = {{0}, {0, 4}, {0, 1, 4}, {0, 2, 3, 4}};
    u32 port[MAX_RANKS] = {0};
    struct frame f;
    for (u32 i = 0; i < n; i++) start(&k[i]);
    for (u32 i = 0; i < n; i++) load(&k[i], i, n, CUT[n][i], CUT[n][i + 1]);
    for (u32 i = 0; i < n && n > 1; i++) {
        struct arena a = {0};
        struct msg_listening m;
        hear_type(&k[i], MSG_LISTENING, &f);
        assert_true(wire_decode(msg_table(MSG_LISTENING), f.body, f.n, &a, &m, NULL));
        port[i] = m.port;
        arena_deinit(&a);
    }
    for (u32 i = 0; i < n && n > 1; i++) {
        struct msg_peer peer[MAX_RANKS];
        u32 p = 0;
        for (u32 j = 0; j < n; j++)
            if (j != i) peer[p++] = (struct msg_peer){j, "127.0.0.1", port[j]};
        struct msg_connect m = {{peer, p}};
        say(&k[i], MSG_CONNECT, &m);
    }
    for (u32 i = 0; i < n; i++) hear_type(&k[i], MSG_READY, &f);
}

struct answer {
    struct str text;
    i32 ids[128];
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
            for (u64 i = 0; i < m.ids.n; i++) o->ids[o->n_ids++] = m.ids.v[i];
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
        struct msg_sampling s = {.temperature = i & 1 ? 0.9f : 0, .top_p = 0.95f, .seed = i};
        ask(k, i + 1, PROMPTS[i], 24, &s);
    }
    collect(k, out, 4);
}

static void ranks_agree_with_one(void **state) {
    (void)state;
    struct answer one[4] = {0};
    struct rank k[MAX_RANKS];
    start_group(k, 1);
    ask_all(&k[0], one);
    assert_int_equal(stop(&k[0]), 0);
    for (u32 i = 0; i < 4; i++) assert_int_equal(one[i].n_ids, 24);
    for (u32 n = 2; n <= MAX_RANKS; n++) {
        struct answer many[4] = {0};
        start_group(k, n);
        ask_all(&k[0], many);
        for (u32 i = 0; i < 4; i++) {
            assert_int_equal(many[i].n_ids, one[i].n_ids);
            assert_memory_equal(many[i].ids, one[i].ids, one[i].n_ids * sizeof(i32));
            assert_string_equal(str_z(&many[i].text), str_z(&one[i].text));
        }
        answers_free(many, 4);
        for (u32 i = 0; i < n; i++) stop(&k[i]);
    }
    answers_free(one, 4);
}

/* An answer does not depend on who else is served, and goes on exactly where it was cut. */
static void alone_together_and_resumed(void **state) {
    (void)state;
    struct rank k;
    start_group(&k, 1);
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
    start_group(&k, 1);
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
    start_group(&k, 1);
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
    start_group(k, 2);
    ask(&k[0], 1, "hello", 0, NULL);
    kill(k[1].pid, 9);
    u64 t = clock_ms();
    struct frame f;
    u32 type;
    while ((type = hear(&k[0], &f)) != MSG_FAILED) assert_true(type != 0);
    assert_true(clock_ms() - t < 2000);
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

static void it_measures_the_machine(void **state) {
    (void)state;
    struct rank k;
    struct frame f;
    struct arena a = {0};
    struct msg_measured m;
    start(&k);
    say(&k, MSG_MEASURE, &(struct msg_measure){.n_threads = 2, .cpu_mask = "ref"});
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
    const char *build = getenv("SKEIN_BUILD");
    char cmd[600];
    snprintf(model_path, sizeof model_path, "%s/runner_test.gguf", build ? build : "build");
    snprintf(cmd, sizeof cmd,
             "%s/mkmodel --arch llama --type F32 --layers %d --dim 64 --heads 4 --kv-heads 2 "
             "--head-dim 16 --ffn 128 --ctx 16384 --seed 3 %s >/dev/null",
             build ? build : "build", N_LAYERS, model_path);
    if (system(cmd) != 0) {
        fprintf(stderr, "can't run: %s\n", cmd);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_agree_with_one),
        cmocka_unit_test(alone_together_and_resumed),
        cmocka_unit_test(bad_requests_leave_the_runner_alive),
        cmocka_unit_test(cancel_stops_within_a_token),
        cmocka_unit_test(a_lost_rank_is_named_at_once),
        cmocka_unit_test(a_file_that_is_no_model),
        cmocka_unit_test(it_measures_the_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
