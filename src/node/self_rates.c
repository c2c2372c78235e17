/* The measurement's file: JSON, so that people can read and delete it. */
#include <string.h>

#include "base/json.h"
#include "node/self.h"

enum { VERSION = 1 };

static u64 number(const json_t *j, const char *key) {
    json_int_t v = json_integer_value(json_object_get(j, key));
    return v > 0 ? (u64)v : 0;
}

static const char *text_of(const json_t *j, const char *key, struct arena *mem) {
    const char *s = json_string_value(json_object_get(j, key));
    return arena_strdup(mem, s && strlen(s) < 200 ? s : "");
}

bool self_rates_read(struct view text, const char *fingerprint, struct arena *mem,
                     struct msg_measured *out) {
    json_t *j = json_parse(text, NULL);
    const char *of = json_string_value(json_object_get(j, "hardware"));
    bool ok = number(j, "version") == VERSION && of && strcmp(of, fingerprint) == 0;
    if (ok)
        *out = (struct msg_measured){.read_bytes_s = number(j, "read_bytes_per_s"),
                                     .int8_ops_s = number(j, "int8_ops_per_s"),
                                     .float_ops_s = number(j, "f32_ops_per_s"),
                                     .n_threads = (u32)number(j, "threads"),
                                     .isa = text_of(j, "isa", mem),
                                     .isas = text_of(j, "isas", mem)};
    json_decref(j);
    return ok && out->read_bytes_s;
}

void self_rates_write(struct str *o, const char *fingerprint, const struct msg_measured *m) {
    str_addc(o, '{');
    json_put_u64(o, "version", VERSION);
    json_put_str(o, "hardware", fingerprint);
    json_put_u64(o, "read_bytes_per_s", m->read_bytes_s);
    json_put_u64(o, "int8_ops_per_s", m->int8_ops_s);
    json_put_u64(o, "f32_ops_per_s", m->float_ops_s);
    json_put_u64(o, "threads", m->n_threads);
    json_put_str(o, "isa", m->isa);
    json_put_str(o, "isas", m->isas);
    str_addz(o, "}\n");
}
