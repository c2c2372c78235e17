/* Any bytes as a catalogue file. */
#include "node/catalogue.h"

int LLVMFuzzerTestOneInput(const u8 *data, size_t n);

int LLVMFuzzerTestOneInput(const u8 *data, size_t n) {
    struct catalogue c = {0};
    struct err e = {0};
    if (catalogue_add(&c, (struct view){(const char *)data, n}, "https://h", &e))
        ASSERT(catalogue_find(&c, c.v[0].id));
    catalogue_deinit(&c);
    return 0;
}
