/* Fuzz target: what a stranger sends to a link meter, and what a strange meter greets with. */
#include <stdlib.h>
#include <string.h>

#include "net/link_proto.h"

int LLVMFuzzerTestOneInput(const u8 *data, size_t n);
int LLVMFuzzerTestOneInput(const u8 *data, size_t n) {
    u8 b[LINK_PROOF_BYTES] = {0}, again[LINK_PROOF_BYTES];
    static const u8 TOKEN[LINK_TOKEN_BYTES] = {1}, NONCE[LINK_NONCE_BYTES] = {2};
    struct link_greeting g;
    struct link_order o;
    memcpy(b, data, n < sizeof b ? n : sizeof b);
    if (link_greeting_get(b, &g) && g.state > LINK_TAKEN) abort();
    if (link_proof_ok(b, TOKEN, NONCE)) {
        link_proof_put(TOKEN, NONCE, again);
        if (memcmp(b, again, sizeof b) != 0) abort();
    }
    if (link_order_get(b, &o) && o.op == LINK_SINK && o.value > LINK_SESSION_BYTES) abort();
    return 0;
}
