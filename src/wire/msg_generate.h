/* msg_generate.h - the messages of one request: what a runner is asked for, and its answers. Part
 * of msg.h, whose rules hold here too. */
#pragma once

#include "wire/wire.h"

struct msg_bias {
    i32 token;
    float bias;
};
struct msg_text {
    const char *s;
};

/* How to choose tokens. Zero means "off" everywhere; `set` fields are decided by the API. */
struct msg_sampling {
    float temperature; /* 0: greedy */
    u32 top_k;         /* 0: off */
    float top_p;       /* 0 or 1: off */
    float min_p;
    float repetition_penalty;                  /* 0 or 1: off */
    u32 repetition_last_n;                     /* tokens looked back for repetition; 0: 64 */
    float presence_penalty, frequency_penalty; /* over the generated tokens */
    u64 seed;
    struct wire_list logit_bias; /* struct msg_bias */
    u32 n_logprobs;              /* 0: none; k: the token's and the k-1 likeliest... see logprobs */
    u32 logprobs;                /* bool: report the logprob of each token */
};

struct msg_generate {
    u64 id;                      /* chosen by the asking node, unique there */
    const char *vars_json;       /* chat: variables of the template (messages, tools, ...)  */
    const char *prompt;          /* or raw text, when vars_json is "" */
    struct wire_i32s prompt_ids; /* or ids, when both are "" */
    struct wire_i32s resume_ids; /* tokens already generated: the answer goes on behind them */
    u32 max_tokens;              /* 0: up to the context's end */
    struct wire_list stop;       /* struct msg_text */
    u32 ignore_eos;
    u32 truncate; /* bool: drop the oldest tokens of a prompt that is too long */
    struct msg_sampling sampling;
    const char *origin; /* node id that asked, for relayed requests */
    u32 need_thinking;  /* bool: refuse when the template knows no thinking */
};

struct msg_cancel {
    u64 id;
};

struct msg_started {
    u64 id;
    u32 n_prompt, n_cached, n_truncated;
};
struct msg_logprob {
    i32 token;
    float logprob;
    struct wire_blob bytes; /* the token's text, maybe not valid UTF-8 alone */
};
struct msg_logprobs {
    struct msg_logprob chosen;
    struct wire_list top; /* struct msg_logprob */
};
struct msg_token {
    u64 id;
    const char *text;          /* what can be shown now; may be "" */
    struct wire_i32s ids;      /* tokens behind it, for a resumption */
    struct wire_list logprobs; /* struct msg_logprobs, one an id, when asked for */
};
enum msg_finish { FINISH_NONE, FINISH_STOP, FINISH_LENGTH, FINISH_CANCELLED };
struct msg_done {
    u64 id;
    u32 finish; /* enum msg_finish */
    u32 n_prompt, n_cached, n_generated;
    u64 prefill_us, decode_us;
    const char *stop; /* the stop string that was met, or "" */
};
struct msg_request_error {
    u64 id;
    u32 code; /* enum err_code */
    const char *text;
};
