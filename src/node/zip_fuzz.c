/* Any bytes as a wheel: the directory, then whatever member is called "a". */
#include "node/zip.h"

int LLVMFuzzerTestOneInput(const u8 *data, size_t n);

static bool count(void *ctx, const void *p, size_t n, struct err *e) {
    u64 *total = ctx;
    *total += n + (n ? *(const u8 *)p & 0 : 0);
    return *total < 64 << 20 || err_set(e, ERR_LIMIT, "enough");
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t n) {
    struct err e = {0};
    struct zip_member m;
    u64 total = 0;
    if (zip_find(data, n, "a", &m, &e)) zip_read(data, n, &m, count, &total, &e);
    return 0;
}
