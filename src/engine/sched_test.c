/* A model made of arithmetic: the token at position p is a hash of all tokens before it, read back
 * from "KV memory" that holds them by block, exactly where the step says. Whatever the scheduler
 * does (chunks, several stages, too few blocks), each sequence must get the tokens it would get
 * alone. */
#include "engine/sched.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/random.h"
#include "base/test.h"

enum { N_VOCAB = 1000, MAX_SEQ = 40 };

struct world {
    struct step_limits lim;
    struct sched *sched;
    u32 *kv; /* [n_blocks][KV_BLOCK_TOKENS] */
    struct step step[4];
    struct step sent[4]; /* through encode and decode, as on another rank */
    u32 head, n;         /* ring of steps under way */
    u32 n_done, n_seq;
    struct {
        struct seq *q;
        u32 want; /* generated tokens wanted */
        u32 prompt[256], n_prompt;
    } seq[MAX_SEQ];
};

static u32 next_token(const u32 *ids, u32 n) {
    return (u32)(hash_bytes(ids, n * sizeof *ids) % N_VOCAB);
}

static void compute(struct world *w, struct step *s, u32 *sampled) {
    u32 k = 0;
    for (u32 i = 0; i < s->n_spans; i++) {
        const struct kv_span *p = &s->spans[i];
        u32 all[512];
        for (u32 t = 0; t < p->n; t++) {
            u32 pos = p->pos0 + t;
            w->kv[p->blocks[pos / KV_BLOCK_TOKENS] * KV_BLOCK_TOKENS + pos % KV_BLOCK_TOKENS] =
                s->ids[p->first + t];
        }
        for (u32 pos = 0; pos < p->pos0 + p->n; pos++)
            all[pos] =
                w->kv[p->blocks[pos / KV_BLOCK_TOKENS] * KV_BLOCK_TOKENS + pos % KV_BLOCK_TOKENS];
        if (k < s->n_out && s->out[k] == p->first + p->n - 1)
            sampled[k++] = next_token(all, p->pos0 + p->n);
    }
    assert_int_equal(k, s->n_out);
}

static void issue(struct world *w) {
    u32 at = (w->head + w->n) % 4;
    if (w->n == 4 || !sched_next(w->sched, &w->step[at])) return;
    struct step *s = &w->step[at];
    assert_true(s->n_tok <= w->lim.max_tok && s->n_spans <= w->lim.n_slots);
    u8 *owned = calloc(w->lim.n_blocks, 1);
    for (u32 i = 0; i < s->n_spans; i++) /* no block twice in one step */
        for (u32 b = 0; b < s->spans[i].n_blocks; b++)
            assert_int_equal(owned[s->spans[i].blocks[b]]++, 0);
    free(owned);
    struct str bytes = {0};
    struct err e = {0};
    size_t used;
    step_encode(s, &bytes);
    assert_true(step_decode(&w->sent[at], &w->lim, bytes.p, bytes.n, &used, &e));
    assert_int_equal(used, bytes.n);
    assert_int_equal(w->sent[at].n_out, s->n_out);
    assert_memory_equal(w->sent[at].out_slot, s->out_slot, s->n_out * sizeof(u32));
    str_deinit(&bytes);
    w->n++;
}

static void finish(struct world *w, u32 i) {
    struct seq *q = w->seq[i].q;
    u32 ref[512];
    memcpy(ref, w->seq[i].prompt, sizeof w->seq[i].prompt);
    for (u32 n = w->seq[i].n_prompt; n < q->n_tok; n++) {
        ref[n] = next_token(ref, n);
        assert_int_equal(q->tok[n], ref[n]);
    }
    sched_end(w->sched, q);
    w->seq[i].q = NULL;
    w->n_done++;
}

static void complete(struct world *w) {
    if (w->n == 0) return;
    struct step *s = &w->sent[w->head];
    u32 sampled[64];
    compute(w, s, sampled);
    for (u32 k = 0; k < s->n_out; k++) {
        struct seq *q = sched_slot(w->sched, s->out_slot[k]);
        if (!q) continue; /* cancelled meanwhile */
        sched_push(w->sched, q, sampled[k]);
        u32 i = (u32)q->id;
        assert_ptr_equal(q, w->seq[i].q);
        if (q->n_tok - q->n_prompt == w->seq[i].want) finish(w, i);
    }
    sched_done(w->sched, s->id);
    w->head = (w->head + 1) % 4;
    w->n--;
}

static void run(u64 seed, u32 n_blocks, u32 n_stages, u32 n_slots, u32 max_tok, bool cancels) {
    struct world *w = calloc(1, sizeof *w);
    w->lim = (struct step_limits){max_tok, n_slots, 320, n_blocks, N_VOCAB};
    struct sched_cfg cfg = {w->lim, n_stages};
    w->sched = sched_new(&cfg);
    w->kv = calloc((size_t)n_blocks * KV_BLOCK_TOKENS, sizeof *w->kv);
    for (u32 i = 0; i < 4; i++) step_init(&w->step[i], &w->lim), step_init(&w->sent[i], &w->lim);
    u64 c = 0;
    for (u32 turn = 0; w->n_done < MAX_SEQ; turn++) {
        assert_true(turn < 100000); /* else it hangs */
        u32 r = (u32)(random_at(seed, c++) % 100);
        if (r < 20 && w->n_seq < MAX_SEQ) {
            u32 i = w->n_seq++;
            w->seq[i].n_prompt = 1 + (u32)(random_at(seed, c++) % 200);
            w->seq[i].want = 1 + (u32)(random_at(seed, c++) % 60);
            for (u32 k = 0; k < w->seq[i].n_prompt; k++)
                w->seq[i].prompt[k] = (u32)(random_at(seed, c++) % N_VOCAB);
            w->seq[i].q = sched_add(w->sched, i, NULL, w->seq[i].prompt, w->seq[i].n_prompt,
                                    w->seq[i].n_prompt, &(struct sampling){0});
        } else if (r < 22 && cancels && w->n_seq) {
            u32 i = (u32)(random_at(seed, c++) % w->n_seq);
            if (!w->seq[i].q) continue;
            sched_end(w->sched, w->seq[i].q);
            w->seq[i].q = NULL;
            w->n_done++;
        } else if (r < 60) {
            issue(w);
        } else {
            complete(w);
        }
    }
    while (w->n) complete(w);
    assert_int_equal(sched_blocks_used(w->sched), 0);
    assert_int_equal(sched_n_running(w->sched) + sched_n_waiting(w->sched), 0);
    for (u32 i = 0; i < 4; i++) step_deinit(&w->step[i]), step_deinit(&w->sent[i]);
    sched_free(w->sched);
    free(w->kv);
    free(w);
}

static void one_stage(void **state) {
    (void)state;
    for (u64 seed = 1; seed <= 20; seed++) run(seed, 200, 1, 8, 64, false);
}
static void three_stages(void **state) {
    (void)state;
    for (u64 seed = 1; seed <= 20; seed++) run(seed, 200, 3, 8, 48, false);
}
static void too_few_blocks(void **state) {
    (void)state;
    for (u64 seed = 1; seed <= 20; seed++) run(seed, 12, 1 + seed % 3, 6, 40, false);
}
static void cancels(void **state) {
    (void)state;
    for (u64 seed = 1; seed <= 20; seed++) run(seed, 14, 1 + seed % 3, 6, 40, true);
}

/* A decoded step never holds a number beyond the limits, whatever the bytes. */
/* A long prompt gives every stage work before anything has come back; alone it is one step. */
static void a_prompt_flows_through_the_stages(void **state) {
    (void)state;
    for (u32 n_stages = 1; n_stages <= 3; n_stages++) {
        struct sched_cfg cfg = {{512, 4, 512, 64, N_VOCAB}, n_stages};
        struct sched *s = sched_new(&cfg);
        struct sampling sampling = {.temperature = 0};
        u32 ids[400] = {0}, n_steps = 0, n_tok = 0;
        struct step step;
        step_init(&step, &cfg.limits);
        sched_add(s, 1, NULL, ids, 400, 400, &sampling);
        for (; sched_next(s, &step); n_steps++) n_tok += step.n_tok;
        assert_int_equal(n_steps, n_stages);
        assert_true(n_stages == 1 ? n_tok == 400 : n_tok < 400);
        step_deinit(&step);
        sched_free(s);
    }
}

static void hostile_steps(void **state) {
    (void)state;
    struct step_limits lim = {32, 4, 128, 16, N_VOCAB};
    struct step s;
    step_init(&s, &lim);
    u32 accepted = 0;
    for (u64 i = 0; i < 200000; i++) {
        u8 b[40];
        for (size_t k = 0; k < sizeof b; k += 8) {
            u64 v = random_at(3, i * 8 + k / 8);
            memcpy(b + k, &v, 8);
        }
        for (size_t k = 8; k < sizeof b; k++) b[k] &= i & 1 ? 0x0F : 0x87;
        size_t used;
        if (!step_decode(&s, &lim, b, sizeof b, &used, NULL)) continue;
        accepted++;
        assert_true(s.n_tok <= lim.max_tok && s.n_spans <= lim.n_slots && s.n_out <= s.n_spans);
        for (u32 t = 0; t < s.n_tok; t++) assert_true(s.ids[t] < lim.n_vocab);
        for (u32 k = 0; k < s.n_spans; k++) {
            assert_true(s.spans[k].pos0 + s.spans[k].n <= lim.n_ctx);
            for (u32 x = 0; x < s.spans[k].n_blocks; x++)
                assert_true(s.spans[k].blocks[x] < lim.n_blocks);
        }
    }
    assert_true(accepted > 100);
    step_deinit(&s);
}

static void samples_travel(void **state) {
    (void)state;
    struct step_limits lim = {32, 4, 128, 16, N_VOCAB};
    struct step s, d;
    step_init(&s, &lim);
    step_init(&d, &lim);
    struct sampling_bias bias[] = {{1, 2}, {999, -100}};
    struct sampling sm = {.temperature = 0.5f,
                          .top_k = 40,
                          .seed = UINT64_MAX,
                          .n_bias = 2,
                          .bias = bias,
                          .n_top = 5,
                          .logprobs = true};
    struct sched_cfg cfg = {lim, 1};
    struct sched *sc = sched_new(&cfg);
    u32 ids[] = {5, 6, 7};
    sched_add(sc, 1, NULL, ids, 3, 2, &sm);
    assert_true(sched_next(sc, &s));
    struct str b = {0};
    size_t used;
    step_encode(&s, &b);
    assert_true(step_decode(&d, &lim, b.p, b.n, &used, NULL));
    assert_int_equal(d.n_begin, 1);
    assert_int_equal(d.begin[0].n_prompt, 2);
    assert_true(d.begin[0].sampling.seed == UINT64_MAX && d.begin[0].sampling.top_k == 40 &&
                d.begin[0].sampling.logprobs);
    assert_int_equal(d.begin[0].sampling.bias[1].token, 999);
    struct step_result r, q;
    step_result_init(&r, &lim);
    step_result_init(&q, &lim);
    r.id = 77;
    r.n = 1;
    r.slot[0] = 3;
    r.sample[0] =
        (struct sampled){.token = 9, .logprob = -1.5f, .n_top = 2, .top = {{9, -1.5f}, {8, -2}}};
    str_clear(&b);
    step_result_encode(&r, &b);
    assert_true(step_result_decode(&q, &lim, b.p, b.n, NULL));
    assert_true(q.id == 77 && q.slot[0] == 3 && q.sample[0].top[1].token == 8);
    assert_false(step_result_decode(&q, &lim, b.p, b.n - 1, NULL));
    step_result_deinit(&r);
    step_result_deinit(&q);
    step_deinit(&s);
    step_deinit(&d);
    str_deinit(&b);
    sched_free(sc);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_stage),
        cmocka_unit_test(three_stages),
        cmocka_unit_test(too_few_blocks),
        cmocka_unit_test(cancels),
        cmocka_unit_test(a_prompt_flows_through_the_stages),
        cmocka_unit_test(hostile_steps),
        cmocka_unit_test(samples_travel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
