#include "base/test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/dtype.h"
#include "base/file.h"
#include "find_model.h"
#include "model/testbed.h"

/* Compares real models with what llama.cpp answers when the weights are decoded to F32
 * (tools/record_golden.py has the format and the reason). A prompt is run in one step together with
 * llama.cpp's answer, so step i is compared behind the same tokens whatever came out before. Where
 * the two best logits of the recording lie closer than NEAR_TIE, either is right, and it is listed.
 * The model files are looked for in SKEIN_TEST_MODELS, then where `skein pull` puts them; a test
 * whose file is nowhere is skipped. */

#define NEAR_TIE      0.02f
#define LOGITS_REL_L2 2e-2 /* of the first token, at most */
#define Q8_REL_L2     8e-2 /* the same with a KV cache in q8: 1.4 % on average, 5.5 % at worst */
#define ACT8_REL_L2   0.12 /* with activations of 8 bits: 2.5 % on average, 6.7 % at worst */
enum { N_GREEDY = 32, MAX_TOK = 1024 };

struct golden {
    char name[64];
    u32 n_prompt, n_gen, n_top;
    u32 ids[MAX_TOK]; /* the prompt, then the answer */
    float gap[MAX_TOK];
    double norm;
    const u8 *top_ids, *values; /* n_top ids and f32 logits, or n_vocab f16 logits */
};

static bool read_golden(struct rd *r, u32 n_vocab, struct golden *g) {
    u32 n_name = rd_u32(r);
    const char *name = rd_bytes(r, n_name);
    if (!name) return false;
    snprintf(g->name, sizeof g->name, "%.*s", (int)n_name, name);
    rd_bytes(r, rd_u32(r));
    g->n_prompt = rd_u32(r);
    if (g->n_prompt > MAX_TOK) return false;
    for (u32 i = 0; i < g->n_prompt; i++) g->ids[i] = rd_u32(r);
    g->n_gen = rd_u32(r);
    if (g->n_gen < N_GREEDY || g->n_prompt + g->n_gen > MAX_TOK) return false;
    for (u32 i = 0; i < g->n_gen; i++) g->ids[g->n_prompt + i] = rd_u32(r);
    for (u32 i = 0; i < g->n_gen; i++) g->gap[i] = rd_f32(r);
    g->norm = rd_f64(r);
    g->n_top = rd_u32(r);
    g->top_ids = rd_bytes(r, 4 * (u64)g->n_top);
    g->values = rd_bytes(r, g->n_top ? 4 * (u64)g->n_top : 2 * (u64)n_vocab);
    return !r->bad;
}

/* |ours - theirs| / |theirs| over what was recorded. */
static double logits_error(const struct golden *g, const float *logits, u32 n_vocab) {
    double diff = 0, norm = 0;
    for (u32 i = 0; i < (g->n_top ? g->n_top : n_vocab); i++) {
        u32 id = i;
        float want;
        u16 half;
        if (g->n_top) {
            memcpy(&id, g->top_ids + 4 * (size_t)i, sizeof id);
            memcpy(&want, g->values + 4 * (size_t)i, sizeof want);
        } else {
            memcpy(&half, g->values + 2 * (size_t)i, sizeof half);
            want = f16_to_f32(half);
        }
        double d = (double)logits[id] - want;
        diff += d * d;
        norm += (double)want * want;
    }
    return sqrt(diff / norm);
}

static u32 best_of(const float *logits, u32 n_vocab) {
    u32 best = 0;
    for (u32 i = 1; i < n_vocab; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

struct tally {
    u32 n, equal, near_ties;
    double sum, worst; /* of logits errors */
};

static void compare(struct testbed *b, const struct golden *g, float *logits, struct tally *t) {
    struct err e = {0};
    u32 out[N_GREEDY], n_vocab = b->p.n_vocab;
    for (u32 i = 0; i < N_GREEDY; i++) out[i] = g->n_prompt - 1 + i;
    struct testbed_part part = {.n = g->n_prompt + N_GREEDY - 1};
    if (!testbed_step(b, &part, 1, g->ids, out, N_GREEDY, NULL, logits, &e)) fail_msg("%s", e.msg);

    bool equal = true;
    for (u32 i = 0; i < N_GREEDY; i++) {
        u32 got = best_of(logits + (size_t)i * n_vocab, n_vocab), want = g->ids[g->n_prompt + i];
        if (got == want) continue;
        bool near_tie = g->gap[i] < NEAR_TIE;
        printf("%s: token %u is %u, llama.cpp has %u by %.3f%s\n", g->name, i, got, want,
               (double)g->gap[i], near_tie ? " (near-tie)" : "");
        if (near_tie)
            t->near_ties++;
        else
            equal = false;
    }
    double err = logits_error(g, logits, n_vocab);
    if (!(err < LOGITS_REL_L2)) printf("%s: logits are %.4f off\n", g->name, err);
    t->n++;
    t->equal += equal;
    t->sum += err;
    if (!(err <= t->worst)) t->worst = err; /* also where it is no number */
}

/* Runs every recorded prompt; at least `must_equal` have to give the same tokens. */
static void run_golden(const char *model, const char *recording, enum kv_type kv_type, u32 act_bits,
                       u32 must_equal) {
    static struct golden g;
    struct testbed b = {0};
    struct testbed_opts opts = {
        .max_tok = MAX_TOK, .n_ctx = MAX_TOK, .kv_type = kv_type, .act_bits = act_bits};
    struct err e = {0};
    struct str bytes = {0};
    struct tally t = {0};
    char path[1024];
    if (!find_model(model, path, sizeof path)) skip();
    if (!testbed_open(&b, path, &opts, &e) || !file_read(recording, 1 << 26, &bytes, &e))
        fail_msg("%s", e.msg);

    struct rd r = rd_of(bytes.p, bytes.n);
    const char *magic = rd_bytes(&r, 8);
    u32 n_vocab = rd_u32(&r), n_prompts = rd_u32(&r);
    assert_true(!r.bad && !memcmp(magic, "SKGOLD1", 8) && n_prompts > 0);
    assert_int_equal(n_vocab, b.p.n_vocab);
    float *logits = xcalloc((size_t)N_GREEDY * n_vocab, sizeof *logits);
    for (u32 i = 0; i < n_prompts; i++) {
        assert_true(read_golden(&r, n_vocab, &g));
        compare(&b, &g, logits, &t);
    }
    printf("%s, KV %s, activations of %u bits: %u of %u prompts equal over %d tokens, %u near-ties "
           "differ, logits off by %.4f "
           "(mean), %.4f (worst)\n",
           model, kv_type_name(kv_type), act_bits, t.equal, t.n, N_GREEDY, t.near_ties, t.sum / t.n,
           t.worst);
    assert_in_range(t.equal, must_equal, t.n);
    assert_true(t.worst < (act_bits == 8      ? ACT8_REL_L2
                           : kv_type == KV_Q8 ? Q8_REL_L2
                                              : LOGITS_REL_L2));
    free(logits);
    str_deinit(&bytes);
    testbed_close(&b);
}

static void smollm2(void **state) {
    (void)state;
    run_golden("SmolLM2-135M-Instruct.Q4_1.gguf",
               "tests/golden/logits/smollm2-135m-instruct-q4_1.golden", KV_F16, 16, 18);
}

static void gemma3(void **state) {
    (void)state;
    run_golden("gemma-3-270m-q4_k_m.gguf", "tests/golden/logits/gemma-3-270m-q4_k_m.golden", KV_F16,
               16, 9);
}

static void smollm2_q8(void **state) {
    (void)state;
    run_golden("SmolLM2-135M-Instruct.Q4_1.gguf",
               "tests/golden/logits/smollm2-135m-instruct-q4_1.golden", KV_Q8, 16, 17);
}

static void gemma3_q8(void **state) {
    (void)state;
    run_golden("gemma-3-270m-q4_k_m.gguf", "tests/golden/logits/gemma-3-270m-q4_k_m.golden", KV_Q8,
               16, 1);
}

static void smollm2_act8(void **state) {
    (void)state;
    run_golden("SmolLM2-135M-Instruct.Q4_1.gguf",
               "tests/golden/logits/smollm2-135m-instruct-q4_1.golden", KV_F16, 8, 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(smollm2), cmocka_unit_test(gemma3),
                                       cmocka_unit_test(smollm2_q8), cmocka_unit_test(gemma3_q8),
                                       cmocka_unit_test(smollm2_act8)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
