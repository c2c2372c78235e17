/* bus_key.h - the key pair that all members of a cluster share, and the gate that knows it. */
#pragma once

#include "base/err.h"

struct bus_key {
    u8 secret[32], public[32];
};

/* From the join secret, argon2id with a salt made of the namespace (takes about 0.3 s once for each
 * pair, then it is remembered); secret NULL or "": from the namespace alone. Any thread. */
bool bus_key_derive(struct bus_key *k, const char *secret, const char *name_space, struct err *e);
