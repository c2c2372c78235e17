/* Fuzz target: messages of a hostile member. The input is a row of records: type, length (two
 * bytes, little-endian), body. The member has said a proper hello before, so that everything is
 * listened to. */
#include "cluster/cluster.h"

int LLVMFuzzerTestOneInput(const u8 *data, size_t n);

static struct msg_hello hello(u64 boot) {
    return (struct msg_hello){.protocol = 1,
                              .build = "fuzz",
                              .os = "fuzz",
                              .cluster = "c",
                              .name = "n",
                              .boot = boot,
                              .seniority = boot,
                              .is_worker = 1,
                              .n_cores = 2};
}

static void say(struct cluster *c, u32 type, const void *body, size_t n, u64 now,
                struct cluster_output *out) {
    struct cluster_input in = {
        .kind = CLUSTER_MESSAGE, .peer = "peer", .type = type, .body = body, .n = n};
    cluster_step(c, &in, now, out);
}

static void say_msg(struct cluster *c, u32 type, const void *msg, u64 now,
                    struct cluster_output *out) {
    struct str b = {0};
    wire_encode(msg_table(type), msg, &b);
    say(c, type, b.p, b.n, now, out);
    str_deinit(&b);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t n) {
    static const u32 TYPES[] = {MSG_HELLO, MSG_HEARTBEAT, MSG_STATE, MSG_PROPOSE, MSG_PROPOSED,
                                MSG_BYE,   MSG_REFUSED,   95,        MSG_FACTS,   MSG_FORGET};
    struct cluster_output out = {0};
    struct cluster_cfg cfg = {.id = "me", .hello = hello(5)};
    struct msg_hello h = hello(9);
    struct msg_heartbeat b = {
        .boot = 9, .seq = 1, .mem_available_bytes = (u64)8 << 30, .mem_limit_bytes = (u64)8 << 30};
    u64 now = 1000;
    struct cluster *c = cluster_new(&cfg, data, n, now, NULL); /* a damaged file on disk */
    cluster_free(c);
    c = cluster_new(&cfg, NULL, 0, now, NULL);
    cluster_step(c,
                 &(struct cluster_input){.kind = CLUSTER_MACHINE,
                                         .machine = {(u64)8 << 30, (u64)8 << 30, 0, 0}},
                 now, &out);
    cluster_step(
        c,
        &(struct cluster_input){.kind = CLUSTER_PEER_UP, .peer = "peer", .address = "10.0.0.2:7"},
        now, &out);
    say_msg(c, MSG_HELLO, &h, now, &out);
    say_msg(c, MSG_HEARTBEAT, &b, now, &out);
    cluster_step(
        c,
        &(struct cluster_input){.kind = CLUSTER_FACTS, .facts = &(struct msg_facts){.n_cores = 2}},
        now, &out);
    for (size_t i = 0; i + 3 <= n;) {
        size_t len = data[i + 1] | (size_t)data[i + 2] << 8;
        if (len > n - i - 3) len = n - i - 3;
        now += 1 + data[i] / 8 * 40;
        say(c, TYPES[data[i] % ARRAY_LEN(TYPES)], data + i + 3, len, now, &out);
        i += 3 + len;
    }
    for (u32 k = 0; k < 10; k++)
        cluster_step(c, &(struct cluster_input){.kind = CLUSTER_TICK}, now += 700, &out);
    struct str saved = {0};
    cluster_save(c, &saved);
    str_deinit(&saved);
    cluster_output_deinit(&out);
    cluster_free(c);
    return 0;
}
