/* identity.h - who a node is: an Ed25519 key pair, made at its first start. Pure but for making
 * one.
 *
 * The node id is made of the public key, so whoever claims an id on the bus can be asked to sign.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

enum { IDENTITY_ID_CAP = 33, IDENTITY_SIGNATURE_BYTES = 64 };

struct identity {
    u8 seed[32]; /* secret */
    u8 public[32];
    char id[IDENTITY_ID_CAP]; /* 32 hex digits */
};

/* A new one; from a seed. ERR_INTERNAL when libsodium does not start. */
bool identity_make(struct identity *out, struct err *e);
bool identity_of_seed(struct identity *out, const u8 seed[32], struct err *e);
void identity_id(const u8 public[32], char id[IDENTITY_ID_CAP]);
void identity_sign(const struct identity *i, struct view text, u8 signature[64]);
bool identity_verify(const u8 public[32], struct view text, const u8 signature[64]);

/* The key file: lines "skein-node-key 1", "seed HEX", "machine HEX" (of the machine that made it,
 * may be missing). ERR_FORMAT says which line is wrong. */
struct identity_file {
    u8 seed[32];
    char machine[65]; /* "" when not known */
};
bool identity_file_parse(struct view text, struct identity_file *out, struct err *e);
void identity_file_write(const struct identity_file *f, struct str *out);
