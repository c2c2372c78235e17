/* group_auth.h - how two ranks prove to each other that they hold the instance's key.
 *
 * Three messages on each new connection, of fixed size, little-endian:
 *
 *   HELLO  dialler:   "SKGR", u16 version, u16 channel, u16 lane, u16 n_lanes,
 *                     u32 from, u32 to, u32 n_ranks, nonce[32]
 *
 *   REPLY  acceptor:  "SKGA", u16 version, u16 status, nonce[32], HMAC("accept" HELLO nonce)
 *
 *   PROOF  dialler:   HMAC("dial" HELLO nonce)
 *
 * and a last byte of the acceptor, 1: welcome.
 *
 * HMAC is SHA-256 under the instance's key; the nonces make each proof good for one
 * connection, the label keeps one side's proof from being the other's. Pure. */
#pragma once

#include "base/err.h"

enum {
    GROUP_VERSION = 3,
    GROUP_HELLO_BYTES = 4 + 4 * 2 + 3 * 4 + 32,
    GROUP_REPLY_BYTES = 4 + 2 + 2 + 32 + 32,
    GROUP_PROOF_BYTES = 32,
};
enum group_channel { GROUP_DATA, GROUP_PULSE, GROUP_SEALED, GROUP_CHANNELS }; /* sealed data */
enum group_status {
    GROUP_OK,
    GROUP_OTHER_VERSION,
    GROUP_OTHER_RANK, /* from, to or n_ranks is not what this side was told */
    GROUP_OTHER_SEAL, /* one side was told to encrypt, the other was not */
    GROUP_STATUS_N
};

struct group_hello {
    enum group_channel channel;
    u32 lane, n_lanes; /* of data: which of how many connections, the dialler's choice */
    u32 from, to, n_ranks;
    u8 nonce[32];
};

void group_auth_hello(const struct group_hello *h, u8 out[GROUP_HELLO_BYTES]);
/* False when it is no HELLO at all. *version other than ours: the rest is not filled. */
bool group_auth_parse_hello(struct group_hello *h, u32 *version, const u8 in[GROUP_HELLO_BYTES]);

/* hello: its bytes as sent. */
void group_auth_reply(const u8 *key, enum group_status status, const u8 hello[GROUP_HELLO_BYTES],
                      const u8 nonce[32], u8 out[GROUP_REPLY_BYTES]);
/* The dialler's look at the reply: ERR_UNSUPPORTED (version), ERR_ARG (rank), ERR_AUTH (key),
 * ERR_FORMAT (not a rank at all). The nonce goes into the proof. */
bool group_auth_check_reply(const u8 *key, const u8 hello[GROUP_HELLO_BYTES],
                            const u8 in[GROUP_REPLY_BYTES], u8 nonce[32], struct err *e);
void group_auth_proof(const u8 *key, const u8 hello[GROUP_HELLO_BYTES], const u8 nonce[32],
                      u8 out[GROUP_PROOF_BYTES]);
bool group_auth_check_proof(const u8 *key, const u8 hello[GROUP_HELLO_BYTES], const u8 nonce[32],
                            const u8 in[GROUP_PROOF_BYTES]);
/* The key of one direction of a sealed connection: new for each, for the nonces are. */
void group_auth_seal_key(const u8 *key, bool from_dialler, const u8 hello[GROUP_HELLO_BYTES],
                         const u8 nonce[32], u8 out[32]);
