#include "base/id.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/random.h"

void id_uuid(char out[ID_UUID_CAP]) {
    u8 b[16];
    u64 ms = (u64)clock_wall_ms();
    random_bytes(b, sizeof b);
    for (int i = 0; i < 6; i++) b[i] = (u8)(ms >> (40 - 8 * i));
    b[6] = (u8)(0x70 | (b[6] & 0x0F));
    b[8] = (u8)(0x80 | (b[8] & 0x3F));
    static const u8 GROUP[] = {4, 2, 2, 2, 6};
    const u8 *from = b;
    for (size_t i = 0; i < ARRAY_LEN(GROUP); from += GROUP[i++]) {
        if (i) *out++ = '-';
        hex_encode(from, GROUP[i], out);
        out += 2 * GROUP[i];
    }
}
