#include "api/chat_request.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"

enum {
    MESSAGES_MAX = 4096,
    PARTS_MAX = 256,
    STOPS_MAX_API = 16,
    BIAS_MAX = 1024,
    MODEL_NAME_MAX = 1024
};

/* What the parser gathers before it can be put together. */
struct parse {
    struct chat_request *r;
    struct fault *f;
    json_t *vars; /* the template's variables */
    i64 max_tokens, max_completion_tokens, top_logprobs;
    const char *effort;      /* reasoning_effort */
    int thinking;            /* enable_thinking: -1 not said */
    json_t *template_kwargs; /* borrowed */
};

static bool get_num(struct parse *p, const char *key, const json_t *v, double lo, double hi,
                    float *out) {
    if (!json_is_number(v)) return fault_set(p->f, ERR_ARG, key, "%s must be a number", key);
    double x = json_number_value(v);
    if (!(x >= lo && x <= hi))
        return fault_set(p->f, ERR_ARG, key, "%s is %g: it must be between %g and %g", key, x, lo,
                         hi);
    *out = (float)x;
    return true;
}

static bool get_int(struct parse *p, const char *key, const json_t *v, i64 lo, i64 hi, i64 *out) {
    double real = json_is_real(v) ? json_real_value(v) : 0.5; /* 16.0 is a whole number too */
    bool whole = json_is_integer(v) || (fabs(real) < 0x1p53 && real == floor(real));
    if (!whole) return fault_set(p->f, ERR_ARG, key, "%s must be a whole number", key);
    i64 x = json_is_integer(v) ? (i64)json_integer_value(v) : (i64)real;
    if (x < lo || x > hi)
        return fault_set(p->f, ERR_ARG, key, "%s is %lld: it must be between %lld and %lld", key,
                         (long long)x, (long long)lo, (long long)hi);
    *out = x;
    return true;
}

static bool get_bool(struct parse *p, const char *key, const json_t *v, bool *out) {
    if (!json_is_boolean(v)) return fault_set(p->f, ERR_ARG, key, "%s must be true or false", key);
    *out = json_is_true(v);
    return true;
}

static bool is_empty(const json_t *v) {
    return json_is_null(v) || (json_is_array(v) && json_array_size(v) == 0) ||
           (json_is_object(v) && json_object_size(v) == 0);
}

static bool add_part(struct parse *p, const json_t *part, const char *where, struct str *text) {
    const char *type = json_string_value(json_object_get(part, "type"));
    if (json_is_string(part)) type = "text";
    if (!type)
        return fault_set(p->f, ERR_ARG, where, "a part of a message's content must have a type");
    bool is_text = strcmp(type, "text") == 0 || strcmp(type, "input_text") == 0 ||
                   strcmp(type, "output_text") == 0;
    bool is_refusal = strcmp(type, "refusal") == 0;
    if (!is_text && !is_refusal)
        return fault_unsupported(
            p->f, where, "content parts of type %.40s are not supported: only text is", type);
    const json_t *v =
        json_is_string(part) ? part : json_object_get(part, is_refusal ? "refusal" : "text");
    if (!json_is_string(v))
        return fault_set(p->f, ERR_ARG, where,
                         "a content part of type %s must have the text as a string", type);
    if (text->n) str_addc(text, '\n');
    str_add(text, json_string_value(v), json_string_length(v));
    return true;
}

/* Content as one string, or null. Takes no reference; NULL with the fault set. */
static json_t *flat_content(struct parse *p, const json_t *content, size_t i) {
    char where[64];
    snprintf(where, sizeof where, "messages[%zu].content", i);
    if (!content || json_is_null(content)) return json_string("");
    if (json_is_string(content)) return json_string(json_string_value(content));
    if (!json_is_array(content)) {
        fault_set(p->f, ERR_ARG, where, "content must be a string or an array of parts");
        return NULL;
    }
    struct str text = {0};
    bool ok = json_array_size(content) <= PARTS_MAX ||
              fault_set(p->f, ERR_LIMIT, where, "%zu parts, at most %d", json_array_size(content),
                        (int)PARTS_MAX);
    for (size_t k = 0; ok && k < json_array_size(content); k++) {
        snprintf(where, sizeof where, "messages[%zu].content[%zu]", i, k);
        ok = add_part(p, json_array_get(content, k), where, &text);
    }
    json_t *out = ok ? json_stringn(str_z(&text), text.n) : NULL;
    str_deinit(&text);
    return out;
}

/* Templates want a call's arguments as an object; OpenAI's wire has them as a JSON text. */
static json_t *tool_calls_for_template(const json_t *calls) {
    json_t *out = json_deep_copy(calls), *call;
    size_t i;
    json_array_foreach(out, i, call) {
        json_t *fn = json_object_get(call, "function"), *args = json_object_get(fn, "arguments");
        if (!json_is_string(args)) continue;
        json_t *parsed = json_parse(view_of(json_string_value(args)), NULL);
        if (json_is_object(parsed)) json_object_set(fn, "arguments", parsed);
        json_decref(parsed);
    }
    return out;
}

/* [{"function": {"name": ..., "arguments": ...}, ...}], as the answer had them. */
static bool check_tool_calls(struct parse *p, const char *where, const json_t *calls) {
    size_t i;
    json_t *call;
    if (!json_is_array(calls))
        return fault_set(p->f, ERR_ARG, where, "tool_calls must be an array");
    json_array_foreach(calls, i, call) {
        const json_t *fn = json_object_get(call, "function");
        if (!json_is_string(json_object_get(fn, "name")))
            return fault_set(p->f, ERR_ARG, where, "%s[%zu] must have a function with a name",
                             where, i);
    }
    return true;
}

static bool one_of(const char *s, const char *const *list) {
    for (; *list; list++)
        if (strcmp(s, *list) == 0) return true;
    return false;
}

/* One member of a message besides role and content. */
static bool message_field(struct parse *p, json_t *out, const char *key, const json_t *v,
                          size_t i) {
    static const char *const TEXTS[] = {"name", "tool_call_id", NULL};
    static const char *const THOUGHTS[] = {"reasoning_content", "reasoning", "thinking", NULL};
    char where[96];
    snprintf(where, sizeof where, "messages[%zu].%.40s", i, key);
    if (is_empty(v)) return true;
    bool thoughts = one_of(key, THOUGHTS);
    if (thoughts || one_of(key, TEXTS)) {
        if (!json_is_string(v))
            return fault_set(p->f, ERR_ARG, where, "%s must be a string", where);
        if (!thoughts) return json_object_set(out, key, (json_t *)v) == 0;
        /* Templates know them by either name. */
        return json_object_set(out, "reasoning_content", (json_t *)v) == 0 &&
               json_object_set(out, "thinking", (json_t *)v) == 0;
    }
    if (strcmp(key, "tool_calls") == 0)
        return check_tool_calls(p, where, v) &&
               json_object_set_new(out, key, tool_calls_for_template(v)) == 0;
    if (strcmp(key, "refusal") == 0 && json_is_string(v))
        return true; /* an echo of an earlier answer */
    return fault_unsupported(p->f, where, "%s is not a field of a message that skein knows", where);
}

static bool add_message(struct parse *p, json_t *list, const json_t *m, size_t i) {
    static const char *const ROLES[] = {"system", "developer", "user", "assistant",
                                        "tool",   "function",  NULL};
    char where[64];
    snprintf(where, sizeof where, "messages[%zu]", i);
    if (!json_is_object(m)) return fault_set(p->f, ERR_ARG, where, "%s must be an object", where);
    const char *role = json_string_value(json_object_get(m, "role"));
    snprintf(where, sizeof where, "messages[%zu].role", i);
    if (!role || !one_of(role, ROLES))
        return fault_set(p->f, ERR_ARG, where,
                         "%s must be system, developer, user, assistant or tool", where);
    if (strcmp(role, "developer") == 0) role = "system";
    if (strcmp(role, "function") == 0) role = "tool";
    json_t *content = flat_content(p, json_object_get(m, "content"), i);
    if (!content) return false;
    json_t *out = json_object();
    json_object_set_new(out, "role", json_string(role));
    json_object_set_new(out, "content", content);
    json_array_append_new(list, out);
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)m, key, v) {
        if (strcmp(key, "role") == 0 || strcmp(key, "content") == 0) continue;
        if (!message_field(p, out, key, v, i)) return false;
    }
    return true;
}

static bool f_messages(struct parse *p, const char *key, json_t *v) {
    if (!json_is_array(v) || json_array_size(v) == 0)
        return fault_set(p->f, ERR_ARG, key, "messages must be an array with at least one message");
    if (json_array_size(v) > MESSAGES_MAX)
        return fault_set(p->f, ERR_LIMIT, key, "%zu messages, at most %d", json_array_size(v),
                         (int)MESSAGES_MAX);
    json_t *list = json_array();
    json_object_set_new(p->vars, "messages", list);
    for (size_t i = 0; i < json_array_size(v); i++)
        if (!add_message(p, list, json_array_get(v, i), i)) return false;
    return true;
}

static bool f_model(struct parse *p, const char *key, json_t *v) {
    const char *s = json_string_value(v);
    if (!s || !*s || strlen(s) > MODEL_NAME_MAX)
        return fault_set(p->f, ERR_ARG, key, "model must be the name of a model");
    p->r->model = arena_strdup(&p->r->arena, s);
    return true;
}

static bool f_stop(struct parse *p, const char *key, json_t *v) {
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    if (n > STOPS_MAX_API)
        return fault_set(p->f, ERR_LIMIT, key, "%zu stop strings, at most %d", n,
                         (int)STOPS_MAX_API);
    struct msg_text *t = arena_array(&p->r->arena, n + 1, sizeof *t);
    for (size_t i = 0; i < n; i++) {
        const char *s = json_string_value(json_is_array(v) ? json_array_get(v, i) : v);
        if (!s || !*s)
            return fault_set(p->f, ERR_ARG, key,
                             "stop must be a string or an array of strings, none of them empty");
        t[i].s = arena_strdup(&p->r->arena, s);
    }
    p->r->gen.stop = (struct wire_list){t, n};
    return true;
}

static bool f_logit_bias(struct parse *p, const char *key, json_t *v) {
    if (!json_is_object(v))
        return fault_set(p->f, ERR_ARG, key,
                         "logit_bias must be an object of token ids and numbers");
    if (json_object_size(v) > BIAS_MAX)
        return fault_set(p->f, ERR_LIMIT, key, "logit_bias has %zu entries, at most %d",
                         json_object_size(v), (int)BIAS_MAX);
    struct msg_bias *b = arena_array(&p->r->arena, json_object_size(v) + 1, sizeof *b);
    u64 n = 0;
    const char *id;
    json_t *bias;
    json_object_foreach(v, id, bias) {
        i64 token = 0;
        bool digits = *id && strlen(id) <= 9;
        for (const char *c = id; digits && *c; c++) {
            digits = *c >= '0' && *c <= '9';
            token = token * 10 + (*c - '0');
        }
        if (!digits)
            return fault_set(p->f, ERR_ARG, key, "logit_bias: \"%.20s\" is not a token id", id);
        float x = 0;
        if (!get_num(p, key, bias, -100, 100, &x)) return false;
        b[n++] = (struct msg_bias){(i32)token, x};
    }
    p->r->gen.sampling.logit_bias = (struct wire_list){b, n};
    return true;
}

static bool f_stream_options(struct parse *p, const char *key, json_t *v) {
    if (!json_is_object(v))
        return fault_set(p->f, ERR_ARG, key, "stream_options must be an object");
    const char *name;
    json_t *x;
    json_object_foreach(v, name, x) {
        bool ignored;
        if (strcmp(name, "include_usage") == 0) {
            if (!get_bool(p, "stream_options.include_usage", x, &p->r->include_usage)) return false;
        } else if (strcmp(name, "include_obfuscation") ==
                   0) { /* padding against traffic analysis: there is none */
            if (!get_bool(p, "stream_options.include_obfuscation", x, &ignored)) return false;
        } else {
            return fault_unsupported(p->f, key, "stream_options.%.40s is not supported", name);
        }
    }
    return true;
}

static bool f_response_format(struct parse *p, const char *key, json_t *v) {
    const char *type = json_string_value(json_object_get(v, "type"));
    if (type && strcmp(type, "text") == 0) return true;
    return fault_unsupported(p->f, key, "response_format %.40s is not supported yet: only text is",
                             type ? type : "without a type");
}

static bool f_n(struct parse *p, const char *key, json_t *v) {
    i64 n;
    if (!get_int(p, key, v, 1, 128, &n)) return false;
    return n == 1 ||
           fault_unsupported(
               p->f, key,
               "n is %lld: more than one choice is not supported yet, send the request n times",
               (long long)n);
}

static bool f_tools(struct parse *p, const char *key, json_t *v) {
    if (!json_is_array(v)) return fault_set(p->f, ERR_ARG, key, "%s must be an array", key);
    return is_empty(v) || fault_unsupported(p->f, key, "%s: tool calls are not supported yet", key);
}

static bool f_tool_choice(struct parse *p, const char *key, json_t *v) {
    const char *s = json_string_value(v);
    if (s && (strcmp(s, "none") == 0 || strcmp(s, "auto") == 0))
        return true; /* without tools both mean none */
    return fault_unsupported(p->f, key, "%s: tool calls are not supported yet", key);
}

static bool f_modalities(struct parse *p, const char *key, json_t *v) {
    for (size_t i = 0; i < json_array_size(v); i++) {
        const char *s = json_string_value(json_array_get(v, i));
        if (!s || strcmp(s, "text") != 0)
            return fault_unsupported(p->f, key, "modalities: only text is supported");
    }
    return json_is_array(v) || fault_set(p->f, ERR_ARG, key, "modalities must be an array");
}

static bool f_verbosity(struct parse *p, const char *key, json_t *v) {
    const char *s = json_string_value(v);
    return (s && strcmp(s, "medium") == 0) ||
           fault_unsupported(
               p->f, key,
               "verbosity is not supported: say in the prompt how long the answer should be");
}

static bool f_reasoning_effort(struct parse *p, const char *key, json_t *v) {
    static const char *const LEVELS[] = {"none", "minimal", "low", "medium", "high", "xhigh", NULL};
    p->effort = json_string_value(v);
    return (p->effort && one_of(p->effort, LEVELS)) ||
           fault_set(p->f, ERR_ARG, key,
                     "reasoning_effort must be none, minimal, low, medium, high or xhigh");
}

static bool f_template_kwargs(struct parse *p, const char *key, json_t *v) {
    static const char *const OURS[] = {"messages", "add_generation_prompt", NULL};
    const char *name;
    json_t *ignored;
    p->template_kwargs = v;
    if (!json_is_object(v))
        return fault_set(p->f, ERR_ARG, key, "chat_template_kwargs must be an object");
    json_object_foreach(v, name, ignored) {
        if (one_of(name, OURS))
            return fault_unsupported(p->f, key, "chat_template_kwargs can't set %s", name);
    }
    return true;
}

/* Numbers go straight into the sampling struct. */
enum number { TEMPERATURE, TOP_P, MIN_P, REPETITION, PRESENCE, FREQUENCY };
static bool set_number(struct parse *p, const char *key, json_t *v, enum number which) {
    struct msg_sampling *s = &p->r->gen.sampling;
    switch (which) {
    case TEMPERATURE: return get_num(p, key, v, 0, 2, &s->temperature);
    case TOP_P: return get_num(p, key, v, 0, 1, &s->top_p);
    case MIN_P: return get_num(p, key, v, 0, 1, &s->min_p);
    case REPETITION: return get_num(p, key, v, 0.01, 10, &s->repetition_penalty);
    case PRESENCE: return get_num(p, key, v, -2, 2, &s->presence_penalty);
    case FREQUENCY: return get_num(p, key, v, -2, 2, &s->frequency_penalty);
    }
    return false;
}
static bool f_temperature(struct parse *p, const char *k, json_t *v) {
    return set_number(p, k, v, TEMPERATURE);
}
static bool f_top_p(struct parse *p, const char *k, json_t *v) {
    return set_number(p, k, v, TOP_P);
}
static bool f_min_p(struct parse *p, const char *k, json_t *v) {
    return set_number(p, k, v, MIN_P);
}
static bool f_repetition(struct parse *p, const char *k, json_t *v) {
    return set_number(p, k, v, REPETITION);
}
static bool f_presence(struct parse *p, const char *k, json_t *v) {
    return set_number(p, k, v, PRESENCE);
}
static bool f_frequency(struct parse *p, const char *k, json_t *v) {
    return set_number(p, k, v, FREQUENCY);
}

static bool f_top_k(struct parse *p, const char *k, json_t *v) {
    i64 n;
    if (!get_int(p, k, v, -1, INT32_MAX, &n)) return false;
    p->r->gen.sampling.top_k = n > 0 ? (u32)n : 0;
    return true;
}
static bool f_repetition_context(struct parse *p, const char *k, json_t *v) {
    i64 n;
    if (!get_int(p, k, v, 1, INT32_MAX, &n)) return false;
    p->r->gen.sampling.repetition_last_n = (u32)n;
    return true;
}
static bool f_seed(struct parse *p, const char *k, json_t *v) {
    i64 n;
    if (!get_int(p, k, v, INT64_MIN, INT64_MAX, &n)) return false;
    p->r->gen.sampling.seed = (u64)n;
    p->r->has_seed = true;
    return true;
}
static bool f_max_tokens(struct parse *p, const char *k, json_t *v) {
    return get_int(p, k, v, 1, INT32_MAX, &p->max_tokens);
}
static bool f_max_completion_tokens(struct parse *p, const char *k, json_t *v) {
    return get_int(p, k, v, 1, INT32_MAX, &p->max_completion_tokens);
}
static bool f_top_logprobs(struct parse *p, const char *k, json_t *v) {
    return get_int(p, k, v, 0, 20, &p->top_logprobs);
}
static bool f_logprobs(struct parse *p, const char *k, json_t *v) {
    return get_bool(p, k, v, &p->r->logprobs);
}
static bool f_stream(struct parse *p, const char *k, json_t *v) {
    return get_bool(p, k, v, &p->r->stream);
}
static bool f_thinking(struct parse *p, const char *k, json_t *v) {
    bool b = false;
    if (!get_bool(p, k, v, &b)) return false;
    p->thinking = b;
    return true;
}
static bool f_truncate(struct parse *p, const char *k, json_t *v) {
    bool b = false;
    if (!get_bool(p, k, v, &b)) return false;
    p->r->gen.truncate = b;
    return true;
}
static bool f_ignore_eos(struct parse *p, const char *k, json_t *v) {
    bool b = false;
    if (!get_bool(p, k, v, &b)) return false;
    p->r->gen.ignore_eos = b;
    return true;
}
/* Fields that OpenAI defines without effect on what is generated: billing, storage, caching,
 * labels, speed. Of another type than theirs they are a mistake all the same. */
static bool f_any_text(struct parse *p, const char *k, json_t *v) {
    return json_is_string(v) || fault_set(p->f, ERR_ARG, k, "%s must be a string", k);
}
static bool f_any_object(struct parse *p, const char *k, json_t *v) {
    return json_is_object(v) || fault_set(p->f, ERR_ARG, k, "%s must be an object", k);
}
static bool f_any_bool(struct parse *p, const char *k, json_t *v) {
    bool ignored;
    return get_bool(p, k, v, &ignored);
}

static const struct field {
    const char *key;
    bool (*fn)(struct parse *p, const char *key, json_t *v);
} FIELDS[] = {
    {"model", f_model},
    {"messages", f_messages},
    {"max_tokens", f_max_tokens},
    {"max_completion_tokens", f_max_completion_tokens},
    {"temperature", f_temperature},
    {"top_p", f_top_p},
    {"top_k", f_top_k},
    {"min_p", f_min_p},
    {"n", f_n},
    {"stop", f_stop},
    {"stream", f_stream},
    {"stream_options", f_stream_options},
    {"seed", f_seed},
    {"presence_penalty", f_presence},
    {"frequency_penalty", f_frequency},
    {"repetition_penalty", f_repetition},
    {"repetition_context_size", f_repetition_context},
    {"logit_bias", f_logit_bias},
    {"logprobs", f_logprobs},
    {"top_logprobs", f_top_logprobs},
    {"response_format", f_response_format},
    {"tools", f_tools},
    {"functions", f_tools},
    {"tool_choice", f_tool_choice},
    {"function_call", f_tool_choice},
    {"parallel_tool_calls", f_any_bool}, /* speaks of tools only, and tools are refused */
    {"modalities", f_modalities},
    {"verbosity", f_verbosity},
    {"reasoning_effort", f_reasoning_effort},
    {"enable_thinking", f_thinking},
    {"chat_template_kwargs", f_template_kwargs},
    {"truncate", f_truncate},
    {"ignore_eos", f_ignore_eos},
    {"user", f_any_text},
    {"metadata", f_any_object},
    {"store", f_any_bool},
    {"service_tier", f_any_text},
    {"prediction", f_any_object},
    {"safety_identifier", f_any_text},
    {"prompt_cache_key", f_any_text},
    {"prompt_cache_retention", f_any_text},
};

static const struct field *find_field(const char *key) {
    for (size_t i = 0; i < ARRAY_LEN(FIELDS); i++)
        if (strcmp(FIELDS[i].key, key) == 0) return &FIELDS[i];
    return NULL;
}

/* Thinking: what the request says becomes template variables. Asking for it needs a template that
 * knows it; asking for none is always granted. */
static void set_thinking(struct parse *p) {
    if (p->effort) {
        bool none = strcmp(p->effort, "none") == 0;
        json_object_set_new(p->vars, "reasoning_effort", json_string(p->effort));
        if (p->thinking < 0) p->thinking = !none;
    }
    if (p->thinking < 0) return;
    json_object_set_new(p->vars, "enable_thinking", json_boolean(p->thinking));
    p->r->gen.need_thinking = p->thinking == 1;
}

static bool finish(struct parse *p) {
    struct chat_request *r = p->r;
    if (!r->model) return fault_set(p->f, ERR_ARG, "model", "the request names no model");
    if (!json_object_get(p->vars, "messages"))
        return fault_set(p->f, ERR_ARG, "messages", "the request has no messages");
    if (p->top_logprobs >= 0 && !r->logprobs)
        return fault_set(p->f, ERR_ARG, "top_logprobs", "top_logprobs needs logprobs: true");
    if (p->max_completion_tokens) p->max_tokens = p->max_completion_tokens;
    r->gen.max_tokens = (u32)p->max_tokens;
    r->gen.sampling.logprobs = r->logprobs;
    r->gen.sampling.n_logprobs = p->top_logprobs > 0 ? (u32)p->top_logprobs : 0;
    set_thinking(p);
    if (p->template_kwargs) json_object_update(p->vars, p->template_kwargs);
    json_object_set_new(p->vars, "add_generation_prompt", json_true());
    struct str s = {0};
    json_dump(p->vars, &s);
    r->gen.vars_json = arena_memdup(&r->arena, str_z(&s), s.n);
    str_deinit(&s);
    return true;
}

bool chat_request_parse(struct chat_request *r, struct view body, struct fault *f) {
    *r = (struct chat_request){
        .gen.sampling = {.temperature = CHAT_TEMPERATURE, .top_p = CHAT_TOP_P}};
    *f = (struct fault){0};
    json_t *root = json_parse(body, &f->e);
    if (!root) {
        err_wrap(&f->e, "the body is not JSON");
        return false;
    }
    struct parse p = {.r = r, .f = f, .vars = json_object(), .thinking = -1, .top_logprobs = -1};
    bool ok = json_is_object(root) || fault_set(f, ERR_ARG, NULL, "the body must be a JSON object");
    const char *key;
    json_t *v;
    json_object_foreach(root, key, v) {
        const struct field *d = find_field(key);
        if (!ok) break;
        if (!d)
            ok = fault_unsupported(f, key, "%.60s is not a parameter that skein knows", key);
        else if (!json_is_null(v))
            ok = d->fn(&p, key, v); /* null is "not given" */
    }
    ok = ok && finish(&p);
    json_decref(p.vars);
    json_decref(root);
    return ok;
}

void chat_request_deinit(struct chat_request *r) {
    arena_deinit(&r->arena);
}
