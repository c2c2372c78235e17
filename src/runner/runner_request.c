#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "runner/runner_impl.h"

static void set_default(json_t *vars, const char *key, json_t *value) {
    if (json_object_get(vars, key))
        json_decref(value);
    else
        json_object_set_new(vars, key, value);
}

static json_t *piece_json(const struct tokenizer *t, i32 id) {
    struct view v = id >= 0 ? tokenizer_piece(t, (u32)id) : VIEW("");
    json_t *j = json_stringn(v.p, v.n);
    return j ? j : json_string("");
}

static bool knows_thinking(const struct template *t) {
    return template_uses(t, "enable_thinking") || template_uses(t, "reasoning_effort") ||
           template_uses(t, "thinking");
}

/* The template's text for the request's variables, with those added that only the model knows. */
static bool render(struct runner *r, const char *vars_json, bool need_thinking, struct str *text,
                   struct err *e) {
    if (!r->tmpl) {
        if (e) *e = r->tmpl_err;
        return false;
    }
    if (need_thinking && !knows_thinking(r->tmpl))
        return err_set(e, ERR_UNSUPPORTED,
                       "thinking was asked for, and the chat template of %s has none",
                       r->params.name);
    json_t *vars = json_parse(view_of(vars_json), e);
    if (!vars) return false;
    bool ok =
        json_is_object(vars) || err_set(e, ERR_ARG, "the template's variables must be an object");
    if (ok) {
        set_default(vars, "bos_token", piece_json(r->tok, tokenizer_bos(r->tok)));
        set_default(vars, "eos_token", piece_json(r->tok, tokenizer_eos(r->tok)));
        set_default(vars, "add_generation_prompt", json_true());
        set_default(vars, "tools", json_null()); /* templates ask for these without `is defined` */
        set_default(vars, "documents", json_null());
        struct str dump = {0};
        json_dump(vars, &dump);
        ok = template_render(r->tmpl, str_view(&dump), clock_wall_ms() / 1000, clock_utc_offset_s(),
                             NULL, text, e);
        str_deinit(&dump);
    }
    json_decref(vars);
    return ok;
}

static bool too_long(const struct runner *r, const char *at_least, u64 n, struct err *e) {
    return err_set(e, ERR_CONTEXT,
                   "the prompt has %s%llu tokens and this instance's context window is %u: shorten "
                   "it, or place the model with a larger context",
                   at_least, (unsigned long long)n, r->lim.n_ctx);
}

static bool prompt_ids(struct runner *r, const struct msg_generate *m, struct token_list *ids,
                       struct err *e) {
    struct str text = {0};
    bool ok = true;
    if (*m->vars_json)
        ok = render(r, m->vars_json, m->need_thinking, &text, e);
    else if (*m->prompt)
        str_addz(&text, m->prompt);
    /* Megabytes take seconds, in which no other request goes on. */
    u64 least = m->truncate ? 0 : tokenizer_tokens_min(r->tok, text.n);
    if (ok && least >= r->lim.n_ctx) ok = too_long(r, "at least ", least, e);
    if (ok && text.n)
        ok = tokenizer_encode(r->tok, r->tok_scratch, str_view(&text), true, true, ids, e);
    str_deinit(&text);
    for (u64 i = 0; ok && i < m->prompt_ids.n; i++) token_list_add(ids, m->prompt_ids.v[i]);
    if (ok && ids->n == 0) ok = err_set(e, ERR_ARG, "the prompt is empty");
    for (size_t i = 0; ok && i < ids->n; i++)
        if ((u32)ids->id[i] >= r->lim.n_vocab)
            ok = err_set(e, ERR_ARG, "prompt token %d is not in the vocabulary of %u", ids->id[i],
                         r->lim.n_vocab);
    return ok;
}

/* Makes the prompt fit, or says that it does not. With truncate, the oldest tokens behind BOS go,
 * so that a quarter of the window (or max_tokens, if less) is free for the answer. */
static bool fit_context(const struct runner *r, const struct msg_generate *m,
                        struct token_list *ids, u32 *n_cut, struct err *e) {
    u32 n_ctx = r->lim.n_ctx;
    *n_cut = 0;
    if (ids->n < n_ctx) return true;
    if (!m->truncate) return too_long(r, "", ids->n, e);
    u32 room = MIN(m->max_tokens ? m->max_tokens : n_ctx / 4, n_ctx / 4);
    u32 keep_bos = ids->id[0] == tokenizer_bos(r->tok);
    *n_cut = (u32)ids->n - (n_ctx - room);
    memmove(ids->id + keep_bos, ids->id + keep_bos + *n_cut,
            (ids->n - keep_bos - *n_cut) * sizeof *ids->id);
    ids->n -= *n_cut;
    return true;
}

static bool set_sampling(const struct runner *r, const struct msg_sampling *m, struct sampling *s,
                         struct sampling_bias *bias, struct err *e) {
    *s = (struct sampling){.temperature = m->temperature,
                           .top_k = m->top_k,
                           .top_p = m->top_p,
                           .min_p = m->min_p,
                           .repetition_penalty = m->repetition_penalty,
                           .repetition_last_n = m->repetition_last_n,
                           .presence_penalty = m->presence_penalty,
                           .frequency_penalty = m->frequency_penalty,
                           .seed = m->seed,
                           .bias = bias,
                           .n_top = MIN(m->n_logprobs, (u32)SAMPLER_TOP_MAX),
                           .logprobs = m->logprobs};
    if (m->logit_bias.n > SAMPLER_BIAS_MAX)
        return err_set(e, ERR_LIMIT, "logit_bias names %llu tokens, at most %d",
                       (unsigned long long)m->logit_bias.n, (int)SAMPLER_BIAS_MAX);
    for (; s->n_bias < m->logit_bias.n; s->n_bias++) {
        const struct msg_bias *b = (const struct msg_bias *)m->logit_bias.v + s->n_bias;
        if ((u32)b->token >= r->lim.n_vocab)
            return err_set(e, ERR_ARG, "logit_bias: token %d is not in the vocabulary of %u",
                           b->token, r->lim.n_vocab);
        bias[s->n_bias] = (struct sampling_bias){(u32)b->token, b->bias};
    }
    return true;
}

static void request_free(struct runner *r, struct request *q) {
    struct request **at = &r->requests;
    while (*at != q) at = &(*at)->next;
    *at = q->next;
    stops_deinit(&q->stops);
    free(q);
}

static void send_text(struct runner *r, struct request *q, const struct str *text,
                      const struct sampled *s) {
    struct msg_token m = {.id = q->id, .text = str_z(text)};
    i32 id = s ? (i32)s->token : 0;
    struct arena a = {0};
    struct msg_logprobs lp = {0};
    if (s) m.ids = (struct wire_i32s){&id, 1};
    if (s && q->seq->sampling.logprobs) {
        struct msg_logprob *top = arena_array(&a, s->n_top + 1, sizeof *top);
        for (u32 i = 0; i <= s->n_top; i++) {
            struct str piece = {0};
            struct sampled_top t =
                i < s->n_top ? s->top[i] : (struct sampled_top){s->token, s->logprob};
            detok_piece(r->tok, t.token, true, &piece);
            top[i] = (struct msg_logprob){
                (i32)t.token, t.logprob, {(u8 *)arena_memdup(&a, str_z(&piece), piece.n), piece.n}};
            str_deinit(&piece);
        }
        lp = (struct msg_logprobs){.chosen = top[s->n_top], .top = {top, s->n_top}};
        m.logprobs = (struct wire_list){&lp, 1};
    }
    if (text->n || s) runner_send(r, MSG_TOKEN, &m);
    arena_deinit(&a);
}

/* Sends what is still held back (unless a stop string cut it off), then done. q is gone afterwards.
 */
static void finish(struct runner *r, struct request *q, enum msg_finish why, int stop) {
    if (stop < 0 && why != FINISH_CANCELLED) {
        struct str tail = {0}, text = {0};
        detok_end(&q->detok, &tail);
        if ((stop = stops_add(&q->stops, str_view(&tail), &text)) < 0)
            stops_end(&q->stops, &text);
        else
            why = FINISH_STOP;
        send_text(r, q, &text, NULL);
        str_deinit(&tail);
        str_deinit(&text);
    }
    u64 now = clock_us(), first = q->t_first_us ? q->t_first_us : now;
    struct msg_done m = {.id = q->id,
                         .finish = why,
                         .n_prompt = q->seq->n_prompt,
                         .n_generated = q->n_generated,
                         .prefill_us = first - q->t_arrived_us,
                         .decode_us = now - first,
                         .stop = stop >= 0 ? str_z(&q->stops.stop[stop]) : ""};
    runner_send(r, MSG_DONE, &m);
    sched_end(r->sched, q->seq);
    request_free(r, q);
}

/* Text of one token through detokenizer and stop strings; the stop met, or -1. */
static int add_text(struct runner *r, struct request *q, u32 token, struct str *out) {
    struct str piece = {0};
    detok_add(r->tok, &q->detok, token, false, &piece);
    int stop = stops_add(&q->stops, str_view(&piece), out);
    str_deinit(&piece);
    return stop;
}

static void take_sample(struct runner *r, struct request *q, const struct sampled *s) {
    if (q->t_first_us == 0) q->t_first_us = clock_us();
    if (s->token == SAMPLED_NONE) {
        struct err e = {0};
        err_set(
            &e, ERR_INTERNAL,
            "no token can be chosen: the logits hold no finite number, or logit_bias forbids all");
        runner_send_error(r, q->id, &e);
        sched_end(r->sched, q->seq);
        request_free(r, q);
        return;
    }
    if (!q->ignore_eos && tokenizer_flags(r->tok, s->token) & TOKEN_EOG) {
        finish(r, q, FINISH_STOP, -1);
        return;
    }
    struct str text = {0};
    int stop = add_text(r, q, s->token, &text);
    q->n_generated++;
    r->n_generated++;
    send_text(r, q, &text, s);
    str_deinit(&text);
    if (stop >= 0)
        finish(r, q, FINISH_STOP, stop);
    else if (q->n_generated >= q->n_max || q->seq->n_tok + 1 >= r->lim.n_ctx)
        finish(r, q, FINISH_LENGTH, -1);
    else
        sched_push(r->sched, q->seq, s->token);
}

void runner_take_result(struct runner *r, const struct step_result *res) {
    for (u32 i = 0; i < res->n; i++) {
        struct seq *s = sched_slot(r->sched, res->slot[i]);
        if (s) take_sample(r, s->owner, &res->sample[i]);
    }
    sched_done(r->sched, res->id);
}

/* A resumed answer: the same tokens go through the same text rules, what they let out was shown
 * before. */
static bool replay(struct runner *r, struct request *q, const struct msg_generate *m, int *stop) {
    struct str shown = {0};
    *stop = -1;
    for (u64 i = 0; i < m->resume_ids.n && *stop < 0; i++)
        *stop = add_text(r, q, (u32)m->resume_ids.v[i], &shown);
    str_deinit(&shown);
    q->n_generated = (u32)m->resume_ids.n;
    return *stop < 0;
}

static bool add_request(struct runner *r, const struct msg_generate *m, struct token_list *ids,
                        struct request *q, struct err *e) {
    u32 n_cut;
    struct sampling sampling;
    static struct sampling_bias bias[SAMPLER_BIAS_MAX]; /* copied by sched_add; one thread */
    if (!prompt_ids(r, m, ids, e) || !fit_context(r, m, ids, &n_cut, e)) return false;
    if (!set_sampling(r, &m->sampling, &sampling, bias, e)) return false;
    for (u64 i = 0; i < m->stop.n; i++)
        if (!stops_add_string(&q->stops, view_of(((const struct msg_text *)m->stop.v)[i].s)))
            return err_set(e, ERR_ARG, "stop: at most %d strings of 1 to %d bytes", (int)STOPS_MAX,
                           (int)STOP_BYTES_MAX);
    u32 n_prompt = (u32)ids->n;
    for (u64 i = 0; i < m->resume_ids.n; i++) {
        if ((u32)m->resume_ids.v[i] >= r->lim.n_vocab)
            return err_set(e, ERR_ARG, "resumed token %d is not in the vocabulary",
                           m->resume_ids.v[i]);
        token_list_add(ids, m->resume_ids.v[i]);
    }
    if (ids->n >= r->lim.n_ctx)
        ids->n = r->lim.n_ctx - 1; /* resumed at the window's end: finishes below */
    u32 room = r->lim.n_ctx - n_prompt;
    q->n_max = m->max_tokens ? MIN(m->max_tokens, room) : room;
    q->seq = sched_add(r->sched, m->id, q, (u32 *)ids->id, (u32)ids->n, n_prompt, &sampling);
    struct msg_started started = {.id = m->id, .n_prompt = n_prompt, .n_truncated = n_cut};
    runner_send(r, MSG_STARTED, &started);
    return true;
}

void runner_generate(struct runner *r, const struct msg_generate *m) {
    struct err e = {0};
    struct token_list ids = {0};
    if (!r->ready || !runner_is_first(r)) {
        err_set(&e, ERR_BUSY, "this shard does not take requests");
        runner_send_error(r, m->id, &e);
        return;
    }
    struct request *q = xcalloc(1, sizeof *q);
    q->id = m->id;
    q->ignore_eos = m->ignore_eos;
    q->t_arrived_us = clock_us();
    q->next = r->requests;
    r->requests = q;
    if (add_request(r, m, &ids, q, &e)) {
        int stop;
        if (!replay(r, q, m, &stop))
            finish(r, q, FINISH_STOP, stop);
        else if (q->n_generated >= q->n_max)
            finish(r, q, FINISH_LENGTH, -1);
    } else {
        runner_send_error(r, m->id, &e);
        request_free(r, q);
    }
    token_list_deinit(&ids);
}

void runner_cancel(struct runner *r, u64 id) {
    for (struct request *q = r->requests; q; q = q->next)
        if (q->id == id) {
            finish(r, q, FINISH_CANCELLED, -1);
            return;
        }
}

void runner_tokenize(struct runner *r, const struct msg_tokenize *m) {
    struct err e = {0};
    struct token_list ids = {0};
    if (r->tok && tokenizer_encode(r->tok, r->tok_scratch, view_of(m->text), m->add_special,
                                   m->parse_special, &ids, &e)) {
        struct msg_tokenized t = {m->id, {ids.id, ids.n}};
        runner_send(r, MSG_TOKENIZED, &t);
    } else {
        if (!r->tok) err_set(&e, ERR_BUSY, "this shard has no tokenizer");
        runner_send_error(r, m->id, &e);
    }
    token_list_deinit(&ids);
}

void runner_drop_requests(struct runner *r) {
    while (r->requests) request_free(r, r->requests);
}
