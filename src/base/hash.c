#include "base/hash.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

void sha256_init(struct sha256 *s) {
    s->ctx = EVP_MD_CTX_new();
    ASSERT(s->ctx && EVP_DigestInit_ex(s->ctx, EVP_sha256(), NULL));
}

void sha256_add(struct sha256 *s, const void *p, size_t n) {
    ASSERT(EVP_DigestUpdate(s->ctx, p, n));
}

void sha256_end(struct sha256 *s, u8 out[32]) {
    if (out) ASSERT(EVP_DigestFinal_ex(s->ctx, out, NULL));
    EVP_MD_CTX_free(s->ctx);
    s->ctx = NULL;
}

void sha256_of(const void *p, size_t n, u8 out[32]) {
    struct sha256 s;
    sha256_init(&s);
    sha256_add(&s, p, n);
    sha256_end(&s, out);
}

void hmac_sha256(const void *key, size_t key_n, const void *p, size_t n, u8 out[32]) {
    unsigned len = 32;
    ASSERT(HMAC(EVP_sha256(), key, (int)key_n, p, n, out, &len) && len == 32);
}

bool hash_equal(const void *a, const void *b, size_t n) {
    return CRYPTO_memcmp(a, b, n) == 0;
}

void hex_encode(const void *p, size_t n, char *out) {
    static const char DIGIT[] = "0123456789abcdef";
    const u8 *b = p;
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = DIGIT[b[i] >> 4];
        out[2 * i + 1] = DIGIT[b[i] & 15];
    }
    out[2 * n] = 0;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

bool hex_decode(const char *text, void *out, size_t n) {
    if (strlen(text) != 2 * n) return false;
    u8 *b = out;
    for (size_t i = 0; i < n; i++) {
        int hi = hex_digit(text[2 * i]), lo = hex_digit(text[2 * i + 1]);
        if (hi < 0 || lo < 0) return false;
        b[i] = (u8)(hi << 4 | lo);
    }
    return true;
}

u64 hash_bytes(const void *p, size_t n) {
    const u8 *b = p;
    u64 h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n; i++) h = (h ^ b[i]) * 0x100000001B3u;
    h ^= h >> 32; /* FNV's low bits are weak for short keys */
    return h * 0x9E3779B97F4A7C15u;
}
