/* hash.h - SHA-256 of files and messages, HMAC for handshakes, and a fast hash for tables.
 *
 * struct sha256 belongs to one thread. */
#pragma once

#include "base/base.h"
#include "base/err.h"

struct sha256 {
    void *ctx; /* EVP_MD_CTX */
};
void sha256_init(struct sha256 *s);
void sha256_add(struct sha256 *s, const void *p, size_t n);
/* Gives the digest and frees the state. out may be NULL to only free. */
void sha256_end(struct sha256 *s, u8 out[32]);

void sha256_of(const void *p, size_t n, u8 out[32]);
void hmac_sha256(const void *key, size_t key_n, const void *p, size_t n, u8 out[32]);
/* Constant time. */
bool hash_equal(const void *a, const void *b, size_t n);
/* Lower-case hex, 2n characters and a NUL. */
void hex_encode(const void *p, size_t n, char *out);
/* False unless text is exactly 2n hex digits. */
bool hex_decode(const char *text, void *out, size_t n);

/* FNV-1a, 64 bit, with a final mix: for hash tables over trusted sizes, not for security. */
u64 hash_bytes(const void *p, size_t n);
