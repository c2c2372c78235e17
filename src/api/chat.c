/* POST /v1/chat/completions: from a parsed request to an answer, whole or streamed. */
#include <stdlib.h>
#include <string.h>

#include "api/api_impl.h"
#include "api/chat_request.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/json.h"
#include "base/lock.h"
#include "base/random.h"
#include "base/version.h"

enum { KEEPALIVE_MS = 10000 };

/* One request under way. Two hold it: the handler until node_submit has returned, and the sink
 * until its last call. The answer is closed by the sink alone. */
struct chat {
    struct node *node;
    struct http_answer *answer;
    char id[48], model[192];
    i64 created_s;
    bool stream, include_usage, want_logprobs;
    bool begun; /* the first delta, with the role, has been sent */
    u32 n_truncated;
    struct str text;     /* whole answers */
    struct str logprobs; /* whole answers: elements of content[] */
    struct str event;    /* scratch of the sink */
    struct lock lock;    /* guards what follows: handler, sink and the server's on_gone touch it */
    u64 node_request;    /* 0 until node_submit has returned */
    bool gone;
    u32 n_holders;
};

static void chat_release(struct chat *c) {
    lock_take(&c->lock);
    bool last = --c->n_holders == 0;
    lock_give(&c->lock);
    if (!last) return;
    str_deinit(&c->text);
    str_deinit(&c->logprobs);
    str_deinit(&c->event);
    lock_deinit(&c->lock);
    free(c);
}

/* On a server thread: generation stops within a token. */
static void on_gone(void *ctx) {
    struct chat *c = ctx;
    lock_take(&c->lock);
    c->gone = true;
    u64 id = c->node_request;
    lock_give(&c->lock);
    if (id) node_cancel(c->node, id);
}

static void set_node_request(struct chat *c, u64 id) {
    lock_take(&c->lock);
    c->node_request = id;
    bool gone = c->gone;
    lock_give(&c->lock);
    if (gone) node_cancel(c->node, id);
}

static void put_head(const struct chat *c, const char *object, struct str *s) {
    str_addc(s, '{');
    json_put_str(s, "id", c->id);
    json_put_str(s, "object", object);
    json_put_int(s, "created", c->created_s);
    json_put_str(s, "model", c->model);
    json_put_str(s, "system_fingerprint", "skein-" SKEIN_VERSION);
}

static void put_one_logprob(struct str *s, const struct msg_logprob *l) {
    struct str token = {0};
    utf8_add_lossy(&token, (const char *)l->bytes.p, l->bytes.n);
    json_put_view(s, "token", str_view(&token));
    json_put_num(s, "logprob", l->logprob);
    json_key(s, "bytes");
    str_addc(s, '[');
    for (u64 i = 0; i < l->bytes.n; i++) str_addf(s, i ? ",%u" : "%u", l->bytes.p[i]);
    str_addc(s, ']');
    str_deinit(&token);
}

/* Elements of logprobs.content. */
static void put_logprobs(struct str *s, const struct msg_token *m) {
    for (u64 i = 0; i < m->logprobs.n; i++) {
        const struct msg_logprobs *l = (const struct msg_logprobs *)m->logprobs.v + i;
        if (s->n) json_comma(s);
        str_addc(s, '{');
        put_one_logprob(s, &l->chosen);
        json_key(s, "top_logprobs");
        str_addc(s, '[');
        for (u64 k = 0; k < l->top.n; k++) {
            json_comma(s);
            str_addc(s, '{');
            put_one_logprob(s, (const struct msg_logprob *)l->top.v + k);
            str_addc(s, '}');
        }
        str_addz(s, "]}");
    }
}

static const char *finish_name(u32 finish) {
    return finish == FINISH_LENGTH ? "length" : "stop";
}

static void put_usage(const struct chat *c, struct str *s, const struct msg_done *m) {
    json_key(s, "usage");
    str_addc(s, '{');
    json_put_u64(s, "prompt_tokens", m->n_prompt);
    json_put_u64(s, "completion_tokens", m->n_generated);
    json_put_u64(s, "total_tokens", (u64)m->n_prompt + m->n_generated);
    json_key(s, "prompt_tokens_details");
    str_addf(s, "{\"cached_tokens\":%u}", m->n_cached);
    json_key(s, "completion_tokens_details");
    str_addz(s, "{\"reasoning_tokens\":0}");
    if (c->n_truncated) json_put_u64(s, "truncated_prompt_tokens", c->n_truncated);
    str_addc(s, '}');
}

static void send_event(struct chat *c) {
    str_addz(&c->event, "\n\n");
    http_answer_add(c->answer, c->event.p, c->event.n);
    str_clear(&c->event);
}

/* data: {... "choices":[{"index":0,"delta":{<delta>},["logprobs":...,]"finish_reason":...}]} */
static void send_chunk(struct chat *c, const char *role, const char *content,
                       const struct msg_token *logprobs, const char *finish) {
    struct str *s = &c->event;
    str_addz(s, "data: ");
    put_head(c, "chat.completion.chunk", s);
    str_addz(s, ",\"choices\":[{\"index\":0,\"delta\":{");
    if (role) json_put_str(s, "role", role);
    if (content) json_put_str(s, "content", content);
    str_addc(s, '}');
    if (logprobs) {
        struct str list = {0};
        put_logprobs(&list, logprobs);
        str_addz(s, ",\"logprobs\":{\"content\":[");
        str_addv(s, str_view(&list));
        str_addz(s, "]}");
        str_deinit(&list);
    }
    json_put_str(s, "finish_reason", finish);
    str_addz(s, "}]}");
    send_event(c);
}

static void begin_stream(struct chat *c) {
    if (c->begun) return;
    c->begun = true;
    http_answer_start(c->answer, 200, "text/event-stream");
    send_chunk(c, "assistant", "", NULL, NULL);
}

static void stream_token(struct chat *c, const struct msg_token *m) {
    begin_stream(c);
    bool with_logprobs = c->want_logprobs && m->logprobs.n;
    if (*m->text || with_logprobs) send_chunk(c, NULL, m->text, with_logprobs ? m : NULL, NULL);
}

static double per_second(u64 n, u64 us) {
    return us ? (double)n * 1e6 / (double)us : 0;
}

static void stream_done(struct chat *c, const struct msg_done *m) {
    struct str *s = &c->event;
    begin_stream(c);
    send_chunk(c, NULL, NULL, NULL, finish_name(m->finish));
    if (c->include_usage) {
        str_addz(s, "data: ");
        put_head(c, "chat.completion.chunk", s);
        str_addz(s, ",\"choices\":[]");
        put_usage(c, s, m);
        str_addc(s, '}');
        send_event(c);
    }
    /* A comment, which SSE clients skip: exo's tools and `skein ask` read their rates from it. */
    str_addz(s, ": generation_stats {");
    json_put_num(s, "prompt_tps", per_second(m->n_prompt, m->prefill_us));
    json_put_num(s, "generation_tps",
                 per_second(m->n_generated ? m->n_generated - 1 : 0, m->decode_us));
    json_put_u64(s, "prompt_tokens", m->n_prompt);
    json_put_u64(s, "generation_tokens", m->n_generated);
    str_addc(s, '}');
    send_event(c);
    http_answer_add(c->answer, "data: [DONE]\n\n", 14);
    http_answer_end(c->answer);
}

static void answer_whole(struct chat *c, const struct msg_done *m) {
    struct str *s = &c->event;
    put_head(c, "chat.completion", s);
    str_addz(s, ",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\"");
    json_put_view(s, "content", str_view(&c->text));
    str_addc(s, '}');
    if (c->want_logprobs) {
        str_addz(s, ",\"logprobs\":{\"content\":[");
        str_addv(s, str_view(&c->logprobs));
        str_addz(s, "]}");
    }
    json_put_str(s, "finish_reason", finish_name(m->finish));
    str_addz(s, "}]");
    put_usage(c, s, m);
    str_addc(s, '}');
    api_answer_json(c->answer, 200, s);
}

static void on_started(void *ctx, const struct msg_started *m) {
    struct chat *c = ctx;
    c->n_truncated = m->n_truncated;
}

static void on_token(void *ctx, const struct msg_token *m) {
    struct chat *c = ctx;
    if (c->stream) {
        stream_token(c, m);
        return;
    }
    str_addz(&c->text, m->text);
    if (c->want_logprobs) put_logprobs(&c->logprobs, m);
}

static void on_done(void *ctx, const struct msg_done *m) {
    struct chat *c = ctx;
    if (m->finish == FINISH_CANCELLED)
        http_answer_abort(c->answer); /* nobody reads it */
    else if (c->stream)
        stream_done(c, m);
    else
        answer_whole(c, m);
    chat_release(c);
}

static void on_error(void *ctx, const struct err *e) {
    struct chat *c = ctx;
    struct fault f = fault_of(e);
    fault_answer(&f, c->answer);
    chat_release(c);
}

void api_chat(struct api *api, const struct http_req *r, const char *rest, struct http_answer *a) {
    (void)rest;
    static const struct node_sink SINK = {
        .started = on_started, .token = on_token, .done = on_done, .error = on_error};
    struct chat_request req;
    struct fault f;
    if (!chat_request_parse(&req, (struct view){r->body, r->n_body}, &f) ||
        !api_model_name_ok(api, req.model, &f) || !api_may_ask(api, r, req.model, &f)) {
        chat_request_deinit(&req);
        fault_answer(&f, a);
        return;
    }
    if (!req.has_seed) req.gen.sampling.seed = random_u64();
    struct chat *c = xcalloc(1, sizeof *c);
    char uuid[ID_UUID_CAP];
    id_uuid(uuid);
    str_copy(c->id, sizeof c->id, "chatcmpl-");
    str_copy(c->id + 9, sizeof c->id - 9, uuid);
    str_copy(c->model, sizeof c->model, req.model);
    c->node = api->node;
    c->answer = a;
    c->created_s = clock_wall_ms() / 1000;
    c->stream = req.stream;
    c->include_usage = req.include_usage;
    c->want_logprobs = req.logprobs;
    c->n_holders = 2;
    lock_init(&c->lock);
    if (c->stream) {
        http_answer_header(a, "Cache-Control", "no-cache");
        http_answer_header(a, "X-Accel-Buffering", "no");
        http_answer_keepalive(a, KEEPALIVE_MS, "text/event-stream", ": keep-alive\n\n");
    }
    http_answer_on_gone(a, on_gone, c);
    set_node_request(c, node_submit(api->node, req.model, &req.gen, &SINK, c));
    chat_release(c);
    chat_request_deinit(&req);
}
