#include "base/random.h"

#include <unistd.h>
#ifdef __APPLE__
#include <sys/random.h>
#endif

static void philox_round(u32 c[4], const u32 k[2]) {
    u64 p0 = (u64)0xD2511F53u * c[0], p1 = (u64)0xCD9E8D57u * c[2];
    u32 n0 = (u32)(p1 >> 32) ^ c[1] ^ k[0], n2 = (u32)(p0 >> 32) ^ c[3] ^ k[1];
    c[1] = (u32)p1;
    c[3] = (u32)p0;
    c[0] = n0;
    c[2] = n2;
}

u64 random_at(u64 seed, u64 counter) {
    u32 c[4] = {(u32)counter, (u32)(counter >> 32), 0, 0};
    u32 k[2] = {(u32)seed, (u32)(seed >> 32)};
    for (int i = 0; i < 10; i++) {
        philox_round(c, k);
        k[0] += 0x9E3779B9u; /* the golden ratio and sqrt(3) - 1, as in the paper */
        k[1] += 0xBB67AE85u;
    }
    return (u64)c[1] << 32 | c[0];
}

double random_unit(u64 seed, u64 counter) {
    return (double)(random_at(seed, counter) >> 11) * 0x1p-53;
}

void random_bytes(void *p, size_t n) {
    for (size_t at = 0; at < n; at += 256) /* the most that getentropy gives at once */
        ASSERT(getentropy((u8 *)p + at, MIN(n - at, (size_t)256)) == 0);
}

u64 random_u64(void) {
    u64 v;
    random_bytes(&v, sizeof v);
    return v;
}
