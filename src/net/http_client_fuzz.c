/* Any bytes as an event stream, fed at once and in pieces: the same events, whatever the pieces. */
#include <string.h>

#include "net/http_client.h"

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

static bool on_event(void *ctx, const char *p, size_t n) {
    struct str *all = ctx;
    str_add(all, p, n);
    str_addc(all, '\0');
    return all->n < 1 << 20;
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size) {
    struct http_sse whole = {0}, pieces = {0};
    struct str a = {0}, b = {0};
    if (size == 0) return 0;
    size_t step = 1 + data[0] % 7;
    const char *p = (const char *)data + 1;
    size--;
    bool ok_a = http_sse_feed(&whole, p, size, on_event, &a, NULL), ok_b = true;
    for (size_t i = 0; ok_b && i < size; i += step) {
        ok_b = http_sse_feed(&pieces, p + i, MIN(step, size - i), on_event, &b, NULL);
    }
    ASSERT(ok_a == ok_b && a.n == b.n && (!a.n || memcmp(a.p, b.p, a.n) == 0));
    http_sse_deinit(&whole);
    http_sse_deinit(&pieces);
    str_deinit(&a);
    str_deinit(&b);
    return 0;
}
