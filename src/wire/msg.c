#include "wire/msg.h"

#include "wire/msg_cluster.h"

/* One row a field: F(tag, kind, field), and S(tag, kind, field, table) for structs. A tag is never
 * reused nor given another kind: that would need a new SKEIN_PROTOCOL. */
#define F(t, k, f)      {t, WIRE_##k, offsetof(struct MSG, f), NULL},
#define S(t, k, f, tab) {t, WIRE_##k, offsetof(struct MSG, f), &tab},
#define TABLE(var, name)                                                                     \
    static const struct wire_table var = {name, sizeof(struct MSG), ARRAY_LEN(var##_FIELDS), \
                                          var##_FIELDS};

#define MSG msg_describe
static const struct wire_field DESCRIBE_FIELDS[] = {F(1, STR, path) F(2, U32, kv_type)};
TABLE(DESCRIBE, "describe")
#undef MSG

#define MSG msg_slice
static const struct wire_field SLICE_FIELDS[] = {F(1, U32, head_first) F(2, U32, head_end) F(
    3, U32, ff_first) F(4, U32, ff_end) F(5, U32, vocab_first) F(6, U32, vocab_end)};
const struct wire_table MSG_SLICE_TABLE = {"slice", sizeof(struct MSG), ARRAY_LEN(SLICE_FIELDS),
                                           SLICE_FIELDS};
#undef MSG

#define MSG msg_load
static const struct wire_field LOAD_FIELDS[] = {
    F(1, STR, instance_id) F(2, STR, path) F(3, U32, rank) F(4, U32, n_ranks) F(5, U32, layer_first)
        F(6, U32, layer_end) F(7, U32, n_ctx) F(8, U32, n_seq_max) F(9, U64, memory_max_bytes)
            F(10, U32, n_threads) F(11, STR, cpu_mask) F(12, BLOB, key) F(13, STR, listen_host)
                F(14, U32, tp_first) F(15, U32, tp_ranks) S(16, SUB, slice, MSG_SLICE_TABLE)
                    F(17, U32, kv_type) F(18, U32, sum_wire) F(19, U32, encrypt)
                        F(20, U32, check_sums) F(21, U32, force) F(22, U32, act_bits)
                            F(23, STR, fabric)};
TABLE(LOAD, "load")
#undef MSG

#define MSG msg_peer
static const struct wire_field PEER_FIELDS[] = {F(1, U32, rank) F(2, STR, host) F(3, U32, port)
                                                    F(4, U32, streams)};
TABLE(PEER, "peer")
#undef MSG

#define MSG msg_connect
static const struct wire_field CONNECT_FIELDS[] = {S(1, LIST, peers, PEER)};
TABLE(CONNECT, "connect")
#undef MSG

#define MSG msg_bias
static const struct wire_field BIAS_FIELDS[] = {F(1, I32, token) F(2, F32, bias)};
TABLE(BIAS, "bias")
#undef MSG

#define MSG msg_text
static const struct wire_field TEXT_FIELDS[] = {F(1, STR, s)};
TABLE(TEXT, "text")
#undef MSG

#define MSG msg_sampling
static const struct wire_field SAMPLING_FIELDS[] = {
    F(1, F32, temperature) F(2, U32, top_k) F(3, F32, top_p) F(4, F32, min_p)
        F(5, F32, repetition_penalty) F(6, U32, repetition_last_n) F(7, F32, presence_penalty)
            F(8, F32, frequency_penalty) F(9, U64, seed) S(10, LIST, logit_bias, BIAS)
                F(11, U32, n_logprobs) F(12, U32, logprobs)};
TABLE(SAMPLING, "sampling")
#undef MSG

#define MSG msg_generate
static const struct wire_field GENERATE_FIELDS[] = {
    F(1, U64, id) F(2, STR, vars_json) F(3, STR, prompt) F(4, I32S, prompt_ids)
        F(5, I32S, resume_ids) F(6, U32, max_tokens) S(7, LIST, stop, TEXT) F(8, U32, ignore_eos)
            F(9, U32, truncate) S(10, SUB, sampling, SAMPLING) F(11, STR, origin)
                F(12, U32, need_thinking)};
TABLE(GENERATE, "generate")
#undef MSG

#define MSG msg_cancel
static const struct wire_field CANCEL_FIELDS[] = {F(1, U64, id)};
TABLE(CANCEL, "cancel")
#undef MSG

#define MSG msg_tokenize
static const struct wire_field TOKENIZE_FIELDS[] = {
    F(1, U64, id) F(2, STR, text) F(3, U32, add_special) F(4, U32, parse_special)};
TABLE(TOKENIZE, "tokenize")
#undef MSG

#define MSG msg_described
static const struct wire_field DESCRIBED_FIELDS[] = {
    F(1, STR, path) F(2, STR, arch) F(3, STR, name) F(4, STR, quant) F(5, U32, n_layers)
        F(6, U32, n_ctx_train) F(7, U32, n_vocab) F(8, U32, dim) F(9, U32, n_heads)
            F(10, U32, n_kv_heads) F(11, U64, n_params) F(12, U64, file_bytes)
                F(13, U64, embed_bytes) F(14, U64, head_bytes) F(15, U64S, layer_bytes)
                    F(16, U64, kv_bytes_per_token_layer) F(17, U32, has_template)
                        S(18, SUB, shape, MSG_SHAPE_TABLE) F(19, U64S, file_parts)
                            F(20, U64, tied_bytes)};
TABLE(DESCRIBED, "described")
#undef MSG

#define MSG msg_listening
static const struct wire_field LISTENING_FIELDS[] = {F(1, U32, port)};
TABLE(LISTENING, "listening")
#undef MSG

#define MSG msg_progress
static const struct wire_field PROGRESS_FIELDS[] = {F(1, U32, done) F(2, U32, total)};
TABLE(PROGRESS, "progress")
#undef MSG

#define MSG msg_rank_link
static const struct wire_field RANK_LINK_FIELDS[] = {
    F(1, U32, carrier) F(2, U32, n_streams) F(3, U32, is_encrypted) F(4, STR, provider)};
const struct wire_table MSG_RANK_LINK_TABLE = {"rank link", sizeof(struct MSG),
                                               ARRAY_LEN(RANK_LINK_FIELDS), RANK_LINK_FIELDS};
#undef MSG

#define MSG msg_ready
static const struct wire_field READY_FIELDS[] = {
    F(1, U32, n_ctx) F(2, U32, n_seq_max) F(3, U64, weights_bytes) F(4, U64, kv_bytes)
        F(5, U64, scratch_bytes) F(6, U64, kv_tokens) F(7, U32, n_threads) F(8, STR, isa)
            F(9, U32, pid) S(10, SUB, model, DESCRIBED) S(11, LIST, links, MSG_RANK_LINK_TABLE)};
TABLE(READY, "ready")
#undef MSG

#define MSG msg_failed
static const struct wire_field FAILED_FIELDS[] = {F(1, U32, code) F(2, STR, text)};
TABLE(FAILED, "failed")
#undef MSG

#define MSG msg_started
static const struct wire_field STARTED_FIELDS[] = {F(1, U64, id) F(2, U32, n_prompt)
                                                       F(3, U32, n_cached) F(4, U32, n_truncated)};
TABLE(STARTED, "started")
#undef MSG

#define MSG msg_logprob
static const struct wire_field LOGPROB_FIELDS[] = {F(1, I32, token) F(2, F32, logprob)
                                                       F(3, BLOB, bytes)};
TABLE(LOGPROB, "logprob")
#undef MSG

#define MSG msg_logprobs
static const struct wire_field LOGPROBS_FIELDS[] = {S(1, SUB, chosen, LOGPROB)
                                                        S(2, LIST, top, LOGPROB)};
TABLE(LOGPROBS, "logprobs")
#undef MSG

#define MSG msg_token
static const struct wire_field TOKEN_FIELDS[] = {F(1, U64, id) F(2, STR, text) F(3, I32S, ids)
                                                     S(4, LIST, logprobs, LOGPROBS)};
TABLE(TOKEN, "token")
#undef MSG

#define MSG msg_done
static const struct wire_field DONE_FIELDS[] = {
    F(1, U64, id) F(2, U32, finish) F(3, U32, n_prompt) F(4, U32, n_cached) F(5, U32, n_generated)
        F(6, U64, prefill_us) F(7, U64, decode_us) F(8, STR, stop)};
TABLE(DONE, "done")
#undef MSG

#define MSG msg_request_error
static const struct wire_field REQUEST_ERROR_FIELDS[] = {F(1, U64, id) F(2, U32, code)
                                                             F(3, STR, text)};
TABLE(REQUEST_ERROR, "request_error")
#undef MSG

#define MSG msg_stats
static const struct wire_field STATS_FIELDS[] = {F(1, U32, n_running) F(2, U32, n_waiting) F(
    3, U64, kv_tokens_used) F(4, U64, kv_tokens) F(5, U64, n_generated) F(6, U64, rss_bytes)};
TABLE(STATS, "stats")
#undef MSG

#define MSG msg_tokenized
static const struct wire_field TOKENIZED_FIELDS[] = {F(1, U64, id) F(2, I32S, ids)};
TABLE(TOKENIZED, "tokenized")
#undef MSG

#define MSG msg_measure
static const struct wire_field MEASURE_FIELDS[] = {
    F(1, U32, n_threads) F(2, STR, cpu_mask) F(3, U64, mem_bytes)};
TABLE(MEASURE, "measure")
#undef MSG

#define MSG msg_measured
static const struct wire_field MEASURED_FIELDS[] = {
    F(1, U64, read_bytes_s) F(2, U64, int8_ops_s) F(3, U64, float_ops_s) F(4, STR, isa)
        F(5, STR, isas) F(6, U32, n_threads) F(7, U32, is_contended) F(8, U32, call_ns)
            S(9, LIST, rates, MSG_RATE_TABLE) F(10, U64, attend_ops_s)
                F(11, U64, attend_one_ops_s)};
TABLE(MEASURED, "measured")
#undef MSG

static const struct {
    const char *name;
    const struct wire_table *table;
} TYPES[MSG_TYPE_N] = {
    [MSG_SHUTDOWN] = {"shutdown", NULL},
    [MSG_DESCRIBE] = {"describe", &DESCRIBE},
    [MSG_LOAD] = {"load", &LOAD},
    [MSG_CONNECT] = {"connect", &CONNECT},
    [MSG_GENERATE] = {"generate", &GENERATE},
    [MSG_CANCEL] = {"cancel", &CANCEL},
    [MSG_TOKENIZE] = {"tokenize", &TOKENIZE},
    [MSG_DESCRIBED] = {"described", &DESCRIBED},
    [MSG_LISTENING] = {"listening", &LISTENING},
    [MSG_PROGRESS] = {"progress", &PROGRESS},
    [MSG_READY] = {"ready", &READY},
    [MSG_FAILED] = {"failed", &FAILED},
    [MSG_STARTED] = {"started", &STARTED},
    [MSG_TOKEN] = {"token", &TOKEN},
    [MSG_DONE] = {"done", &DONE},
    [MSG_REQUEST_ERROR] = {"request_error", &REQUEST_ERROR},
    [MSG_STATS] = {"stats", &STATS},
    [MSG_TOKENIZED] = {"tokenized", &TOKENIZED},
    [MSG_MEASURE] = {"measure", &MEASURE},
    [MSG_MEASURED] = {"measured", &MEASURED},
};

const struct wire_table *msg_table(u32 type) {
    const struct wire_table *t = type < MSG_TYPE_N ? TYPES[type].table : NULL;
    return t ? t : msg_cluster_table(type);
}

const char *msg_name(u32 type) {
    if (type < MSG_TYPE_N && TYPES[type].name) return TYPES[type].name;
    const struct wire_table *t = msg_cluster_table(type);
    return t ? t->name : "unknown";
}
