#include "comm/group_auth.h"

#include <string.h>

#include "base/buf.h"
#include "base/hash.h"
#include "comm/group.h"

static void take(struct str *s, u8 *out, size_t n) {
    ASSERT(s->n == n);
    memcpy(out, s->p, n);
    str_deinit(s);
}

void group_auth_hello(const struct group_hello *h, u8 out[GROUP_HELLO_BYTES]) {
    struct str s = {0};
    str_add(&s, "SKGR", 4);
    wr_u16(&s, GROUP_VERSION);
    wr_u16(&s, (u16)h->channel);
    wr_u16(&s, (u16)h->lane);
    wr_u16(&s, (u16)h->n_lanes);
    wr_u32(&s, h->from);
    wr_u32(&s, h->to);
    wr_u32(&s, h->n_ranks);
    str_add(&s, h->nonce, 32);
    take(&s, out, GROUP_HELLO_BYTES);
}

bool group_auth_parse_hello(struct group_hello *h, u32 *version, const u8 in[GROUP_HELLO_BYTES]) {
    struct rd r = rd_of(in, GROUP_HELLO_BYTES);
    *h = (struct group_hello){0};
    if (memcmp(rd_bytes(&r, 4), "SKGR", 4) != 0) return false;
    *version = rd_u16(&r);
    if (*version != GROUP_VERSION) return true;
    h->channel = rd_u16(&r);
    h->lane = rd_u16(&r);
    h->n_lanes = rd_u16(&r);
    h->from = rd_u32(&r);
    h->to = rd_u32(&r);
    h->n_ranks = rd_u32(&r);
    memcpy(h->nonce, rd_bytes(&r, 32), 32);
    return h->channel < GROUP_CHANNELS && h->lane < h->n_lanes && h->n_lanes <= GROUP_STREAMS_MAX;
}

static void proof(const u8 *key, const char *label, const u8 hello[GROUP_HELLO_BYTES],
                  const u8 nonce[32], u8 out[32]) {
    struct str s = {0};
    str_addz(&s, label);
    str_add(&s, hello, GROUP_HELLO_BYTES);
    str_add(&s, nonce, 32);
    hmac_sha256(key, GROUP_KEY_BYTES, s.p, s.n, out);
    str_deinit(&s);
}

void group_auth_reply(const u8 *key, enum group_status status, const u8 hello[GROUP_HELLO_BYTES],
                      const u8 nonce[32], u8 out[GROUP_REPLY_BYTES]) {
    struct str s = {0};
    u8 mac[32];
    proof(key, "accept", hello, nonce, mac);
    str_add(&s, "SKGA", 4);
    wr_u16(&s, GROUP_VERSION);
    wr_u16(&s, (u16)status);
    str_add(&s, nonce, 32);
    str_add(&s, mac, 32);
    take(&s, out, GROUP_REPLY_BYTES);
}

bool group_auth_check_reply(const u8 *key, const u8 hello[GROUP_HELLO_BYTES],
                            const u8 in[GROUP_REPLY_BYTES], u8 nonce[32], struct err *e) {
    struct rd r = rd_of(in, GROUP_REPLY_BYTES);
    u8 want[32];
    if (memcmp(rd_bytes(&r, 4), "SKGA", 4) != 0) {
        return err_set(e, ERR_FORMAT, "what listens there is no rank of this model");
    }
    u32 version = rd_u16(&r), status = rd_u16(&r);
    if (version != GROUP_VERSION || status == GROUP_OTHER_VERSION) {
        return err_set(e, ERR_UNSUPPORTED, "it speaks version %u of the rank protocol, this one %u",
                       version, GROUP_VERSION);
    }
    memcpy(nonce, rd_bytes(&r, 32), 32);
    proof(key, "accept", hello, nonce, want);
    if (!hash_equal(want, rd_bytes(&r, 32), 32)) {
        return err_set(e, ERR_AUTH, "it holds another key (a rank of another instance?)");
    }
    if (status == GROUP_OTHER_SEAL)
        return err_set(
            e, ERR_ARG,
            "one of the two was told to encrypt what travels between ranks, the other was "
            "not: give --encrypt-data to all nodes, or to none");
    if (status != GROUP_OK)
        return err_set(e, ERR_ARG, "it is another rank, or its group has another size");
    return true;
}

void group_auth_proof(const u8 *key, const u8 hello[GROUP_HELLO_BYTES], const u8 nonce[32],
                      u8 out[GROUP_PROOF_BYTES]) {
    proof(key, "dial", hello, nonce, out);
}

bool group_auth_check_proof(const u8 *key, const u8 hello[GROUP_HELLO_BYTES], const u8 nonce[32],
                            const u8 in[GROUP_PROOF_BYTES]) {
    u8 want[32];
    proof(key, "dial", hello, nonce, want);
    return hash_equal(want, in, 32);
}

void group_auth_seal_key(const u8 *key, bool from_dialler, const u8 hello[GROUP_HELLO_BYTES],
                         const u8 nonce[32], u8 out[32]) {
    proof(key, from_dialler ? "seal dialler" : "seal acceptor", hello, nonce, out);
}
