/* Fuzz target: placements and instances that clients send. */
#include "api/place_request.h"

int LLVMFuzzerTestOneInput(const u8 *data, size_t n);

static void check(bool ok, const struct place_request *r, const struct fault *f) {
    const struct msg_rank *k = r->p.wish.ranks.v;
    if (!ok) {
        ASSERT(f->e.code != ERR_NONE && f->e.msg[0]);
        return;
    }
    ASSERT(r->p.model && *r->p.model);
    for (u64 i = 0; i < r->p.wish.ranks.n; i++) ASSERT(k[i].node);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t n) {
    struct view body = {(const char *)data, n};
    struct place_request r;
    struct fault f;
    check(place_request_parse(&r, body, &f), &r, &f);
    place_request_deinit(&r);
    check(place_request_instance(&r, body, &f), &r, &f);
    place_request_deinit(&r);
    struct arena a = {0};
    struct wire_list ranks;
    struct err e;
    char *text = arena_printf(&a, "%.*s", (int)MIN(n, (size_t)1000), body.p);
    if (place_request_layers(&a, text, &ranks, &e)) ASSERT(ranks.n > 0);
    struct http_pair add[] = {{"model_id", "m"}, {"add", text}};
    struct http_req q = {.query = add, .n_query = 2};
    check(place_request_query(&r, &q, &f), &r, &f);
    place_request_deinit(&r);
    arena_deinit(&a);
    return 0;
}
