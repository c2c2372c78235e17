#include "net/bus_key.h"

#include <sodium.h>
#include <string.h>

#include "base/hash.h"
#include "base/lock.h"

/* argon2id, RFC 9106: two passes over 64 MiB. Part of the protocol: all members must agree. */
enum { PASSES = 2, MEMORY_BYTES = 64 << 20 };

/* The pair derived last; nodes have one secret, tests a few. */
static struct {
    struct lock lock;
    bool set;
    u8 of[32]; /* hash of secret and namespace */
    u8 key[32];
} last = {.lock = LOCK_INIT};

static void digest(const char *label, const char *a, const char *b, u8 out[32]) {
    struct sha256 h;
    sha256_init(&h);
    sha256_add(&h, label, strlen(label) + 1);
    sha256_add(&h, a, strlen(a) + 1);
    sha256_add(&h, b, strlen(b) + 1);
    sha256_end(&h, out);
}

static bool stretch(u8 out[32], const char *secret, const char *name_space, struct err *e) {
    u8 of[32], salt[32];
    digest("skein remembered key", secret, name_space, of);
    digest("skein join salt", name_space, "", salt);
    _Static_assert(crypto_pwhash_SALTBYTES <= sizeof salt, "salt");
    lock_take(&last.lock);
    bool ok = last.set && hash_equal(last.of, of, 32);
    if (!ok) {
        ok = crypto_pwhash(last.key, 32, secret, strlen(secret), salt, PASSES, MEMORY_BYTES,
                           crypto_pwhash_ALG_ARGON2ID13) == 0;
        last.set = ok;
        memcpy(last.of, of, 32);
    }
    memcpy(out, last.key, 32);
    lock_give(&last.lock);
    return ok || err_set(e, ERR_MEMORY, "no memory (%d MiB) to derive the cluster's key",
                         MEMORY_BYTES >> 20);
}

bool bus_key_derive(struct bus_key *k, const char *secret, const char *name_space, struct err *e) {
    if (sodium_init() < 0) return err_set(e, ERR_INTERNAL, "libsodium did not start");
    if (!secret || !*secret)
        digest("skein open cluster", name_space, "", k->secret);
    else if (!stretch(k->secret, secret, name_space, e))
        return false;
    crypto_scalarmult_base(k->public, k->secret);
    return true;
}
