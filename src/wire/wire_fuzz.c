/* Fuzz target: every message decoder and the frame splitter. The first byte chooses the type. */
#include <stdlib.h>

#include "wire/frame.h"
#include "wire/msg.h"

int LLVMFuzzerTestOneInput(const u8 *data, size_t n);

int LLVMFuzzerTestOneInput(const u8 *data, size_t n) {
    if (n < 1) return 0;
    const struct wire_table *t = msg_table(data[0] % MSG_TYPE_N);
    if (t) {
        struct arena a = {0};
        void *msg = calloc(1, t->size_bytes);
        if (msg && wire_decode(t, data + 1, n - 1, &a, msg, NULL)) {
            struct str again = {0};
            wire_encode(t, msg, &again);
            str_deinit(&again);
        }
        free(msg);
        arena_deinit(&a);
    }
    struct frame_in in = {0};
    struct frame f;
    frame_in_add(&in, data, n);
    while (frame_in_next(&in, &f, NULL) == 1) {
    }
    frame_in_deinit(&in);
    return 0;
}
