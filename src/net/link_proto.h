/* link_proto.h - the bytes between two link meters (link.h), and what is made of their timings.
 * Pure.
 *
 * Over one TCP connection: the server greets, the client proves that it knows the server's token
 * (HMAC-SHA256 over the greeting's nonce), then sends orders of 16 bytes, each answered by 16.
 * Numbers are little-endian.
 *
 *   greeting  "SKLN" version state computing 0 | udp port u16 | 6 zeros | nonce[16]
 *   proof     "SKLN" version 0 0 0 | hmac[32]
 *   order     op 0 0 0 0 0 0 0 | value u64 */
#pragma once

#include "base/err.h"

enum {
    LINK_TOKEN_BYTES = 32,
    LINK_NONCE_BYTES = 16,
    LINK_GREETING_BYTES = 32,
    LINK_PROOF_BYTES = 40,
    LINK_ORDER_BYTES = 16,
    LINK_SESSION_MS = 10000,        /* a session is cut after that, */
    LINK_SESSION_BYTES = 192 << 20, /* and when it has brought more than that */
    LINK_DATAGRAM_MAX = 65507,
};

enum link_state { LINK_FREE, LINK_TAKEN /* another session is open: come again */ };
struct link_greeting {
    enum link_state state;
    bool computing; /* requests are being served: not the time for a refresh */
    u16 udp_port;
    u8 nonce[LINK_NONCE_BYTES];
};
enum link_op {
    LINK_PING = 1, /* answered at once by the same */
    LINK_SINK,     /* value bytes follow; answered by the nanoseconds that they took to arrive */
    LINK_DATAGRAM, /* a datagram of value bytes comes, or not; answered by the size that came, or 0
                    */
    LINK_BYE,
};
struct link_order {
    enum link_op op;
    u64 value;
};

void link_greeting_put(const struct link_greeting *g, u8 out[LINK_GREETING_BYTES]);
/* False: no meter of this version is there. */
bool link_greeting_get(const u8 in[LINK_GREETING_BYTES], struct link_greeting *g);
void link_proof_put(const u8 token[LINK_TOKEN_BYTES], const u8 nonce[LINK_NONCE_BYTES],
                    u8 out[LINK_PROOF_BYTES]);
bool link_proof_ok(const u8 in[LINK_PROOF_BYTES], const u8 token[LINK_TOKEN_BYTES],
                   const u8 nonce[LINK_NONCE_BYTES]);
void link_order_put(struct link_order o, u8 out[LINK_ORDER_BYTES]);
/* False for an unknown op and for a value that no client of ours would send. */
bool link_order_get(const u8 in[LINK_ORDER_BYTES], struct link_order *o);

/* The q-quantile (0..1) by nearest rank; sorts v. 0 when there are none. */
u32 link_quantile(u32 *v, u32 n, double q);
/* The size of the next burst after one of so many bytes took ns; 0: that one was long enough. A
 * connection needs some round trips to find its rate. */
u64 link_next_burst(u64 bytes, u64 ns, u32 rtt_us);
/* Sizes of IP packets worth trying below what the interface claims, largest first. */
enum { LINK_MTUS_MAX = 8 };
u32 link_mtus(u32 claimed, u32 out[LINK_MTUS_MAX]);
