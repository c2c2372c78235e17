/* chat_request.h - the body of POST /v1/chat/completions, checked field by field.
 *
 * Every field of the request has an effect or an error: what the engine can't honour gets a 400
 * `unsupported_parameter`, what OpenAI defines without effect on the output (user, metadata, ...)
 * is listed in the table and accepted. Pure: bytes in, struct out. */
#pragma once

#include "api/fault.h"
#include "base/arena.h"
#include "wire/msg.h"

struct chat_request {
    struct arena arena; /* owns everything below */
    const char *model;
    struct msg_generate gen; /* vars_json, sampling, stop, max_tokens, truncate */
    bool stream, include_usage, logprobs, has_seed;
};

/* Where the request says nothing. As llama.cpp and Ollama do, a little below OpenAI's 1. */
#define CHAT_TEMPERATURE 0.7f
#define CHAT_TOP_P       0.95f

/* False and *f (400). Deinit in both cases. */
bool chat_request_parse(struct chat_request *r, struct view body, struct fault *f);
void chat_request_deinit(struct chat_request *r);
