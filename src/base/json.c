#include "base/json.h"

#include <math.h>
#include <stdlib.h>

json_t *json_parse(struct view text, struct err *e) {
    json_error_t je;
    json_t *j = json_loadb(text.p, text.n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &je);
    if (!j) err_set(e, ERR_FORMAT, "JSON, line %d, column %d: %s", je.line, je.column, je.text);
    return j;
}

static int dump_to(const char *p, size_t n, void *ctx) {
    str_add(ctx, p, n);
    return 0;
}

void json_dump(const json_t *j, struct str *out) {
    json_dump_callback(j, dump_to, out, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
}

void json_add_str(struct str *out, struct view s) {
    str_addc(out, '"');
    for (size_t i = 0; i < s.n;) {
        u8 c = (u8)s.p[i];
        if (c < 0x20 || c == '"' || c == '\\' || c == 0x7F) {
            static const char SHORT[] = "btn\0fr"; /* \b \t \n (no \v) \f \r */
            if (c == '"' || c == '\\')
                str_addf(out, "\\%c", c);
            else if (c >= 8 && c <= 13 && c != 11)
                str_addf(out, "\\%c", SHORT[c - 8]);
            else
                str_addf(out, "\\u%04x", c);
            i++;
            continue;
        }
        u32 cp;
        int k = utf8_decode(s.p + i, s.n - i, &cp);
        if (k == 0)
            str_add(out, "\xEF\xBF\xBD", 3);
        else
            str_add(out, s.p + i, (size_t)k);
        i += k ? (size_t)k : 1;
    }
    str_addc(out, '"');
}

void json_comma(struct str *out) {
    if (out->n && out->p[out->n - 1] != '{' && out->p[out->n - 1] != '[') str_addc(out, ',');
}

void json_key(struct str *out, const char *key) {
    json_comma(out);
    json_add_str(out, view_of(key));
    str_addc(out, ':');
}

void json_put_view(struct str *out, const char *key, struct view value) {
    json_key(out, key);
    json_add_str(out, value);
}

void json_put_str(struct str *out, const char *key, const char *value) {
    if (value)
        json_put_view(out, key, view_of(value));
    else
        json_put_null(out, key);
}

void json_put_int(struct str *out, const char *key, i64 value) {
    json_key(out, key);
    str_addf(out, "%lld", (long long)value);
}

void json_put_u64(struct str *out, const char *key, u64 value) {
    json_key(out, key);
    str_addf(out, "%llu", (unsigned long long)value);
}

void json_put_num(struct str *out, const char *key, double value) {
    json_key(out, key);
    if (isfinite(value))
        str_addf(out, "%.9g", value);
    else
        str_addz(out, "null");
}

void json_put_bool(struct str *out, const char *key, bool value) {
    json_key(out, key);
    str_addz(out, value ? "true" : "false");
}

void json_put_null(struct str *out, const char *key) {
    json_key(out, key);
    str_addz(out, "null");
}
