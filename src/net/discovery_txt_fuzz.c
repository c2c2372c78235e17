#include <string.h>

#include "net/discovery_txt.h"

int LLVMFuzzerTestOneInput(const u8 *data, size_t n);

/* What is accepted says the same again when it is written and read. */
int LLVMFuzzerTestOneInput(const u8 *data, size_t n) {
    struct discovery_info a, b;
    struct str s = {0};
    if (!discovery_txt_parse(data, n, &a, NULL)) return 0;
    discovery_txt_write(&a, &s);
    ASSERT(discovery_txt_parse(s.p, s.n, &b, NULL));
    ASSERT(strcmp(a.node_id, b.node_id) == 0 && strcmp(a.name_space, b.name_space) == 0);
    ASSERT(a.bus_port == b.bus_port && a.api_port == b.api_port && a.boot == b.boot);
    str_deinit(&s);
    return 0;
}
