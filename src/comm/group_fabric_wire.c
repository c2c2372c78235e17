#include "comm/group_fabric_wire.h"

#include <string.h>

#include "base/buf.h"

static void take(struct str *s, u8 *out, size_t n) {
    ASSERT(s->n == n);
    memcpy(out, s->p, n);
    str_deinit(s);
}

bool fabric_is_local(const char *provider) {
    size_t n = strcspn(provider, ";"); /* what it is layered on may follow */
    return n == 3 && (memcmp(provider, "shm", 3) == 0 || memcmp(provider, "sm2", 3) == 0);
}

void fabric_put_offer(const struct fabric_offer *f, u8 out[FABRIC_OFFER_BYTES]) {
    struct str s = {0};
    wr_u32(&s, f->wish);
    wr_u32(&s, f->address_n);
    str_add(&s, f->token, sizeof f->token);
    str_add(&s, f->provider, sizeof f->provider);
    str_add(&s, f->host, sizeof f->host);
    str_add(&s, f->address, sizeof f->address);
    take(&s, out, FABRIC_OFFER_BYTES);
}

bool fabric_parse_offer(struct fabric_offer *f, const void *in, size_t n, struct err *e) {
    if (n != FABRIC_OFFER_BYTES)
        return err_set(e, ERR_FORMAT, "an offer of %zu bytes instead of %d", n, FABRIC_OFFER_BYTES);
    struct rd r = rd_of(in, n);
    u32 wish = rd_u32(&r);
    f->address_n = rd_u32(&r);
    memcpy(f->token, rd_bytes(&r, sizeof f->token), sizeof f->token);
    memcpy(f->provider, rd_bytes(&r, sizeof f->provider), sizeof f->provider);
    memcpy(f->host, rd_bytes(&r, sizeof f->host), sizeof f->host);
    memcpy(f->address, rd_bytes(&r, sizeof f->address), sizeof f->address);
    if (wish >= FABRIC_WISHES || f->address_n > sizeof f->address ||
        !memchr(f->provider, 0, sizeof f->provider) || !memchr(f->host, 0, sizeof f->host))
        return err_set(e, ERR_FORMAT, "an offer that makes no sense");
    f->wish = (enum fabric_wish)wish;
    return true;
}

/* Written for each message of a step, so without a buffer that grows. */
void fabric_put_head(const struct fabric_head *h, u8 out[FABRIC_HEAD_BYTES]) {
    memcpy(out, h->token, FABRIC_TOKEN_BYTES);
    memcpy(out + FABRIC_TOKEN_BYTES, &h->from, 4);
    memcpy(out + FABRIC_TOKEN_BYTES + 4, &h->n, 4);
    memcpy(out + FABRIC_TOKEN_BYTES + 8, &h->seq, 8);
    memcpy(out + FABRIC_TOKEN_BYTES + 16, &h->arrived, 8);
}

bool fabric_parse_head(struct fabric_head *h, const u8 *in, size_t n) {
    if (n < FABRIC_HEAD_BYTES) return false;
    memcpy(h->token, in, FABRIC_TOKEN_BYTES);
    memcpy(&h->from, in + FABRIC_TOKEN_BYTES, 4);
    memcpy(&h->n, in + FABRIC_TOKEN_BYTES + 4, 4);
    memcpy(&h->seq, in + FABRIC_TOKEN_BYTES + 8, 8);
    memcpy(&h->arrived, in + FABRIC_TOKEN_BYTES + 16, 8);
    return h->n == n - FABRIC_HEAD_BYTES;
}
