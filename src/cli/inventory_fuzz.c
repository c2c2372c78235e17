#include "cli/inventory.h"

int LLVMFuzzerTestOneInput(const u8 *data, size_t n);

int LLVMFuzzerTestOneInput(const u8 *data, size_t n) {
    struct arena mem = {0};
    struct inventory inv;
    if (inventory_parse((struct view){(const char *)data, n}, &mem, &inv, NULL)) {
        ASSERT(inv.n > 0);
        for (u32 i = 0; i < inv.n; i++) ASSERT(inv.v[i].name && inv.v[i].n_addresses > 0);
        inventory_deinit(&inv);
    }
    arena_deinit(&mem);
    return 0;
}
