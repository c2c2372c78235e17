#include "net/identity.h"

#include <sodium.h>
#include <string.h>

#include "base/hash.h"
#include "base/random.h"

bool identity_of_seed(struct identity *out, const u8 seed[32], struct err *e) {
    u8 secret[crypto_sign_SECRETKEYBYTES];
    if (sodium_init() < 0) return err_set(e, ERR_INTERNAL, "libsodium did not start");
    memcpy(out->seed, seed, 32);
    crypto_sign_seed_keypair(out->public, secret, seed);
    sodium_memzero(secret, sizeof secret);
    identity_id(out->public, out->id);
    return true;
}

bool identity_make(struct identity *out, struct err *e) {
    u8 seed[32];
    random_bytes(seed, sizeof seed);
    bool ok = identity_of_seed(out, seed, e);
    sodium_memzero(seed, sizeof seed);
    return ok;
}

/* Half of a SHA-256: 128 bits, which nobody finds a second key for. */
void identity_id(const u8 public[32], char id[IDENTITY_ID_CAP]) {
    static const char LABEL[] = "skein node id";
    struct sha256 h;
    u8 digest[32];
    sha256_init(&h);
    sha256_add(&h, LABEL, sizeof LABEL);
    sha256_add(&h, public, 32);
    sha256_end(&h, digest);
    hex_encode(digest, 16, id);
}

void identity_sign(const struct identity *i, struct view text, u8 signature[64]) {
    u8 public[32], secret[crypto_sign_SECRETKEYBYTES];
    crypto_sign_seed_keypair(public, secret, i->seed);
    crypto_sign_detached(signature, NULL, (const u8 *)text.p, text.n, secret);
    sodium_memzero(secret, sizeof secret);
}

bool identity_verify(const u8 public[32], struct view text, const u8 signature[64]) {
    return crypto_sign_verify_detached(signature, (const u8 *)text.p, text.n, public) == 0;
}

#define HEAD "skein-node-key 1"

/* The next line without its end; false at the end. */
static bool line_of(struct view *text, struct view *line) {
    if (text->n == 0) return false;
    const char *end = memchr(text->p, '\n', text->n);
    size_t n = end ? (size_t)(end - text->p) : text->n;
    *line = (struct view){text->p, n};
    if (line->n && line->p[line->n - 1] == '\r') line->n--;
    text->p += n + (end != NULL);
    text->n -= n + (end != NULL);
    return true;
}

bool identity_file_parse(struct view text, struct identity_file *out, struct err *e) {
    struct view line;
    bool has_seed = false;
    *out = (struct identity_file){0};
    if (!line_of(&text, &line) || !view_is(line, HEAD))
        return err_set(e, ERR_FORMAT, "line 1 is not \"" HEAD "\"");
    for (u32 n = 2; line_of(&text, &line); n++) {
        char value[65];
        if (line.n == 0) continue;
        bool seed = view_starts(line, "seed "), machine = view_starts(line, "machine ");
        size_t skip = seed ? 5 : machine ? 8 : 0;
        if (!skip || line.n - skip != 64)
            return err_set(e, ERR_FORMAT, "line %u is neither a seed nor a machine of 64 digits",
                           n);
        memcpy(value, line.p + skip, 64);
        value[64] = 0;
        u8 raw[32];
        if (!hex_decode(value, raw, sizeof raw))
            return err_set(e, ERR_FORMAT, "line %u does not hold 64 hex digits", n);
        if (seed) memcpy(out->seed, raw, sizeof raw), has_seed = true;
        if (machine) memcpy(out->machine, value, sizeof value);
    }
    return has_seed || err_set(e, ERR_FORMAT, "the seed is missing");
}

void identity_file_write(const struct identity_file *f, struct str *out) {
    char hex[65];
    hex_encode(f->seed, 32, hex);
    str_addf(out, HEAD "\nseed %s\n", hex);
    if (*f->machine) str_addf(out, "machine %s\n", f->machine);
    sodium_memzero(hex, sizeof hex);
}
