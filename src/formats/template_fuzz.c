#include "formats/template.h"

#include <string.h>

/* Fuzz target: a template, a zero byte, and the JSON of its variables. Without the zero byte the
 * variables are a short conversation. Whatever happens, it ends, and a failure has a message. */

int LLVMFuzzerTestOneInput(const u8 *data, size_t n);

static const char conversation[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"a <b> \\u00e9\"}, {\"role\": \"user\", "
    "\"content\": [{\"type\": \"text\", \"text\": \"x\"}]}, {\"role\": \"assistant\", "
    "\"tool_calls\": "
    "[{\"function\": {\"name\": \"f\", \"arguments\": {\"k\": [1, 2.5, null, true]}}}]}], "
    "\"tools\": [{\"name\": \"f\"}], \"add_generation_prompt\": true, \"s\": \"Hello, "
    "\\ud83e\\udda9\", "
    "\"l\": [3, 1, 2], \"d\": {\"b\": 1, \"a\": [1]}, \"n\": 7, \"f\": 2.5}";

int LLVMFuzzerTestOneInput(const u8 *data, size_t n) {
    const u8 *zero = n ? memchr(data, 0, n) : NULL;
    size_t n_source = zero ? (size_t)(zero - data) : n;
    struct view source = {(const char *)data, n_source}, vars = view_of(conversation);
    if (zero) vars = (struct view){(const char *)zero + 1, n - n_source - 1};
    const struct template_limits limits = {.max_depth = 64,
                                           .max_output_bytes = 1 << 16,
                                           .max_steps = 20000,
                                           .max_memory_bytes = 4 << 20};
    struct err e = {0};
    struct str out = {0};
    struct template *t = template_compile(source, &e);
    bool ok = t && template_render(t, vars, 1735221909, -3600, &limits, &out, &e);
    ASSERT(utf8_valid(str_z(&out), out.n));
    ASSERT(ok || (e.code != ERR_NONE && e.msg[0] && utf8_valid(e.msg, strlen(e.msg))));
    template_free(t);
    str_deinit(&out);
    return 0;
}
