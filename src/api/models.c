/* GET /v1/models and GET /models: the catalogue and what lies on this machine's disk, in OpenAI's,
 * exo's and the guides' shapes at once. */
#include <stdlib.h>
#include <string.h>

#include "api/api_impl.h"
#include "base/clock.h"
#include "base/json.h"

static void put_model(struct str *s, const struct store_model *m, i64 now_s) {
    json_comma(s);
    str_addc(s, '{');
    json_put_str(s, "id", m->id);
    json_put_str(s, "object", "model");
    json_put_int(s, "created", now_s);
    json_put_str(s, "owned_by", "skein");
    json_put_str(s, "hugging_face_id", m->id);
    json_put_str(s, "name", m->title[0] ? m->title : m->id);
    json_put_str(s, "description", "");
    json_put_u64(s, "context_length", m->n_ctx);
    json_key(s, "tags");
    str_addz(s, "[]");
    json_put_u64(s, "storage_size_megabytes", (m->size_bytes + (1 << 19)) >> 20);
    json_put_u64(s, "size", m->size_bytes);
    json_put_bool(s, "supports_tensor", true);
    json_key(s, "tasks");
    str_addz(s, "[\"TextGeneration\"]");
    json_put_bool(s, "is_custom", !m->catalogued);
    json_put_str(s, "family", m->arch);
    json_put_str(s, "quantization", m->quant);
    json_key(s, "capabilities");
    str_addz(s, "[\"text\"]");
    json_put_bool(s, "downloaded", m->path[0] != 0);
    str_addc(s, '}');
}

static void put_short(struct str *s, const struct store_model *m) {
    json_comma(s);
    str_addc(s, '{');
    json_put_str(s, "id", m->id);
    json_put_str(s, "name", m->title[0] ? m->title : m->id);
    json_put_u64(s, "size", m->size_bytes);
    str_addc(s, '}');
}

void api_models(struct api *api, const struct http_req *r, const char *rest,
                struct http_answer *a) {
    (void)rest;
    const char *status = http_req_query(r, "status");
    bool only_here = status && strcmp(status, "downloaded") == 0;
    if (status && !only_here) {
        struct fault f;
        fault_set(&f, ERR_ARG, "status", "status must be \"downloaded\", or left out");
        fault_answer(&f, a);
        return;
    }
    struct arena arena = {0};
    u32 n;
    struct store_model *m = store_list(node_store(api->node), &arena, &n);
    i64 now_s = clock_wall_ms() / 1000;
    struct str s = {0};
    str_addz(&s, "{\"object\":\"list\",\"data\":[");
    for (u32 i = 0; i < n; i++)
        if (m[i].path[0] || !only_here) put_model(&s, &m[i], now_s);
    str_addz(&s, "],\"models\":[");
    for (u32 i = 0; i < n; i++)
        if (m[i].path[0] || !only_here) put_short(&s, &m[i]);
    str_addz(&s, "]}");
    api_answer_json(a, 200, &s);
    str_deinit(&s);
    arena_deinit(&arena);
}

void api_model(struct api *api, const struct http_req *r, const char *rest, struct http_answer *a) {
    (void)r;
    struct store_model *m = xcalloc(1, sizeof *m);
    struct fault f = {0};
    struct str s = {0};
    bool ok = api_model_name_ok(api, rest, &f);
    if (ok && !store_resolve(node_store(api->node), rest, m, &f.e)) {
        f = fault_of(&f.e);
        ok = false;
    }
    if (!ok) {
        fault_answer(&f, a);
    } else {
        put_model(&s, m, clock_wall_ms() / 1000);
        api_answer_json(a, 200, &s);
    }
    str_deinit(&s);
    free(m);
}
