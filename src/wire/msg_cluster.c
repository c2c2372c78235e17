#include "wire/msg_cluster.h"

#include "wire/msg.h"
#include "wire/msg_state.h"

/* As in msg.c: F(tag, kind, field), S(tag, kind, field, table); a tag is never reused. */
#define F(t, k, f)      {t, WIRE_##k, offsetof(struct MSG, f), NULL},
#define S(t, k, f, tab) {t, WIRE_##k, offsetof(struct MSG, f), &tab},
#define ROWS(var, name) \
    { name, sizeof(struct MSG), ARRAY_LEN(var##_FIELDS), var##_FIELDS }
#define TABLE(var, name) static const struct wire_table var = ROWS(var, name);

#define MSG msg_string
static const struct wire_field STRING_FIELDS[] = {F(1, STR, s)};
TABLE(STRING, "string")
#undef MSG

#define MSG msg_route
static const struct wire_field ROUTE_FIELDS[] = {F(1, STR, node) F(2, STR, address)
                                                     S(3, LIST, hosts, STRING) F(4, U32, bus_port)};
TABLE(ROUTE, "route")
#undef MSG

#define MSG msg_hello
static const struct wire_field HELLO_FIELDS[] = {
    F(1, U32, protocol) F(2, STR, build) F(3, STR, os) F(4, STR, cluster) F(5, STR, name)
        F(6, U64, boot) F(7, U64, seniority) F(8, U32, is_worker) F(9, U32, api_port)
            F(10, U32, bus_port) F(11, U32, n_cores) F(12, STR, cpu) F(13, STR, isa)
                F(14, STR, device) F(15, U64, mem_total_bytes) S(16, LIST, routes, ROUTE)
                    F(17, U32, wants_hello) S(18, LIST, addresses, STRING) F(19, U32, share_port)
                        F(20, BLOB, share_token)};
TABLE(HELLO, "hello")
#undef MSG

#define MSG msg_link
static const struct wire_field LINK_FIELDS[] = {
    F(1, STR, peer) F(2, STR, address) F(3, STR, interface) F(4, U32, kind) F(5, U32, speed_mbit)
        F(6, U32, mtu) F(7, U32, jumbo_passes) F(8, U32, rtt_p50_us) F(9, U32, rtt_p99_us)
            F(10, U64, bandwidth_bytes_s) F(11, U64, measured_at) F(12, STR, problem)};
TABLE(LINK, "link")
#undef MSG

#define MSG msg_iface
static const struct wire_field IFACE_FIELDS[] = {F(1, STR, name) F(2, STR, address) F(3, U32, kind)
                                                     F(4, U32, speed_mbit) F(5, U32, mtu)};
TABLE(IFACE, "interface")
#undef MSG

#define MSG msg_gpu
static const struct wire_field GPU_FIELDS[] = {
    F(1, STR, name) F(2, STR, driver) F(3, U64, mem_total_bytes) F(4, U64, mem_available_bytes)
        F(5, U32, load_pct) F(6, U32, temperature_c) F(7, U32, power_mw)};
TABLE(GPU, "gpu")
#undef MSG

#define MSG msg_rate
static const struct wire_field RATE_FIELDS[] = {F(1, U32, type) F(2, U64, one_ops_s) F(
    3, U64, few_ops_s) F(4, U64, many_ops_s) F(5, U64, many8_ops_s) F(6, U64, narrow_ops_s)
                                                    F(7, U64, narrow_many_ops_s)};
const struct wire_table MSG_RATE_TABLE = {"rate", sizeof(struct MSG), ARRAY_LEN(RATE_FIELDS),
                                          RATE_FIELDS};
#undef MSG

#define MSG msg_facts
static const struct wire_field FACTS_FIELDS[] = {
    F(1, U64, boot) F(2, U64, seq) F(3, U32, n_cores) F(4, U32, n_cores_big) F(5, U32, cache_l2_kib)
        F(6, U32, cache_l3_kib) F(7, U64, mem_total_bytes) F(8, U64, disk_total_bytes)
            F(9, U64, read_bytes_s) F(10, U64, int8_ops_s) F(11, U64, float_ops_s)
                F(12, U32, temperature_c) F(13, U32, power_mw) F(14, STR, power_source)
                    F(15, U32, is_throttled) F(16, U32, load_pct) S(17, LIST, gpus, GPU)
                        S(18, LIST, links, LINK) F(19, U64, swap_total_bytes)
                            F(20, U64, swap_available_bytes) F(21, STR, model) F(22, STR, os_build)
                                F(23, STR, isa) F(24, STR, isas) F(25, U32, cache_l1_kib)
                                    F(26, U32, load_big_pct) F(27, U32, load_small_pct)
                                        F(28, STR, throttle) F(29, U32, is_on_battery)
                                            F(30, U32, link_port) F(31, BLOB, link_token)
                                                S(32, LIST, interfaces, IFACE) F(33, U32, has_rdma)
                                                    F(34, U32, call_ns)
                                                        S(35, LIST, rates, MSG_RATE_TABLE)
                                                            F(36, U64, attend_ops_s)
                                                                F(37, U64, attend_one_ops_s)};
TABLE(FACTS, "facts")
#undef MSG

#define MSG msg_claim
static const struct wire_field CLAIM_FIELDS[] = {F(1, STR, master) F(2, U64, term) F(
    3, U64, seniority) F(4, U32, is_established) F(5, U32, is_forced)};
TABLE(CLAIM, "claim")
#undef MSG

#define MSG msg_runner
static const struct wire_field RUNNER_FIELDS[] = {
    F(1, STR, instance) F(2, U64, place) F(3, U32, rank) F(4, U32, status) F(5, U32, port)
        F(6, U64, done) F(7, U64, total) F(8, U64, weights_bytes) F(9, U64, kv_bytes)
            F(10, U64, scratch_bytes) F(11, U64, kv_tokens) F(12, U32, n_ctx) F(13, U32, n_threads)
                F(14, U32, pid) F(15, STR, isa) F(16, U32, code) F(17, STR, text)
                    F(18, U32, n_active) F(19, U64, n_served)
                        S(20, LIST, links, MSG_RANK_LINK_TABLE)};
const struct wire_table MSG_RUNNER_TABLE = ROWS(RUNNER, "runner");
#undef MSG

#define MSG msg_heartbeat
static const struct wire_field HEARTBEAT_FIELDS[] = {
    F(1, U64, boot) F(2, U64, term) S(3, SUB, claim, CLAIM) F(4, U32, hears_master)
        F(5, U64, digest) F(6, U64, mem_available_bytes) F(7, U64, mem_limit_bytes)
            F(8, U64, disk_available_bytes) S(9, LIST, runners, MSG_RUNNER_TABLE) F(10, U64, seq)
                F(11, U64, roster) F(12, U64, wall_ms)};
TABLE(HEARTBEAT, "heartbeat")
#undef MSG

#define MSG msg_model
static const struct wire_field MODEL_FIELDS[] = {
    F(1, STR, arch) F(2, STR, title) F(3, STR, quant) F(4, U32, n_layers) F(5, U32, n_ctx_train)
        F(6, U64, file_bytes) F(7, U64, embed_bytes) F(8, U64, head_bytes)
            F(9, U64, kv_bytes_per_token_layer) F(10, U64S, layer_bytes) F(11, U32, n_vocab)
                F(12, U32, dim) S(13, SUB, shape, MSG_SHAPE_TABLE) F(14, U64S, file_parts)
                    F(15, U64, tied_bytes)};
TABLE(MODEL, "model")
#undef MSG

#define MSG msg_rank
static const struct wire_field RANK_FIELDS[] = {
    F(1, STR, node) F(2, U32, layer_first) F(3, U32, layer_end) F(4, U64, weights_bytes)
        F(5, U64, memory_bytes) F(6, U32, tp_first) F(7, U32, tp_ranks)
            S(8, SUB, slice, MSG_SLICE_TABLE)};
TABLE(RANK, "rank")
#undef MSG

#define MSG msg_wish
static const struct wire_field WISH_FIELDS[] = {
    F(1, U32, sharding) F(2, U32, goal) F(3, U32, n_batch) F(4, U32, force)
        S(5, LIST, nodes, STRING) S(6, LIST, exclude, STRING) S(7, LIST, ranks, RANK)};
TABLE(WISH, "wish")
#undef MSG

#define MSG msg_wanted
static const struct wire_field WANTED_FIELDS[] = {
    F(1, STR, id) F(2, STR, model) F(3, U32, min_nodes) F(4, U32, n_ctx) F(5, U32, is_automatic)
        F(6, STR, first_node) F(7, BLOB, key) S(8, SUB, desc, MODEL) F(9, U32, reloads)
            F(10, U64, born_in) F(11, U32, born_no) S(12, SUB, wish, WISH) F(13, U32, kv_type)
                F(14, U32, act_bits)};
const struct wire_table MSG_WANTED_TABLE = ROWS(WANTED, "wanted");
#undef MSG

#define MSG msg_placement
static const struct wire_field PLACEMENT_FIELDS[] = {
    F(1, STR, instance) F(2, U64, place) F(3, U32, n_ctx) S(4, LIST, ranks, RANK) F(5, U32, reloads)
        F(6, U32, tries) F(7, U32, gave_up) F(8, STR, reason) S(9, LIST, avoid, STRING)
            F(10, U64, next_place) F(11, U32, next_ctx) S(12, LIST, next_ranks, RANK)
                S(13, LIST, lost, STRING)};
const struct wire_table MSG_PLACEMENT_TABLE = ROWS(PLACEMENT, "placement");
#undef MSG

#define MSG msg_seen
static const struct wire_field SEEN_FIELDS[] = {F(1, U64, session) F(2, U32, upto) F(3, U64, term)};
TABLE(SEEN, "seen")
#undef MSG

#define MSG msg_drain
static const struct wire_field DRAIN_FIELDS[] = {F(1, STR, node) F(2, U64, version)
                                                     F(3, U32, is_drained)};
TABLE(DRAIN, "drain")
#undef MSG

#define MSG msg_state
static const struct wire_field STATE_FIELDS[] = {
    S(1, SUB, session, CLAIM) F(2, U64, index) S(3, LIST, wanted, MSG_WANTED_TABLE)
        S(4, LIST, gone, STRING) S(5, LIST, placements, MSG_PLACEMENT_TABLE) S(6, LIST, seen, SEEN)
            S(7, LIST, drains, DRAIN)};
TABLE(STATE, "state")
#undef MSG

#define MSG msg_saved
static const struct wire_field SAVED_FIELDS[] = {
    F(1, U64, term) S(2, LIST, wanted, MSG_WANTED_TABLE) S(3, LIST, gone, STRING)
        S(4, LIST, routes, ROUTE) S(5, LIST, seen, SEEN) S(6, LIST, drains, DRAIN)};
const struct wire_table MSG_SAVED_TABLE = ROWS(SAVED, "saved");
#undef MSG

#define MSG msg_propose
static const struct wire_field PROPOSE_FIELDS[] = {
    F(1, U64, id) F(2, U32, kind) S(3, SUB, wanted, MSG_WANTED_TABLE) F(4, STR, node)};
TABLE(PROPOSE, "propose")
#undef MSG

#define MSG msg_proposed
static const struct wire_field PROPOSED_FIELDS[] = {F(1, U64, id) F(2, U32, code) F(3, STR, text)
                                                        F(4, STR, instance)};
TABLE(PROPOSED, "proposed")
#undef MSG

#define MSG msg_relay
static const struct wire_field RELAY_FIELDS[] = {F(1, STR, instance) F(2, U64, place) F(
    3, U64, request) F(4, U32, attempt) F(5, U32, seq) F(6, U32, type) F(7, BLOB, body)};
TABLE(RELAY, "relay")
#undef MSG

#define MSG msg_reason
static const struct wire_field REASON_FIELDS[] = {F(1, U32, protocol) F(2, STR, build)
                                                      F(3, STR, text)};
TABLE(REASON, "reason")
#undef MSG

const struct wire_table *msg_cluster_table(u32 type) {
    switch (type) {
    case MSG_HELLO: return &HELLO;
    case MSG_HEARTBEAT: return &HEARTBEAT;
    case MSG_FACTS: return &FACTS;
    case MSG_STATE: return &STATE;
    case MSG_PROPOSE: return &PROPOSE;
    case MSG_PROPOSED: return &PROPOSED;
    case MSG_RELAY: return &RELAY;
    case MSG_REFUSED:
    case MSG_FORGET:
    case MSG_BYE: return &REASON;
    default: return NULL;
    }
}

struct msg_model msg_model_of(const struct msg_described *d) {
    return (struct msg_model){.arch = d->arch,
                              .title = d->name,
                              .quant = d->quant,
                              .n_layers = d->n_layers,
                              .n_ctx_train = d->n_ctx_train,
                              .n_vocab = d->n_vocab,
                              .dim = d->dim,
                              .file_bytes = d->file_bytes,
                              .embed_bytes = d->embed_bytes,
                              .head_bytes = d->head_bytes,
                              .tied_bytes = d->tied_bytes,
                              .layer_bytes = d->layer_bytes,
                              .kv_bytes_per_token_layer = d->kv_bytes_per_token_layer,
                              .shape = d->shape,
                              .file_parts = d->file_parts};
}
