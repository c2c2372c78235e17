#include "base/seal.h"

#include <openssl/evp.h>
#include <string.h>

void seal_init(struct seal *s, const u8 key[SEAL_KEY_BYTES], bool seals) {
    EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
    ASSERT(c && EVP_CipherInit_ex(c, EVP_aes_256_gcm(), NULL, key, NULL, seals) == 1);
    *s = (struct seal){.ctx = c, .seals = seals};
}

void seal_deinit(struct seal *s) {
    EVP_CIPHER_CTX_free(s->ctx);
    *s = (struct seal){.ctx = NULL};
}

/* The number of the record is the nonce. */
static void next(struct seal *s) {
    u8 nonce[12] = {0};
    memcpy(nonce, &s->n, sizeof s->n);
    s->n++;
    ASSERT(EVP_CipherInit_ex(s->ctx, NULL, NULL, NULL, nonce, -1) == 1);
}

void seal_close(struct seal *s, u8 *out, const void *p, size_t n) {
    int len = 0, last = 0;
    ASSERT(s->ctx && s->seals && n < 1 << 30);
    next(s);
    ASSERT(EVP_CipherUpdate(s->ctx, out, &len, p, (int)n) == 1 && (size_t)len == n);
    ASSERT(EVP_CipherFinal_ex(s->ctx, out + len, &last) == 1 && last == 0);
    ASSERT(EVP_CIPHER_CTX_ctrl(s->ctx, EVP_CTRL_GCM_GET_TAG, SEAL_TAG_BYTES, out + n) == 1);
}

bool seal_open(struct seal *s, void *out, const u8 *p, size_t n) {
    int len = 0, last = 0;
    u8 tag[SEAL_TAG_BYTES];
    ASSERT(s->ctx && !s->seals);
    if (n < SEAL_TAG_BYTES || n > 1 << 30) return false;
    n -= SEAL_TAG_BYTES;
    memcpy(tag, p + n, sizeof tag);
    next(s);
    return EVP_CipherUpdate(s->ctx, out, &len, p, (int)n) == 1 && (size_t)len == n &&
           EVP_CIPHER_CTX_ctrl(s->ctx, EVP_CTRL_GCM_SET_TAG, sizeof tag, tag) == 1 &&
           EVP_CipherFinal_ex(s->ctx, (u8 *)out + len, &last) == 1;
}
