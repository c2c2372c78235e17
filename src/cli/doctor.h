/* doctor.h - what keeps a cluster from working, or from being as fast as it could be.
 *
 * In three steps, so that all but the first can be tested without a machine in trouble:
 * doctor_look*.c and doctor_probe*.c collect facts (files, sockets, other programs' output, the
 * running node's /state), doctor_judge and its files turn facts into findings, doctor.c prints
 * them. Facts are plain data; a zeroed one means "not known" and is never held against anybody.
 * Main thread. */
#pragma once

#include "base/base.h"
#include "base/netif.h"
#include "base/sock.h"
#include "base/str.h"
#include "cli/doctor_parse.h"

enum {
    DOCTOR_PEERS_MAX = 64,
    DOCTOR_FINDINGS_MAX = 256,
    DOCTOR_INSTANCES_MAX = 32,
    DOCTOR_TEXT = 480,
    DOCTOR_SUBNET_CAP = 32,
};

/* A TCP connection to a port, as far as it came. */
enum doctor_reach {
    REACH_UNTRIED,
    REACH_BUS,     /* a node's bus greets */
    REACH_OPEN,    /* something accepts and says nothing, or something else */
    REACH_REFUSED, /* the machine is there, nobody listens */
    REACH_SILENT,  /* no answer at all: a firewall, or no machine */
    REACH_NO_ROUTE,
    REACH_NO_HOST, /* the name is not known */
};

/* Another node, or an address where one should be. */
struct doctor_peer {
    char name[64], id[65];
    char address[SOCK_ADDRESS_CAP]; /* of its bus, numeric where known */
    bool is_announced;              /* multicast DNS told of it */
    bool is_given;                  /* named by --peer or by the environment */
    bool is_stopped;                /* lost because its user stopped it */
    char state[16];            /* in the running node's list: "live", "lost", ...; "" when not */
    char refused[DOCTOR_TEXT]; /* why the node refuses it */
    char build[64], os[160], name_space[128];
    char follows[65];            /* its master's id, by its own word */
    enum doctor_reach bus, high; /* high: a port where nobody listens, as ranks use for data */
    bool big_lost;               /* a segment of that size was sent and never confirmed */
    u32 mss;                     /* the segment size both ends agreed on; 0: not known */
    i64 skew_ms;                 /* its wall clock minus ours */
    bool has_skew;
    /* The link between it and this node, as both measured it. */
    char interface[NETIF_NAME_CAP];
    u32 kind, speed_mbit; /* kind: enum netif_kind */
    bool jumbo_passes, is_measured, is_measured_back;
    char problem[160], problem_back[160]; /* why it could not be measured */
    u64 bandwidth_bytes_s;
    bool is_throttled, on_battery;
};

struct doctor_instance {
    char id[40], model[96], status[16], text[DOCTOR_TEXT];
    char sharding[16]; /* "Pipeline", "Tensor", "Hybrid" */
    u32 n_ranks;
    char nodes[8][65]; /* ids of those that hold ranks, the first eight */
};

struct doctor_iface {
    struct netif net;
    bool is_tried, is_heard; /* a multicast packet was sent, and came back */
};

struct doctor_gpu {
    char name[64], driver[32]; /* driver: of the kernel, "" when none is bound */
    bool has_library;          /* the vendor's library can be loaded */
    bool is_unusable;
};

struct doctor_machine {
    bool is_mac;
    char os[160];
    u64 ram_bytes, mem_total_bytes, mem_available_bytes; /* total: a cgroup's limit when lower */
    u64 swap_total_bytes, swap_free_bytes;
    char models_dir[1024], state_dir[1024];
    char models_error[DOCTOR_TEXT], state_error[DOCTOR_TEXT]; /* "" when they can be written */
    u64 disk_free_bytes;
    u64 n_files_max, memlock_bytes;
    char governor[32];
    u32 speed_pct; /* to which the processor is limited now; 0: not known */
    u64 n_throttles;
    bool on_battery, low_power, clock_unsynced;
    struct doctor_gpu gpus[8];
    u32 n_gpus;
    char firewall[48];   /* one that drops what it does not know: "ufw", "nftables", ... */
    bool firewall_knows; /* and it has a rule with the bus port */
    char rdma_device[32], rdma_state[32];
    struct doctor_mac mac;
};

struct doctor_facts {
    /* The running node, if there is one. */
    bool has_node;
    char node_error[DOCTOR_TEXT];
    char id[65], name[64], cluster[128], version[64], master[65];
    u32 protocol, api_port, bus_port;
    bool is_open, bus_is_local; /* the bus does not answer on this machine's own network address */
    char discovery_error[DOCTOR_TEXT];
    struct doctor_machine machine;
    struct doctor_iface ifaces[NETIF_MAX];
    u32 n_ifaces;
    struct doctor_peer peers[DOCTOR_PEERS_MAX];
    u32 n_peers;
    struct doctor_instance instances[DOCTOR_INSTANCES_MAX];
    u32 n_instances;
};

enum doctor_level { DOCTOR_FINE, DOCTOR_NOTE, DOCTOR_WARNING, DOCTOR_BROKEN };

struct doctor_finding {
    enum doctor_level level;
    const char *check; /* a stable word: "reach", "mtu" */
    char what[DOCTOR_TEXT], why[DOCTOR_TEXT], fix[DOCTOR_TEXT];
};
struct doctor_report {
    struct doctor_finding v[DOCTOR_FINDINGS_MAX];
    u32 n;
};

/* Everything below until the I/O is pure. */
void doctor_judge(const struct doctor_facts *f, struct doctor_report *r);
/* Its parts. */
void doctor_judge_cluster(const struct doctor_facts *f, struct doctor_report *r);
void doctor_judge_peers(const struct doctor_facts *f, struct doctor_report *r);
void doctor_judge_net(const struct doctor_facts *f, struct doctor_report *r);
void doctor_judge_machine(const struct doctor_facts *f, struct doctor_report *r);
void doctor_judge_rdma(const struct doctor_facts *f, struct doctor_report *r);
/* Appends a finding and returns it; `why` and `fix` may be NULL. */
struct doctor_finding *doctor_add(struct doctor_report *r, enum doctor_level level,
                                  const char *check, const char *why, const char *fix,
                                  const char *what, ...) PRINTF_LIKE(6, 7);
/* "192.168.1.0/24" of an interface, for commands to paste; "THIS_SUBNET" when it has none. */
const char *doctor_subnet(const struct netif *i, char out[DOCTOR_SUBNET_CAP]);
u32 doctor_count(const struct doctor_report *r, enum doctor_level level);
/* The finding of this check and level with `text` in what it says, or NULL. For tests. */
const struct doctor_finding *doctor_find(const struct doctor_report *r, const char *check,
                                         enum doctor_level level, const char *text);
void doctor_text(const struct doctor_facts *f, const struct doctor_report *r, bool all,
                 struct str *out);
void doctor_json(const struct doctor_report *r, struct str *out);
/* Takes what it needs from the node's /state. */
void doctor_read_state(struct doctor_facts *f, const char *json, size_t n);
/* The entry of this id or address, made if need be; NULL when the table is full. */
struct doctor_peer *doctor_peer(struct doctor_facts *f, const char *id, const char *address);

/* Collecting. These block: at most a few seconds all together. */
void doctor_look(struct doctor_facts *f); /* interfaces, memory, disk, limits */
/* Bytes of a socket that its peer has not confirmed yet. */
u32 doctor_unconfirmed(int fd);
void doctor_look_system(struct doctor_machine *m, u32 bus_port); /* *_linux.c, *_darwin.c */
void doctor_probe_multicast(struct doctor_facts *f);
void doctor_probe_announced(struct doctor_facts *f, u32 listen_ms);
void doctor_probe_reach(struct doctor_facts *f, u32 patience_ms);
void doctor_probe_own_bus(struct doctor_facts *f, u32 patience_ms);
/* At most cap - 1 bytes of what a command prints; false when it can't be run or fails. */
bool doctor_run(const char *command, char *out, size_t cap);
