/* The measurement's file: JSON, so that people can read and delete it. */
#include <string.h>

#include "base/json.h"
#include "node/self.h"

enum { VERSION = 4, RATE_FIGURES = 7, RATES_MAX = 64, AGREE_PCT = 10 };

static u64 number(const json_t *j, const char *key) {
    json_int_t v = json_integer_value(json_object_get(j, key));
    return v > 0 ? (u64)v : 0;
}

static const char *text_of(const json_t *j, const char *key, struct arena *mem) {
    const char *s = json_string_value(json_object_get(j, key));
    return arena_strdup(mem, s && strlen(s) < 200 ? s : "");
}

/* Each format's as [type, one, narrow, few, many, many with 8 bits, narrow many]. What makes no
 * sense is left out. */
static struct wire_list read_list(const json_t *list, struct arena *mem) {
    size_t n = MIN(json_array_size(list), (size_t)RATES_MAX), k = 0;
    struct msg_rate *v = arena_array(mem, n + 1, sizeof *v);
    for (size_t i = 0; i < n; i++) {
        u64 x[RATE_FIGURES];
        bool ok = true;
        for (u32 f = 0; f < RATE_FIGURES; f++) {
            json_int_t at = json_integer_value(json_array_get(json_array_get(list, i), f));
            ok = ok && at >= 0;
            x[f] = ok ? (u64)at : 0;
        }
        if (ok && x[0] <= UINT32_MAX)
            v[k++] = (struct msg_rate){(u32)x[0], x[1], x[2], x[3], x[4], x[5], x[6]};
    }
    return (struct wire_list){v, k};
}

bool self_rates_read(struct view text, const char *fingerprint, struct arena *mem,
                     struct msg_measured *out, bool *confirmed) {
    json_t *j = json_parse(text, NULL);
    const char *of = json_string_value(json_object_get(j, "hardware"));
    bool ok = number(j, "version") == VERSION && of && strcmp(of, fingerprint) == 0;
    if (ok)
        *out = (struct msg_measured){.read_bytes_s = number(j, "read_bytes_per_s"),
                                     .int8_ops_s = number(j, "int8_ops_per_s"),
                                     .float_ops_s = number(j, "f32_ops_per_s"),
                                     .n_threads = (u32)number(j, "threads"),
                                     .call_ns = (u32)MIN(number(j, "call_ns"), (u64)UINT32_MAX),
                                     .attend_ops_s = number(j, "attend_ops_per_s"),
                                     .attend_one_ops_s = number(j, "attend_one_ops_per_s"),
                                     .rates = read_list(json_object_get(j, "rates"), mem),
                                     .isa = text_of(j, "isa", mem),
                                     .isas = text_of(j, "isas", mem)};
    *confirmed = json_is_true(json_object_get(j, "confirmed"));
    json_decref(j);
    return ok && out->read_bytes_s;
}

void self_rates_write(struct str *o, const char *fingerprint, const struct msg_measured *m,
                      bool confirmed) {
    str_addc(o, '{');
    json_put_u64(o, "version", VERSION);
    json_put_str(o, "hardware", fingerprint);
    json_put_bool(o, "confirmed", confirmed);
    json_put_u64(o, "read_bytes_per_s", m->read_bytes_s);
    json_put_u64(o, "int8_ops_per_s", m->int8_ops_s);
    json_put_u64(o, "f32_ops_per_s", m->float_ops_s);
    json_put_u64(o, "threads", m->n_threads);
    json_put_str(o, "isa", m->isa);
    json_put_str(o, "isas", m->isas);
    json_put_u64(o, "call_ns", m->call_ns);
    json_put_u64(o, "attend_ops_per_s", m->attend_ops_s);
    json_put_u64(o, "attend_one_ops_per_s", m->attend_one_ops_s);
    json_key(o, "rates");
    str_addc(o, '[');
    const struct msg_rate *v = m->rates.v;
    for (u64 i = 0; i < m->rates.n; i++) {
        json_comma(o);
        const u64 x[] = {v[i].one_ops_s,  v[i].narrow_ops_s, v[i].few_ops_s,
                         v[i].many_ops_s, v[i].many8_ops_s,  v[i].narrow_many_ops_s};
        str_addf(o, "[%u", v[i].type);
        for (u32 f = 0; f < ARRAY_LEN(x); f++) str_addf(o, ",%llu", (unsigned long long)x[f]);
        str_addc(o, ']');
    }
    str_addc(o, ']');
    str_addz(o, "}\n");
}

/* Of two that agree the middle, so that trying again does not make it better and better. */
static u64 better(u64 a, u64 b, bool agree) {
    return agree && a && b ? MIN(a, b) + (MAX(a, b) - MIN(a, b)) / 2 : MAX(a, b);
}

void self_rates_better(struct msg_measured *m, const struct msg_measured *old) {
    struct msg_rate *v = m->rates.v;
    const struct msg_rate *w = old->rates.v;
    bool agree = self_rates_agree(m, old);
    m->read_bytes_s = better(m->read_bytes_s, old->read_bytes_s, agree);
    m->int8_ops_s = better(m->int8_ops_s, old->int8_ops_s, agree);
    m->float_ops_s = better(m->float_ops_s, old->float_ops_s, agree);
    m->attend_ops_s = better(m->attend_ops_s, old->attend_ops_s, agree);
    m->attend_one_ops_s = better(m->attend_one_ops_s, old->attend_one_ops_s, agree);
    if (old->call_ns) m->call_ns = MIN(m->call_ns, old->call_ns);
    for (u64 i = 0; i < m->rates.n; i++)
        for (u64 k = 0; k < old->rates.n; k++) {
            if (v[i].type != w[k].type) continue;
            v[i].one_ops_s = better(v[i].one_ops_s, w[k].one_ops_s, agree);
            v[i].narrow_ops_s = better(v[i].narrow_ops_s, w[k].narrow_ops_s, agree);
            v[i].few_ops_s = better(v[i].few_ops_s, w[k].few_ops_s, agree);
            v[i].many_ops_s = better(v[i].many_ops_s, w[k].many_ops_s, agree);
            v[i].many8_ops_s = better(v[i].many8_ops_s, w[k].many8_ops_s, agree);
            v[i].narrow_many_ops_s =
                better(v[i].narrow_many_ops_s, w[k].narrow_many_ops_s, agree);
        }
}

/* Of two figures; nothing is said by what neither has measured. */
static void compare(u64 a, u64 b, u32 *n, u32 *near) {
    double apart = (double)(MAX(a, b) - MIN(a, b));
    *n += a || b;
    *near += (a || b) && 100 * apart <= AGREE_PCT * (double)MIN(a, b);
}

bool self_rates_agree(const struct msg_measured *m, const struct msg_measured *old) {
    const struct msg_rate *v = m->rates.v, *w = old->rates.v;
    u32 n = 0, near = 0;
    for (u64 i = 0; i < m->rates.n; i++)
        for (u64 k = 0; k < old->rates.n; k++) {
            if (v[i].type != w[k].type) continue;
            compare(v[i].one_ops_s, w[k].one_ops_s, &n, &near);
            compare(v[i].many_ops_s, w[k].many_ops_s, &n, &near);
        }
    return near > n / 2;
}
