/* seal.h - records that only who has the key can read or make: AES-256-GCM.
 *
 * One direction of one connection: records are numbered, and each opens only with the key and in
 * the place of the row with which it was sealed, so that none can be changed, dropped, repeated or
 * put elsewhere. A key must never seal two rows: derive one for each direction of each connection.
 * A struct belongs to one thread. */
#pragma once

#include "base/err.h"

enum { SEAL_KEY_BYTES = 32, SEAL_TAG_BYTES = 16 };

struct seal {
    void *ctx; /* EVP_CIPHER_CTX; NULL: not in use */
    u64 n;     /* number of the next record */
    bool seals;
};

/* seals: this side makes records; else it opens them. */
void seal_init(struct seal *s, const u8 key[SEAL_KEY_BYTES], bool seals);
void seal_deinit(struct seal *s); /* a zeroed one is allowed */
/* out: n + SEAL_TAG_BYTES; not p. */
void seal_close(struct seal *s, u8 *out, const void *p, size_t n);
/* n includes the tag; out: n - SEAL_TAG_BYTES. False for what is not the next record: end the
 * connection. */
bool seal_open(struct seal *s, void *out, const u8 *p, size_t n);
