/* msg.h - every message between skein's processes, in one place.
 *
 * Three conversations: node and its runner (a socket pair, frames of frame.h), node and node (the
 * bus), and requests relayed over the bus to the node that owns rank 0. Structs are plain data;
 * strings may be NULL on the sending side and are never NULL after decoding. Ranges: first
 * inclusive, end exclusive. Adding a field: next free tag, in msg.c's table. */
#pragma once

#include "wire/msg_generate.h"
#include "wire/msg_place.h"
#include "wire/wire.h"

enum msg_type {
    /* node -> runner */
    MSG_DESCRIBE = 1,
    MSG_LOAD,
    MSG_CONNECT,
    MSG_GENERATE,
    MSG_CANCEL,
    MSG_SHUTDOWN,
    MSG_TOKENIZE,
    MSG_MEASURE,
    /* runner -> node */
    MSG_DESCRIBED = 32,
    MSG_LISTENING,
    MSG_PROGRESS,
    MSG_READY,
    MSG_FAILED,
    MSG_STARTED,
    MSG_TOKEN,
    MSG_DONE,
    MSG_REQUEST_ERROR,
    MSG_STATS,
    MSG_TOKENIZED,
    MSG_MEASURED,
    /* node <-> node */
    MSG_HELLO = 64,
    MSG_HEARTBEAT,
    MSG_STATE,
    MSG_PROPOSE,
    MSG_RELAY,
    MSG_BYE,
    MSG_PROPOSED,
    MSG_REFUSED,
    MSG_FACTS,
    MSG_FORGET,
    MSG_TYPE_N = 96
};

/* What is in this model file? Answered by MSG_DESCRIBED or MSG_FAILED. */
struct msg_describe {
    const char *path;
    u32 kv_type; /* for the KV cache's size: as in msg_load */
};

/* A rank's share of each of its layers. All zero: the whole of it. Query heads decide: a rank's KV
 * heads are those its query heads use, so with more ranks than KV heads a KV head lies on several
 * ranks. ff in elements of the feed-forward's hidden vector, vocab in rows of the output matrix. */
struct msg_slice {
    u32 head_first, head_end;
    u32 ff_first, ff_end;
    u32 vocab_first, vocab_end;
};

/* Take this shard. The runner opens the file, opens its listening socket for the other ranks
 * (MSG_LISTENING), loads (MSG_PROGRESS), waits for MSG_CONNECT when n_ranks > 1, then MSG_READY. */
struct msg_load {
    const char *instance_id;
    const char *path;
    u32 rank, n_ranks;
    u32 layer_first, layer_end; /* rank 0 also has the embedding, the last rank norm and head */
    u32 n_ctx;                  /* tokens a sequence may have; 0: the model's, as memory allows */
    u32 n_seq_max;              /* sequences at once; 0: 16 */
    u64 memory_max_bytes;       /* weights + KV of this shard; 0: what the machine has available */
    u32 n_threads;              /* 0: all allowed cores */
    const char *cpu_mask;       /* "" or a level name */
    struct wire_blob key;       /* 32 bytes: authenticates rank-to-rank connections */
    const char *listen_host;    /* address to listen on; "" = all */
    /* Tensor sharding: ranks [tp_first, tp_first + tp_ranks) hold slices of the same layers (a
     * stage); 0 and 1 both mean that the rank holds its layers alone. Ranks of a stage are
     * neighbours and stages follow one another, so rank numbers give the whole picture. */
    u32 tp_first, tp_ranks;
    struct msg_slice slice;
    u32 kv_type; /* enum kv_type of kernels/kv.h: 0 f16, 1 q8 */
    /* Between ranks. sum_wire: enum team_wire of comm/team.h: 0 f16, 1 f32, 2 q8. Bools: encrypt
     * what travels; compare every sum on all ranks (tests). The same on all ranks of an instance.
     */
    u32 sum_wire, encrypt, check_sums;
    u32 force;          /* bool: memory_max_bytes may be taken though less is free */
    u32 act_bits;       /* of activations beside quantized weights: 8, or 16 (also if 0) */
    const char *fabric; /* provider of libfabric between ranks, "auto", "off"; "": off */
};

struct msg_peer {
    u32 rank;
    const char *host;
    u32 port;
    u32 streams; /* connections for data if this rank dials; 0: one */
};
struct msg_connect {
    struct wire_list peers; /* struct msg_peer, all other ranks */
};

struct msg_tokenize {
    u64 id;
    const char *text;
    u32 add_special, parse_special;
};

/* How fast is this machine? Answered by MSG_MEASURED within ten seconds or so. */
struct msg_measure {
    u32 n_threads;        /* 0: all allowed cores */
    const char *cpu_mask; /* "" or a level name */
    u64 mem_bytes;        /* how much memory it may take; less than 8 MiB is 8 MiB */
};
struct msg_measured {
    u64 read_bytes_s, int8_ops_s, float_ops_s; /* as in msg_facts */
    const char *isa, *isas;
    u32 n_threads;
    u32 is_contended;       /* bool: other programs took processors away meanwhile */
    u32 call_ns;            /* as in msg_facts */
    struct wire_list rates; /* struct msg_rate */
    u64 attend_ops_s, attend_one_ops_s; /* as in msg_facts */
};

struct msg_described {
    const char *path;
    const char *arch, *name, *quant; /* "llama", "SmolLM2 135M Instruct", "Q4_1" */
    u32 n_layers, n_ctx_train, n_vocab, dim, n_heads, n_kv_heads;
    u64 n_params;
    u64 file_bytes;
    u64 embed_bytes, head_bytes;  /* head counts the embedding again when tied */
    u64 tied_bytes;               /* what a rank with both keeps once */
    struct wire_u64s layer_bytes; /* [n_layers] */
    u64 kv_bytes_per_token_layer; /* K and V of one layer, one position */
    u32 has_template;
    struct msg_shape shape;
    struct wire_u64s file_parts; /* below; empty where the model has several files */
};
/* file_parts: three numbers a piece of the file, {who needs it, offset, bytes}. Who: one of these,
 * with the way in which ranks of a stage share a matrix's rows in the upper half. */
enum { FILE_PART_ALL, FILE_PART_EMBED, FILE_PART_HEAD, FILE_PART_LAYER0 /* + layer */ };
enum file_split {
    FILE_SPLIT_NONE,
    FILE_SPLIT_HEADS,
    FILE_SPLIT_KV,
    FILE_SPLIT_FF,
    FILE_SPLIT_VOCAB
};

struct msg_listening {
    u32 port;
};
/* While it loads, and once more when all ranks are connected. */
struct msg_progress {
    u32 done, total; /* layers */
};
/* What carries the frames between two ranks. */
enum msg_carrier { CARRIER_NONE, CARRIER_SHM, CARRIER_TCP, CARRIER_FABRIC };
struct msg_rank_link {
    u32 carrier;          /* enum msg_carrier; NONE: the rank itself */
    u32 n_streams;        /* connections for data */
    u32 is_encrypted;     /* bool */
    const char *provider; /* libfabric's name; "" */
};
struct msg_ready {
    u32 n_ctx;
    u32 n_seq_max;
    u64 weights_bytes, kv_bytes, scratch_bytes;
    u64 kv_tokens; /* positions that fit in all KV blocks together */
    u32 n_threads;
    const char *isa; /* "avx512-vnni" */
    u32 pid;
    struct msg_described model;
    struct wire_list links; /* struct msg_rank_link, one a rank; none for one rank alone */
};
struct msg_failed {
    u32 code; /* enum err_code */
    const char *text;
};
struct msg_stats {
    u32 n_running, n_waiting;
    u64 kv_tokens_used, kv_tokens;
    u64 n_generated; /* since start */
    u64 rss_bytes;
};
struct msg_tokenized {
    u64 id;
    struct wire_i32s ids;
};

/* The table of a type; NULL for a type that has no body (MSG_SHUTDOWN) or does not exist. */
const struct wire_table *msg_table(u32 type);
const char *msg_name(u32 type);
/* Of what is not sent as a message of its own. */
extern const struct wire_table MSG_SLICE_TABLE, MSG_RANK_LINK_TABLE;
