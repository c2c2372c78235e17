#include <string.h>

#include "net/identity.h"

int LLVMFuzzerTestOneInput(const u8 *data, size_t n);

int LLVMFuzzerTestOneInput(const u8 *data, size_t n) {
    struct identity_file a, b;
    struct str s = {0};
    if (!identity_file_parse((struct view){(const char *)data, n}, &a, NULL)) return 0;
    identity_file_write(&a, &s);
    ASSERT(identity_file_parse(str_view(&s), &b, NULL));
    ASSERT(memcmp(&a, &b, sizeof a) == 0);
    str_deinit(&s);
    return 0;
}
