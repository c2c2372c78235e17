#include "cli/opts.h"

#include <stdio.h>
#include <string.h>

#include "base/test.h"

/* One command with an option of each kind, and what it read. */
static struct fixture {
    bool verbose;
    u32 n, ngl;
    u64 seed;
    float temp;
    const char *model;
    struct opt_list peers;
} f;

static struct opt table[] = {
    {"verbose", OPT_FLAG, &f.verbose, "say more", .letter = 'v'},
    {"max-tokens", OPT_U32, &f.n, "tokens", .letter = 'n', .value = "N", .min = 1, .max = 100},
    {"gpu-layers", OPT_U32, &f.ngl, "layers", .word = "ngl", .value = "N"},
    {"seed", OPT_U64, &f.seed, "seed", .env = "SEED"},
    {"temp", OPT_F32, &f.temp, "temperature", .min = 0, .max = 5},
    {"model", OPT_STR, &f.model, "model", .letter = 'm', .env = "MODEL"},
    {"peer", OPT_LIST, &f.peers, "peer", .env = "PEERS"},
    {"mmap", OPT_IGNORE, NULL, NULL, .value = "X"},
};
static const struct opts_cmd CMD = {"try", "FILE", "a test", NULL, table, ARRAY_LEN(table), 0, 2};

static const char *no_env(const char *name) {
    return name[0] == '?' ? name : NULL;
}
static const char *some_env(const char *name) {
    if (strcmp(name, "SEED") == 0) return "7";
    if (strcmp(name, "PEERS") == 0) return "a:1,b:2,,";
    return NULL;
}

static struct err e;
static int n_args;
static char *words[16];

static bool read_line(const char *(*env)(const char *), const char *line) {
    static char copy[256];
    int argc = 1;
    f = (struct fixture){.temp = 0.5f};
    e = (struct err){0};
    words[0] = "try";
    snprintf(copy, sizeof copy, "%s", line);
    for (char *save, *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
        words[argc++] = w;
    return opts_read(&CMD, argc, words, &n_args, env, &e);
}

static void every_spelling_is_understood(void **state) {
    (void)state;
    assert_true(read_line(no_env, "a -v -n5 -ngl 99 --seed=18446744073709551615 --temp 1.5 -m x b "
                                  "--peer p:1 --peer q:2,r:3"));
    assert_int_equal(n_args, 2);
    assert_string_equal(words[0], "a");
    assert_string_equal(words[1], "b");
    assert_true(f.verbose);
    assert_int_equal(f.n, 5);
    assert_int_equal(f.ngl, 99);
    assert_true(f.seed == UINT64_MAX);
    assert_true(f.temp == 1.5f);
    assert_string_equal(f.model, "x");
    assert_int_equal(f.peers.n, 3);
    assert_string_equal(f.peers.v[2], "r:3");
    assert_true(read_line(no_env, "--ngl=3 -vn 7 --mmap 1"));
    assert_int_equal(f.ngl, 3);
    assert_int_equal(f.n, 7);
    assert_true(read_line(no_env, "-v --no-verbose"));
    assert_false(f.verbose);
    assert_true(read_line(no_env, "-- -v"));
    assert_int_equal(n_args, 1);
    assert_string_equal(words[0], "-v");
    assert_true(read_line(no_env, "-"));
    assert_string_equal(words[0], "-");
}

static void environment_fills_what_was_not_given(void **state) {
    (void)state;
    assert_true(read_line(some_env, ""));
    assert_true(f.seed == 7);
    assert_int_equal(f.peers.n, 2);
    assert_true(read_line(some_env, "--seed 9 --peer z"));
    assert_true(f.seed == 9);
    assert_int_equal(f.peers.n, 1);
}

static void mistakes_name_the_word_and_the_way_out(void **state) {
    (void)state;
    static const struct {
        const char *line, *says;
    } BAD[] = {
        {"--sed 1", "unknown option --sed: did you mean --seed?"},
        {"--max-token 1", "did you mean --max-tokens?"},
        {"--quux", "unknown option --quux: `skein help try` lists the options"},
        {"-x", "unknown option -x"},
        {"-n", "-n needs a value: N"},
        {"-n 0", "-n 0: must be from 1 to 100"},
        {"-n five", "-n five: not a whole number"},
        {"-n -5", "not a whole number"},
        {"--max-tokens=1e3", "--max-tokens 1e3: not a whole number"},
        {"--seed 18446744073709551616", "must be from 0 to 18446744073709551615"},
        {"-ngl 4294967296", "-ngl 4294967296: must be from 0 to 4294967295"},
        {"--temp nan", "not a number"},
        {"--temp 6", "must be from 0 to 5"},
        {"--verbose=maybe", "must be true or false"},
        {"--peer=", "--peer \"\": at least one value"},
        {"--peer ,", "--peer \",\": at least one value"},
        {"a b c", "\"c\" is one argument too many: skein try FILE"},
    };
    for (u32 i = 0; i < ARRAY_LEN(BAD); i++) {
        assert_false(read_line(no_env, BAD[i].line));
        assert_true(e.code == ERR_ARG || e.code == ERR_LIMIT);
        if (!strstr(e.msg, BAD[i].says)) fail_msg("%s: %s", BAD[i].line, e.msg);
    }
    assert_false(read_line(no_env, "-v --help"));
    assert_int_equal(e.code, ERR_NONE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_spelling_is_understood),
        cmocka_unit_test(environment_fills_what_was_not_given),
        cmocka_unit_test(mistakes_name_the_word_and_the_way_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
