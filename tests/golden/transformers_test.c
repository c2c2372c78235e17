#include "base/test.h"

#include <math.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "model/testbed.h"

/* Compares tiny models of every family with what transformers computed for them in F32
 * (tools/record_transformers.py has the format). The models come from build/mkmodel. Keys and
 * values are kept in f16 and the hidden state is rounded to f16 behind each layer: relative errors
 * of 2^-12 each, which a few layers carry to about 1e-3. */

#define LOGITS_REL_L2 2e-3
enum { ARGS_MAX = 512, WORDS_MAX = 32, N_TOK_MAX = 256 };

extern char **environ;

/* Runs mkmodel with the words of args and the path. */
static void make_model(const char *args, char *path) {
    char text[ARGS_MAX], program[1024], *argv[WORDS_MAX] = {program};
    int n = 1, status = -1;
    pid_t pid;
    const char *build = getenv("SKEIN_BUILD");
    snprintf(program, sizeof program, "%s/mkmodel", build ? build : "build");
    snprintf(text, sizeof text, "%s", args);
    char *at = NULL;
    for (char *w = strtok_r(text, " ", &at); w && n < WORDS_MAX - 2; w = strtok_r(NULL, " ", &at))
        argv[n++] = w;
    argv[n] = path;
    int failed = posix_spawn(&pid, program, NULL, NULL, argv, environ);
    if (failed) fail_msg("%s: %s", program, strerror(failed));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (status) fail_msg("%s %s: status %d", program, args, status);
}

/* The worst row's |ours - theirs| / |theirs|. */
static double compare(const float *got, struct rd *r, u32 n_rows, u32 n_vocab) {
    double worst = 0;
    for (u32 row = 0; row < n_rows; row++) {
        double diff = 0, norm = 0;
        for (u32 i = 0; i < n_vocab; i++) {
            double want = rd_f32(r), d = got[(size_t)row * n_vocab + i] - want;
            diff += d * d;
            norm += want * want;
        }
        double err = sqrt(diff / norm);
        if (!(err <= worst)) worst = err; /* also where it is no number */
    }
    return worst;
}

static bool run_case(struct rd *r) {
    char args[ARGS_MAX], path[] = "/tmp/skein-golden-XXXXXX";
    u32 ids[N_TOK_MAX], rows[N_TOK_MAX];
    struct testbed b = {0};
    struct testbed_opts opts = {.max_tok = N_TOK_MAX, .n_ctx = N_TOK_MAX};
    struct err e = {0};

    u32 n = rd_u32(r);
    snprintf(args, sizeof args, "%.*s", (int)n, (const char *)rd_bytes(r, n));
    u32 n_tok = rd_u32(r);
    assert_in_range(n_tok, 1, N_TOK_MAX);
    for (u32 i = 0; i < n_tok; i++) ids[i] = rd_u32(r);
    u32 n_rows = rd_u32(r);
    assert_in_range(n_rows, 1, n_tok);
    for (u32 i = 0; i < n_rows; i++) rows[i] = rd_u32(r);
    u32 n_vocab = rd_u32(r);

    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    make_model(args, path);
    bool opened = testbed_open(&b, path, &opts, &e);
    unlink(path);
    if (!opened) fail_msg("%s: %s", args, e.msg);
    assert_int_equal(n_vocab, b.p.n_vocab);
    float *logits = xcalloc((size_t)n_rows * n_vocab, sizeof *logits);
    struct testbed_part part = {.n = n_tok};
    if (!testbed_step(&b, &part, 1, ids, rows, n_rows, NULL, logits, &e)) fail_msg("%s", e.msg);
    double err = compare(logits, r, n_rows, n_vocab);
    printf("%s: logits within %.1e%s\n", args, err, err < LOGITS_REL_L2 ? "" : " - TOO FAR");
    free(logits);
    testbed_close(&b);
    return err < LOGITS_REL_L2;
}

static void every_family(void **state) {
    (void)state;
    struct str bytes = {0};
    struct err e = {0};
    u32 n_far = 0;
    if (!file_read("tests/golden/logits/transformers.bin", 1 << 26, &bytes, &e))
        fail_msg("%s", e.msg);
    struct rd r = rd_of(bytes.p, bytes.n);
    const char *magic = rd_bytes(&r, 8);
    u32 n_cases = rd_u32(&r);
    assert_true(!r.bad && !memcmp(magic, "SKTF0001", 8) && n_cases > 0);
    for (u32 i = 0; i < n_cases; i++) n_far += !run_case(&r);
    assert_true(!r.bad && rd_left(&r) == 0);
    assert_int_equal(n_far, 0);
    str_deinit(&bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_family)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
