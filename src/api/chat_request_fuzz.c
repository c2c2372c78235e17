/* Fuzz target: the body of a chat request. What is accepted must travel to the runner unchanged. */
#include "api/chat_request.h"

int LLVMFuzzerTestOneInput(const u8 *data, size_t n);

int LLVMFuzzerTestOneInput(const u8 *data, size_t n) {
    struct chat_request r;
    struct fault f;
    struct str s = {0};
    if (chat_request_parse(&r, (struct view){(const char *)data, n}, &f)) {
        struct arena a = {0};
        struct msg_generate back;
        wire_encode(msg_table(MSG_GENERATE), &r.gen, &s);
        ASSERT(wire_decode(msg_table(MSG_GENERATE), s.p, s.n, &a, &back, NULL));
        arena_deinit(&a);
    } else {
        ASSERT(f.e.code != ERR_NONE && f.e.msg[0]);
        fault_json(&f, &s);
        ASSERT(utf8_valid(s.p, s.n));
    }
    str_deinit(&s);
    chat_request_deinit(&r);
    return 0;
}
