/* Any bytes as a series of frames (u16 length before each): nothing is read outside, and what is
 * put together has the size that was announced. */
#include <string.h>

#include "net/bus_frame.h"

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

int LLVMFuzzerTestOneInput(const u8 *data, size_t size) {
    struct bus_assembly a = {0};
    struct str again = {0};
    while (size >= 2) {
        size_t n = MIN((size_t)data[0] | (size_t)data[1] << 8, size - 2);
        struct bus_frame f;
        if (bus_frame_parse(&f, data + 2, n) && f.kind != BUS_FRAME_OTHER_VERSION) {
            str_clear(&again);
            bus_frame_write(&f, &again);
            ASSERT(again.n == n && memcmp(again.p, data + 2, n) == 0);
            struct view v;
            if (f.kind == BUS_FRAME_DATA && bus_assembly_add(&a, &f, &v) == 1) {
                ASSERT(v.n == f.total);
            }
            ASSERT(a.bytes.n <= BUS_MESSAGE_MAX);
        }
        data += 2 + n;
        size -= 2 + n;
    }
    bus_assembly_reset(&a);
    str_deinit(&again);
    return 0;
}
