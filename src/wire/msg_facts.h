/* msg_facts.h - what a node measured of itself and of its links. Part of msg_cluster.h, whose rules
 * hold here too. */
#pragma once

#include "wire/wire.h"

/* What kind of wire a link uses; better kinds are larger. */
enum link_kind {
    LINK_UNKNOWN,
    LINK_TUNNEL, /* VPN, overlay */
    LINK_WIFI,
    LINK_ETHERNET,
    LINK_THUNDERBOLT,
    LINK_RDMA,
    LINK_LOOPBACK,
};
/* The path from the sender to one peer, as measured on the data path. 0: not known (yet). */
struct msg_link {
    const char *peer;      /* node id */
    const char *address;   /* of the peer, on the chosen route */
    const char *interface; /* of the sender */
    u32 kind;              /* enum link_kind */
    u32 speed_mbit;        /* that the interface claims */
    u32 mtu;
    u32 jumbo_passes; /* bool: frames of 9,000 bytes arrive */
    u32 rtt_p50_us, rtt_p99_us;
    u64 bandwidth_bytes_s;
    u64 measured_at;     /* Unix second, by the sender's clock */
    const char *problem; /* why it could not be measured; "" when it was */
};

/* An address of the sender, and the interface that holds it. */
struct msg_iface {
    const char *name, *address;
    u32 kind; /* enum link_kind */
    u32 speed_mbit, mtu;
};

struct msg_gpu {
    const char *name, *driver;
    u64 mem_total_bytes, mem_available_bytes;
    u32 load_pct, temperature_c, power_mw;
};

/* How fast a node multiplies by matrices of one format, with all its threads, in operations a
 * second (a product and its sum are two). 0: not known. */
struct msg_rate {
    u32 type;         /* enum dtype */
    u64 one_ops_s;    /* one token: what a decode step of one request reaches */
    u64 narrow_ops_s; /* the same, of MSG_RATE_NARROW_COLS columns instead of MSG_RATE_COLS */
    u64 few_ops_s;    /* MSG_RATE_FEW tokens */
    u64 many_ops_s;   /* MSG_RATE_MANY tokens */
    u64 many8_ops_s;  /* the same with activations of 8 bits */
    u64 narrow_many_ops_s; /* many_ops_s with MSG_RATE_NARROW_COLS columns; 0: not known */
};
enum { MSG_RATE_FEW = 8, MSG_RATE_MANY = 256, MSG_RATE_COLS = 2048, MSG_RATE_NARROW_COLS = 512 };

/* MSG_FACTS: what a node says of itself beyond the heartbeat: sent to each peer when its link comes
 * up and when something in it changed by enough to matter. The newest `seq` of a `boot` counts. */
struct msg_facts {
    u64 boot, seq;
    u32 n_cores, n_cores_big, cache_l2_kib, cache_l3_kib;
    u64 mem_total_bytes, disk_total_bytes;
    u64 read_bytes_s;  /* memory bandwidth, all cores */
    u64 int8_ops_s;    /* matmul rate of the kernels in use, 8-bit products, all cores */
    u64 float_ops_s;   /* the same in f32 */
    u32 temperature_c; /* 0: the machine does not tell */
    u32 power_mw;
    const char *power_source; /* "rapl", "hwmon", "nvml", "powermetrics"; "" when there is none */
    u32 is_throttled;         /* bool */
    u32 load_pct;
    struct wire_list gpus;  /* struct msg_gpu */
    struct wire_list links; /* struct msg_link */
    u64 swap_total_bytes, swap_available_bytes;
    const char *model;    /* of the machine: "Mac15,9", "Raspberry Pi 5 Model B" */
    const char *os_build; /* "24B83"; the kernel's release on Linux */
    const char *isa;      /* kernel set in use: "vnni" */
    const char *isas;     /* all sets that this processor has, with spaces */
    u32 cache_l1_kib;
    u32 load_big_pct, load_small_pct; /* of performance and efficiency cores, where they differ */
    const char *throttle;             /* why it is slowed down: "temperature", "power"; or "" */
    u32 is_on_battery;                /* bool */
    u32 link_port;               /* TCP and UDP: where others measure their path to this node */
    struct wire_blob link_token; /* 32 bytes: who has it may; never shown */
    struct wire_list interfaces; /* struct msg_iface */
    u32 has_rdma;                /* bool: an RDMA device is there and enabled */
    u32 call_ns;                 /* until all threads of a runner have met for an operation */
    struct wire_list rates;      /* struct msg_rate: of each format it has kernels for */
    /* Operations a second of a prompt's attention, and of single tokens'; 0: not known. */
    u64 attend_ops_s, attend_one_ops_s;
};

extern const struct wire_table MSG_RATE_TABLE;
