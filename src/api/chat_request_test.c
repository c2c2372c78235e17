/* Each field of a chat request has an effect or an error. */
#include "api/chat_request.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/test.h"

#define MSGS "\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

static bool parse(struct chat_request *r, const char *extra, struct fault *f) {
    char body[2000];
    snprintf(body, sizeof body, "{" MSGS "%s%s}", *extra ? "," : "", extra);
    return chat_request_parse(r, view_of(body), f);
}

static void defaults(void **state) {
    (void)state;
    struct chat_request r;
    struct fault f;
    assert_true(parse(&r, "", &f));
    assert_string_equal(r.model, "m");
    assert_true(r.gen.sampling.temperature == CHAT_TEMPERATURE &&
                r.gen.sampling.top_p == CHAT_TOP_P);
    assert_false(r.stream || r.has_seed || r.logprobs || r.gen.need_thinking);
    json_t *v = json_parse(view_of(r.gen.vars_json), NULL);
    assert_true(json_is_true(json_object_get(v, "add_generation_prompt")));
    assert_string_equal(json_string_value(json_object_get(
                            json_array_get(json_object_get(v, "messages"), 0), "content")),
                        "hi");
    json_decref(v);
    chat_request_deinit(&r);
}

static void numbers_arrive(void **state) {
    (void)state;
    struct chat_request r;
    struct fault f;
    assert_true(
        parse(&r,
              "\"temperature\":0,\"top_p\":0.5,\"top_k\":7,\"min_p\":0.1,\"seed\":-1,\"presence_"
              "penalty\":1,"
              "\"frequency_penalty\":-1,\"repetition_penalty\":1.1,\"repetition_context_size\":20,"
              "\"max_tokens\":5,"
              "\"stop\":[\"a\",\"b\"],\"logit_bias\":{\"12\":-100},\"logprobs\":true,\"top_"
              "logprobs\":3,\"stream\":true,"
              "\"stream_options\":{\"include_usage\":true},\"truncate\":true,\"ignore_eos\":true",
              &f));
    const struct msg_sampling *s = &r.gen.sampling;
    assert_true(s->temperature == 0 && s->top_p == 0.5f && s->top_k == 7 && s->min_p == 0.1f);
    assert_true(s->seed == UINT64_MAX && r.has_seed && s->presence_penalty == 1 &&
                s->frequency_penalty == -1);
    assert_true(s->repetition_penalty == 1.1f && s->repetition_last_n == 20 &&
                r.gen.max_tokens == 5);
    assert_true(r.gen.stop.n == 2 && s->logit_bias.n == 1 && s->logprobs == 1 &&
                s->n_logprobs == 3);
    assert_int_equal(((struct msg_bias *)s->logit_bias.v)->token, 12);
    assert_true(r.stream && r.include_usage && r.gen.truncate && r.gen.ignore_eos);
    chat_request_deinit(&r);
    assert_true(parse(&r, "\"max_tokens\":50,\"max_completion_tokens\":9", &f));
    assert_int_equal(r.gen.max_tokens, 9);
    chat_request_deinit(&r);
    assert_true(parse(&r, "\"top_k\":-1,\"max_tokens\":16.0,\"temperature\":null", &f));
    assert_true(r.gen.sampling.top_k == 0 && r.gen.max_tokens == 16 &&
                r.gen.sampling.temperature == CHAT_TEMPERATURE);
    chat_request_deinit(&r);
}

static void errors_name_the_field(void **state) {
    (void)state;
    static const struct {
        const char *extra, *param, *code;
    } CASE[] = {
        {"\"temperature\":2.1", "temperature", "invalid_value"},
        {"\"temperature\":\"1\"", "temperature", "invalid_value"},
        {"\"top_p\":-0.1", "top_p", "invalid_value"},
        {"\"max_tokens\":0", "max_tokens", "invalid_value"},
        {"\"max_tokens\":1.5", "max_tokens", "invalid_value"},
        {"\"stop\":\"\"", "stop", "invalid_value"},
        {"\"stop\":[1]", "stop", "invalid_value"},
        {"\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"0\",\"1\",\"2\",\"3\","
         "\"4\",\"5\",\"6\",\"7\"]",
         "stop", "limit_exceeded"},
        {"\"logit_bias\":{\"x\":1}", "logit_bias", "invalid_value"},
        {"\"logit_bias\":{\"1\":101}", "logit_bias", "invalid_value"},
        {"\"logit_bias\":{\"4294967297\":1}", "logit_bias", "invalid_value"},
        {"\"top_logprobs\":3", "top_logprobs", "invalid_value"},
        {"\"logprobs\":true,\"top_logprobs\":21", "top_logprobs", "invalid_value"},
        {"\"stream\":1", "stream", "invalid_value"},
        {"\"seed\":0.5", "seed", "invalid_value"},
        {"\"n\":2", "n", "unsupported_parameter"},
        {"\"n\":0", "n", "invalid_value"},
        {"\"tools\":[{}]", "tools", "unsupported_parameter"},
        {"\"functions\":[{}]", "functions", "unsupported_parameter"},
        {"\"tool_choice\":\"required\"", "tool_choice", "unsupported_parameter"},
        {"\"response_format\":{\"type\":\"json_object\"}", "response_format",
         "unsupported_parameter"},
        {"\"modalities\":[\"text\",\"audio\"]", "modalities", "unsupported_parameter"},
        {"\"audio\":{}", "audio", "unsupported_parameter"},
        {"\"web_search_options\":{}", "web_search_options", "unsupported_parameter"},
        {"\"verbosity\":\"low\"", "verbosity", "unsupported_parameter"},
        {"\"stream_options\":{\"x\":1}", "stream_options", "unsupported_parameter"},
        {"\"options\":{\"num_ctx\":1}", "options", "unsupported_parameter"},
        {"\"reasoning_effort\":\"lots\"", "reasoning_effort", "invalid_value"},
        {"\"chat_template_kwargs\":[]", "chat_template_kwargs", "invalid_value"},
        {"\"chat_template_kwargs\":{\"messages\":[]}", "chat_template_kwargs",
         "unsupported_parameter"},
        {"\"chat_template_kwargs\":{\"add_generation_prompt\":false}", "chat_template_kwargs",
         "unsupported_parameter"},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASE); i++) {
        struct chat_request r;
        struct fault f;
        if (parse(&r, CASE[i].extra, &f)) fail_msg("accepted: %s", CASE[i].extra);
        assert_string_equal(f.param, CASE[i].param);
        assert_string_equal(f.code[0] ? f.code : err_name(f.e.code), CASE[i].code);
        assert_int_equal(err_http_status(f.e.code), 400);
        chat_request_deinit(&r);
    }
}

static void accepted_without_effect(void **state) {
    (void)state;
    static const char *const OK[] = {"\"user\":\"u\"",
                                     "\"metadata\":{\"a\":\"b\"}",
                                     "\"store\":true",
                                     "\"service_tier\":\"auto\"",
                                     "\"prediction\":{}",
                                     "\"safety_identifier\":\"x\"",
                                     "\"prompt_cache_key\":\"x\"",
                                     "\"parallel_tool_calls\":true",
                                     "\"tools\":[]",
                                     "\"tools\":null",
                                     "\"tool_choice\":\"none\"",
                                     "\"response_format\":{\"type\":\"text\"}",
                                     "\"n\":1",
                                     "\"modalities\":[\"text\"]",
                                     "\"reasoning_effort\":\"none\""};
    for (size_t i = 0; i < ARRAY_LEN(OK); i++) {
        struct chat_request r;
        struct fault f;
        if (!parse(&r, OK[i], &f)) fail_msg("refused: %s: %s", OK[i], f.e.msg);
        chat_request_deinit(&r);
    }
}

static void what_has_no_effect_has_a_type(void **state) {
    (void)state;
    static const char *const BAD[][2] = {
        {"user", "7"},          {"metadata", "\"a\""},      {"store", "\"yes\""},
        {"service_tier", "1"},  {"prediction", "\"x\""},    {"safety_identifier", "{}"},
        {"prompt_cache_key", "[]"}, {"prompt_cache_retention", "24"}, {"parallel_tool_calls", "1"},
        {"tools", "{}"},        {"functions", "\"f\""}};
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++) {
        struct chat_request r;
        struct fault f;
        char extra[100];
        snprintf(extra, sizeof extra, "\"%s\":%s", BAD[i][0], BAD[i][1]);
        if (parse(&r, extra, &f)) fail_msg("accepted: %s", extra);
        assert_string_equal(f.param, BAD[i][0]);
        assert_int_equal(f.e.code, ERR_ARG);
        assert_non_null(strstr(f.e.msg, "must be"));
        chat_request_deinit(&r);
    }
}

static void thinking_becomes_variables(void **state) {
    (void)state;
    struct chat_request r;
    struct fault f;
    assert_true(parse(&r, "\"reasoning_effort\":\"high\"", &f));
    assert_true(r.gen.need_thinking);
    assert_non_null(strstr(r.gen.vars_json, "\"enable_thinking\":true"));
    chat_request_deinit(&r);
    assert_true(parse(&r, "\"enable_thinking\":false", &f));
    assert_false(r.gen.need_thinking);
    assert_non_null(strstr(r.gen.vars_json, "\"enable_thinking\":false"));
    chat_request_deinit(&r);
}

static void message_forms(void **state) {
    (void)state;
    static const struct {
        const char *messages, *want; /* in vars_json, or NULL: refused with param */
        const char *param;
    } CASE[] = {
        {"[{\"role\":\"developer\",\"content\":\"d\"}]", "\"role\":\"system\",\"content\":\"d\"",
         NULL},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\","
         "\"text\":\"b\"}]}]",
         "\"content\":\"a\\nb\"", NULL},
        {"[{\"role\":\"assistant\",\"content\":null,\"refusal\":null,\"annotations\":[]}]",
         "\"content\":\"\"", NULL},
        {"[{\"role\":\"assistant\",\"content\":\"x\",\"reasoning\":\"r\"}]",
         "\"reasoning_content\":\"r\",\"thinking\":\"r\"", NULL},
        {"[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"1\",\"type\":"
         "\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"}}]}]",
         "\"arguments\":{\"a\":1}", NULL},
        {"[{\"role\":\"tool\",\"content\":\"5\",\"tool_call_id\":\"1\"}]", "\"tool_call_id\":\"1\"",
         NULL},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:"
         "\"}}]}]",
         NULL, "messages[0].content[0]"},
        {"[{\"role\":\"assistant\",\"tool_calls\":[5]}]", NULL, "messages[0].tool_calls"},
        {"[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"1\",\"function\":{\"name\":1}}]}]",
         NULL, "messages[0].tool_calls"},
        {"[{\"role\":\"assistant\",\"tool_calls\":\"f\"}]", NULL, "messages[0].tool_calls"},
        {"[{\"role\":\"robot\",\"content\":\"x\"}]", NULL, "messages[0].role"},
        {"[{\"role\":\"user\",\"content\":5}]", NULL, "messages[0].content"},
        {"[{\"role\":\"user\",\"content\":\"x\",\"colour\":\"red\"}]", NULL, "messages[0].colour"},
        {"[]", NULL, "messages"},
        {"\"hi\"", NULL, "messages"},
        {"[5]", NULL, "messages[0]"},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASE); i++) {
        char body[1000];
        snprintf(body, sizeof body, "{\"model\":\"m\",\"messages\":%s}", CASE[i].messages);
        struct chat_request r;
        struct fault f;
        bool ok = chat_request_parse(&r, view_of(body), &f);
        if (ok != (CASE[i].want != NULL)) fail_msg("%s: %s", CASE[i].messages, f.e.msg);
        if (ok && !strstr(r.gen.vars_json, CASE[i].want))
            fail_msg("%s gave %s", CASE[i].messages, r.gen.vars_json);
        if (!ok) assert_string_equal(f.param, CASE[i].param);
        chat_request_deinit(&r);
    }
}

static void no_json_says_where(void **state) {
    (void)state;
    struct chat_request r;
    struct fault f;
    assert_false(chat_request_parse(&r, VIEW("{\"model\":\n oops}"), &f));
    assert_non_null(strstr(f.e.msg, "line 2"));
    chat_request_deinit(&r);
    assert_false(chat_request_parse(&r, VIEW("[]"), &f));
    chat_request_deinit(&r);
    assert_false(chat_request_parse(&r, VIEW("{}"), &f));
    assert_string_equal(f.param, "model");
    chat_request_deinit(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(numbers_arrive),
        cmocka_unit_test(errors_name_the_field),
        cmocka_unit_test(accepted_without_effect),
        cmocka_unit_test(what_has_no_effect_has_a_type),
        cmocka_unit_test(thinking_becomes_variables),
        cmocka_unit_test(message_forms),
        cmocka_unit_test(no_json_says_where),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
