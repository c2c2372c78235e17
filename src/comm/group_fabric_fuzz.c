#include <stdlib.h>
#include <string.h>

#include "comm/group_internal.h"

/* Offers, and messages of somebody who has the token: of any number, in any order. The first byte
 * says how long a message is; each has a head, the sequence and count of which are the input's. */
int LLVMFuzzerTestOneInput(const u8 *data, size_t n);
int LLVMFuzzerTestOneInput(const u8 *data, size_t n) {
    struct fabric_offer offer;
    static u8 msg[16][FABRIC_HEAD_BYTES + 256];
    struct group_rank ranks[2] = {{.n_lanes = 1}, {.rank = 1, .n_lanes = 1, .on_fabric = true}};
    struct group g = {.n_ranks = 2, .ranks = ranks};
    u32 n_msgs = 0;
    if (fabric_parse_offer(&offer, data, n, NULL) &&
        strlen(offer.provider) + strlen(offer.host) + offer.address_n > n)
        abort();
    ranks[1].stage = calloc(1, GROUP_STAGE_BYTES);
    while (n > 3 && n_msgs < ARRAY_LEN(msg)) {
        size_t part = MIN((size_t)data[0], n - 3);
        struct fabric_head h = {
            .from = data[1] % 4, .n = (u32)part, .seq = data[1] / 4, .arrived = data[2]};
        fabric_put_head(&h, msg[n_msgs]);
        memcpy(msg[n_msgs] + FABRIC_HEAD_BYTES, data + 3, part);
        group_fabric_take(&g, msg[n_msgs++], FABRIC_HEAD_BYTES + part);
        data += 3 + part;
        n -= 3 + part;
    }
    group_fabric_take(&g, msg[0], n); /* cut short */
    if (ranks[1].fab.arrived > n_msgs) abort();
    group_bufs_free(ranks[1].ready);
    group_bufs_free(ranks[1].filling);
    group_bufs_free(ranks[1].spare);
    free(ranks[1].stage);
    return 0;
}
