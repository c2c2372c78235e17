#include "node/router.h"

#include <string.h>

#include "base/hash.h"

enum { CUT_FIRST = 128, CUT_FACTOR = 4 };

struct router_key router_key(const char *model, const char *prompt, size_t n) {
    struct router_key k = {0};
    u64 seed = hash_bytes(model, strlen(model));
    size_t cut = CUT_FIRST;
    for (; k.n < ROUTER_CUTS && cut <= n; cut *= CUT_FACTOR)
        k.hash[k.n++] = hash_bytes(prompt, cut) ^ seed;
    return k;
}

static u64 last_place(const struct router *r, u64 hash) {
    for (u32 i = 1; i <= ROUTER_SEEN; i++) { /* newest first */
        u32 at = (r->next + ROUTER_SEEN - i) % ROUTER_SEEN;
        if (r->seen[at].place && r->seen[at].hash == hash) return r->seen[at].place;
    }
    return 0;
}

u32 router_pick(const struct router *r, const struct router_key *k,
                const struct router_replica *replicas, u32 n_replicas) {
    u32 best = 0;
    for (u32 i = 1; i < n_replicas; i++)
        if (replicas[i].load < replicas[best].load) best = i;
    for (u32 c = k->n; n_replicas > 1 && c-- > 0;) { /* the longest beginning first */
        u64 place = last_place(r, k->hash[c]);
        for (u32 i = 0; place && i < n_replicas; i++)
            if (replicas[i].place == place &&
                replicas[i].load <= replicas[best].load + ROUTER_SLACK)
                return i;
    }
    return best;
}

void router_sent(struct router *r, const struct router_key *k, u64 place) {
    for (u32 c = 0; c < k->n; c++) {
        if (last_place(r, k->hash[c]) == place) continue;
        r->seen[r->next].hash = k->hash[c];
        r->seen[r->next].place = place;
        r->next = (r->next + 1) % ROUTER_SEEN;
    }
}
