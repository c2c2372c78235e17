/* link.h - how good the paths to other machines are: latency, bandwidth, packet size.
 *
 * A meter listens on a port of its own and measures the peers that it was given, over plain TCP as
 * the ranks of a model use it: round trips of small messages, a burst that grows until it lasts
 * long enough, packets of various sizes that must not be cut (UDP). Peers need the token, which the
 * nodes tell each other over the bus. A meter has one session at a time, as server or as client,
 * and tells others to come again, so that a cluster measures its pairs one after the other and a
 * figure is never that of two bursts at once. Each pair is measured when it is new, and every ten
 * minutes while neither end has work.
 *
 * One thread belongs to a meter; the functions are for the one that owns it, and none blocks except
 * link_stop. */
#pragma once

#include "base/sock.h"
#include "net/link_proto.h"

enum { LINK_PEERS_MAX = 128, LINK_ID_CAP = 65 };

struct link_meter;

struct link_cfg {
    const char *listen_host; /* as sock_listen's */
    u16 port;                /* wished for; when it is taken, or 0: any free one */
    u8 token[LINK_TOKEN_BYTES];
    u32 refresh_ms; /* 0: ten minutes */
    u32 seed;       /* of the pauses' jitter */
};
struct link_peer {
    char id[LINK_ID_CAP], host[SOCK_HOST_CAP];
    u16 port;
    u8 token[LINK_TOKEN_BYTES];
};
struct link_result {
    char id[LINK_ID_CAP], host[SOCK_HOST_CAP], interface[32];
    u32 kind, speed_mbit; /* kind: enum netif_kind */
    u32 mtu;              /* largest packet that passed; what the system says where none did */
    bool jumbo_passes;
    u32 rtt_p50_us, rtt_p99_us;
    u64 bandwidth_bytes_s;
    i64 at_unix_s;
    /* "" when all of it was measured. Else why not: with a round trip that it is the path's fault
     * and what stands above is right, without one only id and host count. */
    char problem[200];
};

/* Listens before it returns. NULL and *e. */
struct link_meter *link_start(const struct link_cfg *cfg, struct err *e);
/* Ends the session under way; within a second. */
void link_stop(struct link_meter *m);
u16 link_port(const struct link_meter *m);
/* Replaces the list of whom to measure (the first LINK_PEERS_MAX); who is on it unchanged keeps its
 * time of the next measurement. */
void link_set_peers(struct link_meter *m, const struct link_peer *v, u32 n);
/* Whether this machine has work to do. */
void link_set_computing(struct link_meter *m, bool computing);
/* While the speed of this machine is measured, others are told to come again: either figure would
 * be worse. */
void link_set_busy(struct link_meter *m, bool busy);
/* The next result; false when there is none. */
bool link_take(struct link_meter *m, struct link_result *out);
