#include "net/link_proto.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

enum {
    VERSION = 1,
    BURST_LONG_NS = 60000000, /* a burst of that length gives a good figure */
    BURST_ROUND_TRIPS = 8,
    BURST_MAX_BYTES = 64 << 20,
};
static const u8 MAGIC[5] = {'S', 'K', 'L', 'N', VERSION};

static void put_u64(u8 *p, u64 v) {
    for (u32 i = 0; i < 8; i++) p[i] = (u8)(v >> 8 * i);
}
static u64 get_u64(const u8 *p) {
    u64 v = 0;
    for (u32 i = 0; i < 8; i++) v |= (u64)p[i] << 8 * i;
    return v;
}

void link_greeting_put(const struct link_greeting *g, u8 out[LINK_GREETING_BYTES]) {
    memset(out, 0, LINK_GREETING_BYTES);
    memcpy(out, MAGIC, sizeof MAGIC);
    out[5] = (u8)g->state;
    out[6] = g->computing;
    out[8] = (u8)g->udp_port;
    out[9] = (u8)(g->udp_port >> 8);
    memcpy(out + 16, g->nonce, LINK_NONCE_BYTES);
}

bool link_greeting_get(const u8 in[LINK_GREETING_BYTES], struct link_greeting *g) {
    if (memcmp(in, MAGIC, sizeof MAGIC) != 0 || in[5] > LINK_TAKEN) return false;
    *g = (struct link_greeting){.state = (enum link_state)in[5],
                                .computing = in[6] != 0,
                                .udp_port = (u16)(in[8] | in[9] << 8)};
    memcpy(g->nonce, in + 16, LINK_NONCE_BYTES);
    return true;
}

void link_proof_put(const u8 token[LINK_TOKEN_BYTES], const u8 nonce[LINK_NONCE_BYTES],
                    u8 out[LINK_PROOF_BYTES]) {
    memset(out, 0, LINK_PROOF_BYTES);
    memcpy(out, MAGIC, sizeof MAGIC);
    hmac_sha256(token, LINK_TOKEN_BYTES, nonce, LINK_NONCE_BYTES, out + 8);
}

bool link_proof_ok(const u8 in[LINK_PROOF_BYTES], const u8 token[LINK_TOKEN_BYTES],
                   const u8 nonce[LINK_NONCE_BYTES]) {
    u8 want[LINK_PROOF_BYTES];
    link_proof_put(token, nonce, want);
    return hash_equal(in, want, sizeof want);
}

void link_order_put(struct link_order o, u8 out[LINK_ORDER_BYTES]) {
    memset(out, 0, LINK_ORDER_BYTES);
    out[0] = (u8)o.op;
    put_u64(out + 8, o.value);
}

bool link_order_get(const u8 in[LINK_ORDER_BYTES], struct link_order *o) {
    *o = (struct link_order){(enum link_op)in[0], get_u64(in + 8)};
    switch (o->op) {
    case LINK_PING:
    case LINK_BYE: return true;
    case LINK_SINK: return o->value > 0 && o->value <= LINK_SESSION_BYTES;
    case LINK_DATAGRAM: return o->value >= LINK_NONCE_BYTES && o->value <= LINK_DATAGRAM_MAX;
    default: return false;
    }
}

static int by_size(const void *a, const void *b) {
    u32 x = *(const u32 *)a, y = *(const u32 *)b;
    return x < y ? -1 : x > y;
}

u32 link_quantile(u32 *v, u32 n, double q) {
    if (!n) return 0;
    qsort(v, n, sizeof *v, by_size);
    double rank = ceil(q * n);
    return v[rank < 1 ? 0 : rank > n ? n - 1 : (u32)rank - 1];
}

u64 link_next_burst(u64 bytes, u64 ns, u32 rtt_us) {
    u64 enough = MAX((u64)BURST_LONG_NS, (u64)rtt_us * 1000 * BURST_ROUND_TRIPS);
    return ns >= enough || bytes >= BURST_MAX_BYTES ? 0 : bytes * 4;
}

u32 link_mtus(u32 claimed, u32 out[LINK_MTUS_MAX]) {
    static const u32 USUAL[] = {9000, 1500, 1492, 1450, 1420, 1280};
    u32 n = 0;
    if (claimed >= 1280) out[n++] = MIN(claimed, (u32)LINK_DATAGRAM_MAX + 28);
    for (size_t i = 0; i < ARRAY_LEN(USUAL); i++)
        if (USUAL[i] < claimed || !claimed) out[n++] = USUAL[i];
    return n;
}
